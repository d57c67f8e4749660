"""Request handlers: the threads that process requests from the request channel."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable
from typing import Any

from barnabas.common.clock import Clock
from barnabas.common.log_safety import LimitedLogger
from barnabas.metrics.yammer.registry import KafkaMetricsGroup, MetricsRegistry
from barnabas.server.dispatch import RequestRunner
from barnabas.server.request import Request
from barnabas.server.request_channel import SHUTDOWN, CallbackRequest

log = LimitedLogger(logging.getLogger(__name__))

RECEIVE_MS = 300
WAKE_AFTER = 16
"""How many responses a handler may send before it wakes their processors."""
_REPORT_IDLE_NS = 1_000_000
"""Idle time is reported in sums of at least this length: updating a meter costs more than a short wait."""


class KafkaRequestHandler:
    """One handler thread: takes items from the channel, runs them and measures its idle time."""

    def __init__(
        self, handler_id: int, name: str, runner: RequestRunner, clock: Clock, idle: Callable[[int], None]
    ) -> None:
        self.id = handler_id
        self._runner = runner
        self._now = clock.nanoseconds
        self._idle = idle
        self.thread = threading.Thread(target=self.run, name=name, daemon=True)

    def run(self) -> None:
        self._runner.placement()
        local = self._runner.new_local()
        channel = self._runner.channel
        receive = channel.receive_request
        take_short = channel.take_short_request
        is_bulk = channel.is_bulk
        run = self._runner.run
        to_wake = channel.defer_wakeups()
        idle_ns = 0
        try:
            while True:
                started = self._now()
                item: Any = receive(RECEIVE_MS)
                idle_ns += self._now() - started
                if idle_ns >= _REPORT_IDLE_NS:
                    self._idle(idle_ns)
                    idle_ns = 0
                if type(item) is Request:
                    if is_bulk(item):
                        self._runner.run_bulk(item, local)
                        continue
                    run(item, local)
                    for _ in range(WAKE_AFTER - 1):  # short requests behind it, within the wake-up limit
                        item = take_short()
                        if item is None:
                            break
                        run(item, local)
                elif item is SHUTDOWN:
                    return
                elif isinstance(item, CallbackRequest):
                    self._runner.run_callback(item, local)
                # else a wake-up or a timeout
                if to_wake:
                    channel.wake_processors(to_wake)
        except BaseException:
            log.exception("Request handler %d died", self.id)
            raise
        finally:
            local.close()


class KafkaRequestHandlerPool:
    """Runs ``num.io.threads`` handlers on one channel. The number can be changed at run time."""

    def __init__(
        self,
        runner: RequestRunner,
        num_threads: int,
        clock: Clock,
        *,
        idle: Callable[[int, int], None] = lambda _nanoseconds, _threads: None,
        name_prefix: str = "data-plane",
    ) -> None:
        if num_threads < 1:
            raise ValueError(f"num.io.threads must be at least 1, not {num_threads}")
        self._runner = runner
        self._clock = clock
        self._idle = idle
        self._name_prefix = name_prefix
        self._lock = threading.Lock()
        """Guards the list of handlers while it is resized."""
        self._handlers: list[KafkaRequestHandler] = []
        self._stopped = False
        self.resize_thread_pool(num_threads)

    @property
    def threads(self) -> list[threading.Thread]:
        return [handler.thread for handler in self._handlers]

    @property
    def size(self) -> int:
        return len(self._handlers)

    def resize_thread_pool(self, count: int) -> None:
        if count < 1:
            raise ValueError(f"num.io.threads must be at least 1, not {count}")
        with self._lock:
            if self._stopped:
                return
            before = len(self._handlers)
            taken = {handler.id for handler in self._handlers}  # not always 0 to n - 1: see below
            free = (number for number in itertools.count() if number not in taken)
            for handler_id in itertools.islice(free, max(count - before, 0)):
                handler = KafkaRequestHandler(
                    handler_id,
                    f"{self._name_prefix}-kafka-request-handler-{handler_id}",
                    self._runner,
                    self._clock,
                    self._report_idle,
                )
                self._handlers.append(handler)
                handler.thread.start()
            # Any handler may take a shutdown item, so only the number of handlers that stop is determined.
            for _ in range(before - count):
                self._runner.channel.send_shutdown()
            if count < before:
                self._await_survivors(count)
        if count != before:
            log.info("%s request handlers now, %s before", count, before)

    def _await_survivors(self, count: int) -> None:
        while sum(handler.thread.is_alive() for handler in self._handlers) > count:
            for handler in self._handlers:
                handler.thread.join(0.001)
        self._handlers = [handler for handler in self._handlers if handler.thread.is_alive()]

    def _report_idle(self, nanoseconds: int) -> None:
        self._idle(nanoseconds, max(len(self._handlers), 1))

    def shutdown(self) -> None:
        """Stops all handlers after their current item, and waits for them."""
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
            for _ in self._handlers:
                self._runner.channel.send_shutdown()
        for handler in self._handlers:
            handler.thread.join()


class HandlerIdleTime:
    """Three meters (KIP-1207): 1 means that all handlers of the node, its broker or its controller are always idle.

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
