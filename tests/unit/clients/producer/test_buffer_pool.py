"""The buffer pool: bounded, fair, and without leaks."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

import pytest
from benchmarks.waiting import until

from barnabas.clients.producer.errors import BufferExhaustedError, ProducerClosedError
from barnabas.clients.producer.internals.buffer_pool import BufferPool
from barnabas.common.clock import MockClock
from barnabas.common.errors import KafkaTimeoutError
from barnabas.metrics.names import MetricName
from barnabas.metrics.registry import Metrics

pytestmark = pytest.mark.mechanism("P06")


class Waiters:
    """Threads that allocate, and the order in which they got their memory."""

    def __init__(self, pool: BufferPool, clock: MockClock) -> None:
        self.pool = pool
        self.clock = clock
        self.got: list[str] = []
        self.errors: dict[str, BaseException] = {}
        self.threads: dict[str, threading.Thread] = {}

    def start(self, name: str, size: int, block_ms: float = 1_000) -> None:
        def target() -> None:
            try:
                self.pool.allocate(size, block_ms)
                self.got.append(name)
            except BaseException as error:  # noqa: BLE001 - looked at by the test
                self.errors[name] = error

        thread = self.threads[name] = threading.Thread(target=target, daemon=True)
        before = self.pool.queued
        thread.start()
        wait_until(lambda: self.pool.queued > before or not thread.is_alive())
        self.clock.await_waiters(before + 1, 1)

    def join(self, name: str) -> None:
        self.threads[name].join(60)
        assert not self.threads[name].is_alive()


def wait_until(condition: Callable[[], bool]) -> None:
    until(condition, "it never came to that", 60, pause_s=0.001)


def test_memory_comes_back() -> None:
    pool = BufferPool(64, 16)
    assert pool.allocate(16, 0) == 16
    assert (pool.available_memory(), pool.unallocated_memory()) == (48, 48)
    pool.deallocate(16)
    assert (pool.available_memory(), pool.unallocated_memory()) == (64, 48), "a poolable one goes to the free list"
    pool.allocate(16, 0)
    assert pool.unallocated_memory() == 48, "and is the first to be taken"
    pool.allocate(20, 0)
    pool.deallocate(20)
    assert pool.available_memory() == 48


def test_a_large_request_breaks_up_the_free_list() -> None:
    pool = BufferPool(64, 16)
    for _ in range(4):
        pool.allocate(16, 0)
    for _ in range(4):
        pool.deallocate(16)
    assert pool.unallocated_memory() == 0
    pool.allocate(40, 0)
    assert pool.available_memory() == 24
    pool.deallocate(40)
    assert pool.available_memory() == 64


def test_more_than_there_is() -> None:
    with pytest.raises(ValueError, match="hard limit of 64"):
        BufferPool(64, 16).allocate(65, 0)


def test_time_is_over_and_nothing_leaks() -> None:
    clock = MockClock()
    metrics = Metrics(clock=clock)
    pool = BufferPool(64, 16, metrics, clock)
    pool.allocate(40, 0)
    waiters = Waiters(pool, clock)
    waiters.start("large", 64, 100)
    assert pool.available_memory() == 0, "it has gathered what there was"
    clock.advance(101)
    waiters.join("large")
    error = waiters.errors["large"]
    assert isinstance(error, BufferExhaustedError)
    assert isinstance(error, KafkaTimeoutError)
    assert "Failed to allocate 64 bytes within the configured max blocking time 100 ms" in str(error)
    assert pool.available_memory() == 24
    assert pool.queued == 0
    total = metrics.metric(MetricName("buffer-exhausted-total", "producer-metrics"))
    assert total is not None
    assert total.value() == 1
    waited = metrics.metric(MetricName("bufferpool-wait-time-ns-total", "producer-metrics"))
    assert waited is not None
    assert waited.value() == 101_000_000


def test_first_come_first_served() -> None:
    """A large request is not overtaken by small ones, although there would be enough for them."""
    clock = MockClock()
    pool = BufferPool(64, 16, clock=clock)
    pool.allocate(64, 0)
    waiters = Waiters(pool, clock)
    waiters.start("large", 48)
    waiters.start("small", 16)
    pool.deallocate(16)
    pool.deallocate(16)
    assert waiters.got == []
    assert not pool.try_allocate(1), "nor by somebody who has just come"
    pool.deallocate(16)
    waiters.join("large")
    assert waiters.got == ["large"]
    pool.deallocate(16)
    waiters.join("small")
    assert waiters.got == ["large", "small"]


def test_nobody_takes_what_somebody_else_was_woken_for() -> None:
    """Memory has come back, and the first in the queue has been told, but did not get to it yet."""
    pool = BufferPool(64, 16)
    pool._waiters.append(threading.Condition(pool._lock))
    with pytest.raises(BufferExhaustedError):
        pool.allocate(16, 0)
    assert pool.available_memory() == 64


def test_one_that_gives_up_makes_way_for_the_next() -> None:
    clock = MockClock()
    pool = BufferPool(64, 16, clock=clock)
    pool.allocate(48, 0)
    waiters = Waiters(pool, clock)
    waiters.start("large", 64, 100)
    waiters.start("small", 16, 1_000)
    clock.advance(101)
    waiters.join("large")
    waiters.join("small")
    assert waiters.got == ["small"]
    assert pool.available_memory() == 0


def test_closing_turns_everybody_away() -> None:
    clock = MockClock()
    pool = BufferPool(64, 16, clock=clock)
    pool.allocate(64, 0)
    waiters = Waiters(pool, clock)
    waiters.start("one", 16)
    waiters.start("two", 16)
    pool.close()
    for name in ("one", "two"):
        waiters.join(name)
        assert isinstance(waiters.errors[name], ProducerClosedError)
    with pytest.raises(ProducerClosedError):
        pool.allocate(1, 0)
    with pytest.raises(ProducerClosedError):
        pool.try_allocate(1)


def test_many_threads_leak_nothing() -> None:
    pool = BufferPool(160, 16)

    def work(number: int) -> None:
        for turn in range(200):
            size = 16 if (turn + number) % 3 else 1 + (turn * 7 + number) % 100
            with contextlib.suppress(BufferExhaustedError):
                pool.deallocate(pool.allocate(size, 50))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert pool.available_memory() == 160
    assert pool.queued == 0


def test_what_comes_back_together_wakes_all_it_is_enough_for_in_turn() -> None:
    clock = MockClock()
    pool = BufferPool(100, 10, clock=clock)
    for _ in range(10):
        pool.allocate(10, 0)
    waiters = Waiters(pool, clock)
    waiters.start("large", 25)
    waiters.start("first", 10)
    waiters.start("second", 10)
    pool.deallocate_all([10, 10, 10, 10, 10])
    for name in ("large", "first", "second"):
        waiters.join(name)
    assert waiters.got[0] == "large"
    assert not waiters.errors
    assert pool.available_memory() == 5
    pool.deallocate_all([25, 10, 10, *[10] * 5])
    assert pool.available_memory() == 100
