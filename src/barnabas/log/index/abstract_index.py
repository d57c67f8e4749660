"""The common base of the offset index and the time index: a sorted array of pairs of numbers in a file."""

from __future__ import annotations

import logging
import os
import struct
import sys
import threading
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import ClassVar, Final, Protocol

from barnabas.common.errors import KafkaStorageError
from barnabas.log.segment.file_handle import FileHandle, read_fully, sync_data, write_fully
from barnabas.log.storage_errors import (
    CorruptIndexError,
    FileClosedError,
    IndexOffsetOverflowError,
    delete_file,
    disk_access,
    is_descriptor_shortage,
)

try:
    import mmap
except ImportError:  # WebAssembly, for one
    _HAS_MMAP = False
else:
    _HAS_MMAP = True

_LOGGER: Final = logging.getLogger(__name__)

DEFAULT_MAX_INDEX_SIZE: Final = 10 * 1024 * 1024
MAX_RELATIVE_OFFSET: Final = 2**31 - 1
WARM_BYTES: Final = 8192
"""The size of the warm section at the end of an index."""

_SECTOR: Final = 512
"""The unit of ``st_blocks``, on every file system."""

KEY: Final = 0
VALUE: Final = 1


class StoredEntries(Protocol):
    """The entries that are in the file."""

    def entry(self, slot: int) -> tuple[int, int]: ...
    def close(self) -> None: ...


class MappedEntries:
    """Reads entries through a memory map, but never writes through it.

    Kafka writes to the map. But a write to a page for which a full disk has no block is a bus error, which ends the
    process. With ``pwrite``, it is an ordinary error instead, which takes the log directory offline. Only written
    entries are mapped.
    """

    __slots__ = ("_map", "_size", "_unpack")

    def __init__(self, handle: FileHandle, length: int, layout: struct.Struct) -> None:
        if sys.version_info >= (3, 13):
            # Avoids a copy of the descriptor, which the map does not need.
            self._map = mmap.mmap(handle, length, access=mmap.ACCESS_READ, trackfd=False)
        else:
            self._map = mmap.mmap(handle, length, access=mmap.ACCESS_READ)
        self._size = layout.size
        self._unpack = layout.unpack_from

    def entry(self, slot: int) -> tuple[int, int]:
        pair: tuple[int, int] = self._unpack(self._map, slot * self._size)
        return pair

    def close(self) -> None:
        self._map.close()


class FileEntries:
    """Reads entries one by one, where memory maps are unsupported or exhausted."""

    __slots__ = ("_handle", "_layout")

    def __init__(self, handle: FileHandle, layout: struct.Struct) -> None:
        self._handle: FileHandle | None = handle
        self._layout = layout

    def entry(self, slot: int) -> tuple[int, int]:
        assert self._handle is not None
        size = self._layout.size
        data = read_fully(self._handle, size, slot * size)
        if len(data) < size:
            raise CorruptIndexError(f"the index ends before entry {slot}")
        pair: tuple[int, int] = self._layout.unpack(data)
        return pair

    def close(self) -> None:
        self._handle = None


class AbstractIndex(ABC):
    """A file of fixed-size entries, each a key and a value, both of which only grow.

    An index is **sparse**: there is an entry for every few kilobytes of log. A lookup returns the last entry at or
    before a target, and the log itself is searched from there. An index is also **disposable**: it has no checksum, and
    can be rebuilt from the log, as after a crash.

    ``segment.index.bytes`` is the capacity of the index of an active segment; a segment whose index is full is rolled.
    Kafka gives the file that size at once, as a sparse file, because it writes through a memory map. Here the file only
    has the written entries. So it has no holes: on a tmpfs even *reading* a hole through a map allocates a page, and if
    there is none left the process gets a SIGBUS. Files that Kafka left after a crash do have holes, and end in zeros;
    they are read with ``pread``.

    **The warm section.** Nearly all lookups come from consumers and followers that are a little behind the end. An
    ordinary binary search for them would visit the middle, a quarter from the end, an eighth and so on. As the index
    grows, these move to other pages, which have not been used for long, and have to be read from disk while a consumer
    waits. So the last `WARM_BYTES` are searched first, and only a target before them is searched for in the rest.

    Here, the last appended entries are not only warm, but in memory, as numbers, in two arrays::

        slot     0 ............... warm_first ............ written ........ entries
        file     | cold entries            ................. |
        memory                          | warm entries           ............... |

    They are written in blocks: when the arrays are full, on `flush` and when the index is trimmed. This loses nothing,
    because an index that was not flushed is rebuilt after a crash anyway. An index that is only written to and read
    near its end needs no memory map, no open file, and almost no system calls. That matters with ten thousand
    partitions. Cold entries are read through a memory map, or without one, from the file.

    One thread at a time appends; any number look up. A lock of each index, inside which no other is taken, guards the
    arrays and the map: reading from a map after the file was truncated would be a bus error.
    """

    layout: ClassVar[struct.Struct]
    """The format of an entry: two numbers. Offsets are relative to the base offset."""
    kept_back: ClassVar[int] = 0
    """How many free entries an index that counts as full still has."""

    last_entry: tuple[int, int]
    """Each kind of index defines its contents."""

    def __init__(
        self,
        path: Path,
        base_offset: int,
        max_index_size: int = DEFAULT_MAX_INDEX_SIZE,
        *,
        writable: bool = True,
        use_mmap: bool = True,
    ) -> None:
        """Opens an index, or creates an empty one. The whole contents of an existing file count as entries.

        A new index has the capacity `max_index_size`. An existing one is full until `resize` gives it room.
        """
        self.path = path
        self.base_offset = base_offset
        self.max_index_size = max_index_size
        self.writable = writable
        self._use_mmap = use_mmap and _HAS_MMAP
        self._warm_limit = WARM_BYTES // self.layout.size
        self._lock = threading.Lock()
        """Guards all fields below. Lookups take it, also on network threads, so it is not held while entries are
        written or synced."""
        self._file_lock = threading.Lock()
        """Held while the file is flushed, truncated, renamed or closed, so that a flush does not write truncated
        entries over later ones. `_lock` is taken inside it. An append needs only `_lock`: the log's lock excludes
        everything here but a flush, which writes the same entries to the same place."""
        self._entries = 0
        self.is_full = False
        """Whether there is no room for another entry. Updated on changes, because every append reads it."""
        self._warm_first = 0
        self._written = 0
        self._keys = array("q")
        self._values = array("q")
        self._stored: StoredEntries | None = None
        self._stored_entries = 0
        """How many entries `_stored` covers. The file grows; the map does not."""
        self._unsynced = False
        self._closed = False
        self._file_size = 0
        with disk_access("open", path):
            try:
                self._file_size = os.stat(path).st_size  # noqa: PTH116 - the path object adds nothing
            except FileNotFoundError:
                if not writable:
                    raise
                self._create()
            else:
                self._set_capacity(self._file_size)
                self._entries = self._warm_first = self._written = self._file_size // self.entry_size
                self._unsynced = self._entries > 0
                self._warm_up()
        self._look_whether_full()
        self._entries_changed()

    def _create(self) -> None:
        if self.max_index_size < self.entry_size:
            raise ValueError(f"an index of at most {self.max_index_size} bytes has no room for an entry")
        FileHandle.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        self._set_capacity(self._round_down(self.max_index_size))

    def sanity_check(self) -> None:
        """Raises `CorruptIndexError` for an index that is obviously wrong."""
        with self._lock:
            if self._file_size % self.entry_size:
                raise CorruptIndexError(f"{self.path} has {self._file_size} bytes, no multiple of {self.entry_size}")
            if self._entries:
                self._check_bounds()

    @abstractmethod
    def _check_bounds(self) -> None:
        """Raises `CorruptIndexError` if the first and the last entry cannot be right. The lock is held."""

    @abstractmethod
    def _entries_changed(self) -> None:
        """Called when the last entry has changed, with the lock held or from the constructor."""

    @property
    def entry_size(self) -> int:
        return self.layout.size

    @property
    def entries(self) -> int:
        return self._entries

    @property
    def max_entries(self) -> int:
        return self._max_entries

    @property
    def capacity(self) -> int:
        """The maximum size of the entries in bytes."""
        return self._capacity

    @property
    def size_in_bytes(self) -> int:
        """The size of the entries in bytes."""
        return self._entries * self.entry_size

    def relative_offset(self, offset: int) -> int:
        relative = offset - self.base_offset
        if not 0 <= relative <= MAX_RELATIVE_OFFSET:
            raise IndexOffsetOverflowError(
                f"{self.path}: offset {offset} cannot be stored relative to the base offset {self.base_offset}"
            )
        return relative

    # Capacity

    def resize(self, new_size: int) -> bool:
        """Changes the capacity, in whole entries; returns whether it changed.

        A segment that becomes the active one gets the full capacity. Otherwise see `trim_to_valid_size`.
        """
        with self._file_lock, self._lock:
            return self._resize(new_size)

    def trim_to_valid_size(self) -> None:
        """Writes all entries and reduces the capacity to their size, when the segment is rolled or closed."""
        with self._file_lock, self._lock:
            self._trim()

    def _trim(self) -> None:
        self._write_out()
        self._resize(self.size_in_bytes)
        # Most inactive segments are never read again: keep only the last entry in memory.
        self._close_stored()
        self._cool_down(1)

    def _resize(self, new_size: int) -> bool:
        self._check_open()
        size = self._round_down(new_size)
        if size < self.size_in_bytes:
            self._truncate_to_entries(size // self.entry_size)
        self._cut_file(size)
        if size == self._capacity:
            return False
        self._set_capacity(size)
        return True

    def _cut_file(self, size: int) -> None:
        if self._file_size <= size:
            return
        self._close_stored()
        with disk_access("resize", self.path):
            os.truncate(self.path, size)
        self._file_size = size
        self._unsynced = True

    def reset(self) -> None:
        """Removes all entries, also from the file, and restores the full capacity."""
        with self._file_lock, self._lock:
            self._truncate_to_entries(0)
            self._cut_file(0)
            self._set_capacity(self._round_down(self.max_index_size))

    def truncate(self) -> None:
        """Removes all entries."""
        with self._file_lock, self._lock:
            self._truncate_to_entries(0)

    # The file

    def flush(self) -> None:
        """Forces all entries to disk."""
        with self._file_lock:
            with self._lock:
                self._check_open()
                self._write_out()
                if not self._unsynced:
                    return
                self._unsynced = False
                path = self.path
                with disk_access("flush", path):
                    handle = FileHandle.open(path, os.O_RDWR)
            try:
                with disk_access("flush", path):
                    sync_data(handle)
            except BaseException:
                self._unsynced = True
                raise

    def rename(self, path: Path) -> None:
        with self._file_lock, self._lock:
            with disk_access("rename", self.path):
                self.path.replace(path)
            self.path = path

    def update_parent_dir(self, directory: Path) -> None:
        """Updates the path after the directory was renamed."""
        with self._lock:
            self.path = directory / self.path.name

    def close(self) -> None:
        """Writes pending entries, trims the file and closes it."""
        with self._file_lock, self._lock:
            if not self._closed:
                try:
                    if self.writable:
                        self._trim()
                finally:
                    self._close()

    def close_handler(self) -> None:
        """Closes the file without writing anything, for example after a disk failure."""
        with self._lock:
            self._close()

    def delete_if_exists(self) -> bool:
        """Deletes the file; returns whether it existed."""
        with self._file_lock, self._lock:
            self._close()
            return delete_file(self.path)

    # For subclasses; the lock must be held

    def _append(self, key: int, value: int) -> None:
        if self._closed:
            self._check_open()
        self._keys.append(key)
        self._values.append(value)
        entries = self._entries = self._entries + 1
        if entries >= self._max_entries - self.kept_back:
            self.is_full = True

    def _write_out_and_cool_down(self) -> None:
        """Writes the entries and drops half of them from memory. Called when `_warm_limit` is reached.

        Without a file descriptor, all entries stay in memory until a later append finds one. The batch of the last
        entry is in the log already, so its append must not fail.
        """
        try:
            self._write_out()
        except KafkaStorageError as error:
            if not is_descriptor_shortage(error):
                raise
            return
        self._cool_down(len(self._keys) // 2)

    def _entry(self, slot: int) -> tuple[int, int]:
        self._check_open()
        if not 0 <= slot < self._entries:
            raise IndexError(f"{self.path} has {self._entries} entries, and no entry {slot}")
        if slot >= self._warm_first:
            return self._keys[slot - self._warm_first], self._values[slot - self._warm_first]
        with disk_access("read", self.path):
            if self._stored is None or slot >= self._stored_entries:
                return self._read_entry(slot)
            return self._stored.entry(slot)

    def _floor_slot(self, column: int, target: int) -> int:
        """Returns the last slot whose key (or value) is at most the target; -1 if there is none."""
        self._check_open()
        warm = self._values if column else self._keys
        if warm and target >= warm[0]:
            return self._warm_first + bisect_right(warm, target) - 1
        return self._cold_floor_slot(column, target)

    def _count_below(self, column: int, target: int) -> int:
        """Counts the entries whose key (or value) is less than the target."""
        self._check_open()
        warm = self._values if column else self._keys
        if warm and target > warm[0]:
            return self._warm_first + bisect_left(warm, target)
        return self._cold_floor_slot(column, target - 1) + 1

    def _truncate_to_entries(self, entries: int) -> None:
        """Removes the entries from a slot on. They stay in the file until others overwrite them."""
        self._check_open()
        if entries >= self._entries:
            return
        self._entries = entries
        self._look_whether_full()
        self._written = min(self._written, entries)
        keep = max(entries - self._warm_first, 0)
        del self._keys[keep:], self._values[keep:]
        if keep == 0:
            self._warm_first = entries
            with disk_access("read", self.path):
                self._warm_up()
        self._entries_changed()

    # Implementation

    def _cold_floor_slot(self, column: int, target: int) -> int:
        count = self._warm_first
        if count == 0:
            return -1
        with disk_access("read", self.path):
            entry = self._open_stored().entry
            low, high = 0, count - 1
            warm = max(0, high - self._warm_limit)
            if entry(warm)[column] <= target:
                low = warm
            elif entry(0)[column] > target:
                return -1
            else:
                high = warm - 1
            while low < high:
                middle = (low + high + 1) >> 1
                if entry(middle)[column] > target:
                    high = middle - 1
                else:
                    low = middle
        return low

    def _warm_up(self) -> None:
        """Loads the last entry into memory, if there is one."""
        if self._entries and not self._keys:
            key, value = self._read_entry(self._entries - 1)
            self._warm_first = self._entries - 1
            self._keys.append(key)
            self._values.append(value)

    def _read_entry(self, slot: int) -> tuple[int, int]:
        """Reads an entry without keeping the file open: most loaded indexes are not read further."""
        return FileEntries(FileHandle.open(self.path, os.O_RDONLY), self.layout).entry(slot)

    def _cool_down(self, keep: int) -> None:
        """Drops all but the last `keep` entries from memory. All of them must be in the file."""
        drop = max(len(self._keys) - keep, 0)
        del self._keys[:drop], self._values[:drop]
        self._warm_first += drop

    def _write_out(self) -> None:
        """Writes pending entries to the file. Releases the lock meanwhile."""
        first = self._written - self._warm_first
        if first == len(self._keys):
            return
        data = b"".join(map(self.layout.pack, self._keys[first:], self._values[first:]))
        entries, path, position = self._entries, self.path, self._written * self.entry_size
        self._lock.release()
        try:
            with disk_access("write", path):
                write_fully(FileHandle.open(path, os.O_WRONLY), (data,), position)
        finally:
            self._lock.acquire()
        self._unsynced = True
        self._written = max(self._written, entries)
        self._file_size = max(self._file_size, entries * self.entry_size)
        if self.size_in_bytes > self._capacity:  # a final entry was added to a full index
            self._set_capacity(self.size_in_bytes)

    def _open_stored(self) -> StoredEntries:
        if self._stored is None or self._stored_entries < self._warm_first:
            self._close_stored()
            handle = FileHandle.open(self.path, os.O_RDONLY)
            status = os.fstat(handle)
            if status.st_size < self._written * self.entry_size:
                raise CorruptIndexError(f"{self.path} has {status.st_size} bytes, too few for {self._written} entries")
            self._stored = self._mapped(handle, status) or FileEntries(handle, self.layout)
            self._stored_entries = self._written
        return self._stored

    def _mapped(self, handle: FileHandle, status: os.stat_result) -> MappedEntries | None:
        # A file with holes is not mapped; see the class. (A file compressed by the file system looks the same.)
        if not self._use_mmap or getattr(status, "st_blocks", 0) * _SECTOR < status.st_size:
            return None
        try:
            return MappedEntries(handle, self._written * self.entry_size, self.layout)
        except OSError as error:  # too many maps, or a file system without them
            _LOGGER.info("%s is read without a memory map: %s", self.path, error)
            return None

    def _close_stored(self) -> None:
        if self._stored is not None:
            self._stored.close()
            self._stored = None

    def _close(self) -> None:
        self._close_stored()
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise FileClosedError(f"{self.path} is closed")

    def _set_capacity(self, capacity: int) -> None:
        self._capacity = capacity
        self._max_entries = capacity // self.layout.size
        self._look_whether_full()

    def _look_whether_full(self) -> None:
        self.is_full = self._entries >= self._max_entries - self.kept_back

    def _round_down(self, size: int) -> int:
        return size - size % self.entry_size

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.path}, base_offset={self.base_offset}, entries={self._entries} of "
            f"{self.max_entries}{', closed' if self._closed else ''})"
        )
