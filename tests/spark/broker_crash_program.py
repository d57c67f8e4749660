"""Runs a pipeline over topics, and kills their broker (SIGKILL) once at each of several points.

    python -m spark.broker_crash_program PIPELINE FORMAT BOOTSTRAP_SERVERS OUT DEATHS BATCH

The file ``pid`` of the directory DEATHS has the broker's process id, and a file in it for each point says which process
was killed there. Somebody else starts the broker again. When the broker was killed at all points, the query is stopped,
in whatever batch it is. If it was before the start, the pipeline runs until it has read all records. A batch has at
most BATCH records.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.waiting import until

from barnabas.spark.data_source import BarnabasDataSource
from barnabas.spark.pipelines.config import PipelineConfig, TableOptions
from barnabas.spark.pipelines.runner import STREAMS
from barnabas.spark.pipelines.topics import source_options
from barnabas.spark.session import make_session
from barnabas.spark.source_stream import StreamReader
from spark import table_crash_program
from spark.table_crash_program import kill_at, started

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

PLANNING: Final = "planning"
PLANNED: Final = "planned"
READING: Final = "reading"
POINTS: Final = (PLANNING, PLANNED, READING, *table_crash_program.POINTS)
"""Before the end offsets of a batch are looked up, after they were noted, and after a task has read some records; and
the points of a batch in the driver."""
PID: Final = "pid"
DIRECTORY: Final = "BARNABAS_TEST_DEATHS"
"""The environment variable with the directory: Spark's processes inherit it."""
SECONDS: Final = 300


def kill_broker(point: str) -> None:
    """Kills the broker, unless it was killed at this point before."""
    directory = Path(os.environ[DIRECTORY])
    dead = {one.read_text() for one in directory.iterdir() if one.name != PID}
    try:
        death = (directory / point).open("x")
    except FileExistsError:
        return
    with death:
        pid = until(lambda: text if (text := (directory / PID).read_text()) not in dead else "", point, SECONDS)
        death.write(pid)
        os.kill(int(pid), signal.SIGKILL)


class FatalReader(StreamReader):
    """A reader that kills the broker which it reads from."""

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> Any:  # noqa: N802 - Spark's name
        if "@tasks" in start:  # a batch was planned before
            kill_broker(PLANNING)
        return super().latestOffset(start, limit)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        kill_broker(PLANNED)
        return super().partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for rows in super().read(partition):
            yield rows.slice(0, 1)
            kill_broker(READING)
            yield rows.slice(1)


class FatalDataSource(BarnabasDataSource):
    @classmethod
    def name(cls) -> str:
        return "fatal"

    def streamReader(self, schema: StructType) -> FatalReader:  # noqa: N802 - Spark's name
        return FatalReader(self._source_options(schema))


def main(pipeline: str, table_format: str, bootstrap_servers: str, out: str, directory: str, batch_size: str) -> None:
    os.environ[DIRECTORY] = directory

    def is_over() -> bool:
        return all(Path(directory, point).exists() for point in POINTS)

    once = is_over()
    spark = make_session("broker crash", "local[2]", {"spark.sql.shuffle.partitions": "2"})
    spark.dataSource.register(FatalDataSource)
    for batch, point in enumerate(table_crash_program.POINTS, 1):
        kill_at(batch, point, lambda point=point: kill_broker(point))  # type: ignore[misc]
    config = PipelineConfig(
        out=out,
        bootstrap_servers=bootstrap_servers,
        once=once,
        trigger_ms=0,
        sketch_k=200,
        compact_every=3,
        keep_hours=0,
        max_offsets_per_trigger=int(batch_size),
        source_options={"kafka.max.partition.fetch.bytes": "4096"},
        tables=TableOptions(table_format),
    )
    topics = STREAMS[pipeline].topics if pipeline in STREAMS else ("records",)
    raw = spark.readStream.format("fatal").options(**source_options(pipeline, topics, config)).load()
    query = started(pipeline, raw, config)
    if not once:
        until(lambda: is_over() or not query.isActive, lambda: query.lastProgress, SECONDS)
        if query.isActive:
            query.stop()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
