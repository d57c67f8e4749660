from __future__ import annotations

import pickle
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.common.errors import CorruptRecordError
from barnabas.records.batch import HEADER_SIZE, CompressionType, RecordBatch, TimestampType
from barnabas.records.builder import RecordBatchBuilder
from barnabas.records.reader import Record, read_records
from unit.records.strategies import CODECS, RecordInput, build, record_inputs, with_section

LEVELS = [
    *[(CompressionType.GZIP, level) for level in (None, -1, 1, 9)],
    *[(CompressionType.LZ4, level) for level in (None, 1, 2, 3, 9, 12, 17)],
    *[(CompressionType.ZSTD, level) for level in (None, -131072, -1, 0, 1, 3, 22)],
    (CompressionType.SNAPPY, None),
    (CompressionType.NONE, None),
]


def as_input(record: Record) -> RecordInput:
    assert not isinstance(record.key, memoryview)
    assert not isinstance(record.value, memoryview)
    headers = tuple((key, None if value is None else bytes(value)) for key, value in record.headers)
    return RecordInput(record.timestamp, record.key, record.value, headers)


@given(st.lists(record_inputs, min_size=1, max_size=10), st.sampled_from(LEVELS), st.integers(0, 2**62))
def test_round_trip(
    records: list[RecordInput], codec_and_level: tuple[CompressionType, int | None], base_offset: int
) -> None:
    codec, level = codec_and_level
    builder = RecordBatchBuilder(base_offset=base_offset, compression=codec, level=level)
    for record in records:
        builder.append(*record)
    records_size = builder.records_size
    batch = RecordBatch(builder.close())
    assert batch.is_valid()
    assert batch.compression_type is codec
    result = list(read_records(batch, max_decompressed_bytes=records_size))
    assert [as_input(record) for record in result] == records
    assert [record.offset for record in result] == list(range(base_offset, base_offset + len(records)))
    assert sum(record.size_in_bytes for record in result) == records_size


@given(st.lists(record_inputs, min_size=1, max_size=5), st.sampled_from(list(CompressionType)))
def test_views_instead_of_copies(records: list[RecordInput], codec: CompressionType) -> None:
    batch = RecordBatch(build(records, codec))
    for record, expected in zip(read_records(batch, copy=False), records, strict=True):
        for field, wanted in [(record.key, expected.key), (record.value, expected.value)]:
            assert field == wanted
            assert field is None or isinstance(field, memoryview)
            if isinstance(field, memoryview) and codec is CompressionType.NONE:
                assert field.obj is batch.view.obj
        assert [key for key, _ in record.headers] == [key for key, _ in expected.headers]
        assert [value for _, value in record.headers] == [value for _, value in expected.headers]


def test_reading_is_lazy() -> None:
    good = build([RecordInput(1, None, b"one"), RecordInput(2, None, b"two")])
    section = bytearray(good[HEADER_SIZE:])
    section[len(section) // 2] = 0xFF  # the length of the second record
    records = read_records(RecordBatch(with_section(good, bytes(section))))
    assert next(records).value == b"one"
    with pytest.raises(CorruptRecordError, match="record 1 at byte 10"):
        next(records)
    assert list(records) == []


def test_append_time_is_the_time_of_every_record() -> None:
    data = bytearray(build([RecordInput(1, None, b"a"), RecordInput(2**60, None, b"b")]))
    batch = RecordBatch(data)
    batch.set_max_timestamp(TimestampType.LOG_APPEND_TIME, 42)
    assert [record.timestamp for record in read_records(batch)] == [42, 42]


def test_bytes_after_the_last_record_are_noticed_before_it_is_handed_out() -> None:
    good = build([RecordInput(1, None, b"one"), RecordInput(2, None, b"two")])
    records = read_records(RecordBatch(with_section(good, good[HEADER_SIZE:] + b"!")))
    next(records)
    with pytest.raises(CorruptRecordError, match="record 1 at byte 10 is the last one, but 1 bytes are left"):
        next(records)


def test_fewer_records_than_claimed() -> None:
    data = bytearray(build([RecordInput(1, None, b"one")]))
    struct.pack_into(">i", data, 57, 3)
    with pytest.raises(CorruptRecordError, match="record 1 at byte 10 runs past the end"):
        list(read_records(RecordBatch(data)))


@pytest.mark.parametrize("codec", list(CompressionType))
def test_counts_that_cannot_be(codec: CompressionType) -> None:
    data = bytearray(build([RecordInput(1, None, b"one")], codec))
    struct.pack_into(">i", data, 57, -1)
    with pytest.raises(CorruptRecordError, match="claims -1 records"):
        read_records(RecordBatch(data))
    struct.pack_into(">i", data, 57, 0)
    with pytest.raises(CorruptRecordError, match="claims no records, but has"):
        read_records(RecordBatch(data))


@pytest.mark.parametrize("base_offset", [-1, -(2**63), 2**63 - 1])
def test_base_offsets_that_leave_no_room(base_offset: int) -> None:
    data = bytearray(build([RecordInput(1, None, b"one")]))
    struct.pack_into(">q", data, 0, base_offset)
    with pytest.raises(CorruptRecordError, match=f"base offset {base_offset}"):
        read_records(RecordBatch(data))


def test_timestamps_beyond_64_bits() -> None:
    data = bytearray(build([RecordInput(1, None, b"a"), RecordInput(2, None, b"b")]))
    struct.pack_into(">q", data, 27, 2**63 - 1)
    records = read_records(RecordBatch(data))
    assert next(records).timestamp == 2**63 - 1
    with pytest.raises(CorruptRecordError, match="timestamp beyond 64 bits"):
        next(records)


@pytest.mark.parametrize("codec", CODECS)
def test_decompression_is_bounded(codec: CompressionType) -> None:
    batch = RecordBatch(build([RecordInput(1, None, bytes(1_000_000))], codec))
    assert batch.size_in_bytes < 60_000
    with pytest.raises(CorruptRecordError, match=f"{codec.codec_name}:"):
        read_records(batch, max_decompressed_bytes=999_999)


def test_header_keys_that_are_not_utf8_survive() -> None:
    good = build([RecordInput(1, None, b"v", (("key", b"x"),))])
    batch = RecordBatch(with_section(good, good[HEADER_SIZE:].replace(b"key", b"k\xffy")))
    (record,) = read_records(batch)
    ((key, value),) = record.headers
    assert key.encode("utf-8", "surrogateescape") == b"k\xffy"
    assert value == b"x"
    again = RecordBatchBuilder()
    again.append(1, None, b"v", record.headers)
    assert RecordBatch(again.close()).records_view == batch.records_view


def test_records_as_values() -> None:
    record = Record(5, 6, b"k", None, (("h", b"x"),), 12)
    assert record == Record(5, 6, b"k", None, (("h", b"x"),), 12)
    assert record != Record(5, 7, b"k", None, (("h", b"x"),), 12)
    assert record != (5, 6)  # type: ignore[comparison-overlap]
    assert hash(record) == hash(Record(5, 6, b"k", None, (("h", b"x"),), 12))
    assert pickle.loads(pickle.dumps(record)) == record
    assert repr(record) == (
        "Record(offset=5, timestamp=6, key=b'k', value=None, headers=(('h', b'x'),), size_in_bytes=12)"
    )
    assert Record(1, 2, None, None).headers == ()
    with pytest.raises(AttributeError):
        record.anything = 1  # type: ignore[attr-defined]
