"""Regular expressions that clients send: RE2, with bounded length, memory and time.

A pattern of a client is hostile until proven otherwise. Python's ``re`` backtracks: ``(a+)+$`` and a long name would
hold a thread for years. Kafka uses RE2/J, which matches in linear time; `google-re2` is the C++ original of it, with
the same syntax. Linear is not enough by itself, so three bounds come with it:

* The pattern has at most `MAX_PATTERN_LENGTH` characters.
* Its program and its caches have at most `MAX_MEMORY_BYTES`. RE2 refuses a pattern that does not fit, such as
  ``(|||...){300}``, after a few milliseconds at most, and matches more slowly rather than use more.
* A search through many names ends at a deadline (`search_limit_ms`). ``(a?a?a?){900}`` takes 10 ms for one long name.

RE2 releases the GIL while it matches. It is imported with the first pattern, not at the start of a broker.
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
"""How much of a pattern an error message quotes."""


class PatternTimeoutError(Exception):
    """Matching took longer than it may."""


class ClientPattern:
    """A pattern in RE2's syntax, which has to match the whole of a name.

    >>> ClientPattern("orders-(eu|us)-.*").matches("orders-eu-1")
    True
    """

    __slots__ = ("_compiled", "text")

    def __init__(self, text: str, what: str = "The pattern") -> None:
        """`InvalidRegularExpressionError` if RE2 does not take it; its message begins with `what`."""
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
        options.never_capture = True  # groups cost memory and time, and nobody asks for their text
        try:
            self._compiled = re2.compile(text, options=options)
        except (re2.error, UnicodeEncodeError) as error:
            raise InvalidRegularExpressionError(
                f"{what} `{shown}` is not a valid regular expression: {_reason(error)}."
            ) from None
        finally:
            # The module keeps the last 128 patterns, each with its caches. A hostile client could fill them at will.
            re2.purge()

    def matches(self, name: str) -> bool:
        """Whether the whole name matches."""
        return self._compiled.fullmatch(name) is not None

    def search(self, names: Iterable[str], clock: Clock, deadline_ms: int) -> set[str]:
        """The names that match. `PatternTimeoutError` if the deadline, on the steady clock, passes before the end."""
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
    """How long a search through so many names may take: half a second, and 50 us for each, up to 5 s.

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
    """RE2's message; the Python module gives it as bytes."""
    reason = error.args[0] if error.args else error
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(error)
