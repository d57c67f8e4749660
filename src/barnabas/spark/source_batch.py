"""The source in batch queries: ``spark.read.format("barnabas")``."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.spark.offset_ranges import OffsetRange, split_ranges
from barnabas.spark.offset_reader import OffsetReader
from barnabas.spark.offsets import Offsets
from barnabas.spark.source_options import SourceOptions
from barnabas.spark.starting_points import EARLIEST_POINT


class BatchReader(DataSourceReader):
    """Reads topics between two points, whose offsets are looked up once, when the query is planned."""

    def __init__(self, options: SourceOptions, *, clock: Clock = SYSTEM_CLOCK) -> None:
        options.check_batch()
        self._options = options
        self._clock = clock

    def partitions(self) -> list[InputPartition]:
        options = self._options
        offsets = OffsetReader(options, clock=self._clock)
        try:
            assigned = offsets.assigned()
            starts = offsets.resolve(options.start or EARLIEST_POINT, assigned, is_start=True)
            ends = offsets.resolve(options.end, assigned, is_start=False)
            starts, ends = self._narrow(starts, ends, offsets)
        finally:
            offsets.close()
        ranges = [OffsetRange(*one, starts[one], ends[one]) for one in sorted(starts)]
        tasks = split_ranges(ranges, options.min_partitions, options.max_records_per_partition)
        # For an empty list Spark would create one task anyway.
        return list(tasks) or [InputPartition(None)]

    def _narrow(self, starts: Offsets, ends: Offsets, offsets: OffsetReader) -> tuple[Offsets, Offsets]:  # noqa: ARG002 - for the one with filters
        """Narrows the offsets to read; overridden by the reader with filters."""
        return starts, ends

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from barnabas.spark.partition_reader import read_range

        if isinstance(partition, OffsetRange):
            yield from read_range(partition, self._options)
