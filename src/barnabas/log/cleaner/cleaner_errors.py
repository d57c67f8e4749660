"""Errors that end the cleaning of a log early."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.common.errors import BarnabasError

if TYPE_CHECKING:
    from barnabas.log.unified_log import UnifiedLog


class LogCleaningAbortedError(BarnabasError):
    """The cleaning was aborted, because another thread wants to truncate or delete the log."""


class CleanerShutdownError(BarnabasError):
    """The cleaner's thread was asked to end."""


class LogCleaningError(BarnabasError):
    """A log cannot be cleaned, and a retry would fail again, so the log is marked as uncleanable."""

    def __init__(self, log: UnifiedLog, message: str) -> None:
        super().__init__(message)
        self.log = log
