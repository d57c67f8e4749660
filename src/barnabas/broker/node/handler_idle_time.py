"""The idle time of the request handlers of a node, in all and by role (KIP-1207)."""

from __future__ import annotations

import threading
from collections.abc import Callable

from barnabas.metrics.yammer.registry import KafkaMetricsGroup, MetricsRegistry


class HandlerIdleTime:
    """Three meters: 1 means that all handlers of the node, of its broker or of its controller are always idle.

        RequestHandlerAvgIdlePercent              the mean over the handlers of all roles
        BrokerRequestHandlerAvgIdlePercent        the mean over those of the broker
        ControllerRequestHandlerAvgIdlePercent    the mean over those of the controller

    The broker and the controller of a node have a pool each. Each handler measures its own idle time, so its share of a
    mean is that time divided by the number of handlers.
    """

    def __init__(self, registry: MetricsRegistry) -> None:
        self._group = KafkaMetricsGroup(registry, "kafka.server", "KafkaRequestHandlerPool")
        self._all = self._group.new_idle_meter("RequestHandlerAvgIdlePercent", "percent")
        self._lock = threading.Lock()
        """Guards the fields below. No other lock is taken inside it."""
        self._threads: dict[str, int] = {}
        self._total = 0

    def of(self, role: str) -> Callable[[int, int], None]:
        """Returns the function that a pool calls with the idle nanoseconds of a handler and the size of the pool."""
        own = self._group.new_idle_meter(f"{role.title()}RequestHandlerAvgIdlePercent", "percent")

        def report(nanoseconds: int, threads: int) -> None:
            if self._threads.get(role) != threads:
                self._resized(role, threads)
            self._all.waited(nanoseconds, self._total)
            own.waited(nanoseconds, threads)

        return report

    def _resized(self, role: str, threads: int) -> None:
        with self._lock:
            self._threads[role] = threads
            self._total = sum(self._threads.values())
