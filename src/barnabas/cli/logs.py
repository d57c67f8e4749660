"""What a command writes to the error stream about what it does."""

from __future__ import annotations

import logging
import sys
from typing import Final

from barnabas.cli.console import is_colored

LEVELS: Final = ("debug", "info", "warning", "error")
FORMAT: Final = "%(asctime)s %(levelname)-7s %(message)s  [%(name)s]"
CHATTY: Final = ("barnabas.common.shutdownable_thread", "barnabas.controller.event_queue")
"""Threads that come and go. Worth a line only to somebody who looks for one that did not."""

_YELLOW, _RED, _DIM, _PLAIN = "\x1b[33m", "\x1b[31m", "\x1b[2m", "\x1b[0m"


def configure_logging(level: str) -> None:
    """From now on what is at least as important as `level` is written."""
    number = logging.getLevelNamesMapping()[level.upper()]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(ColorFormatter(FORMAT) if is_colored(sys.stderr) else logging.Formatter(FORMAT))
    logging.basicConfig(level=number, handlers=[handler], force=True)
    if number == logging.INFO:
        for name in CHATTY:
            logging.getLogger(name).setLevel(logging.WARNING)


class ColorFormatter(logging.Formatter):
    """Makes warnings and errors stand out."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if record.levelno >= logging.ERROR:
            return f"{_RED}{text}{_PLAIN}"
        if record.levelno >= logging.WARNING:
            return f"{_YELLOW}{text}{_PLAIN}"
        if record.levelno < logging.INFO:
            return f"{_DIM}{text}{_PLAIN}"
        return text
