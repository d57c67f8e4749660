"""Checkpoint files: small text files that store offsets.

All have the same format: the version of the entries, their number, and one line for each entry::

    0
    2
    orders 0 4711
    orders 1 4698

A file is always written as a whole and replaced atomically (see `barnabas.log.dirs.durable_file`). The number of
entries reveals files that were truncated nevertheless, by a copy for example.

A formatter defines the lines. See `barnabas.log.dirs.offset_checkpoint` for partitions and their offsets,
`barnabas.log.dirs.leader_epoch_checkpoint` for the epochs of one partition.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

from barnabas.common.errors import KafkaStorageError
from barnabas.common.numerals import parse_integer, shortened
from barnabas.log.dirs.durable_file import replace_file
from barnabas.log.storage_errors import disk_access, storage_error

logger = logging.getLogger(__name__)

T = TypeVar("T")

_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_BLANKS: Final = re.compile(r"[ \t\v\f]+")


class CorruptCheckpointError(KafkaStorageError):
    """A checkpoint file is malformed.

    It is a `KafkaStorageError`, because a caller that needs the file has to take the directory offline. A caller that
    does not, such as a log manager that recovers a whole log without a recovery point, catches this error.
    """


class EntryFormatter(Protocol[T]):
    """Converts entries to lines and back."""

    def to_line(self, entry: T, /) -> str: ...

    def from_line(self, line: str, /) -> T:
        """Parses a line; raises ValueError if it is not an entry."""
        ...


class CheckpointFile(Generic[T]):
    """One checkpoint file. A file that does not exist yet reads like an empty one."""

    def __init__(self, path: Path, version: int, formatter: EntryFormatter[T]) -> None:
        self.path = path
        self._version = version
        self._formatter = formatter
        self._lock = threading.Lock()
        """Held while the file is written, because all writers use one temporary file. No lock is taken inside it."""

    def write(self, entries: Iterable[T]) -> None:
        """Replaces the file and forces it to disk. Raises `KafkaStorageError` if that fails."""
        data = self._encode(entries)
        with self._lock, disk_access("write", self.path):
            replace_file(self.path, data)

    def write_if_dir_exists(self, entries: Iterable[T]) -> None:
        """Writes the file unless the directory is gone: a background write may come after the topic's deletion."""
        data = self._encode(entries)
        with self._lock:
            try:
                replace_file(self.path, data)
            except FileNotFoundError:
                logger.warning("%s was not written: its directory is gone, perhaps because the topic is", self.path)
            except OSError as error:
                raise storage_error("write", self.path, error) from error

    def _encode(self, entries: Iterable[T]) -> bytes:
        lines = [self._formatter.to_line(entry) for entry in entries]
        return "".join(f"{line}\n" for line in (self._version, len(lines), *lines)).encode()

    def read(self) -> list[T]:
        """Returns the entries. Raises `CorruptCheckpointError` if the file is malformed."""
        with disk_access("read", self.path):
            try:
                data = self.path.read_bytes()
            except FileNotFoundError:
                return []
        return self._decode(data)

    def _decode(self, data: bytes) -> list[T]:
        try:
            lines = _LINE_END.split(data.decode())
        except UnicodeDecodeError as error:
            raise self._corrupt(f"byte {error.start} is not UTF-8") from None
        if lines[-1] == "":
            lines.pop()
        if not lines:
            return []  # a file that was created and never written to
        version = self._number(lines[0], 1)
        if version != self._version:
            raise self._corrupt(f"version {version}, only {self._version} is known")
        if len(lines) == 1:
            return []
        count = self._number(lines[1], 2)
        if count != len(lines) - 2:
            raise self._corrupt(f"{len(lines) - 2} entries where there should be {count}")
        entries = []
        for number, line in enumerate(lines[2:], 3):
            try:
                entries.append(self._formatter.from_line(line))
            except ValueError as error:
                raise self._corrupt(f"line {number} ({shortened(line)!r}): {error}") from None
        return entries

    def _number(self, line: str, number: int) -> int:
        try:
            return parse_integer(line)
        except ValueError as error:
            raise self._corrupt(f"line {number}: {error}") from None

    def _corrupt(self, what: str) -> CorruptCheckpointError:
        return CorruptCheckpointError(f"{self.path} is not a checkpoint file that can be used: {what}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"


def split_line(line: str, count: int) -> list[str]:
    """Splits a line into `count` words. Leading blanks are an error, as in Kafka."""
    words = _BLANKS.split(line.rstrip(" \t\v\f"))
    if len(words) != count or not words[0]:
        raise ValueError(f"it should have {count} words")
    return words
