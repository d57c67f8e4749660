"""Spark reads a topic and writes to one: ours beside the stock Kafka connector, in one session, against one broker.

The topic has two partitions of 100-byte records in batches as a producer makes them by default. Both sources read all
of it with their defaults, in turns, into Spark's ``noop`` sink, which has a query make every row and drops it. Most of
what is left of the difference is how rows get made: the stock connector has a Java object for each record and polls 500
of them at a time, ours has columns, but in Python processes beside the JVM.

Then both sinks write rows of the same size that Spark makes on the spot, in two tasks, to a topic with two partitions:
a fifth as many, because they are kept. Ours does so as the stock connector does, and once more exactly once.

On a machine that does something else as well, wall-clock figures of five processes that wait for each other say little.
So the processor time of all of them together (JVM, Python workers, broker) is there, too.

``--tls`` does all of that over TLS. ``--records`` makes the topic smaller, for
a look while working on it. ``--growth`` runs `benchmarks.spark_growth`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from barnabas.clients.common.blocking_client import BlockingClient
from barnabas.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.records.columns.arrow import encode_batches
from benchmarks.broker_process import BrokerProcess
from benchmarks.measure import Row, compare, print_rows, rates
from benchmarks.peers.listeners import SSL, Certificates

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 5_000_000
VALUE_BYTES = 100
PARTITIONS = 2
BATCH_BYTES = 16_384
ROUNDS = 3
TARGET = 3.3
SINK_TARGET = 1.5
TLS_TARGET = 2.0
TLS_SINK_TARGET = 1.2
SINK_SHARE = 5
TOPIC = "rows"
SINK_TOPIC = "written"
SLICE = 100_000
PRODUCED_TOGETHER = 50
"""How many partitions a produce request of `fill` is for."""

JARS = Path(__file__).resolve().parents[1] / "target" / "spark-jars"


@dataclass(frozen=True, slots=True)
class Access:
    """How both connectors reach the broker, and how much faster ours has to be there."""

    options: Mapping[str, str]
    title: str = ""
    target: float = TARGET
    sink_target: float = SINK_TARGET


def run(records: int = RECORDS, *, tls: bool = False) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="barnabas-spark-") as name:
        directory = Path(name)
        certificates = Certificates(directory)
        settings = certificates.broker_settings if tls else {}
        with BrokerProcess(directory / "data", listeners=(SSL,) if tls else (), overrides=settings) as broker:
            fill(broker.bootstrap_servers, records)
            access = Access({"kafka.bootstrap.servers": broker.bootstrap_servers})
            if tls:
                options = {f"kafka.{key}": value for key, value in certificates.tls.java.items()}
                options["kafka.bootstrap.servers"] = broker.address(SSL)
                access = Access(options, " over TLS", TLS_TARGET, TLS_SINK_TARGET)
            spark = session(directory)
            try:
                sources = source_rows(spark, access, records)
                with BlockingClient(broker.bootstrap_servers) as client:
                    _create(client, SINK_TOPIC)
                return [*sources, *sink_rows(spark, access, records // SINK_SHARE)]
            finally:
                spark.stop()


def session(directory: Path) -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    return (
        SparkSession.builder.master("local[2]")
        .appName("barnabas benchmarks")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.local.dir", str(directory / "local"))
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .config("spark.jars", ",".join(map(str, sorted(JARS.glob("*.jar")))))
        .getOrCreate()
    )


def source_rows(spark: SparkSession, access: Access, records: int) -> list[Row]:
    def reads(source: str, **options: str) -> Callable[[], int]:
        loader = spark.read.format(source).options(**access.options)
        rows = loader.option("subscribe", TOPIC).options(**options).load()
        # The noop sink does not tell how much it was given; that it is everything is looked at once.
        found = rows.selectExpr("count(*)", "sum(length(value))").collect()[0]
        assert tuple(found) == (records, records * VALUE_BYTES), found

        def read() -> int:
            rows.write.format("noop").mode("overwrite").save()
            return records

        return read

    contenders = {"barnabas": reads("barnabas"), "barnabas, columns=value": reads("barnabas", columns="value")}
    targets = {}
    if any(JARS.glob("spark-sql-kafka*.jar")):
        contenders["stock connector"] = reads("kafka")
        contenders["stock connector, max.poll.records=10000"] = reads("kafka", **{"kafka.max.poll.records": "10000"})
        targets["stock connector"] = access.target
    case = f"read {records:,} records of {VALUE_BYTES} bytes{access.title}, {PARTITIONS} partitions, noop sink"
    return _measured(case, contenders, records, targets)


def _measured(
    case: str, contenders: dict[str, Callable[[], int]], records: int, targets: dict[str, float]
) -> list[Row]:
    """By time, and by processor time."""
    cpu_seconds: dict[str, list[float]] = {name: [] for name in contenders}

    def watched(name: str, work: Callable[[], int]) -> Callable[[], int]:
        def run() -> int:
            before = cpu_seconds_below()
            done = work()
            cpu_seconds[name].append(cpu_seconds_below() - before)
            return done

        return run

    by_time = rates({name: watched(name, work) for name, work in contenders.items()}, rounds=ROUNDS)
    # The first round is the warm-up.
    by_cpu = {name: records / statistics.median(seconds[1:]) for name, seconds in cpu_seconds.items()}
    return [
        *compare(case, "rows/s", by_time, "barnabas", targets),
        # For orientation: the target is about the time that a query takes.
        *(
            replace(row, target=None)
            for row in compare(f"{case}: per second of processor time", "rows/s", by_cpu, "barnabas", targets)
        ),
    ]


def cpu_seconds_below() -> float:
    """What all children of this process have used, and theirs, and so on."""
    used: dict[int, tuple[int, float]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        used[int(path.parent.name)] = int(fields[1]), sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    total, wanted = 0.0, {os.getpid()}
    while wanted:
        children = {pid for pid, (parent, _) in used.items() if parent in wanted}
        total += sum(used[pid][1] for pid in children)
        wanted = children
    return total


def sink_rows(spark: SparkSession, access: Access, records: int) -> list[Row]:
    def writes(sink: str, **options: str) -> Callable[[], int]:
        def write() -> int:
            rows = spark.range(0, records, 1, PARTITIONS).selectExpr(f"lpad(id, {VALUE_BYTES}, 'x') AS value")
            writer = rows.write.format(sink).mode("append").options(**access.options)
            writer.option("topic", SINK_TOPIC).options(**options).save()
            return records

        return write

    contenders = {"barnabas": writes("barnabas"), "barnabas, exactly once": writes("barnabas", exactlyOnce="true")}
    targets = {}
    if any(JARS.glob("spark-sql-kafka*.jar")):
        contenders["stock connector"] = writes("kafka")
        targets["stock connector"] = access.sink_target
    case = f"write {records:,} records of {VALUE_BYTES} bytes{access.title}, {PARTITIONS} partitions"
    return _measured(case, contenders, records, targets)


def fill(bootstrap_servers: str, records: int, topic: str = TOPIC, partitions: int = PARTITIONS) -> None:
    """Creates a topic and appends the records in batches as a producer makes them, the same to each partition."""
    batches = list(_batches(records // partitions))
    with BlockingClient(bootstrap_servers, request_timeout_ms=120_000) as client:
        _create(client, topic, partitions)
        node = next(iter(client.nodes().values()))
        described: Any = client.send(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]))
        topic_id = described.topics[0].topic_id
        for first in range(0, partitions, PRODUCED_TOGETHER):
            some = range(first, min(first + PRODUCED_TOGETHER, partitions))
            for batch in batches:
                data = [PartitionProduceData(index=partition, records=memoryview(batch)) for partition in some]
                produced = TopicProduceData(name=topic, topic_id=topic_id, partition_data=data)
                request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[produced])
                response: Any = client.send(request, node)
                assert not any(one.error_code for one in response.responses[0].partition_responses), response


def _create(client: BlockingClient, topic: str, partitions: int = PARTITIONS) -> None:
    # The records' times are in the past, or will be.
    keep = CreatableTopicConfig(name="retention.ms", value="-1")
    asked = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1, configs=[keep])
    made: Any = client.send(CreateTopicsRequest(topics=[asked], timeout_ms=120_000))
    assert made.topics[0].error_code == 0, made


def _batches(records: int) -> Iterator[bytearray]:
    """Values that differ, and compress as badly as those of others."""
    octets = np.random.default_rng(1).integers(97, 123, SLICE * VALUE_BYTES, dtype=np.uint8)
    offsets = np.arange(SLICE + 1, dtype=np.int32) * VALUE_BYTES
    values = pa.Array.from_buffers(pa.binary(), SLICE, [None, pa.py_buffer(offsets), pa.py_buffer(octets.tobytes())], 0)
    batches = encode_batches({"value": values}, max_batch_bytes=BATCH_BYTES, timestamps=1_790_000_000_000)
    full, rest = divmod(records, SLICE)
    for _ in range(full):
        yield from batches
    if rest:
        yield from encode_batches(
            {"value": values.slice(0, rest)}, max_batch_bytes=BATCH_BYTES, timestamps=1_790_000_000_000
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--tls", action="store_true", help="over TLS")
    parser.add_argument("--growth", action="store_true", help="the same rows from ever more partitions")
    parser.add_argument("--partitions", help="with --growth: other numbers of partitions, such as 10,100")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="with --growth: how often each query runs")
    parser.add_argument(
        "--patience", type=float, default=60.0, help="with --growth: seconds after which it is cancelled"
    )
    arguments = parser.parse_args()
    if shutil.which("java") is None:
        sys.exit("Spark needs Java 17 or later")
    if not arguments.growth:
        print_rows(run(arguments.records, tls=arguments.tls))
        return
    from benchmarks import spark_growth as growth  # it imports this module

    sizes = [int(size) for size in arguments.partitions.split(",")] if arguments.partitions else growth.SIZES
    found = growth.run(sizes, arguments.rounds, arguments.patience)
    print(growth.table(found, arguments.patience))
    print_rows(growth.rows(found, arguments.patience))


if __name__ == "__main__":
    main()
