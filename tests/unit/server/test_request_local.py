"""What belongs to one handler thread, and how a completion on another thread finds its way back to a handler."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.common.clock import MockClock
from barnabas.metrics.yammer.registry import MetricsRegistry
from barnabas.server.request import Request
from barnabas.server.request_local import RequestLocal
from barnabas.server.request_metrics import RequestTimes
from network_fixtures import WAIT_S, heartbeat, request_from

pytestmark = pytest.mark.mechanism("N13")

Queued = tuple[Callable[[RequestLocal], None], Request]


class Bench:
    """The local of this thread, and what was queued instead of being run."""

    def __init__(self) -> None:
        clock = MockClock()
        self.times = RequestTimes(MetricsRegistry(clock), clock)
        self.queued: list[Queued] = []
        self.local = self.make()
        self.completed: list[tuple[RequestLocal, Any]] = []

    def make(self) -> RequestLocal:
        return RequestLocal(lambda callback, request: self.queued.append((callback, request)))

    def request(self) -> Request:
        return request_from(heartbeat(1), self.times)

    def wrap(self) -> Callable[[Any], None]:
        return self.local.wrap_async_callback(lambda local, result: self.completed.append((local, result)))


def elsewhere(function: Callable[[], object]) -> None:
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    thread.join(WAIT_S)
    assert not thread.is_alive()


def test_a_completion_on_its_own_thread_runs_at_once() -> None:
    b = Bench()
    b.local.request = b.request()
    b.wrap()("result")
    assert b.completed == [(b.local, "result")]
    assert b.queued == []


def test_a_completion_on_a_foreign_thread_is_queued_for_its_request() -> None:
    b = Bench()
    b.local.request = request = b.request()
    complete = b.wrap()
    elsewhere(lambda: complete("result"))
    assert b.completed == []
    ((callback, queued_for),) = b.queued
    assert queued_for is request
    other = b.make()
    callback(other)
    assert b.completed == [(other, "result")], "with the local of whoever runs it"


def test_a_completion_after_the_handler_is_done_is_queued_even_on_its_own_thread() -> None:
    """The thread is at another request then, or at none: what belongs to it is in use."""
    b = Bench()
    b.local.request = first = b.request()
    complete = b.wrap()
    b.local.request = b.request()
    complete("while another one is handled")
    b.local.request = None
    complete("while none is")
    assert b.completed == []
    assert [request for _, request in b.queued] == [first, first]


def test_only_the_thread_that_handles_a_request_can_wrap() -> None:
    b = Bench()
    with pytest.raises(RuntimeError, match="can only be wrapped by the thread that handles the request"):
        b.wrap()
    b.local.request = b.request()
    failures: list[RuntimeError] = []

    def wrap() -> None:
        try:
            b.wrap()
        except RuntimeError as error:
            failures.append(error)

    elsewhere(wrap)
    assert len(failures) == 1


def test_a_local_knows_its_thread() -> None:
    b = Bench()
    assert b.local.is_confined
    seen: list[bool] = []
    elsewhere(lambda: seen.append(b.local.is_confined))
    assert seen == [False]
    assert not b.local.closed
    b.local.close()
    assert b.local.closed
