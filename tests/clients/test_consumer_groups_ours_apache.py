"""Our consumers at Apache Kafka's broker: the same as at ours."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from clients import consumer_group_scenarios as scenarios
from clients.broker_process import BrokerProcess
from clients.exactly_once import transform_under_fire
from clients.our_consumers import PARTITIONS, unique
from clients.test_consumer_groups_ours_members import OVERRIDES, nightly
from clients.test_consumer_groups_ours_mixed import confluent, ours, share_a_group
from oracles.java import OracleUnavailableError
from oracles.kafka_server import KafkaServer, ensure_available

pytestmark = pytest.mark.java


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    try:
        ensure_available()
    except OracleUnavailableError as reason:
        if os.environ.get("CI") == "true":
            pytest.fail(f"Apache Kafka is not available: {reason}")
        pytest.skip(f"Apache Kafka is not available: {reason}")
    settings: dict[str, Any] = {
        **OVERRIDES,
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.num.partitions": "3",
    }
    directory = tmp_path_factory.mktemp("apache")
    server = KafkaServer(directory, **{name.replace(".", "_"): value for name, value in settings.items()})
    server.format()
    with server:
        yield BrokerProcess.elsewhere(tmp_path_factory.mktemp("broker"), server.bootstrap_servers)


@pytest.fixture
def create_topic(bootstrap: str) -> Callable[[str, int], None]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    return lambda name, count: admin.create_topics([NewTopic(name, count, 1)])[name].result(30)


@pytest.fixture
def created(topic: str, create_topic: Callable[[str, int], None]) -> str:
    create_topic(topic, PARTITIONS)
    return topic


@pytest.mark.parametrize("kind", ["consumer", "cooperative-sticky", *nightly("range")])
def test_members_come_and_go(kind: str, bootstrap: str, created: str) -> None:
    scenarios.members_come_and_go(kind, bootstrap, created)


@pytest.mark.parametrize("kind", ["consumer", *nightly("cooperative-sticky")])
def test_commits_and_patterns(
    kind: str, bootstrap: str, created: str, create_topic: Callable[[str, int], None]
) -> None:
    scenarios.commits(kind, bootstrap, created)
    scenarios.patterns(kind, bootstrap, create_topic)


@pytest.mark.parametrize("kind", ["cooperative-sticky", *nightly("consumer")])
def test_static_members_and_members_that_do_not_poll(kind: str, bootstrap: str, created: str) -> None:
    scenarios.a_static_member_comes_back_to_its_partitions(kind, bootstrap, created)
    scenarios.a_member_that_does_not_poll_loses_its_partitions(kind, bootstrap, created)
    scenarios.a_static_id_that_is_used_twice_fences_one(kind, bootstrap, created)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["consumer", "range", "cooperative-sticky"])
def test_crashes_and_commits_during_rebalances(kind: str, bootstrap: str, created: str) -> None:
    scenarios.a_member_crashes(kind, bootstrap, created)
    scenarios.a_commit_during_a_rebalance(kind, bootstrap, created)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["consumer", "range"])
def test_with_confluent_kafka(kind: str, bootstrap: str, created: str) -> None:
    share_a_group(kind, bootstrap, created, ours, confluent, ours)


def test_exactly_once(bootstrap: str, create_topic: Callable[[str, int], None]) -> None:
    source, target = unique("source"), unique("target")
    create_topic(source, PARTITIONS)
    create_topic(target, 2)
    transform_under_fire("consumer", bootstrap, source, target)
