"""The note about a prepared transaction, and producers that go by it."""

from __future__ import annotations

import pytest

from barnabas.clients.producer import MockProducer, PreparedTxnState
from barnabas.clients.producer.errors import IllegalStateError
from barnabas.clients.producer.internals.pending_operation import PendingOperation
from barnabas.clients.producer.internals.producer_batch import ProducerIdAndEpoch
from barnabas.clients.producer.internals.transaction_manager import TransactionManager
from barnabas.clients.producer.internals.transaction_state import State
from barnabas.common.errors import InvalidTxnStateError


def test_as_text() -> None:
    state = PreparedTxnState(1000, 7)
    assert str(state) == "1000:7"
    assert PreparedTxnState.parse("1000:7") == state
    assert state.has_transaction
    assert str(PreparedTxnState()) == ""
    assert PreparedTxnState.parse("") == PreparedTxnState()
    assert not PreparedTxnState().has_transaction


@pytest.mark.parametrize("text", ["7", "7:", ":7", "-1:-1", "a:b", "1:2:3", " 1:2"])
def test_what_is_no_note(text: str) -> None:
    with pytest.raises(ValueError, match="not the state of a prepared transaction"):
        PreparedTxnState.parse(text)


def initializing(**settings: bool) -> TransactionManager:
    manager = TransactionManager("tx", **settings)  # type: ignore[arg-type]
    manager.initialize_transactions(keep_prepared_txn=True)
    return manager


@pytest.mark.mechanism("P14")
def test_a_manager_is_left_a_transaction() -> None:
    manager = initializing()
    kept = PreparedTxnState(5, 2)
    manager.initialized(ProducerIdAndEpoch(5, 3), is_epoch_bump=False, kept=kept)
    assert manager.machine.state is State.PREPARED_TRANSACTION
    assert manager.transaction.prepared == kept
    assert manager.transaction.started, "or there would be nothing to end"
    assert not manager.machine.has_ongoing_transaction, "or closing the producer would abort it"


@pytest.mark.mechanism("P14")
def test_a_manager_prepares_if_it_may() -> None:
    for enabled in (False, True):
        manager = initializing(enable_two_phase_commit=enabled)
        manager.initialized(ProducerIdAndEpoch(5, 3), is_epoch_bump=False, kept=PreparedTxnState())
        assert manager.machine.state is State.READY
        manager._operation = PendingOperation()  # the application has seen the end of initTransactions
        with pytest.raises(IllegalStateError if enabled else InvalidTxnStateError):
            manager.prepare_transaction()
        manager.begin_transaction()
        if enabled:
            assert manager.prepare_transaction() == PreparedTxnState(5, 3)
            assert manager.machine.state.name == "PREPARED_TRANSACTION"
        else:
            with pytest.raises(InvalidTxnStateError):
                manager.prepare_transaction()


def test_the_mock() -> None:
    producer = MockProducer()
    producer.init_transactions()
    for commit in (True, False):
        producer.begin_transaction()
        with pytest.raises(IllegalStateError):
            producer.complete_transaction(PreparedTxnState())
        producer.send("t", b"%d" % commit)
        state = producer.prepare_transaction()
        with pytest.raises(IllegalStateError):
            producer.send("t", b"late")
        with pytest.raises(IllegalStateError):
            producer.send_offsets_to_transaction({}, "group")
        producer.complete_transaction(state if commit else PreparedTxnState())
        assert producer.transaction_committed is commit
    producer.complete_transaction(PreparedTxnState(1, 0))
    assert [record.value for record in producer.history] == [b"1"]


def test_the_mock_is_left_a_transaction() -> None:
    producer = MockProducer()
    producer.prepared_txn_state = PreparedTxnState(3, 1)
    producer.init_transactions(keep_prepared_txn=True)
    with pytest.raises(IllegalStateError):
        producer.begin_transaction()
    producer.complete_transaction(PreparedTxnState(3, 1))
    assert producer.transaction_committed
    producer = MockProducer()
    producer.prepared_txn_state = PreparedTxnState(3, 1)
    producer.init_transactions()
    producer.begin_transaction()
