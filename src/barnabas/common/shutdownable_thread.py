"""Threads that are told to stop, and that are waited for."""

from __future__ import annotations

import abc
import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

from barnabas.common.clock import SYSTEM_CLOCK, Clock

log = logging.getLogger(__name__)

ExitProcedure = Callable[[int], object]
"""Ends the process with a status. Injected, so that a test or an embedding program can see it and live on."""


class FatalExitError(BaseException):
    """The process cannot go on: whoever runs the thread has to end it with this status.

    It is no ``Exception``, so that the many places that log an error and carry on do not swallow it by accident.
    """

    def __init__(self, status: int = 1, message: str = "") -> None:
        if status == 0:
            raise ValueError("the status of a fatal exit must not be 0, which means success")
        super().__init__(message or f"fatal error, exit status {status}")
        self.status = status


def exit_process(status: int) -> None:
    """Ends the process from any thread, with the logs written out.

    ``sys.exit`` would not do: outside the main thread it ends just that thread. And there is no orderly way down from
    here, as the state that an orderly shutdown would write is what has been found broken.
    """
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # closed, a broken pipe, or none at all
            stream.flush()
    os._exit(status)


class ShutdownableThread(threading.Thread, abc.ABC):
    """A thread that repeats :meth:`do_work` until it is asked to stop.

    Stopping has two halves, so that a broker can first tell all of its threads and then wait for each:

        reaper.initiate_shutdown()      # says so and returns; True for the first to say it
        cleaner.initiate_shutdown()
        reaper.await_shutdown()         # returns when the thread has ended
        cleaner.await_shutdown()

    A ``do_work`` that blocks must be woken: Python threads cannot be interrupted as Java's can. A subclass does that in
    :meth:`on_shutdown_initiated`, or blocks in :meth:`pause`, which shutdown ends by itself.

    The thread is no daemon unless asked for: a forgotten one keeps the process from ending, which gets noticed, where
    a daemon would be cut off in the middle of a write, which does not.

    An exception that leaves ``do_work`` is logged and ends the thread; :meth:`is_thread_failed` then tells it apart
    from one that was stopped. A loop that is to survive its errors handles them in ``do_work``. A
    :class:`FatalExitError` ends the process through ``exit_procedure``.
    """

    def __init__(
        self,
        name: str,
        *,
        daemon: bool = False,
        clock: Clock = SYSTEM_CLOCK,
        exit_procedure: ExitProcedure = exit_process,
    ) -> None:
        super().__init__(name=name, daemon=daemon)
        self._clock = clock
        self._exit_procedure = exit_procedure
        self._shutdown_changed = threading.Condition()
        """Guards the two flags below. Nothing else is locked, and nothing foreign is called, while it is held."""
        self._shutdown_initiated = False
        self._shutdown_complete = False
        self._start_lock = threading.Lock()
        """Lets one of those who call `start_once` start the thread. The one above is taken inside."""

    @abc.abstractmethod
    def do_work(self) -> None:
        """One turn of the loop."""

    def on_shutdown_initiated(self) -> None:
        """Called once, by the thread that asks for the shutdown: wakes a ``do_work`` that blocks."""

    def start_once(self) -> None:
        """Starts the thread if nobody has, and nobody has asked it to end: for one that may never have anything to do.

        A broker has a dozen of those. Each that is not there is a stack less, and some wake up every second.
        """
        if self.is_started():
            return
        with self._start_lock:
            if not self.is_started() and self.is_running():
                self.start()

    def is_started(self) -> bool:
        return self.ident is not None

    def is_running(self) -> bool:
        """Whether the loop is to go on: true from construction until shutdown is asked for."""
        with self._shutdown_changed:
            return not self._shutdown_initiated

    def is_shutdown_initiated(self) -> bool:
        with self._shutdown_changed:
            return self._shutdown_initiated

    def is_shutdown_complete(self) -> bool:
        with self._shutdown_changed:
            return self._shutdown_complete

    def is_thread_failed(self) -> bool:
        """Whether the loop has ended although nobody asked it to."""
        with self._shutdown_changed:
            return self._shutdown_complete and not self._shutdown_initiated

    def initiate_shutdown(self) -> bool:
        """Asks the loop to end after the current turn. True for the first call, False for all others."""
        with self._shutdown_changed:
            if self._shutdown_initiated:
                return False
            self._shutdown_initiated = True
            self._shutdown_changed.notify_all()
        log.info("%s: shutting down", self.name)
        self.on_shutdown_initiated()
        return True

    def await_shutdown(self) -> None:
        """Blocks until the thread has ended; at once if it never started.

        It joins the thread instead of waiting for a flag that the thread sets last, so that no thread of ours is alive
        when this returns.
        """
        if not self.is_shutdown_initiated():
            raise RuntimeError(f"{self.name} is awaited, but was not asked to shut down")
        if self.is_started():
            self.join()
        log.info("%s: shutdown completed", self.name)

    def shutdown(self) -> None:
        """Asks the thread to end and waits until it has."""
        self.initiate_shutdown()
        self.await_shutdown()

    def pause(self, milliseconds: float) -> bool:
        """Lets so much time pass, less if a shutdown is asked for meanwhile; returns whether one was."""
        deadline = self._clock.nanoseconds() + int(milliseconds * 1_000_000)
        with self._shutdown_changed:
            while not self._shutdown_initiated:
                remaining = deadline - self._clock.nanoseconds()
                if remaining <= 0:
                    return False
                self._clock.wait(self._shutdown_changed, remaining / 1_000_000)
            return True

    def run(self) -> None:
        log.info("%s: starting", self.name)
        fatal: FatalExitError | None = None
        try:
            while self.is_running():
                self.do_work()
        except FatalExitError as error:
            fatal = error
        except BaseException:
            if self.is_running():
                log.exception("%s: stopping after an error", self.name)
            else:
                log.debug("%s: an error after the shutdown was requested", self.name, exc_info=True)
        finally:
            with self._shutdown_changed:
                if fatal is not None:
                    self._shutdown_initiated = True
                self._shutdown_complete = True
                self._shutdown_changed.notify_all()
        log.info("%s: stopped", self.name)
        if fatal is not None:
            # After the flags are set: an exit procedure that runs an orderly shutdown asks this thread to stop, too.
            log.critical("%s: %s", self.name, fatal, exc_info=fatal)
            self._exit_procedure(fatal.status)
