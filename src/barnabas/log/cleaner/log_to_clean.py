"""Determines how dirty a log is, and which part of it can be cleaned.

::

    |  clean: no key twice  |  dirty: cleanable  |  dirty: not yet                 |
    log start               first dirty          first uncleanable                 log end

The first dirty offset is in the cleaner's checkpoint. The first uncleanable offset is the smallest of

* the last stable offset: later records may not be replicated, or belong to an open transaction,
* the active segment,
* the first segment with a record younger than ``min.compaction.lag.ms``.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from barnabas.common.dataclass import dataclass
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.segment.log_segment import LATEST_POSSIBLE
from barnabas.log.unified_log import UnifiedLog

logger = logging.getLogger(__name__)


class OffsetsToClean(NamedTuple):
    """The range of dirty offsets that may be cleaned."""

    first_dirty_offset: int
    first_uncleanable_dirty_offset: int
    force_update_checkpoint: bool = False
    """Whether the checkpoint is wrong, and must be set to the first dirty offset."""


@dataclass(frozen=True, slots=True)
class LogToClean:
    """A log with the sizes of its clean and cleanable parts in bytes."""

    log: UnifiedLog
    first_dirty_offset: int
    first_uncleanable_offset: int
    """The first offset of a segment that cannot be cleaned."""
    clean_bytes: int
    cleanable_bytes: int
    need_compaction_now: bool = False
    """Whether ``max.compaction.lag.ms`` has passed, so that the log is cleaned whatever its dirty ratio."""

    @classmethod
    def of(
        cls, log: UnifiedLog, first_dirty_offset: int, uncleanable_offset: int, need_compaction_now: bool = False
    ) -> LogToClean:
        clean = log.segments.between(min(0, first_dirty_offset), first_dirty_offset)
        first_uncleanable_offset, cleanable_bytes = cleanable_part(log, first_dirty_offset, uncleanable_offset)
        return cls(
            log,
            first_dirty_offset,
            first_uncleanable_offset,
            sum(segment.size for segment in clean),
            cleanable_bytes,
            need_compaction_now,
        )

    @property
    def partition(self) -> TopicPartition:
        return self.log.topic_partition

    @property
    def total_bytes(self) -> int:
        return self.clean_bytes + self.cleanable_bytes

    @property
    def cleanable_ratio(self) -> float:
        return self.cleanable_bytes / self.total_bytes if self.total_bytes else 0.0

    @property
    def is_due(self) -> bool:
        if self.need_compaction_now and self.cleanable_bytes > 0:
            return True
        return self.cleanable_ratio > self.log.config.min_cleanable_dirty_ratio


def cleanable_offsets(log: UnifiedLog, last_clean_offset: int | None, now_ms: int) -> OffsetsToClean:
    """Returns the cleanable range of a log; `last_clean_offset` is its checkpoint (None: the log has none)."""
    log_start_offset = log.log_start_offset
    first_dirty_offset = log_start_offset if last_clean_offset is None else last_clean_offset
    is_wrong = False
    if first_dirty_offset < log_start_offset:
        # This is normal if old segments are deleted as well.
        if not log.config.delete:
            logger.warning(
                "%s is said to be clean up to offset %d, although it starts at %d",
                log.topic_partition,
                first_dirty_offset,
                log_start_offset,
            )
        first_dirty_offset, is_wrong = log_start_offset, True
    elif first_dirty_offset > log.log_end_offset:
        # The end of the log was lost. Records written since may repeat any key.
        logger.warning(
            "%s is said to be clean up to offset %d, although it ends at %d: all of it counts as dirty",
            log.topic_partition,
            first_dirty_offset,
            log.log_end_offset,
        )
        first_dirty_offset, is_wrong = log_start_offset, True
    bound = min(log.last_stable_offset, log.active_segment.base_offset)
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        for segment in log.segments.non_active_from(first_dirty_offset):
            if segment.largest_timestamp > now_ms - lag_ms:
                bound = min(bound, segment.base_offset)
                break
    return OffsetsToClean(first_dirty_offset, max(first_dirty_offset, bound), is_wrong)


def cleanable_part(log: UnifiedLog, first_dirty_offset: int, uncleanable_offset: int) -> tuple[int, int]:
    """Returns the base offset of the first uncleanable segment, and the dirty bytes before it, in whole segments."""
    segments = log.segments.non_active_from(uncleanable_offset)
    end = (segments[0] if segments else log.active_segment).base_offset
    dirty = log.segments.between(min(first_dirty_offset, end), end)
    return end, sum(segment.size for segment in dirty)


def max_compaction_delay_ms(log: UnifiedLog, first_dirty_offset: int, now_ms: int) -> int:
    """Returns how long compaction is overdue by ``max.compaction.lag.ms`` for the oldest dirty record; 0 if in time."""
    timestamps = (segment.first_batch_timestamp for segment in log.segments.non_active_from(first_dirty_offset))
    earliest = min((timestamp for timestamp in timestamps if timestamp > 0), default=LATEST_POSSIBLE)
    return max(now_ms - max(log.config.max_compaction_lag_ms, 0) - earliest, 0)
