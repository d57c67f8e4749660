"""DOC offsets."""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.fields import array, binary, int32, int64, string, uuid
from barnabas.protocol.internal.framing import CoordinatorKey, CoordinatorValue
from barnabas.protocol.message import Struct


class LegacyOffsetCommitKey(CoordinatorKey, record_type=0, versions="0"):
    group: str = string("0", default="")
    topic: str = string("0", default="")
    partition: int = int32("0", default=0)


class LegacyOffsetCommitValue(CoordinatorValue, record_type=0, versions="0"):
    offset: int = int64("0", default=0)
    metadata: str = string("0", default="")
    commit_timestamp: int = int64("0", default=0)


class OffsetCommitKey(CoordinatorKey, record_type=1, versions="0"):
    group: str = string("0", default="")
    topic: str = string("0", default="")
    partition: int = int32("0", default=0)


class OffsetCommitValue(CoordinatorValue, record_type=1, versions="0-4", flexible="4+"):
    offset: int = int64(default=0)
    leader_epoch: int = int32("3+", default=-1, ignorable=True)
    metadata: str = string(default="")
    commit_timestamp: int = int64(default=0)
    expire_timestamp: int = int64("1", default=-1, ignorable=True)
    topic_id: Uuid = uuid("4+", default=ZERO_UUID, tag=0, ignorable=True)


class GroupMetadataKey(CoordinatorKey, record_type=2, versions="0"):
    group: str = string("0", default="")


class MemberMetadata(Struct):
    member_id: str = string(default="")
    group_instance_id: str | None = string("3+", default=None, nullable="3+", ignorable=True)
    client_id: str = string(default="")
    client_host: str = string(default="")
    rebalance_timeout: int = int32("1+", default=-1, ignorable=True)
    session_timeout: int = int32(default=0)
    subscription: bytes = binary(default=b"")
    assignment: bytes = binary(default=b"")


class GroupMetadataValue(CoordinatorValue, record_type=2, versions="0-4", flexible="4+"):
    protocol_type: str = string(default="")
    generation: int = int32(default=0)
    protocol: str | None = string(default="", nullable="0+")
    leader: str | None = string(default="", nullable="0+")
    current_state_timestamp: int = int64("2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata, default_factory=list)
