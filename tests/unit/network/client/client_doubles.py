"""For tests of the network client: a selector that does what it is told, and a client around it with a mock clock."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple

from barnabas._kernels import reactor
from barnabas.common.clock import MockClock
from barnabas.common.errors import ApiError, AuthenticationError
from barnabas.network.client.client_config import NetworkClientConfig
from barnabas.network.client.client_request import ClientRequest, ClientResponse
from barnabas.network.client.host_resolver import ResolvedAddress
from barnabas.network.client.metadata_updater import ManualMetadataUpdater, MetadataClient
from barnabas.network.client.network_client import NetworkClient
from barnabas.network.client.node import Node
from barnabas.network.reactor.channel import ANONYMOUS, ChannelState, KafkaChannel, write
from barnabas.network.reactor.memory_pool import UNBOUNDED
from barnabas.network.reactor.selector import CloseMode
from barnabas.network.reactor.send import NetworkSend
from barnabas.network.transport import TransportLayer
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.headers import ParsedHeader, parse_request_header
from barnabas.protocol.message import Request, Response
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse

SelectorStats = reactor.SelectorStats

LIMIT = 100 * 1024 * 1024


class Sent(NamedTuple):
    """A request as it left the client."""

    node_id: str
    header: ParsedHeader
    payload: bytes

    @property
    def body(self) -> Request:
        body, _ = self.header.api_key.request.decode_from(self.payload, self.header.api_version, self.header.body_start)
        return body


def answer_to(sent: Sent, body: Response, version: int | None = None) -> bytes:
    """The payload of the frame that answers a request."""
    used = sent.header.api_version if version is None else version
    return b"".join(body.frame_parts(used, sent.header.correlation_id))[4:]


def all_versions(**changed: tuple[int, int] | None) -> ApiVersionsResponse:
    """The response of a node that has what this client has, but for what is said here: ``METADATA=(0, 5)``."""
    rows = []
    for key in ApiKey:
        spoken = changed.get(key.name, key.stable_versions)
        if spoken is not None:
            rows.append(ApiVersion(api_key=key, min_version=spoken[0], max_version=spoken[1]))
    return ApiVersionsResponse(api_keys=rows)


class FakeTransport:
    """Takes what is written, as long as it is open for it."""

    is_ready = True
    has_bytes_buffered = False
    send_whole: Any = None
    push: Any = None
    special_frame: Any = None

    def __init__(self) -> None:
        self.written = bytearray()
        self.room: int | None = None
        self.closed = False
        self.recv: Callable[[int], bytes | bytearray] = self._never
        self.recv_into: Callable[[Any], int] = self._never
        self.send: Callable[[Any], int] = self._send
        self.send_more: Callable[[Any], int] = self._send
        self.sendmsg: Callable[[Any], int] = lambda buffers: self._send(b"".join(buffers))

    def _send(self, data: Any) -> int:
        data = bytes(data)
        if self.room is not None:
            if not self.room:
                raise BlockingIOError
            data = data[: self.room]
            self.room -= len(data)
        self.written += data
        return len(data)

    def _never(self, *arguments: Any) -> Any:
        raise AssertionError("answers are scripted")

    def handshake(self) -> int:
        return 0

    def expect(self, count: int) -> None:
        raise AssertionError("answers are scripted")

    def send_file(self, fd: int, position: int, count: int) -> int:
        raise AssertionError("no client sends files")

    def finish_connect(self) -> bool:
        return True

    def fileno(self) -> int:
        return -1

    @property
    def socket(self) -> socket.socket:
        raise AssertionError("there is none")

    def close(self) -> None:
        self.closed = True


class ScriptedSelector:
    """Reports what the test has told it to, one poll at a time, and remembers what it was asked for.

    A poll with nothing to report takes all the time it may take, on the mock clock.
    """

    def __init__(self, clock: MockClock) -> None:
        self._clock = clock
        self.completed_receives: list[tuple[KafkaChannel, memoryview]] = []
        self.completed_sends: list[tuple[KafkaChannel, NetworkSend]] = []
        self.connected: list[KafkaChannel] = []
        self.disconnected: list[tuple[KafkaChannel, ChannelState]] = []
        self.stats = SelectorStats()
        self.channels: dict[str, KafkaChannel] = {}
        self.transports: dict[str, FakeTransport] = {}
        self.attempts: list[tuple[str, tuple[str, int], int]] = []
        self.waits: list[float] = []
        self.sent: deque[Sent] = deque()
        self.closed_by_client: list[str] = []
        self.connect_error: Exception | None = None
        self.closed = False
        self.wakeups = 0
        self._events: list[Callable[[], None]] = []

    # -- what the client calls

    def connect(
        self,
        channel_id: str,
        address: tuple[str, int],
        *,
        host: str,
        family: int,
        send_buffer: int,
        receive_buffer: int,
    ) -> None:
        assert channel_id not in self.channels
        self.attempts.append((channel_id, address, family))
        if self.connect_error is not None:
            raise self.connect_error
        self.transports[channel_id] = FakeTransport()
        self.channels[channel_id] = KafkaChannel(channel_id, self.transports[channel_id], LIMIT, UNBOUNDED, ANONYMOUS)

    def replace_socket(self, channel: KafkaChannel, sock: socket.socket) -> TransportLayer:
        raise AssertionError("there is none")

    def channel(self, channel_id: str) -> KafkaChannel | None:
        return self.channels.get(channel_id)

    def open_or_closing(self, channel_id: str) -> KafkaChannel | None:
        return self.channels.get(channel_id)

    def is_channel_ready(self, channel_id: str) -> bool:
        channel = self.channels.get(channel_id)
        return channel is not None and channel.state is ChannelState.READY

    def send(self, channel: KafkaChannel, send: NetworkSend) -> bool:
        assert self.channels[channel.id] is channel
        assert channel.send is None, "one at a time"
        send.write_to(channel.transport)
        self._collect(channel.id)
        if send.remaining:
            channel.send = send
            return False
        return True

    def _collect(self, node_id: str) -> None:
        """The whole requests among what has been written."""
        written = self.transports[node_id].written
        while len(written) >= 4 and len(written) >= (size := 4 + int.from_bytes(written[:4])):
            payload = bytes(written[4:size])
            del written[:size]
            self.sent.append(Sent(node_id, parse_request_header(payload), payload))

    def poll(self, timeout_ms: float) -> None:
        assert timeout_ms >= 0
        self.waits.append(timeout_ms)
        self.completed_receives.clear()
        self.completed_sends.clear()
        self.connected.clear()
        self.disconnected.clear()
        events, self._events = self._events, []
        if not events:
            self._clock.advance(timeout_ms)
        for event in events:
            event()

    def close(self, channel: KafkaChannel, mode: CloseMode = CloseMode.DISCARD_NO_NOTIFY) -> None:
        assert mode is CloseMode.DISCARD_NO_NOTIFY
        assert self.channels.pop(channel.id) is channel
        channel.transport.close()
        self.closed_by_client.append(channel.id)

    def wakeup(self) -> None:
        self.wakeups += 1

    def close_all(self) -> None:
        self.channels.clear()
        self.closed = True

    # -- what the test calls: what the next poll brings

    def accept(self, node_id: str) -> None:
        channel = self.channels[node_id]

        def event() -> None:
            channel.state = ChannelState.READY
            self.connected.append(channel)

        self._events.append(event)

    def after_events(self, event: Callable[[], None]) -> None:
        """Something else that happens in the next poll."""
        self._events.append(event)

    def deliver(self, node_id: str, payload: bytes) -> None:
        channel = self.channels[node_id]
        self._events.append(lambda: self.completed_receives.append((channel, memoryview(payload))))

    def lose(self, node_id: str, state: ChannelState | None = None, error: Exception | None = None) -> None:
        """As the selector does it: the channel is gone at once, and reported by the next poll."""
        channel = self.channels.pop(node_id)
        channel.error = error
        if state is not None:
            channel.state = state
        self._events.append(lambda: self.disconnected.append((channel, channel.state)))

    def let_through(self, node_id: str, count: int | None) -> None:
        """So many more bytes go out, the rest waits; with none, everything does, also what has been waiting."""
        channel = self.channels[node_id]
        self.transports[node_id].room = count
        waiting = channel.send
        if waiting is not None and write(channel) is not None:
            self._collect(node_id)
            self._events.append(lambda: self.completed_sends.append((channel, waiting)))


class RecordingUpdater(ManualMetadataUpdater):
    """Notes what it is told; sends one request for metadata when the test asks for it."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        super().__init__(nodes)
        self.cluster: str | None = None
        self.due = False
        self.rebootstraps = False
        self.needed = False
        self.wanted: Request | None = None
        self.delays: list[int] = []
        self.disconnects: list[tuple[str, AuthenticationError | None]] = []
        self.failures: list[ApiError | None] = []
        self.completed: list[tuple[ClientRequest, Response]] = []
        self.rebootstrapped: list[int] = []
        self.closed = False

    @property
    def cluster_id(self) -> str | None:
        return self.cluster

    @property
    def can_rebootstrap(self) -> bool:
        return self.rebootstraps

    def is_update_due(self, now: int) -> bool:
        return self.due

    def maybe_update(self, client: MetadataClient, now: int) -> int:
        if self.wanted is None:
            return super().maybe_update(client, now)
        node = client.least_loaded_node(now).node
        if node is None:
            return client.reconnect_backoff_ms
        delay = client.send_metadata_request(node, self._take, now)
        self.delays.append(delay)
        return delay

    def _take(self) -> Request:
        assert self.wanted is not None
        wanted, self.wanted = self.wanted, None
        self.due = False
        return wanted

    def handle_server_disconnect(
        self, now: int, node_id: str, authentication_error: AuthenticationError | None
    ) -> None:
        self.disconnects.append((node_id, authentication_error))

    def handle_failed_request(self, now: int, error: ApiError | None) -> None:
        self.failures.append(error)

    def handle_completed_metadata_response(self, request: ClientRequest, now: int, response: Response) -> None:
        self.completed.append((request, response))

    def needs_rebootstrap(self, now: int) -> bool:
        return self.needed

    def rebootstrap(self, now: int) -> None:
        self.needed = False
        self.rebootstrapped.append(now)

    def close(self) -> None:
        self.closed = True


class MiddleRandom(Random):
    """No jitter: always the middle of the range, and always the first of several."""

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2

    def randrange(self, *arguments: Any, **options: Any) -> int:
        return 0


def one_address(host: str) -> list[ResolvedAddress]:
    return [ResolvedAddress(socket.AF_INET, "192.0.2.1")]


NODE = Node(1, "one.example", 9092)
OTHER = Node(2, "two.example", 9092)


class Harness:
    """A client over a scripted selector, and the moves that most tests begin with."""

    def __init__(
        self,
        *,
        nodes: Sequence[Node] = (NODE, OTHER),
        resolver: Callable[[str], Sequence[ResolvedAddress]] = one_address,
        random: Random | None = None,
        **config: Any,
    ) -> None:
        self.clock = MockClock()
        self.clock.advance(5_000)
        self.selector = ScriptedSelector(self.clock)
        self.updater = RecordingUpdater(nodes)
        self.client = NetworkClient(
            self.selector,
            self.updater,
            NetworkClientConfig(client_id="test", **config),
            clock=self.clock,
            random=MiddleRandom() if random is None else random,
            resolver=resolver,
        )

    @property
    def now(self) -> int:
        return self.clock.hi_res_milliseconds()

    def poll(self, timeout_ms: float = 0) -> list[ClientResponse]:
        return self.client.poll(timeout_ms, self.now)

    def ready(self, node: Node = NODE) -> bool:
        return self.client.ready(node, self.now)

    def connect(self, node: Node = NODE) -> Sent:
        """As far as the question for the versions, which is returned."""
        assert not self.ready(node)
        self.selector.accept(node.id_string)
        assert self.poll() == []
        return self.selector.sent.pop()

    def make_ready(self, node: Node = NODE, versions: ApiVersionsResponse | None = None) -> None:
        asked = self.connect(node)
        self.answer(asked, all_versions() if versions is None else versions)
        assert self.poll() == []
        assert self.ready(node)

    def send(self, body: Request, node: Node = NODE, **options: Any) -> ClientRequest:
        request = self.client.new_client_request(node.id_string, body, self.now, **options)
        self.client.send(request, self.now)
        return request

    def answer(self, sent: Sent, body: Response, version: int | None = None) -> None:
        self.selector.deliver(sent.node_id, answer_to(sent, body, version))

    def last_error(self, node: Node = NODE) -> str:
        error = self.client.last_error(node.id_string)
        assert error is not None
        return error
