"""Regular expressions that clients send: RE2, with bounded length, memory and time.

A pattern of a client may be hostile. Python's ``re`` backtracks: ``(a+)+$`` and a long name would block a thread for
years. Kafka uses RE2/J, which matches in linear time; `google-re2` is its C++ original, with the same syntax. Linear
time is not enough by itself, so there are three limits:

* The pattern has at most `MAX_PATTERN_LENGTH` characters.
* Its program and its caches have at most `MAX_MEMORY_BYTES`. RE2 rejects a pattern that does not fit, such as
  ``(|||...){300}``, after a few milliseconds at most, and matches more slowly instead of using more memory.
* A search through many names ends at a deadline (`search_limit_ms`). ``(a?a?a?){900}`` takes 10 ms for one long name.

RE2 releases the GIL while it matches. It is imported with the first pattern, not when a broker starts.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any, Final

from barnabas.common.clock import Clock
from barnabas.common.errors import InvalidRegularExpressionError

MAX_PATTERN_LENGTH: Final = 4096
MAX_MEMORY_BYTES: Final = 256 * 1024
"""Enough for some 8,000 instructions: ``.{1000}``, or a list of many hundred topics."""
_SHOWN: Final = 100
"""The maximum length of a pattern in an error message."""


class PatternTimeoutError(Exception):
    """Matching took longer than its limit."""


class ClientPattern:
    """A pattern in RE2's syntax, which must match a whole name.

    >>> ClientPattern("orders-(eu|us)-.*").matches("orders-eu-1")
    True
    """

    __slots__ = ("_compiled", "text")

    def __init__(self, text: str, what: str = "The pattern") -> None:
        """Raises `InvalidRegularExpressionError` if RE2 rejects it; the message begins with `what`."""
        self.text = text
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        if len(text) > MAX_PATTERN_LENGTH:
            raise InvalidRegularExpressionError(
                f"{what} `{shown}` has {len(text)} characters; at most {MAX_PATTERN_LENGTH} are allowed."
            )
        re2 = _engine()
        options = re2.Options()
        options.max_mem = MAX_MEMORY_BYTES
        options.log_errors = False
        options.never_capture = True  # groups cost memory and time, and their text is not used
        try:
            self._compiled = re2.compile(text, options=options)
        except (re2.error, UnicodeEncodeError) as error:
            raise InvalidRegularExpressionError(
                f"{what} `{shown}` is not a valid regular expression: {_reason(error)}."
            ) from None
        finally:
            # The module caches the last 128 patterns. A hostile client could fill the cache at will.
            re2.purge()

    def matches(self, name: str) -> bool:
        """Returns whether the whole name matches."""
        return self._compiled.fullmatch(name) is not None

    def search(self, names: Iterable[str], clock: Clock, deadline_ms: int) -> set[str]:
        """Returns the names that match. Raises `PatternTimeoutError` after the deadline on the monotonic clock."""
        fullmatch = self._compiled.fullmatch
        found = set()
        for name in names:
            if clock.hi_res_milliseconds() > deadline_ms:
                raise PatternTimeoutError
            if fullmatch(name) is not None:
                found.add(name)
        return found

    def __repr__(self) -> str:
        return f"ClientPattern({self.text!r})"


def search_limit_ms(names: int) -> int:
    """Returns the time limit of a search through this number of names: 0.5 s plus 50 us per name, up to 5 s.

    An ordinary pattern takes 2 us for a name.
    """
    return min(500 + names // 20, 5_000)


def _engine() -> Any:
    try:
        return importlib.import_module("re2")
    except ImportError:
        raise InvalidRegularExpressionError(
            "This broker cannot evaluate regular expressions: the package google-re2 is not installed."
        ) from None


def _reason(error: Exception) -> str:
    """Returns RE2's message, which the Python module has as bytes."""
    reason = error.args[0] if error.args else error
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(error)
