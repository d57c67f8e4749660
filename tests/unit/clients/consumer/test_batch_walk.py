"""The compiled walk over the headers of batches and its twin: the same of anything, whole, cut off or damaged."""

from __future__ import annotations

import random
import struct

import pytest

from barnabas._kernels import record_batch
from barnabas._kernels.pure import record_batch as pure
from barnabas.records.batch import iter_batches
from barnabas.records.builder import RecordBatchBuilder


def batches(source: random.Random, count: int) -> bytes:
    data, offset = b"", source.randrange(1 << 40)
    for _ in range(count):
        builder = RecordBatchBuilder(base_offset=offset, partition_leader_epoch=source.choice((-1, 0, 3, 2**31 - 1)))
        for _ in range(source.randrange(1, 4)):
            builder.try_append(0, b"k", source.randbytes(source.randrange(60)))
        data += builder.close()
        offset += 3 + source.randrange(5)
    return data


def same(data: bytes, offset: int) -> None:
    view = memoryview(data)
    assert record_batch.offset_after(view) == pure.offset_after(view)
    assert record_batch.leader_epoch_before(view, offset) == pure.leader_epoch_before(view, offset)


@pytest.mark.parametrize("seed", range(5))
def test_finds_what_the_twin_finds(seed: int) -> None:
    source = random.Random(seed)
    for _ in range(60):
        data = batches(source, source.randrange(5))
        starts = [batch.base_offset for batch in iter_batches(memoryview(data))] or [0]
        for offset in (0, 2**63 - 1, starts[0], starts[-1], starts[-1] + 1, source.choice(starts) + 2):
            same(data, offset)
            same(data[: source.randrange(len(data) + 1)], offset)
            damaged = bytearray(data)
            for _ in range(source.randrange(1, 9) if data else 0):
                damaged[source.randrange(len(data))] = source.choice((0, 1, 0x7F, 0x80, 0xFF))
            same(bytes(damaged), offset)


def test_what_they_find() -> None:
    source = random.Random(9)
    data = batches(source, 4)
    found = list(iter_batches(memoryview(data)))
    assert record_batch.offset_after(memoryview(data)) == found[-1].next_offset
    assert record_batch.offset_after(memoryview(data[:-1])) == found[-2].next_offset
    for batch in found:
        epoch = record_batch.leader_epoch_before(memoryview(data), batch.base_offset + 1)
        assert (-1 if epoch is None else epoch) == batch.partition_leader_epoch
    assert record_batch.leader_epoch_before(memoryview(data), found[0].base_offset) is None


def test_offsets_that_cannot_be_are_not_cut_to_64_bits() -> None:
    data = bytearray(batches(random.Random(1), 1))
    struct.pack_into(">q", data, 0, 2**63 - 1)
    struct.pack_into(">i", data, 23, 5)
    assert record_batch.offset_after(memoryview(data)) == 2**63 + 5


def test_no_headers_no_response() -> None:
    for data in (b"", bytes(26), bytes(61), b"\xff" * 100):
        assert record_batch.offset_after(memoryview(data)) is None
        assert record_batch.leader_epoch_before(memoryview(data), 5) is None
