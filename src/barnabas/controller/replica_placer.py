"""Placement of the replicas of new partitions."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from barnabas.common.errors import InvalidReplicationFactorError


class UsableBroker(NamedTuple):
    """A broker that may get replicas."""

    id: int
    rack: str | None
    fenced: bool


class ReplicaPlacer(Protocol):
    def place(self, partitions: int, replication_factor: int, brokers: Iterable[UsableBroker]) -> list[tuple[int, ...]]:
        """Returns the replicas of each partition, preferred leader first.

        Raises InvalidReplicationFactorError if there are too few brokers.
        """
        ...


class _BrokerList:
    """Returns brokers in turn.

    Within one *round*, that is, for one partition, each broker is used once; the next round starts one further on.
    """

    __slots__ = ("_brokers", "_offset", "_round", "_taken")

    def __init__(self) -> None:
        self._brokers: list[int] = []
        self._offset = 0
        self._taken = 0
        self._round = 0

    def add(self, broker_id: int) -> None:
        self._brokers.append(broker_id)

    def initialize(self, rng: random.Random) -> None:
        if self._brokers:
            self._brokers.sort()
            self._offset = rng.randrange(len(self._brokers))

    def shuffle(self, rng: random.Random) -> None:
        rng.shuffle(self._brokers)

    def next(self, current_round: int) -> int | None:
        count = len(self._brokers)
        if count == 0:
            return None
        if self._round != current_round:
            self._round = current_round
            self._taken = 0
            self._offset = (self._offset + 1) % count
        if self._taken >= count:
            return None
        broker_id = self._brokers[(self._taken + self._offset) % count]
        self._taken += 1
        return broker_id


class _Rack:
    __slots__ = ("fenced", "unfenced")

    def __init__(self) -> None:
        self.fenced = _BrokerList()
        self.unfenced = _BrokerList()

    def next(self, current_round: int) -> int | None:
        """Returns an unfenced broker as long as there is one, then a fenced one."""
        found = self.unfenced.next(current_round)
        return self.fenced.next(current_round) if found is None else found


class StripedReplicaPlacer:
    """Kafka's placement: in stripes over racks, and over the brokers of each rack.

    Goals, in order of importance: spread the replicas of a partition over racks; spread partitions over brokers; prefer
    unfenced brokers. Two rules are absolute: no broker gets two replicas of a partition, and the first replica, the
    preferred leader, is on an unfenced broker.

    With three racks of three brokers, three replicas, and all random starting points at zero:

        partition 0    A0 B0 C0
        partition 1    B1 C1 A1
        partition 2    C2 A2 B2

    Each partition starts one rack further, and within a rack one broker further. After as many partitions as there are
    brokers the rows, and so the pairs of leader and follower, would repeat. So racks and brokers are then shuffled: if
    a broker fails, its leaderships should move to many others and not all to one.

    Brokers without a rack count as one rack without a name.
    """

    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = random.Random() if rng is None else rng  # noqa: S311 - spreads load, protects nothing

    def place(self, partitions: int, replication_factor: int, brokers: Iterable[UsableBroker]) -> list[tuple[int, ...]]:
        stripes = _Stripes(self._rng, brokers)
        if replication_factor <= 0:
            raise InvalidReplicationFactorError(f"The replication factor must be positive: {replication_factor}")
        if stripes.unfenced == 0:
            raise InvalidReplicationFactorError("All brokers are fenced.")
        if replication_factor > stripes.total:
            raise InvalidReplicationFactorError(
                f"A replication factor of {replication_factor} is not possible: {stripes.total} brokers are available."
            )
        return [stripes.next(replication_factor) for _ in range(partitions)]


class _Stripes:
    """The state of one placement: racks in order, and where the next partition starts."""

    __slots__ = ("_names", "_offset", "_racks", "_rng", "_round", "_since_shuffle", "total", "unfenced")

    def __init__(self, rng: random.Random, brokers: Iterable[UsableBroker]) -> None:
        self._rng = rng
        self._racks: dict[str | None, _Rack] = {}
        self.total = self.unfenced = 0
        for broker in brokers:
            rack = self._racks.setdefault(broker.rack, _Rack())
            (rack.fenced if broker.fenced else rack.unfenced).add(broker.id)
            self.total += 1
            self.unfenced += not broker.fenced
        self._names = sorted(self._racks, key=lambda name: (name is not None, name or ""))
        for name in self._names:
            self._racks[name].fenced.initialize(rng)
            self._racks[name].unfenced.initialize(rng)
        self._offset = rng.randrange(len(self._names)) if self._names else 0
        self._round = 0
        self._since_shuffle = 0

    def next(self, replication_factor: int) -> tuple[int, ...]:
        """Returns the replicas of the next partition. The caller has checked that there are enough brokers."""
        if self._since_shuffle == self.unfenced and self.unfenced > 1:
            self._shuffle()
            self._since_shuffle = 0
        racks = len(self._names)
        self._offset %= racks
        leader_rack = self._offset
        while (leader := self._racks[self._names[leader_rack]].unfenced.next(self._round)) is None:
            leader_rack = (leader_rack + 1) % racks
        replicas = [leader]
        rack = self._offset
        skip: int | None = leader_rack  # in the first round: it already has a replica
        while len(replicas) < replication_factor:
            if rack == skip:
                skip = None
            else:
                found = self._racks[self._names[rack]].next(self._round)
                if found is not None:
                    replicas.append(found)
            rack = (rack + 1) % racks
        self._round += 1
        self._since_shuffle += 1
        self._offset += 1
        return tuple(replicas)

    def _shuffle(self) -> None:
        self._rng.shuffle(self._names)
        for rack in self._racks.values():
            rack.fenced.shuffle(self._rng)
            rack.unfenced.shuffle(self._rng)
