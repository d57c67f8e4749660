"""The log directories of a broker: their state and their checkpoints."""

from __future__ import annotations

import logging
import os
import stat
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from barnabas.common.errors import KafkaStorageError, LogDirNotFoundError
from barnabas.common.identifiers import Uuid
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.dirs.checkpoint_file import CorruptCheckpointError
from barnabas.log.dirs.clean_shutdown_file import CleanShutdownFile
from barnabas.log.dirs.durable_file import make_data_dir, sync_directory
from barnabas.log.dirs.log_dir_failure import LogDirFailureChannel, LogDirGuard
from barnabas.log.dirs.log_dir_lock import LOCK_FILE, LogDirLock
from barnabas.log.dirs.log_dir_names import parse_topic_partition_name
from barnabas.log.dirs.log_dir_pace import LogDirPace, LogDirPaces
from barnabas.log.dirs.meta_properties_ensemble import MetaPropertiesEnsemble
from barnabas.log.dirs.offset_checkpoint import (
    HIGH_WATERMARK_CHECKPOINT_FILE,
    LOG_START_OFFSET_CHECKPOINT_FILE,
    RECOVERY_POINT_CHECKPOINT_FILE,
    OffsetCheckpointFile,
)
from barnabas.log.storage_errors import disk_access

logger = logging.getLogger(__name__)

_CHECKPOINTS: Final = (
    RECOVERY_POINT_CHECKPOINT_FILE,
    LOG_START_OFFSET_CHECKPOINT_FILE,
    HIGH_WATERMARK_CHECKPOINT_FILE,
)


class LogDir:
    """One log directory."""

    def __init__(self, path: Path, channel: LogDirFailureChannel, pace: LogDirPace, lock: LogDirLock) -> None:
        self.path = path
        self.guard = LogDirGuard(channel, path)
        self.pace = pace
        self.lock = lock
        self.clean_shutdown_file = CleanShutdownFile(path)
        self.directory_id: Uuid | None = None
        """The id from ``meta.properties``; None if there is none."""
        self._checkpoints = {name: OffsetCheckpointFile(path / name) for name in _CHECKPOINTS}
        self._written: dict[str, Mapping[TopicPartition, int]] = {}
        self.checkpoint_lock = threading.Lock()
        """Held from collecting offsets until they are written, so that older offsets never replace newer ones. No lock
        of a log or of the log manager is taken inside it."""

    def read_checkpoint(self, name: str) -> dict[TopicPartition, int]:
        """Reads a checkpoint. A broken file counts as missing, because checkpoints only save work."""
        return _read_or_empty(self._checkpoints[name])

    def write_checkpoint(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Writes a checkpoint. If that fails, the directory goes offline, and no error is raised.

        The caller holds `checkpoint_lock`. Unchanged offsets are not written again, so an idle broker does not access
        its disks.
        """
        if self._written.get(name) == offsets:
            return
        try:
            with self.guard.watch(f"writing {name}"), self.pace.syncing():
                self._checkpoints[name].write(offsets)
            self._written[name] = offsets
        except KafkaStorageError as error:
            logger.error("%s is not written: %s", self.path / name, error)

    def rename(self, log: Path, renamed: Path) -> None:
        """Renames a log that is not open. If that fails, the whole log directory is offline: `KafkaStorageError`."""
        with self.guard.watch(f"renaming {log}"), disk_access("rename", log):
            log.rename(renamed)

    def keep_log_start_offset(self, log: Path, partition: TopicPartition, offset: int) -> None:
        """Writes the start offset of a log that becomes stray into its directory.

        The checkpoint has no entry for a stray log. If the log came back without its start offset, its deleted records
        would reappear.
        """
        with self.guard.watch(f"writing {LOG_START_OFFSET_CHECKPOINT_FILE} in {log}"):
            OffsetCheckpointFile(log / LOG_START_OFFSET_CHECKPOINT_FILE).write({partition: offset})

    def restore_log_start_offsets(self, logs: Mapping[TopicPartition, Path]) -> None:
        """Adds the start offsets of stray logs that come back to the checkpoint."""
        offsets: dict[TopicPartition, int] = {}
        try:
            with self.guard.watch("reading log start offsets of stray logs"):
                for partition, log in logs.items():
                    # An earlier release wrote no such file. The topic may have another name by now.
                    for offset in _read_or_empty(OffsetCheckpointFile(log / LOG_START_OFFSET_CHECKPOINT_FILE)).values():
                        offsets[partition] = offset
        except KafkaStorageError as error:
            logger.error("%s", error)
            return  # the whole log directory is offline now
        if offsets:
            with self.checkpoint_lock:
                before = self.read_checkpoint(LOG_START_OFFSET_CHECKPOINT_FILE)
                self.write_checkpoint(LOG_START_OFFSET_CHECKPOINT_FILE, {**before, **offsets})

    def __repr__(self) -> str:
        return f"LogDir({self.path})"


def _read_or_empty(file: OffsetCheckpointFile) -> dict[TopicPartition, int]:
    try:
        return file.read()
    except CorruptCheckpointError as error:
        logger.warning("%s; going on without it", error)
        return {}


class LogDirs:
    """Manages the configured log directories, of which some may be offline.

    A directory is offline if it cannot be created, read or locked at startup, or after its disk has failed. The broker
    continues with the others.
    """

    def __init__(
        self,
        paths: Iterable[Path],
        channel: LogDirFailureChannel,
        paces: LogDirPaces,
        *,
        cluster_id: str | None = None,
        node_id: int | None = None,
    ) -> None:
        """Creates missing directories, locks all, and checks their ``meta.properties``.

        Raises `LogDirLockedError` or `InvalidMetaPropertiesError` if they belong to another broker, `KafkaStorageError`
        if none can be used.
        """
        self.configured = tuple(path.absolute() for path in paths)
        self._channel = channel
        self._paces = paces
        self._live: dict[Path, LogDir] = {}
        self._locks: list[LogDirLock] = []
        try:
            self._open_all(cluster_id, node_id)
        except BaseException:
            self.close()
            raise

    def _open_all(self, cluster_id: str | None, node_id: int | None) -> None:
        seen: set[Path] = set()
        for path in self.configured:
            real = path.resolve()
            if real in seen:
                raise ValueError(f"log directory {path} is configured more than once")
            seen.add(real)
            try:
                _prepare(path)
                lock = LogDirLock(path)
            except (KafkaStorageError, OSError) as error:
                self._channel.maybe_add_offline_log_dir(path, f"it cannot be used: {error}", error)
            else:
                self._locks.append(lock)
                self._live[path] = LogDir(path, self._channel, self._paces.of(path), lock)
        if self._live:
            ensemble = MetaPropertiesEnsemble.load(self._live)
            for path, failure in ensemble.failed_dirs.items():
                self._channel.maybe_add_offline_log_dir(path, str(failure), failure)
                del self._live[path]
            ensemble.verify(expected_cluster_id=cluster_id, expected_node_id=node_id)
            for path, found in ensemble.properties.items():
                self._live[path].directory_id = found.directory_id
        if not self._live:
            raise KafkaStorageError(f"none of the log directories can be used: {', '.join(map(str, self.configured))}")

    @property
    def live(self) -> tuple[LogDir, ...]:
        return tuple(self._live.values())

    @property
    def live_paths(self) -> tuple[Path, ...]:
        return tuple(self._live)

    @property
    def offline_paths(self) -> tuple[Path, ...]:
        return tuple(path for path in self.configured if path not in self._live)

    def get(self, path: Path) -> LogDir | None:
        """Returns the directory, None if it is offline; `LogDirNotFoundError` if it is not configured."""
        if path not in self.configured:
            raise LogDirNotFoundError(f"{path} is not a log directory of this broker")
        return self._live.get(path)

    def is_live(self, path: Path) -> bool:
        return self.get(path) is not None

    def path_of(self, directory_id: Uuid) -> Path | None:
        """Returns the live directory with this id."""
        return next((path for path, log_dir in self._live.items() if log_dir.directory_id == directory_id), None)

    @property
    def directory_ids(self) -> dict[Path, Uuid]:
        return {path: found.directory_id for path, found in self._live.items() if found.directory_id is not None}

    def take_offline(self, path: Path) -> LogDir | None:
        """Takes a directory offline and releases its lock; None if it was offline already."""
        live = dict(self._live)
        log_dir = live.pop(path, None)
        self._live = live
        if log_dir is not None:
            log_dir.lock.release()
        return log_dir

    def close(self) -> None:
        """Releases all locks."""
        for lock in self._locks:
            lock.release()


def _prepare(path: Path) -> None:
    if not path.exists():
        logger.info("log directory %s is not there and is made", path)
        make_data_dir(path)
        sync_directory(path.parent)
    if not path.is_dir():
        raise KafkaStorageError(f"{path} is not a directory")
    next(path.iterdir(), None)  # raises OSError if it cannot be read


def readable_by_others(log_dir: Path) -> Path | None:
    """Finds a file or directory of data that users outside its group can read; None if there is none."""
    try:
        real = log_dir.resolve()
        if not all(path.stat().st_mode & stat.S_IXOTH for path in (real, *real.parents)):
            return None
        with os.scandir(real) as entries:
            for entry in entries:
                mode = entry.stat(follow_symlinks=False).st_mode
                if stat.S_ISREG(mode) and mode & stat.S_IROTH and entry.name != LOCK_FILE:
                    return log_dir / entry.name
                if stat.S_ISDIR(mode) and mode & stat.S_IXOTH and _is_log(entry.name):
                    return log_dir / entry.name
    except OSError:
        pass  # other code checks whether the directory can be used
    return None


def _is_log(name: str) -> bool:
    try:
        parse_topic_partition_name(Path(name))
    except ValueError:
        return False
    return True
