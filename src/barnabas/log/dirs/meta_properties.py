"""The file ``meta.properties`` of a log directory: its cluster id, node id and directory id.

It is written once, when the directory is formatted, and read at every start. A broker must not touch directories of
another cluster or node: a mistyped path or two swapped disks would otherwise mix the logs of two brokers.

    version=1
    cluster.id=MkU3OEVBNTcwNTJENDM2Qg
    node.id=1
    directory.id=vZ1Jk0PQSzKdDlRyjXm2Gg

Brokers before KRaft wrote version 0: it has ``broker.id`` for ``node.id``, and every field may be missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from barnabas.common.dataclass import dataclass
from barnabas.common.errors import KafkaStorageError
from barnabas.common.identifiers import Uuid, random_uuid, uuid_from_string, uuid_to_string
from barnabas.common.numerals import parse_integer, shortened
from barnabas.common.properties import PropertiesError, format_properties, load_properties
from barnabas.common.topic_names import CLUSTER_METADATA_TOPIC
from barnabas.log.dirs.clean_shutdown_file import CLEAN_SHUTDOWN_FILE
from barnabas.log.dirs.durable_file import replace_file
from barnabas.log.dirs.log_dir_names import parse_topic_partition_name
from barnabas.log.storage_errors import disk_access

META_PROPERTIES_FILE: Final = "meta.properties"
CURRENT_VERSION: Final = 1
_RESERVED_DIRECTORY_IDS: Final = 100
_INITIAL_VOTERS: Final = f"{0:020d}-{0:010d}"
"""The file name prefix of the snapshot that formatting writes."""
_SHOWN: Final = 3
_FORMAT_AGAIN: Final = "`barnabas format --ignore-formatted --cluster-id ID`"


class InvalidMetaPropertiesError(KafkaStorageError):
    """A ``meta.properties`` that is invalid, or belongs to another directory, node or cluster."""


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
        """Parses the properties of a file; unknown ones are ignored."""
        if not properties:
            raise InvalidMetaPropertiesError(
                f"the file is empty. Restore it from a backup, or delete it and run {_FORMAT_AGAIN} with the id of the "
                "cluster that the data belong to"
            )
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
        """Reads the identity of a directory; None if it is not formatted.

        `InvalidMetaPropertiesError` if the contents are invalid, `KafkaStorageError` if the file cannot be read.
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
        """Writes the file and forces it to disk."""
        path = log_dir / META_PROPERTIES_FILE
        with disk_access("write", path):
            replace_file(path, format_properties(self.to_properties()).encode("ascii"))


def data_in(log_dir: Path) -> list[str]:
    """Lists the names of a broker's data files and directories in a log directory; none if it is only formatted.

    An interrupted format leaves ``bootstrap.checkpoint`` and the snapshot of the first voters, without
    ``meta.properties``. These do not count as data.
    """
    with disk_access("list", log_dir):
        try:
            entries = sorted(log_dir.iterdir())
        except FileNotFoundError:
            return []
    return [path.name for path in entries if _is_data(path)]


def _is_data(path: Path) -> bool:
    if not path.is_dir():
        return path.name.endswith("-checkpoint") or path.name == CLEAN_SHUTDOWN_FILE
    try:
        partition = parse_topic_partition_name(path)
    except ValueError:
        return False
    if partition.topic != CLUSTER_METADATA_TOPIC:
        return True
    with disk_access("list", path):
        return any(not entry.name.startswith(_INITIAL_VOTERS) for entry in path.iterdir())


def refuse_data_without_identity(log_dir: Path) -> None:
    """Raises `InvalidMetaPropertiesError` if a directory without ``meta.properties`` contains data.

    A new identity would start a new cluster on top of the data of another.
    """
    found = data_in(log_dir)
    if found:
        raise InvalidMetaPropertiesError(
            f"{log_dir} has data of a broker ({shown_names(found)}), but no {META_PROPERTIES_FILE}. Restore that file "
            f"from a backup, or run {_FORMAT_AGAIN} with the id of the cluster that the data belong to; nothing was "
            "changed"
        )


def shown_names(names: Sequence[str]) -> str:
    """Formats the first few names of a list for an error message."""
    rest = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{rest}"


def _integer(properties: Mapping[str, str], name: str) -> int | None:
    text = properties.get(name)
    if text is None:
        return None
    try:
        return parse_integer(text.strip())
    except ValueError:
        raise InvalidMetaPropertiesError(f"{name} is {shortened(text)!r}, not a number") from None


def is_reserved_directory_id(directory_id: Uuid) -> bool:
    """Whether an id is reserved: 0 migrating, 1 unassigned, 2 lost, 3 to 99 unused.

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
