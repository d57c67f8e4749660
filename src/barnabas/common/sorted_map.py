"""A dictionary with sorted integer keys."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Generic, TypeVar

V = TypeVar("V")


class SortedMap(Generic[V]):
    """Maps keys, mostly offsets, to values; finds the first, the last, or a range.

    A list has the sorted keys beside the dictionary. A search takes O(log n). Adding and removing move the keys after
    it: at the end, where a log grows, that is nothing, and elsewhere it is one memmove, which is faster than a balanced
    tree in Python up to tens of thousands of keys.

    It has no lock: its owner guards it.

    >>> transactions = SortedMap[str]()
    >>> transactions[40], transactions[7] = "b", "a"
    >>> transactions.first(), list(transactions)
    ('a', [7, 40])
    """

    __slots__ = ("_keys", "_values")

    def __init__(self) -> None:
        self._keys: list[int] = []
        self._values: dict[int, V] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: int) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[int]:
        """Iterates over the keys in order; as with a dictionary they must not change meanwhile."""
        return iter(self._keys)

    def __getitem__(self, key: int) -> V:
        return self._values[key]

    def __setitem__(self, key: int, value: V) -> None:
        if key not in self._values:
            if self._keys and key < self._keys[-1]:
                insort(self._keys, key)
            else:
                self._keys.append(key)
        self._values[key] = value

    def get(self, key: int) -> V | None:
        return self._values.get(key)

    def pop(self, key: int) -> V | None:
        """Removes a key and returns its value, or None."""
        if key not in self._values:
            return None
        del self._keys[bisect_left(self._keys, key)]
        return self._values.pop(key)

    def clear(self) -> None:
        self._keys.clear()
        self._values.clear()

    def first(self) -> V | None:
        """Returns the value of the lowest key."""
        return self._values[self._keys[0]] if self._keys else None

    def last(self) -> V | None:
        """Returns the value of the highest key."""
        return self._values[self._keys[-1]] if self._keys else None

    def floor(self, key: int) -> V | None:
        """Returns the value of the highest key that is at most `key`."""
        index = bisect_right(self._keys, key)
        return self._values[self._keys[index - 1]] if index else None

    def values(self) -> list[V]:
        """Returns the values in the order of their keys."""
        return [self._values[key] for key in self._keys]

    def keys_below(self, key: int) -> list[int]:
        """Returns the keys below `key`, which may then be removed one by one."""
        return self._keys[: bisect_left(self._keys, key)]

    def __repr__(self) -> str:
        inner = ", ".join(f"{key}: {self._values[key]!r}" for key in self._keys)
        return f"SortedMap({{{inner}}})"
