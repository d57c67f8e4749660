"""Completes, retries, splits or fails a batch after its response."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from barnabas.clients.producer.internals.partition_result import PartitionResult, exception_of, record_errors
from barnabas.common.errors import BarnabasError, Errors, InvalidMetadataError, KafkaTimeoutError

if TYPE_CHECKING:
    from barnabas.clients.producer.internals.in_flight_batches import InFlightBatches
    from barnabas.clients.producer.internals.produce_request_result import RecordErrors
    from barnabas.clients.producer.internals.producer_batch import ProducerBatch
    from barnabas.clients.producer.internals.producer_metadata import ProducerMetadata
    from barnabas.clients.producer.internals.producer_metrics import SenderMetrics
    from barnabas.clients.producer.internals.record_accumulator import RecordAccumulator
    from barnabas.clients.producer.internals.sender_config import SenderConfig
    from barnabas.clients.producer.internals.sequence_resolution import SequenceResolver
    from barnabas.clients.producer.internals.transaction_manager import TransactionManager
    from barnabas.common.topic_partition import TopicPartition

log = logging.getLogger(__name__)

LEAVES_OPEN: Final = frozenset(
    {
        Errors.NETWORK_EXCEPTION,
        Errors.REQUEST_TIMED_OUT,
        Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Errors.UNKNOWN_SERVER_ERROR,
    }
)
"""Errors after which it is unknown whether a batch was written."""


class BatchCompletion:
    """Handles the outcome of sent batches. Used by the sender's thread.

    After a response, a batch is completed; or split, if it was too large and has more than one record, which does not
    count as an attempt; or re-enqueued, if the error is retriable, it has not expired and has attempts left; or
    failed.
    """

    def __init__(
        self,
        accumulator: RecordAccumulator,
        in_flight: InFlightBatches,
        metadata: ProducerMetadata,
        config: SenderConfig,
        metrics: SenderMetrics,
        transaction_manager: TransactionManager | None,
    ) -> None:
        self._accumulator = accumulator
        self._in_flight = in_flight
        self._metadata = metadata
        self._config = config
        self._metrics = metrics
        self._transaction_manager = transaction_manager
        self.resolver: SequenceResolver | None = None
        """Set if there is a transaction manager."""

    def complete_batch(self, batch: ProducerBatch, result: PartitionResult, now: int) -> None:
        """Applies a response to a batch."""
        accumulator = self._accumulator
        manager = self._transaction_manager
        error = result.error
        batch.in_flight = False
        if batch.is_done:
            # It expired or was aborted while in flight. Now its memory can be freed.
            accumulator.release(batch)
            if error is Errors.NONE:
                self._succeeded(batch, result)
        elif error is Errors.MESSAGE_TOO_LARGE and batch.record_count > 1:
            log.warning("A batch for %s is too large and is split", batch.topic_partition)
            if manager is not None:
                manager.partitions.remove_in_flight_batch(batch)
            accumulator.split_and_reenqueue(batch)
            self._remove_and_deallocate(batch)
            self._metrics.batch_split.record_unchecked()
        elif error is Errors.NONE:
            self._succeeded(batch, result)
        elif (
            error is Errors.OUT_OF_ORDER_SEQUENCE_NUMBER
            and manager is not None
            and not manager.is_transactional
            and manager.partitions.is_confirmed_by_a_later_one(batch)
        ):
            log.info(
                "The batch for %s with sequence %d is in the log already, before one that was confirmed",
                batch.topic_partition,
                batch.base_sequence,
            )
            self.complete_as_written(batch)
        else:
            if error in LEAVES_OPEN:
                batch.may_be_written = True
            if self._can_retry(batch, result, now):
                log.log(
                    logging.WARNING if batch.attempts == 0 else logging.INFO,
                    "A batch for %s failed and is sent again (%d attempts left): %s",
                    batch.topic_partition,
                    self._config.retries - batch.attempts - 1,
                    result.message or error.name,
                )
                self._note_error(batch.topic_partition, result)
                self._reenqueue(batch, now)
            elif error is Errors.DUPLICATE_SEQUENCE_NUMBER:
                # The broker has it, but not its offset.
                self._succeeded(batch, result)
            else:
                self._failed(batch, result)
            if error.exception is not None and issubclass(error.exception, InvalidMetadataError):
                self._metadata.request_update()
        if self._config.guarantee_message_order:
            accumulator.unmute_partition(batch.topic_partition)

    def _note_error(self, partition: TopicPartition, result: PartitionResult) -> None:
        leader = self._metadata.snapshot.leader_for(partition)
        where = "" if leader is None else f" from node {leader.id}"
        what = "" if result.message is None else f" ({result.message})"
        self._accumulator.errors.note(partition, f"{result.error.name}{where}{what}")

    def _can_retry(self, batch: ProducerBatch, result: PartitionResult, now: int) -> bool:
        manager = self._transaction_manager
        return (
            not batch.is_done
            and not batch.has_reached_delivery_timeout(self._accumulator.config.delivery_timeout_ms, now)
            and batch.attempts < self._config.retries
            and (
                result.error.retriable
                if manager is None
                else manager.can_retry(result.error, result.log_start_offset, batch)
            )
        )

    def _reenqueue(self, batch: ProducerBatch, now: int) -> None:
        self._accumulator.reenqueue(batch, now)
        self._in_flight.remove(batch)
        self._metrics.record_retries(batch.topic_partition.topic, batch.record_count)

    def _remove_and_deallocate(self, batch: ProducerBatch) -> None:
        self._in_flight.remove(batch)
        if batch.in_flight:
            self._accumulator.complete_batch(batch)  # its memory is freed with the response
        else:
            self._accumulator.deallocate(batch)

    def _succeeded(self, batch: ProducerBatch, result: PartitionResult) -> None:
        if self.write_down_success(batch, result.base_offset, result.log_append_time):
            self._remove_and_deallocate(batch)

    def write_down_success(self, batch: ProducerBatch, base_offset: int, log_append_time: int) -> bool:
        manager = self._transaction_manager
        if manager is not None:
            if manager.partitions.sequence_questions:
                assert self.resolver is not None
                self.resolver.proved(batch)
            manager.partitions.handle_completed_batch(batch, base_offset)
        if self._accumulator.errors.last:
            self._accumulator.errors.last.pop(batch.topic_partition, None)
        return batch.complete(base_offset, log_append_time)

    def complete_as_written(self, batch: ProducerBatch) -> None:
        """Completes a batch that the broker has, with an unknown offset."""
        self._succeeded(batch, PartitionResult(Errors.DUPLICATE_SEQUENCE_NUMBER))

    def _failed(self, batch: ProducerBatch, result: PartitionResult) -> None:
        error = exception_of(batch.topic_partition.topic, result)
        # A batch that is rejected at its first attempt was not written, and neither were those behind it: they can get
        # new sequences. Otherwise it may have been written, by this attempt or an earlier one whose response was lost,
        # and so may those behind it; with new sequences they would be written twice.
        certain = batch.attempts == 0 and not result.error.retriable
        self._fail(
            batch,
            error,
            errors=record_errors(result) if result.record_errors else None,
            adjust_sequence_numbers=certain,
        )
        manager = self._transaction_manager
        if not certain and manager is not None and batch.has_sequence and not manager.machine.has_fatal_error:
            manager.partitions.mark_sequence_unresolved(batch)

    def _fail(
        self,
        batch: ProducerBatch,
        error: Exception,
        *,
        adjust_sequence_numbers: bool,
        errors: RecordErrors | None = None,
    ) -> None:
        self._metrics.record_errors(batch.topic_partition.topic, batch.record_count)
        if batch.complete_exceptionally(error, errors):
            if self._transaction_manager is not None:
                try:
                    self._transaction_manager.handle_failed_batch(batch, error, adjust_sequence_numbers)
                except BarnabasError:
                    log.exception("A failed batch for %s could not be handled", batch.topic_partition)
            self._remove_and_deallocate(batch)

    def fail_expired(self, expired: Iterable[ProducerBatch], now: int) -> None:
        for batch in expired:
            why = self._accumulator.errors.why_unsent(batch.topic_partition)
            last_error = "" if why is None else f". The last error was {why}"
            self._fail(
                batch,
                KafkaTimeoutError(
                    f"Expiring {batch.record_count} record(s) for {batch.topic_partition}:{now - batch.created_ms} ms "
                    f"has passed since batch creation{last_error}"
                ),
                adjust_sequence_numbers=False,
            )
            # It was sent and may have been written, so the next sequence is unknown.
            if self._transaction_manager is not None and batch.has_sequence:
                self._transaction_manager.partitions.mark_sequence_unresolved(batch)
