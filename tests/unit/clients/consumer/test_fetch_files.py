"""When records are left in the broker's files, and when that is given up for a while."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.clients.consumer.internals.fetch_files import PATIENCE, FetchFiles
from barnabas.network.transport.local.unread_message import (
    FileReading,
    UnreadFile,
    UnreadMessage,
    UnreadMessages,
    unread_file_of,
)
from barnabas.records.batch import HEADER_SIZE, CompressionType
from barnabas.records.builder import RecordBatchBuilder
from barnabas.records.unread_records import LEAST_BATCH

BEFORE = 20
"""So many bytes of a message are before its records."""
POSITION = 33
"""Where the records are in the file."""

LeftAs = Callable[[bytes], memoryview]


@pytest.fixture
def left(tmp_path: Path) -> LeftAs:
    """The place of records in a message, which are in a file still."""
    messages = UnreadMessages()

    def leave(records: bytes) -> memoryview:
        path = tmp_path / "00000000000000000000.log"
        path.write_bytes(bytes(POSITION) + records)
        message = messages.take(BEFORE + len(records))
        view = memoryview(message)[BEFORE : BEFORE + len(records)]
        view[:] = bytes(len(records))
        message.files.append(UnreadFile(os.open(path, os.O_RDONLY), POSITION, BEFORE, len(records)))
        return view

    return leave


def records_of(count: int = 3, size: int = LEAST_BATCH, **options: Any) -> bytes:
    data = b""
    for number in range(count):
        builder = RecordBatchBuilder(base_offset=number, **options)
        builder.append(5, b"k", random.Random(number).randbytes(size))
        data += bytes(builder.close())
    return data


TRANSACTIONAL = records_of(is_transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)
USELESS = {
    "compressed": records_of(compression=CompressionType.GZIP),
    "small": records_of(200, 100),
    "of transactions": TRANSACTIONAL,
}
"""What it is no use to leave, to who wants what is committed."""


def files_of(view: memoryview) -> list[UnreadFile]:
    assert type(view.obj) is UnreadMessage
    return view.obj.files


def pause(files: FetchFiles, reading: FileReading) -> int:
    """How many fetches go by before one may be left again."""
    for count in range(2 * PATIENCE):
        files.ask(leave=True)
        if reading.left:
            return count
    raise AssertionError("it is never tried again")


@pytest.fixture
def reading() -> FileReading:
    return FileReading()


@pytest.fixture
def files(reading: FileReading) -> FetchFiles:
    return FetchFiles(reading, is_committed=True)


def test_records_are_left_as_asked(reading: FileReading, files: FetchFiles) -> None:
    for leave in (True, False, False, True, True, False):
        files.ask(leave=leave)
        assert reading.left == leave


def test_large_batches_stay_where_they_are(files: FetchFiles, reading: FileReading, left: LeftAs) -> None:
    records = records_of()
    view = left(records)
    (file,) = files_of(view)
    unread = files.unread_records(view)
    assert unread is not None
    assert unread.octets is view
    assert not unread.is_read
    assert (unread.fileno(), unread.position) == (file.fileno(), POSITION)
    assert view[:HEADER_SIZE] == records[:HEADER_SIZE]
    assert view[HEADER_SIZE : LEAST_BATCH // 2] == bytes(LEAST_BATCH // 2 - HEADER_SIZE)
    assert not files_of(view), "it belongs to the records now"
    assert pause(files, reading) == 0
    unread.read_all()
    assert view == records
    assert file.fileno() == -1


@pytest.mark.parametrize("what", USELESS)
def test_others_are_in_memory(what: str, files: FetchFiles, left: LeftAs) -> None:
    view = left(USELESS[what])
    (file,) = files_of(view)
    assert files.unread_records(view) is None
    assert view == USELESS[what]
    assert file.fileno() == -1
    assert unread_file_of(view) is None
    assert files.unread_records(view) is None


@pytest.mark.parametrize("what", USELESS)
def test_after_others_nothing_is_left_for_a_while(
    what: str, files: FetchFiles, reading: FileReading, left: LeftAs
) -> None:
    """Then it is tried again, and as often as it is no use."""
    for _ in range(3):
        files.unread_records(left(USELESS[what]))
        assert pause(files, reading) == PATIENCE
        assert pause(files, reading) == 0


def test_the_while_begins_with_the_last_of_them(files: FetchFiles, reading: FileReading, left: LeftAs) -> None:
    """Another answer may have been on its way."""
    files.unread_records(left(USELESS["small"]))
    for _ in range(PATIENCE // 2):
        files.ask(leave=True)
    files.unread_records(left(USELESS["small"]))
    assert pause(files, reading) == PATIENCE


def test_fetches_that_would_not_leave_any_go_by_too(files: FetchFiles, reading: FileReading, left: LeftAs) -> None:
    files.unread_records(left(USELESS["small"]))
    for _ in range(PATIENCE):
        files.ask(leave=False)
        assert not reading.left
    assert pause(files, reading) == 0


def test_large_ones_that_were_on_their_way_are_left(files: FetchFiles, reading: FileReading, left: LeftAs) -> None:
    """But one good answer does not end the pause."""
    files.unread_records(left(USELESS["small"]))
    assert files.unread_records(left(records_of())) is not None
    assert pause(files, reading) == PATIENCE


def test_who_reads_what_is_not_committed_leaves_transactions(reading: FileReading, left: LeftAs) -> None:
    files = FetchFiles(reading, is_committed=False)
    assert files.unread_records(left(TRANSACTIONAL)) is not None
    assert pause(files, reading) == 0


def test_records_in_memory_are_none_of_its_business(files: FetchFiles, reading: FileReading, left: LeftAs) -> None:
    """Nor do they say anything about those in files."""
    compressed = USELESS["compressed"]
    part = left(records_of())
    for records in (None, b"", compressed, memoryview(compressed), memoryview(bytearray(compressed)), part[:-1]):
        assert files.unread_records(records) is None
    assert len(files_of(part)) == 1
    assert pause(files, reading) == 0


def test_no_records_beside_those_in_files(files: FetchFiles, left: LeftAs) -> None:
    """A partition with an error has none, in the same message as another one's megabytes."""
    view = left(records_of())
    assert files.unread_records(view[:0]) is None


@pytest.mark.parametrize("present", [POSITION, POSITION + 2 * LEAST_BATCH])
def test_what_can_be_read_no_more(present: int, files: FetchFiles, left: LeftAs, tmp_path: Path) -> None:
    """The caller is told, and fetches again; the file is closed."""
    view = left(USELESS["compressed"])
    (file,) = files_of(view)
    fd = file.fileno()
    del file
    os.truncate(tmp_path / "00000000000000000000.log", present)
    with pytest.raises(EOFError, match="shrank"):
        files.unread_records(view)
    assert not files_of(view)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
