"""Being told to stop: by Ctrl-C, by whoever started the process, by a terminal that is closed."""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Final

EXIT_KILLED: Final = 130
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignals:
    """Waits for the first signal; the second one ends the process, as it does not ask any more.

    A handler runs in the main thread, between any two instructions of what that is doing. So it takes no lock that the
    main thread may hold: an ``Event`` that it set while the main thread was about to wait for it would never be set.

    And it runs when the main thread gets to it, which a thread that is blocked does not, if the system has told another
    one of the signal (as it may after the process was stopped and continued). So the main thread waits for a byte in a
    pipe, which the interpreter writes whichever thread was told.
    """

    def __init__(self) -> None:
        self._told: signal.Signals | None = None
        self._reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in SIGNALS:
            # A shell ignores SIGINT for what runs in the background, and nohup SIGHUP: they know why.
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._handle)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self._told is not None:
            os._exit(EXIT_KILLED)
        self._told = signal.Signals(number)

    def wait(self) -> signal.Signals:
        """Returns when there has been a signal."""
        while self._told is None:
            os.read(self._reader, 1)
        return self._told
