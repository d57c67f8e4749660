"""The producer's identity, sequence numbers and transaction."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Final

from barnabas.clients.producer.errors import IllegalStateError, TransactionError
from barnabas.clients.producer.internals.open_transaction import OpenTransaction
from barnabas.clients.producer.internals.pending_operation import PendingOperation
from barnabas.clients.producer.internals.producer_batch import NO_PRODUCER, ProducerBatch, ProducerIdAndEpoch
from barnabas.clients.producer.internals.sequence_resolution import SequenceQuestion, Stage
from barnabas.clients.producer.internals.transaction_coordinators import CoordinatorType, TransactionCoordinators
from barnabas.clients.producer.internals.transaction_requests import (
    AddOffsetsToTxnHandler,
    AddPartitionsToTxnHandler,
    EndTxnHandler,
    FindCoordinatorHandler,
    InitProducerIdHandler,
    TxnOffsetCommitHandler,
    TxnRequestHandler,
)
from barnabas.clients.producer.internals.transaction_state import State, TransactionStateMachine
from barnabas.clients.producer.internals.transactional_request_result import TransactionalRequestResult
from barnabas.clients.producer.internals.txn_partition_map import (
    TxnPartitionEntry,
    TxnPartitionMap,
)
from barnabas.clients.producer.internals.txn_request_queue import TxnRequestQueue
from barnabas.clients.producer.offsets import ConsumerGroupMetadata, OffsetAndMetadata
from barnabas.clients.producer.prepared_txn_state import PreparedTxnState
from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.errors import (
    BarnabasError,
    ClusterAuthorizationError,
    Errors,
    InvalidPidMappingError,
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
from barnabas.network.client.node_api_versions import ApiVersions
from barnabas.records.batch import NO_PRODUCER_ID

log = logging.getLogger(__name__)

MAX_EPOCH = 2**15 - 1
_MAX_INT32 = 2**31 - 1
_READY: Final = State.READY


class TransactionManager:
    """The state of an idempotent producer, with or without transactions.

    **Idempotence.** The producer gets an id and an epoch from a broker. A drained batch gets both, and the next
    sequence number of its partition; the sequence advances by the number of its records. The broker accepts a batch
    only if it follows the last one, acknowledges a duplicate as if it were new, and rejects a gap. So up to five
    batches can be in flight, and are written in order even if some of them fail.

    **Gaps.** A batch that was sent and has expired may have been written or not. Until the batches behind it have a
    response, the next sequence is unknown: the partition's sequence is *unresolved*, and nothing new is drained for it.
    If the batches behind it succeed, it was written. If not, the epoch is bumped, and sequences start at 0 again.

    **Transactions** are steps that the application requests, each a request to the transaction coordinator, one at a
    time and in the order of their priority (`TxnRequestHandler`). After an *abortable* error the transaction must be
    aborted; after a *fatal* one the producer is unusable. With transaction version 2 (KIP-890) the brokers add
    partitions to the transaction when data arrives, and each end of a transaction bumps the epoch, so that no late
    record can enter the next one.

    **Prepared transactions** (KIP-939). If another system decides about a transaction, it is *prepared* first: from
    then on it can only be ended, and the broker does not abort it on its own. A producer that starts after a crash can
    request the open transaction instead of having it aborted, and is then in the same state.

    **Collaborators** own the state, and the manager decides the next steps:

    ================  =================================================================================
    ``machine``       the state and its legal transitions (`TransactionStateMachine`)
    ``partitions``    sequences and in-flight batches by partition (`TxnPartitionMap`)
    ``transaction``   partitions and offsets of the current transaction (`OpenTransaction`)
    ``requests``      requests that wait to be sent, and the one in flight (`TxnRequestQueue`)
    ``coordinators``  the coordinators and what they support (`TransactionCoordinators`)
    ``_operation``    the operation that an application waits for (`PendingOperation`)
    ================  =================================================================================
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
        self.lock = threading.RLock()
        """Guards all that follows. Any thread takes it, also with a queue's lock held; inside it only the locks of
        request results are taken. Re-entrant, because a step can lead to another one."""
        self.machine = TransactionStateMachine(transactional_id)
        self.producer_id_and_epoch: ProducerIdAndEpoch = NO_PRODUCER
        self.partitions = TxnPartitionMap(self.lock)
        self.transaction = OpenTransaction()
        self.requests = TxnRequestQueue(self.lock, clock)
        self.coordinators = TransactionCoordinators(ApiVersions() if api_versions is None else api_versions)
        self._operation = PendingOperation()
        self._epoch_bump_required = False
        self._to_rewrite: set[TopicPartition] = set()
        """Partitions whose sequences restart at 0 when the epoch is bumped."""
        self._init_not_before_ms = 0
        """When an idempotent producer may request its identity again, after this was not authorized."""

    # -- transactional operations

    def initialize_transactions(self, *, keep_prepared_txn: bool = False) -> TransactionalRequestResult:
        with self.lock:
            self.machine.raise_error(self.producer_id_and_epoch)

            def begin() -> TransactionalRequestResult:
                self.machine.transition_to(State.INITIALIZING)
                log.info("Asking for a producer id for the transactional id %s", self.transactional_id)
                return self._enqueue_init_producer_id(
                    NO_PRODUCER, is_epoch_bump=False, keep_prepared_txn=keep_prepared_txn
                )

            return self._run(begin, State.INITIALIZING, "initTransactions")

    def begin_transaction(self) -> None:
        with self.lock:
            self._ensure_transactional()
            self._operation.raise_if_pending("beginTransaction")
            self.machine.raise_error(self.producer_id_and_epoch)
            self.machine.transition_to(State.IN_TRANSACTION)

    def prepare_transaction(self) -> PreparedTxnState:
        """Marks the transaction as prepared, after all of its data was written. It can only be ended now."""
        with self.lock:
            self._ensure_transactional()
            self._operation.raise_if_pending("prepareTransaction")
            self.machine.raise_error(self.producer_id_and_epoch)
            if not self.enable_two_phase_commit:
                raise InvalidTxnStateError(
                    "Cannot prepare a transaction when 2PC is not enabled (transaction.two.phase.commit.enable)"
                )
            self.machine.transition_to(State.PREPARED_TRANSACTION)
            self.transaction.prepared = PreparedTxnState(*self.producer_id_and_epoch)
            return self.transaction.prepared

    def begin_commit(self) -> TransactionalRequestResult:
        with self.lock:

            def begin() -> TransactionalRequestResult:
                self.machine.raise_error(self.producer_id_and_epoch)
                self.machine.transition_to(State.COMMITTING_TRANSACTION)
                return self._begin_completing_transaction(committed=True)

            return self._run(begin, State.COMMITTING_TRANSACTION, "commitTransaction")

    def begin_abort(self) -> TransactionalRequestResult:
        with self.lock:

            def begin() -> TransactionalRequestResult:
                if self.machine.state is not State.ABORTABLE_ERROR:
                    self.machine.raise_error(self.producer_id_and_epoch)
                self.machine.transition_to(State.ABORTING_TRANSACTION)
                # Partitions that were not added yet will not be written either.
                self.transaction.new_partitions.clear()
                return self._begin_completing_transaction(committed=False)

            return self._run(begin, State.ABORTING_TRANSACTION, "abortTransaction")

    def _begin_completing_transaction(self, *, committed: bool) -> TransactionalRequestResult:
        if self.transaction.new_partitions:
            self.requests.push(self._add_partitions_handler())
        handler = EndTxnHandler(self, committed=committed, v2=self.coordinators.is_transaction_v2_enabled)
        # The cluster may have moved to version 2 meanwhile. The next transaction then starts with a new epoch, which
        # this EndTxn of version 1 cannot return.
        if self.coordinators.update_transaction_version():
            self._epoch_bump_required = True
        self.requests.push(handler)
        if self._epoch_bump_required:
            return self._enqueue_init_producer_id(self.producer_id_and_epoch, is_epoch_bump=True)
        return handler.result

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> TransactionalRequestResult:
        with self.lock:
            self._ensure_transactional()
            self._operation.raise_if_pending("sendOffsetsToTransaction")
            self.machine.raise_error(self.producer_id_and_epoch)
            if self.machine.state is not State.IN_TRANSACTION:
                raise IllegalStateError(
                    f"Cannot send offsets if a transaction is not in progress ({self.machine.state.name})"
                )
            handler: TxnRequestHandler
            if self.coordinators.is_transaction_v2_enabled:
                handler = self.txn_offset_commit_handler(None, offsets, group)
                self.transaction.started = True
            else:
                handler = AddOffsetsToTxnHandler(self, offsets, group)
            self.requests.push(handler)
            return handler.result

    def maybe_add_partition(self, partition: TopicPartition) -> None:
        """Adds the partition of an appended record to the transaction, which must happen before the record is sent."""
        with self.lock:
            self.machine.raise_error(self.producer_id_and_epoch)
            self._operation.raise_if_pending("send")
            if not self.is_transactional:
                return
            if not self.producer_id_and_epoch.is_valid:
                raise IllegalStateError(
                    f"Cannot add partition {partition} to transaction before completing a call to initTransactions"
                )
            if self.machine.state is not State.IN_TRANSACTION:
                raise IllegalStateError(
                    f"Cannot add partition {partition} to transaction while in state {self.machine.state.name}"
                )
            if self.transaction.add(partition, v2=self.coordinators.is_transaction_v2_enabled):
                self.partitions.get_or_create(partition)

    def ensure_in_transaction(self) -> None:
        """Raises what `maybe_add_partition` would, before a record is appended."""
        with self.lock:
            self.machine.raise_error(self.producer_id_and_epoch)
            self._operation.raise_if_pending("send")
            if self.is_transactional and self.machine.state is not State.IN_TRANSACTION:
                raise IllegalStateError(
                    f"Cannot send while the producer is {self.machine.state.value}: there is no transaction"
                )

    def _run(
        self, begin: Callable[[], TransactionalRequestResult], state: State, operation: str
    ) -> TransactionalRequestResult:
        self._ensure_transactional()
        return self._operation.run(begin, state, operation)

    def _ensure_transactional(self) -> None:
        if not self.is_transactional:
            raise IllegalStateError("Transactional method invoked on a non-transactional producer.")

    # -- states

    def transition_to_abortable_error(self, error: Exception) -> None:
        with self.lock:
            if self.machine.state is State.ABORTING_TRANSACTION:
                log.debug("The transaction is being aborted already, after %r", error)
                return
            log.info("The transaction has to be aborted: %r", error)
            self.machine.transition_to(State.ABORTABLE_ERROR, error)

    def transition_to_fatal_error(self, error: Exception) -> None:
        with self.lock:
            log.info("The producer cannot go on: %r", error)
            self.machine.transition_to(State.FATAL_ERROR, error)
            self._operation.fail(error)

    def transition_to_uninitialized(self, error: Exception) -> None:
        """Starts over after an authorization error: the application may get the permission and reuse this producer."""
        with self.lock:
            self.machine.transition_to(State.UNINITIALIZED)
            self._init_not_before_ms = self.clock.hi_res_milliseconds() + self.retry_backoff_ms
            self._operation.fail(error)

    def maybe_transition_to_error_state(self, error: Exception) -> None:
        """Enters an error state after a record has failed for good."""
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
                if self.coordinators.need_to_trigger_epoch_bump_from_client and not self.machine.is_completing:
                    self._epoch_bump_required = True
                self.transition_to_abortable_error(error)

    def require_epoch_bump(self) -> None:
        self._epoch_bump_required = True

    @property
    def is_quiet(self) -> bool:
        """Whether the I/O thread has no work for identity, sequences and transactions: it has an identity, is in no
        transaction, and no operation is pending. True in nearly every iteration of a producer that is only idempotent.
        Needs no lock: the next iteration sees a later change, as it would with one."""
        return (
            self.machine.state is _READY
            and self.requests.in_flight_correlation_id is None
            and not (self.requests or self.transaction.new_partitions or self._epoch_bump_required)
            and self.partitions.are_resolved
            and self.producer_id_and_epoch.producer_id > NO_PRODUCER_ID
        )

    # -- identity and sequences

    def set_producer_id_and_epoch(self, identity: ProducerIdAndEpoch) -> None:
        log.info("ProducerId set to %d with epoch %d", identity.producer_id, identity.epoch)
        self.producer_id_and_epoch = identity

    def initialized(
        self, identity: ProducerIdAndEpoch, *, is_epoch_bump: bool, kept: PreparedTxnState | None = None
    ) -> None:
        """Takes over the identity from a broker, and the transaction that was left open."""
        self.set_producer_id_and_epoch(identity)
        if kept is not None and kept.has_transaction:
            log.info("A transaction was left, which is to be completed: %s", kept)
            self.machine.transition_to(State.PREPARED_TRANSACTION)
            self.transaction.prepared = kept
            self.transaction.started = True
        else:
            self.machine.transition_to(State.READY)
        if is_epoch_bump:
            self.partitions.reset()
        elif self.is_transactional:
            self.coordinators.update_transaction_version()

    def request_idempotent_epoch_bump_for_partition(self, partition: TopicPartition) -> None:
        with self.lock:
            self._epoch_bump_required = True
            self._to_rewrite.add(partition)

    def bump_idempotent_epoch_and_reset_id_if_needed(self) -> None:
        """Runs first in each iteration: bumps the epoch if there is a gap, requests an id if there is none."""
        with self.lock:
            if self.is_transactional:
                return
            if self._epoch_bump_required:
                self._bump_idempotent_epoch()
            if self.machine.state is not State.INITIALIZING and not self.producer_id_and_epoch.is_valid:
                self.machine.transition_to(State.INITIALIZING)
                handler = InitProducerIdHandler(self, NO_PRODUCER, is_epoch_bump=False)
                handler.not_before_ms = self._init_not_before_ms
                self.requests.push(handler)

    def _bump_idempotent_epoch(self) -> None:
        identity = self.producer_id_and_epoch
        if identity.epoch == MAX_EPOCH:
            # Epochs are exhausted. A new id has no history, so every partition starts over.
            log.debug("The epochs of %s are used up", identity)
            self.set_producer_id_and_epoch(NO_PRODUCER)
            self.machine.transition_to(State.UNINITIALIZED)
        else:
            self.set_producer_id_and_epoch(ProducerIdAndEpoch(identity.producer_id, identity.epoch + 1))
        for partition in self._to_rewrite:
            self.partitions.start_over(partition, self.producer_id_and_epoch)
        self._to_rewrite.clear()
        self._epoch_bump_required = False

    def prepare_to_send(self, batch: ProducerBatch) -> bool:
        """Assigns a sequence to a batch that has none. The lock of its queue must be held.

        Returns false if it must wait for the producer's identity, for its partition to be added to the transaction, or
        for batches before it."""
        with self.lock:
            identity = self.producer_id_and_epoch
            if self.machine.has_fatal_error or identity.producer_id <= NO_PRODUCER_ID:
                return False
            if self.is_transactional and batch.topic_partition not in self.transaction.partitions:
                return False
            return self.partitions.assign_sequence(batch, identity, self.is_transactional)

    def maybe_resolve_sequences(self) -> None:
        """Checks whether the next sequences are known by now."""
        if not self.partitions.are_resolved:
            with self.lock:
                for entry in self.partitions.resolve_sequences():
                    self._give_up_sequences(entry)

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
        if self.coordinators.can_handle_abortable_error:
            if self.coordinators.need_to_trigger_epoch_bump_from_client and not self.machine.is_completing:
                self._epoch_bump_required = True
            self.transition_to_abortable_error(
                TransactionError(message + "It is safe to abort the transaction and continue.")
            )
        else:
            self.transition_to_fatal_error(TransactionError(message + "It isn't safe to continue."))

    # -- outcome of batches

    def handle_failed_batch(self, batch: ProducerBatch, error: Exception, adjust_sequence_numbers: bool) -> None:
        with self.lock:
            self.maybe_transition_to_error_state(error)
            self.partitions.remove_in_flight_batch(batch)
            if self.machine.has_fatal_error:
                return
            if isinstance(error, OutOfOrderSequenceError) and not self.is_transactional:
                log.error("The broker has responded with %r for a batch of %s", error, batch.topic_partition)
                self.request_idempotent_epoch_bump_for_partition(batch.topic_partition)
            elif isinstance(error, UnknownProducerIdError):
                self.partitions.remove(batch.topic_partition)
            elif adjust_sequence_numbers and batch.has_sequence:
                if not self.is_transactional:
                    self.request_idempotent_epoch_bump_for_partition(batch.topic_partition)
                else:
                    entry = self.partitions.get(batch.topic_partition)
                    if entry is not None:
                        entry.adjust_sequences_due_to_failed_batch(batch.base_sequence, batch.record_count)

    def can_retry(self, error: Errors, log_start_offset: int, batch: ProducerBatch) -> bool:
        """Whether to retry a batch after this error."""
        with self.lock:
            partition = batch.topic_partition
            entry = self.partitions.get_or_create(partition)
            if error is Errors.UNKNOWN_PRODUCER_ID:
                if log_start_offset == -1 or batch.sequence_has_been_reset:
                    return True  # the first: the broker cannot tell whether data was lost
                if entry.last_acked_offset < log_start_offset:
                    # All its records have been deleted since, and the producer state with them.
                    if self.is_transactional:
                        entry.start_sequences_at_beginning(self.producer_id_and_epoch)
                    else:
                        self.request_idempotent_epoch_bump_for_partition(partition)
                    return True
                if not self.is_transactional:
                    self.request_idempotent_epoch_bump_for_partition(partition)
                    return True
            elif error is Errors.OUT_OF_ORDER_SEQUENCE_NUMBER:
                unresolved = self.partitions.unresolved_sequence(partition)
                if unresolved is None and (
                    batch.sequence_has_been_reset or not entry.is_next_sequence(batch.base_sequence)
                ):
                    return True  # an earlier batch has failed, and is retried first
                if not self.is_transactional:
                    if unresolved is None or unresolved == batch.base_sequence:
                        self._ask_or_raise_epoch(batch)
                    return True
            return error.retriable

    def _ask_or_raise_epoch(self, batch: ProducerBatch) -> None:
        """Handles a batch that was rejected as out of order in its turn.

        Either there is a gap before it, or it is in the log and the broker has forgotten it."""
        question = self.partitions.sequence_questions.get(batch.topic_partition)
        if question is not None and question.batch is batch and not question.is_over:
            question.stage = Stage.ASK
        elif batch.may_be_written:
            self.partitions.sequence_questions[batch.topic_partition] = SequenceQuestion(batch)
        else:
            self.request_idempotent_epoch_bump_for_partition(batch.topic_partition)

    # -- requests

    def _enqueue_init_producer_id(
        self, identity: ProducerIdAndEpoch, *, is_epoch_bump: bool, keep_prepared_txn: bool = False
    ) -> TransactionalRequestResult:
        handler = InitProducerIdHandler(
            self, identity, is_epoch_bump=is_epoch_bump, keep_prepared_txn=keep_prepared_txn
        )
        self.requests.push(handler)
        return handler.result

    def _add_partitions_handler(self) -> AddPartitionsToTxnHandler:
        return AddPartitionsToTxnHandler(self, self.transaction.take_new())

    def txn_offset_commit_handler(
        self,
        result: TransactionalRequestResult | None,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
    ) -> TxnOffsetCommitHandler:
        self.transaction.pending_offset_commits.update(offsets)
        return TxnOffsetCommitHandler(self, result, group, v2=self.coordinators.is_transaction_v2_enabled)

    def next_request(self, *, has_incomplete_batches: bool, now: int) -> TxnRequestHandler | int:
        """Returns the next request to send, or how long there is none."""
        with self.lock:
            if self.transaction.new_partitions:
                self.requests.push(self._add_partitions_handler())
            while (handler := self.requests.first()) is not None:
                # A transaction ends only after all of its data is written.
                if handler.is_end_txn and has_incomplete_batches:
                    break
                if handler.not_before_ms > now and not self.machine.has_fatal_error:
                    return handler.not_before_ms - now
                self.requests.pop()
                if self._terminated_with_error(handler):
                    continue
                if handler.is_end_txn and not self.transaction.started:
                    # Nothing was added to it, so the coordinator does not know it.
                    self.reset_transaction_state()
                    handler.result.done()
                    continue
                return handler
            return _MAX_INT32

    def _terminated_with_error(self, handler: TxnRequestHandler) -> bool:
        machine = self.machine
        if not machine.failed or (machine.has_abortable_error and isinstance(handler, FindCoordinatorHandler)):
            return False
        assert machine.last_error is not None
        handler.result.fail(machine.last_error)
        return True

    def reset_transaction_state(self) -> None:
        """Clears the state after the end of a transaction."""
        self.machine.transition_to(State.INITIALIZING if self._epoch_bump_required else State.READY)
        self._epoch_bump_required = False
        self.transaction.reset()

    def lookup_coordinator(self, kind: CoordinatorType, key: str) -> None:
        """Forgets a coordinator and looks it up again."""
        with self.lock:
            self.coordinators.forget(kind)
            self.requests.push(FindCoordinatorHandler(self, kind, key))

    # -- errors and close

    def authentication_failed(self, error: Exception) -> None:
        with self.lock:
            for handler in self.requests:
                handler.fatal_error(error)

    def fail_pending_requests(self, error: Exception) -> None:
        with self.lock:
            for handler in self.requests:
                handler.abortable_error(error)
            self.requests.clear()

    def close(self) -> None:
        """Fails all waiting callers when the producer is closed by force."""
        with self.lock:
            error = BarnabasError("The producer closed forcefully")
            for handler in self.requests:
                handler.fatal_error(error)
            self.requests.clear()
            self._operation.fail(error)

    def __repr__(self) -> str:
        return f"TransactionManager({self.transactional_id}, {self.machine.state.name}, {self.producer_id_and_epoch})"
