"""The network client's interface for the producer's I/O thread."""

from __future__ import annotations

from typing import Protocol

from barnabas.common.errors import AuthenticationError
from barnabas.network.client.client_request import (
    ClientRequest,
    ClientResponse,
    RequestBuilder,
    RequestCompletionHandler,
)
from barnabas.network.client.least_loaded_node import LeastLoadedNode
from barnabas.network.client.node import Node
from barnabas.protocol.message import Request
from barnabas.protocol.versions import VersionRange


class KafkaClient(Protocol):
    """Sends requests to nodes, and calls back with their responses."""

    def ready(self, node: Node, now: int) -> bool: ...

    def poll_delay_ms(self, node: Node, now: int) -> int: ...

    def connection_failed(self, node: Node) -> bool: ...

    def authentication_error(self, node: Node) -> AuthenticationError | None: ...

    def least_loaded_node(self, now: int) -> LeastLoadedNode: ...

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
    ) -> ClientRequest: ...

    def send(self, request: ClientRequest, now: int) -> None: ...

    def poll(self, timeout_ms: float, now: int) -> list[ClientResponse]: ...

    def in_flight_request_count(self, node_id: str | None = None) -> int: ...

    def can_send_more(self, node_id: str) -> bool: ...

    def wakeup(self) -> None: ...

    def close(self) -> None: ...
