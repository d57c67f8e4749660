"""The interface of a broker's connection to the active controller.

The active controller changes and connections break, but callers need not handle that: they queue a request and get
exactly one callback with its outcome.
"""

from __future__ import annotations

from typing import Protocol

from barnabas.network.client.client_request import ClientResponse, RequestBuilder
from barnabas.network.client.node_api_versions import NodeApiVersions
from barnabas.protocol.message import Request


class ControllerRequestCompletionHandler(Protocol):
    """Receives the outcome of a request: exactly one method is called, once, on the channel's thread.

    That thread sends the next request only after the handler has returned, so a handler must not block.
    """

    def on_complete(self, response: ClientResponse) -> None:
        """Receives the response, or a failure to send: see ``authentication_error`` and ``version_mismatch``.

        Never a lost connection or NOT_CONTROLLER: the channel retries those.
        """
        ...

    def on_timeout(self) -> None:
        """Called if no controller responded in time, or if the channel has been shut down."""
        ...


class ControllerChannel(Protocol):
    """Sends requests to the current active controller."""

    @property
    def retry_timeout_ms(self) -> int:
        """How long a request is retried."""
        ...

    @property
    def controller_api_versions(self) -> NodeApiVersions | None:
        """The controller's API versions; None before the first connection."""
        ...

    def start(self) -> None: ...

    def shutdown(self) -> None: ...

    def send_request(self, body: Request | RequestBuilder, handler: ControllerRequestCompletionHandler) -> None:
        """Queues a request. Requests are sent in order, one at a time."""
        ...
