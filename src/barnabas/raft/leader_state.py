"""The leader's view of the replicas: the end offset of each, and the high watermark that follows."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final, NamedTuple

from barnabas.log.log_offset_metadata import LogOffsetMetadata
from barnabas.protocol.internal.raft import KRaftVersionRecord, LeaderChangeMessage, LeaderChangeVoter
from barnabas.raft.voter_set import (
    VOTERS_RECORD_VERSION,
    Membership,
    ReplicaKey,
    VoterEndpoint,
    VoterNode,
    VoterSet,
)
from barnabas.records.control import ControlRecordType

logger = logging.getLogger(__name__)

LEADER_CHANGE_VERSION: Final = 0
KRAFT_VERSION_RECORD_VERSION: Final = 0
UNKNOWN: Final = -1


class ReplicaState(NamedTuple):
    """The progress of a replica; immutable, replaced on each update."""

    key: ReplicaKey
    endpoints: tuple[VoterEndpoint, ...] = ()
    end_offset: LogOffsetMetadata | None = None
    last_fetch_timestamp: int = UNKNOWN
    last_caught_up_timestamp: int = UNKNOWN


class LeaderState:
    """The leader's state for one epoch.

    **The high watermark** is the offset that a majority of the voters has reached: sort the voters by end offset and
    take the offset in the middle. But it advances only past the first offset of this epoch. Records of earlier leaders
    may be on a majority and still be replaced, if a voter without them is elected; once a majority also has a record of
    this epoch, they cannot. So a new leader writes a record at once.

    The leader's own end offset is the end of its log *on disk*.
    """

    def __init__(
        self,
        local: VoterNode,
        epoch: int,
        epoch_start_offset: int,
        voters: VoterSet,
        granting_voters: Iterable[int],
    ) -> None:
        self.local = local
        self.epoch = epoch
        self.epoch_start_offset = epoch_start_offset
        self._granting_voters = sorted(granting_voters)
        self.voter_states = {node.key.id: ReplicaState(node.key, node.endpoints) for node in voters}
        """By voter id; replaced as a whole, so that other threads can read it."""
        self.observer_states: dict[ReplicaKey, ReplicaState] = {}
        """Replicas that fetch but do not vote: mostly brokers."""
        self.high_watermark: LogOffsetMetadata | None = None

    def start_of_epoch_records(self, membership: Membership) -> list[tuple[ControlRecordType, bytes]]:
        """Returns the first records of the epoch: the leader, and the voters if the log lacks the current ones.

        The log contains the voters from ``kraft.version`` 1 on.
        """
        change = LeaderChangeMessage(
            version=LEADER_CHANGE_VERSION,
            leader_id=self.local.key.id,
            voters=[LeaderChangeVoter(voter_id=voter) for voter in sorted(self.voter_states)],
            granting_voters=[LeaderChangeVoter(voter_id=voter) for voter in self._granting_voters],
        )
        records = [(ControlRecordType.LEADER_CHANGE, change.encode(LEADER_CHANGE_VERSION))]
        voters = membership.voters
        if membership.kraft_version > 0 and (membership.voters_offset == -1 or voters.needs_update(self.local)):
            records += membership_records(membership.kraft_version, voters.with_voter(self.local))
        return records

    def update_local_state(self, end_offset: LogOffsetMetadata, voters: VoterSet) -> bool:
        """Updates the end of the leader's log on disk; returns whether the high watermark has advanced."""
        states = {
            node.key.id: self.voter_states.get(node.key.id, ReplicaState(node.key))._replace(
                key=node.key, endpoints=node.endpoints
            )
            for node in voters
        }
        local = self.local
        if local.key.id in states:
            own = states[local.key.id]
            # A static voter may be configured with port 0; only the node itself knows its actual port.
            endpoints = local.endpoints or own.endpoints
            states[local.key.id] = own._replace(end_offset=end_offset, endpoints=endpoints)
        self.voter_states = states
        return self._maybe_update_high_watermark()

    def _maybe_update_high_watermark(self) -> bool:
        reached = sorted(
            (state.end_offset for state in self.voter_states.values() if state.end_offset is not None),
            key=lambda offset: offset.message_offset,
            reverse=True,
        )
        majority = len(self.voter_states) // 2 + 1
        if len(reached) < majority:
            return False
        candidate = reached[majority - 1]
        current = self.high_watermark
        if candidate.message_offset <= self.epoch_start_offset:
            return False
        if current is None:
            logger.info("The initial high watermark of epoch %d is %d", self.epoch, candidate.message_offset)
        elif candidate.message_offset <= current.message_offset:
            return False
        self.high_watermark = candidate
        return True


def membership_records(kraft_version: int, voters: VoterSet) -> list[tuple[ControlRecordType, bytes]]:
    """Returns the control records that set ``kraft.version`` and the voters."""
    level = KRaftVersionRecord(version=KRAFT_VERSION_RECORD_VERSION, k_raft_version=kraft_version)
    return [
        (ControlRecordType.KRAFT_VERSION, level.encode(KRAFT_VERSION_RECORD_VERSION)),
        (ControlRecordType.KRAFT_VOTERS, voters.to_record().encode(VOTERS_RECORD_VERSION)),
    ]
