"""Produce requests that wait for followers (R06)."""

from __future__ import annotations

import threading

from barnabas.common.errors import Errors
from barnabas.metrics.yammer.meter import Meter
from barnabas.metrics.yammer.registry import KafkaMetricsGroup, MetricsRegistry
from barnabas.replica.append.delayed_replication import DelayedReplication
from barnabas.replica.fetch.fetch_session import TopicIdPartition
from barnabas.replica.partition.hosted_partitions import HostedPartitions
from barnabas.replica.results import ProduceCallback, ProduceResult


class DelayedProduceMetrics:
    """Counts the partitions of produce requests that were not replicated in time."""

    def __init__(self, registry: MetricsRegistry) -> None:
        self._group = KafkaMetricsGroup(registry, "kafka.server", "DelayedProduceMetrics")
        self._lock = threading.Lock()
        """Guards `_partitions`. The lock of the registry is taken inside it."""
        self._partitions: dict[TopicIdPartition, Meter] = {}
        self.expired = self._group.new_meter("ExpiresPerSec", "requests")

    def record_expiration(self, partition: TopicIdPartition) -> None:
        self.expired.mark()
        with self._lock:
            meter = self._partitions.get(partition)
            if meter is None:
                meter = self._partitions[partition] = self._group.new_meter(
                    "ExpiresPerSec", "requests", tags={"topic": partition[1] or "", "partition": str(partition[2])}
                )
        meter.mark()


class PendingAppend:
    """An append that the high watermark has not passed yet."""

    __slots__ = ("acks_pending", "partition", "required_offset", "result")

    def __init__(self, partition: TopicIdPartition, required_offset: int, result: ProduceResult) -> None:
        self.partition = partition
        self.required_offset = required_offset
        """The offset that the high watermark has to reach."""
        self.result = result
        """The result on success."""
        self.acks_pending = True


class DelayedProduce(DelayedReplication[TopicIdPartition, ProduceResult]):
    """A produce request with ``acks=all`` that is done on the leader, and waits for the followers.

    It completes when for each of its partitions one of these holds:

    A. the partition is no longer on this broker: its error goes into the response
    B. this broker is no longer the leader: NOT_LEADER_OR_FOLLOWER
    C. this broker is the leader, and
       1. there is another error, which goes into the response, such as NOT_ENOUGH_REPLICAS_AFTER_APPEND
       2. the high watermark has reached the end of the append: success

    After a timeout the records are in the log and may still reach all replicas; the producer has to retry.

    The request does not keep the records: they are in the log.
    """

    __slots__ = ("_metrics", "_partitions", "_pending")

    def __init__(
        self,
        delay_ms: int,
        pending: list[PendingAppend],
        results: dict[TopicIdPartition, ProduceResult],
        partitions: HostedPartitions,
        callback: ProduceCallback,
        metrics: DelayedProduceMetrics,
    ) -> None:
        """`results`: the results of all partitions of the request, with those of the pending ones on success."""
        super().__init__(delay_ms, [append.partition for append in pending], results, callback)
        self._pending = pending
        self._partitions = partitions
        self._metrics = metrics

    def try_complete(self) -> bool:
        waits = False
        for append in self._pending:
            if append.acks_pending:
                _, topic, number = append.partition
                found = self._partitions.get_partition_or_error((topic or "", number))
                if isinstance(found, Errors):
                    enough, error = False, found  # A
                else:
                    enough, error = found.check_enough_replicas_reach_offset(append.required_offset)  # B, C
                if enough or error:
                    append.acks_pending = False
                    self._results[append.partition] = append.result._replace(error=error)
                else:
                    waits = True
        return not waits and self.force_complete()

    def on_expiration(self) -> None:
        for append in self._pending:
            if append.acks_pending:
                self._metrics.record_expiration(append.partition)
