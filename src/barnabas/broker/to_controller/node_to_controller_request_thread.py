"""The thread that sends requests to the active controller."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from barnabas.common.clock import Clock
from barnabas.common.errors import AuthenticationError
from barnabas.common.shutdownable_thread import ShutdownableThread
from barnabas.network.client.client_request import (
    ClientRequest,
    ClientResponse,
    RequestBuilder,
    RequestCompletionHandler,
)
from barnabas.network.client.inflight import FOREVER
from barnabas.network.client.node import Node
from barnabas.network.client.node_api_versions import NodeApiVersions
from barnabas.protocol.message import Request
from barnabas.server.envelope import says_not_controller

if TYPE_CHECKING:
    from barnabas.server.controller_channel import ControllerRequestCompletionHandler

log = logging.getLogger(__name__)

NO_CONTROLLER_WAIT_MS = 100
"""How often to look for the controller while none is known; an election wakes the thread earlier."""
NOT_CONTROLLER_RETRY_MS = 10
"""How soon to retry a node that returns NOT_CONTROLLER although it is still known as the controller."""


class ControllerClient(Protocol):
    """The part of `barnabas.network.client.network_client.NetworkClient` that the thread uses; tests replace it."""

    def ready(self, node: Node, now: int) -> bool: ...

    def connection_delay(self, node: Node, now: int) -> int: ...

    def connection_failed(self, node: Node) -> bool: ...

    def authentication_error(self, node: Node) -> AuthenticationError | None: ...

    def node_api_versions(self, node_id: str) -> NodeApiVersions | None: ...

    def new_client_request(
        self,
        node_id: str,
        body: Request | RequestBuilder,
        now: int,
        *,
        callback: RequestCompletionHandler | None = None,
    ) -> ClientRequest: ...

    def send(self, request: ClientRequest, now: int) -> None: ...

    def poll(self, timeout_ms: float, now: int) -> Sequence[ClientResponse]: ...

    def disconnect(self, node_id: str) -> None: ...

    def wakeup(self) -> None: ...

    def close(self) -> None: ...


class QueueItem:
    """A request to the controller without a response yet."""

    __slots__ = ("body", "deadline_ms", "handler")

    def __init__(
        self, body: Request | RequestBuilder, handler: ControllerRequestCompletionHandler, deadline_ms: int
    ) -> None:
        self.body = body
        self.handler = handler
        self.deadline_ms = deadline_ms

    def __repr__(self) -> str:
        return f"QueueItem({self.body.api_key.title})"


class NodeToControllerRequestThread(ShutdownableThread):
    """Sends requests to the controller, one at a time and in order, until each has a response or times out.

    Failures, and how they are handled:

    ===================================== =========================================================================
    no known controller                   wait for one
    the connection cannot be made, or     look up the controller again; the request goes back to the front
    breaks before the response
    NOT_CONTROLLER, in the response or    the same, and the connection is closed. If the node is still known as the
    in that of an Envelope                controller, it has just been elected: retry after 10 ms
    unsupported request version           complete with ``version_mismatch``
    authentication failed                 complete with ``authentication_error``, and look up the controller again
    the retry timeout has passed          call ``on_timeout``; checked while the request is queued
    ===================================== =========================================================================

    A request that was lost with its connection is sent again although the controller may have executed it: all requests
    on this channel are either idempotent, or carry an epoch that makes the repetition fail.

    A test needs no thread: it calls :meth:`do_work`, with a client and a clock of its own.
    """

    def __init__(
        self,
        name: str,
        client: ControllerClient,
        controller_node: Callable[[], Node | None],
        clock: Clock,
        retry_timeout_ms: int,
        on_new_controller: Callable[[Node], object] = lambda _node: None,
    ) -> None:
        super().__init__(name, clock=clock)
        self._client = client
        self._controller_node = controller_node
        self._now_ms = clock.hi_res_milliseconds
        self._retry_timeout_ms = retry_timeout_ms
        self._on_new_controller = on_new_controller
        self._lock = threading.Lock()
        """Guards the two fields below. Not held during any call."""
        self._queue: deque[QueueItem] = deque()
        self._closed = False
        self._controller: Node | None = None
        """The current target of requests; None after a failure. Only this thread writes it."""
        self._not_before_ms = 0
        self._announced: Node | None = None
        self._last_versions: NodeApiVersions | None = None

    # -- for any thread

    def enqueue(self, body: Request | RequestBuilder, handler: ControllerRequestCompletionHandler) -> None:
        deadline_ms = FOREVER
        if self._retry_timeout_ms != FOREVER:
            deadline_ms = self._now_ms() + self._retry_timeout_ms
        with self._lock:
            closed = self._closed
            if not closed:
                self._queue.append(QueueItem(body, handler, deadline_ms))
        if closed:
            self._tell_timeout(QueueItem(body, handler, deadline_ms))
        else:
            self._client.wakeup()

    def wakeup(self) -> None:
        """Wakes the thread, because the controller may have changed."""
        self._client.wakeup()

    @property
    def active_controller(self) -> Node | None:
        return self._controller

    @property
    def queue_size(self) -> int:
        return len(self._queue)

    @property
    def controller_api_versions(self) -> NodeApiVersions | None:
        """The API versions of the controller of the newest connection, kept after that connection is lost."""
        controller = self._controller
        if controller is not None:
            versions = self._client.node_api_versions(controller.id_string)
            if versions is not None:
                self._last_versions = versions
        return self._last_versions

    # -- the loop

    def do_work(self) -> None:
        now = self._now_ms()
        next_deadline_ms = self._drop_expired(now)
        wait_ms = self._send_next(now) if self._find_controller() else NO_CONTROLLER_WAIT_MS
        self._client.poll(min(wait_ms, max(next_deadline_ms - now, 0)), now)

    def _find_controller(self) -> bool:
        if self._controller is None:
            found = self._controller_node()
            if found is None:
                return False
            if found != self._announced:  # log once, not for every connection attempt
                log.info("%s: the controller is %s", self.name, found)
                self._announced = found
            self._on_new_controller(found)
            self._controller = found
        return True

    def _send_next(self, now: int) -> int:
        """Sends the oldest request if the connection is ready; returns how long to wait before the next attempt."""
        controller = self._controller
        assert controller is not None
        with self._lock:
            if not self._queue:
                return FOREVER
        if now < self._not_before_ms:
            return self._not_before_ms - now
        if not self._client.ready(controller, now):
            if not self._client.connection_failed(controller):
                # Connecting, or busy with the previous request: the client wakes up when that changes.
                return FOREVER
            delay_ms = self._client.connection_delay(controller, now)
            error = self._client.authentication_error(controller)
            self._controller = None
            if error is not None:
                self._fail_next(controller, error, now)
            return delay_ms
        with self._lock:
            item = self._queue.popleft()

        def complete(response: ClientResponse) -> None:
            self._handle_response(item, response)

        self._client.send(self._client.new_client_request(controller.id_string, item.body, now, callback=complete), now)
        return FOREVER

    def _fail_next(self, controller: Node, error: AuthenticationError, now: int) -> None:
        """Fails the oldest request at once: authentication failed, so retrying until the timeout is useless."""
        with self._lock:
            item = self._queue.popleft()
        request = self._client.new_client_request(controller.id_string, item.body, now)
        self._handle_response(item, ClientResponse(request, 0, now, disconnected=True, authentication_error=error))

    def _handle_response(self, item: QueueItem, response: ClientResponse) -> None:
        log.debug("%s: %r: %r", self.name, item, response)
        if response.authentication_error is not None:
            log.error(
                "%s: the controller %s refuses who this is: %s",
                self.name,
                self._controller,
                response.authentication_error,
            )
            self._forget_controller()
            self._tell(item, response)
        elif response.version_mismatch is not None:
            log.error("%s: %r cannot be sent: %s", self.name, item, response.version_mismatch)
            self._tell(item, response)
        elif response.disconnected:
            self._controller = None
            self._put_back(item)
        elif response.body is not None and says_not_controller(response.body):
            self._put_back(item)
            if self._controller_node() == self._controller:
                self._not_before_ms = self._now_ms() + NOT_CONTROLLER_RETRY_MS
            else:
                log.info("%s: %s is not the controller any more", self.name, self._controller)
                self._forget_controller()
        else:
            self._tell(item, response)

    def _forget_controller(self) -> None:
        controller = self._controller
        if controller is not None:
            self.controller_api_versions  # noqa: B018 - remembered before the connection is closed
            self._client.disconnect(controller.id_string)
            self._controller = None

    def _put_back(self, item: QueueItem) -> None:
        with self._lock:
            self._queue.appendleft(item)

    def _drop_expired(self, now: int) -> int:
        """Completes the requests that have timed out; returns the deadline of the next."""
        with self._lock:
            if not self._queue:
                return FOREVER
            expired = [item for item in self._queue if item.deadline_ms <= now]
            if expired:
                self._queue = deque(item for item in self._queue if item.deadline_ms > now)
            next_deadline_ms = min((item.deadline_ms for item in self._queue), default=FOREVER)
        for item in expired:
            self._tell_timeout(item)
        return next_deadline_ms

    def _tell(self, item: QueueItem, response: ClientResponse) -> None:
        try:
            item.handler.on_complete(response)
        except Exception:
            log.exception("%s: the handler of %r failed", self.name, item)

    def _tell_timeout(self, item: QueueItem) -> None:
        try:
            item.handler.on_timeout()
        except Exception:
            log.exception("%s: the handler of %r failed", self.name, item)

    # -- the end

    def on_shutdown_initiated(self) -> None:
        self._client.wakeup()

    def close(self) -> None:
        """Closes the connection and fails all pending requests. Call after the loop has ended."""
        with self._lock:
            self._closed = True
            left = list(self._queue)
            self._queue.clear()
        self._client.close()
        for item in left:
            self._tell_timeout(item)
