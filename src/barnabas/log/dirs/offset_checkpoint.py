"""Offset checkpoints: one file per log directory and kind of offset, with one line per partition.

``recovery-point-offset-checkpoint``
    the log is forced to disk up to this offset; a start after a crash checks the rest
``log-start-offset-checkpoint``
    the first readable offset; records before it are deleted, even if they are still on disk
``replication-offset-checkpoint``
    the high watermark
``cleaner-offset-checkpoint``
    the log is compacted up to this offset

A line is ``topic partition offset``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from barnabas.common.numerals import parse_integer
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.dirs.checkpoint_file import CheckpointFile, split_line

RECOVERY_POINT_CHECKPOINT_FILE: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT_FILE: Final = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT_FILE: Final = "replication-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT_FILE: Final = "cleaner-offset-checkpoint"

CURRENT_VERSION: Final = 0


class _PartitionOffset:
    """A line of an offset checkpoint."""

    @staticmethod
    def to_line(entry: tuple[TopicPartition, int]) -> str:
        (topic, partition), offset = entry
        return f"{topic} {partition} {offset}"

    @staticmethod
    def from_line(line: str) -> tuple[TopicPartition, int]:
        topic, partition, offset = split_line(line, 3)
        return TopicPartition(topic, parse_integer(partition)), parse_integer(offset, bits=64)


class OffsetCheckpointFile:
    """A checkpoint of offsets, read and written as a dictionary."""

    def __init__(self, path: Path) -> None:
        self._file = CheckpointFile(path, CURRENT_VERSION, _PartitionOffset)

    @property
    def path(self) -> Path:
        return self._file.path

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._file.write(offsets.items())

    def read(self) -> dict[TopicPartition, int]:
        """Reads the offsets; the last line of a partition counts. `CorruptCheckpointError` if the file is corrupt."""
        return dict(self._file.read())

    def __repr__(self) -> str:
        return f"OffsetCheckpointFile({str(self.path)!r})"
