"""Arrow columns: a table to batches and back, beside aiokafka's compiled builder and reader.

The peers start from, and end with, Python objects, one for each key and value; making those is what columns avoid. So
the lists that aiokafka's builder is fed are prepared outside the timing, and what its reader makes is dropped at once.
Checksums are verified on our side and not on theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from barnabas._kernels import columns as _columns_kernel
from barnabas._kernels import is_compiled
from barnabas._kernels.pure import columns as _columns_pure
from barnabas.records.columns.arrow import (
    HEADERS_TYPE,
    decode_batch,
    decode_batches,
    encode_batch,
    encode_batches,
)
from benchmarks.measure import Row, compare, rates

NOW = 1_700_000_000_000
VALUE = b"v" * 100
KEY = b"k" * 16
HEADERS: list[tuple[str, bytes]] = [("source", b"12345678"), ("trace", b"t" * 16)]
TOTAL = 1 << 20
# How often a megabyte is gone through in a round: a few milliseconds of work, long enough to be timed.
REPEAT = 5
SIZES = {"16 KiB": 16 << 10, "1 MiB": 1 << 20}

OURS = "barnabas columns"
TWIN = "barnabas columns, numpy twin"
PEER = "aiokafka, compiled"


@dataclass(frozen=True, slots=True)
class Shape:
    """What the records look like; a megabyte of them, as a table and as the objects that the peer takes."""

    name: str
    has_keys: bool
    has_headers: bool

    @property
    def count(self) -> int:
        return TOTAL // (107 + 16 * self.has_keys + 39 * self.has_headers)

    def table(self) -> pa.Table:
        columns = {
            "value": pa.array([VALUE] * self.count),
            "timestamp": pa.array(np.arange(NOW, NOW + self.count)),
        }
        if self.has_keys:
            columns["key"] = pa.array([KEY] * self.count)
        if self.has_headers:
            entries = [{"key": key, "value": value} for key, value in HEADERS]
            columns["headers"] = pa.array([entries] * self.count, HEADERS_TYPE)
        return pa.table(columns)

    def rows(self) -> list[tuple[int, bytes | None, bytes, list[tuple[str, bytes]]]]:
        key, headers = KEY if self.has_keys else None, HEADERS if self.has_headers else []
        return [(NOW + index, key, VALUE, headers) for index in range(self.count)]


SHAPES = (
    Shape("100-byte values", False, False),
    Shape("100-byte values, 16-byte keys", True, False),
    Shape("100-byte values, 16-byte keys, 2 headers", True, True),
)


def run(rounds: int = 7) -> list[Row]:
    rows: list[Row] = []
    for shape in SHAPES:
        for size in SIZES:
            rows += encode(shape, size, rounds)
    for shape in SHAPES:
        for size in SIZES:
            rows += decode(shape, size, rounds)
    return rows + single_batches(rounds)


def encode(shape: Shape, size: str, rounds: int) -> list[Row]:
    """A table of 1 MiB to batches of a size."""
    table, rows, limit = shape.table(), shape.rows(), SIZES[size]

    def ours() -> int:
        for _ in range(REPEAT):
            encode_batches(table, max_batch_bytes=limit)
        return REPEAT * shape.count

    def theirs() -> int:
        for _ in range(REPEAT):
            builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, limit)
            offset = 0
            for timestamp, key, value, headers in rows:
                if builder.append(offset, timestamp, key, value, headers) is None:
                    builder.build()
                    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, limit)
                    builder.append(0, timestamp, key, value, headers)
                    offset = 0
                offset += 1
            builder.build()
        return REPEAT * len(rows)

    return _rows(f"columns: encode, batches of {size}, {shape.name}", ours, theirs, 1.0, rounds)


def decode(shape: Shape, size: str, rounds: int) -> list[Row]:
    """The batches of a fetch of 1 MiB to columns."""
    batches = [bytes(batch) for batch in encode_batches(shape.table(), max_batch_bytes=SIZES[size])]
    fetched = b"".join(batches)

    def ours() -> int:
        for _ in range(REPEAT):
            decode_batches(fetched, include_headers=shape.has_headers)
        return REPEAT * shape.count

    def theirs() -> int:
        for batch in batches * REPEAT:
            for _ in DefaultRecordBatch(batch):
                pass
        return REPEAT * shape.count

    return _rows(f"columns: decode, batches of {size}, {shape.name}", ours, theirs, 0.5, rounds)


def single_batches(rounds: int) -> list[Row]:
    """One small batch for each call, where what a call costs in itself shows most."""
    table = SHAPES[0].table().slice(0, 150).combine_chunks()
    values, timestamps = table.column("value").chunk(0), table.column("timestamp").chunk(0)
    rows, repeat = SHAPES[0].rows()[:150], 50
    batch = bytes(encode_batch(values=values, timestamps=timestamps))

    def encode_ours() -> int:
        for _ in range(repeat):
            encode_batch(values=values, timestamps=timestamps)
        return repeat * 150

    def encode_theirs() -> int:
        for _ in range(repeat):
            builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
            append = builder.append
            for offset, (timestamp, key, value, headers) in enumerate(rows):
                append(offset, timestamp, key, value, headers)
            builder.build()
        return repeat * 150

    def decode_ours() -> int:
        for _ in range(repeat):
            decode_batch(batch)
        return repeat * 150

    def decode_theirs() -> int:
        for _ in range(repeat):
            for _ in DefaultRecordBatch(batch):
                pass
        return repeat * 150

    return _rows(
        "columns: encode, a single batch of 16 KiB in a call", encode_ours, encode_theirs, 1.0, rounds
    ) + _rows("columns: decode, a single batch of 16 KiB in a call", decode_ours, decode_theirs, 0.5, rounds)


def _rows(case: str, ours: Callable[[], int], theirs: Callable[[], int], target: float, rounds: int) -> list[Row]:
    if not is_compiled("columns"):
        return compare(case, "records/s", rates({TWIN: ours, PEER: theirs}, rounds), TWIN, {PEER: target})
    measured = rates({OURS: ours, TWIN: partial(_with_twin, ours), PEER: theirs}, rounds)
    return compare(case, "records/s", measured, OURS, {PEER: target})


def _with_twin(work: Callable[[], int]) -> int:
    with _twin():
        return work()


@contextmanager
def _twin() -> Iterator[None]:
    names = _columns_pure.__all__
    before: dict[str, Any] = {name: getattr(_columns_kernel, name) for name in names}
    for name in names:
        setattr(_columns_kernel, name, getattr(_columns_pure, name))
    try:
        yield
    finally:
        for name, implementation in before.items():
            setattr(_columns_kernel, name, implementation)
