"""Waits for signals that stop the process: Ctrl-C, a supervisor, a closed terminal."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from types import FrameType
from typing import Final

EXIT_KILLED: Final = 130
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignals:
    """Waits for the first signal. The second one ends the process at once.

    A handler runs in the main thread, between any two of its instructions, so it must not take a lock that the main
    thread may hold: an ``Event`` that it sets just before the main thread waits for it could deadlock.

    A blocked main thread does not run handlers if the system delivered the signal to another thread, which may happen
    after the process was stopped and continued. So the main thread waits for a byte in a pipe, which the interpreter
    writes whichever thread receives the signal.
    """

    def __init__(self) -> None:
        self._received: signal.Signals | None = None
        self._reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in SIGNALS:
            # Shells ignore SIGINT for background processes, and nohup ignores SIGHUP: keep it that way.
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._handle)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self._received is not None:
            os._exit(EXIT_KILLED)
        self._received = signal.Signals(number)

    def wait(self, pulse: Callable[[], None] | None = None, every_s: float | None = None) -> signal.Signals:
        """Blocks until a signal arrives, and returns it. Calls ``pulse`` about every ``every_s`` seconds meanwhile."""
        while self._received is None:
            if pulse is None or select.select([self._reader], [], [], every_s)[0]:
                os.read(self._reader, 1)
            else:
                pulse()
        return self._received
