"""How a leader has the in-sync replicas of its partition changed: it proposes, the controller decides (KIP-497)."""

from __future__ import annotations

from concurrent.futures import Future
from typing import NamedTuple, Protocol

from barnabas.metadata.partition_registration import LeaderRecoveryState
from barnabas.replica.fetch_session import TopicIdPartition

NO_BROKER_EPOCH = -1
"""In place of a broker's epoch: nobody has told, and the controller does not check it."""


class IsrMember(NamedTuple):
    """A replica that is, or is to be, in sync, and the incarnation of its broker that the leader has seen (KIP-903)."""

    broker_id: int
    broker_epoch: int = NO_BROKER_EPOCH


class LeaderAndIsr(NamedTuple):
    """A partition from the point of view of its leader: what it proposes, and what the controller made of it."""

    leader: int
    leader_epoch: int
    leader_recovery_state: LeaderRecoveryState
    isr_with_broker_epochs: tuple[IsrMember, ...]
    partition_epoch: int

    @property
    def isr(self) -> tuple[int, ...]:
        return tuple([member.broker_id for member in self.isr_with_broker_epochs])


class AlterPartitionManager(Protocol):
    """Brings proposals to the controller."""

    def submit(self, partition: TopicIdPartition, leader_and_isr: LeaderAndIsr) -> Future[LeaderAndIsr]:
        """Proposes in-sync replicas for a partition.

        The future has what the controller has now, or fails with what it said. OPERATION_NOT_ATTEMPTED means that the
        proposal was not sent, because one for this partition is on its way. No lock is held when this is called.
        """
        ...
