"""A dictionary with whole numbers as keys that also knows their order."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Generic, TypeVar

V = TypeVar("V")


class SortedMap(Generic[V]):
    """Offsets, mostly: look one up, and find the first, the last, or those in a range.

    A list keeps the keys in order beside the dictionary. Finding takes O(log n); adding and removing move what comes
    after, which at the end, where a log grows, is nothing, and elsewhere is one memmove that a balanced tree written
    in Python could not keep up with below tens of thousands of keys.

    It has no lock of its own: whoever owns it guards it.

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
        """The keys, in order; as with a dictionary they must not change meanwhile."""
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
        """Takes a key out and returns its value, None if it was not there."""
        if key not in self._values:
            return None
        del self._keys[bisect_left(self._keys, key)]
        return self._values.pop(key)

    def clear(self) -> None:
        self._keys.clear()
        self._values.clear()

    def first(self) -> V | None:
        """The value of the lowest key."""
        return self._values[self._keys[0]] if self._keys else None

    def last(self) -> V | None:
        """The value of the highest key."""
        return self._values[self._keys[-1]] if self._keys else None

    def floor(self, key: int) -> V | None:
        """The value of the highest key that is not above `key`."""
        index = bisect_right(self._keys, key)
        return self._values[self._keys[index - 1]] if index else None

    def values(self) -> list[V]:
        """The values in the order of their keys."""
        return [self._values[key] for key in self._keys]

    def keys_below(self, key: int) -> list[int]:
        """The keys under `key`, which may then be removed one by one."""
        return self._keys[: bisect_left(self._keys, key)]

    def __repr__(self) -> str:
        inner = ", ".join(f"{key}: {self._values[key]!r}" for key in self._keys)
        return f"SortedMap({{{inner}}})"
