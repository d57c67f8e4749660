"""The states of a node of the quorum, and the legal transitions between them.

::

                        +------------------------------ a higher epoch ------------------------------+
                        v                                                                            |
    start --> UNATTACHED --election timeout--> PROSPECTIVE --pre-votes--> CANDIDATE --votes--> LEADER |
                 |   ^                            |   ^                       |                  |
                 |   +----------------------------+   +------- lost ----------+               resigns
                 v                                                                               v
              FOLLOWER --fetch timeout--> PROSPECTIVE                                        RESIGNED

A node without contact to a leader first asks whether others would vote for it (PROSPECTIVE, KIP-996). Only with a
majority of these pre-votes does it open a new epoch and request votes (CANDIDATE), so a badly connected node does not
disturb the rest. A sole voter takes the same steps at once: its own vote is the majority.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from barnabas.common.dataclass import dataclass
from barnabas.common.errors import BarnabasError
from barnabas.common.identifiers import ZERO_UUID
from barnabas.protocol.internal.raft import QuorumStateData, QuorumStateVoter
from barnabas.raft.client import LeaderAndEpoch
from barnabas.raft.voter_set import NO_VOTERS, ReplicaKey, VoterSet

_NO_NODE_ID: Final = -1


class QuorumStateName(Enum):
    """The states, under the names of Kafka's metric ``current-state``."""

    UNATTACHED = "unattached"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    LEADER = "leader"
    FOLLOWER = "follower"
    RESIGNED = "resigned"

    def __repr__(self) -> str:
        return self.name


_UNATTACHED, _PROSPECTIVE, _CANDIDATE = (
    QuorumStateName.UNATTACHED,
    QuorumStateName.PROSPECTIVE,
    QuorumStateName.CANDIDATE,
)
_LEADER, _FOLLOWER, _RESIGNED = QuorumStateName.LEADER, QuorumStateName.FOLLOWER, QuorumStateName.RESIGNED

TRANSITIONS: Final = {
    _UNATTACHED: frozenset({_UNATTACHED, _PROSPECTIVE, _FOLLOWER}),
    _PROSPECTIVE: frozenset({_UNATTACHED, _CANDIDATE, _FOLLOWER}),
    _CANDIDATE: frozenset({_UNATTACHED, _PROSPECTIVE, _LEADER, _FOLLOWER}),
    _LEADER: frozenset({_UNATTACHED, _RESIGNED}),
    _FOLLOWER: frozenset({_UNATTACHED, _PROSPECTIVE, _FOLLOWER}),
    _RESIGNED: frozenset({_UNATTACHED, _FOLLOWER}),
}
"""The legal next states of each state."""


class IllegalTransitionError(BarnabasError):
    """A transition that is not in the table, which is a bug."""


@dataclass(frozen=True, slots=True)
class ElectionState:
    """An epoch with its leader, with this node's vote, or with neither. It must survive a restart."""

    epoch: int
    leader_id: int | None = None
    voted_key: ReplicaKey | None = None
    voters: frozenset[int] = frozenset()
    """Written with static voters only; nothing reads it."""

    def to_data(self, version: int) -> QuorumStateData:
        data = QuorumStateData(
            leader_id=_NO_NODE_ID if self.leader_id is None else self.leader_id,
            leader_epoch=self.epoch,
            voted_id=_NO_NODE_ID if self.voted_key is None else self.voted_key.id,
        )
        if version == 0:
            data.current_voters = [QuorumStateVoter(voter_id=voter) for voter in sorted(self.voters)]
        elif self.voted_key is not None and self.voted_key.directory_id is not None:
            data.voted_directory_id = self.voted_key.directory_id
        return data

    @classmethod
    def from_data(cls, data: QuorumStateData) -> ElectionState:
        voted_key = None
        if data.voted_id != _NO_NODE_ID:
            directory_id = data.voted_directory_id
            voted_key = ReplicaKey(data.voted_id, None if directory_id == ZERO_UUID else directory_id)
        return cls(
            data.leader_epoch,
            None if data.leader_id == _NO_NODE_ID else data.leader_id,
            voted_key,
            frozenset(voter.voter_id for voter in data.current_voters or ()),
        )


class QuorumState:
    """The current state and epoch of a node. A transition returns the `ElectionState` to persist, if there is one."""

    def __init__(self, epoch: int = 0) -> None:
        self.name = _UNATTACHED
        self.epoch = epoch
        self.leader_and_epoch = LeaderAndEpoch(None, epoch)
        self.voters: VoterSet = NO_VOTERS
        """The voters in force."""
        self.granting_voters: frozenset[int] = frozenset()
        """The voters that granted the last (pre-)vote that this node requested."""

    def has_majority(self) -> bool:
        voters = self.voters.voter_ids
        return 2 * len(self.granting_voters & voters) > len(voters)

    def transition_to_prospective(self, local: ReplicaKey) -> None:
        """Becomes prospective. A pre-vote promises nothing, so nothing has to be persisted."""
        self._enter(_PROSPECTIVE)
        self.granting_voters = frozenset({local.id})

    def transition_to_candidate(self, local: ReplicaKey) -> ElectionState:
        """Opens a new epoch and votes for this node in it."""
        self._enter(_CANDIDATE)
        self.epoch += 1
        self.leader_and_epoch = LeaderAndEpoch(None, self.epoch)
        self.granting_voters = frozenset({local.id})
        return ElectionState(self.epoch, voted_key=local, voters=self.voters.voter_ids)

    def transition_to_leader(self, local: ReplicaKey) -> ElectionState:
        if not self.has_majority():
            raise IllegalTransitionError(f"only {set(self.granting_voters)} voted for {local}")
        self._enter(_LEADER)
        self.leader_and_epoch = LeaderAndEpoch(local.id, self.epoch)
        return ElectionState(self.epoch, leader_id=local.id, voters=self.voters.voter_ids)

    def transition_to_resigned(self) -> None:
        """Stops leading. The epoch then has no leader, until a new one opens."""
        self._enter(_RESIGNED)

    def transition_to_unattached(self) -> ElectionState:
        """Becomes unattached: no leader, same epoch."""
        self._enter(_UNATTACHED)
        self.leader_and_epoch = LeaderAndEpoch(None, self.epoch)
        return ElectionState(self.epoch, voters=self.voters.voter_ids)

    def _enter(self, target: QuorumStateName) -> None:
        if target not in TRANSITIONS[self.name]:
            raise IllegalTransitionError(
                f"a node that is {self.name.value} in epoch {self.epoch} cannot become {target!r}"
            )
        self.name = target

    def __repr__(self) -> str:
        return f"QuorumState({self.name.value}, epoch={self.epoch})"
