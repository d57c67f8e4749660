"""A log directory as formatting leaves it for the first controller: the file ``bootstrap.checkpoint``."""

from __future__ import annotations

from pathlib import Path

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.errors import KafkaStorageError
from barnabas.controller.bootstrap import BootstrapMetadata
from barnabas.raft.bootstrap_file import BOOTSTRAP_FILE, read_bootstrap_file, write_bootstrap_file


class BootstrapDirectory:
    """Reads and writes the bootstrap metadata of a log directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.path = directory / BOOTSTRAP_FILE

    def read(self) -> BootstrapMetadata:
        """What the file says, or the built-in default if there is none.

        `KafkaStorageError` if the directory is not there, `CorruptRecordError` if the file is damaged, ValueError if it
        says nothing about ``metadata.version``.
        """
        self._check()
        if not self.path.exists():
            return BootstrapMetadata.for_version()
        return BootstrapMetadata(tuple(read_bootstrap_file(self.path)), f"the file {self.path}")

    def write(self, bootstrap: BootstrapMetadata, clock: Clock = SYSTEM_CLOCK) -> None:
        """Puts the file there, or another one in its place, for good."""
        self._check()
        write_bootstrap_file(self.path, bootstrap.records, clock)

    def _check(self) -> None:
        if not self._directory.is_dir():
            raise KafkaStorageError(f"{self._directory} is not a directory")
