"""Threads that can be stopped and awaited."""

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
"""Ends the process with a status. Injected, so that a test or an embedding program can intercept it."""


class FatalExitError(BaseException):
    """The process cannot continue, and must exit with this status.

    It is not an ``Exception``, so that handlers that log an error and continue do not swallow it by accident.
    """

    def __init__(self, status: int = 1, message: str = "") -> None:
        if status == 0:
            raise ValueError("the status of a fatal exit must not be 0, which means success")
        super().__init__(message or f"fatal error, exit status {status}")
        self.status = status


def exit_process(status: int) -> None:
    """Ends the process from any thread, after flushing the logs.

    ``sys.exit`` would not work: outside the main thread it ends only that thread. An orderly shutdown is not possible,
    because it would write the state that was found to be broken.
    """
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # closed, a broken pipe, or missing
            stream.flush()
    os._exit(status)


class ShutdownableThread(threading.Thread, abc.ABC):
    """A thread that repeats :meth:`do_work` until it is stopped.

    Stopping has two steps, so that a broker can first notify all of its threads and then wait for each:

        reaper.initiate_shutdown()      # returns at once; True for the first call
        cleaner.initiate_shutdown()
        reaper.await_shutdown()         # returns when the thread has ended
        cleaner.await_shutdown()

    A ``do_work`` that blocks must be woken up: Python threads cannot be interrupted as in Java. A subclass does that in
    :meth:`on_shutdown_initiated`, or blocks in :meth:`pause`, which a shutdown ends.

    The thread is not a daemon by default: a forgotten thread visibly keeps the process from ending, while a daemon
    would silently be killed in the middle of a write.

    An exception from ``do_work`` is logged and ends the thread; :meth:`is_thread_failed` then distinguishes it from a
    stopped one. A loop that must survive errors handles them in ``do_work``. A :class:`FatalExitError` ends the process
    through ``exit_procedure``.
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
        """Guards the two flags below. No other lock is taken, and nothing is called, while it is held."""
        self._shutdown_initiated = False
        self._shutdown_complete = False
        self._start_lock = threading.Lock()
        """Lets only one caller of `start_once` start the thread. The lock above is taken inside it."""

    @abc.abstractmethod
    def do_work(self) -> None:
        """Runs one iteration of the loop."""

    def on_shutdown_initiated(self) -> None:
        """Wakes up a ``do_work`` that blocks. Called once, by the thread that requests the shutdown."""

    def start_once(self) -> None:
        """Starts the thread unless it was started or stopped: for a thread that may never have anything to do.

        A broker has a dozen of those. Each one that is not started saves a stack, and some would wake up every second.
        """
        if self.is_started():
            return
        with self._start_lock:
            if not self.is_started() and self.is_running():
                self.start()

    def is_started(self) -> bool:
        return self.ident is not None

    def is_running(self) -> bool:
        """Whether the loop continues: true from construction until a shutdown is requested."""
        with self._shutdown_changed:
            return not self._shutdown_initiated

    def is_shutdown_initiated(self) -> bool:
        with self._shutdown_changed:
            return self._shutdown_initiated

    def is_shutdown_complete(self) -> bool:
        with self._shutdown_changed:
            return self._shutdown_complete

    def is_thread_failed(self) -> bool:
        """Whether the loop has ended without a shutdown request."""
        with self._shutdown_changed:
            return self._shutdown_complete and not self._shutdown_initiated

    def initiate_shutdown(self) -> bool:
        """Requests the loop to end after the current iteration. Returns True for the first call only."""
        with self._shutdown_changed:
            if self._shutdown_initiated:
                return False
            self._shutdown_initiated = True
            self._shutdown_changed.notify_all()
        log.info("%s: shutting down", self.name)
        self.on_shutdown_initiated()
        return True

    def await_shutdown(self) -> None:
        """Blocks until the thread has ended; returns at once if it never started.

        It joins the thread instead of waiting for a flag that the thread sets last, so that the thread is not alive
        when this returns.
        """
        if not self.is_shutdown_initiated():
            raise RuntimeError(f"{self.name} cannot be awaited: its shutdown was not requested")
        if self.is_started():
            self.join()
        log.info("%s: shutdown completed", self.name)

    def shutdown(self) -> None:
        """Stops the thread and waits until it has ended."""
        self.initiate_shutdown()
        self.await_shutdown()

    def pause(self, milliseconds: float) -> bool:
        """Waits for this time, or until a shutdown is requested; returns whether one was."""
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
            # After the flags are set: an exit procedure with an orderly shutdown also stops this thread.
            log.critical("%s: %s", self.name, fatal, exc_info=fatal)
            self._exit_procedure(fatal.status)
