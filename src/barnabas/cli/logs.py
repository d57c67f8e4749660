"""Configures the log that a command writes to the error stream."""

from __future__ import annotations

import logging
import sys
from typing import Final

from barnabas.cli.console import is_colored

LEVELS: Final = ("debug", "info", "warning", "error")
STYLES: Final = ("text", "json")
FORMAT: Final = "%(asctime)s %(levelname)-7s %(message)s  [%(name)s]"
CHATTY: Final = ("barnabas.common.shutdownable_thread", "barnabas.common.events.event_queue")
"""Loggers of threads that start and stop. Their lines help only to find a thread that does not stop."""

MILESTONES: Final = (
    "barnabas.broker.node.broker_server",
    "barnabas.log.manager",
    "barnabas.network.server.acceptor",
)
"""Loggers, with those below them, whose INFO lines are worth reading during an ordinary start."""

_YELLOW, _RED, _DIM, _PLAIN = "\x1b[33m", "\x1b[31m", "\x1b[2m", "\x1b[0m"


def configure_logging(level: str | None, style: str = "text") -> StartFilter:
    """Writes log records of at least this level to the error stream.

    Without a level it is ``info``, and the details of a start are left out until `StartFilter.end`.
    """
    number = logging.getLevelNamesMapping()[(level or "info").upper()]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_formatter(style))
    start = StartFilter(active=level is None)
    handler.addFilter(start)
    logging.basicConfig(level=number, handlers=[handler], force=True)
    if number == logging.INFO:
        for name in CHATTY:
            logging.getLogger(name).setLevel(logging.WARNING)
    return start


def _formatter(style: str) -> logging.Formatter:
    if style == "json":
        from barnabas.cli.json_log import JsonFormatter  # only needed for JSON

        return JsonFormatter()
    return ColorFormatter(FORMAT) if is_colored(sys.stderr) else logging.Formatter(FORMAT)


class StartFilter:
    """Drops unimportant INFO lines while the broker starts: five of more than fifty matter.

    If the start fails, the error says why; ``--log-level info`` shows all lines.
    """

    def __init__(self, *, active: bool) -> None:
        self._active = active

    def end(self) -> None:
        """Lets all lines through from now on."""
        self._active = False

    def filter(self, record: logging.LogRecord) -> bool:
        return (
            not self._active
            or record.levelno > logging.INFO
            or any(record.name == name or record.name.startswith(f"{name}.") for name in MILESTONES)
        )


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
