"""Vote (API 52): a controller asks the other voters to make it the raft leader.

An election in KRaft is Raft's: a candidate raises its epoch, votes for itself, and needs a majority. It sends the end
of its log as ``last_offset_epoch`` and ``last_offset`` (the *end* offset, one past the last record). A voter grants its
vote if it has not voted for another candidate in that epoch, knows no leader in it, and its own log is not further
ahead: a higher last epoch wins, then the longer log. So the elected leader has every committed record. A vote is
written to the ``quorum-state`` file *before* it is sent, because a restarted voter could otherwise vote twice.

With ``pre_vote`` (KIP-996) no vote is recorded: the sender asks whether it *would* be elected before it raises its
epoch. A voter that still has contact with a leader refuses, so a node that returns from a network partition does not
disrupt a healthy leader.

``leader_id`` (-1 unknown) and ``leader_epoch`` in the response are what the voter knows. FENCED_LEADER_EPOCH: the
candidate's epoch is old. INVALID_VOTER_KEY: the request was meant for another node or disk. INCONSISTENT_CLUSTER_ID:
another cluster.

Versions: v1 directory ids on both sides, receiver's id, endpoint of the leader (KIP-853); v2 ``pre_vote``.
"""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, boolean, int16, int32, int64, string, uuid
from barnabas.protocol.message import Request, Response, Struct
from barnabas.protocol.messages.begin_quorum_epoch import NodeEndpoint


class RequestPartitionData(Struct):
    partition_index: int = int32(default=0)
    replica_epoch: int = int32(default=0)
    replica_id: int = int32(default=0)
    replica_directory_id: Uuid = uuid("1+", default=ZERO_UUID, ignorable=True)
    voter_directory_id: Uuid = uuid("1+", default=ZERO_UUID, ignorable=True)
    last_offset_epoch: int = int32(default=0)
    last_offset: int = int64(default=0)
    pre_vote: bool = boolean("2+", default=False)


class RequestTopicData(Struct):
    topic_name: str = string(default="")
    partitions: list[RequestPartitionData] = array(RequestPartitionData, default_factory=list)


class VoteRequest(Request, api_key=ApiKey.VOTE):
    cluster_id: str | None = string(default=None, nullable="0+")
    voter_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[RequestTopicData] = array(RequestTopicData, default_factory=list)


class ResponsePartitionData(Struct):
    partition_index: int = int32(default=0)
    error_code: int = int16(default=0)
    leader_id: int = int32(default=0)
    leader_epoch: int = int32(default=0)
    vote_granted: bool = boolean(default=False)


class ResponseTopicData(Struct):
    topic_name: str = string(default="")
    partitions: list[ResponsePartitionData] = array(ResponsePartitionData, default_factory=list)


class VoteResponse(Response, api_key=ApiKey.VOTE):
    error_code: int = int16(default=0)
    topics: list[ResponseTopicData] = array(ResponseTopicData, default_factory=list)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", default_factory=list, tag=0)
