"""What a state machine sees of the replicated log.

Raft's job is to keep one sequence of records the same on several nodes; what the records mean is the business of a
*state machine* on top: the controller, or a broker that follows the metadata. The two talk through this interface only,
in both directions:

    state machine -> RaftClient     "append these, I lead in epoch 7"        prepare_append, schedule_prepared_append
    RaftClient    -> RaftListener   "everything up to here is committed"     handle_commit
                                    "forget what you have, start from this"  handle_load_snapshot
                                    "node 3 leads in epoch 8"                handle_leader_change

An append has two halves because of what must happen between them. :meth:`RaftClient.prepare_append` fixes the offset
and proves that the records can be written; then the controller applies them to its memory; only then does
:meth:`RaftClient.schedule_prepared_append` let them out. A record that cannot be applied is a bug, and this way the bug
is found on one node, before every other node is given the same record to fail on.
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
    """An append by a node that does not lead, or no longer in the epoch it thinks; it has to step down."""


class ApiMessageAndVersion(NamedTuple):
    """A metadata record and the version to write it in, which depends on the cluster's ``metadata.version``."""

    message: MetadataRecord
    version: int


class OffsetAndEpoch(NamedTuple):
    """A place in the log. As the id of a snapshot: the first offset that the snapshot does *not* contain."""

    offset: int
    epoch: int


class LeaderAndEpoch(NamedTuple):
    """Who leads; None while an election goes on."""

    leader_id: int | None
    epoch: int

    def is_leader(self, node_id: int) -> bool:
        return self.leader_id == node_id


UNKNOWN_LEADER = LeaderAndEpoch(None, 0)


class Batch(Generic[T_co]):
    """Records that were appended together, and therefore are committed together.

    ``records`` is empty for a batch of Raft's own control records (a leader announces itself with one). Such a batch
    takes up offsets all the same, so ``last_offset`` cannot be had by counting.
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
    """Batches of the log in order, to be iterated once and closed; closing it again does nothing."""

    @property
    def base_offset(self) -> int: ...

    @property
    def last_offset(self) -> int | None:
        """The last offset to come, None if that is not known beforehand."""
        ...

    def __iter__(self) -> Iterator[Batch[T_co]]: ...

    def close(self) -> None: ...


class SnapshotReader(Protocol[T_co]):
    """The records of one snapshot, to be iterated once and closed, as often as one likes.

    Offsets inside a snapshot mean nothing.
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
    """A snapshot in the making: nothing of it counts before :meth:`freeze`."""

    @property
    def snapshot_id(self) -> OffsetAndEpoch: ...

    def append(self, records: Sequence[T_contra]) -> None: ...

    def freeze(self) -> None:
        """Completes the snapshot; from now on it is the latest, and the log before it may go."""
        ...

    def close(self) -> None:
        """Gives up the snapshot unless it is frozen."""
        ...


class RaftListener(Protocol[T_contra]):
    """The state machine's side.

    Calls come from Raft's thread, one at a time and in the order of the log. A listener hands the work on to its own
    thread and returns: while it does not, nothing is replicated.
    """

    def handle_commit(self, reader: BatchReader[T_contra]) -> None:
        """Batches have been committed. Batch boundaries are those of the appends or wider, never narrower."""
        ...

    def handle_load_snapshot(self, reader: SnapshotReader[T_contra]) -> None:
        """The log does not reach back to where the listener is: all state is to be replaced by this snapshot."""
        ...

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Called with rising epochs, at most twice for each: leader unknown, then known.

        A node hears of its own leadership only after it has been given everything committed before.
        """
        ...

    def begin_shutdown(self) -> None: ...


class RaftClient(Protocol[T]):
    """The replicated log as a state machine uses it. All methods may be called from any thread."""

    @property
    def node_id(self) -> int: ...

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch: ...

    @property
    def high_watermark(self) -> int | None:
        """The offset below which everything is committed; None until a leader has found that out."""
        ...

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record will get, committed or not."""
        ...

    @property
    def latest_snapshot_id(self) -> OffsetAndEpoch | None: ...

    @property
    def kraft_version(self) -> int:
        """The level of the ``kraft.version`` feature: 0 static voters, 1 voters kept in the log (KIP-853)."""
        ...

    def upgrade_kraft_version(self, epoch: int, version: int, validate_only: bool) -> None: ...

    def register(self, listener: RaftListener[T]) -> None:
        """Starts to feed a listener, from the beginning of the log."""
        ...

    def unregister(self, listener: RaftListener[T]) -> None: ...

    def prepare_append(self, epoch: int, records: Sequence[T]) -> int:
        """Encodes records for one batch and returns the offset that the last of them will have.

        Raises :class:`NotLeaderError` if this node does not lead in that epoch. Nothing is written yet.
        """
        ...

    def schedule_prepared_append(self) -> None:
        """Lets everything prepared be written and replicated."""
        ...

    def resign(self, epoch: int) -> None:
        """Gives up leadership of that epoch; ignored if the epoch is over already."""
        ...

    def create_snapshot(
        self, snapshot_id: OffsetAndEpoch, last_contained_log_timestamp: int
    ) -> SnapshotWriter[T] | None:
        """A writer for a snapshot up to a committed offset; None if there is such a snapshot already."""
        ...

    def close(self) -> None: ...
