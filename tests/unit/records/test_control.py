from __future__ import annotations

import pytest

from barnabas.common.errors import InvalidRecordError
from barnabas.records.batch import RecordBatch
from barnabas.records.control import (
    ControlRecordType,
    EndTransactionMarker,
    control_batch,
    end_transaction_marker_batch,
    parse_control_type,
)
from barnabas.records.reader import Record, read_records


@pytest.mark.parametrize(
    ("control_type", "key"),
    [
        (ControlRecordType.ABORT, "00000000"),
        (ControlRecordType.COMMIT, "00000001"),
        (ControlRecordType.LEADER_CHANGE, "00000002"),
        (ControlRecordType.SNAPSHOT_HEADER, "00000003"),
        (ControlRecordType.SNAPSHOT_FOOTER, "00000004"),
        (ControlRecordType.KRAFT_VERSION, "00000005"),
        (ControlRecordType.KRAFT_VOTERS, "00000006"),
    ],
)
def test_keys(control_type: ControlRecordType, key: str) -> None:
    assert control_type.key().hex() == key
    assert parse_control_type(bytes.fromhex(key)) is control_type
    assert parse_control_type(memoryview(bytes.fromhex(key))) is control_type


def test_types_of_the_future_are_unknown_and_cannot_be_written() -> None:
    assert parse_control_type(bytes.fromhex("00000063")) is ControlRecordType.UNKNOWN
    assert parse_control_type(bytes.fromhex("0000fff0")) is ControlRecordType.UNKNOWN
    with pytest.raises(ValueError, match="unknown type"):
        ControlRecordType.UNKNOWN.key()


def test_later_key_versions_begin_the_same_way() -> None:
    assert parse_control_type(bytes.fromhex("00010001beef")) is ControlRecordType.COMMIT


@pytest.mark.parametrize(
    ("key", "message"),
    [(None, "no key"), (b"", "a 0-byte key"), (b"\0\0\0", "a 3-byte key"), (b"\xff\xff\0\0", "key version -1")],
)
def test_keys_that_are_none(key: bytes | None, message: str) -> None:
    with pytest.raises(InvalidRecordError, match=message):
        parse_control_type(key)


@pytest.mark.parametrize("control_type", [ControlRecordType.ABORT, ControlRecordType.COMMIT])
def test_marker_batch(control_type: ControlRecordType) -> None:
    marker = EndTransactionMarker(control_type, 77)
    data = end_transaction_marker_batch(
        marker, producer_id=9, producer_epoch=2, timestamp_ms=1234, base_offset=50, partition_leader_epoch=6
    )
    batch = RecordBatch(data)
    assert batch.is_valid()
    assert batch.is_control_batch
    assert batch.is_transactional
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (9, 2, -1)
    assert (batch.base_offset, batch.last_offset, batch.partition_leader_epoch) == (50, 50, 6)
    (record,) = read_records(batch)
    assert (record.offset, record.timestamp, len(record.value or b"")) == (50, 1234, 6)
    assert EndTransactionMarker.parse(record) == marker


def test_only_commit_and_abort_end_a_transaction() -> None:
    with pytest.raises(ValueError, match="not LEADER_CHANGE"):
        EndTransactionMarker(ControlRecordType.LEADER_CHANGE, 1)
    with pytest.raises(InvalidRecordError, match="type KRAFT_VOTERS does not end"):
        EndTransactionMarker.parse(Record(0, 0, ControlRecordType.KRAFT_VOTERS.key(), bytes(6)))


def test_a_marker_needs_a_producer() -> None:
    marker = EndTransactionMarker(ControlRecordType.ABORT, 0)
    with pytest.raises(ValueError, match="producer id, not -1"):
        end_transaction_marker_batch(marker, producer_id=-1, producer_epoch=0, timestamp_ms=0)


@pytest.mark.parametrize(
    ("value", "message"),
    [(None, "no value"), (bytes(5), "a 5-byte value"), (b"\xff\xfe\0\0\0\0", "invalid version -2")],
)
def test_broken_markers(value: bytes | None, message: str) -> None:
    with pytest.raises(InvalidRecordError, match=message):
        EndTransactionMarker.parse(Record(0, 0, ControlRecordType.COMMIT.key(), value))


def test_later_marker_versions_begin_the_same_way() -> None:
    record = Record(0, 0, ControlRecordType.COMMIT.key(), bytes.fromhex("0001 00000009 beef"))
    assert EndTransactionMarker.parse(record) == EndTransactionMarker(ControlRecordType.COMMIT, 9)


def test_quorum_control_batch() -> None:
    data = control_batch(
        [(ControlRecordType.LEADER_CHANGE, b"leader"), (ControlRecordType.KRAFT_VERSION, b"version")],
        timestamp_ms=99,
        base_offset=1000,
        partition_leader_epoch=4,
    )
    batch = RecordBatch(data)
    assert batch.is_valid()
    assert batch.is_control_batch
    assert not batch.is_transactional
    assert (batch.producer_id, batch.partition_leader_epoch) == (-1, 4)
    assert [(record.offset, parse_control_type(record.key), record.value) for record in read_records(batch)] == [
        (1000, ControlRecordType.LEADER_CHANGE, b"leader"),
        (1001, ControlRecordType.KRAFT_VERSION, b"version"),
    ]
