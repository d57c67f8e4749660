"""The parts of the transaction manager, each by itself."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from barnabas.clients.producer.errors import IllegalStateError, TransactionError
from barnabas.clients.producer.internals.compression_ratio_estimator import CompressionRatioEstimator
from barnabas.clients.producer.internals.open_transaction import OpenTransaction
from barnabas.clients.producer.internals.pending_operation import PendingOperation
from barnabas.clients.producer.internals.producer_batch import NO_PRODUCER, ProducerBatch, ProducerIdAndEpoch
from barnabas.clients.producer.internals.transaction_coordinators import CoordinatorType, TransactionCoordinators
from barnabas.clients.producer.internals.transaction_state import SOURCES, State, TransactionStateMachine
from barnabas.clients.producer.internals.transactional_request_result import TransactionalRequestResult
from barnabas.clients.producer.internals.txn_partition_map import TxnPartitionMap
from barnabas.clients.producer.internals.txn_request_queue import TxnRequestQueue
from barnabas.clients.producer.offsets import OffsetAndMetadata
from barnabas.clients.producer.prepared_txn_state import PreparedTxnState
from barnabas.common.clock import MockClock
from barnabas.common.errors import InvalidProducerEpochError, ProducerFencedError
from barnabas.common.topic_partition import TopicPartition
from barnabas.network.client.node import Node
from barnabas.network.client.node_api_versions import ApiVersions
from barnabas.records.builder import RecordBatchBuilder

pytestmark = pytest.mark.mechanism("P14")

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ME = ProducerIdAndEpoch(5, 0)


# -- the state machine


@pytest.mark.parametrize("source", State)
@pytest.mark.parametrize("target", State)
def test_transitions_follow_the_table(source: State, target: State) -> None:
    machine = TransactionStateMachine("txn")
    machine.state = source
    if source in SOURCES[target]:
        machine.transition_to(target)
        assert machine.state is target
        assert machine.failed == (target in {State.ABORTABLE_ERROR, State.FATAL_ERROR})
        assert machine.is_completing == (target in {State.COMMITTING_TRANSACTION, State.ABORTING_TRANSACTION})
    else:
        with pytest.raises(IllegalStateError, match=f"txn: Invalid .* {source.name} to state {target.name}"):
            machine.transition_to(target)
        assert machine.state is source


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (ProducerFencedError(), ProducerFencedError),
        (InvalidProducerEpochError(), InvalidProducerEpochError),
        (IllegalStateError("x"), IllegalStateError),
        (ValueError("x"), TransactionError),
    ],
)
def test_an_error_state_raises_what_led_to_it(error: Exception, raised: type[Exception]) -> None:
    machine = TransactionStateMachine("txn")
    machine.raise_error(ME)
    machine.transition_to(State.FATAL_ERROR, error)
    with pytest.raises(raised) as caught:
        machine.raise_error(ME)
    assert caught.value.__cause__ is error
    assert "FATAL_ERROR" in repr(machine)


# -- the operation that is pending


def test_an_operation_is_found_again() -> None:
    pending = PendingOperation()
    result = TransactionalRequestResult("commit", MockClock())
    assert pending.run(lambda: result, State.COMMITTING_TRANSACTION, "commitTransaction") is result
    assert pending.run(pytest.fail, State.COMMITTING_TRANSACTION, "commitTransaction") is result
    with pytest.raises(IllegalStateError, match="`abortTransaction` because the previous call to `commitTransaction`"):
        pending.run(pytest.fail, State.ABORTING_TRANSACTION, "abortTransaction")
    with pytest.raises(IllegalStateError, match="`send`"):
        pending.raise_if_pending("send")
    pending.fail(ValueError("x"))
    pending.fail(ValueError("only the first one counts"))
    with pytest.raises(ValueError, match="x"):
        result.wait(0)
    pending.raise_if_pending("send")  # its caller has seen the end of it


# -- requests


def test_requests_are_sent_by_priority_and_then_in_order() -> None:
    class Handler:
        not_before_ms = 0
        retry_backoff_ms = 20

        def __init__(self, priority: int) -> None:
            self.priority = priority

    clock = MockClock()
    queue = TxnRequestQueue(threading.RLock(), clock)
    assert (len(queue), queue.first()) == (0, None)
    first, second, third = (cast("Any", Handler(priority)) for priority in (1, 1, 0))
    for handler in (first, second):
        queue.push(handler)
    queue.retry(third)
    assert third.not_before_ms == clock.hi_res_milliseconds() + 20
    assert set(queue) == {first, second, third}
    assert queue.first() is third
    assert [queue.pop() for _ in range(3)] == [third, first, second]
    queue.push(first)
    queue.clear()
    assert not queue


# -- coordinators


def test_coordinators_and_what_they_support() -> None:
    coordinators = TransactionCoordinators(ApiVersions())
    assert coordinators.get(CoordinatorType.GROUP) is None
    coordinators.set(CoordinatorType.GROUP, Node(1, "one", 1))
    assert coordinators.get(CoordinatorType.GROUP) == Node(1, "one", 1)
    coordinators.forget(CoordinatorType.GROUP)
    coordinators.forget(CoordinatorType.GROUP)
    assert coordinators.get(CoordinatorType.GROUP) is None
    coordinators.handle_coordinator_ready()

    def answers() -> tuple[bool, bool]:
        return coordinators.can_handle_abortable_error, coordinators.need_to_trigger_epoch_bump_from_client

    assert answers() == (False, False), "nothing is known of the coordinator"
    coordinators.supports_bumping_epoch = True
    assert answers() == (True, True)
    coordinators.is_transaction_v2_enabled = True
    assert answers() == (True, False), "the end of a transaction brings the epoch"


# -- the transaction


def test_partitions_become_part_of_a_transaction() -> None:
    transaction = OpenTransaction()
    assert transaction.add(T1, v2=False)
    assert transaction.add(T0, v2=False)
    assert not transaction.add(T0, v2=False)
    assert transaction.take_new() == [T0, T1]
    assert not transaction.add(T0, v2=False), "pending"
    assert transaction.take_new() == [T0, T1], "until there is a response"
    transaction.partitions_added({T0}, successful=False)
    assert not transaction.started
    transaction.partitions_added({T1}, successful=True)
    assert (transaction.partitions, transaction.started) == ({T1}, True)
    transaction.prepared = PreparedTxnState(1, 2)
    transaction.reset()
    assert (transaction.partitions, transaction.started, transaction.prepared) == (set(), False, PreparedTxnState())


def test_with_version_2_a_partition_is_part_of_the_transaction_at_once() -> None:
    transaction = OpenTransaction()
    transaction.pending_offset_commits[T1] = OffsetAndMetadata(1)
    assert transaction.add(T0, v2=True)
    assert (transaction.partitions, transaction.started, transaction.take_new()) == ({T0}, True, [])


# -- sequences


def batch(partition: TopicPartition = T0, records: int = 2) -> ProducerBatch:
    made = ProducerBatch(partition, RecordBatchBuilder(), 0, CompressionRatioEstimator())
    for _ in range(records):
        made.builder.append(1, None, b"v")
    return made


def test_sequences_are_given_out_and_confirmed() -> None:
    partitions = TxnPartitionMap()
    first, second = batch(), batch(records=3)
    assert partitions.assign_sequence(first, ME, False)
    assert (first.base_sequence, first.builder.is_open) == (0, False)
    assert not partitions.assign_sequence(second, ME, False), "until the first one was written"
    partitions.handle_completed_batch(first, 10)
    assert partitions.last_acked_sequence(T0) == 1
    assert partitions.assign_sequence(second, ME, False)
    assert partitions.window(T0) == ([second], 5)
    assert partitions.assign_sequence(second, ME, False), "again, as it is the first in flight"
    assert partitions.has_in_flight_batches(T0)
    partitions.remove_in_flight_batch(second)
    assert partitions.window(T0) == ([], 5)
    partitions.remove(T0)
    assert partitions.last_acked_sequence(T0) == -1


def test_a_batch_without_a_sequence_is_not_tracked() -> None:
    with pytest.raises(RuntimeError, match="no sequence"):
        TxnPartitionMap().add_in_flight_batch(batch())


def test_an_unresolved_sequence_holds_back_what_comes_after_it() -> None:
    partitions = TxnPartitionMap()
    first = batch()
    assert partitions.are_resolved
    assert partitions.assign_sequence(first, ME, False)
    partitions.mark_sequence_unresolved(first)
    assert (partitions.are_resolved, partitions.unresolved_sequence(T0)) == (False, 2)
    assert partitions.resolve_sequences() == [], "as long as a batch is in flight nobody knows"
    partitions.remove_in_flight_batch(first)
    assert not partitions.assign_sequence(batch(), ME, False)
    assert [entry.topic_partition for entry in partitions.resolve_sequences()] == [T0], "it was not written"
    assert partitions.are_resolved
    partitions.start_over(T0, ProducerIdAndEpoch(5, 1))
    following = batch()
    assert partitions.assign_sequence(following, ProducerIdAndEpoch(5, 1), False)
    assert following.base_sequence == 0


def test_a_batch_that_was_passed_was_written() -> None:
    partitions = TxnPartitionMap()
    first, second = batch(), batch()
    assert partitions.assign_sequence(first, ME, False)
    partitions.get_or_create(T0).last_acked_sequence = 0
    assert partitions.assign_sequence(second, ME, False)
    first.may_be_written = True
    assert not partitions.is_confirmed_by_a_later_one(first)
    partitions.handle_completed_batch(second, 7)
    assert partitions.is_confirmed_by_a_later_one(first)
    partitions.reset()
    assert not partitions.is_confirmed_by_a_later_one(first)
    assert partitions.get_or_create(T0).producer_id_and_epoch == NO_PRODUCER
