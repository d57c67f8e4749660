"""Transactional ids in the log, byte for byte as Kafka 4.3.1 writes them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from barnabas.common.topic_partition import TopicPartition
from barnabas.coordinator.transaction.transaction_metadata import TransactionMetadata
from barnabas.coordinator.transaction.transaction_records import SERDE, tombstone, transaction_of, transaction_record
from barnabas.coordinator.transaction.transaction_state import TransactionState
from barnabas.coordinator.transaction.transaction_version import TransactionVersion
from barnabas.protocol.internal.transaction_state import TransactionLogKey, TransactionLogValue

TV_0, TV_1, TV_2 = TransactionVersion

PREPARED = TransactionMetadata(
    transactional_id="tx",
    producer_id=7,
    previous_producer_id=6,
    next_producer_id=9,
    producer_epoch=3,
    last_producer_epoch=2,
    txn_timeout_ms=60_000,
    state=TransactionState.PREPARE_COMMIT,
    topic_partitions=frozenset({TopicPartition("orders", 1), TopicPartition("orders", 0)}),
    txn_start_timestamp=1000,
    txn_last_update_timestamp=2000,
    client_transaction_version=TV_2,
)
EMPTY = TransactionMetadata(
    transactional_id="tx", producer_id=7, producer_epoch=0, txn_timeout_ms=60_000, txn_last_update_timestamp=2000
)


PREPARED_V1 = """
    0001 0000000000000007 0003 0000ea60 02 02076f7264657273030000000000000001 00 00000000000007d0 00000000000003e8
    03 00 08 0000000000000006 01 08 0000000000000009 02 02 0002
"""
PREPARED_V0 = """
    0000 0000000000000007 0003 0000ea60 02 00000001 00066f7264657273 00000002 00000000 00000001 00000000000007d0
    00000000000003e8
"""


@pytest.mark.parametrize(
    ("metadata", "server", "value"),
    [
        (PREPARED, TV_2, PREPARED_V1),
        (PREPARED, TV_0, PREPARED_V0),
        (EMPTY, TV_1, "0001 0000000000000007 0000 0000ea60 00 00 00000000000007d0 ffffffffffffffff 00"),
        (EMPTY, TV_0, "0000 0000000000000007 0000 0000ea60 00 ffffffff 00000000000007d0 ffffffffffffffff"),
    ],
)
def test_the_bytes_are_kafkas(metadata: TransactionMetadata, server: TransactionVersion, value: str) -> None:
    assert SERDE.serialize(transaction_record(metadata, server)) == (
        bytes.fromhex("000000027478"),
        bytes.fromhex(value),
    )


@pytest.mark.parametrize("state", TransactionState)
def test_what_is_written_is_read(state: TransactionState) -> None:
    partitions = frozenset() if state is TransactionState.EMPTY else PREPARED.topic_partitions
    metadata = replace(PREPARED, state=state, topic_partitions=partitions)
    read = SERDE.deserialize(*SERDE.serialize(transaction_record(metadata, TV_2)))
    assert isinstance(read.key, TransactionLogKey)
    assert isinstance(read.value, TransactionLogValue)
    assert transaction_of(read.key, read.value) == replace(metadata, last_producer_epoch=-1)


def test_a_version_of_the_protocol_that_is_not_known_counts_as_the_newest() -> None:
    value = TransactionLogValue(producer_id=1, client_transaction_version=9)
    read = transaction_of(TransactionLogKey(transactional_id="tx"), value)
    assert read.client_transaction_version is TV_2


def test_a_tombstone_has_no_value() -> None:
    assert SERDE.serialize(tombstone("tx")) == (bytes.fromhex("000000027478"), None)


def test_which_requests_speak_which_version() -> None:
    assert [TransactionVersion.for_end_txn(version) for version in range(6)] == [TV_0] * 5 + [TV_2]
    assert [TransactionVersion.for_add_partitions_to_txn(version) for version in range(6)] == [TV_0] * 4 + [TV_2] * 2
    assert [version.log_value_version for version in TransactionVersion] == [0, 1, 1]
