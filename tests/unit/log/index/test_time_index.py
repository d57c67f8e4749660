"""The time index: its bytes, which entries it takes, and its lookups beside a plain list."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.log.index import abstract_index
from barnabas.log.index.time_index import TimeIndex
from barnabas.log.storage_errors import CorruptIndexError, IndexOffsetOverflowError

BASE = 50


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "00000000000000000050.timeindex"


def test_the_bytes_of_an_entry(path: Path) -> None:
    index = TimeIndex(path, BASE, 120)
    index.maybe_append(0x0102030405060708, 55)
    index.maybe_append(2**63 - 1, BASE + 2**31 - 1)
    index.close()
    assert path.read_bytes() == bytes.fromhex("0102030405060708 00000005 7fffffffffffffff 7fffffff")


def test_sizes(path: Path) -> None:
    index = TimeIndex(path, BASE, 100)
    assert (path.stat().st_size, index.capacity) == (0, 96)
    assert (index.entry_size, index.max_entries) == (12, 8)
    index.maybe_append(10, 60)
    index.trim_to_valid_size()
    assert path.stat().st_size == 12


def test_one_slot_is_kept_back_for_the_end(path: Path) -> None:
    index = TimeIndex(path, BASE, 48)
    for n in range(3):
        assert not index.is_full
        index.maybe_append(n, BASE + n)
    assert index.is_full
    with pytest.raises(ValueError, match="full: it has 3 entries"):
        index.maybe_append(3, BASE + 3)
    index.maybe_append(3, BASE + 3, skip_full_check=True)
    assert index.entries == 4
    index.close()
    assert path.read_bytes() == b"".join(struct.pack(">qi", n, n) for n in range(4))


def test_the_entry_that_closes_an_index_finds_room_even_in_a_trimmed_one(path: Path) -> None:
    index = TimeIndex(path, BASE)
    for n in range(2000):
        index.maybe_append(n, BASE + n)
    index.close()
    index = TimeIndex(path, BASE)
    assert index.lookup(5) == (5, BASE + 5)
    index.maybe_append(5000, BASE + 5000, skip_full_check=True)
    index.close()
    index = TimeIndex(path, BASE)
    assert index.entries == 2001
    assert index.last_entry == (5000, BASE + 5000)
    assert index.lookup(2500) == (1999, BASE + 1999)


def test_an_entry_that_says_nothing_new_is_left_out(path: Path) -> None:
    index = TimeIndex(path, BASE)
    assert index.last_entry == (-1, BASE)
    index.maybe_append(-1, BASE)  # a batch without timestamps
    assert index.entries == 0
    index.maybe_append(100, 60)
    index.maybe_append(100, 60)
    index.maybe_append(100, 70)
    assert index.entries == 1
    assert index.last_entry == index.entry(0) == (100, 60)


def test_neither_timestamps_nor_offsets_go_back(path: Path) -> None:
    index = TimeIndex(path, BASE)
    index.maybe_append(100, 60)
    with pytest.raises(ValueError, match="before the last one"):
        index.maybe_append(99, 70)
    with pytest.raises(ValueError, match="before the last one"):
        index.maybe_append(101, 59)
    with pytest.raises(IndexOffsetOverflowError):
        index.maybe_append(101, BASE + 2**31)
    assert index.entries == 1


def test_the_example_in_the_docstring(path: Path) -> None:
    index = TimeIndex(path, 0)
    index.maybe_append(1500, 19)
    index.maybe_append(1800, 39)
    assert index.lookup(1600) == index.lookup(1500) == (1500, 19)
    assert index.lookup(1499) == (-1, 0)
    assert index.lookup(1800) == index.lookup(9999) == (1800, 39)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=60),
    st.integers(-5, 200),
    st.integers(0, 300),
    st.booleans(),
    st.booleans(),
)
def test_it_knows_what_a_list_of_pairs_knows(
    steps: list[tuple[int, int]], time: int, cut: int, use_mmap: bool, reopen: bool
) -> None:
    model: list[tuple[int, int]] = []
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(abstract_index, "WARM_BYTES", 48)
        path = Path(directory) / "x.timeindex"
        index = TimeIndex(path, BASE, 10_000, use_mmap=use_mmap)
        timestamp, offset = 0, BASE
        for timestamp_step, offset_step in steps:
            timestamp, offset = timestamp + timestamp_step, offset + offset_step
            index.maybe_append(timestamp, offset)
            if timestamp > (model[-1][0] if model else -1):
                model.append((timestamp, offset))
        if reopen:
            index.close()
            index = TimeIndex(path, BASE, 10_000, use_mmap=use_mmap)
            index.resize(10_000)

        def check() -> None:
            assert [index.entry(n) for n in range(index.entries)] == model
            assert index.last_entry == (model[-1] if model else (-1, BASE))
            before = [pair for pair in model if pair[0] <= time]
            assert index.lookup(time) == (before[-1] if before else (-1, BASE))
            index.sanity_check()

        check()
        index.truncate_to(BASE + cut)
        model = [pair for pair in model if pair[1] < BASE + cut]
        check()
        index.close()
        assert path.read_bytes() == b"".join(struct.pack(">qi", t, o - BASE) for t, o in model)


@pytest.mark.parametrize(
    ("damaged", "text"),
    [
        (bytes(13), "13 bytes"),
        (struct.pack(">qiqi", 5, 1, 5, 2), "not behind the first"),
        (struct.pack(">qiqi", 5, 1, 4, 2), "not behind the first"),
        (struct.pack(">qiqi", 5, 3, 6, 2), "not behind the first"),
        (struct.pack(">qiqi", 5, 1, 6, -1), "before the base offset 50"),
        (struct.pack(">qi", 5, 1) + bytes(120), "not behind the first"),
    ],
)
def test_damage_is_noticed(path: Path, damaged: bytes, text: str) -> None:
    path.write_bytes(damaged)
    index = TimeIndex(path, BASE)
    with pytest.raises(CorruptIndexError, match=text):
        index.sanity_check()
