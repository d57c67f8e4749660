"""The positions of many partitions in any mix of states, compared with the state of each."""

from __future__ import annotations

from random import Random

import pytest

from barnabas.clients.common.errors import IllegalStateError
from barnabas.clients.common.offsets import OffsetAndMetadata
from barnabas.clients.consumer.consumer_record import ConsumerRecord
from barnabas.clients.consumer.internals.assignment import Assignment
from barnabas.clients.consumer.internals.consumer_lag import ConsumerLag
from barnabas.clients.consumer.internals.fetch_position import FetchPosition, LeaderAndEpoch, RecordsInHand
from barnabas.clients.consumer.internals.positions import Positions
from barnabas.clients.consumer.internals.topic_partition_state import (
    PAUSED,
    PENDING_ON_ASSIGNED_CALLBACK,
    PENDING_REVOCATION,
    FetchState,
)
from barnabas.common.topic_partition import TopicPartition
from barnabas.network.client.node import Node

PARTITIONS = [TopicPartition(topic, partition) for topic in ("a", "b") for partition in range(3)]
T0 = PARTITIONS[0]
GONE = TopicPartition("a", 99)
LEADERS = (LeaderAndEpoch(Node(1, "h", 9092), 3), LeaderAndEpoch(Node(2, "h", 9093), 3), LeaderAndEpoch())


def assigned() -> Assignment:
    made = Assignment()
    made.replace(PARTITIONS)
    return made


def shuffled(source: Random) -> Assignment:
    """Returns partitions in any state that there is."""
    made = assigned()
    for partition, state in made.states.items():
        # Mostly FETCHING, or all six would hardly ever be.
        state.fetch_state = source.choice([FetchState.FETCHING] * 6 + list(FetchState))
        has_position = state.fetch_state.has_position
        leader = source.choice([LEADERS[0]] * 6 + list(LEADERS))
        state.position = FetchPosition(source.randrange(50), None, leader) if has_position else None
        for name in ("high_watermark", "last_stable_offset", "log_start_offset"):
            setattr(state.watermarks, name, source.choice((None, source.randrange(60))))
        for reason in (PAUSED, PENDING_REVOCATION, PENDING_ON_ASSIGNED_CALLBACK):
            state.suspended |= reason if source.random() < 0.1 else 0
        state.preferred_read_replica = source.choice((None, 7))
        state.preferred_read_replica_expire_ms = source.choice((None, 50, 150))
        if source.random() < 0.2:
            state.in_hand = RecordsInHand(partition, [], LEADERS[0])
    return made


def test_the_plan_has_what_can_be_fetched() -> None:
    source = Random(2)
    for _ in range(500):
        assignment = shuffled(source)
        made = Positions(assignment)
        fetchable = {one: state.position for one, state in assignment.states.items() if state.is_fetchable}
        assert made.fetch_plan(100) == [
            (one, position, made.preferred_read_replica(one, 100)) for one, position in fetchable.items()
        ]
        assert made.fetchable_positions() == fetchable
        for partition, state in assignment.states.items():
            assert made.fetchable_position(partition) == fetchable.get(partition)
            assert made.position(partition) == state.position
            assert made.has_valid_position(partition) is state.has_valid_position
        assert made.has_all_fetch_positions() is all(state.has_valid_position for state in assignment.states.values())
    nothing = Positions(assigned())
    assert nothing.fetchable_position(GONE) is nothing.position(GONE) is None
    assert nothing.preferred_read_replica(GONE, 0) is None
    assert not nothing.has_valid_position(GONE)
    nothing.update_preferred_read_replica(GONE, 7, lambda: 0)
    assert nothing.clear_preferred_read_replica(GONE) is None


def test_all_is_settled_when_no_partition_waits_for_anything() -> None:
    source, found = Random(3), set()
    for _ in range(500):
        assignment = shuffled(source)
        made = Positions(assignment)
        waits = bool(
            made.partitions_without_leader()
            or any(state.fetch_state is FetchState.INITIALIZING for state in assignment.states.values())
            or made.time_until_next_retry(0) is not None
        )
        assert made.all_settled() is not waits
        found.add(waits)
    assert found == {True, False}
    assert Positions(Assignment()).all_settled()


def test_partitions_initialize_after_their_callback() -> None:
    assignment = assigned()
    made = Positions(assignment)
    assignment.await_callback([T0])
    assert made.initializing_partitions() == set(PARTITIONS[1:])
    assignment.enable_partitions_awaiting_callback([T0])
    made.seek_validated(PARTITIONS[1], FetchPosition(0))
    assert made.initializing_partitions() == {T0, *PARTITIONS[2:]}


@pytest.mark.parametrize("state", list(FetchState))
def test_a_partition_that_is_advanced_goes_to_the_end(state: FetchState) -> None:
    """Even when it has no valid position now: it has had its turn."""
    assignment = assigned()
    made = Positions(assignment)
    assignment.state(T0).fetch_state = state
    assert made.advance(T0, FetchPosition(5), move_to_end=True) is (state is FetchState.FETCHING)
    assert assignment.in_fetch_order() == [*PARTITIONS[1:], T0]
    assert made.position(T0) == (FetchPosition(5) if state is FetchState.FETCHING else None)
    assert not made.advance(GONE, FetchPosition(5), move_to_end=True)


def test_what_is_iterated_over_is_not_consumed_yet() -> None:
    made = Positions(assigned())
    made.seek_validated(T0, FetchPosition(3))
    records = [ConsumerRecord("a", 0, offset, leader_epoch=2) for offset in (3, 4, 7)]
    held = RecordsInHand(T0, records, LEADERS[0])
    made.advance(T0, FetchPosition(8, 2, LEADERS[0]))
    made.hold(held)
    assert made.all_consumed() == {T0: OffsetAndMetadata(3, "", 2)}
    assert [next(held.iterator).offset for _ in range(2)] == [3, 4]
    assert made.consumed_position(T0) == FetchPosition(7, 2, LEADERS[0])
    assert made.take_in_hand() == [held]
    assert made.take_in_hand() == []
    assert made.all_consumed() == {T0: OffsetAndMetadata(8, "", 2)}
    assert made.consumed_position(PARTITIONS[1]) is None
    of_another = RecordsInHand(GONE, [ConsumerRecord("a", 99, 0)], LEADERS[0])
    made.hold(of_another)
    assert list(of_another.iterator) == [], "the partition went before they could be handed out"


def test_a_seek_drops_what_is_iterated_over() -> None:
    made = Positions(assigned())
    made.seek_validated(T0, FetchPosition(0))
    held = RecordsInHand(T0, [ConsumerRecord("a", 0, 0), ConsumerRecord("a", 0, 1)], LEADERS[0])
    made.hold(held)
    next(held.iterator)
    made.seek_unvalidated(T0, FetchPosition(9))
    assert list(held.iterator) == []
    assert made.consumed_position(T0) == FetchPosition(9)
    with pytest.raises(IllegalStateError):
        made.seek_validated(GONE, FetchPosition(0))


def test_the_next_retry_is_that_of_the_first_partition() -> None:
    assignment = assigned()
    made = Positions(assignment)
    assert made.time_until_next_retry(0) is None
    for partition, fetch_state in zip(PARTITIONS, (FetchState.AWAIT_RESET, FetchState.AWAIT_VALIDATION), strict=False):
        assignment.state(partition).fetch_state = fetch_state
    made.set_next_allowed_retry([*PARTITIONS[:2], GONE], 50)
    made.set_next_allowed_retry([T0], 30)
    assert [made.time_until_next_retry(now) for now in (10, 40)] == [20, 0]


@pytest.mark.parametrize("isolation_level", [0, 1])
def test_lags_and_leads_are_those_of_each_partition(isolation_level: int) -> None:
    source = Random(1)
    for _ in range(200):
        assignment = shuffled(source)
        made = ConsumerLag(assignment)
        expected = []
        for partition, state in assignment.states.items():
            position, lead = state.position, None
            if position is not None and state.watermarks.log_start_offset is not None:
                lead = position.offset - state.watermarks.log_start_offset
            expected.append((made.partition_lag(partition, isolation_level), lead))
        assert made.lags_and_leads([*PARTITIONS, GONE], isolation_level) == [*expected, None]


def test_lag_and_end_offset() -> None:
    assignment = assigned()
    made = ConsumerLag(assignment)
    Positions(assignment).seek_validated(T0, FetchPosition(5))
    assert made.partition_lag(T0, 0) is None
    assert made.request_end_offset(T0, 0)
    assert not made.request_end_offset(T0, 0), "the request is in flight"
    made.update_end_offset(T0, 12, 0)
    made.update_end_offset(GONE, 12, 0)
    assert [made.partition_lag(T0, level) for level in (0, 1)] == [7, None]
    assert not made.request_end_offset(T0, 0), "it is known"
    assert made.request_end_offset(T0, 1)
    made.update_end_offset(T0, 4, 1)
    assert made.partition_lag(T0, 1) == 0, "the last stable offset may be before the position"


@pytest.mark.parametrize("state", list(FetchState))
@pytest.mark.parametrize("offset", [5, 6, None])
def test_watermarks_are_taken_over_at_the_position_only(state: FetchState, offset: int | None) -> None:
    assignment = assigned()
    made = ConsumerLag(assignment)
    of_t0 = assignment.state(T0)
    of_t0.fetch_state = state
    of_t0.position = FetchPosition(5) if state.has_position else None
    expected = offset is None or (offset == 5 and state is FetchState.FETCHING)
    assert made.try_updating_watermarks(T0, 9, 1, 8, offset) is expected
    marks = of_t0.watermarks
    found = (marks.high_watermark, marks.log_start_offset, marks.last_stable_offset)
    assert found == ((9, 1, 8) if expected else (None, None, None))
    assert not made.try_updating_watermarks(GONE, 9, 1, 8, offset)
    marks.update(-1, -1, -1)
    assert found == (marks.high_watermark, marks.log_start_offset, marks.last_stable_offset), "unknown is no news"
