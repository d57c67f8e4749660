"""Our producer against real brokers: ours and Apache Kafka's. Also while they are killed, and where there is none."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import confluent_kafka
import pytest
from benchmarks.broker_process import free_port

from barnabas.clients.producer import KafkaProducer
from barnabas.common.config_def import ConfigError
from barnabas.common.errors import KafkaTimeoutError, ProducerFencedError
from barnabas.common.topic_partition import TopicPartition
from barnabas.records.batch import iter_batches
from barnabas.records.reader import read_records
from clients.broker_process import BrokerProcess
from clients.drivers import LIBRARIES, create_topic, eventually
from oracles.java import OracleUnavailableError
from oracles.kafka_server import KafkaServer, ensure_available

PARTITIONS = 3


class Mortal(Protocol):
    """A broker that can be killed and started again where it was."""

    @property
    def bootstrap_servers(self) -> str: ...

    def kill(self) -> None: ...

    def start(self) -> object: ...


def stored(data: Path, topic: str, partition: int) -> list[int]:
    """The numbers in the log files of a partition, in the order of the log."""
    numbers = []
    for file in sorted((data / f"{topic}-{partition}").glob("*.log")):
        for batch in iter_batches(file.read_bytes()):
            numbers += [int(bytes(record.value or b"")) for record in read_records(batch)]
    return numbers


def produce_while_killed(
    broker: Mortal, data: Path, topic: str, count: int, kills: int, *, places_may_be_unknown: bool = False
) -> None:
    """Sends numbers, to the partition of the number; the broker is killed at even distances and comes back.

    A broker that forgets batches in a crash (``places_may_be_unknown``) can say that it has them, and not where."""
    due = threading.Semaphore(0)
    failures: list[BaseException] = []

    def killer() -> None:
        try:
            for _ in range(kills):
                due.acquire()
                broker.kill()
                broker.start()
        except BaseException as error:  # noqa: BLE001 - told by the main thread
            failures.append(error)

    thread = threading.Thread(target=killer, daemon=True)
    thread.start()
    called: list[Exception | None] = []
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, linger_ms=2) as producer:
        futures = []
        step = count // (kills + 1)
        for number in range(count):
            if number and number % step == 0 and number // step <= kills:
                due.release()
            futures.append(
                producer.send(
                    topic,
                    b"%d" % number,
                    partition=number % PARTITIONS,
                    callback=lambda _, error: called.append(error),
                )
            )
        producer.flush()
        thread.join(120)
        producer.flush()
        offsets = [future.result(0).offset for future in futures]
        assert producer.accumulator.pool.available_memory() == producer.accumulator.pool.total_memory
    assert not failures, failures
    assert called == [None] * count, "each callback once"
    for partition in range(PARTITIONS):
        expected = list(range(partition, count, PARTITIONS))
        found = stored(data, topic, partition)
        assert len(found) == len(set(found)), "no duplicates"
        assert found == expected, "none lost, and in order"
        told = [
            (number, offset)
            for number, offset in zip(expected, offsets[partition::PARTITIONS], strict=True)
            if offset >= 0
        ]
        unknown = len(expected) - len(told)
        assert unknown == 0 or places_may_be_unknown, "each place is known"
        assert [found[offset] for _, offset in told] == [number for number, _ in told], "each where it was said to be"


@pytest.mark.mechanism("P09")
def test_killed_and_restarted(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        create_topic(broker.bootstrap_servers, "numbers", partitions=PARTITIONS)
        produce_while_killed(broker, broker.data_dir, "numbers", 40_000, kills=2)


@pytest.mark.nightly
def test_killed_five_times_in_a_million_records(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        create_topic(broker.bootstrap_servers, "numbers", partitions=PARTITIONS)
        produce_while_killed(broker, broker.data_dir, "numbers", 1_000_000, kills=5)


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
@pytest.mark.mechanism("P09", "P14")
def test_apache_kafka(kafka: KafkaServer) -> None:
    """Killed once; then transactions, which its coordinator knows."""
    create_topic(kafka.bootstrap_servers, "numbers", partitions=PARTITIONS)
    produce_while_killed(kafka, kafka.data, "numbers", 20_000, kills=1, places_may_be_unknown=True)
    create_topic(kafka.bootstrap_servers, "transactions")
    check_transactions(kafka.bootstrap_servers, "transactions")


def check_transactions(bootstrap: str, topic: str) -> None:
    """Committed, aborted, fenced: as a reader of committed data sees it."""
    with KafkaProducer(bootstrap_servers=bootstrap, transactional_id="tx") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send(topic, b"1")
            producer.send(topic, b"2")
        with contextlib.suppress(KeyError), producer.transaction():
            producer.send(topic, b"aborted").result(30)
            raise KeyError
        with producer.transaction():
            producer.send(topic, b"3")
            producer.send_offsets_to_transaction({}, "group")
        producer.begin_transaction()
        producer.send(topic, b"left open").result(30)
        with KafkaProducer(bootstrap_servers=bootstrap, transactional_id="tx") as successor:
            successor.init_transactions()
            with successor.transaction():
                successor.send(topic, b"4")
            with pytest.raises(ProducerFencedError):
                producer.commit_transaction()
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[bytes | None] = []
    for _ in range(400):
        message = consumer.poll(0.3)
        if message is not None and message.error() is None:
            found.append(message.value())
        if len(found) >= 4:
            break
    assert consumer.poll(0.3) is None
    consumer.close()
    assert found == [b"1", b"2", b"3", b"4"]


@pytest.mark.java
@pytest.mark.mechanism("P09")
def test_apache_kafka_forgets_all_but_the_last_batch(kafka: KafkaServer) -> None:
    """Killed when four batches are written and none is confirmed: it would refuse the first of them for ever."""
    create_topic(kafka.bootstrap_servers, "numbers")
    partition = TopicPartition("numbers", 0)
    with KafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers, linger_ms=0, batch_size=1, start_thread=False
    ) as producer:
        manager = producer.transaction_manager
        assert manager is not None
        turns = Turns(producer)
        producer.metadata.add("numbers", 0)
        turns.until(lambda: producer.metadata.snapshot.leader_for(partition) is not None)
        futures = [producer.send("numbers", b"0", partition=0)]
        turns.until(futures[0].done)
        kafka.pause()
        for number in range(1, 5):
            futures.append(producer.send("numbers", b"%d" % number, partition=0))
            turns.until(lambda: len(manager.partitions.window(partition)[0]) == len(futures) - 1)
        kafka.resume()
        eventually(lambda: len(stored(kafka.data, "numbers", 0)) == 5)
        producer.client.disconnect("1")  # whatever it has answered is not heard
        kafka.kill()
        kafka.start()
        turns.until(lambda: all(future.done() for future in futures))
        futures.append(producer.send("numbers", b"5", partition=0))
        turns.until(futures[-1].done)
        assert [future.result(0).offset for future in futures] == [0, -1, -1, -1, 4, 5]
        assert manager.producer_id_and_epoch.epoch == 0
    assert stored(kafka.data, "numbers", 0) == [0, 1, 2, 3, 4, 5]


class Turns:
    """Drives a producer that has no thread: what it does not do, nobody does."""

    def __init__(self, producer: KafkaProducer, seconds: float = 60) -> None:
        self._producer = producer
        self._seconds = seconds

    def until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + self._seconds
        while not done():
            assert time.monotonic() < deadline
            self._producer.sender.run_once()


@pytest.mark.java
@pytest.mark.nightly
def test_apache_kafka_killed_five_times_in_a_million_records(kafka: KafkaServer) -> None:
    create_topic(kafka.bootstrap_servers, "numbers", partitions=PARTITIONS)
    produce_while_killed(kafka, kafka.data, "numbers", 1_000_000, kills=5, places_may_be_unknown=True)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_others_read(bootstrap: str, topic: str, codec: str) -> None:
    """Keys, values, headers and timestamps, as another project's consumer sees them."""
    create_topic(bootstrap, topic)
    with KafkaProducer(bootstrap_servers=bootstrap, compression_type=codec) as producer:
        for number in range(100):
            headers = [("h", b"%d" % number), ("empty", None)] if number % 2 else None
            producer.send(topic, b"v%d" % number, key=b"k", headers=headers, timestamp_ms=1_700_000_000_000 + number)
    for driver in LIBRARIES:
        found = driver.read(bootstrap, topic, 100)
        assert [record.value for record in found] == [b"v%d" % number for number in range(100)]
        assert [record.timestamp for record in found] == [1_700_000_000_000 + number for number in range(100)]
        assert found[1].headers == (("h", b"1"), ("empty", None))
        assert found[0].headers == ()
        assert {record.key for record in found} == {b"k"}


class Listener:
    """A port where something else than Kafka is at home."""

    def __init__(self, serve: Callable[[socket.socket], None]) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._serve = serve
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.getsockname()[1]}"

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                threading.Thread(target=self._one, args=(connection,), daemon=True).start()

    def _one(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, ssl.SSLError), connection:
            self._serve(connection)

    def close(self) -> None:
        self._server.close()


def web_server(connection: socket.socket) -> None:
    connection.recv(100)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def tls_server(connection: socket.socket) -> None:
    """What a TLS listener says to somebody who does not begin with a handshake: an alert."""
    connection.recv(100)
    connection.sendall(bytes.fromhex("15 03 01 00 02 02 46"))


@pytest.mark.parametrize(
    ("serve", "message"),
    [
        (None, "connection refused; nothing listens on that port"),
        (web_server, "it responded in HTTP; this is a web server, not a Kafka broker"),
        (tls_server, "the listener expects TLS"),
        (lambda connection: connection.close(), "closed the connection before it sent its API versions"),
    ],
    ids=["wrong port", "web server", "TLS", "something else"],
)
def test_what_is_wrong_with_the_address(serve: Callable[[socket.socket], None] | None, message: str) -> None:
    with contextlib.ExitStack() as stack:
        if serve is None:
            address = f"127.0.0.1:{free_port()}"
        else:
            listener = Listener(serve)
            stack.callback(listener.close)
            address = listener.address
        with KafkaProducer(bootstrap_servers=address, max_block_ms=2_000, reconnect_backoff_ms=10) as producer:
            error = producer.send("t", b"v").exception(60)
        assert isinstance(error, KafkaTimeoutError)
        assert "Topic t not present in metadata after 2000 ms." in str(error)
        assert address in str(error)
        assert message in str(error)


def test_an_unknown_host() -> None:
    with pytest.raises(ConfigError, match=r"No resolvable bootstrap urls.*no-such-host\.invalid"):
        KafkaProducer(bootstrap_servers="no-such-host.invalid:9092")
