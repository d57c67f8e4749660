"""The admin client's thread: sends requests and advances operations."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from barnabas.clients.admin.internals.node_choice import AnyNode, Broker, NodeChoice
from barnabas.clients.admin.internals.steps import Promise, Task
from barnabas.clients.common.metadata import Metadata
from barnabas.clients.common.telemetry.client_telemetry_reporter import ClientTelemetryReporter
from barnabas.common.clock import Clock
from barnabas.common.errors import BarnabasError, BrokerNotAvailableError, KafkaTimeoutError, ProtocolError
from barnabas.network.client.client_request import ClientResponse
from barnabas.network.client.network_client import NetworkClient
from barnabas.network.client.node import Node
from barnabas.protocol.message import Request
from barnabas.protocol.versions import VersionRange

log = logging.getLogger(__name__)

T = TypeVar("T")

_IDLE_MS: Final = 300_000
"""The poll timeout when there is nothing to wait for; a new operation wakes the poll."""
_MINIMUM_BACKOFF_MS: Final = 1


class AdminClientClosedError(BarnabasError):
    """The admin client has been closed."""


class _Call:
    """A request that waits for a node, and then for its response."""

    __slots__ = ("allowed_versions", "deadline_ms", "request", "response", "where")

    def __init__(
        self, where: NodeChoice, request: Request, deadline_ms: int, allowed_versions: VersionRange | None
    ) -> None:
        self.where = where
        self.request = request
        self.deadline_ms = deadline_ms
        self.allowed_versions = allowed_versions
        self.response: Promise[ClientResponse] = Promise()


class AdminClientRunnable:
    """Everything that runs on ``kafka-admin-client-thread``; `run_once` is one iteration.

    A call is *pending* until there is a node for it: the metadata must be known and contain the node, and the node must
    be connected. It is *in flight* until the network client completes it. Then the waiting operation continues, and
    makes other calls. The node is chosen again in each iteration, so a call never hangs on a node that is gone, and a
    timeout ends it in either state.

    Only `submit`, `initiate_close` and `wakeup` may be called from other threads.
    """

    def __init__(
        self,
        client: NetworkClient,
        metadata: Metadata,
        clock: Clock,
        request_timeout_ms: int,
        *,
        telemetry: ClientTelemetryReporter | None = None,
        fail_fast: bool,
    ) -> None:
        self._client = client
        self._telemetry = telemetry
        self.metadata = metadata
        self.clock = clock
        self._request_timeout_ms = request_timeout_ms
        self._fail_fast = fail_fast
        self._pending: list[_Call] = []
        self._in_flight: set[Promise[ClientResponse]] = set()
        self._pauses: list[tuple[int, Promise[None]]] = []
        self._lock = threading.Lock()
        """Guards `_submitted` and `_closing_at_ms`; no other lock is taken inside it."""
        self._submitted: deque[Callable[[], None]] = deque()
        self._closing_at_ms: int | None = None
        self._running = 0
        """The number of running operations."""
        self._controller_known_after = -1
        """The metadata version whose controller is out of date."""
        self._ended = False

    # -- for any thread

    def submit(self, operation: Callable[[], Coroutine[Promise[Any], None, T]]) -> Future[T]:
        """Starts an operation; returns its future. Takes a function, because a coroutine that never starts warns."""
        future: Future[T] = Future()

        def start() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                task = Task(operation())
            except Exception as error:  # noqa: BLE001 - for whoever waits: wrong arguments
                future.set_exception(error)
                return
            self._running += 1
            task.outcome.when_done(lambda: self._finish(task.outcome, future))
            task.step()

        with self._lock:
            if self._closing_at_ms is not None:
                raise AdminClientClosedError("The admin client has been closed.")
            self._submitted.append(start)
        self._client.wakeup()
        return future

    def _finish(self, outcome: Promise[T], future: Future[T]) -> None:
        self._running -= 1
        try:
            future.set_result(outcome.result())
        except Exception as error:  # noqa: BLE001 - for whoever waits
            future.set_exception(error)

    def initiate_close(self, timeout_ms: int) -> None:
        """Refuses new operations; running ones have this much time to end."""
        with self._lock:
            deadline = self.clock.hi_res_milliseconds() + timeout_ms
            self._closing_at_ms = deadline if self._closing_at_ms is None else min(deadline, self._closing_at_ms)
        self._client.wakeup()

    # -- for operations, on the thread

    def send(
        self, where: NodeChoice, request: Request, deadline_ms: int, allowed_versions: VersionRange | None = None
    ) -> Promise[ClientResponse]:
        """Sends a request as soon as a node is ready."""
        call = _Call(where, request, deadline_ms, allowed_versions)
        if self._ended:
            call.response.reject(AdminClientClosedError("The admin client has been closed."))
        else:
            self._pending.append(call)
        return call.response

    def pause(self, milliseconds: int) -> Promise[None]:
        """Returns a promise that resolves after that time."""
        pause: Promise[None] = Promise()
        if self._ended:
            pause.reject(AdminClientClosedError("The admin client has been closed."))
        else:
            due = self.clock.hi_res_milliseconds() + max(milliseconds, _MINIMUM_BACKOFF_MS)
            self._pauses.append((due, pause))
        return pause

    def forget_controller(self) -> None:
        """Requires newer metadata for the next controller, because the current one is wrong."""
        self._controller_known_after = self.metadata.request_update()

    # -- the loop

    def run(self) -> None:
        try:
            while not self._is_over():
                self.run_once()
        except Exception:
            log.exception("The thread of the admin client ends")
        finally:
            self._end()

    def _is_over(self) -> bool:
        with self._lock:
            if self._closing_at_ms is None:
                return False
            last_push = self._telemetry is not None and self._telemetry.has_last_push
            idle = not self._running and not self._submitted and not last_push
            return idle or self.clock.hi_res_milliseconds() >= self._closing_at_ms

    def run_once(self) -> None:
        """Starts submitted operations, sends requests, and polls."""
        self._start_submitted()
        now = self.clock.hi_res_milliseconds()
        self._end_pauses(now)
        self._refuse_hopeless(now)
        wait_ms = self._send_pending(now)
        with self._lock:
            if self._submitted:
                wait_ms = 0
            if self._closing_at_ms is not None:
                wait_ms = min(wait_ms, max(self._closing_at_ms - now, 0))
        for due, _ in self._pauses:
            wait_ms = min(wait_ms, max(due - now, 0))
        self._client.poll(wait_ms, self.clock.hi_res_milliseconds())

    def _start_submitted(self) -> None:
        while True:
            with self._lock:
                if not self._submitted:
                    return
                start = self._submitted.popleft()
            start()

    def _end_pauses(self, now: int) -> None:
        due = [pause for at, pause in self._pauses if at <= now]
        self._pauses = [(at, pause) for at, pause in self._pauses if at > now]
        for pause in due:
            pause.resolve(None)

    def _refuse_hopeless(self, now: int) -> None:
        """Fails calls that cannot be sent: their time is over, or there is no node for them."""
        error: Exception | None = None
        try:
            self.metadata.maybe_raise_fatal_error()
        except BarnabasError as fatal:
            error = fatal
        if error is None and self._fail_fast:
            error = self._unreachable()
        ended = [call for call in self._pending if error is not None or call.deadline_ms <= now]
        if not ended:
            return
        self._pending = [call for call in self._pending if call not in ended]
        for call in ended:
            call.response.reject(error or KafkaTimeoutError(self._explain(call)))

    def _unreachable(self) -> Exception | None:
        snapshot, problems = self.metadata.snapshot, self.metadata.connection_problems
        if snapshot.is_bootstrap and all(f"{node.host}:{node.port}" in problems for node in snapshot.nodes.values()):
            return BrokerNotAvailableError(self.metadata.explain_silence())
        return None

    def _explain(self, call: _Call) -> str:
        """Explains why a call was never sent."""
        what = f"Timed out waiting for a node assignment. Call: {call.request.api_key.title} to {call.where}"
        snapshot = self.metadata.snapshot
        if isinstance(call.where, Broker) and not snapshot.is_bootstrap and call.where.id not in snapshot.nodes:
            known = ", ".join(map(str, sorted(snapshot.nodes)))
            return f"{what}. There is no broker {call.where.id} in the cluster; there are: {known}"
        reason = self.metadata.explain_silence()
        return f"{what}. {reason}" if reason else what

    def _send_pending(self, now: int) -> int:
        """Sends the calls whose node is ready; returns how long to wait before trying the rest."""
        wait_ms = _IDLE_MS
        rest: list[_Call] = []
        pending, self._pending = self._pending, []
        for call in pending:
            node = self._choose(call.where, now)
            if node is not None and self._client.ready(node, now):
                self._send(call, node, now)
                continue
            if node is not None and (error := self._client.authentication_error(node)) is not None:
                call.response.reject(error)
                continue
            wait_ms = min(wait_ms, call.deadline_ms - now)
            if node is not None:
                wait_ms = min(wait_ms, max(self._client.poll_delay_ms(node, now), _MINIMUM_BACKOFF_MS))
            else:
                # Metadata is in flight, backing off, or failed: not each of these ends a wait.
                wait_ms = min(wait_ms, self._client.reconnect_backoff_ms or _MINIMUM_BACKOFF_MS)
            rest.append(call)
        self._pending = rest + self._pending
        return wait_ms

    def _choose(self, where: NodeChoice, now: int) -> Node | None:
        snapshot = self.metadata.snapshot
        if snapshot.is_bootstrap:
            return None  # bootstrap servers only get metadata requests
        if isinstance(where, AnyNode):
            return self._client.least_loaded_node(now).node
        if isinstance(where, Broker):
            node = snapshot.nodes.get(where.id)
        else:
            is_old = self.metadata.update_version <= self._controller_known_after
            node = None if is_old else snapshot.controller
        if node is None:
            self.metadata.request_update()
        return node

    def _send(self, call: _Call, node: Node, now: int) -> None:
        promise = call.response

        def on_complete(response: ClientResponse) -> None:
            self._in_flight.discard(promise)
            promise.resolve(response)

        self._in_flight.add(promise)
        request = self._client.new_client_request(
            node.id_string,
            call.request,
            now,
            request_timeout_ms=max(min(self._request_timeout_ms, call.deadline_ms - now), 1),
            callback=on_complete,
            allowed_versions=call.allowed_versions,
        )
        try:
            self._client.send(request, now)
        except ProtocolError as error:  # a value of the application does not fit; nothing was sent
            self._in_flight.discard(promise)
            promise.reject(error)

    def _end(self) -> None:
        """Fails all remaining calls and operations."""
        self._ended = True
        error = AdminClientClosedError("The admin client has been closed.")
        with self._lock:
            self._closing_at_ms = 0
        self._start_submitted()
        pauses, self._pauses = self._pauses, []
        for _, pause in pauses:
            pause.reject(error)
        pending, self._pending = self._pending, []
        for call in pending:
            call.response.reject(error)
        in_flight, self._in_flight = self._in_flight, set()
        for promise in in_flight:
            promise.reject(error)
        self._client.close()
