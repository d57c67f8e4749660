"""The fetch path: reads records, and delays the response if there are not enough."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.metrics.yammer.registry import MetricsRegistry
from barnabas.protocol.messages.fetch import FetchPartition
from barnabas.replica.delayed_operations import DelayedOperations
from barnabas.replica.fetch.delayed_fetch import DelayedFetch, DelayedFetchMetrics
from barnabas.replica.fetch.fetch_session import TopicIdPartition
from barnabas.replica.fetch.log_reads import LogReads
from barnabas.replica.follower.replica_quota import ReplicaQuota
from barnabas.replica.partition.hosted_partitions import HostedPartitions
from barnabas.replica.results import FetchCallback, FetchParams


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
