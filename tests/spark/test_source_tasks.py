"""Spark gets tasks that follow data and slots, with the rows of many partitions in each (S13)."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.spark import register
from barnabas.spark.data_source import BarnabasDataSource
from barnabas.spark.source_batch import BatchReader
from barnabas.spark.source_options import SourceOptions
from barnabas.spark.task_planner import PARALLELISM_VARIABLE
from spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

pytestmark = pytest.mark.mechanism("S13")

PARTITIONS = 40
RECORDS = 7


@pytest.fixture
def many(topics: Topics, topic: str) -> str:
    """A topic with a few records in each of many partitions."""
    topics.create(topic, PARTITIONS)
    for partition in range(PARTITIONS):
        topics.send(topic, [f"{partition}.{index}" for index in range(RECORDS)], partition=partition)
    return topic


def _rows_of_tasks(rows: DataFrame) -> list[list[Any]]:
    """The rows of each task, in the order in which it returned them."""
    from pyspark.sql.functions import monotonically_increasing_id, spark_partition_id

    numbered = rows.select("*", spark_partition_id().alias("task"), monotonically_increasing_id().alias("place"))
    tasks = defaultdict(list)
    for row in sorted(numbered.collect(), key=lambda row: row.place):
        tasks[row.task].append(row)
    return list(tasks.values())


def _check(tasks: list[list[Any]], topic: str) -> None:
    """Each row is there once, with its place, and the rows of a partition are in order."""
    offsets: dict[int, list[int]] = defaultdict(list)
    for task in tasks:
        for row in task:
            assert (row.topic, bytes(row.value).decode()) == (topic, f"{row.partition}.{row.offset}")
            offsets[row.partition].append(row.offset)
    assert offsets == {partition: list(range(RECORDS)) for partition in range(PARTITIONS)}


def test_batch(spark: SparkSession, bootstrap: str, many: str) -> None:
    def read(**options: str) -> list[list[Any]]:
        reader = spark.read.format("barnabas").option("kafka.bootstrap.servers", bootstrap)
        return _rows_of_tasks(reader.option("subscribe", many).options(**options).load())

    for options, tasks in (({}, None), ({"targetPartitions": "3"}, 3), ({"targetPartitions": "100"}, 100)):
        found = read(**options)
        _check(found, many)
        # Spark does not tell a Python source how many slots it has: without an option, the machine's processors count.
        assert len(found) == tasks if tasks else 1 <= len(found) < PARTITIONS
    alone = read(mergePartitions="false", splitPartitions="false")
    _check(alone, many)
    assert [{row.partition for row in task} for task in alone] == [{number} for number in range(PARTITIONS)]


def test_stream(spark: SparkSession, bootstrap: str, many: str, tmp_path: Path) -> None:
    tasks: list[list[Any]] = []
    reader = spark.readStream.format("barnabas").option("kafka.bootstrap.servers", bootstrap)
    rows = reader.options(subscribe=many, startingOffsets="earliest", targetPartitions="3").load()
    query = (
        rows.writeStream.foreachBatch(lambda batch, _: tasks.extend(_rows_of_tasks(batch)))
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert query.exception() is None
    assert len(tasks) == 3
    _check(tasks, many)
    assert '"@tasks": 3' in (tmp_path / "offsets" / "0").read_text().replace('":3', '": 3')


def test_a_registered_source_knows_the_slots(
    spark: SparkSession, bootstrap: str, many: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tasks() -> int:
        reader = spark.read.format("barnabas").option("kafka.bootstrap.servers", bootstrap)
        return reader.option("subscribe", many).load().rdd.getNumPartitions()

    environment = spark.sparkContext.environment
    monkeypatch.delitem(environment, PARALLELISM_VARIABLE, raising=False)
    monkeypatch.delenv(PARALLELISM_VARIABLE, raising=False)
    register(spark)
    assert environment[PARALLELISM_VARIABLE] == str(spark.sparkContext.defaultParallelism) == "2"
    assert tasks() == 2
    monkeypatch.setitem(environment, PARALLELISM_VARIABLE, "5")
    register(spark)
    assert tasks() == 5
    monkeypatch.setitem(environment, PARALLELISM_VARIABLE, "2")
    register(spark)


@pytest.mark.nightly  # a session of its own
def test_spark_connect(bootstrap: str, topic: str) -> None:
    """Source and sink, with a save() that has no mode."""
    program = Path(__file__).with_name("connect_source_program.py")
    ended = subprocess.run(
        [sys.executable, str(program), bootstrap, topic], check=False, capture_output=True, text=True, timeout=600
    )
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout.splitlines()[-1])
    assert found["rows"] == 100
    assert found["tasks"] == 3
    assert "Did you mean kafka.bootstrap.servers?" in found["error"]


def test_a_worker_collects_no_modules_after_each_task(spark: SparkSession, bootstrap: str, many: str) -> None:
    """Otherwise the collection takes longer than a small task."""
    from pyspark.sql.datasource import DataSourceReader, InputPartition

    class Reader(BatchReader):
        def read(self, partition: InputPartition) -> Iterator[Any]:
            rows = sum(batch.num_rows for batch in super().read(partition))
            yield (rows, gc.get_freeze_count())

    class Counting(BarnabasDataSource):
        """Reads like its base class, and tells for each task what the garbage collector of its worker skips."""

        @classmethod
        def name(cls) -> str:
            return "counting"

        def schema(self) -> Any:
            return "rows long, skipped long"

        def reader(self, schema: StructType) -> DataSourceReader:
            return Reader(SourceOptions.of(self.options))

    spark.dataSource.register(Counting)
    reader = spark.read.format("counting").option("kafka.bootstrap.servers", bootstrap).option("subscribe", many)
    tasks = reader.load().collect()
    assert sum(task.rows for task in tasks) == PARTITIONS * RECORDS
    assert all(task.skipped > 10_000 for task in tasks)
