"""SCRAM: the RFC's examples, both ends against each other, and everything that must not authenticate."""

from __future__ import annotations

import base64
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.common.errors import IllegalSaslStateError, InvalidConfigurationError, SaslAuthenticationError
from barnabas.security.sasl.mechanism import CREDENTIAL_EXPIRY_MS, TOKEN_AUTH, TOKEN_ID, SaslExchangeError
from barnabas.security.sasl.scram import (
    HASHES,
    MAX_CLIENT_ITERATIONS,
    MAX_MESSAGE,
    SCRAM_SHA_256,
    ScramClient,
    ScramCredential,
    ScramServer,
    TokenCredential,
    client_key,
    salted_password,
    sasl_name,
    server_key,
    stored_key,
    username_of,
)

pytestmark = pytest.mark.mechanism("A06")

EVERY_MECHANISM = pytest.mark.parametrize("mechanism", list(HASHES))
RFC_SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
RFC_CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
RFC_SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"


class Store:
    """Credentials of users, one for each mechanism, with the cheapest salt."""

    def __init__(self, **passwords: str) -> None:
        self._credentials = {
            (mechanism, name): ScramCredential.of_password(mechanism, password, salt=b"salt")
            for name, password in passwords.items()
            for mechanism in HASHES
        }
        self.asked: list[str] = []

    def credential(self, mechanism: str, username: str) -> ScramCredential | None:
        self.asked.append(username)
        return self._credentials.get((mechanism, username))


class Tokens:
    """One delegation token."""

    def credential(self, mechanism: str, token_id: str) -> TokenCredential | None:
        if token_id != "token-1":
            return None
        return TokenCredential("alice", 1_234, ScramCredential.of_password(mechanism, "hmac", salt=b"salt"))


def exchange(client: ScramClient, server: ScramServer) -> None:
    """Runs both ends to the end."""
    token: bytes | None = client.initial_response()
    while token is not None:
        token = client.evaluate(server.evaluate(token))


def test_the_example_of_rfc_7677() -> None:
    credential = ScramCredential.of_password(SCRAM_SHA_256, "pencil", salt=RFC_SALT)

    class One:
        def credential(self, _mechanism: str, _username: str) -> ScramCredential:
            return credential

    client = ScramClient(SCRAM_SHA_256, "user", "pencil", nonce=lambda: RFC_CLIENT_NONCE)
    server = ScramServer(SCRAM_SHA_256, One(), nonce=lambda: RFC_SERVER_NONCE)
    first = client.initial_response()
    assert first == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    challenge = server.evaluate(first)
    assert challenge == (b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    final = client.evaluate(challenge)
    assert final == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    last = server.evaluate(final)
    assert last == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert client.evaluate(last) is None
    assert client.complete
    assert server.complete
    assert server.authorization_id == "user"


def test_the_keys_of_the_example_of_rfc_5802() -> None:
    salted = salted_password("sha1", b"pencil", base64.b64decode("QSXCR+Q6sek8bf92"), 4096)
    assert salted.hex() == "1d96ee3a529b5a5f9e47c01f229a2cb8a6e15f7d"
    assert client_key("sha1", salted).hex() == "e234c47bf6c36696dd6d852b99aaa2ba26555728"
    assert stored_key("sha1", salted).hex() == "e9d94660c39d65c38fbad91c358f14da0eef2bd6"
    assert server_key("sha1", salted).hex() == "0fe09258b3ac852ba502cc62ba903eaacdbf7d31"


@EVERY_MECHANISM
def test_both_ends(mechanism: str) -> None:
    client = ScramClient(mechanism, "al,i=ce", "s,e=crèt")
    server = ScramServer(mechanism, Store(**{"al,i=ce": "s,e=crèt"}))
    exchange(client, server)
    assert client.complete
    assert (server.complete, server.authorization_id, dict(server.negotiated)) == (True, "al,i=ce", {})


@EVERY_MECHANISM
def test_a_wrong_password(mechanism: str) -> None:
    client, server = ScramClient(mechanism, "alice", "wrong"), ScramServer(mechanism, Store(alice="right"))
    with pytest.raises(SaslExchangeError, match="Invalid client credentials"):
        exchange(client, server)
    assert not client.complete
    assert not server.complete
    with pytest.raises(IllegalSaslStateError):
        _ = server.authorization_id
    with pytest.raises(IllegalSaslStateError):
        server.evaluate(b"")


def test_an_unknown_user() -> None:
    server = ScramServer(SCRAM_SHA_256, Store())
    with pytest.raises(SaslExchangeError):  # not an error whose text goes to the client
        server.evaluate(ScramClient(SCRAM_SHA_256, "nobody", "x").initial_response())
    assert not server.complete


def test_a_credential_of_another_mechanism_does_not_count() -> None:
    class Sha512Only(Store):
        def credential(self, mechanism: str, username: str) -> ScramCredential | None:
            return None if mechanism == SCRAM_SHA_256 else super().credential(mechanism, username)

    with pytest.raises(SaslExchangeError):
        exchange(ScramClient(SCRAM_SHA_256, "alice", "x"), ScramServer(SCRAM_SHA_256, Sha512Only(alice="x")))


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30))
def test_names_are_escaped(name: str) -> None:
    assert "," not in sasl_name(name)
    assert username_of(sasl_name(name)) == name


class TestTokens:
    def test_the_owner_is_authenticated(self) -> None:
        client = ScramClient(SCRAM_SHA_256, "token-1", "hmac", {"tokenauth": "true"})
        store = Store(**{"token-1": "hmac"})
        server = ScramServer(SCRAM_SHA_256, store, Tokens())
        exchange(client, server)
        assert server.authorization_id == "alice"
        assert server.negotiated == {TOKEN_AUTH: True, TOKEN_ID: "token-1", CREDENTIAL_EXPIRY_MS: 1_234}
        assert store.asked == []

    def test_a_user_is_not_a_token(self) -> None:
        client = ScramClient(SCRAM_SHA_256, "alice", "x", {"tokenauth": "TRUE"})
        for tokens in (Tokens(), None):
            with pytest.raises(SaslExchangeError, match="no delegation token"):
                ScramServer(SCRAM_SHA_256, Store(alice="x"), tokens).evaluate(b"n,,n=alice,r=x,tokenauth=TRUE")
        assert client.initial_response().endswith(b",tokenauth=TRUE")

    def test_a_token_is_not_a_user(self) -> None:
        with pytest.raises(SaslExchangeError, match="has no SCRAM"):
            exchange(ScramClient(SCRAM_SHA_256, "token-1", "hmac"), ScramServer(SCRAM_SHA_256, Store(), Tokens()))

    def test_other_extensions_are_ignored(self) -> None:
        client = ScramClient(SCRAM_SHA_256, "alice", "x", {"tokenauth": "false", "colour": "red"})
        server = ScramServer(SCRAM_SHA_256, Store(alice="x"), Tokens())
        exchange(client, server)
        assert server.authorization_id == "alice"


class TestServer:
    @pytest.mark.parametrize(
        "message",
        [
            b"",
            b"n,,n=,r=x",
            b"n,,n=alice,r=",
            b"n,,n=alice",
            b"y,,n=alice,r=x",
            b"p=tls-unique,,n=alice,r=x",
            b"n,,m=must,n=alice,r=x",
            b"n,,n=al=ice,r=x",
            b"n,,n=alice,r=x,",
            b"n,,n=alice,r=\xff",
            b"n,,n=alice,r=x\n",
            b"n,,n=alice,r=" + b"x" * MAX_MESSAGE,
        ],
    )
    def test_first_messages_that_are_refused(self, message: bytes) -> None:
        server = ScramServer(SCRAM_SHA_256, Store(alice="x"))
        with pytest.raises(SaslExchangeError):
            server.evaluate(message)
        with pytest.raises(IllegalSaslStateError):
            server.evaluate(b"n,,n=alice,r=x")

    def test_another_authorization_id(self) -> None:
        ScramServer(SCRAM_SHA_256, Store(alice="x")).evaluate(b"n,a=alice,n=alice,r=x")
        with pytest.raises(SaslAuthenticationError, match="authorization id that is different from username"):
            ScramServer(SCRAM_SHA_256, Store(alice="x")).evaluate(b"n,a=bob,n=alice,r=x")

    def test_a_credential_with_too_few_iterations(self) -> None:
        class Weak:
            def credential(self, _mechanism: str, _username: str) -> ScramCredential:
                return ScramCredential(b"s", b"k", b"k", 4095)

        with pytest.raises(SaslExchangeError, match="4095 iterations; the minimum"):
            ScramServer(SCRAM_SHA_256, Weak()).evaluate(b"n,,n=alice,r=x")

    @pytest.mark.parametrize(
        ("before", "after", "message"),
        [
            (b"r=", b"r=x", "Invalid client nonce"),
            (b"c=biws", b"c=eSws", "channel binding differs"),
            (b"c=biws", b"c=biw", "not base64"),
            (b"p=", b"p=AAAA", "proof of 35 bytes"),
            (b",p=", b",ext=1,p=", "Invalid client credentials"),
            (b"c=", b"d=", "Invalid SCRAM client-final message format"),
        ],
    )
    def test_final_messages_that_are_refused(self, before: bytes, after: bytes, message: str) -> None:
        client, server = ScramClient(SCRAM_SHA_256, "alice", "x"), ScramServer(SCRAM_SHA_256, Store(alice="x"))
        final = client.evaluate(server.evaluate(client.initial_response()))
        assert final is not None
        with pytest.raises(SaslExchangeError, match=message):
            server.evaluate(final.replace(before, after, 1))
        assert not server.complete

    def test_a_proof_is_valid_once(self) -> None:
        """The nonce of the server makes a recorded exchange worthless."""
        client, store = ScramClient(SCRAM_SHA_256, "alice", "x"), Store(alice="x")
        first = client.initial_response()
        final = client.evaluate(ScramServer(SCRAM_SHA_256, store).evaluate(first))
        assert final is not None
        replayed = ScramServer(SCRAM_SHA_256, store)
        replayed.evaluate(first)
        with pytest.raises(SaslExchangeError, match="Invalid client nonce"):
            replayed.evaluate(final)

    @given(st.lists(st.binary(max_size=60), max_size=3), st.data())
    def test_no_bytes_authenticate_without_the_password(self, tokens: list[bytes], data: st.DataObject) -> None:
        server = ScramServer(SCRAM_SHA_256, STORE)
        if data.draw(st.booleans()):
            server.evaluate(b"n,,n=alice,r=x")
        for token in tokens:
            with contextlib.suppress(SaslExchangeError, SaslAuthenticationError, IllegalSaslStateError):
                server.evaluate(token)
            assert not server.complete


STORE = Store(alice="x")


class TestClient:
    def challenged(self, challenge: bytes) -> tuple[ScramClient, bytes | None]:
        client = ScramClient(SCRAM_SHA_256, "alice", "x", nonce=lambda: "abc")
        client.initial_response()
        return client, client.evaluate(challenge)

    @pytest.mark.parametrize(
        ("challenge", "message"),
        [
            (b"r=abd,s=c2FsdA==,i=4096", "does not start with client nonce"),
            (b"r=abc,s=c2FsdA==,i=4096", "does not start with client nonce"),
            (b"r=abcd,s=c2FsdA==,i=4095", "requests 4095 iterations"),
            (f"r=abcd,s=c2FsdA==,i={MAX_CLIENT_ITERATIONS + 1}".encode(), "requests 1048577 iterations"),
            (b"r=abcd,s=c2Fsd,i=4096", "not base64"),
            (b"m=x,r=abcd,s=c2FsdA==,i=4096", "Invalid SCRAM server-first message format"),
            (b"", "Invalid SCRAM server-first message format"),
        ],
    )
    def test_challenges_that_are_refused(self, challenge: bytes, message: str) -> None:
        with pytest.raises(SaslExchangeError, match=message):
            self.challenged(challenge)

    @pytest.mark.parametrize(
        ("final", "message"),
        [
            (b"v=AAAA", "Invalid server signature"),
            (b"v=", "Invalid server signature"),
            (b"e=other-error", "SCRAM-SHA-256 failed with error: other-error"),
            (b"x=1", "Invalid SCRAM server-final message format"),
        ],
    )
    def test_a_server_without_the_credential(self, final: bytes, message: str) -> None:
        client, _ = self.challenged(b"r=abcd,s=c2FsdA==,i=4096")
        with pytest.raises(SaslExchangeError, match=message):
            client.evaluate(final)
        assert not client.complete

    def test_settings(self) -> None:
        for name, password in (("", "x"), ("x", ""), ("a\0b", "x")):
            with pytest.raises(InvalidConfigurationError):
                ScramClient(SCRAM_SHA_256, name, password)

    @given(st.lists(st.binary(max_size=60), max_size=3))
    def test_no_bytes_of_a_server_satisfy_it(self, challenges: list[bytes]) -> None:
        client = ScramClient(SCRAM_SHA_256, "alice", "x")
        client.initial_response()
        for challenge in challenges:
            with contextlib.suppress(SaslExchangeError, IllegalSaslStateError):
                client.evaluate(challenge)
            assert not client.complete


class TestCredential:
    @EVERY_MECHANISM
    def test_kafkas_string_form(self, mechanism: str) -> None:
        credential = ScramCredential.of_password(mechanism, "secret", iterations=8192)
        assert ScramCredential.parse(credential.to_text()) == credential
        assert credential.to_text().endswith(",iterations=8192")

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "salt=a",
            "salt=YQ==,stored_key=YQ==,server_key=YQ==",
            "salt=?,stored_key=YQ==,server_key=YQ==,iterations=4096",
            "salt=YQ==,stored_key=YQ==,server_key=YQ==,iterations=many",
            "salt=YQ==,salt=YQ==,server_key=YQ==,iterations=1",
        ],
    )
    def test_other_strings(self, text: str) -> None:
        with pytest.raises(ValueError, match="SCRAM credential") as caught:
            ScramCredential.parse(text)
        assert "YQ" not in str(caught.value)

    @pytest.mark.parametrize("iterations", [4095, 16_385])
    def test_limits(self, iterations: int) -> None:
        with pytest.raises(ValueError, match=f"between 4096 and 16384: {iterations}"):
            ScramCredential.of_password(SCRAM_SHA_256, "secret", iterations=iterations)

    @pytest.mark.mechanism("A12")
    def test_no_secret_in_a_repr(self) -> None:
        credential = ScramCredential.of_password(SCRAM_SHA_256, "hush", salt=b"pepper")
        client, server = ScramClient(SCRAM_SHA_256, "alice", "hush"), ScramServer(SCRAM_SHA_256, Store(alice="hush"))
        exchange(client, server)
        assert repr(credential) == "ScramCredential(iterations=4096)"
        assert "hush" not in repr((client, server, TokenCredential("alice", 1, credential)))
