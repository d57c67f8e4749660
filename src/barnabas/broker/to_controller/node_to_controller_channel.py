"""A node's connections to the active controller, one for each purpose.

=========================== ======================================================= =======================
purpose                     requests                                                retry timeout
=========================== ======================================================= =======================
``forwarding``              Envelopes, CreateTopics, AllocateProducerIds            60 s
``heartbeat``               BrokerRegistration and BrokerHeartbeat                  the session timeout
``alter-partition``         AlterPartition                                          never
``directory-assignments``   AssignReplicasToDirs                                    60 s
``registration``            ControllerRegistration, from another controller         60 s
=========================== ======================================================= =======================

The connections are separate because each carries one request at a time: a heartbeat that waited for the creation of ten
thousand topics would be too late.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.broker.to_controller.controller_node_provider import ControllerNodeProvider
from barnabas.broker.to_controller.node_to_controller_request_thread import (
    ControllerClient,
    NodeToControllerRequestThread,
)
from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.dataclass import dataclass
from barnabas.network.client.client_config import NetworkClientConfig
from barnabas.network.client.client_request import RequestBuilder
from barnabas.network.client.inflight import FOREVER
from barnabas.network.client.metadata_updater import ManualMetadataUpdater
from barnabas.network.client.network_client import NetworkClient
from barnabas.network.client.node_api_versions import NodeApiVersions
from barnabas.network.reactor.channel_factory import ChannelFactory, plaintext
from barnabas.network.reactor.selector import Selector
from barnabas.protocol.message import Request

if TYPE_CHECKING:
    from barnabas.broker.config.kafka_config import KafkaConfig
    from barnabas.server.controller_channel import ControllerRequestCompletionHandler

FORWARDING = "forwarding"
HEARTBEAT = "heartbeat"
ALTER_PARTITION = "alter-partition"
DIRECTORY_ASSIGNMENTS = "directory-assignments"
REGISTRATION = "registration"

FORWARDING_RETRY_TIMEOUT_MS = 60_000
NEVER = FOREVER
"""A retry timeout: the request is retried until there is a response."""

_RECONNECT_BACKOFF_MS = 50
_USE_DEFAULT_BUFFER_SIZE = -1


@dataclass(frozen=True, slots=True)
class NodeToControllerConfig:
    """Settings that all channels of a node share."""

    node_id: int
    controller_socket_timeout_ms: int = 30_000
    """``controller.socket.timeout.ms``: how long to wait for a response."""
    socket_connection_setup_timeout_ms: int = 10_000
    socket_connection_setup_timeout_max_ms: int = 30_000
    channel_factory: ChannelFactory = plaintext
    """Makes the channels to the controller listener, for its security protocol."""
    node_kind: str = "broker"
    """Used in thread names; a controller registers over such a channel, too."""

    @classmethod
    def of(
        cls, config: KafkaConfig, channel_factory: ChannelFactory, node_kind: str = "broker"
    ) -> NodeToControllerConfig:
        return cls(
            config.node_id,
            config.value("controller.socket.timeout.ms"),
            config.value("socket.connection.setup.timeout.ms"),
            config.value("socket.connection.setup.timeout.max.ms"),
            channel_factory,
            node_kind,
        )


class NodeToControllerChannelManager:
    """Owns a connection to the active controller, and the thread that serves it.

    ``make_client`` is for tests; it gets the client settings of this channel.
    """

    def __init__(
        self,
        config: NodeToControllerConfig,
        channel_name: str,
        controller_nodes: ControllerNodeProvider,
        retry_timeout_ms: int = FORWARDING_RETRY_TIMEOUT_MS,
        *,
        clock: Clock = SYSTEM_CLOCK,
        make_client: Callable[[NetworkClientConfig, ManualMetadataUpdater], ControllerClient] | None = None,
    ) -> None:
        self.channel_name = channel_name
        self.retry_timeout_ms = retry_timeout_ms
        self._controller_nodes = controller_nodes
        updater = ManualMetadataUpdater()
        client_config = NetworkClientConfig(
            client_id=str(config.node_id),
            max_in_flight_requests_per_connection=1,
            reconnect_backoff_ms=_RECONNECT_BACKOFF_MS,
            reconnect_backoff_max_ms=_RECONNECT_BACKOFF_MS,
            send_buffer_bytes=_USE_DEFAULT_BUFFER_SIZE,
            receive_buffer_bytes=_USE_DEFAULT_BUFFER_SIZE,
            # A response after the retry timeout would be useless.
            request_timeout_ms=min(config.controller_socket_timeout_ms, retry_timeout_ms),
            socket_connection_setup_timeout_ms=config.socket_connection_setup_timeout_ms,
            socket_connection_setup_timeout_max_ms=config.socket_connection_setup_timeout_max_ms,
        )

        def network_client(settings: NetworkClientConfig, nodes: ManualMetadataUpdater) -> NetworkClient:
            selector = Selector(channel_factory=config.channel_factory, clock=clock)
            return NetworkClient(selector, nodes, settings, clock=clock)

        client: ControllerClient = (make_client or network_client)(client_config, updater)
        self.thread = NodeToControllerRequestThread(
            f"{config.node_kind}-{config.node_id}-to-controller-{channel_name}-channel-manager",
            client,
            controller_nodes,
            clock,
            retry_timeout_ms,
            lambda node: updater.set_nodes([node]),
        )
        controller_nodes.add_listener(self.thread.wakeup)

    def start(self) -> None:
        """Starts the thread. Requests sent before that wait for it."""
        self.thread.start()

    def shutdown(self) -> None:
        """Ends the thread; pending requests end with a timeout. Idempotent."""
        if not self.thread.initiate_shutdown():
            return
        self._controller_nodes.remove_listener(self.thread.wakeup)
        self.thread.await_shutdown()
        self.thread.close()

    def send_request(self, body: Request | RequestBuilder, handler: ControllerRequestCompletionHandler) -> None:
        self.thread.enqueue(body, handler)

    @property
    def controller_api_versions(self) -> NodeApiVersions | None:
        return self.thread.controller_api_versions

    @property
    def queue_size(self) -> int:
        return self.thread.queue_size

    def __repr__(self) -> str:
        return f"NodeToControllerChannelManager({self.channel_name}, controller {self.thread.active_controller})"
