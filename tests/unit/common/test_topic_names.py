"""Names of topics."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.common.errors import InvalidTopicError
from barnabas.common.topic_names import (
    INTERNAL_TOPICS,
    TELEMETRY_TOPICS,
    collision_key,
    has_collision_characters,
    is_internal_topic,
    is_valid_topic_name,
    problem_with_topic_name,
    topic_names_collide,
    validate_topic_name,
)


@pytest.mark.parametrize(
    "name", ["valid", "TOPIC", "nAmEs", "ar6", "VaL1d", "_0-9_.", "...", "-", "a" * 249, "__consumer_offsets"]
)
def test_valid_names(name: str) -> None:
    assert is_valid_topic_name(name)
    validate_topic_name(name)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "empty"),
        (".", "directory"),
        ("..", "directory"),
        ("a" * 250, "250 characters; at most 249 are allowed"),
        ("foo:bar", "character"),
        ("a/b", "character"),
        ("a b", "character"),
        ("a\n", "character"),
        ("\n", "character"),
        ("tëst", "character"),
        ("\u0661", "character"),  # a digit, but no ASCII one
        ("a\0", "character"),
    ],
)
def test_invalid_names(name: str, problem: str) -> None:
    assert not is_valid_topic_name(name)
    assert problem in (problem_with_topic_name(name) or "")
    with pytest.raises(InvalidTopicError, match="Topic name is invalid") as caught:
        validate_topic_name(name)
    assert caught.value.invalid_topics == {name}


def test_internal_topics() -> None:
    assert sorted(INTERNAL_TOPICS - TELEMETRY_TOPICS) == [
        "__consumer_offsets",
        "__share_group_state",
        "__transaction_state",
    ]
    assert sorted(TELEMETRY_TOPICS) == ["__client_telemetry", "__quota_usage", "__request_log"]
    assert INTERNAL_TOPICS > TELEMETRY_TOPICS
    assert is_internal_topic("__transaction_state")
    assert not is_internal_topic("__cluster_metadata")
    assert not is_internal_topic("orders")


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [("a.b", "a_b", True), ("a.b", "a.b", True), (".b", "_b", True), ("a.b", "a-b", False), ("a.b", "a.b.", False)],
)
def test_collisions(one: str, other: str, expected: bool) -> None:
    assert topic_names_collide(one, other) is expected
    assert topic_names_collide(other, one) is expected


@given(st.text("a._-", max_size=4), st.text("a._-", max_size=4))
def test_only_names_with_such_characters_collide_with_others(one: str, other: str) -> None:
    if one != other and topic_names_collide(one, other):
        assert has_collision_characters(one)
        assert has_collision_characters(other)
        assert collision_key(one) == collision_key(other)
