from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.common.errors import (
    ApiError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
)
from barnabas.log.append_origin import AppendOrigin
from barnabas.log.log_offset_metadata import LogOffsetMetadata
from barnabas.log.producers.producer_append_info import ProducerAppendInfo
from barnabas.log.producers.producer_state_entry import BatchMetadata, ProducerStateEntry
from barnabas.log.producers.producer_states import ProducerStates
from barnabas.log.producers.txn_metadata import CompletedTxn
from barnabas.log.producers.verification_state import SENTINEL, VerificationGuard
from barnabas.records.batch import RecordBatch
from unit.log.producers.producer_samples import (
    EXPIRATION_MS,
    NOW,
    data_batch,
    entry,
    marker_batch,
    new_states,
    plain_batch,
)

CLIENT, COORDINATOR, REPLICATION = AppendOrigin.CLIENT, AppendOrigin.COORDINATOR, AppendOrigin.REPLICATION


class Appended(NamedTuple):
    updated: dict[int, ProducerAppendInfo]
    completed: list[CompletedTxn]
    duplicate: BatchMetadata | None


def append(
    states: ProducerStates,
    *batches: RecordBatch,
    origin: AppendOrigin = CLIENT,
    guard: VerificationGuard = SENTINEL,
    version: int = 0,
) -> Appended:
    """What a log does with an append."""
    if origin is CLIENT:
        duplicate = states.find_duplicate_batch(batches[0])
        if duplicate is not None:
            return Appended({}, [], duplicate)
    updated, completed = states.analyze(batches, origin, guard=guard, transaction_version=version)
    for info in updated.values():
        states.update(info)
    for transaction in completed:
        states.complete_txn(transaction)
    return Appended(updated, completed, None)


def begin(states: ProducerStates, producer_id: int, offset: int, **more: int) -> None:
    append(states, data_batch(producer_id, offset, 0, transactional=True, **more))


def end(states: ProducerStates, producer_id: int, offset: int) -> None:
    append(states, marker_batch(producer_id, offset), origin=COORDINATOR)


def unstable(states: ProducerStates) -> int | None:
    first = states.first_unstable_offset
    return None if first is None else first.message_offset


# Appends


def test_batches_without_a_producer_leave_no_trace() -> None:
    states = new_states()
    assert append(states, plain_batch(0), plain_batch(1)) == ({}, [], None)
    assert states.is_empty
    assert states.producer_id_count == 0


def test_the_state_changes_only_with_the_update() -> None:
    states = new_states()
    analysis = states.analyze([data_batch(1, 0, 0, 3)], CLIENT)
    assert states.last_entry(1) is None
    states.update(analysis.updated[1])
    assert states.last_entry(1) == entry(1, BatchMetadata(2, 2, 2, NOW))
    assert states.producer_id_count == 1
    assert dict(states.active_producers) == {1: entry(1, BatchMetadata(2, 2, 2, NOW))}
    assert not states.is_empty


def test_five_batches_are_remembered_and_acknowledged_with_their_offsets() -> None:
    states = new_states()
    for number in range(7):
        append(states, data_batch(1, number * 10, number * 3, 3, timestamp=NOW + number))
    for number in range(2, 7):
        again = data_batch(1, 1000, number * 3, 3)
        duplicate = append(states, again).duplicate
        assert duplicate == (number * 3 + 2, number * 10 + 2, 2, NOW + number)
        assert (duplicate.first_offset, duplicate.first_seq) == (number * 10, number * 3)
    for number in range(2):
        with pytest.raises(OutOfOrderSequenceError):
            append(states, data_batch(1, 1000, number * 3, 3))


def test_only_the_very_same_range_is_a_repetition() -> None:
    states = new_states()
    append(states, data_batch(1, 0, 0, 5))
    for first, count in ((0, 4), (0, 6), (1, 4)):
        with pytest.raises(OutOfOrderSequenceError):
            append(states, data_batch(1, 5, first, count))
    assert append(states, data_batch(1, 5, 0, 5)).duplicate is not None
    assert append(states, data_batch(1, 5, 0, 5, epoch=1)).duplicate is None  # a new epoch, not a repetition


def test_what_replication_brings_is_never_a_repetition() -> None:
    states = new_states()
    append(states, data_batch(1, 0, 0))
    assert append(states, data_batch(1, 1, 0), origin=REPLICATION).duplicate is None


def test_several_producers_in_one_append() -> None:
    states = new_states()
    batches = [data_batch(1, 0, 0), plain_batch(1), data_batch(2, 2, 0, 2), data_batch(1, 4, 1)]
    append(states, *batches)
    assert states.last_entry(1) == entry(1, BatchMetadata(0, 0, 0, NOW), BatchMetadata(1, 4, 0, NOW))
    assert states.last_entry(2) == entry(2, BatchMetadata(1, 3, 1, NOW))


def test_transactions_know_where_they_begin() -> None:
    states = new_states()
    batches = [plain_batch(5), data_batch(1, 6, 0, transactional=True), data_batch(2, 7, 0, transactional=True)]
    analysis = states.analyze(batches, CLIENT, append_offset=LogOffsetMetadata(5, 3, 1000))
    size = batches[0].size_in_bytes
    first, second = (info.started_transactions[0].first_offset for info in analysis.updated.values())
    assert first == (6, 3, 1000 + size)
    assert second == (7, 3, 1000 + size + batches[1].size_in_bytes)


def test_an_update_without_a_producer_is_a_mistake() -> None:
    states = new_states()
    with pytest.raises(ValueError, match="without a producer id"):
        states.update(states.prepare_update(-1, CLIENT))


# Stability


def test_the_first_unstable_offset_of_the_example() -> None:
    states = new_states()
    begin(states, 1, 10)
    begin(states, 2, 11)
    append(states, data_batch(1, 12, 1, transactional=True))
    assert unstable(states) == 10
    end(states, 1, 13)
    assert unstable(states) == 10
    assert states.first_undecided_offset == 11
    states.on_high_watermark_updated(13)  # the marker is at 13, so replicated only from 14 on
    assert unstable(states) == 10
    states.on_high_watermark_updated(14)
    assert unstable(states) == 11
    append(states, data_batch(2, 14, 1, transactional=True))
    end(states, 2, 15)
    states.on_high_watermark_updated(16)
    assert unstable(states) is None
    assert states.first_undecided_offset is None


def test_a_later_transaction_that_ends_earlier() -> None:
    states = new_states()
    begin(states, 1, 10)
    begin(states, 2, 11)
    end(states, 2, 12)
    states.on_high_watermark_updated(13)
    assert unstable(states) == 10
    end(states, 1, 13)
    assert unstable(states) == 10
    states.on_high_watermark_updated(14)
    assert unstable(states) is None


def test_a_marker_without_a_transaction_makes_nothing_unstable() -> None:
    states = new_states()
    end(states, 1, 0)
    assert unstable(states) is None


def test_the_last_stable_offset_for_the_index() -> None:
    states = new_states()
    begin(states, 1, 10)
    begin(states, 2, 11)
    assert states.last_stable_offset(CompletedTxn(1, 10, 12, is_aborted=True)) == 11
    assert states.last_stable_offset(CompletedTxn(2, 11, 12, is_aborted=True)) == 10
    end(states, 2, 12)
    assert states.last_stable_offset(CompletedTxn(1, 10, 13, is_aborted=True)) == 14


def test_a_transaction_that_was_never_begun_cannot_be_completed() -> None:
    with pytest.raises(ValueError, match="was never begun"):
        new_states().complete_txn(CompletedTxn(1, 0, 1, is_aborted=False))


def test_late_transactions() -> None:
    states = new_states()
    limit = NOW + 500 + 5 * 60 * 1000
    assert not states.has_late_transaction(limit + 1)
    begin(states, 1, 0)
    assert not states.has_late_transaction(limit)
    assert states.has_late_transaction(limit + 1)
    begin(states, 2, 1, timestamp=NOW + 10)
    end(states, 1, 2)
    assert not states.has_late_transaction(limit + 10)
    assert states.has_late_transaction(limit + 11)
    states.clear()
    assert not states.has_late_transaction(limit + 11)


# Expiry


def test_idle_producers_are_forgotten() -> None:
    states = new_states()
    append(states, data_batch(1, 0, 0))
    append(states, data_batch(2, 1, 0, timestamp=NOW + 1))
    begin(states, 3, 2)
    states.maybe_create_verification_state_entry(4, 0, 0, supports_epoch_bump=False)
    states.remove_expired_producers(NOW + EXPIRATION_MS - 1)
    assert set(states.active_producers) == {1, 2, 3}
    assert states.verification_state_entry(4) is not None
    states.remove_expired_producers(NOW + EXPIRATION_MS)
    assert set(states.active_producers) == {2, 3}
    assert states.verification_state_entry(4) is None
    states.config.producer_id_expiration_ms = 0
    states.remove_expired_producers(NOW + 1)
    assert set(states.active_producers) == {3}  # its transaction is open
    append(states, data_batch(1, 9, 77))  # forgotten: it may go on from anywhere


# Verification of transactions


def test_a_transactional_batch_needs_verification() -> None:
    states = new_states(verification=True)
    batch = data_batch(1, 0, 0, transactional=True)
    for guard in (SENTINEL, VerificationGuard()):
        with pytest.raises(InvalidTxnStateError, match="not part of an ongoing transaction"):
            append(states, batch, guard=guard)
    guard = states.maybe_start_transaction_verification(1, 0, 0, supports_epoch_bump=False)
    assert guard is states.verification_guard(1) is not SENTINEL
    with pytest.raises(InvalidTxnStateError):
        append(states, batch, guard=VerificationGuard())
    append(states, batch, guard=guard)
    assert states.verification_guard(1) is SENTINEL
    # The transaction is open now: nothing more to verify.
    assert states.maybe_start_transaction_verification(1, 1, 0, supports_epoch_bump=False) is SENTINEL
    append(states, data_batch(1, 1, 1, transactional=True))


def test_the_end_of_a_transaction_ends_its_verification() -> None:
    states = new_states(verification=True)
    guard = states.maybe_start_transaction_verification(1, 0, 0, supports_epoch_bump=False)
    end(states, 1, 0)
    assert states.verification_state_entry(1) is None
    with pytest.raises(InvalidTxnStateError):
        append(states, data_batch(1, 1, 0, transactional=True), guard=guard)


def test_the_end_of_the_transaction_before_does_not() -> None:
    states = new_states(verification=True)
    guard = states.maybe_start_transaction_verification(1, 0, 5, supports_epoch_bump=True)
    # The marker of the transaction with epoch 4 has epoch 5, which is that of the one being verified.
    append(states, marker_batch(1, 0, epoch=5), origin=COORDINATOR, version=2)
    assert states.verification_guard(1) is guard
    append(states, data_batch(1, 1, 0, epoch=5, transactional=True), guard=guard)
    assert states.verification_state_entry(1) is None
    states.maybe_create_verification_state_entry(1, 0, 5, supports_epoch_bump=True)
    append(states, marker_batch(1, 2, epoch=6), origin=COORDINATOR, version=2)
    assert states.verification_state_entry(1) is None


def test_other_batches_need_none() -> None:
    states = new_states(verification=True)
    append(states, data_batch(1, 0, 0))
    append(states, data_batch(2, 1, 0, transactional=True), origin=REPLICATION)
    append(states, marker_batch(3, 2), origin=COORDINATOR)
    assert set(states.active_producers) == {1, 2, 3}
    states.config.transaction_verification_enabled = False
    append(states, data_batch(4, 3, 0, transactional=True))


def test_old_epochs_are_not_even_verified() -> None:
    states = new_states(verification=True)
    append(states, data_batch(1, 0, 0, epoch=3))
    with pytest.raises(InvalidProducerEpochError, match="below 3"):
        states.maybe_start_transaction_verification(1, 0, 2, supports_epoch_bump=True)
    with pytest.raises(InvalidProducerEpochError, match="below 3"):
        append(states, data_batch(1, 1, 0, epoch=2, transactional=True))
    # Nor does an open transaction help a batch with an older epoch.
    states.config.transaction_verification_enabled = False
    begin(states, 2, 2, epoch=3)
    with pytest.raises(InvalidProducerEpochError):
        append(states, data_batch(2, 3, 1, epoch=2, transactional=True))
    assert states.has_ongoing_transaction(2, 3)
    assert not states.has_ongoing_transaction(2, 2)
    assert not states.has_ongoing_transaction(1, 3)


def test_the_lowest_sequence_number_that_waits() -> None:
    states = new_states()
    waiting = states.maybe_create_verification_state_entry(1, 5, 0, supports_epoch_bump=False)
    for sequence, epoch, expected in ((6, 0, (5, 0)), (4, 0, (4, 0)), (9, 1, (9, 1)), (3, 0, (9, 1)), (8, 1, (8, 1))):
        again = states.maybe_create_verification_state_entry(1, sequence, epoch, supports_epoch_bump=False)
        assert again is waiting
        assert (waiting.lowest_sequence, waiting.epoch) == expected
    assert waiting.timestamp == NOW
    assert "lowest_sequence=8" in repr(waiting)
    states.clear_verification_state_entry(1)
    states.clear_verification_state_entry(1)
    assert states.verification_state_entry(1) is None


def test_guards() -> None:
    one, other = VerificationGuard(), VerificationGuard()
    assert one.verify(one)
    assert not one.verify(other)
    assert not one.verify(SENTINEL)
    assert not SENTINEL.verify(SENTINEL)
    assert repr(SENTINEL) == "VerificationGuard(sentinel)"
    assert repr(one) != repr(other)


# A model: a list of everything that was appended, searched anew for every question


@dataclass
class Model:
    """What a log says about its producers if all that is ever looked at is the log."""

    batches: list[RecordBatch] = field(default_factory=list)
    high_watermark: int = 0

    @property
    def end(self) -> int:
        return self.batches[-1].next_offset if self.batches else 0

    def of(self, producer_id: int) -> list[RecordBatch]:
        return [batch for batch in self.batches if batch.producer_id == producer_id]

    def epoch(self, producer_id: int) -> int:
        return max((batch.producer_epoch for batch in self.of(producer_id)), default=-1)

    def data_of_epoch(self, producer_id: int, epoch: int) -> list[RecordBatch]:
        return [b for b in self.of(producer_id) if b.producer_epoch == epoch and not b.is_control_batch]

    def open_transaction(self, producer_id: int) -> int | None:
        first = None
        for batch in self.of(producer_id):
            if batch.is_control_batch:
                first = None
            elif batch.is_transactional and first is None:
                first = batch.base_offset
        return first

    def verdict(self, batch: RecordBatch) -> str:
        """What becomes of a client's batch."""
        known = self.data_of_epoch(batch.producer_id, batch.producer_epoch)
        epoch = self.epoch(batch.producer_id)
        if batch.producer_epoch == epoch and any(
            (b.base_sequence, b.last_sequence) == (batch.base_sequence, batch.last_sequence) for b in known[-5:]
        ):
            return "duplicate"
        if batch.producer_epoch < epoch:
            return "InvalidProducerEpochError"
        if epoch >= 0:
            expected = known[-1].last_sequence + 1 if known else 0
            if batch.base_sequence != expected:
                return "OutOfOrderSequenceError"
        if not batch.is_transactional and self.open_transaction(batch.producer_id) is not None:
            return "InvalidTxnStateError"
        return "appended"

    def first_unstable(self) -> int | None:
        """The first offset of a transaction whose end, if there is one, is not below the high watermark."""
        firsts: dict[int, int] = {}
        unstable = []
        for batch in self.batches:
            if not batch.is_control_batch:
                if batch.is_transactional:
                    firsts.setdefault(batch.producer_id, batch.base_offset)
            elif batch.producer_id in firsts:
                first = firsts.pop(batch.producer_id)
                if batch.base_offset >= self.high_watermark:
                    unstable.append(first)
        return min([*firsts.values(), *unstable], default=None)


STEP = st.one_of(
    st.tuples(
        st.just("data"), st.integers(1, 2), st.integers(0, 2), st.integers(-4, 2), st.integers(1, 3), st.booleans()
    ),
    st.tuples(st.just("marker"), st.integers(1, 2), st.booleans(), st.just(0), st.just(0), st.just(False)),
    st.tuples(st.just("high watermark"), st.integers(0, 3), st.just(0), st.just(0), st.just(0), st.just(False)),
)


def outcome(states: ProducerStates, batch: RecordBatch) -> str:
    try:
        return "appended" if append(states, batch).duplicate is None else "duplicate"
    except ApiError as error:
        return type(error).__name__


@settings(deadline=None, max_examples=300)
@given(st.lists(STEP, max_size=40))
def test_the_model_says_the_same(steps: list[tuple[str, int, int, int, int, bool]]) -> None:
    states, model = new_states(), Model()
    for kind, first, second, third, fourth, transactional in steps:
        if kind == "high watermark":
            model.high_watermark = min(model.high_watermark + first, model.end)
            states.on_high_watermark_updated(model.high_watermark)
        elif kind == "marker":
            batch = marker_batch(first, model.end, epoch=max(model.epoch(first), 0), abort=bool(second))
            completed = append(states, batch, origin=COORDINATOR).completed
            opened = model.open_transaction(first)
            assert completed == ([] if opened is None else [(first, opened, model.end, bool(second))])
            model.batches.append(batch)
        else:
            # Epochs around the present one; sequence numbers around the next one, by whole batches.
            epoch = max(model.epoch(first) + second - 1, 0)
            known = model.data_of_epoch(first, epoch)
            if third < 0 and len(known) >= -third:
                sequence, count = known[third].base_sequence, known[third].record_count
            else:
                sequence, count = (known[-1].last_sequence + 1 if known else 0) + max(third, 0), fourth
            batch = data_batch(first, model.end, sequence, count, epoch=epoch, transactional=transactional)
            verdict = outcome(states, batch)
            assert verdict == model.verdict(batch)
            if verdict == "appended":
                model.batches.append(batch)
        assert unstable(states) == model.first_unstable()
        for producer_id in (1, 2):
            state = states.last_entry(producer_id) or ProducerStateEntry(producer_id)
            epoch = model.epoch(producer_id)
            assert state.producer_epoch == epoch
            assert state.current_txn_first_offset == model.open_transaction(producer_id)
            assert [batch.first_offset for batch in state.batches] == [
                batch.base_offset for batch in model.data_of_epoch(producer_id, epoch)[-5:]
            ]
