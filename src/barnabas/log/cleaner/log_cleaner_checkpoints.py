"""Checkpoints, in each log directory, of the offsets up to which logs are clean."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from barnabas.common.errors import KafkaStorageError
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.dirs.checkpoint_file import CorruptCheckpointError
from barnabas.log.dirs.log_dir_failure import LogDirFailureChannel, LogDirGuard
from barnabas.log.dirs.offset_checkpoint import CLEANER_OFFSET_CHECKPOINT_FILE, OffsetCheckpointFile

logger = logging.getLogger(__name__)


class LogCleanerCheckpoints:
    """Reads and writes the file ``cleaner-offset-checkpoint`` of each log directory, and caches its contents.

    Only this class writes these files, so each is read once. A broken file counts as missing: cleaning a log again from
    its start takes time, but is harmless. If a file cannot be written, the directory goes offline.

    It has no lock of its own; the caller (`LogCleanerManager`) must hold its lock.
    """

    def __init__(self, log_dirs: Iterable[Path], channel: LogDirFailureChannel) -> None:
        self._channel = channel
        self._files = {path: OffsetCheckpointFile(path / CLEANER_OFFSET_CHECKPOINT_FILE) for path in log_dirs}
        self._offsets: dict[Path, dict[TopicPartition, int]] = {}

    @property
    def log_dirs(self) -> tuple[Path, ...]:
        return tuple(self._files)

    def all_offsets(self) -> dict[TopicPartition, int]:
        """Returns the offsets of all directories that are not offline."""
        found: dict[TopicPartition, int] = {}
        for log_dir in self._files:
            found.update(self._read(log_dir))
        return found

    def get(self, log_dir: Path, partition: TopicPartition) -> int | None:
        return self._read(log_dir).get(partition)

    def update(
        self,
        log_dir: Path,
        changes: Mapping[TopicPartition, int] | None = None,
        *,
        remove: TopicPartition | None = None,
        is_known: Callable[[TopicPartition], bool] = lambda _: True,
    ) -> None:
        """Rewrites a directory's file with changes, without `remove`, and without unknown partitions."""
        if log_dir not in self._files:
            return
        before = self._read(log_dir)
        after = {partition: offset for partition, offset in before.items() if is_known(partition)}
        if remove is not None:
            after.pop(remove, None)
        after.update(changes or {})
        if after == before:
            return
        try:
            with LogDirGuard(self._channel, log_dir).watch(f"writing {CLEANER_OFFSET_CHECKPOINT_FILE}"):
                self._files[log_dir].write(after)
        except KafkaStorageError as error:
            logger.error("%s is not written: %s", self._files[log_dir].path, error)
        else:
            self._offsets[log_dir] = after

    def drop(self, log_dir: Path) -> None:
        """Removes an offline directory."""
        self._files.pop(log_dir, None)
        self._offsets.pop(log_dir, None)

    def _read(self, log_dir: Path) -> dict[TopicPartition, int]:
        file = self._files.get(log_dir)
        if file is None:
            return {}
        offsets = self._offsets.get(log_dir)
        if offsets is None:
            try:
                with LogDirGuard(self._channel, log_dir).watch(f"reading {CLEANER_OFFSET_CHECKPOINT_FILE}"):
                    offsets = self._parse(file)
            except KafkaStorageError as error:
                logger.error("%s cannot be read: %s", file.path, error)
                return {}
            self._offsets[log_dir] = offsets
        return offsets

    def _parse(self, file: OffsetCheckpointFile) -> dict[TopicPartition, int]:
        try:
            return file.read()
        except CorruptCheckpointError as error:
            logger.warning("%s; the logs in this directory are cleaned from their start", error)
            return {}
