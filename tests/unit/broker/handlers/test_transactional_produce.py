"""Transactional records get into the log if their transaction is known, and not otherwise."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from benchmarks.waiting import until

from barnabas.broker.handlers.transactional_produce import TransactionalAppends
from barnabas.common.errors import Errors, InvalidPidMappingError
from barnabas.common.topic_partition import TopicPartition
from barnabas.coordinator.transaction.add_partitions_to_txn_manager import (
    AddPartitionsToTxnManager,
    PartitionErrors,
    TransactionSupportedOperation,
)
from barnabas.coordinator.transaction.transaction_metadata import ProducerIdAndEpoch
from barnabas.log.append_origin import AppendOrigin
from barnabas.log.producers.producer_states import ProducerStateManagerConfig
from barnabas.metadata.endpoint import Node
from barnabas.records.builder import RecordBatchBuilder
from barnabas.records.control import ControlRecordType, EndTransactionMarker, end_transaction_marker_batch
from barnabas.replica.fetch.fetch_session import TopicIdPartition
from barnabas.replica.results import ProduceResult
from replica_fixtures import TOPIC_ID, ReplicaBox
from transaction_fixtures import ID, NOWHERE, TransactionBench
from transaction_fixtures import A as ORDERS

DEFAULT, GENERIC, ADD = TransactionSupportedOperation
ZERO = TopicIdPartition(TOPIC_ID, "topic", 0)
ONE = TopicIdPartition(TOPIC_ID, "topic", 1)


class Verifier:
    def __init__(self) -> None:
        self.questions: list[tuple[str, ProducerIdAndEpoch, tuple[TopicPartition, ...], Any]] = []
        self.errors: dict[TopicPartition, Errors] = {}
        self.holds = False
        self.held: list[Future[PartitionErrors]] = []

    def add_or_verify_transaction(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        operation: TransactionSupportedOperation,
    ) -> Future[PartitionErrors]:
        self.questions.append((transactional_id, producer, tuple(partitions), operation))
        future: Future[PartitionErrors] = Future()
        if self.holds:
            self.held.append(future)
        else:
            future.set_result(dict(self.errors))
        return future


class Bench:
    def __init__(self, path: Path) -> None:
        self.producer_state = ProducerStateManagerConfig()
        self.box = ReplicaBox([path / "data"], log_settings={"producer_state": self.producer_state})
        self.box.create_topic(partitions=2)
        self.verifier = Verifier()
        self.appends = TransactionalAppends(
            self.box.manager,
            self.verifier,
            self.box.scheduler,
            self.box.clock,
            producer_state=self.producer_state,
            retry_backoff_ms=20,
            retry_backoff_max_ms=100,
        )
        self.answers: list[dict[TopicIdPartition, ProduceResult]] = []

    def append(
        self, *partitions: TopicIdPartition, operation: TransactionSupportedOperation = GENERIC, **batch: Any
    ) -> None:
        self.appends.append_records(
            ID,
            operation,
            1000,
            1,
            {partition: records(**batch) for partition in partitions},
            self.answers.append,
            internal_topics_allowed=False,
        )

    def errors(self) -> list[Errors]:
        return [result.error for result in self.answers.pop().values()]

    def end_offset(self) -> int:
        log = self.box.manager.get_partition_or_exception(("topic", 0)).log
        assert log is not None
        return log.log_end_offset

    def marker(self, epoch: int = 0) -> None:
        batch = end_transaction_marker_batch(
            EndTransactionMarker(ControlRecordType.ABORT, 0), producer_id=7, producer_epoch=epoch, timestamp_ms=0
        )
        self.box.produce({ZERO: batch}, origin=AppendOrigin.COORDINATOR, transaction_version=0)
        (result,) = self.box.answers.produced.pop().values()
        assert result.error is Errors.NONE


def records(producer_id: int = 7, epoch: int = 0, sequence: int = 0, *, is_transactional: bool = True) -> bytearray:
    builder = RecordBatchBuilder(
        producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, is_transactional=is_transactional
    )
    builder.append(0, b"k", b"v")
    return builder.close()


@pytest.fixture
def b(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.box.stop()


def test_only_the_first_batch_of_a_transaction_is_asked_about(b: Bench) -> None:
    b.append(ZERO, ONE)
    assert b.errors() == [Errors.NONE, Errors.NONE]
    assert b.verifier.questions == [(ID, (7, 0), (TopicPartition("topic", 0), TopicPartition("topic", 1)), GENERIC)]
    b.append(ZERO, sequence=1)
    assert b.errors() == [Errors.NONE]
    assert len(b.verifier.questions) == 1
    b.marker()
    b.append(ZERO, sequence=2)
    assert b.errors() == [Errors.NONE]
    assert len(b.verifier.questions) == 2, "it is another transaction"


def test_records_that_wait_for_a_slow_log_directory_are_bounded(b: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.log.dirs.log_dir_pace.LANE_BYTES", 100)
    log = b.box.manager.get_partition_or_exception(("topic", 0)).local_log_or_raise()
    log.pace.wrote(2_000_000_000)
    busy = threading.Event()
    log.pace.appends.submit(lambda: busy.wait(60), 100)  # type: ignore[arg-type]
    b.append(ZERO)
    assert b.errors() == [Errors.KAFKA_STORAGE_ERROR]
    busy.set()
    until(lambda: log.pace.appends.held_bytes == 0, "freed", 60)
    b.append(ZERO)
    until(lambda: b.answers, "answered", 60)
    assert b.errors() == [Errors.NONE]


def test_a_slow_log_directory_is_waited_for_elsewhere(b: Bench) -> None:
    """To begin a verification takes the lock of the log, which is held while the disk is written to."""
    log = b.box.manager.get_partition_or_exception(("topic", 0)).local_log_or_raise()
    log.pace.wrote(2_000_000_000)
    locked, go_on = threading.Event(), threading.Event()

    def hold_lock() -> None:
        with log._lock:
            locked.set()
            assert go_on.wait(60)

    thread = threading.Thread(target=hold_lock)
    thread.start()
    assert locked.wait(60)
    b.append(ZERO, ONE)
    assert not b.answers
    go_on.set()
    thread.join(60)
    until(lambda: b.answers, "answered", 60)
    assert b.errors() == [Errors.NONE, Errors.NONE]
    assert len(b.verifier.questions) == 1


def test_what_the_coordinator_refuses_is_not_appended(b: Bench) -> None:
    b.verifier.errors = {TopicPartition("topic", 0): Errors.TRANSACTION_ABORTABLE}
    b.append(ZERO, ONE)
    (answer,) = b.answers
    assert answer[ZERO].error is Errors.TRANSACTION_ABORTABLE
    assert answer[ONE].error is Errors.NONE
    assert b.end_offset() == 0


@pytest.mark.parametrize(
    ("error", "operation", "told"),
    [
        (Errors.INVALID_TXN_STATE, DEFAULT, Errors.INVALID_TXN_STATE),
        (Errors.INVALID_PRODUCER_EPOCH, ADD, Errors.INVALID_PRODUCER_EPOCH),
        (Errors.NOT_COORDINATOR, ADD, Errors.NOT_ENOUGH_REPLICAS),
        (Errors.COORDINATOR_LOAD_IN_PROGRESS, ADD, Errors.NOT_ENOUGH_REPLICAS),
        (Errors.COORDINATOR_NOT_AVAILABLE, DEFAULT, Errors.NOT_ENOUGH_REPLICAS),
        (Errors.NETWORK_EXCEPTION, GENERIC, Errors.NOT_ENOUGH_REPLICAS),
        (Errors.CONCURRENT_TRANSACTIONS, GENERIC, Errors.NOT_ENOUGH_REPLICAS),
    ],
)
def test_errors_are_those_that_producers_know(
    b: Bench, error: Errors, operation: TransactionSupportedOperation, told: Errors
) -> None:
    b.verifier.errors = {TopicPartition("topic", 0): error}
    b.append(ZERO, operation=operation)
    assert b.errors() == [told]
    assert len(b.verifier.questions) == 1


def test_a_transaction_that_is_ending_is_waited_for(b: Bench) -> None:
    b.verifier.errors = {TopicPartition("topic", 0): Errors.CONCURRENT_TRANSACTIONS}
    b.append(ZERO, operation=ADD)
    b.box.scheduler.advance(20)
    assert len(b.verifier.questions) == 2
    assert not b.answers
    b.verifier.errors = {}
    b.box.scheduler.advance(20)
    assert b.errors() == [Errors.NONE]
    assert b.end_offset() == 1


def test_an_append_that_fails_after_it_was_waited_for_gets_a_response(
    b: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else would respond on the thread of the scheduler, and the connection would stay muted."""

    def fail(*_args: Any, **_options: Any) -> None:
        raise ValueError("a bug")

    b.verifier.errors = {TopicPartition("topic", 0): Errors.CONCURRENT_TRANSACTIONS}
    b.append(ZERO, operation=ADD)
    b.verifier.errors = {}
    monkeypatch.setattr(b.box.manager, "append_records", fail)
    b.box.scheduler.advance(20)
    assert b.errors() == [Errors.UNKNOWN_SERVER_ERROR]


def test_but_not_for_ever(b: Bench) -> None:
    b.verifier.errors = {TopicPartition("topic", 0): Errors.CONCURRENT_TRANSACTIONS}
    b.append(ZERO, operation=ADD)
    b.box.scheduler.advance(1_000)
    assert b.errors() == [Errors.CONCURRENT_TRANSACTIONS]
    assert len(b.verifier.questions) == 6


def test_a_response_may_come_later(b: Bench) -> None:
    b.verifier.holds = True
    b.append(ZERO)
    assert not b.answers
    b.box.fetch(params=None)
    assert b.end_offset() == 0
    b.verifier.held.pop().set_result({})
    assert b.errors() == [Errors.NONE]
    assert b.end_offset() == 1
    assert b.box.answers.fetched, "who waits for records is woken up"


@pytest.mark.mechanism("P14")
def test_a_marker_that_comes_while_the_coordinator_is_asked_keeps_the_records_out(b: Bench) -> None:
    b.verifier.holds = True
    b.append(ZERO)
    b.marker()
    b.verifier.held.pop().set_result({})
    assert b.errors() == [Errors.INVALID_TXN_STATE]
    assert b.end_offset() == 1, "the marker alone"


def test_a_fenced_producer_is_not_even_asked_about(b: Bench) -> None:
    b.append(ZERO, epoch=3)
    assert b.errors() == [Errors.NONE]
    b.append(ZERO, epoch=2)
    assert b.errors() == [Errors.INVALID_PRODUCER_EPOCH]
    assert len(b.verifier.questions) == 1


def test_a_partition_that_is_not_here_is_not_asked_about(b: Bench) -> None:
    b.append(TopicIdPartition(TOPIC_ID, "topic", 9))
    assert b.errors() == [Errors.UNKNOWN_TOPIC_OR_PARTITION]
    assert not b.verifier.questions


def test_batches_of_several_producers_are_refused(b: Bench) -> None:
    entries = {ZERO: records(producer_id=7), ONE: records(producer_id=8)}
    with pytest.raises(InvalidPidMappingError):
        b.appends.append_records(ID, GENERIC, 1000, 1, entries, b.answers.append, internal_topics_allowed=False)


def test_a_batch_outside_of_transactions_may_be_beside(b: Bench) -> None:
    entries = {ZERO: records(), ONE: records(producer_id=8, is_transactional=False)}
    b.appends.append_records(ID, GENERIC, 1000, 1, entries, b.answers.append, internal_topics_allowed=False)
    assert b.errors() == [Errors.NONE, Errors.NONE]
    assert [question[2] for question in b.verifier.questions] == [(TopicPartition("topic", 0),)]


def test_a_batch_that_is_none_is_for_the_log_to_refuse(b: Bench) -> None:
    b.appends.append_records(
        ID, GENERIC, 1000, 1, {ZERO: bytearray(30)}, b.answers.append, internal_topics_allowed=False
    )
    assert b.errors() != [Errors.NONE]
    assert not b.verifier.questions


def test_verification_can_be_switched_off(b: Bench) -> None:
    b.producer_state.transaction_verification_enabled = False
    b.append(ZERO)
    assert b.errors() == [Errors.NONE]
    assert not b.verifier.questions


# -- who asks the coordinator


def manager_of(bench: TransactionBench, remote: Any = None) -> AddPartitionsToTxnManager:
    return AddPartitionsToTxnManager(1, "PLAINTEXT", bench.cache, bench.coordinator, remote)  # type: ignore[arg-type]


@pytest.mark.parametrize(("version", "operation"), [(3, DEFAULT), (10, DEFAULT), (11, GENERIC), (12, ADD), (13, ADD)])
def test_what_the_version_of_produce_says(version: int, operation: TransactionSupportedOperation) -> None:
    assert TransactionSupportedOperation.for_produce(version) is operation


@pytest.mark.parametrize(("version", "operation"), [(0, DEFAULT), (3, DEFAULT), (4, GENERIC), (5, ADD)])
def test_what_the_version_of_txn_offset_commit_says(version: int, operation: TransactionSupportedOperation) -> None:
    assert TransactionSupportedOperation.for_txn_offset_commit(version) is operation


def test_partitions_are_verified_or_added() -> None:
    bench = TransactionBench()
    manager = manager_of(bench)
    producer = bench.producer()

    def ask(operation: TransactionSupportedOperation, who: ProducerIdAndEpoch = producer) -> PartitionErrors:
        return manager.add_or_verify_transaction(ID, who, [ORDERS], operation).result(0)

    assert ask(DEFAULT) == {ORDERS: Errors.INVALID_TXN_STATE}
    assert ask(GENERIC) == {ORDERS: Errors.TRANSACTION_ABORTABLE}
    assert not bench.metadata().topic_partitions
    assert ask(ADD) == {}
    assert bench.metadata().topic_partitions == {ORDERS}
    assert ask(DEFAULT) == {}
    stale = ProducerIdAndEpoch(producer.producer_id, 9)
    assert ask(ADD, stale) == ask(DEFAULT, stale) == {ORDERS: Errors.INVALID_PRODUCER_EPOCH}


def test_offsets_are_verified_or_added() -> None:
    bench = TransactionBench()
    manager = manager_of(bench)
    producer = bench.producer()
    refused = manager.verify_offset_commit(ORDERS, ID, *producer, 4)
    assert Errors.for_exception(refused.exception(0)) is Errors.TRANSACTION_ABORTABLE  # type: ignore[arg-type]
    assert manager.verify_offset_commit(ORDERS, ID, *producer, 5).result(0) is None
    assert manager.verify_offset_commit(ORDERS, ID, *producer, 3).result(0) is None


class Remote:
    def __init__(self) -> None:
        self.asked: list[tuple[Node, bool]] = []

    def add_or_verify(
        self, coordinator: Node, _id: str, _producer: Any, partitions: Any, callback: Any, *, verify_only: bool
    ) -> None:
        self.asked.append((coordinator, verify_only))
        callback(dict.fromkeys(partitions, Errors.NETWORK_EXCEPTION))


def test_a_coordinator_elsewhere_is_asked_there() -> None:
    bench = TransactionBench()
    bench.cache.default = Node(2, "there", 9092)
    remote = Remote()
    manager = manager_of(bench, remote)
    for operation, verify_only in ((ADD, False), (GENERIC, True)):
        found = manager.add_or_verify_transaction(ID, ProducerIdAndEpoch(1, 1), [ORDERS], operation).result(0)
        assert found == {ORDERS: Errors.NETWORK_EXCEPTION}
        assert remote.asked.pop() == (bench.cache.default, verify_only)


@pytest.mark.parametrize("leader", [None, NOWHERE, Node(2, "there", 9092)])
def test_without_a_coordinator_there_is_no_response(leader: Node | None) -> None:
    bench = TransactionBench()
    bench.cache.default = leader
    found = manager_of(bench).add_or_verify_transaction(ID, ProducerIdAndEpoch(1, 1), [ORDERS], ADD).result(0)
    assert found == {ORDERS: Errors.COORDINATOR_NOT_AVAILABLE}
