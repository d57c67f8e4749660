"""A partition of which this broker has a replica."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from pathlib import Path
from typing import Final

from barnabas.common.errors import KafkaStorageError, NotLeaderOrFollowerError
from barnabas.common.identifiers import Uuid, uuid_to_string
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.log_append_info import LogAppendInfo
from barnabas.log.log_watermarks import no_listener
from barnabas.log.segment.file_handle import Buffer
from barnabas.log.unified_log import UnexpectedAppendOffsetError, UnifiedLog
from barnabas.metadata.directory_id import UNASSIGNED
from barnabas.metadata.partition_registration import LeaderRecoveryState, PartitionRegistration
from barnabas.replica.partition.partition_context import PartitionContext, PartitionListener
from barnabas.replica.partition.partition_isr import NO_ROLE, PartitionRole
from barnabas.replica.partition.partition_log import PartitionLog
from barnabas.replica.partition.partition_state import NO_ASSIGNMENT, NO_STATE, Assignment, CommittedPartitionState
from barnabas.replica.partition.remote_replica import Replica

logger = logging.getLogger(__name__)

_RECOVERED: Final = LeaderRecoveryState.RECOVERED


class Partition(PartitionLog):
    """One partition, of which this broker is the leader or a follower.

    ::

                     make_leader                        make_leader (next epoch, other replicas)
        no role ----------------------> leader <---------+
           |                             |  ^
           | make_follower               |  | make_leader
           +----------> follower <-------+  |
                              |  make_follower
                              +-------------+

    The metadata log decides the role. `make_leader` opens the log if necessary, begins the new leader epoch in it, and
    starts to track the followers. `make_follower` stops tracking them; the fetchers copy the records. A registration
    with an older partition epoch is ignored: a response of the controller may arrive before the metadata does.

    `PartitionLog` implements appends and reads, `PartitionIsr` the ISR and the high watermark.
    """

    __slots__ = ("_listeners",)

    def __init__(self, topic_partition: TopicPartition, topic_id: Uuid | None, context: PartitionContext) -> None:
        super().__init__(topic_partition, topic_id, context)
        self._listeners: tuple[PartitionListener, ...] = ()

    # Roles

    def make_leader(self, registration: PartitionRegistration, *, is_new: bool) -> bool:
        """Makes this broker the leader; True if it was not the leader before.

        `is_new`: the partition was just created on this broker. Raises `KafkaStorageError` if the log cannot be opened.
        """
        with self._lock:
            if registration.partition_epoch < self._partition_epoch:
                self._log_skipped("leader", registration)
                return False
            before = self.role
            is_new_leader = not before.is_leader
            is_new_epoch = registration.leader_epoch > before.leader_epoch
            now_ms = self._context.clock.milliseconds()
            isr = frozenset(registration.isr)
            others = [broker_id for broker_id in registration.replicas if broker_id != self._context.broker_id]
            self.followers = {broker_id: self.followers.get(broker_id) or Replica(broker_id) for broker_id in others}
            self._update_assignment(registration)
            # Recovery after an unclean election takes no further work: the log is used as it is.
            self.state = CommittedPartitionState(isr, _RECOVERED)
            log = self._open_log(registration, is_new)
            role = before
            if is_new_epoch:
                start = log.log_end_offset
                for replica in self.followers.values():
                    replica.reset(now_ms, start, is_new_leader=is_new_leader, is_in_sync=replica.broker_id in isr)
                role = PartitionRole(log, True, self._context.broker_id, registration.leader_epoch, start)
                logger.debug(
                    "%s: leads from offset %d on, in leader epoch %d and partition epoch %d; the high watermark is %d, "
                    "the ISR %s; broker %d led before, in epoch %d",
                    self.topic_partition,
                    start,
                    registration.leader_epoch,
                    registration.partition_epoch,
                    log.high_watermark,
                    sorted(isr),
                    before.leader_id,
                    before.leader_epoch,
                )
            self._partition_epoch = registration.partition_epoch
            self.role = role._replace(log=log, is_leader=True, leader_id=self._context.broker_id)
            if self.followers:
                self._begin_epoch_in_log(log)
            # A smaller ISR can move the high watermark.
            hw_moved = self._maybe_increment_leader_hw(log, now_ms)
        if hw_moved:
            self._context.waiting.check_and_complete_all(self.topic_partition)
        return is_new_leader

    def _begin_epoch_in_log(self, log: UnifiedLog) -> None:
        """Adds the leader epoch to the epoch cache before its first record. The lock must be held.

        A follower may have records of later epochs than any in this log, and asks where those epochs end. Without
        followers the first record adds the epoch. That saves a broker that starts with thousands of mostly idle
        partitions thousands of synchronous writes to disk.
        """
        role = self.role
        if log.leader_epochs.latest_epoch != role.leader_epoch and role.leader_epoch_start_offset is not None:
            log.maybe_assign_epoch_start_offset(role.leader_epoch, role.leader_epoch_start_offset)

    def make_follower(self, registration: PartitionRegistration, *, is_new: bool) -> bool:
        """Makes this broker a follower; True if the leader epoch is new, so that the fetchers must restart.

        The partition may have no leader. Raises `KafkaStorageError` if the log cannot be opened.
        """
        with self._lock:
            if registration.partition_epoch < self._partition_epoch:
                self._log_skipped("follower", registration)
                return False
            before = self.role
            is_new_epoch = registration.leader_epoch > before.leader_epoch
            # Stop appends first: opening the log may fail.
            self.role = PartitionRole(before.log, False, registration.leader, registration.leader_epoch)
            self._partition_epoch = registration.partition_epoch
            self.followers = {}
            self._update_assignment(registration)
            self.state = CommittedPartitionState(frozenset(), registration.leader_recovery_state)
            log = self._open_log(registration, is_new)
            self.role = self.role._replace(log=log)
            if is_new_epoch:
                logger.debug(
                    "%s: follows broker %d from offset %d on, in leader epoch %d and partition epoch %d; the high "
                    "watermark is %d; broker %d led before, in epoch %d",
                    self.topic_partition,
                    registration.leader,
                    log.log_end_offset,
                    registration.leader_epoch,
                    registration.partition_epoch,
                    log.high_watermark,
                    before.leader_id,
                    before.leader_epoch,
                )
            return is_new_epoch

    def _update_assignment(self, registration: PartitionRegistration) -> None:
        self._assignment = Assignment(
            registration.replicas, registration.adding_replicas, registration.removing_replicas
        )

    def _log_skipped(self, role: str, registration: PartitionRegistration) -> None:
        logger.info(
            "%s: is not made a %s as of partition epoch %d: it is at %d already",
            self.topic_partition,
            role,
            registration.partition_epoch,
            self._partition_epoch,
        )

    # Logs

    def _open_log(self, registration: PartitionRegistration, is_new: bool) -> UnifiedLog:
        """Returns the log, and creates it if it does not exist. The lock must be held.

        The log may exist in a log directory that is offline. Creating it again elsewhere would turn this broker into
        an empty replica, so nothing is created if the replica's directory may be the offline one.
        """
        log = self.role.log
        if log is not None:
            return log
        manager = self._context.log_manager
        log = manager.get_log(self.topic_partition)
        directory_id = registration.directory(self._context.broker_id)
        if (
            log is None
            and directory_id is not None
            and directory_id != UNASSIGNED
            and manager.offline_log_dirs
            and manager.log_dirs.path_of(directory_id) is None
        ):
            raise KafkaStorageError(
                f"The log of {self.topic_partition} is not made: it may be in a log directory that is offline. It "
                f"belongs into directory {uuid_to_string(directory_id)}"
            )
        log = manager.get_or_create_log(
            self.topic_partition, is_new=is_new, topic_id=self.topic_id, target_directory_id=directory_id
        )
        self._listen_to(log)
        return log

    def append_records_to_follower_or_future_replica(self, records: Buffer, *, is_future: bool) -> LogAppendInfo | None:
        """Appends batches with the offsets of the leader; None if the future log no longer exists."""
        try:
            return self._append_as_follower(records, is_future)
        except UnexpectedAppendOffsetError as error:
            log = self._future_log if is_future else self.role.log
            # After DeleteRecords the leader's log may start in the middle of a batch. The first batch fetched from it
            # then begins before the start of an empty log here, which must restart at the beginning of that batch.
            if log is None or not (
                log.log_end_offset == log.log_start_offset
                and error.first_offset < log.log_end_offset <= error.last_offset
            ):
                raise
            logger.info("%s: the log begins at offset %d, with a whole batch", self.topic_partition, error.first_offset)
            self.truncate_fully_and_start_at(error.first_offset, is_future=is_future)
            return self._append_as_follower(records, is_future)

    def _append_as_follower(self, records: Buffer, is_future: bool) -> LogAppendInfo | None:
        if is_future:
            # No lock, or producers would wait for the copying. Only one thread writes to a future log, and that
            # thread is stopped before the log is removed.
            future = self._future_log
            return None if future is None else future.append_as_follower(records, self.role.leader_epoch)
        with self._lock:  # prevents that the future log replaces the log during the append
            return self.local_log_or_raise().append_as_follower(records, self.role.leader_epoch)

    def truncate_to(self, offset: int, *, is_future: bool = False) -> None:
        """Removes all records from an offset on, and checkpoints the recovery point."""
        with nullcontext() if is_future else self._lock:
            self._context.log_manager.truncate_to({self.topic_partition: offset}, is_future=is_future)

    def truncate_fully_and_start_at(self, offset: int, *, is_future: bool = False) -> None:
        """Deletes all records of a log; its next record gets this offset."""
        with nullcontext() if is_future else self._lock:
            self._context.log_manager.truncate_fully_and_start_at(self.topic_partition, offset, is_future=is_future)

    # Moving to another log directory

    @property
    def future_log(self) -> UnifiedLog | None:
        return self._future_log

    def local_log_or_raise(self) -> UnifiedLog:
        log = self.role.log
        if log is None:
            raise NotLeaderOrFollowerError(
                f"There is no log of {self.topic_partition} on broker {self._context.broker_id}"
            )
        return log

    def future_replica_dir_changed(self, new_destination: Path) -> bool:
        """Whether the log is moving to a directory other than this one."""
        future = self._future_log
        return future is not None and future.parent_dir != new_destination

    def maybe_create_future_replica(self, destination: Path) -> bool:
        """Creates the future log; False if the current log is in this directory already, or a move is under way.

        Raises `KafkaStorageError` if a log directory is offline, because its contents are unknown.
        """
        if self.local_log_or_raise().parent_dir == destination:
            logger.info("%s: the log is in %s already", self.topic_partition, destination)
            return False
        if self._future_log is not None:
            return False
        # No lock: this may have to wait for the cleaner. The replica manager starts one move at a time.
        future = self._context.log_manager.get_or_create_log(
            self.topic_partition, is_future=True, topic_id=self.topic_id
        )
        with self._lock:
            self._future_log = future
        return True

    def remove_future_local_replica(self, *, delete_from_log_dir: bool = True) -> None:
        with self._lock:
            self._future_log = None
            if delete_from_log_dir:
                self._context.log_manager.async_delete(self.topic_partition, is_future=True)

    def maybe_replace_current_with_future_replica(self) -> bool:
        """Replaces the log with the future log if that has caught up; True if replaced."""
        current, future = self.role.log, self._future_log
        if current is None or future is None or future.log_end_offset != current.log_end_offset:
            return False  # without taking the lock from producers
        with self._lock:  # no appends from here on
            current, future = self.role.log, self._future_log
            if current is None or future is None or future.log_end_offset != current.log_end_offset:
                return False
            self._context.log_manager.replace_current_with_future_log(self.topic_partition)
            self._future_log = None
            self._listen_to(future)
            self.role = self.role._replace(log=future)
            return True

    # Listeners

    def maybe_add_listener(self, listener: PartitionListener) -> bool:
        """Adds a listener; False if the partition has no log."""
        with self._lock:
            log = self.role.log
            if log is None:
                return False
            self._listeners = (*self._listeners, listener)
            self._listen_to(log)
            return True

    def remove_listener(self, listener: PartitionListener) -> None:
        with self._lock:
            self._listeners = tuple(one for one in self._listeners if one is not listener)
            log = self.role.log
            if log is not None:
                self._listen_to(log)

    def _listen_to(self, log: UnifiedLog) -> None:
        log.watermarks.listener = self._on_high_watermark if self._listeners else no_listener

    def _on_high_watermark(self, offset: int) -> None:
        for listener in self._listeners:
            listener.on_high_watermark_updated(self.topic_partition, offset)

    # Removal

    def delete(self) -> None:
        """Removes the replica from this broker. The replica manager deletes the log, together with others."""
        for listener in self._clear():
            listener.on_deleted(self.topic_partition)

    def mark_offline(self) -> None:
        """Takes the partition offline because its log directory failed."""
        for listener in self._clear():
            listener.on_failed(self.topic_partition)

    def _clear(self) -> tuple[PartitionListener, ...]:
        with self._lock:
            listeners, self._listeners = self._listeners, ()
            self.followers = {}
            self._assignment = NO_ASSIGNMENT
            self._future_log = None
            self.state = NO_STATE
            # Keep the epoch: otherwise an older leader epoch would be accepted as new.
            self.role = NO_ROLE._replace(leader_epoch=self.role.leader_epoch)
            return listeners

    def __repr__(self) -> str:
        role, assignment = self.role, self._assignment
        return (
            f"Partition({self.topic_partition}, leader={role.leader_id}, leader_epoch={role.leader_epoch}, "
            f"partition_epoch={self._partition_epoch}, replicas={list(assignment.replicas)}, "
            f"isr={sorted(self.state.isr)})"
        )
