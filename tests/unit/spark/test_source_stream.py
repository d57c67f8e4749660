"""How the micro-batches of a stream are planned: what Spark writes down, and what follows from it after a failure."""

from __future__ import annotations

import gc
import json
import pickle
import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

from barnabas.clients.common.topic_reader import Leader
from barnabas.common.clock import MockClock
from barnabas.common.topic_partition import TopicPartition
from barnabas.spark.data_loss import DataLossError
from barnabas.spark.offset_ranges import OffsetRange, ReadTask
from barnabas.spark.offset_reader import OffsetReader
from barnabas.spark.source_options import SourceOptions
from barnabas.spark.source_stream import StreamReader
from barnabas.spark.starting_points import Point
from barnabas.spark.task_planner import PARALLELISM_VARIABLE

pytestmark = pytest.mark.mechanism("S03")


class _Topic:
    """An offset reader for a topic whose ends are set by the test."""

    def __init__(self, *ends: int) -> None:
        self.begins = [0] * len(ends)
        self.ends = list(ends)
        self.bytes_per_record = 100.0
        self.samples = 0

    @staticmethod
    def _offsets(numbers: list[int]) -> dict[TopicPartition, int]:
        return {TopicPartition("t", index): number for index, number in enumerate(numbers)}

    leaders: Mapping[TopicPartition, Leader] = {}

    def resolve(self, *points: Point) -> list[dict[TopicPartition, int]]:
        return [self._offsets(self.ends if point.offset == -1 else self.begins) for point in points]

    def latest(self, known: Any) -> dict[TopicPartition, int]:
        return self._offsets(self.ends)

    def earliest(self, partitions: Any) -> dict[TopicPartition, int]:
        return {one: self.begins[one.partition] for one in partitions}

    def bytes_per_offset(self, ranges: Sequence[OffsetRange]) -> dict[TopicPartition, float]:
        self.samples += 1
        return {one.topic_partition: self.bytes_per_record for one in ranges}


def task(*ranges: OffsetRange) -> ReadTask:
    return ReadTask(ranges)


@pytest.fixture(autouse=True)
def _slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PARALLELISM_VARIABLE, "2")


def stream(topic: _Topic, clock: MockClock | None = None, **options: Any) -> StreamReader:
    given = {"kafka.bootstrap.servers": "one:1", "subscribe": "t", **options}
    return StreamReader(SourceOptions.of(given), clock=clock or MockClock(), offsets=cast("OffsetReader", topic))


def plan(reader: StreamReader, start: Any) -> Any:
    """What Spark does: it asks with the limit that it was told, and keeps the response as text."""
    return json.loads(json.dumps(reader.latestOffset(start, reader.getDefaultReadLimit())))


def test_the_start_of_the_first_batch_is_in_its_end() -> None:
    topic = _Topic(5, 7)
    reader = stream(topic)
    start = reader.initialOffset()
    topic.ends = [8, 7]  # comes in between the two questions
    end = plan(reader, start)
    assert end == {"t": {"0": 8, "1": 7}, "@from": {"t": {"0": 5, "1": 7}}, "@tasks": 1}
    expected = [task(OffsetRange("t", 0, 5, 8))]
    assert reader.partitions(start, end) == expected
    # The batch fails, and is repeated by another reader, for which "latest" is somewhere else.
    topic.ends = [20, 30]
    again = stream(topic)
    assert again.partitions(again.initialOffset(), end) == expected
    following = plan(again, end)
    assert following == {"t": {"0": 20, "1": 30}, "@tasks": 2}
    first, second = again.partitions(end, following)
    assert first == task(OffsetRange("t", 0, 8, 20), OffsetRange("t", 1, 7, 12))
    assert second == task(OffsetRange("t", 1, 12, 30))


def test_the_first_batch_comes_though_it_is_empty_and_no_other_does() -> None:
    topic = _Topic(5)
    reader = stream(topic)
    start = reader.initialOffset()
    end = plan(reader, start)
    assert json.dumps(end) != json.dumps(start)
    assert reader.partitions(start, end) == []
    assert reader.latestOffset(end, ReadAllAvailable()) is end
    assert reader.partitions(end, end) == []


def test_new_partitions_begin_at_their_beginning() -> None:
    topic = _Topic(5)
    reader = stream(topic)
    end = plan(reader, reader.initialOffset())
    topic.ends, topic.begins = [5, 3], [0, 0]
    following = plan(reader, end)
    assert following == {"t": {"0": 5, "1": 3}, "@from": {"t": {"1": 0}}, "@tasks": 1}
    topic.begins = [0, 2]  # what is gone when the batch is repeated does not change what it is
    assert stream(topic).partitions(end, following) == [task(OffsetRange("t", 1, 0, 3))]
    with pytest.raises(DataLossError, match="the new partition t-1 begins at offset 2, not at 0"):
        plan(reader, end)


def test_what_is_gone_and_what_went_back() -> None:
    topic = _Topic(5, 5)
    reader = stream(topic)
    end = plan(reader, reader.initialOffset())
    topic.ends = [5]
    with pytest.raises(DataLossError, match="t-1 are gone"):
        plan(reader, end)
    topic.ends = [3, 5]
    with pytest.raises(DataLossError, match="the end of t-0 has gone back from 5 to 3"):
        plan(reader, end)
    tolerant = stream(topic, failOnDataLoss="false")
    following = plan(tolerant, end)
    assert following == {"t": {"0": 3, "1": 5}}
    assert tolerant.partitions(end, following) == []


def test_limits_are_told_to_spark_and_given_back() -> None:
    assert stream(_Topic(0)).getDefaultReadLimit() == ReadAllAvailable()
    assert stream(_Topic(0), maxOffsetsPerTrigger="5", maxBytesPerTrigger="6").getDefaultReadLimit() == ReadMaxRows(5)
    assert stream(_Topic(0), maxBytesPerTrigger="6").getDefaultReadLimit() == ReadMaxBytes(6)
    assert stream(_Topic(0), minOffsetsPerTrigger="7").getDefaultReadLimit() == ReadMinRows(7)


def test_both_limits_hold_unless_spark_says_all() -> None:
    topic = _Topic(1000)
    both: dict[str, Any] = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "50", "maxBytesPerTrigger": "3000"}
    reader = stream(topic, **both)
    start = reader.initialOffset()
    assert plan(reader, start)["t"] == {"0": 30}
    assert plan(stream(topic, **both | {"maxBytesPerTrigger": "99999"}), start)["t"] == {"0": 50}
    assert reader.latestOffset(start, ReadAllAvailable())["t"] == {"0": 1000}


def test_a_minimum_is_waited_for_but_not_for_ever() -> None:
    clock, topic = MockClock(), _Topic(1)
    options: dict[str, Any] = {"startingOffsets": "earliest", "minOffsetsPerTrigger": "10", "maxTriggerDelay": "1m"}
    reader = stream(topic, clock, **options)
    first = plan(reader, reader.initialOffset())
    assert first["t"] == {"0": 1}  # the first batch does not wait
    topic.ends = [10]
    assert plan(reader, first) == first
    topic.ends = [11]
    second = plan(reader, first)
    assert second["t"] == {"0": 11}
    topic.ends = [12]
    clock.advance(59_000)
    assert plan(reader, second) == second
    clock.advance(1_000)
    assert plan(reader, second)["t"] == {"0": 12}


def test_available_now_ends_where_everything_ended_at_its_start() -> None:
    topic = _Topic(10)
    reader = stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger="6", minOffsetsPerTrigger="5")
    reader.prepareForTriggerAvailableNow()
    topic.ends = [99, 9]
    first = plan(reader, reader.initialOffset() | {"@from": {"t": {"0": 0}}})
    second = plan(reader, first)
    assert (first["t"], second["t"]) == ({"0": 6}, {"0": 10})  # 4, though 5 is the minimum
    assert plan(reader, second) == second


def test_available_now_with_a_start_after_its_end() -> None:
    """ "Latest" is asked for after the target was set, and something has come in between."""
    topic = _Topic(10)
    reader = stream(topic)
    reader.prepareForTriggerAvailableNow()
    topic.ends = [12]
    end = plan(reader, reader.initialOffset())
    assert end == {"t": {"0": 12}, "@from": {"t": {"0": 12}}}
    assert plan(reader, end) == end


def test_progress_shows_where_the_topics_end() -> None:
    reader = stream(_Topic(10), startingOffsets="earliest", maxOffsetsPerTrigger="6")
    assert reader.reportLatestOffset() is None
    plan(reader, reader.initialOffset())
    assert reader.reportLatestOffset() == {"t": {"0": 10}}


def test_a_reader_travels_to_executors() -> None:
    options = SourceOptions.of({"kafka.bootstrap.servers": "one:1", "subscribe": "t", "groupId": "g"})
    pickle.loads(pickle.dumps(StreamReader(options)))


@pytest.mark.mechanism("S13")
def test_a_repeated_batch_has_the_same_tasks_on_another_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = _Topic(*[2_000_000] * 10)
    reader = stream(topic, startingOffsets="earliest")
    start = reader.initialOffset()
    end = plan(reader, start)
    assert end["@tasks"] == 6  # three for each slot
    tasks = reader.partitions(start, end)
    assert [sum(one.size for one in found.ranges) for found in cast("list[ReadTask]", tasks)] == [
        3_333_333,
        3_333_333,
        3_333_334,
        3_333_333,
        3_333_333,
        3_333_334,
    ]
    monkeypatch.setenv(PARALLELISM_VARIABLE, "50")
    assert stream(topic).partitions({}, end) == tasks
    assert plan(stream(topic, startingOffsets="earliest"), start)["@tasks"] == 50


@pytest.mark.mechanism("S13")
def test_a_batch_of_release_0_1_keeps_a_task_for_each_partition() -> None:
    end = {"t": {"0": 5, "1": 7}, "@from": {"t": {"0": 0, "1": 0}}}
    whole = [task(OffsetRange("t", 0, 0, 5)), task(OffsetRange("t", 1, 0, 7))]
    assert stream(_Topic(9, 9)).partitions({}, end) == whole
    assert len(stream(_Topic(9, 9), minPartitions="4").partitions({}, end)) == 4


@pytest.mark.mechanism("S13")
def test_few_but_large_records_are_worth_several_tasks() -> None:
    clock, topic = MockClock(), _Topic(2_000)
    topic.bytes_per_record = 1_000_000.0
    reader = stream(topic, clock, startingOffsets="earliest")
    first = plan(reader, reader.initialOffset())
    assert first["@tasks"] == 6
    topic.ends = [2_010]
    assert plan(reader, first)["@tasks"] == 2
    assert topic.samples == 1  # not for each batch
    clock.advance(60_000)
    plan(reader, first)
    assert topic.samples == 2
    assert plan(stream(topic, targetPartitions="3", startingOffsets="earliest"), reader.initialOffset())["@tasks"] == 3
    assert topic.samples == 2


@pytest.mark.mechanism("S13")
def test_ten_thousand_partitions_take_no_quadratic_step() -> None:
    """Ten times the partitions must not take a hundred times as long; a factor of 40 leaves room for a busy machine.

    No garbage is collected meanwhile: that takes as long as the objects of all tests before this one make it.
    """

    def seconds(partitions: int) -> float:
        topic = _Topic(*[10] * partitions)
        reader = stream(topic, startingOffsets="earliest")
        best = float("inf")
        for _ in range(3):
            started = time.process_time()
            start = reader.initialOffset()
            end = plan(reader, start)
            assert (
                sum(len(found.ranges) for found in cast("list[ReadTask]", reader.partitions(start, end))) >= partitions
            )
            best = min(best, time.process_time() - started)
        return best

    gc.disable()
    try:
        assert seconds(10_000) < 40 * seconds(1_000)
    finally:
        gc.enable()
