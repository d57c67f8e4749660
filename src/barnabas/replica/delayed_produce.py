"""Produce requests that wait for followers (R06)."""

from __future__ import annotations

import threading

from barnabas.common.errors import Errors
from barnabas.metrics.yammer.meter import Meter
from barnabas.metrics.yammer.registry import KafkaMetricsGroup, MetricsRegistry
from barnabas.replica.fetch_session import TopicIdPartition
from barnabas.replica.hosted_partitions import HostedPartitions
from barnabas.replica.results import ProduceCallback, ProduceResult
from barnabas.server.purgatory import DelayedOperation


class DelayedProduceMetrics:
    """How many partitions of produce requests were not replicated in time."""

    def __init__(self, registry: MetricsRegistry) -> None:
        self._group = KafkaMetricsGroup(registry, "kafka.server", "DelayedProduceMetrics")
        self._lock = threading.Lock()
        """Guards the table below. The lock of the registry is taken inside it."""
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
    """An append that is not on all replicas yet, as far as is known."""

    __slots__ = ("acks_pending", "partition", "required_offset", "result")

    def __init__(self, partition: TopicIdPartition, required_offset: int, result: ProduceResult) -> None:
        self.partition = partition
        self.required_offset = required_offset
        """What the high watermark has to reach."""
        self.result = result
        """The answer if all goes well."""
        self.acks_pending = True


class DelayedProduce(DelayedOperation):
    """A produce request with ``acks=all``, after the leader's part.

    It can be answered when for each of its partitions one of these holds:

    A. the partition is not on this broker any more: what is known of it goes into the answer
    B. this broker does not lead it any more: NOT_LEADER_OR_FOLLOWER
    C. it does, and
       1. something else is wrong with it: that goes into the answer, such as NOT_ENOUGH_REPLICAS_AFTER_APPEND
       2. the high watermark has come to the end of the append: done

    Until then each partition has REQUEST_TIMED_OUT for an answer, so that at the timeout nothing is left to be done:
    the records are in the log and may yet get to all replicas, and the producer has to ask again.

    The records themselves are not kept: they are in the log.
    """

    __slots__ = ("_callback", "_metrics", "_partitions", "_pending", "_results")

    def __init__(
        self,
        delay_ms: int,
        pending: list[PendingAppend],
        results: dict[TopicIdPartition, ProduceResult],
        partitions: HostedPartitions,
        callback: ProduceCallback,
        metrics: DelayedProduceMetrics,
    ) -> None:
        """`results` are those of all partitions of the request; the pending ones are put in here."""
        super().__init__(delay_ms)
        self._pending = pending
        self._results = results
        self._partitions = partitions
        self._callback = callback
        self._metrics = metrics
        for append in pending:
            results[append.partition] = append.result._replace(error=Errors.REQUEST_TIMED_OUT)

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

    def on_complete(self) -> None:
        self._callback(self._results)

    def on_expiration(self) -> None:
        for append in self._pending:
            if append.acks_pending:
                self._metrics.record_expiration(append.partition)
