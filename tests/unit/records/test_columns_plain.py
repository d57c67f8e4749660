"""Batches that the compiled kernel reads by itself: the same comes out as if each were looked at one by one."""

from __future__ import annotations

import random
from typing import Any

import pytest

from barnabas.common.errors import BarnabasError, CorruptRecordError, InvalidRecordError
from barnabas.records import _columns_kernel, _columns_pure
from barnabas.records.batch import CompressionType, RecordBatch, TimestampType
from barnabas.records.builder import RecordBatchBuilder
from barnabas.records.checksum import crc32c
from barnabas.records.columns import assemble_sections, fetch_sections
from barnabas.records.control import ControlRecordType, EndTransactionMarker, end_transaction_marker_batch

PRODUCER = 7


def batch(chance: random.Random, base_offset: int) -> bytes:
    kind = chance.choice(["plain", "plain", "plain", "append time", "transactional", "compressed", "marker", "damaged"])
    if kind == "marker":
        decision = chance.choice([ControlRecordType.ABORT, ControlRecordType.COMMIT])
        return bytes(
            end_transaction_marker_batch(
                EndTransactionMarker(decision, 0),
                producer_id=PRODUCER,
                producer_epoch=0,
                timestamp_ms=5,
                base_offset=base_offset,
            )
        )
    transactional = kind == "transactional"
    builder = RecordBatchBuilder(
        base_offset=base_offset,
        compression=CompressionType.GZIP if kind == "compressed" else CompressionType.NONE,
        producer_id=PRODUCER if transactional else -1,
        producer_epoch=0 if transactional else -1,
        base_sequence=0 if transactional else -1,
        is_transactional=transactional,
    )
    for _ in range(chance.randint(1, 5)):
        value = chance.choice([None, b"", chance.randbytes(20)])
        builder.append(chance.randint(0, 99), chance.choice([None, b"k"]), value)
    data = bytearray(builder.close())
    if kind == "append time":
        RecordBatch(data).set_max_timestamp(TimestampType.LOG_APPEND_TIME, 1234)
    elif kind == "damaged" and chance.random() < 0.3:
        at = chance.randrange(len(data))
        data[at] ^= 1 << chance.randrange(8)
        if chance.random() < 0.7:  # so that what is wrong is found by what comes after the checksum
            data[17:21] = crc32c(data[21:]).to_bytes(4, "big")
    return bytes(data)


def read(data: bytes, options: dict[str, Any]) -> Any:
    try:
        fetched = fetch_sections(memoryview(data), **options)
    except (BarnabasError, ValueError) as error:
        return type(error), str(error)
    table = assemble_sections([fetched])
    return table.to_pylist(), table.schema, fetched.next_offset, fetched.size_in_bytes, fetched.records


@pytest.mark.skipif(not _columns_kernel.ACCELERATED, reason="the twin reads nothing by itself")
def test_the_same_comes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(300):
        chance = random.Random(seed)
        data, offset = b"", chance.randint(0, 3)
        for _ in range(chance.randint(1, 8)):
            data += batch(chance, offset)
            offset += 5
        data = data[: len(data) - chance.choice([0, 0, 1, 30, 70])]
        options = {
            "start_offset": chance.choice([0, 0, chance.randint(0, 12)]),
            "aborted": chance.choice([None, [], [(PRODUCER, 0)]]),
            "check_crc": chance.random() < 0.7,
            "binary_type": chance.choice(["binary", "binary_view"]),
            "raw_timestamps": chance.random() < 0.3,
        }
        found = read(data, options)
        with monkeypatch.context() as patched:
            patched.setattr(_columns_kernel, "plain_sections", _columns_pure.plain_sections)
            patched.setattr(_columns_kernel, "totals", _columns_pure.totals)
            assert found == read(data, options), f"seed {seed}"


@pytest.mark.skipif(not _columns_kernel.ACCELERATED, reason="the twin reads nothing by itself")
def test_a_run_ends_where_something_else_begins() -> None:
    builder = RecordBatchBuilder(base_offset=3)
    builder.append(1, None, b"v")
    plain = bytes(builder.close())
    other = RecordBatchBuilder(base_offset=5, compression=CompressionType.GZIP)
    other.append(1, None, b"w")
    data = plain + plain + bytes(other.close()) + plain
    sections, at, next_offset = _columns_kernel.plain_sections(memoryview(data), 0, 0, 1, True, True, None, False)
    assert (len(sections), at, next_offset) == (2, 2 * len(plain), 4)
    assert _columns_kernel.totals(sections) == _columns_pure.totals(sections)
    assert _columns_kernel.totals(sections)[0] == 2


def long_batch(chance: random.Random, base_offset: int) -> bytearray:
    builder = RecordBatchBuilder(base_offset=base_offset)
    size, limit = 0, chance.choice([60_000, 65_496, 65_600, 131_000, 131_200, 300_000])
    while size < limit:
        value = bytes(chance.choice([10, 1000, 5000, 70_000]))
        size += len(value)
        builder.append(chance.randint(0, 99), None, value, [("h", b"v")] if chance.random() < 0.05 else [])
    return bytearray(builder.close())


@pytest.mark.skipif(not _columns_kernel.ACCELERATED, reason="the twin reads nothing by itself")
def test_long_batches_come_out_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are gone through block by block: whatever is wrong in whichever block, a wrong checksum comes first."""
    found_corrupt = found_invalid = 0
    for seed in range(60):
        chance = random.Random(seed)
        first, second = long_batch(chance, 0), long_batch(chance, 1000)
        if seed % 3:
            damaged = chance.choice([first, second])
            # Among what the checksum covers: numbers of the header, of the first record, of any byte, and the last one.
            at = chance.choice([57, 58, 60, 61, 62, 64, 65, 66, chance.randrange(61, len(damaged)), len(damaged) - 1])
            damaged[at] ^= 1 << chance.randrange(8)
            if seed % 3 == 1:
                damaged[17:21] = crc32c(damaged[21:]).to_bytes(4, "big")
        data = bytes(first + second)
        options = {"check_crc": chance.random() < 0.8}
        found = read(data, options)
        found_corrupt += found[0] is CorruptRecordError
        found_invalid += found[0] is InvalidRecordError
        with monkeypatch.context() as patched:
            patched.setattr(_columns_kernel, "plain_sections", _columns_pure.plain_sections)
            patched.setattr(_columns_kernel, "totals", _columns_pure.totals)
            assert found == read(data, options), f"seed {seed}"
            if seed % 3 == 2 and options["check_crc"]:
                assert "its checksum is" in found[1]
    assert found_corrupt
    assert found_invalid
