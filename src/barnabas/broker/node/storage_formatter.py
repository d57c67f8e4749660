"""Formats data directories, that is, gives them an identity, as ``kafka-storage format`` does.

=========================== ==================================================================================
``meta.properties``         in every log directory: the ids of the cluster, the node and this directory
``bootstrap.checkpoint``    in the metadata log directory: the feature levels and users that a new cluster begins with
``00..0-00..0.checkpoint``  in the metadata log itself: its voter, this node, if the configuration names none
=========================== ==================================================================================

The last is ``kafka-storage format --standalone``. Kafka needs that option, as there could be other voters; here a
quorum has one.

A node does not format its directories when it starts: an empty directory may be a disk that is not mounted, and a
broker that starts without its data, and with a new identity, is worse than one that does not start. On a laptop,
`format_if_empty` is acceptable.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from barnabas.broker.config.kafka_config import KafkaConfig
from barnabas.common.dataclass import dataclass
from barnabas.common.errors import BarnabasError, InvalidConfigurationError
from barnabas.common.identifiers import Uuid, random_uuid, uuid_to_string
from barnabas.controller.bootstrap import BootstrapMetadata
from barnabas.log.dirs.durable_file import make_data_dir
from barnabas.log.dirs.meta_properties import (
    MetaProperties,
    data_in,
    random_directory_id,
    refuse_data_without_identity,
)
from barnabas.log.dirs.meta_properties_ensemble import MetaPropertiesEnsemble
from barnabas.log.segment.file_handle import FileHandle
from barnabas.log.storage_errors import disk_access
from barnabas.metadata.metadata_version import LATEST_VERSION, MetadataVersion
from barnabas.network.reactor.send import FileRegion
from barnabas.protocol.internal.raft import VotersRecord
from barnabas.raft.bootstrap_file import (
    BOOTSTRAP_FILE,
    METADATA_LOG_DIR_NAME,
    write_bootstrap_file,
    write_initial_voters,
)
from barnabas.raft.client import ApiMessageAndVersion
from barnabas.raft.records_iterator import control_records, raw_batches
from barnabas.raft.voter_set import ReplicaKey, VoterEndpoint, VoterNode, VoterSet


class FormatError(BarnabasError):
    """The directories cannot be formatted as asked; nothing was changed."""


@dataclass(frozen=True, slots=True)
class FormatReport:
    """The result of a format."""

    cluster_id: str
    node_id: int
    metadata_version: MetadataVersion
    formatted: tuple[Path, ...]
    left_alone: tuple[Path, ...]
    users: int = 0
    """SCRAM users that were added."""

    def lines(self) -> Iterator[str]:
        """Yields the report as text lines."""
        for path in self.formatted:
            yield f"Formatted {path} with metadata.version {self.metadata_version.release}"
        for path in self.left_alone:
            yield f"Left {path} alone: it is formatted already"
        if self.users:
            yield f"Added {self.users} SCRAM credential(s)"
        if not self.formatted:
            yield "All of the log directories are already formatted"
        yield f"Cluster id {self.cluster_id}, node id {self.node_id}"


def format_storage(
    config: KafkaConfig,
    *,
    cluster_id: str | None = None,
    release_version: str | None = None,
    ignore_formatted: bool = False,
    add_scram: Sequence[str] = (),
) -> FormatReport:
    """Formats all log directories of a node.

    Formatted directories keep their identity, and the others get the same one; without `ignore_formatted` they are an
    error. A directory with data but without an identity gets a new one only if `cluster_id` is given, and keeps its
    metadata log. ``add_scram`` has users in the form of `initial_credentials`, for a new metadata log only.
    """
    version = _version(release_version)
    users = _users(add_scram, version)
    directories = dict.fromkeys((*config.log_dirs, config.metadata_log_dir))
    ensemble = MetaPropertiesEnsemble.load(directories, config.metadata_log_dir)
    if ensemble.failed_dirs:
        raise FormatError("; ".join(str(error) for error in ensemble.failed_dirs.values()))
    ensemble.verify(expected_cluster_id=cluster_id, expected_node_id=config.node_id)
    if ensemble.properties and not ignore_formatted:
        raise FormatError(
            f"{', '.join(map(str, ensemble.properties))} is formatted already; use --ignore-formatted to leave it alone"
        )
    formatted = tuple(path for path in directories if path not in ensemble.properties)
    if cluster_id is None:
        for path in formatted:
            refuse_data_without_identity(path)
    has_metadata_log = METADATA_LOG_DIR_NAME in data_in(config.metadata_log_dir)
    is_new = config.metadata_log_dir in formatted and not has_metadata_log
    if users and not is_new and not ignore_formatted:
        raise FormatError("--add-scram adds users only to a new metadata log; use `barnabas users` for this cluster")
    chosen = cluster_id or ensemble.cluster_id or uuid_to_string(random_uuid())
    for path in formatted:
        directory_id = random_directory_id()
        with disk_access("create", path):
            make_data_dir(path)
        if path == config.metadata_log_dir and has_metadata_log:
            directory_id = _directory_id_of_voter(path / METADATA_LOG_DIR_NAME, config.node_id) or directory_id
        elif path == config.metadata_log_dir:
            # Written before meta.properties, which marks the directory as formatted: a crash in between is harmless.
            bootstrap = BootstrapMetadata.for_version(version, "format command", extra=users)
            write_bootstrap_file(path / BOOTSTRAP_FILE, bootstrap.records)
            if config.is_controller and not config.quorum_voters:
                write_initial_voters(path, _sole_voter(config, directory_id))
        MetaProperties(cluster_id=chosen, node_id=config.node_id, directory_id=directory_id).write(path)
    return FormatReport(
        chosen, config.node_id, version, formatted, tuple(ensemble.properties), len(users) if is_new else 0
    )


def format_if_empty(
    config: KafkaConfig, *, cluster_id: str | None = None, add_scram: Sequence[str] = ()
) -> FormatReport | None:
    """Formats a node if none of its directories is formatted; otherwise returns None: a disk may be missing."""
    ensemble = MetaPropertiesEnsemble.load((*config.log_dirs, config.metadata_log_dir))
    if ensemble.properties or ensemble.failed_dirs:
        return None
    return format_storage(config, cluster_id=cluster_id, add_scram=add_scram)


def _directory_id_of_voter(metadata_log: Path, node_id: int) -> Uuid | None:
    """Returns the directory id of a voter from its metadata log; None if the log has no voters.

    With another id the node would not be the voter in the log, and no leader could be elected.
    """
    found: Uuid | None = None
    # Sorted by offset: a snapshot comes before the segment that begins where it ends.
    for path in sorted((*metadata_log.glob("*.checkpoint"), *metadata_log.glob("*.log"))):
        with disk_access("read", path):
            handle = FileHandle.open(path, os.O_RDONLY)
            region = FileRegion(handle, 0, os.fstat(handle).st_size)
            for batch in raw_batches(region):
                if not batch.is_control_batch:
                    continue
                batch.ensure_valid()
                for record in control_records(batch):
                    if isinstance(record.message, VotersRecord):
                        keys = [voter.key for voter in VoterSet.from_record(record.message)]
                        found = next((key.directory_id for key in keys if key.id == node_id), found)
    return found


def _sole_voter(config: KafkaConfig, directory_id: Uuid) -> VoterSet:
    """Returns this node as the voter set: without ``controller.quorum.voters`` a new log must contain its voters."""
    endpoints = [VoterEndpoint(one.listener_name, one.host, one.port) for one in config.advertised_controller_listeners]
    return VoterSet.of([VoterNode(ReplicaKey(config.node_id, directory_id), tuple(endpoints))])


def _users(arguments: Sequence[str], version: MetadataVersion) -> list[ApiMessageAndVersion]:
    """Returns the records of SCRAM users for the bootstrap file."""
    if not arguments:
        return []
    if not version.supports_scram:
        raise FormatError(f"metadata.version {version.release} does not support SCRAM; it needs 3.5-IV2 or later")
    from barnabas.broker.node.initial_credentials import scram_records

    try:
        return [ApiMessageAndVersion(record, 0) for record in scram_records(arguments)]
    except InvalidConfigurationError as error:
        raise FormatError(str(error)) from None


def _version(release: str | None) -> MetadataVersion:
    if release is None:
        return LATEST_VERSION
    try:
        return MetadataVersion.for_release(release)
    except ValueError as error:
        raise FormatError(str(error)) from None
