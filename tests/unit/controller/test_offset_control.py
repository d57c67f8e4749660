"""Offsets, metadata transactions, and when a snapshot is due."""

from __future__ import annotations

import pytest

from barnabas.common.clock import MockClock
from barnabas.common.snapshot_registry import SnapshotRegistry, TimelineObject
from barnabas.controller.offset_control_manager import OffsetControlManager
from barnabas.controller.snapshot_trigger import SnapshotTrigger
from barnabas.metadata.errors import MetadataReplayError
from barnabas.protocol.internal.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    NoOpRecord,
)
from barnabas.raft.client import ApiMessageAndVersion, Batch, OffsetAndEpoch

BEGIN, END, ABORT = BeginTransactionRecord(), EndTransactionRecord(), AbortTransactionRecord()


def batch(base_offset: int, last_offset: int, size: int = 10) -> Batch[ApiMessageAndVersion]:
    records = [ApiMessageAndVersion(NoOpRecord(), 0)] * (last_offset - base_offset + 1)
    return Batch(base_offset, last_offset, 1, 500, size, records)


class State:
    """Offsets, and one number whose past can be looked at."""

    def __init__(self) -> None:
        self.registry = SnapshotRegistry()
        self.number = TimelineObject(self.registry, 0)
        self.offsets = OffsetControlManager(self.registry, MockClock())

    def follow(self, first: int, last: int) -> None:
        """A standby replays a batch: the number becomes each offset in turn."""
        for offset in range(first, last + 1):
            self.number.set(offset)
        self.offsets.handle_commit_batch(batch(first, last))


@pytest.fixture
def state() -> State:
    return State()


def test_a_standby_can_be_read_at_the_last_stable_offset(state: State) -> None:
    state.follow(0, 4)
    state.follow(5, 5)
    offsets = state.offsets
    assert (offsets.last_committed_offset, offsets.last_stable_offset, offsets.last_applied_offset) == (5, 5, 5)
    assert offsets.last_applied_timestamp == 500
    assert state.registry.epochs == [5]
    assert state.number.get(5) == 5


def test_the_active_controller_keeps_a_snapshot_for_every_batch_that_is_not_committed(state: State) -> None:
    state.follow(0, 4)
    state.offsets.activate(5)
    for offset in (5, 6, 7):
        state.number.set(offset)
        state.offsets.handle_schedule_append(offset)
    assert state.registry.epochs == [4, 5, 6, 7]
    assert (state.offsets.next_write_offset, state.offsets.last_applied_offset) == (8, 7)
    state.offsets.handle_commit_batch(batch(5, 6))
    assert state.registry.epochs == [6, 7]
    assert state.number.get(6) == 6
    state.offsets.deactivate()
    assert state.number.get() == 6
    assert not state.offsets.active


def test_activation_and_its_end_come_in_turns(state: State) -> None:
    with pytest.raises(RuntimeError, match="already a standby"):
        state.offsets.deactivate()
    with pytest.raises(ValueError, match="offset -3"):
        state.offsets.activate(-3)
    state.offsets.activate(0)
    with pytest.raises(RuntimeError, match="already active"):
        state.offsets.activate(0)


def test_a_transaction_becomes_visible_when_it_ends(state: State) -> None:
    state.follow(0, 2)
    state.offsets.replay_begin_transaction(BEGIN, 3)
    state.follow(3, 4)
    assert (state.offsets.last_committed_offset, state.offsets.last_stable_offset) == (4, 2)
    assert state.number.get(2) == 2
    state.offsets.replay_end_transaction(END, 5)
    state.follow(5, 5)
    assert state.offsets.last_stable_offset == 5


def test_an_aborted_transaction_never_was(state: State) -> None:
    state.follow(0, 2)
    state.offsets.replay_begin_transaction(BEGIN, 3)
    state.follow(3, 4)
    state.offsets.replay_abort_transaction(ABORT, 5)
    state.offsets.handle_commit_batch(batch(5, 5))
    assert state.number.get() == 2
    assert state.offsets.last_stable_offset == 5


def test_a_transaction_that_was_never_committed_is_forgotten_with_the_leadership(state: State) -> None:
    state.follow(0, 2)
    state.offsets.activate(3)
    state.offsets.replay_begin_transaction(BEGIN, 3)
    state.offsets.handle_schedule_append(4)
    state.offsets.deactivate()
    assert state.offsets.transaction_start_offset == -1


def test_transactions_do_not_nest_and_have_no_place_in_snapshots(state: State) -> None:
    with pytest.raises(MetadataReplayError, match="none is open"):
        state.offsets.replay_end_transaction(END, 0)
    with pytest.raises(MetadataReplayError, match="none is open"):
        state.offsets.replay_abort_transaction(ABORT, 0)
    state.offsets.replay_begin_transaction(BEGIN, 0)
    with pytest.raises(MetadataReplayError, match="is open"):
        state.offsets.replay_begin_transaction(BEGIN, 1)
    state.offsets.begin_load_snapshot(OffsetAndEpoch(9, 2))
    with pytest.raises(MetadataReplayError, match="must not contain"):
        state.offsets.replay_begin_transaction(BEGIN, 1)


def test_a_snapshot_replaces_everything(state: State) -> None:
    state.follow(0, 2)
    with pytest.raises(RuntimeError, match="no snapshot is being loaded"):
        state.offsets.end_load_snapshot(0)
    state.offsets.begin_load_snapshot(OffsetAndEpoch(9, 2))
    with pytest.raises(RuntimeError, match="while"):
        state.offsets.begin_load_snapshot(OffsetAndEpoch(10, 2))
    assert state.number.get() == 0
    state.number.set(7)
    state.offsets.end_load_snapshot(123)
    assert (state.offsets.last_committed_offset, state.offsets.last_committed_epoch) == (8, 2)
    assert state.number.get(8) == 7
    state.follow(9, 9)
    assert state.number.get(9) == 9


# -- snapshots


def test_no_snapshot_is_due_inside_a_transaction() -> None:
    due: list[OffsetAndEpoch] = []
    trigger = SnapshotTrigger(MockClock(), lambda snapshot_id, _: due.append(snapshot_id), max_bytes=100)
    trigger.committed(batch(0, 9, size=150), last_stable_offset=4)
    assert due == []
    trigger.committed(batch(10, 10, size=1), last_stable_offset=10)
    assert due == [OffsetAndEpoch(11, 1)]


def test_a_loaded_snapshot_counts_as_one() -> None:
    clock = MockClock()
    due: list[str] = []
    trigger = SnapshotTrigger(clock, lambda _, reason: due.append(reason), max_bytes=100, max_interval_ms=1000)
    trigger.committed(batch(0, 0, size=99), 0)
    clock.advance(999)
    trigger.loaded_snapshot()
    trigger.committed(batch(1, 1, size=99), 1)
    clock.advance(1000)
    assert due == []
    trigger.committed(batch(2, 2, size=0), 2)
    assert due == ["the last one is 1000 ms old"]
    clock.advance(5000)
    trigger.committed(batch(3, 3, size=0), 3)
    assert len(due) == 1  # nothing was written since
