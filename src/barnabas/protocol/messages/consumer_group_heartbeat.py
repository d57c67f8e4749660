"""ConsumerGroupHeartbeat (API 68): joins, stays in, rebalances and leaves a consumer group (KIP-848).

The whole group protocol in one request. The coordinator computes assignments; members report the partitions they own,
and each response assigns the next step. There is no barrier as in JoinGroup: a rebalance is many small, independent
steps.

``member_epoch`` says what the sender wants: 0 join, positive stay, -1 leave, -2 leave temporarily (a static member that
will return keeps its partitions reserved). The member adopts the epoch in the response and sends it in all requests,
OffsetCommit included.

Fields are sent **only when they changed**: null, or -1 for the rebalance timeout, means "unchanged". A joining member
sends everything, with ``topic_partitions`` empty. Likewise ``assignment`` null in the response means "unchanged",
whereas an empty one means "revoke everything". The member revokes the partitions it lost and reports the rest in
``topic_partitions``; only then are the freed partitions assigned to others.

FENCED_MEMBER_EPOCH and UNKNOWN_MEMBER_ID: drop all partitions at once and join again with epoch 0.
UNRELEASED_INSTANCE_ID: another process still uses this static id. Send the next heartbeat after
``heartbeat_interval_ms``, or at once if a field has changed.

Versions: v1 the client generates its own member id, a UUID (KIP-1082), so that a retried join does not add a second
member (in v0 the coordinator may generate it); ``subscribed_topic_regex``, evaluated by the broker with RE2/J,
INVALID_REGULAR_EXPRESSION.
"""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int16, int32, string, struct, uuid
from barnabas.protocol.message import Request, Response, Struct


class TopicPartitions(Struct):
    topic_id: Uuid = uuid(default=ZERO_UUID)
    partitions: list[int] = array("int32", default_factory=list)


class ConsumerGroupHeartbeatRequest(Request, api_key=ApiKey.CONSUMER_GROUP_HEARTBEAT):
    group_id: str = string(default="")
    member_id: str = string(default="")
    member_epoch: int = int32(default=0)
    instance_id: str | None = string(default=None, nullable="0+")
    rack_id: str | None = string(default=None, nullable="0+")
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array("string", default=None, nullable="0+")
    subscribed_topic_regex: str | None = string("1+", default=None, nullable="1+")
    server_assignor: str | None = string(default=None, nullable="0+")
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, default=None, nullable="0+")


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions, default_factory=list)


class ConsumerGroupHeartbeatResponse(Response, api_key=ApiKey.CONSUMER_GROUP_HEARTBEAT):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(default=None, nullable="0+")
    member_id: str | None = string(default=None, nullable="0+")
    member_epoch: int = int32(default=0)
    heartbeat_interval_ms: int = int32(default=0)
    assignment: Assignment | None = struct(Assignment, default=None, nullable="0+")
