"""Parameters and results of the replica manager: plain values, one for each partition of a request.

They are created for every request, so they are tuples or have slots, and have no behaviour.
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
from barnabas.network.reactor.send import FileRegion
from barnabas.protocol.internal.storage import AbortedTxn
from barnabas.records.batch import NO_TIMESTAMP
from barnabas.replica.fetch.fetch_session import TopicIdPartition

INVALID_OFFSET: Final = -1
ACKS_ALL: Final = -1
"""``acks`` of a produce request that waits for all in-sync replicas."""
NO_REPLICA: Final = -1
"""In place of a broker id: no broker."""

CONSUMER_REPLICA_ID: Final = -1
"""In place of a broker id: a consumer."""
DEBUGGING_REPLICA_ID: Final = -2
"""In place of a broker id: a debugging tool, which sees everything and does not count as a replica."""


class IsolationLevel(IntEnum):
    """Which records a consumer wants to see."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1
    """Excludes records of open and aborted transactions."""


# Looked up once: looking up an enum member costs as much as a call.
READ_COMMITTED: Final = IsolationLevel.READ_COMMITTED
LOG_END: Final = FetchIsolation.LOG_END
HIGH_WATERMARK: Final = FetchIsolation.HIGH_WATERMARK
TXN_COMMITTED: Final = FetchIsolation.TXN_COMMITTED


# Produce


class ProduceResult(NamedTuple):
    """The result of an append to one partition."""

    error: Errors
    base_offset: int = INVALID_OFFSET
    log_append_time: int = NO_TIMESTAMP
    """-1 unless the topic uses LogAppendTime."""
    log_start_offset: int = INVALID_OFFSET
    record_errors: tuple[RecordError, ...] = ()
    """The records that caused the batch to be refused."""
    error_message: str | None = None
    """A message for the client, where the error code is not specific enough."""
    last_offset: int = INVALID_OFFSET


ProduceCallback = Callable[[dict[TopicIdPartition, ProduceResult]], object]


class BufferHolder(Protocol):
    """Accounts for the buffers of an append: a request."""

    def hold_buffer(self) -> Callable[[], object]:
        """Keeps the buffers accounted for after the current call; returns the function that releases them."""
        ...


class UncountedBuffers:
    """Does not account for buffers."""

    def hold_buffer(self) -> Callable[[], object]:
        return self._release

    def _release(self) -> None: ...


UNCOUNTED_BUFFERS: Final = UncountedBuffers()


# Fetch


class ClientMetadata(NamedTuple):
    """Identifies a consumer, for the choice of a nearby replica (KIP-392)."""

    rack_id: str
    client_id: str
    client_address: str
    principal: str
    listener_name: str


class FetchParams:
    """The parameters of a fetch that apply to all its partitions.

    ``client_metadata`` is set for consumers that support a preferred read replica (v11); without it only the leader
    serves a consumer.
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
        """The follower's broker epoch, -1 if unknown."""
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.isolation = isolation
        self.client_metadata = client_metadata
        self.is_from_follower = replica_id >= 0
        self.is_from_consumer = replica_id == CONSUMER_REPLICA_ID
        self.fetch_only_leader = self.is_from_follower or (self.is_from_consumer and client_metadata is None)
        """Whether only the leader may serve this fetch."""

    @staticmethod
    def isolation_of(replica_id: int, isolation_level: int) -> FetchIsolation:
        """Returns how far a reader with these request fields may read."""
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
    """The result of an offset lookup; all fields are -1 if there is none."""

    timestamp: int = NO_TIMESTAMP
    offset: int = INVALID_OFFSET
    leader_epoch: int = -1


class EpochEndOffsetResult(NamedTuple):
    """The end offset of a leader epoch; both fields are -1 if the epoch is unknown, or on an error."""

    error: Errors
    leader_epoch: int = -1
    end_offset: int = INVALID_OFFSET


class DeleteRecordsResult(NamedTuple):
    """The low watermark of all replicas after a deletion; -1 on an error."""

    error: Errors
    low_watermark: int = INVALID_OFFSET


DeleteRecordsCallback = Callable[[dict[TopicPartition, DeleteRecordsResult]], object]
