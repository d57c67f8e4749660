"""The metrics of a consumer's group membership, under Kafka's names."""

from __future__ import annotations

from typing import Final

from barnabas.clients.consumer.internals.group_events import RebalanceCallback
from barnabas.clients.consumer.internals.subscription_state import SubscriptionState
from barnabas.common.clock import Clock
from barnabas.metrics.names import MetricName
from barnabas.metrics.registry import Metrics
from barnabas.metrics.sensor import Sensor
from barnabas.metrics.stats import Avg, CumulativeCount, CumulativeSum, Max, Meter, Rate, WindowedCount
from barnabas.metrics.units import TimeUnit

COORDINATOR_GROUP: Final = "consumer-coordinator-metrics"


class GroupMetrics:
    """Heartbeats, commits, rebalances, and the duration of listener calls.

    Recorded once per coordinator response, rebalance or listener call, on the background thread; `listener_called` runs
    on the application's.

    **A rebalance** depends on the protocol:

    ===========  =====================================  =========================================================
    protocol     begins                                 ends
    ===========  =====================================  =========================================================
    consumer     when the coordinator sends a new       when that is reconciled, listeners included, and about to
                 assignment                             be acknowledged; it has *failed* when a heartbeat gets an
                                                        error response
    classic      with the first JoinGroup since the     when SyncGroup has returned the assignment: listeners are
                 last one ended                         called after that. Each attempt to join that gets an
                                                        error, or no response, has *failed*, and its time counts
                                                        for the one that succeeds
    ===========  =====================================  =========================================================

    A join without a member id is a failed attempt in the classic protocol: the coordinator rejects it, and assigns the
    id with that.
    """

    def __init__(self, metrics: Metrics, subscriptions: SubscriptionState, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._heartbeat_sent_ms: int | None = None
        self._rebalance_started_ms: int | None = None
        self._rebalance_ended_ms: int | None = None

        self._heartbeats = metrics.sensor("heartbeat-latency")
        self._heartbeats.add(
            self._name("heartbeat-response-time-max", "Milliseconds until a response, at most."), Max()
        )
        self._meter(self._heartbeats, "heartbeat", "heartbeats")
        self._commits = self._latency("commit-latency", "milliseconds until the response to a commit")
        self._meter(self._commits, "commit", "commits")

        self._rebalances = self._latency("rebalance-latency", "milliseconds that a rebalance took")
        self._rebalances.add(self._name("rebalance-latency-total", "Milliseconds in rebalances."), CumulativeSum())
        self._count_by_hour(self._rebalances, "rebalance", "rebalances")
        self._failures = metrics.sensor("failed-rebalance")
        self._count_by_hour(self._failures, "failed-rebalance", "rebalances that failed")

        self._callbacks = {
            kind: self._latency(
                f"partition-{kind.value}-latency",
                f"milliseconds of a listener that was told of partitions {kind.value}",
            )
            for kind in RebalanceCallback
        }
        metrics.add_metric(
            self._name("last-heartbeat-seconds-ago", "Seconds since a heartbeat was sent; -1 before the first."),
            lambda *_: self._seconds_since(self._heartbeat_sent_ms),
        )
        metrics.add_metric(
            self._name("last-rebalance-seconds-ago", "Seconds since a rebalance ended; -1 before the first."),
            lambda *_: self._seconds_since(self._rebalance_ended_ms),
        )
        metrics.add_metric(
            self._name("assigned-partitions", "Partitions that are assigned to this consumer."),
            lambda *_: float(len(subscriptions.assignment)),
        )
        self._joins: Sensor | None = None
        self._syncs: Sensor | None = None

    # -- names

    def _name(self, name: str, description: str) -> MetricName:
        return self._metrics.metric_name(name, COORDINATOR_GROUP, description=description)

    def _latency(self, name: str, what: str, sensor_name: str | None = None) -> Sensor:
        sensor = self._metrics.sensor(sensor_name or name)
        sensor.add(self._name(f"{name}-avg", f"Average of the {what}."), Avg())
        sensor.add(self._name(f"{name}-max", f"Maximum of the {what}."), Max())
        return sensor

    def _meter(self, sensor: Sensor, name: str, what: str) -> None:
        rate = self._name(f"{name}-rate", f"Rate per second of {what}.")
        sensor.add_compound(Meter(rate, self._name(f"{name}-total", f"Total of {what}."), stat=WindowedCount()))

    def _count_by_hour(self, sensor: Sensor, name: str, what: str) -> None:
        sensor.add(self._name(f"{name}-total", f"Total of {what}."), CumulativeCount())
        sensor.add(
            self._name(f"{name}-rate-per-hour", f"Rate per hour of {what}."), Rate(TimeUnit.HOURS, WindowedCount())
        )

    def _seconds_since(self, then_ms: int | None) -> float:
        if then_ms is None:
            return -1.0
        return float((self._clock.hi_res_milliseconds() - then_ms) // 1000)

    def use_classic_protocol(self) -> None:
        """Adds the join and sync metrics of the classic protocol, perhaps after falling back to it."""
        if self._joins is None:
            self._joins = self._latency("join-time", "milliseconds until the response to JoinGroup", "join-latency")
            self._meter(self._joins, "join", "joins of the group")
            self._syncs = self._latency("sync-time", "milliseconds until the response to SyncGroup", "sync-latency")
            self._meter(self._syncs, "sync", "syncs of the group")

    # -- events

    def heartbeat_sent(self, now: int) -> None:
        self._heartbeat_sent_ms = now

    def heartbeat_response(self, latency_ms: int) -> None:
        """Records any heartbeat response."""
        self._heartbeats.record_unchecked(latency_ms)

    def commit_response(self, latency_ms: int) -> None:
        """Records any commit response."""
        self._commits.record_unchecked(latency_ms)

    def joined(self, latency_ms: int) -> None:
        """Records a JoinGroup response without an error."""
        if self._joins is not None:
            self._joins.record_unchecked(latency_ms)

    def synced(self, latency_ms: int) -> None:
        """Records a SyncGroup response without an error."""
        if self._syncs is not None:
            self._syncs.record_unchecked(latency_ms)

    @property
    def is_rebalancing(self) -> bool:
        """Whether a rebalance has begun and not ended."""
        return self._rebalance_started_ms is not None

    def rebalance_started(self) -> None:
        self._rebalance_started_ms = self._clock.hi_res_milliseconds()

    def rebalance_ended(self) -> None:
        now = self._clock.hi_res_milliseconds()
        started_ms = now if self._rebalance_started_ms is None else self._rebalance_started_ms
        self._rebalance_started_ms = None
        self._rebalance_ended_ms = now
        self._rebalances.record_unchecked(now - started_ms)

    def rebalance_failed(self) -> None:
        """Records a failed attempt; the rebalance as a whole may go on."""
        self._failures.record_unchecked()

    def listener_called(self, kind: RebalanceCallback, latency_ms: int) -> None:
        """Records a listener call that did not fail."""
        self._callbacks[kind].record_unchecked(latency_ms)
