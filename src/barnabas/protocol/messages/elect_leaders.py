"""ElectLeaders (API 43): asks the controller to elect partition leaders now (KIP-460).

``election_type`` 0 returns leadership to the *preferred* replica, the first of the replica list, if it is in sync: this
balances the load after a restart. Type 1 is an *unclean* election, for a partition that has no leader and no replica in
sync: a live replica becomes the leader, and the records it lacks are lost.

``topic_partitions`` null means all partitions; partitions that need no election are then left out of the response,
whereas a partition requested by name gets ELECTION_NOT_NEEDED. That is an error code, but not a failure.
PREFERRED_LEADER_NOT_AVAILABLE and ELIGIBLE_LEADERS_NOT_AVAILABLE: no suitable replica is alive.

Versions: v1 unclean elections, top-level error; v2 flexible.
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int8, int16, int32, string
from barnabas.protocol.message import Request, Response, Struct


class TopicPartitions(Struct):
    topic: str = string(default="")
    partitions: list[int] = array("int32", default_factory=list)


class ElectLeadersRequest(Request, api_key=ApiKey.ELECT_LEADERS):
    election_type: int = int8("1+", default=0)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, default_factory=list, nullable="0+")
    timeout_ms: int = int32(default=60000)


class PartitionResult(Struct):
    partition_id: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(default="", nullable="0+")


class ReplicaElectionResult(Struct):
    topic: str = string(default="")
    partition_result: list[PartitionResult] = array(PartitionResult, default_factory=list)


class ElectLeadersResponse(Response, api_key=ApiKey.ELECT_LEADERS):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16("1+", default=0)
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult, default_factory=list)
