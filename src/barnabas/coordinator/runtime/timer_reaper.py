"""Advances the coordinators' timer."""

from __future__ import annotations

from typing import Final

from barnabas.common.shutdownable_thread import ExitProcedure, ShutdownableThread, exit_process
from barnabas.server.timer.timer_task import Timer

TICK_MS: Final = 200


class SystemTimerReaper(ShutdownableThread):
    """Waits for the next timer on a thread, and runs it.

    Closing it closes the timer as well.
    """

    def __init__(self, name: str, timer: Timer, exit_procedure: ExitProcedure = exit_process) -> None:
        super().__init__(name, exit_procedure=exit_procedure)
        self._timer = timer

    def do_work(self) -> None:
        self._timer.advance_clock(TICK_MS)

    def on_shutdown_initiated(self) -> None:
        self._timer.wake()

    def close(self) -> None:
        self.shutdown()
        self._timer.close()
