"""Acceptors: one thread per listener that accepts connections and passes them to the processors."""

from __future__ import annotations

import errno
import heapq
import logging
import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from barnabas.common.clock import Clock
from barnabas.common.log_safety import LimitedLogger
from barnabas.network.client.host_resolver import for_resolver
from barnabas.network.reactor.poller import READ, make_poller
from barnabas.network.server.config import SocketServerConfig
from barnabas.network.server.connection_limits import descriptor_ceiling
from barnabas.network.server.connection_quotas import (
    ConnectionQuotas,
    ConnectionThrottledError,
    ListenerClosedError,
    TooManyConnectionsError,
)
from barnabas.network.server.endpoint import Endpoint
from barnabas.network.server.processor import Processor
from barnabas.network.transport.loopback import do_not_pace

log = LimitedLogger(logging.getLogger(__name__))

SELECT_MS = 500
ACCEPTS_PER_TURN = 256
"""How many connections are accepted before throttled ones and the shutdown flag are checked."""
_OUT_OF_RESOURCES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
"""No descriptor or memory for another connection. It stays in the backlog and would be reported again at once."""


def open_socket(endpoint: Endpoint, config: SocketServerConfig) -> socket.socket:
    """Opens the socket of a listener; raises OSError with the reason, for example that the port is in use."""
    host = for_resolver(endpoint.host) if endpoint.host else None
    try:
        infos = socket.getaddrinfo(host, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise OSError(f"cannot open {endpoint}: {error.strerror}") from None
    family, kind, protocol, _, address = infos[0]
    opened = socket.socket(family, kind, protocol)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if config.socket_receive_buffer_bytes >= 0:
            # Before listen: accepted sockets inherit it, and it determines the TCP window scale.
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, config.socket_receive_buffer_bytes)
        opened.bind(address)
        opened.listen(config.socket_listen_backlog_size)
        opened.setblocking(False)
    except OSError as error:
        opened.close()
        raise OSError(error.errno, f"cannot open {endpoint}: {error.strerror}") from None
    return opened


class Acceptor:
    """Accepts connections within the quotas and distributes them to the processors round robin.

    An accepted connection is never dropped: if a processor's queue is full the next one gets it, and if all are full,
    the acceptor waits for the last one. A connection over a *rate* is kept open and silent until its delay is over and
    then closed; closing it at once would only make the client reconnect sooner.

    Some file descriptors are reserved for the logs (`descriptor_ceiling`). A connection that gets one of these is not
    served, and no more are accepted, until a lower one is free. Existing connections are served as before.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        config: SocketServerConfig,
        quotas: ConnectionQuotas,
        clock: Clock,
        make_processor: Callable[[Endpoint], Processor],
        blocked: Callable[[int], None] = lambda _nanoseconds: None,
    ) -> None:
        self._config = config
        self._quotas = quotas
        self._clock = clock
        self._make_processor = make_processor
        self._blocked = blocked
        self._socket = open_socket(endpoint, config)
        # The port is known now, even if port 0 was configured.
        self.endpoint = Endpoint(
            endpoint.listener_name, endpoint.security_protocol, endpoint.host, self._socket.getsockname()[1]
        )
        self._poller = make_poller()
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._poller.register(self._socket.fileno(), READ)
        self._poller.register(self._wake_reader.fileno(), READ)
        self._processors_lock = threading.Lock()
        """Guards ``processors``. The acceptor holds it while it hands over a connection, so that no removed
        processor gets one."""
        self.processors: list[Processor] = []
        self._next = 0
        self._throttled: list[tuple[int, int, socket.socket, str]] = []
        """Heap of sockets over their rate, the next one to close on top: (time to close, order, socket, address)."""
        self._order = 0
        self.accepted = 0
        self.refused = 0
        self._descriptor_ceiling = descriptor_ceiling(for_clients=config.for_clients)
        self._short_of_descriptors = False
        """Whether the last accept failed for lack of descriptors; used to log this once."""
        self._waiting: tuple[socket.socket, tuple[Any, ...]] | None = None
        """An accepted connection that waits for descriptors, like those in the backlog."""
        self._should_run = True
        self._start_lock = threading.Lock()
        """Makes start and shutdown mutually exclusive: a listener must not start after its shutdown."""
        self._running = False
        self.started_future: Future[None] = Future()
        self.thread = threading.Thread(
            target=self.run,
            name=f"data-plane-kafka-socket-acceptor-{endpoint.listener_name}"
            f"-{endpoint.security_protocol.name}-{self.endpoint.port}",
            daemon=False,
        )

    # -- lifecycle

    def add_processors(self, count: int) -> None:
        """Creates processors, and starts them if the listener is running."""
        for _ in range(count):
            processor = self._make_processor(self.endpoint)
            with self._start_lock:
                with self._processors_lock:
                    self.processors.append(processor)
                if self._running:
                    processor.start()

    def remove_processors(self, count: int) -> list[Processor]:
        """Removes processors and stops them, which closes their connections."""
        with self._processors_lock:
            removed = self.processors[-count:]
            del self.processors[-count:]
        for processor in removed:
            processor.begin_shutdown()
        for processor in removed:
            processor.join()
        return removed

    def start(self) -> None:
        """Starts the processors, then the acceptor itself, and completes ``started_future``."""
        with self._start_lock:
            if self._running or not self._should_run:
                return
            try:
                for processor in self.processors:
                    processor.start()
                self.thread.start()
                self._running = True
            except BaseException as error:
                self._fail(error)
                raise
            self.started_future.set_result(None)
        log.info("Listening on %s", self.endpoint)

    def fail_to_start(self, error: BaseException) -> None:
        """Fails the listener because a prerequisite failed."""
        with self._start_lock:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if not self.started_future.done():
            self.started_future.set_exception(error)

    def begin_shutdown(self) -> None:
        with self._start_lock:
            self._should_run = False
            # Releases callers that wait for a listener that has not started.
            self._fail(RuntimeError(f"{self.endpoint} was shut down before it was started"))
        with suppress(OSError):
            self._wake_writer.send(b"\0")
        for processor in self.processors:
            processor.begin_shutdown()

    def join(self) -> None:
        if self._running:
            self.thread.join()
        else:
            self._close_everything()
        for processor in self.processors:
            processor.join()

    # -- the loop

    def run(self) -> None:
        try:
            while self._should_run:
                try:
                    self.run_once(SELECT_MS)
                except Exception:  # one bad connection must not end the acceptor
                    log.exception("Error while accepting on %s", self.endpoint)
        finally:
            self._close_everything()

    def run_once(self, timeout_ms: float) -> None:
        if self._waiting is not None and not self._admit_waiting():
            self._pause()
        else:
            self._serve(timeout_ms)
        self._close_throttled_connections()  # in any case: the waiting connection may need one of their descriptors

    def _serve(self, timeout_ms: float) -> None:
        listening = self._socket.fileno()
        for fd, _ in self._poller.poll(timeout_ms):
            if fd == listening:
                self._accept_new_connections()
            else:
                with suppress(BlockingIOError):
                    self._wake_reader.recv(64)

    def _accept_new_connections(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            if not self._should_run:
                return
            try:
                sock, peer = self._socket.accept()
            except BlockingIOError:
                return
            except ConnectionError as error:  # closed before it was accepted
                log.debug("A connection to %s ended before it was accepted: %s", self.endpoint, error)
                continue
            except OSError as error:
                if error.errno not in _OUT_OF_RESOURCES:
                    raise
                self._accept_later(str(error))
                return
            if sock.fileno() >= self._descriptor_ceiling:
                self._waiting = sock, peer
                self._accept_later(
                    f"the descriptors from {self._descriptor_ceiling} on are kept back for logs; raise the limit on "
                    "open files (ulimit -n), or set max.connections"
                )
                return
            self._take(sock, peer)

    def _take(self, sock: socket.socket, peer: tuple[Any, ...]) -> None:
        if self._short_of_descriptors:
            self._short_of_descriptors = False
            log.info("Accepting connections on %s again", self.endpoint)
        if self._admit(sock, peer):
            self._assign(sock, peer)

    def _admit_waiting(self) -> bool:
        """Serves the waiting connection if there is a descriptor for it; returns whether it did."""
        assert self._waiting is not None
        sock, peer = self._waiting
        try:
            lowest = os.dup(sock.fileno())
        except OSError:
            return False
        os.close(lowest)
        if lowest >= self._descriptor_ceiling:
            return False
        self._waiting = None
        self._take(sock, peer)
        return True

    def _accept_later(self, why: str) -> None:
        if not self._short_of_descriptors:
            self._short_of_descriptors = True
            log.error("No more connections are accepted on %s for now: %s", self.endpoint, why)
        self._pause()

    def _pause(self) -> None:
        """Ignores the backlog for up to SELECT_MS; a shutdown ends the pause."""
        listening = self._socket.fileno()
        self._poller.unregister(listening)
        try:
            self._poller.poll(SELECT_MS)
        finally:
            self._poller.register(listening, READ)

    def _admit(self, sock: socket.socket, peer: tuple[Any, ...]) -> bool:
        """Counts the connection against the quotas, waits for a slot if necessary, and configures its socket."""
        address = peer[0]
        listener = self.endpoint.listener_name
        try:
            self._quotas.inc(listener, address, self._blocked)
        except TooManyConnectionsError as error:
            log.info("Rejected a connection: %s", error)
            self.refused += 1
            sock.close()
            return False
        except ConnectionThrottledError as error:
            log.debug("Delaying and then closing a connection: %s", error)
            self.refused += 1
            self._order += 1
            # Monotonic clock: a system clock set back by an hour must not keep the socket open for an hour.
            close_at = self._clock.hi_res_milliseconds() + error.throttle_time_ms
            heapq.heappush(self._throttled, (close_at, self._order, sock, address))
            return False
        except ListenerClosedError as error:
            log.debug("Closing a connection: %s", error)
            sock.close()
            return False
        except BaseException:
            sock.close()
            raise
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            do_not_pace(sock, peer)
            if self._config.socket_send_buffer_bytes >= 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._config.socket_send_buffer_bytes)
        except OSError as error:
            log.debug("A connection from %s ended while it was being configured: %s", address, error)
            self._quotas.dec(listener, address)
            sock.close()
            return False
        self.accepted += 1
        return True

    def _assign(self, sock: socket.socket, peer: tuple[Any, ...]) -> None:
        """Assigns a connection round robin: skips full processors and waits for the last one."""
        with self._processors_lock:
            for left in range(len(self.processors), 0, -1):
                processor = self.processors[self._next % len(self.processors)]
                self._next += 1
                if processor.accept(sock, peer, may_block=left == 1, blocked=self._blocked):
                    return
        self._quotas.dec(self.endpoint.listener_name, peer[0])  # only while shutting down
        sock.close()

    def _close_throttled_connections(self) -> None:
        now = self._clock.hi_res_milliseconds()
        while self._throttled and self._throttled[0][0] <= now:
            _, _, sock, address = heapq.heappop(self._throttled)
            log.debug("Closing a throttled connection from %s", address)
            sock.close()

    def _close_everything(self) -> None:
        self._socket.close()
        for _, _, sock, _ in self._throttled:
            sock.close()
        self._throttled.clear()
        if self._waiting is not None:
            self._waiting[0].close()
        self._poller.close()
        self._wake_reader.close()
        self._wake_writer.close()

    @property
    def throttled(self) -> int:
        """Number of connections that are kept silent until they are closed."""
        return len(self._throttled)

    def __repr__(self) -> str:
        return f"Acceptor({self.endpoint}, {len(self.processors)} processors)"
