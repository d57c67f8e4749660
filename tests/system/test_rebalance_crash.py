"""``kill -9`` of the broker anywhere in a rebalance: members go on, or join again, and nothing is lost.

Members come, leave and crash, and the broker is killed at a random moment after each of these. When it is back, the
group has to settle: every partition with one member, never with two, and every record delivered.

The random moments come from a seed, which a failure prints.
"""

from __future__ import annotations

import logging
import os
import random
import time
from pathlib import Path
from typing import Any

import pytest
from benchmarks.broker_process import BrokerProcess
from benchmarks.waiting import until
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from clients.member_processes import Member, overlaps

WAIT_S = 60
TOPIC, GROUP = "work", "workers"
PARTITIONS = 4
PER_ROUND = 40
OVERRIDES = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
    "group.consumer.session.timeout.ms": 6000,
    "group.consumer.min.session.timeout.ms": 6000,
    "group.consumer.heartbeat.interval.ms": 500,
    "group.consumer.min.heartbeat.interval.ms": 500,
    "offsets.topic.num.partitions": 4,
}


def make_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(WAIT_S)


def write(bootstrap: str, written: set[tuple[int, int]]) -> None:
    def on_delivery(error: Any, message: Any) -> None:
        assert error is None
        written.add((message.partition(), message.offset()))

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
    for number in range(PER_ROUND):
        producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS, on_delivery=on_delivery)
    assert producer.flush(WAIT_S) == 0


def wait_until_settled(members: list[Member]) -> None:
    def settled() -> bool:
        owned = sorted(number for member in members for number in member.partitions)
        return owned == list(range(PARTITIONS)) and all(member.partitions for member in members)

    until(settled, lambda: f"the group has {[member.partitions for member in members]}", WAIT_S)


def wait_until_read(members: list[Member], written: set[tuple[int, int]]) -> None:
    def missing() -> set[tuple[int, int]]:
        return written.difference(*(list(member.records) for member in members))

    until(lambda: not missing(), lambda: f"{len(missing())} of {len(written)} records were not delivered", WAIT_S)


@pytest.mark.mechanism("R09")
@pytest.mark.parametrize("rounds", [pytest.param(2, id="2"), pytest.param(12, id="12", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("kind", ["confluent-classic", "confluent-consumer"])
def test_a_group_survives_a_broker_that_is_killed_in_a_rebalance(
    kind: str, rounds: int, tmp_path: Path, record_property: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    seed = int(os.environ.get("CRASH_SEED", random.randrange(1 << 32)))
    record_property("seed", seed)
    print(f"CRASH_SEED={seed}")
    chance = random.Random(seed)
    broker = BrokerProcess(tmp_path / "data", output=tmp_path / "broker.log", overrides=OVERRIDES)
    broker.start()
    bootstrap = broker.bootstrap_servers
    everybody: list[Member] = []
    written: set[tuple[int, int]] = set()
    try:
        make_topic(bootstrap)
        everybody.append(Member(kind, bootstrap, GROUP, TOPIC))
        members = list(everybody)
        wait_until_settled(members)
        for number in range(rounds):
            write(bootstrap, written)
            if number % 2 == 0 or len(members) == 1:
                members.append(Member(kind, bootstrap, GROUP, TOPIC))
                everybody.append(members[-1])
            elif chance.random() < 0.5:
                members.pop(chance.randrange(len(members))).kill()
            else:
                members.pop(chance.randrange(len(members))).close()
            time.sleep(chance.uniform(0, 1.5))
            broker.kill()
            broker.start()
            wait_until_settled(members)
        wait_until_read(everybody, written)
        for member in members:
            member.close()
        assert not overlaps(everybody)
        assert "Traceback" not in broker.text()
    finally:
        for member in everybody:
            if member.is_running:
                member.kill()
        broker.kill()
