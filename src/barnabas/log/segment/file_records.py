"""The ``.log`` file of a segment: a sequence of record batches and nothing else.

The header of a batch has its length, so the file can only be scanned from a known position: its beginning, or a
position from an index. Only the search for a timestamp reads the records inside the batches.
"""

from __future__ import annotations

import os
import struct
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from barnabas._kernels import record_batch
from barnabas.common.errors import CorruptRecordError, InvalidRecordError, KafkaStorageError
from barnabas.log.segment import preallocation
from barnabas.log.segment.file_handle import (
    BUFFER_TYPES,
    Buffer,
    FileHandle,
    read_fully,
    sync_data,
    write_fully,
)
from barnabas.log.storage_errors import FileClosedError, delete_file, disk_access, storage_error
from barnabas.network.reactor.send import FileRegion
from barnabas.records.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_OFFSET,
    NO_PARTITION_LEADER_EPOCH,
    NO_TIMESTAMP,
    RecordBatch,
)
from barnabas.records.reader import read_records

find_batch = record_batch.find_batch

MAX_SEGMENT_SIZE: Final = 2**31 - 1
"""Positions are stored as int32."""

_NEVER: Final = MAX_SEGMENT_SIZE + 1

_LENGTH_AND_MAGIC: Final = struct.Struct(">8xi4xb")
_SEARCHED: Final = struct.Struct(">qi4xb")
"""Base offset, length, magic."""
_SMALLEST_BATCH: Final = HEADER_SIZE - LOG_OVERHEAD
_LEGACY_CRC: Final = struct.Struct(">12xI")
_SMALLEST_LENGTH: Final = 14
"""The length of the smallest message in the oldest format. A shorter one is damaged, whatever its magic."""

# Read sizes of header-only scans. A system call costs about as much as copying 16 KiB, so headers of small batches are
# read many at a time, and those of large batches alone. The first read covers the usual distance between an index
# entry and the requested batch.
_FIRST_READ: Final = 1 << 12
_LONGEST_READ: Final = 1 << 16
_LARGE_BATCH: Final = 1 << 13
_LOAD_CHUNK: Final = 1 << 20


class LogOffsetPosition(NamedTuple):
    """A batch: its base offset, its position in the file, and its size."""

    offset: int
    position: int
    size: int


class TimestampAndOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int | None = None


class FileBatch(RecordBatch):
    """A batch in a file: its header is in memory, its records are read on first access.

    It can be used like any `RecordBatch`, but not changed. It stays readable when the file is renamed or deleted.
    """

    __slots__ = ("_handle", "_loaded", "_path", "position")

    position: int
    """The position of the batch in the file."""

    def __init__(self, handle: FileHandle, path: Path, position: int, header: bytes, at: int = 0) -> None:
        """Takes the header from a buffer with at least that, where it begins `at` an index."""
        self._handle = handle
        self._path = path
        self._loaded: memoryview | None = None
        self.position = position
        super().__init__(header, at, is_whole=False)

    @property
    def view(self) -> memoryview:
        if self._loaded is None:
            with disk_access("read", self._path):
                data = read_fully(self._handle, self.size_in_bytes, self.position)
            if len(data) < self.size_in_bytes:
                raise CorruptRecordError(
                    f"{self._path}: the record batch at position {self.position} is cut off: "
                    f"only {len(data)} of its {self.size_in_bytes} bytes are there"
                )
            self._loaded = memoryview(data)
        return self._loaded

    @view.setter
    def view(self, _: memoryview) -> None:
        raise AttributeError("the bytes of a batch in a file cannot be replaced")

    def __len__(self) -> int:
        return self.size_in_bytes


class FileRecords:
    """Record batches in a file that grows at its end.

    **Writing** is one system call per append, at a known position and not at "the end of the file". If the disk is full
    half way through, the size does not change, and the torn batch is truncated, or else overwritten by the next one.
    The caller allocates blocks in advance when the size reaches `allocate_at`; unused blocks are released when the file
    is trimmed, truncated or closed.

    **Reading** for a consumer reads nothing: `read_slice` returns a region of the file, which the transport moves to
    the socket. The other methods scan the headers: in a file with batches of 16 KiB they read 61 bytes in 16,384.

    **A torn tail**, an incomplete batch that a crash leaves, counts as the end of the file: a scan stops before it. An
    impossible header is an error: `CorruptRecordError` (or `InvalidRecordError` for message formats from before Kafka
    0.11). Only recovery, which verifies all checksums, truncates the file.

    **Closing and deleting** do not affect a region that is being sent, or a batch that is still in use: both hold the
    `FileHandle`, and the last reference to it closes the descriptor.

    One thread at a time (the owner of the log's lock) may append or truncate; any number may read meanwhile. Readers
    see the file up to `size_in_bytes`, which grows after the bytes are written.
    """

    __slots__ = (
        "_allocated",
        "_changed",
        "_handle",
        "_sync_lock",
        "_unflushed",
        "allocate_at",
        "mutable",
        "path",
        "size_in_bytes",
    )

    size_in_bytes: int
    """The size of the file as readers see it. Only the methods of this class change it."""
    allocate_at: int
    """The size at which `allocate_ahead` has to be called."""

    def __init__(self, path: Path, *, preallocate: int = 0, mutable: bool = True) -> None:
        """Opens or creates the file.

        With `preallocate`, an empty file gets that length at once, for file systems on which growing a file is
        expensive; `size_in_bytes` counts only written bytes.
        """
        self.path = path
        self.mutable = mutable
        with disk_access("open", path):
            handle = FileHandle.open(path, os.O_RDWR | os.O_CREAT if mutable else os.O_RDONLY)
            status = os.fstat(handle)
            size = status.st_size
            if size > MAX_SEGMENT_SIZE:
                raise KafkaStorageError(f"{path} has {size} bytes; a segment has at most {MAX_SEGMENT_SIZE}")
            if size == 0 and preallocate and mutable:
                os.ftruncate(handle, preallocate)
        self._handle: FileHandle | None = handle
        self.size_in_bytes = size
        self._allocated = preallocation.allocated_end(status) if mutable else 0
        self.allocate_at = preallocation.FIRST
        self._sync_lock = threading.Lock()
        """Held during a sync. No other lock is taken inside it."""
        # A killed process may have left bytes that are not on the disk yet.
        self._unflushed = size > 0
        self._changed = False

    @property
    def is_open(self) -> bool:
        return self._handle is not None

    # Writing

    def append(self, buffers: Buffer | Sequence[Buffer]) -> int:
        """Appends the bytes of one or several buffers; returns their number."""
        handle = self._handle
        if handle is None:
            handle = self._open_handle()
        position = self.size_in_bytes
        try:
            if isinstance(buffers, BUFFER_TYPES):
                size = len(buffers)
                if size > MAX_SEGMENT_SIZE - position:
                    self._room_for(size)
                written = os.pwrite(handle, buffers, position)
                if written < size:
                    written += write_fully(handle, (memoryview(buffers)[written:],), position + written)
            else:
                self._room_for(sum(map(len, buffers)))
                written = write_fully(handle, buffers, position)
        except OSError as error:
            self._failed_at(handle, position, error)
        self._unflushed = self._changed = True
        self.size_in_bytes = position + written
        return written

    def _failed_at(self, handle: FileHandle, position: int, error: OSError) -> NoReturn:
        """Truncates the remains of a failed append, and raises the storage error."""
        with suppress(OSError):
            os.ftruncate(handle, position)
            self._allocated = 0
            self.allocate_at = preallocation.FIRST
        raise storage_error("append to", self.path, error) from error

    def _room_for(self, size: int) -> int:
        if size > MAX_SEGMENT_SIZE - self.size_in_bytes:
            raise ValueError(f"{size} bytes are too many for {self.path}, which has {self.size_in_bytes} already")
        return size

    def allocate_ahead(self, limit: int) -> None:
        """Allocates blocks for the next appends, up to `limit`, the maximum size of the file.

        This is only an optimization. Where it fails, blocks are allocated page by page, as for any file.
        """
        handle = self._handle
        size = self.size_in_bytes
        ahead = preallocation.step(size)
        end = min(size + ahead, limit)
        if handle is None or end <= size:
            self.allocate_at = _NEVER
            return
        start = max(size, self._allocated)
        # After a failure, too: some of the blocks may be allocated.
        self._allocated = max(end, start)
        go_on = start >= end or preallocation.allocate(handle, start, end - start)
        self.allocate_at = end - ahead // 2 if go_on and end < limit else _NEVER

    def note_flushed(self) -> None:
        """Marks the contents as flushed, after a clean shutdown."""
        self._unflushed = False

    def flush(self) -> None:
        """Forces everything that was appended to disk. Waits for a sync in progress, which may have part of it."""
        with self._sync_lock:
            if not self._unflushed:
                return
            # Cleared before the sync, which may not include concurrent appends.
            self._unflushed = False
            try:
                sync_data(self._open_handle())
            except OSError as error:
                self._unflushed = True
                raise storage_error("flush", self.path, error) from error

    def truncate_to(self, size: int) -> int:
        """Truncates the file at the start position of a batch; returns the number of bytes removed."""
        original = self.size_in_bytes
        if not 0 <= size <= original:
            raise ValueError(f"cannot truncate {self.path} to {size} bytes: it has {original}")
        handle = self._open_handle()
        self.size_in_bytes = size
        with disk_access("truncate", self.path):
            status = os.fstat(handle)
            if size < status.st_size:
                os.ftruncate(handle, size)
                self._unflushed = self._changed = True
            elif size == status.st_size and size < self._allocated:
                preallocation.give_back(handle, status)
        self._allocated = 0
        self.allocate_at = preallocation.FIRST
        return original - size

    def trim(self) -> None:
        """Releases unused preallocated space."""
        self.truncate_to(self.size_in_bytes)

    # The file

    def rename(self, path: Path) -> None:
        """Renames the file. Existing regions and batches stay valid."""
        with disk_access("rename", self.path):
            self.path.replace(path)
        self.path = path

    def update_parent_dir(self, directory: Path) -> None:
        """Updates the path after the directory was renamed."""
        self.path = directory / self.path.name

    def close(self) -> None:
        """Forces all changes to disk and closes the file."""
        if self._handle is not None:
            try:
                if self.mutable:
                    self.trim()
                if self._changed:
                    self.flush()
            finally:
                self.close_handlers()

    def close_handlers(self) -> None:
        """Closes the file without writing anything, for example after a disk failure."""
        self._handle = None

    def delete_if_exists(self) -> bool:
        """Deletes the file; returns whether it existed. Its space is free when its last region is released."""
        self.close_handlers()
        return delete_file(self.path)

    # Reading

    def read_slice(self, position: int, size: int) -> FileRegion:
        """Returns a region of the file, up to its end, for the transport. Reads nothing."""
        handle = self._handle
        if handle is None:
            handle = self._open_handle()
        if position < 0 or size < 0 or position + size > self.size_in_bytes:
            size = self._available(position, size)
        return FileRegion(handle, position, size)

    def read_bytes(self, position: int, size: int) -> bytes:
        """Reads a part of the file, up to its end."""
        size = self._available(position, size)
        with disk_access("read", self.path):
            return read_fully(self._open_handle(), size, position)

    def batches(self, start: int = 0, end: int | None = None) -> Iterator[FileBatch]:
        """Yields the batches from the start position of one on. Reads only their headers."""
        handle = self._open_handle()
        path = self.path
        for position, _, chunk, at in self._scan(start, end):
            yield FileBatch(handle, path, position, chunk, at)

    def loaded_batches(self, start: int = 0, end: int | None = None) -> Iterator[tuple[int, RecordBatch]]:
        """Yields positions and complete batches, for reading a whole file.

        The file is read in chunks of a megabyte, or of one batch if that is larger.
        """
        position = start
        end = self.size_in_bytes if end is None else min(end, self.size_in_bytes)
        chunk_size = _LOAD_CHUNK
        while end - position > MAGIC_OFFSET:
            wanted = min(chunk_size, end - position)
            chunk = memoryview(self.read_bytes(position, wanted))
            at = 0
            chunk_size = _LOAD_CHUNK
            while len(chunk) - at > MAGIC_OFFSET:
                length, magic = _LENGTH_AND_MAGIC.unpack_from(chunk, at)
                if length < _SMALLEST_BATCH or magic != MAGIC:
                    raise self._damage(length, magic, position + at)
                size = length + LOG_OVERHEAD
                if size > end - position - at:
                    return
                if size > len(chunk) - at:
                    chunk_size = max(chunk_size, size)
                    break
                yield position + at, RecordBatch(chunk, at)
                at += size
            if len(chunk) < wanted:
                return  # the file was truncated meanwhile
            position += at

    def search_for_offset(self, target: int, start_position: int = 0) -> LogOffsetPosition | None:
        """Finds the first batch whose last offset is at least `target`, from the start position of a batch on.

        The batch contains the offset, unless compaction removed that offset: then it is the next batch.
        """
        found = self.find_batch(target, start_position)
        return None if found is None else LogOffsetPosition(*found[:3])

    def find_batch(self, target: int, start_position: int) -> tuple[int, int, int, bytes, int] | None:
        """Finds a batch like `search_for_offset`: its base offset, position and size, and what was read for that.

        The last two values are bytes of the file, and the index of the batch in them. A small read needs no others.
        """
        handle = self._handle
        if handle is None:
            handle = self._open_handle()
        end = self.size_in_bytes
        position = start_position
        wanted = read_ahead = _FIRST_READ
        while end - position > MAGIC_OFFSET:
            wanted = min(wanted, end - position)
            try:
                chunk = os.pread(handle, wanted, position)
            except OSError as error:
                raise storage_error("read", self.path, error) from error
            if len(chunk) < wanted:
                chunk = self._read_ahead(handle, position, end, wanted)
            at = find_batch(chunk, target)
            position += at
            if at + HEADER_SIZE <= len(chunk):
                base_offset, length, magic = _SEARCHED.unpack_from(chunk, at)
                if length < _SMALLEST_BATCH or magic != MAGIC:
                    raise self._damage(length, magic, position)
                size = length + LOG_OVERHEAD
                return None if size > end - position else (base_offset, position, size, chunk, at)
            if at == 0:
                break  # the file ends in the middle of a header
            read_ahead = min(read_ahead * 4, _LONGEST_READ)
            # A batch that extends far beyond the chunk is followed by others like it, as a rule.
            wanted = HEADER_SIZE if at - len(chunk) >= _LARGE_BATCH else read_ahead
        return None

    def search_for_timestamp(
        self, target: int, start_position: int = 0, starting_offset: int = 0
    ) -> TimestampAndOffset | None:
        """Finds the first record at or after `starting_offset` whose timestamp is the target or later.

        Batches are skipped by the largest timestamp in their header; only a batch with such a record is read (and
        decompressed). If the record is before `starting_offset`, the search continues.
        """
        for batch in self.batches(start_position):
            if batch.max_timestamp >= target and batch.last_offset >= starting_offset:
                for record in read_records(batch, copy=False):
                    if record.timestamp >= target and record.offset >= starting_offset:
                        return TimestampAndOffset(record.timestamp, record.offset, _leader_epoch(batch))
        return None

    def largest_timestamp(self, start_position: int = 0) -> TimestampAndOffset:
        """Finds the largest timestamp from a position on, and the last offset of the first batch with it; else -1."""
        found = TimestampAndOffset(NO_TIMESTAMP, -1)
        for batch in self.batches(start_position):
            if batch.max_timestamp > found.timestamp:
                found = TimestampAndOffset(batch.max_timestamp, batch.last_offset, _leader_epoch(batch))
        return found

    def holds_old_format(self, position: int) -> bool:
        """Returns whether an intact message of format 0 or 1 (before Kafka 0.11) begins at a position."""
        head = self.read_bytes(position, MAGIC_OFFSET + 1)
        if len(head) <= MAGIC_OFFSET:
            return False
        length, magic = _LENGTH_AND_MAGIC.unpack_from(head)
        if magic not in (0, 1) or not _SMALLEST_LENGTH <= length <= self.size_in_bytes - position - LOG_OVERHEAD:
            return False
        data = self.read_bytes(position, length + LOG_OVERHEAD)
        stated: int = _LEGACY_CRC.unpack_from(data)[0]
        return zlib.crc32(memoryview(data)[MAGIC_OFFSET:]) == stated

    # Implementation

    def _open_handle(self) -> FileHandle:
        handle = self._handle
        if handle is None:
            raise FileClosedError(f"{self.path} is closed")
        return handle

    def _available(self, position: int, size: int) -> int:
        end = self.size_in_bytes
        if not 0 <= position <= end or size < 0:
            raise ValueError(f"no {size} bytes at position {position} of {self.path}, which has {end}")
        return min(size, end - position)

    def _scan(self, start: int, end: int | None = None) -> Iterator[tuple[int, int, bytes, int]]:
        """Yields each complete batch: position, size, a buffer, and the index of the header in the buffer."""
        handle = self._open_handle()
        end = self.size_in_bytes if end is None else min(end, self.size_in_bytes)
        position = chunk_start = start
        chunk = b""
        read_ahead = _FIRST_READ
        size = 0
        while end - position > MAGIC_OFFSET:
            at = position - chunk_start
            if at + HEADER_SIZE > len(chunk):
                chunk = self._read_ahead(handle, position, end, HEADER_SIZE if size >= _LARGE_BATCH else read_ahead)
                read_ahead = min(read_ahead * 4, _LONGEST_READ)
                chunk_start = position
                at = 0
                if len(chunk) <= MAGIC_OFFSET:
                    return  # the file was truncated meanwhile
            length, magic = _LENGTH_AND_MAGIC.unpack_from(chunk, at)
            if length < _SMALLEST_BATCH or magic != MAGIC:
                raise self._damage(length, magic, position)
            size = length + LOG_OVERHEAD
            if size > end - position or at + HEADER_SIZE > len(chunk):
                return
            yield position, size, chunk, at
            position += size

    def _read_ahead(self, handle: FileHandle, position: int, end: int, wanted: int) -> bytes:
        try:
            return read_fully(handle, min(wanted, end - position), position)
        except OSError as error:
            raise storage_error("read", self.path, error) from error

    def _damage(self, length: int, magic: int, position: int) -> CorruptRecordError | InvalidRecordError:
        """Returns the error for an impossible header."""
        where = f"{self.path}: the record batch at position {position}"
        if length < _SMALLEST_LENGTH or magic == MAGIC:
            return CorruptRecordError(f"{where} has an impossible length of {length} bytes")
        if 0 <= magic < MAGIC:
            return InvalidRecordError(f"{where} has message format {magic}; only {MAGIC} is supported")
        return CorruptRecordError(f"{where} has the unknown magic {magic}")

    def __repr__(self) -> str:
        return f"FileRecords({self.path}, size={self.size_in_bytes}{'' if self.is_open else ', closed'})"


def _leader_epoch(batch: RecordBatch) -> int | None:
    epoch = batch.partition_leader_epoch
    return None if epoch == NO_PARTITION_LEADER_EPOCH else epoch
