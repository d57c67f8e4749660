"""The in-sync replicas of a partition, as its leader sees them.

The leader alone knows who keeps up, but it is the controller that decides, and the answer takes its time. Until it is
there, the leader has to reckon with both outcomes::

    Committed {1,2}  --3 has caught up-->  PendingExpand {1,2} + 3   the high watermark waits for 3 already
                     --2 lags behind--->   PendingShrink {1,2} - 2   the high watermark still waits for 2

Either way it counts the larger set, the *maximal* ISR: no replica that the controller may take for one in sync, and
elect, lacks a record that counts as committed.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from barnabas.common.dataclass import dataclass, field
from barnabas.metadata.partition_registration import LeaderRecoveryState
from barnabas.replica.alter_partition import LeaderAndIsr


@dataclass(frozen=True, slots=True)
class CommittedPartitionState:
    """The controller and the leader agree."""

    isr: frozenset[int]
    leader_recovery_state: LeaderRecoveryState

    @property
    def maximal_isr(self) -> frozenset[int]:
        return self.isr

    @property
    def is_in_flight(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class PendingPartitionState:
    """The leader has proposed something, and waits."""

    sent: LeaderAndIsr
    last_committed: CommittedPartitionState
    maximal_isr: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "maximal_isr", self.last_committed.isr | set(self.sent.isr))

    @property
    def isr(self) -> frozenset[int]:
        return self.last_committed.isr

    @property
    def leader_recovery_state(self) -> LeaderRecoveryState:
        # Whoever proposes in-sync replicas has done all there is to do after an unclean election.
        return LeaderRecoveryState.RECOVERED

    @property
    def is_in_flight(self) -> bool:
        return True

    @property
    def is_expansion(self) -> bool:
        return len(self.maximal_isr) > len(self.last_committed.isr)


PartitionState: TypeAlias = CommittedPartitionState | PendingPartitionState

NO_STATE: Final = CommittedPartitionState(frozenset(), LeaderRecoveryState.RECOVERED)


@dataclass(frozen=True, slots=True)
class Assignment:
    """Who is to have a replica. During a reassignment the list has those that go as well as those that come."""

    replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding_replicas or self.removing_replicas)

    @property
    def replication_factor(self) -> int:
        """How many replicas there were before the reassignment, or are without one."""
        added = set(self.adding_replicas)
        return sum(replica not in added for replica in self.replicas)


NO_ASSIGNMENT: Final = Assignment()
