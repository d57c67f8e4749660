"""Passes committed records from Raft to the metadata loader."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from barnabas.metadata.batch_loader import MetadataBatch
from barnabas.metadata.loader import MetadataLoader
from barnabas.metadata.provenance import MetadataProvenance
from barnabas.protocol.internal.framing import MetadataRecord
from barnabas.raft.client import ApiMessageAndVersion, BatchReader, LeaderAndEpoch, SnapshotReader

log = logging.getLogger(__name__)


class _Batches:
    """Committed batches, decoded on the loader's thread. Closing them lets Raft send more."""

    __slots__ = ("_reader",)

    def __init__(self, reader: BatchReader[ApiMessageAndVersion]) -> None:
        self._reader = reader

    def __iter__(self) -> Iterator[MetadataBatch]:
        for batch in self._reader:
            yield MetadataBatch(
                batch.base_offset,
                batch.last_offset,
                batch.epoch,
                batch.append_timestamp,
                [message for message, _ in batch.records],
                batch.size_in_bytes,
            )

    def close(self) -> None:
        self._reader.close()


class _SnapshotRecords:
    """The records of a snapshot, decoded on the loader's thread."""

    __slots__ = ("_reader",)

    def __init__(self, reader: SnapshotReader[ApiMessageAndVersion]) -> None:
        self._reader = reader

    def __iter__(self) -> Iterator[MetadataRecord]:
        for batch in self._reader:
            for message, _ in batch.records:
                yield message

    def close(self) -> None:
        self._reader.close()


class MetadataRaftListener:
    """The loader's :class:`~barnabas.raft.client.RaftListener`.

    It decodes nothing on Raft's thread: the loader does that when it processes the event, and then closes the reader.
    """

    def __init__(self, loader: MetadataLoader) -> None:
        self._loader = loader

    def handle_commit(self, reader: BatchReader[ApiMessageAndVersion]) -> None:
        self._loader.handle_commit(_Batches(reader))

    def handle_load_snapshot(self, reader: SnapshotReader[ApiMessageAndVersion]) -> None:
        snapshot_id = reader.snapshot_id
        if snapshot_id.offset == 0 and not any(batch.records for batch in reader):
            # Formatting creates it if the voters are in the log: it has voters but no metadata. The loader must not see
            # it, or it would publish a cluster without metadata.version.
            log.debug("Ignoring the empty snapshot before the first record")
            reader.close()
            return
        provenance = MetadataProvenance(
            reader.last_contained_log_offset,
            snapshot_id.epoch,
            reader.last_contained_log_timestamp,
            is_batch_aligned=True,
        )
        self._loader.handle_load_snapshot(provenance, _SnapshotRecords(reader))

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        self._loader.handle_leader_change(leader)

    def begin_shutdown(self) -> None:
        """Does nothing: the owner of the loader closes it."""

    def __repr__(self) -> str:
        return "MetadataRaftListener"
