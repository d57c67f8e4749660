"""The assigned partitions: their order, their states, and what suspends them."""

from __future__ import annotations

import pytest

from barnabas.clients.common.errors import IllegalStateError
from barnabas.clients.consumer.consumer_record import ConsumerRecord
from barnabas.clients.consumer.internals.assignment import Assignment
from barnabas.clients.consumer.internals.fetch_position import FetchPosition, LeaderAndEpoch, RecordsInHand
from barnabas.common.topic_partition import TopicPartition

P0, P1, P2 = (TopicPartition("a", number) for number in range(3))


def record(offset: int) -> ConsumerRecord:
    return ConsumerRecord("a", 0, offset)


def test_a_partition_that_stays_keeps_its_state() -> None:
    made = Assignment()
    changes: list[int] = []
    made.on_change = lambda: changes.append(made.id)
    made.replace([P0, P1])
    of_p1 = made.state(P1)
    made.replace([P2, P1])
    assert made.in_fetch_order() == [P2, P1]
    assert made.partitions() == {P1, P2}
    assert made.state(P1) is of_p1
    assert P0 not in made
    assert len(made) == 2
    assert changes == [1, 2]
    with pytest.raises(IllegalStateError, match="No current assignment for partition a-0"):
        made.state(P0)


def test_records_of_a_partition_that_goes_are_not_handed_out() -> None:
    made = Assignment()
    made.replace([P0])
    state = made.state(P0)
    state.seek_validated(FetchPosition(0))
    state.in_hand = held = RecordsInHand(P0, [record(0), record(1)], LeaderAndEpoch())
    assert next(held.iterator).offset == 0
    made.replace([])
    assert list(held.iterator) == []


def test_a_partition_moves_to_the_end() -> None:
    made = Assignment()
    made.replace([P0, P1, P2])
    made.move_to_end(P0)
    made.move_to_end(TopicPartition("gone", 0))
    assert made.in_fetch_order() == [P1, P2, P0]


def test_each_reason_suspends_a_partition_by_itself() -> None:
    made = Assignment()
    made.replace([P0, P1])
    state = made.state(P0)
    state.seek_validated(FetchPosition(5))
    assert state.suspended == 0
    made.pause(P0)
    made.pause(P0)
    assert made.is_paused(P0)
    assert made.paused_partitions() == {P0}
    made.await_callback([P0, P2])
    made.mark_pending_revocation([P0])
    assert repr(state).startswith("TopicPartitionState(fetching paused revoked awaiting callback,")
    made.resume(P0)
    assert not made.is_paused(P0)
    assert state.suspended
    made.enable_partitions_awaiting_callback([P0, P2])
    assert not made.state(P0).is_fetchable, "the group still wants it back"
    assert made.state(P1).suspended == 0


def test_only_assigned_partitions_are_paused() -> None:
    made = Assignment()
    assert not made.is_paused(P0)
    for call in (made.pause, made.resume, lambda one: made.mark_pending_revocation([one])):
        with pytest.raises(IllegalStateError):
            call(P0)
