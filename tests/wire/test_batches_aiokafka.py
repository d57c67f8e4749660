"""Record batches against aiokafka: ours read by it, and its read by us, in every codec, compiled and not."""

from __future__ import annotations

from typing import Any

import aiokafka.record.default_records as aiokafka_records
import pytest
from hypothesis import given

from barnabas.records.batch import CompressionType, RecordBatch, TimestampType
from barnabas.records.control import ControlRecordType, EndTransactionMarker, end_transaction_marker_batch
from unit.records.strategies import RecordInput
from wire.batch_samples import SAMPLES, expected, found, ours, read_by_us, record_lists

CODECS = list(CompressionType)


@pytest.fixture(params=["compiled", "python"])
def library(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """Builder and batch of one of aiokafka's two implementations."""
    if request.param == "python":
        return aiokafka_records._DefaultRecordBatchBuilderPy, aiokafka_records._DefaultRecordBatchPy
    compiled = pytest.importorskip("aiokafka.record._crecords.default_records")
    return compiled.DefaultRecordBatchBuilder, compiled.DefaultRecordBatch


def theirs(builder_class: Any, records: list[RecordInput], compression: CompressionType) -> bytes:
    builder = builder_class(2, int(compression), 1, 4711, 3, 2**31 - 2, 1 << 30)
    for offset, record in enumerate(records):
        assert builder.append(offset, record.timestamp, record.key, record.value, list(record.headers)) is not None
    return bytes(builder.build())


def read_by_them(batch_class: Any, data: bytes) -> tuple[Any, list[tuple[object, ...]]]:
    batch = batch_class(data)
    assert batch.validate_crc()
    records: list[tuple[object, ...]] = [
        (record.offset, record.timestamp, record.key, record.value, record.headers) for record in batch
    ]
    return batch, records


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.codec_name)
@pytest.mark.parametrize("name", SAMPLES)
def test_ours_read_by_them(library: tuple[Any, Any], name: str, codec: CompressionType) -> None:
    records = SAMPLES[name]
    batch, read = read_by_them(library[1], ours(records, codec))
    assert read == expected(records)
    assert batch.compression_type == codec
    assert batch.is_transactional
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (4711, 3, 2**31 - 2)
    assert (batch.base_offset, batch.next_offset) == (0, len(records))
    assert batch.max_timestamp == max(record.timestamp for record in records)


@pytest.mark.parametrize(
    ("codec", "level"),
    [
        (CompressionType.GZIP, 1),
        (CompressionType.GZIP, 9),
        (CompressionType.LZ4, 1),
        (CompressionType.LZ4, 17),
        (CompressionType.ZSTD, -131072),
        (CompressionType.ZSTD, 22),
    ],
)
def test_other_levels(library: tuple[Any, Any], codec: CompressionType, level: int) -> None:
    records = SAMPLES["a thousand"]
    assert read_by_them(library[1], ours(records, codec, level))[1] == expected(records)


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.codec_name)
@pytest.mark.parametrize("name", SAMPLES)
def test_theirs_read_by_us(library: tuple[Any, Any], name: str, codec: CompressionType) -> None:
    records = SAMPLES[name]
    batch, read = read_by_us(theirs(library[0], records, codec))
    assert found(read) == expected(records)
    # It sends what does not get smaller as it is.
    assert batch.compression_type in {codec, CompressionType.NONE}
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (4711, 3, 2**31 - 2)


@given(record_lists)
def test_same_bytes_for_any_records(records: list[RecordInput]) -> None:
    # The leader epoch is the broker's to fill in: kafka-python leaves it at 0, aiokafka and Java at -1.
    data = ours(records, CompressionType.NONE, leader_epoch=-1)
    assert data == theirs(aiokafka_records.DefaultRecordBatchBuilder, records, CompressionType.NONE)
    assert read_by_them(aiokafka_records.DefaultRecordBatch, data)[1] == expected(records)


def test_append_time(library: tuple[Any, Any]) -> None:
    data = bytearray(ours(SAMPLES["timestamps back and forth"], CompressionType.LZ4))
    batch = RecordBatch(data)
    batch.set_max_timestamp(TimestampType.LOG_APPEND_TIME, 12345)
    batch.set_base_offset(1000)
    _, read = read_by_them(library[1], bytes(data))
    assert [(record[0], record[1]) for record in read] == [(1000 + index, 12345) for index in range(5)]


def test_transaction_markers(library: tuple[Any, Any]) -> None:
    marker = EndTransactionMarker(ControlRecordType.COMMIT, 12)
    data = end_transaction_marker_batch(marker, producer_id=5, producer_epoch=1, timestamp_ms=99, base_offset=40)
    batch, read = read_by_them(library[1], bytes(data))
    assert batch.is_control_batch
    assert read == [(40, 99, marker.control_type.key(), marker.value(), [])]
