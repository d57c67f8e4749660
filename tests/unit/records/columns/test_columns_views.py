"""Keys and values as views of the fetched bytes: the same as copies of them, and what they hold on to."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.common.errors import CorruptRecordError
from barnabas.records.batch import CompressionType
from barnabas.records.columns import arrow as columns
from barnabas.records.columns.arrow import (
    assemble_sections,
    decode_batch,
    decode_batches,
    encode_batches,
    fetch_sections,
)
from unit.records.columns.test_columns import KERNELS, kernel
from unit.records.columns.test_columns_kernel import each_kernel, record, section

VIEW = pa.binary_view()
payloads = st.none() | st.binary(max_size=16) | st.integers(0, 300).map(bytes)


def encoded(
    rows: Sequence[tuple[bytes | None, bytes | None]], limit: int, compression: CompressionType = CompressionType.NONE
) -> bytes:
    table = pa.table(
        {
            "key": pa.array([key for key, _ in rows], pa.binary()),
            "value": pa.array([value for _, value in rows], pa.binary()),
        }
    )
    batches = encode_batches(table, max_batch_bytes=limit, timestamps=5, base_offset=0, compression=compression)
    return b"".join(batches)


def assert_same(data: Any, **options: Any) -> pa.Table:
    copied = decode_batches(data, **options)
    viewed = decode_batches(data, binary_type="binary_view", **options)
    viewed.validate(full=True)
    assert viewed.schema.names == copied.schema.names
    assert viewed.schema.field("value").type == VIEW
    assert viewed.cast(copied.schema) == copied
    return viewed


@settings(max_examples=100, deadline=None)
@given(
    rows=st.lists(st.tuples(payloads, payloads), min_size=1, max_size=40),
    limit=st.integers(62, 1500),
    compression=st.sampled_from([CompressionType.NONE, CompressionType.GZIP]),
    start=st.integers(0, 45),
)
def test_views_are_what_copies_are(
    rows: list[tuple[bytes | None, bytes | None]], limit: int, compression: CompressionType, start: int
) -> None:
    data = encoded(rows, limit, compression)
    buffers = []
    for implementation in KERNELS:
        with kernel(implementation):
            table = assert_same(data, start_offset=start)
            chunks = [chunk for name in ("key", "value") for chunk in table.column(name).chunks]
            # What stands for a null is nobody's business, but is the same of both.
            buffers.append([[None if part is None else part.to_pybytes() for part in c.buffers()] for c in chunks])
            assert_same(data, start_offset=start, include_headers=True, columns=["value", "offset"])
    assert all(found == buffers[0] for found in buffers)


@pytest.mark.parametrize("implementation", KERNELS, ids=lambda module: module.__name__.rpartition(".")[2])
def test_many_buffers_and_batches_of_all_kinds_in_one_table(implementation: ModuleType) -> None:
    chance = random.Random(7)
    with kernel(implementation):
        fetched, copied = [], []
        for number in range(12):
            rows = [
                (chance.choice([None, b"k", b"key" * 9]), chance.randbytes(chance.choice([0, 3, 12, 13, 200])))
                for _ in range(50)
            ]
            compression = CompressionType.GZIP if number % 3 == 1 else CompressionType.NONE
            data = encoded(rows, 900, compression)
            fetched.append(fetch_sections(data, binary_type="binary_view"))
            copied.append(decode_batches(data))
        table = assemble_sections(fetched)
        table.validate(full=True)
        expected = pa.concat_tables(copied)
        assert table.cast(expected.schema).equals(expected)


def test_nothing_is_copied_and_the_buffer_is_held_by_any_part_of_it() -> None:
    data = bytearray(encoded([(b"k", b"a" * 100), (b"k", b"b" * 100)], 10_000))
    table = decode_batches(data, binary_type="binary_view")
    at = data.index(b"b" * 100)
    data[at] = ord("x")
    assert table.column("value").to_pylist()[1] == b"x" + b"b" * 99, "it is the very same memory"
    row = table.slice(1, 1)
    del table
    with pytest.raises(BufferError):
        data.append(0)
    assert row.column("value").to_pylist() == [b"x" + b"b" * 99]
    del row
    data.append(0)


@pytest.mark.parametrize("implementation", KERNELS, ids=lambda module: module.__name__.rpartition(".")[2])
def test_what_nobody_refers_to_is_not_held(implementation: ModuleType) -> None:
    with kernel(implementation):
        data = bytearray(encoded([(b"k" * 12, b"a" * 12), (None, None), (b"", b"")], 10_000))
        table = decode_batches(data, binary_type="binary_view")
        data.append(0)
        assert table.column("value").to_pylist() == [b"a" * 12, None, b""]
        data = bytearray(encoded([(b"k", b"a" * 13)], 10_000))
        table = decode_batches(data, binary_type="binary_view")
        assert len(table.column("key").chunk(0).buffers()) == 2
        assert len(table.column("value").chunk(0).buffers()) == 3
        only = decode_batches(data, binary_type="binary_view", columns=["offset", "key"])
        del table
        data.append(0)
        assert only.column("key").to_pylist() == [b"k"]


def test_buffers_that_no_view_reaches_the_end_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions have 31 bits. In a longer buffer each batch is a buffer by itself."""
    data = encoded([(b"key", b"%d" % number * 20) for number in range(30)], 400)
    monkeypatch.setattr(columns, "MAX_COLUMN_BYTES", len(data) - 1)
    table = assert_same(data)
    assert len(table.column("value").chunk(0).buffers()) > 5


def test_one_batch_and_types_that_there_are_not() -> None:
    data = encoded([(b"key", b"v" * 20)], 10_000)
    batch = decode_batch(data, binary_type="binary_view")
    assert batch.schema.field("key").type == VIEW
    assert batch.column("value").to_pylist() == [b"v" * 20]
    with pytest.raises(ValueError, match="one of binary, binary_view; not text"):
        decode_batches(data, binary_type="text")


@each_kernel
def test_views_byte_by_byte(kernel: ModuleType) -> None:
    data = record(value=b"0123456789ab") + record(delta=1, value=b"0123456789abc") + record(delta=2, value=None)
    scanned = section(kernel, data, 3)
    validity, views = bytearray(b"\xff"), bytearray(b"\xff" * 48)
    sink = kernel.ViewSink(validity, views)
    sink.place(3, 1000)
    whole = kernel.ColumnSink(3, None, sink, None, None, None, None, None, None)
    scanned.fill(whole)
    assert whole.is_full()
    assert sink.referring == 1
    assert validity == b"\x03"
    assert views[:16] == struct.pack("=i", 12) + b"0123456789ab"
    assert views[16:32] == struct.pack("=i4s2i", 13, b"0123", 3, 1000 + data.index(b"0123456789abc"))
    assert views[32:] == bytes(16)


@each_kernel
def test_a_column_of_views_that_is_too_small_is_never_overrun(kernel: ModuleType) -> None:
    scanned = section(kernel, record(value=b"v" * 20) + record(delta=1, value=None), 2)

    def fill(validity: bytearray | None, rows: int, start: int = 0) -> None:
        sink = kernel.ViewSink(validity, bytearray(16 * rows))
        sink.place(0, start)
        scanned.fill(kernel.ColumnSink(2, None, sink, None, None, None, None, None, None))

    fill(bytearray(1), 2)
    for arguments in ((None, 2), (bytearray(1), 1), (bytearray(1), 2, 2**31 - 5)):
        with pytest.raises(CorruptRecordError, match="changed while it was being read"):
            fill(*arguments)
    with pytest.raises(ValueError, match="validity bitmap is shorter"):
        kernel.ViewSink(bytearray(1), bytearray(16 * 9))
    sink = kernel.ViewSink(None, bytearray(16))
    for buffer, start in ((-1, 0), (0, -1), (0, 2**31)):
        with pytest.raises(ValueError, match="no view reaches"):
            sink.place(buffer, start)
    assert not kernel.ColumnSink(1, None, sink, None, None, None, None, None, None).is_full()


def test_threads_with_views_of_one_buffer() -> None:
    data = encoded([(b"k" * (number % 30), b"v" * (number % 90)) for number in range(3000)], 5_000)
    expected = decode_batches(data)

    def work(_: int) -> bool:
        table = decode_batches(data, binary_type="binary_view")
        return bool(table.cast(expected.schema) == expected)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(16)))
