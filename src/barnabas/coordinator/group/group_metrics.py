"""What can be measured about groups: Kafka's ``group-coordinator-metrics``."""

from __future__ import annotations

from typing import Final, Protocol

from barnabas.metrics.registry import Metrics
from barnabas.metrics.stats import Meter

GROUP: Final = "group-coordinator-metrics"


class Recorder(Protocol):
    def record(self, value: float = 1.0) -> None: ...


class _Nothing:
    def record(self, value: float = 1.0) -> None: ...


class GroupMetrics:
    """Counts what happens to groups and offsets; without a registry, nothing."""

    def __init__(self, metrics: Metrics | None = None) -> None:
        self._metrics = metrics
        self._sensors: list[str] = []
        self.offset_commits = self._meter("OffsetCommits", "offset-commit", "committed offsets")
        self.offset_expirations = self._meter("OffsetExpired", "offset-expiration", "expired offsets")
        self.offset_deletions = self._meter("OffsetDeletions", "offset-deletion", "offsets deleted by administrators")
        self.classic_group_completed_rebalances = self._meter(
            "CompletedRebalances", "group-completed-rebalance", "rebalances of classic groups that came to an end"
        )
        self.classic_group_rebalances = self._meter(
            "GenericGroupRebalances", "group-rebalance", "rebalances of classic groups that began"
        )
        self.consumer_group_rebalances = self._meter(
            "ConsumerGroupRebalances", "consumer-group-rebalance", "rises of the epochs of consumer groups"
        )
        self.session_expirations = self._meter(
            "MemberExpirations", "member-session-expiration", "members that were not heard of any more"
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

    def close(self) -> None:
        if self._metrics is not None:
            for name in self._sensors:
                self._metrics.remove_sensor(name)
