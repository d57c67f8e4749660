"""Opens all logs of a broker at startup."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from barnabas.common.dataclass import dataclass, field
from barnabas.common.errors import BarnabasError, KafkaStorageError
from barnabas.common.identifiers import Uuid
from barnabas.common.topic_names import CLUSTER_METADATA_TOPIC
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.config.log_config import LogConfig
from barnabas.log.dirs.checkpoint_file import CorruptCheckpointError
from barnabas.log.dirs.log_dir_names import (
    STRAY_DIR_SUFFIX,
    is_delete_dir,
    is_future_dir,
    is_stray_dir,
    log_delete_dir_name,
    log_dir_name,
    log_stray_dir_name,
    parse_topic_partition_name,
)
from barnabas.log.dirs.log_dirs import LogDir, LogDirs
from barnabas.log.dirs.offset_checkpoint import (
    HIGH_WATERMARK_CHECKPOINT_FILE,
    LOG_START_OFFSET_CHECKPOINT_FILE,
    RECOVERY_POINT_CHECKPOINT_FILE,
)
from barnabas.log.dirs.partition_metadata_file import CorruptPartitionMetadataError, PartitionMetadataFile
from barnabas.log.log_context import LogContext
from barnabas.log.manager.job_threads import Progress, run_jobs
from barnabas.log.segment.segment_damage import CorruptLogError, DamagePolicy
from barnabas.log.storage_errors import disk_access, is_descriptor_shortage
from barnabas.log.unified_log import UnifiedLog

logger = logging.getLogger(__name__)

RecoveryListener = Callable[[int, int], None]
"""Called from time to time during a long recovery with the numbers of recovered and of all logs in a directory."""

REMOTE_INDEX_CACHE_DIR: Final = "remote-log-index-cache"

DAMAGED_LOG_ERRORS: Final = (CorruptLogError, CorruptCheckpointError, CorruptPartitionMetadataError)
"""Storage errors that affect only one log: the disk is not known to have failed."""


class OfflineLog(NamedTuple):
    """A log that exists but cannot be used, because it is damaged or its directory is offline."""

    directory: Path
    error: BarnabasError
    checkpoints: Mapping[str, int] = MappingProxyType({})
    """The log's offsets by checkpoint file. They stay in these files: without its recovery point, the next start would
    take damage to flushed records for an unfinished write, and cut them off."""


@dataclass(slots=True)
class LoadedLogs:
    """The logs found in the log directories."""

    current: dict[TopicPartition, UnifiedLog] = field(default_factory=dict)
    future: dict[TopicPartition, UnifiedLog] = field(default_factory=dict)
    offline: dict[TopicPartition, OfflineLog] = field(default_factory=dict)
    to_delete: list[tuple[LogDir, Path]] = field(default_factory=list)
    """Directories of logs that were deleted before startup."""
    unclean: set[Path] = field(default_factory=set)
    """Log directories without a clean shutdown marker."""
    incomplete: set[Path] = field(default_factory=set)
    """Log directories in which not all logs could be opened."""
    outdated: set[Path] = field(default_factory=set)
    """Log directories whose checkpoints have offsets of logs that do not exist any more."""


class _Offsets(NamedTuple):
    """The checkpoints of a log directory."""

    recovery_points: Mapping[TopicPartition, int]
    log_start_offsets: Mapping[TopicPartition, int]
    high_watermarks: Mapping[TopicPartition, int]

    def of(self, partition: TopicPartition) -> dict[str, int]:
        """Returns the offsets of one log, by checkpoint file."""
        files = (RECOVERY_POINT_CHECKPOINT_FILE, LOG_START_OFFSET_CHECKPOINT_FILE, HIGH_WATERMARK_CHECKPOINT_FILE)
        return {name: found[partition] for name, found in zip(files, self, strict=True) if partition in found}


class LogStartup:
    """Opens the logs in all live log directories.

    If a directory has a clean shutdown marker, its logs are not recovered. The marker is deleted first, so that it does
    not exist after a later crash. Otherwise each log is recovered, which means reading it, on several threads per
    directory.

    An error in one log (damage in the middle, an old format) leaves that log offline. A disk error leaves the whole
    directory offline. The rest is used.
    """

    def __init__(
        self,
        log_dirs: LogDirs,
        context: LogContext,
        config_for: Callable[[str], LogConfig],
        *,
        recovery_threads: int = 1,
        damage_policy: DamagePolicy = DamagePolicy.OFFLINE,
        is_stray: Callable[[UnifiedLog], bool] | None = None,
        replica_for: Callable[[Uuid, int], TopicPartition | None] | None = None,
        on_recovery: RecoveryListener | None = None,
    ) -> None:
        """`is_stray` returns whether a log should not be on this broker: its topic was deleted while it was down.

        `replica_for` returns the partition for a topic id and a partition number, if this broker has a replica of it.
        """
        self._log_dirs = log_dirs
        self._context = context
        self._config_for = config_for
        self._recovery_threads = recovery_threads
        self._damage_policy = damage_policy
        self._is_stray = is_stray
        self._replica_for = replica_for
        self._returned: set[Path] = set()
        """Directories that an earlier start renamed as stray, and that have their original names again."""
        self._damaged_copies: list[tuple[TopicPartition, Path]] = []
        """Future logs that could not be opened."""
        self._on_recovery = on_recovery
        self._lock = threading.Lock()
        """Guards `_result` while several threads add to it. No other lock is taken inside it."""
        self._result = LoadedLogs()

    def load(self) -> LoadedLogs:
        """Opens all logs. Raises `BarnabasError` if there are two logs of one partition."""
        started = self._context.clock.nanoseconds()
        self._take_back_strays()
        try:
            for log_dir in self._log_dirs.live:
                self._load_dir(log_dir)
            self._delete_damaged_copies()
        except BaseException:
            for log in (*self._result.current.values(), *self._result.future.values()):
                log.close_handlers()
            raise
        logger.info(
            "Opened %d logs in %d ms%s",
            len(self._result.current) + len(self._result.future),
            (self._context.clock.nanoseconds() - started) // 1_000_000,
            f" (recovered those in {', '.join(map(str, sorted(self._result.unclean)))})" * bool(self._result.unclean),
        )
        return self._result

    def _take_back_strays(self) -> None:
        """Restores the names of stray logs that belong to replicas of this broker after all.

        An earlier start may have renamed them because the metadata were incomplete, as after damage to the metadata
        log. Without this, the replica would start with an empty log, and its records would stay in an unused directory.
        A stray log is not restored if

        - there is a log of the partition: it has newer records;
        - a log directory is offline: that log may be there;
        - there are two of the partition: an operator must choose. The partition is offline until then.
        """
        replica_for = self._replica_for
        if replica_for is None or self._log_dirs.offline_paths:
            return
        found: dict[TopicPartition, list[Path]] = {}
        for log_dir in self._log_dirs.live:
            try:
                with log_dir.guard.watch("looking for stray logs"), disk_access("list", log_dir.path):
                    names = sorted(os.listdir(log_dir.path))  # noqa: PTH208 - one of thousands is a stray
            except KafkaStorageError:
                return
            for name in names:
                if name.endswith(STRAY_DIR_SUFFIX):
                    partition = _replica_in(log_dir.path / name, replica_for)
                    if partition is not None:
                        found.setdefault(partition, []).append(log_dir.path / name)
        returning: dict[TopicPartition, Path] = {}
        for partition, directories in found.items():
            name = log_dir_name(partition)
            if any((path / name).exists() for path in self._log_dirs.live_paths):
                continue
            if len(directories) == 1:
                returning[partition] = directories[0]
                continue
            error = BarnabasError(
                f"There are several stray logs of {partition} and no other: {', '.join(map(str, directories))}. "
                f"Rename the one to keep to {name}, move the others away, and start the broker again"
            )
            logger.error("The log of %s stays offline: %s", partition, error)
            self._result.offline[partition] = OfflineLog(directories[0], error)
        for log_dir in self._log_dirs.live:
            here = {partition: stray for partition, stray in returning.items() if stray.parent == log_dir.path}
            # Before the first one is renamed: after a crash, a log with its name does not count as returned.
            log_dir.restore_log_start_offsets(here)
            for partition, stray in here.items():
                self._take_back(log_dir, stray, stray.with_name(log_dir_name(partition)))

    def _take_back(self, log_dir: LogDir, stray: Path, directory: Path) -> None:
        try:
            log_dir.rename(stray, directory)
        except KafkaStorageError:
            return  # the whole log directory is offline now
        logger.warning("%s is of a replica of this broker again, and is %s now", stray, directory)
        self._returned.add(directory)

    def _load_dir(self, log_dir: LogDir) -> None:
        try:
            with log_dir.guard.watch("opening logs"):
                had_clean_shutdown = log_dir.clean_shutdown_file.exists()
                log_dir.clean_shutdown_file.delete()
                offsets = _Offsets(
                    log_dir.read_checkpoint(RECOVERY_POINT_CHECKPOINT_FILE),
                    log_dir.read_checkpoint(LOG_START_OFFSET_CHECKPOINT_FILE),
                    log_dir.read_checkpoint(HIGH_WATERMARK_CHECKPOINT_FILE),
                )
                with disk_access("list", log_dir.path):
                    directories = sorted(path for path in log_dir.path.iterdir() if path.is_dir())
        except KafkaStorageError:
            self._result.incomplete.add(log_dir.path)
            return
        jobs = []
        for directory in directories:
            try:
                partition = parse_topic_partition_name(directory)
            except ValueError as error:
                if directory.name != REMOTE_INDEX_CACHE_DIR:
                    logger.warning("left alone: %s", error)
                continue
            if partition.topic == CLUSTER_METADATA_TOPIC:
                continue  # the metadata quorum opens this log itself
            if is_delete_dir(directory):
                self._result.to_delete.append((log_dir, directory))
            elif is_stray_dir(directory):
                logger.warning("%s should not be on this broker, and is left alone", directory)
            else:
                jobs.append(partial(self._load_log, log_dir, directory, partition, offsets, had_clean_shutdown))
        progress = None
        if not had_clean_shutdown and jobs:
            logger.info("Recovering %d logs in %s, which was not shut down cleanly", len(jobs), log_dir.path)
            self._result.unclean.add(log_dir.path)
            progress = Progress(len(jobs), self._context.clock, partial(self._recovered, log_dir.path))
        threads = 1 if had_clean_shutdown else self._recovery_threads
        errors = run_jobs(jobs, threads, f"log-recovery-{log_dir.path}", progress)
        if errors:
            raise errors[0]
        known = self._partitions_in(log_dir.path)
        if not all(known.issuperset(checkpoint) for checkpoint in offsets):
            self._result.outdated.add(log_dir.path)

    def _delete_damaged_copies(self) -> None:
        """Deletes future logs that could not be opened, if the current log is open: it has all records.

        Otherwise the directory is kept for an operator. Neither keeps a log of the partition from being created.
        """
        for partition, directory in self._damaged_copies:
            log_dir = self._log_dirs.get(directory.parent)
            if partition not in self._result.current or log_dir is None:
                continue
            renamed = directory.with_name(log_delete_dir_name(partition))
            try:
                log_dir.rename(directory, renamed)
            except KafkaStorageError:
                continue  # the whole log directory is offline now
            logger.warning("%s is deleted: request the move of %s again", directory, partition)
            self._result.to_delete.append((log_dir, renamed))

    def _partitions_in(self, path: Path) -> set[TopicPartition]:
        """Returns the partitions that have a log in a log directory, open or not."""
        result = self._result
        found = {key for logs in (result.current, result.future) for key, log in logs.items() if log.parent_dir == path}
        return found.union(key for key, log in result.offline.items() if log.directory.parent == path)

    def _recovered(self, path: Path, done: int, total: int) -> None:
        logger.info("Recovered %d of %d logs in %s", done, total, path)
        if self._on_recovery is not None:
            self._on_recovery(done, total)

    def _load_log(
        self,
        log_dir: LogDir,
        directory: Path,
        partition: TopicPartition,
        offsets: _Offsets,
        had_clean_shutdown: bool,
    ) -> None:
        is_returned = directory in self._returned  # its checkpoints may be stale: recover all of it
        try:
            log_dir.guard.check()
            log = UnifiedLog.open(
                directory,
                self._config_for(partition.topic),
                self._context,
                log_start_offset=offsets.log_start_offsets.get(partition, 0),
                recovery_point=0 if is_returned else offsets.recovery_points.get(partition, 0),
                had_clean_shutdown=had_clean_shutdown and not is_returned,
                damage_policy=self._damage_policy,
            )
        except BarnabasError as error:
            with self._lock:
                self._result.incomplete.add(log_dir.path)
            if is_descriptor_shortage(error):
                # Too many open files (every segment has one) are not a disk failure.
                raise BarnabasError(
                    f"The limit on open files is too low for the logs in {log_dir.path}: {error}. Raise it (ulimit -n, "
                    "or LimitNOFILE= of the service) above the number of segments and connections"
                ) from error
            if isinstance(error, KafkaStorageError) and not isinstance(error, DAMAGED_LOG_ERRORS):
                log_dir.guard.failed(f"opening {directory}", error)
            else:
                logger.error("The log of %s stays offline: %s", partition, error)
            if is_future_dir(directory):
                with self._lock:
                    self._damaged_copies.append((partition, directory))
                return
            # Also if the whole directory is offline. The metadata may not have the log's directory yet, and an empty
            # log must not be created in another one.
            checkpoints = offsets.of(partition)
            if is_returned:
                checkpoints.pop(RECOVERY_POINT_CHECKPOINT_FILE, None)
            with self._lock:
                self._result.offline[partition] = OfflineLog(directory, error, checkpoints)
            return
        if self._is_stray is not None and self._is_stray(log):
            log_dir.keep_log_start_offset(directory, partition, log.log_start_offset)
            log.rename_dir(log_stray_dir_name(partition))
            log.close()
            logger.warning("%s should not be on this broker, and is %s now", directory, log.directory)
            return
        high_watermark = offsets.high_watermarks.get(partition)
        if high_watermark is not None:
            log.watermarks.update_high_watermark(high_watermark)
        self._add(log, partition)

    def _add(self, log: UnifiedLog, partition: TopicPartition) -> None:
        with self._lock:
            logs = self._result.future if log.is_future else self._result.current
            other = logs.setdefault(partition, log)
        if other is not log:
            log.close_handlers()
            raise BarnabasError(
                f"There are two logs of {partition}, {other.directory} and {log.directory}. A disk may have failed "
                "while the log was being moved from one to the other: delete the directory on the disk that has failed"
            )


def _replica_in(stray: Path, replica_for: Callable[[Uuid, int], TopicPartition | None]) -> TopicPartition | None:
    """Returns the replica of this broker in a stray directory, by topic id, because the name may be shortened."""
    try:
        number = parse_topic_partition_name(stray).partition
        topic_id = PartitionMetadataFile.in_directory(stray).read().topic_id
    except (ValueError, KafkaStorageError) as error:
        logger.warning("%s cannot be identified: %s", stray, error)
        return None
    return replica_for(topic_id, number)
