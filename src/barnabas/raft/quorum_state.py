"""The states that a node of the quorum can be in, and its way through them.

::

                        +------------------------------ a higher epoch ------------------------------+
                        v                                                                            |
    start --> UNATTACHED --election timeout--> PROSPECTIVE --pre-votes--> CANDIDATE --votes--> LEADER |
                 |   ^                            |   ^                       |                  |
                 |   +----------------------------+   +------- lost ----------+               resigns
                 v                                                                               v
              FOLLOWER --fetch timeout--> PROSPECTIVE                                        RESIGNED

A node that does not hear from a leader first asks whether others would vote for it (PROSPECTIVE, KIP-996), and only if
they would makes a new epoch and asks for their votes (CANDIDATE): a node behind a bad cable does not disturb the rest.

A quorum of one goes the same way, in one breath: it is its own majority. It never follows, and an election that nobody
takes part in takes no time.

What is decided here is on the disk, through the `FileQuorumStateStore`, before it is in force.
"""

from __future__ import annotations

import logging
from enum import Enum
from typing import Final

from barnabas.common.errors import BarnabasError
from barnabas.raft.client import LeaderAndEpoch, OffsetAndEpoch
from barnabas.raft.control_state import KRaftControlRecordStateMachine
from barnabas.raft.leader_state import LeaderState
from barnabas.raft.quorum_state_file import ElectionState, FileQuorumStateStore
from barnabas.raft.voter_set import ReplicaKey

logger = logging.getLogger(__name__)


class QuorumStateName(Enum):
    """The states, under the names that Kafka's metric ``current-state`` has for them."""

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
"""From each state, where one may go."""


class IllegalTransitionError(BarnabasError):
    """A step that is not in the table: a bug, and better found than followed."""


class UnsupportedQuorumError(BarnabasError):
    """This node cannot be a quorum by itself: it is not a voter, or not the only one."""


class QuorumState:
    """Where a node is on that way, and in which epoch. Changed by Raft's thread only; anybody may look."""

    def __init__(
        self,
        local_key: ReplicaKey,
        partition_state: KRaftControlRecordStateMachine,
        store: FileQuorumStateStore,
    ) -> None:
        self._local_key = local_key
        self._partition_state = partition_state
        self._store = store
        self.name = _UNATTACHED
        self.epoch = 0
        self.leader_and_epoch = LeaderAndEpoch(None, 0)
        self.leader_state: LeaderState | None = None
        """What a leader knows, while this node is one."""
        self._granting_voters: frozenset[int] = frozenset()

    def initialize(self, log_end: OffsetAndEpoch) -> None:
        """Takes up where this node was when it stopped: unattached, in the last epoch that it knew of.

        A leader or candidate of before is neither now. Its epoch is over, as far as it is concerned.
        """
        voters = self._partition_state.last_voters
        if not voters:
            raise UnsupportedQuorumError(
                f"there are no voters, neither in controller.quorum.voters nor in {self._store.path.parent}: set the "
                "former, or format the directory with the voters"
            )
        if not voters.is_only_voter(self._local_key):
            raise UnsupportedQuorumError(
                f"node {self._local_key} is not the only voter; the voters are {voters}. A quorum of several nodes is "
                "not supported yet"
            )
        election = self._store.read() or ElectionState(0)
        epoch = election.epoch
        if epoch < log_end.epoch:
            logger.warning(
                "%s knows of epoch %d, but the log has records of epoch %d", self._store.path, epoch, log_end.epoch
            )
            epoch = log_end.epoch
        self.epoch = epoch
        self.leader_and_epoch = LeaderAndEpoch(None, epoch)

    # Steps

    def transition_to_prospective(self) -> None:
        """Would I be elected? Nothing is promised yet, so nothing is written."""
        self._check(_PROSPECTIVE)
        self.name = _PROSPECTIVE
        self._granting_voters = frozenset({self._local_key.id})

    def transition_to_candidate(self) -> None:
        """A new epoch, and this node's vote in it for itself."""
        self._check(_CANDIDATE)
        epoch = self.epoch + 1
        self._write(ElectionState(epoch, voted_key=self._local_key))
        self.epoch = epoch
        self.name = _CANDIDATE
        self.leader_and_epoch = LeaderAndEpoch(None, epoch)
        self._granting_voters = frozenset({self._local_key.id})

    @property
    def has_majority(self) -> bool:
        """Whether enough voters have granted what was asked for last."""
        voters = self._partition_state.last_voters.voter_ids
        return 2 * len(self._granting_voters & voters) > len(voters)

    @property
    def granting_voters(self) -> frozenset[int]:
        return self._granting_voters

    def transition_to_leader(self, leader_state: LeaderState) -> None:
        self._check(_LEADER)
        if not self.has_majority:
            raise IllegalTransitionError(f"only {set(self._granting_voters)} voted for {self._local_key}")
        self._write(ElectionState(self.epoch, leader_id=self._local_key.id))
        self.name = _LEADER
        self.leader_state = leader_state
        self.leader_and_epoch = LeaderAndEpoch(self._local_key.id, self.epoch)

    def transition_to_resigned(self) -> None:
        """Leads no longer, in an epoch that goes on without a leader until there is another one."""
        self._check(_RESIGNED)
        self.name = _RESIGNED
        self.leader_state = None

    def transition_to_unattached(self) -> None:
        """Without a leader. The epoch stays: who was told that this node leads it hears of the next one."""
        self._check(_UNATTACHED)
        self._write(ElectionState(self.epoch))
        self.name = _UNATTACHED
        self.leader_and_epoch = LeaderAndEpoch(None, self.epoch)

    def _check(self, target: QuorumStateName) -> None:
        if target not in TRANSITIONS[self.name]:
            raise IllegalTransitionError(f"a node that is {self.name.value} in epoch {self.epoch} cannot be {target!r}")

    def _write(self, election: ElectionState) -> None:
        partition = self._partition_state
        voters = partition.last_voters.voter_ids
        self._store.write(
            ElectionState(election.epoch, election.leader_id, election.voted_key, voters), partition.last_kraft_version
        )

    def __repr__(self) -> str:
        return f"QuorumState({self.name.value}, epoch={self.epoch})"
