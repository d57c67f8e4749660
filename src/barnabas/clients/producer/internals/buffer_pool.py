"""The memory of a producer: how much of it records may take up, and who waits for it."""

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
    """Hands out memory, never more than ``buffer.memory`` of it, to whoever has waited longest.

    What it hands out is the *right* to so many bytes. The bytes themselves belong to the batch builder, and come from
    Python's allocator, which keeps freed blocks for the next one; keeping them here once more would only delay that. It
    does not keep large ones: those have `SpareBuffers`.
    What matters is that the sum is bounded and that nobody starves:

    * Almost every batch takes ``poolable_size`` bytes, which is ``batch.size``. Rights of that size which come back go
      to the free list, from where the next batch takes one in a single step. A larger request breaks up as many of
      them as it needs.
    * When there is not enough, the thread waits in a queue, and only the first in the queue is ever woken. It takes
      what there is, and goes on waiting for the rest: a large request, which needs several batches to come back, is so
      not overtaken for ever by small ones.
    * Whoever gives up, because of the time or because the producer is closed, gives back what it had gathered.

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
        """Guards all fields below; the conditions of the waiters are conditions of this lock. Nothing else is locked
        inside it but the metrics' own locks, and no queue's lock is held by whoever waits here."""
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
        """Takes so many bytes, waiting for them for at most so long; returns the size.

        Raises `BufferExhaustedError` when that is not long enough, `ProducerClosedError` when the pool is closed.
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
                # Not past those who wait: memory that is there is theirs, and the first of them is being woken up.
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
                # There may be something left for the next one, who was not told as long as this one was first.
                if self._waiters and (self._unallocated or self._free):
                    self._waiters[0].notify()

    def try_allocate(self, size: int) -> bool:
        """Takes so many bytes if that is possible without waiting."""
        with self._lock:
            if self._closed:
                raise ProducerClosedError("Producer closed while allocating memory")
            if self._waiters or self._unallocated + self._free * self.poolable_size < size:
                return False
            if size == self.poolable_size and self._free:
                self._free -= 1
            else:
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
        """Breaks up rights on the free list until there is enough outside of it, or none left."""
        missing = size - self._unallocated
        if missing > 0 and self._free:
            count = min(self._free, -(-missing // self.poolable_size))
            self._free -= count
            self._unallocated += count * self.poolable_size

    def deallocate(self, size: int) -> None:
        """Gives back what `allocate` returned."""
        with self._lock:
            if size == self.poolable_size:
                self._free += 1
            else:
                self._unallocated += size
            if self._waiters:
                self._waiters[0].notify()

    def deallocate_all(self, sizes: Iterable[int]) -> None:
        """`deallocate` for several; the first of those who wait wakes up once, and passes on what it does not need."""
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
        """Everybody who waits is turned away, and nobody is let in."""
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
        """How many threads wait."""
        return len(self._waiters)

    def __repr__(self) -> str:
        return f"BufferPool({self.available_memory()} of {self.total_memory} bytes available, {self.queued} waiting)"
