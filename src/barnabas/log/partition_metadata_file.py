"""The file ``partition.metadata`` in the directory of a partition: which topic's partition this is.

A topic that is deleted and made again has the same name and another id. A broker that was down in between finds out
from this file that the log it has is not the one that the name now stands for.

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
from barnabas.log.durable_file import replace_file
from barnabas.log.storage_errors import disk_access

PARTITION_METADATA_FILE: Final = "partition.metadata"
CURRENT_VERSION: Final = 0

_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_SEPARATOR: Final = r":[ \t\v\f]+"


class CorruptPartitionMetadataError(KafkaStorageError):
    """A ``partition.metadata`` that does not say which topic the log belongs to."""


class PartitionMetadata(NamedTuple):
    """The contents of the file."""

    version: int
    topic_id: Uuid

    def encode(self) -> bytes:
        return f"version: {self.version}\ntopic_id: {uuid_to_string(self.topic_id)}".encode()

    @classmethod
    def decode(cls, data: bytes) -> PartitionMetadata:
        """Raises ValueError for anything else than a topic id. A later version may have more lines."""
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
    """The topic id of a log, on disk at the latest with the first records.

    `record` only remembers the id; `maybe_flush` writes it. So the thread that makes a log does not wait for the disk,
    and no record can be in a log whose topic is not known.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        """Held while the file is written or read. Nothing else is locked inside it."""
        self.dirty_topic_id: Uuid | None = None
        """The id that `maybe_flush` has to write, if there is one."""

    @classmethod
    def in_directory(cls, log_dir: Path) -> PartitionMetadataFile:
        return cls(log_dir / PARTITION_METADATA_FILE)

    def record(self, topic_id: Uuid) -> None:
        """Remembers the id that `maybe_flush` is to write; `InconsistentTopicIdError` if another one waits for that."""
        dirty = self.dirty_topic_id
        if dirty is not None and dirty != topic_id:
            raise InconsistentTopicIdError(
                f"{self.path}: topic id {uuid_to_string(topic_id)} came after {uuid_to_string(dirty)}, which it is not"
            )
        self.dirty_topic_id = topic_id

    def maybe_flush(self) -> None:
        """Writes the id if it has not been written. Costs one comparison otherwise: it comes with every append."""
        if self.dirty_topic_id is not None:
            self._flush()

    def _flush(self) -> None:
        with self._lock:
            topic_id = self.dirty_topic_id
            if topic_id is None:
                return  # another thread was faster
            with disk_access("write", self.path):
                replace_file(self.path, PartitionMetadata(CURRENT_VERSION, topic_id).encode())
            self.dirty_topic_id = None

    def read(self) -> PartitionMetadata:
        """What it says. `CorruptPartitionMetadataError` if that is nonsense, `KafkaStorageError` if there is none."""
        with self._lock, disk_access("read", self.path):
            data = self.path.read_bytes()
        try:
            return PartitionMetadata.decode(data)
        except ValueError as error:  # a UnicodeDecodeError is one, too
            raise CorruptPartitionMetadataError(f"{self.path}: {error}") from None

    def exists(self) -> bool:
        return self.path.exists()

    def delete(self) -> None:
        with disk_access("delete", self.path):
            self.path.unlink()

    def __repr__(self) -> str:
        return f"PartitionMetadataFile({str(self.path)!r})"
