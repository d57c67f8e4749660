"""``kill -9`` in the middle of transactions, of the broker and of those who process: each record comes out once.

A processor reads numbers from one topic and writes them to two partitions of another, in transactions which also have
its position in them (:mod:`transaction_processor`). It and the broker are killed at random moments and started again.
In the end, whoever reads committed records finds each number exactly once, and in order.

The random moments come from a seed, which a failure prints.
"""

from __future__ import annotations

import logging
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from benchmarks.broker_process import BrokerProcess
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

WAIT_S = 60
SOURCE, TARGET, NAME = "numbers", "copies", "copier"
PER_ROUND = 100


class Processor:
    """The process that copies."""

    def __init__(self, bootstrap: str, output: Path) -> None:
        program = Path(__file__).with_name("transaction_processor.py")
        self._command = [sys.executable, str(program), bootstrap, SOURCE, TARGET, NAME]
        self._output = output
        self._process: subprocess.Popen[bytes] | None = None

    def spawn(self) -> None:
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(self._command, stdout=output, stderr=output)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(WAIT_S)


@contextmanager
def consumer_of(bootstrap: str, *partitions: TopicPartition) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    try:
        consumer.assign(list(partitions))
        yield consumer
    finally:
        consumer.close()


def copied(bootstrap: str, partition: int) -> list[int]:
    """The numbers in a partition, as far as they are committed."""
    numbers: list[int] = []
    with consumer_of(bootstrap, TopicPartition(TARGET, partition, 0)) as consumer:
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            for message in consumer.consume(1000, timeout=1):
                error = message.error()
                if error is None:
                    numbers.append(int(message.value() or b""))
                elif error.code() == KafkaError._PARTITION_EOF:
                    return numbers
    raise AssertionError(f"partition {partition} could not be read to its end")


def write_numbers(bootstrap: str, start: int, stop: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
    for number in range(start, stop):
        producer.produce(SOURCE, b"%d" % number, partition=0)
    assert producer.flush(WAIT_S) == 0


def make_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(SOURCE, 1, 1), NewTopic(TARGET, 2, 1)])
    for future in made.values():
        future.result(WAIT_S)


@pytest.mark.mechanism("P14")
@pytest.mark.parametrize("rounds", [pytest.param(6, id="6"), pytest.param(30, id="30", marks=pytest.mark.nightly)])
def test_each_record_is_processed_once_whatever_is_killed(
    rounds: int, tmp_path: Path, record_property: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    seed = int(os.environ.get("CRASH_SEED", random.randrange(1 << 32)))
    record_property("seed", seed)
    print(f"CRASH_SEED={seed}")
    chance = random.Random(seed)
    broker = BrokerProcess(tmp_path / "data", output=tmp_path / "broker.log")
    broker.start()
    processor = Processor(broker.bootstrap_servers, tmp_path / "processor.log")
    try:
        make_topics(broker.bootstrap_servers)
        processor.spawn()
        for number in range(rounds):
            write_numbers(broker.bootstrap_servers, number * PER_ROUND, (number + 1) * PER_ROUND)
            time.sleep(chance.uniform(0, 0.5))
            victim = chance.random()
            if victim < 0.75:
                broker.kill()
            if victim > 0.5:
                processor.kill()
                processor.spawn()
            if victim < 0.75:
                broker.start()
        total = rounds * PER_ROUND
        deadline = time.monotonic() + WAIT_S
        found: list[list[int]] = []
        while sum(map(len, found)) < total:
            assert time.monotonic() < deadline, f"{sum(map(len, found))} of {total} came out"
            found = [copied(broker.bootstrap_servers, partition) for partition in (0, 1)]
        for partition in (0, 1):
            assert found[partition] == list(range(partition, total, 2))
        assert "Traceback" not in broker.text()
    finally:
        processor.kill()
        broker.kill()
