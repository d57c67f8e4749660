"""Verifies transactional records with the coordinator before they are appended (KIP-890).

A transactional batch that arrives after its transaction has ended would open a new transaction that never ends. So
before the first batch of a transaction is appended to a partition, the coordinator verifies it; from the second batch
on, the log knows the transaction. With Produce v12 the broker adds the partition to the transaction in the same step.

CONCURRENT_TRANSACTIONS means that the markers of the producer's last transaction are not written yet. That is brief, so
for clients that support it (v12) the broker itself retries for up to ``add.partitions.to.txn.retry.backoff.max.ms``.
Other transient errors of the coordinator become NOT_ENOUGH_REPLICAS, which even old clients retry.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Final, Protocol

from barnabas.common.clock import Clock
from barnabas.common.errors import Errors, InvalidPidMappingError
from barnabas.common.log_safety import LimitedLogger
from barnabas.common.scheduler import Scheduler
from barnabas.common.topic_partition import TopicPartition
from barnabas.coordinator.transaction.add_partitions_to_txn_manager import (
    PartitionErrors,
    TransactionSupportedOperation,
)
from barnabas.coordinator.transaction.transaction_metadata import ProducerIdAndEpoch
from barnabas.log.dirs.log_dir_pace import Lane
from barnabas.log.producers.producer_states import ProducerStateManagerConfig
from barnabas.log.producers.verification_state import SENTINEL, VerificationGuard
from barnabas.protocol.message import Buffer
from barnabas.records.batch import NO_PRODUCER_ID, TRANSACTIONAL_MASK
from barnabas.replica.append.record_appender import RecordAppender
from barnabas.replica.fetch.fetch_session import TopicIdPartition
from barnabas.replica.partition.partition import Partition
from barnabas.replica.results import UNCOUNTED_BUFFERS, ProduceCallback, ProduceResult
from barnabas.server.action_queue import ActionQueue

logger = LimitedLogger(logging.getLogger(__name__))

_PRODUCER_FIELDS: Final = struct.Struct(">21xh20xqhi")
"""Attributes, producer id, producer epoch and base sequence of a batch."""

_PASSING: Final = frozenset(
    {
        Errors.NETWORK_EXCEPTION,
        Errors.COORDINATOR_LOAD_IN_PROGRESS,
        Errors.COORDINATOR_NOT_AVAILABLE,
        Errors.NOT_COORDINATOR,
    }
)


class TransactionalReplicas(RecordAppender, Protocol):
    """The part of the replica manager that transactional appends use."""

    @property
    def action_queue(self) -> ActionQueue: ...

    def get_partition_or_exception(self, partition: tuple[str, int]) -> Partition: ...

    def append_lane(self, partitions: Iterable[TopicIdPartition]) -> Lane | None: ...


class TransactionVerifier(Protocol):
    """Sends verifications to the coordinator: `AddPartitionsToTxnManager`."""

    def add_or_verify_transaction(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        operation: TransactionSupportedOperation,
    ) -> Future[PartitionErrors]: ...


class TransactionalAppends:
    """Appends the batches of a transactional producer after verifying that they belong to its transaction."""

    def __init__(
        self,
        replicas: TransactionalReplicas,
        verifier: TransactionVerifier,
        scheduler: Scheduler,
        clock: Clock,
        *,
        producer_state: ProducerStateManagerConfig,
        retry_backoff_ms: int,
        retry_backoff_max_ms: int,
    ) -> None:
        """`producer_state` says whether logs require verification; this can change at any time."""
        self._replicas = replicas
        self._verifier = verifier
        self._scheduler = scheduler
        self._now_ms = clock.hi_res_milliseconds
        self._producer_state = producer_state
        self._retry_backoff_ms = retry_backoff_ms
        self._retry_backoff_max_ms = retry_backoff_max_ms

    def append_records(
        self,
        transactional_id: str,
        operation: TransactionSupportedOperation,
        timeout_ms: int,
        required_acks: int,
        entries: Mapping[TopicIdPartition, Buffer],
        callback: ProduceCallback,
        *,
        internal_topics_allowed: bool,
    ) -> None:
        """Like the replica manager's ``append_records``, but may return before anything is appended.

        Raises `InvalidPidMappingError` if the batches belong to several producers.
        """
        append = _Append(timeout_ms, required_acks, entries, callback, internal_topics_allowed)
        producer, sequences = _producer_of(entries)
        if producer is None or not self._producer_state.transaction_verification_enabled:
            self._append(append, {}, {})
            return
        start = partial(self._start_verification, transactional_id, operation, producer, sequences, append)
        lane = self._replicas.append_lane(entries)
        if lane is None:
            start()
        elif not lane.submit(partial(self._run_aside, start, append), sum(map(len, entries.values()))):
            append.fail(Errors.KAFKA_STORAGE_ERROR)  # too many records wait for the slow disk; clients retry

    def _run_aside(self, step: Callable[[], None], append: _Append) -> None:
        """Runs a step on a thread that runs no requests, so that no caller would handle an error or drain the queue."""
        try:
            step()
        except Exception:
            logger.exception("A transactional append failed")
            append.fail()
        finally:
            self._replicas.action_queue.try_complete_actions()

    def _start_verification(
        self,
        transactional_id: str,
        operation: TransactionSupportedOperation,
        producer: ProducerIdAndEpoch,
        sequences: Mapping[TopicPartition, int],
        append: _Append,
    ) -> None:
        """Verifies the partitions that need it, then appends. Takes the locks of the logs."""
        guards: dict[TopicPartition, VerificationGuard] = {}
        errors: PartitionErrors = {}
        for partition, sequence in sequences.items():
            try:
                guard = self._replicas.get_partition_or_exception(partition).maybe_start_transaction_verification(
                    producer.producer_id, sequence, producer.epoch, supports_epoch_bump=operation.supports_epoch_bump
                )
            except Exception as error:  # noqa: BLE001 - it is for this partition alone
                errors[partition] = Errors.for_exception(error)
                continue
            if guard is not SENTINEL:
                guards[partition] = guard
        if not guards:
            self._append(append, errors, {})
            return
        self._verify(_Question(transactional_id, producer, operation, guards, self._now_ms()), append, errors)

    def _verify(self, question: _Question, append: _Append, errors: PartitionErrors) -> None:
        verified = self._verifier.add_or_verify_transaction(
            question.transactional_id, question.producer, tuple(question.guards), question.operation
        )
        if verified.done():
            self._verified(question, append, errors, verified)
        else:
            # It continues on the thread that receives the coordinator's response.
            verified.add_done_callback(
                lambda future: self._run_aside(partial(self._verified, question, append, errors, future), append)
            )

    def _verified(
        self, question: _Question, append: _Append, errors: PartitionErrors, verified: Future[PartitionErrors]
    ) -> None:
        found = verified.result()
        operation = question.operation
        if (
            operation.supports_epoch_bump
            and Errors.CONCURRENT_TRANSACTIONS in found.values()
            and self._now_ms() - question.started_ms < self._retry_backoff_max_ms
        ):
            again = partial(self._run_aside, partial(self._verify, question, append, errors), append)
            self._scheduler.schedule("retry-add-partitions-to-txn", again, self._retry_backoff_ms)
            return
        self._append(append, {**errors, **found}, question.guards, operation)

    def _append(
        self,
        append: _Append,
        errors: PartitionErrors,
        guards: Mapping[TopicPartition, VerificationGuard],
        operation: TransactionSupportedOperation = TransactionSupportedOperation.DEFAULT_ERROR,
    ) -> None:
        entries, callback = append.entries, append.callback
        refused: dict[TopicIdPartition, ProduceResult] = {}
        if errors:
            refused = {
                one: _refusal(errors[partition], operation)
                for one in entries
                if (partition := TopicPartition(one.topic or "", one.partition)) in errors
            }
            entries = {one: records for one, records in entries.items() if one not in refused}
            if not entries:
                callback(refused)
                return

        def respond(results: dict[TopicIdPartition, ProduceResult]) -> None:
            callback({**results, **refused} if refused else results)

        self._replicas.append_records(
            append.timeout_ms,
            append.required_acks,
            entries,
            respond,
            internal_topics_allowed=append.internal_topics_allowed,
            verification_guards=guards,
            holder=UNCOUNTED_BUFFERS,
        )


class _Append:
    """The arguments of an append that waits for verification."""

    __slots__ = ("callback", "entries", "internal_topics_allowed", "required_acks", "timeout_ms")

    def __init__(
        self,
        timeout_ms: int,
        required_acks: int,
        entries: Mapping[TopicIdPartition, Buffer],
        callback: ProduceCallback,
        internal_topics_allowed: bool,
    ) -> None:
        self.timeout_ms = timeout_ms
        self.required_acks = required_acks
        self.entries = entries
        self.callback = callback
        self.internal_topics_allowed = internal_topics_allowed

    def fail(self, error: Errors = Errors.UNKNOWN_SERVER_ERROR) -> None:
        self.callback(dict.fromkeys(self.entries, ProduceResult(error)))


class _Question:
    """A verification request to the coordinator, which may be repeated."""

    __slots__ = ("guards", "operation", "producer", "started_ms", "transactional_id")

    def __init__(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        operation: TransactionSupportedOperation,
        guards: Mapping[TopicPartition, VerificationGuard],
        started_ms: int,
    ) -> None:
        self.transactional_id = transactional_id
        self.producer = producer
        self.operation = operation
        self.guards = guards
        self.started_ms = started_ms


def _producer_of(
    entries: Mapping[TopicIdPartition, Buffer],
) -> tuple[ProducerIdAndEpoch | None, dict[TopicPartition, int]]:
    """Returns the producer of the transactional batches, and the base sequence of each partition's batch."""
    producers: set[ProducerIdAndEpoch] = set()
    sequences: dict[TopicPartition, int] = {}
    for partition, records in entries.items():
        if len(records) < _PRODUCER_FIELDS.size:
            continue  # too short for a batch; the log rejects it
        attributes, producer_id, epoch, sequence = _PRODUCER_FIELDS.unpack_from(records)
        if attributes & TRANSACTIONAL_MASK and producer_id != NO_PRODUCER_ID:
            producers.add(ProducerIdAndEpoch(producer_id, epoch))
            sequences[TopicPartition(partition.topic or "", partition.partition)] = sequence
    if len(producers) > 1:
        raise InvalidPidMappingError("The transactional batches of a request are of several producers")
    return next(iter(producers), None), sequences


def _refusal(error: Errors, operation: TransactionSupportedOperation) -> ProduceResult:
    if error is Errors.INVALID_TXN_STATE:
        return ProduceResult(error, error_message="The partition was not added to the transaction")
    if error in _PASSING or (error is Errors.CONCURRENT_TRANSACTIONS and not operation.supports_epoch_bump):
        return ProduceResult(
            Errors.NOT_ENOUGH_REPLICAS,
            error_message=f"It could not be found out whether the partition is part of the transaction: {error.name}",
        )
    return ProduceResult(error)
