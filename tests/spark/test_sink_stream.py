"""``writeStream.format("barnabas")``: whatever fails or dies, and whenever, each row is visible once (S04)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from barnabas.spark import register
from clients.broker_process import BrokerProcess
from oracles.java import OracleUnavailableError
from oracles.kafka_server import KafkaServer, ensure_available
from spark.conftest import unavailable
from spark.sink_streams import (
    SinkStream,
    committed_values,
    open_transactions,
    register_failing,
    wait_for_no_transactions,
    wait_for_values,
)
from spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.mechanism("S04")


@pytest.fixture(autouse=True)
def _registered(spark: SparkSession) -> None:
    register(spark)
    register_failing(spark)


class Writing:
    """A stream, and what it should have written."""

    def __init__(self, stream: SinkStream, topics: Topics) -> None:
        self.stream = stream
        self._topics = topics
        self.expected: list[str] = []

    def add_rows(self) -> None:
        """Two for each task."""
        first = len(self.expected)
        rows = [f"{number:03}" for number in range(first, first + 4)]
        self._topics.send(self.stream.source, rows[:2])
        self._topics.send(self.stream.source, rows[2:], partition=1)
        self.expected += rows

    def crash(self) -> None:
        with pytest.raises(StreamingQueryException):
            self.stream.run()
        assert self.stream.pending_failures() == []

    def restart(self) -> None:
        self.stream.run()
        self.check()

    def check(self) -> None:
        stream = self.stream
        wait_for_no_transactions(stream.bootstrap_servers)
        assert wait_for_values(stream.bootstrap_servers, stream.topic, self.expected) == self.expected


def _writing(spark: SparkSession, directory: Path, bootstrap: str, topic: str) -> Writing:
    topics = Topics(bootstrap)
    source, out = topics.create(f"{topic}-from", 2), topics.create(f"{topic}-to", 2)
    return Writing(SinkStream(spark, directory, bootstrap, source, out), topics)


@pytest.fixture
def writing(spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path) -> Writing:
    return _writing(spark, tmp_path, bootstrap, topic)


POINTS = [
    "task 0 before it begins",
    "task 1 in the middle",
    "task 1 after it has written",
    "before the decision",
    "after the decision",
    "between two EndTxn",
    "after the commit",
]


def _crash_at(writing: Writing, points: list[str], how: str, *, with_abort: bool) -> None:
    for point in points:
        writing.add_rows()
        writing.stream.fail(point, how)
        if not with_abort:
            writing.stream.fail("abort", "die")  # Spark asks for it, but the driver is dead
        with pytest.raises(StreamingQueryException):
            writing.stream.run()
        assert point not in writing.stream.pending_failures()
        writing.restart()


def test_a_driver_that_dies(writing: Writing) -> None:
    """Each batch of one query is cut off somewhere else, and nobody cleans up. (All points: `test_every_point`.)"""
    _crash_at(writing, ["before the decision", "between two EndTxn"], "die", with_abort=False)
    # And after Spark could have noted the commit, and before it has.
    writing.stream.forget_commit()
    writing.restart()


def test_a_task_that_fails(writing: Writing) -> None:
    _crash_at(writing, ["task 1 in the middle"], "raise", with_abort=True)


def test_an_abort_after_the_commit(writing: Writing) -> None:
    """The commit succeeds, and Spark is told that it has not."""
    writing.add_rows()
    writing.stream.fail("after the commit")
    writing.crash()
    writing.check()
    writing.add_rows()
    writing.restart()


@pytest.mark.nightly
@pytest.mark.parametrize("with_abort", [False, True])
@pytest.mark.parametrize("how", ["raise", "die"])
def test_every_point(writing: Writing, how: str, with_abort: bool) -> None:
    _crash_at(writing, POINTS, how, with_abort=with_abort)


def test_a_transaction_that_timed_out_after_the_decision_is_written_again(writing: Writing) -> None:
    """The driver dies between two EndTxn, and is away until the broker has aborted the other transaction."""
    stream = writing.stream
    stream.options["kafka.transaction.timeout.ms"] = "1500"
    writing.add_rows()
    stream.fail("between two EndTxn", "die")
    stream.fail("abort", "die")
    with pytest.raises(StreamingQueryException):
        stream.run()
    wait_for_no_transactions(stream.bootstrap_servers)
    assert committed_values(stream.bootstrap_servers, stream.topic) == writing.expected[:2]
    del stream.options["kafka.transaction.timeout.ms"]
    writing.restart()


def test_at_least_once_on_request(writing: Writing) -> None:
    """As the stock connector: what was written by a batch that failed stays, and is written again."""
    writing.stream.options["exactlyOnce"] = "false"
    writing.add_rows()
    writing.stream.fail("after the commit")
    writing.crash()
    writing.stream.run()
    found = committed_values(writing.stream.bootstrap_servers, writing.stream.topic)
    assert found == sorted(writing.expected * 2)


@pytest.mark.nightly
def test_a_stateful_query_keeps_its_state_when_nothing_is_written(
    spark: SparkSession, writing: Writing, tmp_path: Path
) -> None:
    """A repeated batch whose rows are there already is still read to its end, so that state is noted."""
    stream = writing.stream
    writing.add_rows()

    def run(rows: list[str]) -> None:
        frame = spark.readStream.format("barnabas").option("kafka.bootstrap.servers", stream.bootstrap_servers)
        frame = frame.option("subscribe", stream.source).option("startingOffsets", "earliest")
        distinct = frame.load().select("value").dropDuplicates(["value"])
        writer = distinct.writeStream.format("barnabas").option("kafka.bootstrap.servers", stream.bootstrap_servers)
        writer = writer.option("topic", stream.topic).option("checkpointLocation", str(stream.checkpoint))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        assert wait_for_values(stream.bootstrap_servers, stream.topic, rows) == rows

    run(writing.expected)
    stream.forget_commit()
    run(writing.expected)
    for row in writing.expected[:2]:
        Topics(stream.bootstrap_servers).send(stream.source, [row, f"{row}-new"])
    run(sorted([*writing.expected, *(f"{row}-new" for row in writing.expected[:2])]))
    assert tmp_path.exists()


@pytest.mark.nightly
def test_a_broker_that_is_killed(spark: SparkSession, topic: str, tmp_path: Path) -> None:
    """kill -9 between the decision and the end of the transactions: the broker's logs have it all."""
    with BrokerProcess(tmp_path) as broker:
        writing = _writing(spark, tmp_path, broker.bootstrap_servers, topic)
        for point in ("before the decision", "after the decision", "between two EndTxn"):
            writing.add_rows()
            writing.stream.fail(point, "die")
            writing.stream.fail("abort", "die")
            with pytest.raises(StreamingQueryException):
                writing.stream.run()
            broker.kill()
            broker.start()
            writing.restart()


@pytest.mark.nightly
@pytest.mark.java
def test_on_apache_kafka(spark: SparkSession, topic: str, tmp_path: Path) -> None:
    try:
        ensure_available()
    except OracleUnavailableError as error:
        unavailable(str(error))
    server = KafkaServer(tmp_path, transaction_state_log_replication_factor="1", transaction_state_log_min_isr="1")
    server.format()
    server.start()
    try:
        writing = _writing(spark, tmp_path, server.bootstrap_servers, topic)
        _crash_at(writing, POINTS[-5:], "die", with_abort=False)
        writing.stream.forget_commit()
        writing.restart()
    finally:
        server.stop()


@pytest.mark.nightly
def test_two_phase_commit(spark: SparkSession, topic: str, tmp_path: Path) -> None:
    """Prepared transactions do not time out, so that a driver may be away for as long as it likes."""
    overrides = {"transaction.two.phase.commit.enable": "true", "unstable.api.versions.enable": "true"}
    with BrokerProcess(tmp_path, overrides) as broker:
        writing = _writing(spark, tmp_path, broker.bootstrap_servers, topic)
        stream = writing.stream
        stream.options["twoPhaseCommit"] = "true"
        writing.add_rows()
        stream.fail("after the decision", "die")
        stream.fail("abort", "die")
        with pytest.raises(StreamingQueryException):
            stream.run()
        assert len(open_transactions(stream.bootstrap_servers)) == 2
        writing.restart()
