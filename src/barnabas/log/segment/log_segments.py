"""The segments of a log, ordered by base offset."""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path

from barnabas.common.errors import KafkaStorageError
from barnabas.log.segment.log_segment import LogSegment

logger = logging.getLogger(__name__)


class LogSegments:
    """Maps base offsets to segments.

    Every fetch looks up a segment here, and segments rarely change: a roll, an hour's worth of old ones. So readers
    take no lock. The table is an immutable pair of tuples; a change creates a new pair and replaces the old one in one
    assignment. A reader takes the pair once, and sees a consistent, possibly slightly old state. (A log with ten
    thousand segments copies two tuples of that size when it rolls, which takes some microseconds.)

    Only one thread at a time, the owner of the log's lock, may change it.
    """

    __slots__ = ("_table", "last")

    def __init__(self, segments: Iterable[LogSegment] = ()) -> None:
        self._table: tuple[tuple[int, ...], tuple[LogSegment, ...]] = ((), ())
        self.last: LogSegment | None = None
        """The segment with the highest base offset; None if there is none. Every append reads it."""
        self.replace((), segments)

    # Changes

    def add(self, segment: LogSegment) -> None:
        """Adds a segment, or replaces the one with the same base offset."""
        self.replace((), (segment,))

    def remove(self, base_offset: int) -> None:
        """Removes a segment, if it exists."""
        self.replace((base_offset,), ())

    def replace(self, base_offsets: Iterable[int], segments: Iterable[LogSegment]) -> None:
        """Replaces segments by others atomically: no reader sees a log with a gap or without segments."""
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

    # Queries

    def __len__(self) -> int:
        return len(self._table[0])

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self._table[1])

    def __contains__(self, base_offset: int) -> bool:
        return self.get(base_offset) is not None

    def values(self) -> tuple[LogSegment, ...]:
        """Returns all segments, from the oldest to the newest."""
        return self._table[1]

    @property
    def base_offsets(self) -> tuple[int, ...]:
        return self._table[0]

    def get(self, base_offset: int) -> LogSegment | None:
        offsets, segments = self._table
        index = bisect_left(offsets, base_offset)
        return segments[index] if index < len(offsets) and offsets[index] == base_offset else None

    def floor(self, offset: int) -> LogSegment | None:
        """Returns the segment for an offset: the last one whose base offset is at most the offset."""
        offsets, segments = self._table
        if offsets and offset >= offsets[-1]:
            return segments[-1]  # fast path: nearly every reader is near the end
        index = bisect_right(offsets, offset)
        return segments[index - 1] if index else None

    def lower(self, base_offset: int) -> LogSegment | None:
        """Returns the last segment that begins before an offset."""
        offsets, segments = self._table
        index = bisect_left(offsets, base_offset)
        return segments[index - 1] if index else None

    def higher(self, base_offset: int) -> LogSegment | None:
        """Returns the first segment that begins after an offset."""
        offsets, segments = self._table
        index = bisect_right(offsets, base_offset)
        return segments[index] if index < len(offsets) else None

    def higher_segments(self, base_offset: int) -> tuple[LogSegment, ...]:
        """Returns the segments that begin after an offset."""
        offsets, segments = self._table
        return segments[bisect_right(offsets, base_offset) :]

    def following(self, segment: LogSegment) -> tuple[LogSegment, ...] | None:
        """Returns the segments after this one; None if it has been replaced or removed."""
        offsets, segments = self._table
        index = bisect_left(offsets, segment.base_offset)
        if index == len(offsets) or segments[index] is not segment:
            return None
        return segments[index + 1 :]

    def between(self, start: int, end: int) -> tuple[LogSegment, ...]:
        """Returns the segments that may have offsets from `start` to `end` (exclusive).

        If none begins before `start`, the result starts with the first segment.
        """
        if end < start:
            raise ValueError(f"a range of offsets cannot end at {end}, before its start {start}")
        offsets, segments = self._table
        first = max(bisect_right(offsets, start) - 1, 0)
        return segments[first : bisect_left(offsets, end)]

    def non_active_from(self, start: int) -> tuple[LogSegment, ...]:
        """Returns the inactive segments with offsets from `start` on."""
        active = self.active
        return () if start > active.base_offset else self.between(start, active.base_offset)

    @property
    def first(self) -> LogSegment | None:
        segments = self._table[1]
        return segments[0] if segments else None

    @property
    def active(self) -> LogSegment:
        """The active segment, to which records are appended."""
        last = self.last
        if last is None:
            raise ValueError("a log without segments has no active one")
        return last

    @property
    def size_in_bytes(self) -> int:
        return sum(segment.size for segment in self._table[1])

    # Operations on all segments

    def update_parent_dir(self, directory: Path) -> None:
        """Updates the paths after the directory was renamed."""
        for segment in self:
            segment.update_parent_dir(directory)

    def close(self) -> None:
        """Closes every segment, even if others fail, then raises the first error."""
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
        """Closes all files without writing anything, for example after a disk failure."""
        for segment in self:
            segment.close_handlers()

    def __repr__(self) -> str:
        return f"LogSegments({', '.join(map(str, self._table[0]))})"
