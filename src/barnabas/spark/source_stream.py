"""The source in streaming queries: ``spark.readStream.format("barnabas")``.

A micro-batch, as Spark asks for it::

    initialOffset()               only without a checkpoint: where to begin
    latestOffset(start, limit)    where this batch ends; Spark stores it, and does not ask again for this batch
    partitions(start, end)        the tasks; the same after any failure, because they follow from the stored offsets
    read(partition)               on executors
    commit(end)                   while the next batch is planned

After a failure Spark repeats the last batch with the stored end. The content of a batch must follow from its two
offsets alone, not from new lookups: see `barnabas.spark.offsets` for the start offset, which Spark does not store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.topic_partition import TopicPartition
from barnabas.spark.data_loss import DataLoss
from barnabas.spark.group_commits import GroupCommits
from barnabas.spark.offset_ranges import OffsetRange, ReadTask, read_tasks
from barnabas.spark.offset_reader import OffsetReader
from barnabas.spark.offsets import Offsets, beginnings_of, from_json, named, tasks_of, to_json
from barnabas.spark.read_limits import available, limit_bytes, limit_records, mean_size
from barnabas.spark.source_options import SourceOptions
from barnabas.spark.starting_points import LATEST_POINT
from barnabas.spark.task_planner import plan_tasks, task_slots

_SAMPLE_INTERVAL_MS: Final = 60_000


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads the micro-batches of a query."""

    def __init__(
        self, options: SourceOptions, *, clock: Clock = SYSTEM_CLOCK, offsets: OffsetReader | None = None
    ) -> None:
        options.check_stream()
        self._options = options
        self._clock = clock
        self._data_loss = DataLoss(options.fail_on_data_loss)
        self._offsets = OffsetReader(options, clock=clock) if offsets is None else offsets
        self._commits = None if options.commit_to_group is None else GroupCommits(options.commit_to_group, clock)
        self._target: Offsets | None = None
        """With Trigger.AvailableNow: the end offsets when the query started."""
        self._latest: Offsets = {}
        self._last_batch_ms: int | None = None
        self._sampled: Mapping[TopicPartition, float] = {}
        """Estimated bytes per offset of some partitions, and when they were read."""
        self._sampled_ms = 0.0

    # -- planning, in a process beside the driver

    def initialOffset(self) -> Any:  # noqa: N802 - Spark's name
        """Returns the start offsets of all partitions under ``@from``, and no offsets.

        So the first end differs from this even if there is nothing to read yet, and Spark runs an empty batch.
        Otherwise, a query that starts at the latest offset, reads nothing, and is stopped, would start at a later
        offset next time.
        """
        (starts,) = self._offsets.resolve(self._options.start or LATEST_POINT)
        return to_json({}, starts)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._offsets.latest({})

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Returns any limit if the options have one. Its value does not matter: if Spark passes it back, the options
        apply; if Spark passes `ReadAllAvailable`, they do not."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> Any:  # noqa: N802
        known = from_json(start)
        positions = beginnings_of(start) | known
        # Records before `start` have been processed, or Spark would not ask for the next end.
        self._show(known)
        ends = self._ends(positions)
        beginnings = positions | self._new_partitions(ends.keys() - positions.keys())
        if not isinstance(limit, ReadAllAvailable):
            ends = self._limited(beginnings, ends)
        if ends == known:
            return start  # unchanged: Spark compares offsets as text
        unknown = {one: offset for one, offset in beginnings.items() if one in ends and one not in known}
        return to_json(ends, unknown, self._task_count(_ranges(beginnings, ends)))

    def _task_count(self, ranges: Sequence[OffsetRange]) -> int:
        """Returns the number of tasks of a batch. It becomes part of the batch's end, which Spark stores."""
        limits = self._options.task_limits
        if not ranges:
            return 0
        return limits.task_count(ranges, mean_size(self._sizes(ranges)) if limits.needs_sizes else 0.0, task_slots())

    def _sizes(self, ranges: Sequence[OffsetRange]) -> Mapping[TopicPartition, float]:
        """Returns estimated bytes per offset, at most a minute old."""
        now = self._clock.hi_res_milliseconds()
        if not self._sampled or now - self._sampled_ms >= _SAMPLE_INTERVAL_MS:
            self._sampled, self._sampled_ms = self._offsets.bytes_per_offset(ranges), now
        return self._sampled

    def _ends(self, positions: Offsets) -> Offsets:
        """Returns the end offsets; reports partitions that are missing or whose end has moved back."""
        if self._target is None:
            ends = self._offsets.latest(positions)
        else:
            ends = dict(self._target)
            if any(ends.get(one, -1) < offset for one, offset in positions.items()):
                # The partition was deleted, or was read beyond the target: then nothing is left to read.
                current = self._offsets.latest(positions)
                ends = {one: end for one, end in ends.items() if one in current} | {
                    one: min(current[one], max(ends.get(one, -1), offset))
                    for one, offset in positions.items()
                    if one in current
                }
        self._latest = ends
        gone = positions.keys() - ends.keys()
        if gone:
            self._data_loss.report(f"{named(gone)} are gone")
        for one, offset in positions.items():
            if ends.get(one, offset) < offset:
                self._data_loss.report(f"the end of {one} has gone back from {offset} to {ends[one]}")
        return ends

    def _new_partitions(self, partitions: set[Any]) -> Offsets:
        """Returns the start offsets of new partitions: their beginning, wherever the query itself began."""
        beginnings = self._offsets.earliest(partitions)
        for one, offset in beginnings.items():
            if offset > 0:
                self._data_loss.report(f"the new partition {one} begins at offset {offset}, not at 0")
        return beginnings

    def _limited(self, starts: Offsets, ends: Offsets) -> Offsets:
        options = self._options
        count = available(starts, ends)
        if self._is_too_early(count):
            return {one: min(starts[one], end) for one, end in ends.items()}
        if not count:
            return ends
        self._last_batch_ms = self._clock.hi_res_milliseconds()
        if options.max_bytes_per_trigger is not None:
            sizes = self._offsets.bytes_per_offset(_ranges(starts, ends))
            self._sampled, self._sampled_ms = sizes, self._clock.hi_res_milliseconds()
            ends = limit_bytes(starts, ends, options.max_bytes_per_trigger, sizes)
        if options.max_offsets_per_trigger is not None:
            ends = limit_records(starts, ends, options.max_offsets_per_trigger)
        return ends

    def _is_too_early(self, count: int) -> bool:
        """Returns whether to wait for more. Never with Trigger.AvailableNow, which would end with records left."""
        minimum = self._options.min_offsets_per_trigger
        if minimum is None or self._target is not None or self._last_batch_ms is None:
            return False
        waited_ms = self._clock.hi_res_milliseconds() - self._last_batch_ms
        return count < minimum and waited_ms < self._options.max_trigger_delay_ms

    def reportLatestOffset(self) -> Any:  # noqa: N802
        """Returns the latest offsets for the query's progress report; nothing else uses them."""
        return to_json(self._latest) or None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if start == end:
            return []
        known, beginnings = from_json(start), beginnings_of(end)
        ends = from_json(end)
        ranges = _ranges({one: known.get(one, beginnings.get(one, offset)) for one, offset in ends.items()}, ends)
        count, limits = tasks_of(end), self._options.task_limits
        if count is None:
            # Release 0.1 had a task for each partition. A batch that it has begun is repeated with the same tasks.
            count, limits = limits.minimum or 1, replace(limits, merge=False, split=limits.minimum is not None)
        return list(read_tasks(plan_tasks(ranges, count, limits), self._offsets.leaders))

    def commit(self, end: dict[str, Any]) -> None:
        self._show(from_json(end))

    def _show(self, processed: Offsets) -> None:
        if self._commits is not None and processed:
            self._commits.commit(self._offsets.client, processed, self._offsets.leaders)

    def stop(self) -> None:
        self._offsets.close()

    # -- reading, on executors

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ReadTask)
        from barnabas.spark.task_reader import read_task

        yield from read_task(partition, self._options)


def _ranges(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    """Returns the ranges that are not empty, ordered by topic and partition."""
    return [OffsetRange(*one, starts[one], end) for one, end in sorted(ends.items()) if end > starts[one]]
