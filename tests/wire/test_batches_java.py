"""Record batches against Apache Kafka's own Java classes: ours read by them, and theirs read by us, in every codec."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from barnabas.records.batch import CompressionType, RecordBatch, TimestampType
from barnabas.records.builder import RecordBatchBuilder
from barnabas.records.control import ControlRecordType, EndTransactionMarker, end_transaction_marker_batch
from barnabas.records.reader import read_records
from barnabas.records.validation import AppendOrigin, validate_header, validate_records
from oracles.java import JavaOracle
from unit.records.strategies import RecordInput
from wire.batch_samples import SAMPLES, expected, found, ours, read_by_us, record_lists

pytestmark = pytest.mark.java

CODECS = list(CompressionType)
LEVELS = [
    *[(CompressionType.GZIP, level) for level in (-1, 1, 9)],
    *[(CompressionType.LZ4, level) for level in (1, 2, 3, 8, 9, 10, 17)],
    *[(CompressionType.ZSTD, level) for level in (-131072, -1, 1, 3, 19, 22)],
]


def encoded(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def decoded(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


def specification(records: list[RecordInput], compression: CompressionType, **options: Any) -> dict[str, Any]:
    return {
        "compression": compression.codec_name,
        "level": None,
        "timestampType": "CreateTime",
        "baseOffset": 0,
        "producerId": 4711,
        "producerEpoch": 3,
        "baseSequence": 2**31 - 2,
        "isTransactional": True,
        "records": [
            {
                "timestamp": record.timestamp,
                "key": encoded(record.key),
                "value": encoded(record.value),
                "headers": [[key, encoded(value)] for key, value in record.headers],
            }
            for record in records
        ],
    } | options


def read_by_java(oracle: JavaOracle, data: bytes) -> tuple[dict[str, Any], list[tuple[object, ...]]]:
    (batch,) = oracle.read_batches(data)
    assert batch["error"] is None
    assert batch["valid"] is True
    records: list[tuple[object, ...]] = [
        (
            record["offset"],
            record["timestamp"],
            decoded(record["key"]),
            decoded(record["value"]),
            [(key, decoded(value)) for key, value in record["headers"]],
        )
        for record in batch["records"]
    ]
    return batch, records


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.codec_name)
@pytest.mark.parametrize("name", SAMPLES)
def test_ours_read_by_java(java_oracle: JavaOracle, name: str, codec: CompressionType) -> None:
    records = SAMPLES[name]
    batch, read = read_by_java(java_oracle, ours(records, codec, leader_epoch=9))
    assert read == expected(records)
    assert batch["compression"] == codec.codec_name
    assert batch["timestampType"] == "CreateTime"
    assert (batch["producerId"], batch["producerEpoch"], batch["baseSequence"]) == (4711, 3, 2**31 - 2)
    assert (batch["isTransactional"], batch["isControl"]) == (True, False)
    assert (batch["baseOffset"], batch["lastOffset"]) == (0, len(records) - 1)
    assert batch["partitionLeaderEpoch"] == 9
    assert batch["maxTimestamp"] == max(record.timestamp for record in records)


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.codec_name)
@pytest.mark.parametrize("name", SAMPLES)
def test_theirs_read_by_us(java_oracle: JavaOracle, name: str, codec: CompressionType) -> None:
    records = SAMPLES[name]
    data = java_oracle.write_batch(specification(records, codec))
    batch, read = read_by_us(data)
    assert found(read) == expected(records)
    assert batch.compression_type is codec
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (4711, 3, 2**31 - 2)


@pytest.mark.parametrize(("codec", "level"), LEVELS)
def test_levels_both_ways(java_oracle: JavaOracle, codec: CompressionType, level: int) -> None:
    for name in ("a thousand", "more than a block"):
        records = SAMPLES[name]
        assert read_by_java(java_oracle, ours(records, codec, level))[1] == expected(records)
        data = java_oracle.write_batch(specification(records, codec, level=level))
        assert found(read_by_us(data)[1]) == expected(records)


@pytest.mark.parametrize("name", SAMPLES)
def test_same_bytes_without_compression(java_oracle: JavaOracle, name: str) -> None:
    data = java_oracle.write_batch(specification(SAMPLES[name], CompressionType.NONE))
    assert ours(SAMPLES[name], CompressionType.NONE, leader_epoch=-1).hex() == data.hex()


@given(records=record_lists)
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_same_bytes_for_any_records(java_oracle: JavaOracle, records: list[RecordInput]) -> None:
    data = java_oracle.write_batch(specification(records, CompressionType.NONE))
    assert ours(records, CompressionType.NONE, leader_epoch=-1).hex() == data.hex()
    assert read_by_java(java_oracle, data)[1] == expected(records)


def test_sequences_wrap_like_javas(java_oracle: JavaOracle) -> None:
    data = ours(SAMPLES["timestamps back and forth"], CompressionType.NONE)
    (batch,) = java_oracle.read_batches(data)
    assert batch["lastSequence"] == RecordBatch(data).last_sequence == 2


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.codec_name)
def test_in_place_patches(java_oracle: JavaOracle, codec: CompressionType) -> None:
    data = bytearray(ours(SAMPLES["timestamps back and forth"], codec))
    batch = RecordBatch(data)
    batch.set_base_offset(2**40)
    batch.set_partition_leader_epoch(77)
    batch.set_max_timestamp(TimestampType.LOG_APPEND_TIME, 12345)
    theirs, read = read_by_java(java_oracle, bytes(data))
    assert (theirs["timestampType"], theirs["partitionLeaderEpoch"]) == ("LogAppendTime", 77)
    assert [(record[0], record[1]) for record in read] == [(2**40 + index, 12345) for index in range(5)]


def test_append_time_written_by_java(java_oracle: JavaOracle) -> None:
    spec = specification(
        SAMPLES["timestamps back and forth"], CompressionType.ZSTD, timestampType="LogAppendTime", logAppendTime=777
    )
    batch = RecordBatch(java_oracle.write_batch(spec))
    validate_header(batch, origin=AppendOrigin.REPLICATION)
    validate_records(batch)
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert {record.timestamp for record in read_records(batch)} == {777}


def test_compacted_batches(java_oracle: JavaOracle) -> None:
    builder = RecordBatchBuilder(base_offset=500, delete_horizon_ms=9_000, compression=CompressionType.LZ4)
    builder.append_with_offset(503, 1000, b"a", None)
    builder.append_with_offset(510, 900, b"b", b"x")
    builder.override_last_offset(520)
    batch, read = read_by_java(java_oracle, bytes(builder.close()))
    assert [(record[0], record[1]) for record in read] == [(503, 1000), (510, 900)]
    assert (batch["baseOffset"], batch["lastOffset"], batch["deleteHorizonMs"]) == (500, 520, 9_000)


def test_an_emptied_batch(java_oracle: JavaOracle) -> None:
    builder = RecordBatchBuilder(base_offset=500, producer_id=1, producer_epoch=0, base_sequence=4)
    builder.override_last_offset(520)
    batch, read = read_by_java(java_oracle, bytes(builder.close()))
    assert read == []
    assert (batch["lastOffset"], batch["count"]) == (520, 0)


@pytest.mark.parametrize("control_type", [ControlRecordType.COMMIT, ControlRecordType.ABORT])
def test_transaction_markers_both_ways(java_oracle: JavaOracle, control_type: ControlRecordType) -> None:
    marker = EndTransactionMarker(control_type, 12)
    data = bytes(
        end_transaction_marker_batch(
            marker, producer_id=5, producer_epoch=1, timestamp_ms=99, base_offset=40, partition_leader_epoch=3
        )
    )
    theirs = java_oracle.write_end_txn_marker(
        {
            "controlType": control_type.name,
            "coordinatorEpoch": 12,
            "timestamp": 99,
            "producerId": 5,
            "producerEpoch": 1,
            "baseOffset": 40,
            "partitionLeaderEpoch": 3,
        }
    )
    assert data.hex() == theirs.hex()
    (batch,) = java_oracle.read_batches(data)
    assert batch["isControl"]
    assert batch["records"][0]["controlType"] == control_type.name
    (record,) = read_records(RecordBatch(theirs))
    assert EndTransactionMarker.parse(record) == marker


def test_several_batches_and_a_partial_one(java_oracle: JavaOracle) -> None:
    first, second = ours(SAMPLES["headers"], CompressionType.SNAPPY), ours(SAMPLES["a thousand"], CompressionType.GZIP)
    batches = java_oracle.read_batches(first + second + first[:70], allow_partial=True)
    assert [len(batch["records"]) for batch in batches] == [2, 1000]
