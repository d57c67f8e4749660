"""Moves replicas between log directories, describes the directories, and handles their failure."""

from __future__ import annotations

import logging
import os
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.common.errors import (
    Errors,
    InvalidTopicError,
    KafkaStorageError,
    LogDirNotFoundError,
    NotLeaderOrFollowerError,
    ReplicaNotAvailableError,
    UnknownTopicOrPartitionError,
)
from barnabas.common.log_safety import LimitedLogger
from barnabas.common.shutdownable_thread import ExitProcedure, FatalExitError, ShutdownableThread, exit_process
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.dirs.log_dir_failure import LogDirFailureChannel
from barnabas.log.dirs.log_dir_names import log_future_dir_name
from barnabas.log.manager.log_manager import LogManager
from barnabas.log.storage_errors import disk_access
from barnabas.log.unified_log import UnifiedLog
from barnabas.replica.broker_topic_stats import BrokerTopicStats
from barnabas.replica.delayed_operations import DelayedOperations
from barnabas.replica.directory_event_handler import DirectoryEventHandler
from barnabas.replica.follower.alter_log_dirs import ReplicaAlterLogDirsManager
from barnabas.replica.follower.replica_fetchers import ReplicaFetchers
from barnabas.replica.partition.hosted_partitions import HostedPartitions

if TYPE_CHECKING:
    from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsResult, DescribeLogDirsTopic

logger = LimitedLogger(logging.getLogger(__name__))

MAX_DIR_NAME_LENGTH: Final = 255
INVALID_OFFSET_LAG: Final = -1

_EXPECTED: Final = (
    InvalidTopicError,
    KafkaStorageError,
    LogDirNotFoundError,
    ReplicaNotAvailableError,
    UnknownTopicOrPartitionError,
)
"""Expected errors of a request to move a replica."""


class LogDirFailureHandler(ShutdownableThread):
    """Waits for log directories to fail, and takes each failed one offline."""

    def __init__(
        self,
        channel: LogDirFailureChannel,
        take_offline: Callable[[Path], object],
        exit_procedure: ExitProcedure = exit_process,
    ) -> None:
        super().__init__("LogDirFailureHandler", exit_procedure=exit_procedure)
        self._channel = channel
        self._take_offline = take_offline

    def do_work(self) -> None:
        path = self._channel.take_next_offline_log_dir()
        if path is not None:
            self._take_offline(path)
        elif self.is_running():
            self.pause(1000)  # the channel was closed elsewhere

    def on_shutdown_initiated(self) -> None:
        self._channel.close()


class ReplicaLogDirs:
    """Moves replicas between log directories, describes the directories, and takes failed ones offline."""

    def __init__(
        self,
        partitions: HostedPartitions,
        log_manager: LogManager,
        movers: ReplicaAlterLogDirsManager,
        fetchers: ReplicaFetchers,
        delayed: DelayedOperations,
        stats: BrokerTopicStats,
        directory_events: DirectoryEventHandler,
        metadata_log_dir: Path | None,
    ) -> None:
        self._partitions = partitions
        self._log_manager = log_manager
        self._movers = movers
        self._fetchers = fetchers
        self._delayed = delayed
        self._stats = stats
        self._directory_events = directory_events
        self._metadata_log_dir = None if metadata_log_dir is None else metadata_log_dir.absolute()

    # Moving

    def alter_replica_log_dirs(self, dirs: Mapping[TopicPartition, str]) -> dict[TopicPartition, Errors]:
        """See `ReplicaManager.alter_replica_log_dirs`."""
        with self._partitions.state_change_lock:
            return {partition: self._alter(partition, Path(path)) for partition, path in dirs.items()}

    def _alter(self, partition: TopicPartition, destination: Path) -> Errors:
        try:
            self._move(partition, destination)
        except NotLeaderOrFollowerError as error:
            # A replica created later goes to this directory. Clients expect REPLICA_NOT_AVAILABLE here.
            logger.warning("The log of %s is not moved to %s: %s", partition, destination, error)
            return Errors.REPLICA_NOT_AVAILABLE
        except _EXPECTED as error:
            logger.warning("The log of %s is not moved to %s: %s", partition, destination, error)
            return Errors.for_exception(error)
        except Exception as error:
            logger.exception("The log of %s is not moved to %s", partition, destination)
            return Errors.for_exception(error)
        return Errors.NONE

    def _move(self, partition: TopicPartition, destination: Path) -> None:
        if len(log_future_dir_name(partition)) > MAX_DIR_NAME_LENGTH:
            raise InvalidTopicError(f"The name of {partition} is too long for a log that moves")
        if not self._log_manager.log_dirs.is_live(destination):
            raise KafkaStorageError(f"Log directory {destination} is offline")
        found = self._partitions.online.get(partition)
        if found is None and self._partitions.offline(partition) is not None:
            raise KafkaStorageError(f"{partition} is in a log directory that is offline")
        if found is not None and found.future_replica_dir_changed(destination):
            # A move to another directory is under way: cancel it.
            self._movers.remove_partitions((partition,))
            found.remove_future_local_replica()
        # Set before the check for a replica: without one, a replica created later goes to this directory.
        self._log_manager.prefer_log_dir(partition, destination)
        replica = self._partitions.get_partition_or_exception(partition)
        if replica.maybe_create_future_replica(destination):
            self._movers.add_partition(replica)

    # Describing

    def describe_log_dirs(self, partitions: Collection[TopicPartition] | None) -> list[DescribeLogDirsResult]:
        """See `ReplicaManager.describe_log_dirs`."""
        by_dir: defaultdict[Path, list[UnifiedLog]] = defaultdict(list)
        wanted = None if partitions is None else set(partitions)
        for log in self._log_manager.all_logs():
            if wanted is None or log.topic_partition in wanted:
                by_dir[log.parent_dir].append(log)
        return [self._describe(path, by_dir[path]) for path in self._log_manager.log_dirs.configured]

    def _describe(self, path: Path, logs: list[UnifiedLog]) -> DescribeLogDirsResult:
        from barnabas.protocol.messages.describe_log_dirs import (
            DescribeLogDirsPartition,
            DescribeLogDirsResult,
            DescribeLogDirsTopic,
        )

        try:
            if not self._log_manager.log_dirs.is_live(path):
                raise KafkaStorageError(f"Log directory {path} is offline")
            with disk_access("look at", path):
                volume = os.statvfs(path)
        except KafkaStorageError as error:
            logger.warning("%s", error)
            return DescribeLogDirsResult(log_dir=str(path), error_code=Errors.KAFKA_STORAGE_ERROR)
        topics: dict[str, DescribeLogDirsTopic] = {}
        for log in logs:
            name, number = log.topic_partition
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = DescribeLogDirsTopic(name=name)
            topic.partitions.append(
                DescribeLogDirsPartition(
                    partition_index=number,
                    partition_size=log.size,
                    offset_lag=self._offset_lag(log),
                    is_future_key=log.is_future,
                )
            )
        return DescribeLogDirsResult(
            log_dir=str(path),
            topics=list(topics.values()),
            total_bytes=volume.f_frsize * volume.f_blocks,
            usable_bytes=volume.f_frsize * volume.f_bavail,
            is_cordoned=self._log_manager.is_cordoned(path),
        )

    def _offset_lag(self, log: UnifiedLog) -> int:
        """Returns the lag behind the high watermark, or of a future log behind the current log; -1 if unknown."""
        partition = self._partitions.online.get(log.topic_partition)
        current = None if partition is None else partition.log
        if current is None:
            return INVALID_OFFSET_LAG
        if log.is_future:
            return max(current.log_end_offset - log.log_end_offset, 0)
        return max(current.high_watermark - log.log_end_offset, 0)

    # Failures

    def handle_log_dir_failure(self, path: Path, notify_controller: bool = True) -> None:
        """See `ReplicaManager.handle_log_dir_failure`."""
        log_dirs = self._log_manager.log_dirs
        if not log_dirs.is_live(path):
            return
        directory_id = log_dirs.directory_ids.get(path)  # read before the log manager removes it
        logger.warning("Log directory %s has failed, and is taken out of service", path)
        with self._partitions.state_change_lock:
            online = self._partitions.online_partitions()
            gone = [one for one in online if one.log is not None and one.log.parent_dir == path]
            stranded = [one for one in online if one.future_log is not None and one.future_log.parent_dir == path]
            names = [partition.topic_partition for partition in gone]
            self._fetchers.remove_fetcher_for_partitions(names)
            self._movers.remove_partitions([*names, *(partition.topic_partition for partition in stranded)])
            for partition in stranded:
                partition.remove_future_local_replica(delete_from_log_dir=False)
            for name in names:
                self._partitions.mark_offline(name)
            for topic in {name.topic for name in names}:
                if not self._partitions.has_topic(topic):
                    self._stats.remove_metrics(topic)
        for name in names:
            # Waiting requests fail now, instead of at their timeout.
            self._delayed.check_and_complete_all(name)
        self._log_manager.handle_log_dir_failure(path)
        if path == self._metadata_log_dir:
            raise FatalExitError(1, f"the directory of the metadata log, {path}, has failed")
        if notify_controller:
            if directory_id is None:
                raise FatalExitError(
                    1, f"log directory {path} has failed, and has no id by which to tell the controller"
                )
            self._directory_events.handle_failure(directory_id)
