"""The transaction coordinator of a broker: handles all requests about transactions."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Final, NamedTuple, TypeVar

from barnabas.common.client_pattern import ClientPattern, PatternTimeoutError, search_limit_ms
from barnabas.common.clock import Clock
from barnabas.common.errors import Errors
from barnabas.common.events.gathering import Gathering
from barnabas.common.java_hash import partition_for
from barnabas.common.log_safety import LimitedLogger
from barnabas.common.scheduler import ScheduledTask, Scheduler
from barnabas.common.topic_names import TRANSACTION_STATE_TOPIC
from barnabas.common.topic_partition import TopicPartition
from barnabas.coordinator.runtime.coordinator_result import CoordinatorResult
from barnabas.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
from barnabas.coordinator.transaction.pending_complete_txn import PendingCompleteTxn
from barnabas.coordinator.transaction.producer_id_manager import ProducerIdManager
from barnabas.coordinator.transaction.transaction_config import TransactionConfig
from barnabas.coordinator.transaction.transaction_coordinator_shard import (
    NeedsProducerIdError,
    ProducerResult,
    TransactionCoordinatorShard,
    TransactionRef,
)
from barnabas.coordinator.transaction.transaction_marker_channel_manager import TransactionMarkerChannelManager
from barnabas.coordinator.transaction.transaction_metadata import (
    TWO_PHASE_COMMIT_TIMEOUT_MS,
    ProducerIdAndEpoch,
    TransactionMetadata,
)
from barnabas.coordinator.transaction.transaction_state import TransactionState
from barnabas.coordinator.transaction.transaction_version import TransactionVersion
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import MetadataImage

logger = LimitedLogger(logging.getLogger(__name__))

T = TypeVar("T")
Operation = Callable[[TransactionCoordinatorShard, int | None], CoordinatorResult[ProducerResult]]

_ERRORS_OF_WRITES: Final = {
    Errors.UNKNOWN_TOPIC_OR_PARTITION: Errors.COORDINATOR_NOT_AVAILABLE,
    Errors.NOT_ENOUGH_REPLICAS: Errors.COORDINATOR_NOT_AVAILABLE,
    Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Errors.COORDINATOR_NOT_AVAILABLE,
    Errors.REQUEST_TIMED_OUT: Errors.COORDINATOR_NOT_AVAILABLE,
    Errors.NOT_LEADER_OR_FOLLOWER: Errors.NOT_COORDINATOR,
    Errors.KAFKA_STORAGE_ERROR: Errors.NOT_COORDINATOR,
    Errors.MESSAGE_TOO_LARGE: Errors.UNKNOWN_SERVER_ERROR,
    Errors.RECORD_LIST_TOO_LARGE: Errors.UNKNOWN_SERVER_ERROR,
}
"""Maps errors of appends to the coordinator's own log to errors that clients understand."""


class TransactionListing(NamedTuple):
    """The response to ListTransactions."""

    error: Errors
    unknown_state_filters: tuple[str, ...] = ()
    transactions: tuple[TransactionMetadata, ...] = ()


class TransactionCoordinator:
    """Coordinates the transactions whose IDs map to partitions of ``__transaction_state`` that this broker leads.

    The :class:`TransactionCoordinatorShard` of a partition decides about transactions. This class finds the partition,
    allocates producer IDs, and handles timeouts. All results are futures with an error code, not an exception.

    A committed transaction, from the producer's first request to the end, with transaction version 2::

        producer             broker with the coordinator                      brokers with the partitions
           | InitProducerId       |                                                    |
           |--------------------->| EMPTY in the log; the previous producer is fenced   |
           | Produce              |                                                    |
           |--------------------------------------------------------------------------->| first batch of a transaction:
           |                      |<------- AddPartitionsToTxn ------------------------| verify the transaction
           |                      | ONGOING in the log                                  |
           |<---------------------------------------------------------------------------| appended
           | EndTxn(commit)       |                                                    |
           |--------------------->| PREPARE_COMMIT in the log: it is committed now      |
           |                      |-------- WriteTxnMarkers -------------------------->| readers may see it now
           |<---------------------| COMPLETE_COMMIT in the log                          |
    """

    topic = TRANSACTION_STATE_TOPIC

    def __init__(
        self,
        config: TransactionConfig,
        runtime: CoordinatorRuntime[TransactionCoordinatorShard],
        markers: TransactionMarkerChannelManager,
        producer_ids: ProducerIdManager,
        partition_count: Callable[[], int | None],
        scheduler: Scheduler,
        clock: Clock,
        epochs: CoordinatorEpochs,
    ) -> None:
        """`partition_count` returns the number of partitions of the topic, None if it does not exist yet."""
        self._config = config
        self._runtime = runtime
        self._markers = markers
        self._producer_ids = producer_ids
        self._partition_count = partition_count
        self._scheduler = scheduler
        self._clock = clock
        self._now_ms = clock.milliseconds
        self._epochs = epochs
        self._tasks: list[ScheduledTask] = []
        self._is_active = False
        markers.on_written = self._complete_transaction

    # -- lifecycle

    def startup(self) -> None:
        """Starts to check for timeouts."""
        config = self._config
        schedule = self._scheduler.schedule
        abort_ms = config.abort_timed_out_transactions_interval_ms
        expire_ms = config.remove_expired_transactional_ids_interval_ms
        self._tasks = [
            schedule("transaction-abort", self.abort_timed_out_transactions, abort_ms, abort_ms),
            schedule("transactionalId-expiration", self.remove_expired_transactional_ids, expire_ms, expire_ms),
        ]
        self._is_active = True

    def shutdown(self) -> None:
        self._is_active = False
        for task in self._tasks:
            task.cancel()
        self._markers.shutdown()
        self._runtime.close()

    def partition_for(self, transactional_id: str) -> int:
        """Returns the partition of ``__transaction_state`` of an ID, whose leader is its coordinator."""
        return partition_for(transactional_id, self._partition_count() or self._config.state_log_num_partitions)

    def is_loading(self, partition: int) -> bool:
        """Returns whether the partition, if this broker leads it, is not loaded yet."""
        return self._runtime.is_loading(TopicPartition(TRANSACTION_STATE_TOPIC, partition))

    def _partition(self, transactional_id: str) -> TopicPartition:
        return TopicPartition(TRANSACTION_STATE_TOPIC, self.partition_for(transactional_id))

    # -- requests

    def init_producer_id(
        self,
        transactional_id: str,
        txn_timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        *,
        enable_two_phase_commit: bool = False,
        keep_prepared_txn: bool = False,
    ) -> Future[ProducerResult]:
        """See `TransactionCoordinatorShard.init_producer_id`."""
        config = self._config
        if not transactional_id:
            return _done(ProducerResult(Errors.INVALID_REQUEST))
        if enable_two_phase_commit and not config.two_phase_commit_enable:
            return _done(ProducerResult(Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        if enable_two_phase_commit:
            txn_timeout_ms = TWO_PHASE_COMMIT_TIMEOUT_MS
        elif not 0 < txn_timeout_ms <= config.transaction_max_timeout_ms:
            return _done(ProducerResult(Errors.INVALID_TRANSACTION_TIMEOUT))
        return self._with_producer_id(
            "init-producer-id",
            transactional_id,
            lambda shard, new_id: shard.init_producer_id(
                transactional_id, txn_timeout_ms, expected, new_id, keep_prepared_txn=keep_prepared_txn
            ),
        )

    def add_partitions_to_transaction(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        client_version: TransactionVersion,
    ) -> Future[Errors]:
        """See `TransactionCoordinatorShard.add_partitions`."""
        if not transactional_id:
            return _done(Errors.INVALID_REQUEST)
        future = self._runtime.schedule_write_operation(
            "add-partitions-to-txn",
            self._partition(transactional_id),
            lambda shard: shard.add_partitions(transactional_id, producer, partitions, client_version),
        )
        return _mapped(future, lambda error: error, lambda error: error)

    def verify_partitions_in_transaction(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]
    ) -> Future[dict[TopicPartition, Errors]]:
        """See `TransactionCoordinatorShard.verify_partitions`."""
        if not transactional_id:
            return _done(dict.fromkeys(partitions, Errors.INVALID_REQUEST))
        future = self._runtime.schedule_read_operation(
            "verify-partitions-in-txn",
            self._partition(transactional_id),
            lambda shard, offset: shard.verify_partitions(transactional_id, producer, partitions, offset),
        )
        return _mapped(future, lambda errors: errors, lambda error: dict.fromkeys(partitions, error))

    def end_transaction(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        *,
        commit: bool,
        client_version: TransactionVersion,
    ) -> Future[ProducerResult]:
        """See `TransactionCoordinatorShard.end_transaction`."""
        if not transactional_id:
            return _done(ProducerResult(Errors.INVALID_REQUEST))
        return self._with_producer_id(
            "end-txn",
            transactional_id,
            lambda shard, new_id: shard.end_transaction(
                transactional_id, producer, commit=commit, client_version=client_version, new_producer_id=new_id
            ),
        )

    def describe_transaction(self, transactional_id: str) -> Future[TransactionMetadata | Errors]:
        """Returns the state of a transactional ID, or an error."""
        if not self._is_active:
            return _done(Errors.COORDINATOR_NOT_AVAILABLE)
        if not transactional_id:
            return _done(Errors.INVALID_REQUEST)
        future = self._runtime.schedule_read_operation(
            "describe-transaction",
            self._partition(transactional_id),
            lambda shard, offset: shard.transaction(transactional_id, offset),
        )
        return _mapped(future, lambda found: Errors.TRANSACTIONAL_ID_NOT_FOUND if found is None else found, _itself)

    def list_transactions(
        self,
        producer_ids: Collection[int] = (),
        state_names: Collection[str] = (),
        duration_ms: int = -1,
        transactional_id_pattern: str | None = None,
    ) -> Future[TransactionListing]:
        """Returns all transactional IDs of this broker that pass all filters; an empty filter passes everything.

        `duration_ms` passes transactions that are open for longer. Raises `InvalidRegularExpressionError`. A pattern is
        evaluated on a background thread: with many IDs it takes too long for the coordinator's threads.
        """
        if not self._is_active:
            return _done(TransactionListing(Errors.COORDINATOR_NOT_AVAILABLE))
        pattern = (
            ClientPattern(transactional_id_pattern, "TransactionalIdPattern") if transactional_id_pattern else None
        )
        states = {name: TransactionState.for_name(name) for name in state_names}
        now_ms = self._now_ms()

        def passes(metadata: TransactionMetadata) -> bool:
            return (
                (not producer_ids or metadata.producer_id in producer_ids)
                and (not states or metadata.state in states.values())
                and (duration_ms < 0 or now_ms - metadata.txn_start_timestamp > duration_ms)
            )

        def collect(found: Sequence[list[TransactionMetadata] | Errors]) -> TransactionListing:
            if Errors.COORDINATOR_LOAD_IN_PROGRESS in found:
                return TransactionListing(Errors.COORDINATOR_LOAD_IN_PROGRESS)
            return TransactionListing(
                Errors.NONE,
                tuple(name for name, state in states.items() if state is None),
                tuple(one for some in found if not isinstance(some, Errors) for one in some),
            )

        listing = _gathered(
            self._runtime.schedule_read_all_operation(
                "list-transactions",
                lambda shard, offset: [one for one in shard.transactions(offset) if passes(one)],
            ),
            collect,
        )
        return listing if pattern is None else self._matching(listing, pattern)

    def _matching(self, listing: Future[TransactionListing], pattern: ClientPattern) -> Future[TransactionListing]:
        """Filters a listing by the pattern."""
        matching: Future[TransactionListing] = Future()

        def match() -> TransactionListing:
            found = listing.result()
            ids = [one.transactional_id for one in found.transactions]
            try:
                matched = pattern.search(
                    ids, self._clock, self._clock.hi_res_milliseconds() + search_limit_ms(len(ids))
                )
            except PatternTimeoutError:
                logger.warning("ListTransactions: evaluating %.100r for %d IDs takes too long", pattern.text, len(ids))
                return TransactionListing(Errors.INVALID_REGULAR_EXPRESSION)
            return found._replace(
                transactions=tuple(one for one in found.transactions if one.transactional_id in matched)
            )

        def on_matched(future: Future[TransactionListing]) -> None:
            failed = future.cancelled() or future.exception() is not None
            matching.set_result(TransactionListing(Errors.COORDINATOR_NOT_AVAILABLE) if failed else future.result())

        listing.add_done_callback(lambda _: self._runtime.run_in_background(match).add_done_callback(on_matched))
        return matching

    # -- periodic tasks

    def abort_timed_out_transactions(self) -> None:
        """Aborts transactions that exceed their timeout, and fences their producers."""

        def abort(found: Future[list[TransactionRef]]) -> None:
            if found.exception() is not None:
                return  # it is being loaded, or moved: its next coordinator checks again
            for transaction in found.result():
                self._abort_timed_out(transaction)

        for future in self._runtime.schedule_read_all_operation(
            "timed-out-transactions", lambda shard, offset: shard.timed_out_transactions(offset)
        ):
            future.add_done_callback(abort)

    def _abort_timed_out(self, transaction: TransactionRef) -> None:
        def on_aborted(future: Future[ProducerResult]) -> None:
            error = future.result().error
            if not error:
                logger.info("Aborted the transaction of %s, which timed out", transaction.transactional_id)
            elif error in {Errors.INVALID_PRODUCER_ID_MAPPING, Errors.PRODUCER_FENCED, Errors.CONCURRENT_TRANSACTIONS}:
                logger.debug(
                    "Not aborting %s, which has changed meanwhile: %s", transaction.transactional_id, error.name
                )
            else:
                logger.warning("Cannot abort %s: %s", transaction.transactional_id, error.name)

        self._with_producer_id(
            "abort-timed-out-txn",
            transaction.transactional_id,
            lambda shard, new_id: shard.abort_timed_out(transaction, new_id),
        ).add_done_callback(on_aborted)

    def remove_expired_transactional_ids(self) -> None:
        """Removes IDs that were not used for ``transactional.id.expiration.ms``."""
        for future in self._runtime.schedule_write_all_operation(
            "expire-transactional-ids",
            lambda shard: shard.remove_expired(self._config.transactional_id_expiration_ms),
        ):
            future.add_done_callback(_log_expired)

    def _complete_transaction(self, transaction: PendingCompleteTxn) -> Future[bool]:
        return self._runtime.schedule_write_operation(
            "complete-txn",
            TopicPartition(TRANSACTION_STATE_TOPIC, transaction.txn_topic_partition),
            lambda shard: shard.complete_transaction(transaction),
        )

    # -- metadata

    def on_election(self, partition: int, leader_epoch: int) -> None:
        """Starts to coordinate the partition. Operations of an earlier epoch become void."""
        topic_partition = TopicPartition(TRANSACTION_STATE_TOPIC, partition)
        self._markers.remove_markers_for_txn_topic_partition(partition)
        self._epochs.set(partition, leader_epoch)
        self._runtime.schedule_load_operation(topic_partition, leader_epoch)
        # A shard sends markers after its load. But if it is active, it is not loaded again, and its markers, which had
        # the epoch before, were just dropped. If it is being loaded, this fails, and nobody needs it.
        self._runtime.schedule_write_operation(
            "send-pending-markers", topic_partition, lambda shard: shard.send_pending_markers()
        )

    def on_resignation(self, partition: int, leader_epoch: int | None) -> None:
        self._runtime.schedule_unload_operation(TopicPartition(TRANSACTION_STATE_TOPIC, partition), leader_epoch)
        self._markers.remove_markers_for_txn_topic_partition(partition)

    def on_partitions_deleted(self, partitions: Sequence[TopicPartition]) -> None:
        """Does nothing: a transaction finds out about a deleted partition when it writes the marker."""

    def on_new_metadata_image(self, image: MetadataImage, delta: MetadataDelta) -> None:
        self._runtime.on_new_metadata_image(image, delta)

    # -- producer ids

    def _with_producer_id(self, name: str, transactional_id: str, operation: Operation) -> Future[ProducerResult]:
        """Runs an operation, and again with a new producer ID if it needs one, which is rare."""
        partition = self._partition(transactional_id)
        response_future: Future[ProducerResult] = Future()

        def attempt(producer_id: int | None) -> None:
            self._runtime.schedule_write_operation(
                name, partition, lambda shard: operation(shard, producer_id)
            ).add_done_callback(on_done)

        def on_done(future: Future[ProducerResult]) -> None:
            failure = future.exception()
            if failure is None:
                response_future.set_result(future.result())
            elif isinstance(failure, NeedsProducerIdError):
                self._producer_ids.next_producer_id(self._config.request_timeout_ms).add_done_callback(on_producer_id)
            else:
                response_future.set_result(ProducerResult(_error_of(failure)))

        def on_producer_id(future: Future[int]) -> None:
            failure = future.exception()
            if failure is None:
                attempt(future.result())
            else:
                response_future.set_result(ProducerResult(_error_of(failure)))

        attempt(None)
        return response_future


class CoordinatorEpochs:
    """The leader epochs in which this broker coordinates partitions.

    Markers contain the epoch, so that markers of a replaced coordinator are rejected.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Guards the epochs; no other lock is taken inside it."""
        self._epochs: dict[int, int] = {}

    def set(self, partition: int, epoch: int) -> None:
        with self._lock:
            self._epochs[partition] = epoch

    def get(self, partition: int) -> int:
        with self._lock:
            return self._epochs.get(partition, -1)


def _log_expired(future: Future[int]) -> None:
    if future.exception() is None and future.result():
        logger.info("Removed %d expired transactional IDs", future.result())


def _error_of(failure: BaseException) -> Errors:
    error = Errors.for_exception(failure)
    if error is Errors.UNKNOWN_SERVER_ERROR:
        logger.error("An operation of the transaction coordinator failed", exc_info=failure)
    return _ERRORS_OF_WRITES.get(error, error)


def _itself(error: Errors) -> Errors:
    return error


def _done(value: T) -> Future[T]:
    future: Future[T] = Future()
    future.set_result(value)
    return future


S = TypeVar("S")


def _mapped(source: Future[S], on_result: Callable[[S], T], on_error: Callable[[Errors], T]) -> Future[T]:
    target: Future[T] = Future()

    def pass_on(future: Future[S]) -> None:
        failure = future.exception()
        target.set_result(on_result(future.result()) if failure is None else on_error(_error_of(failure)))

    source.add_done_callback(pass_on)
    return target


def _gathered(sources: Sequence[Future[S]], collect: Callable[[Sequence[S | Errors]], T]) -> Future[T]:
    """Combines all results, including errors, when the last one is complete."""
    target: Future[T] = Future()
    gathering: Gathering[int, S | Errors] = Gathering(
        range(len(sources)), lambda found: target.set_result(collect(tuple(found.values())))
    )

    def on_done(at: int, future: Future[S]) -> None:
        failure = future.exception()
        gathering.add(at, future.result() if failure is None else Errors.for_exception(failure))

    for at, source in enumerate(sources):
        source.add_done_callback(partial(on_done, at))
    gathering.release()
    return target
