"""A node's connection to the active controller, one for each purpose.

=========================== ======================================================= =======================
purpose                     what goes over it                                       given up after
=========================== ======================================================= =======================
``forwarding``              Envelopes, CreateTopics, AllocateProducerIds            60 s
``heartbeat``               BrokerRegistration and BrokerHeartbeat                  the session timeout
``alter-partition``         AlterPartition                                          never
``directory-assignments``   AssignReplicasToDirs                                    60 s
``registration``            ControllerRegistration, from another controller         60 s
=========================== ======================================================= =======================

They are apart because requests go one at a time: a heartbeat that had to wait behind the creation of ten thousand
topics would come too late.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.broker.controller_node_provider import ControllerNodeProvider
from barnabas.broker.node_to_controller_request_thread import ControllerClient, NodeToControllerRequestThread
from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.dataclass import dataclass
from barnabas.network.channel_factory import ChannelFactory, plaintext
from barnabas.network.client import NetworkClient
from barnabas.network.client_config import NetworkClientConfig
from barnabas.network.client_request import RequestBuilder
from barnabas.network.inflight import FOREVER
from barnabas.network.metadata_updater import ManualMetadataUpdater
from barnabas.network.node_api_versions import NodeApiVersions
from barnabas.network.selector import Selector
from barnabas.protocol.message import Request

if TYPE_CHECKING:
    from barnabas.server.controller_channel import ControllerRequestCompletionHandler

FORWARDING = "forwarding"
HEARTBEAT = "heartbeat"
ALTER_PARTITION = "alter-partition"
DIRECTORY_ASSIGNMENTS = "directory-assignments"
REGISTRATION = "registration"

FORWARDING_RETRY_TIMEOUT_MS = 60_000
NEVER = FOREVER
"""As a retry timeout: a request is tried until it is answered."""

_RECONNECT_BACKOFF_MS = 50
_USE_DEFAULT_BUFFER_SIZE = -1


@dataclass(frozen=True, slots=True)
class NodeToControllerConfig:
    """Settings that all channels of a node share."""

    node_id: int
    controller_socket_timeout_ms: int = 30_000
    """``controller.socket.timeout.ms``: how long an answer may take."""
    socket_connection_setup_timeout_ms: int = 10_000
    socket_connection_setup_timeout_max_ms: int = 30_000
    channel_factory: ChannelFactory = plaintext
    """How connections to the controller listener are secured."""
    node_kind: str = "broker"
    """For the names of threads; a controller registers over such a channel, too."""


class NodeToControllerChannelManager:
    """A connection to whoever is controller, with the thread that looks after it.

    ``make_client`` is for tests; it gets what a client of this channel is to be told.
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
            # An answer that comes after the request has been given up is of no use.
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
        """Starts the thread. Requests may be handed over before that, and then wait for it."""
        self.thread.start()

    def shutdown(self) -> None:
        """Ends the thread; whoever still waits for an answer is told that it timed out. May be called again."""
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
