"""The way of a node through its states, the leader's books, and the history of the voters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.common.identifiers import Uuid
from barnabas.log.log_offset_metadata import LogOffsetMetadata
from barnabas.protocol.internal.raft import LeaderChangeMessage
from barnabas.protocol.internal.topics import CLUSTER_METADATA
from barnabas.raft.client import LeaderAndEpoch
from barnabas.raft.control_state import KRaftControlRecordStateMachine, LogHistory
from barnabas.raft.leader_state import LeaderState
from barnabas.raft.quorum_state import TRANSITIONS, IllegalTransitionError, QuorumState, QuorumStateName
from barnabas.raft.voter_set import Membership, ReplicaKey, VoterEndpoint, VoterNode, VoterSet
from barnabas.records.control import ControlRecordType
from unit.raft.raft_box import DIRECTORY, ENDPOINTS, NODE, RaftBox

LOCAL = VoterNode(ReplicaKey(NODE, DIRECTORY), ENDPOINTS)


def voters(count: int) -> VoterSet:
    return VoterSet.of(VoterNode(ReplicaKey(number)) for number in range(1, count + 1))


def leader_state(count: int = 1, *, start: int = 10) -> LeaderState:
    return LeaderState(LOCAL, 4, start, voters(count), {NODE})


STEPS: dict[QuorumStateName, Callable[[QuorumState], object]] = {
    QuorumStateName.UNATTACHED: QuorumState.transition_to_unattached,
    QuorumStateName.PROSPECTIVE: lambda quorum: quorum.transition_to_prospective(LOCAL.key),
    QuorumStateName.CANDIDATE: lambda quorum: quorum.transition_to_candidate(LOCAL.key),
    QuorumStateName.LEADER: lambda quorum: quorum.transition_to_leader(LOCAL.key),
    QuorumStateName.RESIGNED: QuorumState.transition_to_resigned,
}


@pytest.mark.parametrize("target", STEPS, ids=lambda name: name.value)
@pytest.mark.parametrize("source", QuorumStateName, ids=lambda name: name.value)
def test_only_the_transitions_of_the_table_are_legal(source: QuorumStateName, target: QuorumStateName) -> None:
    quorum = QuorumState(3)
    quorum.voters, quorum.granting_voters, quorum.name = voters(1), frozenset({NODE}), source
    if target in TRANSITIONS[source]:
        STEPS[target](quorum)
        assert quorum.name is target
    else:
        with pytest.raises(IllegalTransitionError, match=f"is {source.value} in epoch 3 cannot become"):
            STEPS[target](quorum)
        assert (quorum.name, quorum.epoch, quorum.leader_and_epoch) == (source, 3, LeaderAndEpoch(None, 3))
    assert set(TRANSITIONS) == set(QuorumStateName)


def test_a_minority_does_not_elect() -> None:
    quorum = QuorumState()
    quorum.voters = voters(2)
    quorum.transition_to_prospective(LOCAL.key)
    assert not quorum.has_majority()
    quorum.transition_to_candidate(LOCAL.key)
    with pytest.raises(IllegalTransitionError, match=r"only \{1\} voted"):
        quorum.transition_to_leader(LOCAL.key)


# -- the leader


def test_the_high_watermark_passes_the_start_of_the_epoch_first() -> None:
    state = leader_state(start=10)
    assert not state.update_local_state(LogOffsetMetadata(10), voters(1))
    assert state.high_watermark is None
    assert state.update_local_state(LogOffsetMetadata(11), voters(1))
    assert not state.update_local_state(LogOffsetMetadata(11), voters(1))
    assert state.update_local_state(LogOffsetMetadata(15), voters(1))
    assert state.high_watermark == LogOffsetMetadata(15)


def test_the_high_watermark_is_where_a_majority_is() -> None:
    state = leader_state(3, start=10)
    assert not state.update_local_state(LogOffsetMetadata(20), voters(3))
    state.voter_states[2] = state.voter_states[2]._replace(end_offset=LogOffsetMetadata(10))
    assert not state.update_local_state(LogOffsetMetadata(20), voters(3)), "nothing of this epoch yet"
    state.voter_states[2] = state.voter_states[2]._replace(end_offset=LogOffsetMetadata(14))
    assert state.update_local_state(LogOffsetMetadata(20), voters(3))
    assert state.high_watermark == LogOffsetMetadata(14)
    state.voter_states[3] = state.voter_states[3]._replace(end_offset=LogOffsetMetadata(17))
    assert state.update_local_state(LogOffsetMetadata(20), voters(3))
    assert state.high_watermark == LogOffsetMetadata(17)


def test_the_announcement_names_voters_and_votes() -> None:
    ((kind, value),) = leader_state(3).start_of_epoch_records(Membership(voters(3)))
    assert kind is ControlRecordType.LEADER_CHANGE
    message = LeaderChangeMessage.decode(value, 0)
    assert [voter.voter_id for voter in message.voters] == [1, 2, 3]
    assert [voter.voter_id for voter in message.granting_voters] == [1]


# -- voters


def test_a_voter_is_its_node_and_its_directory() -> None:
    known = VoterSet.of([LOCAL])
    other = ReplicaKey(NODE, Uuid(bytes(16)))
    assert known.is_voter(LOCAL.key)
    assert not known.is_voter(other)
    assert not known.is_voter(ReplicaKey(NODE))
    assert voters(1).is_voter(LOCAL.key), "a static voter may be in any directory"
    assert voters(1).is_only_voter(LOCAL.key)
    assert not voters(2).is_only_voter(LOCAL.key)
    moved = VoterNode(LOCAL.key, (VoterEndpoint("CONTROLLER", "elsewhere", 1),))
    assert known.needs_update(moved)
    assert not known.needs_update(LOCAL)
    assert known.with_voter(moved).voters[NODE] == moved
    with pytest.raises(ValueError, match="is not among the voters"):
        known.with_voter(VoterNode(ReplicaKey(9)))


def test_voters_survive_their_record() -> None:
    known = VoterSet.of([LOCAL, VoterNode(ReplicaKey(7))])
    assert VoterSet.from_record(known.to_record()) == known
    assert [node.key.id for node in known] == [1, 7]


def test_a_history_can_be_cut_at_both_ends() -> None:
    history: LogHistory[str] = LogHistory()
    for offset, value in ((-1, "a"), (5, "b"), (9, "c")):
        history.add(offset, value)
    assert [history.at_or_before(offset) for offset in (-2, -1, 4, 5, 8, 9, 99)] == [
        None, "a", "a", "b", "b", "c", "c",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="comes after"):
        history.add(9, "d")
    history.truncate_old_entries(7)
    assert history.at_or_before(4) is None
    assert history.at_or_before(7) == "b"
    history.truncate_new_entries(9)
    assert history.last() == (5, "b")
    history.truncate_new_entries(0)
    assert history.last() is None


def test_voters_that_are_cut_off_are_not_in_force(tmp_path: Path) -> None:
    box = RaftBox(tmp_path)
    client = box.client()
    state = client._partition_state
    client.upgrade_kraft_version(1, 1, False)
    client.poll_once()
    assert (state.membership.kraft_version, state.membership.voters_offset) == (1, 2)
    with pytest.raises(ValueError, match="offset 3 has not been read yet"):
        state.kraft_version_at(3)
    again = KRaftControlRecordStateMachine(voters(1), client.log, CLUSTER_METADATA)
    again.update_state()
    assert again.membership == state.membership
    state.truncate_new_entries(1)
    assert state.membership == Membership(state._static_voters, 0, None)
