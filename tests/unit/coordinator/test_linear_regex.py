"""Patterns over topic names."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.common.errors import InvalidRegularExpressionError
from barnabas.coordinator.linear_regex import LinearRegex, compile_regex


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
        ("[a-c]+[^x-z]?", ["abc", "a1"], ["", "ax", "d"]),
        ("(?i)Foo", ["foo", "FOO"], ["fo"]),
        ("a{3}", ["aaa"], ["aa", "aaaa"]),
        ("a{2,}", ["aa", "aaaaa"], ["a"]),
        ("(ab)*?c", ["c", "ababc"], ["abab"]),
        ("^x$", ["x"], ["xx"]),
        ("\\Ax\\z", ["x"], ["y"]),
        ("\\Qa.b\\E.*", ["a.b", "a.bc"], ["axb"]),
        ("[[:alpha:]]+", ["abc"], ["ab1"]),
        ("(?P<name>x)y", ["xy"], ["x"]),
        ("\\bfoo\\b.*", ["foo-bar"], ["foobar"]),
        ("fo\\Bo", ["foo"], []),
        ("\\w+\\W\\w+", ["a-b"], ["ab", "a--b"]),
        ("\\S+", ["abc"], ["a b"]),
        ("(|a)b", ["b", "ab"], ["aab"]),
        ("((a*)*)*b", ["b", "aaab"], ["aaa"]),
        ("", [""], ["a"]),
    ],
)
def test_patterns(pattern: str, matching: list[str], others: list[str]) -> None:
    regex = LinearRegex(pattern)
    assert [name for name in matching + others if regex.matches(name)] == matching


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        "[a",
        "a**",
        "(?=a)",
        "(?<!a)b",
        "(a)\\1",
        "(?P=x)",
        "\\pL",
        "(?>a)",
        "a++",
        "a" * 5000,
        "((a{100}){100}){100}",
        "*",
    ],
)
def test_what_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidRegularExpressionError):
        LinearRegex(pattern)


def test_no_pattern_takes_long() -> None:
    """Python's own would take ages for this."""
    start = time.perf_counter()
    assert not LinearRegex("(a+)+$").matches("a" * 249 + "!")
    assert not LinearRegex("(a|a)*b").matches("a" * 249)
    assert time.perf_counter() - start < 2


def test_compiled_once() -> None:
    assert compile_regex("x.*") is compile_regex("x.*")


ATOMS = st.sampled_from(["a", "b", "-", ".", "\\d", "[ab]", "[^a]", "\\w", "1"])


def patterns() -> st.SearchStrategy[str]:
    return st.recursive(
        ATOMS,
        lambda inner: st.one_of(
            st.tuples(inner, inner).map("".join),
            st.tuples(inner, inner).map(lambda pair: f"({pair[0]}|{pair[1]})"),
            st.tuples(inner, st.sampled_from(["*", "+", "?", "{1,2}", "*?", "{2}"])).map(
                lambda pair: f"(?:{pair[0]}){pair[1]}"
            ),
        ),
        max_leaves=6,
    )


@settings(max_examples=300, deadline=None)
@given(patterns(), st.lists(st.text(alphabet="ab-1.", max_size=6), max_size=5))
def test_the_same_as_python_where_that_is_fast_enough(pattern: str, names: list[str]) -> None:
    ours, theirs = LinearRegex(pattern), re.compile(pattern)
    for name in names:
        assert ours.matches(name) == bool(theirs.fullmatch(name))
