"""The file ``quorum-state``: Kafka's bytes, and what happens to a damaged one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.common.errors import BarnabasError, KafkaStorageError
from barnabas.common.identifiers import uuid_from_string
from barnabas.raft.quorum_state import ElectionState
from barnabas.raft.quorum_state_file import FileQuorumStateStore, QuorumStateFileError
from barnabas.raft.voter_set import ReplicaKey

DIRECTORY = uuid_from_string("J8aAPcfLQt2bqs1JT_rMgQ")
STATIC_LEADER = (
    b'{"clusterId":"","leaderId":1,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1}],'
    b'"data_version":0}'
)


@pytest.fixture
def store(tmp_path: Path) -> FileQuorumStateStore:
    return FileQuorumStateStore.in_directory(tmp_path)


@pytest.mark.parametrize(
    ("state", "kraft_version", "contents"),
    [
        (ElectionState(2, leader_id=1, voters=frozenset({1})), 0, STATIC_LEADER),
        (
            ElectionState(7, voted_key=ReplicaKey(3), voters=frozenset({3, 1})),
            0,
            (
                b'{"clusterId":"","leaderId":-1,"leaderEpoch":7,"votedId":3,"appliedOffset":0,'
                b'"currentVoters":[{"voterId":1},{"voterId":3}],"data_version":0}'
            ),
        ),
        (
            ElectionState(1, leader_id=1),
            1,
            b'{"leaderId":1,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}',
        ),
        (
            ElectionState(2, voted_key=ReplicaKey(1, DIRECTORY)),
            1,
            b'{"leaderId":-1,"leaderEpoch":2,"votedId":1,"votedDirectoryId":"J8aAPcfLQt2bqs1JT_rMgQ","data_version":1}',
        ),
    ],
)
def test_the_file_has_kafkas_bytes(
    store: FileQuorumStateStore, state: ElectionState, kraft_version: int, contents: bytes
) -> None:
    store.write(state, kraft_version)
    assert store.path.read_bytes() == contents
    assert store.read() == state
    assert [path.name for path in store.path.parent.iterdir()] == ["quorum-state"]


def test_no_file_is_no_election(store: FileQuorumStateStore) -> None:
    assert store.read() is None
    store.clear()
    store.write(ElectionState(1), 0)
    store.clear()
    assert store.read() is None


def test_a_vote_with_static_voters_has_no_directory(store: FileQuorumStateStore) -> None:
    store.write(ElectionState(2, voted_key=ReplicaKey(1, DIRECTORY)), 0)
    state = store.read()
    assert state is not None
    assert state.voted_key == ReplicaKey(1)


@pytest.mark.parametrize(
    ("contents", "reason"),
    [
        (b"", "it is empty"),
        (b"\n", "it is empty"),
        (b"\xff\xfe", "it is not text"),
        (STATIC_LEADER[:40], "is not JSON"),
        (b"[1]", "instead of an object"),
        (STATIC_LEADER.replace(b',"data_version":0', b""), "it has no data_version"),
        (STATIC_LEADER.replace(b'version":0', b'version":2'), "its data_version is 2; expected 0-1"),
        (STATIC_LEADER.replace(b'version":0', b'version":true'), "its data_version is True"),
        (STATIC_LEADER.replace(b'"votedId":-1,', b""), "votedId missing"),
        (STATIC_LEADER.replace(b'"leaderEpoch":2', b'"leaderEpoch":"2"'), "leaderEpoch: expected a whole number"),
        (STATIC_LEADER.replace(b'"leaderEpoch":2', b'"leaderEpoch":-2'), "invalid epoch -2"),
        (STATIC_LEADER.replace(b'"leaderId"', b'"ledearId"'), "no field 'ledearId'"),
    ],
)
def test_damage_is_named_and_not_guessed_away(store: FileQuorumStateStore, contents: bytes, reason: str) -> None:
    store.path.write_bytes(contents)
    with pytest.raises(QuorumStateFileError, match=reason) as caught:
        store.read()
    assert str(store.path) in str(caught.value)
    assert store.path.read_bytes() == contents


def _noting(steps: list[str], step: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def noting(*args: Any) -> Any:
        steps.append(step)
        return call(*args)

    return noting


def test_it_is_on_the_disk_before_the_write_returns(
    store: FileQuorumStateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    for name, step in (("replace", "rename"), ("fsync", "sync directory"), ("fdatasync", "sync file")):
        monkeypatch.setattr(os, name, _noting(steps, step, getattr(os, name)))
    store.write(ElectionState(1), 0)
    assert steps == ["sync file", "rename", "sync directory"]


def test_a_failed_write_leaves_the_old_file(store: FileQuorumStateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.write(ElectionState(1), 0)
    before = store.path.read_bytes()

    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(KafkaStorageError, match="cannot write"):
        store.write(ElectionState(2), 0)
    assert store.path.read_bytes() == before


def test_an_unknown_level_of_kraft_version_is_not_written(store: FileQuorumStateStore) -> None:
    with pytest.raises(BarnabasError, match=r"unknown kraft\.version 2"):
        store.write(ElectionState(1), 2)
    assert not store.path.exists()


def test_only_the_first_line_counts(store: FileQuorumStateStore) -> None:
    store.path.write_bytes(STATIC_LEADER + b"\nwhatever")
    assert store.read() == ElectionState(2, leader_id=1, voters=frozenset({1}))
