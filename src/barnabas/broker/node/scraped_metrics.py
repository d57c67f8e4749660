"""Metrics that are computed when they are scraped.

A gauge for each metric of each partition, as a JVM broker registers them, would be a hundred thousand objects on a
broker with ten thousand partitions, made at startup and read every fifteen seconds or never. Other parts already know
the values, so the page gets them there:

============================================ =========================================================================
``kafka.log:type=Log``                       Size, LogStartOffset, LogEndOffset, NumLogSegments of each log
``kafka.log:type=LogManager``                OfflineLogDirectoryCount; LogDirectoryOffline and -Slow of each directory
``kafka.cluster:type=Partition``             ReplicasCount, InSyncReplicasCount, UnderReplicated of each partition led
``kafka.controller:type=KafkaController``    counts of brokers, topics and partitions; what is offline or out of balance
``kafka.network:type=SocketServer``          NetworkProcessorAvgIdlePercent
``kafka.server:type=socket-server-metrics``  connection-count of each network thread
============================================ =========================================================================
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from barnabas.common.clock import Clock
from barnabas.log.manager.log_manager import LogManager
from barnabas.metadata.image import MetadataImage
from barnabas.metrics.names import MBeanName
from barnabas.metrics.yammer.registry import Gauge, YammerMetric
from barnabas.network.server.processor import Processor

Figure = tuple[MBeanName, float]

_SECOND_NS = 1_000_000_000


class ScrapedMetrics:
    """A metrics registry that computes its metrics on each scrape."""

    def __init__(
        self,
        node_id: int,
        image: Callable[[], MetadataImage],
        logs: LogManager | None,
        processors: Callable[[], Sequence[Processor]],
        is_controller: bool,
        clock: Clock,
    ) -> None:
        self._node_id = node_id
        self._image = image
        self._logs = logs
        self._processors = processors
        self._is_controller = is_controller
        self._clock = clock
        self._cpu: dict[int, tuple[int, int, float]] = {}
        """For each network thread: the time of the last scrape, its CPU time then, and its idle share."""

    @property
    def metrics(self) -> dict[MBeanName, YammerMetric]:
        image = self._image()
        found = dict(self._of_network())
        if self._logs is not None:
            found |= dict(_of_logs(self._logs))
            found |= dict(_of_partitions(self._node_id, image))
        if self._is_controller:
            found |= dict(_of_cluster(image))
        return {name: Gauge(partial(_same, value)) for name, value in found.items()}

    # -- network threads

    def _of_network(self) -> Iterator[Figure]:
        processors = self._processors()
        idle = [share for one in processors if (share := self._idle_share(one)) is not None]
        if idle:
            yield MBeanName("kafka.network", "SocketServer", "NetworkProcessorAvgIdlePercent"), sum(idle) / len(idle)
        for one in processors:
            tags = {"listener": one.endpoint.listener_name, "networkProcessor": str(one.id)}
            yield (
                MBeanName("kafka.server", "socket-server-metrics", "connection-count", tags),
                len(one.selector.channels),
            )

    def _idle_share(self, processor: Processor) -> float | None:
        """Returns the share of the time since the last scrape in which the thread was idle.

        It uses the thread's CPU clock. Reading the time before and after each wait would give the same result, but add
        a cost to every request.
        """
        clock_of = getattr(time, "pthread_getcpuclockid", None)  # missing on macOS
        ident = processor.thread.ident
        if clock_of is None or ident is None or not processor.thread.is_alive():
            return None
        now, worked = self._clock.nanoseconds(), time.clock_gettime_ns(clock_of(ident))
        then, worked_then, share = self._cpu.get(id(processor), (0, 0, 1.0))
        if now - then < _SECOND_NS:
            return share  # too soon after the last scrape to measure
        if then:
            share = min(1.0, max(0.0, 1 - (worked - worked_then) / (now - then)))
        self._cpu[id(processor)] = now, worked, share
        return share


def _same(value: float) -> float:
    return value


def _of_logs(manager: LogManager) -> Iterator[Figure]:
    for log in manager.all_logs():
        tags = {"topic": log.topic_partition.topic, "partition": str(log.topic_partition.partition)}
        if log.is_future:
            tags["is-future"] = "true"
        for name, value in (
            ("Size", log.size),
            ("LogStartOffset", log.log_start_offset),
            ("LogEndOffset", log.log_end_offset),
            ("NumLogSegments", len(log.segments)),
        ):
            yield MBeanName("kafka.log", "Log", name, tags), value
    directories = manager.log_dirs
    yield MBeanName("kafka.log", "LogManager", "OfflineLogDirectoryCount"), len(directories.offline_paths)
    for path in directories.configured:
        tags = {"logDirectory": str(path)}
        yield MBeanName("kafka.log", "LogManager", "LogDirectoryOffline", tags), not directories.is_live(path)
        yield MBeanName("kafka.log", "LogManager", "LogDirectorySlow", tags), manager.paces.of(path).is_slow


def _of_partitions(node_id: int, image: MetadataImage) -> Iterator[Figure]:
    for topic in image.topics.by_id.values():
        for number, partition in topic.partitions.items():
            if partition.leader != node_id:
                continue
            tags = {"topic": topic.name, "partition": str(number)}
            replicas, in_sync = len(partition.replicas), len(partition.isr)
            for name, value in (
                ("ReplicasCount", replicas),
                ("InSyncReplicasCount", in_sync),
                ("UnderReplicated", in_sync < replicas),
            ):
                yield MBeanName("kafka.cluster", "Partition", name, tags), value


def _of_cluster(image: MetadataImage) -> Iterator[Figure]:
    partitions = [one for topic in image.topics.by_id.values() for one in topic.partitions.values()]
    brokers = image.cluster.brokers.values()
    for name, value in (
        ("ActiveBrokerCount", sum(not broker.fenced for broker in brokers)),
        ("FencedBrokerCount", sum(broker.fenced for broker in brokers)),
        ("GlobalTopicCount", len(image.topics.by_id)),
        ("GlobalPartitionCount", len(partitions)),
        ("OfflinePartitionsCount", sum(one.leader < 0 for one in partitions)),
        ("PreferredReplicaImbalanceCount", sum(one.leader != one.replicas[0] for one in partitions)),
    ):
        yield MBeanName("kafka.controller", "KafkaController", name), value
