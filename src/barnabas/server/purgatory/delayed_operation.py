"""An operation that waits until it can be completed or times out."""

from __future__ import annotations

import abc
import threading
from collections.abc import Callable

from barnabas.server.timer.timer_task import TimerTask


class DelayedOperation(TimerTask):
    """The remaining work of a request that cannot be completed at once.

    A fetch that waits for 1 MiB of data, or a produce that waits for its followers, must not hold a handler thread. So
    the thread stores the request's state in an operation and takes the next request. The thread that causes the awaited
    event completes the operation. A subclass defines three methods:

    * :meth:`try_complete` checks whether the operation can be completed now. If so, it calls :meth:`force_complete` and
      returns its result. It is called for every event that might matter, under the operation's lock.
    * :meth:`on_complete` is the completion itself, such as sending the response. It runs **exactly once**, triggered by
      an event on a handler thread or by the timeout on the executor, whichever comes first.
    * :meth:`on_expiration` runs after ``on_complete`` if the timeout came first. Most subclasses just count it.

    A fetch, in short::

        class DelayedFetch(DelayedOperation):
            def try_complete(self) -> bool:
                return self.bytes_available() >= self.min_bytes and self.force_complete()

            def on_complete(self) -> None:
                self.respond(self.read())

            def on_expiration(self) -> None:
                self.expired.increment()

    ``try_complete`` and ``on_complete`` never run at the same time, because both hold the operation's lock. So the
    subclass's fields need no other guard. In return, code that runs in them must not wait for another operation's lock:
    the events that a completion causes go to an :class:`~barnabas.server.action_queue.ActionQueue`.
    """

    __slots__ = ("_completed", "_lock")

    def __init__(self, delay_ms: int) -> None:
        super().__init__(delay_ms)
        self._lock = threading.RLock()
        """Guards the flag and the subclass's state. Taken before the locks of watcher lists and of the timer."""
        self._completed = False

    @abc.abstractmethod
    def try_complete(self) -> bool:
        """Completes the operation if that is possible now; returns whether this call did so."""

    @abc.abstractmethod
    def on_complete(self) -> None:
        """Performs the completion. :meth:`force_complete` calls it exactly once."""

    @abc.abstractmethod
    def on_expiration(self) -> None:
        """Called after :meth:`on_complete` if the operation was completed by its timeout."""

    def is_completed(self) -> bool:
        return self._completed  # changes once, to True; a caller that needs it stable holds the lock

    def force_complete(self) -> bool:
        """Completes the operation unless it is complete; returns whether this call did so.

        Every completion goes through here. Any number of threads may call it at the same time; one of them gets True.
        """
        if self._completed:  # so that the other threads do not wait for the winner's on_complete
            return False
        with self._lock:
            if self.is_completed():
                return False
            self._completed = True
            self.cancel()
            self.on_complete()
            return True

    def safe_try_complete(self) -> bool:
        """Calls :meth:`try_complete` under the lock, unless the operation is already complete."""
        with self._lock:
            return not self._completed and self.try_complete()

    def safe_try_complete_or_else(self, action: Callable[[], object]) -> bool:
        """Tries to complete; on failure runs ``action`` and tries once more, all under one hold of the lock.

        The action puts the operation where events find it. The second attempt sees the change of every event before
        that. Every event after that finds the operation and waits for the lock. So no event is missed.
        """
        with self._lock:
            if self.try_complete():
                return True
            action()
            return self.try_complete()

    def abandon(self) -> bool:
        """Marks the operation as complete without running the completion; returns False if it was complete.

        For a caller that has sent an error response and must keep the operation from sending a second response.
        """
        with self._lock:
            if self._completed:
                return False
            self._completed = True
            self.cancel()
            return True

    def run(self) -> None:
        """Expires the operation. The timer calls this when the delay is over."""
        if self.force_complete():
            self.on_expiration()

    def __repr__(self) -> str:
        state = "completed" if self._completed else "pending"
        return f"<{type(self).__name__} delay={self.delay_ms}ms {state}>"
