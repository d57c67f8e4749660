"""Columns of records that are in a file still: the same comes out as if they had been in memory."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from barnabas._kernels import checksum, is_compiled
from barnabas._kernels import columns as _columns_kernel
from barnabas.common.errors import BarnabasError
from barnabas.records.batch import CompressionType, RecordBatch, TimestampType
from barnabas.records.builder import RecordBatchBuilder
from barnabas.records.columns import early as _columns_early
from barnabas.records.columns.arrow import assemble_batches, assemble_sections, fetch_sections, shared_columns
from barnabas.records.columns.memory import TableMemory
from barnabas.records.unread_records import UnreadRecords

crc32c = checksum.crc32c

compiled = pytest.mark.skipif(not is_compiled("columns"), reason="the twin reads files into memory first")

BLOCK = 1 << 16
"""What is read at once."""
PRODUCER = 7


class LogFile:
    """An open file with something at a position, which notes what is read of it by others than the kernel."""

    def __init__(self, path: Path, content: bytes, position: int) -> None:
        path.write_bytes(bytes(position) + content)
        self._fd = os.open(path, os.O_RDWR)
        self.position = position
        self.read_bytes = 0
        self.is_closed = False

    def fileno(self) -> int:
        return self._fd

    def read(self, into: memoryview, start: int) -> None:
        self.read_bytes += len(into)
        if os.preadv(self._fd, [into], self.position + start) != len(into):
            raise EOFError("no more of it")

    def shrink(self, size: int) -> None:
        os.truncate(self._fd, self.position + size)

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            os.close(self._fd)


@contextmanager
def in_file(content: bytes, directory: Path, position: int = 0) -> Iterator[tuple[UnreadRecords, LogFile]]:
    """Records in a file, of which the headers of batches have been read."""
    file = LogFile(directory / "log", content, position)
    try:
        unread = UnreadRecords(memoryview(bytearray(b"\xaa" * len(content))), file)
        if not unread.read_headers(may_be_transactional=True):
            unread.read_all()
        yield unread, file
    finally:
        file.close()


@pytest.fixture(autouse=True)
def _all_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few and short they are; so that there is something to be read by the kernel."""
    monkeypatch.setattr(_columns_early, "EARLY_BYTES", 1)
    monkeypatch.setattr(_columns_early, "EARLY_RECORD_BYTES", 0)
    monkeypatch.setattr("barnabas.records.unread_records.LEAST_BATCH", 0)
    monkeypatch.setattr("barnabas.records.unread_records.LEAST_RECORD", 0)


def value(chance: random.Random, longest: int) -> bytes | None:
    kind = chance.randrange(20)
    if kind == 0:
        return None
    if kind == 1:
        return b""
    return chance.randbytes(chance.randint(1, longest))


def batch(chance: random.Random, base_offset: int) -> tuple[bytes, int]:
    """One of some blocks, and how many records it has."""
    longest = chance.choice([3, 30, 1000, 1000, 5000, 200_000])
    compressed = chance.random() < 0.05
    builder = RecordBatchBuilder(
        base_offset=base_offset, compression=CompressionType.GZIP if compressed else CompressionType.NONE
    )
    size, count, limit = 0, 0, chance.choice([1, 2000, BLOCK, 3 * BLOCK])
    keys = chance.choice([None, None, 5, 400])
    headers = chance.random() < 0.1
    while size < limit and count < 4000:
        data = value(chance, longest)
        key = None if keys is None else chance.randbytes(chance.randint(0, keys))
        with_headers = [("h", chance.randbytes(3)), ("none", None)] if headers else []
        builder.append(chance.randint(0, 99_999), key, data, with_headers)
        size += len(data or b"") + 10
        count += 1
    found = bytearray(builder.close())
    if chance.random() < 0.1:
        RecordBatch(found).set_max_timestamp(TimestampType.LOG_APPEND_TIME, 1234)
    if chance.random() < 0.12:
        at = chance.randrange(len(found))
        found[at] ^= 1 << chance.randrange(8)
        if chance.random() < 0.7:  # so that what is wrong is found by what comes after the checksum
            found[17:21] = crc32c(found[21:]).to_bytes(4, "big")
    return bytes(found), count


def answer(chance: random.Random) -> bytes:
    data, offset = b"", 0
    for _ in range(chance.randint(1, 4)):
        more, count = batch(chance, offset)
        data += more
        offset += count
    return data[: len(data) - chance.choice([0, 0, 1, 30, 70, len(data) // 3])]


def read(octets: Any, options: dict[str, Any], unread: UnreadRecords | None = None) -> Any:
    try:
        fetched = fetch_sections(octets, unread=unread, **options)
    except (BarnabasError, ValueError) as error:
        return type(error), str(error)
    table = assemble_sections([fetched])
    table.validate(full=True)
    return table, table.schema, fetched.next_offset, fetched.size_in_bytes, fetched.records


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_the_same_comes_out(first: int, tmp_path: Path) -> None:
    memory = TableMemory()
    failed = whole = 0
    for seed in range(first, first + 100):
        chance = random.Random(seed)
        data = answer(chance)
        options: dict[str, Any] = {
            "start_offset": chance.choice([0, 0, chance.randint(0, 12)]),
            "check_crc": chance.random() < 0.8,
            "columns": chance.choice([None, None, ("value",), ("offset", "key"), ("value", "headers")]),
            "aborted": chance.choice([None, None, None, [(PRODUCER, 0)]]),
            "memory": chance.choice([None, memory]),
        }
        expected = read(data, options)
        with in_file(data, tmp_path, chance.choice([0, 1, 63, 4097])) as (unread, file):
            before = file.read_bytes
            assert read(unread.octets, options, unread) == expected, f"seed {seed}"
            whole += file.read_bytes == before and not unread.is_read
            failed += len(expected) == 2
    assert failed
    assert bool(whole) == is_compiled("columns")


def attempt(octets: Any, **options: Any) -> Any:
    try:
        return fetch_sections(octets, **options)
    except BarnabasError as error:
        return str(error)


@pytest.mark.parametrize("first", range(0, 80, 20))
def test_several_files_fill_the_same_columns(first: int, tmp_path: Path) -> None:
    """Whatever is wrong with some of them, and whatever of them a table is made of then, in whatever order."""
    in_one = 0
    for seed in range(first, first + 20):
        chance = random.Random(seed)
        contents = [answer(chance) for _ in range(chance.randint(2, 4))]
        files = []
        for number, content in enumerate(contents):
            (tmp_path / str(number)).mkdir(exist_ok=True)
            files.append(in_file(content, tmp_path / str(number), number))
        unread = [file.__enter__()[0] for file in files]
        memory = TableMemory()
        shared = shared_columns([(one.octets, 0) for one in unread], memory=memory, from_files=True)
        together, alone = [], []
        for one, content in zip(unread, contents, strict=True):
            found = attempt(one.octets, shared=shared, unread=one, memory=memory)
            expected = attempt(content)
            if isinstance(expected, str):
                assert found == expected
            else:
                together.append(found)
                alone.append(expected)
        if together:
            in_one += len(assemble_batches(together)) == 1 < len(together)
            assert assemble_sections(together).equals(assemble_sections(alone)), f"seed {seed}"
            chosen = chance.sample(range(len(together)), chance.randint(1, len(together)))
            assert assemble_sections([together[number] for number in chosen]).equals(
                assemble_sections([alone[number] for number in chosen])
            ), f"seed {seed}"
        for file in files:
            file.__exit__(None, None, None)
    assert in_one


def plain(values: list[bytes | None], key: bytes | None = None, base_offset: int = 0) -> bytes:
    builder = RecordBatchBuilder(base_offset=base_offset)
    for one in values:
        builder.append(5, key, one)
    return bytes(builder.close())


@compiled
def test_nothing_is_read_but_headers_and_records(tmp_path: Path) -> None:
    """And they go to where they stay: not a record is in the memory that the message has for them."""
    values: list[bytes | None] = [b"%06d" % number * 200 for number in range(2_000)]
    data = plain(values)
    with in_file(data + data[:300_000], tmp_path, 5) as (unread, file):
        fetched = fetch_sections(unread.octets, unread=unread)
        assert assemble_sections([fetched]).column("value").to_pylist() == values
        assert (fetched.next_offset, fetched.size_in_bytes) == (2_000, len(data))
        assert file.read_bytes == 2 * 61
        assert not unread.is_read
        assert set(unread.octets[61 : len(data)]) == {0xAA}


@compiled
def test_a_record_of_many_blocks(tmp_path: Path) -> None:
    values: list[bytes | None] = [b"a", bytes(range(256)) * 3_000, b"", None, b"b" * (2 * BLOCK), b"c"]
    with in_file(plain(values), tmp_path, 1) as (unread, _):
        assert assemble_sections([fetch_sections(unread.octets, unread=unread)]).column("value").to_pylist() == values
        assert not unread.is_read


@compiled
def test_records_with_more_around_them_than_in_them(tmp_path: Path) -> None:
    """They need more room while they are read than they take in the end, and have it."""
    values: list[bytes | None] = [b"v" if number % 2 else None for number in range(100_000)]
    data = plain(values)
    assert len(data) > 3 * _columns_kernel.READING_ROOM
    with in_file(data, tmp_path, 1) as (unread, _):
        assert assemble_sections([fetch_sections(unread.octets, unread=unread)]).column("value").to_pylist() == values
        assert not unread.is_read


@compiled
def test_keys_that_are_too_long_are_read_a_second_time(tmp_path: Path) -> None:
    values: list[bytes | None] = [b"v" * 100] * 3_000
    with in_file(plain(values, key=b"k" * 300), tmp_path) as (unread, _):
        table = assemble_sections([fetch_sections(unread.octets, unread=unread)])
        assert unread.is_read
    assert table.column("key").to_pylist() == [b"k" * 300] * 3_000
    assert table.column("value").to_pylist() == values


@compiled
@pytest.mark.parametrize("left", [100, 70_000, 500_000])
def test_a_file_that_shrinks(left: int, tmp_path: Path) -> None:
    """Nothing comes of it but that it cannot be read; what others have put into the same columns is there."""
    first, second = plain([b"1" * 1000] * 900), plain([b"2" * 1000] * 900)
    (tmp_path / "first").mkdir()
    with in_file(first, tmp_path / "first") as (one, _), in_file(second, tmp_path) as (other, file):
        shared = shared_columns([(one.octets, 0), (other.octets, 0)], from_files=True)
        fetched = fetch_sections(one.octets, unread=one, shared=shared)
        file.shrink(left)
        with pytest.raises(EOFError):
            fetch_sections(other.octets, unread=other, shared=shared)
        assert assemble_sections([fetched]).column("value").to_pylist() == [b"1" * 1000] * 900


def sealed(batch: bytearray) -> bytes:
    """With the checksum that belongs to it."""
    batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")
    return bytes(batch)


def miscounted(change: int) -> bytes:
    batch = bytearray(plain([b"v" * 50] * 90))
    batch[57:61] = (90 + change).to_bytes(4, "big")
    return sealed(batch)


def with_an_offset_twice() -> bytes:
    batch = bytearray(plain([b"v" * 50] * 90))
    length = len(plain([b"v" * 50])) - 61
    assert batch[61 + length + 3] == 2, "the second record is one behind the first"
    batch[61 + length + 3] = 0
    return sealed(batch)


@pytest.mark.parametrize("wrong", [miscounted(1), miscounted(-1), with_an_offset_twice()])
def test_what_only_all_records_together_show(wrong: bytes, tmp_path: Path) -> None:
    """With a checksum that is right."""
    sound = plain([b"w" * 50] * 90)
    expected = read(sound + wrong, {})
    assert len(expected) == 2, "an error"
    with in_file(sound + wrong, tmp_path) as (unread, _):
        assert read(unread.octets, {}, unread) == expected


@compiled
def test_columns_without_the_room_to_read_into_them(tmp_path: Path) -> None:
    """They are filled from memory then: nothing is ever read beyond their end."""
    values: list[bytes | None] = [b"v" * 1_000] * 60
    with in_file(plain(values), tmp_path) as (unread, _):
        shared = shared_columns([(unread.octets, 0)])
        table = assemble_sections([fetch_sections(unread.octets, unread=unread, shared=shared)])
        assert unread.is_read
    assert table.column("value").to_pylist() == values


def test_without_values_all_is_read(tmp_path: Path) -> None:
    with in_file(plain([b"v" * 1000] * 900), tmp_path) as (unread, _):
        table = assemble_sections([fetch_sections(unread.octets, columns=["offset"], unread=unread)])
        assert unread.is_read
    assert table.column("offset").to_pylist() == list(range(900))


@compiled
def test_a_file_needs_a_column_of_values() -> None:
    sink = _columns_kernel.ColumnSink(0, None, None, None, None, None, None, None, None)
    for wrong in (None, sink):
        with pytest.raises(ValueError, match="column of values"):
            _columns_kernel.plain_sections(memoryview(b""), 0, 0, 1, True, True, None, False, wrong, (0, 0))


def test_tables_from_files_in_memory_that_is_used_again(tmp_path: Path) -> None:
    memory = TableMemory()
    kept: list[tuple[pa.Table, list[bytes | None]]] = []
    for number in range(12):
        values: list[bytes | None] = [bytes([number, row % 256]) * 600 for row in range(1_500 + 40 * number)]
        with in_file(plain(values, key=b"%d" % number), tmp_path, number) as (unread, _):
            table = assemble_sections([fetch_sections(unread.octets, unread=unread, memory=memory)])
        assert table.column("value").to_pylist() == values
        if number % 3 == 0:
            kept.append((table, values))
    for table, values in kept:
        assert table.column("value").to_pylist() == values
    assert bool(memory.values._spares) == is_compiled("columns")
