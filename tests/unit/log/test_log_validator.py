"""What a leader accepts, and what it makes of it."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas._kernels import checksum
from barnabas.common.errors import (
    BarnabasError,
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    RecordTooLargeError,
    UnsupportedCompressionTypeError,
)
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.append_origin import AppendOrigin
from barnabas.log.config.log_config import LogConfig
from barnabas.log.log_validator import (
    InvalidRecordsError,
    InvalidTimestampsError,
    LogValidator,
    OffsetsOutOfOrderError,
    analyze_replicated,
)
from barnabas.records.batch import (
    ATTRIBUTES_OFFSET,
    CRC_OFFSET,
    MAGIC_OFFSET,
    CompressionType,
    RecordBatch,
    TimestampType,
)
from barnabas.records.builder import RecordBatchBuilder
from barnabas.records.control import ControlRecordType
from barnabas.records.reader import read_records
from log_fixtures import NOW, client_batch, marker

crc32c = checksum.crc32c

PARTITION = TopicPartition("orders", 3)
HOUR = 3_600_000


def validator(**settings: Any) -> LogValidator:
    return LogValidator(PARTITION, LogConfig(**settings))


def validate(
    records: bytes | bytearray | memoryview, origin: AppendOrigin = AppendOrigin.CLIENT, **settings: Any
) -> RecordBatch:
    """The batch as it would be written at offset 57, under leader epoch 4."""
    batch = validator(**settings).validate(records, origin, NOW)
    batch.place(57, 4)
    if settings.get("message_timestamp_type") == "LogAppendTime":
        batch.set_max_timestamp(TimestampType.LOG_APPEND_TIME, NOW + 5)
    return batch


def with_field(batch: bytearray, offset: int, layout: str, value: int, *, fix_crc: bool = True) -> bytearray:
    struct.pack_into(layout, batch, offset, value)
    if fix_crc:
        struct.pack_into(">I", batch, CRC_OFFSET, crc32c(memoryview(batch)[ATTRIBUTES_OFFSET:]))
    return batch


class TestAssignment:
    def test_offset_and_epoch_are_patched_into_the_received_buffer(self) -> None:
        request = bytearray(b"header") + client_batch([b"a", b"b", b"c"])
        records = memoryview(request)[6:]
        before = bytes(request)
        batch = validate(records)
        assert (batch.base_offset, batch.last_offset, batch.partition_leader_epoch) == (57, 59, 4)
        assert request[6:14] == (57).to_bytes(8)
        assert request[18:22] == (4).to_bytes(4)
        assert request[22:] == before[22:], "nothing else may change"
        assert batch.view.obj is request
        batch.ensure_valid()
        assert [(record.offset, bytes(record.value or b"")) for record in read_records(batch)] == [
            (57, b"a"),
            (58, b"b"),
            (59, b"c"),
        ]

    def test_a_read_only_buffer_is_copied(self) -> None:
        request = bytes(client_batch([b"a"]))
        before = bytes(request)
        batch = validate(request)
        assert batch.base_offset == 57
        assert request == before

    def test_nothing_is_patched_before_the_end_of_validation(self) -> None:
        request = client_batch([b"a"])
        validator().validate(request, AppendOrigin.CLIENT, NOW)
        assert request == client_batch([b"a"])

    def test_append_time_is_the_time_of_the_assignment(self) -> None:
        batch = validate(client_batch([b"a", b"b"], timestamps=[1, 2]), message_timestamp_type="LogAppendTime")
        assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
        assert batch.max_timestamp == NOW + 5
        batch.ensure_valid()
        assert {record.timestamp for record in read_records(batch)} == {NOW + 5}

    def test_a_wrong_largest_timestamp_is_put_right(self) -> None:
        request = with_field(client_batch([b"a", b"b"], timestamps=[NOW, NOW - 9]), 35, ">q", NOW + 77)
        batch = validate(request)
        assert batch.max_timestamp == NOW
        batch.ensure_valid()


class TestRefusals:
    """Each with the error that Kafka has for it."""

    def test_nothing_at_all(self) -> None:
        with pytest.raises(InvalidRecordError, match="no record batch"):
            validate(b"")

    def test_two_batches(self) -> None:
        with pytest.raises(InvalidRecordError, match="only one batch"):
            validate(client_batch([b"a"]) + client_batch([b"b"]))

    def test_bytes_behind_the_batch(self) -> None:
        with pytest.raises(InvalidRecordError, match="3 bytes after"):
            validate(client_batch([b"a"]) + b"xyz")

    def test_a_batch_that_is_cut_off(self) -> None:
        with pytest.raises(CorruptRecordError, match="cut off"):
            validate(client_batch([b"a"])[:-1])

    def test_a_wrong_checksum(self) -> None:
        batch = client_batch([b"a"])
        batch[-3] ^= 1
        with pytest.raises(CorruptRecordError, match="checksum"):
            validate(batch)

    def test_a_claim_of_two_gibibytes(self) -> None:
        with pytest.raises(CorruptRecordError):
            validate(with_field(client_batch([b"a"]), 8, ">i", 2**31 - 1, fix_crc=False))

    @pytest.mark.parametrize("magic", [0, 1])
    def test_old_formats(self, magic: int) -> None:
        with pytest.raises(InvalidRecordError, match="format"):
            validate(with_field(client_batch([b"a"]), MAGIC_OFFSET, ">b", magic))

    def test_an_unknown_format(self) -> None:
        with pytest.raises(CorruptRecordError, match="magic"):
            validate(with_field(client_batch([b"a"]), MAGIC_OFFSET, ">b", 3))

    def test_too_many_bytes(self) -> None:
        batch = client_batch([b"x" * 1000])
        validate(bytearray(batch), max_message_bytes=len(batch))
        with pytest.raises(RecordTooLargeError, match=f"{len(batch)} bytes") as caught:
            validate(batch, max_message_bytes=len(batch) - 1)
        assert caught.value.record_too_large_partitions == {PARTITION: len(batch)}

    def test_size_is_looked_at_before_the_checksum(self) -> None:
        batch = client_batch([b"x" * 1000])
        batch[-1] ^= 1
        with pytest.raises(RecordTooLargeError):
            validate(batch, max_message_bytes=100)

    def test_an_offset_of_the_clients_own(self) -> None:
        with pytest.raises(InvalidRecordError, match="base offset"):
            validate(client_batch([b"a"], base_offset=3))

    @pytest.mark.parametrize("count", [0, 2, 100, -1, 2**31 - 1])
    def test_lying_counts(self, count: int) -> None:
        with pytest.raises(InvalidRecordError):
            validate(with_field(client_batch([b"a"]), 57, ">i", count))

    @pytest.mark.parametrize("delta", [-1, 1, 2**31 - 1])
    def test_a_wrong_range_of_offsets(self, delta: int) -> None:
        with pytest.raises(InvalidRecordError):
            validate(with_field(client_batch([b"a"]), 23, ">i", delta))

    def test_count_and_range_that_agree_on_a_lie(self) -> None:
        batch = with_field(client_batch([b"a"]), 23, ">i", 1, fix_crc=False)
        with pytest.raises(InvalidRecordError):
            validate(with_field(batch, 57, ">i", 2))

    def test_control_batches_are_not_for_clients(self) -> None:
        with pytest.raises(InvalidRecordError, match="control"):
            validate(marker(ControlRecordType.COMMIT, 7, 0))

    def test_a_producer_without_sequence_numbers(self) -> None:
        batch = client_batch([b"a"], producer_id=7, epoch=0, sequence=0)
        with pytest.raises(InvalidRecordError, match="sequence"):
            validate(with_field(batch, 53, ">i", -1))

    def test_append_time_is_the_brokers_to_give(self) -> None:
        builder = RecordBatchBuilder(timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time=NOW)
        builder.append(NOW, None, b"a")
        with pytest.raises(InvalidTimestampError, match="append time"):
            validate(builder.close())

    def test_an_unknown_codec(self) -> None:
        with pytest.raises(UnsupportedCompressionTypeError):
            validate(with_field(client_batch([b"a"]), ATTRIBUTES_OFFSET, ">h", 5))

    def test_a_codec_that_the_records_are_not_in(self) -> None:
        with pytest.raises(InvalidRecordError, match="gzip"):
            validate(with_field(client_batch([b"a"]), ATTRIBUTES_OFFSET, ">h", CompressionType.GZIP))

    def test_a_decompression_bomb(self) -> None:
        bomb = client_batch([bytes(200 << 20)], compression=CompressionType.ZSTD)
        assert len(bomb) < 1 << 20
        with pytest.raises(InvalidRecordError, match="decompressed"):
            validate(bomb)

    def test_records_larger_than_allowed_when_decompressed(self) -> None:
        records = [bytes(600), bytes(600)]
        compressed = client_batch(records, compression=CompressionType.GZIP)
        validate(bytearray(compressed), max_decompressed_message_bytes=1000)
        with pytest.raises(RecordTooLargeError, match="decompressed"):
            validate(compressed, max_decompressed_message_bytes=500)
        validate(client_batch(records), max_decompressed_message_bytes=500)  # nothing was unpacked

    @settings(max_examples=300, deadline=None)
    @given(st.binary(max_size=200), st.data())
    def test_any_bytes_give_a_batch_or_an_error_of_ours(self, junk: bytes, data: st.DataObject) -> None:
        batch = bytearray(client_batch([b"key-value"] * 3, producer_id=1, epoch=0, sequence=0))
        for _ in range(data.draw(st.integers(0, 3))):
            batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 255))
        if data.draw(st.booleans()):
            struct.pack_into(">I", batch, CRC_OFFSET, crc32c(memoryview(batch)[ATTRIBUTES_OFFSET:]))
        for candidate in (junk, batch, batch + junk):
            try:
                validate(bytearray(candidate))
            except BarnabasError:
                continue


class TestKeys:
    def test_a_compacted_topic_needs_keys(self) -> None:
        batch = client_batch([(b"k", b"a"), (None, b"b"), (b"k", b"c"), (None, b"d")])
        with pytest.raises(InvalidRecordsError, match="record 1, 3") as caught:
            validate(batch, cleanup_policy=("compact",))
        assert [error.batch_index for error in caught.value.record_errors] == [1, 3]
        assert caught.value.code == InvalidRecordError.code

    def test_others_do_not(self) -> None:
        validate(client_batch([(None, b"b")]))

    def test_a_key_may_be_empty(self) -> None:
        validate(client_batch([(b"", b"b")]), cleanup_policy=("compact", "delete"))

    def test_an_offender_far_behind_is_named_without_a_search(self) -> None:
        many: list[tuple[bytes | None, bytes]] = [(b"k", b"")] * 10_005
        many[10_003] = (None, b"")
        with pytest.raises(InvalidRecordsError) as caught:
            validate(client_batch(many), cleanup_policy=("compact",))
        assert [error.batch_index for error in caught.value.record_errors] == [10_003]


class TestTimestamps:
    @pytest.mark.parametrize("timestamps", [[0], [-1], [NOW + HOUR], [-1, 0, NOW]])
    def test_accepted_by_default(self, timestamps: list[int]) -> None:
        validate(client_batch([b"a"] * len(timestamps), timestamps=timestamps))

    def test_the_future_is_refused(self) -> None:
        with pytest.raises(InvalidTimestampsError, match=str(NOW + HOUR)) as caught:
            validate(client_batch([b"a", b"b"], timestamps=[NOW, NOW + HOUR + 1]))
        assert [error.batch_index for error in caught.value.record_errors] == [1]
        assert caught.value.code == InvalidTimestampError.code

    @pytest.mark.parametrize(
        ("timestamps", "bad"),
        [
            ([NOW - 1000], []),
            ([NOW - 1001], [0]),
            ([-1, NOW - 1001, NOW], [1]),
            ([-1, NOW - 1000], []),
            ([-1], []),
            ([-1, NOW + 2000, 5], [1, 2]),
        ],
    )
    def test_bounds_on_both_sides(self, timestamps: Sequence[int], bad: list[int]) -> None:
        batch = client_batch([b"a"] * len(timestamps), timestamps=timestamps)
        limits: dict[str, Any] = {"message_timestamp_before_max_ms": 1000, "message_timestamp_after_max_ms": 500}
        if not bad:
            validate(batch, **limits)
            return
        with pytest.raises(InvalidTimestampsError) as caught:
            validate(batch, **limits)
        assert [error.batch_index for error in caught.value.record_errors] == bad

    def test_bounds_do_not_count_where_the_brokers_clock_does(self) -> None:
        validate(client_batch([b"a"], timestamp=NOW + 10 * HOUR), message_timestamp_type="LogAppendTime")

    def test_bounds_follow_the_clock(self) -> None:
        judge = validator()
        batch = client_batch([b"a"], timestamp=NOW + HOUR + 1)
        with pytest.raises(InvalidTimestampsError):
            judge.validate(bytearray(batch), AppendOrigin.CLIENT, NOW)
        judge.validate(batch, AppendOrigin.CLIENT, NOW + 1)


class TestCompression:
    @pytest.mark.parametrize("codec", list(CompressionType))
    def test_what_the_producer_chose_stays(self, codec: CompressionType) -> None:
        request = client_batch([b"a" * 100] * 10, compression=codec)
        payload = bytes(request[61:])
        batch = validator().validate(request, AppendOrigin.CLIENT, NOW)
        assert batch.compression_type is codec
        assert bytes(batch.records_view) == payload

    @pytest.mark.parametrize("source", list(CompressionType))
    @pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
    def test_what_the_topic_wants(self, source: CompressionType, target: str) -> None:
        request = client_batch(
            [(b"k", b"a" * 100)] * 10, compression=source, producer_id=5, epoch=2, sequence=40, timestamp=NOW - 3
        )
        original = [(record.timestamp, record.key, record.value) for record in read_records(RecordBatch(request))]
        batch = validator(compression_type=target).validate(request, AppendOrigin.CLIENT, NOW)
        batch.place(57, 4)
        assert batch.compression_type.codec_name == ("none" if target == "uncompressed" else target)
        batch.ensure_valid()
        assert [(record.timestamp, record.key, record.value) for record in read_records(batch)] == original
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (5, 2, 40)
        assert (batch.base_offset, batch.last_offset, batch.record_count) == (57, 66, 10)

    def test_the_level_counts(self) -> None:
        text = [(b"k%d" % number, b"value %d of many" % (number % 13)) for number in range(2000)]
        sizes = [
            len(validate(client_batch(text), compression_type="gzip", compression_gzip_level=level).view)
            for level in (1, 9)
        ]
        assert sizes[1] < sizes[0]

    def test_what_gets_too_large_is_refused(self) -> None:
        request = client_batch([b"a" * 5000], compression=CompressionType.ZSTD)
        with pytest.raises(RecordTooLargeError):
            validate(request, compression_type="uncompressed", max_message_bytes=1000)


class TestCoordinators:
    def test_may_write_markers(self) -> None:
        batch = validate(marker(ControlRecordType.ABORT, 7, 0), AppendOrigin.COORDINATOR)
        assert batch.is_control_batch
        assert batch.base_offset == 57

    def test_are_held_to_true_counts(self) -> None:
        with pytest.raises(InvalidRecordError, match="claims"):
            validate(with_field(client_batch([b"a"]), 23, ">i", 5), AppendOrigin.COORDINATOR)


class TestReplication:
    def analyze(
        self, records: bytes | bytearray, epoch: int = 5, origin: AppendOrigin = AppendOrigin.REPLICATION
    ) -> list[int]:
        result = analyze_replicated(records, PARTITION, origin, epoch)
        assert sum(batch.size_in_bytes for batch in result.batches) == len(result.records)
        return [batch.base_offset for batch in result.batches]

    def test_batches_keep_their_offsets(self) -> None:
        records = client_batch(base_offset=7, leader_epoch=3) + client_batch(base_offset=90, leader_epoch=5)
        assert self.analyze(bytes(records)) == [7, 90]

    def test_the_rest_of_a_batch_at_the_end_is_dropped(self) -> None:
        records = client_batch(base_offset=7, leader_epoch=3) + client_batch(base_offset=8, leader_epoch=3)
        assert self.analyze(records[:-1]) == [7]
        assert self.analyze(records[:20]) == []

    def test_offsets_must_grow(self) -> None:
        records = client_batch(base_offset=7, leader_epoch=3) + client_batch(base_offset=7, leader_epoch=3)
        with pytest.raises(OffsetsOutOfOrderError, match="do not grow"):
            self.analyze(records)

    def test_checksums_are_looked_at(self) -> None:
        records = client_batch(base_offset=7, leader_epoch=3)
        records[-1] ^= 1
        with pytest.raises(CorruptRecordError, match="checksum"):
            self.analyze(records)

    def test_what_a_later_leader_wrote_is_not_taken_from_an_earlier_one(self) -> None:
        records = client_batch(base_offset=7, leader_epoch=5) + client_batch(base_offset=8, leader_epoch=6)
        assert self.analyze(records, epoch=5) == [7]

    def test_the_quorums_leader_writes_under_its_own_epoch(self) -> None:
        records = client_batch(base_offset=7, leader_epoch=5)
        assert self.analyze(records, 5, AppendOrigin.RAFT_LEADER) == [7]
        with pytest.raises(InvalidRecordError, match="epoch 5 instead of 6"):
            self.analyze(records, 6, AppendOrigin.RAFT_LEADER)
