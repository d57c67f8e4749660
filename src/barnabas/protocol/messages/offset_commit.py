"""OffsetCommit (API 8): stores the offsets up to which a group has read.

Sent to the group coordinator, which appends the offsets to ``__consumer_offsets``. ``committed_offset`` is the **next**
record to read, one more than the last one processed. ``committed_metadata`` belongs to the application, up to
``offset.metadata.max.bytes``; ``committed_leader_epoch`` (-1: unknown) later lets the reader detect whether the log was
truncated below it.

The checks depend on the committer. A member of a classic group sends its generation: ILLEGAL_GENERATION and
UNKNOWN_MEMBER_ID mean that a rebalance has assigned the partitions to other members, so a commit could move *their*
position back. REBALANCE_IN_PROGRESS: join first. A member of the new protocol sends its member epoch;
STALE_MEMBER_EPOCH: take the epoch of the next heartbeat and retry. Generation -1 without a member id is a tool, or a
consumer with manually assigned partitions; it is accepted while the group has no members. Errors are per partition,
even if they concern the whole group.

Versions: v2 to v4 ``retention_time_ms``, -1 for the broker's setting; v3 throttle time; v4 client-side throttling
(KIP-219); v5 the broker alone sets the retention (KIP-211); v6 leader epoch (KIP-320); v7 static ids (KIP-345); v8
flexible; v9 member epochs, GROUP_ID_NOT_FOUND for a group that no longer exists (ILLEGAL_GENERATION before),
STALE_MEMBER_EPOCH (KIP-848); v10 topic ids instead of names, UNKNOWN_TOPIC_ID.
"""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int16, int32, int64, string, uuid
from barnabas.protocol.message import Request, Response, Struct


class OffsetCommitRequestPartition(Struct):
    partition_index: int = int32(default=0)
    committed_offset: int = int64(default=0)
    committed_leader_epoch: int = int32("6+", default=-1, ignorable=True)
    committed_metadata: str | None = string(default="", nullable="0+")


class OffsetCommitRequestTopic(Struct):
    name: str = string("0-9", default="", ignorable=True)
    topic_id: Uuid = uuid("10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition, default_factory=list)


class OffsetCommitRequest(Request, api_key=ApiKey.OFFSET_COMMIT):
    group_id: str = string(default="")
    generation_id_or_member_epoch: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string("1+", default="", ignorable=True)
    group_instance_id: str | None = string("7+", default=None, nullable="7+")
    retention_time_ms: int = int64("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic, default_factory=list)


class OffsetCommitResponsePartition(Struct):
    partition_index: int = int32(default=0)
    error_code: int = int16(default=0)


class OffsetCommitResponseTopic(Struct):
    name: str = string("0-9", default="", ignorable=True)
    topic_id: Uuid = uuid("10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition, default_factory=list)


class OffsetCommitResponse(Response, api_key=ApiKey.OFFSET_COMMIT):
    throttle_time_ms: int = int32("3+", default=0, ignorable=True)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic, default_factory=list)
