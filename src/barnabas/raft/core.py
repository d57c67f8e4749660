"""The Raft protocol without I/O: messages in, decisions out.

:class:`RaftCore` opens no file or socket, starts no thread and reads no clock. Its driver,
:class:`~barnabas.raft.kraft_client.KRaftClient`, passes every event in as a *message* and carries out the *decisions*
that it returns, in their order. The order carries the guarantees of Raft: a vote is persisted before any other node can
learn of it, and an epoch before a record of it is written. If a decision cannot be carried out, the node ends.

    message             from                              decisions
    ----------------    ------------------------------    --------------------------------------------------------------
    Start               the driver, once                  none
    TimeElapsed         the driver, at `deadline_ms`      PersistElection, LeaderChanged, BeginLeaderEpoch
    LogFlushed          the driver, after a flush         AdvanceHighWatermark
    ResignRequested     the controller                    EndLeaderEpoch, PersistElection, LeaderChanged

To add a message, add a class and an entry in the table of handlers. Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch and
FetchSnapshot will be such messages, each as request and as response, and a decision to send one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from barnabas.common.errors import BarnabasError
from barnabas.log.log_offset_metadata import LogOffsetMetadata
from barnabas.raft.client import LeaderAndEpoch, OffsetAndEpoch
from barnabas.raft.leader_state import LeaderState
from barnabas.raft.quorum_state import ElectionState, QuorumState
from barnabas.raft.voter_set import Membership, VoterNode
from barnabas.records.control import ControlRecordType

logger = logging.getLogger(__name__)


class UnsupportedQuorumError(BarnabasError):
    """This node is not the sole voter of the quorum."""


# -- messages


class Start(NamedTuple):
    """The node has started with this state on disk."""

    now_ms: int
    local: VoterNode
    membership: Membership
    election: ElectionState | None
    log_end: OffsetAndEpoch


class TimeElapsed(NamedTuple):
    """The deadline of the core may have passed."""

    now_ms: int


class LogFlushed(NamedTuple):
    """The log is on disk up to an offset. Control records in it have set the membership."""

    end_offset: LogOffsetMetadata
    membership: Membership


class ResignRequested(NamedTuple):
    """The state machine gives up the leadership of an epoch."""

    now_ms: int
    epoch: int


Message = Start | TimeElapsed | LogFlushed | ResignRequested


# -- decisions


class PersistElection(NamedTuple):
    """Write the ``quorum-state`` file, and continue only when it is on disk."""

    election: ElectionState
    kraft_version: int


class LeaderChanged(NamedTuple):
    """Notify the listeners."""

    leader: LeaderAndEpoch


class BeginLeaderEpoch(NamedTuple):
    """Accept appends for this epoch from `start_offset` on; the control records come first."""

    epoch: int
    start_offset: int
    control_records: Sequence[tuple[ControlRecordType, bytes]]


class EndLeaderEpoch(NamedTuple):
    """Accept no more appends for this epoch, and discard those that are not written."""

    epoch: int


class AdvanceHighWatermark(NamedTuple):
    """Everything below this offset is committed."""

    high_watermark: LogOffsetMetadata


Decision = PersistElection | LeaderChanged | BeginLeaderEpoch | EndLeaderEpoch | AdvanceHighWatermark


class RaftCore:
    """The protocol state of one node. One thread passes messages in; any thread may read the attributes."""

    def __init__(self) -> None:
        self.quorum = QuorumState()
        self.leader_state: LeaderState | None = None
        """The leader's view of the replicas, while this node leads."""
        self.deadline_ms: int | None = None
        """When the next `TimeElapsed` is due."""
        self._local: VoterNode
        self._membership: Membership
        self._end_offset = 0
        self._handlers: dict[type, Callable[[Any], list[Decision]]] = {
            Start: self._start,
            TimeElapsed: self._time_elapsed,
            LogFlushed: self._log_flushed,
            ResignRequested: self._resign_requested,
        }

    def handle(self, message: Message) -> list[Decision]:
        """Returns the decisions that follow from a message, to be carried out in this order."""
        return self._handlers[type(message)](message)

    def _start(self, message: Start) -> list[Decision]:
        """Starts as unattached, in the last epoch that the node knew."""
        voters, local = message.membership.voters, message.local
        if not voters:
            raise UnsupportedQuorumError(
                "neither controller.quorum.voters nor the metadata log has voters: set "
                "controller.quorum.voters, or format the directory with the voters"
            )
        if not voters.is_only_voter(local.key):
            raise UnsupportedQuorumError(
                f"node {local.key} is not the only voter; the voters are {voters}. A quorum of several nodes is not "
                "supported yet"
            )
        epoch = 0 if message.election is None else message.election.epoch
        if epoch < message.log_end.epoch:
            logger.warning(
                "The quorum-state file has epoch %d, but the log has records of epoch %d",
                epoch,
                message.log_end.epoch,
            )
            epoch = message.log_end.epoch
        self.quorum = QuorumState(epoch)
        self._local = local
        self._end_offset = message.log_end.offset
        self._update_membership(message.membership)
        self._schedule_election(message.now_ms)
        return []

    def _time_elapsed(self, message: TimeElapsed) -> list[Decision]:
        if self.deadline_ms is None or message.now_ms < self.deadline_ms:
            return []
        self.deadline_ms = None
        return self._elect()

    def _log_flushed(self, message: LogFlushed) -> list[Decision]:
        self._end_offset = message.end_offset.message_offset
        self._update_membership(message.membership)
        leader = self.leader_state
        if leader is None or not leader.update_local_state(message.end_offset, message.membership.voters):
            return []
        assert leader.high_watermark is not None
        return [AdvanceHighWatermark(leader.high_watermark)]

    def _resign_requested(self, message: ResignRequested) -> list[Decision]:
        leader = self.leader_state
        if leader is None or leader.epoch != message.epoch:
            return []
        logger.info("Node %d resigns from epoch %d", self._local.key.id, leader.epoch)
        self.quorum.transition_to_resigned()
        self.leader_state = None
        election = self.quorum.transition_to_unattached()
        self._schedule_election(message.now_ms)
        return [
            EndLeaderEpoch(leader.epoch),
            self._persist(election),
            LeaderChanged(self.quorum.leader_and_epoch),
        ]

    def _update_membership(self, membership: Membership) -> None:
        self._membership = membership
        self.quorum.voters = membership.voters

    def _schedule_election(self, now_ms: int) -> None:
        # A sole voter waits for no other node. With other voters this is a random election timeout from now.
        self.deadline_ms = now_ms

    def _elect(self) -> list[Decision]:
        quorum, local = self.quorum, self._local.key
        quorum.transition_to_prospective(local)
        if not quorum.has_majority():
            return []
        decisions: list[Decision] = [
            self._persist(quorum.transition_to_candidate(local)),
            LeaderChanged(quorum.leader_and_epoch),
        ]
        return decisions + self._lead() if quorum.has_majority() else decisions

    def _lead(self) -> list[Decision]:
        quorum, start, membership = self.quorum, self._end_offset, self._membership
        election = quorum.transition_to_leader(self._local.key)
        leader = LeaderState(self._local, quorum.epoch, start, membership.voters, quorum.granting_voters)
        self.leader_state = leader
        logger.info("Node %d leads in epoch %d, from offset %d on", self._local.key.id, quorum.epoch, start)
        return [
            self._persist(election),
            BeginLeaderEpoch(quorum.epoch, start, leader.start_of_epoch_records(membership)),
            LeaderChanged(quorum.leader_and_epoch),
        ]

    def _persist(self, election: ElectionState) -> PersistElection:
        return PersistElection(election, self._membership.kraft_version)

    def __repr__(self) -> str:
        return f"RaftCore({self.quorum!r})"
