"""The connection of a client to one node: its states, and what is remembered between connections."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from enum import Enum

from barnabas.common.errors import AuthenticationError
from barnabas.network.client.host_resolver import HostResolver, ResolvedAddress, UnknownHostError
from barnabas.network.client.inflight import FOREVER

log = logging.getLogger(__name__)


class ConnectionState(Enum):
    """The progress of a connection.

    ====================== ============================================================================
    state                  next states
    ====================== ============================================================================
    DISCONNECTED           CONNECTING
    CONNECTING             CHECKING_API_VERSIONS, READY, DISCONNECTED, AUTHENTICATION_FAILED
    CHECKING_API_VERSIONS  CHECKING_API_VERSIONS, READY, DISCONNECTED, AUTHENTICATION_FAILED
    READY                  DISCONNECTED, AUTHENTICATION_FAILED
    AUTHENTICATION_FAILED  CONNECTING
    ====================== ============================================================================

    CONNECTING covers everything the channel does by itself: TCP, TLS, SASL. CHECKING_API_VERSIONS can follow itself:
    the node did not know the version of the request, which is repeated in an older one. A client that skips the request
    goes from CONNECTING to READY. A READY connection can still fail to authenticate, because a broker may require
    re-authentication (KIP-368).
    """

    DISCONNECTED = "disconnected"
    CONNECTING = "connecting"
    CHECKING_API_VERSIONS = "checking API versions"
    READY = "ready"
    AUTHENTICATION_FAILED = "authentication failed"

    @property
    def is_disconnected(self) -> bool:
        return self is DISCONNECTED or self is AUTHENTICATION_FAILED

    @property
    def is_connected(self) -> bool:
        return self is CHECKING_API_VERSIONS or self is READY


DISCONNECTED = ConnectionState.DISCONNECTED
CONNECTING = ConnectionState.CONNECTING
CHECKING_API_VERSIONS = ConnectionState.CHECKING_API_VERSIONS
READY = ConnectionState.READY
AUTHENTICATION_FAILED = ConnectionState.AUTHENTICATION_FAILED

TRANSITIONS: dict[ConnectionState, frozenset[ConnectionState]] = {
    DISCONNECTED: frozenset({CONNECTING}),
    CONNECTING: frozenset({CHECKING_API_VERSIONS, READY, DISCONNECTED, AUTHENTICATION_FAILED}),
    CHECKING_API_VERSIONS: frozenset({CHECKING_API_VERSIONS, READY, DISCONNECTED, AUTHENTICATION_FAILED}),
    READY: frozenset({DISCONNECTED, AUTHENTICATION_FAILED}),
    AUTHENTICATION_FAILED: frozenset({CONNECTING}),
}


class NodeConnectionState:
    """Everything remembered about the connection to one node, across reconnects."""

    __slots__ = (
        "_addresses",
        "_index",
        "_last_attempted",
        "authentication_error",
        "connection_setup_timeout_ms",
        "failed_attempts",
        "failed_connect_attempts",
        "host",
        "last_connect_attempt_ms",
        "last_error",
        "reconnect_backoff_ms",
        "state",
        "throttle_until_ms",
    )

    def __init__(self, host: str) -> None:
        self.host = host
        self.state = DISCONNECTED
        self.last_connect_attempt_ms = -FOREVER
        self.failed_attempts = 0
        """Consecutive connections that did not reach READY."""
        self.failed_connect_attempts = 0
        """Those that did not even get past CONNECTING."""
        self.reconnect_backoff_ms = 0
        self.connection_setup_timeout_ms = 0
        self.throttle_until_ms = -FOREVER
        self.authentication_error: AuthenticationError | None = None
        self.last_error: str | None = None
        """Explains why the last connection was lost; None while the connection is READY."""
        self._addresses: Sequence[ResolvedAddress] = ()
        self._index = 0
        self._last_attempted: ResolvedAddress | None = None

    def move_to(self, node_id: str, state: ConnectionState) -> None:
        if state not in TRANSITIONS[self.state]:
            raise RuntimeError(
                f"the connection to node {node_id} is {self.state.value} and cannot become {state.value}"
            )
        self.state = state

    # -- addresses

    def current_address(self, resolve: HostResolver) -> ResolvedAddress:
        """Returns the address to connect to; raises ``OSError`` if the host has none."""
        if not self._addresses:
            self._addresses = resolve(self.host)
            if not self._addresses:
                raise UnknownHostError(f"the host name {self.host!r} has no address")
            log.debug("Host %s has the addresses %s", self.host, self._addresses)
            # After a connection was lost the name is resolved again. Do not start with the address that has just failed
            # if there are others: a failed load balancer may still be in the DNS.
            skip = len(self._addresses) > 1 and self._addresses[0] == self._last_attempted
            self._index = 1 if skip else 0
        self._last_attempted = self._addresses[self._index]
        return self._last_attempted

    def move_to_next_address(self) -> None:
        """Moves to the next address; after the last one the name is resolved again."""
        self._index += 1
        if self._index >= len(self._addresses):
            self._addresses = ()

    def forget_addresses(self) -> None:
        self._addresses = ()

    def __repr__(self) -> str:
        return f"NodeConnectionState({self.host}, {self.state.name}, {self.failed_attempts} failed attempts)"
