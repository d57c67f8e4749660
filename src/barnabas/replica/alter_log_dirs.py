"""Moving replicas from one log directory of this broker to another (KIP-113).

::

    /disk1/orders-3                          the current log, in use all the time
    /disk2/orders-3.8f...-future             the copy: first far behind, then a little
    /disk2/orders-3                          the copy has caught up and takes over; the original goes

The copy is made like a follower's, batch by batch as they are, by a thread of this broker. For the last step producers
have to wait for as long as it takes to rename two directories.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from barnabas.common.clock import Clock
from barnabas.common.errors import BarnabasError, KafkaStorageError, OffsetOutOfRangeError
from barnabas.common.identifiers import ZERO_UUID
from barnabas.common.shutdownable_thread import ExitProcedure, ShutdownableThread, exit_process
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.fetch_isolation import FetchIsolation
from barnabas.log.file_handle import read_fully
from barnabas.log.log_manager import LogManager
from barnabas.log.unified_log import LogStartOffsetIncrementReason, UnifiedLog
from barnabas.network.send import FileRegion
from barnabas.replica.config import ReplicaManagerConfig
from barnabas.replica.directory_events import DirectoryEventHandler
from barnabas.replica.fetch_session import TopicIdPartition
from barnabas.replica.replica_quota import UNBOUNDED_QUOTA, ReplicaQuota

if TYPE_CHECKING:
    from barnabas.replica.partition import Partition

logger = logging.getLogger(__name__)

_IDLE_MS: Final = 1000.0
"""How long a thread that has nothing to copy waits before it looks again, if nobody wakes it up."""


class _Assignment(Enum):
    """Whether the controller knows where the replica is going to be (KIP-858).

    It has to before the log moves: if the new disk failed right after, the controller would still think of the old one,
    and not elect another leader.
    """

    NONE = auto()
    REQUESTED = auto()
    EFFECTIVE = auto()


class _Move:
    """One partition on its way."""

    __slots__ = ("assignment", "not_before_ms", "partition")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.assignment = _Assignment.NONE
        self.not_before_ms = 0
        """After a failure, when to try again."""


class ReplicaAlterLogDirsThread(ShutdownableThread):
    """Copies partitions, one portion of each in turn."""

    def __init__(
        self,
        name: str,
        config: ReplicaManagerConfig,
        log_manager: LogManager,
        directory_events: DirectoryEventHandler,
        clock: Clock,
        quota: ReplicaQuota,
        exit_procedure: ExitProcedure = exit_process,
    ) -> None:
        super().__init__(name, clock=clock, exit_procedure=exit_procedure)
        self._config = config
        self._log_manager = log_manager
        self._directory_events = directory_events
        self._quota = quota
        self._changed = threading.Condition()
        """Guards the fields below. Not held while anything is copied; no other lock is taken inside it."""
        self._moves: dict[TopicPartition, _Move] = {}
        self._busy: TopicPartition | None = None
        """What is being copied just now."""

    # Called by others

    def add(self, partition: Partition) -> None:
        with self._changed:
            if partition.topic_partition not in self._moves:
                self._moves[partition.topic_partition] = _Move(partition)
                self._changed.notify_all()

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Stops copying these; returns when nobody is at it any more."""
        reverted: list[_Move] = []
        with self._changed:
            for topic_partition in partitions:
                move = self._moves.pop(topic_partition, None)
                if move is not None and move.assignment is not _Assignment.NONE:
                    reverted.append(move)
                if self is not threading.current_thread():
                    while self._busy == topic_partition:
                        self._changed.wait()
        for move in reverted:
            self._revert_assignment(move)

    @property
    def partition_count(self) -> int:
        with self._changed:
            return len(self._moves)

    def on_shutdown_initiated(self) -> None:
        with self._changed:
            self._changed.notify_all()

    # The loop

    def do_work(self) -> None:
        progress = False
        for move in self._take_ready():
            if not self.is_running():
                return
            with self._changed:
                topic_partition = move.partition.topic_partition
                if self._moves.get(topic_partition) is not move:
                    continue
                self._busy = topic_partition
            try:
                progress |= self._step(move)
            finally:
                with self._changed:
                    self._busy = None
                    self._changed.notify_all()
        if not progress:
            with self._changed:
                if self.is_running():
                    self._clock.wait(self._changed, _IDLE_MS)

    def _take_ready(self) -> list[_Move]:
        now_ms = self._clock.hi_res_milliseconds()
        with self._changed:
            return [move for move in self._moves.values() if move.not_before_ms <= now_ms]

    def _step(self, move: _Move) -> bool:
        """Copies a portion, or finishes; whether there is more to do at once."""
        partition = move.partition
        if self._quota.is_quota_exceeded and self._quota.is_throttled(partition.topic_partition):
            return False
        try:
            return self._copy_some(partition) or (partition.future_log is not None and self._maybe_promote(move))
        except (BarnabasError, OSError) as error:
            if isinstance(error, KafkaStorageError):
                # One of the two directories is offline, or going to be: whoever takes it offline ends the move.
                logger.error("%s cannot be copied: %s", partition.topic_partition, error)
            else:
                logger.exception("%s cannot be copied for now", partition.topic_partition)
            move.not_before_ms = self._clock.hi_res_milliseconds() + self._config.replica_fetch_backoff_ms
            return False

    # Copying

    def _copy_some(self, partition: Partition) -> bool:
        current, future = partition.log, partition.future_log
        if current is None or future is None:
            self._forget(partition)
            return False
        self._cut_off(partition, current, future)
        try:
            info = current.read(
                future.log_end_offset,
                self._config.replica_fetch_max_bytes,
                FetchIsolation.LOG_END,
                min_one_message=True,
            )
        except OffsetOutOfRangeError:
            # Deleted meanwhile, by retention or by a client.
            partition.truncate_fully_and_start_at(current.log_start_offset, is_future=True)
            return True
        if not info.records:
            self._keep_up_offsets(current, future)
            return False
        records = _load(info.records)
        appended = partition.append_records_to_follower_or_future_replica(records, is_future=True)
        if appended is not None and not appended.valid_bytes:
            raise BarnabasError(f"Nothing of what is at offset {future.log_end_offset} could be copied")
        self._quota.record(len(records))
        self._keep_up_offsets(current, future)
        return True

    def _cut_off(self, partition: Partition, current: UnifiedLog, future: UnifiedLog) -> None:
        """Removes from the copy what the original has not, or not any more: a follower may have had to truncate it."""
        epoch = future.latest_epoch
        end = None if epoch is None else current.end_offset_for_epoch(epoch)
        offset = future.log_end_offset
        if end is not None:
            own = future.end_offset_for_epoch(end.leader_epoch)
            offset = min(offset, end.end_offset, offset if own is None else own.end_offset)
        offset = min(offset, current.log_end_offset)
        if offset < future.log_end_offset:
            partition.truncate_to(offset, is_future=True)

    @staticmethod
    def _keep_up_offsets(current: UnifiedLog, future: UnifiedLog) -> None:
        future.update_high_watermark(min(current.high_watermark, future.log_end_offset))
        if future.log_start_offset < current.log_start_offset <= future.high_watermark:
            future.maybe_increment_log_start_offset(
                current.log_start_offset, LogStartOffsetIncrementReason.LEADER_OFFSET_INCREMENTED
            )

    # Finishing

    def _maybe_promote(self, move: _Move) -> bool:
        """The copy has everything: it takes over, as soon as the controller knows."""
        partition = move.partition
        if move.assignment is _Assignment.NONE:
            self._request_assignment(move)
        if move.assignment is not _Assignment.EFFECTIVE:
            return False
        if not partition.maybe_replace_current_with_future_replica():
            return True  # records have come meanwhile
        logger.info("%s has moved to %s", partition.topic_partition, partition.local_log_or_raise().parent_dir)
        with self._changed:
            if self._moves.get(partition.topic_partition) is move:
                del self._moves[partition.topic_partition]
        return True

    def _request_assignment(self, move: _Move) -> None:
        partition = move.partition
        future = partition.future_log
        directory_id = None if future is None else self._log_manager.log_dirs.directory_ids.get(future.parent_dir)
        if directory_id is None:
            # Directories without ids are those of a cluster that does not keep book of them.
            move.assignment = _Assignment.EFFECTIVE
            return
        move.assignment = _Assignment.REQUESTED

        def accepted() -> None:
            with self._changed:
                move.assignment = _Assignment.EFFECTIVE
                self._changed.notify_all()

        self._directory_events.handle_assignment(
            TopicIdPartition(partition.topic_id or ZERO_UUID, *partition.topic_partition),
            directory_id,
            "Migrating log directory",
            accepted,
        )

    def _revert_assignment(self, move: _Move) -> None:
        """A move was given up, and the controller has been told of it: now it is told where the log is."""
        partition = move.partition
        log = partition.log
        directory_id = None if log is None else self._log_manager.log_dirs.directory_ids.get(log.parent_dir)
        if directory_id is not None:
            self._directory_events.handle_assignment(
                TopicIdPartition(partition.topic_id or ZERO_UUID, *partition.topic_partition),
                directory_id,
                "Reverting a move of the log that was given up",
                lambda: None,
            )

    def _forget(self, partition: Partition) -> None:
        with self._changed:
            self._moves.pop(partition.topic_partition, None)


class ReplicaAlterLogDirsManager:
    """The threads that move replicas. They come with the first partition, and go when they have been idle."""

    def __init__(
        self,
        config: ReplicaManagerConfig,
        log_manager: LogManager,
        directory_events: DirectoryEventHandler,
        clock: Clock,
        quota: ReplicaQuota = UNBOUNDED_QUOTA,
        exit_procedure: ExitProcedure = exit_process,
    ) -> None:
        self._config = config
        self._log_manager = log_manager
        self._directory_events = directory_events
        self._clock = clock
        self._quota = quota
        self._exit_procedure = exit_procedure
        self._lock = threading.Lock()
        """Guards the threads. Theirs is taken inside it, and they are told to end with it held, but not waited for."""
        self._threads: dict[int, ReplicaAlterLogDirsThread] = {}
        self._is_shut_down = False

    @property
    def _max_threads(self) -> int:
        return self._config.num_replica_alter_log_dirs_threads or len(self._log_manager.log_dirs.configured)

    def _number_for(self, partition: TopicPartition) -> int:
        return hash(partition) % max(self._max_threads, 1)

    def add_partition(self, partition: Partition) -> None:
        """Begins, or goes on, to copy a partition that has a future log."""
        number = self._number_for(partition.topic_partition)
        with self._lock:
            if self._is_shut_down:
                return
            thread = self._threads.get(number)
            if thread is None:
                thread = self._threads[number] = ReplicaAlterLogDirsThread(
                    f"ReplicaAlterLogDirsThread-{number}",
                    self._config,
                    self._log_manager,
                    self._directory_events,
                    self._clock,
                    self._quota,
                    self._exit_procedure,
                )
                thread.add(partition)
                thread.start()
            else:
                thread.add(partition)

    def remove_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Stops copying these; returns when nobody is at it any more."""
        topic_partitions = list(partitions)
        with self._lock:
            threads = list(self._threads.values())
        for thread in threads:
            thread.remove(topic_partitions)

    def shutdown_idle_threads(self) -> None:
        with self._lock:
            idle = [number for number, thread in self._threads.items() if not thread.partition_count]
            gone = [self._threads.pop(number) for number in idle]
            for thread in gone:
                thread.initiate_shutdown()
        for thread in gone:
            thread.await_shutdown()

    @property
    def thread_count(self) -> int:
        with self._lock:
            return len(self._threads)

    def shutdown(self) -> None:
        with self._lock:
            self._is_shut_down = True
            threads = list(self._threads.values())
            self._threads.clear()
            for thread in threads:
                thread.initiate_shutdown()
        for thread in threads:
            thread.await_shutdown()


def _load(records: FileRegion | bytes) -> bytes:
    if isinstance(records, bytes):
        return records
    return bytes(read_fully(records.fd, records.count, records.position))
