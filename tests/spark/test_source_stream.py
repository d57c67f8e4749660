"""Streaming queries on topics: limits, triggers, lost data, groups (S01, S03)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from benchmarks.waiting import until
from pyspark.errors import StreamingQueryException

from spark.streams import Stream
from spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.mechanism("S03")

_SECONDS = 180


@pytest.fixture
def stream(spark: SparkSession, bootstrap: str, topics: Topics, topic: str, tmp_path: Path) -> Stream:
    topics.create(topic, 2)
    return Stream(
        spark,
        tmp_path,
        kafka_bootstrap_servers=bootstrap,
        subscribe=topic,
        startingOffsets="earliest",
        fetchOffset_numRetries="1",
        fetchOffset_retryIntervalMs="10",
    )


def _sizes(stream: Stream) -> list[int]:
    return [len(rows) for _, rows in sorted(stream.rows.items())]


def test_records_are_limited_and_small_partitions_are_not_starved(stream: Stream, topics: Topics, topic: str) -> None:
    topics.send(topic, map(str, range(99)))
    topics.send(topic, ["small"], partition=1)
    stream.options["maxOffsetsPerTrigger"] = "40"
    stream.run()
    assert _sizes(stream) == [40, 40, 20]
    assert "small" in stream.batches()[0]
    assert len(set(stream.values())) == 100


def test_bytes_are_limited(stream: Stream, topics: Topics, topic: str) -> None:
    """About: what is counted are whole batches as they are stored, and the rest is a rule of three."""
    for _ in range(10):
        topics.send(topic, [f"{number:01000}" for number in range(10)])
    stream.options["maxBytesPerTrigger"] = "25000"
    stream.run()
    assert sum(_sizes(stream)) == 100
    assert all(15 <= size <= 25 for size in _sizes(stream)[:-1]), _sizes(stream)


@pytest.mark.nightly  # planned so in a unit test
def test_available_now_does_not_wait_for_a_minimum(stream: Stream, topics: Topics, topic: str) -> None:
    stream.options |= {"minOffsetsPerTrigger": "1000", "maxTriggerDelay": "1h"}
    topics.send(topic, ["a"])
    stream.run()
    topics.send(topic, ["b"])
    stream.run()
    assert stream.values() == ["a", "b"]


def test_a_running_stream(stream: Stream, topics: Topics, topic: str) -> None:
    """Waits for a minimum, meets new partitions, and shows in a group how far it is."""
    group = f"{topic}-group"
    stream.options |= {"minOffsetsPerTrigger": "3", "maxTriggerDelay": "10m", "groupId": group}
    topics.send(topic, ["a"])
    query = stream.start(processingTime="50 milliseconds")
    try:
        until(lambda: stream.values() == ["a"], stream.batches, _SECONDS)  # the first batch does not wait
        topics.send(topic, ["b", "c"])
        until(lambda: "latestOffset" in str(query.lastProgress), lambda: query.status, _SECONDS)
        triggers = query.lastProgress["timestamp"] if query.lastProgress else ""
        until(lambda: query.status["isDataAvailable"] is False, lambda: query.status, _SECONDS)
        assert stream.values() == ["a"], triggers
        topics.add_partitions(topic, 3)
        topics.send(topic, ["d"], partition=2)
        until(lambda: stream.values() == ["a", "b", "c", "d"], stream.batches, _SECONDS)
        until(
            lambda: topics.committed(group, topic, 3) == [3, 0, 1], lambda: topics.committed(group, topic, 3), _SECONDS
        )
    finally:
        query.stop()
    assert query.exception() is None
    # All in one. There may be an empty batch before it: the one that notes where the new partition begins.
    assert ["b", "c", "d"] in stream.batches().values()


def test_a_group_has_the_last_batch_of_available_now(stream: Stream, topics: Topics, topic: str) -> None:
    """Spark tells a source about the last batch of such a query when the next one starts; a lag would be shown."""
    stream.options["kafka.group.id"] = topic
    topics.send(topic, ["a", "b"])
    stream.run()
    assert topics.committed(topic, topic, 2) == [2, 0]


def test_lost_records(stream: Stream, topics: Topics, topic: str) -> None:
    topics.send(topic, ["a"])
    stream.run()
    topics.send(topic, ["b", "c", "d"])
    topics.delete_records(topic, 0, 3)
    with pytest.raises(StreamingQueryException, match="the records before offset 3 are gone, and 1 is the next"):
        stream.run()
    stream.options["failOnDataLoss"] = "false"
    stream.run()
    assert stream.values() == ["a", "d"]


def test_a_topic_that_is_deleted_and_made_again(stream: Stream, topics: Topics, topic: str) -> None:
    other = topics.create(f"{topic}-other")
    stream.options["subscribe"] = f"{topic},{other}"
    topics.send(topic, ["a", "b", "c"])
    stream.run()
    topics.delete(topic)
    with pytest.raises(StreamingQueryException, match=rf"{topic}-0, {topic}-1 are gone"):
        stream.run()
    topics.create(topic, 2)
    topics.send(topic, ["new"])
    with pytest.raises(StreamingQueryException, match=rf"the end of {topic}-0 has gone back from 3 to 1"):
        stream.run()
    stream.options["failOnDataLoss"] = "false"
    topics.send(other, ["x"])
    stream.run()
    topics.send(topic, ["newer"])
    stream.run()
    assert stream.values() == ["a", "b", "c", "newer", "x"]


def test_gaps_of_compaction_and_transactions_are_no_loss(stream: Stream, topics: Topics, topic: str) -> None:
    stream.options |= {"kafka.isolation.level": "read_committed", "maxOffsetsPerTrigger": "1"}
    topics.send_transaction(topic, ["a"], commit=True)
    topics.send_transaction(topic, ["gone"], commit=False)
    topics.send_transaction(topic, ["b"], commit=True)
    stream.run()
    assert stream.values() == ["a", "b"]  # and three markers, which are nothing to read


def test_ends_are_not_for_streams(stream: Stream) -> None:
    stream.options["endingOffsets"] = "latest"
    with pytest.raises(StreamingQueryException, match="endingOffsets is not valid in streaming queries"):
        stream.run()
