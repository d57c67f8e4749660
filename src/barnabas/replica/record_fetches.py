"""Carries out fetch requests: reads, and waits if there is not enough."""

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
from barnabas.replica.results import NO_REPLICA, FetchCallback, FetchParams

_new_tuple = tuple.__new__
"""Creates a named tuple without calling its class, which takes several times as long."""


class RecordFetches:
    """Responds to fetch requests: at once, or when there is enough to read.

    At once if the reader does not want to wait, if there are ``min_bytes``, or if the reader must not wait for the
    result: an error, a divergence, another replica to read from. Every other request waits as a `DelayedFetch`, and
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
        """Reads from partitions, in their order.

        `callback` gets a result for each, at once or, if there is not enough, when there is or ``max_wait_ms`` have
        passed. It may be called before this returns, and on any thread. The requests must not change meanwhile.
        """
        reads = self._reads
        results = reads.read_from_log(params, fetch_infos, quota, False)
        now_ns = self._now_ns()
        readable = 0
        must_respond = params.max_wait_ms <= 0 or not results
        topic: str | None = None
        requests = 0
        for (_, its_topic, _), result in results:
            if its_topic != topic:
                if requests:
                    self._stats.topic_stats(topic or "").record_fetch_request(now_ns, requests)
                topic, requests = its_topic, 0
            requests += 1
            error, _, _, records, diverging_epoch, _, _, preferred_read_replica, _, _ = result
            if records:
                readable += len(records)
            elif error or diverging_epoch is not None or preferred_read_replica != NO_REPLICA:
                must_respond = True
        if requests:
            self._stats.topic_stats(topic or "").record_fetch_request(now_ns, requests)
        if must_respond or readable >= params.min_bytes:
            callback(results)
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
