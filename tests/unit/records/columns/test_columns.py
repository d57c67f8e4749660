"""Arrow columns to batches and back: all layouts, both kernels, the plain builder and other projects as oracles."""

from __future__ import annotations

import base64
import datetime as dt
import os
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from types import ModuleType
from typing import Any, TypeAlias

import pyarrow as pa
import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from barnabas._kernels import checksum
from barnabas._kernels import columns as _columns_kernel
from barnabas._kernels.pure import columns as _columns_pure
from barnabas.common.errors import ApiError, CorruptRecordError, InvalidRecordError
from barnabas.records.batch import CompressionType, RecordBatch, TimestampType, iter_batches
from barnabas.records.builder import RecordBatchBuilder
from barnabas.records.columns import arrow as columns
from barnabas.records.columns.arrow import (
    HEADERS_TYPE,
    SCHEMA,
    decode_batch,
    decode_batches,
    encode_batch,
    encode_batches,
    fetch_columns,
)
from barnabas.records.control import ControlRecordType, EndTransactionMarker, end_transaction_marker_batch
from barnabas.records.reader import read_records
from oracles.java import JavaOracle

crc32c = checksum.crc32c

Headers: TypeAlias = "list[tuple[str, bytes | None]]"
Row: TypeAlias = "tuple[bytes | None, bytes | None, Headers, int]"

KERNELS: list[ModuleType] = [_columns_pure]
with suppress(ImportError):  # not built: the twin is all there is to test
    KERNELS.append(import_module("barnabas._kernels.compiled.columns"))

NOW = 1_700_000_000_000
ROWS: list[Row] = [
    (b"k", b"v", [], NOW),
    (None, b"a" * 100, [("trace", b"1"), ("", None)], NOW + 5),
    (b"", None, [("é" * 70, b"x" * 200)], NOW - 70_000),
    (b"k" * 300, b"", [], NOW + 2**40),
]


@contextmanager
def kernel(implementation: ModuleType) -> Iterator[None]:
    """Has `columns` work with this kernel."""
    names = _columns_pure.__all__
    before = {name: getattr(_columns_kernel, name) for name in names}
    for name in names:
        setattr(_columns_kernel, name, getattr(implementation, name))
    try:
        yield
    finally:
        for name in names:
            setattr(_columns_kernel, name, before[name])


@pytest.fixture(params=KERNELS, ids=lambda module: module.__name__.rpartition(".")[2])
def each_kernel(request: pytest.FixtureRequest) -> Iterator[None]:
    with kernel(request.param):
        yield


@pytest.mark.usefixtures("each_kernel")
def test_a_batch_is_written_where_it_is_wanted() -> None:
    """Into a part of somebody's memory, of which nothing else changes; it has to be as long as the batch."""
    encoder = columns.BatchEncoder({"value": pa.array([b"a" * 300, None, b"b"])}, timestamps=7)
    count, size = encoder.measure(0, 10_000)
    expected = encoder.batch(0, count, size)
    length = len(expected)
    memory = bytearray(b"\xff" * (length + 20))
    view = memoryview(memory)[10 : 10 + length]
    assert encoder.batch(0, count, size, into=view) is view
    assert memory == b"\xff" * 10 + expected + b"\xff" * 10
    for wrong in (memoryview(memory)[: length - 1], memoryview(memory)[: length + 1], memoryview(bytes(length))):
        with pytest.raises(ValueError, match="is not made for"):
            encoder.batch(0, count, size, into=wrong)


def header_lists(rows: Sequence[Row]) -> pa.Array:
    return pa.array([[{"key": k, "value": v} for k, v in row[2]] for row in rows], HEADERS_TYPE)


def arrays(rows: Sequence[Row]) -> dict[str, pa.Array]:
    return {
        "keys": pa.array([row[0] for row in rows], pa.binary()),
        "values": pa.array([row[1] for row in rows], pa.binary()),
        "headers": header_lists(rows),
        "timestamps": pa.array([row[3] for row in rows], pa.int64()),
    }


def table_of(rows: Sequence[Row]) -> pa.Table:
    parts = arrays(rows)
    return pa.table(
        {
            "key": parts["keys"],
            "value": parts["values"],
            "headers": parts["headers"],
            "timestamp": parts["timestamps"],
            "topic": pa.array(["not looked at"] * len(rows)),
        }
    )


def built(rows: Sequence[Row], **options: Any) -> bytes:
    """What the plain builder makes of the same records."""
    builder = RecordBatchBuilder(**options)
    for key, value, headers, timestamp in rows:
        builder.append(timestamp, key, value, headers)
    return bytes(builder.close())


def rows_of(table: pa.Table | pa.RecordBatch) -> list[Row]:
    table.validate(full=True)
    return [
        (row["key"], row["value"], [(h["key"], h["value"]) for h in row["headers"]], row["timestamp"])
        for row in table.to_pylist()
    ]


def decoded(data: bytes | bytearray, **options: Any) -> list[Row]:
    return rows_of(decode_batches(data, include_headers=True, raw_timestamps=True, **options))


payloads = st.none() | st.binary(max_size=8) | st.integers(0, 300).map(bytes)
header_rows = st.lists(st.tuples(st.text(max_size=4), payloads), max_size=3)
timestamps = st.just(-1) | st.integers(0, 2**62) | st.integers(NOW - 10_000, NOW + 10_000)
rows_strategy = st.lists(st.tuples(payloads, payloads, header_rows, timestamps), min_size=1, max_size=40)


# --- round trips -----------------------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(rows=rows_strategy)
def test_every_kernel_writes_the_bytes_of_the_plain_builder_and_reads_them_back(rows: list[Row]) -> None:
    expected = built(rows)
    for implementation in KERNELS:
        with kernel(implementation):
            batch = encode_batch(**arrays(rows))
            assert bytes(batch) == expected
            assert decoded(batch) == rows


@settings(max_examples=200, deadline=None)
@given(rows=rows_strategy, limit=st.integers(62, 3000))
def test_batches_are_as_large_as_the_limit_allows(rows: list[Row], limit: int) -> None:
    outcomes = []
    for implementation in KERNELS:
        with kernel(implementation):
            batches = encode_batches(table_of(rows), max_batch_bytes=limit)
            outcomes.append([bytes(batch) for batch in batches])
            assert [row for batch in batches for row in decoded(batch)] == rows
    assert all(outcome == outcomes[0] for outcome in outcomes)
    start = 0
    for batch in outcomes[0]:
        count = RecordBatch(batch).record_count
        assert count == 1 or len(batch) <= limit
        assert batch == built(rows[start : start + count])
        start += count
        if start < len(rows):
            assert len(built(rows[start - count : start + 1])) > limit


@pytest.mark.usefixtures("each_kernel")
@pytest.mark.parametrize("compression", CompressionType)
def test_compressed_batches_are_those_of_the_plain_builder(compression: CompressionType) -> None:
    batch = encode_batch(**arrays(ROWS), compression=compression, base_offset=7)
    assert bytes(batch) == built(ROWS, compression=compression, base_offset=7)
    assert decoded(batch) == ROWS
    assert decode_batch(batch).column("offset").to_pylist() == [7, 8, 9, 10]
    records = list(read_records(RecordBatch(batch)))
    assert [(r.key, r.value, list(r.headers), r.timestamp) for r in records] == ROWS


@pytest.mark.usefixtures("each_kernel")
def test_header_fields() -> None:
    batch = encode_batch(
        **arrays(ROWS),
        base_offset=5,
        producer_id=77,
        producer_epoch=3,
        base_sequence=40,
        is_transactional=True,
        partition_leader_epoch=9,
    )
    view = RecordBatch(batch)
    view.ensure_valid()
    assert (view.producer_id, view.producer_epoch, view.base_sequence, view.is_transactional) == (77, 3, 40, True)
    assert (view.base_offset, view.last_offset, view.partition_leader_epoch) == (5, 8, 9)
    assert (view.base_timestamp, view.max_timestamp, view.record_count) == (NOW, NOW + 2**40, 4)


@pytest.mark.usefixtures("each_kernel")
def test_levels_reach_the_codec() -> None:
    values = pa.array([bytes([i % 7]) * 50 + b"abc" for i in range(500)])
    sizes = {
        level: len(encode_batch(values=values, timestamps=0, compression=CompressionType.GZIP, level=level))
        for level in (1, 9)
    }
    assert sizes[9] < sizes[1]
    with pytest.raises(ValueError, match="level"):
        encode_batch(values=values, timestamps=0, compression=CompressionType.GZIP, level=55)


@pytest.mark.usefixtures("each_kernel")
def test_offsets_and_sequences_run_through_batches() -> None:
    data = {"value": pa.array([b"v" * 40] * 6)}
    options: dict[str, Any] = {"max_batch_bytes": 61 + 2 * 47, "timestamps": NOW}
    producer: dict[str, Any] = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 2**31 - 3}
    views = [RecordBatch(batch) for batch in encode_batches(data, **options, **producer)]
    assert [view.base_offset for view in views] == [0, 0, 0]
    assert [view.base_sequence for view in views] == [2**31 - 3, 2**31 - 1, 1]
    views = [RecordBatch(batch) for batch in encode_batches(data, **options, base_offset=100)]
    assert [(view.base_offset, view.last_offset, view.base_sequence) for view in views] == [
        (100, 101, -1),
        (102, 103, -1),
        (104, 105, -1),
    ]


@pytest.mark.usefixtures("each_kernel")
def test_a_record_larger_than_the_limit_gets_its_own_batch() -> None:
    batches = encode_batches({"value": pa.array([b"a", b"b" * 500, b"c", b"d"])}, max_batch_bytes=100, timestamps=NOW)
    assert [RecordBatch(batch).record_count for batch in batches] == [1, 1, 2]
    assert encode_batches({"value": pa.array([], pa.binary())}, max_batch_bytes=100, timestamps=NOW) == []


# --- Arrow layouts ---------------------------------------------------------------------------------------------------

TEXTS = ["a", None, "", "xyz" * 9, "é"]
LAYOUTS = {
    "binary": pa.array(TEXTS, pa.string()).cast(pa.binary()),
    "large_binary": pa.array(TEXTS, pa.string()).cast(pa.large_binary()),
    "string": pa.array(TEXTS, pa.string()),
    "large_string": pa.array(TEXTS, pa.large_string()),
    "string_view": pa.array(TEXTS, pa.string_view()),
    "binary_view": pa.array(TEXTS, pa.string()).cast(pa.binary()).cast(pa.binary_view()),
    "dictionary": pa.array(TEXTS, pa.string()).dictionary_encode(),
    "sliced": pa.array(["before", "b", *TEXTS, "after"]).slice(2, len(TEXTS)),
    "sliced deep": pa.array(["x" * i for i in range(13)] + TEXTS).slice(5).slice(8),
    "chunked": pa.chunked_array([pa.array(TEXTS[:2]), pa.array(TEXTS[2:4]), pa.array(TEXTS[4:])]),
    "one chunk": pa.chunked_array([pa.array(TEXTS)]),
}


@pytest.mark.usefixtures("each_kernel")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_of_keys_and_values(layout: str) -> None:
    column = LAYOUTS[layout]
    expected = [None if text is None else text.encode() for text in TEXTS]
    table = decode_batch(encode_batch(keys=column, values=column, timestamps=NOW))
    assert table.column("key").to_pylist() == expected
    assert table.column("value").to_pylist() == expected


@pytest.mark.usefixtures("each_kernel")
def test_fixed_size_and_null_layouts() -> None:
    fixed = pa.array([b"abcd", None, b"efgh"], pa.binary(4))
    assert decode_batch(encode_batch(values=fixed[1:], timestamps=0)).column("value").to_pylist() == [None, b"efgh"]
    nothing = pa.nulls(2)
    assert (
        rows_of(
            decode_batch(
                encode_batch(keys=nothing, values=nothing, headers=nothing, timestamps=3),
                include_headers=True,
                raw_timestamps=True,
            )
        )
        == [(None, None, [], 3)] * 2
    )
    with pytest.raises(TypeError, match="values are binary or string, not int64"):
        encode_batch(values=pa.array([1]), timestamps=0)
    with pytest.raises(TypeError, match="keys are an Arrow array, not list"):
        encode_batch(values=fixed, keys=[b"a"], timestamps=0)


@pytest.mark.usefixtures("each_kernel")
def test_columns_of_different_length_are_refused() -> None:
    two, three = pa.array([b"a", b"b"]), pa.array([b"a", b"b", b"c"])
    with pytest.raises(ValueError, match="3 keys for 2 values"):
        encode_batch(values=two, keys=three, timestamps=0)
    with pytest.raises(ValueError, match="3 timestamps for 2 values"):
        encode_batch(values=two, timestamps=pa.array([1, 2, 3]))
    with pytest.raises(ValueError, match="headers of 4 records for 2 values"):
        encode_batch(values=two, headers=header_lists(ROWS), timestamps=0)


ENTRY = pa.struct([("key", pa.string()), ("value", pa.binary())])
HEADER_LAYOUTS = {
    "list": header_lists(ROWS),
    "large_list": header_lists(ROWS).cast(pa.large_list(ENTRY)),
    "sliced": pa.concat_arrays([header_lists(ROWS[1:]), header_lists(ROWS), header_lists(ROWS)]).slice(3, 4),
    "chunked": pa.chunked_array([header_lists(ROWS[:2]), header_lists(ROWS[2:])]),
    "map": pa.array([row[2] for row in ROWS], pa.map_(pa.string(), pa.binary())),
    "sliced map": pa.array([[("no", b"")], *[row[2] for row in ROWS]], pa.map_(pa.string(), pa.binary())).slice(1),
    "value first": pa.array(
        [[{"value": v, "key": k} for k, v in row[2]] for row in ROWS],
        pa.list_(pa.struct([("value", pa.large_binary()), ("key", pa.large_string())])),
    ),
    "binary keys": pa.array(
        [[{"key": k.encode(), "value": v} for k, v in row[2]] for row in ROWS],
        pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())])),
    ),
}


@pytest.mark.usefixtures("each_kernel")
@pytest.mark.parametrize("layout", HEADER_LAYOUTS)
def test_every_layout_of_headers(layout: str) -> None:
    columns = arrays(ROWS) | {"headers": HEADER_LAYOUTS[layout]}
    assert bytes(encode_batch(**columns)) == built(ROWS)


@pytest.mark.usefixtures("each_kernel")
def test_a_null_list_is_no_headers_even_where_it_covers_some() -> None:
    entries = pa.array([{"key": name, "value": None} for name in "abcd"], ENTRY)
    validity = pa.py_buffer(bytes([0b1101]))
    offsets = pa.array([0, 1, 3, 3, 4], pa.int32())
    headers = pa.Array.from_buffers(HEADERS_TYPE, 4, [validity, offsets.buffers()[1]], children=[entries])
    batch = encode_batch(values=pa.array([b"v"] * 4), headers=headers, timestamps=0)
    assert [row[2] for row in decoded(batch)] == [[("a", None)], [], [], [("d", None)]]
    # The null entry is outside the slice, so it does no harm.
    entries = pa.array([None, {"key": "b", "value": b"1"}], ENTRY)
    headers = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), entries)
    batch = encode_batch(values=pa.array([b"v"]), headers=headers.slice(1), timestamps=0)
    assert [row[2] for row in decoded(batch)] == [[("b", b"1")]]
    with pytest.raises(ValueError, match="a header cannot be null"):
        encode_batch(values=pa.array([b"v"] * 2), headers=headers, timestamps=0)


@pytest.mark.usefixtures("each_kernel")
def test_headers_that_kafka_does_not_have() -> None:
    values = pa.array([b"v"] * 2)
    null_key = pa.array([[], [{"key": "a", "value": None}, {"key": None, "value": b"x"}]], HEADERS_TYPE)
    with pytest.raises(ValueError, match="record 1: a header key cannot be null"):
        encode_batch(values=values, headers=null_key, timestamps=0)
    binary = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))
    with pytest.raises(ValueError, match="header keys are UTF-8"):
        encode_batch(values=values, headers=pa.array([[{"key": b"\xff", "value": None}], []], binary), timestamps=0)
    for other in (pa.array([["a"], []]), pa.array([[{"key": "a"}], []]), pa.array(["a", "b"])):
        with pytest.raises(TypeError, match="headers are a map, or a list of structs of key and value"):
            encode_batch(values=values, headers=other, timestamps=0)


@pytest.mark.usefixtures("each_kernel")
def test_every_kind_of_timestamp() -> None:
    values = pa.array([b"a", b"b"])
    moments = [
        dt.datetime(2024, 5, 1, 12, 0, 1, 999_999, tzinfo=dt.UTC),
        dt.datetime.fromtimestamp(1, dt.UTC),
    ]
    milliseconds = [1_714_564_801_999, 1000]
    for kind in (pa.timestamp("ms"), pa.timestamp("us", "UTC"), pa.timestamp("ns", "Europe/Berlin")):
        stamps = pa.array(
            [moment.replace(microsecond=999_000 if kind.unit == "ms" else moment.microsecond) for moment in moments[:1]]
            + moments[1:],
            kind,
        )
        batch = encode_batch(values=values, timestamps=stamps)
        assert [row[3] for row in decoded(batch)] == milliseconds
    assert [row[3] for row in decoded(encode_batch(values=values, timestamps=pa.array([5, 6], pa.timestamp("s"))))] == [
        5000,
        6000,
    ]
    assert [row[3] for row in decoded(encode_batch(values=values, timestamps=pa.array([5, 6], pa.uint16())))] == [5, 6]
    sliced = pa.array([1, 2, 3, 4]).slice(1, 2)
    assert [row[3] for row in decoded(encode_batch(values=values, timestamps=sliced))] == [2, 3]
    assert [row[3] for row in decoded(encode_batch(values=values, timestamps=-1))] == [-1, -1]
    for bad, problem in (
        (pa.array([1, None]), "cannot be null"),
        (pa.array([1, -2]), "record 1: timestamp -2 is out of range"),
        (pa.array([-1, 2**63 - 1]), f"record 1: timestamp {2**63 - 1} is out of range"),
        (-2, "timestamp -2 is out of range"),
        (2**63, "is out of range"),
        (pa.array([1, 2**62], pa.timestamp("s")), "out of bounds"),
    ):
        with pytest.raises(ValueError, match=problem):
            encode_batch(values=values, timestamps=bad)
    with pytest.raises(TypeError, match="timestamps are Arrow timestamps or integers of milliseconds, not string"):
        encode_batch(values=values, timestamps=values.cast(pa.string()))


@pytest.mark.usefixtures("each_kernel")
def test_the_given_timestamps_fill_the_gaps_of_the_column() -> None:
    data = {"value": pa.array([b"a", b"b"]), "timestamp": pa.array([5, None], pa.timestamp("ms"))}
    for default, expected in ((9, [5, 9]), (pa.array([7, 8]), [5, 8])):
        (batch,) = encode_batches(data, max_batch_bytes=1000, timestamps=default)
        assert [row[3] for row in decoded(batch)] == expected
    with pytest.raises(ValueError, match="cannot be null"):
        encode_batches(data, max_batch_bytes=1000)
    with pytest.raises(ValueError, match="no column named timestamp"):
        encode_batches({"value": data["value"]}, max_batch_bytes=1000)
    with pytest.raises(ValueError, match="no column named value"):
        encode_batches({"key": data["value"]}, max_batch_bytes=1000, timestamps=1)
    with pytest.raises(ValueError, match="leaves no room"):
        encode_batches(data, max_batch_bytes=61, timestamps=1)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"producer_id": 5}, "needs an epoch"),
        ({"producer_id": 5, "producer_epoch": 1}, "needs an epoch and a sequence"),
        ({"is_transactional": True}, "needs a producer id"),
        ({"producer_epoch": 2**15}, "producer_epoch 32768"),
        ({"producer_id": 2**63}, "producer_id"),
        ({"partition_leader_epoch": -2}, "partition_leader_epoch"),
        ({"base_offset": -1}, "base offset -1"),
        ({"base_offset": 2**63 - 1}, "base offset"),
    ],
)
def test_header_fields_out_of_range(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        encode_batch(values=pa.array([b"a"]), timestamps=0, **options)


@pytest.mark.usefixtures("each_kernel")
def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        encode_batch(values=pa.array([], pa.binary()), timestamps=0)


# --- columns ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("each_kernel")
def test_the_schema_is_exact() -> None:
    batch = encode_batch(**arrays(ROWS))
    everything = decode_batch(batch, include_headers=True)
    assert everything.schema.equals(SCHEMA, check_metadata=True)
    assert str(SCHEMA.field("headers").type) == "list<item: struct<key: string, value: binary>>"
    assert decode_batch(batch).schema.names == ["key", "value", "offset", "timestamp", "timestamp_type"]
    assert decode_batch(batch, raw_timestamps=True).schema.field("timestamp").type == pa.int64()
    table = decode_batches(batch, include_headers=True)
    assert table.schema.equals(SCHEMA, check_metadata=True)
    assert decode_batches(b"", include_headers=True).schema.equals(SCHEMA, check_metadata=True)
    assert everything.column("timestamp")[0].as_py() == dt.datetime.fromtimestamp(NOW / 1000, dt.UTC)
    assert everything.column("timestamp_type").to_pylist() == [0] * 4


@pytest.mark.usefixtures("each_kernel")
def test_columns_are_selected_and_ordered() -> None:
    batch = encode_batch(**arrays(ROWS))
    whole = decode_batch(batch, include_headers=True)
    for names in (["value"], ["offset", "key"], ["headers"], ["timestamp_type", "headers", "timestamp"]):
        part = decode_batch(batch, columns=names)
        assert part.schema.names == names
        assert part.to_pylist() == whole.select(names).to_pylist()
    assert decode_batch(batch, columns=["key"], include_headers=True).schema.names == ["key", "headers"]
    for bad in (["topic"], ["key", "key"], []):
        with pytest.raises(ValueError, match="columns are some of key, value"):
            decode_batch(batch, columns=bad)


@pytest.mark.usefixtures("each_kernel")
def test_append_time_replaces_the_timestamps() -> None:
    batch = encode_batch(**arrays(ROWS))
    RecordBatch(batch).set_max_timestamp(TimestampType.LOG_APPEND_TIME, NOW + 9)
    table = decode_batch(batch, raw_timestamps=True)
    assert table.column("timestamp").to_pylist() == [NOW + 9] * 4
    assert table.column("timestamp_type").to_pylist() == [1] * 4
    both = decode_batches(batch + encode_batch(**arrays(ROWS[:1]), base_offset=4), raw_timestamps=True)
    assert both.column("timestamp_type").to_pylist() == [1, 1, 1, 1, 0]
    assert both.column("timestamp").to_pylist() == [NOW + 9] * 4 + [NOW]


@pytest.mark.usefixtures("each_kernel")
def test_a_timestamp_that_does_not_fit_microseconds() -> None:
    batch = encode_batch(values=pa.array([b"a"]), timestamps=2**62)
    with pytest.raises(
        InvalidRecordError, match=r"record 0 at byte 0 has timestamp 4611686018427387904, which does not"
    ):
        decode_batch(batch)
    assert decode_batch(batch, raw_timestamps=True).column("timestamp").to_pylist() == [2**62]
    assert decode_batch(batch, columns=["value"]).to_pylist() == [{"value": b"a"}]
    (negative,) = decode_batch(encode_batch(values=pa.array([b"a"]), timestamps=-1), columns=["timestamp"]).column(0)
    assert negative.value == -1000


# --- whole fetches ---------------------------------------------------------------------------------------------------


def numbered(first: int, count: int, **options: Any) -> bytearray:
    """A batch whose values are its offsets."""
    values = pa.array([str(first + i).encode() for i in range(count)])
    return encode_batch(values=values, timestamps=NOW, base_offset=first, **options)


def values_of(table: pa.Table) -> list[int]:
    table.validate(full=True)
    return [int(value) for value in table.column("value").to_pylist()]


@pytest.mark.usefixtures("each_kernel")
@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.ZSTD])
def test_many_batches_make_one_set_of_columns(compression: CompressionType) -> None:
    data = b"".join(numbered(first, 13, compression=compression) for first in range(0, 130, 13))
    fetched = fetch_columns(data)
    assert fetched.table.column("value").num_chunks == 1
    assert values_of(fetched.table) == fetched.table.column("offset").to_pylist() == list(range(130))
    assert (fetched.next_offset, fetched.size_in_bytes) == (130, len(data))
    for start in (0, 1, 12, 13, 14, 64, 129, 130, 1000):
        assert values_of(decode_batches(data, start_offset=start)) == list(range(start, 130))
    with pytest.raises(ValueError, match="start offset -1"):
        decode_batches(data, start_offset=-1)
    # Batches that end before the start are not even decompressed.
    damaged = bytearray(data)
    damaged[61:65] = b"\xff" * 4
    assert values_of(decode_batches(damaged, start_offset=13, check_crc=False)) == list(range(13, 130))
    with pytest.raises(CorruptRecordError):
        decode_batches(damaged, start_offset=12, check_crc=False)


@pytest.mark.usefixtures("each_kernel")
def test_several_buffers_make_one_table() -> None:
    first = columns.fetch_sections(numbered(0, 3) + numbered(3, 4), start_offset=2)
    nothing = columns.fetch_sections(b"")
    second = columns.fetch_sections(numbered(50, 2) + numbered(52, 9)[:-1])
    assert [one.records for one in (first, nothing, second)] == [5, 0, 2]
    assert [one.next_offset for one in (first, nothing, second)] == [7, None, 52]
    assert (nothing.size_in_bytes, second.size_in_bytes) == (0, len(numbered(50, 2)))
    table = columns.assemble_sections([first, nothing, second])
    assert values_of(table) == table.column("offset").to_pylist() == [2, 3, 4, 5, 6, 50, 51]
    assert table.column("value").num_chunks == 1
    assert columns.assemble_sections([nothing]).num_rows == 0
    with pytest.raises(ValueError, match="the same columns"):
        columns.assemble_sections([first, columns.fetch_sections(numbered(0, 1), columns=["value"])])


@pytest.mark.usefixtures("each_kernel")
def test_a_batch_that_is_cut_off_at_the_end_is_left_for_the_next_fetch() -> None:
    first, second = numbered(0, 3), numbered(3, 3)
    for cut in range(len(second)):
        fetched = fetch_columns(first + second[:cut])
        assert values_of(fetched.table) == [0, 1, 2]
        assert (fetched.next_offset, fetched.size_in_bytes) == (3, len(first))
        nothing = fetch_columns(second[:cut])
        assert (nothing.table.num_rows, nothing.next_offset, nothing.size_in_bytes) == (0, None, 0)
    with pytest.raises(CorruptRecordError, match="cut off"):
        decode_batch(second[:-1])


@pytest.mark.usefixtures("each_kernel")
def test_gaps_that_compaction_left() -> None:
    builder = RecordBatchBuilder(base_offset=10)
    for offset in (11, 14, 15):
        builder.append_with_offset(offset, NOW, None, str(offset).encode())
    builder.override_last_offset(19)
    empty = RecordBatchBuilder(base_offset=20)
    empty.override_last_offset(24)
    data = builder.close() + empty.close() + numbered(30, 2)
    fetched = fetch_columns(data)
    assert values_of(fetched.table) == fetched.table.column("offset").to_pylist() == [11, 14, 15, 30, 31]
    assert values_of(decode_batches(data, start_offset=12)) == [14, 15, 30, 31]
    assert values_of(decode_batches(data, start_offset=16)) == [30, 31]
    only_empty = fetch_columns(data[: -len(numbered(30, 2))], start_offset=17)
    assert (only_empty.table.num_rows, only_empty.next_offset) == (0, 25)


def transactional(first: int, count: int, producer_id: int) -> bytearray:
    return numbered(first, count, producer_id=producer_id, producer_epoch=0, base_sequence=first, is_transactional=True)


def marker(offset: int, producer_id: int, control_type: ControlRecordType) -> bytearray:
    return end_transaction_marker_batch(
        EndTransactionMarker(control_type, 0),
        producer_id=producer_id,
        producer_epoch=0,
        timestamp_ms=NOW,
        base_offset=offset,
    )


@pytest.mark.usefixtures("each_kernel")
def test_aborted_transactions_are_hidden_from_their_first_record_to_their_marker() -> None:
    abort, commit = ControlRecordType.ABORT, ControlRecordType.COMMIT
    log = [
        transactional(0, 2, 7),  # aborted at 5
        transactional(2, 1, 9),  # commits at 8
        numbered(3, 2),  # nobody's
        marker(5, 7, abort),
        transactional(6, 2, 7),  # commits at 9
        marker(8, 9, commit),
        marker(9, 7, commit),
        transactional(10, 1, 9),  # aborted at 12
        numbered(11, 1, producer_id=9, producer_epoch=0, base_sequence=0),  # the same producer, in no transaction
        marker(12, 9, abort),
        transactional(13, 1, 9),  # still open
    ]
    data = b"".join(log)
    everything = [0, 1, 2, 3, 4, 6, 7, 10, 11, 13]
    assert values_of(decode_batches(data)) == everything
    assert values_of(decode_batches(data, aborted=[])) == everything
    # In any order, as brokers promise none.
    committed = fetch_columns(data, aborted=[(9, 10), (7, 0)])
    assert values_of(committed.table) == [2, 3, 4, 6, 7, 11, 13]
    assert committed.next_offset == 14
    assert values_of(decode_batches(data, aborted=[(7, 0)])) == [2, 3, 4, 6, 7, 10, 11, 13]
    # A fetch that starts inside the transaction still gets told its first offset.
    inside = fetch_columns(b"".join(log[1:]), aborted=[(9, 10), (7, 0)], start_offset=2)
    assert values_of(inside.table) == [2, 3, 4, 6, 7, 11, 13]
    only_aborted = fetch_columns(log[0] + log[3], aborted=[(7, 0)])
    assert (only_aborted.table.num_rows, only_aborted.next_offset) == (0, 6)


@pytest.mark.usefixtures("each_kernel")
def test_a_marker_without_type_is_reported() -> None:
    builder = RecordBatchBuilder(base_offset=1, is_control=True, is_transactional=True, producer_id=7, producer_epoch=0)
    builder.append(NOW, b"\0", None)
    with pytest.raises(InvalidRecordError, match="control record"):
        decode_batches(transactional(0, 1, 7) + builder.close(), aborted=[(7, 0)])


@pytest.mark.usefixtures("each_kernel")
def test_a_column_beyond_its_offsets_continues_in_another_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"".join(numbered(first, 13) for first in range(0, 130, 13))
    monkeypatch.setattr(columns, "MAX_COLUMN_BYTES", 60)
    table = decode_batches(data)
    assert table.column("value").num_chunks > 2
    assert values_of(table) == list(range(130))
    for chunk in table.column("value").chunks:
        assert sum(map(len, chunk.to_pylist())) <= 60


@pytest.mark.usefixtures("each_kernel")
@pytest.mark.parametrize("compression", [c for c in CompressionType if c is not CompressionType.NONE])
def test_decompression_is_bounded(compression: CompressionType) -> None:
    values = pa.array([bytes(100_000)])
    bomb = encode_batch(values=values, timestamps=NOW, compression=compression)
    size = len(encode_batch(values=values, timestamps=NOW)) - 61
    assert decode_batch(bomb, max_decompressed_bytes=size).num_rows == 1
    with pytest.raises(CorruptRecordError, match="larger than"):
        decode_batch(bomb, max_decompressed_bytes=size - 1)
    # The bound is for all batches of a fetch together.
    assert decode_batches(bomb * 3, max_decompressed_bytes=3 * size).num_rows == 3
    with pytest.raises(CorruptRecordError, match="larger than"):
        decode_batches(bomb * 3, max_decompressed_bytes=3 * size - 1)
    with pytest.raises(ValueError, match="must not be negative"):
        decode_batches(bomb, max_decompressed_bytes=-1)


# --- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("each_kernel")
def test_the_checksum_is_checked_unless_told_otherwise() -> None:
    batch = numbered(0, 3)
    batch[-2] ^= 1
    with pytest.raises(CorruptRecordError, match="checksum"):
        decode_batch(batch)
    with pytest.raises(CorruptRecordError, match="checksum"):
        decode_batches(numbered(0, 1) + batch)
    assert decode_batch(batch, check_crc=False).num_rows == 3


@pytest.mark.usefixtures("each_kernel")
@pytest.mark.parametrize(
    ("at", "layout", "number", "problem"),
    [
        (57, ">i", 1000, "claims 1000 records, but its records section has 24 bytes"),
        (57, ">i", 2**31 - 1, "claims 2147483647 records"),
        (57, ">i", -1, "claims -1 records"),
        (57, ">i", 0, "claims no records"),
        (57, ">i", 2, "8 bytes are left after it"),
        (23, ">i", -1, "base 0, last offset delta -1"),
        (23, ">i", 1, "record 2 at byte 16 has offset delta 2"),
        (0, ">q", -5, "base -5,"),
        (0, ">q", 2**63 - 2, "invalid offsets in a record batch"),
        (27, ">q", 2**63 - 1, "does not fit"),
    ],
)
def test_batch_headers_that_lie(at: int, layout: str, number: int, problem: str) -> None:
    batch = numbered(0, 3)
    struct.pack_into(layout, batch, at, number)
    for decode in (decode_batch, decode_batches):
        with pytest.raises((CorruptRecordError, InvalidRecordError), match=problem):
            decode(batch, check_crc=False)


@pytest.mark.usefixtures("each_kernel")
def test_header_keys_that_are_not_utf8() -> None:
    batch = encode_batch(**arrays(ROWS), base_offset=100)
    data = bytes(batch).replace(b"\xc3\xa9" * 70, b"\xc3\xa9" * 69 + b"\xc3\xc3")
    assert data != bytes(batch)
    for decode in (decode_batch, decode_batches):
        with pytest.raises(
            CorruptRecordError, match="the record at offset 102 has a header key that is not UTF-8 at byte 138"
        ):
            decode(data, include_headers=True, check_crc=False)
        assert decode(data, check_crc=False).num_rows == 4


@settings(max_examples=300, deadline=None)
@given(
    rows=rows_strategy,
    damage=st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255)), min_size=1, max_size=4),
    cut=st.integers(0, 3),
)
def test_damaged_batches_give_records_or_one_error_and_the_same_from_each_kernel(
    rows: list[Row], damage: list[tuple[int, int]], cut: int
) -> None:
    batch = bytearray(built(rows))
    for position, change in damage:
        batch[position % len(batch)] ^= change
    data = bytes(batch[: len(batch) - cut])
    outcomes: list[Any] = []
    for implementation in KERNELS:
        with kernel(implementation):
            try:
                table = decode_batches(data, include_headers=True, check_crc=False)
                table.validate(full=True)
                outcomes.append(table)
            except ApiError as error:
                outcomes.append((type(error), str(error)))
    assert all(outcome == outcomes[0] for outcome in outcomes)


# --- other projects --------------------------------------------------------------------------------------------------


def readable(record: Any) -> Row:
    headers = [(key, None if value is None else bytes(value)) for key, value in record.headers]
    return record.key, record.value, headers, record.timestamp


@pytest.mark.usefixtures("each_kernel")
@pytest.mark.parametrize("compression", CompressionType)
def test_aiokafka_reads_ours_and_we_read_theirs(compression: CompressionType) -> None:
    batch = AiokafkaBatch(bytes(encode_batch(**arrays(ROWS), compression=compression)))
    assert batch.validate_crc()
    assert [readable(record) for record in batch] == ROWS
    builder = AiokafkaBuilder(2, int(compression), 0, -1, -1, -1, 1 << 20)
    for index, (key, value, headers, timestamp) in enumerate(ROWS):
        assert builder.append(index, timestamp, key, value, headers) is not None
    assert decoded(bytes(builder.build())) == ROWS


@pytest.mark.usefixtures("each_kernel")
@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.GZIP])
def test_kafka_python_reads_ours_and_we_read_theirs(compression: CompressionType) -> None:
    batch = KafkaPythonBatch(bytes(encode_batch(**arrays(ROWS), compression=compression)))
    assert batch.validate_crc()
    assert [readable(record) for record in batch] == ROWS
    builder = KafkaPythonBuilder(2, int(compression), 0, -1, -1, -1, 1 << 20)
    for index, (key, value, headers, timestamp) in enumerate(ROWS):
        assert builder.append(index, timestamp, key, value, headers) is not None
    assert decoded(bytes(builder.build())) == ROWS


@pytest.mark.java
@pytest.mark.usefixtures("each_kernel")
@pytest.mark.parametrize("compression", CompressionType)
def test_java_reads_ours_and_we_read_theirs(java_oracle: JavaOracle, compression: CompressionType) -> None:
    def text(data: bytes | None) -> str | None:
        return None if data is None else base64.b64encode(data).decode()

    records = [
        {"timestamp": timestamp, "key": text(key), "value": text(value), "headers": [[k, text(v)] for k, v in headers]}
        for key, value, headers, timestamp in ROWS
    ]
    batches = encode_batches(table_of(ROWS), max_batch_bytes=500, compression=compression, base_offset=20)
    read = java_oracle.read_batches(b"".join(batches))
    assert len(read) > 1
    assert all(batch["valid"] for batch in read)
    seen = [record for batch in read for record in batch["records"]]
    assert [{key: record[key] for key in records[0]} for record in seen] == records
    assert [record["offset"] for record in seen] == [20, 21, 22, 23]
    spec = {"timestampType": "CreateTime", "compression": compression.codec_name, "records": records}
    assert decoded(java_oracle.write_batch(spec)) == ROWS


# --- imports ---------------------------------------------------------------------------------------------------------


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | environment, check=False
    )


def test_nothing_but_columns_imports_arrow() -> None:
    modules = "barnabas, barnabas.records, barnabas.records.reader, barnabas.records.builder"
    result = run(f"import sys, {modules}; print(sorted({{'numpy', 'pyarrow'}} & set(sys.modules)))")
    assert (result.stdout.strip(), result.returncode) == ("[]", 0), result.stderr


def test_without_arrow_the_error_says_what_to_install() -> None:
    result = run("import sys; sys.modules['pyarrow'] = None; import barnabas.records.columns.arrow")
    assert result.returncode != 0
    assert (
        "barnabas.records.columns.arrow needs pyarrow, which is not installed: pip install 'barnabas[arrow]'"
        in result.stderr
    )


def test_batches_are_views_that_iterate() -> None:
    """What comes out is a log: the batches follow each other for anyone who walks the bytes."""
    data = b"".join(encode_batches(table_of(ROWS * 10), max_batch_bytes=700, base_offset=0))
    offsets = [(batch.base_offset, batch.next_offset) for batch in iter_batches(data)]
    assert [first for first, _ in offsets] == [0] + [after for _, after in offsets[:-1]]
    assert offsets[-1][1] == 40


@pytest.mark.usefixtures("each_kernel")
def test_batches_one_by_one_are_those_that_are_made_at_once() -> None:
    table = pa.table({"key": [b"k%d" % row for row in range(100)], "value": [b"v" * row for row in range(100)]})
    at_once = columns.encode_batches(table, max_batch_bytes=1_000, timestamps=NOW)
    encoder = columns.BatchEncoder(table, timestamps=NOW)
    assert len(encoder) == 100
    first = 0
    for expected in at_once:
        count, size = encoder.measure(first, 1_000)
        batch = encoder.batch(first, count, size)
        assert batch == expected
        first += count
    assert encoder.measure(first, 1_000) == (0, 0)
    with pytest.raises(ValueError, match="max_batch_bytes of 61 leaves no room"):
        encoder.measure(0, 61)


def test_a_batch_without_a_checksum_lacks_nothing_else() -> None:
    table = pa.table({"value": [b"v"] * 10})
    encoder = columns.BatchEncoder(table, timestamps=NOW, checksum=False)
    batch = RecordBatch(encoder.batch(0, *encoder.measure(0, 1_000)))
    assert batch.crc == 0
    (expected,) = columns.encode_batches(table, max_batch_bytes=1_000, timestamps=NOW)
    assert batch.compute_crc() == RecordBatch(expected).crc
