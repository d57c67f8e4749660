"""The file ``leader-epoch-checkpoint`` of a partition: the leader epochs of its log and their start offsets.

A line is ``epoch start_offset``; `barnabas.log.leader_epoch_cache` explains the purpose.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from barnabas.common.numerals import parse_integer
from barnabas.log.dirs.checkpoint_file import CheckpointFile, split_line

LEADER_EPOCH_CHECKPOINT_FILE: Final = "leader-epoch-checkpoint"
CURRENT_VERSION: Final = 0


class EpochEntry(NamedTuple):
    """A leader epoch and the offset of the first record written in it."""

    epoch: int
    start_offset: int


class _EpochLine:
    @staticmethod
    def to_line(entry: EpochEntry) -> str:
        return f"{entry.epoch} {entry.start_offset}"

    @staticmethod
    def from_line(line: str) -> EpochEntry:
        epoch, start_offset = split_line(line, 2)
        return EpochEntry(parse_integer(epoch), parse_integer(start_offset, bits=64))


class LeaderEpochCheckpointFile:
    """Reads and writes the leader epochs of one partition."""

    def __init__(self, path: Path) -> None:
        self._file = CheckpointFile(path, CURRENT_VERSION, _EpochLine)

    @classmethod
    def in_directory(cls, log_dir: Path) -> LeaderEpochCheckpointFile:
        """Returns the file in the directory of a partition's log."""
        return cls(log_dir / LEADER_EPOCH_CHECKPOINT_FILE)

    @property
    def path(self) -> Path:
        return self._file.path

    def write(self, entries: Iterable[EpochEntry]) -> None:
        self._file.write(entries)

    def write_if_dir_exists(self, entries: Iterable[EpochEntry]) -> None:
        self._file.write_if_dir_exists(entries)

    def read(self) -> list[EpochEntry]:
        return self._file.read()

    def __repr__(self) -> str:
        return f"LeaderEpochCheckpointFile({str(self.path)!r})"
