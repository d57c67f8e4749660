"""Whether this controller is the active one, and in which epoch."""

from __future__ import annotations

import logging
from collections.abc import Callable

from barnabas.common.errors import NotControllerError
from barnabas.common.log_safety import LimitedLogger
from barnabas.common.shutdownable_thread import FatalExitError
from barnabas.controller.metrics import QuorumControllerMetrics
from barnabas.raft.client import ApiMessageAndVersion, LeaderAndEpoch, RaftClient

log = LimitedLogger(logging.getLogger(__name__))

INACTIVE = -1


class ControllerLeadership:
    """Claims and renounces the leadership of the metadata log.

    The event thread changes it. Any thread may read :attr:`epoch`.
    """

    def __init__(
        self,
        node_id: int,
        raft: RaftClient[ApiMessageAndVersion],
        metrics: QuorumControllerMetrics,
        *,
        on_claim: Callable[[int], None],
        on_renounce: Callable[[NotControllerError], None],
    ) -> None:
        """`on_claim` gets the first offset to write, `on_renounce` the error for pending requests."""
        self._node_id = node_id
        self._raft = raft
        self._metrics = metrics
        self._on_claim = on_claim
        self._on_renounce = on_renounce
        self.epoch = INACTIVE
        """The epoch in which this controller is active, -1 on a standby."""

    @property
    def is_active(self) -> bool:
        return self.epoch != INACTIVE

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        if leader.leader_id is not None:
            self._metrics.count("NewActiveControllersCount")
        if leader.is_leader(self._node_id):
            if self.is_active:
                self.epoch = leader.epoch
            else:
                self._claim(leader.epoch)
        elif self.is_active:
            log.warning("Node %s leads in epoch %d: this controller steps down", leader.leader_id, leader.epoch)
            self.renounce()
        else:
            log.info("Node %s leads in epoch %d", leader.leader_id, leader.epoch)

    def _claim(self, epoch: int) -> None:
        next_write_offset = self._raft.log_end_offset
        log.info("Becoming the active controller in epoch %d, writing from offset %d", epoch, next_write_offset)
        self.epoch = epoch
        self._on_claim(next_write_offset)

    def renounce(self) -> None:
        """Makes this controller a standby. A failure here ends the process: the state would be undefined."""
        epoch, self.epoch = self.epoch, INACTIVE
        try:
            if self._raft.leader_and_epoch == (self._node_id, epoch):
                self._raft.resign(epoch)
            self._on_renounce(self.not_controller())
        except Exception as error:
            raise FatalExitError(1, f"cannot step down as controller: {error}") from error

    def not_controller(self) -> NotControllerError:
        """Returns the error for requests that only the active controller may serve."""
        leader = self._raft.leader_and_epoch.leader_id
        if leader is None or leader == self._node_id:
            return NotControllerError("No controller is active at the moment.")
        return NotControllerError(f"The active controller is node {leader}.")
