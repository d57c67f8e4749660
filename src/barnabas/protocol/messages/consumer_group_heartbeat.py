"""ConsumerGroupHeartbeat (API 68): joins, keeps up, rebalances and leaves a consumer group (KIP-848).

The whole group protocol in one request. The coordinator computes assignments; members report what they own and are
told, one step at a time, what to own next. Nobody waits at a barrier as in JoinGroup: a rebalance is many small,
independent steps.

``member_epoch`` says what the sender wants: 0 join, positive stay, -1 leave, -2 leave for a moment (a static member
that will be back keeps its partitions reserved). The member steps up to the epoch in the response and quotes it
everywhere, OffsetCommit included.

Fields are sent **only when they changed**: null, or -1 for the rebalance timeout, is "as before". A joining member
sends everything, with ``topic_partitions`` empty. Likewise ``assignment`` null in the response is "unchanged", whereas
an empty one means "give up everything". The member revokes what it lost, reports the rest in ``topic_partitions``,
and only then do others receive the freed partitions.

FENCED_MEMBER_EPOCH and UNKNOWN_MEMBER_ID: drop all partitions at once and join again with epoch 0.
UNRELEASED_INSTANCE_ID: another process still uses this static id. Send the next heartbeat after
``heartbeat_interval_ms``, or at once if there is news to report.

Versions: v1 the client makes up its own member id, a UUID (KIP-1082), so that a retried join is not a second member
(in v0 the coordinator may do it); ``subscribed_topic_regex``, evaluated by the broker with RE2/J,
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
