"""A client that sends a request and waits for the response: for commands and small tools.

    with BlockingClient("127.0.0.1:9092") as client:
        response = client.send(DescribeClusterRequest())

It polls a `NetworkClient` for the caller. It connects on demand and reconnects, negotiates the version of each request,
and obeys throttling. A failure is one exception whose message says what to do about it: a `ClientError`, which may be
retried, or an `AuthenticationError`, which is fatal.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, Self

from barnabas.clients.common.bootstrap import bootstrap_nodes
from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.errors import BarnabasError, Errors
from barnabas.network.client.client_config import NetworkClientConfig
from barnabas.network.client.client_request import ClientRequest, ClientResponse, RequestBuilder
from barnabas.network.client.connection_failure import explain_request_timeout, explain_setup_timeout
from barnabas.network.client.host_resolver import HostResolver, resolve_all_ips
from barnabas.network.client.metadata_updater import ManualMetadataUpdater
from barnabas.network.client.network_client import NetworkClient
from barnabas.network.client.node import Node
from barnabas.network.client.node_connection import ConnectionState
from barnabas.network.reactor.channel_factory import ChannelFactory, plaintext
from barnabas.network.reactor.selector import Selector
from barnabas.protocol.message import Request
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.protocol.versions import VersionRange

log = logging.getLogger(__name__)

_POLL_MS: Final = 100


class ClientError(BarnabasError):
    """A request failed; the message says why."""


class ConnectionFailedError(ClientError):
    """No broker was reachable: a wrong address, an unknown host, or a server that is not a Kafka broker."""


class RequestTimedOutError(ClientError):
    """A broker was reached, and did not respond in time."""


class PostedRequest(NamedTuple):
    """A request in flight, and its node."""

    node: Node
    request: ClientRequest


class BlockingClient:
    """Sends requests and waits for their responses. Not thread-safe."""

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        client_id: str = "barnabas",
        connect_timeout_ms: int = 10_000,
        request_timeout_ms: int = 30_000,
        config: NetworkClientConfig | None = None,
        clock: Clock = SYSTEM_CLOCK,
        resolver: HostResolver = resolve_all_ips,
        channel_factory: ChannelFactory = plaintext,
    ) -> None:
        """Does not connect yet; raises `ConfigError` for invalid addresses.

        A `config` replaces the settings before it.
        """
        if config is None:
            config = NetworkClientConfig(
                client_id=client_id,
                request_timeout_ms=request_timeout_ms,
                socket_connection_setup_timeout_ms=connect_timeout_ms,
                socket_connection_setup_timeout_max_ms=connect_timeout_ms,
            )
        servers = [server.strip() for server in bootstrap_servers.split(",") if server.strip()]
        # Unresolved: an unknown host is detected and reported on connecting, like other failures.
        self._bootstrap = bootstrap_nodes(servers, None)
        self._clock = clock
        self._connect_timeout_ms = config.socket_connection_setup_timeout_ms
        self._request_timeout_ms = config.request_timeout_ms
        self._client = NetworkClient(
            Selector(clock=clock, channel_factory=channel_factory),
            ManualMetadataUpdater(self._bootstrap),
            config,
            clock=clock,
            resolver=resolver,
        )
        self._preferred: Node | None = None
        """The bootstrap server that responded last."""
        self._responses: dict[ClientRequest, ClientResponse] = {}
        """Responses to posted requests that `wait` has not returned yet."""
        self._forgotten: set[ClientRequest] = set()
        """Requests in flight whose responses nobody will take."""

    def send(self, body: Request | RequestBuilder, node: Node | None = None) -> Any:
        """Sends a request to a node, or to any bootstrap server, and returns the response.

        Does not look at error codes inside the response.
        """
        return self.wait(self.post(body, node))

    # -- several requests in flight

    def post(
        self, body: Request | RequestBuilder, node: Node | None = None, versions: VersionRange | None = None
    ) -> PostedRequest:
        """Sends a request without waiting for the response."""
        node = self._connect() if node is None else self._connect_to([node])
        now = self._clock.hi_res_milliseconds()
        request = self._client.new_client_request(
            node.id_string, body, now, callback=self._note, allowed_versions=versions
        )
        self._client.send(request, now)
        self._client.poll(0, now)
        return PostedRequest(node, request)

    def _note(self, response: ClientResponse) -> None:
        if response.request in self._forgotten:
            self._forgotten.remove(response.request)
        else:
            self._responses[response.request] = response

    def wait(self, posted: PostedRequest) -> Any:
        """Returns the response to a posted request."""
        while posted.request not in self._responses:
            self._client.poll(_POLL_MS, self._clock.hi_res_milliseconds())
        return self._body(posted.node, self._responses.pop(posted.request))

    def send_all(self, requests: Iterable[tuple[Node, Request]]) -> list[Any]:
        """Sends all requests before it waits for the first response. If one fails, the other responses are dropped."""
        open_requests: deque[PostedRequest] = deque()
        try:
            for node, body in requests:
                open_requests.append(self.post(body, node))
            found = []
            while open_requests:
                found.append(self.wait(open_requests.popleft()))
            return found
        except BaseException:
            for posted in open_requests:
                self._forget(posted)
            raise

    def _forget(self, posted: PostedRequest) -> None:
        """Drops the response to a request, now or when it comes. Otherwise a client that lives on would keep it."""
        if self._responses.pop(posted.request, None) is None:
            self._forgotten.add(posted.request)

    @property
    def is_idle(self) -> bool:
        """Whether no request is in flight, and no response waits to be taken."""
        return not self._client.has_in_flight_requests() and not self._responses

    def nodes(self) -> dict[int, Node]:
        """Returns the brokers of the cluster, by id."""
        response: DescribeClusterResponse = self.send(DescribeClusterRequest())
        return {
            broker.broker_id: Node(broker.broker_id, broker.host, broker.port, broker.rack)
            for broker in response.brokers
        }

    def _body(self, node: Node, response: ClientResponse) -> Any:
        if response.body is not None:
            return response.body
        where = f"{node.host}:{node.port}"
        title = response.api_key.title
        if response.authentication_error is not None:
            raise response.authentication_error
        if response.version_mismatch is not None:
            raise ClientError(f"{title} cannot be sent to {where}: {response.version_mismatch}")
        if response.timed_out:
            raise RequestTimedOutError(f"{where} did not respond to {title} within {self._request_timeout_ms} ms")
        reason = response.reason or self._client.last_error(node.id_string) or f"{where} closed the connection"
        raise ClientError(f"{title} got no response: {reason}")

    # -- connections

    def _connect(self) -> Node:
        if self._preferred is not None and self._client.is_ready(self._preferred, self._clock.hi_res_milliseconds()):
            return self._preferred
        self._preferred = self._connect_to(self._bootstrap)
        return self._preferred

    def _connect_to(self, nodes: list[Node]) -> Node:
        """Returns the first of these that is reachable; tries each once, all within the time to connect.

        Raises `ConnectionFailedError`, or an `AuthenticationError` if a broker refuses this client or the reverse.
        """
        deadline = self._clock.hi_res_milliseconds() + self._connect_timeout_ms
        failures: dict[str, str] = {}
        for node in nodes:
            was_tried = False
            while True:
                now = self._clock.hi_res_milliseconds()
                # A connection that was just lost is in backoff; its failure is an old one.
                was_tried |= not self._client.connection_delay(node, now)
                if self._client.ready(node, now):
                    return node
                if was_tried and self._client.connection_failed(node):
                    refused = self._client.authentication_error(node)
                    if refused is not None:  # fatal: other brokers have the same credentials and certificates
                        raise type(refused)(self._client.last_error(node.id_string)) from refused
                    failures[node.id_string] = self._client.last_error(node.id_string) or f"{node} is not reachable"
                    break
                if now >= deadline:
                    failures[node.id_string] = self._explain_silence(node)
                    break
                wait_ms = min(deadline - now, max(self._client.throttle_delay_ms(node, now), _POLL_MS))
                self._client.poll(wait_ms, now)
        raise ConnectionFailedError("; ".join(failures.values()))

    def _explain_silence(self, node: Node) -> str:
        state = self._client.connection_state(node.id_string)
        if state is None or state is ConnectionState.CONNECTING:
            return explain_setup_timeout(node, self._connect_timeout_ms)
        return explain_request_timeout(node, state)

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"BlockingClient({', '.join(f'{node.host}:{node.port}' for node in self._bootstrap)})"


def raise_for(code: int, what: str) -> None:
    """Raises `ClientError` for an error code of a response; does nothing for 0."""
    if code:
        error = Errors.for_code(code)
        raise ClientError(f"{what}: {error.message} ({error.name})")
