"""`send_table` against real brokers: ours and Apache Kafka's."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pyarrow as pa
import pytest

from barnabas._kernels import murmur2
from barnabas.clients.producer import KafkaProducer
from clients.broker_process import BrokerProcess
from clients.drivers import create_topic
from clients.test_producer import stored
from oracles.java import OracleUnavailableError
from oracles.kafka_server import KafkaServer, ensure_available

partition_for_key = murmur2.partition_for_key

PARTITIONS = 3


def read(bootstrap: str, topic: str, count: int) -> dict[int, list[confluent_kafka.Message]]:
    """What another project's consumer reads of committed data."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "readers", "isolation.level": "read_committed"}
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        found: dict[int, list[confluent_kafka.Message]] = {number: [] for number in range(PARTITIONS)}
        while sum(map(len, found.values())) < count:
            messages = consumer.consume(count, timeout=60)
            assert messages, f"{count} were expected, and {sum(map(len, found.values()))} came"
            for message in messages:
                assert message.error() is None
                found[message.partition() or 0].append(message)
        return found
    finally:
        consumer.close()


def check_tables(bootstrap: str, topic: str) -> None:
    """All columns, all codecs; and in a transaction."""
    create_topic(bootstrap, topic, partitions=PARTITIONS)
    rows = 300
    keys = [f"key-{row % 40}" for row in range(rows)]
    table = pa.table(
        {
            "key": keys,
            "value": [f"value-{row}" for row in range(rows)],
            "headers": [[{"key": "row", "value": b"%d" % row}] for row in range(rows)],
            "timestamp": pa.array([1_700_000_000_000 + row for row in range(rows)], pa.timestamp("ms")),
        }
    )
    metadata = None
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    for codec in codecs:
        with KafkaProducer(bootstrap_servers=bootstrap, compression_type=codec) as producer:
            metadata = producer.send_table(topic, table).result(30)
            assert metadata.rows == rows
    with KafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"{topic}-tx") as producer:
        producer.init_transactions()
        with producer.transaction():
            future = producer.send_table(topic, table)
        assert future.result(0).rows == rows
    times = len(codecs) + 1
    found = read(bootstrap, topic, rows * times)
    for partition, messages in found.items():
        expected = [row for row in range(rows) if partition_for_key(keys[row].encode(), PARTITIONS) == partition]
        assert [message.value() for message in messages] == [b"value-%d" % row for row in expected] * times
        assert [message.headers() for message in messages] == [[("row", b"%d" % row)] for row in expected] * times
        assert [message.timestamp()[1] for message in messages] == [1_700_000_000_000 + row for row in expected] * times
    assert metadata is not None
    place = metadata.partitions
    assert {partition: found.count for partition, found in place.items()} == {
        partition: len(messages) // times for partition, messages in found.items()
    }
    for partition, offsets in place.items():
        (first,) = (message for message in found[partition] if message.offset() == offsets.first_offset)
        assert first.value() == found[partition][0].value()


def test_tables(bootstrap: str, topic: str) -> None:
    check_tables(bootstrap, topic)


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[KafkaServer]:
    """Apache Kafka's own server."""
    try:
        ensure_available()
    except OracleUnavailableError as reason:
        if os.environ.get("CI") == "true":
            pytest.fail(f"Apache Kafka is not available: {reason}")
        pytest.skip(f"Apache Kafka is not available: {reason}")
    server = KafkaServer(tmp_path, transaction_state_log_replication_factor="1", transaction_state_log_min_isr="1")
    server.format()
    with server:
        yield server


@pytest.mark.java
@pytest.mark.mechanism("P16")
def test_apache_kafka(kafka: KafkaServer, caplog: pytest.LogCaptureFixture) -> None:
    """Tables; and not a word about telemetry, of which that server has no receiver."""
    check_tables(kafka.bootstrap_servers, "tables")
    with KafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        producer.send("tables", b"x").result(30)
        assert producer._telemetry is not None
        assert not producer._telemetry.is_enabled
    assert not [record for record in caplog.records if record.name.startswith("barnabas.clients.common.telemetry")]


@pytest.mark.mechanism("P09")
def test_killed_and_restarted_while_a_table_flows(tmp_path: Path) -> None:
    """A table that is larger than the memory: the broker is killed in the middle of it."""
    rows = 120_000
    with BrokerProcess(tmp_path) as broker:
        create_topic(broker.bootstrap_servers, "numbers", partitions=PARTITIONS)
        values = pa.array([b"%012d" % row for row in range(rows)])
        table = pa.table({"value": values, "partition": pa.array([row % PARTITIONS for row in range(rows)])})
        failures: list[BaseException] = []
        under_way = threading.Event()

        def killer() -> None:
            try:
                assert under_way.wait(30)
                broker.kill()
                broker.start()
            except BaseException as error:  # noqa: BLE001 - told by the main thread
                failures.append(error)

        thread = threading.Thread(target=killer, daemon=True)
        thread.start()
        with KafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, buffer_memory=500_000, batch_size=8_000, max_request_size=50_000
        ) as producer:
            producer.send_table("numbers", table.slice(0, 3_000)).result(30)
            under_way.set()
            metadata = producer.send_table("numbers", table.slice(3_000)).result(60)
            thread.join(60)
            assert producer.accumulator.pool.available_memory() == producer.accumulator.pool.total_memory
        assert not failures, failures
        assert metadata.rows == rows - 3_000
        for partition in range(PARTITIONS):
            assert stored(broker.data_dir, "numbers", partition) == list(range(partition, rows, PARTITIONS))
