"""The current leader of a partition: a hint that saves a client a Metadata request after a leader change (KIP-951)."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.endpoint import Node


class CurrentLeader(NamedTuple):
    """The leader id and epoch; -1 if unknown."""

    leader_id: int
    leader_epoch: int
    node: Node | None
    """The leader's address on the client's listener; None if it has none there or is not alive."""


NO_LEADER = CurrentLeader(-1, -1, None)


def current_leader(cache: MetadataCache, topic: str, partition: int, listener: str) -> CurrentLeader:
    """Returns the leader for a client that sent its request to the wrong broker.

    It comes from the metadata cache, although the replica manager rejected the request: the cache gets every change
    first, so it is never older than the state behind the rejection.
    """
    registration = cache.partition(topic, partition)
    if registration is None:
        return NO_LEADER
    leader = registration.leader
    return CurrentLeader(leader, registration.leader_epoch, cache.alive_broker_node(leader, listener))
