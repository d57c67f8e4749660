"""Who leads a partition now: the hint that saves a client a Metadata request after a change of leader (KIP-951)."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.endpoint import Node


class CurrentLeader(NamedTuple):
    """The leader as far as it is known; -1 where it is not."""

    leader_id: int
    leader_epoch: int
    node: Node | None
    """Its address on the listener that the client uses; None if it has none there, or is not alive."""


NO_LEADER = CurrentLeader(-1, -1, None)


def current_leader(cache: MetadataCache, topic: str, partition: int, listener: str) -> CurrentLeader:
    """What to tell a client that came to the wrong broker.

    From the metadata cache, although it was the replica manager that refused: the cache gets every change first, so
    that what it says is never older than the state which the refusal came from.
    """
    registration = cache.partition(topic, partition)
    if registration is None:
        return NO_LEADER
    leader = registration.leader
    return CurrentLeader(leader, registration.leader_epoch, cache.alive_broker_node(leader, listener))
