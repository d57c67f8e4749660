"""Tracks which logs are being cleaned or paused, and selects the next log to clean."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from barnabas.common.clock import Clock
from barnabas.common.dataclass import dataclass
from barnabas.common.errors import KafkaStorageError
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.cleaner.cleaner_errors import LogCleaningAbortedError, LogCleaningError
from barnabas.log.cleaner.cleaner_stats import PreCleanStats
from barnabas.log.cleaner.log_cleaner_checkpoints import LogCleanerCheckpoints
from barnabas.log.dirs.log_dir_failure import LogDirFailureChannel
from barnabas.log.storage_errors import is_disk_failure
from barnabas.log.unified_log import UnifiedLog
from barnabas.metrics.yammer.registry import KafkaMetricsGroup, MetricsRegistry

if TYPE_CHECKING:
    from barnabas.log.cleaner.log_to_clean import LogToClean

logger = logging.getLogger(__name__)

UNCLEANABLE_PARTITIONS_COUNT: Final = "uncleanable-partitions-count"
UNCLEANABLE_BYTES: Final = "uncleanable-bytes"
MAX_DIRTY_PERCENT: Final = "max-dirty-percent"
TIME_SINCE_LAST_RUN_MS: Final = "time-since-last-run-ms"

CurrentLogs: TypeAlias = Callable[[], Mapping[TopicPartition, UnifiedLog]]
"""Returns the current logs."""


class LogCleaning(Enum):
    """The state of a log that a thread works on."""

    IN_PROGRESS = "in progress"
    ABORTED = "aborted"
    """The cleaning is in progress, and a caller waits for its end."""


@dataclass(frozen=True, slots=True)
class LogCleaningPaused:
    """The log may not be cleaned until every pause has been resumed."""

    count: int


LogCleaningState: TypeAlias = LogCleaning | LogCleaningPaused


class LogCleanerManager:
    """Keeps the cleaning state of each partition, and selects the next log to clean.

    Most partitions have no state: any thread may start to clean them. ::

                      grab                       done
            (none) ---------> IN_PROGRESS -----------------> (none)
              |                    | abort
              | pause              v              done
              |                 ABORTED  --------------------+
              v                                              v
            Paused(1) <--- pause, resume ---> Paused(2) ...  Paused(1)
              | resume
              v
            (none)

    A caller that wants to truncate or delete a log calls `abort_and_pause_cleaning`. If the log is being cleaned, the
    caller waits: the cleaner thread calls `check_cleaning_aborted` again and again, stops with an error, and reports
    that it is done.

    A log that could not be cleaned for another reason than a disk failure (a damaged batch, for example) is
    *uncleanable* until the next start of the broker: a retry would fail again, and delay other logs.
    """

    def __init__(
        self,
        log_dirs: Iterable[Path],
        channel: LogDirFailureChannel,
        clock: Clock,
        metrics: MetricsRegistry,
    ) -> None:
        self._channel = channel
        self._clock = clock
        self._logs: CurrentLogs | None = None
        self._changed = threading.Condition()
        """Guards everything below; notified when states and checkpoints change. Checkpoint files are written while it
        is held. A log's lock may be taken inside it; the log manager's may be held outside, but is not taken inside."""
        self._states: dict[TopicPartition, LogCleaningState] = {}
        self._uncleanable: dict[Path, set[TopicPartition]] = {}
        self._checkpoints = LogCleanerCheckpoints(log_dirs, channel)
        self._dirtiest_ratio = 0.0
        self._last_run_ms = clock.milliseconds()
        self._metrics = KafkaMetricsGroup(metrics, "kafka.log", "LogCleanerManager")
        self._metric_dirs = self._checkpoints.log_dirs
        self._add_metrics()

    def attach(self, logs: CurrentLogs) -> None:
        """Sets the source of the current logs. Before that, no log is cleaned, and none counts as deleted."""
        with self._changed:
            self._logs = logs

    def _current_logs(self) -> Mapping[TopicPartition, UnifiedLog]:
        return {} if self._logs is None else self._logs()

    # Selection

    def grab_filthiest_compacted_log(self, stats: PreCleanStats) -> LogToClean | None:
        """Selects the log with the largest dirty ratio among those that are due, and marks it as in progress.

        Raises `LogCleaningError` for a log whose dirty ratio cannot be determined.
        """
        with self._changed:
            now_ms = self._last_run_ms = self._clock.milliseconds()
            clean_up_to = self._checkpoints.all_offsets()
            dirty = []
            for partition, log in self._current_logs().items():
                if self._is_free(partition, log):
                    found = self._look_at(partition, log, clean_up_to.get(partition), now_ms, stats)
                    if found is not None and found.total_bytes > 0:
                        dirty.append(found)
            self._dirtiest_ratio = max((each.cleanable_ratio for each in dirty), default=0.0)
            due = [each for each in dirty if each.is_due]
            if not due:
                return None
            stats.cleanable_partitions = len(due)
            filthiest = max(due, key=lambda each: each.cleanable_ratio)
            self._states[filthiest.partition] = LogCleaning.IN_PROGRESS
            return filthiest

    def _is_free(self, partition: TopicPartition, log: UnifiedLog) -> bool:
        return (
            log.config.compact
            and partition not in self._states
            and partition not in self._uncleanable.get(log.parent_dir, ())
            and not self._channel.has_offline_log_dir(log.parent_dir)
        )

    def _look_at(
        self, partition: TopicPartition, log: UnifiedLog, clean_up_to: int | None, now_ms: int, stats: PreCleanStats
    ) -> LogToClean | None:
        from barnabas.log.cleaner.log_to_clean import LogToClean, cleanable_offsets, max_compaction_delay_ms

        try:
            offsets = cleanable_offsets(log, clean_up_to, now_ms)
            if offsets.force_update_checkpoint:
                self._update_checkpoints(log.parent_dir, {partition: offsets.first_dirty_offset})
            delay_ms = max_compaction_delay_ms(log, offsets.first_dirty_offset, now_ms)
            stats.update_max_compaction_delay(delay_ms)
            return LogToClean.of(
                log,
                offsets.first_dirty_offset,
                offsets.first_uncleanable_dirty_offset,
                need_compaction_now=delay_ms > 0,
            )
        except Exception as error:
            if isinstance(error, KafkaStorageError) and not is_disk_failure(error):
                # It was closed a moment ago, or no file descriptor is available now.
                logger.debug("%s cannot be looked at for now: %s", partition, error)
                return None
            raise LogCleaningError(log, f"cannot tell how dirty {partition} is: {error}") from error

    def deletable_logs(self) -> dict[TopicPartition, UnifiedLog]:
        """Returns the compacted logs that no thread works on, and marks them as in progress until `done_deleting`.

        Without ``delete`` in the cleanup policy, retention does not apply. But even such a log can have segments before
        its log start offset, which must be deleted.
        """
        with self._changed:
            found = {partition: log for partition, log in self._current_logs().items() if self._is_free(partition, log)}
            self._states.update(dict.fromkeys(found, LogCleaning.IN_PROGRESS))
            return found

    def pause_cleaning_for_retention(self, logs: Mapping[TopicPartition, UnifiedLog]) -> list[TopicPartition]:
        """Pauses and returns those of the logs that are not compacted and that no thread works on.

        The pause is needed because the cleanup policy may change to ``compact`` while retention runs.
        """
        with self._changed:
            found = [
                partition for partition, log in logs.items() if not log.config.compact and partition not in self._states
            ]
            self._states.update(dict.fromkeys(found, LogCleaningPaused(1)))
            return found

    # Pausing

    def cleaning_state(self, partition: TopicPartition) -> LogCleaningState | None:
        with self._changed:
            return self._states.get(partition)

    def abort_and_pause_cleaning(self, partition: TopicPartition) -> None:
        """Aborts the cleaning of a log, waits for its end, and pauses cleaning until it is resumed."""
        with self._changed:
            self._abort_and_pause(partition)

    def abort_cleaning(self, partition: TopicPartition) -> None:
        """Aborts the cleaning of a log, and waits for its end."""
        with self._changed:
            self._abort_and_pause(partition)
            self._resume(partition)

    def resume_cleaning(self, partitions: Collection[TopicPartition]) -> None:
        """Removes one pause of each partition."""
        with self._changed:
            for partition in partitions:
                self._resume(partition)

    def _abort_and_pause(self, partition: TopicPartition) -> None:
        if self._states.get(partition) is LogCleaning.IN_PROGRESS:
            self._states[partition] = LogCleaning.ABORTED
            while self._states.get(partition) is LogCleaning.ABORTED:
                self._clock.wait(self._changed, None)
            return  # `_done` of the aborted cleaning has added the pause
        # A second caller that aborts the same cleaning has to wait for its end as well, and adds its own pause.
        while self._states.get(partition) is LogCleaning.ABORTED:
            self._clock.wait(self._changed, None)
        state = self._states.get(partition)
        self._states[partition] = LogCleaningPaused(state.count + 1 if isinstance(state, LogCleaningPaused) else 1)

    def _resume(self, partition: TopicPartition) -> None:
        state = self._states.get(partition)
        if not isinstance(state, LogCleaningPaused):
            raise RuntimeError(f"the cleaning of {partition} cannot be resumed: it is not paused, but {state}")
        if state.count > 1:
            self._states[partition] = LogCleaningPaused(state.count - 1)
        else:
            del self._states[partition]

    # For cleaner threads

    def check_cleaning_aborted(self, partition: TopicPartition) -> None:
        """Raises `LogCleaningAbortedError` if the cleaning of this log was aborted."""
        # Without the lock: this is called every few hundred kilobytes, and a small delay is acceptable.
        if self._states.get(partition) is LogCleaning.ABORTED:
            raise LogCleaningAbortedError(f"the cleaning of {partition} was aborted")

    def done_cleaning(self, partition: TopicPartition, log_dir: Path, end_offset: int) -> None:
        """Ends the cleaning of a log. Unless it was aborted, checkpoints that the log is clean up to `end_offset`."""
        with self._changed:
            if self._states.get(partition) is LogCleaning.IN_PROGRESS:
                self._update_checkpoints(log_dir, {partition: end_offset})
            self._done(partition)

    def done_deleting(self, partitions: Iterable[TopicPartition]) -> None:
        with self._changed:
            for partition in partitions:
                self._done(partition)

    def _done(self, partition: TopicPartition) -> None:
        match self._states.get(partition):
            case LogCleaning.IN_PROGRESS:
                del self._states[partition]
            case LogCleaning.ABORTED:
                self._states[partition] = LogCleaningPaused(1)
            case state:
                raise RuntimeError(f"the cleaning of {partition} cannot end: it is not in progress, but {state}")
        self._changed.notify_all()

    # Checkpoints

    def all_cleaner_checkpoints(self) -> dict[TopicPartition, int]:
        """Returns the offset up to which each log is clean."""
        with self._changed:
            return self._checkpoints.all_offsets()

    def update_checkpoints(self, log_dir: Path, partition_to_remove: TopicPartition | None = None) -> None:
        """Writes a checkpoint without deleted logs and without `partition_to_remove`."""
        with self._changed:
            self._update_checkpoints(log_dir, remove=partition_to_remove)

    def maybe_truncate_checkpoint(self, log_dir: Path, partition: TopicPartition, offset: int) -> None:
        """Lowers the checkpoint after a truncation: records appended from this offset on are dirty."""
        with self._changed:
            clean_up_to = self._checkpoints.get(log_dir, partition)
            if clean_up_to is not None and clean_up_to > offset:
                self._update_checkpoints(log_dir, {partition: offset})

    def alter_checkpoint_dir(self, partition: TopicPartition, source: Path, destination: Path) -> None:
        """Moves the checkpoint of a log that has moved to another log directory."""
        with self._changed:
            clean_up_to = self._checkpoints.get(source, partition)
            if clean_up_to is not None:
                self._update_checkpoints(source, remove=partition)
                self._update_checkpoints(destination, {partition: clean_up_to})
            if partition in self._uncleanable.get(source, ()):
                self._uncleanable[source].remove(partition)
                self._uncleanable.setdefault(destination, set()).add(partition)

    def await_cleaned(self, partition: TopicPartition, offset: int, max_wait_ms: float) -> bool:
        """For tests: waits until the log is clean up to an offset; returns whether it is."""
        deadline = self._clock.nanoseconds() + int(max_wait_ms * 1_000_000)
        with self._changed:
            while self._checkpoints.all_offsets().get(partition, -1) < offset:
                remaining = deadline - self._clock.nanoseconds()
                if remaining <= 0:
                    return False
                self._clock.wait(self._changed, remaining / 1_000_000)
            return True

    def _update_checkpoints(
        self,
        log_dir: Path,
        changes: Mapping[TopicPartition, int] | None = None,
        *,
        remove: TopicPartition | None = None,
    ) -> None:
        logs = self._logs
        if logs is None:
            self._checkpoints.update(log_dir, changes, remove=remove)
        else:
            self._checkpoints.update(log_dir, changes, remove=remove, is_known=logs().__contains__)
        self._changed.notify_all()

    # Failures

    def handle_log_dir_failure(self, log_dir: Path) -> None:
        """Drops the checkpoints of an offline log directory."""
        logger.warning("the logs in %s are not cleaned any more", log_dir)
        with self._changed:
            self._checkpoints.drop(log_dir)

    def mark_partition_uncleanable(self, log_dir: Path, partition: TopicPartition) -> None:
        """Marks a log as uncleanable until the next start."""
        with self._changed:
            self._uncleanable.setdefault(log_dir, set()).add(partition)

    def uncleanable_partitions(self, log_dir: Path) -> frozenset[TopicPartition]:
        with self._changed:
            return frozenset(self._uncleanable.get(log_dir, ()))

    def maintain_uncleanable_partitions(self) -> None:
        """Removes deleted partitions from the uncleanable ones, because a new topic may have the same name."""
        with self._changed:
            if self._uncleanable:
                logs = self._current_logs()
                self._uncleanable = {
                    log_dir: left
                    for log_dir, partitions in self._uncleanable.items()
                    if (left := {partition for partition in partitions if partition in logs})
                }

    # Metrics

    def _add_metrics(self) -> None:
        for log_dir in self._metric_dirs:
            tags = {"logDirectory": str(log_dir)}
            self._metrics.new_gauge(UNCLEANABLE_PARTITIONS_COUNT, _of(self._uncleanable_count, log_dir), tags)
            self._metrics.new_gauge(UNCLEANABLE_BYTES, _of(self._uncleanable_bytes, log_dir), tags)
        self._metrics.new_gauge(MAX_DIRTY_PERCENT, lambda: int(100 * self._dirtiest_ratio))
        self._metrics.new_gauge(TIME_SINCE_LAST_RUN_MS, lambda: self._clock.milliseconds() - self._last_run_ms)

    def remove_metrics(self) -> None:
        for log_dir in self._metric_dirs:
            for name in (UNCLEANABLE_PARTITIONS_COUNT, UNCLEANABLE_BYTES):
                self._metrics.remove_metric(name, {"logDirectory": str(log_dir)})
        for name in (MAX_DIRTY_PERCENT, TIME_SINCE_LAST_RUN_MS):
            self._metrics.remove_metric(name)

    def _uncleanable_count(self, log_dir: Path) -> int:
        return len(self.uncleanable_partitions(log_dir))

    def _uncleanable_bytes(self, log_dir: Path) -> int:
        """Returns the size of the dirty parts of uncleanable logs."""
        from barnabas.log.cleaner.log_to_clean import cleanable_offsets, cleanable_part

        with self._changed:
            clean_up_to = self._checkpoints.all_offsets()
            logs = self._current_logs()
            now_ms = self._clock.milliseconds()
            total = 0
            for partition in self._uncleanable.get(log_dir, ()):
                log = logs.get(partition)
                if log is not None:
                    offsets = cleanable_offsets(log, clean_up_to.get(partition), now_ms)
                    total += cleanable_part(log, offsets.first_dirty_offset, offsets.first_uncleanable_dirty_offset)[1]
            return total


def _of(count: Callable[[Path], int], log_dir: Path) -> Callable[[], int]:
    return lambda: count(log_dir)
