"""Determines which replicas clients of one listener can reach."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from barnabas.common.errors import Errors
from barnabas.common.identifiers import Uuid
from barnabas.metadata.cluster import ClusterImage

K = TypeVar("K")
V = TypeVar("V")

NO_LEADER_ID = -1


class _Memo(dict[K, V]):
    """Computes values at their first use. A hit is handled in C code.

    Two threads may compute the same value at once; it does not matter which one is kept.
    """

    __slots__ = ("_compute",)

    def __init__(self, compute: Callable[[K], V]) -> None:
        super().__init__()
        self._compute = compute

    def __missing__(self, key: K) -> V:
        value = self[key] = self._compute(key)
        return value


class Reachability:
    """The reachable part of a cluster for clients of one listener.

    Many partitions have the same lists of replicas, so each result is computed once and kept as long as the cluster
    does not change: with three brokers and any number of partitions there are six of them. The returned lists are
    shared and must not be modified.
    """

    __slots__ = ("_brokers", "alive", "leaders", "listener", "lists", "replicas")

    def __init__(self, cluster: ClusterImage, listener: str) -> None:
        self._brokers = cluster.brokers
        self.listener = listener
        self.leaders: _Memo[int, tuple[int, int]] = _Memo(self._leader)
        """By leader ID: the error code, and the ID for the client."""
        self.replicas: _Memo[tuple[tuple[int, ...], tuple[Uuid, ...]], tuple[list[int], list[int]]] = _Memo(
            self._replicas_and_offline
        )
        """By replicas and their directories: the replicas, and the offline ones."""
        self.alive: _Memo[tuple[int, ...], list[int]] = _Memo(lambda ids: [id_ for id_ in ids if self._is_alive(id_)])
        """By brokers: those that are registered, unfenced, and have an address on this listener."""
        self.lists: _Memo[tuple[int, ...], list[int]] = _Memo(list)
        """By brokers: the same IDs as lists, as messages need them."""

    @classmethod
    def of(cls, cluster: ClusterImage, listener: str) -> Reachability:
        found = cluster.derived.get(listener)
        if found is None:
            found = cluster.derived[listener] = cls(cluster, listener)
        reachability: Reachability = found
        return reachability

    def _leader(self, broker_id: int) -> tuple[int, int]:
        """Returns LISTENER_NOT_FOUND for a leader that is alive but has no address on this listener."""
        broker = self._brokers.get(broker_id)
        if broker is None:
            return Errors.LEADER_NOT_AVAILABLE.value, NO_LEADER_ID
        if self.listener not in broker.listeners:
            return Errors.LISTENER_NOT_FOUND.value, NO_LEADER_ID
        return Errors.NONE.value, broker_id

    def _replicas_and_offline(self, key: tuple[tuple[int, ...], tuple[Uuid, ...]]) -> tuple[list[int], list[int]]:
        """A replica is offline if its broker is unknown, fenced or not on this listener, or if its directory failed."""
        replicas, directories = key
        offline = [
            broker_id
            for broker_id, directory in zip(replicas, directories, strict=True)
            if not self._is_alive(broker_id) or not self._brokers[broker_id].has_online_directory(directory)
        ]
        return list(replicas), offline

    def _is_alive(self, broker_id: int) -> bool:
        broker = self._brokers.get(broker_id)
        return broker is not None and not broker.fenced and self.listener in broker.listeners
