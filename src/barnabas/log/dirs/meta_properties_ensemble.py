"""Reads the ``meta.properties`` of all log directories of a node and verifies that they belong together."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self

from barnabas.common.dataclass import dataclass, field
from barnabas.common.errors import KafkaStorageError
from barnabas.common.identifiers import Uuid, uuid_to_string
from barnabas.log.dirs.meta_properties import (
    META_PROPERTIES_FILE,
    InvalidMetaPropertiesError,
    MetaProperties,
    is_reserved_directory_id,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MetaPropertiesEnsemble:
    """The state of each log directory: its identity, empty, or failed. Each directory is in one of the three."""

    properties: Mapping[Path, MetaProperties]
    empty_dirs: frozenset[Path] = frozenset()
    """Directories without the file: not formatted, or the disk is not mounted."""
    failed_dirs: Mapping[Path, KafkaStorageError] = field(default_factory=dict)
    """Directories whose file could not be read, with the error."""
    metadata_log_dir: Path | None = None
    """The directory of ``__cluster_metadata``, which the node requires."""

    @classmethod
    def load(cls, log_dirs: Iterable[Path], metadata_log_dir: Path | None = None) -> Self:
        """Reads the files. The failure of one directory does not affect the others."""
        properties: dict[Path, MetaProperties] = {}
        empty: set[Path] = set()
        failed: dict[Path, KafkaStorageError] = {}
        directories = {*log_dirs} | ({metadata_log_dir} if metadata_log_dir is not None else set())
        if not directories:
            raise ValueError("there must be at least one log directory")
        for log_dir in sorted(directories):
            try:
                found = MetaProperties.read(log_dir)
            except KafkaStorageError as error:
                logger.error("log directory %s cannot be used: %s", log_dir, error)
                failed[log_dir] = error
            else:
                if found is None:
                    empty.add(log_dir)
                else:
                    properties[log_dir] = found
        return cls(properties, frozenset(empty), failed, metadata_log_dir)

    @property
    def node_id(self) -> int | None:
        return next((found.node_id for found in self.properties.values() if found.node_id is not None), None)

    @property
    def cluster_id(self) -> str | None:
        return next((found.cluster_id for found in self.properties.values() if found.cluster_id is not None), None)

    def verify(
        self,
        *,
        expected_cluster_id: str | None = None,
        expected_node_id: int | None = None,
        require_at_least_one_valid: bool = False,
        require_metadata_log_dir: bool = False,
    ) -> None:
        """Raises `InvalidMetaPropertiesError` unless all directories share cluster and node and have distinct ids."""
        if require_at_least_one_valid and not self.properties:
            raise InvalidMetaPropertiesError(f"no log directory has a {META_PROPERTIES_FILE}: they must be formatted")
        seen: dict[Uuid, Path] = {}
        for log_dir, found in self.properties.items():
            path = log_dir / META_PROPERTIES_FILE
            if found.cluster_id is not None:
                expected_cluster_id = expected_cluster_id or found.cluster_id
                if found.cluster_id != expected_cluster_id:
                    raise InvalidMetaPropertiesError(
                        f"{path} belongs to cluster {found.cluster_id}, not to {expected_cluster_id}"
                    )
            if found.node_id is not None:
                expected_node_id = found.node_id if expected_node_id is None else expected_node_id
                if found.node_id != expected_node_id:
                    raise InvalidMetaPropertiesError(
                        f"{path} belongs to node {found.node_id}, not to {expected_node_id}. If the data was moved "
                        "here, give the node the same node.id; if this is a new node, give it an empty directory"
                    )
            self._verify_directory_id(log_dir, found.directory_id, seen)
        if require_metadata_log_dir and self.metadata_log_dir is None:
            raise InvalidMetaPropertiesError("no directory has been named for the metadata log")
        if self.metadata_log_dir is not None and self.metadata_log_dir in self.failed_dirs:
            raise InvalidMetaPropertiesError(
                f"the directory of the metadata log, {self.metadata_log_dir}, cannot be used: "
                f"{self.failed_dirs[self.metadata_log_dir]}"
            )

    @staticmethod
    def _verify_directory_id(log_dir: Path, directory_id: Uuid | None, seen: dict[Uuid, Path]) -> None:
        if directory_id is None:
            return
        if is_reserved_directory_id(directory_id):
            raise InvalidMetaPropertiesError(f"{log_dir} has the reserved directory id {uuid_to_string(directory_id)}")
        other = seen.setdefault(directory_id, log_dir)
        if other != log_dir:
            raise InvalidMetaPropertiesError(
                f"{other} and {log_dir} both have the directory id {uuid_to_string(directory_id)}"
            )
