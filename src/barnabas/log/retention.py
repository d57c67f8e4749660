"""Which segments of a log may go.

Only whole segments, and only from the beginning of the log: the first one that has to stay keeps all behind it. None
goes that has records which not all replicas have yet, so that the start of the log can never get past the high
watermark.

There are three reasons, which are looked at one after the other:

* **start**: all of its records are before the log start offset. They have been deleted already; this frees the space.
* **size** (``retention.bytes``): without it the log still has so many bytes.
* **age** (``retention.ms``): its newest record is older than that. If records have no timestamps, its file is.

The active segment can go for its age, too; then a new one is begun first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from barnabas.log.log_segment import LogSegment
from barnabas.log.log_segments import LogSegments

logger = logging.getLogger(__name__)

Condition = Callable[[LogSegment, LogSegment | None], bool]
"""Whether a segment may go; the second one is what comes behind it. Asked from the oldest on, until it says no."""


def deletable_segments(
    segments: LogSegments, condition: Condition, *, high_watermark: int, log_end_offset: int
) -> list[LogSegment]:
    """The segments from the oldest on for which the condition holds."""
    found: list[LogSegment] = []
    every = segments.values()
    for index, segment in enumerate(every):
        following = every[index + 1] if index + 1 < len(every) else None
        if following is None and not segment.size:
            break  # a log has a segment, if only an empty one
        end = log_end_offset if following is None else following.base_offset
        if high_watermark < end or not condition(segment, following):
            break
        found.append(segment)
    return found


def before_offset(log_start_offset: int) -> Condition:
    """Segments that end before an offset."""
    return lambda _, following: following is not None and following.base_offset <= log_start_offset


def beyond_size(log_size: int, retention_bytes: int) -> Condition:
    """Segments that a log of this size can do without, and still have `retention_bytes`. None if those are negative."""
    surplus = log_size - retention_bytes if retention_bytes >= 0 else -1

    def is_surplus(segment: LogSegment, _: LogSegment | None) -> bool:
        nonlocal surplus
        if surplus - segment.size < 0:
            return False
        surplus -= segment.size
        return True

    return is_surplus


def older_than(retention_ms: int, now_ms: int) -> Condition:
    """Segments whose newest record is older than `retention_ms`. None if that is negative.

    A record with a timestamp in the future, from a producer with a wrong clock, keeps its segment, and all behind it,
    until then. That is worth a remark.
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
