"""The transaction coordinator, from the requests of producers to the records in its log."""

from __future__ import annotations

import pytest

from barnabas.common.errors import (
    Errors,
    InvalidRegularExpressionError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
)
from barnabas.common.topic_partition import TopicPartition
from barnabas.coordinator.transaction import transaction_coordinator
from barnabas.coordinator.transaction.transaction_config import TransactionConfig
from barnabas.coordinator.transaction.transaction_coordinator import TransactionListing
from barnabas.coordinator.transaction.transaction_metadata import (
    LAST_USABLE_EPOCH,
    MAX_EPOCH,
    TWO_PHASE_COMMIT_TIMEOUT_MS,
    ProducerIdAndEpoch,
    TransactionMetadata,
)
from barnabas.coordinator.transaction.transaction_state import TransactionState
from barnabas.coordinator.transaction.transaction_version import TransactionVersion
from barnabas.records.control import ControlRecordType
from transaction_fixtures import ID, TIMEOUT_MS, A, B, C, TransactionBench, given, partitions_of, written

TV_0, TV_1, TV_2 = TransactionVersion
VERSIONS = [TV_0, TV_1, TV_2]
EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = list(TransactionState)[:6]


def at_epoch(epoch: int, state: TransactionState = EMPTY, version: TransactionVersion = TV_2) -> TransactionBench:
    """A coordinator that finds a producer with this epoch in its log."""
    ongoing = state is ONGOING
    return TransactionBench(
        version,
        writer=written(
            TransactionMetadata(
                transactional_id=ID,
                producer_id=7,
                producer_epoch=epoch,
                txn_timeout_ms=TIMEOUT_MS,
                state=state,
                topic_partitions=frozenset({A}) if ongoing else frozenset(),
                txn_start_timestamp=1 if ongoing else -1,
                txn_last_update_timestamp=1,
                client_transaction_version=TV_2,
            )
        ),
    )


# -- a transaction from beginning to end


@pytest.mark.mechanism("P14")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_is_decided_told_and_completed(version: TransactionVersion, commit: bool) -> None:
    b = TransactionBench(version)
    producer = b.producer()
    assert producer == (1000, 0)
    assert b.add(producer, A, B) is Errors.NONE
    assert b.metadata().state is ONGOING
    answer = b.end(producer, commit=commit)
    next_epoch = 1 if version is TV_2 else 0
    assert answer == given(1000, next_epoch)
    (marker,) = b.markers.written
    assert marker[:5] == (
        1000,
        next_epoch,
        5,
        ControlRecordType.COMMIT if commit else ControlRecordType.ABORT,
        version,
    )
    assert partitions_of(b.markers.written) == [A, B]
    prepared, complete = (PREPARE_COMMIT, COMPLETE_COMMIT) if commit else (PREPARE_ABORT, COMPLETE_ABORT)
    assert b.states() == [EMPTY, ONGOING, prepared, complete]
    metadata = b.metadata()
    assert (metadata.state, metadata.topic_partitions, metadata.producer) == (complete, frozenset(), answer.producer)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_next_transaction_begins_where_the_last_has_ended(version: TransactionVersion) -> None:
    b = TransactionBench(version)
    producer = b.producer()
    for _ in range(3):
        assert b.add(producer, A) is Errors.NONE
        producer = b.end(producer).producer
    assert producer.epoch == (3 if version is TV_2 else 0)
    assert b.states()[1:] == [ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT] * 3


def test_adding_what_is_there_writes_nothing() -> None:
    b = TransactionBench()
    producer = b.producer()
    b.add(producer, A, B)
    before = len(b.states())
    assert b.add(producer, B) is Errors.NONE
    assert len(b.states()) == before
    assert b.add(producer, B, C) is Errors.NONE
    assert b.metadata().topic_partitions == {A, B, C}


def test_a_transaction_begins_with_its_first_partition() -> None:
    b = TransactionBench()
    producer = b.producer()
    assert b.metadata().txn_start_timestamp == -1
    b.advance(500)
    b.add(producer, A)
    started = b.metadata().txn_start_timestamp
    assert started == b.clock.milliseconds()
    b.advance(500)
    b.add(producer, B)
    assert b.metadata().txn_start_timestamp == started


# -- errors


@pytest.mark.parametrize("version", VERSIONS)
def test_who_is_unknown_or_fenced_changes_nothing(version: TransactionVersion) -> None:
    b = TransactionBench(version)
    stranger = ProducerIdAndEpoch(1, 0)
    assert b.add(stranger, A) is Errors.INVALID_PRODUCER_ID_MAPPING
    assert b.end(stranger).error is Errors.INVALID_PRODUCER_ID_MAPPING
    assert b.verify(stranger, A) == [Errors.INVALID_PRODUCER_ID_MAPPING]
    old = b.producer()
    b.init()
    states = b.states()
    assert b.add(old, A) is Errors.PRODUCER_FENCED
    assert b.end(old).error is Errors.PRODUCER_FENCED
    assert b.verify(old, A) == [Errors.PRODUCER_FENCED]
    assert b.add(stranger, A) is Errors.INVALID_PRODUCER_ID_MAPPING
    assert b.end(stranger).error is Errors.INVALID_PRODUCER_ID_MAPPING
    assert b.states() == states


@pytest.mark.parametrize("version", VERSIONS)
def test_there_is_nothing_to_commit_without_a_transaction(version: TransactionVersion) -> None:
    b = TransactionBench(version)
    producer = b.producer()
    assert b.end(producer).error is Errors.INVALID_TXN_STATE
    assert b.states() == [EMPTY]


def test_nothing_can_be_aborted_with_version_2_only() -> None:
    old = TransactionBench(TV_1)
    assert old.end(old.producer(), commit=False).error is Errors.INVALID_TXN_STATE
    b = TransactionBench(TV_2)
    producer = b.producer()
    answer = b.end(producer, commit=False)
    assert answer == given(producer.producer_id, 1)
    assert b.states() == [EMPTY, PREPARE_ABORT, COMPLETE_ABORT]
    assert not b.markers.written
    again = b.end(answer.producer, commit=False)
    assert again == given(producer.producer_id, 2)
    b.add(again.producer, A)
    committed = b.end(again.producer)
    assert b.end(committed.producer, commit=False).error is Errors.NONE, "after a commit as well"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("commit", [True, False])
def test_who_ends_a_transaction_again_hears_the_same(version: TransactionVersion, commit: bool) -> None:
    b = TransactionBench(version)
    producer = b.producer()
    b.add(producer, A)
    b.markers.holds = True
    first = b.end(producer, commit=commit)
    assert first.error is Errors.NONE
    assert b.end(producer, commit=commit).error is Errors.CONCURRENT_TRANSACTIONS
    assert b.end(producer, commit=not commit).error is Errors.INVALID_TXN_STATE
    b.markers.release()
    again = b.end(producer, commit=commit)
    assert again.error is Errors.NONE
    if version is TV_2:
        assert again == first
    assert b.end(producer, commit=not commit).error is Errors.INVALID_TXN_STATE
    assert len(b.states()) == 4


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_is_added_while_markers_are_written(version: TransactionVersion) -> None:
    b = TransactionBench(version)
    producer = b.producer()
    b.add(producer, A)
    b.markers.holds = True
    after = b.end(producer).producer
    assert b.add(after, A) is Errors.CONCURRENT_TRANSACTIONS
    assert b.verify(after, A) == [Errors.CONCURRENT_TRANSACTIONS]
    assert b.init().error is Errors.CONCURRENT_TRANSACTIONS
    b.markers.release()
    assert b.add(after, A) is Errors.NONE


def test_a_client_of_version_1_is_served_by_a_cluster_of_version_2() -> None:
    b = TransactionBench(TV_2)
    producer = b.producer()
    assert b.add(producer, A, version=TV_0) is Errors.NONE
    assert b.end(producer, version=TV_0).error is Errors.NONE
    assert b.metadata().producer == producer
    assert b.add(producer, A, version=TV_0) is Errors.NONE
    assert b.end(producer, version=TV_0).error is Errors.NONE


@pytest.mark.mechanism("P14")
def test_partitions_are_verified() -> None:
    b = TransactionBench()
    producer = b.producer()
    assert b.verify(producer, A) == [Errors.TRANSACTION_ABORTABLE]
    b.add(producer, A)
    assert b.verify(producer, A, B) == [Errors.NONE, Errors.TRANSACTION_ABORTABLE]
    after = b.end(producer).producer
    assert b.verify(after, A) == [Errors.TRANSACTION_ABORTABLE]


def test_empty_ids_are_no_ids() -> None:
    b = TransactionBench()
    producer = ProducerIdAndEpoch(1, 1)
    assert b.init("").error is Errors.INVALID_REQUEST
    assert b.add(producer, A, transactional_id="") is Errors.INVALID_REQUEST
    assert b.end(producer, transactional_id="").error is Errors.INVALID_REQUEST
    found = b.coordinator.verify_partitions_in_transaction("", producer, [A]).result(0)
    assert found == {A: Errors.INVALID_REQUEST}
    assert b.coordinator.describe_transaction("").result(0) is Errors.INVALID_REQUEST


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_timeouts_have_bounds(timeout_ms: int) -> None:
    b = TransactionBench()
    assert b.init(timeout_ms=timeout_ms).error is Errors.INVALID_TRANSACTION_TIMEOUT
    assert b.init(timeout_ms=900_000).error is Errors.NONE


def test_without_producer_ids_a_producer_is_to_come_back() -> None:
    b = TransactionBench()
    b.producer_ids.empty = True
    assert b.init().error is Errors.COORDINATOR_LOAD_IN_PROGRESS
    b.producer_ids.empty = False
    assert b.init().error is Errors.NONE


# -- fencing and recovery


@pytest.mark.mechanism("P14")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_new_producer_aborts_what_the_old_has_left_open(version: TransactionVersion) -> None:
    b = TransactionBench(version)
    crashed = b.producer()
    b.add(crashed, A, B)
    b.markers.holds = True
    assert b.init().error is Errors.CONCURRENT_TRANSACTIONS
    assert b.init().error is Errors.CONCURRENT_TRANSACTIONS, "as long as it takes"
    b.markers.release()
    (marker,) = b.markers.written
    assert (marker.result, marker.producer_epoch) == (ControlRecordType.ABORT, 1), "no record of the old one gets in"
    replacement = b.init()
    assert replacement == given(crashed.producer_id, 2)
    assert b.add(crashed, A) is Errors.PRODUCER_FENCED
    assert b.end(crashed).error is Errors.PRODUCER_FENCED
    assert b.states() == [EMPTY, ONGOING, PREPARE_ABORT, COMPLETE_ABORT, EMPTY]


def test_a_producer_goes_on_after_an_error_with_the_next_epoch() -> None:
    b = TransactionBench()
    producer = b.producer()
    after = b.init(expected=producer)
    assert after == given(producer.producer_id, 1)
    assert b.init(expected=producer) == after, "the answer was lost, and it asks again"
    assert b.init(expected=after.producer).producer.epoch == 2
    assert b.init(expected=producer).error is Errors.PRODUCER_FENCED
    b.init()
    assert b.init(expected=ProducerIdAndEpoch(producer.producer_id, 2)).error is Errors.PRODUCER_FENCED
    assert b.init(expected=ProducerIdAndEpoch(5, 0)).error is Errors.PRODUCER_FENCED


def test_a_producer_that_was_forgotten_gets_a_new_identity() -> None:
    b = TransactionBench()
    assert b.init(expected=ProducerIdAndEpoch(5, 12)) == given(1000, 0)


@pytest.mark.parametrize("version", [TV_1, TV_2])
def test_a_new_id_follows_the_last_epoch(version: TransactionVersion) -> None:
    b = at_epoch(LAST_USABLE_EPOCH, version=version)
    expected = ProducerIdAndEpoch(7, LAST_USABLE_EPOCH)
    after = b.init(expected=expected)
    assert after == given(1000, 0)
    assert b.init(expected=expected) == after, "the answer was lost"
    assert b.metadata().previous_producer_id in {7, 1000}
    assert at_epoch(LAST_USABLE_EPOCH, version=version).init() == given(1000, 0)
    assert at_epoch(LAST_USABLE_EPOCH - 1, version=version).init() == given(7, LAST_USABLE_EPOCH)


def test_a_transaction_with_the_last_epoch_ends_with_a_new_id() -> None:
    b = at_epoch(LAST_USABLE_EPOCH, ONGOING)
    producer = ProducerIdAndEpoch(7, LAST_USABLE_EPOCH)
    b.markers.holds = True
    answer = b.end(producer)
    assert answer == given(1000, 0)
    waiting = b.metadata()
    assert (waiting.producer, waiting.next_producer_id) == ((7, MAX_EPOCH), 1000)
    b.markers.release()
    (marker,) = b.markers.written
    assert (marker.producer_id, marker.producer_epoch) == (7, MAX_EPOCH), "markers bear the old id"
    done = b.metadata()
    assert (done.producer, done.previous_producer_id, done.next_producer_id) == ((1000, 0), 7, -1)
    assert b.end(producer) == answer, "the answer was lost"
    assert b.end(producer, commit=False).error is Errors.INVALID_TXN_STATE
    assert b.add(answer.producer, A) is Errors.NONE
    assert b.end(producer).error is Errors.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("version", [TV_1, TV_2])
def test_a_producer_with_the_last_epoch_can_be_fenced(version: TransactionVersion) -> None:
    b = at_epoch(LAST_USABLE_EPOCH, ONGOING, version)
    assert b.init().error is Errors.CONCURRENT_TRANSACTIONS
    (marker,) = b.markers.written
    assert marker.producer_epoch == MAX_EPOCH
    after = b.init()
    assert after.error is Errors.NONE
    assert after.producer.producer_id >= 1000


# -- time


@pytest.mark.mechanism("P14")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_transaction_that_takes_too_long_is_aborted(version: TransactionVersion) -> None:
    b = TransactionBench(version)
    producer = b.producer()
    b.add(producer, A)
    b.advance(TIMEOUT_MS)
    assert b.metadata().state is ONGOING
    b.advance(10_000)
    assert b.metadata().state is COMPLETE_ABORT
    assert b.metadata().producer_epoch == 1
    assert partitions_of(b.markers.written) == [A]
    # To a client of version 2, which knows that epochs go up, this looks like its own abort that comes again.
    expected = Errors.INVALID_TXN_STATE if version is TV_2 else Errors.PRODUCER_FENCED
    assert b.end(producer).error is expected
    assert b.add(producer, A) is Errors.PRODUCER_FENCED


def test_a_transaction_that_has_ended_meanwhile_is_not_aborted() -> None:
    b = TransactionBench(TV_1)
    producer = b.producer()
    b.add(producer, A)
    b.clock.advance(TIMEOUT_MS + 1)
    (slow,) = b.runtime.runtime.schedule_read_operation(
        "look", b.partition, lambda shard, offset: shard.timed_out_transactions(offset)
    ).result(0)
    b.end(producer)
    b.add(producer, B)
    refused = b.runtime.runtime.schedule_write_operation(
        "abort", b.partition, lambda shard: shard.abort_timed_out(slow, None)
    ).result(0)
    assert refused.error is Errors.CONCURRENT_TRANSACTIONS
    assert b.metadata().state is ONGOING, "the next one has time"
    assert b.metadata().topic_partitions == {B}


def test_a_transaction_that_another_system_decides_about_has_no_timeout() -> None:
    b = TransactionBench(config=TransactionConfig(two_phase_commit_enable=True))
    begun = b.coordinator.init_producer_id(ID, 1, None, enable_two_phase_commit=True).result(0)
    assert begun.error is Errors.NONE
    assert b.metadata().txn_timeout_ms == TWO_PHASE_COMMIT_TIMEOUT_MS
    b.add(begun.producer, A)
    b.clock.advance(2 * TWO_PHASE_COMMIT_TIMEOUT_MS)
    b.coordinator.abort_timed_out_transactions()
    assert b.metadata().state is ONGOING


def test_two_phase_commit_has_to_be_enabled() -> None:
    b = TransactionBench()
    refused = b.coordinator.init_producer_id(ID, 1, None, enable_two_phase_commit=True).result(0)
    assert refused.error is Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert not b.states()


def test_ids_that_nobody_uses_are_forgotten() -> None:
    b = TransactionBench(config=TransactionConfig(transactional_id_expiration_ms=100_000))
    busy, idle = b.producer("busy"), b.producer("idle")
    b.add(busy, A, transactional_id="busy")
    b.advance(99_999)
    b.coordinator.remove_expired_transactional_ids()
    assert b.metadata("idle").producer == idle
    b.advance(1)
    b.coordinator.remove_expired_transactional_ids()
    assert b.coordinator.describe_transaction("idle").result(0) is Errors.TRANSACTIONAL_ID_NOT_FOUND
    assert b.metadata("busy").topic_partitions == {A} or b.metadata("busy").state is COMPLETE_ABORT
    assert b.after_crash().coordinator.describe_transaction("idle").result(0) is Errors.TRANSACTIONAL_ID_NOT_FOUND


# -- writes that wait or fail


@pytest.mark.mechanism("P14")
def test_no_partition_is_told_before_the_decision_is_committed() -> None:
    b = TransactionBench()
    producer = b.producer()
    b.add(producer, A)
    b.writer.commits_at_once = False
    answer = b.coordinator.end_transaction(ID, producer, commit=True, client_version=TV_2)
    second = b.coordinator.add_partitions_to_transaction(ID, ProducerIdAndEpoch(producer.producer_id, 1), [B], TV_2)
    assert not answer.done()
    assert not second.done(), "that it comes too early rests upon the same write"
    assert not b.markers.written
    assert b.metadata().state is ONGOING, "readers see what is committed"
    b.writer.commit(b.partition)
    assert answer.result(0).error is Errors.NONE
    assert second.result(0) is Errors.CONCURRENT_TRANSACTIONS
    assert len(b.markers.written) == 1
    b.writer.commit(b.partition)
    assert b.metadata().state is COMPLETE_COMMIT


def test_a_decision_of_which_nothing_is_known_in_time_is_told_all_the_same() -> None:
    b = TransactionBench()
    producer = b.producer()
    b.add(producer, A)
    b.writer.commits_at_once = False
    answer = b.coordinator.end_transaction(ID, producer, commit=True, client_version=TV_2)
    b.runtime.advance(5_000)
    assert answer.result(0).error is Errors.COORDINATOR_NOT_AVAILABLE
    assert not b.markers.written
    b.writer.commits_at_once = True
    b.writer.commit(b.partition)
    b.runtime.advance(10_000)
    assert partitions_of(b.markers.written) == [A]
    assert b.metadata().state is COMPLETE_COMMIT
    assert b.end(producer) == given(producer.producer_id, 1)


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (NotEnoughReplicasError(), Errors.COORDINATOR_NOT_AVAILABLE),
        (NotLeaderOrFollowerError(), Errors.NOT_COORDINATOR),
    ],
)
def test_a_write_that_fails_leaves_no_trace(failure: Exception, error: Errors) -> None:
    b = TransactionBench()
    producer = b.producer()
    b.add(producer, A)
    before = b.metadata()
    b.writer.fails_with = failure
    assert b.end(producer).error is error
    assert b.add(producer, B) is error
    assert b.init().error is error
    b.writer.fails_with = None
    b.runtime.advance(1_000)
    assert b.metadata() == before
    assert not b.markers.written
    assert b.end(producer).error is Errors.NONE


def test_a_completion_that_cannot_be_written_is_tried_again() -> None:
    b = TransactionBench()
    producer = b.producer()
    b.add(producer, A)
    b.markers.holds = True
    b.end(producer)
    b.writer.fails_with = NotEnoughReplicasError()
    b.markers.release()
    assert b.metadata().state is PREPARE_COMMIT
    b.advance(500)
    assert b.channels.num_txns_with_pending_markers() == 1
    b.writer.fails_with = None
    b.advance(100)
    assert b.metadata().state is COMPLETE_COMMIT
    assert b.channels.num_txns_with_pending_markers() == 0
    assert len(b.markers.written) == 1, "the partitions need not be told again"


def test_a_completion_that_was_written_after_all_is_not_written_again() -> None:
    b = TransactionBench()
    producer = b.producer()
    b.add(producer, A)
    b.markers.holds = True
    b.end(producer)
    b.writer.commits_at_once = False
    b.markers.release()
    b.runtime.advance(5_000)
    assert b.channels.num_txns_with_pending_markers() == 1, "nobody knows whether it is committed"
    b.scheduler.advance(100)
    b.writer.commit(b.partition)
    assert b.states() == [EMPTY, ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT]
    assert b.channels.num_txns_with_pending_markers() == 0
    assert b.metadata().state is COMPLETE_COMMIT


# -- another coordinator takes over


@pytest.mark.mechanism("P14")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("commit", [True, False])
def test_who_takes_over_tells_the_partitions(version: TransactionVersion, commit: bool) -> None:
    b = TransactionBench(version)
    producer = b.producer()
    b.add(producer, A, B)
    b.markers.holds = True
    b.end(producer, commit=commit)
    later = b.after_crash()
    assert partitions_of(later.markers.written) == [A, B]
    assert {marker.coordinator_epoch for marker in later.markers.written} == {6}
    assert later.metadata().state is (COMPLETE_COMMIT if commit else COMPLETE_ABORT)
    b.markers.release()
    assert later.states() == b.states(), "the one before has no say any more"


@pytest.mark.parametrize("version", VERSIONS)
def test_who_takes_over_goes_on_with_the_transaction(version: TransactionVersion) -> None:
    b = TransactionBench(version)
    producer = b.producer()
    b.add(producer, A)
    later = b.after_crash()
    assert later.verify(producer, A) == [Errors.NONE]
    assert later.add(producer, B) is Errors.NONE
    assert later.end(producer).error is Errors.NONE
    assert partitions_of(later.markers.written) == [A, B]


@pytest.mark.parametrize("loading", [False, True])
def test_who_is_elected_again_goes_on_to_tell_the_partitions(loading: bool) -> None:
    """The leader epoch can rise while the leader stays. Then nothing is loaded again."""
    b = TransactionBench()
    producer = b.producer()
    b.add(producer, A)
    b.cache.leaders[A] = None
    b.end(producer)
    assert b.metadata().state is PREPARE_COMMIT
    if loading:
        b = b.after_crash(load=False)
        b.cache.leaders[A] = None
        b.runtime.loader.holds = True
        b.elect(6)
    b.elect(7)
    b.runtime.loader.release()
    b.cache.leaders.clear()
    b.advance(b.config.retry_backoff_ms)
    assert b.metadata().state is COMPLETE_COMMIT
    assert {marker.coordinator_epoch for marker in b.markers.written} == {7}


def test_before_and_after_there_is_no_coordinator() -> None:
    b = TransactionBench(load=False)
    producer = ProducerIdAndEpoch(1, 0)
    assert b.init().error is Errors.NOT_COORDINATOR
    assert b.add(producer, A) is Errors.NOT_COORDINATOR
    assert b.coordinator.describe_transaction(ID).result(0) is Errors.NOT_COORDINATOR
    b.runtime.loader.holds = True
    b.elect(1)
    assert b.init().error is Errors.COORDINATOR_LOAD_IN_PROGRESS
    assert b.verify(producer, A) == [Errors.COORDINATOR_LOAD_IN_PROGRESS]
    assert b.coordinator.list_transactions().result(0).error is Errors.COORDINATOR_LOAD_IN_PROGRESS
    b.runtime.loader.release()
    begun = b.producer()
    b.add(begun, A)
    b.markers.holds = True
    b.end(begun)
    b.coordinator.on_resignation(0, 2)
    assert b.init().error is Errors.NOT_COORDINATOR
    assert b.channels.num_txns_with_pending_markers() == 0
    b.coordinator.shutdown()
    assert b.coordinator.describe_transaction(ID).result(0) is Errors.COORDINATOR_NOT_AVAILABLE
    assert b.coordinator.list_transactions().result(0).error is Errors.COORDINATOR_NOT_AVAILABLE


# -- lists


def listed(listing: TransactionListing) -> list[str]:
    assert listing.error is Errors.NONE
    return sorted(one.transactional_id for one in listing.transactions)


def test_transactions_are_listed() -> None:
    b = TransactionBench()
    producers = {name: b.producer(name) for name in ("one", "two", "three")}
    b.add(producers["one"], A, transactional_id="one")
    b.advance(5_000)
    b.add(producers["two"], A, transactional_id="two")
    ask = b.coordinator.list_transactions
    assert listed(ask().result(0)) == ["one", "three", "two"]
    assert listed(ask([producers["two"].producer_id]).result(0)) == ["two"]
    assert listed(ask((), ["Ongoing"]).result(0)) == ["one", "two"]
    assert listed(ask((), ["Ongoing"], 4_999).result(0)) == ["one"]
    assert listed(ask((), (), -1, "t.*").result(0)) == ["three", "two"]
    assert listed(ask((), (), -1, "t").result(0)) == [], "the whole id has to match"
    unknown = ask((), ["Ongoing", "Running"]).result(0)
    assert unknown.unknown_state_filters == ("Running",)
    assert listed(unknown) == ["one", "two"]
    assert listed(ask((), ["Running"]).result(0)) == []
    with pytest.raises(InvalidRegularExpressionError):
        ask((), (), -1, "(")


def test_a_pattern_is_matched_beside_the_loop_and_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    b = TransactionBench()
    b.producer("one")
    b.runtime.pool.holds = True
    listing = b.coordinator.list_transactions((), (), -1, "o.*")
    assert not listing.done()
    assert listed(b.coordinator.list_transactions().result(0)) == ["one"], "the loop is free"
    b.runtime.pool.release()
    assert listed(listing.result(0)) == ["one"]
    b.runtime.pool.holds = False
    monkeypatch.setattr(transaction_coordinator, "search_limit_ms", lambda _names: -1)
    too_slow = b.coordinator.list_transactions((), (), -1, "o.*").result(0)
    assert too_slow == TransactionListing(Errors.INVALID_REGULAR_EXPRESSION)


def test_a_pattern_after_the_end_of_the_pool_gets_a_response() -> None:
    b = TransactionBench()

    def shut_down(*_: object) -> None:
        raise RuntimeError("cannot schedule new futures after shutdown")

    b.runtime.pool.submit = shut_down  # type: ignore[method-assign, assignment]
    assert b.coordinator.list_transactions((), (), -1, "o.*").result(0).error is Errors.COORDINATOR_NOT_AVAILABLE


def test_an_id_has_its_place() -> None:
    b = TransactionBench()
    b.cache.partitions["__transaction_state"] = 50
    names = ("tx", "my-transactional-id", "orders-0", "polygenelubricants", "transaktion-äöü")
    assert [b.coordinator.partition_for(name) for name in names] == [16, 46, 48, 0, 5], "as Java counts"
    b.cache.partitions["__transaction_state"] = None
    assert b.coordinator.partition_for("tx") == 16, "the configuration says how many there will be"
    assert b.coordinator.topic == "__transaction_state"
    b.coordinator.on_partitions_deleted([TopicPartition("orders", 0)])
