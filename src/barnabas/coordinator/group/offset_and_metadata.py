"""A committed offset."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.internal.consumer_offsets import OffsetCommitValue


class OffsetAndMetadata(NamedTuple):
    """The committed offset of a group in a partition, with metadata and timestamp."""

    committed_offset: int
    leader_epoch: int = -1
    """The leader epoch of the last consumed record; -1 if the client did not send it."""
    metadata: str = ""
    commit_timestamp_ms: int = 0
    expire_timestamp_ms: int | None = None
    topic_id: Uuid = ZERO_UUID
    """The ID of the topic, if the client sent it."""
    record_offset: int = -1
    """The offset of its record: the later commit wins, and a transactional one counts from where it was written, not
    from where its transaction ended."""

    @classmethod
    def from_record(cls, record_offset: int, value: OffsetCommitValue) -> OffsetAndMetadata:
        return cls(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            None if value.expire_timestamp == -1 else value.expire_timestamp,
            value.topic_id,
            record_offset,
        )
