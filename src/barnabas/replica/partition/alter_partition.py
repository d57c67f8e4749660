"""Changes of the ISR: the leader proposes, the controller decides (KIP-497)."""

from __future__ import annotations

from concurrent.futures import Future
from typing import NamedTuple, Protocol

from barnabas.metadata.partition_registration import LeaderRecoveryState
from barnabas.replica.fetch.fetch_session import TopicIdPartition

NO_BROKER_EPOCH = -1
"""In place of a broker epoch: unknown, and not checked by the controller."""


class IsrMember(NamedTuple):
    """A current or proposed member of the ISR, with the broker epoch that the leader has seen (KIP-903)."""

    broker_id: int
    broker_epoch: int = NO_BROKER_EPOCH


class LeaderAndIsr(NamedTuple):
    """Leader and ISR of a partition, as the leader proposes them or as the controller has decided."""

    leader: int
    leader_epoch: int
    leader_recovery_state: LeaderRecoveryState
    isr_with_broker_epochs: tuple[IsrMember, ...]
    partition_epoch: int

    @property
    def isr(self) -> tuple[int, ...]:
        return tuple([member.broker_id for member in self.isr_with_broker_epochs])


class AlterPartitionManager(Protocol):
    """Sends proposals to the controller."""

    def submit(self, partition: TopicIdPartition, leader_and_isr: LeaderAndIsr) -> Future[LeaderAndIsr]:
        """Proposes an ISR for a partition.

        The future holds the controller's new state, or fails with its error. OPERATION_NOT_ATTEMPTED means that the
        proposal was not sent, because another one for this partition is in flight. The caller must hold no lock.
        """
        ...
