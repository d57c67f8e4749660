"""Timers: the timing wheel beside a heap with lazy deletion.

Nearly all operations that wait are completed before their timeout, so what a timer has to be good at is taking tasks in
and giving them back. Each contender is filled with so many outstanding operations, and then, batch after batch, takes
in new ones, cancels 95 % as many, chosen at random among all that wait, and lets time pass so that the rest expire.
Sizes and contenders take turns, batch by batch, so that a noisy neighbour hits all of them; what is reported is the
median batch.

The heap is ``heapq`` under one lock, cancelling by a mark on the task. Its push and pop are written in C, and a mark is
all that its cancel does, so in the time of a single operation it is hard to beat from Python. What it does not do is
give anything back: a cancelled operation stays in the heap, with all that it refers to, until its timeout comes up.
"""

from __future__ import annotations

import gc
import heapq
import random
import statistics
import threading
import time
import tracemalloc
from typing import Any, Protocol

from barnabas.server.purgatory import DelayedOperation, DelayedOperationPurgatory
from barnabas.server.timer import SystemTimer, TimerTask
from benchmarks.measure import Row

SIZES = (10_000, 100_000, 1_000_000)
BATCH = 1_000
ROUNDS = 60
CANCELLED = 0.95
LONGEST_DELAY_MS = 60_000
FLAT = 1.5
"""The dearest size may cost so many times what the cheapest does."""
PAYLOAD = 4096
"""Bytes that an operation of the memory case holds on to, like a request waiting for its answer."""


class StillClock:
    """Time that the benchmark sets, at the cost of reading an attribute."""

    def __init__(self) -> None:
        self.now_ms = 0

    def milliseconds(self) -> int:
        return self.now_ms

    def nanoseconds(self) -> int:
        return self.now_ms * 1_000_000

    def hi_res_milliseconds(self) -> int:
        return self.now_ms

    def sleep(self, milliseconds: float) -> None:
        raise NotImplementedError("nothing in this benchmark sleeps")

    def wait(self, condition: threading.Condition, timeout_ms: float | None) -> bool:
        raise NotImplementedError("nothing in this benchmark waits")


class Task(TimerTask):
    __slots__ = ("expired", "payload")

    def __init__(self, delay_ms: int, payload: bytearray | None = None) -> None:
        super().__init__(delay_ms)
        self.expired = False
        self.payload = payload

    def run(self) -> None:
        self.expired = True


class HeapTask:
    __slots__ = ("cancelled", "delay_ms", "expired", "payload", "timer")

    def __init__(self, delay_ms: int, payload: bytearray | None = None) -> None:
        self.delay_ms = delay_ms
        self.timer: HeapTimer | None = None
        self.cancelled = False
        self.expired = False
        self.payload = payload

    def cancel(self) -> bool:
        assert self.timer is not None
        return self.timer.cancel(self)


class HeapTimer:
    """The textbook alternative."""

    def __init__(self, clock: StillClock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._heap: list[tuple[int, int, HeapTask]] = []
        self._sequence = 0
        self._size = 0

    def add(self, task: HeapTask) -> None:
        expiration = task.delay_ms + self._clock.hi_res_milliseconds()
        with self._lock:
            task.timer = self
            self._sequence += 1
            self._size += 1
            heapq.heappush(self._heap, (expiration, self._sequence, task))

    def cancel(self, task: HeapTask) -> bool:
        with self._lock:
            if task.cancelled or task.expired:
                return False
            task.cancelled = True
            self._size -= 1
            return True

    def advance_clock(self, _timeout_ms: int) -> bool:
        now = self._clock.hi_res_milliseconds()
        with self._lock:
            while self._heap and self._heap[0][0] <= now:
                task = heapq.heappop(self._heap)[2]
                if not task.cancelled:
                    task.expired = True
                    self._size -= 1
        return True

    def size(self) -> int:
        return self._size

    def held(self) -> int:
        return len(self._heap)

    def close(self) -> None:
        self._heap.clear()


class WheelTimer(SystemTimer):
    def held(self) -> int:
        """It holds what waits, and nothing else."""
        return self.size()


class Contender(Protocol):
    def add(self, task: Any) -> None: ...
    def advance_clock(self, timeout_ms: int) -> bool: ...
    def size(self) -> int: ...
    def held(self) -> int: ...
    def close(self) -> None: ...


class Load:
    """One contender at one size."""

    def __init__(self, contender: str, outstanding: int) -> None:
        self.contender = contender
        self.outstanding = outstanding
        self.clock = StillClock()
        self.timer: Contender
        self.task_type: type[Task | HeapTask]
        if contender == "timing wheel":
            self.timer, self.task_type = WheelTimer("bench", self.clock), Task
        else:
            self.timer, self.task_type = HeapTimer(self.clock), HeapTask
        self._chance = random.Random(outstanding)
        self._waiting: list[Any] = [self._task() for _ in range(outstanding)]
        for task in self._waiting:
            self.timer.add(task)
        self._passed_ms = 0.0
        self.costs: list[float] = []
        self.tick_costs: list[float] = []

    def _task(self) -> Any:
        return self.task_type(1 + int(self._chance.random() * LONGEST_DELAY_MS))

    def batch(self) -> None:
        timer, waiting = self.timer, self._waiting
        fresh = [self._task() for _ in range(BATCH)]
        leaving = [self._take() for _ in range(int(BATCH * CANCELLED))]
        add = timer.add
        started = time.perf_counter()
        for task in fresh:
            add(task)
        for task in leaving:
            task.cancel()
        ended = time.perf_counter()
        self.costs.append((ended - started) / BATCH)
        waiting += fresh
        # As many as were neither cancelled nor there before expire, so the number outstanding stays what it is.
        self._passed_ms += LONGEST_DELAY_MS * BATCH * (1 - CANCELLED) / self.outstanding
        self.clock.now_ms = int(self._passed_ms)
        started = time.perf_counter()
        timer.advance_clock(0)
        self.tick_costs.append((time.perf_counter() - started) / BATCH)

    def _take(self) -> Any:
        """A random one of those that wait; those that expired are let go of on the way."""
        waiting = self._waiting
        while True:
            index = int(self._chance.random() * len(waiting))
            waiting[index], waiting[-1] = waiting[-1], waiting[index]
            task = waiting.pop()
            if not task.expired:
                return task

    def row(self) -> dict[str, Any]:
        return {
            "case": "add + cancel",
            "contender": self.contender,
            "outstanding": self.outstanding,
            "add_cancel_us": statistics.median(self.costs) * 1e6,
            "tick_us": statistics.median(self.tick_costs) * 1e6,
            "waiting": self.timer.size(),
            "held": self.timer.held(),
        }


def run(rounds: int = ROUNDS) -> list[Row]:
    rows: list[Row] = []
    figures = measure(rounds)
    costs = {(figure["contender"], figure["outstanding"]): figure for figure in figures if "outstanding" in figure}
    wheel = [figure["add_cancel_us"] for (contender, _), figure in costs.items() if contender == "timing wheel"]
    for (contender, size), figure in costs.items():
        rate = 1e6 / figure["add_cancel_us"]
        case = f"add + cancel, {size:,} outstanding"
        if contender == "timing wheel" and size == SIZES[-1]:
            flatness = min(wheel) / max(wheel)
            rows.append(Row(case, contender, rate, "/s", flatness, "dearest size of cheapest", round(1 / FLAT, 2)))
        else:
            rows.append(Row(case, contender, rate, "/s"))
        rows += [
            Row(
                case,
                f"{contender}: with its share of ticking",
                1e6 / (figure["add_cancel_us"] + figure["tick_us"]),
                "/s",
            ),
            Row(case, f"{contender}: held in the end", figure["held"], "operations"),
        ]
    for figure in figures:
        if figure["case"] == "memory":
            case = f"memory of an operation with {PAYLOAD:,} bytes of its own, after cancel"
            freed = 1 - figure["bytes_after_cancel"] / figure["bytes_waiting"]
            target = 0.99 if figure["contender"] == "timing wheel" else None
            rows.append(Row(case, figure["contender"], figure["bytes_after_cancel"], "bytes", freed, "freed", target))
        elif figure["case"] == "purgatory":
            rows += [
                Row("purgatory", "park a fetch", 1e6 / figure["park_us"], "/s"),
                Row("purgatory", "complete it by an event", 1e6 / figure["complete_us"], "/s"),
            ]
    return rows


def measure(rounds: int = ROUNDS) -> list[dict[str, Any]]:
    """Every figure as it came out, in microseconds, bytes and operations."""
    return [*add_and_cancel(rounds), memory("timing wheel"), memory("heapq, lazy"), purgatory()]


def add_and_cancel(rounds: int) -> list[dict[str, Any]]:
    loads = [Load(contender, size) for size in SIZES for contender in ("timing wheel", "heapq, lazy")]
    gc.collect()
    for _ in range(rounds + 3):
        for load in loads:
            load.batch()
    for load in loads:
        del load.costs[:3], load.tick_costs[:3]  # warm-up
    rows = [load.row() for load in loads]
    for load in loads:
        load.timer.close()
    return rows


def memory(contender: str, count: int = 5_000) -> dict[str, Any]:
    """What is still allocated after operations were added, cancelled and dropped, for each of them."""
    load = Load(contender, 0)
    gc.collect()
    gc.disable()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    tasks = [load.task_type(30_000, bytearray(PAYLOAD)) for _ in range(count)]
    for task in tasks:
        load.timer.add(task)
    alive = tracemalloc.get_traced_memory()[0] - before
    for task in tasks:
        task.cancel()
    del task
    tasks.clear()
    left = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    gc.enable()
    load.timer.close()
    return {
        "case": "memory",
        "contender": contender,
        "bytes_waiting": alive / count,
        "bytes_after_cancel": left / count,
    }


class Fetch(DelayedOperation):
    __slots__ = ("ready",)

    def __init__(self) -> None:
        super().__init__(500)
        self.ready = False

    def try_complete(self) -> bool:
        return self.ready and self.force_complete()

    def on_complete(self) -> None:
        """The response would go out here."""

    def on_expiration(self) -> None:
        """Nor is anything counted."""


def purgatory(operations: int = 2_000, rounds: int = 15) -> dict[str, Any]:
    """A fetch parked under one key, and completed by an event for it."""
    purgatory: DelayedOperationPurgatory[Fetch] = DelayedOperationPurgatory(
        "bench", SystemTimer("bench", StillClock()), reaper_enabled=False
    )
    keys = [[("topic", number)] for number in range(operations)]
    parking, completing = [], []
    for _ in range(rounds):
        fetches = [Fetch() for _ in range(operations)]
        started = time.perf_counter()
        for fetch, key in zip(fetches, keys, strict=True):
            purgatory.try_complete_else_watch(fetch, key)
        parked = time.perf_counter()
        for fetch in fetches:
            fetch.ready = True
        began = time.perf_counter()
        for key in keys:
            purgatory.check_and_complete(key[0])
        ended = time.perf_counter()
        parking.append((parked - started) / operations)
        completing.append((ended - began) / operations)
        purgatory.advance_clock(0)
    purgatory.shutdown()
    return {
        "case": "purgatory",
        "contender": "timing wheel",
        "park_us": statistics.median(parking) * 1e6,
        "complete_us": statistics.median(completing) * 1e6,
    }


def main() -> None:
    figures = measure()
    print(f"add {BATCH:,}, cancel {CANCELLED:.0%} as many, let the rest expire; median of {ROUNDS} batches\n")
    print(f"  {'contender':<14}{'outstanding':>12}{'add+cancel':>14}{'tick, per add':>16}{'waiting':>12}{'held':>12}")
    wheel: list[float] = []
    for row in figures:
        if row["case"] == "add + cancel":
            print(
                f"  {row['contender']:<14}{row['outstanding']:>12,}{row['add_cancel_us']:>11.2f} us"
                f"{row['tick_us']:>13.2f} us{row['waiting']:>12,}{row['held']:>12,}"
            )
            if row["contender"] == "timing wheel":
                wheel.append(row["add_cancel_us"])
    ratio = max(wheel) / min(wheel)
    verdict = "reached" if ratio <= FLAT else "NOT REACHED"
    print(f"\n  dearest size of the wheel beside its cheapest: {ratio:.2f}x, at most {FLAT:g}x: {verdict}")
    print(f"\nbytes for an operation with {PAYLOAD:,} bytes of its own: while it waits, and after it was cancelled\n")
    for row in figures:
        if row["case"] == "memory":
            print(f"  {row['contender']:<14}{row['bytes_waiting']:>12,.0f}{row['bytes_after_cancel']:>12,.0f}")
        elif row["case"] == "purgatory":
            print(f"\npurgatory: parking {row['park_us']:.2f} us, completing by an event {row['complete_us']:.2f} us")


if __name__ == "__main__":
    main()
