"""Groups of our own consumers at our own broker, with both protocols."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from clients import consumer_group_scenarios as scenarios
from clients.broker_process import BrokerProcess
from clients.our_consumers import KINDS, PARTITIONS, SESSION_MS, ThreadMember, end, settle, unique

OVERRIDES = {
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "100",
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.min.session.timeout.ms": SESSION_MS,
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "300",
}


def nightly(*kinds: str) -> list[Any]:
    """The others take long, and find the same things."""
    return [pytest.param(kind, marks=pytest.mark.nightly) for kind in kinds]


both = pytest.mark.parametrize("kind", ["consumer", "cooperative-sticky"])
all_kinds = pytest.mark.parametrize("kind", sorted(KINDS))


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """With sessions short enough for a crash to be noticed soon."""
    with BrokerProcess(tmp_path_factory.mktemp("broker"), OVERRIDES) as broker:
        yield broker


@pytest.fixture
def create_topic(bootstrap: str) -> Callable[[str, int], None]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    return lambda name, count: admin.create_topics([NewTopic(name, count, 1)])[name].result(30)


@pytest.fixture
def created(topic: str, create_topic: Callable[[str, int], None]) -> str:
    create_topic(topic, PARTITIONS)
    return topic


@all_kinds
def test_members_come_and_go(kind: str, bootstrap: str, created: str) -> None:
    scenarios.members_come_and_go(kind, bootstrap, created)


@pytest.mark.parametrize("kind", ["consumer", *nightly("range", "cooperative-sticky")])
def test_a_member_crashes(kind: str, bootstrap: str, created: str) -> None:
    scenarios.a_member_crashes(kind, bootstrap, created)


@both
def test_a_member_that_does_not_poll_loses_its_partitions(kind: str, bootstrap: str, created: str) -> None:
    scenarios.a_member_that_does_not_poll_loses_its_partitions(kind, bootstrap, created)


@both
def test_a_static_member_comes_back_to_its_partitions(kind: str, bootstrap: str, created: str) -> None:
    scenarios.a_static_member_comes_back_to_its_partitions(kind, bootstrap, created)


@both
def test_a_static_id_that_is_used_twice_fences_one(kind: str, bootstrap: str, created: str) -> None:
    scenarios.a_static_id_that_is_used_twice_fences_one(kind, bootstrap, created)


@pytest.mark.nightly
@both
def test_a_member_that_remains_keeps_its_partitions_for_a_while(kind: str, bootstrap: str, created: str) -> None:
    scenarios.a_member_that_remains_keeps_its_partitions_for_a_while(kind, bootstrap, created)


@both
def test_patterns(kind: str, bootstrap: str, create_topic: Callable[[str, int], None]) -> None:
    scenarios.patterns(kind, bootstrap, create_topic)


@both
def test_commits(kind: str, bootstrap: str, created: str) -> None:
    scenarios.commits(kind, bootstrap, created)


@all_kinds
def test_a_commit_during_a_rebalance(kind: str, bootstrap: str, created: str) -> None:
    scenarios.a_commit_during_a_rebalance(kind, bootstrap, created)


def test_a_group_protocol_is_chosen(bootstrap: str, created: str) -> None:
    """Without a word, the newer protocol; with a setting that only the classic one has, that."""
    members: list[ThreadMember] = []
    try:
        for settings, expected in (({}, "Consumer"), ({"session.timeout.ms": SESSION_MS}, "Classic")):
            member = ThreadMember("auto", bootstrap, unique("g"), [created], **settings)
            members.append(member)
            settle([member])
            assert type(member.consumer._core.group.membership).__name__.startswith(expected)
            member.close()
    finally:
        end(members)


def test_a_broker_without_the_newer_protocol(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("older")
    with BrokerProcess(directory, {"group.coordinator.rebalance.protocols": "classic"}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(30)
        member = ThreadMember("auto", broker.bootstrap_servers, "g", ["t"])
        try:
            settle([member])
            assert type(member.consumer._core.group.membership).__name__ == "ClassicMembershipManager"
            member.close()
        finally:
            end([member])
