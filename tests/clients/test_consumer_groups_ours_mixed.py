"""Our consumers in one group with those of other projects, in both protocols, and while a group changes from one to the
other."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from clients.broker_process import BrokerProcess
from clients.member_processes import Member, overlaps
from clients.our_consumers import PARTITIONS, OurWriter, ThreadMember, end, java_member, settle, unique, wait_for_all
from clients.test_consumer_groups_ours_members import OVERRIDES, nightly
from oracles.java import OracleUnavailableError, class_path


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), OVERRIDES) as broker:
        yield broker


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def created(topic: str, admin: AdminClient) -> str:
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    return topic


@pytest.fixture
def java() -> None:
    try:
        if shutil.which("java") is None or not class_path():
            raise OracleUnavailableError("no java, or no Kafka jars in target/jars (make jars)")
    except OracleUnavailableError as reason:
        if os.environ.get("CI") == "true":
            pytest.fail(str(reason))
        pytest.skip(str(reason))


Maker = Callable[[str, str, str, str], Any]


def ours(kind: str, bootstrap: str, group: str, topic: str) -> ThreadMember:
    return ThreadMember(kind, bootstrap, group, [topic])


def confluent(kind: str, bootstrap: str, group: str, topic: str) -> Member:
    return Member("confluent-consumer" if kind == "consumer" else "confluent-classic", bootstrap, group, topic)


def share_a_group(kind: str, bootstrap: str, topic: str, *makers: Maker) -> None:
    """One member after the other joins; then they leave in the same order. Nothing is missed, nothing is shared."""
    group = unique("g")
    writer = OurWriter(bootstrap, topic)
    members: list[Any] = []
    try:
        for make in makers:
            members.append(make(kind, bootstrap, group, topic))
            settle(members)
        for count, member in enumerate(members[:-1], 1):
            member.close()
            settle(members[count:])
        writer.close()
        wait_for_all(members, writer.written)
        members[-1].close()
    finally:
        writer.close()
        end(members)
    assert not overlaps(members)


@pytest.mark.parametrize("kind", ["consumer", *nightly("range")])
def test_with_confluent_kafka(kind: str, bootstrap: str, created: str) -> None:
    share_a_group(kind, bootstrap, created, ours, confluent, ours)


@pytest.mark.java
@pytest.mark.parametrize("kind", ["cooperative-sticky", *nightly("range", "consumer")])
def test_with_the_java_client(kind: str, bootstrap: str, created: str, java: None) -> None:
    """In a classic group the one who joined first leads: Java divides for ours, and when it has left, ours does."""
    share_a_group(kind, bootstrap, created, java_member, ours, ours)


@pytest.mark.java
@pytest.mark.parametrize("kind", ["range", *nightly("cooperative-sticky")])
def test_java_members_are_led_by_ours(kind: str, bootstrap: str, created: str, java: None) -> None:
    share_a_group(kind, bootstrap, created, ours, java_member)


@pytest.mark.parametrize("old", ["cooperative-sticky", *nightly("range")])
def test_a_group_is_upgraded_and_taken_back_while_it_runs(
    old: str, bootstrap: str, admin: AdminClient, created: str
) -> None:
    group = unique("g")
    writer = OurWriter(bootstrap, created)
    members: list[ThreadMember] = []

    def kind_of_group() -> str:
        name: str = admin.describe_consumer_groups([group])[group].result(30).type.name
        return name

    try:
        first = ours(old, bootstrap, group, created)
        members.append(first)
        settle([first])
        assert kind_of_group() == "CLASSIC"
        newer = ours("consumer", bootstrap, group, created)
        members.append(newer)
        settle([first, newer])
        assert kind_of_group() == "CONSUMER"
        first.close()
        settle([newer])
        again = ours(old, bootstrap, group, created)
        members.append(again)
        settle([newer, again])
        newer.close()
        settle([again])
        assert kind_of_group() == "CLASSIC"
        writer.close()
        wait_for_all(members, writer.written)
        again.close()
    finally:
        writer.close()
        end(members)
    assert not overlaps(members)  # type: ignore[arg-type]
