"""Snapshots of maps, sets and values: data structures that can be reverted to an earlier offset.

A component with its state in a replicated log applies a record to its memory as soon as it has appended it, so that the
next request sees it. Other replicas decide later whether the record survives: the majority of the quorum for the
controller, the ISR for a coordinator. So three views of the same state are needed at once: the latest one, for the next
write; the one at the last committed offset, for readers; and, when a write fails or leadership is lost, a way to revert
the first to the second.

Kafka solves this with *timeline* structures. The idea here is the same, in the form of an undo log. A snapshot at an
offset starts empty; when a key of a map is changed for the first time after it, the old value goes into the snapshot.
For a map with ``a=1`` at offset 10, with ``a=2`` and ``b=5`` written at 11 and ``a=3`` at 12:

    snapshot 10      {a: 1, b: absent}      values overwritten from offset 11 on
    snapshot 11      {a: 2}                 values overwritten from offset 12 on
    now              {a: 3, b: 5}

Reading ``a`` at 10 looks into snapshot 10, then 11, then the current state, and stops where it is found. Reverting to
10 restores the values in 11, then those in 10. Committing up to 12 drops the snapshots before, with their values. A
write costs one additional dictionary entry, and only if it is the first to its key since the snapshot.

Everything here belongs to one thread at a time, that of the controller's or the coordinator's event loop; there are no
locks.
"""

from __future__ import annotations

from collections.abc import Hashable, ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any, Generic, Protocol, TypeVar, overload

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
D = TypeVar("D")

LATEST_EPOCH = (1 << 63) - 1
"""The epoch of the latest state, committed or not."""

_ABSENT: Any = object()


class Revertable(Protocol):
    """A structure whose changes snapshots can revert."""

    def undo(self, delta: dict[Any, Any]) -> None:
        """Restores overwritten values."""
        ...

    def reset(self) -> None:
        """Discards everything."""
        ...


class Snapshot:
    """The values that were overwritten since `epoch`, by structure and key."""

    __slots__ = ("deltas", "epoch")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.deltas: dict[Revertable, dict[Any, Any]] = {}

    def drop(self) -> None:
        """Frees everything. A structure keeps its last snapshot until its next write, which may be never."""
        for delta in self.deltas.values():
            delta.clear()
        self.deltas.clear()

    def __repr__(self) -> str:
        return f"Snapshot({self.epoch}, {sum(map(len, self.deltas.values()))} overwritten)"


class SnapshotRegistry:
    """The snapshots of related structures, in order of their epochs, which are offsets of the log."""

    __slots__ = ("_snapshots", "_structures", "latest")

    def __init__(self) -> None:
        self._snapshots: dict[int, Snapshot] = {}
        """By epoch; in ascending order, because they are only added at the end."""
        self.latest: Snapshot | None = None
        self._structures: list[Revertable] = []

    @property
    def epochs(self) -> list[int]:
        return list(self._snapshots)

    def has_snapshot(self, epoch: int) -> bool:
        return epoch in self._snapshots

    def register(self, structure: Revertable) -> None:
        """Includes a structure in :meth:`reset`."""
        self._structures.append(structure)

    def idempotent_create_snapshot(self, epoch: int) -> None:
        """Marks the current state as that of `epoch`; does nothing if the snapshot exists."""
        if self.latest is not None:
            if self.latest.epoch == epoch:
                return
            if self.latest.epoch > epoch:
                raise ValueError(f"cannot create a snapshot at {epoch}: the latest is at {self.latest.epoch}")
        self.latest = self._snapshots[epoch] = Snapshot(epoch)

    def revert_to_snapshot(self, epoch: int) -> None:
        """Reverts to the state of `epoch`; later snapshots are dropped, that of `epoch` stays."""
        if epoch not in self._snapshots:
            raise KeyError(f"no snapshot at {epoch}; there are {self.epochs}")
        while True:
            at, snapshot = self._snapshots.popitem()
            for structure, delta in snapshot.deltas.items():
                structure.undo(delta)
            snapshot.drop()
            if at == epoch:
                break
        # A new object, so that structures notice that their entries for the old one are void.
        self.latest = self._snapshots[epoch] = Snapshot(epoch)

    def delete_snapshots_up_to(self, epoch: int) -> None:
        """Drops the snapshots before `epoch`: their states will never be read or reverted to."""
        doomed = []
        for at in self._snapshots:
            if at >= epoch:
                break
            doomed.append(at)
        for at in doomed:
            self._snapshots.pop(at).drop()
        if not self._snapshots:
            self.latest = None

    def since(self, epoch: int) -> list[Snapshot]:
        """Returns the snapshot of `epoch` and all later ones, which a read at `epoch` has to search."""
        latest = self.latest
        if latest is not None and latest.epoch == epoch:
            return [latest]  # the common case: everything written is committed
        if epoch not in self._snapshots:
            raise KeyError(f"no snapshot at {epoch}; there are {self.epochs}")
        return [snapshot for at, snapshot in self._snapshots.items() if at >= epoch]

    def reset(self) -> None:
        """Clears every registered structure and drops all snapshots."""
        for structure in self._structures:
            structure.reset()
        for snapshot in self._snapshots.values():
            snapshot.drop()
        self._snapshots.clear()
        self.latest = None


class TimelineHashMap(Generic[K, V]):
    """A dictionary with snapshots.

    >>> registry = SnapshotRegistry()
    >>> levels: TimelineHashMap[str, int] = TimelineHashMap(registry)
    >>> levels["group.version"] = 1
    >>> registry.idempotent_create_snapshot(10)
    >>> levels["group.version"] = 2
    >>> levels["group.version"], levels.get("group.version", 10)
    (2, 1)
    >>> registry.revert_to_snapshot(10)
    >>> levels
    TimelineHashMap({'group.version': 1})

    A map that is a value inside another is created with ``nested=True``: a reset discards it with the outer one.
    """

    __slots__ = ("_data", "_delta", "_registry", "_snapshot")

    def __init__(self, registry: SnapshotRegistry, *, nested: bool = False) -> None:
        self._registry = registry
        self._data: dict[K, V] = {}
        self._snapshot: Snapshot | None = None
        self._delta: dict[K, Any] | None = None
        """Where overwritten values go: the entry for this map in `_snapshot`, the latest snapshot at the last check."""
        if not nested:
            registry.register(self)

    # -- current state

    def __len__(self) -> int:
        return len(self._data)

    def __contains__(self, key: object) -> bool:
        return key in self._data

    def __iter__(self) -> Iterator[K]:
        return iter(self._data)

    def __getitem__(self, key: K) -> V:
        return self._data[key]

    @property
    def present(self) -> Mapping[K, V]:
        """The current state as a read-only mapping, which changes with this map."""
        return self._data

    def keys(self) -> KeysView[K]:
        return self._data.keys()

    def values(self) -> ValuesView[V]:
        return self._data.values()

    def items(self) -> ItemsView[K, V]:
        return self._data.items()

    def __setitem__(self, key: K, value: V) -> None:
        if self._snapshot is not self._registry.latest:
            self._open_delta()
        delta = self._delta
        if delta is not None and key not in delta:
            delta[key] = self._data.get(key, _ABSENT)
        self._data[key] = value

    def pop(self, key: K) -> V | None:
        """Removes a key and returns its value, or None."""
        if key not in self._data:
            return None
        if self._snapshot is not self._registry.latest:
            self._open_delta()
        value = self._data.pop(key)
        delta = self._delta
        if delta is not None and key not in delta:
            delta[key] = value
        return value

    def clear(self) -> None:
        """Removes everything, in a way that can be reverted (unlike :meth:`reset`)."""
        for key in list(self._data):
            self.pop(key)

    # -- past states

    @overload
    def get(self, key: K, epoch: int = ...) -> V | None: ...

    @overload
    def get(self, key: K, epoch: int, default: D) -> V | D: ...

    def get(self, key: K, epoch: int = LATEST_EPOCH, default: Any = None) -> Any:
        if epoch != LATEST_EPOCH:
            for snapshot in self._registry.since(epoch):
                delta = snapshot.deltas.get(self)
                if delta is not None and key in delta:
                    value = delta[key]
                    return default if value is _ABSENT else value
        return self._data.get(key, default)

    def items_at(self, epoch: int) -> list[tuple[K, V]]:
        """Returns all entries at an epoch."""
        if epoch == LATEST_EPOCH:
            return list(self._data.items())
        overwritten: dict[K, Any] = {}
        for snapshot in self._registry.since(epoch):
            for key, value in snapshot.deltas.get(self, {}).items():
                overwritten.setdefault(key, value)
        items = [item for item in self._data.items() if item[0] not in overwritten]
        items.extend((key, value) for key, value in overwritten.items() if value is not _ABSENT)
        return items

    # -- called by the registry

    def _open_delta(self) -> None:
        snapshot = self._snapshot = self._registry.latest
        self._delta = None if snapshot is None else snapshot.deltas.setdefault(self, {})

    def undo(self, delta: dict[K, Any]) -> None:
        data = self._data
        for key, value in delta.items():
            if value is _ABSENT:
                data.pop(key, None)
            else:
                data[key] = value

    def reset(self) -> None:
        self._data.clear()

    def __repr__(self) -> str:
        return f"TimelineHashMap({self._data!r})"


class TimelineHashSet(Generic[K]):
    """A set with snapshots.

    It keeps the order of insertion, as a dictionary does and a set does not: the records that the controller writes
    when a broker fails must not depend on the hash seed of the process.
    """

    __slots__ = ("_members",)

    def __init__(self, registry: SnapshotRegistry, *, nested: bool = False) -> None:
        self._members: TimelineHashMap[K, bool] = TimelineHashMap(registry, nested=nested)

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, member: object) -> bool:
        return member in self._members

    def __iter__(self) -> Iterator[K]:
        return iter(self._members)

    def add(self, member: K) -> bool:
        """Returns whether it is new."""
        if member in self._members:
            return False
        self._members[member] = True
        return True

    def discard(self, member: K) -> bool:
        """Returns whether it existed."""
        return self._members.pop(member) is not None

    def members_at(self, epoch: int) -> list[K]:
        return [member for member, _ in self._members.items_at(epoch)]

    def __repr__(self) -> str:
        return f"TimelineHashSet({list(self._members)!r})"


class TimelineObject(Generic[V]):
    """One value with snapshots. Also for numbers: Kafka's TimelineInteger and TimelineLong are this with an int."""

    __slots__ = ("_cell", "_initial")

    def __init__(self, registry: SnapshotRegistry, initial: V, *, nested: bool = False) -> None:
        self._initial = initial
        self._cell: TimelineHashMap[None, V] = TimelineHashMap(registry, nested=nested)

    def get(self, epoch: int = LATEST_EPOCH) -> V:
        return self._cell.get(None, epoch, self._initial)

    def set(self, value: V) -> None:
        self._cell[None] = value

    def __repr__(self) -> str:
        return f"TimelineObject({self.get()!r})"
