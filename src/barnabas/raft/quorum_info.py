"""The state of the quorum, for DescribeQuorum."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.raft.leader_state import UNKNOWN, LeaderState, ReplicaState
from barnabas.raft.voter_set import VoterEndpoint


class QuorumReplica(NamedTuple):
    """A voter or observer; -1 stands for an unknown value."""

    replica_id: int
    replica_directory_id: Uuid
    """Zero if unknown, as with static voters."""
    log_end_offset: int
    last_fetch_timestamp: int
    last_caught_up_timestamp: int


class QuorumNode(NamedTuple):
    """A voter and its addresses."""

    node_id: int
    listeners: tuple[VoterEndpoint, ...]


class QuorumInfo(NamedTuple):
    """The quorum as its leader sees it."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    """-1 until the leader has determined it."""
    current_voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    nodes: tuple[QuorumNode, ...]
    kraft_version: int

    @classmethod
    def of(cls, state: LeaderState, now_ms: int, kraft_version: int) -> QuorumInfo:
        leader_id = state.local.key.id
        voters = sorted(state.voter_states.values(), key=lambda replica: replica.key.id)
        observers = sorted(state.observer_states.values(), key=lambda replica: replica.key.id)

        def describe(replica: ReplicaState) -> QuorumReplica:
            is_leader = replica.key.id == leader_id
            return QuorumReplica(
                replica.key.id,
                ZERO_UUID if replica.key.directory_id is None else replica.key.directory_id,
                UNKNOWN if replica.end_offset is None else replica.end_offset.message_offset,
                # The leader itself is always caught up.
                now_ms if is_leader else replica.last_fetch_timestamp,
                now_ms if is_leader else replica.last_caught_up_timestamp,
            )

        high_watermark = state.high_watermark
        return cls(
            leader_id,
            state.epoch,
            UNKNOWN if high_watermark is None else high_watermark.message_offset,
            tuple(map(describe, voters)),
            tuple(map(describe, observers)),
            tuple(QuorumNode(replica.key.id, replica.endpoints) for replica in voters),
            kraft_version,
        )
