"""The fetch path: reads records within the limits of a request, and delays the response if there are not enough."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from barnabas.common.clock import Clock
from barnabas.common.errors import (
    Errors,
    FencedLeaderEpochError,
    InconsistentTopicIdError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    ReplicaNotAvailableError,
    UnknownLeaderEpochError,
    UnknownTopicOrPartitionError,
)
from barnabas.common.identifiers import ZERO_UUID
from barnabas.common.log_safety import LimitedLogger
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.endpoint import NO_NODE
from barnabas.metrics.yammer.registry import MetricsRegistry
from barnabas.protocol.messages.fetch import FetchPartition
from barnabas.replica.broker_topic_stats import FAILED_FETCH_REQUESTS, BrokerTopicStats
from barnabas.replica.delayed_operations import DelayedOperations
from barnabas.replica.fetch.delayed_fetch import DelayedFetch, DelayedFetchMetrics, should_leader_throttle
from barnabas.replica.fetch.fetch_session import TopicIdPartition
from barnabas.replica.fetch.replica_selector import ReplicaSelector, ReplicaView
from barnabas.replica.follower.replica_quota import ReplicaQuota
from barnabas.replica.partition.hosted_partitions import HostedPartitions
from barnabas.replica.results import NO_REPLICA, ClientMetadata, FetchCallback, FetchParams, FetchPartitionData

if TYPE_CHECKING:
    from barnabas.replica.partition.partition import Partition

logger = LimitedLogger(logging.getLogger(__name__))

_EXPECTED: Final = (
    UnknownTopicOrPartitionError,
    NotLeaderOrFollowerError,
    UnknownLeaderEpochError,
    FencedLeaderEpochError,
    ReplicaNotAvailableError,
    KafkaStorageError,
    InconsistentTopicIdError,
    OffsetOutOfRangeError,
)
"""Errors that any fetch can cause, and that do not count as failures of the broker."""


class RecordFetches:
    """Responds to fetch requests at once, or when there are enough records.

    The response is sent at once if the reader does not want to wait, if there are ``min_bytes``, or if the result is
    urgent: an error, a divergence, a preferred read replica. Every other request waits as a `DelayedFetch`, which
    occupies no thread.
    """

    def __init__(
        self,
        partitions: HostedPartitions,
        reads: LogReads,
        delayed: DelayedOperations,
        registry: MetricsRegistry,
    ) -> None:
        self._partitions = partitions
        self._reads = reads
        self._delayed = delayed
        self._metrics = DelayedFetchMetrics(registry)

    def fetch_messages(
        self,
        params: FetchParams,
        fetch_infos: Sequence[tuple[TopicIdPartition, FetchPartition]],
        quota: ReplicaQuota,
        callback: FetchCallback,
    ) -> None:
        """Reads from partitions, in their order.

        `callback` receives a result for each: at once if there is enough, otherwise when there is or after
        ``max_wait_ms``. It may be called before this returns, and on any thread. The requests must not change until
        then.
        """
        results, readable, is_urgent = self._reads.read_from_log(params, fetch_infos, quota, False)
        if is_urgent or params.max_wait_ms <= 0 or not results or readable >= params.min_bytes:
            callback(results)
            return
        keys = [(topic or "", number) for (_, topic, number), _ in fetch_infos]
        delayed_fetch = DelayedFetch(
            params, fetch_infos, results, keys, self._partitions, self._reads, quota, callback, self._metrics
        )
        self._delayed.fetch.try_complete_else_watch(delayed_fetch, keys)


class LogReads:
    """Reads the partitions of a fetch, in their order, until the response is full.

    The reader limits the bytes of each partition and of the whole response. The limits are soft at one point: the first
    partition that has records returns at least one whole batch, however large, or a reader could never get past a batch
    that is larger than its limits (KIP-74). A partition that gets nothing because of the limits is at the front of the
    next fetch.
    """

    def __init__(
        self,
        partitions: HostedPartitions,
        metadata_cache: MetadataCache,
        stats: BrokerTopicStats,
        clock: Clock,
        selector: ReplicaSelector | None,
    ) -> None:
        self._partitions = partitions
        self._metadata_cache = metadata_cache
        self._stats = stats
        self._clock = clock
        self._selector = selector

    def read_from_log(
        self,
        params: FetchParams,
        fetch_infos: Sequence[tuple[TopicIdPartition, FetchPartition]],
        quota: ReplicaQuota,
        from_purgatory: bool,
    ) -> tuple[list[tuple[TopicIdPartition, FetchPartitionData]], int, bool]:
        """Reads each partition. An error of one partition is its result, and is not raised.

        Returns the results, their total bytes of records, and whether one of them is urgent: an error, a divergence, a
        preferred read replica.

        `from_purgatory`: the fetch has waited; it was counted, and the follower's state updated, when it arrived.
        """
        online = self._partitions.online
        is_from_follower = params.is_from_follower
        may_be_sent_elsewhere = (
            self._selector is not None and params.client_metadata is not None and not is_from_follower
        )
        now_ms = self._clock.milliseconds() if is_from_follower else 0
        limit_bytes = params.max_bytes
        min_one_message = True
        may_be_caught_up = not is_from_follower and not may_be_sent_elsewhere
        readable = 0
        is_urgent = False
        counted: str | None = None
        count = 0
        results = []
        for topic_id_partition, request in fetch_infos:
            topic_id, topic, number = topic_id_partition
            if topic != counted:
                if count and not from_purgatory:
                    self._stats.topic_stats(counted or "").record_fetch_request(self._clock.nanoseconds(), count)
                counted, count = topic, 0
            count += 1
            try:
                partition = online.get((topic or "", number))
                if partition is None:
                    raise self._partitions.exception_for((topic or "", number))
                if topic_id not in (partition.topic_id, ZERO_UUID):
                    raise InconsistentTopicIdError(f"The topic {topic} has another id on this broker than in the fetch")
                if may_be_caught_up:
                    result = partition.caught_up(params, request)
                    if result is not None:
                        results.append((topic_id_partition, result))
                        continue
                result = self._sent_elsewhere(params, partition, request) if may_be_sent_elsewhere else None
                if result is None:
                    max_bytes = request.partition_max_bytes
                    result = partition.fetch_records(
                        params,
                        request,
                        now_ms,
                        min(limit_bytes, max_bytes),
                        min_one_message,
                        not from_purgatory,
                    )
                    if is_from_follower and should_leader_throttle(quota, partition, params.replica_id):
                        result = result._replace(records=b"")
            except _EXPECTED as error:
                result = _failed(error)
            except Exception as error:
                self._stats.topic_stats(topic or "").mark(FAILED_FETCH_REQUESTS)
                logger.exception("A fetch of %s by %s failed: %s", topic_id_partition, params, request)
                result = _failed(error)
            records = result[3]
            if records:
                size = len(records)
                readable += size
                min_one_message = False
                limit_bytes = limit_bytes - size if limit_bytes > size else 0
            elif result[0] or result[4] is not None or result[7] != NO_REPLICA:
                is_urgent = True
            results.append((topic_id_partition, result))
        if count and not from_purgatory:
            self._stats.topic_stats(counted or "").record_fetch_request(self._clock.nanoseconds(), count)
        return results, readable, is_urgent

    # Preferred read replica

    def _sent_elsewhere(
        self, params: FetchParams, partition: Partition, request: FetchPartition
    ) -> FetchPartitionData | None:
        """Returns the leader's result for a consumer that should read from another replica (KIP-392)."""
        client = params.client_metadata
        if client is None or not partition.is_leader:
            return None
        replica_id = self._preferred_replica(partition, client, request.fetch_offset)
        if replica_id is None:
            return None
        offsets = partition.fetch_offset_snapshot(request.current_leader_epoch, fetch_only_from_leader=False)
        return FetchPartitionData(
            Errors.NONE,
            offsets.high_watermark.message_offset,
            offsets.log_start_offset,
            b"",
            last_stable_offset=offsets.last_stable_offset.message_offset,
            preferred_read_replica=replica_id,
        )

    def _preferred_replica(self, partition: Partition, client: ClientMetadata, fetch_offset: int) -> int | None:
        assert self._selector is not None
        topic, number = partition.topic_partition
        endpoints = self._metadata_cache.partition_replica_endpoints(topic, number, client.listener_name)
        now_ms = self._clock.milliseconds()
        leader = ReplicaView(
            endpoints.get(partition.leader_id, NO_NODE), partition.local_log_or_raise().log_end_offset, 0
        )
        views = [leader]
        for replica in partition.isr.followers.values():
            state = replica.state
            # A replica outside the ISR may lag more and more, and so would the consumer.
            if (
                replica.broker_id in partition.isr.state.isr
                and state.log_start_offset <= fetch_offset <= state.log_end_offset
            ):
                views.append(
                    ReplicaView(
                        endpoints.get(replica.broker_id, NO_NODE),
                        state.log_end_offset,
                        now_ms - state.last_caught_up_time_ms,
                    )
                )
        selected = self._selector.select(partition.topic_partition, client, leader, tuple(views))
        if selected is None or selected is leader or selected.endpoint is NO_NODE:
            return None
        return selected.endpoint.id


def _failed(error: Exception) -> FetchPartitionData:
    return FetchPartitionData(Errors.for_exception(error), -1, -1, b"")
