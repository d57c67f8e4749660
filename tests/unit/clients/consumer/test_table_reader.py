"""Two threads make one table, and each of them only what the other does not."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from barnabas._kernels import is_compiled
from barnabas.clients.consumer.internals import table_reader
from barnabas.clients.consumer.internals.completed_fetch import CompletedFetch, FetchReading
from barnabas.clients.consumer.internals.table_reader import LEAST_BYTES, TableReader
from barnabas.clients.consumer.testing import ConsumerCluster
from barnabas.common.errors import CorruptRecordError
from barnabas.common.topic_partition import TopicPartition
from barnabas.network.transport.local.unread_message import UnreadFile
from barnabas.protocol.messages.fetch import PartitionData
from barnabas.records.builder import RecordBatchBuilder
from barnabas.records.columns import arrow as columns
from barnabas.records.columns import plan as _columns_plan
from barnabas.records.unread_records import UnreadRecords

COLUMNS = ("offset", "value")
ROWS = 1_000
WAIT_S = 60


@pytest.fixture(autouse=True)
def _two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_reader, "_processors", lambda: 2)


def records(partition: int) -> bytes:
    builder = RecordBatchBuilder(base_offset=0)
    for offset in range(ROWS):
        builder.append(5, None, b"%d/%d " % (partition, offset) * 200)
    return bytes(builder.close())


def fetch(directory: Path, partition: int, data: bytes | None = None, *, in_memory: bool = False) -> CompletedFetch:
    content = records(partition) if data is None else data
    unread = None
    octets = memoryview(bytearray(content) if in_memory else bytearray(len(content)))
    if not in_memory:
        path = directory / f"{partition}.log"
        path.write_bytes(content)
        unread = UnreadRecords(octets, UnreadFile(os.open(path, os.O_RDONLY), 0, 0, len(content)))
        assert unread.read_headers(may_be_transactional=True)
    at = TopicPartition("t", partition)
    return CompletedFetch(at, PartitionData(records=octets), 0, FetchReading(), unread)


def table_of(fetches: list[CompletedFetch], reader: TableReader) -> list[bytes]:
    shared = reader.begin(fetches, COLUMNS, "binary")
    found = [one.fetch_sections(COLUMNS, "binary", shared, reader.memory) for one in fetches]
    reader.wait()
    values: list[bytes] = columns.assemble_sections(found).column("value").to_pylist()
    return values


def expected(partitions: int) -> list[bytes]:
    return [b"%d/%d " % (partition, offset) * 200 for partition in range(partitions) for offset in range(ROWS)]


@pytest.mark.parametrize("partitions", [2, 3, 6])
def test_the_second_half_is_read_by_another_thread(
    partitions: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by: dict[int, str] = {}
    decode = CompletedFetch._decode

    def noting(self: CompletedFetch, *arguments: Any) -> Any:
        by[self.partition.partition] = threading.current_thread().name
        return decode(self, *arguments)

    monkeypatch.setattr(CompletedFetch, "_decode", noting)
    reader = TableReader("c")
    for _ in range(3):
        assert table_of([fetch(tmp_path, number) for number in range(partitions)], reader) == expected(partitions)
        here = [number for number, name in by.items() if name == threading.current_thread().name]
        assert sorted(here) == list(range(partitions - partitions // 2))
        assert len(by) == partitions
    reader.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(table_reader.THREAD_NAME)]


def test_not_what_is_in_memory_not_a_single_one_and_not_a_little(tmp_path: Path) -> None:
    reader = TableReader("c")
    assert table_of([fetch(tmp_path, 0), fetch(tmp_path, 1, in_memory=True)], reader) == expected(2)
    assert table_of([fetch(tmp_path, 0)], reader) == expected(1)
    builder = RecordBatchBuilder(base_offset=0)
    builder.append(5, None, b"v" * 100_000)
    little = bytes(builder.close())
    assert 2 * len(little) < LEAST_BYTES
    assert table_of([fetch(tmp_path, number, little) for number in range(2)], reader) == [b"v" * 100_000] * 2
    assert reader._threads is None


def test_one_that_is_larger_than_all_others(tmp_path: Path) -> None:
    """Whichever it is, each thread has something to do."""
    builder = RecordBatchBuilder(base_offset=0)
    builder.append(5, None, b"v" * 100_000)
    little = bytes(builder.close())
    large = records(0) + records(0)
    for place in range(3):
        data = [little] * 3
        data[place] = large
        first, others = table_reader._halves([fetch(tmp_path, number, one) for number, one in enumerate(data)])
        assert len(first) == max(place, 1) + (0 < place < 2)
        assert others


def test_what_it_cannot_read_is_raised_where_it_is_taken(tmp_path: Path) -> None:
    """Once for each time that somebody asks, and what was read before it is there."""
    damaged = bytearray(records(1))
    damaged[-9] ^= 1
    fetches = [fetch(tmp_path, 0), fetch(tmp_path, 1, bytes(damaged))]
    reader = TableReader("c")
    shared = reader.begin(fetches, COLUMNS, "binary")
    found = fetches[0].fetch_sections(COLUMNS, "binary", shared, reader.memory)
    for _ in range(2):
        with pytest.raises(CorruptRecordError, match="checksum"):
            fetches[1].fetch_sections(COLUMNS, "binary", shared, reader.memory)
        assert fetches[1].next_fetch_offset == 0
        assert not fetches[1].is_consumed
    reader.wait()
    assert columns.assemble_sections([found]).column("value").to_pylist() == expected(1)
    reader.close()


def test_a_second_thread_that_fails_costs_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What it was to read is read by the first, and what that had read already is in the table, too."""
    make = CompletedFetch.shared_columns

    def fail_elsewhere(*arguments: Any) -> Any:
        if threading.current_thread().name.startswith(table_reader.THREAD_NAME):
            raise MemoryError("no more")
        return make(*arguments)

    monkeypatch.setattr(CompletedFetch, "shared_columns", fail_elsewhere)
    reader = TableReader("c")
    for _ in range(2):
        assert table_of([fetch(tmp_path, number) for number in range(4)], reader) == expected(4)
    reader.close()
    assert [record.message for record in caplog.records] == ["A second thread cannot read records ahead"] * 2


@pytest.mark.parametrize("other", ["columns", "offset", "records", "table"])
def test_what_is_not_asked_for_any_more_does_not_count(other: str, tmp_path: Path) -> None:
    """Between the two, an application may have got an error, and go on in another way."""
    fetches = [fetch(tmp_path, number) for number in range(2)]
    reader = TableReader("c")
    reader.begin(fetches, COLUMNS, "binary")
    second = fetches[1]
    if other == "columns":
        found = second.fetch_sections(("offset",), "binary", None, reader.memory)
        assert columns.assemble_sections([found]).column_names == ["offset"]
    elif other == "offset":
        second.next_fetch_offset = 700
        found = second.fetch_sections(COLUMNS, "binary", None, reader.memory)
        assert columns.assemble_sections([found]).column("offset").to_pylist() == list(range(700, ROWS))
    elif other == "records":
        assert [record.value for record in second.fetch_records(2_000)] == expected(2)[ROWS:]
    else:
        assert second.read_all()
        assert second.fetch_table(None, COLUMNS, False).column("value").to_pylist() == expected(2)[ROWS:]
    reader.wait()
    reader.close()


def test_nobody_touches_what_is_being_read(tmp_path: Path) -> None:
    """It is waited for, whatever is asked for next: two threads must not read the same, nor close its file."""
    second = fetch(tmp_path, 1)
    go, done = threading.Event(), threading.Event()

    def until(event: threading.Event) -> None:
        event.wait()

    def read() -> None:
        second.read_all()
        done.set()

    with ThreadPoolExecutor(2) as threads:
        second.ahead = threads.submit(until, go)
        reading = threads.submit(read)
        was_read = done.wait(0.05)
        go.set()
        reading.result()
    assert not was_read
    assert done.is_set()


def test_nothing_is_being_read_after_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever became of the call that it was for: columns that others share must not change any more."""
    go, begun = threading.Event(), threading.Event()

    def decode(*_: Any) -> None:
        begun.set()
        go.wait()

    monkeypatch.setattr(CompletedFetch, "decode_ahead", decode)
    reader = TableReader("c")
    reader.begin([fetch(tmp_path, number) for number in range(2)], COLUMNS, "binary")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(reader.wait)
        has_begun, was_done = begun.wait(WAIT_S), waiting.done()
        go.set()
        waiting.result()
    assert (has_begun, was_done) == (True, False)
    reader.close()


@pytest.mark.parametrize(
    ("options", "leaves"),
    [
        ({}, True),
        ({"columns": ["value"]}, True),
        ({"columns": ["key", "offset"]}, False),
        ({"binary_type": "binary_view"}, False),
        ({"max_records": 5}, False),
        ({"include_headers": True}, False),
    ],
)
def test_which_tables_are_best_read_from_files(options: dict[str, Any], leaves: bool) -> None:
    cluster = ConsumerCluster({"t": 1})
    consumer = cluster.consumer(auto_offset_reset="earliest")
    consumer.assign([TopicPartition("t", 0)])
    buffer = consumer._core.buffer
    assert not buffer.leaves_unread
    cluster.run(consumer, lambda: consumer.poll_table(1, **options))
    assert buffer.leaves_unread is leaves
    cluster.run(consumer, lambda: consumer.poll(1))
    assert not buffer.leaves_unread
    consumer.close()


def test_two_threads_have_one_plan() -> None:
    """Columns are shared by who has the same plan, which is to be the very same."""
    for number in range(200):
        _columns_plan._column_plan.cache_clear()
        barrier = threading.Barrier(2)
        found: list[Any] = []

        def ask(barrier: threading.Barrier = barrier, found: list[Any] = found) -> None:
            barrier.wait()
            found.append(_columns_plan.column_plan(COLUMNS, False, False))

        others = [threading.Thread(target=ask) for _ in range(2)]
        for thread in others:
            thread.start()
        for thread in others:
            thread.join()
        assert found[0] is found[1], f"round {number}"


@pytest.mark.skipif(not is_compiled("columns"), reason="the twin has everything in memory first")
def test_nothing_of_it_was_in_memory(tmp_path: Path) -> None:
    """However short the records are."""
    builder = RecordBatchBuilder(base_offset=0)
    for _ in range(12_000):
        builder.append(5, None, b"v" * 100)
    short = bytes(builder.close())
    for data, values in ((None, expected(4)), (short, [b"v" * 100] * 48_000)):
        fetches = [fetch(tmp_path, number, data) for number in range(4)]
        reader = TableReader("c")
        assert table_of(fetches, reader) == values
        assert not any(one.records[61:].tobytes().strip(b"\0") for one in fetches)
        reader.close()
