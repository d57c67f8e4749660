"""Keeps the logs of a broker by partition, and creates new ones."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from barnabas.common.clock import Clock
from barnabas.common.errors import KafkaStorageError
from barnabas.common.identifiers import Uuid
from barnabas.common.scheduler import Scheduler
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.cleaner.cleaner_hooks import CleanerHooks, NoCleaner
from barnabas.log.config.log_config import LogConfig
from barnabas.log.dirs.log_dir_failure import LogDirFailureChannel, LogDirGuard
from barnabas.log.dirs.log_dir_names import log_dir_name, log_future_dir_name
from barnabas.log.dirs.log_dir_pace import LogDirPaces
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.log.dirs.meta_properties import is_reserved_directory_id
from barnabas.log.log_context import LogContext
from barnabas.log.manager.log_manager_config import LogManagerConfig
from barnabas.log.manager.log_startup import DAMAGED_LOG_ERRORS, OfflineLog
from barnabas.log.segment.file_handle import DATA_DIR_MODE, ensure_spare_descriptors
from barnabas.log.storage_errors import disk_access
from barnabas.log.unified_log import UnifiedLog

logger = logging.getLogger(__name__)

SPARE_DESCRIPTORS: Final = 16
"""File descriptors reserved for existing logs, which need them to roll, or even to read an index."""

TopicOverrides = Callable[[str], Mapping[str, Any]]
"""Returns the settings that a topic overrides."""


def no_overrides(_: str) -> Mapping[str, Any]:
    """Returns no overrides."""
    return {}


class LogRegistry:
    """The logs of a broker by partition, and their configuration.

    Logs are in several **log directories**, one for each disk. A new log is created in the directory with the fewest
    logs, unless a preferred directory was set.
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
    ) -> None:
        """Creates, checks and locks the log directories; see `LogDirs` for the errors."""
        self.failure_channel = LogDirFailureChannel(clock) if failure_channel is None else failure_channel
        self._config = config
        self._topic_overrides = topic_overrides
        self._cleaner: CleanerHooks = NoCleaner() if cleaner is None else cleaner
        self.paces = LogDirPaces(clock)
        """Tracks which log directories are slow."""
        self._context = LogContext(
            clock,
            scheduler,
            self.failure_channel,
            config.producer_state,
            config.max_transaction_timeout_ms,
            paces=self.paces,
        )
        self._topic_defaults = config.topic_defaults
        self._default_log_config = LogConfig.from_properties({}, config.topic_defaults)
        self.log_dirs = LogDirs(
            log_dirs, self.failure_channel, self.paces, cluster_id=config.cluster_id, node_id=config.node_id
        )
        self._lock = threading.Lock()
        """Guards the tables below, and the directories of logs being created, renamed or taken offline. The lock of a
        log is taken inside it, never the other way round. Looking a log up takes no lock."""
        self._current: dict[TopicPartition, UnifiedLog] = {}
        self._future: dict[TopicPartition, UnifiedLog] = {}
        self._offline: dict[TopicPartition, OfflineLog] = {}
        self._preferred: dict[TopicPartition, Path] = {}
        """The log directories in which logs are to be created, or to which they are to be moved."""
        self._log_counts: Counter[Path] = Counter()
        """The number of current and future logs in each log directory."""
        self._by_topic: dict[str, set[UnifiedLog]] = {}
        """The current and future logs of each topic."""

    # Lookup

    def get_log(self, partition: TopicPartition, *, is_future: bool = False) -> UnifiedLog | None:
        return (self._future if is_future else self._current).get(partition)

    def all_logs(self) -> list[UnifiedLog]:
        return [*self._current.values(), *self._future.values()]

    def current_logs(self) -> dict[TopicPartition, UnifiedLog]:
        return dict(self._current)

    def logs_in_dir(self, path: Path) -> list[UnifiedLog]:
        return [log for log in self.all_logs() if log.parent_dir == path]

    # Changes of the tables: the lock must be held

    def _count_in(self, log: UnifiedLog) -> None:
        self._log_counts[log.parent_dir] += 1
        self._by_topic.setdefault(log.topic_partition.topic, set()).add(log)

    def _count_out(self, log: UnifiedLog) -> None:
        self._log_counts[log.parent_dir] -= 1
        logs = self._by_topic[log.topic_partition.topic]
        logs.remove(log)
        if not logs:
            del self._by_topic[log.topic_partition.topic]

    @property
    def offline_log_dirs(self) -> tuple[Path, ...]:
        return self.log_dirs.offline_paths

    @property
    def offline_logs(self) -> dict[TopicPartition, OfflineLog]:
        """Logs that could not be opened at startup."""
        return dict(self._offline)

    # Configuration

    def log_config(self, topic: str) -> LogConfig:
        """Returns the configuration of a topic's logs."""
        overrides = self._topic_overrides(topic)
        if not overrides:
            return self._default_log_config  # shared, because most topics have no overrides
        return LogConfig.from_properties(overrides, self._topic_defaults)

    def topic_config_changed(self, topic: str) -> None:
        """Applies changed settings of a topic."""
        with self._lock:
            logs = list(self._by_topic.get(topic, ()))
        self._update_config(topic, logs)

    def _update_config(self, topic: str, logs: Sequence[UnifiedLog]) -> None:
        config = self.log_config(topic)
        for log in logs:
            old = log.update_config(config)
            if old.compact and not config.compact:
                self._cleaner.abort_cleaning(log.topic_partition)

    def topic_defaults_changed(self, topic_defaults: Mapping[str, Any]) -> None:
        """Applies changed defaults for all topics."""
        self._topic_defaults = topic_defaults
        self._default_log_config = LogConfig.from_properties({}, topic_defaults)
        with self._lock:
            by_topic = [(topic, list(logs)) for topic, logs in self._by_topic.items()]
        for topic, logs in by_topic:
            self._update_config(topic, logs)

    # Creation

    def prefer_log_dir(self, partition: TopicPartition, path: Path) -> None:
        """Sets the directory in which a log is to be created, or to which it is to be moved, unless it is there."""
        with self._lock:
            logs = (self._current.get(partition), self._future.get(partition))
            if not any(log is not None and log.parent_dir == path for log in logs):
                self._preferred[partition] = path

    def get_or_create_log(
        self,
        partition: TopicPartition,
        *,
        is_new: bool = False,
        is_future: bool = False,
        topic_id: Uuid | None = None,
        target_directory_id: Uuid | None = None,
    ) -> UnifiedLog:
        """Returns the log of a partition, and creates it if it does not exist.

        Without `is_new`, a missing log may be in an offline directory. Then `KafkaStorageError` is raised, because a
        new and empty log in its place would have lost all its records. Raises `InconsistentTopicIdError` if the log
        belongs to another topic with the same name.

        While there is a future log, the current one is not cleaned. Otherwise the copy would inherit the cleaner's
        checkpoint, although it may have been copied before the cleaning.
        """
        if is_future:
            self._cleaner.abort_and_pause_cleaning(partition)
        is_made = False
        try:
            with self._lock:
                logs = self._future if is_future else self._current
                log = logs.get(partition)
                if log is None:
                    log = logs[partition] = self._create(partition, is_new, is_future, topic_id, target_directory_id)
                    is_made = True
                    self._count_in(log)
                    self._preferred.pop(partition, None)
        finally:
            if is_future and not is_made:
                self._cleaner.resume_cleaning((partition,))
        if topic_id is not None:
            log.assign_topic_id(topic_id)
        return log

    def _create(
        self,
        partition: TopicPartition,
        is_new: bool,
        is_future: bool,
        topic_id: Uuid | None,
        target_directory_id: Uuid | None,
    ) -> UnifiedLog:
        offline = self._offline.get(partition)
        if offline is not None and not is_future:
            raise KafkaStorageError(f"The log of {partition} is offline: {offline.error}")
        if not is_new and self.offline_log_dirs:
            raise KafkaStorageError(
                f"The log of {partition} cannot be made, as it may be in a log directory that is offline: "
                f"{', '.join(map(str, self.offline_log_dirs))}"
            )
        preferred = self._preferred.get(partition)
        if preferred is None and target_directory_id is not None and not is_reserved_directory_id(target_directory_id):
            preferred = self.log_dirs.path_of(target_directory_id)
        if is_future:
            current = self._current.get(partition)
            if preferred is None or current is None or current.parent_dir == preferred:
                raise ValueError(
                    f"a future log of {partition} needs a log directory other than that of the current log"
                )
        name = log_future_dir_name(partition) if is_future else log_dir_name(partition)
        with disk_access("make", Path(name)):
            ensure_spare_descriptors(SPARE_DESCRIPTORS)
        directory = self._make_directory([preferred] if preferred is not None else self._next_log_dirs(), name)
        try:
            log = UnifiedLog.open(directory, self.log_config(partition.topic), self._context, topic_id=topic_id)
        except DAMAGED_LOG_ERRORS:
            raise
        except (KafkaStorageError, OSError) as error:
            LogDirGuard(self.failure_channel, directory.parent).reraise(f"making {directory}", error)
        logger.info("made the log of %s in %s", partition, directory)
        return log

    def _make_directory(self, candidates: list[Path], name: str) -> Path:
        """Creates the directory of a new log, in the first log directory where that succeeds."""
        for path in candidates:
            log_dir = self.log_dirs.get(path)
            if log_dir is None or self.failure_channel.has_offline_log_dir(path):
                continue
            directory = path / name
            try:
                with log_dir.guard.watch(f"making {directory}"), disk_access("make", directory):
                    directory.mkdir(DATA_DIR_MODE, exist_ok=True)
            except KafkaStorageError as error:
                logger.warning("%s", error)
                continue
            return directory
        raise KafkaStorageError(f"{name} cannot be made: no log directory is available")

    def _next_log_dirs(self) -> list[Path]:
        """Returns the log directories for a new log, except cordoned ones; those with the fewest logs first."""
        live = [path for path in self.log_dirs.live_paths if not self.is_cordoned(path)]
        return sorted(live, key=lambda path: self._log_counts[path])

    def is_cordoned(self, path: Path) -> bool:
        """Returns whether a log directory gets no new logs."""
        cordoned = self._config.cordoned_log_dirs
        return "*" in cordoned or str(path) in cordoned
