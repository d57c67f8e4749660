"""Request managers: the tasks of a consumer's background thread.

A consumer has several independent reasons to talk to brokers: fetch records, find the coordinator, send heartbeats,
commit, look up offsets. Each has one *request manager*. The background thread collects each manager's requests, sends
them, polls the network, and dispatches the responses; no manager ever blocks, touches a socket, or needs a lock against
another (KIP-945)::

    while running:
        events from the application  ->  managers
        for manager in managers:  manager.poll(now)  ->  requests to send, and when to poll again
        network poll             ->  on_complete of the requests that ended

All times are milliseconds of the monotonic clock, :meth:`~barnabas.common.clock.Clock.hi_res_milliseconds`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from barnabas.network.client.client_request import ClientResponse, RequestBuilder
from barnabas.network.client.inflight import FOREVER
from barnabas.network.client.node import Node
from barnabas.protocol.message import Request
from barnabas.protocol.versions import VersionRange

__all__ = ["EMPTY", "FOREVER", "PatientRequestManager", "PollResult", "RequestManager", "UnsentRequest"]


class UnsentRequest:
    """A request that a manager wants to send.

    ``node`` is its receiver; None: the least loaded node. ``on_complete`` is called exactly once, on the background
    thread: with a response whose ``body`` is None if the connection was lost, if no node was reachable or responded
    within ``timeout_ms`` (if None, the timeout of all requests), or if the node supports no version of the request.
    """

    __slots__ = ("allowed_versions", "body", "node", "on_complete", "timeout_ms")

    def __init__(
        self,
        body: Request | RequestBuilder,
        node: Node | None,
        on_complete: Callable[[ClientResponse], None],
        timeout_ms: int | None = None,
        *,
        allowed_versions: VersionRange | None = None,
    ) -> None:
        self.body = body
        self.node = node
        self.on_complete = on_complete
        self.timeout_ms = timeout_ms
        self.allowed_versions = allowed_versions

    def __repr__(self) -> str:
        to = "any node" if self.node is None else f"node {self.node.id}"
        return f"UnsentRequest({self.body.api_key.title} to {to})"


class PollResult(NamedTuple):
    """A manager's requests, and the maximum milliseconds until its next poll."""

    time_until_next_poll_ms: int
    unsent_requests: Sequence[UnsentRequest] = ()


EMPTY: Final = PollResult(FOREVER)
"""Nothing to send; waits only for events and responses."""


class PatientRequestManager:
    """A manager whose events wake the application thread, so that this thread never has to check it and the background
    thread need not call `maximum_time_to_wait` in every iteration."""

    def maximum_time_to_wait(self, now: int) -> int:  # noqa: ARG002 - however long
        return FOREVER


class RequestManager(Protocol):
    """One task of a consumer. All methods are called on the background thread."""

    def poll(self, now: int) -> PollResult:
        """Returns the requests to send now."""
        ...

    def maximum_time_to_wait(self, now: int) -> int:
        """Returns how long the application thread may block in its poll without missing work."""
        ...

    def poll_on_close(self, now: int) -> PollResult:
        """Returns the last requests, when the consumer is being closed."""
        ...
