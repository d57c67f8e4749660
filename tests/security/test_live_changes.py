"""Changes of a running node's security: new connections follow at once, and open ones stay."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from barnabas import EmbeddedBroker, KafkaAdminClient
from barnabas.clients.admin import ConfigResource, NewTopic
from barnabas.common.errors import InvalidRequestError, SaslAuthenticationError, TopicAuthorizationError
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
