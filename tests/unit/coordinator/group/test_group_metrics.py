"""What can be seen of groups from outside: how many there are, and in which states."""

from __future__ import annotations

from barnabas.common.clock import MockClock
from barnabas.coordinator.group.group_metrics import GROUP, REFRESH_INTERVAL_MS, GroupMetrics
from barnabas.metrics.registry import Metrics
from barnabas.metrics.yammer.registry import Gauge, KafkaMetricsGroup, MetricsRegistry
from group_fixtures import GroupBox, assigned


class Watched:
    def __init__(self) -> None:
        clock = MockClock()
        self.metrics = Metrics(clock=clock)
        self.registry = MetricsRegistry(clock)
        self.box = GroupBox(clock=clock, metrics=GroupMetrics(self.metrics, self.registry), num_partitions=2)

    def gauges(self, name: str) -> dict[str, float]:
        """By the value of their one tag; those that are 0 left out."""
        found = {}
        for metric_name, metric in self.metrics.metrics.items():
            if metric_name.group == GROUP and metric_name.name == name and metric.value():
                (value,) = metric_name.tags.values()
                found[value] = metric.value()
        return found

    def old(self, name: str) -> int:
        gauge = self.registry.get(
            KafkaMetricsGroup(self.registry, "kafka.coordinator.group", "GroupMetadataManager").metric_name(name)
        )
        assert isinstance(gauge, Gauge), name
        value: int = gauge.value()
        return value

    def later(self) -> None:
        self.box.advance(REFRESH_INTERVAL_MS)


def test_groups_by_protocol_and_state() -> None:
    watched = Watched()
    box = watched.box
    box.create_topic("t", 2)
    assert watched.gauges("group-count") == {}
    box.stable_group(group_id="stable")
    box.new_member("joining")
    box.commit({("t", 0): 5, ("t", 1): 6}, group_id="only-offsets")
    box.consumer_heartbeat("member", 0, group_id="modern", topics=["t"])
    watched.later()
    assert watched.gauges("group-count") == {"classic": 3, "consumer": 1}
    assert sum(watched.gauges("consumer-group-count").values()) == 1
    assert watched.old("NumGroups") == 3
    assert watched.old("NumGroupsStable") == 1
    assert watched.old("NumGroupsEmpty") == 1
    assert watched.old("NumGroupsPreparingRebalance") + watched.old("NumGroupsCompletingRebalance") == 1
    assert watched.old("NumGroupsDead") == 0
    assert watched.old("NumOffsets") == 2


def test_a_consumer_group_goes_through_its_states() -> None:
    watched = Watched()
    box = watched.box
    box.create_topic("t", 1)
    answer = box.consumer_heartbeat("member", 0, group_id="modern", topics=["t"])
    watched.later()
    before = watched.gauges("consumer-group-count")
    box.consumer_heartbeat("member", answer.member_epoch, group_id="modern", owned=assigned(answer))
    watched.later()
    assert before in ({"reconciling": 1}, {"stable": 1})
    assert watched.gauges("consumer-group-count") == {"stable": 1}
    box.consumer_heartbeat("member", -1, group_id="modern")
    watched.later()
    assert watched.gauges("consumer-group-count") == {"empty": 1}


def test_a_loaded_partition_counts_at_once_and_an_unloaded_one_no_more() -> None:
    watched = Watched()
    box = watched.box
    box.stable_group(group_id="stable")
    again = box.restarted()
    assert watched.gauges("group-count") == {"classic": 1}
    for number in range(2):
        again.service.on_resignation(number, None)
    again.advance(0)
    assert watched.gauges("group-count") == {}


def test_nothing_is_left_of_them() -> None:
    watched = Watched()
    watched.box.metrics.close()
    assert not [name for name in watched.metrics.metrics if name.group == GROUP]
    assert not watched.registry.metrics
    assert not GroupMetrics().are_read
