"""The source in batch queries: ``spark.read.format("barnabas")``."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from barnabas.clients.common.topic_reader import Leader
from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.spark.offset_ranges import OffsetRange, ReadTask, read_tasks
from barnabas.spark.offset_reader import OffsetReader
from barnabas.spark.offsets import Offsets
from barnabas.spark.read_limits import mean_size
from barnabas.spark.source_options import SourceOptions
from barnabas.spark.starting_points import EARLIEST_POINT
from barnabas.spark.task_planner import plan_tasks, task_slots


class BatchReader(DataSourceReader):
    """Reads topics between two points, whose offsets are looked up once, when the query is planned."""

    def __init__(
        self, options: SourceOptions, *, clock: Clock = SYSTEM_CLOCK, offsets: OffsetReader | None = None
    ) -> None:
        options.check_batch()
        self._options = options
        self._offsets = OffsetReader(options, clock=clock) if offsets is None else offsets

    def partitions(self) -> list[InputPartition]:
        """Returns the tasks. Partitions with the same leader are neighbours, so that a task has few connections."""
        options, offsets = self._options, self._offsets
        try:
            starts, ends = offsets.resolve(options.start or EARLIEST_POINT, options.end)
            starts, ends = self._narrow(starts, ends, offsets)
            leaders = offsets.leaders
            ranges = [
                OffsetRange(*one, starts[one], ends[one])
                for one in sorted(starts, key=lambda one: (_node_id(leaders.get(one)), one))
                if starts[one] < ends[one]
            ]
            tasks = self._tasks(ranges, offsets)
        finally:
            offsets.close()
        # For an empty list Spark would create one task anyway.
        return [*read_tasks(tasks, leaders)] or [InputPartition(None)]

    def _tasks(self, ranges: list[OffsetRange], offsets: OffsetReader) -> list[tuple[OffsetRange, ...]]:
        limits = self._options.task_limits
        if not ranges:
            return []
        sizes = offsets.bytes_per_offset(ranges) if limits.needs_sizes else {}
        return plan_tasks(ranges, limits.task_count(ranges, mean_size(sizes), task_slots()), limits)

    def _narrow(self, starts: Offsets, ends: Offsets, offsets: OffsetReader) -> tuple[Offsets, Offsets]:  # noqa: ARG002 - for the one with filters
        """Narrows the offsets to read; overridden by the reader with filters."""
        return starts, ends

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from barnabas.spark.task_reader import read_task

        if isinstance(partition, ReadTask):
            yield from read_task(partition, self._options)


def _node_id(leader: Leader | None) -> int:
    return -1 if leader is None or leader.node is None else leader.node.id
