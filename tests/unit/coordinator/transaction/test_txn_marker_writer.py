"""Markers on the broker that leads the partitions."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, cast

import pytest

from barnabas.common.clock import MockClock
from barnabas.common.errors import CoordinatorLoadInProgressError, Errors, NotCoordinatorError
from barnabas.common.topic_names import GROUP_METADATA_TOPIC
from barnabas.common.topic_partition import TopicPartition
from barnabas.coordinator.runtime.transaction_end import TransactionEnd
from barnabas.coordinator.transaction.pending_complete_txn import TxnMarker
from barnabas.coordinator.transaction.txn_marker_writer import MarkerErrors, TxnMarkerWriter
from barnabas.log.append_origin import AppendOrigin
from barnabas.records.batch import RecordBatch
from barnabas.records.control import ControlRecordType, EndTransactionMarker
from barnabas.records.reader import read_records
from barnabas.replica.fetch.fetch_session import TopicIdPartition
from barnabas.replica.results import ProduceResult
from transaction_fixtures import A, B, C

OFFSETS = TopicPartition(GROUP_METADATA_TOPIC, 3)


class FakePartition:
    log = object()


class FakeReplicas:
    def __init__(self) -> None:
        self.missing: set[TopicPartition] = set()
        self.errors: dict[TopicPartition, Errors] = {}
        self.appended: list[tuple[TopicPartition, RecordBatch, int]] = []
        self.holds = False
        self.held: list[Any] = []

    def get_partition_or_error(self, partition: TopicPartition) -> Any:
        return Errors.NOT_LEADER_OR_FOLLOWER if partition in self.missing else FakePartition()

    def append_records(
        self, timeout_ms: int, acks: int, entries: Mapping[TopicIdPartition, Any], callback: Any, **how: Any
    ) -> None:
        assert (timeout_ms, acks) == (500, -1)
        assert how["origin"] is AppendOrigin.COORDINATOR
        assert how["internal_topics_allowed"]
        results = {}
        for key, data in entries.items():
            partition = TopicPartition(key.topic or "", key.partition)
            self.appended.append((partition, RecordBatch(data), how["transaction_version"]))
            results[key] = ProduceResult(self.errors.get(partition, Errors.NONE))
        if self.holds:
            self.held.append(lambda: callback(results))
        else:
            callback(results)


class FakeGroups:
    def __init__(self) -> None:
        self.completions: list[tuple[Any, ...]] = []
        self.future: Future[None] = Future()

    def complete_transaction(self, *arguments: Any) -> Future[None]:
        self.completions.append(arguments)
        return self.future


class Bench:
    def __init__(self) -> None:
        self.replicas = FakeReplicas()
        self.groups = FakeGroups()
        self.writer = TxnMarkerWriter(cast("Any", self.replicas), MockClock(), 500, self.groups)
        self.answers: list[MarkerErrors] = []

    def write(self, *markers: TxnMarker) -> None:
        self.writer.write(markers, self.answers.append)


def marker(*partitions: TopicPartition, producer_id: int = 7, version: int = 2) -> TxnMarker:
    return TxnMarker(producer_id, 3, 5, ControlRecordType.COMMIT, version, partitions)


def test_a_marker_is_a_control_batch_of_the_producer() -> None:
    b = Bench()
    b.write(marker(A, B))
    assert b.answers == [{7: {A: Errors.NONE, B: Errors.NONE}}]
    (first, batch, version), (second, _, _) = b.replicas.appended
    assert (first, second, version) == (A, B, 2)
    assert batch.is_control_batch
    assert batch.is_transactional
    assert (batch.producer_id, batch.producer_epoch) == (7, 3)
    (record,) = read_records(batch)
    assert EndTransactionMarker.parse(record) == EndTransactionMarker(ControlRecordType.COMMIT, 5)


def test_the_response_comes_when_all_is_said() -> None:
    b = Bench()
    b.replicas.missing = {B}
    b.replicas.errors = {C: Errors.NOT_ENOUGH_REPLICAS}
    b.replicas.holds = True
    b.write(marker(A, B), marker(C, producer_id=8), marker(OFFSETS))
    assert not b.answers
    for answer in b.replicas.held:
        answer()
    assert not b.answers
    b.groups.future.set_result(None)
    assert b.answers == [
        {
            7: {A: Errors.NONE, B: Errors.UNKNOWN_TOPIC_OR_PARTITION, OFFSETS: Errors.NONE},
            8: {C: Errors.NOT_ENOUGH_REPLICAS},
        }
    ]


def test_no_markers_get_a_response_too() -> None:
    b = Bench()
    b.write()
    b.write(marker())
    assert b.answers == [{}, {}]


def test_a_marker_that_no_broker_would_send_is_rejected_and_the_others_are_written() -> None:
    b = Bench()
    b.write(
        marker(A, A, OFFSETS, producer_id=-1),
        marker(B, producer_id=8),
        marker(C, producer_id=9)._replace(producer_epoch=-1),
        marker(C, producer_id=10, version=-1),
    )
    assert b.answers == [
        {
            -1: {A: Errors.INVALID_REQUEST, OFFSETS: Errors.INVALID_REQUEST},
            8: {B: Errors.NONE},
            9: {C: Errors.INVALID_PRODUCER_EPOCH},
            10: {C: Errors.INVALID_REQUEST},
        }
    ]
    assert [partition for partition, _, _ in b.replicas.appended] == [B]
    assert not b.groups.completions


def test_a_partition_that_is_listed_twice_gets_one_marker() -> None:
    b = Bench()
    b.write(marker(A, A))
    assert len(b.replicas.appended) == 1
    assert b.answers == [{7: {A: Errors.NONE}}]


def test_offsets_are_completed_by_the_group_coordinator() -> None:
    b = Bench()
    b.write(marker(OFFSETS))
    assert b.groups.completions == [(OFFSETS, TransactionEnd(7, 3, 5, ControlRecordType.COMMIT, 2), 500)]
    assert not b.replicas.appended


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (NotCoordinatorError(), Errors.NOT_LEADER_OR_FOLLOWER),
        (CoordinatorLoadInProgressError(), Errors.NOT_LEADER_OR_FOLLOWER),
        (TimeoutError(), Errors.REQUEST_TIMED_OUT),
    ],
)
def test_a_group_coordinator_that_is_away_is_looked_for_again(failure: Exception, error: Errors) -> None:
    b = Bench()
    b.write(marker(OFFSETS))
    b.groups.future.set_exception(failure)
    assert b.answers == [{7: {OFFSETS: error}}]


def test_without_groups_offsets_are_like_anything_else() -> None:
    b = Bench()
    b.writer.groups = None
    b.write(marker(OFFSETS))
    assert [one[0] for one in b.replicas.appended] == [OFFSETS]
