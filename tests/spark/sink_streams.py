"""A streaming query from one topic to another, whose parts can be made to fail or to die where a test says."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, TopicPartition
from pyspark.errors import StreamingQueryException

from barnabas.spark.data_source import BarnabasDataSource
from barnabas.spark.sink_options import DEFAULT_PREFIX, SinkOptions
from barnabas.spark.transaction_client import TransactionClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SECONDS = 180.0
_FORMAT = "failing_barnabas"
_STARTS = 4


def committed_values(bootstrap_servers: str, topic: str, partitions: int = 2) -> list[str]:
    """All that a reader of committed data sees now, as another project's client reads it."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.metrics.push": False,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, one, 0) for one in range(partitions)])
        found: list[str] = []
        ends = 0
        deadline = time.monotonic() + _SECONDS
        while ends < partitions:
            assert time.monotonic() < deadline, f"{topic} could not be read to its end: {found}"
            message = consumer.poll(1)
            error = None if message is None else message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ends += 1
            elif message is not None:
                value = message.value()
                found.append("" if value is None else value.decode())
        return sorted(found)
    finally:
        consumer.close()


def wait_for_values(bootstrap_servers: str, topic: str, expected: list[str], partitions: int = 2) -> list[str]:
    """Of a topic that nobody has an open transaction on; markers may still be on their way."""
    deadline = time.monotonic() + _SECONDS
    while True:
        found = committed_values(bootstrap_servers, topic, partitions)
        if len(found) >= len(expected) or time.monotonic() > deadline:
            return found


def open_transactions(bootstrap_servers: str) -> list[str]:
    """Those of sinks."""
    options = SinkOptions.of({"kafka.bootstrap.servers": bootstrap_servers}, is_stream=True)
    with TransactionClient(options.settings) as client:
        return [one for one in client.ongoing_transactions() if one.startswith(DEFAULT_PREFIX)]


def wait_for_no_transactions(bootstrap_servers: str) -> None:
    """Tasks that are told to stop take a moment; and so do transactions whose time is over."""
    deadline = time.monotonic() + _SECONDS
    while left := open_transactions(bootstrap_servers):
        assert time.monotonic() < deadline, f"open transactions: {left}"


def register_failing(spark: SparkSession) -> None:
    """Makes a format known that is ours, and fails once where a file in the directory of its option ``failures``
    says so. The file's text says how: by an error, or by the death of the process.

    The classes are made here, so that Spark ships them to its Python processes by value: those do not know the tests.
    """

    class FailingSource(BarnabasDataSource):
        @classmethod
        def name(cls) -> str:
            return "failing_barnabas"

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802 - Spark's name
            import os
            import signal
            from pathlib import Path

            from pyspark import TaskContext
            from pyspark.sql.datasource import CaseInsensitiveDict

            from barnabas.common.errors import BarnabasError
            from barnabas.spark.sink_columns import SinkColumns
            from barnabas.spark.sink_options import SinkOptions
            from barnabas.spark.sink_stream import StreamWriter
            from barnabas.spark.transaction_driver import TransactionDriver

            directory = Path(self.options["failures"])

            def point(name: str) -> None:
                path = directory / name
                try:
                    how = path.read_text()
                    path.unlink()  # of two tasks, one gets to do this
                except FileNotFoundError:
                    return
                if how == "die":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise BarnabasError(f"injected: {name}")

            class FailingDriver(TransactionDriver):
                def decide(self, decision: Any, topic: str) -> None:
                    point("before the decision")
                    super().decide(decision, topic)
                    point("after the decision")

                def complete(self, decision: Any) -> None:
                    first = next(n for n, one in enumerate(decision.transactions) if one is not None)
                    if (directory / "between two EndTxn").exists():
                        self._end({first: decision.transactions[first]}, commit=True)
                        point("between two EndTxn")
                    super().complete(decision)

            class FailingWriter(StreamWriter):
                def write(self, iterator: Iterator[Any]) -> Any:
                    context = TaskContext.get()
                    assert context is not None
                    task = context.partitionId()

                    def rows() -> Iterator[Any]:
                        for batch in iterator:
                            yield batch.slice(0, 1)
                            point(f"task {task} in the middle")
                            yield batch.slice(1)

                    point(f"task {task} before it begins")
                    message = super().write(rows())
                    point(f"task {task} after it has written")
                    return message

                def driver(self, job: str, client: Any) -> TransactionDriver:
                    return FailingDriver(job, client)

                def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803 - Spark's name
                    super().commit(messages, batchId)
                    point("after the commit")

                def abort(self, messages: Any, batchId: int) -> None:  # noqa: N803 - Spark's name
                    point("abort")
                    super().abort(messages, batchId)

            given = CaseInsensitiveDict(self.options)
            del given["failures"]
            options = SinkOptions.of(given, is_stream=True)
            return FailingWriter(options, SinkColumns.of(schema, options.topic))

    spark.dataSource.register(FailingSource)


class SinkStream:
    """A query with a checkpoint that outlives its runs. Its source has two partitions, with a task for each."""

    def __init__(self, spark: SparkSession, directory: Path, bootstrap_servers: str, source: str, topic: str) -> None:
        self._spark = spark
        self.bootstrap_servers = bootstrap_servers
        self.source = source
        self.topic = topic
        self.checkpoint = directory / "checkpoint"
        self.options: dict[str, str] = {}
        self.columns = ["value"]
        self._failures = directory / "failures"
        self._failures.mkdir()

    def fail(self, point: str, how: str = "raise") -> None:
        (self._failures / point).write_text(how)

    def pending_failures(self) -> list[str]:
        return [one.name for one in self._failures.iterdir()]

    def run(self) -> None:
        """To the end of what is there, or until it fails; then the failure is raised.

        Spark gives a Python process ten seconds to start. On a busy machine that is not always enough, and the query
        fails before anything of ours has begun: then it is started again.
        """
        for attempt in range(_STARTS):
            try:
                self._run()
            except StreamingQueryException as failure:
                if attempt == _STARTS - 1 or "failed to connect back" not in str(failure):
                    raise
            else:
                return

    def _run(self) -> None:
        servers = ("kafka.bootstrap.servers", self.bootstrap_servers)
        rows = self._spark.readStream.format("barnabas").option(*servers).option("subscribe", self.source)
        rows = rows.options(startingOffsets="earliest", mergePartitions="false", splitPartitions="false")
        writer = rows.load().selectExpr(*self.columns).writeStream.format(_FORMAT)
        writer = writer.option(*servers).option("topic", self.topic).option("failures", str(self._failures))
        writer = writer.options(**self.options).option("checkpointLocation", str(self.checkpoint))
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(120)
        finally:
            query.stop()

    def forget_commit(self) -> None:
        """As if the driver had died after the last batch was committed, and before Spark had noted that."""
        commits = self.checkpoint / "commits"
        last = max(int(one.name) for one in commits.iterdir() if one.name.isdecimal())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)
