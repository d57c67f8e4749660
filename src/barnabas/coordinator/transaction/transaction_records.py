"""Transactional IDs as records of ``__transaction_state``, byte-compatible with Kafka."""

from __future__ import annotations

from typing import Final

from barnabas.common.topic_partition import TopicPartition
from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord, CoordinatorRecordSerde
from barnabas.coordinator.transaction.transaction_metadata import TransactionMetadata
from barnabas.coordinator.transaction.transaction_state import TransactionState
from barnabas.coordinator.transaction.transaction_version import TransactionVersion
from barnabas.protocol.internal.topics import TRANSACTION_STATE
from barnabas.protocol.internal.transaction_state import PartitionsSchema, TransactionLogKey, TransactionLogValue

SERDE: Final = CoordinatorRecordSerde(TRANSACTION_STATE)


def transaction_record(metadata: TransactionMetadata, server_version: TransactionVersion) -> CoordinatorRecord:
    """Returns the record of an ID. The cluster's version determines its format, because older brokers may read it."""
    partitions: list[PartitionsSchema] | None = None
    if metadata.state is not TransactionState.EMPTY:
        by_topic: dict[str, list[int]] = {}
        for topic, partition in sorted(metadata.topic_partitions):
            by_topic.setdefault(topic, []).append(partition)
        partitions = [PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in by_topic.items()]
    version = server_version.log_value_version
    value = TransactionLogValue(
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.txn_timeout_ms,
        transaction_status=metadata.state,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=metadata.txn_last_update_timestamp,
        transaction_start_timestamp_ms=metadata.txn_start_timestamp,
    )
    if version >= 1:
        value.previous_producer_id = metadata.previous_producer_id
        value.next_producer_id = metadata.next_producer_id
        value.next_producer_epoch = metadata.next_producer_epoch
        value.client_transaction_version = metadata.client_transaction_version
    return CoordinatorRecord(TransactionLogKey(transactional_id=metadata.transactional_id), value, version)


def tombstone(transactional_id: str) -> CoordinatorRecord:
    """Returns the record that removes an ID."""
    return CoordinatorRecord(TransactionLogKey(transactional_id=transactional_id))


def transaction_of(key: TransactionLogKey, value: TransactionLogValue) -> TransactionMetadata:
    """Returns the state of an ID from its record."""
    state = TransactionState(value.transaction_status)
    partitions: frozenset[TopicPartition] = frozenset()
    if state is not TransactionState.EMPTY:
        partitions = frozenset(
            TopicPartition(schema.topic, partition)
            for schema in value.transaction_partitions or ()
            for partition in schema.partition_ids
        )
    return TransactionMetadata(
        transactional_id=key.transactional_id,
        producer_id=value.producer_id,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        next_producer_epoch=value.next_producer_epoch,
        producer_epoch=value.producer_epoch,
        txn_timeout_ms=value.transaction_timeout_ms,
        state=state,
        topic_partitions=partitions,
        txn_start_timestamp=value.transaction_start_timestamp_ms,
        txn_last_update_timestamp=value.transaction_last_update_timestamp_ms,
        client_transaction_version=TransactionVersion.for_feature_level(value.client_transaction_version),
    )
