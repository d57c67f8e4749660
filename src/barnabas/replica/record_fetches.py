"""The fetch path: from a fetch request to the answer, with the wait in between."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.common.clock import Clock
from barnabas.metrics.yammer.registry import MetricsRegistry
from barnabas.protocol.messages.fetch import FetchPartition
from barnabas.replica.broker_topic_stats import BrokerTopicStats
from barnabas.replica.delayed_fetch import DelayedFetch, DelayedFetchMetrics, FetchPartitionStatus
from barnabas.replica.delayed_operations import DelayedOperations
from barnabas.replica.fetch_session import TopicIdPartition
from barnabas.replica.hosted_partitions import HostedPartitions
from barnabas.replica.log_reads import LogReads
from barnabas.replica.replica_quota import ReplicaQuota
from barnabas.replica.results import NO_REPLICA, FetchCallback, FetchParams, FetchPartitionData

_new_tuple = tuple.__new__
"""Makes a named tuple without a call of its class, which takes several times as long."""


class RecordFetches:
    """Answers fetch requests: at once, or when there is enough to read.

    At once means: the reader does not want to wait, or there are ``min_bytes``, or there is something that it has to
    hear without delay: an error, a divergence, another replica to go to. Everything else waits as a `DelayedFetch`, and
    holds no thread.
    """

    def __init__(
        self,
        partitions: HostedPartitions,
        reads: LogReads,
        delayed: DelayedOperations,
        stats: BrokerTopicStats,
        clock: Clock,
        registry: MetricsRegistry,
    ) -> None:
        self._partitions = partitions
        self._reads = reads
        self._delayed = delayed
        self._stats = stats
        self._now_ns = clock.nanoseconds
        self._metrics = DelayedFetchMetrics(registry)

    def fetch_messages(
        self,
        params: FetchParams,
        fetch_infos: Sequence[tuple[TopicIdPartition, FetchPartition]],
        quota: ReplicaQuota,
        callback: FetchCallback,
    ) -> None:
        """See `ReplicaManager.fetch_messages`."""
        reads = self._reads
        results = reads.read_from_log(params, fetch_infos, quota, False)
        now_ns = self._now_ns()
        at_once = params.max_wait_ms <= 0 or not results
        readable = 0
        # Most requests have one topic: it is counted for all of its partitions at once.
        counted: str | None = None
        requests = 0
        for (_, topic, _), result in results:
            if topic != counted:
                if requests:
                    self._stats.topic_stats(counted or "").record_fetch_request(now_ns, requests)
                counted, requests = topic, 0
            requests += 1
            error, info, _, _, _, _, diverging_epoch, preferred_read_replica = result
            if error or diverging_epoch is not None or preferred_read_replica != NO_REPLICA:
                at_once = True
            readable += len(info[1])
        if requests:
            self._stats.topic_stats(counted or "").record_fetch_request(now_ns, requests)
        if at_once or readable >= params.min_bytes:
            answer: list[tuple[TopicIdPartition, FetchPartitionData]] = []
            is_from_follower = params.is_from_follower
            for topic_id_partition, result in results:
                is_reassignment = is_from_follower and reads.is_reassignment_fetch(topic_id_partition, params)
                answer.append((topic_id_partition, result.to_fetch_partition_data(is_reassignment)))
            callback(answer)
            return
        statuses = [
            _new_tuple(
                FetchPartitionStatus,
                (topic_id_partition, request, (topic_id_partition[1] or "", topic_id_partition[2]), result),
            )
            for (topic_id_partition, request), (_, result) in zip(fetch_infos, results, strict=True)
        ]
        delayed_fetch = DelayedFetch(params, statuses, self._partitions, reads, quota, callback, self._metrics)
        self._delayed.fetch.try_complete_else_watch(delayed_fetch, [status[2] for status in statuses])
