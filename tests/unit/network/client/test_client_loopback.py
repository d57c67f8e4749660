"""The network client over real sockets, against a scripted server on the loopback interface."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas.common.clock import MockClock
from barnabas.common.errors import Errors
from barnabas.common.identifiers import Uuid
from barnabas.network.client.client_config import NetworkClientConfig
from barnabas.network.client.client_request import ClientRequest, ClientResponse
from barnabas.network.client.host_resolver import ResolvedAddress, UnknownHostError
from barnabas.network.client.network_client import NetworkClient
from barnabas.network.client.node import Node
from barnabas.network.client.node_connection import ConnectionState
from barnabas.network.reactor.selector import Selector
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.message import Request
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from unit.network.client.client_doubles import MiddleRandom, RecordingUpdater, all_versions
from unit.network.scripted_peer import Peer, ScriptedPeer

IPV4_LOOPBACK = [ResolvedAddress(socket.AF_INET, "127.0.0.1")]


def loopback(host: str) -> list[ResolvedAddress]:
    return IPV4_LOOPBACK


class Real:
    """A client over a real selector. Time-outs follow the mock clock; only sockets take real time."""

    def __init__(self) -> None:
        self.clock = MockClock()
        self.opened: list[NetworkClient] = []

    def open(
        self,
        node: Node,
        *,
        resolver: Callable[[str], list[ResolvedAddress]] = loopback,
        max_receive_size: int = 2**31 - 1,
        **config: Any,
    ) -> None:
        self.node = node
        self.selector = Selector(clock=self.clock, max_receive_size=max_receive_size)
        self.updater = RecordingUpdater([node])
        self.client = NetworkClient(
            self.selector,
            self.updater,
            NetworkClientConfig(client_id="loopback", **config),
            clock=self.clock,
            random=MiddleRandom(),
            resolver=resolver,
        )
        self.opened.append(self.client)

    @property
    def now(self) -> int:
        return self.clock.hi_res_milliseconds()

    def poll(self, timeout_ms: float = 2000) -> list[ClientResponse]:
        return self.client.poll(timeout_ms, self.now)

    def poll_until(self, done: Callable[[], bool]) -> list[ClientResponse]:
        """Polls until something is so. Each poll ends with an event, so a few of them are enough."""
        responses: list[ClientResponse] = []
        for _ in range(100):
            if done():
                return responses
            responses += self.poll()
        raise AssertionError(f"still not so: {self.client!r}, {self.client.last_error(self.node.id_string)}")

    def ready(self) -> bool:
        return self.client.ready(self.node, self.now)

    def make_ready(self) -> None:
        assert self.poll_until(self.ready) == []

    def fail(self) -> str:
        """Connects, until that has failed; what the client has to say about it."""
        assert not self.ready()
        self.poll_until(lambda: self.client.connection_failed(self.node))
        error = self.client.last_error(self.node.id_string)
        assert error is not None
        return error

    def send(self, body: Request, **options: Any) -> ClientRequest:
        request = self.client.new_client_request(self.node.id_string, body, self.now, **options)
        self.client.send(request, self.now)
        return request

    def collect(self, count: int) -> list[ClientResponse]:
        """So many responses, and then no more."""
        responses: list[ClientResponse] = []
        for _ in range(100):
            if len(responses) >= count:
                break
            responses += self.poll()
        responses += self.poll(0)
        assert len(responses) == count
        return responses


@pytest.fixture
def real() -> Iterator[Real]:
    made = Real()
    try:
        yield made
    finally:
        for client in made.opened:
            client.close()


def large(size: int) -> ProduceRequest:
    """A request that does not fit into a socket's buffer."""
    data = PartitionProduceData(index=0, records=memoryview(bytes(size)))
    return ProduceRequest(
        acks=1, topic_data=[TopicProduceData(topic_id=Uuid(bytes(15) + b"\x09"), partition_data=[data])]
    )


# -- the ordinary


def test_connect_negotiate_request_response(real: Real) -> None:
    seen: list[str | None] = []

    def script(peer: Peer) -> None:
        peer.negotiate()
        request = peer.read()
        seen.append(request.header.client_id)
        peer.answer(request, MetadataResponse(cluster_id="c", controller_id=7))
        peer.await_end()

    with ScriptedPeer(script) as server:
        real.open(server.node)
        real.make_ready()
        real.send(MetadataRequest(topics=[]))
        (response,) = real.collect(1)
        assert isinstance(response.body, MetadataResponse)
        assert (response.body.cluster_id, response.body.controller_id) == ("c", 7)
        assert response.api_version == ApiKey.METADATA.stable_versions.highest
        real.client.close()
    assert seen == ["loopback"]


def test_an_old_broker_is_met_in_its_versions(real: Real) -> None:
    """A broker that knows ApiVersions 0 only, and answers any other with the bare error of old."""
    asked: list[int] = []

    def script(peer: Peer) -> None:
        first = peer.read()
        asked.append(first.header.api_version)
        peer.answer(first, ApiVersionsResponse(error_code=Errors.UNSUPPORTED_VERSION), version=0)
        second = peer.read()
        asked.append(second.header.api_version)
        peer.answer(second, all_versions(METADATA=(0, 1)))
        request = peer.read()
        asked.append(request.header.api_version)
        peer.answer(request, MetadataResponse(controller_id=3))
        peer.await_end()

    with ScriptedPeer(script) as server:
        real.open(server.node)
        real.make_ready()
        real.send(MetadataRequest(topics=[]))
        (response,) = real.collect(1)
        assert isinstance(response.body, MetadataResponse)
        assert response.body.controller_id == 3
        real.client.close()
    assert asked == [5, 0, 1]


def test_a_broker_says_which_version_to_ask_in(real: Real) -> None:
    asked: list[int] = []

    def script(peer: Peer) -> None:
        first = peer.read()
        row = ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=3)
        refused = ApiVersionsResponse(error_code=Errors.UNSUPPORTED_VERSION, api_keys=[row])
        peer.answer(first, refused, version=0)
        second = peer.read()
        asked.extend([first.header.api_version, second.header.api_version])
        peer.answer(second, all_versions())
        peer.await_end()

    with ScriptedPeer(script) as server:
        real.open(server.node)
        real.make_ready()
        real.client.close()
    assert asked == [5, 3]


def test_requests_are_pipelined_up_to_the_limit_and_get_responses_in_order(real: Real) -> None:
    arrived = threading.Event()

    def script(peer: Peer) -> None:
        peer.negotiate()
        for _ in range(2):
            batch = [peer.read() for _ in range(3)]  # all three, before the first is answered
            arrived.set()
            for number, request in enumerate(batch):
                peer.answer(request, HeartbeatResponse(error_code=number))
        peer.await_end()

    with ScriptedPeer(script) as server:
        real.open(server.node, max_in_flight_requests_per_connection=3)
        real.make_ready()
        for _ in range(2):
            sent = []
            while real.ready():
                sent.append(real.send(HeartbeatRequest()))
            assert len(sent) == 3
            assert real.client.in_flight_request_count() == 3
            responses = real.collect(3)
            assert [response.request for response in responses] == sent
            codes = [response.body.error_code for response in responses if isinstance(response.body, HeartbeatResponse)]
            assert codes == [0, 1, 2]
        real.client.close()
    assert arrived.is_set()


def test_a_request_larger_than_the_sockets_buffer(real: Real) -> None:
    size = 8 << 20
    lengths: list[int] = []

    def script(peer: Peer) -> None:
        peer.negotiate()
        request = peer.read()
        lengths.append(len(request.payload))
        peer.answer(request, ProduceResponse())
        lengths.append(len(peer.read().payload))
        peer.await_end()

    with ScriptedPeer(script) as server:
        real.open(server.node)
        real.make_ready()
        real.send(large(size))
        assert not real.ready(), "not before this one is out"
        (response,) = real.collect(1)
        assert isinstance(response.body, ProduceResponse)
        real.send(large(size), expect_response=False)
        (response,) = real.collect(1)
        assert not response.has_response
        assert not response.disconnected
        real.client.close()
    assert all(length > size for length in lengths)
    assert len(lengths) == 2


@pytest.mark.mechanism("P15")
def test_a_throttled_client_holds_back_and_goes_on_over_the_same_connection(real: Real) -> None:
    def script(peer: Peer) -> None:
        peer.negotiate()
        peer.answer(peer.read(), HeartbeatResponse(throttle_time_ms=400))
        peer.answer(peer.read(), HeartbeatResponse())
        peer.await_end()

    with ScriptedPeer(script) as server:
        real.open(server.node)
        real.make_ready()
        real.send(HeartbeatRequest())
        real.collect(1)
        assert not real.ready()
        assert real.client.poll_delay_ms(real.node, real.now) == 400
        real.clock.advance(399)
        assert not real.ready()
        real.clock.advance(1)
        assert real.ready()
        real.send(HeartbeatRequest())
        real.collect(1)
        real.client.close()


def test_waking_up_from_another_thread(real: Real) -> None:
    def script(peer: Peer) -> None:
        peer.negotiate()
        peer.await_end()

    with ScriptedPeer(script) as server:
        real.open(server.node)
        real.make_ready()
        waker = threading.Thread(target=real.client.wakeup)
        waker.start()
        assert real.client.poll(25_000, real.now) == []  # returns long before
        waker.join()
        closer = threading.Thread(target=real.client.initiate_close)
        closer.start()
        closer.join()
        assert not real.client.active
        real.client.close()


# -- what goes wrong


def test_a_connection_that_ends_with_requests_in_flight(real: Real) -> None:
    """Those answered before the end count as answered, all others as disconnected; each once, in order."""

    def script(peer: Peer) -> None:
        peer.negotiate()
        requests = [peer.read() for _ in range(4)]
        for request in requests[:2]:
            peer.answer(request, HeartbeatResponse(error_code=0))

    with ScriptedPeer(script) as server:
        real.open(server.node)
        real.make_ready()
        seen: list[ClientResponse] = []
        sent = [real.send(HeartbeatRequest(), callback=seen.append) for _ in range(4)]
        responses = real.collect(4)
        assert responses == seen
        assert [response.request for response in responses] == sent
        assert [response.disconnected for response in responses] == [False, False, True, True]
        assert real.client.connection_failed(real.node)
        assert real.updater.disconnects == [("1", None)]
        assert responses[3].reason == f"peer.example:{server.port} closed the connection"


def test_a_reset_while_a_request_is_going_out(real: Real) -> None:
    """A response and the reset can arrive in one poll: the response counts, and the rest ends as disconnected."""
    go_on = threading.Event()

    def script(peer: Peer) -> None:
        peer.negotiate()
        first = peer.read()
        go_on.wait(60)
        peer.answer(first, HeartbeatResponse())
        peer.reset()

    with ScriptedPeer(script) as server:
        real.open(server.node)
        real.make_ready()
        sent = [real.send(HeartbeatRequest())]
        sent.append(real.send(large(16 << 20)))
        assert real.poll(0) == []
        go_on.set()
        server._thread.join(60)
        responses = real.collect(2)
        assert [response.request for response in responses] == sent
        assert [response.disconnected for response in responses] == [False, True]
        assert not real.selector.closing_channels
        assert not real.selector.channels


def test_the_client_reconnects_after_its_back_off(real: Real) -> None:
    def close_at_once(peer: Peer) -> None:
        peer.negotiate()

    def script(peer: Peer) -> None:
        peer.negotiate()
        peer.answer(peer.read(), HeartbeatResponse())
        peer.await_end()

    with ScriptedPeer(close_at_once, script) as server:
        real.open(server.node)
        real.make_ready()
        real.poll_until(lambda: real.client.connection_failed(real.node))
        assert not real.ready()
        assert real.client.connection_state("1") is ConnectionState.DISCONNECTED
        real.clock.advance(50)
        real.make_ready()
        real.send(HeartbeatRequest())
        real.collect(1)
        real.client.close()


def test_a_request_that_gets_no_response_in_time(real: Real) -> None:
    hung_up = threading.Event()

    def script(peer: Peer) -> None:
        peer.negotiate()
        for _ in range(3):
            peer.read()
        peer.await_end()
        hung_up.set()

    with ScriptedPeer(script) as server:
        real.open(server.node)
        real.make_ready()
        sent = [real.send(HeartbeatRequest(), request_timeout_ms=700) for _ in range(3)]
        real.clock.advance(700)
        assert real.poll(0) == []
        real.clock.advance(1)
        responses = real.collect(3)
        assert [response.request for response in responses] == sent
        assert all(response.timed_out and response.disconnected for response in responses)
    assert hung_up.is_set(), "the connection is closed as well"


def test_nobody_accepts_the_connection_in_time(real: Real) -> None:
    """A full backlog drops what wants to connect, as a firewall does."""
    with contextlib.ExitStack() as sockets:
        listener = sockets.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        port = listener.getsockname()[1]
        for _ in range(8):
            one = sockets.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        real.open(Node(1, "peer.example", port))
        assert not real.ready()
        real.poll(20)
        if real.client.connection_state("1") is not ConnectionState.CONNECTING:
            pytest.skip("this machine's backlog does not fill up")
        real.clock.advance(10_001)
        real.poll(0)
        assert real.client.connection_failed(real.node)
        assert "no connection within 10000 ms" in str(real.client.last_error("1"))
        assert not real.selector.channels


def test_nobody_listens(real: Real) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    real.open(Node(1, "peer.example", port))
    assert real.fail() == (f"Cannot connect to peer.example:{port}: connection refused; nothing listens on that port")
    delays = []
    for _ in range(6):
        delays.append(real.client.connection_delay(real.node, real.now))
        real.clock.advance(delays[-1])
        real.fail()
    assert delays == [50, 100, 200, 400, 800, 1000]


def test_the_next_address_is_tried_when_one_refuses(real: Real) -> None:
    def script(peer: Peer) -> None:
        peer.negotiate()
        peer.await_end()

    def two(host: str) -> list[ResolvedAddress]:
        return [ResolvedAddress(socket.AF_INET, "127.0.0.2"), *IPV4_LOOPBACK]

    with ScriptedPeer(script) as server:
        real.open(server.node, resolver=two)
        assert "refused" in real.fail()
        real.clock.advance(50)
        real.make_ready()
        real.client.close()


def test_a_host_that_nobody_knows(real: Real) -> None:
    def nobody(host: str) -> list[ResolvedAddress]:
        raise UnknownHostError(f"the host name {host!r} cannot be resolved: not known")

    real.open(Node(1, "no-such-host.example", 9092), resolver=nobody)
    assert not real.ready()
    assert real.client.connection_failed(real.node)
    assert "'no-such-host.example' cannot be resolved" in str(real.client.last_error("1"))


@pytest.mark.parametrize("port", [0, 70_000])
def test_a_port_that_does_not_exist(real: Real, port: int) -> None:
    real.open(Node(1, "peer.example", port))
    assert f"peer.example:{port}" in real.fail()
    assert not real.selector.channels


def test_a_response_to_another_request(real: Real) -> None:
    def script(peer: Peer) -> None:
        peer.negotiate()
        peer.read()
        peer.answer(peer.read(), HeartbeatResponse())
        peer.await_end()

    with ScriptedPeer(script) as server:
        real.open(server.node)
        real.make_ready()
        sent = [real.send(HeartbeatRequest()) for _ in range(2)]
        responses = real.collect(2)
        assert [response.request for response in responses] == sent
        assert all(response.disconnected for response in responses)
        assert f"correlation id {sent[1].correlation_id}" in str(real.client.last_error("1"))


@pytest.mark.parametrize("length", [b"\x00\x00\x08\x01", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff"])
def test_a_response_that_is_too_large(real: Real, length: bytes) -> None:
    def script(peer: Peer) -> None:
        peer.negotiate()
        peer.read()
        peer.send(length + b"x" * 10)
        peer.await_end()

    with ScriptedPeer(script) as server:
        real.open(server.node, max_receive_size=2048)
        real.make_ready()
        real.send(HeartbeatRequest())
        (response,) = real.collect(1)
        assert response.disconnected
        size = int.from_bytes(length, signed=True)
        assert response.reason == (
            f"peer.example:{server.port} sent a response of {size} bytes; 0 to 2048 are accepted"
        )


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", "it responded in HTTP"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "text that begins with 'SSH-'"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "TLS alert"),
        (b"\x00\x00\x00\x05hello", "correlation id"),
        (b"\x00\x00\x00\x02hi", "too short"),
        (b"", "before it sent its API versions"),
        (b"\x00\x00", "before it sent its API versions"),
        (b"\x00\x00\x01\x00half of it", "before it sent its API versions"),
    ],
)
@pytest.mark.parametrize("hang_up", [True, False])
def test_a_port_that_is_not_kafkas(real: Real, answer: bytes, text: str, hang_up: bool) -> None:
    def script(peer: Peer) -> None:
        peer.read()
        peer.send(answer)
        if not hang_up:
            peer.await_end()

    incomplete = text.startswith("before")
    with ScriptedPeer(script) as server:
        real.open(server.node)
        if incomplete and not hang_up:
            assert not real.ready()
            real.poll_until(lambda: real.client.connection_state("1") is ConnectionState.CHECKING_API_VERSIONS)
            real.poll(20)
            real.clock.advance(30_001)
            real.poll(0)
            text = "did not send its API versions in time"
        else:
            real.fail()
        error = real.client.last_error("1")
        assert error is not None
        assert text in error
        assert f"peer.example:{server.port}" in error
        assert not real.selector.channels, "found out at once, whatever length the bytes stand for"


def test_a_listener_that_expects_tls(real: Real) -> None:
    """What a real TLS server makes of a request in plain text."""

    def script(peer: Peer) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        server_side = context.wrap_bio(incoming, outgoing, server_side=True)
        incoming.write(peer._socket.recv(1 << 16))
        with pytest.raises(ssl.SSLError):
            server_side.do_handshake()
        peer.send(outgoing.read())

    with ScriptedPeer(script) as server:
        real.open(server.node)
        assert "TLS" in real.fail()


def test_hundreds_of_lost_connections_leave_nothing_behind(real: Real) -> None:
    count = 300

    def script(peer: Peer) -> None:
        peer.negotiate()
        peer.read()

    with ScriptedPeer(*[script] * count) as server:
        real.open(server.node)
        for _ in range(count):
            real.make_ready()
            real.send(HeartbeatRequest())
            (response,) = real.collect(1)
            assert response.disconnected
            real.clock.advance(50)
        assert not real.selector.channels
        assert not real.selector.closing_channels
        assert not real.client.has_in_flight_requests()
        assert real.selector.stats.connections_closed == real.selector.stats.connections_created == count
