"""An immutable map whose successors share most of it."""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from itertools import chain
from typing import Any, Generic, TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

_SHIFT = 20
"""The bits of a hash above these select the bucket. The lower ones are left to the bucket's own dictionary, which would
have collisions if all its keys were equal in the bits that it uses first."""


class PersistentMap(Mapping[K, V], Generic[K, V]):
    """A hash map whose successors share its buckets.

    >>> before = PersistentMap({"orders": 1, "payments": 2})
    >>> after = before.updated({"orders": 3}, removed=["payments"])
    >>> before["orders"], after["orders"], "payments" in after
    (1, 3, False)

    The keys are in about √n dictionaries of about √n entries each. A changed entry copies its own dictionary and the
    list of dictionaries, and shares all others: with 10,000 topics that is two copies of about a hundred pointers,
    while one big dictionary would copy 10,000. A lookup has two steps, both in C code.

    Why not a trie, as in functional languages? Its nodes have 32 entries, so it copies less, but every lookup takes as
    many steps in Python as it has levels; metadata is looked up far more often than it changes. Why not a big
    dictionary with a small one of changes above it? It has to be merged from time to time, and that update is slow.

    The order of iteration is undefined, and differs between processes: sort before showing it.
    """

    __slots__ = ("_buckets", "_mask", "_size")

    _buckets: list[dict[K, V]]
    _mask: int
    _size: int

    def __init__(self, entries: Mapping[K, V] | Iterable[tuple[K, V]] = ()) -> None:
        content = dict(entries)
        self._size = len(content)
        self._mask = _bucket_count(self._size) - 1
        self._buckets = _spread(content.items(), self._mask)

    # -- reading

    def __getitem__(self, key: K) -> V:
        return self._buckets[hash(key) >> _SHIFT & self._mask][key]

    @overload
    def get(self, key: K, /) -> V | None: ...
    @overload
    def get(self, key: K, /, default: V) -> V: ...
    @overload
    def get(self, key: K, /, default: T) -> V | T: ...
    def get(self, key: K, /, default: Any = None) -> Any:
        return self._buckets[hash(key) >> _SHIFT & self._mask].get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._buckets[hash(key) >> _SHIFT & self._mask]

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(self._buckets)

    def keys(self) -> KeysView[K]:
        return _Keys(self)

    def values(self) -> ValuesView[V]:
        return _Values(self)

    def items(self) -> ItemsView[K, V]:
        return _Items(self)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, PersistentMap):
            if self._size != other._size:
                return False
            if self._mask == other._mask:
                return self._buckets == other._buckets  # shared buckets are compared by identity
        if not isinstance(other, Mapping):
            return NotImplemented
        return len(self) == len(other) and all(key in other and other[key] == value for key, value in self.items())

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"PersistentMap({dict(self.items())!r})"

    # -- updating

    def updated(self, changed: Mapping[K, V], removed: Iterable[K] = ()) -> PersistentMap[K, V]:
        """Returns the map without the keys ``removed`` and then with the entries ``changed``.

        Keys to remove need not exist.
        """
        mask = self._mask
        mine = self._buckets
        buckets = mine.copy()
        touched: set[int] = set()
        for key in removed:
            index = hash(key) >> _SHIFT & mask
            if key in buckets[index]:
                if index not in touched:
                    touched.add(index)
                    buckets[index] = mine[index].copy()
                del buckets[index][key]
        for key, value in changed.items():
            index = hash(key) >> _SHIFT & mask
            if index not in touched:
                touched.add(index)
                buckets[index] = mine[index].copy()
            buckets[index][key] = value
        if not touched:
            return self
        return _make(buckets, self._size + sum(len(buckets[index]) - len(mine[index]) for index in touched))

    # -- for tests and measurements

    @property
    def bucket_count(self) -> int:
        return len(self._buckets)

    def shared_buckets(self, other: PersistentMap[K, V]) -> int:
        """Returns how many buckets are the same object in both maps."""
        return len({id(bucket) for bucket in self._buckets} & {id(bucket) for bucket in other._buckets})


class _Keys(KeysView[K]):
    """Iterates over the buckets; Mapping's own views would look up every key again."""

    _mapping: PersistentMap[K, Any]

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(self._mapping._buckets)


class _Values(ValuesView[V]):
    _mapping: PersistentMap[Any, V]

    def __iter__(self) -> Iterator[V]:
        return chain.from_iterable(map(dict.values, self._mapping._buckets))


class _Items(ItemsView[K, V]):
    _mapping: PersistentMap[K, V]

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return chain.from_iterable(map(dict.items, self._mapping._buckets))


_SMALL = 64
"""Up to this size one dictionary is used."""


def _bucket_count(size: int) -> int:
    """Returns the power of two whose square holds ``size`` entries."""
    return 1 if size <= _SMALL else 1 << ((size - 1).bit_length() + 1) // 2


def _spread(entries: Iterable[tuple[K, V]], mask: int) -> list[dict[K, V]]:
    if not mask:
        return [dict(entries)]
    buckets: list[dict[K, V]] = [{} for _ in range(mask + 1)]
    for key, value in entries:
        buckets[hash(key) >> _SHIFT & mask][key] = value
    return buckets


def _make(buckets: list[dict[K, V]], size: int) -> PersistentMap[K, V]:
    """Creates a map of these buckets, and rehashes when they have become too full or too empty.

    That takes n steps, but in between the map has quadrupled, or shrunk to a sixteenth.
    """
    count = len(buckets)
    if size > max(_SMALL, 4 * count * count) or (count > 1 and 16 * size < count * count):
        wanted = _bucket_count(size)
        buckets = _spread(chain.from_iterable(map(dict.items, buckets)), wanted - 1)
        count = wanted
    made: PersistentMap[K, V] = PersistentMap.__new__(PersistentMap)
    made._buckets = buckets
    made._mask = count - 1
    made._size = size
    return made


EMPTY_MAP: PersistentMap[Any, Any] = PersistentMap()
