"""Patterns that clients send: RE2's syntax, whole names, and bounds on length, memory and time."""

from __future__ import annotations

import importlib
import sys
import time
from contextlib import suppress
from typing import Any

import pytest

from barnabas.common.client_pattern import (
    MAX_PATTERN_LENGTH,
    ClientPattern,
    PatternTimeoutError,
    search_limit_ms,
)
from barnabas.common.clock import SYSTEM_CLOCK, MockClock
from barnabas.common.errors import InvalidRegularExpressionError


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("orders", ["orders"], ["orders2", "my-orders", ""]),
        ("orders.*", ["orders", "orders-eu"], ["order"]),
        (
            "orders-(eu|us)-\\d{2,3}",
            ["orders-eu-12", "orders-us-123"],
            ["orders-eu-1", "orders-ap-12", "orders-eu-1234"],
        ),
        ("a|ab", ["a", "ab"], ["abc"]),
        ("(?i)Foo", ["foo", "FOO"], ["fo"]),
        ("^x$", ["x"], ["xx", "x\n"]),
        ("\\Qa.b\\E.*", ["a.b", "a.bc"], ["axb"]),
        ("[[:alpha:]]+", ["abc"], ["ab1"]),
        ("\\pL+", ["abc", "straße", "Ω"], ["1"]),
        ("\\p{Greek}", ["Ω"], ["O"]),
        ("(?P<name>x)y", ["xy"], ["x"]),
        ("\\bfoo\\b.*", ["foo-bar"], ["foobar"]),
        ("((a*)*)*b", ["b", "aaab"], ["aaa"]),
        ("", [""], ["a"]),
    ],
)
def test_a_pattern_matches_the_whole_name(pattern: str, matching: list[str], others: list[str]) -> None:
    compiled = ClientPattern(pattern)
    assert [name for name in matching + others if compiled.matches(name)] == matching


@pytest.mark.parametrize(
    "pattern",
    ["(", "[a", "a**", "*", "(?=a)", "(?<!a)b", "(a)\\1", "(?P=x)", "(?>a)", "a{1001}", "\\Z", "\\pX", "a\\", "\ud800"],
)
def test_what_re2_does_not_have_is_rejected_with_128(pattern: str) -> None:
    with pytest.raises(
        InvalidRegularExpressionError, match=r"^SubscribedTopicRegex `.*` is not a valid regular"
    ) as error:
        ClientPattern(pattern, "SubscribedTopicRegex")
    assert error.value.code == 128


def test_the_length_of_a_pattern_is_bounded() -> None:
    assert ClientPattern("a" * MAX_PATTERN_LENGTH).matches("a" * MAX_PATTERN_LENGTH)
    with pytest.raises(InvalidRegularExpressionError, match="has 4097 characters; at most 4096 are allowed") as error:
        ClientPattern("a" * (MAX_PATTERN_LENGTH + 1))
    assert len(str(error.value)) < 300, "the message does not repeat the whole pattern"


HOSTILE = {
    "nested repetitions": "(?:(?:(?:){1000}){1000}){1000}",
    "optional letters": "(a?a?a?){900}",
    "empty alternatives": f"({'|' * 3000}){{300}}",
    "nested groups": "(" * 250 + ")" * 250,
    "deeply nested groups": "(" * 2000 + ")" * 2000,
    "nested stars": "(" * 900 + "a" + "*)" * 900,
    "classes of Unicode": "(?:\\pL|\\pN){333}",
    "backtracking": "(a+)+$",
    "exponential automaton": "(a|b)*a(a|b){20}",
}


@pytest.mark.parametrize("pattern", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_pattern_costs_little(pattern: str) -> None:
    """In CPU time of this thread, so that a loaded machine gives the same result. The engine before took 5 to 15 s for
    the first three and raised RecursionError for the fourth."""
    names = [
        "a" * 249 + "!",
        "ab" * 124,
        *("".join("ab"[number >> bit & 1] for bit in range(200)) for number in range(9)),
    ]
    started = time.thread_time()
    with suppress(InvalidRegularExpressionError):
        ClientPattern(pattern).search(names, SYSTEM_CLOCK, SYSTEM_CLOCK.hi_res_milliseconds() + 60_000)
    assert time.thread_time() - started < 0.5


def test_no_compiled_pattern_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """`re2.compile` remembers 128 of them, each with its caches."""
    re2: Any = importlib.import_module("re2")
    purges = []
    purge = re2.purge
    monkeypatch.setattr(re2, "purge", lambda: purges.append(purge()))
    ClientPattern("a.*")
    with pytest.raises(InvalidRegularExpressionError):
        ClientPattern("(")
    assert len(purges) == 2


def test_a_search_ends_at_its_deadline() -> None:
    clock = MockClock()
    asked = []

    def names() -> Any:
        for number in range(1000):
            asked.append(number)
            clock.advance(1)
            yield f"topic-{number}"

    with pytest.raises(PatternTimeoutError):
        ClientPattern("topic-.*").search(names(), clock, clock.hi_res_milliseconds() + 20)
    assert len(asked) == 21
    assert len(ClientPattern("topic-.*5").search(names(), clock, clock.hi_res_milliseconds() + 2000)) == 100


def test_the_time_limit_grows_with_the_names_up_to_five_seconds() -> None:
    assert [search_limit_ms(count) for count in (0, 1000, 10_000, 1_000_000)] == [500, 550, 1000, 5000]


def test_without_the_engine_patterns_are_rejected_and_the_message_names_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(InvalidRegularExpressionError, match="google-re2 is not installed"):
        ClientPattern("a.*")
