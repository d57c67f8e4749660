"""Bounds the memory of a producer's records; threads wait here for memory."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from typing import Final

from barnabas.clients.producer.errors import BufferExhaustedError, ProducerClosedError
from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.metrics.registry import Metrics
from barnabas.metrics.stats import Meter
from barnabas.metrics.units import TimeUnit

WAIT_TIME_SENSOR_NAME: Final = "bufferpool-wait-time"


class BufferPool:
    """Allocates at most ``buffer.memory`` bytes, to the thread that has waited longest.

    An allocation is only a *reservation*. The bytes belong to the batch builder and come from Python's allocator, which
    already reuses freed blocks; large ones are reused by `SpareBuffers`.
    The pool bounds the sum and prevents starvation:

    * Almost every batch takes ``poolable_size`` bytes, which is ``batch.size``. Freed reservations of that size go to
      the free list, from where the next batch takes one in a single step. A larger request breaks up as many of them as
      it needs.
    * When there is not enough, the thread waits in a queue, and only the first in the queue is woken. It takes the
      available memory and waits for the rest, so that small requests cannot overtake a large one for ever.
    * A thread that gives up, by timeout or because the producer is closed, returns the memory it has gathered.

    At all times, ``available_memory() == unallocated + len(free list) * poolable_size <= total_memory``.
    """

    def __init__(
        self,
        memory: int,
        poolable_size: int,
        metrics: Metrics | None = None,
        clock: Clock = SYSTEM_CLOCK,
        group: str = "producer-metrics",
    ) -> None:
        self.total_memory = memory
        self.poolable_size = poolable_size
        self._clock = clock
        self._lock = threading.Lock()
        """Guards all fields below; the waiters' conditions use this lock. Only the metrics' locks are taken inside it,
        and no waiting thread holds a queue's lock."""
        self._free = 0
        self._unallocated = memory
        self._waiters: deque[threading.Condition] = deque()
        self._closed = False
        metrics = Metrics(clock=clock) if metrics is None else metrics
        name = metrics.metric_name
        self._wait_time = metrics.sensor(WAIT_TIME_SENSOR_NAME)
        ratio = name("bufferpool-wait-ratio", group, description="The part of the time that appenders wait for memory.")
        total = name("bufferpool-wait-time-ns-total", group, description="The time that appenders waited for memory.")
        self._wait_time.add_compound(Meter(ratio, total, TimeUnit.NANOSECONDS))
        self._exhausted = metrics.sensor("buffer-exhausted-records")
        self._exhausted.add_compound(
            Meter(
                name("buffer-exhausted-rate", group, description="Records per second dropped for want of memory."),
                name("buffer-exhausted-total", group, description="Records dropped for want of memory."),
            )
        )

    def allocate(self, size: int, max_time_to_block_ms: float) -> int:
        """Reserves ``size`` bytes, and blocks for at most the given time; returns the size.

        Raises `BufferExhaustedError` on timeout, `ProducerClosedError` when the pool is closed.
        """
        if size > self.total_memory:
            raise ValueError(
                f"Attempt to allocate {size} bytes, but there is a hard limit of {self.total_memory} on memory "
                "allocations."
            )
        with self._lock:
            if self._closed:
                raise ProducerClosedError("Producer closed while allocating memory")
            try:
                # Do not overtake waiters: available memory is theirs, and the first of them is being woken.
                if not self._waiters:
                    if size == self.poolable_size and self._free:
                        self._free -= 1
                        return size
                    if self._unallocated + self._free * self.poolable_size >= size:
                        self._free_up(size)
                        self._unallocated -= size
                        return size
                self._wait_for(size, max_time_to_block_ms)
                return size
            finally:
                # Wake the next waiter: memory may be left, and only the first waiter was notified.
                if self._waiters and (self._unallocated or self._free):
                    self._waiters[0].notify()

    def try_allocate(self, size: int) -> bool:
        """Reserves ``size`` bytes if that is possible without waiting."""
        with self._lock:
            if self._closed:
                raise ProducerClosedError("Producer closed while allocating memory")
            if self._waiters or self._unallocated + self._free * self.poolable_size < size:
                return False
            if size == self.poolable_size and self._free:
                self._free -= 1
            else:
                if size > self._unallocated:
                    self._free_up(size)
                self._unallocated -= size
            return True

    def _wait_for(self, size: int, max_time_to_block_ms: float) -> None:
        accumulated = 0
        more_memory = threading.Condition(self._lock)
        remaining_ns = int(max_time_to_block_ms * 1_000_000)
        self._waiters.append(more_memory)
        try:
            while True:
                if self._waiters[0] is more_memory:
                    if not accumulated and size == self.poolable_size and self._free:
                        self._free -= 1
                        accumulated = size
                    else:
                        self._free_up(size - accumulated)
                        got = min(size - accumulated, self._unallocated)
                        self._unallocated -= got
                        accumulated += got
                    if accumulated == size:
                        accumulated = 0
                        return
                if remaining_ns <= 0:
                    self._exhausted.record()
                    raise BufferExhaustedError(
                        f"Failed to allocate {size} bytes within the configured max blocking time "
                        f"{max_time_to_block_ms} ms. Total memory: {self.total_memory} bytes. Available memory: "
                        f"{self._available()} bytes. Poolable size: {self.poolable_size} bytes"
                    )
                started = self._clock.nanoseconds()
                self._clock.wait(more_memory, remaining_ns / 1_000_000)
                waited = max(0, self._clock.nanoseconds() - started)
                self._wait_time.record(waited)
                remaining_ns -= waited
                if self._closed:
                    raise ProducerClosedError("Producer closed while allocating memory")
        finally:
            self._unallocated += accumulated
            self._waiters.remove(more_memory)

    def _free_up(self, size: int) -> None:
        """Breaks up entries of the free list until enough is unallocated, or the list is empty."""
        missing = size - self._unallocated
        if missing > 0 and self._free:
            count = min(self._free, -(-missing // self.poolable_size))
            self._free -= count
            self._unallocated += count * self.poolable_size

    def deallocate(self, size: int) -> None:
        """Frees a reservation of `allocate`."""
        with self._lock:
            if size == self.poolable_size:
                self._free += 1
            else:
                self._unallocated += size
            if self._waiters:
                self._waiters[0].notify()

    def deallocate_all(self, sizes: Iterable[int]) -> None:
        """Frees several reservations. The first waiter wakes up once, and passes on the rest."""
        poolable_size = self.poolable_size
        with self._lock:
            for size in sizes:
                if size == poolable_size:
                    self._free += 1
                else:
                    self._unallocated += size
            if self._waiters:
                self._waiters[0].notify()

    def close(self) -> None:
        """Fails all waiting threads and all later allocations."""
        with self._lock:
            self._closed = True
            for waiter in self._waiters:
                waiter.notify()

    def _available(self) -> int:
        return self._unallocated + self._free * self.poolable_size

    def available_memory(self) -> int:
        with self._lock:
            return self._available()

    def unallocated_memory(self) -> int:
        with self._lock:
            return self._unallocated

    @property
    def queued(self) -> int:
        """The number of waiting threads."""
        return len(self._waiters)

    def __repr__(self) -> str:
        return f"BufferPool({self.available_memory()} of {self.total_memory} bytes available, {self.queued} waiting)"
