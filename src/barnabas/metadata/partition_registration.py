"""The metadata of a partition."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from barnabas.common.identifiers import Uuid
from barnabas.metadata.directory_id import MIGRATING
from barnabas.metadata.errors import MetadataReplayError
from barnabas.protocol.internal.metadata import PartitionChangeRecord, PartitionRecord

if TYPE_CHECKING:
    from barnabas.metadata.writer import ImageWriterOptions

NO_LEADER = -1
NO_LEADER_CHANGE = -2
NO_RECOVERY_CHANGE = -1


class LeaderRecoveryState(IntEnum):
    """Whether the leader may have lost acknowledged records."""

    RECOVERED = 0
    """Elected from the ISR, or recovered after an unclean election."""
    RECOVERING = 1
    """Elected by an unclean election, and not recovered yet."""


_RECOVERY_STATES = {state.value: state for state in LeaderRecoveryState}


class PartitionRegistration(NamedTuple):
    """Replicas, leader and ISR of one partition, at one offset of the metadata log.

    Two epochs count changes. The *leader epoch* increases when a leader is elected, even if it is the same: followers
    and clients use it to detect an old leader. The *partition epoch* increases with every change: a leader that changes
    the ISR sends the one it knows, and is rejected if it is outdated.

    ====================================  ============  ===============
    event                                 leader epoch  partition epoch
    ====================================  ============  ===============
    created                               0             0
    replica 3 leaves the ISR              0             1
    leader fails, another one is elected  1             2
    ====================================  ============  ===============

    It is a tuple, because there can be hundreds of thousands of them and each is replaced as a whole: C code compares
    and creates it, and it is immutable.
    """

    replicas: tuple[int, ...]
    """In order of preference: the first is the preferred leader."""
    directories: tuple[Uuid, ...]
    """The log directory of each replica, in the order of ``replicas``; see :mod:`~barnabas.metadata.directory_id`."""
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    """Replicas that are removed at the end of the reassignment; ``adding_replicas`` were added for it."""
    adding_replicas: tuple[int, ...]
    elr: tuple[int, ...]
    """Eligible leader replicas: outside the ISR, but with every committed record (KIP-966)."""
    last_known_elr: tuple[int, ...]
    leader: int
    leader_recovery_state: LeaderRecoveryState
    leader_epoch: int
    partition_epoch: int

    @classmethod
    def from_record(cls, record: PartitionRecord) -> PartitionRegistration:
        replicas = _shared(tuple(record.replicas))
        return cls(
            replicas,
            _directories(record.directories, len(replicas), record),
            _shared(tuple(record.isr)),
            tuple(record.removing_replicas),
            tuple(record.adding_replicas),
            tuple(record.eligible_leader_replicas or ()),
            tuple(record.last_known_elr or ()),
            record.leader,
            _recovery_state(record.leader_recovery_state, record),
            record.leader_epoch,
            record.partition_epoch,
        )

    def merge(self, record: PartitionChangeRecord) -> PartitionRegistration:
        """Returns the partition after a change. A null list means unchanged, an empty one means empty."""
        replicas = self.replicas if record.replicas is None else _shared(tuple(record.replicas))
        directories = self.directories
        if record.directories is not None or record.replicas is not None:
            directories = _directories(
                directories if record.directories is None else record.directories, len(replicas), record
            )
        leader, leader_epoch = self.leader, self.leader_epoch
        if record.leader != NO_LEADER_CHANGE:
            leader = record.leader
            leader_epoch += 1
        recovery_state = self.leader_recovery_state
        if record.leader_recovery_state != NO_RECOVERY_CHANGE:
            recovery_state = _recovery_state(record.leader_recovery_state, record)
        elr, last_known_elr = record.eligible_leader_replicas, record.last_known_elr
        return PartitionRegistration(
            replicas,
            directories,
            self.isr if record.isr is None else _shared(tuple(record.isr)),
            self.removing_replicas if record.removing_replicas is None else tuple(record.removing_replicas),
            self.adding_replicas if record.adding_replicas is None else tuple(record.adding_replicas),
            self.elr if elr is None else tuple(elr),
            self.last_known_elr if last_known_elr is None else tuple(last_known_elr),
            leader,
            recovery_state,
            leader_epoch,
            self.partition_epoch + 1,
        )

    def without_elr(self) -> PartitionRegistration:
        """Returns the partition after a ClearElrRecord, which is a change only if there was something to clear."""
        if not self.elr and not self.last_known_elr:
            return self
        return self._replace(elr=(), last_known_elr=(), partition_epoch=self.partition_epoch + 1)

    def to_record(self, topic_id: Uuid, partition_id: int, options: ImageWriterOptions) -> PartitionRecord:
        record = PartitionRecord(
            partition_id=partition_id,
            topic_id=topic_id,
            replicas=list(self.replicas),
            isr=list(self.isr),
            removing_replicas=list(self.removing_replicas),
            adding_replicas=list(self.adding_replicas),
            leader=self.leader,
            leader_recovery_state=self.leader_recovery_state.value,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
        )
        if options.metadata_version.supports_directories:
            record.directories = list(self.directories)
        elif any(directory != MIGRATING for directory in self.directories):
            options.handle_loss("the log directories of replicas")
        if options.metadata_version.supports_elr:
            # Tagged fields: null takes no bytes.
            record.eligible_leader_replicas = list(self.elr) or None
            record.last_known_elr = list(self.last_known_elr) or None
        elif self.elr or self.last_known_elr:
            options.handle_loss("the eligible leader replicas of partitions")
        return record

    @property
    def has_leader(self) -> bool:
        return self.leader != NO_LEADER

    @property
    def preferred_replica(self) -> int:
        return self.replicas[0] if self.replicas else NO_LEADER

    @property
    def has_preferred_leader(self) -> bool:
        return self.leader == self.preferred_replica

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding_replicas or self.removing_replicas)

    def directory(self, replica: int) -> Uuid | None:
        """Returns the log directory of a replica; None if this broker is not a replica."""
        try:
            return self.directories[self.replicas.index(replica)]
        except ValueError:
            return None

    def describe_change(self, previous: PartitionRegistration) -> str:
        """Describes the difference for the log: ``leader: 1 -> 2, leader_epoch: 4 -> 5``."""
        return ", ".join(
            f"{name}: {_text(old)} -> {_text(new)}"
            for name, old, new in zip(self._fields, previous, self, strict=True)
            if old != new
        )


def _text(value: object) -> object:
    return value.name if isinstance(value, LeaderRecoveryState) else value


def _recovery_state(value: int, record: object) -> LeaderRecoveryState:
    state = _RECOVERY_STATES.get(value)
    if state is None:
        raise MetadataReplayError(f"leader recovery state must be 0 or 1: {value} in {record!r}")
    return state


def _directories(directories: Sequence[Uuid], replicas: int, record: object) -> tuple[Uuid, ...]:
    """Returns one directory per replica; if none is known, all are MIGRATING."""
    if directories.count(MIGRATING) == len(directories):
        return _shared((MIGRATING,) * replicas)
    if len(directories) != replicas:
        raise MetadataReplayError(f"{replicas} replicas but {len(directories)} log directories after {record!r}")
    return _shared(tuple(directories))


_T = TypeVar("_T", bound=tuple[object, ...])
_known: dict[Any, Any] = {}
"""Tuples that partitions consist of. A mere cache: any thread may add to it or clear it."""


def _shared(value: _T) -> _T:
    """Returns the tuple of an earlier partition with an equal one.

    Most partitions of a cluster have one of a few lists of replicas and of directories, but each is decoded with lists
    of its own, which would take more memory than the rest of a partition.
    """
    if len(_known) > 4096:
        _known.clear()
    found: _T = _known.setdefault(value, value)
    return found
