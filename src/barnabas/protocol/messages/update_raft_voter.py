"""UpdateRaftVoter (API 82): a voter tells the raft leader its present endpoints and supported versions (KIP-853).

Sent by a voter whose entry in the VotersRecord is out of date, usually after a restart with another address. The leader
appends a corrected record. ``current_leader`` in the response directs a sender that reached the wrong node; an id of
-1: no leader known.
"""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int16, int32, string, struct, uint16, uuid
from barnabas.protocol.message import Request, Response, Struct


class Listener(Struct):
    name: str = string(default="")
    host: str = string(default="")
    port: int = uint16(default=0)


class KRaftVersionFeature(Struct):
    """The range of ``kraft.version`` that the voter can run."""

    min_supported_version: int = int16(default=0)
    max_supported_version: int = int16(default=0)


class UpdateRaftVoterRequest(Request, api_key=ApiKey.UPDATE_RAFT_VOTER):
    cluster_id: str | None = string(default="", nullable="0+")
    current_leader_epoch: int = int32(default=0)
    voter_id: int = int32(default=0)
    voter_directory_id: Uuid = uuid(default=ZERO_UUID)
    listeners: list[Listener] = array(Listener, default_factory=list)
    k_raft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature, default_factory=KRaftVersionFeature)


class CurrentLeader(Struct):
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)
    host: str = string(default="")
    port: int = int32(default=0)


class UpdateRaftVoterResponse(Response, api_key=ApiKey.UPDATE_RAFT_VOTER):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    current_leader: CurrentLeader | None = struct(CurrentLeader, default=None, tag=0)
