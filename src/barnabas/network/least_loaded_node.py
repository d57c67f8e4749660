"""Which node to ask something that any node can answer."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from barnabas.network.client_connections import ClientConnections
from barnabas.network.inflight import FOREVER, InFlightRequests
from barnabas.network.node import Node


class LeastLoadedNode:
    """The node to send a request to that any node can answer, if there is one."""

    __slots__ = ("connection_ready", "node")

    def __init__(self, node: Node | None, *, connection_ready: bool) -> None:
        self.node = node
        self.connection_ready = connection_ready
        """Whether there is a connection that works at all, even one that takes no more requests just now."""

    @property
    def has_node_available_or_connection_ready(self) -> bool:
        """False means that every known node is beyond reach: time to start again from the bootstrap servers."""
        return self.node is not None or self.connection_ready

    def __repr__(self) -> str:
        return f"LeastLoadedNode({self.node}, connection_ready={self.connection_ready})"


def choose_least_loaded(
    nodes: Sequence[Node], connections: ClientConnections, in_flight: InFlightRequests, random: Random, now: int
) -> LeastLoadedNode:
    """A node that is connected, the fewer requests in flight the better.

    Else one that is being connected, which is worth waiting for; else one that may be connected, the longer not tried
    the better. Never one in its back-off, or throttled. Where nodes are equal it is one at random, so that a thousand
    clients do not all pick the first.
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
