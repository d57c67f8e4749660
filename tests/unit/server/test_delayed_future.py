"""Futures that are done in time, or fail with a timeout."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from barnabas.common.clock import MockClock
from barnabas.common.errors import KafkaTimeoutError
from barnabas.server.purgatory import DelayedFuturePurgatory
from barnabas.server.timer import SystemTimer
from barnabas.server.timer.mock_timer import MockTimer

WAIT_S = 60

pytestmark = pytest.mark.mechanism("N14")


@pytest.fixture
def purgatory() -> Iterator[DelayedFuturePurgatory]:
    purgatory = DelayedFuturePurgatory("Acl", MockTimer(), reaper_enabled=False)
    yield purgatory
    purgatory.shutdown()


class Callback:
    def __init__(self) -> None:
        self.calls: list[str] = []
        self.called = threading.Event()

    def __call__(self) -> None:
        self.calls.append(threading.current_thread().name)
        self.called.set()


def futures(count: int) -> list[Future[int]]:
    return [Future() for _ in range(count)]


def test_futures_that_are_done_complete_at_once_on_the_caller(purgatory: DelayedFuturePurgatory) -> None:
    done, callback = futures(2), Callback()
    done[0].set_result(1)
    done[1].set_exception(OSError("denied"))
    operation = purgatory.try_complete_else_watch(1_000, done, callback)
    assert operation.is_completed()
    assert callback.calls == [threading.current_thread().name]
    assert purgatory.watched() == purgatory.num_delayed() == 0


def test_no_futures_are_done(purgatory: DelayedFuturePurgatory) -> None:
    callback = Callback()
    assert purgatory.try_complete_else_watch(1_000, [], callback).is_completed()
    assert len(callback.calls) == 1


def test_the_last_future_completes_on_the_purgatorys_thread(purgatory: DelayedFuturePurgatory) -> None:
    pending, callback = futures(3), Callback()
    pending[1].set_result(1)
    operation = purgatory.try_complete_else_watch(1_000, pending, callback)
    pending[2].set_result(2)
    assert not operation.is_completed()
    assert purgatory.num_delayed() == 1
    pending[0].set_exception(OSError("denied"))
    assert callback.called.wait(WAIT_S)
    assert callback.calls == ["DelayedExecutor-Acl"]
    assert purgatory.num_delayed() == 0
    purgatory.shutdown()  # the executor has finished what it did
    assert purgatory.watched() == 0


def test_at_the_timeout_what_is_left_fails(purgatory: DelayedFuturePurgatory) -> None:
    pending, callback = futures(3), Callback()
    pending[0].set_result(1)
    operation = purgatory.try_complete_else_watch(1_000, pending, callback)
    purgatory.advance_clock(999)
    assert not operation.is_completed()
    purgatory.advance_clock(1)
    assert len(callback.calls) == 1
    assert pending[0].result(0) == 1
    for late in pending[1:]:
        with pytest.raises(KafkaTimeoutError, match="after 1000 ms"):
            late.result(0)
    purgatory.shutdown()
    assert len(callback.calls) == 1
    assert purgatory.watched() == 0  # the futures' own end took it off the lists, without a purge


def test_a_cancelled_future_is_done(purgatory: DelayedFuturePurgatory) -> None:
    pending, callback = futures(1), Callback()
    purgatory.try_complete_else_watch(1_000, pending, callback)
    pending[0].cancel()
    assert callback.called.wait(WAIT_S)


def test_a_result_after_shutdown_is_delivered_by_who_brings_it(purgatory: DelayedFuturePurgatory) -> None:
    pending, callback = futures(1), Callback()
    purgatory.try_complete_else_watch(1_000, pending, callback)
    purgatory.shutdown()
    pending[0].set_result(1)
    assert callback.calls == [threading.current_thread().name]


def test_results_and_timeout_together_call_back_once() -> None:
    for _ in range(50):
        timer = MockTimer()
        purgatory = DelayedFuturePurgatory("Race", timer, reaper_enabled=False)
        pending, callback = futures(4), Callback()
        purgatory.try_complete_else_watch(10, pending, callback)
        barrier = threading.Barrier(5)

        def bring(future: Future[int], barrier: threading.Barrier = barrier) -> None:
            barrier.wait(WAIT_S)
            if not future.done():
                try:
                    future.set_result(1)
                except Exception:  # noqa: BLE001 - the timeout was quicker
                    assert future.done()

        threads = [threading.Thread(target=bring, args=(future,)) for future in pending]
        for thread in threads:
            thread.start()
        barrier.wait(WAIT_S)
        purgatory.advance_clock(10)
        for thread in threads:
            thread.join(WAIT_S)
        assert callback.called.wait(WAIT_S)
        purgatory.shutdown()
        assert len(callback.calls) == 1
        assert all(future.done() for future in pending)


@pytest.mark.mechanism("N22")
def test_its_threads() -> None:
    before = set(threading.enumerate())
    purgatory = DelayedFuturePurgatory("Acl", SystemTimer("Acl", MockClock()), broker_id=2)
    threads = {thread.name: thread for thread in set(threading.enumerate()) - before}
    assert {name: thread.daemon for name, thread in threads.items()} == {
        "DelayedExecutor-Acl": True,
        "ExpirationReaper-2-Acl": False,
        "executor-Acl": False,
    }
    purgatory.shutdown()
    assert not any(thread.is_alive() for thread in threads.values())
