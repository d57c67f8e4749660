"""Selects the segments of a log that may be deleted.

Only whole segments are deleted, from the oldest on: the first segment to keep also keeps all later ones. A segment with
records that not all replicas have yet is kept, so the log start offset never passes the high watermark.

The conditions, in the order in which they are checked:

* **start**: all records are before the log start offset. They are already deleted; this frees the space.
* **size** (``retention.bytes``): without the segment, the log still has at least so many bytes.
* **age** (``retention.ms``): the newest record is older. Without timestamps, the file's modification time counts.

The active segment can be deleted, too; the log then rolls a new one first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from barnabas.log.segment.log_segment import LogSegment
from barnabas.log.segment.log_segments import LogSegments

logger = logging.getLogger(__name__)

Condition = Callable[[LogSegment, LogSegment | None], bool]
"""Whether a segment may be deleted; the second argument is the next segment. Called from the oldest until false."""


def deletable_segments(
    segments: LogSegments, condition: Condition, *, high_watermark: int, log_end_offset: int
) -> list[LogSegment]:
    """Returns the segments, from the oldest on, for which the condition holds."""
    found: list[LogSegment] = []
    every = segments.values()
    for index, segment in enumerate(every):
        following = every[index + 1] if index + 1 < len(every) else None
        if following is None and not segment.size:
            break  # a log always has a segment, even if it is empty
        end = log_end_offset if following is None else following.base_offset
        if high_watermark < end or not condition(segment, following):
            break
        found.append(segment)
    return found


def before_offset(log_start_offset: int) -> Condition:
    """Selects segments that end before an offset."""
    return lambda _, following: following is not None and following.base_offset <= log_start_offset


def beyond_size(log_size: int, retention_bytes: int) -> Condition:
    """Selects segments whose deletion leaves at least `retention_bytes`; none if `retention_bytes` is negative."""
    surplus = log_size - retention_bytes if retention_bytes >= 0 else -1

    def is_surplus(segment: LogSegment, _: LogSegment | None) -> bool:
        nonlocal surplus
        if surplus - segment.size < 0:
            return False
        surplus -= segment.size
        return True

    return is_surplus


def older_than(retention_ms: int, now_ms: int) -> Condition:
    """Selects segments whose newest record is older than `retention_ms`; none if `retention_ms` is negative.

    A record with a timestamp in the future, from a producer with a wrong clock, keeps its segment and all later ones
    until then. This logs a warning.
    """

    def is_old(segment: LogSegment, _: LogSegment | None) -> bool:
        if retention_ms < 0:
            return False
        largest = segment.largest_timestamp
        if largest > now_ms:
            logger.warning(
                "%r has a record of %d ms after now: it is not deleted for its age before then",
                segment,
                largest - now_ms,
            )
        return now_ms - largest > retention_ms

    return is_old
