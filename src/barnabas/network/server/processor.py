"""Processors: the network threads of a broker.

Each runs a selector over its share of a listener's connections, in a loop of fixed order. It reads requests, parses
their headers, passes them on, and sends the responses. It never parses a request's body, with one exception: the name
and version of the client's software in ApiVersions (KIP-511), because they belong to the connection.
"""

from __future__ import annotations

import logging
import queue
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from barnabas._kernels.channel_mute import ChannelMuteEvent
from barnabas.common.clock import Clock
from barnabas.common.errors import InvalidRequestError, ProtocolError, UnsupportedVersionError
from barnabas.common.log_safety import LimitedLogger
from barnabas.network.client.client_config import SOFTWARE_NAME
from barnabas.network.reactor.channel import KafkaChannel, ServerSession, channel_principal
from barnabas.network.reactor.channel_factory import ChannelFactory, plaintext
from barnabas.network.reactor.memory_pool import MemoryPool
from barnabas.network.reactor.selector import CloseMode, Selector
from barnabas.network.server.config import SocketServerConfig
from barnabas.network.server.connection_quotas import ConnectionQuotas
from barnabas.network.server.endpoint import SASL_PROTOCOLS, Endpoint, SecurityProtocol
from barnabas.network.server.plane import ConnectionContext, RequestPlane
from barnabas.network.server.response import (
    CLOSE_CONNECTION,
    DROP_CONNECTION,
    NO_OP,
    SEND,
    START_THROTTLING,
    AnyResponse,
    SendResponse,
)
from barnabas.network.transport.local.server import LocalConnections
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.headers import ParsedHeader, parse_request_header
from barnabas.protocol.messages.api_versions import SOFTWARE, ApiVersionsRequest

log = LimitedLogger(logging.getLogger(__name__))

API_VERSIONS = ApiKey.API_VERSIONS
SASL_HANDSHAKE = ApiKey.SASL_HANDSHAKE

CONNECTION_QUEUE_SIZE = 20
"""New connections that may wait for a processor, and the most it registers per turn: existing ones come first."""
REGISTERED_NS = 500_000
"""How long one turn registers new connections: one with TLS takes 0.1 to 0.2 ms. The rest waits for the next turn."""
POLL_MS = 300
MOST_NOTED_BYTES = 4096
"""The size of an ApiVersions request up to which this thread parses it. They have a hundred bytes, and larger ones may
have millions of tagged fields."""

DisconnectListener = Callable[[str], None]


class Processor:
    """One network thread.

    Two structures are shared with other threads: ``_new_connections``, filled by the acceptor, and ``_responses``,
    filled by handlers. Everything else belongs to the thread itself.
    """

    def __init__(
        self,
        processor_id: int,
        node_id: int,
        endpoint: Endpoint,
        config: SocketServerConfig,
        plane: RequestPlane,
        quotas: ConnectionQuotas,
        pool: MemoryPool,
        clock: Clock,
        *,
        privileged: bool = False,
        channel_factory: ChannelFactory = plaintext,
        disconnect_listeners: tuple[DisconnectListener, ...] = (),
    ) -> None:
        self.id = processor_id
        self.endpoint = endpoint
        self._listener = endpoint.listener_name
        self._privileged = privileged
        self._plane = plane
        self._quotas = quotas
        self._pool = pool
        self._now = clock.nanoseconds
        self._disconnect_listeners = disconnect_listeners
        self._has_sessions = endpoint.security_protocol in SASL_PROTOCOLS
        self.selector = Selector(
            max_receive_size=config.socket_request_max_bytes,
            connections_max_idle_ms=config.connections_max_idle_ms,
            failed_authentication_delay_ms=config.connection_failed_authentication_delay_ms,
            memory_pool=pool,
            channel_factory=channel_factory,
            clock=clock,
        )
        self._local = (
            LocalConnections.of(
                self.selector,
                config,
                processor_id,
                may_refer=not pool.bounded,
                same_user=channel_factory is not plaintext,
            )
            if config.local_socket_enable and _may_leave_tcp(endpoint, channel_factory)
            else None
        )
        self._new_connections: queue.Queue[tuple[socket.socket, tuple[Any, ...]]] = queue.Queue(CONNECTION_QUEUE_SIZE)
        self._arrivals = self._new_connections.queue
        """The deque inside that queue: shows whether it is empty without taking its lock."""
        self._responses: deque[AnyResponse] = deque()
        self._wake_lock = threading.Lock()
        """Guards ``_polling`` (the selector may need a wakeup) and ``_woken`` (it has had one)."""
        self._polling = False
        self._woken = False
        self._next_index = 0
        self.expired_connections_killed = 0
        """Connections whose session has ended without a re-authentication. Idle ones do not count."""
        self.bad_requests = 0
        self._should_run = True
        self._started = threading.Event()
        self.thread = threading.Thread(
            target=self.run,
            name=f"data-plane-kafka-network-thread-{node_id}-{endpoint.listener_name}"
            f"-{endpoint.security_protocol.name}-{processor_id}",
            daemon=False,
        )

    # -- called by other threads

    def start(self) -> None:
        self._started.set()
        self.thread.start()

    def accept(
        self, sock: socket.socket, peer: tuple[Any, ...], *, may_block: bool, blocked: Callable[[int], None]
    ) -> bool:
        """Takes over a connection; false if the queue is full and the acceptor should try another processor."""
        try:
            self._new_connections.put_nowait((sock, peer))
        except queue.Full:
            if not may_block:
                return False
            started = self._now()
            while self._should_run:
                with suppress(queue.Full):
                    self._new_connections.put((sock, peer), timeout=POLL_MS / 1000)
                    break
            else:
                return False
            blocked(self._now() - started)
        self.wakeup()
        return True

    def enqueue_response(self, response: AnyResponse) -> bool:
        """Queues a response from a handler; returns whether the thread sleeps and :meth:`wakeup` is due."""
        self._responses.append(response)
        return self._polling

    def wakeup(self) -> None:
        """Wakes the thread if it sleeps and has not been woken yet."""
        with self._wake_lock:
            if not self._polling or self._woken:
                return
            self._woken = True
        self.selector.wakeup()

    @property
    def response_queue_size(self) -> int:
        return len(self._responses)

    def begin_shutdown(self) -> None:
        self._should_run = False
        self.selector.wakeup()

    def join(self) -> None:
        """Waits for the thread; a processor that was never started only closes its sockets."""
        if self._started.is_set():
            self.thread.join()
            self._close_new_connections()  # the acceptor may have added one while the thread ended
        else:
            self._close_everything()

    # -- the loop

    def run(self) -> None:
        self._plane.thread_started()
        try:
            while self._should_run:
                try:
                    self.run_once()
                except Exception:  # a bug must not end all connections of this thread
                    log.exception("Processor %d of %s got an uncaught exception", self.id, self._listener)
        finally:
            log.debug("Closing selector of processor %d", self.id)
            self._close_everything()

    def run_once(self, timeout_ms: float | None = None) -> None:
        """Runs one turn, in the documented order, which the tests follow step by step.

        Most turns have one thing to do, so steps without work are not even called.
        """
        selector = self.selector
        if self._arrivals:
            self._configure_new_connections()
        if self._responses:
            self._process_new_responses()
        self._poll(timeout_ms)
        if self._local is not None and self._local.due:
            self._local.move_connections(self._channel_failed)
        if selector.authenticated:
            self._note_principals()
        if selector.completed_receives:
            self._process_completed_receives()
        if selector.completed_sends:
            self._process_completed_sends()
        if selector.disconnected:
            self._process_disconnected()
        if self._quotas.max_connections_exceeded(self._listener):
            self._close_excess_connections()

    def _poll(self, timeout_ms: float | None) -> None:
        timeout = POLL_MS if timeout_ms is None else timeout_ms
        if self._arrivals or self.selector.reactor.buffered:
            timeout = 0.0
        if timeout:
            with self._wake_lock:
                self._polling = True
                self._woken = False
            # A thread that enqueued before `_polling` was set has not woken the selector: check once more.
            if self._responses or self._arrivals or not self._should_run:
                timeout = 0.0
        self.selector.poll(timeout)
        self._polling = False

    def _configure_new_connections(self) -> None:
        deadline = self._now() + REGISTERED_NS
        for _ in range(CONNECTION_QUEUE_SIZE):
            try:
                sock, peer = self._new_connections.get_nowait()
            except queue.Empty:
                return
            try:
                self._register(sock, peer)
            except Exception as error:  # noqa: BLE001 - one bad connection never ends the processor
                log.warning("Processor %d could not take over a connection from %s: %r", self.id, peer[0], error)
                self._quotas.dec(self._listener, peer[0])
                sock.close()
            if self._now() > deadline:
                return

    def _register(self, sock: socket.socket, peer: tuple[Any, ...]) -> None:
        channel = self.selector.register(self._connection_id(sock.getsockname(), peer), sock)
        channel.context = ConnectionContext(
            connection_id=channel.id,
            client_address=peer[0],
            listener_name=self._listener,
            security_protocol=self.endpoint.security_protocol,
            from_privileged_listener=self._privileged,
            principal=channel_principal(channel),
        )

    def _connection_id(self, local: tuple[Any, ...], remote: tuple[Any, ...]) -> str:
        """Returns ``local:port-remote:port-index``.

        The index distinguishes a reused pair of ports from its predecessor, whose requests may still be in flight.
        """
        index = self._next_index
        self._next_index = 0 if index == 2**31 - 1 else index + 1
        return f"{local[0]}:{local[1]}-{remote[0]}:{remote[1]}-{index}"

    # -- responses

    def _process_new_responses(self) -> None:
        responses = self._responses
        while responses:
            response = responses.popleft()
            request = response.request
            try:
                if response.kind is SEND:
                    request.response_dequeue_time_ns = self._now()
                    if not self.selector.respond(response):  # type: ignore[arg-type]
                        self._drop(response)  # type: ignore[arg-type]
                elif response.kind is NO_OP:
                    request.response_dequeue_time_ns = self._now()
                    request.complete(0, response)
                    self._response_sent(request.connection_id)
                elif response.kind is CLOSE_CONNECTION:
                    request.response_dequeue_time_ns = self._now()
                    request.complete(0, response)
                    self._close_by_id(request.connection_id)
                elif response.kind is DROP_CONNECTION:  # closing it completes the request with the bytes sent so far
                    self._close_by_id(request.connection_id)
                else:  # not part of the timeline: may come while the response is being sent
                    self._throttle(response)
            except Exception as error:  # noqa: BLE001 - this connection's end, not the processor's
                self._channel_failed(request.connection_id, "Sending a response failed", error)

    def _drop(self, response: SendResponse) -> None:
        """Completes a response whose connection is closed, or is closing and waits only for this response."""
        request = response.request
        log.warning("Dropping a response: connection %s is gone", request.connection_id)
        request.complete(0, response)
        closing = self.selector.closing_channels.get(request.connection_id)
        if closing is not None:
            self.selector.send(closing, response)

    def _response_sent(self, connection_id: str) -> None:
        channel = self.selector.open_or_closing(connection_id)
        if channel is not None:
            self.selector.response_sent(channel)

    def _throttle(self, response: AnyResponse) -> None:
        """Starts or ends the throttling of a client. Does nothing if its connection is gone by then."""
        channel = self.selector.open_or_closing(response.request.connection_id)
        if channel is None:
            return
        if response.kind is START_THROTTLING:
            channel.handle_mute_event(ChannelMuteEvent.THROTTLE_STARTED)
        else:
            channel.handle_mute_event(ChannelMuteEvent.THROTTLE_ENDED)
            self.selector.unmute(channel)

    # -- requests

    def _process_completed_receives(self) -> None:
        received = self.selector.completed_receives
        now = self._now()
        requests = []
        mute = self.selector.reactor.request_received
        plane = self._plane
        has_sessions = self._has_sessions
        for channel, payload in received:
            try:
                header = parse_request_header(payload)
                if has_sessions and self._is_taken_by_session(channel, header, payload, now):
                    continue
                request = plane.new_request(self.id, channel.context, header, payload, self._pool, now)
                if header[0] is API_VERSIONS and len(payload) <= MOST_NOTED_BYTES:
                    self._note_client_software(channel, header, payload)
            except Exception as error:  # noqa: BLE001 - this connection's end, not the processor's
                self.bad_requests += 1
                self._pool.release(len(payload))
                self._channel_failed(channel.id, "Closing connection after a bad request", error)
                continue
            mute(channel)
            requests.append(request)
        received.clear()  # the views must not keep the buffers of this poll alive until the next one
        if requests:
            plane.submit(requests)

    def _is_taken_by_session(self, channel: KafkaChannel, header: ParsedHeader, payload: memoryview, now: int) -> bool:
        """Handles what concerns the session of a SASL client (KIP-368); false for an ordinary request.

        A SaslHandshake may begin a re-authentication, also after the session has ended. Any other request then closes
        the connection: there is no timer.
        """
        session: ServerSession = channel.authenticator
        if header.api_key is not SASL_HANDSHAKE or not self.selector.reauthenticate(channel, payload):
            expires_ns = session.session_expires_ns
            if expires_ns is None or now <= expires_ns:
                return False
            log.debug("Closing %s: its session has ended, and it sent %s", channel.id, header.api_key.title)
            self.expired_connections_killed += 1
            self._close(channel)
        self._pool.release(len(payload))
        return True

    def _note_principals(self) -> None:
        """Records the principals of newly authenticated connections."""
        for channel in self.selector.authenticated:
            context = channel.context
            context.principal = channel_principal(channel)
            if channel.client_information is not None:
                context.client_software_name, context.client_software_version = channel.client_information

    def _note_client_software(self, channel: KafkaChannel, header: ParsedHeader, payload: memoryview) -> None:
        """Records the client's software (KIP-511), before the request is handled.

        To an invalid request, its handler responds with an error. It also records the software, for a large request.
        """
        context = channel.context
        with suppress(ProtocolError, UnsupportedVersionError):
            if header.api_version >= 3 and header.api_version in header.api_key.versions:
                body, _ = ApiVersionsRequest.decode_from(payload, header.api_version, header.body_start)
                software = body.client_software_name, body.client_software_version
                if not all(map(SOFTWARE.fullmatch, software)):
                    return
                context.client_software_name, context.client_software_version = software
                if self._local is not None:
                    self._local.note_request(channel, body)
        if self._local is not None and context.client_software_name == SOFTWARE_NAME:
            self._local.offer_to(channel)

    def _process_completed_sends(self) -> None:
        for channel, send in self.selector.completed_sends:
            spent = channel.network_thread_time_ns
            channel.network_thread_time_ns = 0
            try:
                send.request.complete(spent, send)
                self.selector.response_sent(channel)
            except Exception as error:  # noqa: BLE001 - this connection's end, not the processor's
                self._channel_failed(channel.id, "Completing a response failed for", error)
        self.selector.completed_sends.clear()

    # -- closing

    def _process_disconnected(self) -> None:
        for channel, _ in self.selector.disconnected:
            self._forget(channel)
        self.selector.disconnected.clear()

    def _forget(self, channel: KafkaChannel) -> None:
        """Releases everything that was counted for a connection, once."""
        if channel.send is not None:  # the response in flight
            channel.send.request.complete(0, channel.send)
            channel.send = None
        if channel.context is not None:
            self._quotas.dec(self._listener, channel.context.client_address)
            if self._local is not None:
                self._local.forget(channel)
            channel.context = None
        for listener in self._disconnect_listeners:
            try:
                listener(channel.id)
            except Exception:
                log.exception("A disconnect listener failed for %s", channel.id)

    def _close_excess_connections(self) -> None:
        channel = self.selector.lowest_priority_channel()
        if channel is not None:
            log.info("Closing %s: the broker has too many connections", channel.id)
            self._close(channel)

    def _close_by_id(self, connection_id: str) -> None:
        channel = self.selector.open_or_closing(connection_id)
        if channel is not None:
            self._close(channel)

    def _close(self, channel: KafkaChannel) -> None:
        self.selector.close(channel, CloseMode.DISCARD_NO_NOTIFY)
        self._forget(channel)

    def _channel_failed(self, connection_id: str, what: str, error: Exception) -> None:
        if isinstance(error, ProtocolError | UnsupportedVersionError | InvalidRequestError | OSError):
            log.warning("%s %s: %s", what, connection_id, error)
        else:
            log.error("%s %s", what, connection_id, exc_info=error)
        self._close_by_id(connection_id)

    def _close_new_connections(self) -> None:
        while True:
            try:
                sock, peer = self._new_connections.get_nowait()
            except queue.Empty:
                return
            self._quotas.dec(self._listener, peer[0])
            sock.close()

    def _close_everything(self) -> None:
        self._close_new_connections()
        if self._local is not None:
            self._local.close()
        for channel in [*self.selector.channels.values(), *self.selector.closing_channels.values()]:
            self._close(channel)
        self._responses.clear()
        self.selector.close_all()

    def __repr__(self) -> str:
        return f"Processor({self.id} of {self._listener}, {len(self.selector.channels)} connections)"


def _may_leave_tcp(endpoint: Endpoint, channel_factory: ChannelFactory) -> bool:
    """Whether connections of a listener may move to the local socket. Those of TLS stay encrypted, so they do not."""
    return channel_factory is plaintext or endpoint.security_protocol is SecurityProtocol.SASL_PLAINTEXT
