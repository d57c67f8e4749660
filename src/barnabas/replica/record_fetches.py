"""The fetch path: from a fetch request to the answer, with the wait in between."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.common.clock import Clock
from barnabas.metrics.yammer.registry import MetricsRegistry
from barnabas.protocol.messages.fetch import FetchPartition
from barnabas.replica.broker_topic_stats import BrokerTopicStats
from barnabas.replica.delayed_fetch import DelayedFetch, DelayedFetchMetrics, FetchPartitionStatus
from barnabas.replica.delayed_operations import DelayedOperations
from barnabas.replica.fetch_results import answers_of, look_over
from barnabas.replica.fetch_session import TopicIdPartition
from barnabas.replica.hosted_partitions import HostedPartitions
from barnabas.replica.log_reads import LogReads
from barnabas.replica.replica_quota import ReplicaQuota
from barnabas.replica.results import FetchCallback, FetchParams

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
        readable, urgent, topics = look_over(results)
        for topic, requests in topics:
            self._stats.topic_stats(topic or "").record_fetch_request(now_ns, requests)
        if urgent or params.max_wait_ms <= 0 or not results or readable >= params.min_bytes:
            if params.is_from_follower:
                callback(
                    [
                        (partition, result.to_fetch_partition_data(reads.is_reassignment_fetch(partition, params)))
                        for partition, result in results
                    ]
                )
            else:
                callback(answers_of(results))
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
