"""Transactions that somebody else decides about (KIP-939): they have no timeout, and outlive their producers."""

from __future__ import annotations

import pytest

from barnabas.common.errors import Errors
from barnabas.coordinator.transaction.transaction_config import TransactionConfig
from barnabas.coordinator.transaction.transaction_metadata import (
    LAST_USABLE_EPOCH,
    MAX_EPOCH,
    TWO_PHASE_COMMIT_TIMEOUT_MS,
    IllegalTransitionError,
    ProducerIdAndEpoch,
    TransactionMetadata,
)
from barnabas.coordinator.transaction.transaction_state import TransactionState
from barnabas.coordinator.transaction.transaction_version import TransactionVersion
from barnabas.records.control import ControlRecordType
from transaction_fixtures import ID, TIMEOUT_MS, A, B, TransactionBench, given, written

pytestmark = pytest.mark.mechanism("P14")

TV_0, TV_1, TV_2 = TransactionVersion
ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT, COMPLETE_ABORT = (
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
)
ENABLED = TransactionConfig(two_phase_commit_enable=True)


def prepared(bench: TransactionBench) -> ProducerIdAndEpoch:
    """A transaction of a producer that has crashed since."""
    producer = bench.init(two_phase=True).producer
    assert bench.add(producer, A, B) is Errors.NONE
    return producer


def bench() -> TransactionBench:
    return TransactionBench(config=ENABLED)


def ongoing(producer: ProducerIdAndEpoch, following: ProducerIdAndEpoch) -> TransactionBench:
    """A coordinator that finds a kept transaction in its log."""
    return TransactionBench(
        config=ENABLED,
        writer=written(
            TransactionMetadata(
                transactional_id=ID,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                next_producer_id=following.producer_id,
                next_producer_epoch=following.epoch,
                txn_timeout_ms=TWO_PHASE_COMMIT_TIMEOUT_MS,
                state=ONGOING,
                topic_partitions=frozenset({A}),
                txn_start_timestamp=1,
                txn_last_update_timestamp=1,
                client_transaction_version=TV_2,
            )
        ),
    )


def markers(bench: TransactionBench) -> list[tuple[int, int, ControlRecordType]]:
    return [(one.producer_id, one.producer_epoch, one.result) for one in bench.markers.written]


def test_it_takes_the_broker_to_allow_it() -> None:
    b = TransactionBench()
    assert b.init(two_phase=True).error is Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert not b.states()


@pytest.mark.parametrize("version", [TV_0, TV_1])
def test_keeping_takes_transaction_version_2(version: TransactionVersion) -> None:
    b = TransactionBench(version)
    assert b.init(keep=True).error is Errors.UNSUPPORTED_VERSION
    assert not b.states()


def test_there_is_no_timeout() -> None:
    b = bench()
    producer = prepared(b)
    b.clock.advance(TWO_PHASE_COMMIT_TIMEOUT_MS + 1)
    b.coordinator.abort_timed_out_transactions()
    b.advance(0)
    assert b.metadata().state is ONGOING
    assert b.end(producer).error is Errors.NONE


def test_it_never_gets_one() -> None:
    """Whoever takes over without two-phase commit would else have it aborted at once: it has gone on for long."""
    b = bench()
    prepared(b)
    b.advance(TIMEOUT_MS + 1)
    b.init(keep=True, timeout_ms=TIMEOUT_MS)
    b.advance(TIMEOUT_MS + 20_000)
    assert b.metadata().state is ONGOING


def test_one_that_has_a_timeout_is_aborted_though_it_was_kept() -> None:
    b = TransactionBench()
    old = b.producer()
    b.add(old, A)
    new = b.init(keep=True, timeout_ms=2 * TIMEOUT_MS).producer
    b.advance(TIMEOUT_MS + 10_001)
    assert b.metadata().state is ONGOING, "the timeout is that of the producer that has taken over"
    b.advance(TIMEOUT_MS)
    assert b.metadata().state is COMPLETE_ABORT
    assert b.add(new, A) is Errors.PRODUCER_FENCED
    assert markers(b) == [(old.producer_id, old.epoch + 1, ControlRecordType.ABORT)]


@pytest.mark.parametrize("state", ["new", "empty", "complete"])
def test_there_may_be_nothing_to_keep(state: str) -> None:
    b = bench()
    epoch = 0
    if state != "new":
        producer = b.producer()
        epoch = 1
        if state == "complete":
            b.add(producer, A)
            b.end(producer)
            epoch = 2
    assert b.init(keep=True) == given(1000, epoch)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("crashes", [False, True])
def test_a_transaction_is_kept_and_ended_by_the_next_producer(*, commit: bool, crashes: bool) -> None:
    b = bench()
    old = prepared(b)
    assert b.init(keep=True) == given(old.producer_id, 1, old)
    if crashes:
        b = b.after_crash()
    answer = b.init(keep=True, two_phase=True)
    assert answer == given(old.producer_id, 2, old), "it may take several attempts"
    if crashes:
        b = b.after_crash()
    assert b.metadata().topic_partitions == {A, B}
    ended = b.end(answer.producer, commit=commit)
    assert ended == given(old.producer_id, 3)
    result = ControlRecordType.COMMIT if commit else ControlRecordType.ABORT
    assert set(markers(b)) == {(old.producer_id, 1, result)}, "they follow the records, whose epoch is 0"
    assert b.metadata().state is (COMPLETE_COMMIT if commit else COMPLETE_ABORT)
    assert b.end(answer.producer, commit=commit) == ended, "the answer may have been lost"
    b = b.after_crash()
    assert b.end(answer.producer, commit=commit) == ended
    assert b.add(ended.producer, A) is Errors.NONE
    assert b.end(ended.producer) == given(old.producer_id, 4)


def test_only_the_last_producer_can_end_it() -> None:
    b = bench()
    old = prepared(b)
    second = b.init(keep=True).producer
    third = b.init(keep=True).producer
    for one in (old, second):
        assert b.end(one).error is Errors.PRODUCER_FENCED
        assert b.add(one, A) is Errors.PRODUCER_FENCED
        assert b.verify(one, A) == [Errors.PRODUCER_FENCED]
    b.markers.holds = True
    assert b.end(third).error is Errors.NONE
    assert b.metadata().state is PREPARE_COMMIT
    for one in (old, second):
        assert b.end(one).error is Errors.PRODUCER_FENCED
    assert b.end(third).error is Errors.CONCURRENT_TRANSACTIONS
    assert b.end(third, commit=False).error is Errors.INVALID_TXN_STATE
    assert b.init(keep=True).error is Errors.CONCURRENT_TRANSACTIONS, "it is decided upon"
    b.markers.release()
    for one in (old, second):
        assert b.end(one).error is Errors.PRODUCER_FENCED
    assert b.end(ProducerIdAndEpoch(999, 0)).error is Errors.INVALID_PRODUCER_ID_MAPPING


def test_nothing_can_be_added_to_it() -> None:
    b = bench()
    prepared(b)
    new = b.init(keep=True).producer
    assert b.add(new, A) is Errors.INVALID_TXN_STATE
    assert b.verify(new, A) == [Errors.INVALID_TXN_STATE]
    assert b.end(new, version=TV_0).error is Errors.INVALID_TXN_STATE, "the answer could not tell who it is from now on"
    assert b.metadata().topic_partitions == {A, B}
    assert b.end(new).error is Errors.NONE


def test_a_producer_that_does_not_keep_it_aborts_it() -> None:
    """That is what an operator does who gives up on it."""
    b = bench()
    old = prepared(b)
    kept = b.init(keep=True).producer
    assert b.init().error is Errors.CONCURRENT_TRANSACTIONS
    assert set(markers(b)) == {(old.producer_id, old.epoch + 1, ControlRecordType.ABORT)}
    assert b.end(kept).error is Errors.INVALID_TXN_STATE
    assert b.init() == given(old.producer_id, kept.epoch + 2), "one to fence, one for itself"


def test_a_producer_that_goes_on_says_who_it_is() -> None:
    b = bench()
    old = prepared(b)
    first = b.init(keep=True).producer
    assert b.init(expected=old, keep=True).error is Errors.PRODUCER_FENCED
    again = b.init(expected=first, keep=True)
    assert again == given(old.producer_id, first.epoch + 1, old)
    assert b.init(expected=first, keep=True) == again, "the answer may have been lost"
    assert b.init(expected=ProducerIdAndEpoch(999, 0), keep=True).error is Errors.PRODUCER_FENCED
    assert b.end(again.producer).error is Errors.NONE


# -- when there are no epochs left


def test_the_next_producer_may_have_a_new_id() -> None:
    b = ongoing(ProducerIdAndEpoch(7, LAST_USABLE_EPOCH - 1), ProducerIdAndEpoch(7, LAST_USABLE_EPOCH))
    assert b.init(keep=True) == given(1000, 0, (7, LAST_USABLE_EPOCH - 1))
    assert b.end(ProducerIdAndEpoch(7, LAST_USABLE_EPOCH)).error is Errors.PRODUCER_FENCED
    assert b.end(ProducerIdAndEpoch(1000, 0)) == given(1000, 1)
    assert markers(b) == [(7, LAST_USABLE_EPOCH, ControlRecordType.COMMIT)]


def test_ending_it_may_take_a_new_id() -> None:
    """Then there are three: of the markers, of who ends it, and of what comes next."""
    b = ongoing(ProducerIdAndEpoch(7, 3), ProducerIdAndEpoch(9, LAST_USABLE_EPOCH))
    last = ProducerIdAndEpoch(9, LAST_USABLE_EPOCH)
    b.markers.holds = True
    assert b.end(last) == given(1000, 0)
    assert b.end(last).error is Errors.CONCURRENT_TRANSACTIONS
    b = b.after_crash()
    assert markers(b) == [(7, 4, ControlRecordType.COMMIT)]
    assert b.end(last) == given(1000, 0), "the answer may have been lost"
    assert b.metadata().producer == (1000, 0)


def test_a_transaction_of_the_last_epoch_can_be_kept() -> None:
    b = ongoing(ProducerIdAndEpoch(7, LAST_USABLE_EPOCH), ProducerIdAndEpoch(9, 0))
    assert b.init(keep=True) == given(9, 1, (7, LAST_USABLE_EPOCH))
    assert b.end(ProducerIdAndEpoch(9, 1)) == given(9, 2)
    assert markers(b) == [(7, MAX_EPOCH, ControlRecordType.COMMIT)]


def test_there_is_no_identity_after_the_last() -> None:
    with pytest.raises(IllegalTransitionError):
        ProducerIdAndEpoch(7, LAST_USABLE_EPOCH).successor(-1)
