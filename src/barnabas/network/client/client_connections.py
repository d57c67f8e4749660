"""The connections of a network client to its nodes, at most one per node."""

from __future__ import annotations

import logging
import socket
from random import Random
from typing import TYPE_CHECKING

from barnabas.network.client.client_config import NetworkClientConfig
from barnabas.network.client.connection_failure import FIRST_RESPONSE_LIMIT, explain_connect_error
from barnabas.network.client.connection_states import ClusterConnectionStates
from barnabas.network.client.host_resolver import HostResolver
from barnabas.network.client.node import Node
from barnabas.network.client.node_api_versions import ApiVersions, NodeApiVersions
from barnabas.network.client.version_negotiation import VersionNegotiation
from barnabas.network.reactor.channel import ANONYMOUS, KafkaChannel
from barnabas.network.reactor.selector import CloseMode
from barnabas.network.transport import TransportLayer
from barnabas.network.transport.local.frame_references import is_same_user
from barnabas.network.transport.local.layer import LocalTransportLayer
from barnabas.network.transport.local.offer import LocalSocketOffer, connect
from barnabas.network.transport.local.unread_message import FileReading
from barnabas.protocol.messages.api_versions import ApiVersionsResponse

if TYPE_CHECKING:
    from barnabas.network.reactor.selectable import Selectable

log = logging.getLogger(__name__)


class ClientConnections:
    """Opens and closes connections.

    A connection is named by the id of its node, and so is the next connection to that node. The selector reports events
    of a channel when it is polled, and by then the client may have replaced that channel by another one. So every event
    is checked with :meth:`is_current`; otherwise the end of the old connection would be taken for the end of the new
    one.
    """

    def __init__(
        self,
        selector: Selectable,
        config: NetworkClientConfig,
        api_versions: ApiVersions,
        *,
        resolver: HostResolver,
        random: Random,
    ) -> None:
        self._selector = selector
        self._config = config
        self.api_versions = api_versions
        self.negotiation = VersionNegotiation(config)
        self.states = ClusterConnectionStates(
            reconnect_backoff_ms=config.reconnect_backoff_ms,
            reconnect_backoff_max_ms=config.reconnect_backoff_max_ms,
            connection_setup_timeout_ms=config.socket_connection_setup_timeout_ms,
            connection_setup_timeout_max_ms=config.socket_connection_setup_timeout_max_ms,
            resolver=resolver,
            random=random,
        )
        self.channels: dict[str, KafkaChannel] = {}
        """Channels by node id. The context of a channel is its node."""
        self.has_referred = False
        """Whether any node so far accepts references to large messages instead of their bytes."""
        self.file_reading = FileReading()
        """Decides which thread reads the files that responses refer to, for all connections."""
        self._moving: dict[str, TransportLayer] = {}
        """By node id, the TCP sockets of connections that are moving to the broker's local socket. They are kept
        until the broker has responded there: it would take the end of this socket for the end of the connection."""
        self._staying: set[str] = set()
        """Nodes where a move has failed. Their next connection stays with TCP."""
        self._max_receive_size = FIRST_RESPONSE_LIMIT
        """The selector's limit; known with the first channel."""

    def is_current(self, channel: KafkaChannel) -> bool:
        return self.channels.get(channel.id) is channel

    def is_ready(self, node_id: str, now: int) -> bool:
        """Whether the node is connected, has reported its API versions, and does not throttle."""
        return self.states.is_ready(node_id, now) and self._selector.is_channel_ready(node_id)

    def connect(self, node: Node, now: int) -> bool:
        """Starts connecting; false if that has failed already."""
        node_id = node.id_string
        self.states.connecting(node_id, now, node.host)
        try:
            address = self.states.current_address(node_id)
            log.debug("Connecting to node %s at %s", node, address.ip)
            self._selector.connect(
                node_id,
                (address.ip, node.port),
                host=node.host,
                family=address.family,
                send_buffer=self._config.send_buffer_bytes,
                receive_buffer=self._config.receive_buffer_bytes,
            )
        except (OSError, OverflowError) as error:  # OverflowError: invalid port number
            reason = explain_connect_error(node, error)
            log.warning("Node %s: %s", node_id, reason)
            self.states.disconnected(node_id, now, reason)
            return False
        channel = self._selector.channel(node_id)
        assert channel is not None
        channel.context = node
        self._max_receive_size = channel.max_receive_size
        if self._config.discover_broker_versions:
            channel.max_receive_size = min(channel.max_receive_size, FIRST_RESPONSE_LIMIT)
        self.channels[node_id] = channel
        return True

    def established(self, channel: KafkaChannel) -> None:
        """Handles an accepted connection. The API versions are requested once TLS and SASL are complete, too."""
        if self._config.discover_broker_versions:
            self.negotiation.begin(channel.id)
        else:
            self.states.ready(channel.id)

    def versions_known(self, channel: KafkaChannel, versions: NodeApiVersions) -> None:
        """Stores the API versions. The peer is a Kafka node, so it may send large responses from now on."""
        self._staying.discard(channel.id)
        self._close_former(channel.id)
        self.api_versions.update(channel.id, versions)
        self.states.ready(channel.id)
        channel.max_receive_size = self._max_receive_size

    # -- the local socket

    def move_to_local_socket(self, channel: KafkaChannel, response: ApiVersionsResponse) -> bool:
        """Moves to the local socket that the response offers, if any; true if the new socket must now be tested.

        See `barnabas.network.transport.local.offer`.
        """
        if not self._config.local_socket_enable or channel.id in self._staying:
            return False
        offer = LocalSocketOffer.in_response(response)
        if offer is None:
            return False
        local = connect(offer, channel.transport.socket, self._config.local_send_buffer_bytes)
        if local is None:
            return False
        if channel.authenticator is not ANONYMOUS and not is_same_user(local):
            log.debug("The local socket of node %s belongs to another user", channel.id)
            local.shutdown(socket.SHUT_RDWR)  # so the move fails, and the next connection stays with TCP
        self._moving[channel.id] = self._selector.replace_socket(channel, local)
        return True

    def refer(self, channel: KafkaChannel) -> None:
        """Allows references to large messages: see `barnabas.network.transport.local.frame_references`."""
        if isinstance(channel.transport, LocalTransportLayer) and self.is_moving(channel.id):
            channel.transport.refer(self.file_reading)
            self.has_referred = True

    def is_moving(self, node_id: str) -> bool:
        return node_id in self._moving

    def stay_with_tcp(self, node_id: str) -> None:
        """Records a failed move. It has cost a connection, so the next one stays with TCP."""
        self._staying.add(node_id)

    def _close_former(self, node_id: str) -> None:
        former = self._moving.pop(node_id, None)
        if former is not None:
            former.close()

    # -- closing

    def close_all(self) -> None:
        for node_id in list(self._moving):
            self._close_former(node_id)
        self.channels.clear()
        self._selector.close_all()

    def close(self, node_id: str) -> None:
        """Closes a connection, if it is open, and forgets everything that belongs to this connection alone.

        The caller updates the state of the node.
        """
        self._close_former(node_id)
        channel = self.channels.pop(node_id, None)
        if channel is not None and self._selector.open_or_closing(node_id) is channel:
            self._selector.close(channel, CloseMode.DISCARD_NO_NOTIFY)
        self.api_versions.remove(node_id)
        self.negotiation.forget(node_id)
