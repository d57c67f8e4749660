"""Which replicas can be reached by clients of one listener."""

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
    """Values that are computed when they are first asked for. A hit does not leave C code.

    Two threads may compute the same value at once; which of the two is kept makes no difference.
    """

    __slots__ = ("_compute",)

    def __init__(self, compute: Callable[[K], V]) -> None:
        super().__init__()
        self._compute = compute

    def __missing__(self, key: K) -> V:
        value = self[key] = self._compute(key)
        return value


class Reachability:
    """What a client that came in through one listener can reach of a cluster.

    Partitions share their lists of replicas with many others, so each answer is worked out once and kept, as long as
    the cluster stays as it is: with three brokers and any number of partitions there are six of them. The lists that
    are handed out are those that are kept: not to be changed.
    """

    __slots__ = ("_brokers", "alive", "leaders", "listener", "lists", "replicas")

    def __init__(self, cluster: ClusterImage, listener: str) -> None:
        self._brokers = cluster.brokers
        self.listener = listener
        self.leaders: _Memo[int, tuple[int, int]] = _Memo(self._leader)
        """For a leader's id: the error code, and the id to tell the client."""
        self.replicas: _Memo[tuple[tuple[int, ...], tuple[Uuid, ...]], tuple[list[int], list[int]]] = _Memo(
            self._replicas_and_offline
        )
        """For replicas and their directories: the replicas, and those of them that are offline."""
        self.alive: _Memo[tuple[int, ...], list[int]] = _Memo(lambda ids: [id_ for id_ in ids if self._is_alive(id_)])
        """For brokers: those that are neither unknown nor fenced, and have an address on this listener."""
        self.lists: _Memo[tuple[int, ...], list[int]] = _Memo(list)
        """For brokers: the same ids as messages have them."""

    @classmethod
    def of(cls, cluster: ClusterImage, listener: str) -> Reachability:
        found = cluster.derived.get(listener)
        if found is None:
            found = cluster.derived[listener] = cls(cluster, listener)
        reachability: Reachability = found
        return reachability

    def _leader(self, broker_id: int) -> tuple[int, int]:
        """LISTENER_NOT_FOUND is for a leader that is there, but not for this client."""
        broker = self._brokers.get(broker_id)
        if broker is None:
            return Errors.LEADER_NOT_AVAILABLE.value, NO_LEADER_ID
        if self.listener not in broker.listeners:
            return Errors.LISTENER_NOT_FOUND.value, NO_LEADER_ID
        return Errors.NONE.value, broker_id

    def _replicas_and_offline(self, key: tuple[tuple[int, ...], tuple[Uuid, ...]]) -> tuple[list[int], list[int]]:
        """Offline is a replica whose broker is unknown, fenced or not on this listener, or whose directory failed."""
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
