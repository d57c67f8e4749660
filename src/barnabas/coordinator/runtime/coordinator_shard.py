"""The state machine of one partition, as the runtime sees it."""

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
    """What is sharded over the partitions of an internal topic: some groups, some transactional ids.

    It does no I/O. Operations come in as method calls and go out as
    :class:`~barnabas.coordinator.runtime.coordinator_result.CoordinatorResult`; time comes in by way of a clock and of
    timers. All its methods are called by one thread at a time, so nothing in it is locked.
    """

    def on_loaded(self, image: MetadataImage) -> None:
        """The log is replayed, and operations will follow."""
        ...

    def on_unloaded(self) -> None:
        """Another broker is responsible now, or none."""
        ...

    def on_new_metadata_image(self, image: MetadataImage, delta: MetadataDelta) -> None: ...

    def replay(self, offset: int, producer_id: int, producer_epoch: int, record: CoordinatorRecord) -> None:
        """Applies a record that is in the log at this offset, or is about to be.

        `producer_id` is -1 unless it belongs to a transaction, whose end is told by `replay_end_transaction_marker`.
        """
        ...

    def replay_end_transaction_marker(self, producer_id: int, producer_epoch: int, result: ControlRecordType) -> None:
        """The transaction of a producer has been committed or aborted, as far as this partition is concerned."""
        ...


@dataclass(frozen=True, slots=True)
class ShardContext:
    """What the runtime gives a new shard to work with."""

    partition: TopicPartition
    registry: SnapshotRegistry
    """All state that records make is to be kept in timeline structures of this registry, or it cannot be reverted."""
    timer: CoordinatorTimer
    executor: CoordinatorExecutor
    clock: Clock


S_co = TypeVar("S_co", bound=CoordinatorShard, covariant=True)


class CoordinatorShardBuilder(Protocol[S_co]):
    """Makes an empty shard for a partition that is going to be loaded."""

    def __call__(self, context: ShardContext) -> S_co: ...
