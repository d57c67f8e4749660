"""A socket server with a scripted handler behind it, a client that speaks frames, and an eye on what they leave behind.

Two ways to run the network layer are offered. :func:`serving` starts all of its threads, on a free port of this
machine. :class:`SteppedProcessor` starts none: the test takes each turn of the processor itself, which is the way to
see what one turn does.

Nothing here sleeps. A test waits for something to happen on a queue, an event or a socket, and gives up after
``WAIT_S``.
"""

from __future__ import annotations

import errno
import os
import queue
import select
import socket
import struct
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from enum import Enum
from typing import Any, Self

import pytest

from barnabas.common.clock import SYSTEM_CLOCK, Clock, MockClock
from barnabas.metrics.registry import Metrics
from barnabas.metrics.yammer.histogram import Histogram
from barnabas.metrics.yammer.registry import MetricsRegistry
from barnabas.network.reactor.channel import KafkaChannel
from barnabas.network.reactor.channel_factory import ChannelFactory, plaintext
from barnabas.network.reactor.memory_pool import UNBOUNDED, MemoryPool
from barnabas.network.server.config import SocketServerConfig
from barnabas.network.server.connection_quotas import ConnectionQuotas
from barnabas.network.server.endpoint import Endpoint, SecurityProtocol
from barnabas.network.server.plane import ConnectionContext
from barnabas.network.server.processor import Processor
from barnabas.network.server.response import AnyResponse
from barnabas.network.server.socket_server import SocketServer
from barnabas.protocol.api_keys import ApiKey, Scope
from barnabas.protocol.framing import encode_request
from barnabas.protocol.headers import parse_request_header
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.leave_group import LeaveGroupRequest
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.server.api_version_manager import ApiVersionManager
from barnabas.server.data_plane import DataPlane, HandOff
from barnabas.server.dispatch import ApiDispatcher, RequestRunner
from barnabas.server.handler_pool import KafkaRequestHandlerPool
from barnabas.server.request import Request
from barnabas.server.request_channel import CallbackRequest, RequestChannel
from barnabas.server.request_handler_helper import RequestHandlerHelper
from barnabas.server.request_local import RequestLocal
from barnabas.server.request_metrics import RequestTimes

WAIT_S = 60
"""How long a test waits for another thread, or for the other end of a socket, before it calls it stuck."""

LISTENER = "PLAINTEXT"
INLINE = frozenset({ApiKey.HEARTBEAT, ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.API_VERSIONS})
"""What a network thread may handle itself. LeaveGroup is what it may not."""

Script = Callable[[Request, RequestLocal], None]
"""What the handler does with a request."""


class Policy(Enum):
    """How requests get to their handlers. All tests of behaviour run with each of them."""

    QUEUE = HandOff.QUEUE, False
    QUEUE_PARALLEL = HandOff.QUEUE, True
    """With a handler woken for each request, as on an interpreter without a global lock."""
    DIRECT = HandOff.DIRECT, False

    @property
    def hand_off(self) -> HandOff:
        return self.value[0]

    @property
    def parallel(self) -> bool:
        return self.value[1]


every_policy = pytest.mark.parametrize("policy", list(Policy), ids=lambda policy: policy.name.lower())


# ---------------------------------------------------------------------------------------------------- leaks


def open_descriptors() -> set[int]:
    found = set()
    for name in os.listdir("/dev/fd"):  # noqa: PTH208 - numbers, not paths
        with suppress(OSError):  # the one that the listing itself used
            os.fstat(int(name))
            found.add(int(name))
    return found


@contextmanager
def nothing_left_behind() -> Iterator[None]:
    """Fails if a thread or a file descriptor is there afterwards that was not there before."""
    threads, descriptors = set(threading.enumerate()), open_descriptors()
    yield
    assert set(threading.enumerate()) <= threads, "threads are left"
    assert open_descriptors() <= descriptors, "file descriptors are left"


def within(seconds: float, function: Callable[[], object]) -> None:
    """Runs something that may hang if the code under test is broken, and fails instead."""
    outcome: Future[None] = Future()

    def run() -> None:
        try:
            function()
        except BaseException as error:  # noqa: BLE001 - it is raised by the test
            outcome.set_exception(error)
        else:
            outcome.set_result(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    outcome.result(seconds)
    thread.join()


# ---------------------------------------------------------------------------------------------------- requests


def heartbeat(number: int, *, size: int = 0, client_id: str | None = "test") -> bytes:
    """A small request; ``number`` comes back as its correlation id, ``size`` makes it so much larger."""
    return encode_request(HeartbeatRequest(group_id="g" * size, generation_id=number), 4, number, client_id)


def produce(number: int, *, acks: int = 0, records: bytes = b"records") -> bytes:
    data = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])]
    return encode_request(ProduceRequest(acks=acks, topic_data=data), 9, number, "test")


def leave_group(number: int) -> bytes:
    """A request that no network thread may handle itself."""
    return encode_request(LeaveGroupRequest(group_id="g"), 2, number, "test")


def answer_parts(request: Request, body: bytes = b"") -> list[bytes]:
    return [struct.pack(">ii", 4 + len(body), request.correlation_id) + body]


def request_from(
    frame: bytes | bytearray,
    times: RequestTimes,
    *,
    connection: str = "c",
    processor_id: int = 0,
    pool: MemoryPool = UNBOUNDED,
    start_ns: int = 0,
) -> Request:
    """A request as a processor would make it, without one."""
    payload = memoryview(frame)[4:]
    context = ConnectionContext(connection, "127.0.0.1", LISTENER, SecurityProtocol.PLAINTEXT, False)
    return Request(processor_id, context, parse_request_header(payload), payload, pool, start_ns, times)


class FakeProcessorHandle:
    """A processor as the request channel sees it: keeps the responses that it gets."""

    def __init__(self, processor_id: int = 0, *, asleep: bool = True) -> None:
        self.id = processor_id
        self.endpoint = Endpoint(LISTENER)
        self.asleep = asleep
        self.responses: queue.Queue[AnyResponse] = queue.Queue()
        self.wakeups = 0

    def enqueue_response(self, response: AnyResponse) -> bool:
        self.responses.put(response)
        return self.asleep

    def wakeup(self) -> None:
        self.wakeups += 1

    @property
    def response_queue_size(self) -> int:
        return self.responses.qsize()

    def next_response(self) -> AnyResponse:
        return self.responses.get(timeout=WAIT_S)


class Client:
    """A blocking connection that knows what a frame is."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        sock.settimeout(WAIT_S)

    @classmethod
    def connect(cls, port: int, *, receive_buffer: int | None = None, source: tuple[str, int] | None = None) -> Client:
        sock = socket.socket()
        try:
            if source is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # or the same port could not be used again
                sock.bind(source)
            if receive_buffer is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            sock.settimeout(WAIT_S)
            sock.connect(("127.0.0.1", port))
        except BaseException:
            sock.close()
            raise
        return cls(sock)

    @property
    def address(self) -> str:
        host, port = self.socket.getsockname()
        return f"{host}:{port}"

    @property
    def peer(self) -> str:
        host, port = self.socket.getpeername()
        return f"{host}:{port}"

    def send(self, *frames: bytes) -> None:
        self.socket.sendall(b"".join(frames))

    def receive(self) -> tuple[int, bytes]:
        """The next answer: its correlation id and the rest of it."""
        size, correlation_id = struct.unpack(">ii", self._exactly(8))
        return correlation_id, self._exactly(size - 4)

    def receive_ids(self, count: int) -> list[int]:
        return [self.receive()[0] for _ in range(count)]

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            part = self.socket.recv(count - len(data))
            if not part:
                raise EOFError(f"the server closed the connection, {len(data)} of {count} bytes into something")
            data += part
        return bytes(data)

    def ask(self, number: int) -> int:
        """Sends a request, waits for its answer and returns the correlation id."""
        self.send(heartbeat(number))
        return self.receive()[0]

    def await_close(self) -> None:
        """Waits until the server has closed the connection; fails if it sends something instead."""
        try:
            data = self.socket.recv(1)
        except ConnectionResetError:
            return
        assert not data, "the server has sent something"

    @property
    def is_silent(self) -> bool:
        """Whether the connection is open and nothing has come in."""
        return not select.select([self.socket], [], [], 0)[0]

    def reset(self) -> None:
        """Ends the connection in the rude way."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


# ---------------------------------------------------------------------------------------------------- servers


class ScriptedApis(ApiDispatcher):
    """A dispatcher that does what the test says, for all APIs. All requests are light."""

    def __init__(self, script: Script, inline_apis: frozenset[ApiKey], helper: RequestHandlerHelper) -> None:
        self.script = script
        self.actions: Callable[[], None] = lambda: None
        super().__init__(
            dict.fromkeys(ApiKey, self._run_script),
            helper,
            inline_apis=inline_apis,
            light_bytes=dict.fromkeys(ApiKey, 1 << 30),
            drain_actions=self._run_actions,
        )

    def _run_script(self, request: Request, local: RequestLocal) -> None:
        self.script(request, local)

    def _run_actions(self) -> None:
        self.actions()


class Plane:
    """All that is behind the processors: request channel, scripted handler, hand-off policy, metrics.

    Without a script every request is put into ``arrived`` and left there, as if it waited in a purgatory: the test
    takes it out and answers when it likes. That blocks no thread, so it works with every policy.
    """

    def __init__(
        self,
        policy: Policy,
        script: Script | None = None,
        *,
        clock: Clock,
        queue_size: int = 500,
        inline_apis: frozenset[ApiKey] = INLINE,
        apis: Collection[ApiKey] | None = None,
    ) -> None:
        self.arrived: queue.Queue[Request] = queue.Queue()
        self.exit_codes: queue.Queue[int] = queue.Queue()
        self.registry = MetricsRegistry(clock)
        self.times = RequestTimes(self.registry, clock)
        self.channel = RequestChannel(queue_size, clock, self.times, short_apis=inline_apis, parallel=policy.parallel)
        self.helper = RequestHandlerHelper(self.channel, clock, exit_procedure=self.exit_codes.put)
        self.apis = ScriptedApis(script or self._park, inline_apis, self.helper)
        self.runner = RequestRunner(self.apis, self.channel, clock)
        self.versions = ApiVersionManager(Scope.BROKER, apis)
        self.data_plane = DataPlane(self.channel, self.runner, self.versions, clock, policy.hand_off)

    def _park(self, request: Request, local: RequestLocal) -> None:
        self.arrived.put(request)

    def next_request(self) -> Request:
        return self.arrived.get(timeout=WAIT_S)

    def answer(self, request: Request, body: bytes = b"") -> None:
        self.channel.send_parts(request, answer_parts(request, body))

    def count_of(self, api: str, histogram: str) -> int:
        """How many requests of an API a histogram has counted."""
        for mbean, metric in self.registry.metrics.items():
            if mbean.name == histogram and dict(mbean.tags or {}) == {"request": api}:
                assert isinstance(metric, Histogram)
                return metric.count
        return 0

    def times_of(self, name: str) -> dict[str, float]:
        """The means of an API's histograms."""
        return {
            str(mbean.name): metric.snapshot().mean
            for mbean, metric in self.registry.metrics.items()
            if dict(mbean.tags or {}) == {"request": name} and hasattr(metric, "snapshot")
        }


class Server(Plane):
    """A whole socket server with its threads."""

    def __init__(
        self,
        policy: Policy,
        script: Script | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        io_threads: int = 2,
        endpoints: Sequence[Endpoint] = (Endpoint(LISTENER, port=0),),
        channel_factories: Mapping[str, ChannelFactory] | None = None,
        idle: Callable[[int, int], None] = lambda _nanoseconds, _threads: None,
        queue_size: int = 500,
        inline_apis: frozenset[ApiKey] = INLINE,
        apis: Collection[ApiKey] | None = None,
        **config: Any,
    ) -> None:
        super().__init__(policy, script, clock=clock, queue_size=queue_size, inline_apis=inline_apis, apis=apis)
        self.disconnected: queue.Queue[str] = queue.Queue()
        self.metrics = Metrics(clock=clock)
        self.blocked: queue.Queue[tuple[str, int]] = queue.Queue()
        self.sockets = SocketServer(
            0,
            endpoints,
            SocketServerConfig(**{"num_network_threads": 1, **config}),
            self.data_plane,
            self.metrics,
            clock,
            channel_factories=channel_factories,
            disconnect_listeners=[self.disconnected.put],
            acceptor_blocked=lambda listener: lambda nanoseconds: self.blocked.put((listener, nanoseconds)),
        )
        self.handlers = KafkaRequestHandlerPool(self.runner, io_threads, clock, idle=idle)
        self.clients: list[Client] = []

    def start(self) -> None:
        self.sockets.enable_request_processing().result(WAIT_S)

    def connect(self, listener: str = LISTENER, *, receive_buffer: int | None = None) -> Client:
        client = Client.connect(self.sockets.bound_port(listener), receive_buffer=receive_buffer)
        self.clients.append(client)
        return client

    def await_disconnects(self, count: int = 1) -> list[str]:
        return [self.disconnected.get(timeout=WAIT_S) for _ in range(count)]

    def close(self) -> None:
        for client in self.clients:
            client.close()
        within(2 * WAIT_S, self._close)

    def _close(self) -> None:
        self.sockets.stop_processing_requests()
        self.handlers.shutdown()
        self.channel.close()


@contextmanager
def serving(policy: Policy, script: Script | None = None, *, started: bool = True, **settings: Any) -> Iterator[Server]:
    """A server, and afterwards none: every thread joined, every descriptor closed, every connection counted down."""
    with nothing_left_behind():
        server = Server(policy, script, **settings)
        try:
            if started:
                server.start()
            yield server
        finally:
            server.close()
        assert server.sockets.quotas.total == 0, "connections are still counted"
        pool = server.sockets.memory_pool
        assert pool.available == pool.size, "request memory was not given back"


class Echo:
    """Answers every request at once; some numbers can be kept back until the test answers them."""

    def __init__(self, *parked: int) -> None:
        self.server: Server | None = None
        self.parked = set(parked)
        self.handled: list[int] = []

    def __call__(self, request: Request, local: RequestLocal) -> None:
        assert self.server is not None
        self.handled.append(request.correlation_id)
        if request.correlation_id in self.parked:
            self.server.arrived.put(request)
        else:
            self.server.answer(request)


class SteppedProcessor(Plane):
    """A processor without a thread. The test takes its turns, and runs the handlers, one by one."""

    def __init__(
        self,
        policy: Policy = Policy.QUEUE,
        script: Script | None = None,
        *,
        clock: MockClock | None = None,
        pool: MemoryPool = UNBOUNDED,
        channel_factory: ChannelFactory = plaintext,
        config: SocketServerConfig | None = None,
        queue_size: int = 500,
        apis: Collection[ApiKey] | None = None,
        security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT,
    ) -> None:
        self.clock = clock or MockClock()
        super().__init__(policy, script, clock=self.clock, queue_size=queue_size, apis=apis)
        config = config or SocketServerConfig()
        self.quotas = ConnectionQuotas(config.limits, self.clock, Metrics(clock=self.clock))
        self.quotas.add_listener(LISTENER)
        self.disconnected: list[str] = []
        self.processor = Processor(
            0,
            0,
            Endpoint(LISTENER, security_protocol),
            config,
            self.data_plane,
            self.quotas,
            pool,
            self.clock,
            channel_factory=channel_factory,
            disconnect_listeners=(self.disconnected.append,),
        )
        self.channel.add_processor(self.processor)
        self.selector = self.processor.selector
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.clients: list[Client] = []
        self.local = self.runner.new_local()

    def connect(
        self, *, taken: bool = True, receive_buffer: int | None = None, source: tuple[str, int] | None = None
    ) -> Client:
        """A client whose connection is with the processor: waiting, or with ``taken`` already registered."""

        def connect(address: tuple[str, int]) -> None:
            self.clients.append(Client.connect(address[1], receive_buffer=receive_buffer, source=source))

        self.accept_from(connect)
        if taken:
            self.turn()
        return self.clients[-1]

    def accept_from(self, connect: Callable[[tuple[str, int]], None]) -> None:
        """Passes the connection that ``connect`` makes to an address to the processor."""
        connect(self._listening.getsockname())
        sock, peer = self._listening.accept()
        sock.setblocking(False)
        self.quotas.inc(LISTENER, peer[0])
        assert self.processor.accept(sock, peer, may_block=False, blocked=lambda _: None)

    def turn(self, wait_ms: float = 0) -> None:
        """One turn; where something has to have arrived, it waits for that."""
        self.processor.run_once(wait_ms)

    def turn_until(self, reached: Callable[[], object]) -> None:
        for _ in range(1000):
            if reached():
                return
            self.turn(100)
        raise AssertionError("a thousand turns did not get there")

    def handle_next(self) -> Request | None:
        """What a handler thread would do next."""
        item = self.channel.receive_request(0)
        if isinstance(item, Request):
            self.runner.run(item, self.local)
            return item
        if isinstance(item, CallbackRequest):
            self.runner.run_callback(item, self.local)
            return item.request
        return None

    def receive(self, *frames: tuple[Client, bytes]) -> None:
        """Sends requests and takes turns until as many are queued or, with the direct policy, handled."""
        goal = self.received + len(frames)
        for client, frame in frames:
            client.send(frame)
        self.turn_until(lambda: self.received >= goal)

    def handled(self) -> Request:
        """The next request that gets to its handler, which has parked it."""
        if self.arrived.empty():
            self.turn_until(lambda: self.received)
            if self.arrived.empty():
                self.handle_next()
        return self.next_request()

    def receive_one(self, client: Client, frame: bytes) -> Request:
        """A request that was just sent and has got to its handler."""
        self.receive((client, frame))
        return self.handled()

    @property
    def only_channel(self) -> KafkaChannel:
        (channel,) = [*self.selector.channels.values(), *self.selector.closing_channels.values()]
        return channel

    @property
    def received(self) -> int:
        """Requests that wait for a handler or were parked by one."""
        return self.arrived.qsize() + self.channel.request_queue_size

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self._listening.close()
        self.processor.begin_shutdown()
        self.processor.join()


@contextmanager
def stepping(*args: Any, **settings: Any) -> Iterator[SteppedProcessor]:
    with nothing_left_behind():
        stepped = SteppedProcessor(*args, **settings)
        try:
            yield stepped
        finally:
            stepped.close()
        assert stepped.quotas.total == 0, "connections are still counted"


# ---------------------------------------------------------------------------------------------------- sockets


@contextmanager
def tcp_pair(
    *, send_buffer: int | None = None, receive_buffer: int | None = None
) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a TCP connection, the first one non-blocking: the server's."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        if receive_buffer is not None:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        client = socket.create_connection(listening.getsockname(), timeout=WAIT_S)
        server, _ = listening.accept()
    if send_buffer is not None:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    server.setblocking(False)
    with client, server:
        yield server, client


class ChunkTransport:
    """A connection of which the test decides what arrives when, and how much can be sent at once."""

    is_ready = True
    has_bytes_buffered = False
    send_whole: Any = None
    push: Any = None
    special_frame: Any = None

    def __init__(self, chunks: Sequence[bytes] = (), *, takes: Sequence[int] = ()) -> None:
        self.chunks = list(chunks)
        """What arrives, piece by piece. Between two pieces a read would have to wait; after the last one, too, unless
        ``ended``."""
        self.ended = False
        self.takes = list(takes)
        """How many bytes the socket takes at each send; zero means that it is full, and so it is after the last one."""
        self.sent = bytearray()
        self.closed = False
        self.expected = 1
        """How many bytes the channel wants to have arrived before it is asked to read again."""
        self._blocked_next = False
        self.recv: Callable[[int], bytes | bytearray] = self._recv
        self.recv_into: Callable[[Any], int] = self._recv_into
        self.send: Callable[[Any], int] = self._send
        self.send_more: Callable[[Any], int] = self._send
        self.sendmsg: Callable[[Any], int] = self._sendmsg

    def _part(self, size: int) -> bytes:
        if self._blocked_next:
            self._blocked_next = False
            raise BlockingIOError(errno.EAGAIN, "nothing here yet")
        if not self.chunks:
            if self.ended:
                return b""
            raise BlockingIOError(errno.EAGAIN, "nothing here")
        part, rest = self.chunks[0][:size], self.chunks[0][size:]
        if rest:
            self.chunks[0] = rest
        else:
            del self.chunks[0]
            self._blocked_next = bool(self.chunks) or not self.ended
        return part

    def _recv(self, size: int) -> bytes:
        return self._part(size)

    def _recv_into(self, buffer: Any) -> int:
        part = self._part(len(buffer))
        buffer[: len(part)] = part
        return len(part)

    def _take(self, data: bytes) -> int:
        count = min(self.takes.pop(0), len(data)) if self.takes else 0
        if not count and data:
            raise BlockingIOError(errno.EAGAIN, "full")
        self.sent += data[:count]
        return count

    def _send(self, data: Any) -> int:
        return self._take(bytes(data))

    def _sendmsg(self, buffers: Any) -> int:
        return self._take(b"".join(buffers))

    def send_file(self, fd: int, position: int, count: int) -> int:
        return self._take(os.pread(fd, count, position))

    def handshake(self) -> int:
        return 0

    def expect(self, count: int) -> None:
        self.expected = count

    def finish_connect(self) -> bool:
        return True

    def fileno(self) -> int:
        return -1

    @property
    def socket(self) -> socket.socket:
        raise NotImplementedError

    def close(self) -> None:
        self.closed = True
