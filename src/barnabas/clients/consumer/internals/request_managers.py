"""What the background thread of a consumer runs: request managers, and the requests they hand out.

A consumer has several things to say to brokers that have nothing to do with each other: fetch records, find the
coordinator, send heartbeats, commit, look offsets up. Each is the business of one *request manager*. The background
thread asks every manager in turn what it wants to send now, sends it, waits for the network, and hands the answers
back; no manager ever blocks, touches a socket, or needs a lock against another (KIP-945)::

    while running:
        events from the application  ->  managers
        for manager in managers:  manager.poll(now)  ->  requests to send, and when to ask again
        network poll             ->  on_complete of the requests that ended

All times are milliseconds of the steady clock, :meth:`~barnabas.common.clock.Clock.hi_res_milliseconds`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from barnabas.network.client_request import ClientResponse, RequestBuilder
from barnabas.network.inflight import FOREVER
from barnabas.network.node import Node
from barnabas.protocol.message import Request
from barnabas.protocol.versions import VersionRange

__all__ = ["EMPTY", "FOREVER", "PatientRequestManager", "PollResult", "RequestManager", "UnsentRequest"]


class UnsentRequest:
    """A request that a manager wants to have sent.

    ``node`` is who shall get it; None stands for anybody, which is the least loaded node. ``on_complete`` is called
    exactly once, on the background thread, whatever becomes of it: with a response whose ``body`` is None if the
    connection was lost, if nobody could be reached or answered within ``timeout_ms`` (that of all requests, if None),
    or if the node has no version of the request.
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
    """What a manager wants to send, and after how many milliseconds it wants to be asked again at the latest."""

    time_until_next_poll_ms: int
    unsent_requests: Sequence[UnsentRequest] = ()


EMPTY: Final = PollResult(FOREVER)
"""Nothing to send, and nothing to wait for but events and answers."""


class PatientRequestManager:
    """One for which the application thread never has to look around: it is woken by what it waits for. So the
    background thread need not ask, which it would do in every turn."""

    def maximum_time_to_wait(self, now: int) -> int:  # noqa: ARG002 - however long
        return FOREVER


class RequestManager(Protocol):
    """One concern of a consumer. All methods are called on the background thread."""

    def poll(self, now: int) -> PollResult:
        """What to send now."""
        ...

    def maximum_time_to_wait(self, now: int) -> int:
        """How long the application thread may block in its poll without missing something that it has to do."""
        ...

    def poll_on_close(self, now: int) -> PollResult:
        """What to send, once, when the consumer is being closed."""
        ...
