"""The ``.txnindex`` file: the aborted transactions of a segment."""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from barnabas.log.segment.file_handle import FileHandle, read_fully, sync_data, write_fully
from barnabas.log.storage_errors import CorruptIndexError, FileClosedError, delete_file, disk_access
from barnabas.protocol.internal.storage import AbortedTxn

CURRENT_VERSION: Final = 0
ENTRY: Final = struct.Struct(">hqqqq")
"""The version, and the fields of `AbortedTxn`: producer id, first offset, last offset, last stable offset."""
_LAST_OFFSET: Final = 3
_READ_ENTRIES: Final = 512


class TxnIndexSearchResult(NamedTuple):
    aborted_transactions: list[AbortedTxn]
    is_complete: bool
    """Whether later segments need not be searched."""


class TransactionIndex:
    """Lists the aborted transactions of a segment, for read-committed consumers.

    The records of an aborted transaction stay in the log. Each fetch response tells a read-committed consumer which
    transactions in its range to skip. The index has one entry for every abort *marker* of the segment, in log order.
    The transaction may have begun segments earlier, so a search begins with the segment of the fetch offset and
    continues through later ones until no further marker can reach back into the range.

    The **last stable offset** of an entry ends the search: all offsets before it belonged to finished transactions when
    the marker was written, so no later marker aborts a transaction that began before it::

        offset    10      11      12      13       14       15
                  p1: a   p2: b   p1: c   p1 ABORT p2: d    p2 ABORT

        entries   (p1, first 10, last 13, stable 11): p2, from 11 on, was open
                  (p2, first 11, last 15, stable 16)

        fetch 10..11, upper bound 11: the first entry is enough, because its last stable offset is 11
        fetch 10..12, upper bound 13: both entries

    Unlike the other indexes it is small, seldom needed, and required for correctness, not only for speed. It is a plain
    file, created with the first entry. An entry has 34 bytes.

    One thread at a time may append or truncate; any number may search.
    """

    __slots__ = ("_closed", "_handle", "_last_offset", "_size", "_sync_lock", "_unsynced", "path", "start_offset")

    def __init__(self, start_offset: int, path: Path) -> None:
        self.start_offset = start_offset
        self.path = path
        self._handle: FileHandle | None = None
        self._last_offset: int | None = None
        """The last offset of the last entry; None until it is read."""
        self._closed = False
        with disk_access("open", path):
            try:
                self._size = path.stat().st_size
            except FileNotFoundError:
                self._size = 0
        self._sync_lock = threading.Lock()
        """Held during a sync. No other lock is taken inside it."""
        self._unsynced = self._size > 0

    @property
    def entries(self) -> int:
        return self._size // ENTRY.size

    @property
    def is_empty(self) -> bool:
        return self.entries == 0

    def prepare_append(self) -> None:
        """Opens the file, so that the next `append` needs no file descriptor."""
        self._load_last_offset()
        with disk_access("open", self.path):
            self._open()

    def append(self, aborted: AbortedTxn) -> None:
        """Adds a transaction, whose marker must come after all others."""
        last = self._load_last_offset()
        if last is not None and aborted.last_offset <= last:
            raise ValueError(
                f"{self.path}: the transaction that ends at offset {aborted.last_offset} does not come after the last "
                f"one, which ends at {last}"
            )
        data = ENTRY.pack(
            CURRENT_VERSION,
            aborted.producer_id,
            aborted.first_offset,
            aborted.last_offset,
            aborted.last_stable_offset,
        )
        # Overwrites a partial entry that a crash may have left.
        position = self.entries * ENTRY.size
        with disk_access("append to", self.path):
            write_fully(self._open(), (data,), position)
        self._unsynced = True
        self._last_offset = aborted.last_offset
        self._size = position + ENTRY.size

    def all_aborted_txns(self) -> list[AbortedTxn]:
        return [txn for _, txn in self._iterate()]

    def collect_aborted_txns(self, fetch_offset: int, upper_bound_offset: int) -> TxnIndexSearchResult:
        """Returns the transactions that overlap the offsets from `fetch_offset` to `upper_bound_offset` (exclusive)."""
        found: list[AbortedTxn] = []
        for _, txn in self._iterate(self._first_ending_at(fetch_offset)):
            if txn.first_offset < upper_bound_offset:
                found.append(txn)
            if txn.last_stable_offset >= upper_bound_offset:
                return TxnIndexSearchResult(found, True)
        return TxnIndexSearchResult(found, False)

    def truncate_to(self, offset: int) -> None:
        """Removes the transactions whose marker is at this offset or later."""
        keep = self._first_ending_at(offset)
        if keep < self.entries:
            self._truncate(keep)

    def reset(self) -> None:
        """Removes all transactions."""
        if self._size:
            self._truncate(0)

    def sanity_check(self) -> None:
        """Raises `CorruptIndexError` if the index is obviously corrupt."""
        if self._size % ENTRY.size:
            raise CorruptIndexError(f"{self.path} has {self._size} bytes, no multiple of {ENTRY.size}")
        last = self.start_offset - 1
        for slot, txn in self._iterate():
            if txn.last_offset <= last:
                raise CorruptIndexError(
                    f"{self.path}: entry {slot}, {txn}, should end behind offset {last}, where the one before it or "
                    f"the segment before this one ends"
                )
            last = txn.last_offset

    # The file

    def flush(self) -> None:
        """Forces all entries to disk. Waits for a sync in progress, which may have some of them."""
        with self._sync_lock:
            if not self._unsynced:
                return
            # Cleared before the sync, which may not include concurrent appends.
            self._unsynced = False
            try:
                with disk_access("flush", self.path):
                    sync_data(self._open())
            except BaseException:
                self._unsynced = True
                raise

    def rename(self, path: Path) -> None:
        """Renames the file, if it exists."""
        with disk_access("rename", self.path):
            try:
                self.path.replace(path)
            except FileNotFoundError:
                if self._size:
                    raise
        self.path = path

    def update_parent_dir(self, directory: Path) -> None:
        """Updates the path after the directory was renamed."""
        self.path = directory / self.path.name

    def close(self) -> None:
        self._handle = None
        self._closed = True

    def delete_if_exists(self) -> bool:
        """Deletes the file; returns whether it existed."""
        self.close()
        return delete_file(self.path)

    # Implementation

    def _open(self) -> FileHandle:
        handle = self._handle
        if handle is None:
            if self._closed:
                raise FileClosedError(f"{self.path} is closed")
            handle = self._handle = FileHandle.open(self.path, os.O_RDWR | os.O_CREAT)
        return handle

    def _read(self, slot: int, count: int = 1) -> bytes:
        with disk_access("read", self.path):
            data = read_fully(self._open(), count * ENTRY.size, slot * ENTRY.size)
        if len(data) < count * ENTRY.size and slot + count <= self.entries:
            raise CorruptIndexError(f"{self.path} ends before its entry {slot + len(data) // ENTRY.size}")
        # Shorter data means that the index was truncated concurrently: the reader uses the remaining entries.
        return data[: len(data) - len(data) % ENTRY.size]

    def _iterate(self, slot: int = 0) -> Iterator[tuple[int, AbortedTxn]]:
        entries = self.entries
        while slot < entries:
            data = self._read(slot, min(entries - slot, _READ_ENTRIES))
            if not data:
                return
            for version, producer_id, first, last, stable in ENTRY.iter_unpack(data):
                if version != CURRENT_VERSION:
                    raise CorruptIndexError(f"{self.path}: entry {slot} has the unknown version {version}")
                yield (
                    slot,
                    AbortedTxn(
                        producer_id=producer_id, first_offset=first, last_offset=last, last_stable_offset=stable
                    ),
                )
                slot += 1

    def _first_ending_at(self, offset: int) -> int:
        """Returns the first slot whose transaction ends at this offset or later."""
        low, high = 0, self.entries
        while low < high:
            middle = (low + high) // 2
            data = self._read(middle)
            if data and ENTRY.unpack(data)[_LAST_OFFSET] < offset:
                low = middle + 1
            else:
                high = middle
        return low

    def _load_last_offset(self) -> int | None:
        if self._last_offset is None and self.entries:
            self._last_offset = ENTRY.unpack(self._read(self.entries - 1))[_LAST_OFFSET]
        return self._last_offset

    def _truncate(self, entries: int) -> None:
        self._size = entries * ENTRY.size
        self._last_offset = None
        with disk_access("truncate", self.path):
            os.ftruncate(self._open(), self._size)
        self._unsynced = True

    def __repr__(self) -> str:
        return f"TransactionIndex({self.path}, start_offset={self.start_offset}, entries={self.entries})"
