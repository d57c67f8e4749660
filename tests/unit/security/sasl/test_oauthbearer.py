"""OAUTHBEARER: the message, the exchange about a rejected token, and both ends."""

from __future__ import annotations

import contextlib
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.common.clock import MockClock
from barnabas.common.errors import IllegalSaslStateError, InvalidConfigurationError, SaslAuthenticationError
from barnabas.security.sasl.client_authenticator import SaslClientAuthenticator
from barnabas.security.sasl.mechanism import CREDENTIAL_EXPIRY_MS, SaslExchangeError
from barnabas.security.sasl.oauth_token import MAX_TOKEN, OAuthBearerToken, TokenRejectedError
from barnabas.security.sasl.oauthbearer import ACKNOWLEDGEMENT, TOKEN, OAuthBearerClient, OAuthBearerServer
from barnabas.security.sasl.server_authenticator import SaslServerAuthenticator, SaslServerSettings
from unit.security.sasl.sasl_peers import Connection, api_versions, token

pytestmark = pytest.mark.mechanism("A07")

INVALID = '{"status":"invalid_token"}'


class Issuer:
    """Accepts one token."""

    def __init__(self, expiry_ms: int = 5_000) -> None:
        self._expiry_ms = expiry_ms

    def validate(self, token: str) -> OAuthBearerToken:
        if token == "good":
            return OAuthBearerToken(token, "alice", self._expiry_ms)
        if token == "narrow":
            raise TokenRejectedError("too little", status="insufficient_scope", scope="read write")
        raise TokenRejectedError("not known here")


def message(value: str = "good") -> bytes:
    return f"n,,\x01auth=Bearer {value}\x01\x01".encode()


def test_both_ends() -> None:
    client, server = OAuthBearerClient(lambda: "good", {"traceId": "1 2"}), OAuthBearerServer(Issuer())
    first = client.initial_response()
    assert first == b"n,,\x01auth=Bearer good\x01traceId=1 2\x01\x01"
    assert server.evaluate(first) == b""
    assert client.evaluate(b"") is None
    assert client.complete
    assert (server.complete, server.authorization_id) == (True, "alice")
    negotiated = server.negotiated
    assert (negotiated["traceId"], negotiated[CREDENTIAL_EXPIRY_MS]) == ("1 2", 5_000)
    assert isinstance(negotiated[TOKEN], OAuthBearerToken)
    with pytest.raises(IllegalSaslStateError):
        server.evaluate(first)


@pytest.mark.parametrize(
    ("value", "answer"),
    [("bad", INVALID), ("narrow", '{"status":"insufficient_scope", "scope":"read write"}')],
)
def test_a_rejected_token(value: str, answer: str) -> None:
    client, server = OAuthBearerClient(lambda: value), OAuthBearerServer(Issuer())
    challenge = server.evaluate(client.initial_response())
    assert challenge.decode() == answer
    assert not server.complete
    acknowledgement = client.evaluate(challenge)
    assert acknowledgement == ACKNOWLEDGEMENT
    with pytest.raises(SaslAuthenticationError) as caught:
        server.evaluate(acknowledgement)
    assert str(caught.value) == answer
    with pytest.raises(SaslAuthenticationError, match="status"):
        client.evaluate(b"")
    assert not client.complete


def test_there_is_no_second_attempt() -> None:
    server = OAuthBearerServer(Issuer())
    server.evaluate(message("bad"))
    with pytest.raises(SaslAuthenticationError):
        server.evaluate(message("good"))
    assert not server.complete


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer good\x01",
        b"n,,\x01auth=Bearer good",
        b"y,,\x01auth=Bearer good\x01\x01",
        b"n,,\x01auth=Basic good\x01\x01",
        b"n,,\x01auth=Bearer go od\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer good\x01x1=y\x01\x01",
        b"n,,\x01auth=Bearer good\x01x=\x01\x01",
        b"n,,\x01auth=Bearer good\x01x=\xc3\xa4\x01\x01",
        b"n,,\x01auth=Bearer good\x01x\x01\x01",
        b"n,,\x01x=y\x01\x01",
        b"\xff",
        message("x" * (MAX_TOKEN + (1 << 14))),
    ],
)
def test_messages_that_are_refused(sent: bytes) -> None:
    server = OAuthBearerServer(Issuer())
    with pytest.raises(SaslExchangeError):
        server.evaluate(sent)
    with pytest.raises(IllegalSaslStateError):
        server.evaluate(message())


def test_the_authorization_id() -> None:
    server = OAuthBearerServer(Issuer())
    server.evaluate(b"n,a=alice,\x01auth=bearer good\x01\x01")
    assert server.complete
    with pytest.raises(SaslAuthenticationError, match=r"authorization id \(b,ob\) that is different"):
        OAuthBearerServer(Issuer()).evaluate(b"n,a=b=2Cob,\x01auth=Bearer good\x01\x01")


@pytest.mark.parametrize("extensions", [{"auth": "x"}, {"a1": "x"}, {"": "x"}, {"a": ""}, {"a": "\x01"}])
def test_extensions_that_cannot_be_sent(extensions: dict[str, str]) -> None:
    with pytest.raises(InvalidConfigurationError):
        OAuthBearerClient(lambda: "good", extensions)


def test_a_token_that_cannot_be_sent() -> None:
    with pytest.raises(SaslAuthenticationError, match="characters that OAUTHBEARER does not allow") as caught:
        OAuthBearerClient(lambda: "hush\x01auth=").initial_response()
    assert "hush" not in str(caught.value)


@given(st.binary(max_size=80))
def test_no_bytes_authenticate_without_the_token(sent: bytes) -> None:
    server = OAuthBearerServer(Issuer())
    for attempt in (sent, b"n,," + sent, b"n,,\x01auth=Bearer " + sent):
        with contextlib.suppress(SaslExchangeError, SaslAuthenticationError, IllegalSaslStateError):
            server.evaluate(attempt)
        assert not server.complete or b"good" in sent


class TestOnAConnection:
    def settings(self, clock: MockClock) -> SaslServerSettings:
        issuer = Issuer(clock.milliseconds() + 7_000)
        return SaslServerSettings({"OAUTHBEARER": lambda: OAuthBearerServer(issuer)}, api_versions)

    def test_the_session_ends_with_the_token(self) -> None:
        clock = MockClock()
        connection = Connection(self.settings(clock), clock)
        connection.shake("OAUTHBEARER")
        assert connection.authenticate(token(message())).session_lifetime_ms == 7_000
        assert str(connection.server.principal) == "User:alice"

    def test_a_rejected_token(self, caplog: pytest.LogCaptureFixture) -> None:
        """Error 0 with the JSON, then the acknowledgement, then error 58 with the same JSON."""
        clock = MockClock()
        connection = Connection(self.settings(clock), clock)
        connection.shake("OAUTHBEARER")
        with caplog.at_level(logging.INFO):
            first = connection.authenticate(token(message("hush")))
        assert (first.error_code, first.auth_bytes) == (0, INVALID.encode())
        second = connection.authenticate(token(b"\x01"))
        assert (second.error_code, second.error_message) == (58, INVALID)
        assert "not known here" in caplog.text
        assert "hush" not in caplog.text

    def test_our_client_shows_the_brokers_message(self) -> None:
        clock = MockClock()
        client = SaslClientAuthenticator("OAUTHBEARER", lambda: OAuthBearerClient(lambda: "bad"), clock=clock)
        server = SaslServerAuthenticator(self.settings(clock), clock=clock)
        sent = client.start()
        for _ in range(3):
            sent = client.receive(server.receive(sent[4:]).response[4:])
        refused = server.receive(sent[4:]).response
        with pytest.raises(SaslAuthenticationError, match="invalid_token"):
            client.receive(refused[4:])


@pytest.mark.mechanism("A12")
def test_no_token_in_a_repr() -> None:
    client, server = OAuthBearerClient(lambda: "good"), OAuthBearerServer(Issuer())
    server.evaluate(client.initial_response())
    assert "good" not in repr((client, server, server.negotiated[TOKEN]))
