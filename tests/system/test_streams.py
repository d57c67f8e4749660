"""A Kafka Streams application with exactly-once processing, and ``kill -9`` for it and for the broker.

The application counts words (`tests/java/WordCount.java`), and writes each new count. As each word of the input is
counted once, whoever reads committed records finds, for a word that occurs three times, exactly 1, 2 and 3: a
transaction that is lost or comes twice shows, even if the final count is right.

The random moments come from a seed, which a failure prints.
"""

from __future__ import annotations

import logging
import os
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from benchmarks.broker_process import BrokerProcess
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from clients.java.conftest import java_or_skip
from oracles.java_process import JavaProcess, streams_jars
from system.committed_reader import CommittedReader
from system.steady_writer import SteadyWriter

pytestmark = pytest.mark.java

WAIT_S = 60
LINES, COUNTS = "lines", "counts"
PARTITIONS = 2
INTERVAL_S = 0.01
WORDS = [f"word-{number}" for number in range(20)]
OVERRIDES: Mapping[str, object] = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
}
"""A killed member is noticed soon, and there are no more internal partitions than the test has use for."""


class Lines:
    """Makes lines, and knows what is in those that were made."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.counted: Counter[str] = Counter()

    def make(self, number: int) -> tuple[int, bytes]:
        words = self._chance.choices(WORDS, k=5)
        self.counted.update(words)
        return number % PARTITIONS, " ".join(words).encode()


def make_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic(LINES, PARTITIONS, 1), NewTopic(COUNTS, PARTITIONS, 1)]).values():
        future.result(WAIT_S)


@contextmanager
def applications(number: int, bootstrap: str, directory: Path) -> Iterator[list[JavaProcess]]:
    """Instances of one application, which share its work."""
    with java_or_skip():
        jars = streams_jars()
        made = []
        for one in range(number):
            settings = {
                "application.id": "word-count",
                "state.dir": str(directory / f"state-{one}"),
                # A kill finds a transaction open, and some of its records written.
                "commit.interval.ms": "300",
                "producer.linger.ms": "0",
                "num.stream.threads": "1",
                # A killed instance leaves its place, and its open transaction, for as long as these say.
                "consumer.session.timeout.ms": "2000",
                "consumer.heartbeat.interval.ms": "300",
                "producer.transaction.timeout.ms": "5000",
            }
            arguments = [bootstrap, LINES, COUNTS, *(f"{key}={value}" for key, value in settings.items())]
            home = directory / f"application-{one}"
            home.mkdir()
            made.append(JavaProcess("WordCount", jars, arguments, home / "application.log"))
    try:
        yield made
    finally:
        for application in made:
            application.kill()


@pytest.mark.mechanism("P14")
@pytest.mark.parametrize(
    ("rounds", "instances"), [pytest.param(2, 1, id="2"), pytest.param(20, 2, id="20", marks=pytest.mark.nightly)]
)
def test_words_are_counted_once_whatever_is_killed(
    rounds: int, instances: int, tmp_path: Path, record_property: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    seed = int(os.environ.get("CRASH_SEED", random.randrange(1 << 32)))
    record_property("seed", seed)
    print(f"CRASH_SEED={seed}")
    chance = random.Random(seed)
    broker = BrokerProcess(tmp_path / "data", output=tmp_path / "broker.log", overrides=OVERRIDES)
    with ExitStack() as stack:
        running = stack.enter_context(applications(instances, broker.bootstrap_servers, tmp_path))
        broker.start()
        stack.callback(broker.kill)
        make_topics(broker.bootstrap_servers)
        lines = Lines(random.Random(seed))
        counts: dict[str, list[int]] = {}
        output = CommittedReader(
            broker.bootstrap_servers,
            COUNTS,
            PARTITIONS,
            lambda _partition, word, count: counts.setdefault(word.decode(), []).append(int(count)),
        )
        stack.callback(output.close)
        for application in running:
            application.spawn()
        writer = stack.enter_context(SteadyWriter(broker.bootstrap_servers, LINES, lines.make, INTERVAL_S))
        for number in range(rounds):
            output.read(output.total + 1)  # who has just been started is at work before it is killed again
            time.sleep(chance.uniform(0, 0.5))
            # Each in turn, so that even two rounds have both.
            if number % 2 == 0 or chance.random() < 0.3:
                broker.kill()
                broker.start()
            if number % 2 == 1 or chance.random() < 0.3:
                victim = chance.choice(running)
                victim.kill()
                victim.spawn()
        writer.stop()
        output.read(lines.counted.total(), to_the_end=True)
        assert counts == {word: list(range(1, count + 1)) for word, count in lines.counted.items()}
        assert "Traceback" not in broker.text()
