"""The offset index: its bytes, its lookups beside a plain list, and how it ends."""

from __future__ import annotations

import errno
import os
import struct
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.common.errors import KafkaStorageError
from barnabas.log.index import abstract_index
from barnabas.log.index.abstract_index import FileEntries, MappedEntries
from barnabas.log.index.offset_index import OffsetIndex, OffsetPosition
from barnabas.log.segment.file_handle import FileHandle
from barnabas.log.storage_errors import CorruptIndexError, FileClosedError, IndexOffsetOverflowError, is_disk_failure
from segment_fixtures import linux_only, memory_maps, open_files

BASE = 50
MAPPED = pytest.mark.parametrize("use_mmap", [True, False], ids=["mmap", "file"])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "00000000000000000050.index"


@pytest.fixture
def small_warm_section(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abstract_index, "WARM_BYTES", 64)


def filled(path: Path, count: int, *, use_mmap: bool = True, step: int = 10, size: int = 1 << 20) -> OffsetIndex:
    index = OffsetIndex(path, BASE, size, use_mmap=use_mmap)
    for n in range(1, count + 1):
        index.append(BASE + n * step, n * 4000)
    return index


def content(count: int, step: int = 10) -> bytes:
    return b"".join(struct.pack(">ii", n * step, n * 4000) for n in range(1, count + 1))


# The format


def test_the_bytes_of_an_entry(path: Path) -> None:
    index = OffsetIndex(path, BASE, 100)
    index.append(55, 4097)
    index.append(50 + 2**31 - 1, 2**31 - 1)
    index.close()
    assert path.read_bytes() == bytes.fromhex("0000000500001001 7fffffff7fffffff")


def test_the_file_has_the_entries_that_were_written_and_no_holes(path: Path) -> None:
    index = OffsetIndex(path, BASE, 1003)
    assert (path.stat().st_size, index.capacity) == (0, 1000)
    assert index.max_entries == 125
    for n in range(1, 4):
        index.append(BASE + n, n)
    assert (index.entries, index.size_in_bytes, index.last_offset) == (3, 24, 53)
    index.flush()
    assert path.read_bytes() == struct.pack(">6i", 1, 1, 2, 2, 3, 3)
    index.trim_to_valid_size()
    assert path.read_bytes() == struct.pack(">6i", 1, 1, 2, 2, 3, 3)
    assert index.is_full
    assert index.resize(2**10)
    assert not index.resize(2**10 + 7)
    assert (path.stat().st_size, index.capacity) == (24, 1024)
    index.append(BASE + 4, 4)
    index.close()
    assert path.stat().st_size == 32


def test_there_must_be_room_for_an_entry(path: Path) -> None:
    with pytest.raises(ValueError, match="no room"):
        OffsetIndex(path, BASE, 7)
    assert not path.exists()


def test_the_default_size_is_kafkas(path: Path) -> None:
    assert OffsetIndex(path, BASE).capacity == 10 * 1024 * 1024


# Appending and looking up


def test_an_empty_index_leads_to_the_beginning(path: Path) -> None:
    index = OffsetIndex(path, BASE)
    for target in (0, 50, 60, 2**62):
        assert index.lookup(target) == (50, 0)
    assert index.last_offset == 50
    assert index.fetch_upper_bound_offset(OffsetPosition(50, 0), 5) is None
    index.sanity_check()


def test_the_example_in_the_docstring(path: Path) -> None:
    index = OffsetIndex(path, BASE)
    index.append(61, 6100)
    index.append(75, 12000)
    assert index.lookup(66) == index.lookup(74) == index.lookup(61) == (61, 6100)
    assert index.lookup(60) == (50, 0)
    assert index.lookup(75) == index.lookup(1000) == (75, 12000)


def test_offsets_must_grow(path: Path) -> None:
    index = OffsetIndex(path, BASE)
    index.append(50, 10)
    for offset in (50, 49):
        with pytest.raises(ValueError, match="not larger than the last one, 50"):
            index.append(offset, 20)
    assert index.entries == 1


def test_offsets_beyond_31_bits_do_not_fit(path: Path) -> None:
    index = OffsetIndex(path, BASE)
    for offset in (49, 50 + 2**31, 2**63 - 1):
        with pytest.raises(IndexOffsetOverflowError, match=f"offset {offset} .* base offset 50"):
            index.append(offset, 0)
    assert index.entries == 0
    index.append(50, 0)
    index.append(50 + 2**31 - 1, 1)
    assert index.entries == 2


def test_a_full_index_takes_no_more(path: Path) -> None:
    index = OffsetIndex(path, BASE, 24)
    for n in range(3):
        assert not index.is_full
        index.append(BASE + n, n)
    assert index.is_full
    with pytest.raises(ValueError, match="full: it has 3 entries"):
        index.append(BASE + 3, 3)


@MAPPED
@pytest.mark.parametrize("count", [0, 1, 2, 7, 8, 9, 100, 1023, 1024, 1025, 3000])
def test_lookups_in_warm_and_cold_entries(path: Path, count: int, use_mmap: bool) -> None:
    index = filled(path, count, use_mmap=use_mmap)
    for _ in range(2):  # as it was written, and as it is found again
        assert index.entries == count
        for n in sorted({*range(0, count + 1, max(1, count // 50)), count}):
            expected = (BASE + n * 10, n * 4000) if n else (BASE, 0)
            assert index.lookup(BASE + n * 10) == index.lookup(BASE + n * 10 + 9) == expected
            if n:
                assert index.entry(n - 1) == expected
                bound = index.fetch_upper_bound_offset(OffsetPosition(*expected), 4000)
                assert bound == ((BASE + n * 10 + 10, n * 4000 + 4000) if n < count else None)
                assert index.fetch_upper_bound_offset(OffsetPosition(BASE, 0), n * 4000 - 1) == expected
        for slot in (-1, count):
            with pytest.raises(IndexError):
                index.entry(slot)
        index.sanity_check()
        index.close()
        assert path.read_bytes() == content(count)
        index = OffsetIndex(path, BASE, 1 << 20, use_mmap=use_mmap)


def test_lookups_near_the_end_need_no_file(path: Path) -> None:
    index = filled(path, 2500)
    path.rename(path.with_name("away"))
    for n in range(2000, 2501):
        assert index.lookup(BASE + n * 10) == (BASE + n * 10, n * 4000)
    with pytest.raises(KafkaStorageError, match="cannot read"):
        index.lookup(BASE)


def test_cold_lookups_look_at_the_warm_section_of_the_file_first(path: Path) -> None:
    filled(path, 10_000).close()
    index = OffsetIndex(path, BASE)
    index.lookup(BASE)
    seen: list[int] = []
    assert isinstance(index._stored, MappedEntries)

    class Spy:
        def __init__(self, stored: MappedEntries) -> None:
            self.stored = stored
            self.close = stored.close

        def entry(self, slot: int) -> tuple[int, int]:
            seen.append(slot)
            return self.stored.entry(slot)

    index._stored = Spy(index._stored)
    assert index.lookup(BASE + 99_985) == (BASE + 99_980, 9998 * 4000)
    assert min(seen) >= 10_000 - 2 - 1024
    seen.clear()
    assert index.lookup(BASE + 15) == (BASE + 10, 4000)
    assert len(seen) < 20


# Truncation


@MAPPED
@pytest.mark.parametrize("count", [0, 1, 2, 10, 2000])
def test_truncation(path: Path, count: int, use_mmap: bool) -> None:
    for keep in sorted({0, 1, count // 3, count // 2, count - 2, count - 1, count}):
        if not 0 <= keep <= count:
            continue
        for between in (0, 5):  # the offset of an entry, or one behind it
            path.unlink(missing_ok=True)
            index = filled(path, count, use_mmap=use_mmap)
            index.truncate_to(BASE + (keep + 1) * 10 if between == 0 else BASE + keep * 10 + between)
            assert index.entries == keep
            assert index.last_entry == ((BASE + keep * 10, keep * 4000) if keep else (BASE, 0))
            assert index.lookup(2**60) == index.last_entry
            index.append(BASE + keep * 10 + 7, keep * 4000 + 1)
            index.close()
            assert path.read_bytes() == content(keep) + struct.pack(">ii", keep * 10 + 7, keep * 4000 + 1)


def test_truncating_behind_the_end_does_nothing_and_before_the_beginning_everything(path: Path) -> None:
    index = filled(path, 3)
    index.truncate_to(BASE + 31)
    assert index.entries == 3
    index.truncate_to(0)
    assert index.entries == 0
    index = filled(path.with_name("b.index"), 3)
    index.truncate()
    assert index.entries == 0
    assert index.last_entry == (BASE, 0)


def test_reset(path: Path) -> None:
    index = filled(path, 2000, size=1 << 20)
    index.trim_to_valid_size()
    index.reset()
    assert index.entries == 0
    assert (path.stat().st_size, index.capacity) == (0, 1 << 20)
    assert not index.is_full
    index.close()
    assert path.stat().st_size == 0


def test_a_file_made_shorter_than_its_entries_loses_them(path: Path) -> None:
    index = filled(path, 10)
    assert index.resize(25)
    assert index.entries == 3
    assert index.last_entry == (BASE + 30, 12000)
    index.close()
    assert path.read_bytes() == content(3)


# What can be wrong


def test_sanity(path: Path) -> None:
    path.write_bytes(content(3))
    OffsetIndex(path, BASE).sanity_check()
    path.write_bytes(b"")
    OffsetIndex(path, BASE).sanity_check()


@pytest.mark.parametrize(
    ("damaged", "text"),
    [
        (content(3)[:-1], "23 bytes"),
        (content(3) + b"\0", "25 bytes"),
        (content(2) + struct.pack(">ii", -1, 5), "before the base offset 50"),
        (content(2) + struct.pack(">ii", 30, -5), "before the base offset 50"),
        (content(1) + bytes(800), "not behind the first"),
        (bytes(16), "not behind the first"),
    ],
)
def test_damage_is_noticed(path: Path, damaged: bytes, text: str) -> None:
    path.write_bytes(damaged)
    index = OffsetIndex(path, BASE)
    with pytest.raises(CorruptIndexError, match=text):
        index.sanity_check()


@MAPPED
def test_a_file_cut_short_behind_our_back_is_noticed(path: Path, use_mmap: bool) -> None:
    index = filled(path, 3000, use_mmap=use_mmap)
    os.truncate(path, 8)
    with pytest.raises(CorruptIndexError, match="too few"):
        index.lookup(BASE + 100)
    stored = FileEntries(FileHandle.open(path, os.O_RDONLY), OffsetIndex.layout)
    with pytest.raises(CorruptIndexError, match="ends before entry 1"):
        stored.entry(1)


def test_a_full_disk_is_an_error_and_no_crash(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = filled(path, 1000)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(abstract_index, "write_fully", full)
        for n in range(1001, 1024):
            index.append(BASE + n * 10, n * 4000)
        with pytest.raises(KafkaStorageError, match=r"cannot write .*50\.index: No space left on device") as raised:
            index.append(BASE + 10_240, 1024 * 4000)
        assert is_disk_failure(raised.value)
        with pytest.raises(KafkaStorageError):
            index.flush()
        with pytest.raises(KafkaStorageError):
            index.trim_to_valid_size()
    # Nothing is out of step.
    assert index.last_entry == index.entry(index.entries - 1) == (BASE + 10 * index.entries, 4000 * index.entries)
    count = index.entries
    index.close()
    assert path.read_bytes() == content(count)


# The life of the file


def test_an_index_that_is_only_read_is_left_as_it_is(path: Path) -> None:
    with pytest.raises(KafkaStorageError, match="cannot open"):
        OffsetIndex(path, BASE, writable=False)
    path.write_bytes(content(3) + b"x")
    index = OffsetIndex(path, BASE, -1, writable=False)
    assert index.lookup(BASE + 25) == (BASE + 20, 8000)
    index.close()
    assert path.read_bytes() == content(3) + b"x"


def test_renaming_and_deleting(path: Path) -> None:
    index = filled(path, 2000)
    assert index.lookup(BASE + 10) == (BASE + 10, 4000)
    renamed = path.with_name(path.name + ".deleted")
    index.rename(renamed)
    assert not path.exists()
    assert index.lookup(BASE + 10) == (BASE + 10, 4000)
    for n in range(2001, 4000):
        index.append(BASE + n * 10, n * 4000)
    index.flush()
    assert renamed.read_bytes()[: 3999 * 8] == content(3999)
    with pytest.raises(KafkaStorageError, match="cannot rename"):
        index.rename(path.parent / "missing" / "x.index")
    assert index.path == renamed
    assert index.delete_if_exists()
    assert not renamed.exists()
    assert not index.delete_if_exists()


def test_the_directory_may_be_renamed(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    index = filled(tmp_path / "old" / "1.index", 2)
    (tmp_path / "old").rename(tmp_path / "new")
    index.update_parent_dir(tmp_path / "new")
    index.close()
    assert (tmp_path / "new" / "1.index").read_bytes() == content(2)


def test_a_closed_index_is_no_disk_failure(path: Path) -> None:
    index = filled(path, 2000)
    index.close()
    index.close()
    assert "closed" in repr(index)
    for use in (
        lambda: index.lookup(BASE + 10),
        lambda: index.entry(1),
        lambda: index.truncate_to(0),
        index.flush,
        index.reset,
    ):
        with pytest.raises(FileClosedError) as raised:
            use()
        assert not is_disk_failure(raised.value)
    assert path.read_bytes() == content(2000)


def test_a_handler_closed_after_a_disk_failure_writes_nothing(path: Path) -> None:
    index = filled(path, 3)
    index.close_handler()
    with pytest.raises(FileClosedError):
        index.append(BASE + 10**6, 2**30)
    index.close()
    assert path.read_bytes() == b""


@linux_only
@MAPPED
def test_nothing_stays_open_or_mapped(path: Path, use_mmap: bool) -> None:
    index = filled(path, 3000, use_mmap=use_mmap)
    index.flush()
    # Writing, and reading what was written last, holds nothing.
    assert open_files(path.parent) == memory_maps(path.parent) == []
    index.lookup(BASE + 10)
    assert len(memory_maps(path.parent)) == use_mmap
    index.lookup(BASE + 5000)
    assert len(memory_maps(path.parent)) == use_mmap
    assert len(open_files(path.parent)) <= 1
    index.trim_to_valid_size()
    assert open_files(path.parent) == memory_maps(path.parent) == []
    index.lookup(BASE + 10)
    index.close()
    assert open_files(path.parent) == memory_maps(path.parent) == []
    for end in (OffsetIndex.close_handler, OffsetIndex.delete_if_exists):
        index = OffsetIndex(path, BASE, use_mmap=use_mmap)
        assert open_files(path.parent) == memory_maps(path.parent) == []
        index.lookup(BASE + 10)
        end(index)
        assert open_files(path.parent) == memory_maps(path.parent) == []


def test_a_file_with_holes_is_not_mapped(path: Path) -> None:
    """As Kafka leaves it after a crash. On a full tmpfs, reading a hole through a map would be a SIGBUS."""
    path.write_bytes(content(3000))
    os.truncate(path, 10 * 1024 * 1024)
    index = OffsetIndex(path, BASE)
    assert index.entries == 10 * 1024 * 1024 // 8
    with pytest.raises(CorruptIndexError, match="not behind the first"):
        index.sanity_check()
    assert index._stored is None, "neither opening nor checking an index maps it"
    index.lookup(BASE - 1)
    assert isinstance(index._stored, FileEntries)


def test_a_map_follows_the_file(path: Path) -> None:
    index = OffsetIndex(path, BASE)
    for count in (1500, 5000, 9000):
        for n in range(index.entries + 1, count + 1):
            index.append(BASE + n * 10, n * 4000)
        for n in (1, 700, count - 1100, count):
            assert index.lookup(BASE + n * 10 + 5) == (BASE + n * 10, n * 4000)
        assert isinstance(index._stored, MappedEntries)


def test_without_a_memory_map_to_be_had_the_file_is_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    filled(path, 3000).close()
    monkeypatch.setattr(abstract_index, "MappedEntries", refuse)
    index = OffsetIndex(path, BASE)
    assert index.lookup(BASE + 15) == (BASE + 10, 4000)
    assert isinstance(index._stored, FileEntries)
    monkeypatch.undo()
    index = OffsetIndex(path, BASE)
    assert index.lookup(BASE + 15) == (BASE + 10, 4000)
    assert isinstance(index._stored, MappedEntries)
    monkeypatch.setattr(abstract_index, "_HAS_MMAP", False)
    index = OffsetIndex(path, BASE)
    assert index.lookup(BASE + 15) == (BASE + 10, 4000)
    assert isinstance(index._stored, FileEntries)


def test_flush_goes_to_the_disk_once_for_each_change(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(abstract_index, "sync_data", synced.append)
    index = OffsetIndex(path, BASE)
    index.flush()
    assert not synced
    index.append(60, 1)
    index.flush()
    index.flush()
    assert len(synced) == 1
    index.trim_to_valid_size()
    index.flush()
    assert len(synced) == 1, "nothing was cut off"
    index.truncate_to(60)
    index.trim_to_valid_size()
    index.flush()
    assert len(synced) == 2


@pytest.mark.parametrize("slow", ["sync_data", "write_fully"])
def test_lookups_wait_neither_for_a_write_nor_for_a_sync(
    path: Path, monkeypatch: pytest.MonkeyPatch, slow: str
) -> None:
    """They come from network threads, and a disk may take seconds."""
    began, go_on = threading.Event(), threading.Event()
    function: Any = getattr(abstract_index, slow)

    def wait(*arguments: object) -> object:
        began.set()
        assert go_on.wait(60)
        return function(*arguments)

    index = OffsetIndex(path, BASE)
    for number in range(1, 4):
        index.append(BASE + 10 * number, 100 * number)
    monkeypatch.setattr(abstract_index, slow, wait)
    thread = threading.Thread(target=index.flush)
    thread.start()
    assert began.wait(60)
    try:
        assert index.lookup(BASE + 15) == (BASE + 10, 100)
        assert index.fetch_upper_bound_offset(OffsetPosition(BASE + 10, 100), 50) == (BASE + 20, 200)
        index.append(BASE + 40, 400)
    finally:
        go_on.set()
        thread.join(60)
    monkeypatch.undo()
    index.flush()
    index.close()
    index = OffsetIndex(path, BASE)
    assert [index.entry(slot) for slot in range(index.entries)] == [(BASE + 10 * n, 100 * n) for n in range(1, 5)]


def test_a_sync_that_fails_is_repeated(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []

    def fail(_: int) -> None:
        raise OSError(5, "not today")

    index = OffsetIndex(path, BASE)
    index.append(BASE + 10, 1)
    monkeypatch.setattr(abstract_index, "sync_data", fail)
    with pytest.raises(KafkaStorageError):
        index.flush()
    monkeypatch.setattr(abstract_index, "sync_data", synced.append)
    index.flush()
    assert len(synced) == 1


@MAPPED
def test_lookups_beside_truncation_and_trimming(path: Path, use_mmap: bool, small_warm_section: None) -> None:
    """Reading a mapped page behind the end of a file would end the process."""
    index = filled(path, 0, use_mmap=use_mmap)
    wrong: list[object] = []
    done = threading.Event()

    def look() -> None:
        target = 0
        while not done.is_set():
            target = (target + 997) % 40_000
            found = index.lookup(BASE + target)
            if found.offset > BASE + target or (found.offset - BASE) * 400 != found.position:
                wrong.append((target, found))

    readers = [threading.Thread(target=look) for _ in range(2)]
    for reader in readers:
        reader.start()
    for round_ in range(6):
        for n in range(index.entries + 1, 4001):
            index.append(BASE + n * 10, n * 4000)
        index.truncate_to(BASE + 10 * (round_ * 100 + 1))
        index.trim_to_valid_size()
        index.resize(1 << 20)
    done.set()
    for reader in readers:
        reader.join()
    assert not wrong


class IndexBesideAList(RuleBasedStateMachine):
    """Whatever is done to the index, it knows what a list of pairs knows."""

    model: list[tuple[int, int]]
    index: OffsetIndex

    @initialize(use_mmap=st.booleans(), limit=st.sampled_from([64, 83, 800]))
    def create(self, use_mmap: bool, limit: int) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.path = Path(self.directory.name) / "x.index"
        self.use_mmap = use_mmap
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(abstract_index, "WARM_BYTES", 32)
        self.limit = limit
        self.model = []
        self.index = OffsetIndex(self.path, BASE, limit, use_mmap=use_mmap)

    @precondition(lambda self: not self.index.is_full)
    @rule(steps=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 100)), min_size=1, max_size=8))
    def append(self, steps: list[tuple[int, int]]) -> None:
        for offset_step, position_step in steps:
            if self.index.is_full:
                break
            offset, position = self.model[-1] if self.model else (BASE - 1, 0)
            self.model.append((offset + offset_step, position + position_step))
            self.index.append(*self.model[-1])

    @rule(wanted=st.integers(0, 150))
    def look_up(self, wanted: int) -> None:
        expected = [pair for pair in self.model if pair[0] <= BASE + wanted]
        assert self.index.lookup(BASE + wanted) == (expected[-1] if expected else (BASE, 0))

    @rule(start=st.integers(0, 1000), size=st.integers(0, 1000))
    def upper_bound(self, start: int, size: int) -> None:
        expected = [pair for pair in self.model if pair[1] >= start + size]
        assert self.index.fetch_upper_bound_offset(OffsetPosition(BASE, start), size) == (
            expected[0] if expected else None
        )

    @rule(cut=st.integers(0, 120))
    def truncate_to(self, cut: int) -> None:
        self.index.truncate_to(BASE + cut)
        self.model = [pair for pair in self.model if pair[0] < BASE + cut]

    @rule()
    def flush(self) -> None:
        self.index.flush()
        data = b"".join(struct.pack(">ii", offset - BASE, position) for offset, position in self.model)
        assert self.path.read_bytes()[: len(data)] == data

    @rule()
    def trim_and_grow(self) -> None:
        self.index.trim_to_valid_size()
        assert self.path.stat().st_size == len(self.model) * 8
        self.index.resize(self.limit)
        assert self.index.capacity == self.limit - self.limit % 8

    @rule()
    def reset(self) -> None:
        self.index.reset()
        self.model = []

    @rule()
    def reopen(self) -> None:
        self.index.close()
        self.index = OffsetIndex(self.path, BASE, self.limit, use_mmap=self.use_mmap)
        self.index.resize(self.limit)

    @invariant()
    def agrees(self) -> None:
        if hasattr(self, "index"):
            assert self.index.entries == len(self.model)
            assert self.index.last_entry == (self.model[-1] if self.model else (BASE, 0))
            assert [self.index.entry(n) for n in range(len(self.model))] == self.model

    def teardown(self) -> None:
        if hasattr(self, "index"):
            self.index.close()
            self.patch.undo()
            self.directory.cleanup()


IndexBesideAList.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestIndexBesideAList = IndexBesideAList.TestCase
