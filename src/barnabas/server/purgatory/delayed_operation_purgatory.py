"""The purgatory: holds delayed operations until an event or their timeout."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Hashable
from typing import Generic, TypeVar

from barnabas.common.shutdownable_thread import ExitProcedure, ShutdownableThread, exit_process
from barnabas.server.purgatory.delayed_operation import DelayedOperation
from barnabas.server.purgatory.watcher_list import WatcherList
from barnabas.server.timer.timer_task import Timer, TimerClosedError

log = logging.getLogger(__name__)

T = TypeVar("T", bound=DelayedOperation)

SHARDS = 512
"""The number of watcher lists, each with its own lock, that the keys are spread over."""

DEFAULT_PURGE_INTERVAL = 1000

REAPER_TICK_MS = 200
"""The longest that the reaper waits for a bucket to expire before it checks whether to purge."""


class _Shards(dict[int, WatcherList[T]], Generic[T]):
    """Watcher lists by shard number, created on first use: a broker has half a dozen purgatories."""

    def __missing__(self, number: int) -> WatcherList[T]:
        return self.setdefault(number, WatcherList())  # two threads get the same list

    def made(self) -> list[WatcherList[T]]:
        return list(self.values())


class DelayedOperationPurgatory(Generic[T]):
    """Holds operations, each watched under the keys whose events may complete it, and on a timer.

    A fetch from partitions ``a-0`` and ``b-3`` is parked under both::

        purgatory.try_complete_else_watch(fetch, [("a", 0), ("b", 3)])

    A thread that appends to one of them calls::

        purgatory.check_and_complete(("a", 0))

    which lets every operation under that key try to complete. The timer completes operations that no event completes.

    **No event is missed.** :meth:`try_complete_else_watch` tries first, because most operations can be completed at
    once and are never parked. If that fails, it puts the operation under all its keys and tries once more, however many
    keys there are. The second attempt sees every event that came too early to find the operation, because the change
    is made before it is announced. The operation's lock is held from the first attempt to the second, so an event that
    finds the operation in between waits for the outcome.

    **Locks.** Operation, then watcher list or timer; all code here keeps that order. It cannot control the locks that
    operations take themselves: if ``try_complete`` takes lock L, and a thread that holds L calls
    :meth:`check_and_complete`, the two may deadlock. So do not call it with any lock held. Put it on the
    :class:`~barnabas.server.action_queue.ActionQueue`, which runs it when the request's locks are free.

    **Purge.** A completed operation leaves the timer at once, and the list of the key whose event completed it. Under
    its other keys it stays until an event there or a purge. A key may never see another event, so the lists must be
    purged. A purge walks all lists, so it is done only when enough has gathered: the purgatory counts the operations it
    has parked and subtracts those still on the timer. When more than ``purge_interval`` remain, it purges and restarts
    the count. With an interval of 0 it purges whenever there is anything to purge, for operations that hold large
    buffers.

    (The count is raised after the operation is on the timer, not before as in Kafka. Otherwise a purge in between would
    restart from a count without the operation, while the timer soon counts it, and every such operation would hide a
    completed one from then on.)

    **Threads.** A reaper advances the timer; the timer's executor expires operations. With ``reaper_enabled=False``
    the owner calls :meth:`advance_clock`; with ``timer_enabled=False`` operations never expire.
    """

    def __init__(
        self,
        name: str,
        timer: Timer,
        broker_id: int = 0,
        purge_interval: int = DEFAULT_PURGE_INTERVAL,
        reaper_enabled: bool = True,
        timer_enabled: bool = True,
        exit_procedure: ExitProcedure = exit_process,
    ) -> None:
        self.name = name
        self._timer = timer
        self._purge_interval = purge_interval
        self._timer_enabled = timer_enabled
        self._shards: _Shards[T] = _Shards()
        self._estimate_lock = threading.Lock()
        """Guards the estimate. The timer's lock may be taken while it is held."""
        self._estimated_total = 0
        self._reaper: ExpiredOperationReaper | None = None
        if reaper_enabled:
            self._reaper = ExpiredOperationReaper(self, timer, broker_id, exit_procedure)
            self._reaper.start()

    def try_complete_else_watch(self, operation: T, keys: Collection[Hashable]) -> bool:
        """Completes the operation if that is possible now, otherwise parks it under the keys.

        Returns True if this call completed it. After False another thread may have completed it. If its
        ``try_complete`` raises, this call raises the same error and the operation is not parked.
        """
        if not keys:
            raise ValueError(f"{operation!r} has no key to be watched under: no event could complete it")
        watched = False

        def watch() -> None:
            nonlocal watched
            watched = True
            for key in keys:
                self._shards[hash(key) % SHARDS].watch(key, operation)

        try:
            if operation.safe_try_complete_or_else(watch):
                return True
            if self._timer_enabled and not operation.is_completed():
                self._add_to_timer(operation)
        except BaseException:
            # The caller now sends this error as the response, so no event may let the operation send a second one.
            operation.abandon()
            raise
        finally:
            if watched:
                with self._estimate_lock:
                    self._estimated_total += 1
        return False

    def _add_to_timer(self, operation: T) -> None:
        try:
            self._timer.add(operation)
        except TimerClosedError:
            # Shutting down: nothing would expire the operation later, so it expires now.
            operation.run()
            return
        if operation.is_completed():
            # An event completed it in the meantime, and its cancel came before the add.
            operation.cancel()

    def check_and_complete(self, key: Hashable) -> int:
        """Lets the operations under a key try to complete; returns how many did. Call it with no lock held."""
        completed = self._shards[hash(key) % SHARDS].try_complete(key)
        if completed:
            log.debug("%r completed %d operations of purgatory %s", key, completed, self.name)
        return completed

    def is_watched(self, key: Hashable) -> bool:
        """Whether any operation waits under a key.

        A caller that has made a change and gets False needs no check_and_complete: an operation that is parked later
        tries again after it is on the list, and sees the change.
        """
        shard = self._shards.get(hash(key) % SHARDS)
        return shard is not None and key in shard.watched

    def watched(self) -> int:
        """Counts the entries of all watcher lists: an operation counts once per key, until it is purged."""
        return sum(shard.count() for shard in self._shards.made())

    def watched_keys(self) -> list[Hashable]:
        """Returns the keys that have operations."""
        return [key for shard in self._shards.made() for key in shard.watched_keys()]

    def num_delayed(self) -> int:
        """Counts the operations on the timer."""
        return self._timer.size()

    def advance_clock(self, timeout_ms: int) -> None:
        """Runs one turn of the reaper: waits at most ``timeout_ms`` for expirations, then purges if necessary."""
        self._timer.advance_clock(timeout_ms)
        with self._estimate_lock:
            # Both counts are read under the lock, otherwise an operation parked in between would be lost.
            delayed = self._timer.size()
            if self._estimated_total - delayed <= self._purge_interval:
                return
            self._estimated_total = delayed
        purged = sum(shard.purge() for shard in self._shards.made())
        log.debug("purged %d entries from the watcher lists of purgatory %s", purged, self.name)

    def shutdown(self) -> None:
        """Stops the reaper and the timer and joins their threads. Parked operations are left as they are."""
        if self._reaper is not None:
            self._reaper.shutdown()
        self._timer.close()

    def __repr__(self) -> str:
        return f"<DelayedOperationPurgatory {self.name}: {self.num_delayed()} delayed, {self.watched()} watched>"


class ExpiredOperationReaper(ShutdownableThread):
    """Advances a purgatory's timer."""

    def __init__(
        self,
        purgatory: DelayedOperationPurgatory[T],
        timer: Timer,
        broker_id: int,
        exit_procedure: ExitProcedure = exit_process,
    ) -> None:
        super().__init__(f"ExpirationReaper-{broker_id}-{purgatory.name}", exit_procedure=exit_procedure)
        self._purgatory = purgatory
        self._timer = timer

    def do_work(self) -> None:
        self._purgatory.advance_clock(REAPER_TICK_MS)

    def on_shutdown_initiated(self) -> None:
        self._timer.wake()
