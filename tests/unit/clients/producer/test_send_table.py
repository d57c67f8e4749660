"""`send_table`: whole tables on the way that single records take."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from barnabas._kernels import columns, murmur2
from barnabas._kernels.pure import columns as pure_columns
from barnabas.clients.common.metadata_snapshot import MetadataSnapshot
from barnabas.clients.producer import AsyncKafkaProducer, KafkaProducer, MockProducer, TableSendError
from barnabas.clients.producer.errors import BufferExhaustedError, IllegalStateError, ProducerClosedError
from barnabas.clients.producer.internals import table_hash
from barnabas.clients.producer.internals.produce_request_result import ProduceRequestResult
from barnabas.clients.producer.internals.spare_buffers import SpareBuffers
from barnabas.clients.producer.internals.table_result import TableProgress, row_numbers
from barnabas.clients.producer.partitioner import Partitioner
from barnabas.clients.testing import Fate, ScriptedCluster, StoredRecord
from barnabas.common.errors import (
    Errors,
    KafkaTimeoutError,
    RecordTooLargeError,
    TopicAuthorizationError,
)
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.api_keys import ApiKey
from barnabas.records.batch import RecordBatch

partition_for_key = murmur2.partition_for_key

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def send_all(cluster: ScriptedCluster, producer: KafkaProducer, topic: str, table: Any, **options: Any) -> Any:
    future = cluster.run_while(producer, lambda: producer.send_table(topic, table, **options))
    cluster.run_until(producer, future.done)
    return future


def contents(cluster: ScriptedCluster, topic: str) -> dict[int, list[StoredRecord]]:
    count = len(cluster.topics[topic].partitions)
    return {partition: list(cluster.records(topic, partition)) for partition in range(count)}


def numbers(cluster: ScriptedCluster, topic: str, partition: int = 0) -> list[int]:
    return [int(record.value or b"-1") for record in cluster.records(topic, partition)]


def numbered(count: int, size: int = 0) -> pa.Table:
    return pa.table({"value": pa.array([b"%d" % number + b" " * size for number in range(count)])})


def batches_sent(cluster: ScriptedCluster) -> list[RecordBatch]:
    return [
        RecordBatch(bytes(data.records))
        for request in cluster.requests(ApiKey.PRODUCE)
        for topic in request.topic_data
        for data in topic.partition_data
    ]


def assert_no_memory_is_missing(producer: KafkaProducer) -> None:
    pool = producer.accumulator.pool
    assert pool.available_memory() == pool.total_memory


# -- the same as single sends


def random_rows(random: Random, count: int) -> list[dict[str, Any]]:
    return [
        {
            "key": None if random.random() < 0.2 else random.randbytes(random.randrange(12)),
            "value": None if random.random() < 0.1 else random.randbytes(random.randrange(200)),
            "headers": [
                {"key": f"h{index}", "value": None if random.random() < 0.3 else random.randbytes(4)}
                for index in range(random.randrange(3))
            ],
            "timestamp": random.randrange(1_000_000),
            "partition": random.randrange(5) if random.random() < 0.3 else None,
        }
        for _ in range(count)
    ]


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_rows_are_what_single_sends_make_of_them(compression: str) -> None:
    """Rows with a key or a partition: the same place, the same order, the same bytes."""
    rows = [row for row in random_rows(Random(7), 400) if row["key"] is not None or row["partition"] is not None]
    cluster = ScriptedCluster({"single": 5, "table": 5})
    producer = cluster.producer(compression_type=compression)
    for row in rows:
        producer.send(
            "single",
            row["value"],
            row["key"],
            [(header["key"], header["value"]) for header in row["headers"]],
            row["partition"],
            row["timestamp"],
        )
    cluster.run_while(producer, producer.flush)
    schema = pa.schema(
        {
            "key": pa.binary(),
            "value": pa.binary(),
            "headers": HEADERS,
            "timestamp": pa.int64(),
            "partition": pa.int32(),
        }
    )
    metadata = send_all(cluster, producer, "table", pa.Table.from_pylist(rows, schema)).result()
    fields = (1, 2, 3, 4)
    single, table = (
        {partition: [[record[field] for field in fields] for record in records] for partition, records in found.items()}
        for found in (contents(cluster, "single"), contents(cluster, "table"))
    )
    assert table == single
    assert metadata.rows == len(rows)
    assert {partition: found.count for partition, found in metadata.partitions.items()} == {
        partition: len(records) for partition, records in single.items() if records
    }
    assert_no_memory_is_missing(producer)


def test_the_hash_of_a_column_is_that_of_each_key() -> None:
    random = Random(3)
    keys = [None if random.random() < 0.1 else random.randbytes(random.randrange(40)) for _ in range(3_000)]
    array = pa.array(keys, pa.binary())
    for column in (array, array.slice(13, 2_000), array.cast(pa.large_binary()), array.slice(5, 0)):
        expected = [-1 if key is None else partition_for_key(key, 7) for key in column.to_pylist()]
        assert table_hash.partitions_for_keys(column, 7).tolist() == expected
        found = np.empty(len(column), np.int32)
        wide = pa.types.is_large_binary(column.type)
        validity, offsets, data = column.buffers()
        raw = pure_columns.BinaryColumn(validity, offsets, data, wide, column.offset, len(column))
        pure_columns.partitions_for_keys(raw, 7, found)
        assert found.tolist() == expected


@pytest.mark.parametrize("kernel", [columns, pure_columns])
def test_the_hash_checks_what_it_is_given(kernel: Any) -> None:
    validity, offsets, data = pa.array([b"a", b"bc"]).buffers()
    out = np.empty(2, np.int32)
    for arguments, message in (
        ((validity, offsets, data, False, 0, 2, 0, out), "has none to choose from"),
        ((validity, offsets, data, False, 0, 1, 5, out), "one 32-bit number"),
        ((b"", offsets, data, False, 0, 2, 5, out), "validity bitmap is shorter"),
        ((validity, offsets, data, True, 6, 2, 5, out), "offsets buffer is shorter"),
        ((validity, offsets, b"a", False, 0, 2, 5, out), "record 1: the array's offsets point outside"),
    ):
        *column, count, found = arguments
        with pytest.raises(ValueError, match=message):
            kernel.partitions_for_keys(kernel.BinaryColumn(*column), count, found)


@pytest.mark.parametrize("kind", ["arrow", "batch", "chunks", "pandas", "polars", "dictionary", "view", "map"])
def test_tables_of_all_kinds(kind: str) -> None:
    plain = {"key": ["a", "b", "ü"], "value": ["1", None, "3"]}
    pairs: list[list[Any]] = [[("x", b"1")], [], [("y", None)]]
    expected_headers: list[Any] = [(), (), ()]
    table: Any
    if kind == "arrow":
        table = pa.table(plain)
    elif kind == "batch":
        table = pa.RecordBatch.from_pydict(plain)
    elif kind == "chunks":
        table = pa.concat_tables([pa.table(plain).slice(row, 1) for row in range(3)])
    elif kind == "pandas":
        table = pd.DataFrame(plain, index=[7, 8, 9])
    elif kind == "polars":
        table = pl.DataFrame(plain)
    elif kind == "dictionary":
        table = pa.table({name: pa.array(column).dictionary_encode() for name, column in plain.items()})
    elif kind == "view":
        table = pa.table({name: pa.array(column, pa.string_view()) for name, column in plain.items()})
    else:
        table = pa.table({**plain, "headers": pa.array(pairs, pa.map_(pa.string(), pa.binary()))})
        expected_headers = [tuple(pair) for pair in pairs]
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer()
    send_all(cluster, producer, "t", table).result()
    assert [record[2:5] for record in cluster.records("t")] == [
        (b"a", b"1", expected_headers[0]),
        (b"b", None, expected_headers[1]),
        ("ü".encode(), b"3", expected_headers[2]),
    ]


def test_timestamps() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer()
    now = cluster.clock.milliseconds()
    stamps = pa.array([1_000_999, None], pa.timestamp("us"))
    send_all(cluster, producer, "t", pa.table({"value": [b"1", b"2"], "timestamp": stamps})).result()
    send_all(cluster, producer, "t", pa.table({"value": [b"3"], "timestamp": [None]}), timestamp_ms=5).result()
    send_all(cluster, producer, "t", pa.table({"value": [b"4"]}), timestamp_ms=6).result()
    assert [record.timestamp_ms for record in cluster.records("t")] == [1_000, now, 5, 6]


def test_an_empty_table_is_done_at_once() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer()
    table = pa.table({"value": pa.array([], pa.binary()), "headers": pa.array([], HEADERS)})
    metadata = producer.send_table("t", table).result(0)
    assert (metadata.rows, dict(metadata.partitions)) == (0, {})


# -- tables that are no good


BAD: Mapping[str, tuple[Any, type[Exception], str]] = {
    "no table": ([1, 2], TypeError, "a table is a pyarrow Table or RecordBatch, .* not list"),
    "no value": ({"key": [b"a"]}, ValueError, "no column named value"),
    "another column": ({"value": [b"a"], "topic": ["t"]}, ValueError, "unknown columns: topic; those of a table are"),
    "numbers": ({"value": [1]}, TypeError, "the column value is of type int64: it has to be binary or string"),
    "number keys": ({"value": [b"a"], "key": [1.5]}, TypeError, "the column key is of type double"),
    "headers": ({"value": [b"a"], "headers": ["h"]}, TypeError, "the column headers is of type string"),
    "other structs": ({"value": [b"a"], "headers": [[{"key": "a", "v": b""}]]}, TypeError, "the column headers"),
    "header values": ({"value": [b"a"], "headers": [[{"key": "a", "value": 1}]]}, TypeError, "the column headers"),
    "null header": (
        {"value": [b"a", b"b"], "headers": pa.array([[], [None]], HEADERS)},
        ValueError,
        "row 1: a header cannot be null",
    ),
    "null header key": (
        {"value": [b"a", b"b"], "headers": pa.array([[], [{"key": None, "value": b""}]], HEADERS)},
        ValueError,
        "row 1: the key of a header cannot be null",
    ),
    "header key not UTF-8": (
        {"value": [b"a"], "headers": [[{"key": b"\xff", "value": b""}]]},
        ValueError,
        "headers: keys are UTF-8",
    ),
    "timestamps": ({"value": [b"a"], "timestamp": [1.5]}, TypeError, "the column timestamp is of type double"),
    "negative timestamp": ({"value": [b"a", b"b"], "timestamp": [1, -2]}, ValueError, "row 1: Invalid timestamp: -2"),
    "partitions": ({"value": [b"a"], "partition": ["1"]}, TypeError, "the column partition is of type string"),
    "negative partition": ({"value": [b"a"], "partition": [-1]}, ValueError, "row 0: Invalid partition: -1"),
    "large partition": ({"value": [b"a"], "partition": [2**40]}, ValueError, "the column partition: "),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_table_sends_nothing(case: str) -> None:
    table, kind, message = BAD[case]
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer()
    with pytest.raises(kind, match=message):
        producer.send_table("t", pa.table(table) if isinstance(table, dict) else table)
    assert not producer.accumulator.has_incomplete


def test_a_mixed_frame_sends_nothing() -> None:
    producer = ScriptedCluster({"t": 1}).producer()
    with pytest.raises(TypeError, match="DataFrame has no form in Arrow"):
        producer.send_table("t", pd.DataFrame({"value": [b"a", 1, "x"]}))


def test_wrong_arguments() -> None:
    producer = ScriptedCluster({"t": 1}).producer()
    table = pa.table({"value": [b"a"], "partition": [0]})
    with pytest.raises(ValueError, match="has a column partition, and a partition is given"):
        producer.send_table("t", table, partition=0)
    with pytest.raises(ValueError, match="Invalid partition: -1"):
        producer.send_table("t", table.select(["value"]), partition=-1)
    with pytest.raises(ValueError, match="Invalid timestamp: -5"):
        producer.send_table("t", table, timestamp_ms=-5)


def test_a_row_too_large_fails_the_table_and_nothing_is_sent() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(max_request_size=1_000)
    table = pa.table({"value": [b"a", bytes(1_000)]})
    future = producer.send_table("t", table)
    error = future.exception(0)
    assert isinstance(error, TableSendError)
    assert isinstance(error.error, RecordTooLargeError)
    assert "Row 1 is 10" in str(error)
    assert error.rows.tolist() == [0, 1]
    assert not producer.accumulator.has_incomplete


# -- in the order of things


def test_tables_come_after_single_sends_before_them_and_before_those_after() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(linger_ms=1_000)
    producer.send("t", b"-1")
    future = producer.send_table("t", numbered(100))
    producer.send("t", b"100")
    cluster.run_while(producer, producer.flush)
    assert numbers(cluster, "t") == list(range(-1, 101))
    assert future.result(0).partitions[0].first_offset == 1
    assert future.result(0).partitions[0].last_offset == 100
    assert [record.sequence for record in cluster.records("t")] == list(range(102))


def test_a_table_does_not_linger() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(linger_ms=10_000)
    before = cluster.clock.milliseconds()
    send_all(cluster, producer, "t", numbered(3)).result()
    assert cluster.clock.milliseconds() - before < 1_000


def runs_of(cluster: ScriptedCluster, count: int, keyless: Callable[[int], bool] = lambda _: True) -> list[int]:
    """How many rows that need no certain partition went to one after the other, before another one's turn."""
    place: dict[int, int] = {}
    for partition, records in contents(cluster, "t").items():
        place |= {int(record.value or b""): partition for record in records}
    assert sorted(place) == list(range(count))
    runs: list[int] = []
    before = None
    for row in filter(keyless, range(count)):
        if place[row] == before:
            runs[-1] += 1
        else:
            runs.append(1)
        before = place[row]
    return runs


@pytest.mark.mechanism("P04")
def test_rows_without_a_key_stick_by_bytes() -> None:
    cluster = ScriptedCluster({"t": 4})
    producer = cluster.producer(batch_size=1_000)
    values = numbered(4_000, size=93).column("value")
    keys = pa.array([b"key" if row % 8 == 0 else None for row in range(4_000)])
    send_all(cluster, producer, "t", pa.table({"value": values, "key": keys})).result()
    runs = runs_of(cluster, 4_000, lambda row: row % 8 != 0)
    # Chance may draw the same partition twice; between draws lie ten rows of a hundred bytes.
    assert {run % 10 for run in runs[:-1]} == {0}
    assert all(len(records) > 500 for records in contents(cluster, "t").values())


@pytest.mark.mechanism("P04")
@pytest.mark.parametrize("chunks", [1, 3])
def test_batches_of_rows_without_a_key_stick(chunks: int) -> None:
    """Of a large table, each batch goes to the partition that is drawn then, in the order of the rows."""
    cluster = ScriptedCluster({"t": 4})
    producer = cluster.producer(batch_size=1_000, batch_max_size=500_000)
    count = 30_000
    table = numbered(count, size=93)
    size = -(-count // chunks)
    table = pa.concat_tables([table.slice(start, size) for start in range(0, count, size)])
    written = send_all(cluster, producer, "t", table).result()
    assert written.rows == count
    assert sum(written.partitions[partition].count for partition in written.partitions) == count
    # Four shares of 800 KB are more than a batch of 500 KB takes: it is whole batches that are drawn for.
    runs = runs_of(cluster, count)
    assert min(runs[:-1]) > 4_000
    for records in contents(cluster, "t").values():
        assert [int(record.value or b"") for record in records] == sorted(
            int(record.value or b"") for record in records
        )
    assert_no_memory_is_missing(producer)


@pytest.mark.mechanism("P04")
def test_each_partition_gets_its_share_of_a_table() -> None:
    cluster = ScriptedCluster({"t": 4})
    producer = cluster.producer(batch_size=1_000, batch_max_size=500_000)
    for _ in range(20):
        send_all(cluster, producer, "t", pa.table({"value": [b"%100d" % row for row in range(1_000)]})).result()
    sizes = [batch.record_count for batch in batches_sent(cluster)]
    assert len(sizes) == 20 * 4, "a quarter each, and none left over"
    assert min(sizes) > 200
    assert all(records for records in contents(cluster, "t").values())


@pytest.mark.mechanism("P05")
@pytest.mark.parametrize(
    ("settings", "least", "most"),
    [
        ({}, 999_000, 1_000_000),
        ({"batch_max_size": 600_000}, 599_000, 600_000),
        ({"batch_size": 20_000}, 19_000, 20_000),
        ({"batch_max_size": 100_000}, 99_000, 100_000),
        ({"max_request_size": 300_000}, 299_000, 300_000),
        ({"buffer_memory": 1_600_000}, 399_000, 400_000),
    ],
)
@pytest.mark.parametrize("keys", [False, True])
def test_batches_of_a_table_are_as_large_as_the_settings_allow(
    settings: dict[str, Any], least: int, most: int, keys: bool
) -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(**settings)
    table = numbered(14_000, size=190)
    if keys:
        table = table.append_column("key", pa.array([b"k"] * 14_000))
    send_all(cluster, producer, "t", table).result()
    sizes = [batch.size_in_bytes for batch in batches_sent(cluster)]
    assert least <= max(sizes) <= most
    assert numbers(cluster, "t") == list(range(14_000))
    assert_no_memory_is_missing(producer)


@pytest.mark.mechanism("P05")
def test_a_single_send_does_not_wait_for_a_whole_table() -> None:
    """A batch of a table fills a request. The partitions take turns all the same."""
    cluster = ScriptedCluster({"t": 4})
    producer = cluster.producer(batch_max_size=1_000_000)
    future = producer.send_table("t", pa.table({"value": [bytes(1_000)] * 20_000, "partition": [0, 1, 2, 0] * 5_000}))
    producer.send("t", b"single", partition=3)
    cluster.run_until(producer, future.done)
    requests = cluster.requests(ApiKey.PRODUCE)
    found = [any(data.index == 3 for data in request.topic_data[0].partition_data) for request in requests]
    assert len(found) > 20
    assert found.index(True) <= 3


@pytest.mark.mechanism("P04")
def test_small_tables_share_the_room_of_a_partition() -> None:
    cluster = ScriptedCluster({"t": 64})
    producer = cluster.producer(batch_size=1_000)
    used = []
    for _ in range(40):
        metadata = send_all(cluster, producer, "t", pa.table({"value": [bytes(93)] * 4})).result()
        used.append(list(metadata.partitions))
    assert all(len(partitions) == 1 for partitions in used)
    # 400 bytes each: it is the third that goes over a thousand.
    assert [used[at] for at in range(0, 39, 3)] == [used[at + 2] for at in range(0, 39, 3)]
    assert len({partitions[0] for partitions in used}) > 5


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_batches_of_a_table_have_their_checksum(compression: str) -> None:
    """Also without idempotence, where nothing in the header changes."""
    for idempotent in (False, True):
        cluster = ScriptedCluster({"t": 2})
        producer = cluster.producer(compression_type=compression, enable_idempotence=idempotent)
        send_all(cluster, producer, "t", numbered(500, size=50)).result()
        batches = batches_sent(cluster)
        assert batches
        for batch in batches:
            batch.ensure_valid()


# -- memory that is used again


def rows_of(random: Random, count: int) -> list[bytes]:
    return [random.randbytes(random.randrange(3_000)) for _ in range(count)]


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_tables_in_memory_that_was_used_before(compression: str) -> None:
    """Each comes out as it went in, of whatever size it and those before it are, also when batches are sent again."""
    random = Random(11)
    cluster = ScriptedCluster({"t": 2})
    producer = cluster.producer(compression_type=compression)
    expected: list[bytes] = []
    used: set[int] = set()
    for number in range(25):
        rows = rows_of(random, random.choice([3, 150, 300, 900]))
        expected += rows
        if number > 12:
            cluster.fates.extend(
                Fate(lose_response=random.random() < 0.3, lose_request=random.random() < 0.2) for _ in range(2)
            )
        used.update(map(id, producer.accumulator.spare_buffers._buffers))
        send_all(cluster, producer, "t", pa.table({"value": rows}), partition=number % 2).result()
    found = sorted(record.value or b"" for records in contents(cluster, "t").values() for record in records)
    assert found == sorted(expected)
    assert 0 < len(used) < 20  # of about thirty batches
    assert_no_memory_is_missing(producer)
    producer.accumulator.close()
    assert not producer.accumulator.spare_buffers


def test_memory_of_a_batch_that_was_sent_twice_is_not_used_again() -> None:
    """The connection that the response was lost on may still hold it."""
    for fate, kept in ((Fate(), 1), (Fate(lose_response=True), 0)):
        cluster = ScriptedCluster({"t": 1})
        producer = cluster.producer()
        send_all(cluster, producer, "t", numbered(1)).result()
        cluster.fates.append(fate)
        send_all(cluster, producer, "t", numbered(300, 1_000)).result()
        assert len(producer.accumulator.spare_buffers) == kept
        assert_no_memory_is_missing(producer)


def test_memory_that_somebody_still_holds_is_left_to_him() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer()
    send_all(cluster, producer, "t", numbered(300, 1_000)).result()
    (buffer,) = producer.accumulator.spare_buffers._buffers
    before = bytes(buffer)
    with memoryview(buffer):
        send_all(cluster, producer, "t", numbered(301, 1_000)).result()
    assert buffer == before
    assert numbers(cluster, "t") == [*range(300), *range(301)]


def test_no_more_memory_is_kept_than_half_of_what_there_is() -> None:
    spare = SpareBuffers(1_000_000)
    assert spare.take(200_000) is None
    for _ in range(9):
        spare.give(bytearray(200_000))
    spare.give(bytearray(1_000))  # the allocator keeps these itself
    assert len(spare) == 5
    last = bytearray(150_000)
    assert spare.take(1_000) is None
    assert len(spare) == 5
    assert spare.take(190_000) is not None
    spare.give(last)
    assert spare.take(190_000) is last
    assert len(spare) == 4
    spare.give(bytearray(500_000))
    assert len(spare) == 4  # would be more than the limit, were they all of this size
    spare.clear()
    spare.give(bytearray(200_000))
    assert not spare


def test_the_sticky_choice_goes_on_from_single_sends() -> None:
    cluster = ScriptedCluster({"t": 4})
    producer = cluster.producer(batch_size=10_000)
    first = producer.send("t", bytes(100))
    future = producer.send_table("t", numbered(3))
    cluster.run_until(producer, future.done)
    assert list(future.result().partitions) == [first.result(0).partition]


def test_ignored_keys_stick() -> None:
    cluster = ScriptedCluster({"t": 8})
    producer = cluster.producer(partitioner_ignore_keys=True)
    table = pa.table({"value": ["v"] * 100, "key": [f"{row}" for row in range(100)]})
    assert len(send_all(cluster, producer, "t", table).result().partitions) == 1


def test_a_partitioner_of_the_application_is_asked() -> None:
    class Last(Partitioner):
        def partition(
            self, topic: str, key: Any, key_bytes: Any, value: Any, value_bytes: Any, cluster: MetadataSnapshot
        ) -> int:
            return int(value_bytes) % 3

    cluster = ScriptedCluster({"t": 4})
    producer = cluster.producer(partitioner=Last())
    table = pa.table({"value": ["0", "1", "2"], "partition": [3, None, None]})
    send_all(cluster, producer, "t", table).result()
    assert [numbers(cluster, "t", partition) for partition in range(4)] == [[], [1], [2], [0]]


# -- memory


@pytest.mark.mechanism("P05")
def test_a_table_larger_than_the_memory_flows_through() -> None:
    cluster = ScriptedCluster({"t": 3})
    producer = cluster.producer(buffer_memory=40_000, batch_size=2_000, max_request_size=10_000)
    pool = producer.accumulator.pool
    least = [pool.total_memory]
    allocate = pool.allocate

    def watched(size: int, max_time_to_block_ms: float) -> int:
        taken = allocate(size, max_time_to_block_ms)
        least.append(pool.available_memory())
        return taken

    pool.allocate = watched  # type: ignore[method-assign]
    table = pa.table({"value": numbered(3_000, 90)["value"], "key": [f"{row % 50}" for row in range(3_000)]})
    assert table.nbytes > 6 * 40_000
    metadata = send_all(cluster, producer, "t", table).result()
    assert metadata.rows == 3_000
    assert min(least) >= 0
    assert_no_memory_is_missing(producer)
    for partition in range(3):
        found = numbers(cluster, "t", partition)
        assert found == sorted(found)


@pytest.mark.mechanism("P05")
def test_a_table_that_finds_no_memory_fails_and_says_which_rows() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(buffer_memory=20_000, batch_size=2_000, max_block_ms=1_000, max_request_size=5_000)
    cluster.stop(1)
    future = cluster.run_while(producer, lambda: producer.send_table("t", numbered(1_000, 90)))
    assert not future.done(), "some batches have been accepted, and are still under way"
    cluster.start(1)
    cluster.run_until(producer, future.done)
    error = future.exception(0)
    assert isinstance(error, TableSendError)
    assert isinstance(error.error, BufferExhaustedError)
    written = error.written.partitions[0].count
    assert 0 < written < 1_000
    assert error.rows.tolist() == list(range(written, 1_000))
    assert numbers(cluster, "t") == list(range(written))
    assert error.retriable
    assert str(error).startswith(f"{1_000 - written} of 1000 rows for t were not acknowledged: Failed to allocate")
    assert_no_memory_is_missing(producer)


# -- what can happen to batches


@pytest.mark.mechanism("P08")
def test_a_batch_that_is_too_large_is_split_and_the_next_ones_are_smaller() -> None:
    cluster = ScriptedCluster({"t": 1}, max_message_bytes=20_000)
    producer = cluster.producer(batch_size=10_000, batch_max_size=500_000)
    metadata = send_all(cluster, producer, "t", numbered(2_000, 90)).result()
    assert numbers(cluster, "t") == list(range(2_000))
    assert (metadata.partitions[0].first_offset, metadata.partitions[0].last_offset) == (0, 1_999)
    refused = producer.metric("batch-split-total")
    assert refused >= 1
    send_all(cluster, producer, "t", numbered(500, 90)).result()
    assert producer.metric("batch-split-total") == refused
    assert numbers(cluster, "t")[2_000:] == list(range(500))
    assert_no_memory_is_missing(producer)


@pytest.mark.mechanism("P09")
def test_sent_again_and_written_once() -> None:
    cluster = ScriptedCluster({"t": 2})
    producer = cluster.producer(batch_size=1_000, max_request_size=20_000)
    cluster.fates.extend([Fate(lose_response=True), Fate(), Fate(lose_request=True), Fate(lose_response=True)])
    table = pa.table({"value": numbered(3_000, 90)["value"], "partition": [row % 2 for row in range(3_000)]})
    assert send_all(cluster, producer, "t", table).result().rows == 3_000
    assert numbers(cluster, "t", 0) == list(range(0, 3_000, 2))
    assert numbers(cluster, "t", 1) == list(range(1, 3_000, 2))
    assert_no_memory_is_missing(producer)


def test_the_first_error_fails_the_table() -> None:
    """Of two partitions, one is refused: its rows are those that were not acknowledged."""
    cluster = ScriptedCluster({"t": 2})
    producer = cluster.producer(max_request_size=100_000)
    table = pa.table({"value": numbered(10)["value"], "partition": [row % 2 for row in range(10)]})
    future = producer.send_table("t", table)

    def refuse(handled: Any) -> Any:
        answer = cluster._produce(handled, handled.body, Errors.NONE)
        (topic,) = answer.responses
        rows = {row.index: row for row in topic.partition_responses}
        rows[1].error_code = Errors.TOPIC_AUTHORIZATION_FAILED
        return answer

    cluster.on_next(ApiKey.PRODUCE, refuse)
    cluster.run_until(producer, future.done)
    error = future.exception(0)
    assert isinstance(error, TableSendError)
    assert isinstance(error.__cause__, TopicAuthorizationError)
    assert error.rows.tolist() == [1, 3, 5, 7, 9]
    assert {partition: found.count for partition, found in error.written.partitions.items()} == {0: 5}
    assert not error.retriable


def test_of_several_errors_the_first_is_told() -> None:
    progress = TableProgress("t")
    results = [ProduceRequestResult(TopicPartition("t", partition)) for partition in range(3)]
    for number, result in enumerate(results):
        progress.add(result, row_numbers(2 * number, 2 * number + 2))
    future = progress.seal()
    results[0].set(40, -1, None)
    results[2].set(-1, -1, lambda _: TopicAuthorizationError("first"))
    results[1].set(-1, -1, lambda _: KafkaTimeoutError("second"))
    for result in (results[2], results[1], results[0]):
        assert not future.done(), "there are rows of which it is not known"
        result.done()
    error = future.exception(0)
    assert isinstance(error, TableSendError)
    assert isinstance(error.error, TopicAuthorizationError)
    assert error.rows.tolist() == [2, 3, 4, 5]
    assert error.written.partitions[0].last_offset == 41


def test_after_an_error_the_rest_is_not_sent() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(buffer_memory=30_000, batch_size=1_000, max_request_size=5_000)
    cluster.fail_next(ApiKey.PRODUCE, Errors.TOPIC_AUTHORIZATION_FAILED)
    future = send_all(cluster, producer, "t", numbered(10_000, 90))
    error = future.exception(0)
    assert isinstance(error, TableSendError)
    assert len(error.rows) + error.written.rows == 10_000
    assert len(cluster.records("t")) < 2_000
    assert error.rows[-1] == 9_999
    assert_no_memory_is_missing(producer)


@pytest.mark.mechanism("P11")
def test_time_is_over() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(delivery_timeout_ms=2_000, request_timeout_ms=1_000, linger_ms=0)
    cluster.stop(1)
    error = send_all(cluster, producer, "t", numbered(10)).exception(0)
    assert isinstance(error, TableSendError)
    assert isinstance(error.error, KafkaTimeoutError)
    assert error.rows.tolist() == list(range(10))
    assert_no_memory_is_missing(producer)


def test_an_unknown_topic_or_partition_is_in_the_future() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(max_block_ms=1_000)
    error = send_all(cluster, producer, "unknown", numbered(2)).exception(0)
    assert isinstance(error.error, KafkaTimeoutError)
    error = send_all(cluster, producer, "t", numbered(2), partition=7).exception(0)
    assert "Partition 7 of topic t with partition count 1 is not present" in str(error)


def test_without_acknowledgement_there_are_no_offsets() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(acks=0, enable_idempotence=False)
    found = send_all(cluster, producer, "t", numbered(5)).result().partitions[0]
    assert (found.first_offset, found.last_offset, found.count) == (-1, -1, 5)
    assert numbers(cluster, "t") == list(range(5))


# -- transactions, closing


@pytest.mark.mechanism("P14")
def test_in_a_transaction() -> None:
    cluster = ScriptedCluster({"t": 2})
    producer = cluster.producer(transactional_id="tx")
    with pytest.raises(IllegalStateError):
        producer.send_table("t", numbered(1))
    cluster.run_while(producer, producer.init_transactions)
    producer.begin_transaction()
    table = pa.table({"value": numbered(10)["value"], "partition": [row % 2 for row in range(10)]})
    seen: list[RecordBatch] = []

    def look(handled: Any) -> None:
        for topic in handled.body.topic_data:
            seen.extend(RecordBatch(bytes(data.records)) for data in topic.partition_data)

    cluster.on_next(ApiKey.PRODUCE, look)
    future = producer.send_table("t", table)
    cluster.run_while(producer, producer.commit_transaction)
    assert future.result(0).rows == 10
    assert all(batch.is_transactional and batch.is_valid for batch in seen)
    assert len(seen) == 2


@pytest.mark.mechanism("P14")
def test_an_aborted_transaction_takes_the_table_along() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(transactional_id="tx")
    cluster.run_while(producer, producer.init_transactions)
    producer.begin_transaction()
    future = producer.send_table("t", numbered(10))
    cluster.run_while(producer, producer.abort_transaction)
    error = future.exception(0)
    assert isinstance(error, TableSendError)
    assert not cluster.records("t")


@pytest.mark.mechanism("P13")
def test_closed() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer()
    future = producer.send_table("t", numbered(10))
    producer.close(0)
    error = future.exception(0)
    assert isinstance(error, TableSendError)
    assert isinstance(error.error, ProducerClosedError)
    with pytest.raises(IllegalStateError):
        producer.send_table("t", numbered(1))


@pytest.mark.mechanism("P13")
def test_closed_while_a_table_waits_for_memory() -> None:
    """What was accepted has an outcome, and so has the rest."""
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(buffer_memory=20_000, batch_size=1_000, max_request_size=5_000)
    cluster.stop(1)

    def close(_: Any) -> None:
        producer.sender.force_close()
        producer.sender.run()

    with cluster.clock.driving(close):
        future = producer.send_table("t", numbered(1_000, 90))
    error = future.exception(0)
    assert isinstance(error, TableSendError)
    assert isinstance(error.error, ProducerClosedError)
    assert error.rows.tolist() == list(range(1_000))


def test_interceptors_are_told_about(caplog: pytest.LogCaptureFixture) -> None:
    from barnabas.clients.producer.interceptors import ProducerInterceptor

    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer(interceptors=[ProducerInterceptor()])
    send_all(cluster, producer, "t", numbered(1)).result()
    send_all(cluster, producer, "t", numbered(1)).result()
    warnings = [record.message for record in caplog.records if "send_table does not call" in record.message]
    assert len(warnings) == 1


# -- the other producers


def test_the_future_can_be_awaited() -> None:
    cluster = ScriptedCluster({"t": 1})
    producer = cluster.producer()

    async def run() -> int:
        future = producer.send_table("t", numbered(3))
        assert not future.cancel()
        cluster.run_until(producer, future.done)
        return (await future).rows

    assert asyncio.run(run()) == 3


def test_async_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = ScriptedCluster({"t": 1})
    sync = cluster.producer()
    monkeypatch.setattr("barnabas.clients.producer.async_kafka_producer.KafkaProducer", lambda *_, **__: sync)

    async def run() -> int:
        producer = AsyncKafkaProducer()
        future = await producer.send_table("t", numbered(3))
        cluster.run_until(sync, future.done)
        return (await future).rows

    assert asyncio.run(run()) == 3


def test_mock_producer() -> None:
    producer = MockProducer(topics={"t": 2}, auto_complete=False, value_serializer=str.encode)
    table = pa.table(
        {
            "value": ["a", None],
            "key": [b"k", b"l"],
            "headers": pa.array([[{"key": "h", "value": b"1"}], None], HEADERS),
            "timestamp": [5, None],
            "partition": [1, 0],
        }
    )
    future = producer.send_table("t", table)
    first, second = producer.history
    assert (first.value, first.key, first.headers, first.partition, first.timestamp_ms) == (
        b"a",
        b"k",
        (("h", b"1"),),
        1,
        5,
    )
    assert (second.value, second.partition, second.timestamp_ms) == (None, 0, None)
    producer.complete_next()
    assert not future.done()
    producer.error_next(RecordTooLargeError("no"))
    error = future.exception(0)
    assert isinstance(error, TableSendError)
    assert error.rows.tolist() == [1]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Arrow's own threads would only wait for each other here."""
    before = pa.cpu_count()
    pa.set_cpu_count(1)
    yield
    pa.set_cpu_count(before)
