"""The interface between the replicated log and its state machines.

Raft keeps one sequence of records the same on several nodes. A *state machine* on top gives the records a meaning: the
controller, or a broker that follows the metadata. The two talk only through this interface, in both directions:

    state machine -> RaftClient     "append these, I lead in epoch 7"        prepare_append, schedule_prepared_append
    RaftClient    -> RaftListener   "everything up to here is committed"     handle_commit
                                    "replace your state by this"             handle_load_snapshot
                                    "node 3 leads in epoch 8"                handle_leader_change

An append has two halves. :meth:`RaftClient.prepare_append` assigns the offset and proves that the records can be
written; then the controller replays them in memory; only then :meth:`RaftClient.schedule_prepared_append` lets them be
written. A record that cannot be replayed is a bug. This order finds the bug on one node, before the other nodes receive
the same record and fail on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from barnabas.common.exceptions import BarnabasError
from barnabas.protocol.internal.framing import MetadataRecord

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)


class NotLeaderError(BarnabasError):
    """A node appends while it is not the leader, or in a past epoch; it must step down."""


class ApiMessageAndVersion(NamedTuple):
    """A metadata record and the version to write it in, which depends on the cluster's ``metadata.version``."""

    message: MetadataRecord
    version: int


class OffsetAndEpoch(NamedTuple):
    """A position in the log. As the id of a snapshot: the first offset that the snapshot does *not* contain."""

    offset: int
    epoch: int


class LeaderAndEpoch(NamedTuple):
    """The leader and its epoch; the leader is None during an election."""

    leader_id: int | None
    epoch: int

    def is_leader(self, node_id: int) -> bool:
        return self.leader_id == node_id


UNKNOWN_LEADER = LeaderAndEpoch(None, 0)


class Batch(Generic[T_co]):
    """Records that were appended together, and therefore are committed together.

    ``records`` is empty for a batch of Raft's own control records (a new leader writes one). Such a batch takes up
    offsets all the same, so ``last_offset`` cannot be derived from the number of records.
    """

    __slots__ = ("append_timestamp", "base_offset", "epoch", "last_offset", "records", "size_in_bytes")

    def __init__(
        self,
        base_offset: int,
        last_offset: int,
        epoch: int,
        append_timestamp: int,
        size_in_bytes: int,
        records: Sequence[T_co],
    ) -> None:
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.epoch = epoch
        self.append_timestamp = append_timestamp
        self.size_in_bytes = size_in_bytes
        self.records = records

    def __repr__(self) -> str:
        return f"Batch({self.base_offset}-{self.last_offset}, epoch={self.epoch}, {len(self.records)} records)"


class BatchReader(Protocol[T_co]):
    """Batches of the log in order, iterated once and then closed; closing twice is harmless."""

    @property
    def base_offset(self) -> int: ...

    @property
    def last_offset(self) -> int | None:
        """The last offset of the reader; None if it is not known in advance."""
        ...

    def __iter__(self) -> Iterator[Batch[T_co]]: ...

    def close(self) -> None: ...


class SnapshotReader(Protocol[T_co]):
    """The records of one snapshot, iterated once and then closed; closing twice is harmless.

    Offsets inside a snapshot have no meaning.
    """

    @property
    def snapshot_id(self) -> OffsetAndEpoch: ...

    @property
    def last_contained_log_offset(self) -> int: ...

    @property
    def last_contained_log_timestamp(self) -> int: ...

    def __iter__(self) -> Iterator[Batch[T_co]]: ...

    def close(self) -> None: ...


class SnapshotWriter(Protocol[T_contra]):
    """Writes a snapshot, which takes effect only with :meth:`freeze`."""

    @property
    def snapshot_id(self) -> OffsetAndEpoch: ...

    def append(self, records: Sequence[T_contra]) -> None: ...

    def freeze(self) -> None:
        """Completes the snapshot: it becomes the latest, and the log before it may be deleted."""
        ...

    def close(self) -> None:
        """Discards the snapshot unless it is frozen."""
        ...


class RaftListener(Protocol[T_contra]):
    """The interface that a state machine implements.

    Raft's thread makes the calls, one at a time and in log order. A listener passes the work to its own thread and
    returns: a call that blocks stops replication.
    """

    def handle_commit(self, reader: BatchReader[T_contra]) -> None:
        """Handles committed batches. A batch may combine several appends, but never splits one."""
        ...

    def handle_load_snapshot(self, reader: SnapshotReader[T_contra]) -> None:
        """Replaces all state by this snapshot: the log starts after the listener's position."""
        ...

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Called with increasing epochs, at most twice for each: leader unknown, then known.

        A node learns of its own leadership only after it has received everything committed before.
        """
        ...

    def begin_shutdown(self) -> None: ...


class RaftClient(Protocol[T]):
    """The replicated log as a state machine uses it. Any thread may call all methods."""

    @property
    def node_id(self) -> int: ...

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch: ...

    @property
    def high_watermark(self) -> int | None:
        """The offset below which everything is committed; None until a leader has determined it."""
        ...

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record, committed or not."""
        ...

    @property
    def latest_snapshot_id(self) -> OffsetAndEpoch | None: ...

    @property
    def kraft_version(self) -> int:
        """The level of the ``kraft.version`` feature: 0 static voters, 1 voters kept in the log (KIP-853)."""
        ...

    def upgrade_kraft_version(self, epoch: int, version: int, validate_only: bool) -> None: ...

    def register(self, listener: RaftListener[T]) -> None:
        """Adds a listener, which receives the log from its beginning."""
        ...

    def unregister(self, listener: RaftListener[T]) -> None: ...

    def prepare_append(self, epoch: int, records: Sequence[T]) -> int:
        """Encodes records for one batch and returns the offset of the last one.

        Raises :class:`NotLeaderError` if this node does not lead in that epoch. Nothing is written yet.
        """
        ...

    def schedule_prepared_append(self) -> None:
        """Allows all prepared records to be written and replicated."""
        ...

    def resign(self, epoch: int) -> None:
        """Gives up the leadership of that epoch; ignored if the epoch is already over."""
        ...

    def create_snapshot(
        self, snapshot_id: OffsetAndEpoch, last_contained_log_timestamp: int
    ) -> SnapshotWriter[T] | None:
        """Returns a writer for a snapshot at a committed offset; None if that snapshot exists."""
        ...

    def close(self) -> None: ...
