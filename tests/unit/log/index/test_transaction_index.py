"""The index of aborted transactions: its bytes, and what a search finds."""

from __future__ import annotations

import errno
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.common.errors import KafkaStorageError
from barnabas.log.index import transaction_index
from barnabas.log.index.transaction_index import ENTRY, TransactionIndex
from barnabas.log.storage_errors import CorruptIndexError, FileClosedError
from barnabas.protocol.internal.storage import AbortedTxn
from segment_fixtures import linux_only, open_files


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "00000000000000000000.txnindex"


def aborted(producer_id: int, first: int, last: int, stable: int) -> AbortedTxn:
    return AbortedTxn(producer_id=producer_id, first_offset=first, last_offset=last, last_stable_offset=stable)


FOUR = [aborted(0, 0, 10, 11), aborted(1, 5, 15, 13), aborted(2, 18, 35, 25), aborted(3, 32, 50, 40)]


def index_with(path: Path, *txns: AbortedTxn, start: int = 0) -> TransactionIndex:
    index = TransactionIndex(start, path)
    for txn in txns:
        index.append(txn)
    return index


def test_the_bytes_of_an_entry(path: Path) -> None:
    index = index_with(path, aborted(0x0102030405060708, 5, 15, 13))
    assert path.read_bytes() == bytes.fromhex(
        "0000 0102030405060708 0000000000000005 000000000000000f 000000000000000d"
    )
    assert ENTRY.size == 34
    assert path.read_bytes() == b"\0\0" + aborted(0x0102030405060708, 5, 15, 13).encode(0)
    index.close()


def test_an_entry_that_comes_during_a_sync_is_synced_later(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = index_with(path, FOUR[0])
    synced: list[int] = []

    def sync(_: int) -> None:
        synced.append(index.entries)
        if len(synced) == 1:
            index.append(FOUR[1])

    monkeypatch.setattr(transaction_index, "sync_data", sync)
    for _ in range(3):
        index.flush()
    assert synced == [1, 2]
    index.append(FOUR[2])
    with monkeypatch.context() as patch:

        def broken(_: int) -> None:
            raise OSError(errno.EIO, "Input/output error")

        patch.setattr(transaction_index, "sync_data", broken)
        with pytest.raises(KafkaStorageError, match="cannot flush"):
            index.flush()
    index.flush()
    assert synced == [1, 2, 3]
    index.close()


def test_a_second_flush_waits_for_the_first(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = index_with(path, FOUR[0])
    events: list[str] = []

    def flush() -> None:
        index.flush()
        events.append("second flush")

    second = threading.Thread(target=flush)

    def sync(_: int) -> None:
        second.start()
        second.join(0.1)
        events.append("synced")

    monkeypatch.setattr(transaction_index, "sync_data", sync)
    index.flush()
    second.join()
    assert events == ["synced", "second flush"]
    index.close()


def test_there_is_no_file_before_the_first_entry(path: Path) -> None:
    index = TransactionIndex(0, path)
    assert index.is_empty
    assert index.all_aborted_txns() == []
    assert index.collect_aborted_txns(0, 100) == ([], False)
    index.truncate_to(0)
    index.reset()
    index.flush()
    index.sanity_check()
    index.rename(path.with_name("renamed"))
    assert not index.delete_if_exists()
    assert list(path.parent.iterdir()) == []


def test_entries_are_found_again(path: Path) -> None:
    index_with(path, *FOUR).close()
    index = TransactionIndex(0, path)
    assert not index.is_empty
    assert index.entries == 4
    assert index.all_aborted_txns() == FOUR
    index.sanity_check()
    with pytest.raises(ValueError, match="ends at offset 50 does not come after the last one, which ends at 50"):
        index.append(aborted(9, 49, 50, 51))
    index.append(aborted(9, 49, 51, 52))
    assert index.all_aborted_txns() == [*FOUR, aborted(9, 49, 51, 52)]


@pytest.mark.parametrize(
    ("fetch", "bound", "found", "complete"),
    [
        (0, 100, [0, 1, 2, 3], False),
        (0, 32, [0, 1, 2], True),  # 3 begins at 32, and its stable offset says that no more follow
        (0, 35, [0, 1, 2, 3], True),
        (10, 35, [0, 1, 2, 3], True),
        (11, 35, [1, 2, 3], True),
        (20, 41, [2, 3], False),
        (51, 60, [], False),
        (0, 11, [0], True),  # 1 begins at 5, but 0 says that 11 is stable
    ],
)
def test_search(path: Path, fetch: int, bound: int, found: list[int], complete: bool) -> None:
    assert index_with(path, *FOUR).collect_aborted_txns(fetch, bound) == ([FOUR[n] for n in found], complete)


def test_the_example_in_the_docstring(path: Path) -> None:
    first, second = aborted(1, 10, 13, 11), aborted(2, 11, 15, 16)
    index = index_with(path, first, second)
    assert index.collect_aborted_txns(10, 11) == ([first], True)
    assert index.collect_aborted_txns(10, 13) == ([first, second], True)


@given(st.data())
def test_a_search_finds_what_going_through_all_of_them_finds(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(transaction_index, "_READ_ENTRIES", 3)
        path = Path(directory) / "x.txnindex"
        txns, last = [], 0
        for producer_id in range(data.draw(st.integers(0, 12))):
            last += data.draw(st.integers(1, 6))
            first = data.draw(st.integers(0, last))
            txns.append(aborted(producer_id, first, last, data.draw(st.integers(0, last + 1))))
        index = index_with(path, *txns)
        fetch = data.draw(st.integers(0, 70))
        bound = data.draw(st.integers(fetch + 1, 80))
        expected, complete = [], False
        for txn in txns:
            if txn.last_offset >= fetch and txn.first_offset < bound:
                expected.append(txn)
            if txn.last_stable_offset >= bound:
                complete = True
                break
        assert index.collect_aborted_txns(fetch, bound) == (expected, complete)
        cut = data.draw(st.integers(0, 80))
        index.truncate_to(cut)
        kept = [txn for txn in txns if txn.last_offset < cut]
        assert index.all_aborted_txns() == kept
        assert path.exists() == bool(txns)
        assert not txns or path.stat().st_size == 34 * len(kept)
        index.append(aborted(99, 0, 100, 101))
        assert index.all_aborted_txns() == [*kept, aborted(99, 0, 100, 101)]


def test_reset(path: Path) -> None:
    index = index_with(path, *FOUR)
    index.reset()
    assert path.stat().st_size == 0
    assert index.is_empty
    index.append(FOUR[0])
    assert index.all_aborted_txns() == FOUR[:1]


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda data: data[:-1], "135 bytes"),
        (lambda data: data + b"\0", "137 bytes"),
        (lambda data: data[:34] + b"\0\1" + data[36:], "entry 1 has the unknown version 1"),
        (lambda data: data[:34] * 2, "entry 1, .* should end behind offset 10"),
        (lambda data: data + bytes(34), "entry 4, .* should end behind offset 50"),
    ],
)
def test_damage_is_noticed(path: Path, damage: object, text: str) -> None:
    index_with(path, *FOUR).close()
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(CorruptIndexError, match=text):
        TransactionIndex(0, path).sanity_check()


def test_a_transaction_that_ends_before_the_segment_begins_is_damage(path: Path) -> None:
    index_with(path, *FOUR).close()
    TransactionIndex(10, path).sanity_check()
    with pytest.raises(CorruptIndexError, match="should end behind offset 10"):
        TransactionIndex(11, path).sanity_check()


def test_half_an_entry_is_written_over(path: Path) -> None:
    index_with(path, *FOUR[:2]).close()
    path.write_bytes(path.read_bytes()[:-5])
    index = TransactionIndex(0, path)
    assert index.all_aborted_txns() == FOUR[:1]
    index.append(FOUR[2])
    assert path.stat().st_size == 68
    assert TransactionIndex(0, path).all_aborted_txns() == [FOUR[0], FOUR[2]]


def test_a_file_cut_short_behind_our_back_is_noticed(path: Path) -> None:
    index = index_with(path, *FOUR)
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(CorruptIndexError, match="ends before its entry 1"):
        index.all_aborted_txns()


def test_a_reader_beside_a_truncation_gets_what_is_left(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_index, "_READ_ENTRIES", 1)
    index = index_with(path, *FOUR)
    reading = index._iterate()
    assert next(reading) == (0, FOUR[0])
    index.truncate_to(15)
    assert list(reading) == []


@linux_only
def test_the_life_of_the_file(path: Path) -> None:
    index = index_with(path, *FOUR)
    index.flush()
    renamed = path.with_name(path.name + ".deleted")
    index.rename(renamed)
    assert index.all_aborted_txns() == FOUR
    with pytest.raises(KafkaStorageError, match="cannot rename"):
        index.rename(path.parent / "missing" / "x")
    index.close()
    assert open_files(path.parent) == []
    for use in (lambda: index.append(aborted(9, 60, 61, 62)), index.all_aborted_txns, lambda: index.truncate_to(0)):
        with pytest.raises(FileClosedError):
            use()
    again = TransactionIndex(0, renamed)
    assert open_files(path.parent) == []
    assert again.all_aborted_txns() == FOUR
    assert again.delete_if_exists()
    assert list(path.parent.iterdir()) == []
    assert open_files(path.parent) == []
