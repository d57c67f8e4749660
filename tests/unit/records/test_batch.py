from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.common.errors import CorruptRecordError, InvalidRecordError, UnsupportedCompressionTypeError
from barnabas.records.batch import (
    HEADER,
    HEADER_SIZE,
    CompressionType,
    RecordBatch,
    TimestampType,
    decrement_sequence,
    increment_sequence,
    iter_batches,
)
from barnabas.records.builder import RecordBatchBuilder
from barnabas.records.reader import Record, read_records

# Written down by hand from the layout of the format, so that a mistake shared by builder and reader shows.
GOLDEN = bytes.fromhex(
    "0000000000000064"  # base offset 100
    "00000042"  # length: 78 - 12
    "00000007"  # partition leader epoch
    "02"  # magic
    "4ce5b39c"  # crc
    "0010"  # attributes: transactional
    "00000001"  # last offset delta
    "00000000000003e8"  # base timestamp 1000
    "00000000000003e9"  # max timestamp 1001
    "0000000000000009"  # producer id
    "0003"  # producer epoch
    "0000000b"  # base sequence
    "00000002"  # record count
    # length 8, attributes, timestamp delta 0, offset delta 0, key of 1, value of 1, no headers
    "10 00 00 00 02 6b 02 76 00"
    # length 7, attributes, timestamp delta 1, offset delta 1, no key, value of 1, no headers
    "0e 00 02 02 01 02 77 00"
)


def small_batch(**options: object) -> bytearray:
    builder = RecordBatchBuilder(**options)  # type: ignore[arg-type]
    builder.append(1000, b"k", b"v")
    builder.append(1001, None, b"w")
    return builder.close()


def test_header_layout() -> None:
    assert HEADER.size == HEADER_SIZE == 61


def test_golden_batch() -> None:
    options = {"base_offset": 100, "partition_leader_epoch": 7, "is_transactional": True}
    assert small_batch(producer_id=9, producer_epoch=3, base_sequence=11, **options).hex() == GOLDEN.hex()
    batch = RecordBatch(GOLDEN)
    assert batch.is_valid()
    assert list(read_records(batch)) == [Record(100, 1000, b"k", b"v", (), 9), Record(101, 1001, None, b"w", (), 8)]


def test_every_header_field() -> None:
    data = bytearray(HEADER_SIZE)
    HEADER.pack_into(data, 0, 100, 49, 7, 2, 0xDEADBEEF, 0x7F & ~7 | 4, 5, 1000, 2000, 9, 3, 11, 6)
    batch = RecordBatch(data)
    assert batch.base_offset == 100
    assert batch.batch_length == 49
    assert batch.size_in_bytes == len(batch) == 61
    assert batch.partition_leader_epoch == 7
    assert batch.magic == 2
    assert batch.crc == 0xDEADBEEF
    assert batch.attributes == 0x7C
    assert batch.compression_type is CompressionType.ZSTD
    assert batch.is_compressed
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert batch.is_transactional
    assert batch.is_control_batch
    assert batch.delete_horizon_ms == 1000
    assert batch.last_offset_delta == 5
    assert batch.last_offset == 105
    assert batch.next_offset == 106
    assert batch.base_timestamp == 1000
    assert batch.max_timestamp == 2000
    assert batch.producer_id == 9
    assert batch.has_producer_id
    assert batch.producer_epoch == 3
    assert batch.base_sequence == 11
    assert batch.last_sequence == 16
    assert batch.record_count == 6
    assert len(batch.records_view) == 0
    assert not batch.is_valid()


def test_flags_that_are_not_set() -> None:
    batch = RecordBatch(small_batch())
    assert batch.compression_type is CompressionType.NONE
    assert not batch.is_compressed
    assert batch.timestamp_type is TimestampType.CREATE_TIME
    assert not batch.is_transactional
    assert not batch.is_control_batch
    assert batch.delete_horizon_ms is None
    assert not batch.has_producer_id
    assert batch.last_sequence == -1


def test_a_view_copies_nothing() -> None:
    data = small_batch()
    batch = RecordBatch(b"junk" + data, 4)
    assert batch.records_view.obj is batch.view.obj
    whole = bytearray(b"junk" + data)
    batch = RecordBatch(whole, 4)
    whole[4 + HEADER_SIZE] ^= 0xFF
    assert not batch.is_valid()


def test_in_place_patches_leave_the_checksum_right() -> None:
    data = small_batch()
    batch = RecordBatch(data)
    batch.set_base_offset(5000)
    batch.set_partition_leader_epoch(12)
    assert batch.is_valid()
    again = RecordBatch(data)
    assert (again.base_offset, again.partition_leader_epoch, again.last_offset) == (5000, 12, 5001)
    assert batch == again
    batch.place(2**40 + 7, 13)
    assert (RecordBatch(data).base_offset, RecordBatch(data).partition_leader_epoch) == (2**40 + 7, 13)
    assert (batch.base_offset, batch.partition_leader_epoch) == (2**40 + 7, 13)


def test_append_time_patch_changes_the_checksum() -> None:
    data = small_batch()
    batch = RecordBatch(data)
    crc = batch.crc
    batch.set_max_timestamp(TimestampType.LOG_APPEND_TIME, 77_000)
    assert batch.crc != crc
    assert batch.is_valid()
    again = RecordBatch(data)
    assert again.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert again.max_timestamp == batch.max_timestamp == 77_000
    batch.set_max_timestamp(TimestampType.CREATE_TIME, 1001)
    assert batch.crc == crc
    # Nothing to change, nothing written: this works on read-only bytes too.
    RecordBatch(bytes(data)).set_max_timestamp(TimestampType.CREATE_TIME, 1001)


def test_patching_read_only_bytes_is_refused() -> None:
    batch = RecordBatch(bytes(small_batch()))
    with pytest.raises(TypeError):
        batch.set_base_offset(1)
    assert batch.base_offset == 0


def test_ensure_valid_says_which_checksums() -> None:
    data = small_batch()
    data[-1] ^= 1
    with pytest.raises(CorruptRecordError, match="offset 0 is corrupt: its checksum is 0x"):
        RecordBatch(data).ensure_valid()


def test_unknown_compression() -> None:
    data = small_batch()
    data[22] |= 5
    batch = RecordBatch(data)
    with pytest.raises(UnsupportedCompressionTypeError, match="unknown compression type 5"):
        _ = batch.compression_type
    assert "unknown 5" in repr(batch)


def test_repr_tells_what_matters() -> None:
    batch = RecordBatch(small_batch(producer_id=4, producer_epoch=2, base_sequence=8, is_transactional=True))
    assert repr(batch) == (
        f"RecordBatch(offsets=0..1, records=2, size={len(batch)}, epoch=-1, compression=none, CreateTime=1001, "
        "producer=4:2, sequences=8..9, transactional)"
    )


def test_equality_is_that_of_the_bytes() -> None:
    assert RecordBatch(small_batch()) == RecordBatch(bytes(small_batch()))
    assert RecordBatch(small_batch()) != RecordBatch(small_batch(base_offset=1))
    assert RecordBatch(small_batch()) != small_batch()


def test_names() -> None:
    assert [codec.codec_name for codec in CompressionType] == ["none", "gzip", "snappy", "lz4", "zstd"]
    assert CompressionType.for_name("lz4") is CompressionType.LZ4
    with pytest.raises(ValueError, match="'brotli'"):
        CompressionType.for_name("brotli")
    assert TimestampType.for_name("LogAppendTime") is TimestampType.LOG_APPEND_TIME
    assert TimestampType.for_name("CreateTime").kafka_name == "CreateTime"
    with pytest.raises(ValueError, match="'Never'"):
        TimestampType.for_name("Never")


@given(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1))
def test_sequences_wrap_to_zero(sequence: int, increment: int) -> None:
    result = increment_sequence(sequence, increment)
    assert 0 <= result < 2**31
    assert decrement_sequence(result, increment) == sequence


def test_last_sequence_wraps() -> None:
    batch = RecordBatch(small_batch(producer_id=1, producer_epoch=0, base_sequence=2**31 - 1))
    assert batch.last_sequence == 0
    assert increment_sequence(2**31 - 1, 1) == 0
    assert decrement_sequence(0, 1) == 2**31 - 1


# ------------------------------------------------------------------------------------------ several batches


def test_batches_one_after_the_other() -> None:
    data = small_batch() + small_batch(base_offset=2) + small_batch(base_offset=4)
    assert [batch.base_offset for batch in iter_batches(data)] == [0, 2, 4]
    assert [batch.base_offset for batch in iter_batches(data, offset=len(small_batch()))] == [2, 4]
    assert list(iter_batches(b"")) == []


@pytest.mark.parametrize("missing", [1, 5, 20, 40, 60, 70])
def test_a_partial_batch_at_the_end(missing: int) -> None:
    data = bytes(small_batch() + small_batch(base_offset=2))[:-missing]
    assert [batch.base_offset for batch in iter_batches(data, allow_partial=True)] == [0]
    batches = iter_batches(data)
    next(batches)
    with pytest.raises(CorruptRecordError, match=r"cut off: only \d+ bytes"):
        next(batches)


def test_every_cut_is_partial_and_nothing_else() -> None:
    whole = bytes(small_batch())
    for size in range(len(whole)):
        assert list(iter_batches(whole[:size], allow_partial=True)) == []
        with pytest.raises(CorruptRecordError, match="cut off"):
            RecordBatch(whole[:size])


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 13])
def test_impossible_lengths_are_damage_even_where_partial_batches_are_allowed(length: int) -> None:
    data = small_batch()
    struct.pack_into(">i", data, 8, length)
    with pytest.raises(CorruptRecordError, match=f"impossible length of {length}"):
        list(iter_batches(data, allow_partial=True))


def test_a_length_shorter_than_the_header() -> None:
    data = small_batch()
    struct.pack_into(">i", data, 8, 48)
    with pytest.raises(CorruptRecordError, match="60 bytes, which is less than its header"):
        RecordBatch(data)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_recognised_and_refused(magic: int) -> None:
    data = small_batch()
    data[16] = magic
    with pytest.raises(InvalidRecordError, match=f"message format {magic}; only 2"):
        RecordBatch(data)
    with pytest.raises(InvalidRecordError, match="message format"):
        list(iter_batches(data, allow_partial=True))


@pytest.mark.parametrize("magic", [3, 0x7F, 0xFF])
def test_unknown_formats_are_damage(magic: int) -> None:
    data = small_batch()
    data[16] = magic
    with pytest.raises(CorruptRecordError, match=f"unknown magic {magic}"):
        RecordBatch(data)
