"""What the replica manager is asked, and what it answers: plain values, one for each partition of a request.

They are made for every request, so they are tuples or have slots, and carry no behaviour beyond what they are.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Final, NamedTuple, Protocol

from barnabas.common.errors import Errors
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.fetch_isolation import FetchIsolation
from barnabas.log.leader_epoch_cache import EpochEndOffset
from barnabas.log.log_append_info import RecordError
from barnabas.log.log_offset_metadata import UNKNOWN_OFFSET_METADATA, LogOffsetMetadata
from barnabas.network.send import FileRegion
from barnabas.protocol.internal.storage import AbortedTxn
from barnabas.records.batch import NO_TIMESTAMP
from barnabas.replica.fetch_session import TopicIdPartition

INVALID_OFFSET: Final = -1
NO_REPLICA: Final = -1
"""In place of a broker's id: nobody."""

CONSUMER_REPLICA_ID: Final = -1
"""What a consumer has in the place of a broker's id."""
DEBUGGING_REPLICA_ID: Final = -2
"""What a tool has there that wants to see everything, and counts as no replica."""


class IsolationLevel(IntEnum):
    """Which records a consumer wants to see."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1
    """None of a transaction that is open or was aborted."""


# Looked up once: a member of an enumeration takes as long as a call.
READ_COMMITTED: Final = IsolationLevel.READ_COMMITTED
LOG_END: Final = FetchIsolation.LOG_END
HIGH_WATERMARK: Final = FetchIsolation.HIGH_WATERMARK
TXN_COMMITTED: Final = FetchIsolation.TXN_COMMITTED


# Produce


class ProduceResult(NamedTuple):
    """What became of the batch for one partition."""

    error: Errors
    base_offset: int = INVALID_OFFSET
    log_append_time: int = NO_TIMESTAMP
    """-1 unless the topic goes by the broker's clock."""
    log_start_offset: int = INVALID_OFFSET
    record_errors: tuple[RecordError, ...] = ()
    """The records for which the batch was refused."""
    error_message: str | None = None
    """For the client, where the error code does not say enough."""
    last_offset: int = INVALID_OFFSET


ProduceCallback = Callable[[dict[TopicIdPartition, ProduceResult]], object]


class BufferHolder(Protocol):
    """Whoever accounts for the buffers of an append: a request."""

    def hold_buffer(self) -> Callable[[], object]:
        """Keeps them accounted for beyond the call that brings them, until the function is called that it returns."""
        ...


class NobodysBuffers:
    """Buffers that nobody accounts for."""

    def hold_buffer(self) -> Callable[[], object]:
        return self._release

    def _release(self) -> None: ...


NOBODYS_BUFFERS: Final = NobodysBuffers()


# Fetch


class ClientMetadata(NamedTuple):
    """Who a consumer is, for the choice of a replica near it (KIP-392)."""

    rack_id: str
    client_id: str
    client_address: str
    principal: str
    listener_name: str


class FetchParams:
    """What a fetch wants, from all its partitions alike.

    ``client_metadata`` is for consumers that are new enough to be sent to another replica (v11); without it a consumer
    is served by the leader only.
    """

    __slots__ = (
        "client_metadata",
        "fetch_only_leader",
        "is_from_consumer",
        "is_from_follower",
        "isolation",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "replica_epoch",
        "replica_id",
    )

    def __init__(
        self,
        replica_id: int,
        replica_epoch: int,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        isolation: FetchIsolation,
        client_metadata: ClientMetadata | None = None,
    ) -> None:
        self.replica_id = replica_id
        """The follower's broker id, -1 for a consumer, -2 for a debugging tool."""
        self.replica_epoch = replica_epoch
        """The follower's broker epoch, -1 if it has not said."""
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.isolation = isolation
        self.client_metadata = client_metadata
        self.is_from_follower = replica_id >= 0
        self.is_from_consumer = replica_id == CONSUMER_REPLICA_ID
        self.fetch_only_leader = self.is_from_follower or (self.is_from_consumer and client_metadata is None)
        """Whether a follower may not answer this."""

    @staticmethod
    def isolation_of(replica_id: int, isolation_level: int) -> FetchIsolation:
        """How far a reader sees who has said this in its request."""
        if replica_id != CONSUMER_REPLICA_ID:
            return LOG_END
        return TXN_COMMITTED if isolation_level == READ_COMMITTED else HIGH_WATERMARK

    def __repr__(self) -> str:
        return f"FetchParams({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__slots__)})"


class FetchPartitionData(NamedTuple):
    """The result of a fetch for one partition, with the offsets from before the read."""

    error: Errors
    high_watermark: int
    log_start_offset: int
    records: FileRegion | bytes
    diverging_epoch: EpochEndOffset | None = None
    """The last epoch that both logs have, and its end offset here, if the reader's log diverges from this one."""
    last_stable_offset: int = INVALID_OFFSET
    aborted_transactions: list[AbortedTxn] | None = None
    preferred_read_replica: int = NO_REPLICA
    """The broker to read from instead of this one."""
    is_reassignment_fetch: bool = False
    """Whether the reader is a replica that a reassignment adds."""
    fetch_offset_metadata: LogOffsetMetadata = UNKNOWN_OFFSET_METADATA
    """Where the read began, for a fetch that has to wait."""


FetchCallback = Callable[[list[tuple[TopicIdPartition, FetchPartitionData]]], object]


# ListOffsets, OffsetForLeaderEpoch, DeleteRecords


class OffsetResult(NamedTuple):
    """An offset that was looked for, all -1 if there is none."""

    timestamp: int = NO_TIMESTAMP
    offset: int = INVALID_OFFSET
    leader_epoch: int = -1


class EpochEndOffsetResult(NamedTuple):
    """Where a leader epoch ends; both -1 if nothing is known of it, or if there is an error."""

    error: Errors
    leader_epoch: int = -1
    end_offset: int = INVALID_OFFSET


class DeleteRecordsResult(NamedTuple):
    """From where on there are records now, on all replicas; -1 on an error."""

    error: Errors
    low_watermark: int = INVALID_OFFSET


DeleteRecordsCallback = Callable[[dict[TopicPartition, DeleteRecordsResult]], object]
