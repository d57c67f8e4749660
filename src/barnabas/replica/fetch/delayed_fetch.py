"""Fetch requests that wait for records (R07)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from barnabas.common.errors import (
    FencedLeaderEpochError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    ReplicaNotAvailableError,
    UnknownTopicOrPartitionError,
)
from barnabas.log.fetch_isolation import FetchIsolation
from barnabas.log.log_offset_metadata import UNKNOWN_OFFSET_METADATA
from barnabas.metrics.yammer.registry import KafkaMetricsGroup, MetricsRegistry
from barnabas.protocol.messages.fetch import FetchPartition
from barnabas.replica.fetch.fetch_session import TopicIdPartition
from barnabas.replica.follower.replica_quota import ReplicaQuota
from barnabas.replica.partition.hosted_partitions import HostedPartitions
from barnabas.replica.results import FetchCallback, FetchParams, FetchPartitionData
from barnabas.server.purgatory import DelayedOperation

if TYPE_CHECKING:
    from barnabas.replica.partition.partition import Partition


FetchInfos = Sequence[tuple[TopicIdPartition, FetchPartition]]
FetchResults = Sequence[tuple[TopicIdPartition, FetchPartitionData]]


class DelayedFetchMetrics:
    """Counts the fetches whose ``max_wait_ms`` passed."""

    def __init__(self, registry: MetricsRegistry) -> None:
        group = KafkaMetricsGroup(registry, "kafka.server", "DelayedFetchMetrics")
        self.follower_expired = group.new_meter("ExpiresPerSec", "requests", tags={"fetcherType": "follower"})
        self.consumer_expired = group.new_meter("ExpiresPerSec", "requests", tags={"fetcherType": "consumer"})


class Reads(Protocol):
    """Reads the partitions of a fetch."""

    def read_from_log(
        self,
        params: FetchParams,
        fetch_infos: Sequence[tuple[TopicIdPartition, FetchPartition]],
        quota: ReplicaQuota,
        from_purgatory: bool,
    ) -> tuple[list[tuple[TopicIdPartition, FetchPartitionData]], int, bool]: ...


_RESPOND_WITH_ERROR = (
    NotLeaderOrFollowerError,  # A
    ReplicaNotAvailableError,  # B
    UnknownTopicOrPartitionError,  # C
    KafkaStorageError,  # D
    FencedLeaderEpochError,  # E
)


class DelayedFetch(DelayedOperation):
    """A fetch that waits for ``min_bytes`` of records.

    It completes when one of these holds:

    A. this broker is no longer the leader of one of the partitions
    B. the replica is not available on this broker
    C. this broker does not know one of the partitions
    D. a partition is in a log directory that is offline
    E. the leader epoch of the request is fenced: there was an election
    F. the offset is no longer in the last segment, so that the number of bytes after it is unknown; or it is beyond the
       end, because the log was truncated
    G. all partitions together have ``min_bytes``
    H. the reader's log diverges from this one, and the reader has to truncate

    These checks use only offsets and their file positions, and touch no file. On completion all partitions are read
    again: there may be more records than those that triggered it, and errors become results.
    """

    __slots__ = (
        "_callback",
        "_fetch_infos",
        "_keys",
        "_metrics",
        "_params",
        "_partitions",
        "_quota",
        "_reads",
        "_results",
    )

    def __init__(
        self,
        params: FetchParams,
        fetch_infos: FetchInfos,
        results: FetchResults,
        keys: Sequence[tuple[str, int]],
        partitions: HostedPartitions,
        reads: Reads,
        quota: ReplicaQuota,
        callback: FetchCallback,
        metrics: DelayedFetchMetrics,
    ) -> None:
        super().__init__(params.max_wait_ms)
        self._params = params
        self._fetch_infos = fetch_infos
        self._results = results
        """The results of the first read, which found fewer than ``min_bytes``."""
        self._keys = keys
        """Topic and number of each partition: the keys in the purgatory."""
        self._partitions = partitions
        self._reads = reads
        self._quota = quota
        self._callback = callback
        self._metrics = metrics

    def safe_try_complete_or_else(self, action: Callable[[], object]) -> bool:
        """Skips the first attempt, as the read has just found too little. The second attempt is required."""
        with self._lock:
            action()
            return self.try_complete()

    def try_complete(self) -> bool:
        params = self._params
        isolation = params.isolation
        may_be_caught_up = not params.is_from_follower
        online = self._partitions.online
        available = 0
        try:
            for (_, request), (_, result), key in zip(self._fetch_infos, self._results, self._keys, strict=True):
                partition = online.get(key)
                if partition is None:
                    raise self._partitions.exception_for(key)
                if may_be_caught_up and partition.caught_up(params, request) is result:
                    continue  # nothing has changed since the read
                start = result.fetch_offset_metadata
                if start is UNKNOWN_OFFSET_METADATA:
                    continue
                offsets = partition.fetch_offset_snapshot(request.current_leader_epoch, params.fetch_only_leader)
                if isolation is FetchIsolation.HIGH_WATERMARK:
                    end = offsets.high_watermark
                elif isolation is FetchIsolation.TXN_COMMITTED:
                    end = offsets.last_stable_offset
                else:
                    end = offsets.log_end_offset
                # The same offset can have two positions, the end of one segment and the beginning of the next.
                if start.message_offset > end.message_offset:
                    return self.force_complete()  # F
                if start.message_offset < end.message_offset and not self._is_throttled(partition):
                    if start.on_older_segment(end):
                        return self.force_complete()  # F
                    if start.on_same_segment(end):
                        available += min(end.position_diff(start), request.partition_max_bytes)
                if request.last_fetched_epoch >= 0 and partition.diverges(request):
                    return self.force_complete()  # H
        except _RESPOND_WITH_ERROR:
            return self.force_complete()
        return available >= params.min_bytes and self.force_complete()  # G

    def _is_throttled(self, partition: Partition) -> bool:
        """Whether the records of this partition do not count because the follower is throttled."""
        params = self._params
        return params.is_from_follower and should_leader_throttle(self._quota, partition, params.replica_id)

    def on_complete(self) -> None:
        results, _, _ = self._reads.read_from_log(self._params, self._fetch_infos, self._quota, True)
        self._callback(results)

    def on_expiration(self) -> None:
        metrics = self._metrics
        (metrics.follower_expired if self._params.is_from_follower else metrics.consumer_expired).mark()


def should_leader_throttle(quota: ReplicaQuota, partition: Partition, replica_id: int) -> bool:
    """Whether a follower is throttled.

    A follower in the ISR is never throttled: it would drop out of the ISR, catch up in a burst, and drop out again.
    """
    return (
        replica_id not in partition.isr.state.isr
        and quota.is_throttled(partition.topic_partition)
        and quota.is_quota_exceeded
    )
