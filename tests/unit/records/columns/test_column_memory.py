"""Memory of long columns that is used again."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest

from barnabas._kernels import is_compiled
from barnabas.records.columns.arrow import assemble_sections, encode_batches, fetch_sections
from barnabas.records.columns.memory import (
    LEAST_BYTES,
    LINE,
    MOST_SPARES,
    ROOMY,
    ColumnMemory,
    ColumnPieces,
    TableMemory,
)

copies_early = pytest.mark.skipif(not is_compiled("columns"), reason="the twin copies nothing early")

SIZE = 2 * LEAST_BYTES


def test_a_buffer_is_used_again_when_nobody_has_it() -> None:
    memory = ColumnMemory()
    first = memory.take(SIZE)
    address = first.address
    second = memory.take(SIZE)
    assert second.address != address
    part = first.slice(10, 20)
    del first
    third = memory.take(SIZE)
    assert third.address not in {address, second.address}, "a slice of it is enough"
    del part
    assert memory.take(SIZE).address == address


@pytest.mark.parametrize(
    ("kept", "size", "fits"),
    [(SIZE, SIZE, True), (SIZE, SIZE + 1, False), (ROOMY * SIZE, SIZE, True), (ROOMY * SIZE + 1, SIZE, False)],
)
def test_it_has_to_be_about_as_large(kept: int, size: int, fits: bool) -> None:
    memory = ColumnMemory()
    spare = bytearray(kept)
    memory._spares = [spare]
    found = memory.take(size)
    assert found.size >= size
    assert (found.address == pa.py_buffer(spare).address) is fits


def test_room_to_grow() -> None:
    memory = ColumnMemory(capacity=lambda size: 3 * size)
    first = memory.take(SIZE)
    assert first.size == 3 * SIZE
    address = first.address
    del first
    assert memory.take(2 * SIZE).address == address


def test_no_more_than_a_few_are_kept() -> None:
    memory = ColumnMemory()
    held = [memory.take(SIZE) for _ in range(3 * MOST_SPARES)]
    assert len({buffer.address for buffer in held}) == len(held)
    assert len(memory._spares) == MOST_SPARES


def test_short_columns_are_left_to_the_allocator() -> None:
    memory = ColumnMemory()
    assert memory.take(LEAST_BYTES - 1).size == LEAST_BYTES - 1
    assert not memory._spares


def test_threads_do_not_get_the_same() -> None:
    memory = ColumnMemory()
    clashes: list[int] = []

    def use(mark: int) -> None:
        for _ in range(200):
            buffer = memory.take(SIZE)
            view = memoryview(buffer).cast("B")
            view[:8] = bytes([mark]) * 8
            if bytes(view[:8]) != bytes([mark]) * 8:
                clashes.append(mark)

    threads = [threading.Thread(target=use, args=(mark,)) for mark in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not clashes


@copies_early
def test_tables_that_are_kept_stay_as_they_are() -> None:
    """Each table of long values in memory that others had; those that somebody holds are not written to."""
    memory = TableMemory()
    kept: list[tuple[Any, list[bytes]]] = []
    for number in range(24):
        values = [bytes([number, row % 256]) * 600 for row in range(1_500 + 40 * number)]
        data = b"".join(encode_batches({"value": pa.array(values)}, max_batch_bytes=300_000, timestamps=5))
        table = assemble_sections([fetch_sections(data, memory=memory)])
        assert table.column("value").to_pylist() == values
        assert table.num_rows == len(values)
        if number % 3 == 0:
            kept.append((table, values))
    for table, values in kept:
        assert table.column("value").to_pylist() == values
    assert len(memory.values._spares) == len(memory.beside._spares) == MOST_SPARES


def test_pieces_of_a_buffer() -> None:
    sizes = [1, 0, 100, 64, 7]
    whole = pa.py_buffer(bytearray(ColumnPieces.room_for(sizes)))
    pieces = ColumnPieces(whole)
    cut = [pieces.cut(size) for size in sizes]
    assert [(len(arrow), len(view)) for arrow, view in cut] == [(size, size) for size in sizes]
    assert all(arrow.address % LINE == 0 for arrow, _ in cut)
    for number, (_, view) in enumerate(cut):
        view[:] = bytes([number + 1]) * len(view)
    assert [arrow.to_pybytes() for arrow, _ in cut] == [bytes([number + 1]) * size for number, size in enumerate(sizes)]


@copies_early
def test_who_keeps_an_offset_does_not_keep_the_values() -> None:
    memory = TableMemory()
    values = [bytes(1_000) for _ in range(3_000)]
    data = b"".join(encode_batches({"value": pa.array(values)}, max_batch_bytes=300_000, timestamps=5))
    table = assemble_sections([fetch_sections(data, memory=memory)])
    offsets = table.column("offset")
    beside = pa.py_buffer(memory.beside._spares[-1])
    assert beside.address <= offsets.chunk(0).buffers()[1].address < beside.address + beside.size, "used again, too"
    used = memory.values._spares[-1]
    assert used is not memory.beside._spares[-1]
    del table
    used.append(used.pop())  # nobody has it
    assert offsets.to_pylist()[:297] == list(range(297))
