"""``kill -9`` of a broker under load, again and again: what was acknowledged is there, once, and in order.

Idempotent producers of librdkafka, one for each codec, write numbered records to several partitions and retry whatever
is not acknowledged. Meanwhile the broker is killed at random moments, in the middle of its start as well, and started
again on the same directory and port. In the end everything is read: each partition has to hold exactly 0, 1, 2, ... as
often and in the order in which they were sent. The same goes for topics and settings whose change was acknowledged.

The random moments come from a seed, which a failure prints; the load does not.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from benchmarks.broker_process import BrokerProcess
from benchmarks.waiting import until
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 2
SEGMENT_BYTES = 60_000
"""Small, so that some of the kills hit a roll."""
IN_FLIGHT = 300
"""Records of one producer that have not been acknowledged; enough to fill several batches, few enough to make haste."""
WAIT_S = 30
RETENTION_BASE = 1_000_000_000

Partition = tuple[str, int]


def topic_of(codec: str) -> str:
    return f"orders-{codec}"


def changed_topic(number: int) -> str:
    """The topic whose setting is changed in a round."""
    return f"changed-{number:03}"


@dataclass
class Load:
    """One idempotent producer, in a thread of its own."""

    bootstrap_servers: str
    codec: str
    sent: Counter[Partition] = field(default_factory=Counter)
    acknowledged: dict[Partition, list[int]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    total: int = 0

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._pending = 0
        self._producer = Producer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "enable.idempotence": True,
                "acks": "all",
                "compression.type": self.codec,
                "linger.ms": 2,
                "batch.num.messages": 50,
                "message.timeout.ms": 300_000,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 50,
                "topic.metadata.refresh.fast.interval.ms": 50,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, name=f"load-{self.codec}", daemon=True)
        self._padding = random.Random(self.codec).randbytes(400)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        topic = topic_of(self.codec)
        while not self._stop.is_set():
            if self._pending >= IN_FLIGHT:
                self._producer.poll(0.01)
                continue
            for partition in range(PARTITIONS):
                key = (topic, partition)
                number = self.sent[key]
                self._producer.produce(
                    topic, b"%d %s" % (number, self._padding), partition=partition, on_delivery=self._delivered
                )
                self.sent[key] += 1
                self._pending += 1
            self._producer.poll(0.001)  # leaves some of the machine to the broker

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        self._pending -= 1
        if error is not None:
            self.failures.append(str(error))
            return
        value, topic, partition = message.value(), message.topic(), message.partition()
        assert value is not None
        assert topic is not None
        assert partition is not None
        self.acknowledged.setdefault((topic, partition), []).append(number_of(value))
        self.total += 1

    def stop(self) -> None:
        self._stop.set()

    def finish(self) -> None:
        """Sends nothing new, and waits until all that was sent is acknowledged."""
        self.stop()
        self._thread.join(WAIT_S)
        left = self._producer.flush(WAIT_S)
        if left:
            self.failures.append(f"{left} records of {self.codec} were never acknowledged")


def number_of(value: bytes) -> int:
    return int(value.partition(b" ")[0])


class Admin:
    """Makes a topic and changes a setting each round, and remembers what the broker has confirmed."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._settings_of_client: dict[str, str | int | float | bool] = {
            "bootstrap.servers": bootstrap_servers,
            "log_level": 0,
        }
        self._client = AdminClient(self._settings_of_client)
        self._clients = [self._client]
        self._topics: dict[str, Any] = {}
        self._settings: dict[int, Any] = {}

    def make_topics(self, rounds: int) -> None:
        settings = {"internal.segment.bytes": str(SEGMENT_BYTES)}
        topics = [NewTopic(topic_of(codec), PARTITIONS, 1, config=settings) for codec in CODECS]
        # One for each round: a request of a round before may well arrive after that of the next.
        topics += [NewTopic(changed_topic(number), 1, 1) for number in range(1, rounds + 1)]
        for future in self._client.create_topics(topics, operation_timeout=WAIT_S).values():
            future.result(WAIT_S)

    def ask(self, number: int) -> None:
        """Sends both requests and waits for neither: the broker may be killed before, while or after it does them."""
        # A new one each time: the one from before takes seconds to notice that the broker is there again.
        self._client = AdminClient(self._settings_of_client)
        self._clients.append(self._client)  # one that is collected leaves its futures as they are, for good
        name = f"made-{number:03}"
        self._topics.update(self._client.create_topics([NewTopic(name, 1, 1)], request_timeout=5))
        entry = ConfigEntry("retention.ms", str(RETENTION_BASE + number), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, changed_topic(number), incremental_configs=[entry])
        (future,) = self._client.incremental_alter_configs([resource], request_timeout=5).values()
        self._settings[number] = future

    def wait(self, number: int) -> None:
        """Until both have been answered, in whatever way."""
        futures = [self._topics[f"made-{number:03}"], self._settings[number]]
        for future in futures:
            future.exception(WAIT_S)

    def confirmed(self) -> tuple[set[str], set[int]]:
        """The topics that were made, and the rounds whose setting was changed."""
        topics = {name for name, future in self._topics.items() if future.exception(WAIT_S) is None}
        return topics, {number for number, future in self._settings.items() if future.exception(WAIT_S) is None}

    def found(self) -> tuple[set[str], set[int]]:
        """What there is of both."""
        topics = set(self._client.list_topics(timeout=WAIT_S).topics)
        resources = [ConfigResource(ResourceType.TOPIC, changed_topic(number)) for number in self._settings]
        values = [future.result(WAIT_S)["retention.ms"].value for future in self._describe(resources)]
        return topics, {int(value) - RETENTION_BASE for value in values}

    def _describe(self, resources: list[ConfigResource]) -> list[Any]:
        return list(self._client.describe_configs(resources).values())


def read_all(bootstrap_servers: str) -> dict[Partition, list[int]]:
    """The numbers of all records, by partition, in the order of their offsets; offsets have no gaps."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            "log_level": 0,
        }
    )
    partitions = [TopicPartition(topic_of(codec), number, 0) for codec in CODECS for number in range(PARTITIONS)]
    consumer.assign(partitions)
    numbers: dict[Partition, list[int]] = {(one.topic, one.partition): [] for one in partitions}
    ended: set[Partition] = set()
    deadline = time.monotonic() + WAIT_S
    while len(ended) < len(partitions):
        assert time.monotonic() < deadline, f"read only {len(ended)} of {len(partitions)} partitions to the end"
        for message in consumer.consume(1000, timeout=1):
            topic, partition, value = message.topic(), message.partition(), message.value()
            assert topic is not None
            assert partition is not None
            error = message.error()
            if error is None:
                assert value is not None
                found = numbers[topic, partition]
                assert message.offset() == len(found)
                found.append(number_of(value))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add((topic, partition))
            else:
                raise AssertionError(f"{topic}-{partition}: {error}")
    del consumer  # close() would look for the coordinator of a group that does not exist
    return numbers


@dataclass
class Verdict:
    """What reading everything has shown."""

    acknowledged: int = 0
    lost: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    never_sent: int = 0

    def add(self, sent: int, acknowledged: list[int], found: list[int]) -> None:
        seen = Counter(found)
        self.acknowledged += len(acknowledged)
        self.lost += sum(1 for number in acknowledged if not seen[number])
        self.duplicated += sum(count - 1 for count in seen.values())
        self.out_of_order += sum(1 for before, after in pairwise(found) if after < before)
        self.never_sent += sum(1 for number in seen if number >= sent)

    def __str__(self) -> str:
        return (
            f"{self.acknowledged} records acknowledged; lost {self.lost}, duplicated {self.duplicated}, "
            f"out of order {self.out_of_order}"
        )

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.duplicated or self.out_of_order or self.never_sent)


class Murderer:
    """Kills the broker and starts it again."""

    def __init__(self, broker: BrokerProcess, admin: Admin, chance: random.Random) -> None:
        self._broker = broker
        self._admin = admin
        self._chance = chance
        self.kills = 0
        self.at_start = 0
        self.loads: list[Load] = []

    def round(self, number: int) -> None:
        """Under load for a moment, then a kill, and a start that does not always get to its end."""
        self._await_progress()
        self._admin.ask(number)
        if number % 2:
            # Right after the answer is the most likely moment for something to be acknowledged and lost.
            self._admin.wait(number)
        else:
            time.sleep(self._chance.uniform(0, 0.15))
        self._kill()
        if self._chance.random() < 0.3:
            self._broker.spawn()
            time.sleep(self._chance.uniform(0.05, 0.6))
            self._kill()
            self.at_start += 1
        self._broker.spawn()

    def _kill(self) -> None:
        self._broker.kill()
        self.kills += 1

    def _await_progress(self) -> None:
        """Until something is acknowledged, so that there is something to lose."""
        before = sum(load.total for load in self.loads)
        until(
            lambda: sum(load.total for load in self.loads) > before,
            lambda: f"nothing acknowledged:\n{self._broker.text()[-5000:]}",
            WAIT_S,
            process=self._broker.process,
        )


@pytest.mark.parametrize("rounds", [pytest.param(10, id="10"), pytest.param(50, id="50", marks=pytest.mark.nightly)])
def test_kill_9_loses_repeats_and_reorders_nothing(
    rounds: int, tmp_path: Path, record_property: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    seed = int.from_bytes(os.urandom(4))
    broker = BrokerProcess(tmp_path / "data", pycache=tmp_path / "pycache")
    broker.start()
    admin = Admin(broker.bootstrap_servers)
    admin.make_topics(rounds)
    murderer = Murderer(broker, admin, random.Random(seed))
    murderer.loads = [Load(broker.bootstrap_servers, codec) for codec in CODECS]
    for load in murderer.loads:
        load.start()
    try:
        for number in range(1, rounds + 1):
            murderer.round(number)
        broker.await_answer()
        for load in murderer.loads:
            load.finish()
        assert [failure for load in murderer.loads for failure in load.failures] == []

        found = read_all(broker.bootstrap_servers)
        verdict = Verdict()
        for load in murderer.loads:
            for key, sent in load.sent.items():
                verdict.add(sent, load.acknowledged.get(key, []), found[key])
        print(f"\n{murderer.kills} kills, {murderer.at_start} of them during a start (seed {seed}): {verdict}")
        record_property("kills", murderer.kills)
        assert verdict.is_clean, f"seed {seed}: {verdict}"
        for load in murderer.loads:
            for key, sent in load.sent.items():
                assert found[key] == list(range(sent)), f"seed {seed}: {key}"

        topics, changes = admin.confirmed()
        topics_found, changes_found = admin.found()
        assert topics <= topics_found, f"seed {seed}"
        assert changes <= changes_found, f"seed {seed}"
        print(f"{len(topics)} new topics and {len(changes)} changed settings confirmed, all of them there")
        assert murderer.kills >= rounds
    finally:
        for load in murderer.loads:
            load.stop()
        broker.kill()
    assert "Traceback" not in broker.text(), broker.text()[-10_000:]
