"""What a read from the log gives: where it begins, and the bytes, which nobody has read yet."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.log.log_offset_metadata import LogOffsetMetadata
from barnabas.network.send import FileRegion
from barnabas.protocol.internal.storage import AbortedTxn


class FetchDataInfo(NamedTuple):
    """The result of one read.

    `records` begins with the batch that has the requested offset in it, so its first records may come before that
    offset, and ends wherever the size limit fell, in the middle of a batch if need be: clients drop both. It is a
    region of the segment's file to be sent as it is, or ``b""``, never an empty region: some ``sendfile`` takes a
    length of 0 for "all there is".
    """

    fetch_offset_metadata: LogOffsetMetadata
    records: FileRegion | bytes
    first_entry_incomplete: bool = False
    """Whether not even the first batch fitted into the size limit."""
    aborted_transactions: list[AbortedTxn] | None = None
    """For a read-committed fetch: the aborted transactions that overlap the records."""
