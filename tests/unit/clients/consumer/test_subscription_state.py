"""What both threads of a consumer ask of many partitions at once, compared with what they would hear of each."""

from __future__ import annotations

from random import Random

import pytest

from barnabas.clients.consumer.auto_offset_reset import EARLIEST
from barnabas.clients.consumer.internals.consumer_metrics import FETCH_GROUP, FetchedAnswer, FetchMetrics
from barnabas.clients.consumer.internals.fetch_position import (
    FetchPosition,
    FetchState,
    LeaderAndEpoch,
    RecordsInHand,
    TopicPartitionState,
)
from barnabas.clients.consumer.internals.subscription_state import SubscriptionState
from barnabas.common.clock import MockClock
from barnabas.common.topic_partition import TopicPartition
from barnabas.metrics.registry import Metrics
from barnabas.network.node import Node

PARTITIONS = [TopicPartition(topic, partition) for topic in ("a", "b") for partition in range(3)]
T0 = PARTITIONS[0]
LEADERS = (LeaderAndEpoch(Node(1, "h", 9092), 3), LeaderAndEpoch(Node(2, "h", 9093), 3), LeaderAndEpoch())


def assigned() -> SubscriptionState:
    made = SubscriptionState(EARLIEST)
    made.assign_from_user(PARTITIONS)
    return made


def state_of(subscriptions: SubscriptionState, partition: TopicPartition) -> TopicPartitionState:
    return subscriptions._assignment[partition]


def shuffled(source: Random) -> SubscriptionState:
    """Partitions in any state that there is."""
    made = assigned()
    for partition in PARTITIONS:
        state = state_of(made, partition)
        # Mostly the usual one, or all six would hardly ever be.
        state.fetch_state = source.choice([FetchState.FETCHING] * 6 + list(FetchState))
        has_position = state.fetch_state.has_position
        leader = source.choice([LEADERS[0]] * 6 + list(LEADERS))
        state.position = FetchPosition(source.randrange(50), None, leader) if has_position else None
        state.high_watermark = source.choice((None, source.randrange(60)))
        state.last_stable_offset = source.choice((None, source.randrange(60)))
        state.log_start_offset = source.choice((None, source.randrange(60)))
        state.paused, state.pending_revocation, state.pending_on_assigned_callback = (
            source.random() < 0.1 for _ in range(3)
        )
        state.preferred_read_replica = source.choice((None, 7))
        state.preferred_read_replica_expire_ms = source.choice((None, 50, 150))
        if source.random() < 0.2:
            state.in_hand = RecordsInHand(partition, [], LEADERS[0])
    return made


@pytest.mark.parametrize("isolation_level", [0, 1])
def test_lags_and_leads_are_those_of_each_partition(isolation_level: int) -> None:
    source = Random(1)
    for _ in range(200):
        subscriptions = shuffled(source)
        expected = [
            (subscriptions.partition_lag(partition, isolation_level), subscriptions.partition_lead(partition))
            for partition in PARTITIONS
        ]
        gone = TopicPartition("a", 99)
        assert subscriptions.lags_and_leads([*PARTITIONS, gone], isolation_level) == [*expected, None]


@pytest.mark.parametrize("state", list(FetchState))
@pytest.mark.parametrize("offset", [5, 6, None])
def test_watermarks_are_taken_over_at_the_position_only(state: FetchState, offset: int | None) -> None:
    subscriptions = assigned()
    of_t0 = state_of(subscriptions, T0)
    of_t0.fetch_state = state
    of_t0.position = FetchPosition(5) if state.has_position else None
    expected = offset is None or (offset == 5 and state is FetchState.FETCHING)
    assert subscriptions.try_updating_watermarks(T0, 9, 1, 8, offset) is expected
    found = (of_t0.high_watermark, of_t0.log_start_offset, of_t0.last_stable_offset)
    assert found == ((9, 1, 8) if expected else (None, None, None))
    assert not subscriptions.try_updating_watermarks(TopicPartition("a", 99), 9, 1, 8, offset)


@pytest.mark.parametrize("state", list(FetchState))
def test_a_partition_that_is_advanced_goes_to_the_end(state: FetchState) -> None:
    """Even when it has no valid position now: it has had its turn."""
    subscriptions = assigned()
    state_of(subscriptions, T0).fetch_state = state
    assert subscriptions.advance(T0, FetchPosition(5), move_to_end=True) is (state is FetchState.FETCHING)
    assert subscriptions.assigned_partitions_list() == [*PARTITIONS[1:], T0]
    assert subscriptions.position(T0) == (FetchPosition(5) if state is FetchState.FETCHING else None)
    assert not subscriptions.advance(TopicPartition("a", 99), FetchPosition(5), move_to_end=True)


def test_the_plan_has_what_can_be_fetched() -> None:
    source = Random(2)
    for _ in range(500):
        subscriptions = shuffled(source)
        plan = subscriptions.fetch_plan(100)
        expected = [
            (partition, subscriptions.position(partition), subscriptions.preferred_read_replica(partition, 100))
            for partition in subscriptions.fetchable_partitions(lambda _: True)
        ]
        assert plan == expected
        for partition in PARTITIONS:
            state = state_of(subscriptions, partition)
            position = state.position if state.is_fetchable else None
            assert subscriptions.fetchable_position(partition) == position
            assert subscriptions.fetchable_positions().get(partition) == position
        valid = [state_of(subscriptions, partition).has_valid_position for partition in PARTITIONS]
        assert subscriptions.has_all_fetch_positions() is all(valid)
    assert assigned().fetchable_position(TopicPartition("a", 99)) is None


def test_all_is_settled_when_no_partition_waits_for_anything() -> None:
    source, found = Random(3), set()
    for _ in range(500):
        subscriptions = shuffled(source)
        waits = (
            subscriptions.partitions_without_leader()
            or subscriptions.initializing_partitions()
            or any(state_of(subscriptions, partition).should_initialize for partition in PARTITIONS)
            or subscriptions.time_until_next_retry(0) is not None
        )
        assert subscriptions.all_settled() is not bool(waits)
        found.add(bool(waits))
    assert found == {True, False}
    assert SubscriptionState(EARLIEST).all_settled()


class Fetched:
    def __init__(self, partition: TopicPartition, records: int, size: int) -> None:
        self.partition = partition
        self.records_read = records
        self.bytes_read = size
        self.answer: FetchedAnswer | None = None


def test_metrics_of_the_answers_of_a_poll() -> None:
    metrics = Metrics(clock=MockClock())
    made = FetchMetrics(metrics)
    a0, a1, _, b0, b1, b2 = PARTITIONS
    made.record_finished(
        [Fetched(a0, 3, 30), Fetched(a1, 4, 40), Fetched(b0, 5, 50), Fetched(b1, 100, 1000), Fetched(b2, 0, 0)],
        [(7, 2), (9, 1), (None, None), None, (None, 8)],
    )

    def value(name: str, **tags: str) -> object:
        found = metrics.metric(metrics.metric_name(name, FETCH_GROUP, tags))
        return None if found is None else found.value()

    assert (value("records-consumed-total"), value("bytes-consumed-total")) == (12, 120)
    assert (value("records-consumed-total", topic="a"), value("bytes-consumed-total", topic="b")) == (7, 50)
    assert (value("records-lag-max"), value("records-lead-min")) == (9, 1)
    assert [value("records-lag", topic="a", partition=str(n)) for n in range(3)] == [7, 9, None]
    assert [value("records-lead", topic="a", partition=str(n)) for n in range(2)] == [2, 1]
    assert value("records-lead", topic="b", partition="2") == 8
    assert value("records-lead", topic="b", partition="1") is None, "it is no longer this consumer's"
