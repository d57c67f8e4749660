"""DeleteRecords requests that wait for followers."""

from __future__ import annotations

from barnabas.common.errors import Errors, NotLeaderOrFollowerError
from barnabas.common.topic_partition import TopicPartition
from barnabas.metrics.yammer.registry import KafkaMetricsGroup, MetricsRegistry
from barnabas.replica.hosted_partitions import HostedPartitions
from barnabas.replica.results import DeleteRecordsCallback, DeleteRecordsResult
from barnabas.server.purgatory import DelayedOperation


class DelayedDeleteRecordsMetrics:
    """How many partitions of such requests were not done in time."""

    def __init__(self, registry: MetricsRegistry) -> None:
        group = KafkaMetricsGroup(registry, "kafka.server", "DelayedDeleteRecordsMetrics")
        self.expired = group.new_meter("ExpiresPerSec", "requests")


class DelayedDeleteRecords(DelayedOperation):
    """A deletion of records after the leader's part.

    Followers hear with their next fetch where the leader's log starts. The request can be answered when for each
    partition

    A. the partition is not on this broker any more, or in a directory that is offline
    B. this broker does not lead it any more
    C. the low watermark, where the latest of all live replicas starts, has come to the requested offset

    Until then each has REQUEST_TIMED_OUT for an answer.
    """

    __slots__ = ("_callback", "_metrics", "_partitions", "_pending", "_results")

    def __init__(
        self,
        delay_ms: int,
        pending: dict[TopicPartition, int],
        results: dict[TopicPartition, DeleteRecordsResult],
        partitions: HostedPartitions,
        callback: DeleteRecordsCallback,
        metrics: DelayedDeleteRecordsMetrics,
    ) -> None:
        """`pending`: the partitions that have to be waited for, with the offset that each has to come to."""
        super().__init__(delay_ms)
        self._pending = pending
        self._results = results
        self._partitions = partitions
        self._callback = callback
        self._metrics = metrics
        for partition in pending:
            results[partition] = results[partition]._replace(error=Errors.REQUEST_TIMED_OUT)

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

    def on_complete(self) -> None:
        self._callback(self._results)

    def on_expiration(self) -> None:
        if self._pending:
            self._metrics.expired.mark(len(self._pending))
