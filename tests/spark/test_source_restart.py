"""Whatever happens to a streaming query, and whenever: after a restart no row is missing, and none there twice (S03).

The sink of these tests replaces the rows of a batch when the batch is repeated. So what has to hold is that a repeated
batch has the very same rows, whatever has come in meanwhile and wherever "latest" is by then.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from spark.streams import InjectedError, Stream
from spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.mechanism("S03")


@pytest.fixture
def stream(spark: SparkSession, bootstrap: str, topics: Topics, topic: str, tmp_path: Path) -> Stream:
    topics.create(topic, 2)
    return Stream(spark, tmp_path, kafka_bootstrap_servers=bootstrap, subscribe=topic)


def _fail_once(in_batch: int) -> Any:
    failed: list[int] = []

    def fail(batch: int) -> None:
        if batch == in_batch and not failed:
            failed.append(batch)
            raise InjectedError(f"batch {batch}")

    return fail


def test_a_volatile_start_is_kept_though_nothing_was_there(stream: Stream, topics: Topics, topic: str) -> None:
    topics.send(topic, ["before"])
    stream.run()  # "latest", and nothing has come: but where latest was is noted
    topics.send(topic, ["a"])
    topics.send(topic, ["b"], partition=1)
    stream.run()
    assert stream.batches() == {0: [], 1: ["a", "b"]}


def test_a_volatile_start_is_kept_when_the_first_batch_fails(stream: Stream, topics: Topics, topic: str) -> None:
    """Spark does not note where the first batch starts. By the time it is repeated, "latest" is somewhere else."""
    stream.options["startingOffsets"] = "earliest"
    topics.send(topic, ["a", "b"])
    topics.send(topic, ["c"], partition=1)
    stream.before_write = _fail_once(0)
    with pytest.raises(StreamingQueryException, match="batch 0"):
        stream.run()
    topics.send(topic, ["d"])
    stream.options["startingOffsets"] = "latest"  # is behind d now, and is asked for again
    stream.run()
    assert stream.batches() == {0: ["a", "b", "c"], 1: ["d"]}


@pytest.mark.parametrize("start", [pytest.param("earliest", marks=pytest.mark.nightly), "latest"])
def test_a_batch_is_repeated_as_it_was(
    stream: Stream, topics: Topics, topic: str, start: str, spark: SparkSession
) -> None:
    """Fails in the middle of a task, then after the rows were written, then crashes before that was noted, then before
    the next batch's offsets were: one query goes through all of it."""
    stream.options["startingOffsets"] = start
    stream.run()
    # Batch 1: a task fails in the middle of its rows.
    topics.send(topic, ["a", "b", "c"])
    topics.send(topic, ["d"], partition=1)
    stream.transform = lambda rows: rows.where(F.when(F.expr("value = X'63'"), F.raise_error("injected")).isNull())
    with pytest.raises(StreamingQueryException, match="injected"):
        stream.run()
    noted = stream.noted_offsets(1)
    topics.send(topic, ["e"])
    # The rows are written this time, but the driver does not get to note it.
    stream.transform = lambda rows: rows
    stream.after_write = _fail_once(1)
    with pytest.raises(StreamingQueryException, match="batch 1"):
        stream.run()
    assert stream.noted_offsets(1) == noted
    assert stream.batches() == {0: [], 1: ["a", "b", "c", "d"]}
    topics.send(topic, ["f"], partition=1)
    stream.run()
    assert stream.batches() == {0: [], 1: ["a", "b", "c", "d"], 2: ["e", "f"]}
    # Dies after a batch, twice: before it was noted as done, and before it was noted at all.
    stream.forget_commit(2)
    topics.send(topic, ["g"])
    stream.run()
    assert stream.batches() == {0: [], 1: ["a", "b", "c", "d"], 2: ["e", "f"], 3: ["g"]}
    stream.forget_batch(3)
    topics.send(topic, ["h"])
    stream.run()
    assert stream.batches() == {0: [], 1: ["a", "b", "c", "d"], 2: ["e", "f"], 3: ["g", "h"]}
    # And a restart with nothing to do makes no batch.
    attempts = len(stream.attempts)
    stream.run()
    assert len(stream.attempts) == attempts


@pytest.mark.nightly
def test_a_first_batch_that_was_never_noted_is_another_one(stream: Stream, topics: Topics, topic: str) -> None:
    stream.options["startingOffsets"] = "earliest"
    topics.send(topic, ["a"])
    stream.run()
    stream.forget_batch(0)
    topics.send(topic, ["b"])
    stream.run()
    assert stream.batches() == {0: ["a", "b"]}


def test_new_partitions_are_repeated_from_where_they_began(stream: Stream, topics: Topics, topic: str) -> None:
    stream.run()
    topics.add_partitions(topic, 3)
    topics.send(topic, ["new"], partition=2)
    stream.before_write = _fail_once(1)
    with pytest.raises(StreamingQueryException, match="batch 1"):
        stream.run()
    assert stream.noted_offsets(1) == {topic: {"0": 0, "1": 0, "2": 1}, "@from": {topic: {"2": 0}}, "@tasks": 1}
    topics.send(topic, ["more"], partition=2)
    stream.run()
    assert stream.batches() == {0: [], 1: ["new"], 2: ["more"]}
