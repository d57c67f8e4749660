"""The socket server: all listeners of a node.

Starting has three steps, so that no client is served too early or rejected needlessly. Creating the server opens the
ports; from then on the kernel queues connections. ``enable_request_processing`` starts each listener as soon as its
authorizer is ready. The future it returns completes when all listeners are live.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Any

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.metrics.registry import Metrics
from barnabas.network.reactor.channel_factory import ChannelFactory, plaintext
from barnabas.network.reactor.memory_pool import UNBOUNDED, MemoryPool, SimpleMemoryPool
from barnabas.network.server.acceptor import Acceptor
from barnabas.network.server.config import SocketServerConfig
from barnabas.network.server.connection_quotas import ConnectionQuotas
from barnabas.network.server.endpoint import Endpoint
from barnabas.network.server.plane import RequestPlane
from barnabas.network.server.processor import DisconnectListener, Processor

log = logging.getLogger(__name__)


class SocketServer:
    """Owns the listeners, their acceptors and processors, and the quotas they share."""

    def __init__(
        self,
        node_id: int,
        endpoints: Sequence[Endpoint],
        config: SocketServerConfig,
        plane: RequestPlane,
        metrics: Metrics,
        clock: Clock = SYSTEM_CLOCK,
        *,
        channel_factories: Mapping[str, ChannelFactory] | None = None,
        disconnect_listeners: Sequence[DisconnectListener] = (),
        acceptor_blocked: Callable[[str], Callable[[int], None]] = lambda _listener: lambda _nanoseconds: None,
    ) -> None:
        self._node_id = node_id
        self._config = config
        self._plane = plane
        self._clock = clock
        self._channel_factories = dict(channel_factories or {})
        self._disconnect_listeners = tuple(disconnect_listeners)
        self._acceptor_blocked = acceptor_blocked
        self.quotas = ConnectionQuotas(config.limits, clock, metrics)
        self.memory_pool: MemoryPool = (
            SimpleMemoryPool(config.queued_max_request_bytes, config.socket_request_max_bytes)
            if config.queued_max_request_bytes > 0
            else UNBOUNDED
        )
        self._lock = threading.Lock()
        """Guards the fields below against concurrent start, stop and reconfiguration."""
        self._next_processor_id = 0
        self._record_times = False
        self._stopped = False
        self._all_started: Future[None] | None = None
        self.acceptors: dict[str, Acceptor] = {}
        try:
            for endpoint in endpoints:
                self._add(self._open(endpoint))
        except BaseException:
            self.shutdown()
            raise

    def _open(self, endpoint: Endpoint) -> Acceptor:
        name = endpoint.listener_name
        if name in self.acceptors:
            raise ValueError(f"there are two listeners called {name}")
        acceptor = Acceptor(
            endpoint, self._config, self.quotas, self._clock, self._make_processor, self._acceptor_blocked(name)
        )
        self.quotas.add_listener(name)
        return acceptor

    def _add(self, acceptor: Acceptor) -> None:
        # The dictionary is replaced, because other threads iterate over it.
        self.acceptors = {**self.acceptors, acceptor.endpoint.listener_name: acceptor}
        acceptor.add_processors(self._config.processors_of(acceptor.endpoint.listener_name))

    def _make_processor(self, endpoint: Endpoint) -> Processor:
        processor = Processor(
            self._next_processor_id,
            self._node_id,
            endpoint,
            self._config,
            self._plane,
            self.quotas,
            self.memory_pool,
            self._clock,
            privileged=endpoint.listener_name == self._config.limits.inter_broker_listener,
            channel_factory=self._channel_factories.get(endpoint.listener_name, plaintext),
            disconnect_listeners=self._disconnect_listeners,
        )
        processor.selector.reactor.record_time_per_connection = self._record_times
        self._next_processor_id += 1
        self._plane.add_processor(processor)
        return processor

    def record_time_per_connection(self, wanted: bool) -> None:
        """Switches the measurement of network thread time per connection.

        It costs two clock reads per event, so it is on only while a quota needs it.
        """
        with self._lock:
            self._record_times = wanted
            for processor in self.processors:
                processor.selector.reactor.record_time_per_connection = wanted

    # -- lifecycle

    def enable_request_processing(self, authorizer_futures: Mapping[str, Future[Any]] | None = None) -> Future[None]:
        """Starts each listener when its authorizer is ready; the future completes when all have started."""
        with self._lock:
            if self._stopped:
                raise RuntimeError("the socket server is stopped")
            if self._all_started is not None:
                return self._all_started
            self._all_started = _when_all([acceptor.started_future for acceptor in self.acceptors.values()])
            futures = authorizer_futures or {}
            for name, acceptor in self.acceptors.items():
                ready = futures.get(name)
                if ready is None:
                    acceptor.start()
                else:
                    ready.add_done_callback(partial(_start_after, acceptor=acceptor))
            return self._all_started

    def stop_processing_requests(self) -> None:
        """Stops accepting and reading. Requests in flight are still handled, but their responses are not sent."""
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
            acceptors = list(self.acceptors.values())
        log.info("Stopping socket server request processors")
        self.quotas.close()
        for acceptor in acceptors:
            acceptor.begin_shutdown()
        for acceptor in acceptors:
            acceptor.join()
            for processor in acceptor.processors:
                self._plane.remove_processor(processor.id)

    def shutdown(self) -> None:
        """Ends every connection and thread, and waits for them."""
        self.stop_processing_requests()
        log.info("Socket server is shut down")

    # -- reconfiguration

    def resize_thread_pool(self, listener: str, count: int) -> None:
        """Changes the number of processors of a listener, at most halving or doubling it in one step."""
        acceptor = self.acceptors[listener]
        with self._lock:
            if self._stopped:
                return
            current = len(acceptor.processors)
            if count < 1 or not current / 2 <= count <= current * 2:
                raise ValueError(
                    f"num.network.threads of {listener} cannot go from {current} to {count}: "
                    "one step may at most halve or double it"
                )
            if count > current:
                acceptor.add_processors(count - current)
            elif count < current:
                for processor in acceptor.remove_processors(current - count):
                    self._plane.remove_processor(processor.id)
        log.info("%s has %d network threads now, %d before", listener, count, current)

    def add_listeners(
        self, endpoints: Sequence[Endpoint], config: SocketServerConfig, channel_factories: Mapping[str, ChannelFactory]
    ) -> None:
        """Opens listeners, and starts them if the server has started. Raises OSError if a port is in use."""
        with self._lock:
            if self._stopped:
                return
            self._config = config
            self._channel_factories |= channel_factories
            for endpoint in endpoints:
                acceptor = self._open(endpoint)
                try:
                    self._add(acceptor)
                    if self._all_started is not None:
                        acceptor.start()
                except BaseException:
                    # No file descriptors for its processors, for example. Nobody would serve its clients.
                    self._take_out([acceptor])
                    self._close([acceptor])
                    raise

    def remove_listeners(self, names: Iterable[str]) -> None:
        """Closes listeners and their connections, and waits for their threads."""
        with self._lock:
            if self._stopped:
                return
            removed = [self.acceptors[name] for name in names if name in self.acceptors]
            self._take_out(removed)
        self._close(removed)

    def _take_out(self, removed: Sequence[Acceptor]) -> None:
        """Forgets listeners. Requires the lock."""
        self.acceptors = {name: one for name, one in self.acceptors.items() if one not in removed}
        for acceptor in removed:
            self._channel_factories.pop(acceptor.endpoint.listener_name, None)

    def _close(self, removed: Sequence[Acceptor]) -> None:
        for acceptor in removed:
            self.quotas.remove_listener(acceptor.endpoint.listener_name)
            acceptor.begin_shutdown()
        for acceptor in removed:
            acceptor.join()
            for processor in acceptor.processors:
                self._plane.remove_processor(processor.id)
            log.info("Closed %s", acceptor.endpoint)

    # -- inspection

    def bound_port(self, listener: str) -> int:
        return self.acceptors[listener].endpoint.port

    @property
    def endpoints(self) -> list[Endpoint]:
        """The listeners with their actual ports."""
        return [acceptor.endpoint for acceptor in self.acceptors.values()]

    @property
    def processors(self) -> list[Processor]:
        return [processor for acceptor in self.acceptors.values() for processor in acceptor.processors]

    def connection_count(self, address: str) -> int:
        return self.quotas.get(address)

    def __repr__(self) -> str:
        return f"SocketServer({', '.join(map(str, self.endpoints))})"


def _start_after(authorizer_ready: Future[Any], acceptor: Acceptor) -> None:
    try:
        error = authorizer_ready.exception()
    except CancelledError as cancelled:
        error = cancelled
    if error is None:
        acceptor.start()
    else:
        log.error("%s does not start: its authorizer failed: %r", acceptor.endpoint, error)
        acceptor.fail_to_start(error)


def _when_all(futures: Sequence[Future[None]]) -> Future[None]:
    """Returns a future that completes when all do, and fails with the first that fails."""
    result: Future[None] = Future()
    remaining = len(futures)
    lock = threading.Lock()
    """Guards ``remaining``."""

    def done(finished: Future[None]) -> None:
        nonlocal remaining
        error = finished.exception()
        with lock:
            remaining -= 1
            settled = result.done() or (error is None and remaining > 0)
            if settled:
                return
            if error is None:
                result.set_result(None)
            else:
                result.set_exception(error)

    for future in futures:
        future.add_done_callback(done)
    if not futures:
        result.set_result(None)
    return result
