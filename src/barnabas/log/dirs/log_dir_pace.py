"""Detects slow log directories, and moves their work to separate threads while they are slow.

A network thread appends records itself, because a write goes to the page cache and takes microseconds. It takes
seconds when the device stalls, or when the kernel throttles writers at its limit of dirty pages, and all clients of
the broker wait for that thread. So each log directory has a `LogDirPace`::

               a write took more than SLOW_WRITE_NS, or
               a sync has been in progress for STALLED_SYNC_NS
        quick ------------------------------------------------> slow
              <------------------------------------------------
               QUICK_WRITES writes in a row were quick, no sync is stalled, and
               ASIDE_FACTOR times the duration of the slow write has passed

While a directory is slow, writes to it run on the threads of its *lanes*, and network threads continue. The first slow
write is noticed only when it returns. ASIDE_FACTOR limits its cost for others: a directory that is slow again and again
blocks a network thread for one part in ASIDE_FACTOR of the time.

A quick directory costs a network thread one read of `LogDirPaces.attentive` per request and two clock readings per
append.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from barnabas.common.clock import SYSTEM_CLOCK, Clock

logger = logging.getLogger(__name__)

SLOW_WRITE_NS: Final = 20_000_000
"""A write to the page cache that takes longer has waited for the disk, or for a processor; see `run_delay_ns`."""
SURELY_SLOW_NS: Final = 1_000_000_000
"""A write that takes longer is slow even on a loaded machine: no thread waits so long for a processor."""
STALLED_SYNC_NS: Final = 1_000_000_000
"""A sync may take long on a healthy disk. One that takes longer than this indicates an overloaded disk, whose next
write may block."""
ASIDE_FACTOR: Final = 30
MAX_ASIDE_NS: Final = 60_000_000_000
QUICK_WRITES: Final = 8

LANE_THREADS: Final = 4
"""Per lane. With several, a stalled partition does not block all others of its directory, and the disk can combine
syncs of several partitions."""
LANE_IDLE_MS: Final = 10_000
"""How long a thread may be idle before it ends."""
CLOSE_TIMEOUT_MS: Final = 10_000
LANE_BYTES: Final = 128 << 20
"""How many bytes of records may wait in a lane, or be written by it."""

REMARKABLE_NS: Final = 500_000_000
"""A write that took this long is logged at level WARNING, a shorter one at INFO."""
LOG_INTERVAL_NS: Final = 60_000_000_000
"""The minimum time between two log lines that report a directory as slow."""

Task = Callable[[], None]


def run_delay_ns() -> int | None:
    """Returns how long the calling thread has waited for a processor since its start; None if unsupported.

    It costs a few system calls, so it is called only for a write that seems slow.
    """
    try:
        with Path("/proc/thread-self/schedstat").open("rb") as file:
            return int(file.read().split()[1])
    except (OSError, IndexError, ValueError):
        return None


class LogDirPaces:
    """The paces of all log directories of a broker."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK, run_delay: Callable[[], int | None] = run_delay_ns) -> None:
        self.clock = clock
        self._run_delay = run_delay
        self.attentive = False
        """Whether a request has to check the paces of its directories: a directory is slow or being synced, or a log
        has ``flush.messages``. Every request reads it without a lock."""
        self._lock = threading.Lock()
        """Guards the fields below and changes of `attentive`. Nothing else is locked inside it."""
        self._paces: dict[Path, LogDirPace] = {}
        self._reasons = 0
        self._sync_by_count = False
        self._thread = _Thread()

    def of(self, log_dir: Path) -> LogDirPace:
        """Returns the pace of a directory, created on first use."""
        with self._lock:
            pace = self._paces.get(log_dir)
            if pace is None:
                pace = self._paces[log_dir] = LogDirPace(log_dir, self)
            return pace

    def attend(self) -> None:
        """Adds a reason to check the paces."""
        with self._lock:
            self._reasons += 1
            self.attentive = True

    def relax(self) -> None:
        """Removes a reason to check the paces."""
        with self._lock:
            self._reasons -= 1
            self.attentive = self._reasons > 0

    def attend_syncs_by_count(self) -> None:
        """Makes requests check the paces from now on, because a log has ``flush.messages``."""
        if not self._sync_by_count:
            self._sync_by_count = True
            self.attend()

    @property
    def on_lane(self) -> bool:
        """Whether the calling thread belongs to a lane."""
        return self._thread.is_lane

    def enter_lane(self) -> None:
        """Marks the calling thread as a thread of a lane."""
        self._thread.is_lane = True

    def waited_for_processor(self, duration_ns: int) -> bool:
        """Returns whether the calling thread was delayed by the load of the machine, and not by the disk.

        It only knows how long the thread has waited for a processor since the last call, not when. If that is at least
        half of the duration, the disk does not count as slow.
        """
        delay_ns = self._run_delay()
        if delay_ns is None or duration_ns >= SURELY_SLOW_NS:
            return False
        waited_ns, self._thread.run_delay_ns = delay_ns - self._thread.run_delay_ns, delay_ns
        return waited_ns * 2 >= duration_ns

    def close(self, timeout_ms: float = CLOSE_TIMEOUT_MS) -> None:
        """Ends the threads of all lanes, and waits for their tasks, but at most `timeout_ms`."""
        with self._lock:
            paces = list(self._paces.values())
        deadline = self.clock.nanoseconds() + int(timeout_ms * 1_000_000)
        for pace in paces:
            for lane in (pace.appends, pace.coordination):
                remaining_ms = max((deadline - self.clock.nanoseconds()) / 1_000_000, 0)
                if not lane.close(remaining_ms):
                    logger.warning("Log directory %s is slow: %r is not waited for", pace.log_dir, lane)


class _Thread(threading.local):
    """State of the calling thread."""

    is_lane = False
    run_delay_ns = 0
    """The value at the last call of `waited_for_processor`."""


class LogDirPace:
    """Tracks whether one log directory is slow.

    >>> paces = LogDirPaces()
    >>> pace = paces.of(Path("/disk2"))
    >>> pace.wrote(2_000_000_000)
    >>> pace.is_slow, paces.attentive
    (True, True)
    """

    __slots__ = (
        "_aside_until_ns",
        "_expected_syncs",
        "_lock",
        "_logged_ns",
        "_now_ns",
        "_quick_writes",
        "_slow_since_ns",
        "_syncs",
        "_unlogged",
        "appends",
        "coordination",
        "is_slow",
        "log_dir",
        "paces",
    )

    def __init__(self, log_dir: Path, paces: LogDirPaces) -> None:
        self.log_dir = log_dir
        self.paces = paces
        self.is_slow = False
        """Read without a lock."""
        self.appends = Lane(f"slow-log-dir-append-{log_dir.name}", paces)
        """For the records of clients."""
        self.coordination = Lane(f"slow-log-dir-coordinator-{log_dir.name}", paces)
        """For the events of coordinators with partitions in this directory. A heartbeat must not wait for writes of
        client records."""
        self._now_ns = paces.clock.nanoseconds
        self._lock = threading.Lock()
        """Guards the fields below and changes of `is_slow`. The lock of `paces` is taken inside it."""
        self._aside_until_ns = 0
        self._quick_writes = 0
        self._slow_since_ns = 0
        self._logged_ns = -LOG_INTERVAL_NS
        self._unlogged = 0
        self._expected_syncs: Counter[Hashable] = Counter()
        self._syncs: list[int] = []
        """The start times of the syncs in progress, the oldest first."""

    def wrote(self, duration_ns: int) -> None:
        """Records a write. Called for every slow write, and for every write while the directory is slow."""
        now_ns = self._now_ns()
        if duration_ns > SLOW_WRITE_NS and self.paces.waited_for_processor(duration_ns):
            return
        with self._lock:
            if duration_ns > SLOW_WRITE_NS:
                aside_ns = min(duration_ns * ASIDE_FACTOR, MAX_ASIDE_NS)
                self._aside_until_ns = max(self._aside_until_ns, now_ns + aside_ns)
                self._becomes_slow(now_ns, duration_ns, "a write took")
                return
            if not self.is_slow:
                return
            self._quick_writes += 1
            if self._quick_writes < QUICK_WRITES or now_ns < self._aside_until_ns or self._stalled_ns(now_ns):
                return
            self.is_slow = False
            self.paces.relax()
            if self._logged_ns >= self._slow_since_ns:
                logger.info(
                    "Log directory %s is quick again after %d ms",
                    self.log_dir,
                    (now_ns - self._slow_since_ns) // 1_000_000,
                )

    def is_aside(self) -> bool:
        """Returns whether writes to the directory have to run on a lane."""
        if self.is_slow:
            return True
        if self._syncs:
            now_ns = self._now_ns()
            with self._lock:
                stalled_ns = self._stalled_ns(now_ns)
                if stalled_ns:
                    self._becomes_slow(now_ns, stalled_ns, "a sync has been in progress for")
                    return True
        return False

    def expect_sync(self, partition: Hashable) -> None:
        """Announces an append on a lane that will sync the log of a partition.

        It holds the lock of that log meanwhile, so other appends to the log must use the lane too.
        """
        with self._lock:
            self._expected_syncs[partition] += 1

    def sync_done(self, partition: Hashable) -> None:
        """Undoes one call of `expect_sync`."""
        with self._lock:
            self._expected_syncs[partition] -= 1
            if not self._expected_syncs[partition]:
                del self._expected_syncs[partition]

    def expects_sync(self, partition: Hashable) -> bool:
        return partition in self._expected_syncs

    @contextmanager
    def syncing(self) -> Iterator[None]:
        """Registers a sync for the duration of a ``with`` block."""
        began_ns = self._now_ns()
        with self._lock:
            self._syncs.append(began_ns)
            self.paces.attend()
        try:
            yield
        finally:
            with self._lock:
                self._syncs.remove(began_ns)
                self.paces.relax()

    def forget(self) -> None:
        """Resets the state of an offline directory, because no further write can end its slow state."""
        with self._lock:
            if self.is_slow:
                self.is_slow = False
                self.paces.relax()

    def _stalled_ns(self, now_ns: int) -> int:
        """Returns the age of a stalled sync; 0 if there is none. The lock must be held."""
        age = now_ns - self._syncs[0] if self._syncs else 0
        return age if age > STALLED_SYNC_NS else 0

    def _becomes_slow(self, now_ns: int, duration_ns: int, what: str) -> None:
        self._quick_writes = 0
        if self.is_slow:
            return
        self.is_slow = True
        self._slow_since_ns = now_ns
        self.paces.attend()
        if now_ns - self._logged_ns < LOG_INTERVAL_NS:
            self._unlogged += 1
            return
        logger.log(
            logging.WARNING if duration_ns >= REMARKABLE_NS else logging.INFO,
            "Log directory %s is slow: %s %d ms. Requests that write to it wait on threads of their own until it is "
            "quick again. (It has been slow %d times since this was last logged.)",
            self.log_dir,
            what,
            duration_ns // 1_000_000,
            self._unlogged + 1,
        )
        self._logged_ns = now_ns
        self._unlogged = 0

    def __repr__(self) -> str:
        return f"LogDirPace({self.log_dir}, {'slow' if self.is_slow else 'quick'}, {self.appends!r})"


class Lane:
    """Runs tasks that may wait for a disk on its own threads, in the order of submission.

    The threads ``<name>-<n>`` are created on demand, and end after LANE_IDLE_MS without a task. The number of tasks
    needs no bound: a connection has at most one request in progress, and a coordinator at most one event for each of
    its partitions. The records of these requests are bounded by LANE_BYTES.
    """

    def __init__(self, name: str, paces: LogDirPaces) -> None:
        self._name = name
        self._paces = paces
        self._changed = threading.Condition()
        """Guards everything below. Only the clock is called while it is held."""
        self._tasks: deque[tuple[Task, int]] = deque()
        self._bytes = 0
        self._idle = 0
        self._threads: set[threading.Thread] = set()
        self._started = 0
        self._closed = False

    def submit(self, task: Task, size: int = 0) -> bool:
        """Runs a task on a thread of the lane, or on the calling thread if the lane is closed.

        `size` is the number of bytes of records that the task holds. Returns False, without running the task, if they
        do not fit beside those of other tasks.
        """
        with self._changed:
            if not self._closed:
                if size and self._bytes and self._bytes + size > LANE_BYTES:
                    return False
                self._bytes += size
                self._tasks.append((task, size))
                if self._idle >= len(self._tasks):
                    self._changed.notify()
                elif len(self._threads) < LANE_THREADS:
                    thread = threading.Thread(target=self._work, name=f"{self._name}-{self._started}", daemon=True)
                    self._started += 1
                    self._threads.add(thread)
                    thread.start()
                return True
        task()
        return True

    @property
    def queued(self) -> int:
        """The number of tasks that wait for a thread."""
        return len(self._tasks)

    @property
    def held_bytes(self) -> int:
        """The bytes of records of the tasks that wait or run."""
        return self._bytes

    @property
    def threads(self) -> int:
        return len(self._threads)

    def close(self, timeout_ms: float) -> bool:
        """Waits for the tasks in the lane; returns False on a timeout, and leaves the tasks running."""
        clock = self._paces.clock
        deadline = clock.nanoseconds() + int(timeout_ms * 1_000_000)
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            while self._threads:
                remaining_ms = (deadline - clock.nanoseconds()) / 1_000_000
                if remaining_ms <= 0:
                    return False
                clock.wait(self._changed, remaining_ms)
            return True

    def _work(self) -> None:
        self._paces.enter_lane()
        while (taken := self._next()) is not None:
            task, size = taken
            try:
                task()
            except Exception:
                logger.exception("A task of %s failed", self._name)
            del task, taken  # it may hold the records of a large request
            if size:
                with self._changed:
                    self._bytes -= size

    def _next(self) -> tuple[Task, int] | None:
        """Returns the next task; None ends the thread, because it was idle too long or the lane is closed."""
        clock = self._paces.clock
        deadline = clock.nanoseconds() + LANE_IDLE_MS * 1_000_000
        with self._changed:
            while not self._tasks:
                remaining_ms = (deadline - clock.nanoseconds()) / 1_000_000
                if self._closed or remaining_ms <= 0:
                    self._threads.discard(threading.current_thread())
                    self._changed.notify_all()
                    return None
                self._idle += 1
                try:
                    clock.wait(self._changed, remaining_ms)
                finally:
                    self._idle -= 1
            return self._tasks.popleft()

    def __repr__(self) -> str:
        return f"Lane({self._name}, {len(self._tasks)} queued, {len(self._threads)} threads)"
