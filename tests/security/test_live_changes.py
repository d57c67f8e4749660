"""Changes of a running node's security: new connections follow at once, and open ones stay."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import pytest
from benchmarks.waiting import until

from barnabas import EmbeddedBroker, KafkaAdminClient
from barnabas.clients.admin import ConfigResource, NewTopic
from barnabas.common.errors import (
    InvalidConfigurationError,
    InvalidRequestError,
    SaslAuthenticationError,
    TopicAuthorizationError,
)
from secured_node import ADMIN, ALICE, JAAS, WAIT_S, address, secured, secured_node, store
from tls_fixtures import LOCAL, PKI, Identity

BROKER: Final = ConfigResource.broker(1)
API_VERSIONS: Final = struct.pack(">ihhih", 10, 18, 0, 1, -1)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with secured_node(tmp_path_factory.mktemp("live")) as running:
        yield running


@pytest.fixture
def admin(node: EmbeddedBroker, tmp_path: Path) -> Iterator[KafkaAdminClient]:
    with KafkaAdminClient(**secured(node, tmp_path, "PASSWORDS", ADMIN)) as client:
        yield client


@contextmanager
def changed(admin: KafkaAdminClient, settings: dict[str, str]) -> Iterator[None]:
    admin.incremental_alter_configs({BROKER: dict(settings)})
    try:
        yield
    finally:
        admin.incremental_alter_configs({BROKER: dict.fromkeys(settings)})


@contextmanager
def connected(node: EmbeddedBroker, tmp_path: Path, identity: Identity | None = None) -> Iterator[ssl.SSLSocket]:
    """Opens a TLS connection, with which `alive` can be asked."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=PKI.authority.pem)
    if identity is not None:
        context.load_cert_chain(store(tmp_path, identity, "identity"))
    host, _, port = address(node, "TLS").rpartition(":")
    with (
        socket.create_connection((host, int(port)), WAIT_S) as plain,
        context.wrap_socket(plain, server_hostname=host) as wrapped,
    ):
        yield wrapped


def alive(connection: ssl.SSLSocket) -> bool:
    """Whether the broker responds on a connection. It drops one whose certificate it does not trust."""
    try:
        connection.sendall(API_VERSIONS)
        received = connection.recv(4)
        if not received:
            return False
        rest = struct.unpack(">i", received)[0]
        while rest:
            rest -= len(connection.recv(rest))
    except OSError:
        return False
    return True


@pytest.mark.mechanism("A02")
def test_key_store(node: EmbeddedBroker, admin: KafkaAdminClient, tmp_path: Path) -> None:
    renewed = PKI.authority.issue("CN=broker,O=Castle", LOCAL)
    setting = "listener.name.tls.ssl.keystore.location"
    with connected(node, tmp_path) as old:
        with changed(admin, {setting: str(store(tmp_path, renewed, "renewed"))}):
            with connected(node, tmp_path) as new:
                assert new.getpeercert(binary_form=True) == renewed.der
                assert alive(new)
            assert alive(old)
        assert alive(old)


@pytest.mark.mechanism("A02")
def test_a_key_store_file_that_was_overwritten(node: EmbeddedBroker, admin: KafkaAdminClient, tmp_path: Path) -> None:
    """To set the location again, unchanged, reads the file again."""
    setting = "listener.name.tls.ssl.keystore.location"
    path = store(tmp_path, PKI.authority.issue("CN=broker,O=Castle", LOCAL), "renewed")
    with changed(admin, {setting: str(path)}):
        renewed = PKI.authority.issue("CN=broker,O=Castle", LOCAL)
        store(tmp_path, renewed, "renewed")
        admin.incremental_alter_configs({BROKER: {setting: str(path)}})
        with connected(node, tmp_path) as new:
            assert new.getpeercert(binary_form=True) == renewed.der


@pytest.mark.mechanism("A02")
def test_trust_store(node: EmbeddedBroker, admin: KafkaAdminClient, tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_text(PKI.authority.pem + PKI.other_authority.pem)

    def trusted(identity: Identity) -> bool:
        with connected(node, tmp_path, identity) as connection:
            return alive(connection)

    assert not trusted(PKI.stranger)
    with changed(admin, {"listener.name.tls.ssl.truststore.location": str(both)}):
        assert trusted(PKI.stranger)
        with connected(node, tmp_path, PKI.stranger) as open_one:
            assert alive(open_one)
            admin.incremental_alter_configs({BROKER: {"listener.name.tls.ssl.truststore.location": None}})
            assert not trusted(PKI.stranger)
            assert alive(open_one)


@pytest.mark.mechanism("A05")
def test_users_of_a_listener(node: EmbeddedBroker, admin: KafkaAdminClient, tmp_path: Path) -> None:
    carol = secured(node, tmp_path, "PASSWORDS", ("carol", "carol-secret"))
    with_carol = JAAS.replace(";", ' user_carol="carol-secret";')
    with changed(admin, {"listener.name.passwords.plain.sasl.jaas.config": with_carol}):
        client = KafkaAdminClient(**carol)
        client.describe_cluster()
    with client:
        client.describe_cluster()  # on the open connection; another one is refused
        with pytest.raises(SaslAuthenticationError), KafkaAdminClient(**carol) as newcomer:
            newcomer.describe_cluster()


@pytest.mark.mechanism("A11")
def test_super_users(node: EmbeddedBroker, admin: KafkaAdminClient, tmp_path: Path) -> None:
    """The broker's authorizer and the controller's, to which the request is forwarded, follow at once."""
    with KafkaAdminClient(**secured(node, tmp_path, "BOTH", ALICE)) as alice:
        with pytest.raises(TopicAuthorizationError):
            alice.create_topics([NewTopic("parcels", 1)])
        with changed(admin, {"super.users": "User:admin;User:alice"}):
            alice.create_topics([NewTopic("parcels", 1)])
            assert "parcels" in alice.list_topics()
        assert "parcels" not in alice.list_topics()
        with pytest.raises(InvalidRequestError, match=r"super\.users=alice"):
            admin.incremental_alter_configs({BROKER: {"super.users": "alice"}})


# -- listeners


def listeners_with(node: EmbeddedBroker, extra: str, protocol: str, port: int = 0) -> dict[str, str]:
    """Returns the settings with which the node has one more listener."""
    config = node.server.config
    found = {
        name: f"{config.properties[name]},{extra}://127.0.0.1:{port}" for name in ("listeners", "advertised.listeners")
    }
    protocols = config.properties["listener.security.protocol.map"]
    return {**found, "listener.security.protocol.map": f"{protocols},{extra}:{protocol}"}


@pytest.mark.mechanism("A02", "A04")
def test_a_listener_is_added_and_removed(node: EmbeddedBroker, admin: KafkaAdminClient, tmp_path: Path) -> None:
    jaas = JAAS.replace(";", ' user_dave="dave-secret";')
    added = listeners_with(node, "LATE", "SASL_SSL") | {
        "listener.name.late.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.late.plain.sasl.jaas.config": jaas,
    }
    for _ in range(2):  # a name can be used again
        with changed(admin, added):
            dave = secured(node, tmp_path, "BOTH", ("dave", "dave-secret")) | {
                "bootstrap_servers": until(lambda: registered(node, "LATE"))
            }
            with KafkaAdminClient(**dave) as client:
                (broker,) = client.describe_cluster().nodes
            assert f"{broker.host}:{broker.port}" == dave["bootstrap_servers"], "metadata name the client's listener"
            idle = socket.create_connection((broker.host, broker.port), WAIT_S)
        with idle:
            assert idle.recv(1) == b"", "the connections of a removed listener are closed"
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((broker.host, broker.port), WAIT_S)
        until(lambda: registered(node, "LATE") is None)
        admin.describe_cluster()  # the connections of other listeners stay


@pytest.mark.mechanism("A02")
def test_listeners_that_cannot_work_are_refused(node: EmbeddedBroker, admin: KafkaAdminClient) -> None:
    given = node.server.config.properties
    port = int(address(node, "TLS").rpartition(":")[2])
    refused: list[tuple[dict[str, str], str]] = [
        (listeners_with(node, "LATE", "SSL", port), "cannot open LATE"),
        (listeners_with(node, "LATE", "SASL_SSL"), "PLAIN has no users"),
        ({"listeners": given["listeners"].replace("TLS://127.0.0.1:0", "TLS://127.0.0.1:9")}, "cannot become TLS"),
        (
            {"listeners": given["listeners"].replace("CONTROLLER://127.0.0.1:0", "CONTROLLER://127.0.0.1:9")},
            "controller",
        ),
        ({"advertised.listeners": given["advertised.listeners"] + ",LATE://127.0.0.1:9"}, "LATE"),
        ({"listener.name.tls.ssl.principal.mapping.rules": "DEFAULT"}, "cannot be changed for the existing listener"),
    ]
    for settings, message in refused:
        with pytest.raises((InvalidRequestError, InvalidConfigurationError), match=message):
            admin.incremental_alter_configs({BROKER: dict(settings)})
    admin.describe_cluster()


@pytest.mark.mechanism("A07")
def test_the_threads_of_replaced_keys_end(node: EmbeddedBroker, admin: KafkaAdminClient) -> None:
    class KeySets(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"keys": []}')

        def log_message(self, *_: object) -> None: ...

    def refreshing() -> int:
        return sum(thread.name == "jwks-refresh" for thread in threading.enumerate())

    before = refreshing()
    prefix = "listener.name.both.oauthbearer.sasl"
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
    with ThreadingHTTPServer(("127.0.0.1", 0), KeySets) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        settings = {f"{prefix}.jaas.config": module, f"{prefix}.oauthbearer.jwks.endpoint.url": url}
        with changed(admin, settings):
            assert refreshing() == before + 1
            for path in ("/one", "/two"):
                admin.incremental_alter_configs({BROKER: {f"{prefix}.oauthbearer.jwks.endpoint.url": url + path}})
                until(lambda: refreshing() == before + 1)
        until(lambda: refreshing() == before)
        server.shutdown()


@pytest.mark.mechanism("A02")
def test_an_added_listener_is_there_after_a_restart(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with EmbeddedBroker(data) as node, KafkaAdminClient({"bootstrap.servers": node.bootstrap_servers}) as admin:
        properties = node.server.config.properties
        added = {"listeners": f"{properties['listeners']},LATE://127.0.0.1:0"}
        if "advertised.listeners" in properties:
            added["advertised.listeners"] = f"{properties['advertised.listeners']},LATE://127.0.0.1:0"
        protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,LATE:PLAINTEXT"
        admin.incremental_alter_configs({BROKER: {**added, "listener.security.protocol.map": protocols}})
        until(lambda: registered(node, "LATE"))
    with EmbeddedBroker(data) as node:
        late = until(lambda: registered(node, "LATE"))
        with KafkaAdminClient({"bootstrap.servers": late}) as admin:
            (broker,) = admin.describe_cluster().nodes
            assert f"{broker.host}:{broker.port}" == late


def registered(node: EmbeddedBroker, listener: str) -> str | None:
    """Returns the address of a listener in the metadata of the cluster."""
    server = node.server.broker
    assert server is not None
    found = server.cache.image.cluster.brokers[1].listeners.get(listener)
    return None if found is None else f"{found.host}:{found.port}"
