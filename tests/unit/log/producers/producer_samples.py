"""Batches of producers, for the tests of what a log knows of them."""

from __future__ import annotations

from pathlib import Path

from barnabas.common.clock import MockClock
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.producers.producer_state_entry import BatchMetadata, ProducerStateEntry
from barnabas.log.producers.producer_state_manager import ProducerStateManager
from barnabas.log.producers.producer_states import ProducerStateManagerConfig, ProducerStates
from barnabas.records.batch import RecordBatch
from barnabas.records.builder import RecordBatchBuilder
from barnabas.records.control import ControlRecordType, EndTransactionMarker, end_transaction_marker_batch

PARTITION = TopicPartition("topic", 0)
NOW = 1_700_000_000_000
EXPIRATION_MS = 1000
MAX_TRANSACTION_TIMEOUT_MS = 500


def data_batch(
    producer_id: int,
    offset: int,
    sequence: int,
    count: int = 1,
    *,
    epoch: int = 0,
    transactional: bool = False,
    timestamp: int = NOW,
) -> RecordBatch:
    builder = RecordBatchBuilder(
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=transactional,
    )
    for _ in range(count):
        builder.append(timestamp, None, b"v")
    return RecordBatch(builder.close())


def marker_batch(
    producer_id: int,
    offset: int,
    *,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    abort: bool = False,
    timestamp: int = NOW,
) -> RecordBatch:
    marker = EndTransactionMarker(ControlRecordType.ABORT if abort else ControlRecordType.COMMIT, coordinator_epoch)
    return RecordBatch(
        end_transaction_marker_batch(
            marker, producer_id=producer_id, producer_epoch=epoch, timestamp_ms=timestamp, base_offset=offset
        )
    )


def plain_batch(offset: int) -> RecordBatch:
    """A batch of a producer without an id."""
    builder = RecordBatchBuilder(base_offset=offset)
    builder.append(NOW, None, b"v")
    return RecordBatch(builder.close())


def new_states(*, verification: bool = False) -> ProducerStates:
    return ProducerStates(PARTITION, MAX_TRANSACTION_TIMEOUT_MS, new_config(verification=verification), MockClock(NOW))


def new_manager(directory: Path, clock: MockClock | None = None) -> ProducerStateManager:
    return ProducerStateManager(PARTITION, directory, MAX_TRANSACTION_TIMEOUT_MS, new_config(), clock or MockClock(NOW))


def new_config(*, verification: bool = False) -> ProducerStateManagerConfig:
    return ProducerStateManagerConfig(EXPIRATION_MS, transaction_verification_enabled=verification)


def entry(
    producer_id: int,
    *batches: BatchMetadata,
    epoch: int = 0,
    coordinator_epoch: int = -1,
    timestamp: int = NOW,
    txn_first_offset: int | None = None,
) -> ProducerStateEntry:
    made = ProducerStateEntry(producer_id, epoch, coordinator_epoch, timestamp, txn_first_offset)
    for batch in batches:
        made.add_batch(epoch, batch)
    made.last_timestamp = timestamp
    return made
