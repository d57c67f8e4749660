"""Who the producer is, which sequence numbers its batches have, and how far its transaction has come."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from barnabas.clients.producer.errors import IllegalStateError, TransactionError
from barnabas.clients.producer.internals.produce_request_result import INVALID_OFFSET
from barnabas.clients.producer.internals.producer_batch import NO_PRODUCER, ProducerBatch, ProducerIdAndEpoch
from barnabas.clients.producer.internals.sequence_resolution import SequenceQuestion, Stage
from barnabas.clients.producer.internals.transaction_requests import (
    AddOffsetsToTxnHandler,
    AddPartitionsToTxnHandler,
    CoordinatorType,
    EndTxnHandler,
    FindCoordinatorHandler,
    InitProducerIdHandler,
    TxnOffsetCommitHandler,
    TxnRequestHandler,
)
from barnabas.clients.producer.internals.transaction_state import SOURCES, State
from barnabas.clients.producer.internals.transactional_request_result import TransactionalRequestResult
from barnabas.clients.producer.internals.txn_partition_map import (
    NO_LAST_ACKED_SEQUENCE_NUMBER,
    TxnPartitionEntry,
    TxnPartitionMap,
)
from barnabas.clients.producer.offsets import ConsumerGroupMetadata, OffsetAndMetadata
from barnabas.clients.producer.prepared_txn_state import PreparedTxnState
from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.errors import (
    BarnabasError,
    ClusterAuthorizationError,
    Errors,
    InvalidPidMappingError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    RetriableError,
    TransactionAbortableError,
    TransactionalIdAuthorizationError,
    UnknownProducerIdError,
    UnsupportedVersionError,
)
from barnabas.common.topic_partition import TopicPartition
from barnabas.network.node import Node
from barnabas.network.node_api_versions import ApiVersions
from barnabas.protocol.api_keys import ApiKey
from barnabas.records.batch import MAX_SEQUENCE, NO_PRODUCER_ID, NO_SEQUENCE, increment_sequence

log = logging.getLogger(__name__)

MAX_EPOCH = 2**15 - 1
_MAX_INT32 = 2**31 - 1


# Looked at in every turn: a member of an enumeration takes longer to find than all that is done with it.
_READY: Final = State.READY
_COMMITTING: Final = State.COMMITTING_TRANSACTION
_ABORTING: Final = State.ABORTING_TRANSACTION
_ABORTABLE_ERROR: Final = State.ABORTABLE_ERROR
_FATAL_ERROR: Final = State.FATAL_ERROR


class _PendingStateTransition(NamedTuple):
    """A step that a thread asked for, and has not seen the end of."""

    result: TransactionalRequestResult
    state: State
    operation: str


class TransactionManager:
    """The state of an idempotent producer, with or without transactions.

    **Idempotence.** The producer gets an id and an epoch from a broker. A batch gets both when it is drained, and the
    next sequence number of its partition; the sequence advances by the number of its records. The broker takes a batch
    only if it follows the last one, answers a repetition as if it were new, and refuses one that leaves a gap. So up to
    five batches can be in flight, and come out in order whatever happens to some of them.

    **Gaps.** A batch that has been sent, and is given up because its time is over, may have been written or not. Until
    the batches behind it are answered nobody knows which sequence is next: the partition's sequence is *unresolved*,
    and nothing new is drained for it. If the ones behind it succeed, it was written. If not, the epoch is raised, and
    counting starts at 0 again.

    **Transactions** are steps that the application asks for, each a request to the transaction coordinator, one at a
    time and in the order of their priority (`TxnRequestHandler`). An *abortable* error is cured by aborting the
    transaction; after a *fatal* one the producer is of no more use. With version 2 of the transaction protocol
    (KIP-890) partitions are added to the transaction by the brokers when data arrives, and each end of a transaction
    raises the epoch, so that nothing late can slip into the next one.

    **Prepared transactions** (KIP-939). If another system decides about a transaction, it is *prepared* first: from
    then on it can only be ended, and the broker does not abort it on its own. A producer that starts after a crash can
    ask for the transaction that was left instead of having it aborted, and finds itself in the same state.
    """

    def __init__(
        self,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60_000,
        retry_backoff_ms: int = 100,
        api_versions: ApiVersions | None = None,
        *,
        enable_two_phase_commit: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.transactional_id = transactional_id
        self.is_transactional = transactional_id is not None
        self.transaction_timeout_ms = transaction_timeout_ms
        self.enable_two_phase_commit = enable_two_phase_commit
        self.retry_backoff_ms = retry_backoff_ms
        self.clock = clock
        self._api_versions = ApiVersions() if api_versions is None else api_versions
        self.lock = threading.RLock()
        """Guards all that follows. Taken by any thread, also with a queue's lock held; inside it only the locks of
        request results are taken. Re-entrant, because a step can lead to another one."""
        self.state = State.UNINITIALIZED
        self.last_error: Exception | None = None
        self.failed = False
        """Whether it is in an error state: what `send` looks at for every record, without the lock."""
        self.producer_id_and_epoch: ProducerIdAndEpoch = NO_PRODUCER
        self.prepared_txn_state = PreparedTxnState()
        self._partitions = TxnPartitionMap()
        self._unresolved: dict[TopicPartition, int] = {}
        """Partitions whose sequence is unresolved, and what would be next if all was written."""
        self.sequence_questions: dict[TopicPartition, SequenceQuestion] = {}
        """Partitions whose leader is asked what it has got (`SequenceResolver`). Only the I/O thread has to do with
        it, and needs no lock for that."""
        self._to_rewrite: set[TopicPartition] = set()
        self._epoch_bump_required = False
        self._pending: list[tuple[int, int, TxnRequestHandler]] = []
        self._order = itertools.count()
        self._in_flight_correlation_id: int | None = None
        self._new_partitions: dict[TopicPartition, None] = {}
        self._pending_partitions: set[TopicPartition] = set()
        self.partitions_in_transaction: set[TopicPartition] = set()
        self.pending_offset_commits: dict[TopicPartition, OffsetAndMetadata] = {}
        self.transaction_started = False
        self._pending_transition: _PendingStateTransition | None = None
        self._coordinators: dict[CoordinatorType, Node | None] = {}
        self.coordinator_supports_bumping_epoch = False
        self.is_transaction_v2_enabled = False
        self._latest_features_epoch = -1

    # -- steps that the application asks for

    def initialize_transactions(self, *, keep_prepared_txn: bool = False) -> TransactionalRequestResult:
        with self.lock:
            self._maybe_fail_with_error()

            def begin() -> TransactionalRequestResult:
                self._transition_to(State.INITIALIZING)
                log.info("Asking for a producer id for the transactional id %s", self.transactional_id)
                return self._enqueue_init_producer_id(
                    NO_PRODUCER, is_epoch_bump=False, keep_prepared_txn=keep_prepared_txn
                )

            return self._cached(begin, State.INITIALIZING, "initTransactions")

    def begin_transaction(self) -> None:
        with self.lock:
            self._ensure_transactional()
            self._raise_if_pending("beginTransaction")
            self._maybe_fail_with_error()
            self._transition_to(State.IN_TRANSACTION)

    def prepare_transaction(self) -> PreparedTxnState:
        """All of it has been written: it waits to be ended, and for nothing else."""
        with self.lock:
            self._ensure_transactional()
            self._raise_if_pending("prepareTransaction")
            self._maybe_fail_with_error()
            if not self.enable_two_phase_commit:
                raise InvalidTxnStateError(
                    "Cannot prepare a transaction when 2PC is not enabled (transaction.two.phase.commit.enable)"
                )
            self._transition_to(State.PREPARED_TRANSACTION)
            self.prepared_txn_state = PreparedTxnState(*self.producer_id_and_epoch)
            return self.prepared_txn_state

    def begin_commit(self) -> TransactionalRequestResult:
        with self.lock:

            def begin() -> TransactionalRequestResult:
                self._maybe_fail_with_error()
                self._transition_to(State.COMMITTING_TRANSACTION)
                return self._begin_completing_transaction(committed=True)

            return self._cached(begin, State.COMMITTING_TRANSACTION, "commitTransaction")

    def begin_abort(self) -> TransactionalRequestResult:
        with self.lock:

            def begin() -> TransactionalRequestResult:
                if self.state is not State.ABORTABLE_ERROR:
                    self._maybe_fail_with_error()
                self._transition_to(State.ABORTING_TRANSACTION)
                # What was not added yet will not be written either.
                self._new_partitions.clear()
                return self._begin_completing_transaction(committed=False)

            return self._cached(begin, State.ABORTING_TRANSACTION, "abortTransaction")

    def _begin_completing_transaction(self, *, committed: bool) -> TransactionalRequestResult:
        if self._new_partitions:
            self._enqueue(self._add_partitions_handler())
        handler = EndTxnHandler(self, committed=committed, v2=self.is_transaction_v2_enabled)
        # The cluster may have moved to version 2 meanwhile. The next transaction then starts with a new epoch, and
        # that cannot come from this EndTxn, which is of version 1.
        self.maybe_update_transaction_v2_enabled(on_initialization=False)
        self._enqueue(handler)
        if self._epoch_bump_required:
            return self._enqueue_init_producer_id(self.producer_id_and_epoch, is_epoch_bump=True)
        return handler.result

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> TransactionalRequestResult:
        with self.lock:
            self._ensure_transactional()
            self._raise_if_pending("sendOffsetsToTransaction")
            self._maybe_fail_with_error()
            if self.state is not State.IN_TRANSACTION:
                raise IllegalStateError(f"Cannot send offsets if a transaction is not in progress ({self.state.name})")
            handler: TxnRequestHandler
            if self.is_transaction_v2_enabled:
                handler = self.txn_offset_commit_handler(None, offsets, group)
                self.transaction_started = True
            else:
                handler = AddOffsetsToTxnHandler(self, offsets, group)
            self._enqueue(handler)
            return handler.result

    def maybe_add_partition(self, partition: TopicPartition) -> None:
        """A record was appended to this partition: it has to be part of the transaction before it is sent."""
        with self.lock:
            self._maybe_fail_with_error()
            self._raise_if_pending("send")
            if not self.is_transactional:
                return
            if not self.has_producer_id:
                raise IllegalStateError(
                    f"Cannot add partition {partition} to transaction before completing a call to initTransactions"
                )
            if self.state is not State.IN_TRANSACTION:
                raise IllegalStateError(
                    f"Cannot add partition {partition} to transaction while in state {self.state.name}"
                )
            if self.is_transaction_v2_enabled:
                self._partitions.get_or_create(partition)
                self.partitions_in_transaction.add(partition)
                self.transaction_started = True
            elif partition not in self.partitions_in_transaction and not self._is_pending_add(partition):
                self._partitions.get_or_create(partition)
                self._new_partitions[partition] = None

    def ensure_in_transaction(self) -> None:
        """What `maybe_add_partition` would raise, asked before a record is appended."""
        with self.lock:
            self._maybe_fail_with_error()
            self._raise_if_pending("send")
            if self.is_transactional and self.state is not State.IN_TRANSACTION:
                raise IllegalStateError(
                    f"Cannot send while the producer is {self.state.value}: there is no transaction"
                )

    def _is_pending_add(self, partition: TopicPartition) -> bool:
        return partition in self._new_partitions or partition in self._pending_partitions

    def _cached(
        self, begin: Callable[[], TransactionalRequestResult], state: State, operation: str
    ) -> TransactionalRequestResult:
        """A step whose caller gave up waiting goes on, and is found again when the caller repeats it."""
        self._ensure_transactional()
        pending = self._pending_transition
        if pending is not None:
            if pending.result.is_acked:
                self._pending_transition = None
            elif pending.state is not state:
                raise IllegalStateError(
                    f"Cannot attempt operation `{operation}` because the previous call to `{pending.operation}` "
                    "timed out and must be retried"
                )
            else:
                return pending.result
        result = begin()
        self._pending_transition = _PendingStateTransition(result, state, operation)
        return result

    def _raise_if_pending(self, operation: str) -> None:
        pending = self._pending_transition
        if pending is None:
            return
        if pending.result.is_acked:
            self._pending_transition = None
            return
        raise IllegalStateError(
            f"Cannot attempt operation `{operation}` because the previous call to `{pending.operation}` timed out and "
            "must be retried"
        )

    def _ensure_transactional(self) -> None:
        if not self.is_transactional:
            raise IllegalStateError("Transactional method invoked on a non-transactional producer.")

    # -- states

    def _transition_to(self, target: State, error: Exception | None = None) -> None:
        if self.state not in SOURCES[target]:
            who = "" if self.transactional_id is None else f"TransactionalId {self.transactional_id}: "
            raise IllegalStateError(
                f"{who}Invalid transition attempted from state {self.state.name} to state {target.name}"
            )
        log.debug("From state %s to %s (%r)", self.state.name, target.name, error)
        self.last_error = error
        self.state = target
        self.failed = target in {State.ABORTABLE_ERROR, State.FATAL_ERROR}

    def transition_to_abortable_error(self, error: Exception) -> None:
        with self.lock:
            if self.state is State.ABORTING_TRANSACTION:
                log.debug("The transaction is being aborted already, after %r", error)
                return
            log.info("The transaction has to be aborted: %r", error)
            self._transition_to(State.ABORTABLE_ERROR, error)

    def transition_to_fatal_error(self, error: Exception) -> None:
        with self.lock:
            log.info("The producer cannot go on: %r", error)
            self._transition_to(State.FATAL_ERROR, error)
            if self._pending_transition is not None and not self._pending_transition.result.is_completed:
                self._pending_transition.result.fail(error)

    def transition_to_uninitialized(self, error: Exception) -> None:
        """After a missing right: the application may get it, and start over with the same producer."""
        with self.lock:
            self._transition_to(State.UNINITIALIZED)
            if self._pending_transition is not None and not self._pending_transition.result.is_completed:
                self._pending_transition.result.fail(error)

    def maybe_transition_to_error_state(self, error: Exception) -> None:
        """A record has failed for good."""
        with self.lock:
            if isinstance(
                error,
                ClusterAuthorizationError
                | TransactionalIdAuthorizationError
                | ProducerFencedError
                | UnsupportedVersionError
                | InvalidPidMappingError,
            ):
                self.transition_to_fatal_error(error)
            elif self.is_transactional:
                if isinstance(error, RetriableError | InvalidTxnStateError):
                    cause = error
                    error = TransactionAbortableError("Transaction Request was aborted after exhausting retries.")
                    error.__cause__ = cause
                if self.need_to_trigger_epoch_bump_from_client and not self.is_completing:
                    self._epoch_bump_required = True
                self.transition_to_abortable_error(error)

    def _maybe_fail_with_error(self) -> None:
        if not self.has_error:
            return
        error = self.last_error
        who = f"Producer with transactionalId '{self.transactional_id}' and {self.producer_id_and_epoch}"
        if isinstance(error, ProducerFencedError):
            raise ProducerFencedError(
                f"{who} has been fenced by another producer with the same transactionalId"
            ) from error
        if isinstance(error, InvalidProducerEpochError):
            raise InvalidProducerEpochError(f"{who} attempted to produce with an old epoch") from error
        if isinstance(error, IllegalStateError):
            raise IllegalStateError(
                f"{who} cannot execute transactional method because of previous invalid state transition attempt"
            ) from error
        raise TransactionError(
            f"Cannot execute transactional method because we are in an error state: {error}"
        ) from error

    @property
    def has_error(self) -> bool:
        return self.state is _ABORTABLE_ERROR or self.state is _FATAL_ERROR

    @property
    def has_fatal_error(self) -> bool:
        return self.state is _FATAL_ERROR

    @property
    def has_abortable_error(self) -> bool:
        return self.state is _ABORTABLE_ERROR

    @property
    def is_completing(self) -> bool:
        return self.state is _COMMITTING or self.state is _ABORTING

    @property
    def is_aborting(self) -> bool:
        return self.state is _ABORTING

    @property
    def has_ongoing_transaction(self) -> bool:
        """Whether there is something to be ended before the producer is closed. A prepared transaction is not: that is
        somebody else's decision."""
        return self.state is State.IN_TRANSACTION or self.is_completing or self.has_abortable_error

    @property
    def is_prepared(self) -> bool:
        return self.state is State.PREPARED_TRANSACTION

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id_and_epoch.is_valid

    @property
    def need_to_trigger_epoch_bump_from_client(self) -> bool:
        return self.coordinator_supports_bumping_epoch and not self.is_transaction_v2_enabled

    @property
    def can_handle_abortable_error(self) -> bool:
        return self.coordinator_supports_bumping_epoch or self.is_transaction_v2_enabled

    def require_epoch_bump(self) -> None:
        self._epoch_bump_required = True

    def maybe_update_transaction_v2_enabled(self, *, on_initialization: bool) -> None:
        """Looks up which version of transactions the cluster has agreed on (KIP-890)."""
        with self.lock:
            features = self._api_versions.finalized_features
            if self._latest_features_epoch >= features.epoch:
                return
            self._latest_features_epoch = features.epoch
            before = self.is_transaction_v2_enabled
            self.is_transaction_v2_enabled = features.levels.get("transaction.version", 0) >= 2
            if not on_initialization and not before and self.is_transaction_v2_enabled:
                self._epoch_bump_required = True

    @property
    def is_quiet(self) -> bool:
        """Whether a turn of the I/O thread has nothing to do about identity, sequences and steps: it has an identity,
        is in no transaction, and nobody waits for anything. True in nearly every turn of a producer that is idempotent
        and no more. Without a lock: what changes after it was asked is seen by the next turn, as with one."""
        return (
            self.state is _READY
            and self._in_flight_correlation_id is None
            and not (
                self._pending
                or self._new_partitions
                or self._unresolved
                or self.sequence_questions
                or self._epoch_bump_required
            )
            and self.producer_id_and_epoch.producer_id > NO_PRODUCER_ID
        )

    # -- identity and sequences

    def set_producer_id_and_epoch(self, identity: ProducerIdAndEpoch) -> None:
        log.info("ProducerId set to %d with epoch %d", identity.producer_id, identity.epoch)
        self.producer_id_and_epoch = identity

    def initialized(
        self, identity: ProducerIdAndEpoch, *, is_epoch_bump: bool, kept: PreparedTxnState | None = None
    ) -> None:
        """A broker has told who this producer is, and which transaction it was left."""
        self.set_producer_id_and_epoch(identity)
        if kept is not None and kept.has_transaction:
            log.info("A transaction was left, which is to be completed: %s", kept)
            self._transition_to(State.PREPARED_TRANSACTION)
            self.prepared_txn_state = kept
            self.transaction_started = True
        else:
            self._transition_to(State.READY)
        if is_epoch_bump:
            self.reset_sequence_numbers()
        elif self.is_transactional:
            self.maybe_update_transaction_v2_enabled(on_initialization=True)

    def reset_sequence_numbers(self) -> None:
        self._partitions.reset()
        self._unresolved.clear()

    def request_idempotent_epoch_bump_for_partition(self, partition: TopicPartition) -> None:
        with self.lock:
            self._epoch_bump_required = True
            self._to_rewrite.add(partition)

    def bump_idempotent_epoch_and_reset_id_if_needed(self) -> None:
        """What the I/O thread does first: the next epoch if there is a gap, an id if there is none."""
        with self.lock:
            if self.is_transactional:
                return
            if self._epoch_bump_required:
                self._bump_idempotent_epoch()
            if self.state is not State.INITIALIZING and not self.has_producer_id:
                self._transition_to(State.INITIALIZING)
                self._enqueue(InitProducerIdHandler(self, NO_PRODUCER, is_epoch_bump=False))

    def _bump_idempotent_epoch(self) -> None:
        identity = self.producer_id_and_epoch
        if identity.epoch == MAX_EPOCH:
            # Out of epochs. A new id has no history anywhere, so that every partition starts over.
            log.debug("The epochs of %s are used up", identity)
            self.set_producer_id_and_epoch(NO_PRODUCER)
            self._transition_to(State.UNINITIALIZED)
        else:
            self.set_producer_id_and_epoch(ProducerIdAndEpoch(identity.producer_id, identity.epoch + 1))
        for partition in self._to_rewrite:
            self._partitions.get_or_create(partition).start_sequences_at_beginning(self.producer_id_and_epoch)
            self._unresolved.pop(partition, None)
        self._to_rewrite.clear()
        self._epoch_bump_required = False

    def prepare_to_send(self, batch: ProducerBatch) -> bool:
        """Gives a batch its sequence, if it has none. False: it has to wait, because it could come before, or instead
        of, one that has to come first. With the lock of its queue held; closed for appends when it has a sequence."""
        partition = batch.topic_partition
        with self.lock:
            identity = self.producer_id_and_epoch
            if self.state is _FATAL_ERROR or identity.producer_id <= NO_PRODUCER_ID:
                return False
            if self.is_transactional and partition not in self.partitions_in_transaction:
                return False
            if self.sequence_questions:
                question = self.sequence_questions.get(partition)
                if question is not None and question.holds_back:
                    return False
            entry = self._partitions.get_or_create(partition)
            in_flight = entry.in_flight
            if batch.base_sequence != NO_SEQUENCE:
                # One that is sent again waits until it is the first of those in flight: so recovery goes one by one.
                return not in_flight or batch.base_sequence == in_flight[0].base_sequence
            # It is not known whether the batches before it were written: which sequence is next, then?
            if partition in self._unresolved:
                return False
            if in_flight:
                # A batch of the new epoch starts at 0 and must not overtake those that still have the old one.
                if entry.producer_id_and_epoch != identity or entry.is_window_full:
                    return False
                # A broker that knows nothing of a producer takes any sequence for its first. If the first batch is
                # refused, because the leader of a new partition is not ready, and the second is taken, the first can
                # never be written again. So the others follow when the first has been.
                if entry.last_acked_sequence == NO_LAST_ACKED_SEQUENCE_NUMBER:
                    return False
            elif entry.producer_id_and_epoch != identity:
                # A partition goes over to a new identity as soon as nothing with the old one is in flight.
                entry.start_sequences_at_beginning(identity)
            batch.builder.close_for_appends()
            batch.set_producer_state(identity, entry.next_sequence, self.is_transactional)
            entry.take_in(batch)
            return True

    def add_in_flight_batch(self, batch: ProducerBatch) -> None:
        if not batch.has_sequence:
            raise RuntimeError(f"{batch!r} has no sequence and cannot be tracked")
        with self.lock:
            self._partitions.get_or_create(batch.topic_partition).add_in_flight_batch(batch)

    def remove_in_flight_batch(self, batch: ProducerBatch) -> None:
        with self.lock:
            entry = self._partitions.get(batch.topic_partition)
            if entry is not None:
                entry.remove_in_flight_batch(batch)

    def window(self, partition: TopicPartition) -> tuple[list[ProducerBatch], int]:
        """The batches in flight in the order of their sequences, and the sequence that is next after them."""
        with self.lock:
            entry = self._partitions.get_or_create(partition)
            return list(entry.in_flight), entry.next_sequence

    def has_in_flight_batches(self, partition: TopicPartition) -> bool:
        with self.lock:
            return bool(self._partitions.get_or_create(partition).in_flight)

    def has_unresolved_sequence(self, partition: TopicPartition) -> bool:
        with self.lock:
            return partition in self._unresolved

    def last_acked_sequence(self, partition: TopicPartition) -> int:
        with self.lock:
            entry = self._partitions.get(partition)
            return NO_LAST_ACKED_SEQUENCE_NUMBER if entry is None else entry.last_acked_sequence

    def mark_sequence_unresolved(self, batch: ProducerBatch) -> None:
        """A batch that was sent is given up, and may have been written."""
        with self.lock:
            following = increment_sequence(batch.last_sequence, 1)
            partition = batch.topic_partition
            self._unresolved[partition] = max(self._unresolved.get(partition, following), following)
            log.debug("The sequence of %s is unresolved; %d is next if all was written", partition, following)

    def maybe_resolve_sequences(self) -> None:
        """Looks whether it is known by now which sequence is next."""
        if not self._unresolved:
            return
        with self.lock:
            for partition in list(self._unresolved):
                entry = self._partitions.get_or_create(partition)
                if entry.in_flight:
                    continue
                if not entry.is_next_sequence(entry.next_sequence):
                    self._give_up_sequences(entry)
                self._unresolved.pop(partition, None)

    def _give_up_sequences(self, entry: TxnPartitionEntry) -> None:
        if not self.is_transactional:
            log.info(
                "%s: sequence %d was confirmed last and %d would be next; raising the epoch to start over",
                entry.topic_partition,
                entry.last_acked_sequence,
                entry.next_sequence,
            )
            self.request_idempotent_epoch_bump_for_partition(entry.topic_partition)
            return
        message = (
            "The client hasn't received acknowledgment for some previously sent messages and can no longer retry them. "
        )
        if self.can_handle_abortable_error:
            if self.need_to_trigger_epoch_bump_from_client and not self.is_completing:
                self._epoch_bump_required = True
            self.transition_to_abortable_error(
                TransactionError(message + "It is safe to abort the transaction and continue.")
            )
        else:
            self.transition_to_fatal_error(TransactionError(message + "It isn't safe to continue."))

    # -- what became of batches

    def handle_completed_batch(self, batch: ProducerBatch, base_offset: int) -> None:
        with self.lock:
            entry = self._partitions.get(batch.topic_partition)
            if entry is None:
                return
            count = batch.builder.record_count
            if (batch.producer_id, batch.producer_epoch) == entry.producer_id_and_epoch:
                # An answer for an earlier identity says nothing about the sequences of this one.
                entry.maybe_update_last_acked_sequence((batch.base_sequence + count - 1) & MAX_SEQUENCE)
            if base_offset != INVALID_OFFSET and entry.last_acked_offset < base_offset + count - 1:
                entry.last_acked_offset = base_offset + count - 1
            entry.remove_in_flight_batch(batch)

    def handle_failed_batch(self, batch: ProducerBatch, error: Exception, adjust_sequence_numbers: bool) -> None:
        with self.lock:
            self.maybe_transition_to_error_state(error)
            self.remove_in_flight_batch(batch)
            if self.has_fatal_error:
                return
            if isinstance(error, OutOfOrderSequenceError) and not self.is_transactional:
                log.error("The broker has answered %r for a batch of %s", error, batch.topic_partition)
                self.request_idempotent_epoch_bump_for_partition(batch.topic_partition)
            elif isinstance(error, UnknownProducerIdError):
                self._partitions.remove(batch.topic_partition)
                self._unresolved.pop(batch.topic_partition, None)
            elif adjust_sequence_numbers and batch.has_sequence:
                if not self.is_transactional:
                    self.request_idempotent_epoch_bump_for_partition(batch.topic_partition)
                else:
                    entry = self._partitions.get(batch.topic_partition)
                    if entry is not None:
                        entry.adjust_sequences_due_to_failed_batch(batch.base_sequence, batch.record_count)

    def can_retry(self, error: Errors, log_start_offset: int, batch: ProducerBatch) -> bool:
        """Whether to send a batch again after this error."""
        with self.lock:
            partition = batch.topic_partition
            entry = self._partitions.get_or_create(partition)
            if error is Errors.UNKNOWN_PRODUCER_ID:
                if log_start_offset == -1 or batch.sequence_has_been_reset:
                    return True  # the first: the broker cannot tell whether data was lost
                if entry.last_acked_offset < log_start_offset:
                    # All that was written has been deleted since, and the producer was forgotten with it.
                    if self.is_transactional:
                        entry.start_sequences_at_beginning(self.producer_id_and_epoch)
                    else:
                        self.request_idempotent_epoch_bump_for_partition(partition)
                    return True
                if not self.is_transactional:
                    self.request_idempotent_epoch_bump_for_partition(partition)
                    return True
            elif error is Errors.OUT_OF_ORDER_SEQUENCE_NUMBER:
                unresolved = self._unresolved.get(partition)
                if unresolved is None and (
                    batch.sequence_has_been_reset or not entry.is_next_sequence(batch.base_sequence)
                ):
                    return True  # one before it has failed, and will be sent again first
                if not self.is_transactional:
                    if unresolved is None or unresolved == batch.base_sequence:
                        self._ask_or_raise_epoch(batch)
                    return True
            return error.retriable

    def is_confirmed_by_a_later_one(self, batch: ProducerBatch) -> bool:
        """Whether a batch of which nobody knows what became must have been written, as one behind it was."""
        with self.lock:
            entry = self._partitions.get(batch.topic_partition)
            return (
                entry is not None
                and not self.is_transactional
                and batch.may_be_written
                and (batch.producer_id, batch.producer_epoch) == entry.producer_id_and_epoch
                and entry.has_been_passed(batch.last_sequence)
            )

    def _ask_or_raise_epoch(self, batch: ProducerBatch) -> None:
        """A batch was refused as out of order when its turn had come. Either there is a gap before it, or it is in the
        log and the broker has forgotten it."""
        question = self.sequence_questions.get(batch.topic_partition)
        if question is not None and question.batch is batch and not question.is_over:
            question.stage = Stage.ASK
        elif batch.may_be_written:
            self.sequence_questions[batch.topic_partition] = SequenceQuestion(batch)
        else:
            self.request_idempotent_epoch_bump_for_partition(batch.topic_partition)

    # -- requests

    def _enqueue(self, handler: TxnRequestHandler) -> None:
        heapq.heappush(self._pending, (handler.priority, next(self._order), handler))

    def enqueue(self, handler: TxnRequestHandler) -> None:
        with self.lock:
            self._enqueue(handler)

    def retry(self, handler: TxnRequestHandler) -> None:
        """Puts a request back, to be sent again after a pause."""
        with self.lock:
            handler.not_before_ms = self.clock.hi_res_milliseconds() + handler.retry_backoff_ms
            self._enqueue(handler)

    def _enqueue_init_producer_id(
        self, identity: ProducerIdAndEpoch, *, is_epoch_bump: bool, keep_prepared_txn: bool = False
    ) -> TransactionalRequestResult:
        handler = InitProducerIdHandler(
            self, identity, is_epoch_bump=is_epoch_bump, keep_prepared_txn=keep_prepared_txn
        )
        self._enqueue(handler)
        return handler.result

    def _add_partitions_handler(self) -> AddPartitionsToTxnHandler:
        self._pending_partitions.update(self._new_partitions)
        self._new_partitions.clear()
        return AddPartitionsToTxnHandler(self, sorted(self._pending_partitions))

    def txn_offset_commit_handler(
        self,
        result: TransactionalRequestResult | None,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
    ) -> TxnOffsetCommitHandler:
        self.pending_offset_commits.update(offsets)
        return TxnOffsetCommitHandler(self, result, group, v2=self.is_transaction_v2_enabled)

    def partitions_added(self, partitions: set[TopicPartition], *, successful: bool) -> None:
        self._pending_partitions -= partitions
        if successful:
            self.partitions_in_transaction |= partitions
            self.transaction_started = True

    def next_request(self, *, has_incomplete_batches: bool, now: int) -> TxnRequestHandler | int:
        """The request to be sent next; or for how long there is none to be sent."""
        with self.lock:
            if self._new_partitions:
                self._enqueue(self._add_partitions_handler())
            while self._pending:
                handler = self._pending[0][2]
                # A transaction ends when all of its data is written.
                if handler.is_end_txn and has_incomplete_batches:
                    break
                if handler.not_before_ms > now and not self.has_fatal_error:
                    return handler.not_before_ms - now
                heapq.heappop(self._pending)
                if self._terminated_with_error(handler):
                    continue
                if handler.is_end_txn and not self.transaction_started:
                    # Nothing was ever added to it, so that the coordinator does not know of it.
                    self.reset_transaction_state()
                    handler.result.done()
                    continue
                return handler
            return _MAX_INT32

    def _terminated_with_error(self, handler: TxnRequestHandler) -> bool:
        if not self.has_error or (self.has_abortable_error and isinstance(handler, FindCoordinatorHandler)):
            return False
        assert self.last_error is not None
        handler.result.fail(self.last_error)
        return True

    def reset_transaction_state(self) -> None:
        """The transaction is over."""
        self._transition_to(State.INITIALIZING if self._epoch_bump_required else State.READY)
        self._epoch_bump_required = False
        self.transaction_started = False
        self.prepared_txn_state = PreparedTxnState()
        self._new_partitions.clear()
        self._pending_partitions.clear()
        self.partitions_in_transaction.clear()

    @property
    def has_pending_requests(self) -> bool:
        with self.lock:
            return bool(self._pending)

    @property
    def has_in_flight_request(self) -> bool:
        return self._in_flight_correlation_id is not None

    def set_in_flight_correlation_id(self, correlation_id: int | None) -> None:
        self._in_flight_correlation_id = correlation_id

    def is_in_flight(self, correlation_id: int) -> bool:
        return self._in_flight_correlation_id == correlation_id

    # -- coordinators

    def coordinator(self, kind: CoordinatorType) -> Node | None:
        return self._coordinators.get(kind)

    def set_coordinator(self, kind: CoordinatorType, node: Node) -> None:
        log.info("Discovered %s coordinator %s", kind.name.lower(), node)
        self._coordinators[kind] = node

    def lookup_coordinator(self, kind: CoordinatorType, key: str) -> None:
        """Forgets a coordinator, and asks who it is."""
        with self.lock:
            self._coordinators[kind] = None
            self._enqueue(FindCoordinatorHandler(self, kind, key))

    def handle_coordinator_ready(self) -> None:
        node = self._coordinators.get(CoordinatorType.TRANSACTION)
        versions = None if node is None else self._api_versions.get(node.id_string)
        spoken = None if versions is None else versions.supported.get(ApiKey.INIT_PRODUCER_ID)
        self.coordinator_supports_bumping_epoch = spoken is not None and spoken.highest >= 3

    # -- the end

    def authentication_failed(self, error: Exception) -> None:
        with self.lock:
            for _, _, handler in self._pending:
                handler.fatal_error(error)

    def fail_pending_requests(self, error: Exception) -> None:
        with self.lock:
            for _, _, handler in self._pending:
                handler.abortable_error(error)
            self._pending.clear()

    def close(self) -> None:
        """The producer is closed by force: whoever waits is told."""
        with self.lock:
            error = BarnabasError("The producer closed forcefully")
            for _, _, handler in self._pending:
                handler.fatal_error(error)
            self._pending.clear()
            pending = self._pending_transition
            if pending is not None and not pending.result.is_completed:
                pending.result.fail(error)

    def __repr__(self) -> str:
        return f"TransactionManager({self.transactional_id}, {self.state.name}, {self.producer_id_and_epoch})"
