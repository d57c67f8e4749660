"""The purgatory: where delayed operations wait for an event or for their timeout."""

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
"""How many locks the watched keys are spread over."""

DEFAULT_PURGE_INTERVAL = 1000

REAPER_TICK_MS = 200
"""The longest that the reaper waits for a bucket to fall due before it looks whether a purge is."""


class _Shards(dict[int, WatcherList[T]], Generic[T]):
    """The lists by their number, each made when its first key comes: a broker has half a dozen purgatories."""

    def __missing__(self, number: int) -> WatcherList[T]:
        return self.setdefault(number, WatcherList())  # one for two threads, whoever comes first

    def made(self) -> list[WatcherList[T]]:
        return list(self.values())


class DelayedOperationPurgatory(Generic[T]):
    """Operations that wait, each under the keys whose events may complete it, and on a timer.

    A fetch from partitions ``a-0`` and ``b-3`` is parked under both::

        purgatory.try_complete_else_watch(fetch, [("a", 0), ("b", 3)])

    and whoever appends to one of them says so::

        purgatory.check_and_complete(("a", 0))

    which lets every operation under that key try to complete. What no event completes in time, the timer does.

    **No event is missed.** :meth:`try_complete_else_watch` tries first, for most operations can be completed at once
    and are never parked. If that fails it puts the operation under all of its keys and tries again, once, however many
    keys there are. An event that came too early to find the operation is seen by the second attempt, since the change
    that it announces was made before. The operation's lock is held from the first attempt to the second, so an event
    that finds the operation in between waits for the outcome.

    **Locks.** Operation, then watcher list or timer; that order is kept everywhere. What no code here can keep is the
    order of locks that the operations themselves take: if ``try_complete`` asks for lock L, and a thread that holds L
    calls :meth:`check_and_complete`, each may end up waiting for the other. So do not call it with any lock held; put
    it on the :class:`~barnabas.server.action_queue.ActionQueue`, which runs it when the request's locks are free.

    **Purge.** A completed operation leaves the timer at once, and the list of the key whose event completed it; under
    its other keys it stays until an event there or a purge. A key may never see an event again, so the lists must be
    purged, and as that means a walk over all of them it is done when enough has gathered: the purgatory counts the
    operations it has parked, takes off those that are still on the timer, and when more than ``purge_interval`` remain,
    purges and starts to count anew. With an interval of 0 it purges whenever there is anything to purge, for
    operations that hold large buffers.

    (The count is raised after the operation is on the timer, not before as in Kafka: a purge in between would otherwise
    start from a count that leaves the operation out while the timer soon counts it, and every such operation would hide
    a dead one from then on.)

    **Threads.** A reaper ticks the timer, the timer's executor runs what expired. With ``reaper_enabled=False`` someone
    else calls :meth:`advance_clock`; with ``timer_enabled=False`` operations never expire.
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
        """Guards the estimate. The timer's lock may be taken inside."""
        self._estimated_total = 0
        self._reaper: ExpiredOperationReaper | None = None
        if reaper_enabled:
            self._reaper = ExpiredOperationReaper(self, timer, broker_id, exit_procedure)
            self._reaper.start()

    def try_complete_else_watch(self, operation: T, keys: Collection[Hashable]) -> bool:
        """Completes the operation if that can be done now, and parks it under the keys if not.

        True if this call completed it. After False it may be complete none the less, by another thread. If its
        ``try_complete`` raises, so does this, and the operation is not parked.
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
            # The caller now answers the request with this error, so no event may let the operation answer it again.
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
            # Shutting down: nobody is left to end the wait, so it ends now.
            operation.run()
            return
        if operation.is_completed():
            # An event was quicker, and its cancel came before the add.
            operation.cancel()

    def check_and_complete(self, key: Hashable) -> int:
        """Lets the operations under a key try to complete; returns how many did. Call it with no lock held."""
        completed = self._shards[hash(key) % SHARDS].try_complete(key)
        if completed:
            log.debug("%r completed %d operations of purgatory %s", key, completed, self.name)
        return completed

    def is_watched(self, key: Hashable) -> bool:
        """Whether any operation waits under a key.

        Who has changed something and hears that nobody waits has nobody to tell: an operation that comes to wait later
        looks once more after it has put itself on the list, and sees the change.
        """
        return key in self._shards[hash(key) % SHARDS].watched

    def cancel_for_key(self, key: Hashable) -> list[T]:
        """Stops watching the key and takes its operations off the timer; returns those that were not complete.

        They are not completed: the caller does with them what it wants. (Under their other keys they still are.)
        """
        cancelled = self._shards[hash(key) % SHARDS].cancel(key)
        for operation in cancelled:
            operation.cancel()
        return cancelled

    def watched(self) -> int:
        """Entries in all watcher lists: an operation counts once for each key, and until it is purged."""
        return sum(shard.count() for shard in self._shards.made())

    def watched_keys(self) -> list[Hashable]:
        """The keys that anything is watched under."""
        return [key for shard in self._shards.made() for key in shard.watched_keys()]

    def num_delayed(self) -> int:
        """Operations on the timer."""
        return self._timer.size()

    def advance_clock(self, timeout_ms: int) -> None:
        """One turn of the reaper: expires what is due, waiting at most so long for it, and purges if it is time to."""
        self._timer.advance_clock(timeout_ms)
        with self._estimate_lock:
            # Both counts under the lock, or an operation parked between the two readings would be forgotten.
            delayed = self._timer.size()
            if self._estimated_total - delayed <= self._purge_interval:
                return
            self._estimated_total = delayed
        purged = sum(shard.purge() for shard in self._shards.made())
        log.debug("purged %d entries from the watcher lists of purgatory %s", purged, self.name)

    def shutdown(self) -> None:
        """Ends the reaper and the timer and returns when their threads have ended. Parked operations stay as they
        are."""
        if self._reaper is not None:
            self._reaper.shutdown()
        self._timer.close()

    def __repr__(self) -> str:
        return f"<DelayedOperationPurgatory {self.name}: {self.num_delayed()} delayed, {self.watched()} watched>"


class ExpiredOperationReaper(ShutdownableThread):
    """Ticks a purgatory's timer."""

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
