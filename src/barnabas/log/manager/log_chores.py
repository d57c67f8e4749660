"""Periodic tasks for all logs of a broker: retention, flushing, and checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from barnabas.common.clock import Clock
from barnabas.common.errors import KafkaStorageError
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.cleaner.cleaner_hooks import CleanerHooks
from barnabas.log.dirs.log_dirs import LogDir, LogDirs
from barnabas.log.dirs.offset_checkpoint import (
    HIGH_WATERMARK_CHECKPOINT_FILE,
    LOG_START_OFFSET_CHECKPOINT_FILE,
    RECOVERY_POINT_CHECKPOINT_FILE,
)
from barnabas.log.manager.log_startup import OfflineLog
from barnabas.log.unified_log import UnifiedLog

logger = logging.getLogger(__name__)


class Logs(Protocol):
    """Provides all logs."""

    def get_log(self, partition: TopicPartition, *, is_future: bool = False) -> UnifiedLog | None: ...
    def all_logs(self) -> list[UnifiedLog]: ...
    def current_logs(self) -> dict[TopicPartition, UnifiedLog]: ...
    def logs_in_dir(self, path: Path) -> list[UnifiedLog]: ...
    @property
    def offline_logs(self) -> dict[TopicPartition, OfflineLog]: ...


class LogChores:
    """Runs the background work of a log manager. A failure of one log does not affect the others.

    Three **checkpoints** are written, one file for each log directory and kind:

    * recovery points: after a crash, the log is read from there;
    * log start offsets of logs that begin in the middle of a segment: without them, deleted records would reappear;
    * high watermarks: without them, records would be invisible to consumers for a moment after a restart.

    A log that could not be opened keeps the offsets that the files had for it at the start.
    """

    def __init__(self, registry: Logs, log_dirs: LogDirs, clock: Clock, cleaner: CleanerHooks) -> None:
        self._registry = registry
        self._log_dirs = log_dirs
        self._clock = clock
        self._cleaner = cleaner
        self._is_stopping = False

    def stop(self) -> None:
        """Ends running tasks after their current log: thousands of logs take long, and delay a shutdown."""
        self._is_stopping = True

    def delete_old_segments(self) -> int:
        """Applies retention to logs that are not compacted; returns the number of segments deleted."""
        partitions = self._cleaner.pause_cleaning_for_retention(self._registry.current_logs())
        count = 0
        try:
            for partition in partitions:
                if self._is_stopping:
                    break
                for log in (self._registry.get_log(partition), self._registry.get_log(partition, is_future=True)):
                    if log is not None:
                        count += self._on(log, log.delete_old_segments) or 0
        finally:
            self._cleaner.resume_cleaning(partitions)
        return count

    def flush_dirty_logs(self) -> None:
        """Forces logs to disk whose ``flush.ms`` has passed."""
        now = self._clock.hi_res_milliseconds()
        for log in self._registry.all_logs():
            if self._is_stopping:
                break
            if now - log.last_flush_ms >= log.config.flush_ms:
                self._on(log, log.flush)

    def remove_expired_producers(self) -> None:
        """Removes expired producers from all logs."""
        now = self._clock.milliseconds()
        for log in self._registry.all_logs():
            log.producers.remove_expired(now)

    def _on(self, log: UnifiedLog, action: Callable[[], int | None]) -> int | None:
        try:
            return action()
        except KafkaStorageError as error:
            logger.error("%s: %s", log.topic_partition, error)
            return None

    # Checkpoints

    def checkpoint_recovery_points(self) -> None:
        for log_dir in self._log_dirs.live:
            self._checkpoint_recovery_points(log_dir)

    def checkpoint_log_start_offsets(self) -> None:
        for log_dir in self._log_dirs.live:
            self._checkpoint_log_start_offsets(log_dir)

    def checkpoint_high_watermarks(self) -> None:
        for log_dir in self._log_dirs.live:
            self._checkpoint_high_watermarks(log_dir)

    def checkpoint_recovery_points_in(self, path: Path) -> None:
        """Writes the recovery points of one directory, if it is not offline."""
        log_dir = self._log_dirs.get(path)
        if log_dir is not None:
            self._checkpoint_recovery_points(log_dir)

    def checkpoint_in(self, path: Path) -> None:
        """Writes all checkpoints of one directory, if it is not offline."""
        log_dir = self._log_dirs.get(path)
        if log_dir is not None:
            self.checkpoint(log_dir)

    def checkpoint(self, log_dir: LogDir) -> None:
        """Writes all checkpoints of one directory."""
        self._checkpoint_recovery_points(log_dir)
        self._checkpoint_log_start_offsets(log_dir)
        self._checkpoint_high_watermarks(log_dir)

    def _checkpoint_recovery_points(self, log_dir: LogDir) -> None:
        with log_dir.checkpoint_lock:
            logs = self._registry.logs_in_dir(log_dir.path)
            offsets = {log.topic_partition: log.recovery_point for log in logs}
            self._write(log_dir, RECOVERY_POINT_CHECKPOINT_FILE, offsets)

    def _checkpoint_log_start_offsets(self, log_dir: LogDir) -> None:
        with log_dir.checkpoint_lock:
            offsets = {}
            for log in self._registry.logs_in_dir(log_dir.path):
                first = log.segments.first
                if first is not None and log.log_start_offset > first.base_offset:
                    offsets[log.topic_partition] = log.log_start_offset
            self._write(log_dir, LOG_START_OFFSET_CHECKPOINT_FILE, offsets)

    def _checkpoint_high_watermarks(self, log_dir: LogDir) -> None:
        with log_dir.checkpoint_lock:
            logs = self._registry.logs_in_dir(log_dir.path)
            offsets = {log.topic_partition: log.high_watermark for log in logs}
            self._write(log_dir, HIGH_WATERMARK_CHECKPOINT_FILE, offsets)

    def _write(self, log_dir: LogDir, name: str, offsets: dict[TopicPartition, int]) -> None:
        for partition, log in self._registry.offline_logs.items():
            if name in log.checkpoints and log.directory.parent == log_dir.path:
                offsets.setdefault(partition, log.checkpoints[name])
        log_dir.write_checkpoint(name, offsets)
