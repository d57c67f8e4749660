"""The ISR of a partition on its leader.

Only the leader knows which followers keep up, but the controller decides, and its response takes time. Until then, the
leader must be prepared for both outcomes::

    Committed {1,2}  --3 has caught up-->  PendingExpand {1,2} + 3   the high watermark waits for 3 already
                     --2 lags behind--->   PendingShrink {1,2} - 2   the high watermark still waits for 2

In both cases the leader uses the larger set, the *maximal* ISR: every replica that the controller may consider in sync,
and elect, then has all committed records.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from barnabas.common.dataclass import dataclass, field
from barnabas.metadata.partition_registration import LeaderRecoveryState
from barnabas.replica.partition.alter_partition import LeaderAndIsr


@dataclass(frozen=True, slots=True)
class CommittedPartitionState:
    """The ISR that controller and leader agree on."""

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
    """An ISR that the leader has proposed, without a response so far."""

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
        # A leader that proposes an ISR has finished its recovery from an unclean election.
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
    """The brokers of a partition. During a reassignment `replicas` includes both removed and added ones."""

    replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding_replicas or self.removing_replicas)

    @property
    def replication_factor(self) -> int:
        """The number of replicas, without those that a reassignment adds."""
        added = set(self.adding_replicas)
        return sum(replica not in added for replica in self.replicas)


NO_ASSIGNMENT: Final = Assignment()
