"""The metrics of a network client: connections, requests, bytes, and how the I/O thread spends its time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized
from typing import Final

from barnabas._kernels import reactor
from barnabas.metrics.metric import KafkaMetric
from barnabas.metrics.registry import Metrics
from barnabas.metrics.stats import CountedAvg, CountedMax, CountedRate, CountedTotal, Counter, Measurable
from barnabas.metrics.units import TimeUnit

SelectorStats = reactor.SelectorStats

TICK_MS: Final = 1_000
"""How often rates are updated from the counts."""
_LENGTH_PREFIX: Final = 4
_NS_PER_MS: Final = 1_000_000


class NodeTraffic:
    """The traffic of one node in both directions. Written by the I/O thread alone."""

    __slots__ = ("bytes_received", "bytes_sent", "largest", "requests", "responses")

    def __init__(self) -> None:
        self.requests = 0
        self.responses = 0
        self.bytes_sent = 0
        self.bytes_received = 0
        self.largest = 0
        """The size of the largest request since the last tick."""


class SelectorMetrics:
    """Counts the traffic of one network client, and exposes it under Kafka's names, in total and per node.

    Each request and each response only increments a few integers. Rates, averages and maxima are derived from them when
    they are read, and once a second, by `polled`, so that their windows are right (see `CountedRate`). Totals are
    always exact.

    The selector's own counts, connections and the time in ``select`` and after it, are in its `SelectorStats`.

    A connection without TLS and SASL has no authentication: it is ready as soon as it is established, so Kafka's
    authentication metrics stay zero. Brokers do not authenticate again, so a client's
    ``successful-authentication-no-reauth-total`` counts all authentications, as in Apache Kafka.
    """

    def __init__(self, metrics: Metrics, prefix: str, stats: SelectorStats) -> None:
        """``prefix`` begins the group: ``producer`` makes ``producer-metrics`` and ``producer-node-metrics``."""
        self._metrics = metrics
        self._stats = stats
        self._group = f"{prefix}-metrics"
        self._node_group = f"{prefix}-node-metrics"
        self._by_node: dict[str, NodeTraffic] = {}
        self._nodes: tuple[NodeTraffic, ...] = ()
        """The same, replaced as a whole when a node is added: any thread may iterate over them."""
        self._selects = 0
        self._next_tick_ms: int | None = None
        self._windowed: list[KafkaMetric] = []
        """Metrics that must be read periodically."""

        self._meter("connection-creation", "connections made", lambda: stats.connections_created)
        self._meter(
            "connection-close", "connections that ended, or could not be made", lambda: stats.connections_closed
        )
        self._meter("failed-authentication", "connections refused", lambda: stats.failed_authentications)
        self._meter("successful-authentication", "connections authenticated", lambda: stats.successful_authentications)
        self._meter(
            "successful-reauthentication",
            "connections authenticated once more",
            lambda: stats.successful_reauthentications,
        )
        self._meter(
            "failed-reauthentication",
            "connections refused when they authenticated once more",
            lambda: stats.failed_reauthentications,
        )
        self._add(
            "successful-authentication-no-reauth-total",
            "Total of connections authenticated whose peer does not authenticate again.",
            CountedTotal(lambda: stats.successful_authentications_no_reauth),
        )

        def reauthentications() -> int:
            return stats.successful_reauthentications

        self._add(
            "reauthentication-latency-avg",
            "Milliseconds of a re-authentication, on average.",
            CountedAvg(lambda: round(stats.reauthentication_ns / _NS_PER_MS), reauthentications),
        )
        self._add(
            "reauthentication-latency-max",
            "Milliseconds of a re-authentication, at most.",
            CountedMax(lambda: round(stats.longest_reauthentication_ns / _NS_PER_MS), reauthentications),
        )
        self._meter("request", "requests sent", self._requests)
        self._meter("response", "responses received", self._responses)
        self._meter("outgoing-byte", "bytes sent", self._bytes_sent)
        self._meter("incoming-byte", "bytes received", self._bytes_received)
        self._meter("network-io", "requests sent and responses received", lambda: self._requests() + self._responses())
        self._add("request-size-avg", "Bytes of a request, on average.", CountedAvg(self._bytes_sent, self._requests))
        self._add("request-size-max", "Bytes of a request, at most.", CountedMax(self._largest, self._requests))

        def selects() -> int:
            return self._selects

        self._meter("select", "times that the I/O thread looked for something to do", selects)
        self._times("io-wait", "waiting for something to happen", lambda: stats.select_ns, selects)
        self._times("io", "reading and writing", lambda: stats.io_ns, selects)

    def show_connections(self, open_now: Sized) -> None:
        """Sets the collection whose size is the number of connections, including those being made."""
        name = self._metrics.metric_name("connection-count", self._group, description="Connections that are open now.")
        self._metrics.add_metric(name, lambda *_: float(len(open_now)))

    # -- names

    def _add(self, name: str, description: str, stat: Measurable, tags: Mapping[str, str] | None = None) -> None:
        group = self._group if tags is None else self._node_group
        metric = self._metrics.add_metric(self._metrics.metric_name(name, group, tags, description), stat)
        if not isinstance(stat, CountedTotal):
            self._windowed.append(metric)

    def _meter(self, name: str, what: str, counter: Counter, tags: Mapping[str, str] | None = None) -> None:
        self._add(f"{name}-rate", f"Rate per second of {what}.", CountedRate(counter), tags)
        self._add(f"{name}-total", f"Total of {what}.", CountedTotal(counter), tags)

    def _times(self, name: str, what: str, nanoseconds: Counter, selects: Counter) -> None:
        ratio = CountedRate(nanoseconds, TimeUnit.NANOSECONDS)
        self._add(f"{name}-ratio", f"The share of its time that the I/O thread spends {what}.", ratio)
        self._add(f"{name}-time-ns-avg", f"Nanoseconds of a turn spent {what}.", CountedAvg(nanoseconds, selects))
        self._add(f"{name}-time-ns-total", f"Nanoseconds spent {what}.", CountedTotal(nanoseconds))

    # -- all nodes

    def _requests(self) -> int:
        return sum([node.requests for node in self._nodes])

    def _responses(self) -> int:
        return sum([node.responses for node in self._nodes])

    def _bytes_sent(self) -> int:
        return sum([node.bytes_sent for node in self._nodes])

    def _bytes_received(self) -> int:
        return sum([node.bytes_received for node in self._nodes])

    def _largest(self) -> int:
        return max([node.largest for node in self._nodes], default=0)

    # -- events, on the I/O thread

    def sent(self, node_id: str, size: int) -> None:
        """Counts a request of this many bytes."""
        node = self._by_node.get(node_id) or self._register(node_id)
        node.requests += 1
        node.bytes_sent += size
        node.largest = max(node.largest, size)

    def received(self, node_id: str, size: int) -> None:
        """Counts a response of this many bytes, plus its length prefix."""
        node = self._by_node.get(node_id) or self._register(node_id)
        node.responses += 1
        node.bytes_received += size + _LENGTH_PREFIX

    def polled(self, now: int) -> None:
        """Updates the windowed metrics after a poll of the network client."""
        self._selects += 1
        if self._next_tick_ms is None or now >= self._next_tick_ms:
            self._next_tick_ms = now + TICK_MS
            self._tick()

    def _tick(self) -> None:
        wall_ms = self._metrics.clock.milliseconds()
        for metric in self._windowed:
            metric.value(wall_ms)
        for node in self._nodes:
            node.largest = 0
        self._stats.longest_reauthentication_ns = 0

    def _register(self, node_id: str) -> NodeTraffic:
        node = self._by_node[node_id] = NodeTraffic()
        self._nodes = (*self._nodes, node)
        tags = {"node-id": f"node-{node_id}"}

        def of(field: str) -> Callable[[], int]:
            return lambda: int(getattr(node, field))

        requests, bytes_sent = of("requests"), of("bytes_sent")
        self._meter("request", "requests sent to a node", requests, tags)
        self._meter("response", "responses received from a node", of("responses"), tags)
        self._meter("outgoing-byte", "bytes sent to a node", bytes_sent, tags)
        self._meter("incoming-byte", "bytes received from a node", of("bytes_received"), tags)
        self._add("request-size-avg", "Bytes of a request, on average.", CountedAvg(bytes_sent, requests), tags)
        self._add("request-size-max", "Bytes of a request, at most.", CountedMax(of("largest"), requests), tags)
        return node
