"""Metrics of groups: Kafka's ``group-coordinator-metrics`` and ``GroupMetadataManager``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from barnabas.coordinator.group.classic.classic_group_state import ClassicGroupState
from barnabas.coordinator.group.group import GroupType
from barnabas.metrics.names import MetricName
from barnabas.metrics.registry import Metrics
from barnabas.metrics.stats import Meter
from barnabas.metrics.yammer.registry import KafkaMetricsGroup, MetricsRegistry

GROUP: Final = "group-coordinator-metrics"
CONSUMER_GROUP_STATES: Final = ("Empty", "Assigning", "Reconciling", "Stable", "Dead")
REFRESH_INTERVAL_MS: Final = 10_000
"""How often groups are counted. Kafka counts every minute, which is slow for monitoring."""


class GroupCounts(NamedTuple):
    """The counts of one partition of the coordinator."""

    groups: Mapping[tuple[GroupType, str], int]
    """By type and state."""
    offsets: int


_MANAGER: Final = "GroupMetadataManager"


class Recorder(Protocol):
    def record(self, value: float = 1.0) -> None: ...


class _Nothing:
    def record(self, value: float = 1.0) -> None: ...


class GroupMetrics:
    """Counts events of groups and offsets; does nothing without a registry.

    The number of groups by state is known only to each partition, on its own thread. So each partition counts its
    groups periodically and `publish` es the counts, and a gauge returns the sum of the published ones.
    """

    def __init__(self, metrics: Metrics | None = None, registry: MetricsRegistry | None = None) -> None:
        self._metrics = metrics
        self._sensors: list[str] = []
        self._gauges: list[MetricName] = []
        self._published: dict[int, GroupCounts] = {}
        """By partition. The thread of a partition replaces its entry as a whole."""
        self._yammer = None if registry is None else KafkaMetricsGroup(registry, "kafka.coordinator.group", _MANAGER)
        self._yammer_names: list[str] = []
        if metrics is not None:
            self._add_gauges(metrics)
        if self._yammer is not None:
            self._add_yammer_gauges(self._yammer)
        self.offset_commits = self._meter("OffsetCommits", "offset-commit", "committed offsets")
        self.offset_expirations = self._meter("OffsetExpired", "offset-expiration", "expired offsets")
        self.offset_deletions = self._meter("OffsetDeletions", "offset-deletion", "offsets deleted by requests")
        self.classic_group_completed_rebalances = self._meter(
            "CompletedRebalances", "group-completed-rebalance", "completed rebalances of classic groups"
        )
        self.classic_group_rebalances = self._meter(
            "GenericGroupRebalances", "group-rebalance", "started rebalances of classic groups"
        )
        self.consumer_group_rebalances = self._meter(
            "ConsumerGroupRebalances", "consumer-group-rebalance", "epoch bumps of consumer groups"
        )
        self.session_expirations = self._meter(
            "MemberExpirations", "member-session-expiration", "members whose session timed out"
        )

    def _meter(self, sensor_name: str, name: str, what: str) -> Recorder:
        metrics = self._metrics
        if metrics is None:
            return _Nothing()
        sensor = metrics.sensor(sensor_name)
        self._sensors.append(sensor_name)
        sensor.add_compound(
            Meter(
                metrics.metric_name(f"{name}-rate", GROUP, description=f"The rate of {what}"),
                metrics.metric_name(f"{name}-count", GROUP, description=f"The number of {what}"),
            )
        )
        return sensor

    # -- gauges

    @property
    def are_read(self) -> bool:
        """Whether counting is useful."""
        return self._metrics is not None or self._yammer is not None

    def publish(self, partition: int, counts: GroupCounts) -> None:
        self._published[partition] = counts

    def withdraw(self, partition: int) -> None:
        """Removes the counts of a partition that has moved."""
        self._published.pop(partition, None)

    def _count(self, kind: GroupType | None, state: str | None = None) -> int:
        return sum(
            count
            for counts in list(self._published.values())
            for (one, its_state), count in counts.groups.items()
            if (kind is None or one is kind) and (state is None or its_state == state)
        )

    def _add_gauges(self, metrics: Metrics) -> None:
        for kind in (GroupType.CLASSIC, GroupType.CONSUMER):
            tags = {"protocol": kind.value}
            self._gauge(metrics, "group-count", tags, lambda kind=kind: self._count(kind))  # type: ignore[misc]
        for state in CONSUMER_GROUP_STATES:
            self._gauge(
                metrics,
                "consumer-group-count",
                {"state": state.lower()},
                lambda state=state: self._count(GroupType.CONSUMER, state),  # type: ignore[misc]
            )

    def _gauge(self, metrics: Metrics, name: str, tags: Mapping[str, str], value: Callable[[], int]) -> None:
        (tag,) = tags
        metric_name = metrics.metric_name(name, GROUP, description=f"The number of groups by {tag}", tags=tags)
        metrics.add_metric(metric_name, lambda _config, _now: float(value()))
        self._gauges.append(metric_name)

    def _add_yammer_gauges(self, group: KafkaMetricsGroup) -> None:
        """Adds the older names, which cover classic groups."""
        group.new_gauge("NumOffsets", lambda: sum(counts.offsets for counts in list(self._published.values())))
        group.new_gauge("NumGroups", lambda: self._count(GroupType.CLASSIC))
        self._yammer_names = ["NumOffsets", "NumGroups"]
        for state in ClassicGroupState:
            name = f"NumGroups{state.value}"
            group.new_gauge(name, lambda state=state: self._count(GroupType.CLASSIC, state.value))  # type: ignore[misc]
            self._yammer_names.append(name)

    def close(self) -> None:
        if self._yammer is not None:
            for name in self._yammer_names:
                self._yammer.remove_metric(name)
        if self._metrics is not None:
            for gauge in self._gauges:
                self._metrics.remove_metric(gauge)
            for name in self._sensors:
                self._metrics.remove_sensor(name)
