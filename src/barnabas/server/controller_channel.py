"""What parts of a broker see of its connection to the active controller.

Who is controller changes, and connections break. Whoever has something to tell the controller should not have to care:
it hands a request over and is told, once, what became of it.
"""

from __future__ import annotations

from typing import Protocol

from barnabas.network.client_request import ClientResponse, RequestBuilder
from barnabas.network.node_api_versions import NodeApiVersions
from barnabas.protocol.message import Request


class ControllerRequestCompletionHandler(Protocol):
    """Is told what became of a request: exactly one of the two is called, once, on the thread of the channel.

    That thread sends the next request only when the handler has returned, so a handler must not wait for anything.
    """

    def on_complete(self, response: ClientResponse) -> None:
        """The controller has answered; or it cannot be asked: see ``authentication_error`` and ``version_mismatch``.

        Never a lost connection, and never NOT_CONTROLLER: those the channel deals with.
        """
        ...

    def on_timeout(self) -> None:
        """No controller could be found and asked in time, or the channel has been shut down."""
        ...


class ControllerChannel(Protocol):
    """Requests to the active controller, whoever that is at the moment."""

    @property
    def retry_timeout_ms(self) -> int:
        """For how long a request is tried."""
        ...

    @property
    def controller_api_versions(self) -> NodeApiVersions | None:
        """What the controller speaks; None before the first connection to one."""
        ...

    def start(self) -> None: ...

    def shutdown(self) -> None: ...

    def send_request(self, body: Request | RequestBuilder, handler: ControllerRequestCompletionHandler) -> None:
        """Queues a request. Requests go out in order and one at a time."""
        ...
