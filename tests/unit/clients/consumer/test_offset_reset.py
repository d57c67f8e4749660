"""Positions that are reset: by the application, by the default policy, or not at all."""

from __future__ import annotations

import pytest

from barnabas.clients.common.errors import IllegalStateError
from barnabas.clients.consumer.auto_offset_reset import EARLIEST, LATEST, NONE, AutoOffsetResetStrategy
from barnabas.clients.consumer.errors import NoOffsetForPartitionError
from barnabas.clients.consumer.internals.assignment import Assignment
from barnabas.clients.consumer.internals.fetch_position import FetchPosition
from barnabas.clients.consumer.internals.offset_reset import OffsetReset
from barnabas.common.topic_partition import TopicPartition

P0, P1 = TopicPartition("a", 0), TopicPartition("a", 1)
GONE = TopicPartition("gone", 0)


def resets(strategy: AutoOffsetResetStrategy) -> tuple[Assignment, OffsetReset]:
    assignment = Assignment()
    assignment.replace([P0, P1])
    return assignment, OffsetReset(assignment, strategy)


def test_a_partition_is_reset_with_the_default_or_another_strategy() -> None:
    _, made = resets(EARLIEST)
    assert made.has_default_policy
    made.request_offset_reset([P0])
    made.request_offset_reset([P1], LATEST)
    assert made.partitions_needing_reset(0) == {P0: EARLIEST, P1: LATEST}
    with pytest.raises(IllegalStateError):
        made.request_offset_reset([GONE])
    made.request_offset_reset_if_assigned(GONE)


def test_a_reset_is_requested_again_after_its_backoff() -> None:
    assignment, made = resets(EARLIEST)
    made.request_offset_reset([P0])
    assignment.state(P0).next_retry_ms = 50
    assert made.partitions_needing_reset(49) == {}
    assert made.partitions_needing_reset(50) == {P0: EARLIEST}


def test_a_reset_that_is_not_wanted_any_more_is_ignored() -> None:
    assignment, made = resets(EARLIEST)
    woken: list[bool] = []
    assignment.on_change = lambda: woken.append(True)
    made.request_offset_reset([P0], LATEST)
    made.maybe_complete_reset(P0, FetchPosition(3), EARLIEST)
    made.maybe_complete_reset(P1, FetchPosition(3), EARLIEST)
    made.maybe_complete_reset(GONE, FetchPosition(3), EARLIEST)
    assert made.partitions_needing_reset(0) == {P0: LATEST}
    assert assignment.state(P1).position is None
    assert not woken
    made.maybe_complete_reset(P0, FetchPosition(9), LATEST)
    assert assignment.state(P0).position == FetchPosition(9)
    assert made.partitions_needing_reset(0) == {}
    assert woken


def test_partitions_without_a_position_are_reset_by_policy() -> None:
    assignment, made = resets(LATEST)
    assignment.state(P0).seek_validated(FetchPosition(1))
    made.reset_initializing_positions({P0, P1})
    assert made.partitions_needing_reset(0) == {P1: LATEST}


def test_without_a_policy_a_missing_offset_is_an_error() -> None:
    _, made = resets(NONE)
    assert not made.has_default_policy
    made.reset_initializing_positions(set())
    with pytest.raises(NoOffsetForPartitionError) as raised:
        made.reset_initializing_positions({P1})
    assert list(raised.value.partitions) == [P1]
    assert made.partitions_needing_reset(0) == {}
