"""The start and end offsets of a partition's log, from the last response."""

from __future__ import annotations

from typing import Final

READ_COMMITTED: Final = 1


class Watermarks:
    """The log start offset, the high watermark and the last stable offset of one partition."""

    __slots__ = ("end_offset_requested", "high_watermark", "last_stable_offset", "log_start_offset")

    def __init__(self) -> None:
        self.high_watermark: int | None = None
        self.log_start_offset: int | None = None
        self.last_stable_offset: int | None = None
        self.end_offset_requested = False
        """Whether a ListOffsets request for the end is in flight."""

    def update(self, high_watermark: int, log_start_offset: int, last_stable_offset: int) -> None:
        """Takes the offsets of a fetch response. Negative ones are unknown, and keep their last value."""
        if high_watermark >= 0:
            self.high_watermark = high_watermark
            self.end_offset_requested = False
        if log_start_offset >= 0:
            self.log_start_offset = log_start_offset
        if last_stable_offset >= 0:
            self.last_stable_offset = last_stable_offset
            self.end_offset_requested = False

    def update_end(self, offset: int, isolation_level: int) -> None:
        """Takes the end offset of a ListOffsets response."""
        if isolation_level == READ_COMMITTED:
            self.last_stable_offset = offset
        else:
            self.high_watermark = offset
        self.end_offset_requested = False

    def end(self, isolation_level: int) -> int | None:
        """Returns the offset up to which this isolation level can read."""
        return self.last_stable_offset if isolation_level == READ_COMMITTED else self.high_watermark

    def lag(self, offset: int, isolation_level: int) -> int | None:
        end = self.last_stable_offset if isolation_level == READ_COMMITTED else self.high_watermark
        if end is None:
            return None
        return end - offset if end > offset else 0

    def lead(self, offset: int) -> int | None:
        return None if self.log_start_offset is None else offset - self.log_start_offset
