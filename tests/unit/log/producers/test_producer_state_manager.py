from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.common.clock import MockClock
from barnabas.common.errors import KafkaStorageError
from barnabas.log.append_origin import AppendOrigin
from barnabas.log.producers.producer_state_entry import BatchMetadata
from barnabas.log.producers.producer_state_manager import ProducerStateManager
from barnabas.records.batch import RecordBatch
from unit.log.producers.producer_samples import EXPIRATION_MS, NOW, data_batch, entry, marker_batch, new_manager


def replay(manager: ProducerStateManager, *batches: RecordBatch) -> None:
    """What a log does with its batches when it is opened."""
    for batch in batches:
        analysis = manager.analyze([batch], AppendOrigin.REPLICATION)
        for info in analysis.updated.values():
            manager.update(info)
        for completed in analysis.completed:
            manager.complete_txn(completed)
        manager.update_map_end_offset(batch.next_offset)


def transaction(producer_id: int, offset: int) -> list[RecordBatch]:
    """One record, and the end."""
    return [data_batch(producer_id, offset, 0, transactional=True), marker_batch(producer_id, offset + 1)]


def snapshots(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.iterdir() if path.suffix == ".snapshot")


def test_a_snapshot_is_taken_once_for_an_offset(tmp_path: Path) -> None:
    manager = new_manager(tmp_path)
    assert manager.take_snapshot() is None
    replay(manager, data_batch(1, 0, 0, 5))
    assert manager.map_end_offset == 5
    assert manager.take_snapshot() == tmp_path / "00000000000000000005.snapshot"
    assert manager.take_snapshot() is None
    assert (manager.oldest_snapshot_offset, manager.latest_snapshot_offset) == (5, 5)
    replay(manager, data_batch(1, 5, 5))
    assert manager.take_snapshot(sync=False) == tmp_path / "00000000000000000006.snapshot"
    assert (manager.oldest_snapshot_offset, manager.latest_snapshot_offset) == (5, 6)
    assert manager.fetch_snapshot(5) == tmp_path / "00000000000000000005.snapshot"
    assert manager.fetch_snapshot(4) is None
    file = manager.snapshot_file_for_offset(6)
    assert file is not None
    assert file.offset == 6


def test_a_restart_loads_the_latest_snapshot(tmp_path: Path) -> None:
    manager = new_manager(tmp_path)
    replay(manager, data_batch(1, 0, 0, 5), data_batch(2, 5, 0, transactional=True))
    manager.take_snapshot()
    again = new_manager(tmp_path)
    assert again.is_empty
    again.truncate_and_reload(0, 6, NOW)
    assert again.map_end_offset == 6
    assert again.last_entry(1) == entry(1, BatchMetadata(4, 4, 4, NOW))
    assert again.first_undecided_offset == 5
    assert again.has_late_transaction(NOW + 10**9)
    assert again.take_snapshot() is None  # it is there


def test_producers_that_have_expired_meanwhile_are_not_loaded(tmp_path: Path) -> None:
    manager = new_manager(tmp_path)
    replay(
        manager, data_batch(1, 0, 0), data_batch(2, 1, 0, timestamp=NOW + 1), data_batch(3, 2, 0, transactional=True)
    )
    manager.take_snapshot()
    again = new_manager(tmp_path)
    again.truncate_and_reload(0, 3, NOW + EXPIRATION_MS)
    assert set(again.active_producers) == {2, 3}


def test_a_damaged_snapshot_gives_way_to_the_one_before(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    manager = new_manager(tmp_path)
    for offset in range(4):
        replay(manager, data_batch(1, offset, offset))
        manager.take_snapshot()
    for offset in (3, 4):
        path = manager.fetch_snapshot(offset)
        assert path is not None
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data if offset == 4 else b"")
    again = new_manager(tmp_path)
    with caplog.at_level(logging.WARNING):
        again.truncate_and_reload(0, 4, NOW)
    assert caplog.text.count("is of no use") == 2
    assert again.map_end_offset == 2
    assert snapshots(tmp_path) == [1, 2]
    assert again.last_entry(1) == entry(1, BatchMetadata(1, 1, 0, NOW))


def test_without_any_usable_snapshot_the_log_is_read_from_its_start(tmp_path: Path) -> None:
    (tmp_path / "00000000000000000009.snapshot").write_bytes(b"nothing")
    manager = new_manager(tmp_path)
    manager.truncate_and_reload(4, 10, NOW)
    assert manager.map_end_offset == 4
    assert manager.is_empty
    assert snapshots(tmp_path) == []


def test_a_truncation_goes_back_to_a_snapshot(tmp_path: Path) -> None:
    manager = new_manager(tmp_path)
    for offset in range(6):
        replay(manager, data_batch(1, offset, offset, transactional=True))
        if offset % 2:
            manager.take_snapshot()
    assert snapshots(tmp_path) == [2, 4, 6]
    manager.truncate_and_reload(0, 5, NOW)
    assert snapshots(tmp_path) == [2, 4]
    assert manager.map_end_offset == 4
    assert manager.last_entry(1) == entry(1, BatchMetadata(3, 3, 0, NOW), txn_first_offset=0)
    replay(manager, data_batch(1, 4, 4, transactional=True))
    assert manager.take_snapshot() is not None


def test_a_truncation_at_the_end_of_the_state_keeps_it(tmp_path: Path) -> None:
    manager = new_manager(tmp_path)
    replay(
        manager, data_batch(1, 0, 0), data_batch(1, 1, 1), data_batch(2, 2, 0, transactional=True), marker_batch(2, 3)
    )
    manager.truncate_and_reload(0, 4, NOW)
    state = manager.last_entry(1)
    assert state is not None
    assert len(state.batches) == 2  # more than any snapshot knows
    assert manager.first_unstable_offset is not None
    manager.truncate_and_reload(4, 4, NOW)
    assert manager.first_unstable_offset is None


def test_snapshots_before_the_start_of_the_log_go_but_the_producers_stay(tmp_path: Path) -> None:
    manager = new_manager(tmp_path)
    for offset in range(3):
        replay(manager, data_batch(1, offset, offset))
        manager.take_snapshot()
    manager.truncate_and_reload(2, 3, NOW)
    assert snapshots(tmp_path) == [3]
    assert manager.last_entry(1) is not None


def test_the_start_of_the_log_moves(tmp_path: Path) -> None:
    manager = new_manager(tmp_path)
    replay(
        manager, data_batch(1, 0, 0, transactional=True), marker_batch(1, 1), data_batch(2, 2, 0, transactional=True)
    )
    manager.on_log_start_offset_incremented(1)
    assert manager.first_unstable_offset == (0, -1, -1)
    manager.on_log_start_offset_incremented(2)
    assert manager.first_unstable_offset == (2, -1, -1)
    assert manager.map_end_offset == 3
    manager.on_log_start_offset_incremented(100)
    assert manager.map_end_offset == 100
    assert manager.take_snapshot() is None  # nothing has come since
    manager.update_map_end_offset(101)
    assert manager.take_snapshot() is not None


def test_truncate_fully(tmp_path: Path) -> None:
    manager = new_manager(tmp_path)
    replay(
        manager, data_batch(1, 0, 0, transactional=True), marker_batch(1, 1), data_batch(2, 2, 0, transactional=True)
    )
    manager.take_snapshot()
    manager.truncate_fully_and_start_at(50)
    assert manager.is_empty
    assert manager.first_unstable_offset is None
    assert manager.map_end_offset == 50
    assert snapshots(tmp_path) == []
    assert manager.take_snapshot() == tmp_path / "00000000000000000050.snapshot"


def test_truncate_fully_and_reload_snapshots(tmp_path: Path) -> None:
    manager = new_manager(tmp_path)
    replay(manager, data_batch(1, 0, 0))
    manager.take_snapshot()
    manager.truncate_fully_and_reload_snapshots()
    assert manager.latest_snapshot_offset is None
    other = new_manager(tmp_path)
    replay(other, data_batch(1, 0, 0))
    other.take_snapshot()
    assert manager.latest_snapshot_offset is None
    manager.truncate_fully_and_reload_snapshots()
    assert manager.latest_snapshot_offset == 1


def test_snapshots_go_with_their_segments(tmp_path: Path) -> None:
    manager = new_manager(tmp_path)
    for offset in range(5):
        replay(manager, data_batch(1, offset, offset))
        manager.take_snapshot()
    manager.delete_snapshots_before(2)
    manager.delete_snapshots_after(4)
    assert snapshots(tmp_path) == [2, 3, 4]
    manager.remove_stray_snapshots([2, 3])
    assert snapshots(tmp_path) == [2, 3, 4]
    manager.remove_stray_snapshots([2, 5])
    assert snapshots(tmp_path) == [2]
    marked = manager.remove_and_mark_snapshot_for_deletion(2)
    assert marked is not None
    assert [path.name for path in tmp_path.iterdir()] == ["00000000000000000002.snapshot.deleted"]
    assert manager.oldest_snapshot_offset is None


def test_a_renamed_directory(tmp_path: Path) -> None:
    directory = tmp_path / "topic-0"
    directory.mkdir()
    manager = new_manager(directory)
    replay(manager, data_batch(1, 0, 0))
    manager.take_snapshot()
    renamed = directory.rename(tmp_path / "topic-0.stray")
    manager.update_parent_dir(renamed)
    assert manager.fetch_snapshot(1) == renamed / "00000000000000000001.snapshot"
    replay(manager, data_batch(1, 1, 1))
    assert manager.take_snapshot() == renamed / "00000000000000000002.snapshot"


def test_a_disk_that_fails(tmp_path: Path) -> None:
    directory = tmp_path / "topic-0"
    directory.mkdir()
    manager = new_manager(directory)
    replay(manager, data_batch(1, 0, 0))
    directory.rmdir()
    with pytest.raises(KafkaStorageError, match="cannot write"):
        manager.take_snapshot()
    directory.mkdir()
    assert manager.take_snapshot() is not None


# A restart at any moment comes to the same state as none


@st.composite
def logs(draw: st.DrawFn) -> list[RecordBatch]:
    """Batches of two producers, as a leader would have accepted them."""
    batches: list[RecordBatch] = []
    epochs, sequences, is_open = {1: 0, 2: 0}, {1: 0, 2: 0}, {1: False, 2: False}
    for action in draw(st.lists(st.sampled_from(["data", "transaction", "end", "epoch"]), max_size=20)):
        producer_id = draw(st.integers(1, 2))
        offset = batches[-1].next_offset if batches else 0
        if action == "epoch":
            epochs[producer_id] += 1
            sequences[producer_id] = 0
        elif action == "end":
            batches.append(marker_batch(producer_id, offset, epoch=epochs[producer_id], timestamp=NOW + offset))
            is_open[producer_id] = False
        else:
            count = draw(st.integers(1, 3))
            is_open[producer_id] |= action == "transaction"
            batches.append(
                data_batch(
                    producer_id,
                    offset,
                    sequences[producer_id],
                    count,
                    epoch=epochs[producer_id],
                    transactional=is_open[producer_id],
                    timestamp=NOW + offset,
                )
            )
            sequences[producer_id] += count
    return batches


@settings(deadline=None, max_examples=150)
@given(logs(), st.data())
def test_a_restart_changes_nothing_that_matters(
    tmp_path_factory: pytest.TempPathFactory, batches: list[RecordBatch], data: st.DataObject
) -> None:
    directory = tmp_path_factory.mktemp("log")
    steady = new_manager(tmp_path_factory.mktemp("other"))
    manager = new_manager(directory)
    taken_up_to = 0
    for index, batch in enumerate(batches):
        replay(steady, batch)
        replay(manager, batch)
        match data.draw(st.sampled_from(["go on", "go on", "snapshot", "restart", "crash"])):
            case "snapshot":
                manager.take_snapshot(sync=False)
                taken_up_to = batch.next_offset
            case "restart" | "crash" as end:
                if end == "restart":
                    manager.take_snapshot(sync=False)
                    taken_up_to = batch.next_offset
                manager = new_manager(directory, MockClock(NOW))
                manager.truncate_and_reload(0, batch.next_offset, NOW)
                assert manager.map_end_offset == taken_up_to
                replay(manager, *[b for b in batches[: index + 1] if b.base_offset >= taken_up_to])
        assert manager.map_end_offset == steady.map_end_offset
        assert manager.first_undecided_offset == steady.first_undecided_offset
        assert set(manager.active_producers) == set(steady.active_producers)
        for producer_id, expected in steady.active_producers.items():
            state = manager.active_producers[producer_id]
            for name in ("producer_epoch", "coordinator_epoch", "last_timestamp", "current_txn_first_offset"):
                assert getattr(state, name) == getattr(expected, name)
            # Fewer batches may be known, but of those, the last ones; only where they are from a snapshot, their
            # timestamps are those of the producer.
            known = [(b.last_seq, b.last_offset, b.offset_delta) for b in state.batches]
            assert known == [(b.last_seq, b.last_offset, b.offset_delta) for b in expected.batches][-len(known) or 99 :]
            assert bool(known) == bool(expected.batches)
