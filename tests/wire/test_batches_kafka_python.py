"""Record batches against kafka-python: ours read by it, and its read by us, in every codec it has."""

from __future__ import annotations

import pytest
from hypothesis import given
from kafka import codec as kafka_codec
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords

from barnabas.records.batch import CompressionType
from barnabas.records.control import ControlRecordType, EndTransactionMarker, end_transaction_marker_batch
from unit.records.strategies import RecordInput
from wire.batch_samples import SAMPLES, expected, found, ours, read_by_us, record_lists

# kafka-python brings no codecs of its own but gzip.
_PACKAGES = {"snappy": "python-snappy", "lz4": "lz4", "zstd": "zstandard"}


def theirs(records: list[RecordInput], compression: CompressionType) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(compression),
        is_transactional=True,
        producer_id=4711,
        producer_epoch=3,
        base_sequence=2**31 - 2,
        batch_size=1 << 30,
    )
    for offset, record in enumerate(records):
        assert builder.append(offset, record.timestamp, record.key, record.value, list(record.headers)) is not None
    return bytes(builder.build())


def read_by_them(data: bytes) -> tuple[DefaultRecordBatch, list[tuple[object, ...]]]:
    batch = DefaultRecordBatch(data)
    assert batch.validate_crc()
    records: list[tuple[object, ...]] = [
        (record.offset, record.timestamp, record.key, record.value, record.headers) for record in batch
    ]
    return batch, records


@pytest.fixture(params=list(CompressionType), ids=lambda codec: codec.codec_name)
def codec(request: pytest.FixtureRequest) -> CompressionType:
    compression: CompressionType = request.param
    name = compression.codec_name
    if compression is not CompressionType.NONE and not getattr(kafka_codec, f"has_{name}")():
        pytest.skip(f"kafka-python needs the package {_PACKAGES[name]} for {name}")
    return compression


@pytest.mark.parametrize("name", SAMPLES)
def test_ours_read_by_them(name: str, codec: CompressionType) -> None:
    records = SAMPLES[name]
    batch, read = read_by_them(ours(records, codec))
    assert read == expected(records)
    assert batch.compression_type == codec
    assert batch.is_transactional
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (4711, 3, 2**31 - 2)
    assert (batch.base_offset, batch.last_offset, batch.records_count) == (0, len(records) - 1, len(records))
    assert batch.max_timestamp == max(record.timestamp for record in records)


@pytest.mark.parametrize("name", SAMPLES)
def test_theirs_read_by_us(name: str, codec: CompressionType) -> None:
    records = SAMPLES[name]
    batch, read = read_by_us(theirs(records, codec))
    assert found(read) == expected(records)
    # It sends what does not get smaller as it is.
    assert batch.compression_type in {codec, CompressionType.NONE}
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (4711, 3, 2**31 - 2)


@pytest.mark.parametrize("name", SAMPLES)
def test_same_bytes_without_compression(name: str) -> None:
    assert ours(SAMPLES[name], CompressionType.NONE) == theirs(SAMPLES[name], CompressionType.NONE)


@given(record_lists)
def test_same_bytes_for_any_records(records: list[RecordInput]) -> None:
    data = ours(records, CompressionType.NONE)
    assert data == theirs(records, CompressionType.NONE)
    assert read_by_them(data)[1] == expected(records)


def test_several_batches_in_a_fetch_response() -> None:
    first, second = ours(SAMPLES["headers"], CompressionType.NONE), ours(SAMPLES["a thousand"], CompressionType.GZIP)
    batches = MemoryRecords(first + second + first[:50])
    sizes = []
    while (batch := batches.next_batch()) is not None:
        sizes.append(len(list(batch)))
    assert sizes == [2, 1000]


@pytest.mark.parametrize("control_type", [ControlRecordType.COMMIT, ControlRecordType.ABORT])
def test_transaction_markers(control_type: ControlRecordType) -> None:
    marker = EndTransactionMarker(control_type, 12)
    batch = DefaultRecordBatch(
        end_transaction_marker_batch(marker, producer_id=5, producer_epoch=1, timestamp_ms=99, base_offset=40)
    )
    assert batch.validate_crc()
    assert batch.is_control_batch
    (record,) = batch
    assert (record.offset, record.version) == (40, 0)
    assert record.commit is (control_type is ControlRecordType.COMMIT)
    assert record.abort is (control_type is ControlRecordType.ABORT)
