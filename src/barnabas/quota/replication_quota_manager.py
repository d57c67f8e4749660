"""Limits the bytes per second of replication (Q09).

Moving partitions to another broker copies all of their records, which at full speed leaves little for clients. So the
replicas that move can be marked as throttled, and a limit applies to all marked ones together. Replicas that only keep
up are not marked, because throttling would remove them from the ISR.

There are three limits, each with its own manager:

========================================================= ============================================================
``leader.replication.throttled.rate``                     bytes that a leader sends to followers that are not in sync
``follower.replication.throttled.rate``                   bytes that a follower fetches
``replica.alter.log.dirs.io.max.bytes.per.second``        bytes copied from one log directory to another
========================================================= ============================================================

For the first two, a setting of the topic marks the replicas: ``leader.replication.throttled.replicas`` and
``follower.replication.throttled.replicas``, with pairs of partition and broker, or ``*``. A move between directories is
always throttled.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable
from typing import Final

from barnabas.common.clock import Clock
from barnabas.common.topic_partition import TopicPartition
from barnabas.metrics.config import MetricConfig, Quota
from barnabas.metrics.registry import Metrics
from barnabas.metrics.sensor import QuotaViolationError, Sensor
from barnabas.metrics.stats import SimpleRate
from barnabas.quota.client_quota_manager import INACTIVE_SENSOR_EXPIRATION_SECONDS, NO_LIMIT
from barnabas.quota.config import QuotaWindows
from barnabas.quota.quota_type import QuotaType

ALL_REPLICAS: Final = "*"


class ReplicationQuotaManager:
    """Measures one kind of replication traffic, and reports whether the limit is exceeded.

    It does not throttle anything itself. A replica fetcher checks it before a read (`is_quota_exceeded`) and charges it
    afterwards (`record`), so the rate exceeds the limit by at most one read.

    **Locks.** `_lock` guards the limit and the creation of the sensor with it. The locks of the registry and the sensor
    are taken inside it. The marks of a topic are replaced as a whole, and read without a lock.
    """

    def __init__(self, windows: QuotaWindows, metrics: Metrics, quota_type: QuotaType, clock: Clock) -> None:
        self.quota_type = quota_type
        self._metrics = metrics
        self._clock = clock
        self._config = windows.metric_config
        self._lock = threading.Lock()
        self._limit = NO_LIMIT
        self._marked: dict[str, frozenset[int] | None] = {}
        """Throttled partitions by topic; None means all of them."""
        self._rate_name = metrics.metric_name(
            "byte-rate", str(quota_type), description="Bytes per second of throttled replicas"
        )

    # -- for fetchers

    def is_throttled(self, partition: TopicPartition) -> bool:
        """Returns whether the limit applies to this partition."""
        if self.quota_type is QuotaType.ALTER_LOG_DIRS_REPLICATION:
            return True
        try:
            marked = self._marked[partition.topic]
        except KeyError:
            return False
        return marked is None or partition.partition in marked

    @property
    def is_quota_exceeded(self) -> bool:
        try:
            self._sensor().check_quotas()
        except QuotaViolationError:
            return True
        return False

    def record(self, value: int) -> None:
        """Charges bytes of throttled partitions."""
        self._sensor().record(value, self._clock.milliseconds(), check_quotas=False)

    def _sensor(self) -> Sensor:
        name = str(self.quota_type)
        sensor = self._metrics.get_sensor(name)
        if sensor is not None and self._metrics.metric(self._rate_name) is not None:
            return sensor
        with self._lock:
            while True:
                sensor = self._metrics.sensor(
                    name, inactive_sensor_expiration_seconds=INACTIVE_SENSOR_EXPIRATION_SECONDS
                )
                if sensor.add(self._rate_name, SimpleRate(), self._quota_config()):
                    return sensor
                self._metrics.remove_sensor(name)  # it has expired but is not removed yet

    def _quota_config(self) -> MetricConfig:
        return self._config.with_quota(Quota(self._limit))

    # -- for configuration

    @property
    def upper_bound(self) -> float:
        """The limit in bytes per second."""
        return self._limit

    def update_quota(self, limit: float) -> None:
        """Changes the limit; past usage still counts."""
        with self._lock:
            self._limit = limit
            metric = self._metrics.metric(self._rate_name)
            if metric is not None:
                metric.reconfigure(self._quota_config())

    def mark_throttled(self, topic: str, partitions: Iterable[int] | None = None) -> None:
        """Throttles only these partitions of a topic; without a list, all of them."""
        self._marked[topic] = None if partitions is None else frozenset(partitions)

    def remove_throttle(self, topic: str) -> None:
        self._marked.pop(topic, None)

    def __repr__(self) -> str:
        return f"ReplicationQuotaManager({self.quota_type}, {self._limit:g}, {len(self._marked)} topics)"


def throttled_partitions(replicas: Collection[str], broker_id: int) -> list[int] | None:
    """Returns the partitions that a list of throttled replicas names for a broker; None if it names all.

    >>> throttled_partitions(["0:1", "0:2", "3:1"], 1)
    [0, 3]
    """
    if ALL_REPLICAS in replicas:
        return None
    pairs = (replica.split(":") for replica in replicas)
    return [int(partition) for partition, broker in pairs if int(broker) == broker_id]
