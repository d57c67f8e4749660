"""Clients on the broker's machine: ours leave TCP for the local socket, all others see nothing of it.

What happens to one connection is in ``tests/unit/network/transport/test_local_socket.py``; here are whole
clients and brokers.
"""

from __future__ import annotations

import select
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import kafka
import pytest
from benchmarks.broker_process import free_port

from barnabas.clients.admin import ClientQuotaEntity, KafkaAdminClient
from barnabas.clients.common.blocking_client import BlockingClient
from barnabas.clients.consumer import KafkaConsumer
from barnabas.clients.producer import KafkaProducer
from barnabas.common.topic_partition import TopicPartition
from barnabas.embedded import EmbeddedBroker
from barnabas.network.server.socket_server import SocketServer
from barnabas.network.transport.local.offer import OFFER_TAG
from barnabas.protocol.framing import encode_request
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has abstract names for Unix sockets")

SECONDS = 30
UNIX, TCP = socket.AF_UNIX, socket.AF_INET


def sockets_of(broker: EmbeddedBroker) -> SocketServer:
    server = broker.server.broker
    assert server is not None
    assert server.serving is not None
    assert server.serving.socket_server is not None
    return server.serving.socket_server


def connections(broker: EmbeddedBroker) -> list[tuple[str, int]]:
    """What the broker's connections are made of, and whose they are."""
    return [
        (channel.context.client_software_name, channel.transport.socket.family)
        for processor in sockets_of(broker).processors
        for channel in list(processor.selector.channels.values())
        if channel.context is not None
    ]


def families(broker: EmbeddedBroker, software: str = "barnabas") -> set[int]:
    return {family for name, family in connections(broker) if name == software}


def await_true(condition: Callable[[], bool]) -> None:
    """Looks again and again, and lets the broker, which is in this process, go on in between."""
    pause = threading.Event()
    for _ in range(SECONDS * 200):
        if condition():
            return
        pause.wait(0.005)
    raise AssertionError("it never came true")


def read(bootstrap: str, topic: str, count: int, **settings: Any) -> list[bytes]:
    values: list[bytes] = []
    with KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", **settings) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        while len(values) < count:
            polled = consumer.poll(SECONDS * 1000)
            assert polled, f"{len(values)} of {count}"
            values += [bytes(record.value) for record in polled if record.value is not None]
    return values


@pytest.fixture(scope="module")
def shared() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def embedded(shared: EmbeddedBroker) -> EmbeddedBroker:
    """A broker that nobody is connected to."""
    await_true(lambda: not connections(shared))
    return shared


def test_produce_and_consume(embedded: EmbeddedBroker) -> None:
    values = [b"%d" % number * 500 for number in range(2_000)]
    with KafkaProducer(bootstrap_servers=embedded.bootstrap_servers) as producer:
        for value in values:
            producer.send("words", value)
        producer.flush()
        assert families(embedded) == {UNIX}
        assert read(embedded.bootstrap_servers, "words", len(values)) == values
    await_true(lambda: not families(embedded))  # they end with their clients


def test_groups_and_transactions(embedded: EmbeddedBroker) -> None:
    with KafkaProducer(bootstrap_servers=embedded.bootstrap_servers, transactional_id="moves") as producer:
        producer.init_transactions()
        for number, commit in enumerate([True, False, True]):
            producer.begin_transaction()
            producer.send("bank", b"%d" % number)
            if commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
        with KafkaConsumer(
            bootstrap_servers=embedded.bootstrap_servers,
            group_id="movers",
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        ) as consumer:
            consumer.subscribe(["bank"])
            values: list[bytes | None] = []
            while len(values) < 2:
                values += [record.value for record in consumer.poll(SECONDS * 1000)]
            consumer.commit()
            assert families(embedded) == {UNIX}
        assert values == [b"0", b"2"]


def test_the_admin_client(embedded: EmbeddedBroker) -> None:
    with KafkaAdminClient(bootstrap_servers=embedded.bootstrap_servers) as admin:
        assert admin.describe_cluster().cluster_id == embedded.cluster_id
        assert families(embedded) == {UNIX}


def test_it_can_be_turned_off_in_a_client(embedded: EmbeddedBroker) -> None:
    with KafkaProducer(bootstrap_servers=embedded.bootstrap_servers, local_socket_enable=False) as producer:
        producer.send("off", b"x").result(SECONDS)
        assert families(embedded) == {TCP}
        assert read(embedded.bootstrap_servers, "off", 1, local_socket_enable=False) == [b"x"]
        assert families(embedded) == {TCP}


def test_it_can_be_turned_off_in_a_broker() -> None:
    with (
        EmbeddedBroker(overrides={"barnabas.local.socket.enable": False}) as broker,
        KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        producer.send("off", b"x").result(SECONDS)
        assert families(broker) == {TCP}


def test_small_tools_stay_with_tcp(embedded: EmbeddedBroker) -> None:
    """For one question it would be two answers more."""
    with BlockingClient(embedded.bootstrap_servers) as client:
        assert client.send(DescribeClusterRequest()).cluster_id == embedded.cluster_id
        assert families(embedded) == {TCP}


def test_after_a_restart_it_is_tcp_and_then_the_local_socket_again(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as first:
        port = int(first.bootstrap_servers.rpartition(":")[2])
        producer = KafkaProducer(bootstrap_servers=first.bootstrap_servers)
        consumer = KafkaConsumer(bootstrap_servers=first.bootstrap_servers, auto_offset_reset="earliest")
        consumer.assign([TopicPartition("again", 0)])
        producer.send("again", b"1").result(SECONDS)
        assert [record.value for record in consumer.poll(SECONDS * 1000)] == [b"1"]
        assert families(first) == {UNIX}
    with EmbeddedBroker(tmp_path, port=port) as second, producer, consumer:
        producer.send("again", b"2").result(SECONDS)
        assert [record.value for record in consumer.poll(SECONDS * 1000)] == [b"2"]
        assert families(second) == {UNIX}


def test_a_connection_counts_once() -> None:
    """One for metadata from a bootstrap server, one to the node: with the two that moved it would be four."""
    with (
        EmbeddedBroker() as broker,
        KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        producer.send("quota", b"x").result(SECONDS)
        assert [family for name, family in connections(broker) if name == "barnabas"] == [UNIX, UNIX]
        assert sockets_of(broker).connection_count("127.0.0.1") == 2


def test_a_quota_holds(embedded: EmbeddedBroker) -> None:
    """The broker does not read from a client that it throttles, and the client knows; over this socket as well."""
    with KafkaAdminClient(bootstrap_servers=embedded.bootstrap_servers) as admin:
        admin.alter_client_quotas({ClientQuotaEntity.of({"client-id": "slow"}): {"producer_byte_rate": 25_000.0}})
    with KafkaProducer(bootstrap_servers=embedded.bootstrap_servers, client_id="slow", linger_ms=0) as producer:
        for _ in range(6):
            producer.send("throttled", bytes(50_000)).result(SECONDS)
        assert families(embedded) == {UNIX}
        throttled = [
            metric.value() for name, metric in producer.metrics().items() if name.name == "produce-throttle-time-max"
        ]
        assert throttled
        assert float(throttled[0]) > 0


class Proxy:
    """Forwards TCP connections, as a tunnel does; each can be cut."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self.forwarded = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        others: dict[socket.socket, socket.socket] = {}
        while not self._stop.is_set():
            for sock in select.select([self._listening, *others], [], [], 0.05)[0]:
                if sock is self._listening:
                    left, _ = sock.accept()
                    right = socket.create_connection(("127.0.0.1", self._target))
                    others |= {left: right, right: left}
                elif sock in others:
                    data = sock.recv(1 << 16)
                    self.forwarded += len(data)
                    if data:
                        others[sock].sendall(data)
                    else:
                        other = others.pop(sock)
                        others.pop(other)
                        sock.close()
                        other.close()
        for sock in [*others, self._listening]:
            sock.close()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(SECONDS)


@contextmanager
def behind_a_proxy() -> Iterator[tuple[EmbeddedBroker, Proxy]]:
    """A broker that tells its clients to come through the proxy."""
    port = free_port()
    proxy = Proxy(port)
    try:
        overrides = {"advertised.listeners": f"PLAINTEXT://{proxy.address}"}
        with EmbeddedBroker(port=port, overrides=overrides) as broker:
            yield broker, proxy
    finally:
        proxy.close()


def test_a_proxy_is_not_bypassed() -> None:
    with behind_a_proxy() as (broker, proxy), KafkaProducer(bootstrap_servers=proxy.address) as producer:
        producer.send("t", bytes(100_000)).result(SECONDS)
        assert families(broker) == {TCP}
        assert proxy.forwarded > 100_000
        assert read(proxy.address, "t", 1) == [bytes(100_000)]
        assert proxy.forwarded > 200_000


# -- everybody else


def answer_to(broker: EmbeddedBroker, name: str, version: int) -> bytes:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    request = ApiVersionsRequest(client_software_name=name, client_software_version="1.0")
    with socket.create_connection((host, int(port)), SECONDS) as sock, sock.makefile("rb") as stream:
        sock.sendall(encode_request(request, version, 7, "c"))
        size, _correlation = struct.unpack(">ii", stream.read(8))
        return stream.read(size - 4)


@pytest.mark.parametrize("version", range(6))
def test_the_answers_to_others_are_what_they_were(embedded: EmbeddedBroker, version: int) -> None:
    ours = ApiVersionsResponse.decode(answer_to(embedded, "barnabas", version), version)
    assert (OFFER_TAG in (ours.unknown_tagged_fields or {})) is (version >= 3)
    ours.unknown_tagged_fields = None
    for name in ("librdkafka", "apache-kafka-java", "kafka-python", "Barnabas"):
        theirs = answer_to(embedded, name, version)
        decoded = ApiVersionsResponse.decode(theirs, version)
        assert decoded.unknown_tagged_fields is None
        ours.finalized_features_epoch = decoded.finalized_features_epoch  # the metadata log grows by itself
        assert ours.encode(version) == theirs


def test_other_clients_stay_with_tcp(embedded: EmbeddedBroker) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": embedded.bootstrap_servers, "log_level": 0})
    producer.produce("others", b"x")
    assert producer.flush(SECONDS) == 0
    consumer = kafka.KafkaConsumer(
        "others",
        bootstrap_servers=embedded.bootstrap_servers,
        auto_offset_reset="earliest",
        consumer_timeout_ms=SECONDS * 1000,
    )
    try:
        assert next(iter(consumer)).value == b"x"
        found = [(name, family) for name, family in connections(embedded) if name != "barnabas"]
        assert set(found) == {("confluent-kafka-python", TCP), ("kafka-python", TCP)}
    finally:
        consumer.close()
