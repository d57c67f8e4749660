"""The state machine of one partition, from the view of the runtime."""

from __future__ import annotations

from typing import Protocol, TypeVar

from barnabas.common.clock import Clock
from barnabas.common.dataclass import dataclass
from barnabas.common.snapshot_registry import SnapshotRegistry
from barnabas.common.topic_partition import TopicPartition
from barnabas.coordinator.runtime.coordinator_executor import CoordinatorExecutor
from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
from barnabas.coordinator.runtime.coordinator_timer import CoordinatorTimer
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import MetadataImage
from barnabas.records.control import ControlRecordType


class CoordinatorShard(Protocol):
    """One partition's share of a coordinator's state: some groups, or some transactional IDs.

    It does no I/O. Operations are method calls that return a
    :class:`~barnabas.coordinator.runtime.coordinator_result.CoordinatorResult`; time comes from a clock and timers. Its
    methods are called by one thread at a time, so it has no locks.
    """

    def on_loaded(self, image: MetadataImage) -> None:
        """Called after the log was replayed, before any operation."""
        ...

    def on_unloaded(self) -> None:
        """Called when this broker is no longer the coordinator."""
        ...

    def on_new_metadata_image(self, image: MetadataImage, delta: MetadataDelta) -> None: ...

    def replay(self, offset: int, producer_id: int, producer_epoch: int, record: CoordinatorRecord) -> None:
        """Applies a record that is in the log at this offset, or is about to be.

        `producer_id` is -1 unless the record belongs to a transaction, which `replay_end_transaction_marker` ends.
        """
        ...

    def replay_end_transaction_marker(self, producer_id: int, producer_epoch: int, result: ControlRecordType) -> None:
        """Ends the transaction of a producer in this partition, by commit or abort."""
        ...


@dataclass(frozen=True, slots=True)
class ShardContext:
    """The dependencies that the runtime passes to a new shard."""

    partition: TopicPartition
    registry: SnapshotRegistry
    """State that results from records must be in timeline structures of this registry, so that it can be reverted."""
    timer: CoordinatorTimer
    executor: CoordinatorExecutor
    clock: Clock


S_co = TypeVar("S_co", bound=CoordinatorShard, covariant=True)


class CoordinatorShardBuilder(Protocol[S_co]):
    """Creates an empty shard for a partition that is going to be loaded."""

    def __call__(self, context: ShardContext) -> S_co: ...
