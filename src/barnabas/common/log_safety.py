"""Makes client strings safe for log lines and terminals: escapes, truncates and rate-limits them.

A client chooses its client ID, group ID, topic names and much of an error message. Three things could go wrong with a
log line that contains such a string, and each has its remedy here:

=============================================== ====================================================================
a newline forges a line, an escape sequence     :func:`install` makes every record of the ``barnabas`` loggers safe
takes over the terminal, 30 KB fill the disk    where it is created, whatever handlers and formatters the process has
one line per bad request fills the disk         :class:`LimitedLogger` at the call sites that clients can reach
the same strings in the output of a command     :func:`escape`
=============================================== ====================================================================

The record factory is the only part of :mod:`logging` that ``barnabas start`` and an embedded broker share: filters of a
logger do not apply to its children, and handlers belong to the process.
"""

from __future__ import annotations

import logging
import re
import threading
import traceback
import weakref
from collections.abc import Callable, Mapping
from numbers import Number
from typing import Any, Final

from barnabas.common.clock import SYSTEM_CLOCK, Clock

MAX_ARGUMENT: Final = 1_000
"""The maximum length of an argument of a log line. The longest legal topic name has 249 characters."""
MAX_MESSAGE: Final = 10_000
"""The maximum length of a message before its arguments are inserted: some callers insert them themselves."""
MAX_TRACEBACK_LINES: Final = 200
LINES: Final = 20
WINDOW_MS: Final = 10_000
"""A call site logs at most `LINES` lines in this time."""
MAX_SITES: Final = 256

_CONTROLS: Final = (
    "\x00-\x1f\x7f-\x9f"  # C0, DEL and C1, with ESC, CSI and NEL among them
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # text directions: they can make a line read differently
    "\u2028\u2029"  # line and paragraph separators
    "\ud800-\udfff"  # surrogates: they cannot be written as UTF-8
)
_UNSAFE: Final = re.compile(f"[{_CONTROLS}]")
_UNSAFE_BUT_NEWLINES: Final = re.compile(f"(?![\n\t])[{_CONTROLS}]")
_MORE_LENGTH: Final = 28
_ROOT: Final = "barnabas"
_PREFIX: Final = _ROOT + "."


def escape(text: str, *, keep_newlines: bool = False) -> str:
    r"""Escapes characters that a log or a terminal would interpret.

    >>> escape("a\n2026-01-01 ERROR forged \x1b[31m")
    'a\\n2026-01-01 ERROR forged \\x1b[31m'
    """
    unsafe = _UNSAFE_BUT_NEWLINES if keep_newlines else _UNSAFE
    return unsafe.sub(_escaped, text) if unsafe.search(text) else text


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def safe_text(value: object, limit: int = MAX_ARGUMENT) -> str:
    """Escapes a client's text for one line, and truncates it to `limit` characters.

    >>> safe_text("x" * 30_000, 40)
    'xxxxxxxxxxxx... (29,988 more characters)'
    """
    text = str(value)
    kept = len(text)
    shown = escape(text[:limit])
    if kept <= limit and len(shown) <= limit:
        return shown
    room = kept = max(limit - _MORE_LENGTH, 0)
    shown = escape(text[:kept])
    while len(shown) > room:  # an escape takes up to six characters
        kept //= 2
        shown = escape(text[:kept])
    return f"{shown}... ({len(text) - kept:,} more characters)"


# -- records


class _SafeArgument:
    """An object whose text may contain client strings. The text is created only when the line is formatted."""

    __slots__ = ("_value",)

    def __init__(self, value: object) -> None:
        self._value = value

    def __str__(self) -> str:
        return safe_text(self._value)

    def __repr__(self) -> str:
        return safe_text(repr(self._value))


def _safe_argument(value: object) -> object:
    if isinstance(value, str):
        return safe_text(value)
    if value is None or isinstance(value, (int, float, Number, _SafeArgument)):
        return value
    return _SafeArgument(value)


def _safe_traceback(error: Any) -> str:
    """Formats a traceback in which no line can pass for a line of the log: each is indented.

    It includes the message of the exception, which may contain lines from a client.
    """
    lines = "".join(traceback.format_exception(*error)).rstrip("\n").split("\n")
    if len(lines) > MAX_TRACEBACK_LINES:
        half = MAX_TRACEBACK_LINES // 2
        lines = [*lines[:half], f"... {len(lines) - 2 * half:,} more lines", *lines[-half:]]
    return "\n".join("  " + safe_text(line) for line in lines)


class SafeRecordFactory:
    """Creates log records; those of Barnabas have safe messages, arguments and tracebacks."""

    def __init__(self, factory: Callable[..., logging.LogRecord]) -> None:
        self._factory = factory

    def __call__(self, name: str, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record = self._factory(name, *args, **kwargs)
        if name == _ROOT or name.startswith(_PREFIX):
            _make_safe(record)
        return record


def _make_safe(record: logging.LogRecord) -> None:
    record.msg = safe_text(record.msg, MAX_MESSAGE)
    arguments: Any = record.args
    if isinstance(arguments, Mapping):
        record.args = {key: _safe_argument(value) for key, value in arguments.items()}
    elif arguments:
        record.args = tuple([_safe_argument(value) for value in arguments])
    if record.exc_info and record.exc_info[0] is not None and not record.exc_text:
        record.exc_text = _safe_traceback(record.exc_info)


def install() -> None:
    """Makes log records of Barnabas safe in this process; once is enough. Other records do not change."""
    factory = logging.getLogRecordFactory()
    if not isinstance(factory, SafeRecordFactory):
        logging.setLogRecordFactory(SafeRecordFactory(factory))


# -- rate limiting


class _Site:
    """The lines of one call site in its current window."""

    __slots__ = ("level", "lines", "started_ms", "suppressed")

    def __init__(self, started_ms: int) -> None:
        self.started_ms = started_ms
        self.lines = 0
        self.suppressed = 0
        self.level = logging.INFO


class LimitedLogger:
    """A logger for lines that a client can cause at will.

    Each call site, identified by its message before arguments are inserted, or by an origin that it names, logs at most
    `lines` lines per window. The rest is counted. The count is logged with the next line of the site, or by
    :func:`report_suppressed`, which a broker calls periodically. DEBUG lines are not limited.
    """

    def __init__(
        self, logger: logging.Logger, *, clock: Clock = SYSTEM_CLOCK, lines: int = LINES, window_ms: int = WINDOW_MS
    ) -> None:
        self._logger = logger
        self._now_ms = clock.hi_res_milliseconds
        self._lines = lines
        self._window_ms = window_ms
        self._lock = threading.Lock()
        """Guards the sites. Nothing is logged while it is held."""
        self._sites: dict[str, _Site] = {}
        _limited.add(self)

    def debug(self, message: str, *args: object, exc_info: Any = None) -> None:
        self._logger.debug(message, *args, exc_info=exc_info, stacklevel=2)

    def info(self, message: str, *args: object, exc_info: Any = None) -> None:
        self._log(logging.INFO, message, args, exc_info)

    def warning(self, message: str, *args: object, exc_info: Any = None) -> None:
        self._log(logging.WARNING, message, args, exc_info)

    def error(self, message: str, *args: object, exc_info: Any = None) -> None:
        self._log(logging.ERROR, message, args, exc_info)

    def exception(self, message: str, *args: object) -> None:
        self._log(logging.ERROR, message, args, True)

    def critical(self, message: str, *args: object, exc_info: Any = None) -> None:
        """Logs without a limit, because the node ends."""
        self._logger.critical(message, *args, exc_info=exc_info, stacklevel=2)

    def log(self, level: int, message: str, *args: object, exc_info: Any = None) -> None:
        self._log(level, message, args, exc_info)

    def log_for(self, origin: str, level: int, message: str, *args: object) -> None:
        """Logs under a limit of its own for each origin, so that a flood from one does not hide the lines of others."""
        self._log(level, message, args, None, origin)

    def _log(self, level: int, message: str, args: tuple[object, ...], exc_info: Any, origin: str = "") -> None:
        logger = self._logger
        if not logger.isEnabledFor(level):
            return
        if level > logging.DEBUG:
            now_ms = self._now_ms()
            limited = origin or message
            with self._lock:
                site = self._sites.get(limited)
                if site is None:
                    if len(self._sites) >= MAX_SITES:
                        self._sites.clear()
                    site = self._sites[limited] = _Site(now_ms)
                ended = self._end_window(site, now_ms)
                site.lines += 1
                if site.lines > self._lines:
                    site.suppressed += 1
                    site.level = level
                    return
            self._report(limited, ended)
        logger.log(level, message, *args, exc_info=exc_info, stacklevel=3)

    def _end_window(self, site: _Site, now_ms: int) -> tuple[int, int, int] | None:
        """Returns level, count and seconds of suppressed lines, if the window has ended and there were any."""
        elapsed_ms = now_ms - site.started_ms
        if elapsed_ms < self._window_ms:
            return None
        suppressed = site.suppressed
        site.started_ms, site.lines, site.suppressed = now_ms, 0, 0
        return (site.level, suppressed, elapsed_ms // 1_000) if suppressed else None

    def _report(self, message: str, ended: tuple[int, int, int] | None) -> None:
        if ended is not None:
            level, suppressed, seconds = ended
            self._logger.log(
                level, "... %s similar lines suppressed in the last %d s: %s", f"{suppressed:,}", seconds, message
            )

    def report_suppressed(self) -> None:
        """Logs the counts of all windows that have ended."""
        now_ms = self._now_ms()
        with self._lock:
            ended = [(message, self._end_window(site, now_ms)) for message, site in self._sites.items()]
        for message, counted in ended:
            self._report(message, counted)

    def reset(self) -> None:
        """Resets all windows, for tests."""
        with self._lock:
            self._sites.clear()


_limited: weakref.WeakSet[LimitedLogger] = weakref.WeakSet()


def report_suppressed() -> None:
    """Logs how many lines were suppressed, for all call sites. A site without new lines needs it."""
    for limited in list(_limited):
        limited.report_suppressed()


def reset_limits() -> None:
    for limited in list(_limited):
        limited.reset()
