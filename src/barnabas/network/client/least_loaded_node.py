"""Chooses the node for a request that any node can serve."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from barnabas.network.client.client_connections import ClientConnections
from barnabas.network.client.inflight import FOREVER, InFlightRequests
from barnabas.network.client.node import Node


class LeastLoadedNode:
    """The node for a request that any node can serve, if there is one."""

    __slots__ = ("connection_ready", "node")

    def __init__(self, node: Node | None, *, connection_ready: bool) -> None:
        self.node = node
        self.connection_ready = connection_ready
        """Whether any connection works, even if it takes no more requests right now."""

    @property
    def has_node_available_or_connection_ready(self) -> bool:
        """False means that all known nodes are unreachable: time to start again from the bootstrap servers."""
        return self.node is not None or self.connection_ready

    def __repr__(self) -> str:
        return f"LeastLoadedNode({self.node}, connection_ready={self.connection_ready})"


def choose_least_loaded(
    nodes: Sequence[Node], connections: ClientConnections, in_flight: InFlightRequests, random: Random, now: int
) -> LeastLoadedNode:
    """Returns the connected node with the fewest requests in flight.

    Otherwise one that is connecting, which is worth waiting for; otherwise one that may be connected, the least
    recently tried first. Never one in its back-off, or throttled. Ties are broken at random, so that a thousand clients
    do not all pick the first.
    """
    states = connections.states
    best: Node | None = None
    fewest = FOREVER
    connecting: Node | None = None
    connectable: Node | None = None
    connection_ready = False
    offset = random.randrange(len(nodes)) if nodes else 0
    for node in [*nodes[offset:], *nodes[:offset]]:
        node_id = node.id_string
        if connections.is_ready(node_id, now):
            connection_ready = True
            count = in_flight.count(node_id)
            if count < fewest and in_flight.can_send_more(node_id):
                best, fewest = node, count
        elif states.is_preparing_connection(node_id):
            connecting = node
        elif states.can_connect(node_id, now) and (
            connectable is None
            or states.last_connect_attempt_ms(connectable.id_string) > states.last_connect_attempt_ms(node_id)
        ):
            connectable = node
    return LeastLoadedNode(best or connecting or connectable, connection_ready=connection_ready)
