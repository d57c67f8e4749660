"""A committed offset."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.internal.consumer_offsets import OffsetCommitValue


class OffsetAndMetadata(NamedTuple):
    """Where a group stands in a partition, and since when."""

    committed_offset: int
    leader_epoch: int = -1
    """Of the last record that was read, -1 if the client did not tell."""
    metadata: str = ""
    commit_timestamp_ms: int = 0
    expire_timestamp_ms: int | None = None
    topic_id: Uuid = ZERO_UUID
    """Of the topic it was committed for, if the client spoke of ids."""
    record_offset: int = -1
    """Where the record of it is: the later commit counts, and the one of a transaction counts from where it was
    written, not from where its transaction ended."""

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
