"""The ``.index`` file: maps offsets to positions in the ``.log`` file."""

from __future__ import annotations

import struct
from bisect import bisect_right
from typing import ClassVar, NamedTuple

from barnabas.log.index.abstract_index import KEY, MAX_RELATIVE_OFFSET, VALUE, AbstractIndex
from barnabas.log.storage_errors import CorruptIndexError

_new_tuple = tuple.__new__
"""Creates a named tuple in one call; its class would add a Python call."""


class OffsetPosition(NamedTuple):
    offset: int
    position: int


class OffsetIndex(AbstractIndex):
    """Maps an offset to the position where the search for it begins.

    An entry is a relative offset and a position, four bytes each. The position is the start of a batch and the offset
    is the *last* one of that batch, so the search for an earlier offset of the same batch starts one entry before::

        base offset 50, an entry for every 4 KiB or so:

            batch 50..53    at     0
            batch 54..60    at  3000
            batch 61..61    at  6100      -> entry (11, 6100): the last offset is 61, 11 from 50
            batch 62..70    at  9000
            batch 71..75    at 12000      -> entry (25, 12000)

        lookup(66) is (61, 6100): the second batch from there contains it
        lookup(74) is (61, 6100): not 12000, although that batch contains it
        lookup(60) is (50, 0): before the first entry, the start of the segment

    Offsets relative to the base need only four bytes. That limits a segment to 2**31 offsets.
    """

    layout: ClassVar[struct.Struct] = struct.Struct(">ii")

    last_entry: OffsetPosition
    """The base offset and position 0 if there are no entries. Replaced as a whole, so it is read without the lock."""

    @property
    def last_offset(self) -> int:
        return self.last_entry.offset

    def append(self, offset: int, position: int) -> None:
        """Adds an entry, whose offset must be larger than all others."""
        if self.is_full:
            raise ValueError(f"{self.path} is full: it has {self.entries} entries")
        if self._entries and offset <= self.last_entry[0]:
            raise ValueError(
                f"{self.path}: entry {self.entries} cannot be for offset {offset}, not larger than the last one, "
                f"{self.last_entry.offset}"
            )
        relative = offset - self.base_offset
        if not 0 <= relative <= MAX_RELATIVE_OFFSET:
            self.relative_offset(offset)
        with self._lock:
            self._append(relative, position)
            self.last_entry = _new_tuple(OffsetPosition, (offset, position))
            if len(self._keys) >= self._warm_limit:
                self._write_out_and_cool_down()

    def lookup(self, target: int) -> OffsetPosition:
        """Returns the last entry whose offset is at most the target; without one, the base offset at position 0."""
        last = self.last_entry
        if target >= last[0]:
            return last
        relative = target - self.base_offset
        with self._lock:
            keys = self._keys
            if keys and not self._closed and (relative >= keys[0] or not self._warm_first):
                # Nearly always: in memory, or before the first of all entries.
                at = bisect_right(keys, relative) - 1
                if at < 0:
                    return OffsetPosition(self.base_offset, 0)
                return _new_tuple(OffsetPosition, (self.base_offset + keys[at], self._values[at]))
            slot = self._floor_slot(KEY, relative)
            return OffsetPosition(self.base_offset, 0) if slot < 0 else self._parse(slot)

    def entry(self, slot: int) -> OffsetPosition:
        with self._lock:
            return self._parse(slot)

    def fetch_upper_bound_offset(self, start: OffsetPosition, fetch_size: int) -> OffsetPosition | None:
        """Returns the first entry at or after the end of a read of `fetch_size` bytes; None if there is none.

        The read does not reach the offset of that entry, but this offset is seldom the smallest upper bound.
        """
        with self._lock:
            slot = self._count_below(VALUE, start.position + fetch_size)
            return self._parse(slot) if slot < self._entries else None

    def truncate_to(self, offset: int) -> None:
        """Removes the entries for this offset and all later ones."""
        with self._file_lock, self._lock:
            self._truncate_to_entries(self._count_below(KEY, offset - self.base_offset))

    def _check_bounds(self) -> None:
        first, last = self._parse(0), self._parse(self._entries - 1)
        if last.offset < self.base_offset or last.position < 0:
            raise CorruptIndexError(f"{self.path}: {last} is before the base offset {self.base_offset}")
        # A crash leaves Kafka's sparse index files with trailing zeros.
        if self._entries > 1 and not (first.offset < last.offset and first.position < last.position):
            raise CorruptIndexError(f"{self.path}: the last entry, {last}, is not behind the first, {first}")

    def _parse(self, slot: int) -> OffsetPosition:
        relative, position = self._entry(slot)
        return OffsetPosition(self.base_offset + relative, position)

    def _entries_changed(self) -> None:
        self.last_entry = self._parse(self._entries - 1) if self._entries else OffsetPosition(self.base_offset, 0)
