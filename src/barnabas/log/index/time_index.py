"""The ``.timeindex`` file: maps timestamps to offsets."""

from __future__ import annotations

import struct
from typing import ClassVar, NamedTuple

from barnabas.log.index.abstract_index import KEY, MAX_RELATIVE_OFFSET, VALUE, AbstractIndex
from barnabas.log.storage_errors import CorruptIndexError
from barnabas.records.batch import NO_TIMESTAMP


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int


class TimeIndex(AbstractIndex):
    """Maps a timestamp to the offset where the search for it begins.

    An entry is a timestamp of eight bytes and a relative offset of four. It is added together with an entry of the
    offset index, and says: **the largest timestamp up to here is T, and the batch that ends with offset O has it.** So
    records later than T come after O. Producers' clocks disagree, so timestamps in a log go up and down. The largest so
    far only goes up; no entry is added while it stays the same::

        batch     0..9     10..19    20..29    30..39
        largest   1000     1500      1200      1800
        entry            (1500, 19)   none   (1800, 39)

        lookup(1600) is (1500, 19): all records up to 19 have timestamps of at most 1500

    The last entry has the timestamp of the segment's newest record, which decides when the segment is deleted. To
    guarantee that entry, one slot is reserved until the segment becomes inactive: "full" means that one slot is left.
    """

    layout: ClassVar[struct.Struct] = struct.Struct(">qi")
    kept_back: ClassVar[int] = 1

    last_entry: TimestampOffset
    """Timestamp -1 and the base offset if there are no entries. Replaced as a whole, so it is read without the lock."""

    def maybe_append(self, timestamp: int, offset: int, skip_full_check: bool = False) -> None:
        """Adds an entry if the timestamp is larger than the last one. Neither timestamp nor offset may be smaller.

        `skip_full_check` is for the final entry, which uses the reserved slot.
        """
        last = self.last_entry
        if not skip_full_check and self.is_full:
            raise ValueError(f"{self.path} is full: it has {self.entries} entries")
        if self._entries and (timestamp < last.timestamp or offset < last.offset):
            raise ValueError(
                f"{self.path}: entry {self.entries} cannot be for timestamp {timestamp} and offset {offset}, which is "
                f"before the last one, {last}"
            )
        if timestamp > last.timestamp:
            relative = offset - self.base_offset
            if not 0 <= relative <= MAX_RELATIVE_OFFSET:
                self.relative_offset(offset)
            with self._lock:
                self._append(timestamp, relative)
                self.last_entry = TimestampOffset(timestamp, offset)
                if len(self._keys) >= self._warm_limit:
                    self._write_out_and_cool_down()

    def lookup(self, target: int) -> TimestampOffset:
        """Returns the last entry whose timestamp is at most the target; without one, -1 and the base offset."""
        last = self.last_entry
        if target >= last.timestamp:
            return last
        with self._lock:
            slot = self._floor_slot(KEY, target)
            return TimestampOffset(NO_TIMESTAMP, self.base_offset) if slot < 0 else self._parse(slot)

    def entry(self, slot: int) -> TimestampOffset:
        with self._lock:
            return self._parse(slot)

    def truncate_to(self, offset: int) -> None:
        """Removes the entries for this offset and all later ones."""
        with self._file_lock, self._lock:
            self._truncate_to_entries(self._count_below(VALUE, offset - self.base_offset))

    def _check_bounds(self) -> None:
        first, last = self._parse(0), self._parse(self._entries - 1)
        if last.offset < self.base_offset:
            raise CorruptIndexError(f"{self.path}: {last} is before the base offset {self.base_offset}")
        # A crash leaves Kafka's sparse index files with trailing zeros.
        if self._entries > 1 and not (first.timestamp < last.timestamp and first.offset <= last.offset):
            raise CorruptIndexError(f"{self.path}: the last entry, {last}, is not behind the first, {first}")

    def _parse(self, slot: int) -> TimestampOffset:
        timestamp, relative = self._entry(slot)
        return TimestampOffset(timestamp, self.base_offset + relative)

    def _entries_changed(self) -> None:
        self.last_entry = (
            self._parse(self._entries - 1) if self._entries else TimestampOffset(NO_TIMESTAMP, self.base_offset)
        )
