"""The client's end of the SASL exchange, against the broker's end and against brokers that misbehave."""

from __future__ import annotations

import contextlib
import random
import struct
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.common.clock import MockClock
from barnabas.common.errors import (
    AuthenticationError,
    Errors,
    IllegalSaslStateError,
    SaslAuthenticationError,
    UnsupportedSaslMechanismError,
)
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.framing import encode_response
from barnabas.protocol.message import Response
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeResponse
from barnabas.security.principal import KafkaPrincipal
from barnabas.security.sasl.client_authenticator import (
    FIRST_CORRELATION_ID,
    LAST_CORRELATION_ID,
    TRANSITIONS,
    ClientEvent,
    ClientState,
    SaslClientAuthenticator,
)
from barnabas.security.sasl.mechanism import SaslClient
from barnabas.security.sasl.plain import PlainClient
from barnabas.security.sasl.scram import HASHES, ScramClient
from barnabas.security.sasl.server_authenticator import SaslServerAuthenticator
from unit.security.sasl.sasl_peers import PASSWORDS, settings

ALICE = KafkaPrincipal("User", "alice")
CLIENTS: dict[str, Callable[[str, str], SaslClient]] = {
    "PLAIN": PlainClient,
    **{mechanism: partial(ScramClient, mechanism) for mechanism in HASHES},
}


def client_of(
    mechanism: str = "PLAIN", name: str = "alice", password: str | None = None, clock: MockClock | None = None
) -> SaslClientAuthenticator:
    password = PASSWORDS[name] if password is None else password
    return SaslClientAuthenticator(
        mechanism,
        lambda: CLIENTS[mechanism](name, password),
        client_id="test",
        clock=clock or MockClock(),
        rng=random.Random(1),
    )


def correlation_id(data: bytes) -> int:
    """The correlation id of a request, as a frame."""
    number: int = struct.unpack_from(">i", data, 8)[0]
    return number


def converse(sent: bytes, client: SaslClientAuthenticator, server: SaslServerAuthenticator) -> list[int]:
    """Passes frames between both ends until neither has more to say; returns the APIs of the requests."""
    apis = []
    while sent:
        apis.append(int.from_bytes(sent[4:6], "big"))
        assert FIRST_CORRELATION_ID <= correlation_id(sent) <= LAST_CORRELATION_ID
        decision = server.receive(sent[4:])
        if decision.failure is not None and not decision.response:
            raise decision.failure
        sent = client.receive(decision.response[4:])
    return apis


@pytest.mark.mechanism("A04", "A05", "A06")
@pytest.mark.parametrize("mechanism", list(CLIENTS))
def test_both_ends(mechanism: str) -> None:
    client, server = client_of(mechanism), SaslServerAuthenticator(settings())
    tokens = 1 if mechanism == "PLAIN" else 2
    assert converse(client.start(), client, server) == [18, 17, *([36] * tokens)]
    assert client.complete
    assert server.principal == ALICE
    assert client.reauthenticate_at_ns is None


def test_a_wrong_password() -> None:
    for mechanism in CLIENTS:
        client, server = client_of(mechanism, password="wrong"), SaslServerAuthenticator(settings())
        with pytest.raises(SaslAuthenticationError, match="Authentication failed"):
            converse(client.start(), client, server)
        assert client.state is ClientState.FAILED
        assert not server.complete


def test_a_mechanism_that_is_not_enabled() -> None:
    client = SaslClientAuthenticator("GSSAPI", lambda: PlainClient("a", "b"))
    with pytest.raises(UnsupportedSaslMechanismError) as caught:
        converse(client.start(), client, SaslServerAuthenticator(settings()))
    assert str(caught.value) == (
        "Client SASL mechanism 'GSSAPI' not enabled in the server, enabled mechanisms are "
        "[PLAIN, SCRAM-SHA-256, SCRAM-SHA-512]"
    )


class Broker:
    """Answers the requests of a client as a test wants."""

    def __init__(self, client: SaslClientAuthenticator) -> None:
        self.client = client
        self.sent = client.start()

    def respond(self, response: Response, version: int = 0, number: int | None = None) -> bytes:
        number = correlation_id(self.sent) if number is None else number
        self.sent = self.client.receive(encode_response(response, version, number)[4:])
        return self.sent

    def versions(self, **highest: int) -> bytes:
        keys = [
            ApiVersion(api_key=ApiKey[name.upper()], min_version=0, max_version=top) for name, top in highest.items()
        ]
        return self.respond(ApiVersionsResponse(api_keys=keys))

    def handshake(self) -> bytes:
        self.versions(sasl_handshake=9, sasl_authenticate=9)
        return self.respond(SaslHandshakeResponse(mechanisms=["PLAIN"]), 1)


class TestBrokers:
    def test_the_newest_versions_that_both_have(self) -> None:
        broker = Broker(client_of())
        assert broker.sent[4:8] == b"\0\x12\0\0"
        assert broker.versions(sasl_handshake=9, sasl_authenticate=1)[4:8] == b"\0\x11\0\1"
        assert broker.respond(SaslHandshakeResponse(mechanisms=["PLAIN"]), 1)[4:8] == b"\0\x24\0\1"
        broker.respond(SaslAuthenticateResponse(), 1)
        assert broker.client.complete

    @pytest.mark.parametrize("highest", [{"sasl_handshake": 1}, {"sasl_handshake": 0, "sasl_authenticate": 2}])
    def test_a_broker_without_sasl_authenticate_gets_bare_tokens(self, highest: dict[str, int]) -> None:
        broker = Broker(client_of())
        broker.versions(**highest)
        version = highest["sasl_handshake"]
        assert broker.respond(SaslHandshakeResponse(mechanisms=["PLAIN"]), version) == b"\0\0\0\x0d\0alice\0wonder"
        assert broker.client.receive(b"") == b""
        assert broker.client.complete

    @pytest.mark.parametrize(
        ("error", "kind", "message"),
        [
            (Errors.ILLEGAL_SASL_STATE, IllegalSaslStateError, "Unexpected handshake request with client"),
            (Errors.UNKNOWN_SERVER_ERROR, IllegalSaslStateError, "Unknown error code UNKNOWN_SERVER_ERROR"),
        ],
    )
    def test_handshakes_that_are_refused(self, error: Errors, kind: type[Exception], message: str) -> None:
        broker = Broker(client_of())
        broker.versions(sasl_handshake=1, sasl_authenticate=2)
        with pytest.raises(kind, match=message):
            broker.respond(SaslHandshakeResponse(error_code=error, mechanisms=["PLAIN"]), 1)
        assert broker.client.state is ClientState.FAILED

    @pytest.mark.parametrize(
        ("code", "message", "kind", "shown"),
        [
            (58, "Authentication failed: no", SaslAuthenticationError, "Authentication failed: no"),
            (58, None, SaslAuthenticationError, "credentials were rejected"),
            (34, None, IllegalSaslStateError, "not valid in this state"),
            (7, None, SaslAuthenticationError, "refused a token with error code 7"),
        ],
    )
    def test_tokens_that_are_refused(self, code: int, message: str | None, kind: type[Exception], shown: str) -> None:
        broker = Broker(client_of())
        broker.handshake()
        with pytest.raises(kind, match=shown):
            broker.respond(SaslAuthenticateResponse(error_code=code, error_message=message), 2)

    def test_a_broker_that_does_not_know_the_password(self) -> None:
        broker = Broker(client_of("SCRAM-SHA-256"))
        broker.handshake()
        with pytest.raises(SaslAuthenticationError, match=r"An error: \(Invalid SCRAM server-first message"):
            broker.respond(SaslAuthenticateResponse(auth_bytes=b"welcome"), 2)
        assert not broker.client.complete

    def test_success_without_the_servers_signature(self) -> None:
        broker = Broker(client_of("SCRAM-SHA-256"))
        broker.handshake()
        with pytest.raises(SaslAuthenticationError):
            broker.respond(SaslAuthenticateResponse(auth_bytes=b""), 2)

    def test_a_refusal_of_api_versions(self) -> None:
        with pytest.raises(IllegalSaslStateError, match="UNSUPPORTED_VERSION"):
            Broker(client_of()).respond(ApiVersionsResponse(error_code=35))

    def test_another_correlation_id(self) -> None:
        with pytest.raises(IllegalSaslStateError, match="expecting a different protocol"):
            Broker(client_of()).respond(ApiVersionsResponse(), number=5)

    @given(st.binary(max_size=60), st.integers(0, 2))
    def test_no_bytes_satisfy_it(self, data: bytes, step: int) -> None:
        broker = Broker(client_of("SCRAM-SHA-256"))
        if step == 1:
            broker.versions(sasl_handshake=1, sasl_authenticate=2)
        elif step == 2:
            broker.handshake()
        for frame in (data, broker.sent[8:12] + data):
            with contextlib.suppress(AuthenticationError):
                broker.client.receive(frame)
            assert not broker.client.complete

    def test_nothing_is_taken_after_the_end(self) -> None:
        client = client_of()
        converse(client.start(), client, SaslServerAuthenticator(settings()))
        with pytest.raises(IllegalSaslStateError):
            client.receive(b"")


@pytest.mark.mechanism("A09")
class TestSessions:
    def test_the_client_authenticates_again_before_the_session_ends(self) -> None:
        times = []
        for seed in range(20):
            clock = MockClock()
            client = SaslClientAuthenticator(
                "PLAIN", lambda: PlainClient("alice", "wonder"), clock=clock, rng=random.Random(seed)
            )
            server = SaslServerAuthenticator(settings({"PLAIN": 1_000}), clock=clock)
            converse(client.start(), client, server)
            assert client.reauthenticate_at_ns is not None
            times.append((client.reauthenticate_at_ns - clock.nanoseconds()) / 1e9)
        assert 0.85 <= min(times) < 0.87
        assert 0.93 < max(times) <= 0.95

    @pytest.mark.parametrize("mechanism", list(CLIENTS))
    def test_both_ends(self, mechanism: str) -> None:
        clock = MockClock()
        client = client_of(mechanism, clock=clock)
        server = SaslServerAuthenticator(settings(dict.fromkeys(CLIENTS, 10_000)), clock=clock)
        converse(client.start(), client, server)
        for _ in range(5):  # more requests than there are reserved correlation ids
            clock.advance(9_500)
            assert server.may_reauthenticate()
            server.begin_reauthentication()
            assert converse(client.reauthenticate(), client, server)[0] == ApiKey.SASL_HANDSHAKE
            assert client.complete
            assert server.complete
            assert not server.session_expired(clock.nanoseconds() + 9_000_000_000)
            assert client.reauthenticate_at_ns is not None
            assert client.reauthenticate_at_ns > clock.nanoseconds() + 8_000_000_000

    def test_responses_to_earlier_requests(self) -> None:
        clock = MockClock()
        client = client_of(clock=clock)
        server = SaslServerAuthenticator(settings({"PLAIN": 10_000}), clock=clock)
        converse(client.start(), client, server)
        server.begin_reauthentication()
        sent = client.reauthenticate()
        earlier = [b"\0\0\0\1first", b"\0\0\0\2second"]
        for frame in earlier:
            assert client.receive(frame) == b""
        assert client.unrelated == earlier
        converse(sent, client, server)
        assert client.complete

    def test_a_re_authentication_that_fails(self) -> None:
        clock = MockClock()
        names = iter(["alice", "bob"])
        client = SaslClientAuthenticator(
            "PLAIN", lambda: PlainClient(name := next(names), PASSWORDS[name]), clock=clock
        )
        server = SaslServerAuthenticator(settings({"PLAIN": 10_000}), clock=clock)
        converse(client.start(), client, server)
        server.begin_reauthentication()
        with pytest.raises(SaslAuthenticationError, match=r"Cannot change principals .* from User.alice: User.bob"):
            converse(client.reauthenticate(), client, server)


def test_the_table_has_every_state() -> None:
    assert set(TRANSITIONS) == set(ClientState)
    assert {event for events in TRANSITIONS.values() for event in events} == set(ClientEvent)
