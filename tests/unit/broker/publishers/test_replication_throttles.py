"""Settings of brokers and topics become limits of replication."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.broker.config.dynamic_broker_config import DynamicBrokerConfig
from barnabas.broker.publishers.replication_throttles import ReplicationThrottles
from barnabas.common.topic_partition import TopicPartition
from barnabas.quota.client_quota_manager import NO_LIMIT
from quota_fixtures import QuotaBench, quota_bench
from unit.broker.config.configs import node

pytestmark = pytest.mark.mechanism("Q09")


class World:
    def __init__(self, bench: QuotaBench) -> None:
        self.managers = bench.managers
        self.config = DynamicBrokerConfig(node())
        self.throttles = ReplicationThrottles(1, bench.managers, self.config)

    @property
    def limits(self) -> list[float]:
        managers = self.managers
        return [manager.upper_bound for manager in (managers.leader, managers.follower, managers.alter_log_dirs)]


@pytest.fixture
def world() -> Iterator[World]:
    with quota_bench() as bench:
        yield World(bench)


def test_rates_are_dynamic_settings_of_which_the_brokers_own_count_more(world: World) -> None:
    assert world.limits == [NO_LIMIT] * 3
    world.config.update_default_config(
        {"leader.replication.throttled.rate": "1000", "follower.replication.throttled.rate": "2000"}
    )
    world.throttles.broker_changed()
    assert world.limits == [1_000, 2_000, NO_LIMIT]
    world.config.update_broker_config(
        {"leader.replication.throttled.rate": "5000", "replica.alter.log.dirs.io.max.bytes.per.second": "700"}
    )
    world.throttles.broker_changed()
    assert world.limits == [5_000, 2_000, 700]
    world.config.update_configs(broker={}, default={})
    world.throttles.broker_changed()
    assert world.limits == [NO_LIMIT] * 3


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_topics_say_which_replicas(world: World, side: str) -> None:
    manager = getattr(world.managers, side)
    setting = f"{side}.replication.throttled.replicas"

    def throttled() -> list[int]:
        return [number for number in range(4) if manager.is_throttled(TopicPartition("t", number))]

    world.throttles.topic_changed("t", {setting: "0:1,1:2,3:1"})
    assert throttled() == [0, 3]
    world.throttles.topic_changed("t", {setting: "*"})
    assert throttled() == [0, 1, 2, 3]
    world.throttles.topic_changed("t", {setting: "1:2"})
    assert throttled() == []
    world.throttles.topic_changed("t", {setting: "*"})
    world.throttles.topic_changed("t", {"retention.ms": "1"})
    assert throttled() == []
