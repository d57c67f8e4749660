"""The results of an operation on several keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Generic, TypeVar, overload

from barnabas.common.errors import ApiError

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")


class Results(Mapping[K, V], Generic[K, V]):
    """Results by key. The mapping has the successes; ``errors`` has the rest.

    An operation raises the error of the first key that failed, and names the others in a note. With ``partial=True`` it
    does not raise, and then looking up a key that failed raises the error of that key:

        results = admin.describe_topics(["orders", "ordres"], partial=True)
        results["orders"]            # TopicDescription(name='orders', ...)
        results["ordres"]            # raises UnknownTopicOrPartitionError
        results.errors               # {'ordres': UnknownTopicOrPartitionError(...)}
    """

    __slots__ = ("_values", "errors")

    def __init__(self, values: Mapping[K, V], errors: Mapping[K, ApiError] | None = None) -> None:
        self._values = dict(values)
        self.errors: Mapping[K, ApiError] = MappingProxyType(dict(errors or {}))

    def __getitem__(self, key: K) -> V:
        if key in self.errors:
            raise self.errors[key]
        return self._values[key]

    @overload
    def get(self, key: K, /) -> V | None: ...

    @overload
    def get(self, key: K, /, default: V | D) -> V | D: ...

    def get(self, key: K, /, default: V | D | None = None) -> V | D | None:
        """Returns the value or the default; does not raise a key's error."""
        return self._values.get(key, default)

    def __iter__(self) -> Iterator[K]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def checked(self, partial: bool = False) -> Results[K, V]:
        """Returns itself if there is no error or ``partial`` is set; else raises."""
        if partial or not self.errors:
            return self
        first, *others = self.errors.items()
        for key, error in others:
            first[1].add_note(f"{key}: {type(error).__name__}: {error}")
        raise first[1]

    def __repr__(self) -> str:
        failed = f", errors={dict(self.errors)!r}" if self.errors else ""
        return f"Results({self._values!r}{failed})"
