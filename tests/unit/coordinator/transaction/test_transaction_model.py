"""Producers do what they like, time goes by, the coordinator is killed and comes back: nothing is ever lost or mixed.

The model knows of each transaction only what its producer has been told. Against that it holds the markers that
partitions have got, which is what readers see:

* a transaction that was told to be committed has commit markers, and no other;
* one that was told to be aborted, or of which the producer was fenced, has no commit markers;
* markers of a transaction all say the same;
* a transaction of which nothing was told may end either way, but it ends;
* epochs never go back, and no two producers are given the same identity;
* a transaction that was kept for another producer stays what it is, and ends as that one says.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule

from barnabas.common.errors import Errors, NotEnoughReplicasError
from barnabas.common.topic_partition import TopicPartition
from barnabas.coordinator.transaction.pending_complete_txn import TxnMarker
from barnabas.coordinator.transaction.transaction_metadata import NO_PRODUCER, ProducerIdAndEpoch
from barnabas.coordinator.transaction.transaction_state import TransactionState
from barnabas.coordinator.transaction.transaction_version import TransactionVersion
from barnabas.records.control import ControlRecordType
from transaction_fixtures import TIMEOUT_MS, A, B, C, TransactionBench

PARTITIONS = (A, B, C)
IDS = ("one", "two")


@dataclass
class Producer:
    """A producer, and what it believes."""

    transactional_id: str
    identity: ProducerIdAndEpoch
    version: TransactionVersion
    added: set[TopicPartition] = field(default_factory=set)
    fenced: bool = False
    """Another has its place, so that nothing it does may succeed."""
    retired: bool = False
    """It was told that it is fenced, or in a state that it cannot be in, and has given up."""
    kept: ProducerIdAndEpoch | None = None
    """The transaction that it was left by another, and that it can do nothing with but end it."""
    asked: bool | None = None
    """What it wants its transaction to end with, if it did not hear the response: then it asks again, and no more."""


class TransactionMachine(RuleBasedStateMachine):
    producers = Bundle("producers")

    def __init__(self) -> None:
        super().__init__()
        self.bench = TransactionBench()
        self.current: dict[str, Producer] = {}
        self.given: set[tuple[str, ProducerIdAndEpoch]] = set()
        self.markers: list[TxnMarker] = []
        self.told: dict[ProducerIdAndEpoch, bool] = {}
        """By the identity that the markers of a transaction bear: what its producer was told."""
        self.epochs: dict[int, int] = {}

    # -- producers

    @rule(target=producers, name=st.sampled_from(IDS), version=st.sampled_from(list(TransactionVersion)))
    def begin(self, name: str, version: TransactionVersion) -> Producer:
        result = self.bench.init(name)
        producer = Producer(name, result.producer, version)
        self._began(producer, result.error)
        return producer

    @rule(target=producers, name=st.sampled_from(IDS), version=st.sampled_from(list(TransactionVersion)))
    def take_over(self, name: str, version: TransactionVersion) -> Producer:
        """Keeps what the one before has left, if it has left anything."""
        result = self.bench.init(name, keep=True)
        producer = Producer(name, result.producer, version)
        before = self.current.get(name)
        if result.ongoing != NO_PRODUCER:
            producer.kept = result.ongoing
            assert before is not None
            assert result.ongoing == (before.kept or before.identity), "a transaction stays what it is"
            producer.added = set(before.added)
        self._began(producer, result.error)
        return producer

    def _began(self, producer: Producer, error: Errors) -> None:
        name = producer.transactional_id
        if error is Errors.NONE:
            assert (name, producer.identity) not in self.given, "an identity was given out twice"
            self.given.add((name, producer.identity))
            before = self.current.get(name)
            if before is not None:
                before.fenced = True
            self.current[name] = producer
        else:
            assert error in {Errors.CONCURRENT_TRANSACTIONS, Errors.COORDINATOR_NOT_AVAILABLE}
            producer.fenced = True  # it never was one

    @rule(producer=producers, partitions=st.sets(st.sampled_from(PARTITIONS), min_size=1))
    def add(self, producer: Producer, partitions: set[TopicPartition]) -> None:
        if producer.retired or producer.asked is not None:
            return  # or it is still trying to end its transaction
        error = self.bench.add(
            producer.identity, *partitions, version=producer.version, transactional_id=producer.transactional_id
        )
        if producer.fenced:
            assert error in {
                Errors.PRODUCER_FENCED,
                Errors.INVALID_PRODUCER_ID_MAPPING,
                Errors.COORDINATOR_NOT_AVAILABLE,
            }
        elif error is Errors.NONE:
            assert producer.kept is None
            producer.added |= partitions
        elif error is Errors.INVALID_TXN_STATE:
            assert producer.kept is not None
        elif error is Errors.PRODUCER_FENCED:
            producer.retired = True
        else:
            assert error in {Errors.CONCURRENT_TRANSACTIONS, Errors.COORDINATOR_NOT_AVAILABLE}

    @rule(producer=producers, commit=st.booleans(), lose_response=st.booleans())
    def end(self, producer: Producer, commit: bool, lose_response: bool) -> None:
        if producer.retired:
            return
        if producer.asked is not None:
            commit = producer.asked  # a client repeats its request, and does not change its mind
        identity = producer.identity
        answer = self.bench.end(
            identity, commit=commit, version=producer.version, transactional_id=producer.transactional_id
        )
        if producer.fenced:
            # To a client of version 2 that aborts, being fenced may look like its own abort, with the same epoch.
            assert answer.error is not Errors.NONE or (producer.version is TransactionVersion.TV_2 and not commit)
            return
        if lose_response:
            producer.asked = commit
            return
        if answer.error is Errors.NONE:
            bump = producer.version.supports_epoch_bump
            transaction = producer.kept or identity
            assert bump or producer.kept is None
            marked = ProducerIdAndEpoch(transaction.producer_id, transaction.epoch + 1) if bump else identity
            if bump and producer.added:
                self.told[marked] = commit
            if bump:
                producer.identity = answer.producer
                self.given.add((producer.transactional_id, answer.producer))
            producer.added.clear()
            producer.asked = producer.kept = None
        elif answer.error is Errors.PRODUCER_FENCED:
            producer.retired = True
        else:
            assert answer.error in {
                Errors.INVALID_TXN_STATE,
                Errors.CONCURRENT_TRANSACTIONS,
                Errors.COORDINATOR_NOT_AVAILABLE,
            }
            if answer.error is Errors.INVALID_TXN_STATE:
                # There was nothing to commit, or it was aborted for taking too long; or it was kept for a producer
                # that speaks the old protocol, and cannot be told what it goes on with.
                producer.retired = True

    # -- what happens to them

    @rule(milliseconds=st.sampled_from([1, 10_000, TIMEOUT_MS + 10_001]))
    def time_goes_by(self, milliseconds: int) -> None:
        self.bench.advance(milliseconds)

    @rule()
    def hold_markers(self) -> None:
        self.bench.markers.holds = True

    @precondition(lambda self: self.bench.markers.holds)
    @rule()
    def release_markers(self) -> None:
        self.bench.markers.release()

    @rule(fail=st.booleans())
    def disk(self, fail: bool) -> None:
        self.bench.writer.fails_with = NotEnoughReplicasError() if fail else None

    @rule()
    def kill_the_coordinator(self) -> None:
        self.bench.writer.fails_with = None
        self.markers += self.bench.markers.written
        self.bench = self.bench.after_crash()

    # -- what must hold

    @invariant()
    def markers_agree(self) -> None:
        seen: dict[ProducerIdAndEpoch, ControlRecordType] = {}
        for marker in self.markers + self.bench.markers.written:
            identity = ProducerIdAndEpoch(marker.producer_id, marker.producer_epoch)
            if marker.transaction_version >= TransactionVersion.TV_2:
                assert seen.setdefault(identity, marker.result) is marker.result
                if identity in self.told:
                    expected = ControlRecordType.COMMIT if self.told[identity] else ControlRecordType.ABORT
                    assert marker.result is expected

    @invariant()
    def epochs_do_not_go_back(self) -> None:
        for name in IDS:
            found = self.bench.coordinator.describe_transaction(name).result(0)
            if not isinstance(found, Errors):
                assert found.producer_epoch >= self.epochs.get(found.producer_id, -1)
                self.epochs[found.producer_id] = found.producer_epoch

    def teardown(self) -> None:
        """Whatever has happened, it comes to an end: nothing stays decided and untold."""
        self.bench.writer.fails_with = None
        bench = self.bench.after_crash()
        bench.advance(TIMEOUT_MS + 10_001)
        for metadata in bench.coordinator.list_transactions().result(0).transactions:
            assert metadata.state in {
                TransactionState.EMPTY,
                TransactionState.COMPLETE_COMMIT,
                TransactionState.COMPLETE_ABORT,
            }
        self.markers += self.bench.markers.written + bench.markers.written
        self.bench = bench
        self.markers_agree()
        super().teardown()


TransactionMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestTransactions = pytest.mark.mechanism("P14")(TransactionMachine.TestCase)
