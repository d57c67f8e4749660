"""The requests that wait for partitions, all kinds together."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable

from barnabas.common.clock import Clock
from barnabas.metrics.yammer.registry import KafkaMetricsGroup, MetricsRegistry
from barnabas.replica.config import ReplicaManagerConfig
from barnabas.replica.delayed_delete_records import DelayedDeleteRecords
from barnabas.replica.delayed_fetch import DelayedFetch
from barnabas.replica.delayed_produce import DelayedProduce
from barnabas.server.purgatory import DelayedOperationPurgatory
from barnabas.server.timer import SystemTimer
from barnabas.server.timer.timer_task import Timer

logger = logging.getLogger(__name__)

TimerFactory = Callable[[str], Timer]
"""Makes the timer of a purgatory, by its name."""


class DelayedOperations:
    """Three purgatories; whoever changes a partition has those that wait for it try again.

    They are keyed by topic and number of the partition, so an event costs as much as there are requests that wait for
    just that partition.
    """

    def __init__(
        self,
        config: ReplicaManagerConfig,
        clock: Clock,
        registry: MetricsRegistry,
        *,
        make_timer: TimerFactory | None = None,
    ) -> None:
        """`make_timer` is for tests, which move the time themselves: then there are no reapers, either."""
        timer_for = make_timer or (lambda name: SystemTimer(name, clock))
        reaper_enabled = make_timer is None
        broker_id = config.broker_id
        self.produce: DelayedOperationPurgatory[DelayedProduce] = DelayedOperationPurgatory(
            "Produce",
            timer_for("Produce"),
            broker_id,
            config.producer_purgatory_purge_interval_requests,
            reaper_enabled,
        )
        self.fetch: DelayedOperationPurgatory[DelayedFetch] = DelayedOperationPurgatory(
            "Fetch", timer_for("Fetch"), broker_id, config.fetch_purgatory_purge_interval_requests, reaper_enabled
        )
        self.delete_records: DelayedOperationPurgatory[DelayedDeleteRecords] = DelayedOperationPurgatory(
            "DeleteRecords",
            timer_for("DeleteRecords"),
            broker_id,
            config.delete_records_purgatory_purge_interval_requests,
            reaper_enabled,
        )
        self._group = KafkaMetricsGroup(registry, "kafka.server", "DelayedOperationPurgatory")
        self._add_gauges(self.produce)
        self._add_gauges(self.fetch)
        self._add_gauges(self.delete_records)

    def check_and_complete_all(self, key: Hashable) -> None:
        """Something happened to a partition. No lock may be held."""
        self.fetch.check_and_complete(key)
        self.produce.check_and_complete(key)
        self.delete_records.check_and_complete(key)

    @property
    def any_delayed_deletes(self) -> bool:
        return self.delete_records.num_delayed() > 0

    def shutdown(self) -> None:
        for purgatory in (self.fetch, self.produce, self.delete_records):
            purgatory.shutdown()
            for name in ("PurgatorySize", "NumDelayedOperations"):
                self._group.registry.remove(self._group.metric_name(name, {"delayedOperation": purgatory.name}))

    def _add_gauges(
        self,
        purgatory: DelayedOperationPurgatory[DelayedProduce]
        | DelayedOperationPurgatory[DelayedFetch]
        | DelayedOperationPurgatory[DelayedDeleteRecords],
    ) -> None:
        tags = {"delayedOperation": purgatory.name}
        self._group.new_gauge("PurgatorySize", purgatory.watched, tags)
        self._group.new_gauge("NumDelayedOperations", purgatory.num_delayed, tags)
