"""Quotas as clients feel them: the rate that they get, the delay that they are told, and that nobody is cut off.

A rate is measured over all its windows, so with Kafka's eleven of a second a client that starts at full speed has ten
seconds' worth at once and then waits for as long. The tests that cannot take so long have two windows; the one over 20
seconds has Kafka's.

A machine that does other things gives a client too little of the processor for some seconds, and it catches up after
that. So a measurement that is wrong is repeated (see `measured`): a quota that is wrong makes each of them wrong.
"""

from __future__ import annotations

import json
import re
import socket
import statistics
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import confluent_kafka
import pytest
from benchmarks.broker_process import free_port
from benchmarks.waiting import WaitedInVainError, until

from barnabas.cli.quota_requests import alter_quotas, describe_quotas
from barnabas.clients.common.blocking_client import BlockingClient
from barnabas.common.errors import Errors
from barnabas.protocol.framing import encode_request
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from clients.broker_process import BrokerProcess
from clients.confluent_admin import AdminClient, NewTopic
from oracles.java import OracleUnavailableError
from oracles.kafka_server import run_tool
from oracles.kafka_tools import KafkaTools

MB: Final = 1_000_000
WINDOWS: Final = 2
T = TypeVar("T")
RATE: Final = 1 * MB
MEASUREMENTS: Final = 6
"""So often a measurement is repeated."""
LIMIT_S: Final = 60


def measured(measure: Callable[[], T], is_right: Callable[[T], object]) -> None:
    """Measures until the result is right."""
    found: list[T] = []
    while not found or not is_right(found[-1]):
        assert len(found) < MEASUREMENTS, found
        found.append(measure())


class QuotaBroker:
    """A broker whose quotas can be set, and whose measurements can be read."""

    def __init__(self, process: BrokerProcess, http: str) -> None:
        self.process = process
        self.bootstrap = process.bootstrap_servers
        self._http = http

    def set(self, key: str, value: float | None, **entity: str) -> None:
        """Sets a limit, and returns when the broker knows of it."""
        parts = tuple(sorted((kind.replace("_", "-"), name) for kind, name in entity.items()))
        with BlockingClient(self.bootstrap, client_id="operator") as client:
            alter_quotas(client, parts, {key: value})
            deadline = time.monotonic() + LIMIT_S
            while describe_quotas(client).get(parts, {}).get(key) != value:
                assert time.monotonic() < deadline, "the limit did not reach the broker"

    @contextmanager
    def limited(self, key: str, value: float, **entity: str) -> Iterator[None]:
        self.set(key, value, **entity)
        try:
            yield
        finally:
            self.set(key, None, **entity)

    def usage(self, key: str, client_id: str) -> float:
        """What the broker has measured for a client id, per second."""
        with urllib.request.urlopen(f"http://{self._http}/quotas", timeout=LIMIT_S) as page:
            quotas = json.load(page)["quotas"]
        (found,) = (one for one in quotas if one["key"] == key and one["tags"].get("client-id") == client_id)
        usage: float = found["usage"]
        return usage

    def busy_usage(self, key: str, client_id: str, at_least: float, client: Producing) -> float:
        """What has been measured, once it is so much: a disk that is busy may hold everything up for seconds."""
        deadline = time.monotonic() + LIMIT_S
        while client.bytes_in(0.1) == 0 or (usage := self.usage(key, client_id)) < at_least:
            assert time.monotonic() < deadline, f"{client.acknowledged:,} bytes; told to wait {client.throttled[-5:]}"
        return usage


@contextmanager
def running(directory: Path, windows: int) -> Iterator[QuotaBroker]:
    http = f"127.0.0.1:{free_port()}"
    overrides = {
        "quota.window.num": str(windows),
        "controller.quota.window.num": str(windows),
        "barnabas.http.listener": http,
    }
    with BrokerProcess(directory, overrides) as process:
        yield QuotaBroker(process, http)


@pytest.fixture(scope="module")
def quota_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuotaBroker]:
    with running(tmp_path_factory.mktemp("quotas"), WINDOWS) as broker:
        yield broker


@pytest.fixture
def quotas(quota_broker: QuotaBroker, topic: str) -> QuotaBroker:
    """The broker, with a topic for the test."""
    make_topic(quota_broker.bootstrap, topic)
    return quota_broker


def make_topic(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "client.id": "operator"})
    for future in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        future.result(LIMIT_S)


class Client:
    """A client of librdkafka, and what it notices of being throttled."""

    def __init__(self, bootstrap: str, client_id: str) -> None:
        self.throttled: list[float] = []
        self.disconnects = 0
        self.settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "throttle_cb": self._on_throttle,
            "stats_cb": self._on_stats,
            "statistics.interval.ms": 200,
        }

    def _on_throttle(self, event: Any) -> None:
        self.throttled.append(event.throttle_time)

    def _on_stats(self, text: str) -> None:
        brokers = json.loads(text)["brokers"].values()
        self.disconnects = sum(broker["disconnects"] for broker in brokers if broker["nodeid"] >= 0)

    def assert_held_back_but_never_cut_off(self) -> None:
        assert max(self.throttled, default=0) > 0, "the client was told to wait"
        assert self.disconnects == 0


class Producing(Client):
    """Writes records of 1,000 bytes, as fast as it can or at a pace, on a thread of its own."""

    def __init__(self, bootstrap: str, topic: str, client_id: str, pace: float | None = None) -> None:
        super().__init__(bootstrap, client_id)
        self._producer: Any = confluent_kafka.Producer(
            {
                **self.settings,
                "batch.size": 16_384,
                "linger.ms": 5,
                "queue.buffering.max.kbytes": 256,
                "message.timeout.ms": 60_000,
            }
        )
        self._topic = topic
        self._pace = pace
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acknowledged = 0
        self.failed: list[Any] = []

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged += len(message.value())
        elif not self._stop.is_set():
            self.failed.append(error)

    def _run(self) -> None:
        value = b"x" * 1_000
        started, sent = time.monotonic(), 0
        while not self._stop.is_set():
            ahead = 0.0 if self._pace is None else sent / self._pace - (time.monotonic() - started)
            if ahead > 0:
                self._producer.poll(ahead)
                continue
            try:
                self._producer.produce(self._topic, value, on_delivery=self._delivered)
                sent += len(value)
            except BufferError:
                self._producer.poll(0.01)
            else:
                self._producer.poll(0)

    def bytes_in(self, seconds: float) -> int:
        """How much is acknowledged in the next so many seconds."""
        before = self.acknowledged
        time.sleep(seconds)
        return self.acknowledged - before

    def rate(self, seconds: float) -> float:
        """How many bytes a second are acknowledged in about so many seconds."""
        started = time.monotonic()
        acknowledged = self.bytes_in(seconds)
        return acknowledged / (time.monotonic() - started)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(LIMIT_S)
        self._producer.purge()
        self._producer.flush(5)
        assert not self.failed, self.failed[:3]


# ---------------------------------------------------------------------------------------------------- produce


def test_a_produce_quota_holds_the_rate(quotas: QuotaBroker, topic: str) -> None:
    with quotas.limited("producer_byte_rate", RATE, client_id="limited"):
        with Producing(quotas.bootstrap, topic, "limited") as limited:
            measured(lambda: limited.rate(6), lambda rate: rate == pytest.approx(RATE, rel=0.2))
        limited.assert_held_back_but_never_cut_off()


def test_a_client_beside_a_throttled_one_keeps_its_speed(quotas: QuotaBroker, topic: str) -> None:
    offered = 2 * MB
    with quotas.limited("producer_byte_rate", RATE, client_id="greedy"):
        with Producing(quotas.bootstrap, topic, "modest", pace=offered) as modest:

            def alone_and_beside() -> tuple[float, float]:
                modest.bytes_in(0.5)
                alone = modest.rate(2)
                with Producing(quotas.bootstrap, topic, "greedy") as greedy:
                    until(lambda: any(greedy.throttled), "the greedy client is throttled", LIMIT_S)
                    beside = modest.rate(3)
                greedy.assert_held_back_but_never_cut_off()
                return alone, beside

            measured(
                alone_and_beside,
                lambda rates: rates[0] == pytest.approx(offered, rel=0.2) and rates[1] >= 0.8 * rates[0],
            )
        assert not any(modest.throttled)
        assert modest.disconnects == 0


def test_a_new_limit_takes_effect_within_a_window_and_resets_nothing(quotas: QuotaBroker, topic: str) -> None:
    with (
        quotas.limited("producer_byte_rate", RATE, client_id="changing"),
        Producing(quotas.bootstrap, topic, "changing") as client,
    ):
        before = quotas.busy_usage("producer_byte_rate", "changing", 0.8 * RATE, client)
        quotas.set("producer_byte_rate", 3 * RATE, client_id="changing")
        after = quotas.usage("producer_byte_rate", "changing")
        assert after > 0.4 * RATE, f"{before:,.0f} bytes a second were used: that is not forgotten"
        client.bytes_in(WINDOWS)  # whoever is muted when the limit changes waits as long as it was told
        measured(lambda: client.rate(4), lambda rate: rate == pytest.approx(3 * RATE, rel=0.25))
        quotas.set("producer_byte_rate", RATE, client_id="changing")
        client.bytes_in(0.5)
        # What was right under the old limit is an excess under the new one.
        measured(lambda: client.rate(3), lambda rate: rate < 1.2 * RATE)
    client.assert_held_back_but_never_cut_off()


@pytest.mark.java
def test_the_java_producer_is_held_to_its_rate_and_knows_it(quotas: QuotaBroker, topic: str) -> None:
    records = 5_000
    with quotas.limited("producer_byte_rate", RATE, client_id="java"), _tools() as tools:

        def seconds() -> float:
            printed = tools.run(
                "kafka-producer-perf-test",
                *("--topic", topic, "--num-records", str(records), "--record-size", "1000", "--throughput", "-1"),
                *("--print-metrics", "--producer-props", f"bootstrap.servers={quotas.bootstrap}", "client.id=java"),
            )
            (throttle,) = re.findall(r"produce-throttle-time-max:\{client-id=java\}\s*:\s*([\d.]+)", printed)
            assert float(throttle) > 0
            return records / float(_last(re.findall(r"([\d.]+) records/sec", printed)))

        # The first second's worth comes at once, the rest at a thousand a second; without a quota it takes no second.
        measured(seconds, lambda taken: 3.5 <= taken <= 8)


@pytest.mark.nightly
@pytest.mark.java
def test_over_twenty_seconds_with_kafkas_windows(tmp_path: Path, topic: str) -> None:
    """Offered twice its quota, a client has its quota over 20 seconds, within ten percent."""
    with running(tmp_path, 11) as broker:
        make_topic(broker.bootstrap, topic)
        broker.set("producer_byte_rate", RATE, client_id="java")
        tool = threading.Thread(
            target=lambda: _perf(broker.bootstrap, topic, records=24_000, per_second=2_000, client_id="java")
        )
        reader: Any = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "none"})

        def written() -> int:
            try:
                end: int = reader.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), timeout=10)[1]
            except confluent_kafka.KafkaException:  # the topic is so new that this client has not heard of it
                return 0
            return end * 1_000

        tool.start()
        try:
            deadline = time.monotonic() + 20
            while not written():
                assert time.monotonic() < deadline
            started = time.monotonic()
            time.sleep(20)
            total, elapsed = written(), time.monotonic() - started
        finally:
            reader.close()
            tool.join(60)
    assert total / elapsed == pytest.approx(RATE, rel=0.1), f"{total:,} bytes in {elapsed:.1f} s"


def _perf(bootstrap: str, topic: str, *, records: int, per_second: int, client_id: str) -> str:
    return run_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", str(records), "--record-size", "1000", "--throughput", str(per_second)),
        *("--producer-props", f"bootstrap.servers={bootstrap}", f"client.id={client_id}"),
    )


@contextmanager
def _tools() -> Iterator[KafkaTools]:
    try:
        tools = KafkaTools()
    except OracleUnavailableError as reason:
        pytest.skip(f"Kafka's tools are not available: {reason}")
    with tools:
        yield tools


def _last(found: Sequence[str]) -> str:
    assert found
    return found[-1]


# ---------------------------------------------------------------------------------------------------- fetch


def test_a_fetch_quota_holds_the_rate(quotas: QuotaBroker, topic: str) -> None:
    with Producing(quotas.bootstrap, topic, "filler", pace=20 * MB) as filler:
        while filler.acknowledged < 10 * MB:
            filler.bytes_in(0.1)
    with quotas.limited("consumer_byte_rate", RATE, client_id="reader"):
        client = Client(quotas.bootstrap, "reader")
        settings = {"group.id": "none", "enable.auto.commit": False, "max.partition.fetch.bytes": 65_536}
        consumer: Any = confluent_kafka.Consumer({**client.settings, **settings})
        try:
            consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
            while (first := consumer.poll(LIMIT_S)) is None or first.error() is not None:
                assert first is not None, "nothing came"

            def rate() -> float:
                consumer.seek(confluent_kafka.TopicPartition(topic, 0, 0))  # there is enough for one measurement
                started, read = time.monotonic(), 0
                while (elapsed := time.monotonic() - started) < 6:
                    message: Any = consumer.poll(0.1)
                    # It looks for its group, too, and may not find it.
                    if message is not None and message.error() is None:
                        read += len(message.value())
                return read / elapsed

            measured(rate, lambda found: found == pytest.approx(RATE, rel=0.25))
        finally:
            consumer.close()
        client.assert_held_back_but_never_cut_off()


# ---------------------------------------------------------------------------------------------------- request time


def test_a_request_quota_holds_the_share_of_the_threads(quotas: QuotaBroker, topic: str) -> None:
    percentage = 2.0
    with quotas.limited("request_percentage", percentage, client_id="busy"):
        with Producing(quotas.bootstrap, topic, "busy") as busy:
            busy.bytes_in(1)

            def mean_usage() -> float:
                usages = []
                for _ in range(8):
                    busy.bytes_in(0.3)
                    usages.append(quotas.usage("request_percentage", "busy"))
                return statistics.mean(usages)

            measured(mean_usage, lambda usage: usage == pytest.approx(percentage, rel=0.5))
        busy.assert_held_back_but_never_cut_off()

        def per_second() -> tuple[float, float]:
            limited = _metadata_requests(quotas.bootstrap, "busy", 2.0)
            assert max(limited.throttle_ms) > 0
            assert max(limited.throttle_ms) <= 1_000, "one window at most"
            return limited.per_second, _metadata_requests(quotas.bootstrap, "busy-alone", 1.0).per_second

        measured(per_second, lambda found: found[0] < 0.5 * found[1])


class _Requests:
    def __init__(self) -> None:
        self.throttle_ms: list[int] = []
        self.per_second = 0.0


def _metadata_requests(bootstrap: str, client_id: str, seconds: float) -> _Requests:
    """Asks for metadata as often as it can, and as it may."""
    found = _Requests()
    with BlockingClient(bootstrap, client_id=client_id) as client:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            response: MetadataResponse = client.send(MetadataRequest(topics=None))
            found.throttle_ms.append(response.throttle_time_ms)
    found.per_second = len(found.throttle_ms) / seconds
    return found


# ---------------------------------------------------------------------------------------------------- mutations


def test_a_mutation_quota_refuses_new_clients_before_anything_is_made(quotas: QuotaBroker) -> None:
    with (
        quotas.limited("controller_mutation_rate", 1, client_id="strict"),
        BlockingClient(quotas.bootstrap, client_id="strict") as client,
    ):

        def create(name: str, partitions: int) -> tuple[int, int]:
            topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
            response: CreateTopicsResponse = client.send(CreateTopicsRequest(topics=[topic], timeout_ms=60_000))
            return response.topics[0].error_code, response.throttle_time_ms

        assert create("mutation.first", 5) == (Errors.NONE, 0), "two permits, of which all can be had and more"
        code, throttle_ms = create("mutation.second", 1)
        assert code == Errors.THROTTLING_QUOTA_EXCEEDED
        assert 0 < throttle_ms <= 3_000
        names = MetadataRequest(topics=[MetadataRequestTopic(name="mutation.second")], allow_auto_topic_creation=False)
        metadata: MetadataResponse = client.send(names)  # waits as long as it was told
        assert metadata.topics[0].error_code == Errors.UNKNOWN_TOPIC_OR_PARTITION
        assert create("mutation.second", 1) == (Errors.NONE, 0)


def test_older_clients_get_what_they_want_and_have_to_wait(quotas: QuotaBroker) -> None:
    """librdkafka speaks an old version of CreateTopics."""
    with quotas.limited("controller_mutation_rate", 2, client_id="permissive"):
        client = Client(quotas.bootstrap, "permissive")
        admin = AdminClient(client.settings)
        started = time.monotonic()
        for number in range(8):
            for future in admin.create_topics([NewTopic(f"permissive.{number}", 1, 1)]).values():
                future.result(LIMIT_S)
        elapsed = time.monotonic() - started
        until(lambda: admin.poll(0.01) is not None and any(client.throttled), "the client is throttled", LIMIT_S)
    # Four in the bucket; of the other four, the last is not waited for.
    assert elapsed >= 1.0
    assert sum(client.throttled) <= 4.0


def test_topics_that_come_into_being_by_themselves_count_too(quotas: QuotaBroker) -> None:
    with (
        quotas.limited("controller_mutation_rate", 0.25, client_id="creator"),
        BlockingClient(quotas.bootstrap, client_id="creator") as client,
    ):

        def ask(name: str) -> int:
            request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
            response: MetadataResponse = client.send(request)
            return response.topics[0].error_code

        def comes(name: str, seconds: float) -> bool:
            try:
                return until(lambda: ask(name) == Errors.NONE, name, seconds, pause_s=0.05)
            except WaitedInVainError:
                return False

        burst = [f"automatic.{number}" for number in range(3)]
        for name in burst:
            ask(name)
        assert not all(comes(name, 0.5) for name in burst), "half a permit, and a quarter each second"
        assert all(comes(name, LIMIT_S) for name in burst)


# ---------------------------------------------------------------------------------------------------- connections


def test_a_connection_rate_holds_back_an_address_and_lets_it_in_again(quota_broker: QuotaBroker) -> None:
    rate, seconds = 10, 3.0
    with quota_broker.limited("connection_creation_rate", rate, ip="127.0.0.1"):

        def served() -> int:
            found = 0
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                found += _is_served(quota_broker.process.port, deadline - time.monotonic())
            return found

        # A window's worth at once, and the rate after that.
        measured(served, lambda found: rate * (seconds - 1) <= found <= rate * (seconds + WINDOWS))
        client = Client(quota_broker.bootstrap, "patient")
        admin = AdminClient(client.settings)
        assert admin.list_topics(timeout=LIMIT_S).brokers


def _is_served(port: int, seconds: float) -> bool:
    """Whether a new connection gets an answer; one that comes too fast is closed after a while."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=max(seconds, 0.01)) as connection:
        connection.sendall(encode_request(ApiVersionsRequest(), 0, 1, "knocking"))
        return bool(connection.recv(4))
    return False
