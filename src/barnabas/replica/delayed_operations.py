"""The purgatories of a broker: fetch, produce and DeleteRecords requests that wait for events of partitions."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from barnabas.common.clock import Clock
from barnabas.metrics.yammer.registry import KafkaMetricsGroup, MetricsRegistry
from barnabas.replica.append.delayed_delete_records import DelayedDeleteRecords
from barnabas.replica.append.delayed_produce import DelayedProduce
from barnabas.replica.config import ReplicaManagerConfig
from barnabas.replica.fetch.delayed_fetch import DelayedFetch
from barnabas.server.purgatory import DelayedOperationPurgatory
from barnabas.server.timer import SystemTimer
from barnabas.server.timer.timer_task import Timer

TimerFactory = Callable[[str], Timer]
"""Creates the timer of a purgatory, given the purgatory's name."""


class DelayedOperations:
    """The purgatories of a broker, by name. An event of a partition rechecks the operations that watch it.

    Operations are keyed by topic and partition number, so the cost of an event depends only on the number of requests
    that wait for that partition. A further purgatory is one more line in the constructor: events, gauges and shutdown
    follow.
    """

    def __init__(
        self,
        config: ReplicaManagerConfig,
        clock: Clock,
        registry: MetricsRegistry,
        *,
        make_timer: TimerFactory | None = None,
    ) -> None:
        """`make_timer` is for tests, which advance the time themselves: it also disables the reapers."""
        self._timer_for = make_timer or (lambda name: SystemTimer(name, clock))
        self._reaper_enabled = make_timer is None
        self._broker_id = config.broker_id
        self._group = KafkaMetricsGroup(registry, "kafka.server", "DelayedOperationPurgatory")
        self._purgatories: dict[str, DelayedOperationPurgatory[Any]] = {}
        add = self._add
        self.fetch: DelayedOperationPurgatory[DelayedFetch] = add(
            "Fetch", config.fetch_purgatory_purge_interval_requests
        )
        self.produce: DelayedOperationPurgatory[DelayedProduce] = add(
            "Produce", config.producer_purgatory_purge_interval_requests
        )
        self.delete_records: DelayedOperationPurgatory[DelayedDeleteRecords] = add(
            "DeleteRecords", config.delete_records_purgatory_purge_interval_requests
        )
        self._checks = tuple(purgatory.check_and_complete for purgatory in self._purgatories.values())

    def _add(self, name: str, purge_interval: int) -> DelayedOperationPurgatory[Any]:
        purgatory: DelayedOperationPurgatory[Any] = DelayedOperationPurgatory(
            name, self._timer_for(name), self._broker_id, purge_interval, self._reaper_enabled
        )
        self._purgatories[name] = purgatory
        for gauge, value in (("PurgatorySize", purgatory.watched), ("NumDelayedOperations", purgatory.num_delayed)):
            self._group.new_gauge(gauge, value, {"delayedOperation": name})
        return purgatory

    def check_and_complete_all(self, key: Hashable) -> None:
        """Rechecks all operations that wait for a partition. No lock may be held."""
        for check_and_complete in self._checks:
            check_and_complete(key)

    @property
    def any_delayed_deletes(self) -> bool:
        return self.delete_records.num_delayed() > 0

    def shutdown(self) -> None:
        for purgatory_name, purgatory in self._purgatories.items():
            purgatory.shutdown()
            for name in ("PurgatorySize", "NumDelayedOperations"):
                self._group.registry.remove(self._group.metric_name(name, {"delayedOperation": purgatory_name}))
