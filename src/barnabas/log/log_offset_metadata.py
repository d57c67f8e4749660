"""Where an offset is: the offset itself, and the place in a file that it stands for."""

from __future__ import annotations

from typing import Final, NamedTuple

UNKNOWN_FILE_POSITION: Final = -1
UNKNOWN_SEGMENT_BASE_OFFSET: Final = -1


class LogOffsetMetadata(NamedTuple):
    """An offset with the segment and the position in it, where these are known.

    The distance between two offsets of one segment is then a subtraction of positions: how a waiting fetch finds out
    whether enough bytes have come in, without touching a file.
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
        """Whether this is known to lie in an earlier segment than `other`."""
        if self.message_offset_only or other.message_offset_only:
            return False
        return self.segment_base_offset < other.segment_base_offset

    def on_same_segment(self, other: LogOffsetMetadata) -> bool:
        """Whether both are known to lie in one segment."""
        if self.message_offset_only or other.message_offset_only:
            return False
        return self.segment_base_offset == other.segment_base_offset

    def position_diff(self, other: LogOffsetMetadata) -> int:
        """How many bytes this lies behind `other` in the same segment; ValueError if it is not the same."""
        if not self.on_same_segment(other):
            raise ValueError(f"no distance in bytes between {self} and {other}: not known to lie in one segment")
        return self.relative_position_in_segment - other.relative_position_in_segment


UNKNOWN_OFFSET_METADATA: Final = LogOffsetMetadata(-1)
