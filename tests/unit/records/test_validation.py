from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas._kernels.varint import encode_varint
from barnabas.common.errors import CorruptRecordError, InvalidRecordError, UnsupportedCompressionTypeError
from barnabas.records.batch import HEADER_SIZE, CompressionType, RecordBatch, TimestampType
from barnabas.records.builder import RecordBatchBuilder
from barnabas.records.compression import compress
from barnabas.records.control import ControlRecordType, EndTransactionMarker, end_transaction_marker_batch
from barnabas.records.validation import AppendOrigin, RecordsSummary, validate_header, validate_records
from unit.records.strategies import CODECS, RecordInput, build, record_inputs, with_crc, with_section

BROKER_ORIGINS = [origin for origin in AppendOrigin if origin is not AppendOrigin.CLIENT]


def produced(**options: object) -> bytes:
    builder = RecordBatchBuilder(**options)  # type: ignore[arg-type]
    builder.append(1000, b"k", b"v")
    builder.append(1005, None, b"w")
    return bytes(builder.close())


def patched(batch: bytes, *fields: tuple[str, int, int]) -> RecordBatch:
    """The batch with header fields overwritten (format, position, value) and a checksum that fits."""
    data = bytearray(batch)
    for form, position, value in fields:
        struct.pack_into(">" + form, data, position, value)
    return RecordBatch(with_crc(data))


def base_offset(value: int) -> tuple[str, int, int]:
    return ("q", 0, value)


def attributes(value: int) -> tuple[str, int, int]:
    return ("h", 21, value)


def last_offset_delta(value: int) -> tuple[str, int, int]:
    return ("i", 23, value)


def count(value: int) -> tuple[str, int, int]:
    return ("i", 57, value)


# ------------------------------------------------------------------------------------------ the header


@given(st.lists(record_inputs, min_size=1, max_size=5), st.sampled_from(list(CompressionType)))
def test_what_the_builder_makes_is_valid(records: list[RecordInput], codec: CompressionType) -> None:
    batch = RecordBatch(build(records, codec))
    for origin in AppendOrigin:
        validate_header(batch, origin=origin)
    summary = validate_records(batch)
    timestamps = [record.timestamp for record in records]
    keyless = [index for index, record in enumerate(records) if record.key is None]
    assert summary == RecordsSummary(
        record_count=len(records),
        records_size=len(build(records)) - HEADER_SIZE,
        min_timestamp=min(timestamps),
        max_timestamp=max(timestamps),
        offset_of_max_timestamp=timestamps.index(max(timestamps)),
        first_record_without_key=keyless[0] if keyless else -1,
    )


def test_every_damaged_byte_is_found_by_the_checksum() -> None:
    good = produced()
    for position in range(17, len(good)):
        data = bytearray(good)
        data[position] ^= 0x40
        with pytest.raises(CorruptRecordError, match="is corrupt: its checksum is"):
            validate_header(RecordBatch(data))


def test_the_checksum_can_be_left_to_somebody_else() -> None:
    data = bytearray(produced())
    data[17] ^= 1
    validate_header(RecordBatch(data), check_crc=False)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (last_offset_delta(-1), r"invalid offset range 0\.\.-1"),
        (count(-1), "claims -1 records"),
        (count(3), "claims 3 records in an offset range of 2"),
        (("q", 27, -2), r"invalid timestamp \(base -2, largest 1005\)"),
        (("q", 35, -2), r"invalid timestamp \(base 1000, largest -2\)"),
        (base_offset(-1), "below 0"),
        (base_offset(2**63 - 1), "beyond 64 bits"),
        (attributes(0x10), "is transactional, but has no producer id"),
        (("q", 43, 5), "from producer 5 with the invalid epoch -1"),
    ],
)
@pytest.mark.parametrize("origin", list(AppendOrigin))
def test_what_no_batch_may_be(field: tuple[str, int, int], message: str, origin: AppendOrigin) -> None:
    with pytest.raises(InvalidRecordError, match=message):
        validate_header(patched(produced(), field), origin=origin)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_compression(codec: int) -> None:
    with pytest.raises(UnsupportedCompressionTypeError, match=f"unknown compression type {codec}"):
        validate_header(patched(produced(), attributes(codec)))


def test_producers_need_a_sequence_number() -> None:
    good = produced(producer_id=5, producer_epoch=0, base_sequence=0)
    validate_header(RecordBatch(good))
    with pytest.raises(InvalidRecordError, match="invalid sequence number -1"):
        validate_header(patched(good, ("i", 53, -1)))
    # Markers are written in the producer's name, but not by it.
    validate_header(patched(good, ("i", 53, -1), attributes(0x30)), origin=AppendOrigin.COORDINATOR)


def test_markers_come_from_the_coordinator_only() -> None:
    marker = EndTransactionMarker(ControlRecordType.COMMIT, 3)
    batch = RecordBatch(end_transaction_marker_batch(marker, producer_id=5, producer_epoch=0, timestamp_ms=1))
    for origin in BROKER_ORIGINS:
        validate_header(batch, origin=origin)
    with pytest.raises(InvalidRecordError, match="clients are not allowed to write"):
        validate_header(batch)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([base_offset(7)], "offset 7 comes from a client, which must leave the base offset at 0"),
        ([attributes(0x20)], "control batch"),
        ([count(0)], "has no records"),
        ([last_offset_delta(2)], "claims 2 records in an offset range of 3"),
        ([count(1)], "claims 1 records in an offset range of 2"),
    ],
)
def test_what_only_the_broker_may_write(fields: list[tuple[str, int, int]], message: str) -> None:
    batch = patched(produced(), *fields)
    with pytest.raises(InvalidRecordError, match=message):
        validate_header(batch)
    for origin in BROKER_ORIGINS:
        validate_header(batch, origin=origin)


def test_an_error_that_may_be_retried_and_one_that_may_not() -> None:
    assert CorruptRecordError.retriable
    assert CorruptRecordError.code == 2
    assert not InvalidRecordError.retriable
    assert InvalidRecordError.code == 87


# ------------------------------------------------------------------------------------------ the records


def two_records(section: bytes, codec: CompressionType = CompressionType.NONE) -> RecordBatch:
    return patched(with_section(produced(), bytes(compress(codec, section))), attributes(codec))


def one(offset_delta: int = 0, timestamp_delta: int = 0, tail: bytes = b"\x01\x01\0") -> bytes:
    body = b"\0" + encode_varint(timestamp_delta) + encode_varint(offset_delta) + tail
    return encode_varint(len(body)) + body


@pytest.mark.parametrize("codec", [CompressionType.NONE, *CODECS])
@pytest.mark.parametrize(
    ("section", "message"),
    [
        (one(0) + one(0), "record 1 at byte 7 has offset delta 0, which is not the next one"),
        (one(1) + one(2), "record 0 at byte 0 has offset delta 1"),
        (one(0), "record 1 at byte 7 runs past the end"),
        (one(0) + one(1) + b"?", "1 bytes are left after it"),
        (one(0) + one(1) + one(2), "7 bytes are left after it"),
        (one(0) + b"\xff\xff\xff\xff\xff\x01", "varint that is longer"),
        (one(0) + one(1, tail=b"\x01\x01\x02\x01\x01"), "header without a key"),
        (one(0) + one(1, timestamp_delta=-1002), "a record with the invalid timestamp -2"),
        (one(0, 5) + one(1, 6), "its largest timestamp is 1005, but it is 1006"),
        (one(0) + one(1), "its largest timestamp is 1005, but it is 1000"),
    ],
)
def test_wrong_records_in_an_intact_batch(section: bytes, message: str, codec: CompressionType) -> None:
    batch = two_records(section, codec)
    validate_header(batch)
    with pytest.raises(InvalidRecordError, match=message) as caught:
        validate_records(batch)
    assert str(caught.value).startswith("the record batch at offset 0")


def test_the_broker_may_correct_the_largest_timestamp() -> None:
    batch = two_records(one(0, 5) + one(1, 6))
    summary = validate_records(batch, check_max_timestamp=False)
    assert (summary.min_timestamp, summary.max_timestamp, summary.offset_of_max_timestamp) == (1005, 1006, 1)
    writable = RecordBatch(bytearray(batch.view))
    writable.set_max_timestamp(TimestampType.CREATE_TIME, summary.max_timestamp)
    validate_header(writable)
    validate_records(writable)


def test_append_time_says_nothing_about_the_records() -> None:
    batch = RecordBatch(bytearray(produced()))
    batch.set_max_timestamp(TimestampType.LOG_APPEND_TIME, 5)
    assert validate_records(batch).max_timestamp == 1005


def test_compacted_batches() -> None:
    builder = RecordBatchBuilder(base_offset=100)
    builder.append_with_offset(102, 1, b"a", b"")
    builder.append_with_offset(105, 3, b"b", b"")
    builder.override_last_offset(109)
    batch = RecordBatch(builder.close())
    validate_header(batch, origin=AppendOrigin.REPLICATION)
    summary = validate_records(batch, consecutive=False)
    assert (summary.record_count, summary.offset_of_max_timestamp) == (2, 105)
    with pytest.raises(InvalidRecordError, match="not the next one"):
        validate_records(batch)
    shrunk = patched(bytes(batch.view), last_offset_delta(4))
    with pytest.raises(InvalidRecordError, match="offset delta 5, which is outside the batch"):
        validate_records(shrunk, consecutive=False)


def test_an_emptied_batch() -> None:
    builder = RecordBatchBuilder(base_offset=100)
    builder.override_last_offset(109)
    batch = RecordBatch(builder.close())
    validate_header(batch, origin=AppendOrigin.REPLICATION)
    assert validate_records(batch, consecutive=False) == RecordsSummary(0, 0, -1, -1, -1, -1)


@pytest.mark.parametrize("codec", CODECS)
def test_damaged_compression(codec: CompressionType) -> None:
    good = build([RecordInput(1, None, b"value" * 100)], codec)
    batch = RecordBatch(with_crc(good[:-3]))
    validate_header(batch)
    with pytest.raises(InvalidRecordError, match=f"offset 0: {codec.codec_name}:"):
        validate_records(batch)


@pytest.mark.parametrize("codec", CODECS)
def test_bombs(codec: CompressionType) -> None:
    batch = RecordBatch(build([RecordInput(1, None, bytes(3_000_000))], codec))
    with pytest.raises(InvalidRecordError, match=codec.codec_name):
        validate_records(batch, max_decompressed_bytes=1_000_000)
    assert validate_records(batch, max_decompressed_bytes=3_000_020).record_count == 1


def test_each_rule_is_checked_without_a_client() -> None:
    """The checks that do not depend on the origin must not have slipped into those that do."""
    calls: list[Callable[[], None]] = [
        lambda: validate_header(patched(produced(), count(-1)), origin=AppendOrigin.REPLICATION),
        lambda: validate_header(patched(produced(), last_offset_delta(-5)), origin=AppendOrigin.RAFT_LEADER),
    ]
    for call in calls:
        with pytest.raises(InvalidRecordError):
            call()
