"""The files that formatting writes for the first start: the first records of the log, and the first voters.

``bootstrap.checkpoint``, in each log directory, has the records with which the first controller begins the log, above
all the level of ``metadata.version``. It is a snapshot of offset and epoch 0, and is never deleted.

If the voters are kept in the log and not in the configuration (``kafka-storage format --standalone``), the directory of
the metadata log also has a snapshot ``00000000000000000000-0000000000.checkpoint``. It contains no metadata records but
names the voters: without them there could be no election, and so no log to hold them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.errors import CorruptRecordError
from barnabas.log.segment.file_handle import DATA_FILE_MODE
from barnabas.protocol.internal.metadata_topic import CLUSTER_METADATA
from barnabas.raft.client import ApiMessageAndVersion
from barnabas.raft.records_snapshot import RecordsSnapshotReader, RecordsSnapshotWriter
from barnabas.raft.snapshot_files import BOOTSTRAP_SNAPSHOT_ID, FileRawSnapshotReader, FileRawSnapshotWriter
from barnabas.raft.voter_set import KRAFT_VERSION_1, VoterSet

BOOTSTRAP_FILE: Final = "bootstrap.checkpoint"
METADATA_LOG_DIR_NAME: Final = "__cluster_metadata-0"


def read_bootstrap_file(path: Path) -> list[ApiMessageAndVersion]:
    """Reads the records. `KafkaStorageError` if the file cannot be read, `CorruptRecordError` if it is damaged."""
    reader = RecordsSnapshotReader(FileRawSnapshotReader(path, BOOTSTRAP_SNAPSHOT_ID), CLUSTER_METADATA)
    try:
        return [record for batch in reader for record in batch.records]
    except CorruptRecordError as error:
        raise CorruptRecordError(
            f"{error}. Only the first start of a cluster needs this file: restore it, or delete it if the cluster has "
            "been started before"
        ) from None
    finally:
        reader.close()


def write_bootstrap_file(path: Path, records: Sequence[ApiMessageAndVersion], clock: Clock = SYSTEM_CLOCK) -> None:
    """Durably replaces the file at `path` with these records. Creates the directory if necessary."""
    _write(FileRawSnapshotWriter(path, BOOTSTRAP_SNAPSHOT_ID, mode=DATA_FILE_MODE), 0, records, clock)


def write_initial_voters(log_dir: Path, voters: VoterSet, clock: Clock = SYSTEM_CLOCK) -> None:
    """Writes the first snapshot of a log directory whose voters are kept in the log."""
    if not voters:
        raise ValueError("a quorum needs a voter")
    if any(node.key.directory_id is None for node in voters):
        raise ValueError(f"voters in the log need the ids of their directories: {voters}")
    raw = FileRawSnapshotWriter.create(log_dir / METADATA_LOG_DIR_NAME, BOOTSTRAP_SNAPSHOT_ID)
    _write(raw, clock.milliseconds(), (), clock, KRAFT_VERSION_1, voters)


def _write(
    raw: FileRawSnapshotWriter,
    timestamp: int,
    records: Sequence[ApiMessageAndVersion],
    clock: Clock,
    kraft_version: int = 0,
    voters: VoterSet | None = None,
) -> None:
    try:
        writer = RecordsSnapshotWriter(
            raw,
            timestamp,
            clock=clock,
            types=CLUSTER_METADATA,
            kraft_version=kraft_version,
            voters=VoterSet() if voters is None else voters,
        )
        writer.append(records)
        writer.freeze()
    finally:
        raw.close()
