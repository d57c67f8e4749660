"""What ends the cleaning of a log before its time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.common.errors import BarnabasError

if TYPE_CHECKING:
    from barnabas.log.unified_log import UnifiedLog


class LogCleaningAbortedError(BarnabasError):
    """Somebody is going to truncate or delete the log, and waits for the cleaner to leave it alone."""


class CleanerShutdownError(BarnabasError):
    """The cleaner's thread was asked to end."""


class LogCleaningError(BarnabasError):
    """A log cannot be cleaned, for reasons that will be the same the next time: it is left alone from now on."""

    def __init__(self, log: UnifiedLog, message: str) -> None:
        super().__init__(message)
        self.log = log
