"""Transactions as a partition sees them: from the first record of one to its marker."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.log.log_offset_metadata import LogOffsetMetadata


class TxnMetadata:
    """A transaction that has records in this partition, and whose marker is not there yet or not replicated yet."""

    __slots__ = ("first_offset", "last_offset", "producer_id")

    def __init__(self, producer_id: int, first_offset: LogOffsetMetadata, last_offset: int | None = None) -> None:
        self.producer_id = producer_id
        self.first_offset = first_offset
        self.last_offset = last_offset
        """The offset of the marker, once there is one."""

    def __repr__(self) -> str:
        return (
            f"TxnMetadata(producer_id={self.producer_id}, first_offset={self.first_offset.message_offset}, "
            f"last_offset={self.last_offset})"
        )


class CompletedTxn(NamedTuple):
    """A transaction whose marker is being appended: what the transaction index is written from, if it was aborted."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the marker."""
    is_aborted: bool
