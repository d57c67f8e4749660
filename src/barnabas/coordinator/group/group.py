"""The common interface of groups."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, Protocol

from barnabas.common.topic_partition import TopicPartition
from barnabas.coordinator.group.offset_and_metadata import OffsetAndMetadata
from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord

CONSUMER_PROTOCOL_TYPE = "consumer"
"""The protocol type of consumers; Kafka Connect and others have their own."""

UNKNOWN_MEMBER_ID = ""


class GroupType(Enum):
    """The group types, with the names of ListGroups: in lower case, while states are capitalized."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    UNKNOWN = "unknown"

    @classmethod
    def parse(cls, name: str) -> GroupType:
        return _TYPES.get(name.lower(), cls.UNKNOWN)


_TYPES = {kind.value: kind for kind in GroupType}


class OffsetExpirationCondition(NamedTuple):
    """When offsets of a group expire: after the retention time since `base_timestamp`."""

    base_timestamp: Callable[[OffsetAndMetadata], int]

    def is_expired(self, offset: OffsetAndMetadata, now_ms: int, retention_ms: int) -> bool:
        """Returns whether an offset has expired. An offset with an expiry of its own keeps that."""
        if offset.expire_timestamp_ms is not None:
            return now_ms >= offset.expire_timestamp_ms
        return now_ms - self.base_timestamp(offset) >= retention_ms


class GroupProgress(NamedTuple):
    """How far a group has read: the number of its members, and its committed offsets."""

    group_id: str
    num_members: int
    offsets: dict[TopicPartition, int]


class Group(Protocol):
    """A group from the view of offsets and administration. `epoch` is the offset of the committed state to read."""

    group_id: str

    @property
    def type(self) -> GroupType: ...

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        ...

    def num_members_at(self, epoch: int) -> int:
        """Returns the number of its members."""
        ...

    def state_at(self, epoch: int) -> str:
        """Returns the name of its state."""
        ...

    def protocol_type_at(self, epoch: int) -> str: ...

    def validate_offset_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation_or_epoch: int,
        *,
        is_transactional: bool,
        api_version: int,
    ) -> None:
        """Raises the error for a commit by this member, if it is not allowed."""
        ...

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int, epoch: int) -> None: ...

    def validate_offset_delete(self) -> None: ...

    def validate_delete_group(self) -> None: ...

    def is_subscribed_to_topic(self, topic: str) -> bool: ...

    def create_group_tombstone_records(self, records: list[CoordinatorRecord]) -> None: ...

    @property
    def offset_expiration_condition(self) -> OffsetExpirationCondition | None:
        """Returns None while none of its offsets may expire."""
        ...
