"""Opens, creates, moves, deletes and closes the logs of a broker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from barnabas.common.clock import Clock
from barnabas.common.errors import KafkaStorageError
from barnabas.common.identifiers import Uuid
from barnabas.common.scheduler import ONCE, ScheduledTask, Scheduler
from barnabas.common.shutdownable_thread import FatalExitError
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.cleaner.cleaner_hooks import CleanerHooks
from barnabas.log.config.log_config import LogConfig
from barnabas.log.dirs.log_dir_failure import LogDirFailureChannel
from barnabas.log.dirs.log_dir_names import log_delete_dir_name, log_dir_name, log_stray_dir_name
from barnabas.log.dirs.log_dirs import LogDir
from barnabas.log.dirs.offset_checkpoint import LOG_START_OFFSET_CHECKPOINT_FILE
from barnabas.log.manager.job_threads import Progress, run_jobs
from barnabas.log.manager.log_chores import LogChores
from barnabas.log.manager.log_deletion import LogDeletion
from barnabas.log.manager.log_manager_config import LogManagerConfig
from barnabas.log.manager.log_registry import LogRegistry, TopicOverrides, no_overrides
from barnabas.log.manager.log_startup import LogStartup, RecoveryListener
from barnabas.log.unified_log import UnifiedLog

logger = logging.getLogger(__name__)

CLOSING_THREADS: Final = 8
"""The minimum number of threads that close the logs of one directory. They mostly wait for the disk, which combines
several syncs."""


class LogManager(LogRegistry):
    """Manages all logs of a broker: opens them at startup, creates, maintains and deletes them.

    A log directory whose disk fails goes offline with its logs. The other directories are not affected. When the last
    directory has failed, the process ends.

    A log can be **moved** from one directory to another while it is in use. The copy, the *future* log, grows until it
    has caught up, and then replaces the *current* log.

    Usage::

        manager = LogManager([Path("data")], config, clock, scheduler)  # locks the directories
        manager.startup()  # opens the logs, starts the chores
        log = manager.get_or_create_log(TopicPartition("orders", 0), topic_id=...)
        ...
        manager.shutdown(broker_epoch)  # closes them; the next start is quick

    The owner must listen to `failure_channel` and call `handle_log_dir_failure` for each directory it reports.
    """

    def __init__(
        self,
        log_dirs: Iterable[Path],
        config: LogManagerConfig,
        clock: Clock,
        scheduler: Scheduler,
        *,
        topic_overrides: TopicOverrides = no_overrides,
        failure_channel: LogDirFailureChannel | None = None,
        cleaner: CleanerHooks | None = None,
        on_recovery: RecoveryListener | None = None,
    ) -> None:
        """Creates, checks and locks the log directories; see `LogDirs` for the errors."""
        self._clock = clock
        super().__init__(
            log_dirs,
            config,
            clock,
            scheduler,
            topic_overrides=topic_overrides,
            failure_channel=failure_channel,
            cleaner=cleaner,
        )
        self._scheduler = scheduler
        self._on_recovery = on_recovery
        self._incomplete: set[Path] = set()
        """Log directories in which some log could not be opened. They get no clean shutdown marker, because with one
        the next start would not recover that log."""
        self._deletion = LogDeletion(clock, scheduler, lambda: self._default_log_config.file_delete_delay_ms)
        self.chores = LogChores(self, self.log_dirs, clock, self._cleaner)
        self._tasks: list[ScheduledTask] = []
        self.recovery_threads_per_data_dir = config.recovery_threads_per_data_dir

    # Start and stop

    def startup(
        self,
        is_stray: Callable[[UnifiedLog], bool] | None = None,
        replica_for: Callable[[Uuid, int], TopicPartition | None] | None = None,
    ) -> None:
        """Opens all logs, which takes long after a crash, and starts the periodic tasks.

        The two functions look up the cluster metadata; see `LogStartup`.
        """
        configs: dict[str, LogConfig] = {}

        def config_for(topic: str) -> LogConfig:
            if topic not in configs:
                configs[topic] = self.log_config(topic)
            return configs[topic]

        try:
            loaded = LogStartup(
                self.log_dirs,
                self._context,
                config_for,
                recovery_threads=self.recovery_threads_per_data_dir,
                damage_policy=self._config.damage_policy,
                is_stray=is_stray,
                replica_for=replica_for,
                on_recovery=self._on_recovery,
            ).load()
        except BaseException:
            self.log_dirs.close()
            raise
        with self._lock:
            self._current, self._future, self._offline = loaded.current, loaded.future, loaded.offline
            for log in self.all_logs():
                self._count_in(log)
            self._incomplete = loaded.incomplete
        for partition in loaded.future:
            self._cleaner.abort_and_pause_cleaning(partition)
        for log_dir, directory in loaded.to_delete:
            self._deletion.add_directory(directory, log_dir.guard)
        for path in loaded.outdated:
            # Before a log is created: one with the name of a deleted log must not get its offsets after a crash.
            self.chores.checkpoint_in(path)
        self._start_chores()

    def _start_chores(self) -> None:
        config, chores = self._config, self.chores
        for name, task, period_ms in (
            ("kafka-log-retention", chores.delete_old_segments, config.retention_check_ms),
            ("kafka-log-flusher", chores.flush_dirty_logs, config.flush_check_ms),
            (
                "kafka-recovery-point-checkpoint",
                chores.checkpoint_recovery_points,
                config.flush_recovery_offset_checkpoint_ms,
            ),
            (
                "kafka-log-start-offset-checkpoint",
                chores.checkpoint_log_start_offsets,
                config.flush_start_offset_checkpoint_ms,
            ),
            ("highwatermark-checkpoint", chores.checkpoint_high_watermarks, config.high_watermark_checkpoint_ms),
        ):
            period = period_ms if period_ms > 0 else ONCE  # as Kafka treats a period of 0
            self._tasks.append(self._scheduler.schedule(name, task, config.initial_task_delay_ms, period))
        # Snapshots are loaded without expired producers, so the first check can wait for a whole period. (But a
        # producer whose records have old timestamps counts as idle from its first record on.)
        self._tasks.append(
            self._scheduler.schedule(
                "PeriodicProducerExpirationCheck",
                chores.remove_expired_producers,
                config.producer_id_expiration_check_ms,
                config.producer_id_expiration_check_ms,
            )
        )
        self._deletion.start(config.initial_task_delay_ms)

    def begin_shutdown(self) -> None:
        """Stops the background work; a running task ends after its current log. Idempotent."""
        for task in self._tasks:
            task.cancel()
        self.chores.stop()
        self._deletion.stop()

    def shutdown(self, broker_epoch: int = -1) -> None:
        """Closes all logs, and writes a clean shutdown marker to each log directory where that succeeded."""
        self.begin_shutdown()
        live = self.log_dirs.live
        count = len(self.all_logs())
        logger.info("Flushing and closing %d logs in %d log directories", count, len(live))
        started_ns = self._clock.nanoseconds()
        progress = Progress(count, self._clock, lambda done, total: logger.info("Closed %d of %d logs", done, total))
        try:
            # One thread per directory: disks do not wait for each other.
            errors = run_jobs(
                [partial(self._close_logs, log_dir, broker_epoch, progress) for log_dir in live], len(live), "log-dir"
            )
            if errors:
                raise errors[0]
            logger.info("Closed %d logs in %d ms", count, (self._clock.nanoseconds() - started_ns) // 1_000_000)
        finally:
            # Release the directory locks even after a failure.
            self.log_dirs.close()
            self.failure_channel.close()

    def resize_recovery_threads(self, threads: int) -> None:
        """Sets how many threads recover the logs of each directory at startup; at least as many close them."""
        self.recovery_threads_per_data_dir = threads

    def _close_logs(self, log_dir: LogDir, broker_epoch: int, progress: Progress) -> None:
        def close(log: UnifiedLog) -> None:
            log.flush(force_flush_active_segment=True)
            log.close()

        logs = [log for log in self.all_logs() if log.parent_dir == log_dir.path]
        errors = run_jobs(
            [partial(close, log) for log in logs],
            max(CLOSING_THREADS, self.recovery_threads_per_data_dir),
            f"log-closing-{log_dir.path}",
            progress,
        )
        for error in errors:
            logger.warning("a log in %s could not be closed: %s", log_dir.path, error)
        if errors or self.failure_channel.has_offline_log_dir(log_dir.path):
            return
        self.chores.checkpoint(log_dir)
        if log_dir.path not in self._incomplete:
            try:
                with log_dir.guard.watch("writing the marker of a clean shutdown"):
                    log_dir.clean_shutdown_file.write(broker_epoch)
            except KafkaStorageError as error:
                logger.warning("the next start will recover the logs in %s: %s", log_dir.path, error)

    def broker_epoch_of_clean_shutdown(self) -> int | None:
        """Returns the broker epoch of the last clean shutdown; None if the last shutdown was not clean.

        Call it before `startup`, which removes the markers. All directories must agree.
        """
        if self.log_dirs.offline_paths:
            return None
        epochs = {log_dir.clean_shutdown_file.read() for log_dir in self.log_dirs.live}
        return epochs.pop() if len(epochs) == 1 else None

    # Truncating

    def truncate_to(self, offsets: Mapping[TopicPartition, int], *, is_future: bool = False) -> None:
        """Truncates logs, and checkpoints the recovery points.

        Without that, a crash could leave a recovery point beyond records that were appended after the truncation.
        """
        changed: set[Path] = set()
        for partition, offset in offsets.items():
            log = self.get_log(partition, is_future=is_future)
            if log is None:
                continue
            stop_cleaner = not is_future and offset < log.active_segment.base_offset
            if stop_cleaner:
                self._cleaner.abort_and_pause_cleaning(partition)
            try:
                if log.truncate_to(offset):
                    changed.add(log.parent_dir)
                if stop_cleaner:
                    self._cleaner.maybe_truncate_checkpoint(log.parent_dir, partition, log.active_segment.base_offset)
            finally:
                if stop_cleaner:
                    self._cleaner.resume_cleaning((partition,))
        for path in changed:
            self.chores.checkpoint_recovery_points_in(path)

    def truncate_fully_and_start_at(
        self, partition: TopicPartition, offset: int, *, is_future: bool = False, log_start_offset: int | None = None
    ) -> None:
        """Removes all records of a log; its next record gets this offset."""
        log = self.get_log(partition, is_future=is_future)
        if log is None:
            return
        if not is_future:
            self._cleaner.abort_and_pause_cleaning(partition)
        try:
            log.truncate_fully_and_start_at(offset, log_start_offset)
            if not is_future:
                self._cleaner.maybe_truncate_checkpoint(log.parent_dir, partition, log.active_segment.base_offset)
        finally:
            if not is_future:
                self._cleaner.resume_cleaning((partition,))
        self.chores.checkpoint_recovery_points_in(log.parent_dir)

    # Moving

    def replace_current_with_future_log(self, partition: TopicPartition) -> None:
        """Replaces the current log by the future log, which has caught up, and deletes the original."""
        with self._lock:
            current, future = self._current.get(partition), self._future.get(partition)
            if current is None or future is None:
                missing = "current" if current is None else "future"
                raise KafkaStorageError(f"The {missing} log of {partition} is offline")
            future.rename_dir(log_dir_name(partition))
            future.watermarks.update_high_watermark(current.high_watermark)
            del self._future[partition]
            self._current[partition] = future
            self._count_out(current)
            self._cleaner.alter_checkpoint_dir(partition, current.parent_dir, future.parent_dir)
            self._cleaner.resume_cleaning((partition,))
            try:
                current.rename_dir(log_delete_dir_name(partition))
                current.close()
                self._deletion.add(current)
            except KafkaStorageError:
                current.close_handlers()  # no table refers to the log any more
                raise
        logger.info("the log of %s is in %s now", partition, future.directory)
        self.chores.checkpoint_in(current.parent_dir)

    # Deleting

    def async_delete(
        self, partition: TopicPartition, *, is_future: bool = False, is_stray: bool = False, checkpoint: bool = True
    ) -> UnifiedLog | None:
        """Removes a log; its files are deleted after a delay. Returns the log, or None if there is none.

        With `is_stray`, the files are kept under another name. Raises `KafkaStorageError` if the log may be in an
        offline directory.
        """
        with self._lock:
            log = (self._future if is_future else self._current).pop(partition, None)
            offline_in = self._delete_offline_log(partition, is_stray) if log is None else None
            if log is not None:
                self._count_out(log)
        if log is None:
            if offline_in is not None:
                # At once: a new log of that name must not start with the offsets of this one.
                self.chores.checkpoint_in(offline_in)
            return None
        if not is_future:
            self._cleaner.abort_cleaning(partition)
            if checkpoint:
                self._cleaner.update_checkpoints(log.parent_dir, partition)
        else:
            self._cleaner.resume_cleaning((partition,))
        try:
            log_dir = self.log_dirs.get(log.parent_dir)
            if is_stray and log_dir is not None:
                log_dir.keep_log_start_offset(log.directory, partition, log.log_start_offset)
            log.rename_dir(log_stray_dir_name(partition) if is_stray else log_delete_dir_name(partition))
            if is_stray:
                log.close()
        except KafkaStorageError:
            log.close_handlers()  # no table refers to the log any more
            raise
        if is_stray:
            logger.warning("the log of %s should not be here, and is %s now", partition, log.directory)
        else:
            self._deletion.add(log)
            logger.info("the log of %s is going to be deleted, and is %s now", partition, log.directory)
        if checkpoint:
            self.chores.checkpoint_in(log.parent_dir)
        return log

    def _delete_offline_log(self, partition: TopicPartition, is_stray: bool) -> Path | None:
        """Renames the directory of a log that could not be opened; returns its log directory, if there was one."""
        offline = self._offline.get(partition)
        log_dir = None if offline is None else self.log_dirs.get(offline.directory.parent)
        if offline is not None and log_dir is not None:
            del self._offline[partition]
            name = log_stray_dir_name(partition) if is_stray else log_delete_dir_name(partition)
            renamed = offline.directory.with_name(name)
            log_start_offset = offline.checkpoints.get(LOG_START_OFFSET_CHECKPOINT_FILE)
            if is_stray and log_start_offset is not None:
                log_dir.keep_log_start_offset(offline.directory, partition, log_start_offset)
            log_dir.rename(offline.directory, renamed)
            if not is_stray:
                self._deletion.add_directory(renamed, log_dir.guard)
            return log_dir.path
        if self.offline_log_dirs:
            raise KafkaStorageError(
                f"The log of {partition} cannot be deleted, as it may be in a log directory that is offline: "
                f"{', '.join(map(str, self.offline_log_dirs))}"
            )
        return None

    def async_delete_all(
        self,
        partitions: Iterable[TopicPartition],
        *,
        is_stray: bool = False,
        on_error: Callable[[TopicPartition, KafkaStorageError], object],
    ) -> None:
        """Calls `async_delete` for the current and future logs of many partitions, with one checkpoint at the end."""
        changed: set[Path] = set()
        for partition in partitions:
            try:
                for is_future in (False, True):
                    log = self.get_log(partition, is_future=is_future)
                    if log is not None or not is_future:
                        deleted = self.async_delete(partition, is_future=is_future, is_stray=is_stray, checkpoint=False)
                        if deleted is not None:
                            changed.add(deleted.parent_dir)
            except KafkaStorageError as error:
                on_error(partition, error)
        for path in changed:
            self._cleaner.update_checkpoints(path)
            self.chores.checkpoint_in(path)

    # Disk failures

    def handle_log_dir_failure(self, path: Path) -> list[TopicPartition]:
        """Takes a log directory and its logs offline; returns the partitions that went offline.

        Raises `FatalExitError` if it was the last live directory.
        """
        with self._lock:
            if self.log_dirs.take_offline(path) is None:
                return []
            self._cleaner.handle_log_dir_failure(path)
            gone: list[TopicPartition] = []
            for logs in (self._current, self._future):
                for partition, log in list(logs.items()):
                    if log.parent_dir == path:
                        del logs[partition]
                        self._count_out(log)
                        log.close_handlers()
                        gone.append(partition)
                        if logs is self._future:
                            self._cleaner.resume_cleaning((partition,))
            is_last = not self.log_dirs.live
        self.paces.of(path).forget()
        logger.warning("log directory %s is offline, and with it the logs of %s", path, ", ".join(map(str, gone)))
        if is_last:
            # All files are closed first, because an embedded broker must not end its host process.
            raise FatalExitError(1, f"all log directories have failed: {', '.join(map(str, self.log_dirs.configured))}")
        return gone
