"""What concerns the subscription and the assignment of a consumer at once."""

from __future__ import annotations

import pytest

from barnabas.clients.common.errors import IllegalStateError
from barnabas.clients.consumer.auto_offset_reset import EARLIEST
from barnabas.clients.consumer.internals.subscription_state import SubscriptionState
from barnabas.common.topic_partition import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_assigning_says_whether_the_topics_are_others() -> None:
    made = SubscriptionState(EARLIEST)
    assert made.assign_from_user([A0, A1, A0])
    assert made.assignment.in_fetch_order() == [A0, A1]
    first = made.assignment.id
    assert not made.assign_from_user([A1, A0])
    assert made.assignment.id == first, "the same partitions are no new assignment"
    assert not made.assign_from_user([A0])
    assert made.assign_from_user([A0, B0])
    assert made.subscription.topics == frozenset()
    with pytest.raises(IllegalStateError, match="mutually exclusive"):
        made.subscribe(["a"])


def test_the_group_assigns_to_subscribers_only() -> None:
    made = SubscriptionState(EARLIEST)
    for _ in range(2):
        with pytest.raises(IllegalStateError, match="manual assignment"):
            made.assign_from_subscribed([A0])
        made.unsubscribe()
        made.assign_from_user([A0])
    made.unsubscribe()
    made.subscribe(["a"])
    made.assign_from_subscribed([A0])
    made.assign_from_subscribed_awaiting_callback([A0, A1], [A1])
    assert made.positions.initializing_partitions() == {A0}
    made.unsubscribe()
    assert made.subscription.is_none()
    assert not made.assignment


def test_metadata_is_needed_of_what_is_subscribed_assigned_or_of_the_group() -> None:
    made = SubscriptionState(EARLIEST)
    made.subscribe(["a"])
    made.assign_from_subscribed([B0])
    made.group_subscribe(["c"])
    assert made.metadata_topics() == {"a", "b", "c"}
    assert [topic for topic in "abcd" if made.needs_metadata(topic)] == ["a", "b", "c"]
    made.reset_group_subscription()
    assert made.metadata_topics() == {"a", "b"}
