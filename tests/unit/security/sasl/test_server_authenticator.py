"""The broker's end of the SASL exchange: order, responses, failures, sessions."""

from __future__ import annotations

import struct

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
from barnabas.protocol.messages.api_versions import ApiVersionsResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeResponse
from barnabas.security.principal import KafkaPrincipal
from barnabas.security.sasl.scram import HASHES, ScramClient, ScramServer
from barnabas.security.sasl.server_authenticator import (
    TRANSITIONS,
    SaslEvent,
    SaslServerSettings,
    SaslState,
)
from unit.security.sasl.sasl_peers import (
    PASSWORDS,
    Connection,
    api_versions,
    decode,
    frame,
    handshake,
    mechanisms,
    plain,
    settings,
    token,
    versions_request,
)

ALICE = KafkaPrincipal("User", "alice")


def log_in_with_scram(connection: Connection, client: ScramClient) -> SaslAuthenticateResponse:
    response = connection.authenticate(token(client.initial_response()))
    answer = client.evaluate(bytes(response.auth_bytes))
    assert answer is not None
    response = connection.authenticate(token(answer))
    if response.error_code == Errors.NONE:
        assert client.evaluate(bytes(response.auth_bytes)) is None
    return response


@pytest.mark.mechanism("A04")
class TestExchange:
    @pytest.mark.parametrize("version", range(ApiKey.SASL_AUTHENTICATE.versions.highest + 1))
    def test_plain(self, version: int) -> None:
        connection = Connection()
        assert connection.server.state is SaslState.INITIAL_REQUEST
        assert {key.api_key for key in connection.versions().api_keys} == {17, 18, 36}
        assert connection.server.client_software == ("test", "1.0")
        response = connection.shake("PLAIN")
        assert (response.error_code, response.mechanisms) == (0, ["PLAIN", *HASHES])
        final = connection.authenticate(plain("alice", version=version), version)
        assert (final.error_code, final.auth_bytes, final.session_lifetime_ms) == (0, b"", 0)
        assert connection.server.complete
        assert connection.server.principal == ALICE
        assert connection.server.client_reauthenticates == (version > 0)

    @pytest.mark.parametrize("mechanism", list(HASHES))
    def test_scram(self, mechanism: str) -> None:
        connection = Connection()
        connection.shake(mechanism)
        assert log_in_with_scram(connection, ScramClient(mechanism, "bob", PASSWORDS["bob"])).error_code == 0
        assert connection.server.principal == KafkaPrincipal("User", "bob")

    @pytest.mark.mechanism("A03")
    def test_the_principal_of_a_delegation_token_is_its_owner(self) -> None:
        clock = MockClock()
        connection = Connection(settings(token_expiry_ms=clock.milliseconds() + 5_000), clock)
        connection.shake("SCRAM-SHA-256")
        client = ScramClient("SCRAM-SHA-256", "token-1", "hmac", {"tokenauth": "true"})
        assert log_in_with_scram(connection, client).session_lifetime_ms == 5_000
        principal = connection.server.principal
        assert principal == ALICE
        assert principal is not None
        assert principal.token_authenticated

    def test_bare_tokens_after_handshake_v0(self) -> None:
        connection = Connection()
        connection.shake("SCRAM-SHA-256", 0)
        client = ScramClient("SCRAM-SHA-256", "alice", PASSWORDS["alice"])
        first = connection.send(client.initial_response())
        assert struct.unpack_from(">i", first.response) == (len(first.response) - 4,)
        answer = client.evaluate(first.response[4:])
        assert answer is not None
        assert client.evaluate(connection.send(answer).response[4:]) is None
        assert connection.server.principal == ALICE

    def test_an_empty_bare_token_is_sent(self) -> None:
        connection = Connection()
        connection.shake("PLAIN", 0)
        assert connection.send(b"\0alice\0wonder").response == bytes(4)

    def test_a_bare_token_that_fails_gets_no_response(self) -> None:
        connection = Connection()
        connection.shake("PLAIN", 0)
        response, failure = connection.send(b"\0alice\0wrong")
        assert response == b""
        assert isinstance(failure, SaslAuthenticationError)

    def test_api_versions_once(self) -> None:
        connection = Connection()
        connection.versions()
        response, failure = connection.send(versions_request())
        assert response == b""
        assert isinstance(failure, IllegalSaslStateError)
        assert connection.server.state is SaslState.FAILED

    def test_an_unsupported_api_versions_may_be_repeated(self) -> None:
        connection = Connection()
        for _ in range(2):
            request = bytearray(versions_request())
            request[2:4] = (ApiKey.API_VERSIONS.versions.highest + 1).to_bytes(2, "big")
            decision = connection.send(bytes(request))
            assert decision.failure is None
            refused = decode(ApiVersionsResponse, decision.response, 0)
            assert refused.error_code == Errors.UNSUPPORTED_VERSION
            assert [(key.api_key, key.min_version) for key in refused.api_keys] == [(18, 0)]
        connection.versions()
        connection.log_in()

    def test_client_software_without_a_proper_name(self) -> None:
        connection = Connection()
        decision = connection.send(versions_request(software="-bad-"))
        assert decode(ApiVersionsResponse, decision.response, 3).error_code == Errors.INVALID_REQUEST
        assert connection.server.client_software is None
        connection.versions()

    def test_an_unknown_mechanism(self) -> None:
        connection = Connection()
        response, failure = connection.send(handshake("GSSAPI"))
        refused = decode(SaslHandshakeResponse, response, 1)
        assert (refused.error_code, refused.mechanisms) == (33, ["PLAIN", *HASHES])
        assert isinstance(failure, UnsupportedSaslMechanismError)

    @pytest.mark.parametrize("after_versions", [False, True])
    def test_another_request_before_the_handshake_gets_no_response(self, after_versions: bool) -> None:
        for request in (frame(MetadataRequest(topics=None), 12), plain("alice")):
            connection = Connection()
            if after_versions:
                connection.versions()
            response, failure = connection.send(request)
            assert response == b""
            assert isinstance(failure, IllegalSaslStateError)
            assert "during SASL handshake" in str(failure)

    def test_another_request_after_the_handshake_gets_its_own_response(self) -> None:
        connection = Connection()
        connection.shake("PLAIN")
        response, failure = connection.send(frame(MetadataRequest(topics=None), 13))
        assert decode(MetadataResponse, response, 13).error_code == Errors.ILLEGAL_SASL_STATE
        assert isinstance(failure, IllegalSaslStateError)
        assert not connection.server.complete

    def test_a_second_handshake(self) -> None:
        connection = Connection(SaslServerSettings(mechanisms(), api_versions))
        connection.shake("PLAIN")
        response, failure = connection.send(handshake("PLAIN"))
        assert response == b""
        assert isinstance(failure, IllegalSaslStateError)

    @pytest.mark.parametrize("request_", [handshake("PLAIN"), plain("alice")])
    def test_unsupported_versions_get_no_response(self, request_: bytes) -> None:
        connection = Connection()
        if request_[:2] == b"\0$":  # SaslAuthenticate
            connection.shake("PLAIN")
        changed = request_[:2] + b"\0\x63" + request_[4:]
        response, failure = connection.send(changed)
        assert response == b""
        assert isinstance(failure, AuthenticationError)

    def test_nothing_is_taken_after_a_failure_or_after_the_end(self) -> None:
        connection = Connection()
        connection.log_in()
        assert isinstance(connection.send(plain("alice")).failure, IllegalSaslStateError)
        assert connection.server.complete
        failed = Connection()
        failed.send(b"")
        assert isinstance(failed.send(handshake("PLAIN")).failure, IllegalSaslStateError)
        assert failed.server.state is SaslState.FAILED

    def test_a_listener_without_mechanisms(self) -> None:
        with pytest.raises(ValueError, match="no SASL mechanism is enabled"):
            SaslServerSettings({}, api_versions)


@pytest.mark.mechanism("A04")
class TestFailures:
    def refused(self, connection: Connection, request: bytes) -> tuple[int, str | None]:
        response, failure = connection.send(request)
        assert isinstance(failure, SaslAuthenticationError)
        assert connection.server.state is SaslState.FAILED
        decoded = decode(SaslAuthenticateResponse, response, 2)
        assert decoded.error_message == str(failure)
        return decoded.error_code, decoded.error_message

    @pytest.mark.mechanism("A05")
    def test_plain(self) -> None:
        for name, password in (("alice", "wrong"), ("nobody", "wonder")):
            connection = Connection()
            connection.shake("PLAIN")
            assert self.refused(connection, plain(name, password)) == (
                58,
                "Authentication failed: Invalid username or password",
            )
            assert connection.server.principal is None

    @pytest.mark.mechanism("A06")
    @pytest.mark.parametrize("mechanism", list(HASHES))
    def test_scram(self, mechanism: str) -> None:
        expected = (
            58,
            f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}",
        )
        connection = Connection()
        connection.shake(mechanism)
        unknown = ScramClient(mechanism, "nobody", "wonder")
        assert self.refused(connection, token(unknown.initial_response())) == expected
        connection = Connection()
        connection.shake(mechanism)
        wrong = ScramClient(mechanism, "alice", "wrong")
        first = connection.authenticate(token(wrong.initial_response()))
        answer = wrong.evaluate(bytes(first.auth_bytes))
        assert answer is not None
        assert self.refused(connection, token(answer)) == expected

    def test_a_source_of_credentials_that_fails(self, caplog: pytest.LogCaptureFixture) -> None:
        class Broken:
            def credential(self, _mechanism: str, _username: str) -> None:
                raise RuntimeError("no metadata")

        sasl = SaslServerSettings({"SCRAM-SHA-256": lambda: ScramServer("SCRAM-SHA-256", Broken())}, api_versions)
        connection = Connection(sasl)
        connection.shake("SCRAM-SHA-256")
        code, message = self.refused(connection, token(b"n,,n=alice,r=x"))
        assert code == 58
        assert "no metadata" not in str(message)
        assert "no metadata" in caplog.text

    def test_the_first_frame_is_no_request(self) -> None:
        for data in (b"", b"\x60\x82\2\3 Kerberos", b"GET / HTTP/1.1\r\n\r\n", b"\0\x11\0\1\0\0\0\7\x7f\xff"):
            connection = Connection()
            response, failure = connection.send(data)
            assert response == b""
            assert isinstance(failure, AuthenticationError)

    @given(st.lists(st.binary(max_size=80), min_size=1, max_size=4), st.integers(0, 3), st.data())
    def test_no_bytes_authenticate(self, frames: list[bytes], beginning: int, data: st.DataObject) -> None:
        connection = Connection(SETTINGS)
        if beginning & 1:
            connection.versions()
        if beginning & 2:
            connection.shake(data.draw(st.sampled_from(["PLAIN", *HASHES])), data.draw(st.integers(0, 1)))
        for sent in frames:
            for request in (sent, token(sent)) if data.draw(st.booleans()) else (sent,):
                connection.send(request)
                assert not connection.server.complete
                assert connection.server.principal is None

    @given(st.data())
    def test_no_damaged_request_raises(self, data: st.DataObject) -> None:
        """One changed byte: the exchange goes on or fails, and nobody else is authenticated."""
        connection = Connection(SETTINGS)
        for request in (versions_request(), handshake("PLAIN"), plain("alice")):
            damaged = bytearray(request)
            damaged[data.draw(st.integers(0, len(request) - 1))] = data.draw(st.integers(0, 255))
            connection.send(bytes(damaged) if data.draw(st.booleans()) else request)
        assert connection.server.principal in {None, ALICE}


SETTINGS = settings()


@pytest.mark.mechanism("A09")
class TestSessions:
    def again(self, connection: Connection, mechanism: str = "PLAIN", version: int = 1) -> SaslHandshakeResponse:
        assert connection.server.may_reauthenticate()
        connection.server.begin_reauthentication()
        assert connection.server.state is SaslState.REAUTH_PROCESS_HANDSHAKE
        assert connection.server.principal == ALICE
        return connection.shake(mechanism, version)

    def test_the_lifetime_is_the_smaller_limit(self) -> None:
        clock = MockClock()
        cases = ((0, 0, 0), (1_000, 0, 1_000), (9_000, 5_000, 5_000), (3_000, 5_000, 3_000), (0, 5_000, 5_000))
        for limit, expiry, expected in cases:
            sasl = settings(
                dict.fromkeys(["PLAIN", "SCRAM-SHA-256"], limit), token_expiry_ms=clock.milliseconds() + expiry
            )
            connection = Connection(sasl, clock)
            if expiry:
                connection.shake("SCRAM-SHA-256")
                client = ScramClient("SCRAM-SHA-256", "token-1", "hmac", {"tokenauth": "true"})
                assert log_in_with_scram(connection, client).session_lifetime_ms == expected
            else:
                assert connection.log_in().session_lifetime_ms == expected
            server = connection.server
            now = clock.nanoseconds()
            if expected:
                assert server.session_expires_ns == now + expected * 1_000_000
                assert not server.session_expired(now + expected * 1_000_000)
                assert server.session_expired(now + expected * 1_000_000 + 1)
            else:
                assert not server.session_expired(now + 10**18)

    def test_a_credential_that_has_expired_meanwhile(self) -> None:
        clock = MockClock()
        connection = Connection(settings(token_expiry_ms=clock.milliseconds() - 1), clock)
        connection.shake("SCRAM-SHA-256")
        client = ScramClient("SCRAM-SHA-256", "token-1", "hmac", {"tokenauth": "true"})
        assert log_in_with_scram(connection, client).session_lifetime_ms == 0
        assert connection.server.session_expired(clock.nanoseconds() + 1)

    def test_a_client_authenticates_again(self) -> None:
        connection = Connection(settings({"PLAIN": 10_000}))
        connection.log_in()
        first = connection.server.session_expires_ns
        connection.clock.advance(9_000)
        assert self.again(connection).error_code == 0
        assert connection.authenticate(plain("alice")).session_lifetime_ms == 10_000
        assert connection.server.complete
        assert first is not None
        assert connection.server.session_expires_ns == first + 9_000 * 1_000_000

    def test_not_without_a_session_end(self) -> None:
        connection = Connection()
        connection.log_in()
        assert not connection.server.may_reauthenticate()

    def test_not_before_the_first_authentication(self) -> None:
        connection = Connection(settings({"PLAIN": 10_000}))
        assert not connection.server.may_reauthenticate()
        with pytest.raises(IllegalSaslStateError):
            connection.server.begin_reauthentication()

    def test_not_twice_within_a_second(self) -> None:
        connection = Connection(settings({"PLAIN": 10_000}))
        connection.log_in()
        self.again(connection)
        connection.authenticate(plain("alice"))
        connection.clock.advance(999)
        assert not connection.server.may_reauthenticate()
        connection.clock.advance(1)
        assert connection.server.may_reauthenticate()

    def test_not_as_another_principal(self) -> None:
        connection = Connection(settings({"PLAIN": 10_000}))
        connection.log_in()
        self.again(connection)
        response = connection.authenticate(plain("bob"))
        assert (response.error_code, response.error_message) == (
            58,
            "Cannot change principals during re-authentication from User.alice: User.bob",
        )
        assert not connection.server.complete
        assert connection.server.state is SaslState.FAILED

    def test_not_with_another_mechanism(self) -> None:
        for version in (0, 1):
            connection = Connection(settings({"PLAIN": 10_000}))
            connection.log_in()
            assert self.again(connection, "SCRAM-SHA-256", version).error_code == 0
            client = ScramClient("SCRAM-SHA-256", "alice", PASSWORDS["alice"])
            response, failure = connection.send(
                token(client.initial_response()) if version else client.initial_response()
            )
            assert str(failure) == (
                "SASL mechanism 'SCRAM-SHA-256' requested by client is not supported for re-authentication of "
                "mechanism 'PLAIN'"
            )
            if version:
                assert decode(SaslAuthenticateResponse, response, 2).error_code == 58
            else:
                assert response == b""

    def test_a_wrong_password(self) -> None:
        connection = Connection(settings({"SCRAM-SHA-256": 10_000}))
        connection.shake("SCRAM-SHA-256")
        log_in_with_scram(connection, ScramClient("SCRAM-SHA-256", "alice", PASSWORDS["alice"]))
        self.again(connection, "SCRAM-SHA-256")
        response = log_in_with_scram(connection, ScramClient("SCRAM-SHA-256", "alice", "wrong"))
        assert response.error_message == (
            "Authentication failed during re-authentication due to invalid credentials with SASL mechanism "
            "SCRAM-SHA-256"
        )

    def test_no_api_versions_during_re_authentication(self) -> None:
        connection = Connection(settings({"PLAIN": 10_000}))
        connection.log_in()
        connection.server.begin_reauthentication()
        assert isinstance(connection.send(versions_request()).failure, IllegalSaslStateError)


@pytest.mark.mechanism("A04")
def test_the_table_has_every_state_and_only_tokens_lead_to_the_end() -> None:
    assert set(TRANSITIONS) == set(SaslState)
    assert [state for state, events in TRANSITIONS.items() if SaslState.COMPLETE in events.values()] == [
        SaslState.AUTHENTICATE
    ]
    assert {event for events in TRANSITIONS.values() for event in events} == set(SaslEvent)
    waiting = set(SaslState) - {SaslState.COMPLETE, SaslState.FAILED}
    assert all(SaslEvent.FAILURE in TRANSITIONS[state] for state in waiting)
