"""DeleteRecords requests that wait for followers."""

from __future__ import annotations

from barnabas.common.errors import Errors, NotLeaderOrFollowerError
from barnabas.common.topic_partition import TopicPartition
from barnabas.metrics.yammer.registry import KafkaMetricsGroup, MetricsRegistry
from barnabas.replica.append.delayed_replication import DelayedReplication
from barnabas.replica.partition.hosted_partitions import HostedPartitions
from barnabas.replica.results import DeleteRecordsCallback, DeleteRecordsResult


class DelayedDeleteRecordsMetrics:
    """Counts the partitions of DeleteRecords requests that timed out."""

    def __init__(self, registry: MetricsRegistry) -> None:
        group = KafkaMetricsGroup(registry, "kafka.server", "DelayedDeleteRecordsMetrics")
        self.expired = group.new_meter("ExpiresPerSec", "requests")


class DelayedDeleteRecords(DelayedReplication[TopicPartition, DeleteRecordsResult]):
    """A DeleteRecords request that is done on the leader, and waits for the followers.

    Followers learn the leader's log start offset with their next fetch. The request completes when for each partition
    one of these holds:

    A. the partition is no longer on this broker, or in a directory that is offline
    B. this broker is no longer the leader
    C. the low watermark, the smallest log start offset of the live replicas, has reached the requested offset
    """

    __slots__ = ("_metrics", "_partitions", "_pending")

    def __init__(
        self,
        delay_ms: int,
        pending: dict[TopicPartition, int],
        results: dict[TopicPartition, DeleteRecordsResult],
        partitions: HostedPartitions,
        callback: DeleteRecordsCallback,
        metrics: DelayedDeleteRecordsMetrics,
    ) -> None:
        """`pending`: the partitions to wait for, with the offset that each low watermark has to reach."""
        super().__init__(delay_ms, pending, results, callback)
        self._pending = pending
        self._partitions = partitions
        self._metrics = metrics

    def try_complete(self) -> bool:
        for partition, required in list(self._pending.items()):
            result = self._look_at(partition, required)
            if result is not None:
                self._results[partition] = result
                del self._pending[partition]
        return not self._pending and self.force_complete()

    def _look_at(self, topic_partition: TopicPartition, required: int) -> DeleteRecordsResult | None:
        found = self._partitions.get_partition_or_error(topic_partition)
        if isinstance(found, Errors):
            return DeleteRecordsResult(found)
        try:
            low_watermark = found.low_watermark_if_leader()
        except NotLeaderOrFollowerError:
            return DeleteRecordsResult(Errors.NOT_LEADER_OR_FOLLOWER)
        return DeleteRecordsResult(Errors.NONE, low_watermark) if low_watermark >= required else None

    def on_expiration(self) -> None:
        if self._pending:
            self._metrics.expired.mark(len(self._pending))
