"""The file ``partition.metadata`` in a partition's directory: its topic id.

A topic that is deleted and created again has the same name but another id. A broker that was down in between detects
from this file that its log belongs to the old topic.

    version: 0
    topic_id: 0iFCbVxLRfCb0XVfYPQaAQ
"""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Final, NamedTuple

from barnabas.common.errors import InconsistentTopicIdError, KafkaStorageError
from barnabas.common.identifiers import ZERO_UUID, Uuid, uuid_from_string, uuid_to_string
from barnabas.common.numerals import parse_integer, shortened
from barnabas.log.dirs.durable_file import replace_file
from barnabas.log.storage_errors import disk_access

PARTITION_METADATA_FILE: Final = "partition.metadata"
CURRENT_VERSION: Final = 0

_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_SEPARATOR: Final = r":[ \t\v\f]+"


class CorruptPartitionMetadataError(KafkaStorageError):
    """A ``partition.metadata`` without a valid topic id."""


class PartitionMetadata(NamedTuple):
    """The contents of the file."""

    version: int
    topic_id: Uuid

    def encode(self) -> bytes:
        return f"version: {self.version}\ntopic_id: {uuid_to_string(self.topic_id)}".encode()

    @classmethod
    def decode(cls, data: bytes) -> PartitionMetadata:
        """Parses the file; ValueError if there is no valid topic id. A later version may have more lines."""
        lines = _LINE_END.split(data.decode())
        version = parse_integer(_value(lines, 0, "version"))
        if version < CURRENT_VERSION:
            raise ValueError(f"version {version} is not known")
        topic_id = uuid_from_string(_value(lines, 1, "topic_id"))
        if topic_id == ZERO_UUID:
            raise ValueError("the topic id is zero, which is no id")
        return cls(version, topic_id)


def _value(lines: list[str], index: int, name: str) -> str:
    line = lines[index] if index < len(lines) else ""
    parts = re.split(_SEPARATOR, line)
    if len(parts) != 2:
        raise ValueError(f"line {index + 1} ({shortened(line)!r}) should be '{name}: ...'")
    return parts[1]


class PartitionMetadataFile:
    """The topic id of a log, written to disk no later than the first records.

    `record` only stores the id; `maybe_flush` writes it. So the thread that creates a log does not wait for the disk,
    and no log on disk has records without a topic id.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        """Held while the file is written or read. No other lock is taken inside it."""
        self.dirty_topic_id: Uuid | None = None
        """The id that `maybe_flush` has to write; None if there is none."""

    @classmethod
    def in_directory(cls, log_dir: Path) -> PartitionMetadataFile:
        return cls(log_dir / PARTITION_METADATA_FILE)

    def record(self, topic_id: Uuid) -> None:
        """Stores the id for `maybe_flush` to write; `InconsistentTopicIdError` if a different one is pending."""
        dirty = self.dirty_topic_id
        if dirty is not None and dirty != topic_id:
            raise InconsistentTopicIdError(
                f"{self.path}: topic id {uuid_to_string(topic_id)} came after {uuid_to_string(dirty)}, which it is not"
            )
        self.dirty_topic_id = topic_id

    def maybe_flush(self) -> None:
        """Writes a pending id. Every append calls this, so without a pending id it costs one comparison."""
        if self.dirty_topic_id is not None:
            self._flush()

    def _flush(self) -> None:
        with self._lock:
            topic_id = self.dirty_topic_id
            if topic_id is None:
                return  # another thread has written it
            with disk_access("write", self.path):
                replace_file(self.path, PartitionMetadata(CURRENT_VERSION, topic_id).encode())
            self.dirty_topic_id = None

    def read(self) -> PartitionMetadata:
        """Reads the file. `CorruptPartitionMetadataError` if it is invalid, `KafkaStorageError` if there is none."""
        with self._lock, disk_access("read", self.path):
            data = self.path.read_bytes()
        try:
            return PartitionMetadata.decode(data)
        except ValueError as error:  # includes UnicodeDecodeError
            raise CorruptPartitionMetadataError(f"{self.path}: {error}") from None

    def exists(self) -> bool:
        return self.path.exists()

    def delete(self) -> None:
        with disk_access("delete", self.path):
            self.path.unlink()

    def __repr__(self) -> str:
        return f"PartitionMetadataFile({str(self.path)!r})"
