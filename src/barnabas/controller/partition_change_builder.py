"""Computes partition changes: leader, ISR and eligible leader replicas."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from enum import Enum

from barnabas.common.identifiers import Uuid, uuid_to_string
from barnabas.metadata.metadata_version import MetadataVersion
from barnabas.metadata.partition_registration import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    NO_RECOVERY_CHANGE,
    LeaderRecoveryState,
    PartitionRegistration,
)
from barnabas.protocol.internal.metadata import PartitionChangeRecord
from barnabas.raft.client import ApiMessageAndVersion

log = logging.getLogger(__name__)


class Election(Enum):
    """Which replicas an election may choose."""

    PREFERRED = 0
    """The preferred (first) replica, if it is in sync; otherwise as ONLINE."""
    ONLINE = 1
    """The present leader if it is valid, otherwise the first replica that is in sync."""
    UNCLEAN = 2
    """As ONLINE, but if no replica is in sync, any live one: the records that it lacks are lost."""


def is_no_op(record: PartitionChangeRecord) -> bool:
    return (
        record.leader == NO_LEADER_CHANGE
        and record.leader_recovery_state == NO_RECOVERY_CHANGE
        and record.isr is None
        and record.replicas is None
        and record.directories is None
        and record.eligible_leader_replicas is None
        and record.last_known_elr is None
        and record.removing_replicas is None
        and record.adding_replicas is None
    )


class PartitionChangeBuilder:
    """Builds a PartitionChangeRecord from a target, such as "broker 2 has failed" or "the ISR is 1 and 3".

    The caller sets targets; :meth:`build` derives the rest, in this order:

    1. Complete a reassignment if the target ISR allows it.
    2. With eligible leader replicas (ELR) on, add replicas that leave an ISR smaller than ``min.insync.replicas`` to
       the ELR: no record can have been committed without them since.
    3. Elect a leader, if the present one is not valid.
    4. Put the differences from the present state into the record; without differences there is no record.

    With replicas 1, 2, 3 all in sync, ``min.insync.replicas`` 2 and ELR on, brokers 1, 3 and 2 failing one after the
    other and 1 coming back:

        ========  ========  ======  =========  ==============
        event     leader    ISR     ELR        last known ELR
        ========  ========  ======  =========  ==============
        start     1         1 2 3
        1 fails   2         2 3
        3 fails   2         2       3
        2 fails   none              2 3        2
        1 back    none              2 3        2
        2 back    2         2       3
        ========  ========  ======  =========  ==============

    Without ELR the last in-sync replica stays in the ISR when it fails, to mark which replica must return. With ELR the
    ISR may be empty; ``last_known_elr`` then holds the last leader. If that leader is found to have crashed, no replica
    is eligible any more, but it is still the best choice: it leads, marked as RECOVERING.
    """

    __slots__ = (
        "_default_directory",
        "_directories",
        "_elr",
        "_elr_enabled",
        "_is_acceptable_leader",
        "_metadata_version",
        "_min_isr",
        "_partition",
        "_partition_id",
        "_topic_id",
        "election",
        "target_adding",
        "target_isr",
        "target_leader_recovery_state",
        "target_removing",
        "target_replicas",
        "unclean_shutdown_replicas",
    )

    def __init__(
        self,
        partition: PartitionRegistration,
        topic_id: Uuid,
        partition_id: int,
        *,
        is_acceptable_leader: Callable[[int], bool],
        metadata_version: MetadataVersion,
        min_isr: int,
        elr_enabled: bool,
        default_directory: Callable[[int], Uuid],
    ) -> None:
        self._partition = partition
        self._topic_id = topic_id
        self._partition_id = partition_id
        self._is_acceptable_leader = is_acceptable_leader
        self._metadata_version = metadata_version
        self._min_isr = min_isr
        self._elr_enabled = elr_enabled
        self._default_directory = default_directory
        self._elr: Sequence[int] = partition.elr
        self._directories: Mapping[int, Uuid] = {}
        self.target_isr: Sequence[int] = partition.isr
        self.target_replicas: Sequence[int] = partition.replicas
        self.target_removing: Sequence[int] = partition.removing_replicas
        self.target_adding: Sequence[int] = partition.adding_replicas
        self.target_leader_recovery_state = partition.leader_recovery_state
        self.unclean_shutdown_replicas: Sequence[int] = ()
        self.election = Election.ONLINE

    def set_directory(self, broker_id: int, directory: Uuid) -> None:
        self._directories = {**self._directories, broker_id: directory}

    def build(self) -> ApiMessageAndVersion | None:
        partition = self._partition
        record = PartitionChangeRecord(topic_id=self._topic_id, partition_id=self._partition_id)
        self._complete_reassignment()
        self._find_eligible_leaders()
        self._elect(record)
        if record.leader == NO_LEADER_CHANGE and not set(partition.replicas) <= set(self.target_replicas):
            # A replica is removed: the leader gets a new epoch, so that it stops counting that replica's fetches.
            record.leader = partition.leader
        clean = record.isr is None
        elr = tuple(self._elr) if clean and self._elr_enabled else ()
        if elr != partition.elr:
            record.eligible_leader_replicas = list(elr)
        if clean and (self.target_isr or self._elr_enabled) and tuple(self.target_isr) != partition.isr:
            record.isr = list(self.target_isr)
        self._raise_leader_epoch_on_isr_shrink(record)
        self._note_last_leader(record)
        self._set_assignment(record)
        if self.target_leader_recovery_state is not partition.leader_recovery_state:
            record.leader_recovery_state = self.target_leader_recovery_state.value
        if is_no_op(record):
            return None
        return ApiMessageAndVersion(record, self._metadata_version.partition_change_record_version)

    # -- steps

    def _complete_reassignment(self) -> None:
        from barnabas.controller.partition_reassignment import complete_reassignment

        completed = complete_reassignment(
            self.target_replicas, self.target_isr, self.target_adding, self.target_removing
        )
        if completed is not None:
            self.target_replicas, self.target_isr = completed
            self.target_removing = self.target_adding = ()

    def _find_eligible_leaders(self) -> None:
        if not self._elr_enabled:
            return
        if len(self.target_isr) >= self._min_isr:
            self._elr = ()
            return
        candidates = {*self._partition.elr, *self._partition.isr}
        candidates.difference_update(self.target_isr, self.unclean_shutdown_replicas)
        self._elr = tuple(sorted(candidates))

    def _elect(self, record: PartitionChangeRecord) -> None:
        leader, unclean = self._elected()
        if leader == self._partition.leader:
            return
        if leader in self._elr:
            self.target_isr = (leader,)
            self._elr = tuple(replica for replica in self._elr if replica != leader)
        record.leader = leader
        if unclean:
            record.isr = [leader]
            if self._partition.leader_recovery_state is not LeaderRecoveryState.RECOVERING:
                record.leader_recovery_state = LeaderRecoveryState.RECOVERING.value
                self.target_leader_recovery_state = LeaderRecoveryState.RECOVERING
            log.debug(
                "Unclean election in partition %s:%d: the new leader is %d, records may be lost",
                uuid_to_string(self._topic_id),
                self._partition_id,
                leader,
            )

    def _elected(self) -> tuple[int, bool]:
        """Returns the leader, or NO_LEADER, and whether it may lack records."""
        replicas = self.target_replicas
        if self.election is Election.PREFERRED and self._is_valid_leader(replicas[0]):
            return replicas[0], False
        if self._is_valid_leader(self._partition.leader):
            return self._partition.leader, False
        for replica in replicas:
            if self._is_valid_leader(replica):
                return replica, False
        if self._can_elect_last_known_leader():
            return self._partition.last_known_elr[0], True
        if self.election is Election.UNCLEAN:
            for replica in replicas:
                if self._is_acceptable_leader(replica):
                    return replica, True
        return NO_LEADER, False

    def _is_valid_leader(self, replica: int) -> bool:
        in_sync = replica in self.target_isr or (not self.target_isr and replica in self._elr)
        return in_sync and self._is_acceptable_leader(replica)

    def _can_elect_last_known_leader(self) -> bool:
        last_known = self._partition.last_known_elr
        return (
            self._elr_enabled
            and not self._elr
            and not self.target_isr
            and len(last_known) == 1
            and self._is_acceptable_leader(last_known[0])
        )

    def _raise_leader_epoch_on_isr_shrink(self, record: PartitionChangeRecord) -> None:
        if (
            self._metadata_version.raises_leader_epoch_on_isr_shrink
            and record.leader == NO_LEADER_CHANGE
            and record.isr is not None
            and not set(self._partition.isr) <= set(record.isr)
        ):
            record.leader = self._partition.leader

    def _note_last_leader(self, record: PartitionChangeRecord) -> None:
        if not self._elr_enabled:
            return
        if record.leader == NO_LEADER and not self._partition.last_known_elr:
            record.last_known_elr = [self._partition.leader]
        elif record.leader >= 0 and self._partition.last_known_elr:
            record.last_known_elr = []

    def _set_assignment(self, record: PartitionChangeRecord) -> None:
        partition = self._partition
        replicas = tuple(self.target_replicas)
        if replicas != partition.replicas:
            record.replicas = list(replicas)
        if self._metadata_version.supports_directories and (self._directories or record.replicas is not None):
            directories = tuple(map(self._directory, replicas))
            if directories != partition.directories:
                record.directories = list(directories)
        if tuple(self.target_removing) != partition.removing_replicas:
            record.removing_replicas = list(self.target_removing)
        if tuple(self.target_adding) != partition.adding_replicas:
            record.adding_replicas = list(self.target_adding)

    def _directory(self, replica: int) -> Uuid:
        chosen = self._directories.get(replica) or self._partition.directory(replica)
        return self._default_directory(replica) if chosen is None else chosen
