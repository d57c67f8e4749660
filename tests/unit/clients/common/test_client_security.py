"""What a client makes of its security settings."""

from __future__ import annotations

import pickle
import select
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from barnabas.clients.common.client_config import split_positional
from barnabas.clients.common.client_sasl import client_mechanism
from barnabas.clients.common.client_security import (
    SECURITY,
    ClientSecurity,
    client_channel_factory,
    client_ssl_context,
    may_use_local_socket,
)
from barnabas.clients.producer.producer_config import ProducerConfig
from barnabas.common.config_def import ConfigError
from barnabas.common.errors import SslAuthenticationError
from barnabas.network.reactor.channel import ANONYMOUS
from barnabas.network.reactor.channel_factory import plaintext
from barnabas.network.transport import PlaintextTransportLayer, TransportLayer
from barnabas.security.sasl.channel_authenticator import SaslClientChannelAuthenticator
from barnabas.security.sasl.plain import PlainServer
from tls_fixtures import PKI, context

pytestmark = pytest.mark.mechanism("A13")

SECRET = "open-sesame"
PLAIN = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="{SECRET}";'
SCRAM = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="{SECRET}"'


def values(**settings: Any) -> Any:
    return SECURITY.parse({name.replace("_", "."): value for name, value in settings.items()})


def test_plaintext_is_the_default() -> None:
    assert client_channel_factory(values()) is plaintext
    assert client_channel_factory(values(security_protocol="plaintext")) is plaintext


def test_sasl_over_plaintext() -> None:
    make = client_channel_factory(
        values(security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_jaas_config=PLAIN)
    )
    with socket.socket() as one, socket.socket() as two:
        transport, first = make("1", one, "broker.example.com")
        _, second = make("2", two, "broker.example.com")
    assert isinstance(transport, PlaintextTransportLayer)
    assert isinstance(first, SaslClientChannelAuthenticator)
    assert first is not second, "each connection has an exchange of its own"
    assert SECRET not in repr(first)


def test_tls_checks_the_host_name_that_the_client_connects_to(tmp_path: Path) -> None:
    make = client_channel_factory(
        values(security_protocol="SSL", ssl_truststore_type="PEM", ssl_truststore_certificates=PKI.authority.pem)
    )
    server = context(tmp_path, server_side=True, identity=PKI.server)
    for host, accepted in (("localhost", True), ("127.0.0.1", True), ("[::1]", True), ("elsewhere.example", False)):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            transport, authenticator = make("1", ours, host)
            assert authenticator is ANONYMOUS
            assert shake_hands(transport, server, theirs) == accepted, host


def shake_hands(transport: TransportLayer, server: ssl.SSLContext, sock: socket.socket) -> bool:
    """Whether the client accepts the server."""
    with ThreadPoolExecutor(1) as pool:
        sock.settimeout(60)
        pool.submit(lambda: server.wrap_socket(sock, server_side=True).close())
        try:
            while not transport.is_ready:
                transport.handshake()
                select.select([transport], [], [], 0.05)
        except SslAuthenticationError:
            return False
        finally:
            transport.close()
        return True


def test_a_host_name_that_no_certificate_has() -> None:
    make = client_channel_factory(values(security_protocol="SSL", ssl_context=ssl.create_default_context()))
    with socket.socket() as sock, pytest.raises(OSError, match="is not a valid host name of a certificate"):
        make("1", sock, ".broker")


def test_an_ssl_context_of_the_application() -> None:
    own = ssl.create_default_context()
    assert client_ssl_context(values(ssl_context=own)) is own
    with pytest.raises(ConfigError, match=r"ssl\.context must be an ssl\.SSLContext: str"):
        client_ssl_context(values(ssl_context="mine"))


@pytest.mark.parametrize(
    "settings",
    [
        {"ssl_truststore_location": "/nowhere/ca.pem", "ssl_truststore_type": "PEM"},
        {"ssl_keystore_key": SECRET, "ssl_keystore_type": "PEM"},
        {"ssl_enabled_protocols": "SSLv3"},
        {"ssl_endpoint_identification_algorithm": "LDAP"},
        {"ssl_engine_factory_class": dict},
    ],
)
def test_invalid_settings_of_tls(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        client_channel_factory(values(security_protocol="SSL", **settings))
    assert SECRET not in str(refused.value)


def test_credentials_reach_the_mechanism() -> None:
    asked: list[tuple[str, str]] = []

    def check(username: str, password: str) -> bool:
        asked.append((username, password))
        return True

    server = PlainServer(check)
    name, begin, _ = client_mechanism(values(sasl_mechanism="PLAIN", sasl_jaas_config=PLAIN))
    server.evaluate(begin("localhost").initial_response())
    assert (name, asked) == ("PLAIN", [("a", SECRET)])


def test_a_delegation_token_says_that_it_is_one() -> None:
    for options, expected in (("", b"n,,n=a,r="), (' tokenauth="true"', b",tokenauth=true")):
        mechanism = client_mechanism(values(sasl_mechanism="SCRAM-SHA-256", sasl_jaas_config=f"{SCRAM}{options};"))
        assert expected in mechanism.begin("localhost").initial_response()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "sasl.kerberos.service.name is missing"),
        ({"sasl_mechanism": "PLAIN", "sasl_login_class": dict}, "sasl.login.class is not supported"),
        ({"sasl_mechanism": "scram-sha-256"}, "sasl.mechanism cannot be scram-sha-256"),
        ({"sasl_mechanism": "PLAIN"}, "sasl.jaas.config is missing: PLAIN needs a user name and a password"),
        ({"sasl_mechanism": "SCRAM-SHA-256", "sasl_jaas_config": PLAIN}, "the login module of SCRAM-SHA-256 is"),
        ({"sasl_mechanism": "PLAIN", "sasl_jaas_config": PLAIN[:-1]}, "must end with a semicolon"),
        ({"sasl_mechanism": "PLAIN", "sasl_jaas_config": PLAIN.replace("username", "user")}, "needs the option user"),
    ],
)
def test_invalid_settings_are_found_when_the_client_is_made(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        client_channel_factory(values(security_protocol="SASL_PLAINTEXT", **settings))
    assert message in str(refused.value)
    assert SECRET not in str(refused.value)


def test_the_local_socket_is_not_for_tls() -> None:
    def allowed(**settings: Any) -> bool:
        return may_use_local_socket(ProducerConfig.of(bootstrap_servers="a:1", **settings).values)

    assert allowed()
    assert allowed(security_protocol="SASL_PLAINTEXT")
    assert not allowed(local_socket_enable=False)
    for protocol in ("SSL", "SASL_SSL"):
        assert not allowed(security_protocol=protocol)


def test_a_second_mapping_is_not_shown() -> None:
    with pytest.raises(TypeError, match="not a second mapping") as refused:
        split_positional(({"group.id": "g"}, {"sasl.password": SECRET}))
    assert SECRET not in str(refused.value)


def test_settings_travel_to_another_process_and_show_no_values() -> None:
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "acks": "1"}
    security = ClientSecurity({**given, "sasl.username": "a", "sasl.password": SECRET})
    copy = pickle.loads(pickle.dumps(security))
    assert copy == security
    assert hash(copy) == hash(security)
    assert copy != ClientSecurity(given | {"sasl.username": "a", "sasl.password": "other"})
    assert copy.values().get_password("sasl.jaas.config").value == PLAIN
    assert repr(copy) == "ClientSecurity(sasl.jaas.config, sasl.mechanism, security.protocol)"
    with pytest.raises(ConfigError, match="cannot be TLS"):
        ClientSecurity({"security.protocol": "TLS"})
