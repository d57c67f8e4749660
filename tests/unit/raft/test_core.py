"""The Raft core, stepped without files, threads or a clock."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import barnabas.raft
from barnabas.log.log_offset_metadata import LogOffsetMetadata
from barnabas.raft.client import LeaderAndEpoch, OffsetAndEpoch
from barnabas.raft.core import (
    AdvanceHighWatermark,
    BeginLeaderEpoch,
    Decision,
    EndLeaderEpoch,
    LeaderChanged,
    LogFlushed,
    PersistElection,
    RaftCore,
    ResignRequested,
    Start,
    TimeElapsed,
    UnsupportedQuorumError,
)
from barnabas.raft.quorum_state import ElectionState, QuorumStateName
from barnabas.raft.voter_set import Membership, ReplicaKey, VoterNode, VoterSet
from barnabas.records.control import ControlRecordType
from unit.raft.raft_box import DIRECTORY, ENDPOINTS, NODE

LOCAL = VoterNode(ReplicaKey(NODE, DIRECTORY), ENDPOINTS)
STATIC = Membership(VoterSet.of([VoterNode(ReplicaKey(NODE))]))
IN_LOG = Membership(VoterSet.of([LOCAL]), 1, -1)
VOTERS = frozenset({NODE})


def started(
    membership: Membership = STATIC, *, epoch: int = 3, end: int = 10, now_ms: int = 0
) -> tuple[RaftCore, list[Decision]]:
    core = RaftCore()
    message = Start(now_ms, LOCAL, membership, ElectionState(epoch), OffsetAndEpoch(end, epoch))
    return core, core.handle(message)


def leading(membership: Membership = STATIC) -> RaftCore:
    core, _ = started(membership)
    core.handle(TimeElapsed(0))
    assert core.quorum.name is QuorumStateName.LEADER
    return core


def flushed(offset: int, membership: Membership = STATIC) -> LogFlushed:
    return LogFlushed(LogOffsetMetadata(offset), membership)


def test_a_start_decides_nothing_before_its_deadline() -> None:
    core, decisions = started(now_ms=50)
    assert decisions == []
    assert (core.quorum.name, core.quorum.epoch, core.deadline_ms) == (QuorumStateName.UNATTACHED, 3, 50)
    assert core.handle(TimeElapsed(49)) == []
    assert core.quorum.name is QuorumStateName.UNATTACHED


def test_a_sole_voter_elects_itself_and_persists_first() -> None:
    core, _ = started()
    decisions = core.handle(TimeElapsed(0))
    voted, unknown, elected, begin, known = decisions
    assert voted == PersistElection(ElectionState(4, voted_key=LOCAL.key, voters=VOTERS), 0)
    assert unknown == LeaderChanged(LeaderAndEpoch(None, 4))
    assert elected == PersistElection(ElectionState(4, leader_id=NODE, voters=VOTERS), 0)
    assert isinstance(begin, BeginLeaderEpoch)
    assert (begin.epoch, begin.start_offset) == (4, 10)
    assert [kind for kind, _ in begin.control_records] == [ControlRecordType.LEADER_CHANGE]
    assert known == LeaderChanged(LeaderAndEpoch(NODE, 4))
    assert core.deadline_ms is None
    assert core.handle(TimeElapsed(10_000)) == [], "a leader has no election timeout"


def test_voters_that_are_only_in_the_first_snapshot_are_written_to_the_log() -> None:
    core, _ = started(IN_LOG)
    (begin,) = (one for one in core.handle(TimeElapsed(0)) if isinstance(one, BeginLeaderEpoch))
    assert [kind for kind, _ in begin.control_records] == [
        ControlRecordType.LEADER_CHANGE,
        ControlRecordType.KRAFT_VERSION,
        ControlRecordType.KRAFT_VOTERS,
    ]


def test_a_flush_commits_once_it_has_a_record_of_the_epoch() -> None:
    core = leading()
    assert core.handle(flushed(10)) == []
    assert core.handle(flushed(11)) == [AdvanceHighWatermark(LogOffsetMetadata(11))]
    assert core.handle(flushed(11)) == []
    assert core.handle(flushed(15)) == [AdvanceHighWatermark(LogOffsetMetadata(15))]


def test_a_flush_does_not_commit_without_a_majority() -> None:
    core = leading()
    two = Membership(VoterSet.of([VoterNode(ReplicaKey(NODE)), VoterNode(ReplicaKey(2))]))
    assert core.handle(flushed(15, two)) == []


def test_a_leader_that_resigns_is_elected_again_in_the_next_epoch() -> None:
    core = leading()
    core.handle(flushed(12))
    assert core.handle(ResignRequested(70, 3)) == [], "an epoch that is over"
    assert core.handle(ResignRequested(70, 4)) == [
        EndLeaderEpoch(4),
        PersistElection(ElectionState(4, voters=VOTERS), 0),
        LeaderChanged(LeaderAndEpoch(None, 4)),
    ]
    assert (core.leader_state, core.deadline_ms) == (None, 70)
    assert core.handle(ResignRequested(70, 4)) == [], "it has resigned already"
    assert core.handle(flushed(12)) == []
    assert core.handle(TimeElapsed(70))[-1] == LeaderChanged(LeaderAndEpoch(NODE, 5))
    assert core.leader_state is not None
    assert core.leader_state.epoch_start_offset == 12


def test_the_epoch_of_the_log_counts_if_the_file_is_behind(caplog: pytest.LogCaptureFixture) -> None:
    core = RaftCore()
    core.handle(Start(0, LOCAL, STATIC, None, OffsetAndEpoch(7, 5)))
    assert core.quorum.epoch == 5
    assert "has epoch 0, but the log has records of epoch 5" in caplog.text


@pytest.mark.parametrize("ids", [(), (2,), (1, 2)])
def test_a_quorum_that_needs_other_voters_is_refused(ids: tuple[int, ...]) -> None:
    membership = Membership(VoterSet.of(VoterNode(ReplicaKey(number)) for number in ids))
    with pytest.raises(UnsupportedQuorumError):
        RaftCore().handle(Start(0, LOCAL, membership, None, OffsetAndEpoch(0, 0)))


@pytest.mark.parametrize("module", ["core", "quorum_state", "leader_state", "voter_set"])
def test_the_core_imports_nothing_that_does_io(module: str) -> None:
    package = Path(next(iter(barnabas.raft.__path__)))
    tree = ast.parse((package / f"{module}.py").read_text())
    imported = {
        name
        for node in ast.walk(tree)
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else []
        )
    }
    allowed = ("barnabas.common", "barnabas.protocol", "barnabas.raft", "barnabas.records.control")
    for name in imported:
        assert name not in {"io", "os", "pathlib", "selectors", "socket", "threading", "time"}
        if name.startswith("barnabas."):
            assert name.startswith(allowed) or name == "barnabas.log.log_offset_metadata", name
    assert not imported & {f"barnabas.raft.{one}" for one in ("kraft_log", "batch_accumulator", "quorum_state_file")}
    assert not imported & {f"barnabas.common.{one}" for one in ("clock", "scheduler", "shutdownable_thread")}
