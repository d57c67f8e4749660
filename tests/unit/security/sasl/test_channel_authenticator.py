"""SASL on real connections: a processor's clients, and a client's selector."""

from __future__ import annotations

import logging
import math
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from operator import contains

import pytest

from barnabas.common.clock import MockClock
from barnabas.common.errors import SaslAuthenticationError
from barnabas.metrics.registry import Metrics
from barnabas.network.client.selector_metrics import SelectorMetrics
from barnabas.network.reactor.channel import Authenticator, ChannelState, KafkaChannel, channel_principal, is_ready
from barnabas.network.reactor.memory_pool import UNBOUNDED, MemoryPool, SimpleMemoryPool
from barnabas.network.reactor.selector import CloseMode, Selector
from barnabas.network.reactor.send import NetworkSend
from barnabas.network.server.config import SocketServerConfig
from barnabas.network.server.endpoint import SecurityProtocol
from barnabas.network.transport import PlaintextTransportLayer, TransportLayer
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeResponse
from barnabas.security.principal import KafkaPrincipal
from barnabas.security.sasl.channel_authenticator import (
    FRAMES_AT_ONCE,
    SaslClientChannelAuthenticator,
    SaslServerChannelAuthenticator,
)
from barnabas.security.sasl.client_authenticator import SaslClientAuthenticator
from barnabas.security.sasl.plain import PlainClient
from barnabas.security.sasl.server_authenticator import SaslServerAuthenticator, SaslServerSettings
from network_fixtures import WAIT_S, Client, SteppedProcessor, heartbeat
from unit.security.sasl.sasl_peers import PASSWORDS, decode, handshake, plain, settings, versions_request

ALICE = KafkaPrincipal("User", "alice")
DELAY_MS = 100


def framed(*frames: bytes) -> bytes:
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


LOG_IN = (handshake("PLAIN"), plain("alice"))


@contextmanager
def listening(
    sasl: SaslServerSettings | None = None, *, pool: MemoryPool = UNBOUNDED, delay_ms: int = DELAY_MS
) -> Iterator[SteppedProcessor]:
    """A processor of a SASL listener that echoes requests."""
    clock = MockClock()
    chosen = settings() if sasl is None else sasl

    def factory(_channel_id: str, sock: socket.socket) -> tuple[TransportLayer, Authenticator]:
        authenticator = SaslServerAuthenticator(chosen, clock=clock)
        return PlaintextTransportLayer(sock), SaslServerChannelAuthenticator(authenticator)

    stepped = SteppedProcessor(
        script=lambda request, _local: stepped.answer(request),
        clock=clock,
        pool=pool,
        channel_factory=factory,
        config=SocketServerConfig(connection_failed_authentication_delay_ms=delay_ms),
        security_protocol=SecurityProtocol.SASL_PLAINTEXT,
    )
    with closing(stepped):
        yield stepped


def exchange(stepped: SteppedProcessor, client: Client, *frames: bytes) -> list[bytes]:
    """Sends frames at once, takes turns, and returns as many responses, with their lengths."""
    client.send(framed(*frames))
    return [response(stepped, client) for _ in frames]


def response(stepped: SteppedProcessor, client: Client) -> bytes:
    """Takes turns until there is a response, and returns it with its length."""

    def arrived() -> bool:
        stepped.handle_next()
        return not client.is_silent

    stepped.turn_until(arrived)
    number, rest = client.receive()
    return (len(rest) + 4).to_bytes(4, "big") + number.to_bytes(4, "big", signed=True) + rest


def await_close(stepped: SteppedProcessor, client: Client) -> None:
    """Takes turns until the connection is closed; fails if something was sent before."""
    stepped.turn_until(lambda: stepped.disconnected)
    client.await_close()


def only_channel(stepped: SteppedProcessor) -> KafkaChannel:
    (channel,) = stepped.selector.channels.values()
    return channel


@pytest.mark.mechanism("A04")
class TestBroker:
    def test_a_client_is_served_after_it_is_authenticated(self) -> None:
        with listening() as stepped:
            client = stepped.connect()
            exchange(stepped, client, versions_request())
            channel = only_channel(stepped)
            assert (channel.state, channel.context.principal) == (ChannelState.AUTHENTICATE, None)
            exchange(stepped, client, handshake("PLAIN"))
            final = decode(SaslAuthenticateResponse, exchange(stepped, client, plain("alice"))[0], 2)
            assert final.error_code == 0
            assert (channel.state, channel.context.principal) == (ChannelState.READY, ALICE)
            assert (channel.context.client_software_name, channel.context.client_software_version) == ("test", "1.0")
            assert channel.max_receive_size == SocketServerConfig().socket_request_max_bytes
            client.send(heartbeat(5))
            assert response(stepped, client)[4:8] == b"\0\0\0\5"
            assert stepped.selector.stats.successful_authentications == 1

    def test_everything_at_once(self) -> None:
        """Frames that were read ahead are not forgotten, neither those of the exchange nor the request after it."""
        with listening() as stepped:
            client = stepped.connect()
            client.send(framed(versions_request(), *LOG_IN) + heartbeat(5) + heartbeat(6))
            numbers = [response(stepped, client)[4:8] for _ in range(5)]
            assert numbers == [b"\0\0\0\7"] * 3 + [b"\0\0\0\5", b"\0\0\0\6"]

    def test_byte_by_byte(self) -> None:
        with listening() as stepped:
            client = stepped.connect()
            for byte in framed(*LOG_IN)[:-1]:
                client.send(bytes([byte]))
                stepped.turn(5)
            assert not is_ready(only_channel(stepped))
            client.send(framed(*LOG_IN)[-1:])
            response(stepped, client)
            response(stepped, client)
            assert is_ready(only_channel(stepped))

    def test_a_client_that_sends_without_a_pause_does_not_occupy_the_thread(self) -> None:
        unknown = bytearray(versions_request())
        unknown[3] = 99
        with listening() as stepped:
            client = stepped.connect()
            many = 5 * FRAMES_AT_ONCE
            client.send(framed(*([bytes(unknown)] * many)))
            stepped.turn(WAIT_S * 1000)
            first = response(stepped, client)
            assert [response(stepped, client) for _ in range(many - 1)] == [first] * (many - 1)
            assert only_channel(stepped).state is ChannelState.AUTHENTICATE

    def test_the_response_to_a_failure_comes_after_the_delay(self, caplog: pytest.LogCaptureFixture) -> None:
        with listening() as stepped, caplog.at_level(logging.INFO):
            client, other = stepped.connect(), stepped.connect()
            exchange(stepped, client, handshake("PLAIN"))
            client.send(framed(plain("alice", "hush-hush")))
            stepped.turn_until(lambda: stepped.selector.stats.failed_authentications)
            stepped.clock.advance(DELAY_MS - 1)
            stepped.turn()
            assert client.is_silent
            exchange(stepped, other, *LOG_IN)  # nobody else waits
            stepped.clock.advance(1)
            stepped.turn()
            refused = decode(SaslAuthenticateResponse, response(stepped, client), 2)
            assert (refused.error_code, refused.error_message) == (
                58,
                "Authentication failed: Invalid username or password",
            )
            await_close(stepped, client)
            assert len(stepped.selector.channels) == 1
            assert "Failed authentication with" in caplog.text
            assert "hush" not in caplog.text

    def test_a_poll_does_not_outlast_the_delay(self) -> None:
        with listening() as stepped:
            client = stepped.connect()
            client.send(framed(b"x"))
            stepped.turn_until(lambda: stepped.selector.stats.failed_authentications)
            stepped.clock.advance(DELAY_MS)
            stepped.turn(WAIT_S * 1000)
            assert stepped.disconnected

    def test_without_a_delay(self) -> None:
        with listening(delay_ms=0) as stepped:
            client = stepped.connect()
            client.send(framed(handshake("GSSAPI")))
            refused = decode(SaslHandshakeResponse, response(stepped, client), 1)
            assert (refused.error_code, refused.mechanisms[0]) == (33, "PLAIN")
            await_close(stepped, client)

    @pytest.mark.parametrize(
        "frames",
        [(b"",), (b"GET / HTTP/1.1",), (plain("alice"),), (versions_request(), versions_request())],
    )
    def test_a_wrong_order_gets_no_response(self, frames: tuple[bytes, ...]) -> None:
        with listening(delay_ms=0) as stepped:
            client = stepped.connect()
            exchange(stepped, client, *frames[:-1])
            client.send(framed(frames[-1]))
            await_close(stepped, client)
            assert stepped.selector.stats.failed_authentications == 1

    @pytest.mark.parametrize("size", [-1, 1_001, 2**31 - 1])
    def test_the_size_of_a_frame_is_limited(self, size: int) -> None:
        with listening(settings(max_receive_size=1_000), delay_ms=0) as stepped:
            client = stepped.connect()
            client.send(size.to_bytes(4, "big", signed=True))
            await_close(stepped, client)
            assert stepped.selector.stats.failed_authentications == 1

    def test_after_the_authentication_requests_may_be_larger(self) -> None:
        with listening(settings(max_receive_size=200)) as stepped:
            client = stepped.connect()
            exchange(stepped, client, *LOG_IN)
            client.send(heartbeat(5, size=1_000))
            assert response(stepped, client)[4:8] == b"\0\0\0\5"

    def test_memory_is_returned(self) -> None:
        pool = SimpleMemoryPool(1_000, 1_000)
        with listening(pool=pool) as stepped:
            client = stepped.connect()
            exchange(stepped, client, *LOG_IN)
            assert pool.available == 1_000

    def test_an_exhausted_pool_delays_the_authentication(self) -> None:
        pool = SimpleMemoryPool(1_000, 1_000)
        with listening(pool=pool) as stepped:
            client = stepped.connect()
            assert pool.try_reserve(1_000)
            client.send(framed(*LOG_IN))
            for _ in range(3):
                stepped.turn(20)
            assert client.is_silent
            pool.release(1_000)
            response(stepped, client)
            response(stepped, client)
            assert is_ready(only_channel(stepped))

    def test_a_client_that_leaves(self) -> None:
        with listening() as stepped:
            client = stepped.connect()
            client.send(framed(handshake("PLAIN"))[:-1])
            client.close()
            stepped.turn_until(lambda: stepped.disconnected)
            assert stepped.selector.stats.failed_authentications == 0


@pytest.mark.mechanism("A09")
class TestSessions:
    def test_a_client_authenticates_again(self) -> None:
        with listening(settings({"PLAIN": 10_000})) as stepped:
            client = stepped.connect()
            exchange(stepped, client, *LOG_IN)
            stepped.clock.advance(9_999)
            exchange(stepped, client, *LOG_IN)
            stepped.clock.advance(9_999)
            client.send(heartbeat(5))
            assert response(stepped, client)[4:8] == b"\0\0\0\5"
            assert only_channel(stepped).context.principal == ALICE
            stats = stepped.selector.stats
            assert (stats.successful_authentications, stats.successful_reauthentications) == (1, 1)

    def test_also_after_the_session_has_ended(self) -> None:
        with listening(settings({"PLAIN": 10_000})) as stepped:
            client = stepped.connect()
            exchange(stepped, client, *LOG_IN)
            stepped.clock.advance(60_000)
            exchange(stepped, client, *LOG_IN)
            client.send(heartbeat(5))
            assert response(stepped, client)[4:8] == b"\0\0\0\5"

    def test_the_next_request_of_an_expired_session_closes_the_connection(self) -> None:
        with listening(settings({"PLAIN": 10_000})) as stepped:
            client = stepped.connect()
            exchange(stepped, client, *LOG_IN)
            stepped.clock.advance(10_001)
            for _ in range(3):
                stepped.turn()
            assert not stepped.disconnected  # there is no timer
            client.send(heartbeat(5))
            await_close(stepped, client)
            assert (stepped.received, stepped.processor.expired_connections_killed) == (0, 1)
            assert stepped.quotas.total == 0

    def test_another_principal(self) -> None:
        with listening(settings({"PLAIN": 10_000}), delay_ms=0) as stepped:
            client = stepped.connect()
            exchange(stepped, client, *LOG_IN)
            exchange(stepped, client, handshake("PLAIN"))
            refused = decode(SaslAuthenticateResponse, exchange(stepped, client, plain("bob"))[0], 2)
            assert refused.error_message == (
                "Cannot change principals during re-authentication from User.alice: User.bob"
            )
            await_close(stepped, client)
            stats = stepped.selector.stats
            assert (stats.failed_authentications, stats.failed_reauthentications) == (0, 1)

    def test_a_handshake_without_a_session_end_is_a_request(self) -> None:
        with listening() as stepped:
            client = stepped.connect()
            exchange(stepped, client, *LOG_IN)
            stepped.receive((client, framed(handshake("PLAIN"))))
            assert is_ready(only_channel(stepped))

    def test_a_second_handshake_within_a_second_is_a_request(self) -> None:
        with listening(settings({"PLAIN": 10_000})) as stepped:
            client = stepped.connect()
            exchange(stepped, client, *LOG_IN)
            exchange(stepped, client, *LOG_IN)
            stepped.clock.advance(999)
            stepped.receive((client, framed(handshake("PLAIN"))))

    @pytest.mark.parametrize(("version", "unaware"), [(0, 1), (1, 0), (2, 0)])
    def test_clients_that_do_not_learn_when_their_session_ends_are_counted(self, version: int, unaware: int) -> None:
        with listening(settings({"PLAIN": 10_000})) as stepped:
            exchange(stepped, stepped.connect(), handshake("PLAIN"), plain("alice", version=version))
            stats = stepped.selector.stats
            assert (stats.successful_authentications, stats.successful_authentications_no_reauth) == (1, unaware)

    def test_idle_connections_are_not_counted_as_ended_sessions(self) -> None:
        with listening(settings({"PLAIN": 10_000})) as stepped:
            exchange(stepped, stepped.connect(), *LOG_IN)
            stepped.clock.advance(600_001)
            stepped.turn_until(lambda: stepped.disconnected)
            assert stepped.selector.stats.idle_closed == 1
            assert stepped.processor.expired_connections_killed == 0

    def test_memory_of_the_handshake_is_returned(self) -> None:
        pool = SimpleMemoryPool(1_000, 1_000)
        with listening(settings({"PLAIN": 10_000}), pool=pool) as stepped:
            client = stepped.connect()
            exchange(stepped, client, *LOG_IN)
            exchange(stepped, client, *LOG_IN)
            assert pool.available == 1_000


class Dialer:
    """A client's selector, connected to a stepped processor. Both take turns."""

    def __init__(self, stepped: SteppedProcessor, name: str = "alice", password: str | None = None) -> None:
        self._stepped = stepped
        password = PASSWORDS[name] if password is None else password
        authenticator = SaslClientAuthenticator("PLAIN", lambda: PlainClient(name, password), clock=stepped.clock)
        self.selector = Selector(
            clock=stepped.clock,
            channel_factory=lambda _id, sock: (
                PlaintextTransportLayer(sock),
                SaslClientChannelAuthenticator(authenticator),
            ),
        )
        self.received: list[int] = []
        self.lost: list[tuple[KafkaChannel, ChannelState]] = []
        stepped.accept_from(
            lambda address: self.selector.connect(
                "n", address, family=socket.AF_INET, send_buffer=-1, receive_buffer=-1
            )
        )
        (self.channel,) = self.selector.channels.values()

    def turn_until(self, reached: Callable[[], object]) -> None:
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            if reached():
                return
            self.selector.poll(5)
            self.received += [int.from_bytes(payload[:4], "big") for _, payload in self.selector.completed_receives]
            self.lost += self.selector.disconnected
            self._stepped.turn(5)
            self._stepped.handle_next()
        raise AssertionError(f"{WAIT_S} s of turns did not get there")

    def send(self, number: int) -> None:
        self.selector.send(self.channel, NetworkSend([heartbeat(number)]))

    def close(self) -> None:
        self.selector.close(self.channel, CloseMode.DISCARD_NO_NOTIFY)
        self.selector.close_all()


class TestClient:
    def test_it_is_ready_after_it_is_authenticated(self) -> None:
        with listening() as stepped, closing(Dialer(stepped)) as dialer:
            assert not dialer.selector.is_channel_ready("n")
            dialer.turn_until(lambda: dialer.selector.is_channel_ready("n"))
            dialer.send(5)
            dialer.turn_until(lambda: dialer.received == [5])
            assert dialer.selector.stats.successful_authentications == 1

    def test_a_wrong_password(self) -> None:
        with listening(delay_ms=0) as stepped, closing(Dialer(stepped, password="wrong")) as dialer:
            dialer.turn_until(lambda: dialer.lost)
            ((channel, state),) = dialer.lost
            assert state is ChannelState.AUTHENTICATION_FAILED
            assert isinstance(channel.error, SaslAuthenticationError)
            assert str(channel.error) == "Authentication failed: Invalid username or password"

    @pytest.mark.mechanism("A09")
    def test_it_authenticates_again_before_a_request(self) -> None:
        with listening(settings({"PLAIN": 10_000})) as stepped, closing(Dialer(stepped)) as dialer:
            dialer.turn_until(lambda: dialer.selector.is_channel_ready("n"))
            stepped.clock.advance(8_400)
            dialer.send(5)
            dialer.turn_until(lambda: dialer.received == [5])
            assert dialer.selector.stats.successful_reauthentications == 0
            stepped.clock.advance(1_500)
            dialer.send(6)
            assert not dialer.selector.is_channel_ready("n")
            dialer.turn_until(lambda: dialer.received == [5, 6])
            assert dialer.selector.stats.successful_reauthentications == 1
            assert stepped.selector.stats.successful_reauthentications == 1
            stepped.clock.advance(60_000)
            dialer.send(7)
            dialer.turn_until(lambda: dialer.received == [5, 6, 7])
            assert stepped.processor.expired_connections_killed == 0

    @pytest.mark.mechanism("A09")
    def test_the_latency_of_authenticating_again(self) -> None:
        with listening(settings({"PLAIN": 10_000})) as stepped, closing(Dialer(stepped)) as dialer:
            registry = Metrics(clock=stepped.clock)
            metrics = SelectorMetrics(registry, "test", dialer.selector.stats)

            def measured(name: str) -> float:
                metric = registry.metric(registry.metric_name(name, "test-metrics"))
                assert metric is not None
                return float(metric.value(stepped.clock.milliseconds()))

            dialer.turn_until(lambda: dialer.selector.is_channel_ready("n"))
            assert measured("successful-authentication-no-reauth-total") == 1, "brokers do not authenticate again"
            assert math.isnan(measured("reauthentication-latency-max"))
            for number, latency_ms in enumerate((40, 20)):
                stepped.clock.advance(9_900)
                dialer.send(number)
                stepped.clock.advance(latency_ms)
                dialer.turn_until(partial(contains, dialer.received, number))
                metrics.polled(stepped.clock.milliseconds())
            assert dialer.selector.stats.successful_reauthentications == 2
            assert measured("reauthentication-latency-avg") == 30
            assert measured("reauthentication-latency-max") == 40

    @pytest.mark.mechanism("A09")
    def test_responses_to_earlier_requests_are_delivered(self) -> None:
        with listening(settings({"PLAIN": 10_000})) as stepped, closing(Dialer(stepped)) as dialer:
            dialer.turn_until(lambda: dialer.selector.is_channel_ready("n"))
            for number in (1, 2, 3):
                dialer.send(number)
            stepped.clock.advance(9_900)
            dialer.send(4)
            dialer.turn_until(lambda: len(dialer.received) == 4)
            assert dialer.received == [1, 2, 3, 4]
            assert dialer.selector.stats.successful_reauthentications == 1


def test_a_token_that_the_socket_does_not_take_at_once() -> None:
    """The channel is complete only when the last response is out."""

    class SlowTransport(PlaintextTransportLayer):
        __slots__ = ("credit",)

        def __init__(self, sock: socket.socket) -> None:
            super().__init__(sock)
            self.credit = 1_000
            send = self.send

            def limited(data: bytes) -> int:
                if not self.credit:
                    raise BlockingIOError
                count = send(memoryview(data)[: self.credit])
                self.credit -= count
                return count

            self.send = limited

    left, right = socket.socketpair()
    transport = SlowTransport(left)
    left.setblocking(False)
    authenticator = SaslServerChannelAuthenticator(SaslServerAuthenticator(settings()))
    channel = KafkaChannel("c", transport, 10**6, UNBOUNDED, authenticator)
    with left, right:
        right.sendall(framed(*LOG_IN))
        transport.credit = 10
        assert authenticator.authenticate(channel) == 4
        transport.credit = 100
        assert authenticator.authenticate(channel) in {1, 4}
        while not authenticator.complete:
            transport.credit = 5
            authenticator.authenticate(channel)
        assert channel_principal(channel) == ALICE
        assert len(right.recv(1 << 16)) > 50
