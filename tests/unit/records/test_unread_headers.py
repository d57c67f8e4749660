"""Records that are in a file still: of which batches it is enough to read the headers, and that no more is read."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest

from barnabas.records.batch import (
    ATTRIBUTES_OFFSET,
    HEADER_SIZE,
    LENGTH_OFFSET,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    CompressionType,
    RecordBatch,
    TimestampType,
)
from barnabas.records.builder import RecordBatchBuilder
from barnabas.records.control import ControlRecordType, EndTransactionMarker, end_transaction_marker_batch
from barnabas.records.unread_records import LEAST_BATCH, UnreadRecords

PRODUCER: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}


class NotedFile:
    """Notes what is read of it."""

    def __init__(self, content: bytes) -> None:
        self.position = 1000
        self.content = content
        self.reads: list[tuple[int, int]] = []
        self.closed = 0

    def fileno(self) -> int:
        return 77

    def read(self, into: memoryview, start: int) -> None:
        assert not self.closed
        self.reads.append((start, len(into)))
        if start + len(into) > len(self.content):
            raise EOFError("a file shrank")
        into[:] = self.content[start : start + len(into)]

    def close(self) -> None:
        self.closed += 1


def batch(size: int = LEAST_BATCH, **options: Any) -> bytes:
    builder = RecordBatchBuilder(**options)
    builder.append(5, b"k", random.Random(size).randbytes(size))
    return bytes(builder.close())


def unread(*batches: bytes) -> tuple[UnreadRecords, NotedFile]:
    content = b"".join(batches)
    file = NotedFile(content)
    return UnreadRecords(memoryview(bytearray(len(content))), file), file


def headers_of(*batches: bytes) -> list[tuple[int, int]]:
    """What is to be read of these."""
    found, at = [], 0
    for one in batches:
        found.append((at, min(HEADER_SIZE, len(one))))
        at += len(one)
    return found


def octets_of(*batches: bytes) -> bytes:
    """What is in memory then."""
    return b"".join(one[:HEADER_SIZE] + bytes(len(one[HEADER_SIZE:])) for one in batches)


# -- large batches


@pytest.mark.parametrize("committed", [False, True])
def test_of_large_batches_nothing_but_headers_is_read(committed: bool) -> None:
    batches = [batch(LEAST_BATCH + number) for number in range(12)]
    records, file = unread(*batches)
    assert records.read_headers(may_be_transactional=not committed)
    assert file.reads == headers_of(*batches)
    assert {count for _, count in file.reads} == {61}
    assert records.octets == octets_of(*batches)
    assert not records.is_read
    assert not file.closed
    assert (records.fileno(), records.position) == (77, 1000)


@pytest.mark.parametrize(
    "part", [1, LENGTH_OFFSET, LOG_OVERHEAD, HEADER_SIZE - 1, HEADER_SIZE, HEADER_SIZE + 1, LEAST_BATCH // 2]
)
def test_the_last_one_may_be_cut_off(part: int) -> None:
    """As it is in most answers to a fetch: with a part of its header, or with a part of its records."""
    batches = [batch(), batch(2 * LEAST_BATCH), batch()[:part]]
    records, file = unread(*batches)
    assert records.read_headers(may_be_transactional=False)
    assert file.reads == headers_of(*batches)
    assert records.octets == octets_of(*batches)


def test_nothing_but_a_part_of_a_header_is_no_batch() -> None:
    for content in (b"", batch()[: HEADER_SIZE - 1]):
        records, _ = unread(content)
        assert not records.read_headers(may_be_transactional=False)


def test_only_the_beginning_of_a_batch_is_one() -> None:
    records, file = unread(batch()[: HEADER_SIZE + 5])
    assert records.read_headers(may_be_transactional=False)
    assert file.reads == [(0, HEADER_SIZE)]


def test_the_time_may_be_that_of_the_log() -> None:
    data = bytearray(batch())
    RecordBatch(data).set_max_timestamp(TimestampType.LOG_APPEND_TIME, 1234)
    records, file = unread(bytes(data), bytes(data))
    assert records.read_headers(may_be_transactional=False)
    assert file.reads == headers_of(bytes(data), bytes(data))


# -- others


def test_batches_of_transactions_are_for_those_who_read_all_of_them() -> None:
    data = batch(is_transactional=True, **PRODUCER)
    records, _ = unread(data, data)
    assert not records.read_headers(may_be_transactional=False)
    records, file = unread(data, data)
    assert records.read_headers(may_be_transactional=True)
    assert file.reads == headers_of(data, data)


def test_an_idempotent_producer_is_nothing_special() -> None:
    records, _ = unread(batch(**PRODUCER))
    assert records.read_headers(may_be_transactional=False)


def marker() -> bytes:
    decision = EndTransactionMarker(ControlRecordType.COMMIT, 0)
    return bytes(end_transaction_marker_batch(decision, producer_id=7, producer_epoch=0, timestamp_ms=5, base_offset=0))


def changed(offset: int, form: str, value: int) -> bytes:
    data = bytearray(batch())
    struct.pack_into(form, data, offset, value)
    return bytes(data)


UNUSUAL = {
    "a control batch": marker(),
    "a control batch of no transaction": batch(is_control=True),
    "a delete horizon": batch(delete_horizon_ms=5),
    "an attribute that is not known": changed(ATTRIBUTES_OFFSET, ">h", 0x80),
    "another one": changed(ATTRIBUTES_OFFSET, ">h", -0x8000),
    "magic 0": changed(MAGIC_OFFSET, "b", 0),
    "magic 1": changed(MAGIC_OFFSET, "b", 1),
    "magic 3": changed(MAGIC_OFFSET, "b", 3),
    "less than a header": changed(LENGTH_OFFSET, ">i", HEADER_SIZE - LOG_OVERHEAD - 1),
    "no length": changed(LENGTH_OFFSET, ">i", 0),
    "no way forward": changed(LENGTH_OFFSET, ">i", -LOG_OVERHEAD),
    "the way back": changed(LENGTH_OFFSET, ">i", -(2**31)),
    **{codec.name: batch(compression=codec) for codec in CompressionType if codec is not CompressionType.NONE},
}


@pytest.mark.parametrize("before", [0, 1, 6])
@pytest.mark.parametrize("what", UNUSUAL)
def test_unusual_ones_have_to_be_in_memory(what: str, before: int) -> None:
    """Wherever they are. What comes behind them is not looked at."""
    batches = [batch()] * before + [UNUSUAL[what]]
    records, file = unread(*batches, batch(), batch())
    assert not records.read_headers(may_be_transactional=True)
    assert file.reads == headers_of(*batches)
    records.read_all()
    assert records.octets == file.content


def test_a_batch_of_no_records_is_as_long_as_its_header() -> None:
    empty = changed(LENGTH_OFFSET, ">i", HEADER_SIZE - LOG_OVERHEAD)[:HEADER_SIZE]
    records, file = unread(batch(), empty)
    assert records.read_headers(may_be_transactional=False)
    assert file.reads == headers_of(batch(), empty)


@pytest.mark.parametrize("size", [10, 1000, LEAST_BATCH // 2])
def test_of_many_small_ones_only_a_few_are_looked_at(size: int) -> None:
    """They are to be read all at once, and what is read before is for nothing."""
    records, file = unread(*[batch(size)] * 100)
    assert not records.read_headers(may_be_transactional=False)
    assert 0 < len(file.reads) < 8
    assert sum(count for _, count in file.reads) < 8 * HEADER_SIZE


def test_some_may_be_small_among_large_ones() -> None:
    batches = [batch(10), batch(10), batch(4 * LEAST_BATCH), batch(10), batch(4 * LEAST_BATCH), batch(10)]
    records, file = unread(*batches)
    assert records.read_headers(may_be_transactional=False)
    assert file.reads == headers_of(*batches)


def test_too_many_small_ones_behind_large_ones() -> None:
    batches = [batch(4 * LEAST_BATCH)] * 2 + [batch(10)] * 50
    records, file = unread(*batches)
    assert not records.read_headers(may_be_transactional=False)
    assert len(file.reads) == 9  # eight have the average that is needed


def test_short_records_are_not_left() -> None:
    """To look at each of them takes longer than to copy them all once more."""
    builder = RecordBatchBuilder(base_offset=0)
    for _ in range(8_000):
        builder.append(5, None, b"short")
    short = bytes(builder.close())
    assert len(short) > LEAST_BATCH
    records, file = unread(batch(), short, batch())
    assert not records.read_headers(may_be_transactional=False)
    assert file.reads == headers_of(batch(), short)


# -- all of it


@pytest.mark.parametrize("headers", [False, True])
def test_all_of_it_is_read_once(headers: bool) -> None:
    batches = [batch(), batch(3 * LEAST_BATCH), batch()[:100]]
    records, file = unread(*batches)
    if headers:
        assert records.read_headers(may_be_transactional=False)
        file.reads.clear()
    for _ in range(2):
        records.read_all()
        assert records.is_read
        assert (records.fileno(), records.position) == (-1, 0)
        assert file.reads == [(0, len(file.content))]
        assert file.closed == 1
        assert records.octets == file.content


@pytest.mark.parametrize("present", [0, HEADER_SIZE - 1, LEAST_BATCH, LEAST_BATCH + 200])
def test_a_file_that_shrank_is_no_end_of_records(present: int) -> None:
    """What is missing must not be taken for a batch that was cut off."""
    records, file = unread(batch(), batch())
    file.content = file.content[:present]
    if present <= LEAST_BATCH + HEADER_SIZE:
        with pytest.raises(EOFError, match="shrank"):
            records.read_headers(may_be_transactional=False)
    with pytest.raises(EOFError, match="shrank"):
        records.read_all()
    assert not records.is_read
