"""The types of a subscription exclude each other, and each matches partitions in its own way."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from barnabas.clients.common.errors import IllegalStateError
from barnabas.clients.consumer.internals.subscription import Subscription, SubscriptionType
from barnabas.clients.consumer.subscription_pattern import SubscriptionPattern
from barnabas.common.topic_partition import TopicPartition

A0, B0 = TopicPartition("a", 0), TopicPartition("b", 0)

WAYS: dict[SubscriptionType, Callable[[Subscription], object]] = {
    SubscriptionType.AUTO_TOPICS: lambda made: made.subscribe(["a"], None),
    SubscriptionType.AUTO_PATTERN: lambda made: made.subscribe_pattern(re.compile("a.*"), None),
    SubscriptionType.AUTO_PATTERN_RE2J: lambda made: made.subscribe_pattern(SubscriptionPattern("a.*"), None),
    SubscriptionType.USER_ASSIGNED: lambda made: made.set_type(SubscriptionType.USER_ASSIGNED),
}


@pytest.mark.parametrize("second", WAYS)
@pytest.mark.parametrize("first", WAYS)
def test_only_clear_lets_another_type_in(first: SubscriptionType, second: SubscriptionType) -> None:
    made = Subscription()
    assert made.is_none()
    WAYS[first](made)
    assert made.type is first
    if first is not second:
        with pytest.raises(IllegalStateError, match="mutually exclusive"):
            WAYS[second](made)
        made.clear()
        assert made.is_none()
        assert not made.topics
        assert (made.pattern, made.re2j_pattern) == (None, None)
    WAYS[second](made)
    assert made.type is second


@pytest.mark.parametrize("kind", WAYS)
def test_queries_about_the_type(kind: SubscriptionType) -> None:
    made = Subscription()
    WAYS[kind](made)
    assert made.is_auto_assigned() is (kind is not SubscriptionType.USER_ASSIGNED)
    assert made.has_pattern() is (kind is SubscriptionType.AUTO_PATTERN)
    assert made.has_re2j_pattern() is (kind is SubscriptionType.AUTO_PATTERN_RE2J)
    assert not made.is_none()


def test_subscribing_says_whether_the_topics_are_others() -> None:
    made = Subscription()
    assert made.subscribe(["a", "b"], None)
    assert not made.subscribe(["b", "a"], None)
    assert made.subscribe(["b"], None)
    assert made.covers([B0])
    assert not made.covers([A0, B0])
    with pytest.raises(IllegalStateError, match="subscribe from pattern"):
        made.subscribe_from_pattern(["a"])


def test_the_topics_of_a_pattern() -> None:
    made = Subscription()
    made.subscribe_pattern(re.compile("a.*"), None)
    assert made.subscribe_from_pattern(["ab"])
    assert not made.subscribe_from_pattern(["ab"])
    assert made.topics == {"ab"}
    assert made.matches_pattern("abc")
    assert not made.matches_pattern("ba")
    assert made.covers([A0]), "which matches, although it is not among the topics yet"
    assert not made.covers([A0, B0])


def test_a_pattern_of_the_coordinator_covers_what_it_assigns() -> None:
    made = Subscription()
    made.subscribe_pattern(SubscriptionPattern("a.*"), None)
    assert made.covers([A0, B0])
    assert not made.matches_pattern("a")


def test_topics_of_the_whole_group() -> None:
    made = Subscription()
    with pytest.raises(IllegalStateError):
        made.group_subscribe(["a"])
    made.subscribe(["a", "b"], None)
    assert not made.group_subscribe(["a"])
    assert made.group_subscribe(["a", "c"])
    assert made.group_topics == {"a", "c"}
