"""Changes of a map that are not applied yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, Self, TypeVar

from barnabas.metadata.persistent_map import EMPTY_MAP, PersistentMap

K = TypeVar("K")
W = TypeVar("W")
"""The owner of a nested map."""
V = TypeVar("V")


class MapDelta(Generic[K, V]):
    """The changed entries of a map: a new value, or None for a removed one.

    >>> delta = MapDelta(PersistentMap({"a": 1, "b": 2}))
    >>> delta.put("a", 5)
    >>> delta.remove("b")
    >>> delta.changes, delta.get("b"), delta.apply()
    ({'a': 5, 'b': None}, None, PersistentMap({'a': 5}))

    A snapshot is replayed in the same way: its records are put on top of the previous state, and
    :meth:`finish_snapshot` computes the difference: keys that the snapshot did not mention are removed, and equal
    values have not changed.
    """

    __slots__ = ("base", "changes")

    def __init__(self, base: PersistentMap[K, V]) -> None:
        self.base = base
        self.changes: dict[K, V | None] = {}

    @classmethod
    def of_everything(cls, content: PersistentMap[K, V]) -> Self:
        """Returns the delta from an empty map to this one."""
        delta = cls(EMPTY_MAP)
        delta.changes = dict(content.items())
        return delta

    def __bool__(self) -> bool:
        return bool(self.changes)

    def get(self, key: K) -> V | None:
        """Returns the value after :meth:`apply`."""
        if key in self.changes:
            return self.changes[key]
        return self.base.get(key)

    def put(self, key: K, value: V) -> None:
        self.changes[key] = value

    def remove(self, key: K) -> None:
        """Removes a key. One that was only put in this delta leaves no trace, because it was never published."""
        if key in self.base:
            self.changes[key] = None
        else:
            self.changes.pop(key, None)

    def finish_snapshot(self) -> None:
        changes = self.changes
        for key, value in self.base.items():
            if key not in changes:
                changes[key] = None
            elif changes[key] == value:
                del changes[key]

    def apply(self) -> PersistentMap[K, V]:
        if not self.changes:
            return self.base
        return self.base.updated(
            {key: value for key, value in self.changes.items() if value is not None},
            [key for key, value in self.changes.items() if value is None],
        )

    def __repr__(self) -> str:
        return f"MapDelta({self.changes!r})"


class NestedMapDelta(Generic[W, K, V]):
    """Changes of a map of maps, such as settings by resource. An owner without entries is removed.

    >>> delta = NestedMapDelta(PersistentMap({"orders": {"retention.ms": "1000", "cleanup.policy": "delete"}}))
    >>> delta.remove("orders", "retention.ms")
    >>> delta.put("payments", "retention.ms", "-1")
    >>> delta.changes
    {'orders': {'retention.ms': None}, 'payments': {'retention.ms': '-1'}}
    """

    __slots__ = ("_deltas", "base")

    def __init__(self, base: PersistentMap[W, Mapping[K, V]]) -> None:
        self.base = base
        self._deltas: dict[W, MapDelta[K, V]] = {}

    @classmethod
    def of_everything(cls, content: PersistentMap[W, Mapping[K, V]]) -> Self:
        delta = cls(EMPTY_MAP)
        delta._deltas = {owner: MapDelta.of_everything(PersistentMap(entries)) for owner, entries in content.items()}
        return delta

    @property
    def changes(self) -> dict[W, Mapping[K, V | None]]:
        """The changed entries by owner: the new value, or None for a removed one."""
        return {owner: delta.changes for owner, delta in self._deltas.items() if delta}

    def __bool__(self) -> bool:
        return any(self._deltas.values())

    def put(self, owner: W, key: K, value: V) -> None:
        self._of(owner).put(key, value)

    def remove(self, owner: W, key: K) -> None:
        self._of(owner).remove(key)

    def remove_all(self, owner: W) -> None:
        """Removes all entries of the owner, including those that were put in this delta."""
        if owner in self._deltas or owner in self.base:
            delta = self._of(owner)
            for key in {*delta.base, *delta.changes}:
                delta.remove(key)

    def finish_snapshot(self) -> None:
        for owner in self.base:
            self._of(owner)
        for delta in self._deltas.values():
            delta.finish_snapshot()

    def apply(self) -> PersistentMap[W, Mapping[K, V]]:
        changed: dict[W, Mapping[K, V]] = {}
        removed: list[W] = []
        for owner, delta in self._deltas.items():
            if delta:
                entries = dict(delta.apply())
                if entries:
                    changed[owner] = entries
                else:
                    removed.append(owner)
        return self.base.updated(changed, removed)

    def _of(self, owner: W) -> MapDelta[K, V]:
        delta = self._deltas.get(owner)
        if delta is None:
            delta = self._deltas[owner] = MapDelta(PersistentMap(self.base.get(owner, {})))
        return delta
