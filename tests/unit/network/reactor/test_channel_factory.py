"""Channel factories on a single node: handshake, authentication, and the principal in the connection's context."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.config.kafka_config import KafkaConfig
from barnabas.broker.node.kafka_raft_server import KafkaRaftServer
from barnabas.broker.node.storage_formatter import format_storage
from barnabas.clients.admin import KafkaAdminClient
from barnabas.clients.common import network_client
from barnabas.clients.common.blocking_client import BlockingClient, ClientError
from barnabas.network.client.host_resolver import ResolvedAddress
from barnabas.network.reactor.channel import ANONYMOUS, Authenticator, KafkaChannel, channel_principal
from barnabas.network.reactor.channel_factory import plaintext
from barnabas.network.reactor.poller import READ, WRITE
from barnabas.network.reactor.selector import Selector
from barnabas.network.transport import PlaintextTransportLayer, TransportLayer
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.quota.client_quota_manager import principal_of
from barnabas.security.principal import KafkaPrincipal
from barnabas.server.data_plane import DataPlane
from network_fixtures import WAIT_S, tcp_pair

ALICE = KafkaPrincipal("User", "alice")


class GreetingTransport(PlaintextTransportLayer):
    """A handshake of one byte in each direction: the server's first, as soon as the socket is writable."""

    __slots__ = ("greeted", "is_ready")

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self.greeted = False
        self.is_ready = False

    def handshake(self) -> int:
        if not self.greeted:
            self.send(b"s")
            self.greeted = True
            return READ
        try:
            self.is_ready = self.recv(1) == b"c"
        except BlockingIOError:
            return READ
        return 0


class KnowsAlice:
    """Completes after its first round, and knows who is there then."""

    def __init__(self) -> None:
        self.complete = False
        self.principal: Any = None

    def authenticate(self, channel: KafkaChannel) -> None:
        assert channel_principal(channel) is None
        self.complete, self.principal = True, ALICE


def greeting(channel_id: str, sock: socket.socket) -> tuple[TransportLayer, Authenticator]:
    return GreetingTransport(sock), KnowsAlice()


def test_a_handshake_chooses_what_is_watched() -> None:
    class Asking(GreetingTransport):
        __slots__ = ()

        def handshake(self) -> int:
            if self.greeted or asked:
                return super().handshake()
            asked.append(1)
            return WRITE

    asked: list[int] = []
    selector = Selector(channel_factory=lambda _id, sock: (Asking(sock), KnowsAlice()))
    with tcp_pair() as (server, client):
        channel = selector.register("c", server)
        client.sendall(b"c")
        selector.poll(WAIT_S * 1000)
        assert (channel.events, channel_principal(channel)) == (WRITE, None)
        selector.poll(WAIT_S * 1000)
        assert (client.recv(1), channel.events) == (b"s", READ)
        assert selector.authenticated == []
        selector.poll(WAIT_S * 1000)
        assert (selector.authenticated, channel.events, channel_principal(channel)) == ([channel], READ, ALICE)
        selector.close_all()


def node(tmp_path: Path, **options: Any) -> KafkaRaftServer:
    config = KafkaConfig.from_properties(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
            "log.dirs": str(tmp_path / "data"),
        }
    )
    format_storage(config)
    return KafkaRaftServer(config, **options)


def test_handlers_and_quotas_of_a_node_see_the_principal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    new_request = DataPlane.new_request

    def noting(self: DataPlane, *arguments: Any) -> Any:
        request = new_request(self, *arguments)
        seen.append((request.context.listener_name, principal_of(request)))
        return request

    monkeypatch.setattr(DataPlane, "new_request", noting)
    server = node(tmp_path, channel_factories={"PLAINTEXT": greeting})
    server.startup()

    class ClientGreeting(GreetingTransport):
        __slots__ = ()

        def handshake(self) -> int:
            if not self.greeted:
                self.greeted = bool(self.send(b"c"))
            try:
                self.is_ready = self.recv(1) == b"s"
            except BlockingIOError:
                return READ
            return 0

    try:
        with BlockingClient(
            server.bootstrap_servers, channel_factory=lambda _id, sock, _host: (ClientGreeting(sock), ANONYMOUS)
        ) as client:
            assert (
                client.send(ApiVersionsRequest(client_software_name="t", client_software_version="1")).error_code == 0
            )
        assert ("PLAINTEXT", ALICE) in seen
        assert {who for listener, who in seen if listener == "PLAINTEXT"} == {ALICE}
        assert {who for listener, who in seen if listener == "CONTROLLER"} <= {None}
    finally:
        server.shutdown()


def test_a_client_makes_its_channels_with_that_factory(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[Any] = []

    class Noting(Selector):
        def __init__(self, **options: Any) -> None:
            chosen.append(options["channel_factory"])
            super().__init__(**options)

    monkeypatch.setattr(network_client, "client_channel_factory", lambda _values: greeting)
    monkeypatch.setattr(network_client, "Selector", Noting)
    with KafkaAdminClient({"bootstrap.servers": "127.0.0.1:1"}):
        assert chosen == [greeting]


def test_the_factory_of_a_client_gets_the_host_name() -> None:
    made: list[tuple[str, str]] = []

    def noting(channel_id: str, sock: socket.socket, host: str) -> tuple[TransportLayer, Authenticator]:
        made.append((channel_id, host))
        return plaintext(channel_id, sock, host)

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        address = [ResolvedAddress(socket.AF_INET, "127.0.0.1")]
        with (
            BlockingClient(
                f"kafka.example.com:{port}",
                channel_factory=noting,
                resolver=lambda _host: address,
                connect_timeout_ms=1,
            ) as client,
            pytest.raises(ClientError),
        ):
            client.send(ApiVersionsRequest())
    assert set(made) == {("-1", "kafka.example.com")}
