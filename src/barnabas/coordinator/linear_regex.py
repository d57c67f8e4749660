"""Regular expressions over names of topics (KIP-848) and of transactional ids (KIP-1152), matched in linear time.

Clients send them, so they are hostile until proven otherwise. Kafka uses RE2/J, which never backtracks; Python's ``re``
does, and with ``(a+)+$`` and a long name it would hold a thread for longer than the universe has been there. So only
the parser of ``re`` is used here. What it finds becomes a nondeterministic automaton, which is run on all of its
states at once: a name of *n* characters takes *n* steps, whatever the pattern is.

The syntax is that of RE2 as far as ``re`` has the same, which is what names need: literals, ``.``, classes,
``\\d \\w \\s``, ``* + ? {n,m}`` (also lazy ones, which make no difference here), groups, ``|``, ``^ $ \\A \\z \\b``,
``\\Q...\\E``, and the flags ``(?i)`` and ``(?s)``. What RE2 has not (back references, look-around, atomic groups) is
refused, and so are its classes by Unicode property (``\\pL``), which ``re`` has not: names of topics are ASCII. A
pattern has to match the whole name.
"""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final

from barnabas.common.errors import InvalidRegularExpressionError

# Private, but what every version of Python that we run on has. Type checkers do not know them.
sre: Final[Any] = importlib.import_module("re._constants")
sre_parser: Final[Any] = importlib.import_module("re._parser")

MAX_PATTERN_LENGTH: Final = 4096
MAX_REPETITIONS: Final = 1000
"""The limit of RE2."""
MAX_STATES: Final = 10_000
"""More than that is no pattern for names but an attack on the broker's memory: ``((a{100}){100}){100}``."""

Test = Callable[[str], bool]


class LinearRegex:
    """A pattern that has been understood.

    >>> LinearRegex("orders-(eu|us)-.*").matches("orders-eu-1")
    True
    """

    __slots__ = ("_accept", "_epsilons", "_steps", "pattern")

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        if len(pattern) > MAX_PATTERN_LENGTH:
            raise InvalidRegularExpressionError(f"A pattern of {len(pattern)} characters is too long.")
        self._steps: list[tuple[Test, int] | None] = []
        """For each state: what character leads where, None for states that characters do not leave."""
        self._epsilons: list[list[tuple[int, str | None]]] = []
        """For each state: where one gets without a character, and under what condition on the position."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)  # about ``[[``, which may mean more one day
                parsed = sre_parser.parse(_translate(pattern), 0)
        except (re.error, RecursionError, OverflowError) as error:
            raise InvalidRegularExpressionError(f"The pattern {pattern!r} is not valid: {error}") from None
        start = self._state()
        flags = parsed.state.flags
        self._accept = self._sequence(parsed, start, flags)

    def matches(self, name: str) -> bool:
        """Whether the whole name matches."""
        states = self._closure([0], name, 0)
        for at, character in enumerate(name):
            reached = []
            for state in states:
                step = self._steps[state]
                if step is not None and step[0](character):
                    reached.append(step[1])
            if not reached:
                return False
            states = self._closure(reached, name, at + 1)
        return self._accept in states

    def _closure(self, states: Iterable[int], name: str, at: int) -> set[int]:
        found: set[int] = set()
        waiting = list(states)
        while waiting:
            state = waiting.pop()
            if state in found:
                continue
            found.add(state)
            waiting.extend(
                target
                for target, condition in self._epsilons[state]
                if condition is None or _holds(condition, name, at)
            )
        return found

    # -- making the automaton

    def _state(self) -> int:
        if len(self._steps) >= MAX_STATES:
            raise InvalidRegularExpressionError(f"The pattern {self.pattern!r} is too large.")
        self._steps.append(None)
        self._epsilons.append([])
        return len(self._steps) - 1

    def _link(self, source: int, target: int, condition: str | None = None) -> None:
        self._epsilons[source].append((target, condition))

    def _consume(self, start: int, test: Test) -> int:
        end = self._state()
        # A state of its own, as there may be other ways out of `start`.
        reader = self._state()
        self._link(start, reader)
        self._steps[reader] = (test, end)
        return end

    def _sequence(self, items: Iterable[Any], start: int, flags: int) -> int:
        for kind, argument in items:
            start = self._item(kind, argument, start, flags)
        return start

    def _item(self, kind: Any, argument: Any, start: int, flags: int) -> int:
        if kind is sre.LITERAL or kind is sre.NOT_LITERAL or kind is sre.ANY or kind is sre.IN:
            return self._consume(start, _test(kind, argument, flags))
        if kind is sre.BRANCH:
            end = self._state()
            for branch in argument[1]:
                self._link(self._sequence(branch, start, flags), end)
            return end
        if kind is sre.SUBPATTERN:
            _, add, remove, items = argument
            # In a state of its own, for a repetition of the group to come back to.
            begin = self._state()
            self._link(start, begin)
            return self._sequence(items, begin, (flags | add) & ~remove)
        if kind is sre.MAX_REPEAT or kind is sre.MIN_REPEAT:
            lowest, highest, items = argument
            if max(lowest, 0 if highest is sre.MAXREPEAT else int(highest)) > MAX_REPETITIONS:
                raise InvalidRegularExpressionError(
                    f"The pattern {self.pattern!r} repeats something more than {MAX_REPETITIONS} times."
                )
            return self._repeat(lowest, highest, items, start, flags)
        if kind is sre.AT:
            condition = _POSITIONS.get(argument)
            if condition is not None:
                end = self._state()
                self._link(start, end, condition)
                return end
        raise InvalidRegularExpressionError(
            f"The pattern {self.pattern!r} uses {str(kind).lower()}, which RE2 has not."
        )

    def _repeat(self, lowest: int, highest: Any, items: Any, start: int, flags: int) -> int:
        for _ in range(lowest):
            start = self._sequence(items, start, flags)
        if highest is sre.MAXREPEAT:
            loop = self._state()
            self._link(start, loop)
            self._link(self._sequence(items, loop, flags), loop)
            end = self._state()
            self._link(loop, end)
            return end
        ends = [start]
        for _ in range(int(highest) - lowest):
            start = self._sequence(items, start, flags)
            ends.append(start)
        end = self._state()
        for one in ends:
            self._link(one, end)
        return end


_POSITIONS: Final = {
    sre.AT_BEGINNING: "begin",
    sre.AT_BEGINNING_STRING: "begin",
    sre.AT_END: "end",
    sre.AT_END_STRING: "end",
    sre.AT_BOUNDARY: "boundary",
    sre.AT_NON_BOUNDARY: "no boundary",
}


def _holds(condition: str, name: str, at: int) -> bool:
    if condition == "begin":
        return at == 0
    if condition == "end":
        return at == len(name)
    is_boundary = (at > 0 and _is_word(name[at - 1])) != (at < len(name) and _is_word(name[at]))
    return is_boundary == (condition == "boundary")


def _is_word(character: str) -> bool:
    return character.isascii() and (character.isalnum() or character == "_")


_CATEGORIES: Final[dict[Any, Test]] = {
    sre.CATEGORY_DIGIT: lambda one: one.isascii() and one.isdigit(),
    sre.CATEGORY_NOT_DIGIT: lambda one: not (one.isascii() and one.isdigit()),
    sre.CATEGORY_SPACE: lambda one: one in " \t\n\r\f\v",
    sre.CATEGORY_NOT_SPACE: lambda one: one not in " \t\n\r\f\v",
    sre.CATEGORY_WORD: _is_word,
    sre.CATEGORY_NOT_WORD: lambda one: not _is_word(one),
}


def _test(kind: Any, argument: Any, flags: int) -> Test:
    """What a character has to be."""
    ignore_case = bool(flags & re.IGNORECASE)
    if kind is sre.ANY:
        return (lambda _: True) if flags & re.DOTALL else (lambda one: one != "\n")
    if kind is sre.IN:
        negate = bool(argument) and argument[0][0] is sre.NEGATE
        tests = [_test_member(one, value, ignore_case) for one, value in argument if one is not sre.NEGATE]
        return lambda one: any(test(one) for test in tests) != negate
    literal = _test_member(sre.LITERAL, argument, ignore_case)
    return literal if kind is sre.LITERAL else (lambda one: not literal(one))


def _test_member(kind: Any, argument: Any, ignore_case: bool) -> Test:
    if kind is sre.CATEGORY:
        return _CATEGORIES[argument]
    low, high = argument if kind is sre.RANGE else (argument, argument)
    if ignore_case:
        return lambda one: low <= ord(one.lower()) <= high or low <= ord(one.upper()) <= high
    return lambda one: low <= ord(one) <= high


_POSIX_CLASSES: Final = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": "\\x00-\\x7f",
    "blank": "\\t ",
    "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": "!-/:-@\\[-`{-~",
    "space": "\\t\\n\\v\\f\\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_QUOTED: Final = re.compile(r"\\Q(.*?)(?:\\E|\Z)", re.DOTALL)
_POSIX: Final = re.compile(r"\[:(\w+):\]")


def _translate(pattern: str) -> str:
    """From RE2's spelling to that of ``re``, where they differ."""
    pattern = _QUOTED.sub(lambda found: re.escape(found[1]), pattern)
    pattern = _POSIX.sub(lambda found: _POSIX_CLASSES.get(found[1], found[0]), pattern)
    return re.sub(r"(?<!\\)((?:\\\\)*)\\z", r"\1\\Z", pattern)


@lru_cache(maxsize=256)
def compile_regex(pattern: str) -> LinearRegex:
    """`InvalidRegularExpressionError` if it is none."""
    return LinearRegex(pattern)
