"""Quota managers on a mock clock, and requests to charge to them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from barnabas.common.clock import MockClock
from barnabas.metrics.registry import Metrics
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.quota.client_quota_callback import ClientQuotaCallback
from barnabas.quota.config import QuotaConfig, QuotaWindows
from barnabas.quota.quota_factory import QuotaManagers
from barnabas.security.principal import KafkaPrincipal
from barnabas.server.request import Request
from handler_fixtures import HandlerBench


class QuotaBench:
    """All managers of a node. One window is a second, and there are eleven, unless told otherwise."""

    def __init__(self, windows: QuotaWindows | None = None, callback: ClientQuotaCallback | None = None) -> None:
        windows = QuotaWindows() if windows is None else windows
        self.clock = MockClock()
        self.metrics = Metrics(clock=self.clock)
        self.managers = QuotaManagers.instantiate(
            QuotaConfig(windows, windows, windows, windows),
            self.metrics,
            self.clock,
            thread_name_prefix="broker-1-",
            callback=callback,
        )
        self.handlers = HandlerBench(self.managers, self.clock)

    @property
    def now_ms(self) -> int:
        return self.clock.milliseconds()

    def request(self, user: str | None = None, client_id: str | None = "client") -> Request:
        """One that was picked up by a handler just now."""
        principal = None if user is None else KafkaPrincipal("User", user)
        request = self.handlers.request(HeartbeatRequest(), 4, principal=principal, client_id=client_id)
        request.request_dequeue_time_ns = self.clock.nanoseconds()
        return request

    def produce(self, size: float, user: str | None = None, client_id: str | None = "client") -> int:
        """Charges so many bytes; for how long the client has to wait."""
        quota = self.managers.produce
        return quota.maybe_record_and_get_throttle_time_ms(self.request(user, client_id), size, self.now_ms)


class Muting:
    """Counts how often a channel is muted and unmuted."""

    def __init__(self) -> None:
        self.started = 0
        self.ended = 0

    def start_throttling(self) -> None:
        self.started += 1

    def end_throttling(self) -> None:
        self.ended += 1


@contextmanager
def quota_bench(
    windows: QuotaWindows | None = None, callback: ClientQuotaCallback | None = None
) -> Iterator[QuotaBench]:
    bench = QuotaBench(windows, callback)
    try:
        yield bench
    finally:
        bench.managers.shutdown()
