"""A replicated log of one voter, in memory.

It leads as soon as it is started and commits what is appended at once, or, for tests, when told to. Records are kept
encoded, as a file would keep them, so whatever cannot be written to a log or read back fails here too.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.exceptions import InvalidUpdateVersionError
from barnabas.protocol.internal.framing import MetadataRecordTypes
from barnabas.protocol.internal.metadata_topic import CLUSTER_METADATA
from barnabas.raft.client import (
    UNKNOWN_LEADER,
    ApiMessageAndVersion,
    Batch,
    LeaderAndEpoch,
    NotLeaderError,
    OffsetAndEpoch,
    RaftListener,
    SnapshotWriter,
)


class EncodedBatch(NamedTuple):
    """A batch as it is stored: each value is a framed metadata record; none at all in a control batch."""

    base_offset: int
    last_offset: int
    epoch: int
    append_timestamp: int
    values: tuple[bytes, ...]

    def decode(self, types: MetadataRecordTypes) -> Batch[ApiMessageAndVersion]:
        return Batch(
            self.base_offset,
            self.last_offset,
            self.epoch,
            self.append_timestamp,
            sum(map(len, self.values)),
            [ApiMessageAndVersion(*types.decode(value)) for value in self.values],
        )


class EncodedSnapshot(NamedTuple):
    snapshot_id: OffsetAndEpoch
    last_contained_log_timestamp: int
    batches: tuple[tuple[bytes, ...], ...]


class MemoryLog:
    """What outlives a :class:`LocalRaftClient`: the encoded log and the latest snapshot.

    A new client over the same log is a restarted node. Guarded by the lock of the client that has it open.
    """

    __slots__ = ("batches", "snapshot")

    def __init__(self) -> None:
        self.batches: list[EncodedBatch] = []
        self.snapshot: EncodedSnapshot | None = None

    @property
    def end_offset(self) -> int:
        if self.batches:
            return self.batches[-1].last_offset + 1
        return self.snapshot.snapshot_id.offset if self.snapshot else 0

    @property
    def last_epoch(self) -> int:
        if self.batches:
            return self.batches[-1].epoch
        return self.snapshot.snapshot_id.epoch if self.snapshot else 0


class _ListBatchReader:
    __slots__ = ("_batches", "base_offset", "last_offset")

    def __init__(self, batches: Sequence[Batch[ApiMessageAndVersion]]) -> None:
        self._batches = batches
        self.base_offset = batches[0].base_offset
        self.last_offset = batches[-1].last_offset

    def __iter__(self) -> Iterator[Batch[ApiMessageAndVersion]]:
        return iter(self._batches)

    def close(self) -> None:
        self._batches = ()


class _MemorySnapshotReader:
    __slots__ = ("_snapshot", "_types", "last_contained_log_offset", "last_contained_log_timestamp", "snapshot_id")

    def __init__(self, snapshot: EncodedSnapshot, types: MetadataRecordTypes) -> None:
        self._snapshot = snapshot
        self._types = types
        self.snapshot_id = snapshot.snapshot_id
        self.last_contained_log_offset = snapshot.snapshot_id.offset - 1
        self.last_contained_log_timestamp = snapshot.last_contained_log_timestamp

    def __iter__(self) -> Iterator[Batch[ApiMessageAndVersion]]:
        offset = 0
        for values in self._snapshot.batches:
            last = offset + len(values) - 1
            encoded = EncodedBatch(offset, last, self.snapshot_id.epoch, self.last_contained_log_timestamp, values)
            yield encoded.decode(self._types)
            offset = last + 1

    def close(self) -> None:
        """Nothing is held open."""


class _MemorySnapshotWriter:
    __slots__ = ("_batches", "_install", "_timestamp", "_types", "snapshot_id")

    def __init__(
        self,
        snapshot_id: OffsetAndEpoch,
        timestamp: int,
        types: MetadataRecordTypes,
        install: Callable[[EncodedSnapshot], None],
    ) -> None:
        self.snapshot_id = snapshot_id
        self._timestamp = timestamp
        self._types = types
        self._install: Callable[[EncodedSnapshot], None] | None = install
        self._batches: list[tuple[bytes, ...]] = []

    def append(self, records: Sequence[ApiMessageAndVersion]) -> None:
        if self._install is None:
            raise ValueError(f"snapshot {self.snapshot_id} is frozen or closed already")
        encode = self._types.encode
        self._batches.append(tuple(encode(message, version) for message, version in records))

    def freeze(self) -> None:
        if self._install is None:
            raise ValueError(f"snapshot {self.snapshot_id} is frozen or closed already")
        self._install(EncodedSnapshot(self.snapshot_id, self._timestamp, tuple(self._batches)))
        self._install = None

    def close(self) -> None:
        self._install = None


class LocalRaftClient:
    """A quorum of one, in memory.

    >>> client = LocalRaftClient(node_id=1, auto_commit=False)
    >>> client.start()
    >>> client.leader_and_epoch
    LeaderAndEpoch(leader_id=1, epoch=1)
    >>> from barnabas.protocol.internal.metadata import NoOpRecord
    >>> client.prepare_append(1, [ApiMessageAndVersion(NoOpRecord(), 0)])
    1
    >>> client.schedule_prepared_append()
    >>> client.high_watermark, client.commit()
    (1, 2)

    Offset 0 in the example went to the control batch with which a new leader opens its epoch.

    A test plays the other voters: :meth:`commit` moves the high watermark, :meth:`elect` makes somebody lead. When
    another node is elected, what was not committed is cut off, as a real leader's log would be when it comes back as a
    follower; :meth:`append_as_leader` then writes what the new leader commits.
    """

    def __init__(
        self,
        node_id: int,
        *,
        clock: Clock = SYSTEM_CLOCK,
        log: MemoryLog | None = None,
        auto_commit: bool = True,
        types: MetadataRecordTypes = CLUSTER_METADATA,
    ) -> None:
        self._node_id = node_id
        self._clock = clock
        self._auto_commit = auto_commit
        self._types = types
        self._lock = threading.RLock()
        """Guards all fields below, and is held while listeners are called, so that they all hear of things in one
        order. Listeners only put an event in their own queue, so no lock is taken inside it but those queues'."""
        self.log = MemoryLog() if log is None else log
        self._leader = LeaderAndEpoch(None, self.log.last_epoch)
        self._high_watermark: int | None = None
        self._prepared: list[tuple[EncodedBatch, Sequence[ApiMessageAndVersion]]] = []
        self._uncommitted: dict[int, Sequence[ApiMessageAndVersion]] = {}
        """The record objects of appended batches by base offset, until they are committed: the leader gets back what it
        appended, and need not decode it."""
        self._delivered: dict[RaftListener[ApiMessageAndVersion], int] = {}
        """Each listener and the next offset it is to be given."""
        self._closed = False

    # -- what the state machine uses

    @property
    def node_id(self) -> int:
        return self._node_id

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        with self._lock:
            return self._leader

    @property
    def high_watermark(self) -> int | None:
        with self._lock:
            return self._high_watermark

    @property
    def log_end_offset(self) -> int:
        with self._lock:
            return self.log.end_offset

    @property
    def latest_snapshot_id(self) -> OffsetAndEpoch | None:
        with self._lock:
            return None if self.log.snapshot is None else self.log.snapshot.snapshot_id

    @property
    def kraft_version(self) -> int:
        return 0

    def upgrade_kraft_version(self, epoch: int, version: int, validate_only: bool) -> None:
        if version != self.kraft_version:
            raise InvalidUpdateVersionError(
                f"A log in memory has one voter, which cannot change: kraft.version stays {self.kraft_version}."
            )

    def register(self, listener: RaftListener[ApiMessageAndVersion]) -> None:
        with self._lock:
            if self._closed:
                raise ValueError("the Raft client is closed")
            if listener in self._delivered:
                return
            self._delivered[listener] = 0
            self._deliver(listener)
            if self._leader != UNKNOWN_LEADER:
                listener.handle_leader_change(self._leader)

    def unregister(self, listener: RaftListener[ApiMessageAndVersion]) -> None:
        with self._lock:
            self._delivered.pop(listener, None)

    def prepare_append(self, epoch: int, records: Sequence[ApiMessageAndVersion]) -> int:
        if not records:
            raise ValueError("an append needs at least one record")
        with self._lock:
            self._check_leads(epoch)
            base_offset = self._prepared[-1][0].last_offset + 1 if self._prepared else self.log.end_offset
            last_offset = base_offset + len(records) - 1
            encode = self._types.encode
            values = tuple(encode(message, version) for message, version in records)
            batch = EncodedBatch(base_offset, last_offset, epoch, self._clock.milliseconds(), values)
            self._prepared.append((batch, tuple(records)))
            return last_offset

    def schedule_prepared_append(self) -> None:
        with self._lock:
            self._check_leads(self._leader.epoch)
            for batch, records in self._prepared:
                self.log.batches.append(batch)
                self._uncommitted[batch.base_offset] = records
            self._prepared.clear()
            if self._auto_commit:
                self.commit()

    def resign(self, epoch: int) -> None:
        with self._lock:
            if epoch < 0 or epoch > self._leader.epoch:
                raise ValueError(f"cannot resign from epoch {epoch}: the current one is {self._leader.epoch}")
            if epoch < self._leader.epoch:
                return
            if not self._leader.is_leader(self._node_id):
                raise ValueError(f"cannot resign: node {self._leader.leader_id} leads in epoch {epoch}")
            self._prepared.clear()
            self._set_leader(LeaderAndEpoch(None, epoch + 1))
            if self._auto_commit:  # nobody else could be elected
                self.start()

    def create_snapshot(
        self, snapshot_id: OffsetAndEpoch, last_contained_log_timestamp: int
    ) -> SnapshotWriter[ApiMessageAndVersion] | None:
        with self._lock:
            limit = self._high_watermark or 0
            if snapshot_id.offset > limit:
                raise ValueError(f"a snapshot at {snapshot_id.offset} reaches beyond the high watermark, {limit}")
            latest = self.latest_snapshot_id
            if latest is not None and snapshot_id.offset <= latest.offset:
                return None
        return _MemorySnapshotWriter(snapshot_id, last_contained_log_timestamp, self._types, self._install_snapshot)

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for listener in list(self._delivered):
                listener.begin_shutdown()
            self._delivered.clear()

    # -- what a test, or the start of a node, does

    def start(self) -> None:
        """Elects this node in the next epoch. Everything in its log is committed then: it is the only voter."""
        self.elect(self._node_id)

    def elect(self, leader_id: int | None, epoch: int | None = None) -> None:
        """Makes a node lead in the given epoch, the next one unless told; None leaves the epoch without leader.

        If it is this node, the log up to and with the control batch of its epoch is committed first: a real leader,
        too, is announced to its own state machine only when that has been given everything from before its epoch.
        """
        with self._lock:
            new_epoch = self._leader.epoch + 1 if epoch is None else epoch
            if new_epoch < self._leader.epoch or (
                new_epoch == self._leader.epoch and self._leader.leader_id is not None
            ):
                raise ValueError(f"epoch {new_epoch} has a leader already or is over: {self._leader}")
            self._prepared.clear()
            if leader_id != self._node_id:
                self._cut_off_uncommitted()
            else:
                self._append_control_batch(new_epoch)
                self.commit()
            self._set_leader(LeaderAndEpoch(leader_id, new_epoch))

    def append_as_leader(self, leader_epoch: int, records: Sequence[ApiMessageAndVersion]) -> int:
        """Writes a batch that another node, the leader in that epoch, has appended; returns its last offset."""
        with self._lock:
            base_offset = self.log.end_offset
            values = tuple(self._types.encode(message, version) for message, version in records)
            last_offset = base_offset + len(records) - 1
            self.log.batches.append(
                EncodedBatch(base_offset, last_offset, leader_epoch, self._clock.milliseconds(), values)
            )
            return last_offset

    def commit(self, up_to: int | None = None) -> int:
        """Moves the high watermark to the end of the log, or to the end of the batch with offset `up_to`."""
        with self._lock:
            end = self.log.end_offset
            if up_to is not None:
                index = bisect_right(self.log.batches, up_to, key=lambda batch: batch.base_offset)
                end = self.log.batches[index - 1].last_offset + 1 if index else 0
            end = self._high_watermark = max(end, self._high_watermark or 0)
            for listener in list(self._delivered):
                self._deliver(listener)
            for base_offset in [offset for offset in self._uncommitted if offset < end]:
                del self._uncommitted[base_offset]
            return end

    # -- inside, with the lock held

    def _check_leads(self, epoch: int) -> None:
        if self._leader != (self._node_id, epoch):
            raise NotLeaderError(f"node {self._node_id} does not lead in epoch {epoch}: {self._leader}")

    def _set_leader(self, leader: LeaderAndEpoch) -> None:
        self._leader = leader
        for listener in list(self._delivered):
            listener.handle_leader_change(leader)

    def _append_control_batch(self, epoch: int) -> None:
        offset = self.log.end_offset
        self.log.batches.append(EncodedBatch(offset, offset, epoch, self._clock.milliseconds(), ()))

    def _cut_off_uncommitted(self) -> None:
        end = self._high_watermark or 0
        while self.log.batches and self.log.batches[-1].base_offset >= end:
            self._uncommitted.pop(self.log.batches.pop().base_offset, None)

    def _deliver(self, listener: RaftListener[ApiMessageAndVersion]) -> None:
        """Gives a listener what is committed and new to it."""
        next_offset = self._delivered[listener]
        high_watermark = self._high_watermark or 0
        snapshot = self.log.snapshot
        log_start = self.log.batches[0].base_offset if self.log.batches else self.log.end_offset
        if snapshot is not None and next_offset < log_start:
            listener.handle_load_snapshot(_MemorySnapshotReader(snapshot, self._types))
            next_offset = snapshot.snapshot_id.offset
        index = bisect_left(self.log.batches, next_offset, key=lambda batch: batch.base_offset)
        fresh = [self._batch(encoded) for encoded in self.log.batches[index:] if encoded.last_offset < high_watermark]
        self._delivered[listener] = fresh[-1].last_offset + 1 if fresh else next_offset
        if fresh:
            listener.handle_commit(_ListBatchReader(fresh))

    def _batch(self, encoded: EncodedBatch) -> Batch[ApiMessageAndVersion]:
        records = self._uncommitted.get(encoded.base_offset)
        if records is None:
            return encoded.decode(self._types)
        return Batch(
            encoded.base_offset,
            encoded.last_offset,
            encoded.epoch,
            encoded.append_timestamp,
            sum(map(len, encoded.values)),
            records,
        )

    def _install_snapshot(self, snapshot: EncodedSnapshot) -> None:
        with self._lock:
            current = self.log.snapshot
            if current is not None and snapshot.snapshot_id.offset <= current.snapshot_id.offset:
                return
            self.log.snapshot = snapshot
            end = snapshot.snapshot_id.offset
            self.log.batches = [batch for batch in self.log.batches if batch.last_offset >= end]
