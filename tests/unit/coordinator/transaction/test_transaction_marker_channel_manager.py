"""Markers get to all partitions, whatever happens on the way."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, cast

import pytest

from barnabas.common.clock import MockClock
from barnabas.common.errors import Errors, NotCoordinatorError
from barnabas.common.scheduler import MockScheduler
from barnabas.common.topic_partition import TopicPartition
from barnabas.coordinator.transaction.pending_complete_txn import PendingCompleteTxn, TxnMarker
from barnabas.coordinator.transaction.transaction_marker_channel_manager import TransactionMarkerChannelManager
from barnabas.coordinator.transaction.transaction_metadata import TransactionMetadata
from barnabas.coordinator.transaction.transaction_state import TransactionState
from barnabas.coordinator.transaction.txn_marker_writer import MarkerErrors
from barnabas.metadata.endpoint import Node
from barnabas.metrics.yammer.registry import Gauge, MetricsRegistry
from transaction_fixtures import NODE_ID, NOWHERE, A, B, C, FakeCache, FakeMarkerWriter, partitions_of

OTHER = Node(2, "there", 9092)


class FakeRemote:
    def __init__(self) -> None:
        self.sent: list[tuple[Node, TxnMarker, Callable[[MarkerErrors | None], object]]] = []

    def send(self, broker: Node, marker: TxnMarker, callback: Callable[[MarkerErrors | None], object]) -> None:
        self.sent.append((broker, marker, callback))


class Bench:
    def __init__(self, *, with_remote: bool = True) -> None:
        clock = MockClock()
        self.cache = FakeCache()
        self.local = FakeMarkerWriter()
        self.remote = FakeRemote()
        self.scheduler = MockScheduler(clock)
        self.registry = MetricsRegistry(clock)
        self.completed: list[PendingCompleteTxn] = []
        self.completion: Future[bool] = Future()
        self.completion.set_result(True)
        self.manager = TransactionMarkerChannelManager(
            NODE_ID,
            "PLAINTEXT",
            cast("Any", self.cache),
            cast("Any", self.local),
            self.scheduler,
            self.registry,
            retry_backoff_ms=100,
            remote=self.remote if with_remote else None,
        )
        self.manager.on_written = self._completed

    def _completed(self, transaction: PendingCompleteTxn) -> Future[bool]:
        self.completed.append(transaction)
        return self.completion

    @property
    def pending(self) -> int:
        return self.manager.num_txns_with_pending_markers()

    def gauge(self, name: str) -> Any:
        gauge = next(metric for found, metric in self.registry.metrics.items() if found.name == name)
        assert isinstance(gauge, Gauge)
        return gauge.value()


def transaction(*partitions: TopicPartition, epoch: int = 1, name: str = "tx") -> PendingCompleteTxn:
    return PendingCompleteTxn(
        0,
        5,
        TransactionMetadata(
            transactional_id=name,
            producer_id=7,
            producer_epoch=epoch,
            txn_timeout_ms=1000,
            state=TransactionState.PREPARE_ABORT,
            topic_partitions=frozenset(partitions),
            txn_start_timestamp=1,
            txn_last_update_timestamp=1,
        ),
    )


def test_each_leader_is_told_once() -> None:
    b = Bench()
    b.cache.leaders = {B: OTHER, C: OTHER}
    b.manager.add_txn_markers_to_send(transaction(A, B, C))
    assert partitions_of(b.local.written) == [A]
    ((broker, marker, answer),) = b.remote.sent
    assert (broker, sorted(marker.partitions)) == (OTHER, [B, C])
    assert not b.completed
    answer({7: {B: Errors.NONE, C: Errors.NONE}})
    assert b.completed == [transaction(A, B, C)]
    assert b.pending == 0


def test_a_transaction_without_partitions_is_complete() -> None:
    b = Bench()
    b.manager.add_txn_markers_to_send(transaction())
    assert b.completed == [transaction()]


@pytest.mark.parametrize(
    "error",
    [
        Errors.UNKNOWN_TOPIC_OR_PARTITION,
        Errors.NOT_LEADER_OR_FOLLOWER,
        Errors.NOT_ENOUGH_REPLICAS,
        Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Errors.REQUEST_TIMED_OUT,
        Errors.KAFKA_STORAGE_ERROR,
        Errors.UNKNOWN_SERVER_ERROR,
    ],
)
def test_what_fails_is_tried_again_and_nothing_else(error: Errors) -> None:
    b = Bench()
    b.local.errors = {B: error}
    b.manager.add_txn_markers_to_send(transaction(A, B))
    assert not b.completed
    b.cache.leaders = {B: OTHER}
    b.scheduler.advance(100)
    ((_, marker, answer),) = b.remote.sent
    assert marker.partitions == (B,)
    answer({7: {B: Errors.NONE}})
    assert len(b.completed) == 1
    assert partitions_of(b.local.written) == [A, B]


@pytest.mark.parametrize("error", [Errors.INVALID_PRODUCER_EPOCH, Errors.TRANSACTION_COORDINATOR_FENCED])
def test_who_was_replaced_stops(error: Errors) -> None:
    b = Bench()
    b.local.errors = {B: error}
    b.manager.add_txn_markers_to_send(transaction(A, B))
    assert b.pending == 0
    assert not b.completed
    assert not b.scheduler.pending


def test_a_partition_that_cannot_have_records_needs_no_marker() -> None:
    b = Bench()
    b.local.errors = {A: Errors.UNSUPPORTED_FOR_MESSAGE_FORMAT}
    b.manager.add_txn_markers_to_send(transaction(A))
    assert len(b.completed) == 1


def test_a_partition_that_is_deleted_needs_no_marker() -> None:
    b = Bench()
    b.cache.deleted = {A}
    b.manager.add_txn_markers_to_send(transaction(A, B))
    assert partitions_of(b.local.written) == [B]
    assert len(b.completed) == 1
    b.cache.leaders = {C: None}
    b.manager.add_txn_markers_to_send(transaction(C, epoch=2))
    b.cache.deleted = {C}
    b.scheduler.advance(100)
    assert len(b.completed) == 2


@pytest.mark.parametrize("leader", [None, NOWHERE])
def test_a_partition_without_a_leader_is_waited_for(leader: Node | None) -> None:
    b = Bench()
    b.cache.leaders = {A: leader}
    b.manager.add_txn_markers_to_send(transaction(A))
    b.scheduler.advance(1_000)
    assert b.gauge("UnknownDestinationQueueSize") == 1
    assert not b.local.written
    b.cache.leaders = {}
    b.scheduler.advance(100)
    assert len(b.completed) == 1
    assert b.gauge("UnknownDestinationQueueSize") == 0


def test_another_broker_that_cannot_be_asked_is_waited_for() -> None:
    b = Bench(with_remote=False)
    b.cache.leaders = {A: OTHER}
    b.manager.add_txn_markers_to_send(transaction(A))
    b.cache.leaders = {}
    b.scheduler.advance(100)
    assert len(b.completed) == 1


def test_a_broker_that_does_not_respond_is_asked_again() -> None:
    b = Bench()
    b.cache.leaders = {A: OTHER}
    b.manager.add_txn_markers_to_send(transaction(A))
    b.remote.sent.pop()[2](None)
    b.scheduler.advance(100)
    b.remote.sent.pop()[2]({7: {A: Errors.NONE}})
    assert len(b.completed) == 1


def test_the_same_transaction_is_not_sent_twice() -> None:
    b = Bench()
    b.local.holds = True
    b.manager.add_txn_markers_to_send(transaction(A))
    b.manager.add_txn_markers_to_send(transaction(A))
    assert len(b.local.held) == 1
    b.manager.add_txn_markers_to_send(transaction(B, epoch=2))
    b.local.release()
    assert b.completed == [transaction(B, epoch=2)], "the newer one counts"


def test_what_is_handed_over_is_dropped() -> None:
    b = Bench()
    b.local.holds = True
    b.manager.add_txn_markers_to_send(transaction(A))
    b.manager.remove_markers_for_txn_topic_partition(1)
    assert b.pending == 1
    b.manager.remove_markers_for_txn_topic_partition(0)
    assert b.pending == 0
    b.local.release()
    assert not b.completed


def test_a_completion_that_fails_is_repeated_unless_it_is_another_brokers() -> None:
    b = Bench()
    b.completion = Future()
    b.completion.set_exception(TimeoutError())
    b.manager.add_txn_markers_to_send(transaction(A))
    assert (len(b.completed), b.pending, b.gauge("LogAppendRetryQueueSize")) == (1, 1, 1)
    b.completion = Future()
    b.completion.set_exception(NotCoordinatorError())
    b.scheduler.advance(100)
    assert (len(b.completed), b.pending, b.gauge("LogAppendRetryQueueSize")) == (2, 0, 0)
    b.scheduler.advance(1_000)
    assert len(b.completed) == 2


def test_after_the_end_nothing_is_sent() -> None:
    b = Bench()
    b.manager.shutdown()
    b.manager.add_txn_markers_to_send(transaction(A))
    assert not b.local.written
    assert not [name for name in b.registry.metrics if name.name == "UnknownDestinationQueueSize"]
