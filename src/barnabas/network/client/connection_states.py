"""The state of a client's connection to each node: its progress, its next attempt and its address.

This module uses no sockets: the network client reports events, and asks for permitted actions.
"""

from __future__ import annotations

import logging
from random import Random

from barnabas.common.errors import AuthenticationError
from barnabas.network.client.exponential_backoff import ExponentialBackoff
from barnabas.network.client.host_resolver import HostResolver, ResolvedAddress
from barnabas.network.client.inflight import FOREVER
from barnabas.network.client.node_connection import (
    AUTHENTICATION_FAILED,
    CHECKING_API_VERSIONS,
    CONNECTING,
    DISCONNECTED,
    READY,
    ConnectionState,
    NodeConnectionState,
)

log = logging.getLogger(__name__)

BACKOFF_MULTIPLIER = 2
BACKOFF_JITTER = 0.2


class ClusterConnectionStates:
    """The states of the connections to all nodes of a cluster.

    **Reconnecting.** After a connection is lost, the next attempt waits, with growing delays: about 50, 100, 200, 400,
    800 and from then on 1000 ms, each within 20 % at random. Only a connection that becomes READY resets this; one that
    is accepted and closed again, by a broker that is shutting down or by a port that is not Kafka's, counts as failed.
    Each attempt uses the next address of the host.

    **Connecting** itself may take 10 s. Otherwise a peer that drops packets would block the client until the operating
    system gives up, two minutes later. After a time-out the next attempt may take twice as long, up to 30 s: the
    network may just be slow.

    **Throttling** (KIP-219): the node has announced that it will not read until some time, so until then it does not
    count as ready.
    """

    def __init__(
        self,
        *,
        reconnect_backoff_ms: int,
        reconnect_backoff_max_ms: int,
        connection_setup_timeout_ms: int,
        connection_setup_timeout_max_ms: int,
        resolver: HostResolver,
        random: Random,
    ) -> None:
        self._reconnect_backoff = ExponentialBackoff(
            reconnect_backoff_ms, BACKOFF_MULTIPLIER, reconnect_backoff_max_ms, BACKOFF_JITTER, random
        )
        self._setup_timeout = ExponentialBackoff(
            connection_setup_timeout_ms, BACKOFF_MULTIPLIER, connection_setup_timeout_max_ms, BACKOFF_JITTER, random
        )
        self._resolver = resolver
        self.by_node: dict[str, NodeConnectionState] = {}
        """Changed here only. Others may read it."""
        self._connecting: set[str] = set()

    def _node(self, node_id: str) -> NodeConnectionState:
        node = self.by_node.get(node_id)
        if node is None:
            raise KeyError(f"nothing is known about a connection to node {node_id}")
        return node

    # -- events

    def connecting(self, node_id: str, now: int, host: str) -> None:
        """Records that a connection attempt is about to start."""
        node = self.by_node.get(node_id)
        if node is not None and node.host == host:
            node.move_to(node_id, CONNECTING)
            node.move_to_next_address()
        else:
            if node is not None:
                log.info("Node %s has moved from %s to %s", node_id, node.host, host)
            node = NodeConnectionState(host)
            node.move_to(node_id, CONNECTING)
            node.reconnect_backoff_ms = self._reconnect_backoff.backoff(0)
            node.connection_setup_timeout_ms = self._setup_timeout.backoff(0)
            self.by_node[node_id] = node
        node.last_connect_attempt_ms = now
        self._connecting.add(node_id)

    def current_address(self, node_id: str) -> ResolvedAddress:
        """Returns the address to connect to; raises ``OSError`` if the host name cannot be resolved."""
        return self._node(node_id).current_address(self._resolver)

    def checking_api_versions(self, node_id: str) -> None:
        """Records that the connection is established and the node's API versions have been requested."""
        node = self._node(node_id)
        node.move_to(node_id, CHECKING_API_VERSIONS)
        self._reset_setup_timeout(node)
        self._connecting.discard(node_id)

    def ready(self, node_id: str) -> None:
        node = self._node(node_id)
        node.move_to(node_id, READY)
        node.authentication_error = None
        node.last_error = None
        node.failed_attempts = 0
        node.reconnect_backoff_ms = self._reconnect_backoff.backoff(0)
        self._reset_setup_timeout(node)
        self._connecting.discard(node_id)

    def disconnected(self, node_id: str, now: int, reason: str | None = None) -> None:
        """Records that the connection is lost, or was never made."""
        node = self._node(node_id)
        before = node.state
        node.move_to(node_id, DISCONNECTED)
        self._lost(node_id, node, before, now, reason)

    def authentication_failed(
        self, node_id: str, now: int, error: AuthenticationError, reason: str | None = None
    ) -> None:
        """Records that the node rejected this client's credentials. Report it: retrying is of little use."""
        node = self._node(node_id)
        before = node.state
        node.move_to(node_id, AUTHENTICATION_FAILED)
        node.authentication_error = error
        self._lost(node_id, node, before, now, str(error) if reason is None else reason)

    def _lost(
        self, node_id: str, node: NodeConnectionState, before: ConnectionState, now: int, reason: str | None
    ) -> None:
        node.last_error = reason
        node.last_connect_attempt_ms = now
        node.reconnect_backoff_ms = self._reconnect_backoff.backoff(node.failed_attempts)
        node.failed_attempts += 1
        if before is CONNECTING:
            node.failed_connect_attempts += 1
            node.connection_setup_timeout_ms = self._setup_timeout.backoff(node.failed_connect_attempts)
            self._connecting.discard(node_id)
        else:
            self._reset_setup_timeout(node)
            # An established connection was lost: the node may have moved to other addresses.
            node.forget_addresses()

    def _reset_setup_timeout(self, node: NodeConnectionState) -> None:
        node.failed_connect_attempts = 0
        node.connection_setup_timeout_ms = self._setup_timeout.backoff(0)

    def throttle(self, node_id: str, until_ms: int) -> None:
        """Throttles the node until then; an earlier time than one announced before changes nothing."""
        node = self.by_node.get(node_id)
        if node is not None and node.throttle_until_ms < until_ms:
            node.throttle_until_ms = until_ms

    def remove(self, node_id: str) -> None:
        self.by_node.pop(node_id, None)
        self._connecting.discard(node_id)

    # -- permitted actions

    def can_connect(self, node_id: str, now: int) -> bool:
        node = self.by_node.get(node_id)
        return node is None or (
            node.state.is_disconnected and now - node.last_connect_attempt_ms >= node.reconnect_backoff_ms
        )

    def is_ready(self, node_id: str, now: int) -> bool:
        """Whether the node is connected and not throttled."""
        node = self.by_node.get(node_id)
        return node is not None and node.state is READY and node.throttle_until_ms <= now

    def has_ready_nodes(self, now: int) -> bool:
        return any(node.state is READY and node.throttle_until_ms <= now for node in self.by_node.values())

    def connection_delay(self, node_id: str, now: int) -> int:
        """How long to wait before acting on this connection.

        Zero for an unknown node, the rest of the back-off for a lost connection, the set-up time-out for one that is
        connecting. An established one reports events by itself: forever.
        """
        node = self.by_node.get(node_id)
        if node is None:
            return 0
        if node.state is CONNECTING:
            return node.connection_setup_timeout_ms
        if node.state.is_disconnected:
            return max(node.reconnect_backoff_ms - (now - node.last_connect_attempt_ms), 0)
        return FOREVER

    def throttle_delay_ms(self, node_id: str, now: int) -> int:
        node = self.by_node.get(node_id)
        return 0 if node is None else max(node.throttle_until_ms - now, 0)

    def poll_delay_ms(self, node_id: str, now: int) -> int:
        """How long to wait before trying to send; for a throttled node, until the throttling ends."""
        throttled = self.throttle_delay_ms(node_id, now)
        return throttled if throttled and self.is_connected(node_id) else self.connection_delay(node_id, now)

    # -- queries

    def state(self, node_id: str) -> ConnectionState | None:
        node = self.by_node.get(node_id)
        return None if node is None else node.state

    def is_connecting(self, node_id: str) -> bool:
        return self.state(node_id) is CONNECTING

    def is_preparing_connection(self, node_id: str) -> bool:
        state = self.state(node_id)
        return state is CONNECTING or state is CHECKING_API_VERSIONS

    def is_connected(self, node_id: str) -> bool:
        state = self.state(node_id)
        return state is not None and state.is_connected

    def is_disconnected(self, node_id: str) -> bool:
        """Whether a connection or an attempt has failed; false for an unknown node."""
        state = self.state(node_id)
        return state is not None and state.is_disconnected

    def authentication_error(self, node_id: str) -> AuthenticationError | None:
        node = self.by_node.get(node_id)
        return None if node is None else node.authentication_error

    def last_error(self, node_id: str) -> str | None:
        node = self.by_node.get(node_id)
        return None if node is None else node.last_error

    def last_connect_attempt_ms(self, node_id: str) -> int:
        node = self.by_node.get(node_id)
        return -FOREVER if node is None else node.last_connect_attempt_ms

    def connection_setup_timeout_ms(self, node_id: str) -> int:
        return self._node(node_id).connection_setup_timeout_ms

    @property
    def has_connecting(self) -> bool:
        """Whether any node is connecting."""
        return bool(self._connecting)

    def nodes_with_connection_setup_timeout(self, now: int) -> list[str]:
        """Returns the nodes that have been connecting for too long."""
        return [node_id for node_id in sorted(self._connecting) if now > self._setup_deadline_ms(node_id)]

    def time_to_next_setup_timeout_ms(self, now: int) -> int:
        """How long until a connection attempt can time out."""
        if not self._connecting:
            return FOREVER
        return max(min(map(self._setup_deadline_ms, self._connecting)) + 1 - now, 0)

    def _setup_deadline_ms(self, node_id: str) -> int:
        node = self.by_node[node_id]
        return node.last_connect_attempt_ms + node.connection_setup_timeout_ms

    def __repr__(self) -> str:
        states = ", ".join(f"{node_id}: {node.state.name}" for node_id, node in self.by_node.items())
        return f"ClusterConnectionStates({states})"
