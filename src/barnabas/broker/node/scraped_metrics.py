"""Metrics of network threads, log directories and the cluster, computed when they are exported.

============================================ =========================================================================
``kafka.network:type=SocketServer``          NetworkProcessorAvgIdlePercent
``kafka.server:type=socket-server-metrics``  connections of each network thread: their number, how many were opened and
                                             closed, and the software of the clients
``kafka.log:type=LogManager``                OfflineLogDirectoryCount; LogDirectoryOffline and -Slow of each directory
``kafka.controller:type=KafkaController``    counts of brokers, topics and partitions; what is offline or out of balance
``kafka_brokers``, ``kafka_broker_info``,    the brokers, and the number of partitions of each topic, under the names
``kafka_topic_partitions``                   of kafka_exporter
============================================ =========================================================================

Metrics of single partitions are in `barnabas.broker.node.partition_metrics`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from barnabas.common.clock import Clock
from barnabas.log.manager.log_manager import LogManager
from barnabas.metadata.image import MetadataImage
from barnabas.metrics.families import COUNTER, GAUGE, NO_LABELS, LabelSet, MetricFamily, MetricSelection
from barnabas.network.server.processor import Processor

MOST_SOFTWARE = 100
"""How many kinds of client software a network thread shows, as in Kafka. Clients choose their names."""
_SECOND_NS = 1_000_000_000
_SOCKETS = "kafka.server:type=socket-server-metrics"


class _Measured(NamedTuple):
    """What was measured of a network thread at the last export, and the figures that follow from it."""

    now_ns: int = 0
    cpu_ns: int = 0
    created: int = 0
    closed: int = 0
    idle_share: float | None = None
    creation_rate: float = 0.0
    close_rate: float = 0.0


class NetworkMetrics:
    """The families of network threads.

    Rates and idle time refer to the time between two exports. They need no work in a network thread: it counts its
    connections anyway, and the operating system measures the CPU time of a thread.
    """

    def __init__(self, processors: Callable[[], Sequence[Processor]], clock: Clock) -> None:
        self._processors = processors
        self._clock = clock
        self._measured: dict[int, _Measured] = {}
        """By the identity of a processor."""

    def families(self, selection: MetricSelection) -> Iterator[MetricFamily]:  # noqa: ARG002 - there are few
        processors = self._processors()
        measured = {id(one): self._measure(one) for one in processors}
        self._measured = measured
        shares = [found.idle_share for found in measured.values() if found.idle_share is not None]
        if shares:
            idle = [(NO_LABELS, sum(shares) / len(shares))]
            text = "kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent"
            yield MetricFamily.of("kafka_network_socketserver_networkprocessoravgidle_percent", GAUGE, text, idle)
            yield MetricFamily.of("kafka_network_socketserver_networkprocessoravgidlepercent", GAUGE, text, idle)
        for name, kind, read in (
            ("connection_count", GAUGE, lambda one, _found: len(one.selector.channels)),
            ("connection_creation_total", COUNTER, lambda one, _found: one.selector.stats.connections_created),
            ("connection_creation_rate", GAUGE, lambda _one, found: found.creation_rate),
            ("connection_close_total", COUNTER, lambda one, _found: one.selector.stats.connections_closed),
            ("connection_close_rate", GAUGE, lambda _one, found: found.close_rate),
        ):
            values = [(one, read(one, measured[id(one)])) for one in processors]
            yield from _socket_families(name, kind, [(_thread_tags(one), value) for one, value in values])
        yield from _socket_families("connections", GAUGE, list(_software(processors)))

    def _measure(self, processor: Processor) -> _Measured:
        before = self._measured.get(id(processor), _Measured())
        now_ns, cpu_ns = self._clock.nanoseconds(), _cpu_time_ns(processor)
        stats = processor.selector.stats
        created, closed = stats.connections_created, stats.connections_closed
        elapsed_ns = now_ns - before.now_ns
        if before.now_ns and elapsed_ns < _SECOND_NS:
            # Too soon after the last export to measure rates. The counts are kept for the next one.
            return before
        idle_share = None if cpu_ns is None else 1.0
        creation_rate = close_rate = 0.0
        if before.now_ns:
            seconds = elapsed_ns / _SECOND_NS
            creation_rate, close_rate = (created - before.created) / seconds, (closed - before.closed) / seconds
            if cpu_ns is not None:
                idle_share = min(1.0, max(0.0, 1 - (cpu_ns - before.cpu_ns) / elapsed_ns))
        return _Measured(now_ns, cpu_ns or 0, created, closed, idle_share, creation_rate, close_rate)


def _cpu_time_ns(processor: Processor) -> int | None:
    """Returns the CPU time of a network thread; None if it has ended, or on a system that does not measure it."""
    clock_of = getattr(time, "pthread_getcpuclockid", None)  # missing on macOS
    ident = processor.thread.ident
    if clock_of is None or ident is None or not processor.thread.is_alive():
        return None
    return time.clock_gettime_ns(clock_of(ident))


def _thread_tags(processor: Processor) -> dict[str, str]:
    return {"listener": processor.endpoint.listener_name, "networkProcessor": str(processor.id)}


def _software(processors: Sequence[Processor]) -> Iterator[tuple[dict[str, str], int]]:
    """Returns the number of connections by the software of their clients (KIP-511), the most frequent ones by name."""
    for one in processors:
        contexts = [channel.context for channel in list(one.selector.channels.values())]
        found = Counter(
            (context.client_software_name, context.client_software_version)
            for context in contexts
            if context is not None
        )
        shown = dict(found.most_common(MOST_SOFTWARE))
        if len(shown) < len(found):
            rest = found.total() - sum(shown.values())
            shown["other", "other"] = shown.get(("other", "other"), 0) + rest
        for (name, version), count in sorted(shown.items()):
            yield {"clientSoftwareName": name, "clientSoftwareVersion": version, **_thread_tags(one)}, count


def _socket_families(name: str, kind: str, values: list[tuple[dict[str, str], float]]) -> Iterator[MetricFamily]:
    """Returns a family of network threads under its usual name, and under the one of Confluent's dashboards."""
    text = f"{_SOCKETS} {name.replace('_', '-')}"
    usual = [(LabelSet(tags), value) for tags, value in values]
    yield MetricFamily.of(f"kafka_server_socket_server_metrics_{name}", kind, text, usual)
    other = [(LabelSet({_snake_case(key): tag for key, tag in tags.items()}), value) for tags, value in values]
    yield MetricFamily.of(f"kafka_server_socketservermetrics_{name}", kind, text, other)


def _snake_case(name: str) -> str:
    """Converts the name of a tag.

    >>> _snake_case("clientSoftwareName")
    'client_software_name'
    """
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


class LogDirMetrics:
    """The families of log directories."""

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs

    def families(self, selection: MetricSelection) -> Iterator[MetricFamily]:  # noqa: ARG002 - there are few
        directories, paces = self._logs.log_dirs, self._logs.paces
        labels = {path: LabelSet({"logDirectory": str(path)}) for path in directories.configured}
        offline = [(NO_LABELS, len(directories.offline_paths))]
        yield _gauge("kafka.log", "LogManager", "OfflineLogDirectoryCount", offline)
        down = [(label, int(not directories.is_live(path))) for path, label in labels.items()]
        yield _gauge("kafka.log", "LogManager", "LogDirectoryOffline", down)
        slow = [(label, int(paces.of(path).is_slow)) for path, label in labels.items()]
        yield _gauge("kafka.log", "LogManager", "LogDirectorySlow", slow)


class ClusterMetrics:
    """The families of a controller: counts of the whole cluster."""

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        self._image = image

    def families(self, selection: MetricSelection) -> Iterator[MetricFamily]:
        image = self._image()
        topics = image.topics.by_id.values()
        partitions = [one for topic in topics for one in topic.partitions.values()]
        brokers = image.cluster.brokers.values()
        for name, value in (
            ("ActiveBrokerCount", sum(not broker.fenced for broker in brokers)),
            ("FencedBrokerCount", sum(broker.fenced for broker in brokers)),
            ("GlobalTopicCount", len(image.topics.by_id)),
            ("GlobalPartitionCount", len(partitions)),
            ("OfflinePartitionsCount", sum(one.leader < 0 for one in partitions)),
            ("PreferredReplicaImbalanceCount", sum(one.leader != one.replicas[0] for one in partitions)),
        ):
            yield _gauge("kafka.controller", "KafkaController", name, [(NO_LABELS, value)])
        alive = [broker for broker in brokers if not broker.fenced]
        yield MetricFamily.of("kafka_brokers", GAUGE, "The number of active brokers.", [(NO_LABELS, len(alive))])
        info = [
            (LabelSet({"id": str(broker.id), "address": f"{endpoint.host}:{endpoint.port}"}), 1)
            for broker in alive
            for endpoint in list(broker.listeners.values())[:1]
        ]
        yield MetricFamily.of("kafka_broker_info", GAUGE, "The id and address of each active broker.", info)
        counts = [
            (LabelSet({"topic": topic.name}), len(topic.partitions)) for topic in topics if selection.topics(topic.name)
        ]
        yield MetricFamily.of("kafka_topic_partitions", GAUGE, "The number of partitions of a topic.", counts)


def _gauge(domain: str, kind: str, name: str, values: list[tuple[LabelSet, int]]) -> MetricFamily:
    text = f"{domain}:type={kind},name={name}"
    return MetricFamily.of(f"{domain.replace('.', '_')}_{kind}_{name}".lower(), GAUGE, text, values)
