"""The network client: sends requests and returns responses, over connections that it makes and repairs by itself.

All kinds of clients use it: the producer's sender, a consumer, a broker that talks to its controller. It belongs to one
thread, which calls :meth:`NetworkClient.poll` in a loop; only :meth:`NetworkClient.wakeup` and
:meth:`NetworkClient.initiate_close` may be called from another.

=========================== =====================================================================================
class                       responsibility
=========================== =====================================================================================
``NetworkClient``           the public interface; when to wait, and for how long
``RequestPipeline``         requests to bytes, events to responses; time-outs; the end of a connection
``InFlightRequests``        which requests wait for a response, in which order, and how many more may be sent
``ClientConnections``       the channels, one for each node; the API versions of each node
``ClusterConnectionStates`` the state of each connection, when to try again, until when it is throttled
``MetadataUpdater``         the nodes of the cluster; given by the owner of the client
``SelectorMetrics``         traffic per node; given by the owner, if it has metrics
``TelemetryHook``           client telemetry; given by the owner, too
=========================== =====================================================================================
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from enum import Enum, auto
from random import Random
from typing import TYPE_CHECKING, Final

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.errors import AuthenticationError, RetriableError
from barnabas.metrics.sensor import Sensor
from barnabas.network.client.client_config import NetworkClientConfig
from barnabas.network.client.client_connections import ClientConnections
from barnabas.network.client.client_request import (
    ClientRequest,
    ClientResponse,
    RequestBuilder,
    RequestCompletionHandler,
)
from barnabas.network.client.host_resolver import HostResolver, resolve_all_ips
from barnabas.network.client.inflight import FOREVER
from barnabas.network.client.least_loaded_node import LeastLoadedNode, choose_least_loaded
from barnabas.network.client.metadata_updater import MetadataUpdater
from barnabas.network.client.node import Node
from barnabas.network.client.node_api_versions import ApiVersions, NodeApiVersions
from barnabas.network.client.node_connection import ConnectionState
from barnabas.network.client.request_pipeline import RequestPipeline
from barnabas.protocol.message import Request
from barnabas.protocol.versions import VersionRange

if TYPE_CHECKING:
    from barnabas.network.client.selector_metrics import SelectorMetrics
    from barnabas.network.client.telemetry_hook import TelemetryHook
    from barnabas.network.reactor.selectable import Selectable
    from barnabas.network.transport.local.unread_message import FileReading

log = logging.getLogger(__name__)


class DisconnectError(RetriableError):
    """The client has been closed."""


class _Phase(Enum):
    ACTIVE = auto()
    CLOSING = auto()
    CLOSED = auto()


_ACTIVE: Final = _Phase.ACTIVE
"""Bound here because every turn uses it: a member lookup in an enum class costs as much as a call."""


class NetworkClient:
    """Sends requests to nodes and collects the responses.

    >>> client = NetworkClient(Selector(), updater, NetworkClientConfig(client_id="example"))  # doctest: +SKIP
    >>> while not client.ready(node, clock.hi_res_milliseconds()):  # connects, and requests the node's API versions
    ...     client.poll(100, clock.hi_res_milliseconds())
    >>> request = client.new_client_request(node.id_string, MetadataRequest(), clock.hi_res_milliseconds())
    >>> client.send(request, clock.hi_res_milliseconds())
    >>> client.poll(100, clock.hi_res_milliseconds())
    [ClientResponse(Metadata v13 1 from node 1: MetadataResponse(...))]

    Every request that :meth:`send` accepts ends as exactly one :class:`ClientResponse`, which one ``poll`` returns and
    passes to its callback. The requests to one node end in the order in which they were sent. A request ends without a
    response when its connection is lost, when the node has no version of it, or when it times out. A time-out closes
    the connection and ends all other requests on it, because responses come in order and the missing one would block
    the rest.

    No behaviour of a node makes ``poll`` raise. :meth:`last_error` describes the problem.

    ``now`` is always the monotonic clock in milliseconds, ``clock.hi_res_milliseconds()``: the system clock can jump
    and must not measure intervals.
    """

    def __init__(
        self,
        selector: Selectable,
        metadata_updater: MetadataUpdater,
        config: NetworkClientConfig | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        random: Random | None = None,
        resolver: HostResolver = resolve_all_ips,
        api_versions: ApiVersions | None = None,
        throttle_time_sensor: Sensor | None = None,
        telemetry: TelemetryHook | None = None,
        metrics: SelectorMetrics | None = None,
    ) -> None:
        self.config = NetworkClientConfig() if config is None else config
        self._request_timeout_ms = self.config.request_timeout_ms
        self._selector = selector
        self._updater = metadata_updater
        self._telemetry = telemetry
        self._metrics = metrics
        self._clock = clock
        self._random = Random() if random is None else random  # noqa: S311 - spreads load, keeps no secret
        self.api_versions = ApiVersions() if api_versions is None else api_versions
        self._connections = ClientConnections(
            selector, self.config, self.api_versions, resolver=resolver, random=self._random
        )
        self._states = self._connections.states
        self._pipeline = RequestPipeline(
            selector, self._connections, metadata_updater, self.config, throttle_time_sensor, metrics
        )
        if metrics is not None:
            metrics.show_connections(self._connections.channels)
        self._phase_lock = threading.Lock()
        """Guards changes of ``_phase``, which any thread may make."""
        self._phase = _ACTIVE
        self._found_ready: str | None = None
        """A node found ready at this time, with nothing sent, polled or closed since: it is still ready, and `send`
        need not check again."""
        self._found_ready_ms = 0

    # -- connections

    def ready(self, node: Node, now: int) -> bool:
        """Whether a request can be sent to the node now; starts connecting if there is no connection."""
        if not self._updater.is_update_due(now) and self._pipeline.can_send(node.id_string, now):
            self._found_ready = node.id_string
            self._found_ready_ms = now
            return True
        self._found_ready = None
        if node.is_empty:
            raise ValueError(f"cannot connect to {node!r}")
        if self._states.can_connect(node.id_string, now):
            self._initiate_connect(node, now)
        return False

    def is_ready(self, node: Node, now: int) -> bool:
        """Whether a request can be sent to the node now. No node is ready while a metadata update is due."""
        return not self._updater.is_update_due(now) and self._pipeline.can_send(node.id_string, now)

    def _initiate_connect(self, node: Node, now: int) -> None:
        if not self._connections.connect(node, now):
            self._updater.handle_server_disconnect(now, node.id_string, None)

    @property
    def has_referred(self) -> bool:
        """Whether any node so far accepts references (`transport.local.shared_memory`). Any thread may call this."""
        return self._connections.has_referred

    @property
    def file_reading(self) -> FileReading:
        """Decides which thread reads the files that responses refer to. For the polling thread."""
        return self._connections.file_reading

    def connection_delay(self, node: Node, now: int) -> int:
        """How long to wait before acting on the connection; forever if it is established."""
        return self._states.connection_delay(node.id_string, now)

    def throttle_delay_ms(self, node: Node, now: int) -> int:
        """The remaining throttle time of this client at the node."""
        return self._states.throttle_delay_ms(node.id_string, now)

    def poll_delay_ms(self, node: Node, now: int) -> int:
        """How long to wait before trying to send to the node again."""
        return self._states.poll_delay_ms(node.id_string, now)

    def connection_failed(self, node: Node) -> bool:
        """Whether the connection was lost, or could not be made, and has not been retried since."""
        return self._states.is_disconnected(node.id_string)

    def authentication_error(self, node: Node) -> AuthenticationError | None:
        return self._states.authentication_error(node.id_string)

    def last_error(self, node_id: str) -> str | None:
        """Explains why the connection to a node was last lost or not made; None once it is ready."""
        return self._states.last_error(node_id)

    def connection_state(self, node_id: str) -> ConnectionState | None:
        return self._states.state(node_id)

    def node_api_versions(self, node_id: str) -> NodeApiVersions | None:
        """The API versions of a connected node."""
        return self.api_versions.get(node_id)

    def has_ready_nodes(self, now: int) -> bool:
        return self._states.has_ready_nodes(now)

    def disconnect(self, node_id: str) -> None:
        """Closes the connection to a node. The next poll returns its requests as disconnected."""
        self._found_ready = None
        if node_id in self._connections.channels:
            log.info("Disconnecting from node %s on request", node_id)
            self._pipeline.disconnect(node_id, self._clock.hi_res_milliseconds())

    def close_connection(self, node_id: str) -> None:
        """Closes the connection to a node and forgets the node. Its requests end without a response."""
        self._found_ready = None
        log.info("Closing the connection to node %s on request", node_id)
        self._pipeline.forget(node_id, self._clock.hi_res_milliseconds())

    # -- sending

    def new_client_request(
        self,
        node_id: str,
        body: Request | RequestBuilder,
        now: int,
        *,
        expect_response: bool = True,
        request_timeout_ms: int | None = None,
        callback: RequestCompletionHandler | None = None,
        allowed_versions: VersionRange | None = None,
    ) -> ClientRequest:
        """Creates a request with the next correlation id of this client."""
        return self._pipeline.new_request(
            node_id, body, now, expect_response, request_timeout_ms, callback, allowed_versions
        )

    def send(self, request: ClientRequest, now: int) -> None:
        """Sends a request to a node that is ready."""
        if self._phase is not _ACTIVE:
            self._ensure_active()
        node_id = request.destination
        if (node_id != self._found_ready or now != self._found_ready_ms) and not self._pipeline.can_send(node_id, now):
            raise RuntimeError(f"{request!r} cannot be sent: the node is not ready")
        self._found_ready = None
        self._pipeline.send(request, now)

    def send_metadata_request(self, node: Node, make_request: Callable[[], Request | RequestBuilder], now: int) -> int:
        """Sends a request of the metadata updater, whose response goes to the updater, or connects first.

        ``make_request`` is called if the request can be sent now. Otherwise a connection is started, unless one is
        already connecting, which may serve as well. Returns the time during which calling this again is useless.
        """
        node_id = node.id_string
        self._found_ready = None
        if self._pipeline.can_send(node_id, now):
            self._pipeline.send(self.new_client_request(node_id, make_request(), now), now, internal=True)
            return self.config.request_timeout_ms
        if any(self._states.is_connecting(known.id_string) for known in self._updater.fetch_nodes()):
            return self.config.reconnect_backoff_ms
        if self._states.can_connect(node_id, now):
            self._initiate_connect(node, now)
            return self.config.reconnect_backoff_ms
        return FOREVER  # the connection is established and will report when it can take more

    # -- the loop

    def poll(self, timeout_ms: float, now: int) -> list[ClientResponse]:
        """Waits at most ``timeout_ms`` for events, handles them, and returns the requests that have ended.

        Calls their callbacks first. Waits no longer than until the next request or connection attempt times out.
        """
        if self._phase is not _ACTIVE:
            self._ensure_active()
        metadata_delay_ms = self._updater.maybe_update(self, now)
        telemetry_delay_ms = FOREVER if self._telemetry is None else self._telemetry.maybe_update(self, now)
        pipeline = self._pipeline
        self._found_ready = None
        wait_ms: float = 0
        if timeout_ms > 0 and not pipeline.ended:
            wait_ms = min(
                timeout_ms,
                metadata_delay_ms,
                telemetry_delay_ms,
                self._request_timeout_ms,
                pipeline.in_flight.time_to_next_timeout_ms(now),
                self._states.time_to_next_setup_timeout_ms(now),
            )
        self._selector.poll(max(0, wait_ms))
        now = self._clock.hi_res_milliseconds()
        responses = pipeline.handle_events(now)
        if self._metrics is not None:
            self._metrics.polled(now)
        for response in responses:
            callback = response.request.callback
            try:
                if callback is not None:
                    callback(response)
            except Exception:
                log.exception("The callback of %r failed", response)
        return responses

    def least_loaded_node(self, now: int) -> LeastLoadedNode:
        """Returns the node for a request that any node can serve."""
        nodes = self._updater.fetch_nodes()
        return choose_least_loaded(nodes, self._connections, self._pipeline.in_flight, self._random, now)

    def in_flight_request_count(self, node_id: str | None = None) -> int:
        """Number of requests that have been sent and not ended, to one node or to all."""
        return self._pipeline.in_flight.count(node_id)

    def can_send_more(self, node_id: str) -> bool:
        """Whether the last request to a node is completely sent and another one may be in flight."""
        return self._pipeline.in_flight.can_send_more(node_id)

    def has_in_flight_requests(self, node_id: str | None = None) -> bool:
        return self._pipeline.in_flight.count(node_id) > 0

    @property
    def default_request_timeout_ms(self) -> int:
        return self.config.request_timeout_ms

    @property
    def reconnect_backoff_ms(self) -> int:
        return self.config.reconnect_backoff_ms

    # -- closing

    def wakeup(self) -> None:
        """Ends the wait of the current poll, or of the next one. May be called from any thread."""
        self._selector.wakeup()

    @property
    def active(self) -> bool:
        return self._phase is _ACTIVE

    def initiate_close(self) -> None:
        """Forbids further polls and wakes the current one. May be called from any thread."""
        with self._phase_lock:
            if self._phase is not _ACTIVE:
                return
            self._phase = _Phase.CLOSING
        self.wakeup()

    def close(self) -> None:
        """Closes all connections and the selector. Requests in flight end without a response."""
        with self._phase_lock:
            if self._phase is _Phase.CLOSED:
                return
            self._phase = _Phase.CLOSED
        self._connections.close_all()
        self._updater.close()
        if self._telemetry is not None:
            self._telemetry.close()

    def _ensure_active(self) -> None:
        if self._phase is not _ACTIVE:
            raise DisconnectError(f"the network client is {self._phase.name.lower()}")

    def __repr__(self) -> str:
        return f"NetworkClient({self.config.client_id}, {self._states!r}, {self._pipeline.in_flight!r})"
