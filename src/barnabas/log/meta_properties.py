"""The file ``meta.properties`` of a log directory: which cluster, node and directory this is.

It is written once, when the directory is formatted, and read at every start. A broker that finds another cluster's or
another node's files in its directories must not touch them: a mistyped path or two swapped disks would otherwise
mix the logs of two brokers.

    version=1
    cluster.id=MkU3OEVBNTcwNTJENDM2Qg
    node.id=1
    directory.id=vZ1Jk0PQSzKdDlRyjXm2Gg

Version 0 is what brokers wrote before KRaft: ``broker.id`` for ``node.id``, and everything may be missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from barnabas.common.dataclass import dataclass
from barnabas.common.errors import KafkaStorageError
from barnabas.common.identifiers import Uuid, random_uuid, uuid_from_string, uuid_to_string
from barnabas.common.numerals import parse_integer, shortened
from barnabas.common.properties import PropertiesError, format_properties, load_properties
from barnabas.log.durable_file import replace_file
from barnabas.log.storage_errors import disk_access

META_PROPERTIES_FILE: Final = "meta.properties"
CURRENT_VERSION: Final = 1
_RESERVED_DIRECTORY_IDS: Final = 100


class InvalidMetaPropertiesError(KafkaStorageError):
    """A ``meta.properties`` that cannot be read, or does not belong where it was found."""


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The identity of one log directory. In version 1 only the directory id may be missing."""

    version: int = CURRENT_VERSION
    cluster_id: str | None = None
    node_id: int | None = None
    directory_id: Uuid | None = None

    def __post_init__(self) -> None:
        if self.version not in {0, 1}:
            raise InvalidMetaPropertiesError(f"version {self.version} is not known, only 0 and 1 are")
        if self.version > 0:
            if self.cluster_id is None:
                raise InvalidMetaPropertiesError("cluster.id is missing")
            if self.node_id is None:
                raise InvalidMetaPropertiesError("node.id is missing")

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Reads the settings of a file; others than the known ones are let be."""
        version = _integer(properties, "version") or 0
        directory_id = None
        if "directory.id" in properties:
            try:
                directory_id = uuid_from_string(properties["directory.id"])
            except ValueError as error:
                raise InvalidMetaPropertiesError(f"directory.id: {error}") from None
        node_id = _integer(properties, "broker.id" if version == 0 else "node.id")
        return cls(version, properties.get("cluster.id"), node_id, directory_id)

    def to_properties(self) -> dict[str, str]:
        properties = {"version": str(self.version)}
        if self.cluster_id is not None:
            properties["cluster.id"] = self.cluster_id
        if self.node_id is not None:
            properties["broker.id" if self.version == 0 else "node.id"] = str(self.node_id)
        if self.directory_id is not None:
            properties["directory.id"] = uuid_to_string(self.directory_id)
        return properties

    @classmethod
    def read(cls, log_dir: Path) -> Self | None:
        """The identity of a directory; None for one that has not been formatted.

        `InvalidMetaPropertiesError` if the file makes no sense, `KafkaStorageError` if it cannot be read.
        """
        path = log_dir / META_PROPERTIES_FILE
        with disk_access("read", path):
            try:
                return cls.from_properties(load_properties(path))
            except FileNotFoundError:
                return None
            except PropertiesError as error:
                raise InvalidMetaPropertiesError(str(error)) from None
            except InvalidMetaPropertiesError as error:
                raise InvalidMetaPropertiesError(f"{path}: {error}") from None

    def write(self, log_dir: Path) -> None:
        """Formats a directory; when this returns, the file is on disk."""
        path = log_dir / META_PROPERTIES_FILE
        with disk_access("write", path):
            replace_file(path, format_properties(self.to_properties()).encode("ascii"))


def _integer(properties: Mapping[str, str], name: str) -> int | None:
    text = properties.get(name)
    if text is None:
        return None
    try:
        return parse_integer(text.strip())
    except ValueError:
        raise InvalidMetaPropertiesError(f"{name} is {shortened(text)!r}, not a number") from None


def is_reserved_directory_id(directory_id: Uuid) -> bool:
    """Whether an id means something instead of naming a directory: 0 migrating, 1 unassigned, 2 lost, up to 99 free.

    Kafka compares the lower half as a signed number, so ids with 8 zero bytes and the top bit after them count too.
    """
    return (
        directory_id[:8] == bytes(8) and int.from_bytes(directory_id[8:], "big", signed=True) < _RESERVED_DIRECTORY_IDS
    )


def random_directory_id() -> Uuid:
    while True:
        candidate = random_uuid()
        if not is_reserved_directory_id(candidate):
            return candidate
