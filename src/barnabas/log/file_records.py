"""The ``.log`` file of a segment: record batches, one behind the other, and nothing else.

A batch says in its header how long it is, so the file is a chain that can only be followed from a known place: its
beginning, or a position that an index knows. That is how everything here works. None of it looks into the batches but
the search for a timestamp.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from barnabas.common.errors import CorruptRecordError, InvalidRecordError, KafkaStorageError
from barnabas.log import preallocation
from barnabas.log.file_handle import (
    BUFFER_TYPES,
    Buffer,
    FileHandle,
    read_fully,
    read_fully_into,
    sync_data,
    write_fully,
)
from barnabas.log.storage_errors import FileClosedError, disk_access, storage_error
from barnabas.network.send import FileRegion
from barnabas.records.batch import (
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_OFFSET,
    NO_PARTITION_LEADER_EPOCH,
    NO_TIMESTAMP,
    RecordBatch,
)
from barnabas.records.reader import read_records

MAX_SEGMENT_SIZE: Final = 2**31 - 1
"""Positions are stored as int32."""

_NEVER: Final = MAX_SEGMENT_SIZE + 1

_LENGTH_AND_MAGIC: Final = struct.Struct(">8xi4xb")
_SEARCHED: Final = struct.Struct(">qi4xb6xi")
"""Base offset, length, magic, last offset delta."""
_SMALLEST_BATCH: Final = HEADER_SIZE - LOG_OVERHEAD
_LEGACY_CRC: Final = struct.Struct(">12xI")
_SMALLEST_LENGTH: Final = 14
"""Of a message in the oldest format. What is shorter is damaged, whatever the magic says."""

# How header-only scans read. A system call costs about as much as copying 16 KiB, so headers of small batches are
# read many at a time, and those of large batches alone. The first read covers the usual distance between the entry of
# an index and the batch that is looked for.
_FIRST_READ: Final = 1 << 12
_LONGEST_READ: Final = 1 << 16
_LARGE_BATCH: Final = 1 << 13
_LOAD_CHUNK: Final = 1 << 20

_new_tuple = tuple.__new__
"""A named tuple in one call; its class would make another one in Python."""


class LogOffsetPosition(NamedTuple):
    """A batch: the offset it begins with, where it is in the file, and how long."""

    offset: int
    position: int
    size: int


class TimestampAndOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int | None = None


class FileBatch(RecordBatch):
    """A batch in a file: its header is in memory, its records are read if and when somebody asks for them.

    It can be used like any `RecordBatch`, except that it is not the place to change anything. It stays readable when
    the file is renamed or deleted.
    """

    __slots__ = ("_handle", "_loaded", "_path", "position")

    position: int
    """Where it begins in the file."""

    def __init__(self, handle: FileHandle, path: Path, position: int, header: tuple[int, ...]) -> None:
        self._handle = handle
        self._path = path
        self._loaded: memoryview | None = None
        (
            self.base_offset,
            self.batch_length,
            self.partition_leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        ) = header
        self.position = position

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
        raise AttributeError("a batch in a file cannot be exchanged")

    def __len__(self) -> int:
        return self.size_in_bytes


class FileRecords:
    """Record batches in a file that grows at its end.

    **Writing** is one system call for one append, at a position that is known and not at "the end of the file". If the
    disk is full half way through, the size stays what it was, and the torn batch is cut off, or else overwritten by
    the next one. Whoever appends asks for blocks in advance when the file has come to `allocate_at`; what is left of
    them is given back when the file is trimmed, truncated or closed.

    **Reading** for a consumer reads nothing: `read_slice` names a part of the file, which the transport moves to the
    socket. The other methods follow the chain of headers; of a file with batches of 16 KiB they read 61 bytes in
    16,384.

    **A torn tail**, what a crash leaves of a batch that was being written, is taken for the end of the file: the chain
    stops before a batch that is not all there. A header that cannot be true is an error: `CorruptRecordError` (or
    `InvalidRecordError` for message formats from before Kafka 0.11). Only recovery, which looks at all checksums, cuts
    anything off.

    **Closing and deleting** do not pull the file from under a region that is on its way to a socket, or a batch that
    somebody still looks at: they hold on to the `FileHandle`, and the last one to let go of it closes the descriptor.

    One thread at a time may append or truncate (the owner of the log's lock); any number may read meanwhile. They see
    what was there when they looked at `size_in_bytes`, which grows after the bytes are written.
    """

    __slots__ = (
        "_allocated",
        "_changed",
        "_handle",
        "_unflushed",
        "allocate_at",
        "mutable",
        "path",
        "size_in_bytes",
    )

    size_in_bytes: int
    """The batches that are there, from the point of view of readers. Changed by what is called here, and read often."""
    allocate_at: int
    """The size at which `allocate_ahead` has something to do."""

    def __init__(self, path: Path, *, preallocate: int = 0, mutable: bool = True) -> None:
        """Opens the file, or makes it.

        With `preallocate`, a file without contents is made that long at once, for file systems on which growing one is
        dear; `size_in_bytes` counts what has been written.
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
        # What a process that was killed had written is in the file, but nobody knows whether it is on the disk.
        self._unflushed = size > 0
        self._changed = False

    @property
    def is_open(self) -> bool:
        return self._handle is not None

    # Writing

    def append(self, buffers: Buffer | Sequence[Buffer]) -> int:
        """Writes the bytes, from one buffer or several, behind what is there; returns how many they were."""
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
        """Takes back what half an append has left, and says what is wrong."""
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
        """Sees to it that the file has the blocks for its next appends, up to a size that it is not going to exceed.

        Nothing depends on that. Where it cannot be done, blocks are allocated page by page, as for any file.
        """
        handle = self._handle
        size = self.size_in_bytes
        ahead = preallocation.step(size)
        end = min(size + ahead, limit)
        if handle is None or end <= size:
            self.allocate_at = _NEVER
            return
        start = max(size, self._allocated)
        # After a failure, too: some of it may be there.
        self._allocated = max(end, start)
        go_on = start >= end or preallocation.allocate(handle, start, end - start)
        self.allocate_at = end - ahead // 2 if go_on and end < limit else _NEVER

    def note_flushed(self) -> None:
        """What is in the file is on the disk: the last shutdown was a clean one."""
        self._unflushed = False

    def flush(self) -> None:
        """Returns when everything that was appended is on the disk."""
        if not self._unflushed:
            return
        # Cleared first: what is appended while the disk is at work may be left out.
        self._unflushed = False
        try:
            sync_data(self._open_handle())
        except OSError as error:
            self._unflushed = True
            raise storage_error("flush", self.path, error) from error

    def truncate_to(self, size: int) -> int:
        """Cuts the file off at a position, which should be where a batch begins; returns how many bytes went."""
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
        """Gives back what was preallocated and not used."""
        self.truncate_to(self.size_in_bytes)

    # The file

    def rename(self, path: Path) -> None:
        """Regions and batches that were handed out do not notice."""
        with disk_access("rename", self.path):
            self.path.replace(path)
        self.path = path

    def update_parent_dir(self, directory: Path) -> None:
        """Takes note that the directory was renamed."""
        self.path = directory / self.path.name

    def close(self) -> None:
        """Makes sure that everything that was changed is on the disk, and lets go of the file."""
        if self._handle is not None:
            try:
                if self.mutable:
                    self.trim()
                if self._changed:
                    self.flush()
            finally:
                self.close_handlers()

    def close_handlers(self) -> None:
        """Lets go of the file without writing anything, as when its disk has failed."""
        self._handle = None

    def delete_if_exists(self) -> bool:
        """Removes the file; its space is free when the last region of it is gone. Returns whether it was there."""
        self.close_handlers()
        with disk_access("delete", self.path):
            try:
                self.path.unlink()
            except FileNotFoundError:
                return False
        return True

    # Reading

    def read_slice(self, position: int, size: int) -> FileRegion:
        """Names a part of the file for the transport, as far as the file goes. Reads nothing."""
        handle = self._handle
        if handle is None:
            handle = self._open_handle()
        if position < 0 or size < 0 or position + size > self.size_in_bytes:
            size = self._available(position, size)
        return FileRegion(handle, position, size)

    def read_bytes(self, position: int, size: int) -> bytes:
        """A part of the file, as far as it goes."""
        size = self._available(position, size)
        with disk_access("read", self.path):
            return read_fully(self._open_handle(), size, position)

    def read_into(self, position: int, buffer: bytearray | memoryview) -> int:
        """Fills the buffer with what begins at `position`, as far as the file goes; returns the number of bytes."""
        size = self._available(position, len(buffer))
        with disk_access("read", self.path):
            return read_fully_into(self._open_handle(), memoryview(buffer)[:size], position)

    def batches(self, start: int = 0, end: int | None = None) -> Iterator[FileBatch]:
        """The batches from a position on that begins one, by their headers."""
        handle = self._open_handle()
        path = self.path
        for position, _, chunk, at in self._scan(start, end):
            yield FileBatch(handle, path, position, HEADER.unpack_from(chunk, at))

    def loaded_batches(self, start: int = 0, end: int | None = None) -> Iterator[tuple[int, RecordBatch]]:
        """The batches with all of their bytes, and their positions: for going through a whole file.

        It is read in chunks of a megabyte, or of one batch where that is larger.
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
                return  # somebody has cut the file off meanwhile
            position += at

    def search_for_offset(self, target: int, start_position: int = 0) -> LogOffsetPosition | None:
        """The first batch that ends at or behind an offset, looking from a position on that begins a batch.

        It has the offset in it, unless compaction removed that: then it is the next one there is.
        """
        # Like `_scan`, but the walk to a batch is what a fetch spends its time with.
        handle = self._handle
        if handle is None:
            handle = self._open_handle()
        end = self.size_in_bytes
        position = start_position
        chunk = b""
        at = size = 0
        read_ahead = _FIRST_READ
        unpack = _SEARCHED.unpack_from
        while end - position > MAGIC_OFFSET:
            if at + HEADER_SIZE > len(chunk):
                wanted = HEADER_SIZE if size >= _LARGE_BATCH else read_ahead
                wanted = min(wanted, end - position)
                try:
                    chunk = os.pread(handle, wanted, position)
                except OSError as error:
                    raise storage_error("read", self.path, error) from error
                if len(chunk) < wanted:
                    chunk = self._read_ahead(handle, position, end, wanted)
                if read_ahead < _LONGEST_READ:
                    read_ahead *= 4
                at = 0
                if len(chunk) < HEADER_SIZE:
                    break
            base_offset, length, magic, last_offset_delta = unpack(chunk, at)
            if length < _SMALLEST_BATCH or magic != MAGIC:
                raise self._damage(length, magic, position)
            size = length + LOG_OVERHEAD
            if size > end - position:
                break
            if base_offset + last_offset_delta >= target:
                return _new_tuple(LogOffsetPosition, (base_offset, position, size))
            position += size
            at += size
        return None

    def search_for_timestamp(
        self, target: int, start_position: int = 0, starting_offset: int = 0
    ) -> TimestampAndOffset | None:
        """The first record at or behind an offset whose timestamp is the target or later.

        Batches are skipped by the largest timestamp in their header; only one that has such a record is read (and
        decompressed). If it has it before `starting_offset`, the search goes on.
        """
        for batch in self.batches(start_position):
            if batch.max_timestamp >= target and batch.last_offset >= starting_offset:
                for record in read_records(batch, copy=False):
                    if record.timestamp >= target and record.offset >= starting_offset:
                        return TimestampAndOffset(record.timestamp, record.offset, _leader_epoch(batch))
        return None

    def largest_timestamp(self, start_position: int = 0) -> TimestampAndOffset:
        """The largest timestamp from a position on, with the last offset of the first batch that has it; -1 if none."""
        found = TimestampAndOffset(NO_TIMESTAMP, -1)
        for batch in self.batches(start_position):
            if batch.max_timestamp > found.timestamp:
                found = TimestampAndOffset(batch.max_timestamp, batch.last_offset, _leader_epoch(batch))
        return found

    def holds_old_format(self, position: int) -> bool:
        """Whether an intact message of format 0 or 1 (before Kafka 0.11) begins here, and not just damage."""
        head = self.read_bytes(position, MAGIC_OFFSET + 1)
        if len(head) <= MAGIC_OFFSET:
            return False
        length, magic = _LENGTH_AND_MAGIC.unpack_from(head)
        if magic not in (0, 1) or not _SMALLEST_LENGTH <= length <= self.size_in_bytes - position - LOG_OVERHEAD:
            return False
        data = self.read_bytes(position, length + LOG_OVERHEAD)
        stated: int = _LEGACY_CRC.unpack_from(data)[0]
        return zlib.crc32(memoryview(data)[MAGIC_OFFSET:]) == stated

    # How it works

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
        """The batches that are all there: position, size, and a buffer with the header at an offset in it."""
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
                    return  # somebody has cut the file off meanwhile
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
        """What to say about a header that cannot be true."""
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
