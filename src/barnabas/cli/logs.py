"""Configures the log that a command writes to the error stream."""

from __future__ import annotations

import logging
import sys
from typing import Final

from barnabas.cli.console import is_colored

LEVELS: Final = ("debug", "info", "warning", "error")
FORMAT: Final = "%(asctime)s %(levelname)-7s %(message)s  [%(name)s]"
CHATTY: Final = ("barnabas.common.shutdownable_thread", "barnabas.common.events.event_queue")
"""Loggers of threads that start and stop. Their lines help only to find a thread that does not stop."""

_YELLOW, _RED, _DIM, _PLAIN = "\x1b[33m", "\x1b[31m", "\x1b[2m", "\x1b[0m"


def configure_logging(level: str) -> None:
    """Writes log records of at least this level to the error stream."""
    number = logging.getLevelNamesMapping()[level.upper()]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(ColorFormatter(FORMAT) if is_colored(sys.stderr) else logging.Formatter(FORMAT))
    logging.basicConfig(level=number, handlers=[handler], force=True)
    if number == logging.INFO:
        for name in CHATTY:
            logging.getLogger(name).setLevel(logging.WARNING)


class ColorFormatter(logging.Formatter):
    """Colors warnings and errors."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if record.levelno >= logging.ERROR:
            return f"{_RED}{text}{_PLAIN}"
        if record.levelno >= logging.WARNING:
            return f"{_YELLOW}{text}{_PLAIN}"
        if record.levelno < logging.INFO:
            return f"{_DIM}{text}{_PLAIN}"
        return text
