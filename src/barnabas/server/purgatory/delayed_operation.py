"""An operation that waits until it can be completed, or until its time is over."""

from __future__ import annotations

import abc
import threading
from collections.abc import Callable

from barnabas.server.timer.timer_task import TimerTask


class DelayedOperation(TimerTask):
    """What is left to do of a request that cannot be answered at once.

    A fetch that waits for 1 MiB of data, or a produce that waits for its followers, must not hold a handler thread. So
    what the thread knows goes into an operation, the thread takes the next request, and whoever brings about what the
    operation waits for completes it. A subclass says three things:

    * :meth:`try_complete`: can it be completed now? If so, it calls :meth:`force_complete` and returns what that
      returned. It is called for every event that might make the difference, under the operation's lock.
    * :meth:`on_complete`: the completion itself, such as sending the response. It runs **exactly once**, whoever comes
      first: an event on some handler thread, or the timeout on the executor.
    * :meth:`on_expiration`: runs after ``on_complete`` if it was the timeout that came first. Most just count it.

    A fetch, in short::

        class DelayedFetch(DelayedOperation):
            def try_complete(self) -> bool:
                return self.bytes_available() >= self.min_bytes and self.force_complete()

            def on_complete(self) -> None:
                self.respond(self.read())

            def on_expiration(self) -> None:
                self.expired.increment()

    ``try_complete`` and ``on_complete`` never run at the same time, as both hold the operation's lock, so the
    subclass's own fields need no other guard. The price: code that runs in them holds that lock. It must not wait for
    another operation's, which is why the events that a completion sets off go to an
    :class:`~barnabas.server.action_queue.ActionQueue`.
    """

    __slots__ = ("_completed", "_lock")

    def __init__(self, delay_ms: int) -> None:
        super().__init__(delay_ms)
        self._lock = threading.RLock()
        """Guards the flag and the subclass's state. It comes before the locks of watcher lists and of the timer."""
        self._completed = False

    @abc.abstractmethod
    def try_complete(self) -> bool:
        """Completes the operation if it can be completed now; whether this call did so."""

    @abc.abstractmethod
    def on_complete(self) -> None:
        """What completing means; called exactly once, by :meth:`force_complete`."""

    @abc.abstractmethod
    def on_expiration(self) -> None:
        """Called after :meth:`on_complete` if the operation was completed by its timeout."""

    def is_completed(self) -> bool:
        return self._completed  # goes from False to True once; who needs it not to change meanwhile holds the lock

    def force_complete(self) -> bool:
        """Completes the operation, unless it is complete; whether this call did so.

        All ways to completion lead through here: any number of threads may call it at the same time, and one of them
        gets True.
        """
        if self._completed:  # spares the losers the wait for the winner's on_complete
            return False
        with self._lock:
            if self.is_completed():
                return False
            self._completed = True
            self.cancel()
            self.on_complete()
            return True

    def safe_try_complete(self) -> bool:
        """:meth:`try_complete` for a caller that does not hold the lock and does not know whether it is too late."""
        with self._lock:
            return not self._completed and self.try_complete()

    def safe_try_complete_or_else(self, action: Callable[[], object]) -> bool:
        """Tries, and if that fails does ``action`` and tries once more, all under one hold of the lock.

        The action puts the operation where events find it. An event before that has changed what the second attempt
        looks at; an event after that finds the operation, and waits for the lock. There is no third kind, so none is
        missed.
        """
        with self._lock:
            if self.try_complete():
                return True
            action()
            return self.try_complete()

    def abandon(self) -> bool:
        """Marks the operation as complete without completing it; False if it was complete.

        For a caller that has told its client about a failure and must keep the operation from answering as well.
        """
        with self._lock:
            if self._completed:
                return False
            self._completed = True
            self.cancel()
            return True

    def run(self) -> None:
        """The timeout: the timer calls this when the delay is over."""
        if self.force_complete():
            self.on_expiration()

    def __repr__(self) -> str:
        state = "completed" if self._completed else "pending"
        return f"<{type(self).__name__} delay={self.delay_ms}ms {state}>"
