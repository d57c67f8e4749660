"""Consumer groups of other projects' clients: members come, go and crash; nothing is lost, and nobody has what another
has."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from benchmarks.waiting import until
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from clients.broker_process import BrokerProcess
from clients.group_member import KINDS
from clients.member_processes import Member, overlaps

PARTITIONS = 4
EVERYTHING = set(range(PARTITIONS))


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """With sessions short enough for a crash to be noticed soon."""
    overrides = {
        "group.min.session.timeout.ms": "1000",
        "group.consumer.session.timeout.ms": "20000",
        "group.consumer.min.session.timeout.ms": "20000",
        "group.consumer.heartbeat.interval.ms": "500",
        "group.consumer.min.heartbeat.interval.ms": "500",
    }
    with BrokerProcess(tmp_path_factory.mktemp("broker"), overrides) as broker:
        yield broker


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def group(topic: str) -> str:
    return f"group-of-{topic}"


def create_topic(admin: AdminClient, topic: str, partitions: int = PARTITIONS) -> None:
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(60)


class Writer:
    """Writes records to all partitions until it is told to stop."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        self._topic = topic
        self._stop = threading.Event()
        self.written: set[tuple[int, int]] = set()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(0.005):
            number += 1
            self._producer.produce(
                self._topic, str(number), partition=number % PARTITIONS, on_delivery=self._on_delivery
            )
            self._producer.poll(0)
        self._producer.flush(120)

    def _on_delivery(self, error: Any, message: Any) -> None:
        assert error is None
        self.written.add((message.partition(), message.offset()))

    def goes_on(self) -> None:
        """Returns when it has written something more."""
        before = len(self.written)
        until(lambda: len(self.written) > before, "nothing more is written")

    def close(self) -> None:
        self._stop.set()
        self._thread.join()


def wait_for_all(members: list[Member], written: set[tuple[int, int]], seconds: float = 120) -> None:
    def missing() -> set[tuple[int, int]]:
        return written.difference(*(list(member.records) for member in members))

    until(lambda: not missing(), lambda: f"{len(missing())} of {len(written)} records were not delivered", seconds)


def settle(members: list[Member], seconds: float = 120) -> None:
    """Waits until the living members have all partitions between them, each one."""

    def settled() -> bool:
        owned = [number for member in members for number in member.partitions]
        return sorted(owned) == sorted(EVERYTHING) and all(member.partitions for member in members)

    until(settled, lambda: f"the group has {[member.partitions for member in members]}", seconds)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_members_come_go_and_crash(kind: str, bootstrap: str, admin: AdminClient, topic: str, group: str) -> None:
    create_topic(admin, topic)
    writer = Writer(bootstrap, topic)
    members: list[Member] = []
    try:
        first = Member(kind, bootstrap, group, topic)
        members.append(first)
        first.wait_until(lambda member: member.partitions == EVERYTHING and member.records)
        second = Member(kind, bootstrap, group, topic)
        members.append(second)
        settle([first, second])
        third = Member(kind, bootstrap, group, topic)
        members.append(third)
        settle([first, second, third])
        second.close()
        settle([first, third])
        first.kill()
        settle([third])
        writer.goes_on()
        writer.close()
        wait_for_all(members, writer.written)
        third.close()
    finally:
        writer.close()
        for member in members:
            if member.is_running:
                member.kill()
    assert not overlaps(members)


def test_members_of_different_projects_in_one_group(bootstrap: str, admin: AdminClient, topic: str, group: str) -> None:
    """They agree on the range assignor, whoever leads."""
    create_topic(admin, topic)
    writer = Writer(bootstrap, topic)
    members: list[Member] = []
    try:
        for kind in ("kafka-python", "confluent-classic", "kafka-python"):
            members.append(Member(kind, bootstrap, group, topic))
            settle(members)
        members[0].close()
        settle(members[1:])
        writer.close()
        wait_for_all(members, writer.written)
        for member in members[1:]:
            member.close()
    finally:
        writer.close()
        for member in members:
            if member.is_running:
                member.kill()
    assert not overlaps(members)


def test_a_group_is_upgraded_and_taken_back_while_it_runs(
    bootstrap: str, admin: AdminClient, topic: str, group: str
) -> None:
    create_topic(admin, topic)
    writer = Writer(bootstrap, topic)
    members: list[Member] = []
    try:
        old = Member("confluent-classic", bootstrap, group, topic)
        members.append(old)
        settle([old])
        new = Member("confluent-consumer", bootstrap, group, topic)
        members.append(new)
        settle([old, new])
        described = admin.describe_consumer_groups([group])[group].result(60)
        assert described.type.name == "CONSUMER"
        old.close()
        settle([new])
        again = Member("confluent-classic", bootstrap, group, topic)
        members.append(again)
        settle([new, again])
        new.close()
        settle([again])
        assert admin.describe_consumer_groups([group])[group].result(60).type.name == "CLASSIC"
        writer.close()
        wait_for_all(members, writer.written)
        again.close()
    finally:
        writer.close()
        for member in members:
            if member.is_running:
                member.kill()
    assert not overlaps(members)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_goes_on_where_it_stopped(
    protocol: str, bootstrap: str, admin: AdminClient, topic: str, group: str
) -> None:
    create_topic(admin, topic, 1)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(20):
        producer.produce(topic, str(number))
    producer.flush(120)
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "group.protocol": protocol,
    }
    seen: list[int] = []
    for count in (7, 13):
        consumer = Consumer(settings)
        consumer.subscribe([topic])
        got: list[Any] = []
        deadline = time.monotonic() + 120
        while len(got) < count and time.monotonic() < deadline:
            got += [one for one in consumer.consume(count - len(got), 0.5) if one.error() is None]
        consumer.commit(message=got[-1], asynchronous=False)
        seen += [int(one.value()) for one in got]
        consumer.close()
    assert seen == list(range(20))


def test_offsets_are_listed_altered_and_deleted(bootstrap: str, admin: AdminClient, topic: str, group: str) -> None:
    create_topic(admin, topic)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    committed = consumer.commit(
        offsets=[TopicPartition(topic, 0, 3, metadata="mine"), TopicPartition(topic, 1, 4)], asynchronous=False
    )
    assert [one.error for one in committed] == [None, None]
    (one,) = consumer.committed([TopicPartition(topic, 0)], 30)
    assert (one.offset, one.metadata) == (3, "mine")
    unknown = consumer.commit(offsets=[TopicPartition("no-such-topic", 0, 1)], asynchronous=True)
    assert unknown is None
    consumer.close()
    listed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(60)
    assert {(found.partition, found.offset) for found in listed.topic_partitions} == {(0, 3), (1, 4)}
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 1)])
    admin.alter_consumer_group_offsets([wanted])[group].result(60)
    listed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(60)
    assert {(found.partition, found.offset) for found in listed.topic_partitions} == {(0, 1), (1, 4)}
    groups = admin.list_consumer_groups().result(60)
    assert group in {found.group_id for found in groups.valid}
    assert not groups.errors
    admin.delete_consumer_groups([group])[group].result(60)
    listed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(60)
    assert not [found for found in listed.topic_partitions or () if found.offset >= 0]


def test_a_broker_that_is_killed_comes_back_with_its_groups(
    tmp_path_factory: pytest.TempPathFactory, topic: str, group: str
) -> None:
    """kill -9 in the middle of it; the members go on."""
    with BrokerProcess(tmp_path_factory.mktemp("killed")) as broker:
        create_topic(AdminClient({"bootstrap.servers": broker.bootstrap_servers}), topic)
        writer = Writer(broker.bootstrap_servers, topic)
        members: list[Member] = []
        try:
            members += [Member("confluent-consumer", broker.bootstrap_servers, group, topic) for _ in range(2)]
            settle(members)
            for _ in range(2):
                broker.kill()
                broker.start()
                writer.goes_on()
            writer.close()
            wait_for_all(members, writer.written)
            settle(members)
        finally:
            writer.close()
            for member in members:
                if member.is_running:
                    member.kill()
        assert not overlaps(members)
