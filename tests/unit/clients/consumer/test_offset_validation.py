"""Positions after a change of leader: valid, truncated, or unknown to the new leader."""

from __future__ import annotations

import pytest

from barnabas.clients.common.offsets import OffsetAndMetadata
from barnabas.clients.consumer.auto_offset_reset import EARLIEST, NONE, AutoOffsetResetStrategy
from barnabas.clients.consumer.internals.assignment import Assignment
from barnabas.clients.consumer.internals.fetch_position import FetchPosition, LeaderAndEpoch, LogTruncation
from barnabas.clients.consumer.internals.offset_reset import OffsetReset
from barnabas.clients.consumer.internals.offset_validation import OffsetValidation
from barnabas.clients.consumer.internals.topic_partition_state import (
    AWAIT_RESET,
    AWAIT_VALIDATION,
    FETCHING,
    TopicPartitionState,
)
from barnabas.common.topic_partition import TopicPartition
from barnabas.network.client.node import Node

P0 = TopicPartition("a", 0)
GONE = TopicPartition("gone", 0)
LEADER = LeaderAndEpoch(Node(1, "h", 9092), 5)
NEXT = LeaderAndEpoch(Node(2, "h", 9092), 6)
POSITION = FetchPosition(120, 4, LEADER)


def awaiting(strategy: AutoOffsetResetStrategy = EARLIEST) -> tuple[TopicPartitionState, OffsetValidation]:
    assignment = Assignment()
    assignment.replace([P0])
    assignment.state(P0).seek_unvalidated(POSITION)
    return assignment.state(P0), OffsetValidation(assignment, OffsetReset(assignment, strategy))


@pytest.mark.parametrize("end_offset", [120, 121, 5_000])
@pytest.mark.parametrize("strategy", [EARLIEST, NONE])
def test_a_position_that_the_leader_has_is_valid(strategy: AutoOffsetResetStrategy, end_offset: int) -> None:
    state, made = awaiting(strategy)
    assert made.partitions_needing_validation(0) == [P0]
    assert made.maybe_complete_validation(P0, POSITION, 4, end_offset) is None
    assert (state.fetch_state, state.position) == (FETCHING, POSITION)
    assert made.partitions_needing_validation(0) == []


def test_a_consumer_goes_back_to_where_the_logs_agree() -> None:
    state, made = awaiting()
    assert made.maybe_complete_validation(P0, POSITION, 3, 100) is None
    assert (state.fetch_state, state.position) == (FETCHING, FetchPosition(100, 3, LEADER))


@pytest.mark.parametrize(("end_epoch", "end_offset"), [(-1, 100), (3, -1), (-1, -1)])
def test_an_epoch_that_the_leader_does_not_know_is_a_reset(end_epoch: int, end_offset: int) -> None:
    state, made = awaiting()
    assert made.maybe_complete_validation(P0, POSITION, end_epoch, end_offset) is None
    assert (state.fetch_state, state.reset_strategy) == (AWAIT_RESET, EARLIEST)


@pytest.mark.parametrize(("end", "divergent"), [((3, 100), OffsetAndMetadata(100, "", 3)), ((-1, -1), None)])
def test_without_a_policy_a_truncation_is_reported(end: tuple[int, int], divergent: OffsetAndMetadata | None) -> None:
    state, made = awaiting(NONE)
    assert made.maybe_complete_validation(P0, POSITION, *end) == LogTruncation(P0, POSITION, divergent)
    assert (state.fetch_state, state.position) == (AWAIT_VALIDATION, POSITION)


def test_a_response_about_another_position_is_ignored() -> None:
    state, made = awaiting()
    assert made.maybe_complete_validation(P0, POSITION._replace(offset=1), 3, 0) is None
    assert made.maybe_complete_validation(GONE, POSITION, 3, 0) is None
    assert (state.fetch_state, state.position) == (AWAIT_VALIDATION, POSITION)


def test_a_leader_that_cannot_validate_is_trusted() -> None:
    state, made = awaiting()
    assert not made.maybe_validate_position_for_current_leader(P0, NEXT, can_validate=False)
    assert (state.fetch_state, state.position) == (FETCHING, POSITION._replace(current_leader=NEXT))
    assert made.maybe_validate_position_for_current_leader(P0, LEADER)
    assert made.partitions_needing_validation(0) == [P0]
    made.complete_validation(P0)
    made.complete_validation(GONE)
    assert made.partitions_needing_validation(0) == []
    assert not made.maybe_validate_position_for_current_leader(GONE, LEADER)
