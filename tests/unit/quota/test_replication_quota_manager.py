"""What replication may take."""

from __future__ import annotations

import pytest

from barnabas.common.topic_partition import TopicPartition
from barnabas.metrics.names import MetricName
from barnabas.quota.quota_type import QuotaType
from barnabas.quota.replication_quota_manager import ReplicationQuotaManager, throttled_partitions
from quota_fixtures import QuotaBench


def exceeded(manager: ReplicationQuotaManager) -> bool:
    return manager.is_quota_exceeded


@pytest.mark.mechanism("Q09")
def test_only_marked_partitions_are_throttled(bench: QuotaBench) -> None:
    leader = bench.managers.leader
    leader.mark_throttled("some", [0, 2])
    leader.mark_throttled("all")
    wanted = {("some", 0): True, ("some", 1): False, ("some", 2): True, ("all", 7): True, ("none", 0): False}
    assert {key: leader.is_throttled(TopicPartition(*key)) for key in wanted} == wanted
    leader.mark_throttled("some", [1])
    assert [leader.is_throttled(TopicPartition("some", number)) for number in range(3)] == [False, True, False]
    leader.remove_throttle("some")
    leader.remove_throttle("never was")
    assert not leader.is_throttled(TopicPartition("some", 1))
    assert not bench.managers.follower.is_throttled(TopicPartition("all", 0)), "each kind for itself"


@pytest.mark.mechanism("Q09")
def test_moves_between_directories_are_throttled_whatever_they_move(bench: QuotaBench) -> None:
    assert bench.managers.alter_log_dirs.is_throttled(TopicPartition("any", 0))


@pytest.mark.mechanism("Q09")
@pytest.mark.parametrize("kind", ["leader", "follower", "alter_log_dirs"])
def test_the_limit_is_exceeded_until_enough_time_has_passed(bench: QuotaBench, kind: str) -> None:
    manager: ReplicationQuotaManager = getattr(bench.managers, kind)
    manager.record(10**12)
    assert not exceeded(manager), "there is no limit yet"
    bench.clock.advance(60_000)
    manager.update_quota(1_000)
    manager.record(1_000)
    assert not exceeded(manager), "1,000 in the first second"
    manager.record(500)
    assert exceeded(manager)
    bench.clock.advance(1_499)
    assert exceeded(manager)
    bench.clock.advance(1)
    assert not exceeded(manager), "1,500 in 1.5 s: this rate is not padded with windows that were not"


@pytest.mark.mechanism("Q09")
@pytest.mark.mechanism("Q10")
def test_a_new_limit_resets_nothing(bench: QuotaBench) -> None:
    leader = bench.managers.leader
    leader.update_quota(1_000)
    leader.record(5_000)
    assert exceeded(leader)
    leader.update_quota(10_000)
    assert not exceeded(leader)
    leader.update_quota(4_999)
    assert exceeded(leader)
    assert leader.upper_bound == 4_999


@pytest.mark.mechanism("Q11")
def test_a_sensor_that_has_expired_comes_back_with_the_limit(bench: QuotaBench) -> None:
    leader = bench.managers.leader
    leader.update_quota(1_000)
    leader.record(5_000)
    bench.clock.advance(3_600_001)
    assert bench.metrics.expire_inactive_sensors() == ["LeaderReplication"]
    assert not exceeded(leader)
    leader.record(5_000)
    assert exceeded(leader)


def test_the_metric_is_named_by_its_kind(bench: QuotaBench) -> None:
    bench.managers.follower.record(500)
    metric = bench.metrics.metric(MetricName("byte-rate", str(QuotaType.FOLLOWER_REPLICATION)))
    assert metric is not None
    assert metric.value() == 500


@pytest.mark.mechanism("Q09")
@pytest.mark.parametrize(
    ("replicas", "partitions"),
    [(["*"], None), (["0:1", "0:2", "3:1"], [0, 3]), (["0:2"], [])],
)
def test_the_setting_names_pairs_of_partition_and_broker(replicas: list[str], partitions: list[int] | None) -> None:
    assert throttled_partitions(replicas, 1) == partitions
