"""SASL beside Apache Kafka: the same frames to its broker and to ours, the same outcomes; and our client to both."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from barnabas.common.clock import SYSTEM_CLOCK
from barnabas.common.errors import AuthenticationError
from barnabas.network.reactor.channel import Authenticator
from barnabas.network.server.endpoint import Endpoint, SecurityProtocol
from barnabas.network.transport import PlaintextTransportLayer, TransportLayer
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.framing import encode_request
from barnabas.protocol.headers import parse_request_header
from barnabas.protocol.message import Request
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.security.sasl.channel_authenticator import SaslServerChannelAuthenticator
from barnabas.security.sasl.client_authenticator import SaslClientAuthenticator
from barnabas.security.sasl.jaas import OAUTHBEARER_LOGIN_MODULE, PLAIN_LOGIN_MODULE, SCRAM_LOGIN_MODULE
from barnabas.security.sasl.mechanism_table import (
    CLIENT_MECHANISMS,
    ClientCredentials,
    ServerCallbacks,
    client_mechanism,
    server_mechanism,
)
from barnabas.security.sasl.plain import PlainCredentials
from barnabas.security.sasl.scram import HASHES, ScramCredential
from barnabas.security.sasl.server_authenticator import SaslServerAuthenticator, SaslServerSettings
from barnabas.security.sasl.token_provider import UnsecuredTokenProvider
from barnabas.security.sasl.token_validator import UnsecuredTokenValidator
from barnabas.server.sasl_handler import refuse_during_authentication
from network_fixtures import LISTENER, Policy, serving
from oracles.java import OracleUnavailableError
from oracles.kafka_server import CLUSTER_ID, KafkaServer, ensure_available, run_tool
from unit.security.sasl.sasl_peers import api_versions

pytestmark = pytest.mark.java

PASSWORDS = {"alice": "wonder", "bob": "builder"}
SESSION_MS = 3_600_000
"""Of PLAIN only."""
WAIT_S = 60


# -- both brokers


class SaslKafkaServer(KafkaServer):
    """Apache Kafka with all mechanisms on its one listener, which is still called PLAINTEXT."""

    def __init__(self, directory: Path) -> None:
        users = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
        listener = "listener_name_plaintext"
        settings: dict[str, Any] = {
            "listener_security_protocol_map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter_broker_listener_name": "PLAINTEXT",
            "sasl_mechanism_inter_broker_protocol": "PLAIN",
            "sasl_enabled_mechanisms": ",".join(CLIENT_MECHANISMS),
            f"{listener}_plain_sasl_jaas_config": (
                f'{PLAIN_LOGIN_MODULE} required username="alice" password="wonder" {users};'
            ),
            f"{listener}_plain_connections_max_reauth_ms": str(SESSION_MS),
            f"{listener}_oauthbearer_sasl_jaas_config": (
                f'{OAUTHBEARER_LOGIN_MODULE} required unsecuredLoginStringClaim_sub="alice";'
            ),
            **{f"{listener}_{name.lower()}_sasl_jaas_config": f"{SCRAM_LOGIN_MODULE} required;" for name in HASHES},
        }
        super().__init__(directory, **settings)

    def format(self) -> None:
        credentials = [
            argument
            for name, password in PASSWORDS.items()
            for mechanism in HASHES
            for argument in ("--add-scram", f"{mechanism}=[name={name},password={password}]")
        ]
        run_tool(
            "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self.config_file), "--standalone",
            *credentials,
        )  # fmt: skip


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of Apache Kafka."""
    try:
        ensure_available()
    except OracleUnavailableError as reason:
        if os.environ.get("CI") == "true":
            pytest.fail(str(reason))
        pytest.skip(str(reason))
    server = SaslKafkaServer(tmp_path_factory.mktemp("kafka"))
    server.format()
    server.start()
    try:
        yield server.port
    finally:
        server.kill()


class Users:
    def __init__(self) -> None:
        self._credentials = {
            (mechanism, name): ScramCredential.of_password(mechanism, password)
            for name, password in PASSWORDS.items()
            for mechanism in HASHES
        }

    def credential(self, mechanism: str, username: str) -> ScramCredential | None:
        return self._credentials.get((mechanism, username))


@pytest.fixture(scope="module")
def ours() -> Iterator[int]:
    """The port of a socket server of ours with the same settings, which answers ordinary requests with nothing."""
    callbacks = ServerCallbacks(
        plain=PlainCredentials(PASSWORDS), scram=Users(), oauth=UnsecuredTokenValidator(clock=SYSTEM_CLOCK)
    )
    settings = SaslServerSettings(
        {name: server_mechanism(name, callbacks) for name in CLIENT_MECHANISMS},
        api_versions,
        {"PLAIN": SESSION_MS},
        foreign_response=refuse_during_authentication,
    )

    def factory(_channel_id: str, sock: socket.socket) -> tuple[TransportLayer, Authenticator]:
        return PlaintextTransportLayer(sock), SaslServerChannelAuthenticator(SaslServerAuthenticator(settings))

    with serving(
        Policy.QUEUE,
        lambda request, _local: server.answer(request),
        endpoints=(Endpoint(LISTENER, SecurityProtocol.SASL_PLAINTEXT, port=0),),
        channel_factories={LISTENER: factory},
    ) as server:
        yield server.sockets.bound_port(LISTENER)


# -- frames


def request(message: Request, version: int) -> bytes:
    return encode_request(message, version, 7, "test")


def versions(version: int = 3, software: str = "test") -> bytes:
    return request(ApiVersionsRequest(client_software_name=software, client_software_version="1"), version)


def handshake(mechanism: str = "PLAIN", version: int = 1) -> bytes:
    return request(SaslHandshakeRequest(mechanism=mechanism), version)


def token(data: bytes, version: int = 2) -> bytes:
    return request(SaslAuthenticateRequest(auth_bytes=data), version)


def plain(name: str, password: str, version: int = 2) -> bytes:
    return token(f"\0{name}\0{password}".encode(), version)


def bare(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def changed_version(frame: bytes, version: int) -> bytes:
    return frame[:6] + version.to_bytes(2, "big") + frame[8:]


ALICE = plain("alice", "wonder")
METADATA = request(MetadataRequest(topics=None), 13)
SCENARIOS: dict[str, Sequence[bytes]] = {
    "plain": [versions(), handshake(), ALICE],
    "plain, oldest versions": [versions(0), handshake(), plain("alice", "wonder", 0)],
    "plain, v1": [handshake(), plain("alice", "wonder", 1)],
    "plain, bare tokens": [handshake(version=0), bare(b"\0alice\0wonder")],
    "wrong password": [handshake(), plain("alice", "wrong")],
    "unknown user": [handshake(), plain("nobody", "wonder")],
    "no user": [handshake(), plain("", "wonder")],
    "no password": [handshake(), plain("alice", "")],
    "two parts": [handshake(), token(b"alice\0wonder")],
    "four parts": [handshake(), token(b"\0alice\0wonder\0")],
    "another authorization id": [handshake(), token(b"bob\0alice\0wonder")],
    "own authorization id": [handshake(), token(b"alice\0alice\0wonder")],
    "wrong password, bare token": [handshake(version=0), bare(b"\0alice\0wrong")],
    "versions twice": [versions(), versions()],
    "unsupported versions, then another": [changed_version(versions(), 99), versions(), handshake(), ALICE],
    "software without a name": [versions(software="-"), versions(), handshake(), ALICE],
    "unknown mechanism": [handshake("GSSAPI")],
    "unsupported handshake": [changed_version(handshake(), 9)],
    "metadata first": [METADATA],
    "metadata after versions": [versions(), METADATA],
    "metadata after handshake": [handshake(), METADATA],
    "token without handshake": [ALICE],
    "handshake twice": [handshake(), handshake()],
    "versions after handshake": [handshake(), versions()],
    "unsupported token version": [handshake(), changed_version(ALICE, 9)],
    "no request": [bare(b"GET / HTTP/1.1")],
    "empty": [bare(b"")],
    "too long": [struct.pack(">i", 524_289)],
    "negative": [struct.pack(">i", -1)],
    "scram, unknown user": [handshake("SCRAM-SHA-256"), token(b"n,,n=nobody,r=abc")],
    "scram, not a message": [handshake("SCRAM-SHA-512"), token(b"hello")],
    "scram, channel binding": [handshake("SCRAM-SHA-256"), token(b"p=tls-unique,,n=alice,r=abc")],
    "scram, another authorization id": [handshake("SCRAM-SHA-256"), token(b"n,a=bob,n=alice,r=abc")],
    "scram, no such delegation token": [handshake("SCRAM-SHA-256"), token(b"n,,n=alice,r=abc,tokenauth=true")],
    "oauth, bad token": [handshake("OAUTHBEARER"), token(b"n,,\1auth=Bearer x.y.z\1\1"), token(b"\1")],
    "oauth, not a message": [handshake("OAUTHBEARER"), token(b"hello")],
    "again": [handshake(), ALICE, handshake(), ALICE],
    "again, as bob": [handshake(), ALICE, handshake(), plain("bob", "builder")],
    "again, wrong password": [handshake(), ALICE, handshake(), plain("alice", "wrong")],
}
OURS_RESPONDS: dict[str, Sequence[bytes]] = {
    "oauth, another scheme": [handshake("OAUTHBEARER"), token(b"n,,\1auth=Basic x\1\1")],
    "again, with another mechanism": [handshake(), ALICE, handshake("SCRAM-SHA-256"), token(b"n,,n=alice,r=abc")],
}
"""Apache closes the connection, and the client cannot know why."""


# -- outcomes


def outcomes(port: int, frames: Sequence[bytes]) -> list[Any]:
    """What a client sees: for each frame the decoded response, or that the connection is closed."""
    seen: list[Any] = []
    is_bare = False
    with socket.create_connection(("127.0.0.1", port), WAIT_S) as sock:
        for frame in frames:
            sock.sendall(frame)
            response = receive(sock)
            if response is None:
                seen.append("closed")
                break
            seen.append(bytes(response) if is_bare else decoded(frame, response))
            is_bare = is_bare or frame[4:8] == b"\0\x11\0\0"
            if failed(seen[-1]):
                assert receive(sock) is None
                seen.append("closed")
                break
    return seen


def failed(outcome: Any) -> bool:
    return isinstance(outcome, dict) and outcome["error_code"] not in {0, 35, 42}


def receive(sock: socket.socket) -> bytes | None:
    """A frame without its length; None at the end of the stream."""
    try:
        data = b""
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
            piece = sock.recv(1 << 16)
            if not piece:
                assert not data
                return None
            data += piece
    except ConnectionResetError:
        return None
    return data[4:]


def decoded(frame: bytes, response: bytes) -> dict[str, Any]:
    """The fields that both brokers must agree on."""
    header = parse_request_header(memoryview(frame)[4:])
    kind = header.api_key.response
    version = header.api_version if header.api_version in header.api_key.versions else 0
    first, last = kind.flexible_headers
    assert response[:4] == b"\0\0\0\7"
    body: Any = kind.decode_from(response, version, 5 if first <= version <= last else 4)[0]
    fields = {"error_code": body.error_code}
    if header.api_key is ApiKey.API_VERSIONS:
        fields["apis"] = [key.api_key for key in body.api_keys] if body.error_code else None
    elif header.api_key is ApiKey.SASL_HANDSHAKE:
        fields["mechanisms"] = sorted(body.mechanisms)
    elif header.api_key is ApiKey.SASL_AUTHENTICATE:
        fields |= {
            "message": body.error_message or None,
            "auth_bytes": bytes(body.auth_bytes),
            "lifetime": body.session_lifetime_ms,
        }
    return fields


@pytest.mark.mechanism("A04", "A05", "A06", "A07", "A09")
@pytest.mark.parametrize("name", list(SCENARIOS))
def test_both_brokers_respond_alike(apache: int, ours: int, name: str) -> None:
    assert outcomes(ours, SCENARIOS[name]) == outcomes(apache, SCENARIOS[name])


@pytest.mark.mechanism("A04")
@pytest.mark.parametrize("name", list(OURS_RESPONDS))
def test_where_only_ours_responds(apache: int, ours: int, name: str) -> None:
    theirs = outcomes(apache, OURS_RESPONDS[name])
    *same, refused, closed = outcomes(ours, OURS_RESPONDS[name])
    assert [*same, closed] == theirs
    assert refused["error_code"] == 58


# -- our client


def log_in(port: int, mechanism: str, credentials: ClientCredentials, *, again: bool = False) -> int | None:
    """Authenticates over a blocking socket, and a second time if asked to; returns when the session ends."""
    client = SaslClientAuthenticator(mechanism, client_mechanism(mechanism, credentials), client_id="test")
    steps: list[Callable[[], bytes]] = [client.start, *([client.reauthenticate] if again else [])]
    with socket.create_connection(("127.0.0.1", port), WAIT_S) as sock:
        for step in steps:
            sent = step()
            while sent:
                sock.sendall(sent)
                response = receive(sock)
                assert response is not None
                sent = client.receive(response)
            assert client.complete
        # An ordinary request works only on an authenticated connection.
        sock.sendall(METADATA)
        response = receive(sock)
        assert response is not None
        assert response[:4] == b"\0\0\0\7"
    return client.reauthenticate_at_ns


def unsecured_token() -> str:
    return UnsecuredTokenProvider({"unsecuredLoginStringClaim_sub": "alice"})()


CREDENTIALS = {
    "PLAIN": ClientCredentials("alice", "wonder"),
    "SCRAM-SHA-256": ClientCredentials("alice", "wonder"),
    "SCRAM-SHA-512": ClientCredentials("bob", "builder"),
    "OAUTHBEARER": ClientCredentials(token=unsecured_token),
}
WRONG = {
    "PLAIN": ClientCredentials("alice", "wrong"),
    "SCRAM-SHA-256": ClientCredentials("alice", "wrong"),
    "SCRAM-SHA-512": ClientCredentials("nobody", "wrong"),
    "OAUTHBEARER": ClientCredentials(token=partial(str, "not.a.token")),
}


@pytest.mark.mechanism("A05", "A06", "A07", "A09")
class TestOurClient:
    @pytest.mark.parametrize("mechanism", list(CREDENTIALS))
    @pytest.mark.parametrize("broker", ["apache", "ours"])
    def test_it_gets_in(self, broker: str, mechanism: str, request: pytest.FixtureRequest) -> None:
        ends = log_in(request.getfixturevalue(broker), mechanism, CREDENTIALS[mechanism])
        assert (ends is not None) == (mechanism in {"PLAIN", "OAUTHBEARER"})

    @pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
    def test_it_authenticates_again(self, apache: int, mechanism: str) -> None:
        assert log_in(apache, mechanism, CREDENTIALS[mechanism], again=True) is not None

    @pytest.mark.parametrize("mechanism", list(WRONG))
    def test_both_brokers_refuse_it_with_the_same_words(self, apache: int, ours: int, mechanism: str) -> None:
        messages = []
        for port in (apache, ours):
            with pytest.raises(AuthenticationError) as caught:
                log_in(port, mechanism, WRONG[mechanism])
            messages.append((type(caught.value), str(caught.value)))
        assert messages[0] == messages[1]
