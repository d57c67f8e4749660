"""A state machine with snapshots of its past states."""

from __future__ import annotations

from typing import Generic, TypeVar

from barnabas.common.snapshot_registry import SnapshotRegistry
from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
from barnabas.coordinator.runtime.coordinator_shard import CoordinatorShard
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import MetadataImage
from barnabas.records.control import ControlRecordType

S = TypeVar("S", bound=CoordinatorShard)


class SnapshottableCoordinator(Generic[S]):
    """A shard, and the offsets up to which its state is written and committed::

        log          0 . . . . . . . 8 . . . . . 13
        snapshots                    ^           ^
                       last_committed_offset     last_written_offset

    Operations use the latest state. Readers use the state of the last committed offset. A failed write reverts the
    state to the start of its batch.
    """

    __slots__ = ("_registry", "last_committed_offset", "last_written_offset", "shard")

    def __init__(self, registry: SnapshotRegistry, shard: S) -> None:
        self._registry = registry
        self.shard = shard
        self.last_written_offset = 0
        self.last_committed_offset = 0
        registry.idempotent_create_snapshot(0)

    def replay(self, offset: int, producer_id: int, producer_epoch: int, record: CoordinatorRecord) -> None:
        self.shard.replay(offset, producer_id, producer_epoch, record)

    def replay_end_transaction_marker(self, producer_id: int, producer_epoch: int, result: ControlRecordType) -> None:
        self.shard.replay_end_transaction_marker(producer_id, producer_epoch, result)

    def update_last_written_offset(self, offset: int) -> None:
        """Marks the replayed state as that of the log up to this offset."""
        if offset < self.last_written_offset:
            raise ValueError(f"offset {offset} is written after offset {self.last_written_offset}")
        self.last_written_offset = offset
        self._registry.idempotent_create_snapshot(offset)

    def revert_last_written_offset(self, offset: int) -> None:
        """Reverts everything that was replayed since this offset."""
        if offset < self.last_committed_offset:
            raise ValueError(f"cannot revert to offset {offset}: {self.last_committed_offset} is committed")
        self._registry.revert_to_snapshot(offset)
        self.last_written_offset = offset

    def update_last_committed_offset(self, offset: int) -> bool:
        """Makes the state at this offset visible to readers. Returns whether that is a change.

        After a load, a high watermark may lie between two snapshots; then the earlier one is used.
        """
        offset = min(offset, self.last_written_offset)
        if offset <= self.last_committed_offset:
            return False
        if not self._registry.has_snapshot(offset):
            offset = max(epoch for epoch in self._registry.epochs if epoch <= offset)
            if offset <= self.last_committed_offset:
                return False
        self.last_committed_offset = offset
        self._registry.delete_snapshots_up_to(offset)
        return True

    def on_loaded(self, image: MetadataImage) -> None:
        self.shard.on_loaded(image)

    def on_unloaded(self) -> None:
        self.shard.on_unloaded()

    def on_new_metadata_image(self, image: MetadataImage, delta: MetadataDelta) -> None:
        self.shard.on_new_metadata_image(image, delta)
