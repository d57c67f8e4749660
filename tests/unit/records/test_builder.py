from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.records.batch import HEADER_SIZE, CompressionType, RecordBatch, TimestampType
from barnabas.records.builder import (
    RecordBatchBuilder,
    estimate_size_in_bytes_upper_bound,
    record_size_in_bytes,
)
from barnabas.records.compression import decompress
from barnabas.records.reader import read_records
from unit.records.strategies import CODECS, RecordInput, record_inputs, timestamps


@given(st.lists(record_inputs, min_size=1, max_size=8))
def test_sizes_are_exact_without_compression(records: list[RecordInput]) -> None:
    builder = RecordBatchBuilder()
    expected = HEADER_SIZE
    for index, record in enumerate(records):
        assert builder.size_in_bytes == expected
        bound = estimate_size_in_bytes_upper_bound(record.key, record.value, record.headers)
        size = record_size_in_bytes(
            index, record.timestamp - records[0].timestamp, record.key, record.value, record.headers
        )
        assert size + HEADER_SIZE <= bound
        assert builder.append(*record) == index
        expected += size
        assert builder.records_size == expected - HEADER_SIZE
    assert len(builder.close()) == builder.size_in_bytes == expected


def test_what_the_builder_keeps_count_of() -> None:
    builder = RecordBatchBuilder(base_offset=50)
    assert (builder.record_count, builder.last_offset_delta, builder.base_timestamp) == (0, -1, -1)
    assert (builder.max_timestamp, builder.offset_delta_of_max_timestamp) == (-1, -1)
    for timestamp in (10, 30, 30, 20):
        builder.append(timestamp, None, None)
    assert (builder.record_count, builder.last_offset_delta, builder.base_timestamp) == (4, 3, 10)
    assert (builder.max_timestamp, builder.offset_delta_of_max_timestamp) == (30, 1)
    assert builder.last_offset == 53
    batch = RecordBatch(builder.close())
    assert (batch.base_timestamp, batch.max_timestamp, batch.last_offset, batch.record_count) == (10, 30, 53, 4)


def test_all_options_reach_the_header() -> None:
    builder = RecordBatchBuilder(
        base_offset=1000,
        compression=CompressionType.GZIP,
        level=9,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        log_append_time=777,
        producer_id=2**40,
        producer_epoch=5,
        base_sequence=6,
        is_transactional=True,
        is_control=True,
        partition_leader_epoch=3,
        delete_horizon_ms=500,
    )
    builder.append(100, b"k", b"v")
    batch = RecordBatch(builder.close())
    assert batch.is_valid()
    assert batch.attributes == 0x01 | 0x08 | 0x10 | 0x20 | 0x40
    assert (batch.base_offset, batch.partition_leader_epoch) == (1000, 3)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (2**40, 5, 6)
    assert (batch.base_timestamp, batch.delete_horizon_ms, batch.max_timestamp) == (500, 500, 777)


def test_append_time_without_a_time_keeps_the_largest_timestamp() -> None:
    builder = RecordBatchBuilder(timestamp_type=TimestampType.LOG_APPEND_TIME)
    builder.append(100, None, b"v")
    assert RecordBatch(builder.close()).max_timestamp == 100


def test_base_timestamp_can_be_given() -> None:
    builder = RecordBatchBuilder(base_timestamp=1000)
    builder.append(990, None, b"v")
    batch = RecordBatch(builder.close())
    assert (batch.base_timestamp, batch.max_timestamp) == (1000, 990)
    assert next(read_records(batch)).timestamp == 990


def test_delete_horizon_is_the_base_timestamp() -> None:
    builder = RecordBatchBuilder(delete_horizon_ms=5000)
    builder.append(1000, b"k", None)
    batch = RecordBatch(builder.close())
    assert (batch.delete_horizon_ms, batch.base_timestamp, batch.max_timestamp) == (5000, 5000, 1000)
    assert next(read_records(batch)).timestamp == 1000
    with pytest.raises(ValueError, match="only one"):
        RecordBatchBuilder(delete_horizon_ms=1, base_timestamp=2)
    with pytest.raises(ValueError, match="delete horizon -1"):
        RecordBatchBuilder(delete_horizon_ms=-1)


def test_gaps_for_compaction() -> None:
    builder = RecordBatchBuilder(base_offset=100)
    assert builder.append_with_offset(103, 1, b"a", b"") == 3
    assert builder.append_with_offset(110, 1, b"b", b"", (("h", None),)) == 10
    with pytest.raises(ValueError, match="offset delta 10 does not follow 10"):
        builder.append_with_offset(110, 1, b"c", b"")
    with pytest.raises(ValueError, match="does not follow"):
        builder.append_with_offset(100 + 2**31, 1, b"c", b"")
    with pytest.raises(ValueError, match="does not follow"):
        builder.append_with_offset(2**70, 1, b"c", b"")
    assert builder.append(1, b"d", b"") == 11
    builder.override_last_offset(120)
    with pytest.raises(ValueError, match="last offset 105"):
        builder.override_last_offset(105)
    batch = RecordBatch(builder.close())
    assert (batch.last_offset, batch.record_count) == (120, 3)
    assert [record.offset for record in read_records(batch)] == [103, 110, 111]
    with pytest.raises(RuntimeError):
        builder.override_last_offset(130)


def test_what_compaction_leaves_of_an_emptied_batch() -> None:
    builder = RecordBatchBuilder(
        base_offset=10, producer_id=7, producer_epoch=1, base_sequence=20, compression=CompressionType.ZSTD
    )
    builder.override_last_offset(14)
    batch = RecordBatch(builder.close())
    assert batch.is_valid()
    assert (batch.size_in_bytes, batch.record_count, batch.last_offset, batch.last_sequence) == (61, 0, 14, 24)
    assert batch.compression_type is CompressionType.NONE
    assert list(read_records(batch)) == []


def test_no_records_no_batch() -> None:
    builder = RecordBatchBuilder()
    assert builder.close() == b""
    assert builder.is_closed
    with pytest.raises(RuntimeError, match="closed"):
        builder.append(1, None, b"v")


def test_closing() -> None:
    builder = RecordBatchBuilder()
    builder.append(1, None, b"v")
    assert (builder.is_open, builder.is_full, builder.is_closed) == (True, False, False)
    builder.close_for_appends()
    assert (builder.is_open, builder.is_full, builder.is_closed) == (False, True, False)
    assert not builder.has_room_for(None, b"")
    assert builder.try_append(1, None, b"v") is None
    with pytest.raises(RuntimeError, match="closed"):
        builder.append(1, None, b"v")
    with pytest.raises(RuntimeError, match="closed"):
        builder.append_with_offset(5, 1, None, b"v")
    # The producer assigns its sequence numbers now, when the batch is about to be sent.
    builder.set_producer_state(3, 0, 17)
    data = builder.close()
    assert builder.close() is data
    assert RecordBatch(data).base_sequence == 17
    with pytest.raises(RuntimeError, match="must not change"):
        builder.set_producer_state(3, 0, 18)
    assert "closed, offsets=0..0, records=1" in repr(builder)


def test_producer_state_is_checked() -> None:
    builder = RecordBatchBuilder(is_transactional=True)
    builder.append(1, None, b"v")
    with pytest.raises(ValueError, match="needs a producer id"):
        builder.close()
    builder.set_producer_state(1, -1, 0)
    with pytest.raises(ValueError, match="invalid epoch -1"):
        builder.close()
    builder.set_producer_state(1, 0, -1)
    with pytest.raises(ValueError, match="invalid sequence number -1"):
        builder.close()
    builder.set_producer_state(1, 0, 0, is_transactional=True)
    assert RecordBatch(builder.close()).is_transactional


# ------------------------------------------------------------------------------------------ room


@given(st.integers(0, 400), st.lists(record_inputs, min_size=1, max_size=6))
def test_room_is_kept_exactly_without_compression(max_size: int, records: list[RecordInput]) -> None:
    builder = RecordBatchBuilder(max_size=max_size)
    for record in records:
        has_room = builder.has_room_for(record.key, record.value, record.headers, record.timestamp)
        surely_has_room = builder.has_room_for(record.key, record.value, record.headers)
        assert has_room or not surely_has_room
        was_empty = builder.record_count == 0
        delta = builder.try_append(*record)
        assert (delta is not None) == has_room
        assert delta is None or was_empty or builder.size_in_bytes <= max_size
        if delta is None:
            builder.append(*record)
            assert builder.size_in_bytes > max_size
            break


def test_the_first_record_always_fits() -> None:
    builder = RecordBatchBuilder(max_size=0)
    assert (builder.is_full, builder.has_room_for(None, b"v" * 1000)) == (False, True)
    assert builder.try_append(1, None, b"v" * 1000) == 0
    assert (builder.is_full, builder.has_room_for(None, b"")) == (True, False)
    assert builder.try_append(1, None, b"") is None
    assert len(builder.close()) > 1000


def test_compression_makes_room() -> None:
    def appended(ratio: float, compression: CompressionType) -> int:
        builder = RecordBatchBuilder(max_size=4096, compression=compression)
        builder.estimated_compression_ratio = ratio
        assert builder.estimated_compression_ratio == ratio
        while builder.try_append(1, None, b"v" * 100) is not None:
            pass
        return builder.record_count

    uncompressed = appended(1.0, CompressionType.NONE)
    assert appended(0.1, CompressionType.NONE) == uncompressed
    # Expecting no gain, and five per cent more to be careful.
    assert uncompressed * 0.9 < appended(1.0, CompressionType.LZ4) < uncompressed
    assert appended(0.25, CompressionType.LZ4) > 3 * uncompressed


@pytest.mark.parametrize("codec", CODECS)
def test_the_real_ratio_is_known_after_closing(codec: CompressionType) -> None:
    builder = RecordBatchBuilder(compression=codec)
    for _ in range(50):
        builder.append(1, b"key", b"value" * 20)
    size = builder.records_size
    assert builder.compression_ratio == 1.0
    data = builder.close()
    assert builder.compression_ratio == (len(data) - HEADER_SIZE) / size < 0.5
    assert builder.size_in_bytes == len(data)
    assert len(decompress(codec, RecordBatch(data).records_view, size)) == size


# ------------------------------------------------------------------------------------------ arguments


def test_a_bad_argument_changes_nothing() -> None:
    builder = RecordBatchBuilder()
    builder.append(5, b"k", b"v")
    before = (builder.size_in_bytes, builder.record_count, builder.base_timestamp, builder.max_timestamp)
    bad: list[tuple[object, ...]] = [
        (-2, None, None),
        (2**63, None, None),
        (-(2**70), None, None),
        ("now", None, None),
        (None, None, None),
        (1, "text", None),
        (1, None, "text"),
        (1, None, 7),
        (9, b"k", b"v", [("h", "text")]),
        (9, b"k", b"v", [(None, b"x")]),
        (9, b"k", b"v", [(b"h", b"x")]),
        (9, b"k", b"v", [("h",)]),
        (9, b"k", b"v", [("\ud800", b"x")]),
    ]
    for arguments in bad:
        with pytest.raises((TypeError, ValueError)):
            builder.append(*arguments)  # type: ignore[arg-type]
        assert (builder.size_in_bytes, builder.record_count, builder.base_timestamp, builder.max_timestamp) == before
    assert [record.value for record in read_records(RecordBatch(builder.close()))] == [b"v"]


def test_a_bad_first_record_does_not_set_the_base_timestamp() -> None:
    builder = RecordBatchBuilder()
    with pytest.raises(TypeError):
        builder.append(5, None, "text")  # type: ignore[arg-type]
    builder.append(9, None, b"v")
    assert builder.base_timestamp == 9


def test_anything_bytes_like_is_copied_at_once() -> None:
    builder = RecordBatchBuilder()
    mutable = bytearray(b"before")
    builder.append(1, mutable, memoryview(mutable), [("h", mutable)])
    mutable[:] = b"after!"
    builder.append(1, memoryview(b"abcdef")[::2], bytearray())
    first, second = read_records(RecordBatch(builder.close()))
    assert (first.key, first.value, first.headers) == (b"before", b"before", (("h", b"before"),))
    assert (second.key, second.value) == (b"ace", b"")


@given(timestamps, timestamps, timestamps)
def test_any_timestamps_survive(first: int, second: int, third: int) -> None:
    builder = RecordBatchBuilder()
    for timestamp in (first, second, third):
        builder.append(timestamp, None, None)
    batch = RecordBatch(builder.close())
    assert [record.timestamp for record in read_records(batch)] == [first, second, third]
    assert batch.max_timestamp == max(first, second, third)


def test_the_one_distance_between_timestamps_that_cannot_be_written() -> None:
    builder = RecordBatchBuilder()
    builder.append(-1, None, None)
    with pytest.raises(ValueError, match="too far from the base timestamp -1"):
        builder.append(2**63 - 1, None, None)
    builder.append(2**63 - 2, None, None)
    assert [record.timestamp for record in read_records(RecordBatch(builder.close()))] == [-1, 2**63 - 2]


def test_timestamps_at_the_end_of_their_range() -> None:
    builder = RecordBatchBuilder()
    builder.append(2**63 - 5, None, b"v")
    builder.append(2**63 - 1, None, b"v")
    with pytest.raises(ValueError, match=f"invalid timestamp {2**63}"):
        builder.append(2**63, None, b"v")
    assert builder.record_count == 2


def test_growing_far_beyond_the_first_buffer() -> None:
    builder = RecordBatchBuilder(max_size=100)
    values = [bytes([index]) * (index * 300) for index in range(100)]
    for value in values:
        builder.append(1, None, value)
    assert [record.value for record in read_records(RecordBatch(builder.close()))] == values


@pytest.mark.parametrize(
    ("codec", "level"), [("gzip", 0), ("gzip", 10), ("lz4", 0), ("lz4", 18), ("zstd", 23), ("zstd", -131073)]
)
def test_levels_are_checked_at_once(codec: str, level: int) -> None:
    with pytest.raises(ValueError, match=f"{codec} level {level} is not between"):
        RecordBatchBuilder(compression=CompressionType.for_name(codec), level=level)


@pytest.mark.parametrize("codec", ["none", "snappy"])
def test_codecs_without_levels(codec: str) -> None:
    with pytest.raises(ValueError, match=f"{codec} has no compression levels"):
        RecordBatchBuilder(compression=CompressionType.for_name(codec), level=1)
