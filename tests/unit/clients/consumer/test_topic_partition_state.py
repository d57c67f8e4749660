"""The fetch state machine of a partition, transition by transition."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.clients.consumer.auto_offset_reset import EARLIEST
from barnabas.clients.consumer.internals.fetch_position import FetchPosition, LeaderAndEpoch
from barnabas.clients.consumer.internals.topic_partition_state import (
    AWAIT_RESET,
    AWAIT_VALIDATION,
    FETCHING,
    VALID_TRANSITIONS,
    FetchState,
    TopicPartitionState,
)
from barnabas.network.client.node import Node

INITIALIZING = FetchState.INITIALIZING
LEADER = LeaderAndEpoch(Node(1, "h", 9092), 3)
OTHER = LeaderAndEpoch(Node(2, "h", 9093), 4)
WITH_EPOCHS = FetchPosition(5, 2, LEADER)
WITHOUT_EPOCH = FetchPosition(5, None, LEADER)

EVENTS: dict[str, Callable[[TopicPartitionState], object]] = {
    "reset": lambda state: state.reset(EARLIEST),
    "seek_validated": lambda state: state.seek_validated(WITH_EPOCHS),
    "seek_unvalidated": lambda state: state.seek_unvalidated(WITH_EPOCHS),
    "seek_unvalidated without an epoch": lambda state: state.seek_unvalidated(WITHOUT_EPOCH),
    "new leader": lambda state: state.maybe_validate_position(OTHER),
    "same leader": lambda state: state.maybe_validate_position(LEADER),
    "new leader of an old version": lambda state: state.update_leader_without_validation(OTHER),
    "complete_validation": lambda state: state.complete_validation(),
}
EXPECTED = {
    #                                     INITIALIZING  FETCHING          AWAIT_RESET       AWAIT_VALIDATION
    "reset":                             (AWAIT_RESET,  AWAIT_RESET,      AWAIT_RESET,      AWAIT_RESET),
    "seek_validated":                    (FETCHING,     FETCHING,         FETCHING,         FETCHING),
    "seek_unvalidated":                  (AWAIT_VALIDATION, AWAIT_VALIDATION, AWAIT_VALIDATION, AWAIT_VALIDATION),
    "seek_unvalidated without an epoch": (FETCHING,     FETCHING,         FETCHING,         FETCHING),
    "new leader":                        (INITIALIZING, AWAIT_VALIDATION, AWAIT_RESET,      AWAIT_VALIDATION),
    "same leader":                       (INITIALIZING, FETCHING,         AWAIT_RESET,      AWAIT_VALIDATION),
    "new leader of an old version":      (INITIALIZING, FETCHING,         AWAIT_RESET,      FETCHING),
    "complete_validation":               (INITIALIZING, FETCHING,         AWAIT_RESET,      FETCHING),
}  # fmt: skip


def in_state(wanted: FetchState) -> TopicPartitionState:
    made = TopicPartitionState()
    if wanted is FETCHING:
        made.seek_validated(WITH_EPOCHS)
    elif wanted is AWAIT_RESET:
        made.reset(EARLIEST)
    elif wanted is AWAIT_VALIDATION:
        made.seek_unvalidated(WITH_EPOCHS)
    assert made.fetch_state is wanted
    return made


@pytest.mark.parametrize("before", list(FetchState))
@pytest.mark.parametrize("event", EVENTS)
def test_every_event_in_every_state(event: str, before: FetchState) -> None:
    state = in_state(before)
    state.next_retry_ms = 50
    EVENTS[event](state)
    after = state.fetch_state
    assert after is EXPECTED[event][list(FetchState).index(before)]
    assert after is before or after in VALID_TRANSITIONS[before] or event.startswith("seek_unvalidated")
    assert (state.position is not None) is after.has_position
    if after is not before:
        assert state.next_retry_ms is None, "another state asks for something else, at once"


@pytest.mark.parametrize("to", list(FetchState))
@pytest.mark.parametrize("before", list(FetchState))
def test_no_transition_but_those_of_the_table(before: FetchState, to: FetchState) -> None:
    state = in_state(before)
    position = state.position
    legal = to in VALID_TRANSITIONS[before]
    assert state._transition(to, WITHOUT_EPOCH) is legal
    assert (state.fetch_state, state.position) == ((to, WITHOUT_EPOCH) if legal else (before, position))


def test_a_leader_that_is_not_known_changes_nothing() -> None:
    state = in_state(FETCHING)
    assert not state.maybe_validate_position(LeaderAndEpoch())
    assert state.position == WITH_EPOCHS


def test_a_request_waits_for_its_backoff() -> None:
    state = in_state(AWAIT_RESET)
    assert state.may_request(AWAIT_RESET, 0)
    assert not state.may_request(AWAIT_VALIDATION, 0)
    state.next_retry_ms = 50
    assert [state.may_request(AWAIT_RESET, now) for now in (49, 50)] == [False, True]


def test_a_preferred_read_replica_expires_and_goes_with_the_leader() -> None:
    state = in_state(FETCHING)
    state.update_preferred_read_replica(7, lambda: 100)
    state.update_preferred_read_replica(7, lambda: 1_000)
    assert [state.preferred_replica(now) for now in (100, 101)] == [7, None], "the same one again is no news"
    state.update_preferred_read_replica(8, lambda: 200)
    assert state.clear_preferred_read_replica() == 8
    assert state.clear_preferred_read_replica() is None
    state.update_preferred_read_replica(9, lambda: 200)
    state.maybe_validate_position(OTHER)
    assert state.preferred_replica(0) is None
