"""Connections that move from TCP to the broker's local socket: the network client against a socket server."""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import pytest

from barnabas._kernels.channel_mute import ChannelMuteEvent
from barnabas.common.clock import SYSTEM_CLOCK
from barnabas.network.client.client_config import SOFTWARE_NAME, NetworkClientConfig
from barnabas.network.client.client_request import ClientResponse
from barnabas.network.client.network_client import NetworkClient
from barnabas.network.client.node import Node
from barnabas.network.client.node_connection import ConnectionState
from barnabas.network.reactor.channel import KafkaChannel
from barnabas.network.reactor.selector import Selector
from barnabas.network.server.config import SocketServerConfig
from barnabas.network.server.connection_limits import ConnectionLimits
from barnabas.network.server.endpoint import Endpoint
from barnabas.network.server.processor import Processor
from barnabas.network.transport import PlaintextTransportLayer
from barnabas.network.transport.local.offer import OFFER_TAG, PREFIX, LocalSocketOffer, connect
from barnabas.network.transport.local.server import MOST_PER_TURN, LocalListener
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.framing import encode_request
from barnabas.protocol.message import Request as RequestMessage
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from barnabas.server.request import Request
from barnabas.server.request_local import RequestLocal
from network_fixtures import (
    LISTENER,
    WAIT_S,
    Client,
    Policy,
    Server,
    SteppedProcessor,
    every_policy,
    heartbeat,
    nothing_left_behind,
    serving,
    tcp_pair,
)
from unit.network.client.client_doubles import MiddleRandom, RecordingUpdater, all_versions

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has abstract names for Unix sockets")

LOOPBACK = struct.pack("=I", int.from_bytes(socket.inet_aton("127.0.0.1"))).hex().upper()
"""As the kernel's table of connections has it: four bytes in the machine's order."""
LARGE = 5_000_000
"""More than the buffers of both ends hold."""


class Broker:
    """Answers ApiVersions as a broker does, and what else a test asks with the sizes of things."""

    def __init__(self) -> None:
        self.server: Server
        self.change: Callable[[LocalSocketOffer], object] = lambda _offer: None
        """What a test does to an offer before it goes out."""
        self.asked: list[tuple[ApiKey, str]] = []
        """Each request, and the connection that it came from."""
        self.received: list[int] = []
        self.silent = False
        """Whether it says nothing over the local socket."""

    def __call__(self, request: Request, local: RequestLocal) -> None:
        self.asked.append((request.api_key, request.context.connection_id))
        response: Any
        if request.api_key is ApiKey.API_VERSIONS:
            response = all_versions()
            offer = request.context.local_socket
            if offer is None and self.silent:
                return
            if offer is not None and request.context.client_software_name == SOFTWARE_NAME:
                self.change(offer)
                offer.put_into(response)
        elif request.api_key is ApiKey.PRODUCE:
            body: Any = request.body
            self.received.append(len(body.topic_data[0].partition_data[0].records))
            response = ProduceResponse()
        elif request.api_key is ApiKey.METADATA:
            response = MetadataResponse(cluster_id="x" * LARGE)
        else:
            response = HeartbeatResponse()
        version = request.api_version
        header = b"" if request.api_key.response_header_version(version) == 0 else b"\0"
        self.server.answer(request, header + response.encode(version))

    @property
    def connections(self) -> list[str]:
        """The connections, in the order in which they came, each once."""
        return list(dict.fromkeys(connection for _, connection in self.asked))


class Real:
    """A client over a real selector, to one node."""

    def __init__(self, port: int, host: str = "127.0.0.1", **config: Any) -> None:
        self.node = Node(1, host, port)
        self.selector = Selector()
        self.client = NetworkClient(
            self.selector,
            RecordingUpdater([self.node]),
            NetworkClientConfig(**{"local_socket_enable": True, "reconnect_backoff_ms": 0, **config}),
            random=MiddleRandom(),
        )

    @property
    def now(self) -> int:
        return SYSTEM_CLOCK.hi_res_milliseconds()

    def poll_until(self, done: Callable[[], object]) -> list[ClientResponse]:
        responses: list[ClientResponse] = []
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            if done():
                return responses
            responses += self.client.poll(100, self.now)
        raise AssertionError(f"still not so: {self.client!r}, {self.client.last_error('1')}")

    def make_ready(self) -> None:
        self.poll_until(lambda: self.client.ready(self.node, self.now))

    def ask(self, body: RequestMessage) -> Any:
        done: list[ClientResponse] = []
        self.client.send(self.client.new_client_request("1", body, self.now, callback=done.append), self.now)
        self.poll_until(lambda: done)
        return done[0]

    @property
    def socket(self) -> socket.socket:
        channel = self.selector.channel("1")
        assert channel is not None
        found: socket.socket = channel.transport.socket
        return found

    @property
    def is_local(self) -> bool:
        return self.socket.family == socket.AF_UNIX


@contextmanager
def broker(policy: Policy = Policy.DIRECT, **config: Any) -> Iterator[tuple[Broker, Server]]:
    script = Broker()
    with serving(policy, script, **{"local_socket_enable": True, **config}) as server:
        script.server = server
        yield script, server


@contextmanager
def client_of(server: Server, *, port: int | None = None, **config: Any) -> Iterator[Real]:
    made = Real(server.sockets.bound_port(LISTENER) if port is None else port, **config)
    try:
        yield made
    finally:
        made.client.close()


def only_channel(server: Server) -> KafkaChannel:
    (processor,) = server.sockets.processors
    (channel,) = processor.selector.channels.values()
    return channel


def produce(size: int) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=memoryview(bytes(size)))
    return ProduceRequest(acks=1, topic_data=[TopicProduceData(partition_data=[data])])


# -- moving


@every_policy
def test_a_connection_moves_and_stays_the_same_one(policy: Policy) -> None:
    with broker(policy) as (script, server), client_of(server) as real:
        real.make_ready()
        assert real.is_local
        channel = only_channel(server)
        assert channel.transport.socket.family == socket.AF_UNIX
        # Asked twice, on one connection, whose name has the addresses of TCP in it.
        assert [key for key, _ in script.asked] == [ApiKey.API_VERSIONS] * 2
        (connection,) = script.connections
        port = server.sockets.bound_port(LISTENER)
        assert connection.startswith(f"127.0.0.1:{port}-127.0.0.1:")
        assert int(connection.rpartition("-")[0].rpartition(":")[2]) > 0
        assert channel.context.client_address == "127.0.0.1"
        assert channel.context.local_socket is None
        # Counted once, wherever connections are counted.
        assert server.sockets.connection_count("127.0.0.1") == 1
        (processor,) = server.sockets.processors
        assert processor.selector.stats.connections_created == 1
        assert (real.selector.stats.connections_created, real.selector.stats.connections_closed) == (1, 0)
        assert real.client.connection_state("1") is ConnectionState.READY
        assert isinstance(real.ask(HeartbeatRequest(group_id="g")).body, HeartbeatResponse)
    assert server.disconnected.qsize() == 1


@pytest.mark.parametrize(
    ("listening", "host"), [("0.0.0.0", "127.0.0.1"), ("0.0.0.0", "127.0.0.3"), ("::1", "::1"), ("::", "127.0.0.1")]
)
def test_whatever_way_the_loopback_interface_is_written(listening: str, host: str) -> None:
    if ":" in listening and not os.path.exists("/proc/net/if_inet6"):  # noqa: PTH110
        pytest.skip("no IPv6 here")
    endpoints = [Endpoint(LISTENER, host=listening, port=0)]
    with broker(endpoints=endpoints) as (_, server), client_of(server, host=host) as real:
        real.make_ready()
        assert real.is_local


def test_a_machine_that_calls_itself_by_its_outward_address() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: it only asks which way it would be
        except OSError:
            pytest.skip("this machine has no other address")
        host = probe.getsockname()[0]
    with broker(endpoints=[Endpoint(LISTENER, host=host, port=0)]) as (_, server), client_of(server, host=host) as real:
        real.make_ready()
        assert real.is_local
        assert only_channel(server).context.client_address == host, "it is still who it was"
        assert server.sockets.connection_count(host) == 1


def test_strangers_do_not_keep_others_waiting() -> None:
    listener = LocalListener(backlog=200, send_buffer=-1)
    strangers = []
    try:
        for _ in range(MOST_PER_TURN + 5):
            stranger = socket.socket(socket.AF_UNIX)
            strangers.append(stranger)
            stranger.connect(listener.name)
        assert list(listener.arrivals()) == []
        assert select.select([listener], [], [], 0)[0], "the rest is for the next turn"
        assert list(listener.arrivals()) == []
        assert not select.select([listener], [], [], 0)[0]
    finally:
        for stranger in strangers:
            stranger.close()
        listener.close()


def test_no_tcp_connection_is_left() -> None:
    """Nor does the one that has moved wait for late packets, as that of a client does that has just gone."""
    with broker() as (script, server), client_of(server) as real:
        port = server.sockets.bound_port(LISTENER)
        with socket.create_connection(("127.0.0.1", port)) as other:
            waiting = (other.getsockname()[1], port)
        real.make_ready()
        assert {waiting, (port, 0)} <= tcp_ports(), "as well as the one that listens"
        (connection,) = script.connections
        own, peer = (int(end.rpartition(":")[2]) for end in connection.split("-")[:2])
        assert own == port
        # Its end comes as a packet, which the system may take a moment to deliver; who waits, waits for a minute.
        deadline = time.monotonic() + WAIT_S
        while not tcp_ports().isdisjoint({(own, peer), (peer, own)}):
            assert time.monotonic() < deadline, "a connection between the two is left"


def tcp_ports() -> set[tuple[int, int]]:
    """The ports of both ends of all TCP connections within this machine, of those included that wait for late packets.
    The other port of who listens is 0."""
    with open("/proc/net/tcp") as table:  # noqa: PTH123
        rows = [line.split() for line in table.readlines()[1:]]
    ends = [[end.rpartition(":") for end in row[1:3]] for row in rows]
    return {(int(own[2], 16), int(other[2], 16)) for own, other in ends if own[0] == LOOPBACK}


def test_large_requests_and_responses_get_through() -> None:
    with broker() as (script, server), client_of(server) as real:
        real.make_ready()
        for _ in range(3):
            real.ask(produce(LARGE))
            assert len(real.ask(MetadataRequest()).body.cluster_id) == LARGE
        assert script.received == [LARGE] * 3
        assert real.is_local
        assert len(script.connections) == 1


def test_several_network_threads_have_a_socket_each() -> None:
    with broker(num_network_threads=3) as (_, server):
        for _ in range(6):
            with client_of(server) as real:
                real.make_ready()
                assert real.is_local
                assert isinstance(real.ask(HeartbeatRequest(group_id="g")).body, HeartbeatResponse)


def test_a_connection_that_is_lost_begins_with_tcp_again_and_moves_again() -> None:
    with broker() as (script, server), client_of(server) as real:
        for round_number in range(1, 4):
            real.make_ready()
            assert real.is_local
            assert len(script.connections) == round_number
            only_channel(server).transport.socket.shutdown(socket.SHUT_RDWR)
            real.poll_until(lambda: real.client.connection_failed(real.node))
            assert server.await_disconnects() == [script.connections[-1]]


def test_closing_a_client_ends_its_connection() -> None:
    with broker() as (script, server):
        with client_of(server) as real:
            real.make_ready()
        assert server.await_disconnects() == script.connections
        assert server.sockets.connection_count("127.0.0.1") == 0


def test_an_idle_connection_is_closed() -> None:
    with broker(connections_max_idle_ms=200, connection_failed_authentication_delay_ms=0) as (script, server):
        with client_of(server) as real:
            real.make_ready()
            assert real.is_local
            real.poll_until(lambda: real.client.connection_failed(real.node))
        assert server.await_disconnects() == script.connections
        assert sum(processor.selector.stats.idle_closed for processor in server.sockets.processors) == 1


@pytest.mark.parametrize(("asked", "allowed"), [(30_000, {60_000}), (-1, None)])
def test_the_buffer_is_what_a_user_asks_for(asked: int, allowed: set[int] | None) -> None:
    """Linux reports twice what was asked for."""
    with socket.socket(socket.AF_UNIX) as plain:
        default = plain.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    with (
        broker(local_socket_send_buffer_bytes=asked) as (_, server),
        client_of(server, local_send_buffer_bytes=asked) as real,
    ):
        real.make_ready()
        for sock in (real.socket, only_channel(server).transport.socket):
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) in (allowed or {default})


def test_the_buffer_is_a_large_one_otherwise() -> None:
    with broker() as (_, server), client_of(server) as real:
        real.make_ready()
        with open("/proc/sys/net/core/wmem_max") as limit:  # noqa: PTH123
            expected = 2 * min(int(limit.read()), 4 * 1024 * 1024)
        for sock in (real.socket, only_channel(server).transport.socket):
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == expected


# -- quotas


def test_a_place_for_one_connection_is_enough() -> None:
    """The TCP connection and what it moves to are never two."""
    with broker(limits=ConnectionLimits(max_connections_per_ip=1)) as (_, server), client_of(server) as real:
        real.make_ready()
        assert real.is_local
        with Client.connect(server.sockets.bound_port(LISTENER)) as other:
            other.await_close()


def test_a_connection_moves_while_the_acceptor_waits_for_a_place() -> None:
    with broker(limits=ConnectionLimits(max_connections=1)) as (script, server), client_of(server) as real:
        waiting: list[Client] = []
        script.change = lambda _offer: waiting.append(server.connect())  # accepted, and held up, before the move
        real.make_ready()
        assert real.is_local
        assert waiting[0].is_silent
        real.client.close()
        waiting[0].send(heartbeat(7))  # its turn
        assert waiting[0].receive()[0] == 7


# -- not moving


@pytest.mark.parametrize(
    ("broker_has_it", "client_has_it"), [(False, True), (True, False), (False, False)], ids=["broker", "client", "both"]
)
def test_it_can_be_turned_off(broker_has_it: bool, client_has_it: bool) -> None:
    with (
        broker(local_socket_enable=broker_has_it) as (script, server),
        client_of(server, local_socket_enable=client_has_it) as real,
    ):
        real.make_ready()
        assert not real.is_local
        assert [key for key, _ in script.asked] == [ApiKey.API_VERSIONS]
        assert isinstance(real.ask(HeartbeatRequest(group_id="g")).body, HeartbeatResponse)


class Relay:
    """A TCP proxy for one connection: what a tunnel is, or a test that wants to break connections."""

    def __init__(self, port: int) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._target = port
        self.moved = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        left, _ = self._listening.accept()
        with left, socket.create_connection(("127.0.0.1", self._target)) as right:
            others = {left: right, right: left}
            while True:
                for sock in select.select(list(others), [], [], WAIT_S)[0]:
                    data = sock.recv(65536)
                    if not data:
                        return
                    self.moved += len(data)
                    others[sock].sendall(data)

    def close(self) -> None:
        self._thread.join(WAIT_S)
        self._listening.close()


def test_a_proxy_in_between_is_not_bypassed() -> None:
    with broker() as (_, server):
        relay = Relay(server.sockets.bound_port(LISTENER))
        with client_of(server, port=relay.port) as real:
            real.make_ready()
            assert not real.is_local
            before = relay.moved
            real.ask(produce(100_000))
            assert relay.moved > before + 100_000
        relay.close()


@pytest.mark.parametrize(
    "change",
    [
        lambda offer: setattr(offer, "broker_name", PREFIX + b"nobody"),  # ECONNREFUSED
        lambda offer: setattr(offer, "broker_name", PREFIX + b"x" * 200),  # too long
        lambda offer: setattr(offer, "client_name", offer.broker_name),  # EADDRINUSE
        lambda offer: setattr(offer, "client_port", offer.client_port ^ 1),
        lambda offer: setattr(offer, "client_host", "127.0.0.2"),
        lambda offer: setattr(offer, "broker_port", offer.broker_port ^ 1),
        lambda offer: setattr(offer, "broker_host", "127.0.0.2"),
        lambda offer: setattr(offer, "broker_host", "nonsense"),
    ],
)
def test_what_cannot_be_reached_is_left_alone(change: Callable[[LocalSocketOffer], object]) -> None:
    with broker() as (script, server), client_of(server) as real:
        script.change = change
        real.make_ready()
        assert not real.is_local
        assert real.client.last_error("1") is None
        assert isinstance(real.ask(HeartbeatRequest(group_id="g")).body, HeartbeatResponse)
        assert len(script.connections) == 1
        assert len(script.asked) == 2


def test_a_full_backlog_is_no_reason_to_wait() -> None:
    with tcp_pair() as (server, client), socket.socket(socket.AF_UNIX) as listening:
        name = PREFIX + os.urandom(16).hex().encode()
        listening.bind(name)
        listening.listen(0)
        waiting = []
        with suppress(BlockingIOError):
            for _ in range(100):
                sock = socket.socket(socket.AF_UNIX)
                waiting.append(sock)
                sock.setblocking(False)
                sock.connect(name)
        assert len(waiting) < 100
        own = PREFIX + os.urandom(16).hex().encode()
        offer = LocalSocketOffer.on(server.getsockname(), server.getpeername(), name, own)
        assert offer.is_for(client)
        assert connect(offer, client, -1) is None
        for sock in waiting:
            sock.close()


@pytest.mark.parametrize("which", ["broker_name", "client_name"])
def test_a_client_goes_to_no_socket_but_ours(which: str) -> None:
    """Or anybody whom a client connects to could have it talk to whatever listens on its machine."""
    with tcp_pair() as (server, client), socket.socket(socket.AF_UNIX) as listening:
        foreign = b"\0somebody-else/" + os.urandom(16).hex().encode()
        listening.bind(foreign)
        listening.listen()
        names = {"broker_name": foreign, "client_name": PREFIX + b"c"}
        if which == "client_name":
            names = {"broker_name": PREFIX + os.urandom(8).hex().encode(), "client_name": foreign + b"c"}
        offer = LocalSocketOffer.on(server.getsockname(), server.getpeername(), **names)
        assert offer.is_for(client)
        assert connect(offer, client, -1) is None
        listening.setblocking(False)
        with pytest.raises(BlockingIOError):
            listening.accept()


def test_a_broker_that_turns_the_connection_away_is_left_alone_next_time() -> None:
    with broker() as (script, server), client_of(server) as real:

        def change(offer: LocalSocketOffer) -> None:
            if len(script.connections) == 1:
                offer.client_name = PREFIX + os.urandom(16).hex().encode()

        script.change = change
        assert not real.client.ready(real.node, real.now)
        real.poll_until(lambda: real.client.connection_failed(real.node))
        assert "local socket" in str(real.client.last_error("1"))
        real.make_ready()
        assert not real.is_local, "it has cost one connection, and shall not cost the next one"
        assert len(script.connections) == 2
        assert real.client.last_error("1") is None
        real.client.disconnect("1")
        real.make_ready()
        assert real.is_local, "what went wrong once need not go wrong for ever"


def closed(real: Real) -> None:
    real.client.close()


def disconnected(real: Real) -> None:
    real.client.disconnect("1")


@pytest.mark.parametrize("end", [closed, disconnected])
def test_a_move_that_the_client_breaks_off_leaves_nothing(end: Callable[[Real], None]) -> None:
    with nothing_left_behind(), broker() as (script, server), client_of(server) as real:
        script.silent = True
        assert not real.client.ready(real.node, real.now)
        real.poll_until(lambda: len(script.asked) == 2)
        former = real.client._connections._moving["1"].socket
        end(real)
        assert former.fileno() == -1


def test_a_local_socket_that_says_nothing_is_waited_for_no_longer_than_any_other() -> None:
    with broker() as (script, server), client_of(server, request_timeout_ms=1_000) as real:
        script.silent = True
        assert not real.client.ready(real.node, real.now)
        real.poll_until(lambda: real.client.connection_failed(real.node))
        assert "local socket" in str(real.client.last_error("1"))
        real.make_ready()
        assert not real.is_local


def test_a_tag_with_something_else_in_it_is_no_offer() -> None:
    for content in (b"", b"\0", b"\xff" * 40, os.urandom(60)):
        assert LocalSocketOffer.in_response(ApiVersionsResponse(unknown_tagged_fields={OFFER_TAG: content})) is None
    assert LocalSocketOffer.in_response(ApiVersionsResponse(unknown_tagged_fields={5: b"x"})) is None
    assert LocalSocketOffer.in_response(ApiVersionsResponse()) is None


def test_an_offer_gets_through_a_response_as_it_is() -> None:
    offer = LocalSocketOffer.on(
        ("::ffff:127.0.0.1", 9092, 0, 0), ("::ffff:127.0.0.1", 40000, 0, 0), PREFIX + b"b", PREFIX + b"c"
    )
    assert (offer.client_host, offer.broker_host) == ("127.0.0.1", "127.0.0.1")
    for version in range(3, 6):
        answer = all_versions()
        plain = answer.encode(version)
        offer.put_into(answer)
        assert len(answer.encode(version)) > len(plain)
        assert LocalSocketOffer.in_response(ApiVersionsResponse.decode(answer.encode(version), version)) == offer


# -- the broker's end


def test_whom_nobody_has_asked_is_turned_away() -> None:
    with broker() as (script, server), client_of(server) as real:
        names: list[bytes] = []
        script.change = lambda offer: names.append(offer.broker_name)
        real.make_ready()
        for own in (b"", PREFIX + os.urandom(16).hex().encode()):
            with socket.socket(socket.AF_UNIX) as stranger:
                stranger.settimeout(WAIT_S)
                if own:
                    stranger.bind(own)
                stranger.connect(names[0])
                with suppress(ConnectionError):
                    assert stranger.recv(1) == b""
        assert isinstance(real.ask(HeartbeatRequest(group_id="g")).body, HeartbeatResponse)
        assert server.sockets.connection_count("127.0.0.1") == 1


def local_of(processor: Processor) -> LocalListener:
    assert processor._local is not None
    assert processor._local.listener is not None
    return processor._local.listener


def test_an_offer_ends_with_its_connection() -> None:
    with broker() as (_, server):
        (processor,) = server.sockets.processors
        with server.connect() as plain:
            plain.ask(1)
            assert ask_for_offer(plain, "somebody-else") is None
            assert not local_of(processor)._offered, "none is made for those who do not know of it"
            assert ask_for_offer(plain) is not None
            assert len(local_of(processor)._offered) == 1
        server.await_disconnects()
        assert not local_of(processor)._offered
        with client_of(server) as real:
            real.make_ready()
            assert not local_of(processor)._offered


def test_one_name_moves_one_connection_once() -> None:
    with broker() as (_, server):
        with server.connect() as plain:
            offer = ask_for_offer(plain)
            assert offer is not None
            assert ask_for_offer(plain) == offer, "asked again, told the same"
            with move(offer) as first:
                first.send(heartbeat(3))
                assert first.receive()[0] == 3
                plain.await_close()
            with move(offer) as second:
                second.await_close()
        server.await_disconnects()


def move(offer: LocalSocketOffer) -> Client:
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(offer.client_name)
    sock.connect(offer.broker_name)
    return Client(sock)


def ask_for_offer(client: Client, name: str = SOFTWARE_NAME, version: int = 4) -> LocalSocketOffer | None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
    client.send(encode_request(request, version, 1, "c"))
    _, body = client.receive()
    return LocalSocketOffer.in_response(ApiVersionsResponse.decode(body, version))


def test_without_descriptors_the_local_socket_is_given_up_and_tcp_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_listener: LocalListener) -> Iterator[Any]:
        raise OSError("too many open files")

    with broker() as (_, server), client_of(server) as real:
        monkeypatch.setattr(LocalListener, "arrivals", fail)
        assert not real.client.ready(real.node, real.now)
        real.poll_until(lambda: real.client.connection_failed(real.node))
        real.make_ready()
        assert not real.is_local
        assert isinstance(real.ask(HeartbeatRequest(group_id="g")).body, HeartbeatResponse)
        with server.connect() as plain:
            assert ask_for_offer(plain) is None


def test_a_system_that_forbids_it_has_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: int, **_options: bool) -> None:
        raise PermissionError("not in this sandbox")

    monkeypatch.setattr(LocalListener, "__init__", fail)
    with broker() as (_, server), client_of(server) as real:
        real.make_ready()
        assert not real.is_local


def test_a_connection_moves_throttled_and_is_not_read_before_that_is_over() -> None:
    config = SocketServerConfig(local_socket_enable=True)
    with nothing_left_behind(), closing(SteppedProcessor(config=config)) as stepped:
        stepped.connect()
        (channel,) = stepped.selector.channels.values()
        offer = channel.context.local_socket = local_of(stepped.processor).offer(channel)
        assert offer is not None
        stepped.selector.request_received(channel)
        channel.handle_mute_event(ChannelMuteEvent.THROTTLE_STARTED)
        channel.handle_mute_event(ChannelMuteEvent.RESPONSE_SENT)
        with move(offer) as moved:
            stepped.turn_until(lambda: channel.transport.socket.family == socket.AF_UNIX)
            moved.send(heartbeat(5))
            for _ in range(3):
                stepped.turn()
            assert not stepped.received
            channel.handle_mute_event(ChannelMuteEvent.THROTTLE_ENDED)
            stepped.selector.unmute(channel)
            stepped.turn_until(lambda: stepped.received)
            assert stepped.handled().correlation_id == 5


# -- the transport


def test_a_unix_socket_is_never_told_to_wait_for_more() -> None:
    """It would have no effect, and costs a call for each large response."""
    left, right = socket.socketpair(socket.AF_UNIX)
    with left, right:
        PlaintextTransportLayer(left).expect(1000)
        assert left.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == 1


def test_replacing_a_socket_keeps_what_is_watched() -> None:
    selector = Selector()
    with tcp_pair() as (server, client):
        left, right = socket.socketpair(socket.AF_UNIX)
        left.setblocking(False)
        channel = selector.register("c", server)
        former = selector.replace_socket(channel, left)
        assert former.socket is server
        client.sendall(heartbeat(1))
        selector.poll(0)
        assert not selector.completed_receives, "the former socket is not looked at"
        right.sendall(heartbeat(2))
        selector.poll(WAIT_S * 1000)
        ((received, payload),) = selector.completed_receives
        assert received is channel
        assert bytes(payload) == heartbeat(2)[4:]
        right.close()
        selector.poll(WAIT_S * 1000)
        assert [lost for lost, _ in selector.disconnected] == [channel]
    selector.close_all()


def test_the_twin_moves_connections_as_well() -> None:
    if os.environ.get("BARNABAS_PURE") == "1":
        pytest.skip("this is the twin")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", __file__],
        env={**os.environ, "BARNABAS_PURE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert run.returncode == 0, run.stdout[-3_000:]
