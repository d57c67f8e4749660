"""Where a client's tokens come from: grants over HTTP, files, unsecured ones, and the login that replaces them."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat

from barnabas.common.clock import MockClock
from barnabas.common.errors import InvalidConfigurationError, SaslAuthenticationError
from barnabas.security.sasl.jwks import RefreshingJwks
from barnabas.security.sasl.mechanism_table import (
    CLIENT_MECHANISMS,
    SERVER_MECHANISMS,
    ClientCredentials,
    ServerCallbacks,
    client_mechanism,
    gssapi_client,
    server_mechanism,
)
from barnabas.security.sasl.oauth_http import MAX_BYTES, HttpError, check_url, fetch_json
from barnabas.security.sasl.oauth_login import RETRY_AFTER_FAILURE_MS, OAuthLogin, RefreshSettings
from barnabas.security.sasl.oauth_token import OAuthBearerToken
from barnabas.security.sasl.plain import PlainCredentials
from barnabas.security.sasl.token_provider import (
    AssertionSigner,
    ClientCredentialsProvider,
    FileTokenProvider,
    JwtBearerProvider,
    TokenEndpoint,
    UnsecuredTokenProvider,
)
from barnabas.security.sasl.token_validator import UnsecuredTokenValidator
from unit.security.sasl.jwt_factory import NOW_S, jwk, private_key, unsecured

pytestmark = pytest.mark.mechanism("A07")


class IdentityProvider(HTTPServer):
    """Answers every request as a test wants, and remembers it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/token"
        self.status, self.body = 200, b'{"access_token": " issued "}'
        self.location: str | None = None
        self.requests: list[tuple[str, dict[str, str], dict[str, list[str]]]] = []


class Handler(BaseHTTPRequestHandler):
    server: IdentityProvider

    def do_POST(self) -> None:
        form = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        self.server.requests.append((self.path, dict(self.headers), parse_qs(form)))
        self.send_response(self.server.status)
        if self.server.location is not None:
            self.send_header("Location", self.server.location)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    do_GET = do_POST  # noqa: N815 - the names are the standard library's

    def log_message(self, *_arguments: Any) -> None: ...


@pytest.fixture
def identity() -> Iterator[IdentityProvider]:
    with IdentityProvider() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class TestHttp:
    def test_json(self, identity: IdentityProvider) -> None:
        identity.body = b'{"keys": []}'
        assert fetch_json(identity.url) == {"keys": []}

    @pytest.mark.parametrize(
        ("status", "body", "message", "permanent"),
        [
            (401, b'{"error": "invalid_client", "error_description": "who?"}', "status 401: invalid_client who?", True),
            (503, b"down", "status 503", False),
            (500, b"[]", "status 500", False),
            (200, b"<html>", "is not JSON", False),
            (200, b"[" * 100_000, "is not JSON", False),
            (200, b" " * (MAX_BYTES + 1), "has more than", False),
        ],
    )
    def test_failures(
        self, identity: IdentityProvider, status: int, body: bytes, message: str, permanent: bool
    ) -> None:
        identity.status, identity.body = status, body
        with pytest.raises(HttpError, match=message) as caught:
            fetch_json(identity.url)
        assert caught.value.permanent == permanent

    def test_redirects_are_not_followed(self, identity: IdentityProvider) -> None:
        identity.status, identity.location = 302, identity.url + "/elsewhere"
        with pytest.raises(HttpError, match="status 302"):
            fetch_json(identity.url, b"secret=1")
        assert len(identity.requests) == 1

    def test_nobody_there(self) -> None:
        with IdentityProvider() as server:
            url = server.url
        with pytest.raises(HttpError, match=r"cannot be reached: .*refused"):
            fetch_json(url)

    @pytest.mark.parametrize("url", ["ftp://host/x", "file:///etc/passwd", "host:80", "http://", "https://u:hush@h/"])
    def test_urls_that_are_refused(self, url: str) -> None:
        with pytest.raises(InvalidConfigurationError, match="setting must") as caught:
            check_url(url, "setting")
        assert "hush" not in str(caught.value)


class TestGrants:
    def test_client_credentials(self, identity: IdentityProvider) -> None:
        provider = ClientCredentialsProvider(TokenEndpoint(identity.url), " id ", "se+cr:et", " read write ")
        assert provider() == "issued"
        ((path, headers, form),) = identity.requests
        assert path == "/token"
        assert base64.b64decode(headers["Authorization"].removeprefix("Basic ")) == b"id:se+cr:et"
        assert form == {"grant_type": ["client_credentials"], "scope": ["read write"]}
        assert "cr" not in repr(provider).replace("ClientCredentialsProvider", "")

    def test_an_encoded_header(self, identity: IdentityProvider) -> None:
        ClientCredentialsProvider(TokenEndpoint(identity.url), "id", "a+b:c", header_urlencode=True)()
        ((_, headers, form),) = identity.requests
        assert base64.b64decode(headers["Authorization"].removeprefix("Basic ")) == b"id:a%2Bb%3Ac"
        assert "scope" not in form

    @pytest.mark.parametrize("body", [b"{}", b"[]", b'{"access_token": 5}', b'{"access_token": " "}'])
    def test_a_response_without_a_token(self, identity: IdentityProvider, body: bytes) -> None:
        identity.body = body
        with pytest.raises(HttpError, match="has no access_token"):
            ClientCredentialsProvider(TokenEndpoint(identity.url), "id", "secret")()

    def test_settings(self) -> None:
        with pytest.raises(InvalidConfigurationError, match="needs a client id and a client secret"):
            ClientCredentialsProvider(TokenEndpoint("http://h"), "id", " ")
        with pytest.raises(InvalidConfigurationError, match="must be a URL"):
            TokenEndpoint("h")

    @pytest.mark.parametrize(("name", "algorithm", "passphrase"), [("rsa", "RS256", None), ("ec", "ES256", "open")])
    def test_jwt_bearer(
        self, identity: IdentityProvider, tmp_path: Path, name: str, algorithm: str, passphrase: str | None
    ) -> None:
        path = self.key_file(tmp_path, name, passphrase)
        signer = AssertionSigner(
            path,
            {"sub": "alice", "aud": "https://issuer"},
            algorithm=algorithm,
            passphrase=passphrase,
            include_id=True,
            header={"kid": "k1"},
            clock=MockClock(NOW_S * 1000),
        )
        assert JwtBearerProvider(TokenEndpoint(identity.url), signer, "read")() == "issued"
        ((_, _, form),) = identity.requests
        assert form["grant_type"] == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]
        assert form["scope"] == ["read"]
        (assertion,) = form["assertion"]
        options: Any = {"verify_exp": False, "verify_aud": False}
        found = jwt.decode(assertion, private_key(name).public_key(), [algorithm], options=options)
        assert len(found.pop("jti")) == 32
        assert found == {
            "sub": "alice",
            "aud": "https://issuer",
            "iat": NOW_S,
            "exp": NOW_S + 300,
            "nbf": NOW_S - 60,
        }
        assert jwt.get_unverified_header(assertion)["kid"] == "k1"

    def key_file(self, tmp_path: Path, name: str, passphrase: str | None) -> Path:
        path = tmp_path / "key.pem"
        path.touch(0o600)
        encryption = NoEncryption() if passphrase is None else BestAvailableEncryption(passphrase.encode())
        path.write_bytes(private_key(name).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
        return path

    def test_keys_that_cannot_be_used(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidConfigurationError, match="the passphrase does not open it") as caught:
            AssertionSigner(self.key_file(tmp_path, "ec", "open"), {}, passphrase="hush")
        assert "hush" not in str(caught.value)
        with pytest.raises(InvalidConfigurationError, match="must be RS256 or ES256: HS256"):
            AssertionSigner("any", {}, algorithm="HS256")

    def test_a_file(self, tmp_path: Path) -> None:
        path = tmp_path / "token"
        path.touch(0o600)
        provider = FileTokenProvider(path)
        with pytest.raises(InvalidConfigurationError, match="has no token"):
            provider()
        path.write_text(" one\n")
        assert provider() == "one"
        path.write_text("two")
        assert provider() == "two"


class TestUnsecured:
    def test_kafkas_options(self) -> None:
        clock = MockClock(NOW_S * 1000)
        options = {
            "unsecuredLoginStringClaim_sub": "alice",
            "unsecuredLoginNumberClaim_level": "5",
            "unsecuredLoginListClaim_scope": "|one|two",
            "unsecuredLoginLifetimeSeconds": "60",
            "unsecuredLoginExtension_trace": "1",
        }
        found = UnsecuredTokenValidator(clock=clock).validate(UnsecuredTokenProvider(options, clock)())
        assert (found.principal_name, found.scope) == ("alice", frozenset({"one", "two"}))
        assert (found.start_ms, found.expiry_ms) == (NOW_S * 1000, (NOW_S + 60) * 1000)
        assert UnsecuredTokenProvider.extensions(options) == {"trace": "1"}

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({}, "needs a principal: the option unsecuredLoginStringClaim_sub"),
            ({"StringClaim_sub": "a", "PrincipalClaimName": "user"}, "StringClaim_user"),
            ({"StringClaim_sub": "a", "StringClaim_exp": "1"}, "Cannot explicitly set the 'exp' claim"),
            ({"StringClaim_sub": "a", "NumberClaim_n": "x"}, "NumberClaim_n must be a number: x"),
            ({"StringClaim_sub": "a", "LifetimeSeconds": "-1"}, "LifetimeSeconds must be a number of seconds: -1"),
        ],
    )
    def test_bad_options(self, options: dict[str, str], message: str) -> None:
        with pytest.raises(InvalidConfigurationError, match=message):
            UnsecuredTokenProvider({f"unsecuredLogin{name}": value for name, value in options.items()})


class Source:
    """A provider that counts its calls, and fails as a test wants."""

    def __init__(self, clock: MockClock, lifetime_s: int = 3600) -> None:
        self._clock = clock
        self._lifetime_s = lifetime_s
        self.calls = 0
        self.errors: list[Exception] = []

    def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        now_s = self._clock.milliseconds() // 1000
        return unsecured(sub=f"user-{self.calls}", iat=now_s, exp=now_s + self._lifetime_s)


class TestLogin:
    def test_the_token_is_replaced_before_it_expires(self) -> None:
        clock = MockClock(NOW_S * 1000)
        source = Source(clock)
        login = OAuthLogin(source, clock=clock, rng=random.Random(1))
        with pytest.raises(SaslAuthenticationError, match="there is no token yet"):
            login.token()
        login.start()
        try:
            clock.await_waiters(1)
            first = login.token()
            clock.advance(3600 * 800 - 1)
            clock.await_waiters(1)
            assert source.calls == 1
            clock.advance(3600 * 50 + 1)
            self.settle(clock, source, 2)
            assert login.token() != first
            assert login.current is not None
            assert login.current.principal_name == "user-2"
            assert "." not in repr(login).replace("frozenset", "")
        finally:
            login.close()

    def settle(self, clock: MockClock, source: Source, calls: int) -> None:
        while source.calls < calls:
            clock.await_waiters(1)
        clock.await_waiters(1)

    def test_a_failed_replacement_is_repeated(self, caplog: pytest.LogCaptureFixture) -> None:
        clock = MockClock(NOW_S * 1000)
        source = Source(clock)
        login = OAuthLogin(source, clock=clock)
        login.start()
        try:
            clock.await_waiters(1)
            first = login.token()
            source.errors = [HttpError("status 401", permanent=True), RuntimeError("hush")]
            clock.advance(3600 * 851)
            self.settle(clock, source, 2)
            assert login.token() == first
            clock.advance(RETRY_AFTER_FAILURE_MS)
            self.settle(clock, source, 3)
            assert login.token() == first
            clock.advance(RETRY_AFTER_FAILURE_MS)
            self.settle(clock, source, 4)
            assert login.token() != first
            assert "status 401" in caplog.text
            assert "the provider raised RuntimeError" in caplog.text
            assert "hush" not in caplog.text
        finally:
            login.close()

    def test_an_expired_token_is_not_used(self) -> None:
        clock = MockClock(NOW_S * 1000)
        login = OAuthLogin(lambda: OAuthBearerToken("opaque", "alice", NOW_S * 1000 + 1_000), clock=clock)
        login._replace(login._obtain())
        assert login.token() == "opaque"
        clock.advance(1_000)
        with pytest.raises(SaslAuthenticationError, match="the token has expired"):
            login.token()

    def test_temporary_errors_are_retried_for_a_while(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = MockClock(NOW_S * 1000)
        pauses: list[float] = []

        def pause(_login: OAuthLogin, milliseconds: float) -> bool:
            pauses.append(milliseconds)
            clock.advance(milliseconds)
            return True

        monkeypatch.setattr(OAuthLogin, "_pause", pause)
        source = Source(clock)
        source.errors = [HttpError("status 503"), ConnectionResetError("reset")]
        login = OAuthLogin(source, clock=clock)
        login._obtain()
        assert pauses == [100, 200]
        pauses.clear()
        source.errors = [HttpError("status 503") for _ in range(1_000)]
        with pytest.raises(SaslAuthenticationError, match="no token could be obtained: status 503"):
            login._obtain()
        assert pauses == [100, 200, 400, 800, 1600, 3200]

    def test_permanent_errors_are_not_retried(self) -> None:
        clock = MockClock(NOW_S * 1000)
        source = Source(clock)
        source.errors = [HttpError("status 401", permanent=True)]
        with pytest.raises(SaslAuthenticationError, match="status 401"):
            OAuthLogin(source, clock=clock).start()
        assert source.calls == 1

    def test_a_token_that_is_no_jwt(self) -> None:
        with pytest.raises(SaslAuthenticationError, match="not usable: a JWT has 3 parts"):
            OAuthLogin(lambda: "opaque").start()

    def test_an_asynchronous_provider(self) -> None:
        async def provide() -> OAuthBearerToken:
            await asyncio.sleep(0)
            return OAuthBearerToken("opaque", "alice", 2**53)

        login = OAuthLogin(provide)
        login.start()
        login.close()
        assert login.token() == "opaque"

    def test_an_asynchronous_provider_in_the_applications_loop(self) -> None:
        async def application() -> str:
            loop = asyncio.get_running_loop()

            async def provide() -> OAuthBearerToken:
                assert asyncio.get_running_loop() is loop
                return OAuthBearerToken("opaque", "alice", 2**53)

            login = OAuthLogin(provide, loop=loop)
            await asyncio.to_thread(login.start)
            login.close()
            return login.token()

        assert asyncio.run(application()) == "opaque"

    @pytest.mark.parametrize(
        ("lifetime_s", "share", "expected_s"),
        [(3600, 0.0, 2880), (3600, 1.0, 3060), (400, 0.0, 100), (361, 1.0, 61), (100, 0.0, 80), (36_000, 0.0, 28_800)],
    )
    def test_when_it_is_replaced(self, lifetime_s: int, share: float, expected_s: int) -> None:
        token = OAuthBearerToken("x", "alice", lifetime_s * 1000)
        assert RefreshSettings().refresh_at_ms(0, token, share) == pytest.approx(expected_s * 1000, abs=1)

    @pytest.mark.parametrize("start_ms", [0, None])
    def test_a_provider_that_returns_the_same_token_is_not_called_without_a_pause(self, start_ms: int | None) -> None:
        hour_ms = 3_600_000
        token = OAuthBearerToken("x", "alice", hour_ms, start_ms=start_ms)
        calls = [0]
        while calls[-1] < 2 * hour_ms:
            calls.append(RefreshSettings().refresh_at_ms(calls[-1], token, 0.5))
            assert calls[-1] > calls[-2]
        assert len([call for call in calls if call < hour_ms]) < 30
        late = [call for call in calls if call > hour_ms]
        assert {after - before for before, after in itertools.pairwise(late)} == {RETRY_AFTER_FAILURE_MS}


class TestTable:
    def test_every_mechanism_has_both_ends(self) -> None:
        assert list(SERVER_MECHANISMS) == [*CLIENT_MECHANISMS, "GSSAPI"]
        assert list(CLIENT_MECHANISMS) == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]

    def test_both_ends_of_plain(self) -> None:
        server = server_mechanism("PLAIN", ServerCallbacks(plain=PlainCredentials({"a": "b"})))()
        server.evaluate(client_mechanism("PLAIN", ClientCredentials("a", "b"))().initial_response())
        assert server.complete

    def test_a_delegation_token(self) -> None:
        credentials = ClientCredentials("token-1", "hmac", delegation_token=True)
        first = client_mechanism("SCRAM-SHA-512", credentials)().initial_response()
        assert first.endswith(b",tokenauth=true")
        assert "hmac" not in repr(credentials)

    def test_what_is_missing(self) -> None:
        with pytest.raises(InvalidConfigurationError, match="DIGEST-MD5 is not supported; supported: PLAIN, SCRAM"):
            server_mechanism("DIGEST-MD5", ServerCallbacks())
        for mechanism in SERVER_MECHANISMS:
            with pytest.raises(InvalidConfigurationError, match=f"{mechanism} is enabled but has no source"):
                server_mechanism(mechanism, ServerCallbacks())
        for mechanism in CLIENT_MECHANISMS:
            with pytest.raises(InvalidConfigurationError, match="needs"):
                client_mechanism(mechanism, ClientCredentials())
        with pytest.raises(InvalidConfigurationError, match="needs"):
            gssapi_client(ClientCredentials(), "localhost")


def test_the_core_does_not_need_the_extra() -> None:
    """PLAIN, SCRAM and unsecured tokens work without PyJWT and cryptography."""
    program = (
        "import sys; sys.modules['jwt'] = sys.modules['cryptography'] = None\n"
        "from barnabas.security.sasl import mechanism_table, channel_authenticator, oauth_login, jwks, jaas\n"
        "from barnabas.security.sasl.token_validator import SignedTokenValidator\n"
        "from barnabas.security.sasl.jwks import StaticKeySet\n"
        "try: SignedTokenValidator(StaticKeySet({}))\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "OAUTHBEARER with signed tokens needs jwt, which is not installed: pip install 'barnabas[security]'" in (
        done.stdout
    )


def test_a_key_set_document_of_a_url(identity: IdentityProvider) -> None:
    identity.body = json.dumps({"keys": [jwk("rsa")]}).encode()
    keys = RefreshingJwks(lambda: fetch_json(identity.url))
    keys.start()
    keys.close()
    assert keys.find("rsa") is not None
