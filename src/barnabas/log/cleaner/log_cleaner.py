"""The log cleaner: compacts the logs of a broker in the background."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.config_def import ConfigError
from barnabas.common.errors import KafkaStorageError
from barnabas.common.shutdownable_thread import ShutdownableThread
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.cleaner.cleaner import Cleaner
from barnabas.log.cleaner.cleaner_config import CleanerConfig
from barnabas.log.cleaner.cleaner_errors import CleanerShutdownError, LogCleaningAbortedError, LogCleaningError
from barnabas.log.cleaner.cleaner_offset_map import OffsetMap
from barnabas.log.cleaner.cleaner_stats import CleanerStats, PreCleanStats
from barnabas.log.cleaner.cleaner_throttler import CleanerThrottler
from barnabas.log.cleaner.log_cleaner_manager import LogCleanerManager
from barnabas.log.dirs.log_dir_failure import LogDirFailureChannel, LogDirGuard
from barnabas.log.unified_log import UnifiedLog
from barnabas.metrics.yammer.registry import KafkaMetricsGroup, MetricsRegistry

if TYPE_CHECKING:
    from barnabas.log.cleaner.log_to_clean import LogToClean

logger = logging.getLogger(__name__)

MAX_BUFFER_UTILIZATION_PERCENT: Final = "max-buffer-utilization-percent"
CLEANER_RECOPY_PERCENT: Final = "cleaner-recopy-percent"
MAX_CLEAN_TIME_SECS: Final = "max-clean-time-secs"
MAX_COMPACTION_DELAY_SECS: Final = "max-compaction-delay-secs"
DEAD_THREAD_COUNT: Final = "DeadThreadCount"


class CleanableLogs(Protocol):
    """Provides the current logs; implemented by the log manager."""

    def current_logs(self) -> Mapping[TopicPartition, UnifiedLog]: ...


class LogCleaner:
    """Compacts logs with ``cleanup.policy=compact``: keeps the last record of each key, and few others.

    A log has a clean part, in which each key is unique, and a dirty part after it. Threads look for the log with the
    largest dirty ratio, clean it (see `Cleaner`), and look again. If none is dirty enough, they wait for
    ``log.cleaner.backoff.ms``. Only they delete old segments of compacted logs.

    Usage::

        cleaner = LogCleaner(CleanerConfig(), log_dirs, failure_channel, clock, metrics=metrics)
        manager = LogManager(log_dirs, ..., failure_channel=failure_channel, cleaner=cleaner)
        manager.startup()
        cleaner.startup(manager)
        ...
        cleaner.shutdown()
        manager.shutdown()

    It implements the `CleanerHooks` of a log manager through a `LogCleanerManager`.
    """

    def __init__(
        self,
        config: CleanerConfig,
        log_dirs: Iterable[Path],
        failure_channel: LogDirFailureChannel,
        clock: Clock = SYSTEM_CLOCK,
        *,
        metrics: MetricsRegistry | None = None,
    ) -> None:
        registry = MetricsRegistry(clock) if metrics is None else metrics
        self._config = config
        self._failure_channel = failure_channel
        self._clock = clock
        self.manager = LogCleanerManager((path.absolute() for path in log_dirs), failure_channel, clock, registry)
        self._throttler_metrics = KafkaMetricsGroup(registry, "kafka.utils", "Throttler")
        self.throttler = CleanerThrottler(
            config.max_io_bytes_per_second, clock, self._throttler_metrics.new_meter("cleaner-io", "bytes")
        )
        self._lock = threading.Lock()
        """Guards the list of threads, and serializes startup, reconfiguration and shutdown. It is held while threads
        are joined; they never take it."""
        self._threads: tuple[CleanerThread, ...] = ()
        self._metrics = KafkaMetricsGroup(registry, "kafka.log", "LogCleaner")
        self._add_metrics()

    @property
    def config(self) -> CleanerConfig:
        return self._config

    @property
    def threads(self) -> tuple[CleanerThread, ...]:
        return self._threads

    # Start and stop

    def startup(self, logs: CleanableLogs) -> None:
        """Starts to clean the logs, which must be open."""
        with self._lock:
            self.manager.attach(logs.current_logs)
            self._start_threads()

    def shutdown(self) -> None:
        """Stops all threads and waits for them. A cleaning in progress is aborted, and its log is unchanged."""
        with self._lock:
            self._stop_threads()
            for name in (
                MAX_BUFFER_UTILIZATION_PERCENT,
                CLEANER_RECOPY_PERCENT,
                MAX_CLEAN_TIME_SECS,
                MAX_COMPACTION_DELAY_SECS,
                DEAD_THREAD_COUNT,
            ):
                self._metrics.remove_metric(name)
            self._throttler_metrics.remove_metric("cleaner-io")
            self.manager.remove_metrics()

    def new_thread(self, number: int) -> CleanerThread:
        """Creates a thread without starting it: tests run single rounds of its work."""
        return CleanerThread(number, self._config, self.manager, self.throttler, self._failure_channel, self._clock)

    def _start_threads(self) -> None:
        if self._threads:
            raise RuntimeError("the cleaner has been started already")
        logger.info("starting the cleaner with %d threads", self._config.num_threads)
        self._threads = tuple(self.new_thread(number) for number in range(self._config.num_threads))
        for thread in self._threads:
            thread.start()

    def _stop_threads(self) -> None:
        for thread in self._threads:
            thread.initiate_shutdown()
        for thread in self._threads:
            thread.await_shutdown()
        self._threads = ()

    # Configuration

    def validate_reconfiguration(self, new: CleanerConfig) -> None:
        """Raises `ConfigError` if the number of threads changes too much at once."""
        threads, current = new.num_threads, self._config.num_threads
        if threads < 1:
            reason = "it must be at least 1"
        elif threads < current // 2:
            reason = f"it cannot become less than half of what it is, {current}"
        elif threads > current * 2:
            reason = f"it cannot become more than twice what it is, {current}"
        else:
            return
        raise ConfigError.invalid("log.cleaner.threads", threads, reason)

    def reconfigure(self, new: CleanerConfig) -> None:
        """Applies new settings. If the cleaner runs, all threads, including dead ones, are replaced."""
        with self._lock:
            self._config = new
            self.throttler.desired_rate_per_second = new.max_io_bytes_per_second
            if self._threads:
                self._stop_threads()
                self._start_threads()

    # CleanerHooks, for the log manager

    def pause_cleaning_for_retention(self, logs: Mapping[TopicPartition, UnifiedLog]) -> list[TopicPartition]:
        return self.manager.pause_cleaning_for_retention(logs)

    def abort_and_pause_cleaning(self, partition: TopicPartition) -> None:
        self.manager.abort_and_pause_cleaning(partition)

    def resume_cleaning(self, partitions: Collection[TopicPartition]) -> None:
        self.manager.resume_cleaning(partitions)

    def abort_cleaning(self, partition: TopicPartition) -> None:
        self.manager.abort_cleaning(partition)

    def maybe_truncate_checkpoint(self, log_dir: Path, partition: TopicPartition, offset: int) -> None:
        self.manager.maybe_truncate_checkpoint(log_dir, partition, offset)

    def update_checkpoints(self, log_dir: Path, partition_to_remove: TopicPartition | None = None) -> None:
        self.manager.update_checkpoints(log_dir, partition_to_remove)

    def alter_checkpoint_dir(self, partition: TopicPartition, source: Path, destination: Path) -> None:
        self.manager.alter_checkpoint_dir(partition, source, destination)

    def handle_log_dir_failure(self, log_dir: Path) -> None:
        self.manager.handle_log_dir_failure(log_dir)

    def await_cleaned(self, partition: TopicPartition, offset: int, max_wait_ms: float = 60_000) -> bool:
        """For tests: waits until the log is clean up to an offset; returns whether it is."""
        return self.manager.await_cleaned(partition, offset, max_wait_ms)

    # Metrics

    @property
    def dead_thread_count(self) -> int:
        """The number of threads that ended unexpectedly."""
        return sum(thread.is_thread_failed() for thread in self._threads)

    def _add_metrics(self) -> None:
        add = self._metrics.new_gauge
        add(
            MAX_BUFFER_UTILIZATION_PERCENT,
            lambda: int(100 * self._largest(lambda thread: thread.last_stats.buffer_utilization)),
        )
        add(CLEANER_RECOPY_PERCENT, self._recopy_percent)
        add(MAX_CLEAN_TIME_SECS, lambda: int(self._largest(lambda thread: thread.last_stats.elapsed_seconds)))
        add(
            MAX_COMPACTION_DELAY_SECS,
            lambda: int(self._largest(lambda thread: thread.last_pre_clean_stats.max_compaction_delay_ms) / 1000),
        )
        add(DEAD_THREAD_COUNT, lambda: self.dead_thread_count)

    def _largest(self, figure: Callable[[CleanerThread], float]) -> float:
        return max(map(figure, self._threads), default=0.0)

    def _recopy_percent(self) -> int:
        stats = [thread.last_stats for thread in self._threads]
        written, read = sum(each.bytes_written for each in stats), sum(each.bytes_read for each in stats)
        return int(100 * written / max(read, 1))


class CleanerThread(ShutdownableThread):
    """``kafka-log-cleaner-thread-N``: cleans the dirtiest log, again and again.

    It survives the failure of a log. After a disk error, the directory goes offline. After any other error, such as a
    damaged batch, the partition is marked as uncleanable.
    """

    def __init__(
        self,
        number: int,
        config: CleanerConfig,
        manager: LogCleanerManager,
        throttler: CleanerThrottler,
        failure_channel: LogDirFailureChannel,
        clock: Clock,
    ) -> None:
        super().__init__(f"kafka-log-cleaner-thread-{number}", clock=clock)
        self._backoff_ms = config.backoff_ms
        self._manager = manager
        self._failure_channel = failure_channel
        self._cleaner = Cleaner(
            OffsetMap(config.dedupe_buffer_size_per_thread),
            clock,
            io_buffer_size=config.io_buffer_size_per_thread,
            load_factor=config.dedupe_buffer_load_factor,
            check_done=self._check_done,
            throttle=lambda size: throttler.maybe_throttle(size, self.pause),
        )
        self.last_stats = CleanerStats(clock)
        self.last_pre_clean_stats = PreCleanStats()

    def do_work(self) -> None:
        if not self.try_clean_filthiest_log():
            self.pause(self._backoff_ms)
        self._manager.maintain_uncleanable_partitions()

    def try_clean_filthiest_log(self) -> bool:
        """Cleans a log if one is dirty enough, and deletes old segments; returns whether one was cleaned."""
        try:
            return self._clean_filthiest_log()
        except LogCleaningError as error:
            self._give_up(error.log, error)
            return False

    def _clean_filthiest_log(self) -> bool:
        stats = PreCleanStats()
        cleanable = self._manager.grab_filthiest_compacted_log(stats)
        if cleanable is not None:
            self.last_pre_clean_stats = stats
            self._clean(cleanable)
        self._delete_old_segments()
        return cleanable is not None

    def _clean(self, cleanable: LogToClean) -> None:
        log, partition = cleanable.log, cleanable.partition
        log_dir = log.parent_dir
        end_offset = cleanable.first_dirty_offset
        try:
            with LogDirGuard(self._failure_channel, log_dir).watch(f"cleaning {partition}"):
                end_offset, stats = self._cleaner.clean(cleanable)
            self._note(cleanable, end_offset, stats)
        except LogCleaningAbortedError as error:
            logger.info("%s", error)
        except KafkaStorageError as error:
            # Either the disk has failed, and the directory goes offline, or the log was closed.
            logger.warning("%s could not be cleaned: %s", partition, error)
        except CleanerShutdownError:
            raise
        except Exception as error:
            raise LogCleaningError(log, f"cleaning {partition} failed: {error}") from error
        finally:
            self._manager.done_cleaning(partition, log_dir, end_offset)

    def _delete_old_segments(self) -> None:
        logs = self._manager.deletable_logs()
        try:
            while logs:
                partition, log = logs.popitem()
                try:
                    log.delete_old_segments()
                except KafkaStorageError as error:
                    logger.warning("%s: old segments could not be deleted: %s", partition, error)
                except Exception as error:  # noqa: BLE001 - the other logs have their turn in any case
                    self._give_up(log, error)
                finally:
                    self._manager.done_deleting((partition,))
        finally:
            self._manager.done_deleting(logs)

    def _give_up(self, log: UnifiedLog, error: Exception) -> None:
        logger.error("%s is not cleaned any more before the next start: %s", log.topic_partition, error, exc_info=error)
        self._manager.mark_partition_uncleanable(log.parent_dir, log.topic_partition)

    def _check_done(self, partition: TopicPartition) -> None:
        if not self.is_running():
            raise CleanerShutdownError(f"{self.name} was asked to end")
        self._manager.check_cleaning_aborted(partition)

    def _note(self, cleanable: LogToClean, end_offset: int, stats: CleanerStats) -> None:
        self.last_stats = stats
        logger.info(
            "%s: cleaned %s from offset %d up to %d: %s",
            self.name,
            cleanable.partition,
            cleanable.first_dirty_offset,
            end_offset,
            stats,
        )
        found = self.last_pre_clean_stats
        if found.delayed_partitions:
            logger.info(
                "logs that can be cleaned: %d; late: %d, by at most %d ms",
                found.cleanable_partitions,
                found.delayed_partitions,
                found.max_compaction_delay_ms,
            )
        if stats.invalid_messages_read:
            logger.warning("%s: dropped %d records without a key", cleanable.partition, stats.invalid_messages_read)
