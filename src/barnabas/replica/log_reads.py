"""Reading for a fetch: from several logs, into one answer of limited size."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

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
from barnabas.log.fetch_data_info import FetchDataInfo
from barnabas.log.fetch_isolation import FetchIsolation
from barnabas.log.log_offset_metadata import UNKNOWN_OFFSET_METADATA
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.endpoint import NO_NODE
from barnabas.protocol.messages.fetch import FetchPartition
from barnabas.replica.broker_topic_stats import FAILED_FETCH_REQUESTS, BrokerTopicStats
from barnabas.replica.delayed_fetch import should_leader_throttle
from barnabas.replica.fetch_session import TopicIdPartition
from barnabas.replica.hosted_partitions import HostedPartitions
from barnabas.replica.log_ends import ends_of
from barnabas.replica.plain_reads import read_plain, skip_known
from barnabas.replica.replica_quota import ReplicaQuota
from barnabas.replica.replica_selector import ReplicaSelector, ReplicaView
from barnabas.replica.results import NO_REPLICA, ClientMetadata, FetchParams, LogReadResult

if TYPE_CHECKING:
    from barnabas.replica.partition import Partition

logger = LimitedLogger(logging.getLogger(__name__))

LOG_END: Final = FetchIsolation.LOG_END
TXN_COMMITTED: Final = FetchIsolation.TXN_COMMITTED
HIGH_WATERMARK: Final = FetchIsolation.HIGH_WATERMARK

_NOTHING_READ: Final = FetchDataInfo(UNKNOWN_OFFSET_METADATA, b"")

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
"""What can happen to any fetch, and does not count as a failure of the broker."""


class LogReads:
    """Reads the partitions of a fetch, in their order, until the answer is full.

    The limits are the reader's: so much for each partition, and so much for all. They are soft at one point: the first
    partition that has anything gives at least one whole batch, however large, or a reader could never get past a batch
    that is larger than its limits (KIP-74). What gets nothing because of the limits is at the front the next time.
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
    ) -> list[tuple[TopicIdPartition, LogReadResult]]:
        """What there is in each partition. An error of one is the answer for that one, and not raised.

        `from_purgatory`: the fetch has waited, and how far the follower is was noted when it came.
        """
        online = self._partitions.online
        is_from_follower = params.is_from_follower
        may_be_sent_elsewhere = self._selector is not None and params.client_metadata is not None
        now_ms = self._clock.milliseconds() if is_from_follower else 0
        limit_bytes = params.max_bytes
        min_one_message = True
        isolation, fetch_only_leader = params.isolation, params.fetch_only_leader
        is_plain = not is_from_follower and not may_be_sent_elsewhere and isolation is not LOG_END
        results: list[Any]
        if is_plain:
            results = ends_of(fetch_infos, online, isolation is TXN_COMMITTED, fetch_only_leader)
        else:
            results = [None] * len(fetch_infos)
        read_some = read_plain if is_plain and isolation is HIGH_WATERMARK else skip_known
        index = 0
        while True:
            index, limit_bytes, min_one_message = read_some(
                fetch_infos, results, index, online, limit_bytes, min_one_message, fetch_only_leader
            )
            if index == len(results):
                return results
            topic_id_partition, request = fetch_infos[index]
            topic_id, topic, number = topic_id_partition
            try:
                partition = online.get((topic or "", number))
                if partition is None:
                    raise self._partitions.exception_for((topic or "", number))
                if topic_id not in (partition.topic_id, ZERO_UUID):
                    raise InconsistentTopicIdError(f"The topic {topic} has another id on this broker than in the fetch")
                result = None
                if may_be_sent_elsewhere:
                    result = self._sent_elsewhere(params, partition, request)
                if result is None:
                    max_bytes = request.partition_max_bytes
                    result = partition.fetch_records(
                        params,
                        request,
                        now_ms,
                        min(max_bytes, limit_bytes),
                        min_one_message,
                        not from_purgatory,
                    )
                    info = result.info
                    if info.first_entry_incomplete or (
                        is_from_follower and should_leader_throttle(quota, partition, params.replica_id)
                    ):
                        # Half a batch is of no use to anybody.
                        result = result._replace(info=FetchDataInfo(info.fetch_offset_metadata, b""))
            except _EXPECTED as error:
                result = _failed(error)
            except Exception as error:
                self._stats.topic_stats(topic or "").mark(FAILED_FETCH_REQUESTS)
                logger.exception("A fetch of %s by %s failed: %s", topic_id_partition, params, request)
                result = _failed(error)
            size = len(result.info.records)
            if size:
                min_one_message = False
                limit_bytes = limit_bytes - size if limit_bytes > size else 0
            results[index] = (topic_id_partition, result)

    def is_reassignment_fetch(self, partition: TopicIdPartition, params: FetchParams) -> bool:
        """Whether the follower is there because of a reassignment."""
        if not params.is_from_follower:
            return False
        found = self._partitions.online.get((partition[1] or "", partition[2]))
        return found is not None and found.is_adding_replica(params.replica_id)

    # Another replica

    def _sent_elsewhere(
        self, params: FetchParams, partition: Partition, request: FetchPartition
    ) -> LogReadResult | None:
        """The answer of a leader to a consumer that does better with another replica (KIP-392)."""
        client = params.client_metadata
        if client is None or params.is_from_follower or not partition.is_leader:
            return None
        replica_id = self._preferred_replica(partition, client, request.fetch_offset)
        if replica_id is None:
            return None
        offsets = partition.fetch_offset_snapshot(request.current_leader_epoch, fetch_only_from_leader=False)
        return LogReadResult(
            Errors.NONE,
            _NOTHING_READ,
            offsets.high_watermark.message_offset,
            offsets.log_start_offset,
            offsets.log_end_offset.message_offset,
            offsets.last_stable_offset.message_offset,
            None,
            replica_id,
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
        for replica in partition.remote_replicas:
            state = replica.state
            # One that is not in sync may lag more and more, and the consumer with it.
            if (
                replica.broker_id in partition.in_sync_replica_ids
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


def _failed(error: Exception) -> LogReadResult:
    return LogReadResult(Errors.for_exception(error), _NOTHING_READ, -1, -1, -1, -1, None, NO_REPLICA)
