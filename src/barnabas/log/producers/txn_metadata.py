"""A transaction within one partition, from its first record to its marker."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.log.log_offset_metadata import LogOffsetMetadata


class TxnMetadata:
    """A transaction with records in this partition whose marker is not yet written or not yet replicated."""

    __slots__ = ("first_offset", "last_offset", "producer_id")

    def __init__(self, producer_id: int, first_offset: LogOffsetMetadata, last_offset: int | None = None) -> None:
        self.producer_id = producer_id
        self.first_offset = first_offset
        self.last_offset = last_offset
        """The offset of the marker; None until it is written."""

    def __repr__(self) -> str:
        return (
            f"TxnMetadata(producer_id={self.producer_id}, first_offset={self.first_offset.message_offset}, "
            f"last_offset={self.last_offset})"
        )


class CompletedTxn(NamedTuple):
    """A transaction whose marker is being appended; if aborted, it becomes an entry of the transaction index."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the marker."""
    is_aborted: bool
