"""The telemetry hook: the interface by which a network client calls telemetry in every poll (KIP-714)."""

from __future__ import annotations

from typing import Protocol

from barnabas.network.client.client_request import ClientRequest, RequestBuilder, RequestCompletionHandler
from barnabas.network.client.least_loaded_node import LeastLoadedNode
from barnabas.network.client.node import Node
from barnabas.protocol.message import Request


class TelemetryClient(Protocol):
    """The network client as telemetry sees it."""

    @property
    def default_request_timeout_ms(self) -> int: ...

    @property
    def reconnect_backoff_ms(self) -> int: ...

    def least_loaded_node(self, now: int) -> LeastLoadedNode: ...

    def ready(self, node: Node, now: int) -> bool: ...

    def poll_delay_ms(self, node: Node, now: int) -> int: ...

    def new_client_request(
        self,
        node_id: str,
        body: Request | RequestBuilder,
        now: int,
        *,
        callback: RequestCompletionHandler | None = None,
    ) -> ClientRequest: ...

    def send(self, request: ClientRequest, now: int) -> None: ...


class TelemetryHook(Protocol):
    """Called before each wait of a poll."""

    def maybe_update(self, client: TelemetryClient, now: int) -> int:
        """Sends telemetry that is due; returns the milliseconds until the next call is needed."""

    def close(self) -> None: ...
