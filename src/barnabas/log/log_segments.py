"""The segments of a log, in their order."""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path

from barnabas.common.errors import KafkaStorageError
from barnabas.log.log_segment import LogSegment

logger = logging.getLogger(__name__)


class LogSegments:
    """Segments by their base offsets.

    Every fetch looks for a segment here, and segments come and go once in a while: a roll, an hour's worth of old ones.
    So there is no lock. The table is a pair of tuples that never changes; a change makes a new one and puts it in the
    place of the old one, in one assignment. A reader takes the pair once and works with it, and what it sees was true a
    moment ago. (A log with ten thousand segments copies two tuples of that size when it rolls, which is some
    microseconds.)

    Changes are for one thread at a time, the owner of the log's lock.
    """

    __slots__ = ("_table", "last")

    def __init__(self, segments: Iterable[LogSegment] = ()) -> None:
        self._table: tuple[tuple[int, ...], tuple[LogSegment, ...]] = ((), ())
        self.last: LogSegment | None = None
        """The segment with the highest base offset, None if there is none. Every append reads it."""
        self.replace((), segments)

    # Changes

    def add(self, segment: LogSegment) -> None:
        """Adds a segment, in the place of the one with the same base offset if there is one."""
        self.replace((), (segment,))

    def remove(self, base_offset: int) -> None:
        """Takes a segment out, if it is there."""
        self.replace((base_offset,), ())

    def replace(self, base_offsets: Iterable[int], segments: Iterable[LogSegment]) -> None:
        """Takes some segments out and puts others in, in one step: no reader sees a log with a gap, or none at all."""
        _, old = self._table
        by_offset = {segment.base_offset: segment for segment in old}
        for base_offset in base_offsets:
            by_offset.pop(base_offset, None)
        by_offset.update((segment.base_offset, segment) for segment in segments)
        offsets = tuple(sorted(by_offset))
        self._table = (offsets, tuple(by_offset[offset] for offset in offsets))
        self.last = by_offset[offsets[-1]] if offsets else None

    def clear(self) -> None:
        self._table = ((), ())
        self.last = None

    # Questions

    def __len__(self) -> int:
        return len(self._table[0])

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self._table[1])

    def __contains__(self, base_offset: int) -> bool:
        return self.get(base_offset) is not None

    def values(self) -> tuple[LogSegment, ...]:
        """All segments, from the oldest to the newest."""
        return self._table[1]

    @property
    def base_offsets(self) -> tuple[int, ...]:
        return self._table[0]

    def get(self, base_offset: int) -> LogSegment | None:
        offsets, segments = self._table
        index = bisect_left(offsets, base_offset)
        return segments[index] if index < len(offsets) and offsets[index] == base_offset else None

    def floor(self, offset: int) -> LogSegment | None:
        """The segment that an offset belongs into: the last one that does not begin behind it."""
        offsets, segments = self._table
        if offsets and offset >= offsets[-1]:
            return segments[-1]  # nearly every reader is near the end
        index = bisect_right(offsets, offset)
        return segments[index - 1] if index else None

    def lower(self, base_offset: int) -> LogSegment | None:
        """The last segment that begins before an offset."""
        offsets, segments = self._table
        index = bisect_left(offsets, base_offset)
        return segments[index - 1] if index else None

    def higher(self, base_offset: int) -> LogSegment | None:
        """The first segment that begins behind an offset."""
        offsets, segments = self._table
        index = bisect_right(offsets, base_offset)
        return segments[index] if index < len(offsets) else None

    def higher_segments(self, base_offset: int) -> tuple[LogSegment, ...]:
        """The segments that begin behind an offset."""
        offsets, segments = self._table
        return segments[bisect_right(offsets, base_offset) :]

    def between(self, start: int, end: int) -> tuple[LogSegment, ...]:
        """The segments that may have offsets from `start` up to, without it, `end`.

        If none begins before `start`, those from the first one on.
        """
        if end < start:
            raise ValueError(f"a range of offsets cannot end at {end}, before its start {start}")
        offsets, segments = self._table
        first = max(bisect_right(offsets, start) - 1, 0)
        return segments[first : bisect_left(offsets, end)]

    def non_active_from(self, start: int) -> tuple[LogSegment, ...]:
        """The segments with offsets from `start` on that are not written to any more."""
        active = self.active
        return () if start > active.base_offset else self.between(start, active.base_offset)

    @property
    def first(self) -> LogSegment | None:
        segments = self._table[1]
        return segments[0] if segments else None

    @property
    def active(self) -> LogSegment:
        """The one that is written to."""
        last = self.last
        if last is None:
            raise ValueError("a log without segments has no active one")
        return last

    @property
    def size_in_bytes(self) -> int:
        return sum(segment.size for segment in self._table[1])

    # All of them

    def update_parent_dir(self, directory: Path) -> None:
        """Takes note that the directory was renamed."""
        for segment in self:
            segment.update_parent_dir(directory)

    def close(self) -> None:
        """Closes every one, whatever becomes of the others; then raises the first error."""
        first: KafkaStorageError | None = None
        for segment in self:
            try:
                segment.close()
            except KafkaStorageError as error:
                if first is None:
                    first = error
                else:
                    logger.warning("%s", error)
        if first is not None:
            raise first

    def close_handlers(self) -> None:
        """Lets go of all files without writing anything, as when their disk has failed."""
        for segment in self:
            segment.close_handlers()

    def __repr__(self) -> str:
        return f"LogSegments({', '.join(map(str, self._table[0]))})"
