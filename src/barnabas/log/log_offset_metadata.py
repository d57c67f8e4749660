"""An offset with its position in a segment file."""

from __future__ import annotations

from typing import Final, NamedTuple

UNKNOWN_FILE_POSITION: Final = -1
UNKNOWN_SEGMENT_BASE_OFFSET: Final = -1


class LogOffsetMetadata(NamedTuple):
    """An offset with its segment and the position in it, if known.

    The distance between two offsets of one segment is then a subtraction of positions. A waiting fetch uses it to check
    whether enough bytes have been appended, without file access.
    """

    message_offset: int
    segment_base_offset: int = UNKNOWN_SEGMENT_BASE_OFFSET
    relative_position_in_segment: int = UNKNOWN_FILE_POSITION

    @property
    def message_offset_only(self) -> bool:
        return (
            self.segment_base_offset == UNKNOWN_SEGMENT_BASE_OFFSET
            and self.relative_position_in_segment == UNKNOWN_FILE_POSITION
        )

    def on_older_segment(self, other: LogOffsetMetadata) -> bool:
        """Returns whether this is known to be in an earlier segment than `other`."""
        if self.message_offset_only or other.message_offset_only:
            return False
        return self.segment_base_offset < other.segment_base_offset

    def on_same_segment(self, other: LogOffsetMetadata) -> bool:
        """Returns whether both are known to be in the same segment."""
        if self.message_offset_only or other.message_offset_only:
            return False
        return self.segment_base_offset == other.segment_base_offset

    def position_diff(self, other: LogOffsetMetadata) -> int:
        """Returns the bytes from `other` to this position; ValueError if they are not in the same segment."""
        if not self.on_same_segment(other):
            raise ValueError(f"no distance in bytes between {self} and {other}: not known to lie in one segment")
        return self.relative_position_in_segment - other.relative_position_in_segment


UNKNOWN_OFFSET_METADATA: Final = LogOffsetMetadata(-1)
