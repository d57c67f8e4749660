"""The result of a read from the log: its start, and the records or the region of the file that has them."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.log.log_offset_metadata import LogOffsetMetadata
from barnabas.network.reactor.send import FileRegion
from barnabas.protocol.internal.storage import AbortedTxn


class FetchDataInfo(NamedTuple):
    """The result of one read.

    `records` begins with the batch that contains the requested offset, so its first records may precede that offset.
    It ends at the size limit, possibly in the middle of a batch. Clients drop both. It is a region of the segment's
    file to be sent unchanged, or the bytes themselves if the search for the offset has read them. It is never an empty
    region: some implementations of ``sendfile`` send the whole file for a length of 0.
    """

    fetch_offset_metadata: LogOffsetMetadata
    records: FileRegion | bytes
    first_entry_incomplete: bool = False
    """Whether the first batch exceeds the size limit."""
    aborted_transactions: list[AbortedTxn] | None = None
    """For a read-committed fetch: the aborted transactions that overlap the records."""
