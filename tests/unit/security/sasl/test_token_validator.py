"""Tokens: which are accepted, signed and unsecured, and the key sets that signed ones are checked against."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.common.clock import MockClock
from barnabas.common.errors import InvalidConfigurationError
from barnabas.security.sasl.jwks import (
    EARLY_READ_INTERVAL_MS,
    MAX_MISSING_KEYS,
    MISSING_KEY_INTERVAL_MS,
    JwksFile,
    RefreshingJwks,
    StaticKeySet,
)
from barnabas.security.sasl.oauth_http import HttpError
from barnabas.security.sasl.oauth_token import MAX_TOKEN, TokenRejectedError
from barnabas.security.sasl.token_validator import SignedTokenValidator, UnsecuredTokenValidator, algorithms_of
from unit.security.sasl.jwt_factory import NOW_S, claims, encoded, jwk, private_key, signed, unsecured

pytestmark = pytest.mark.mechanism("A07")


def clock(seconds: float = 0) -> MockClock:
    return MockClock(milliseconds=int((NOW_S + seconds) * 1000))


def key_set(*entries: dict[str, Any]) -> StaticKeySet:
    return StaticKeySet.parse({"keys": list(entries)})


def validator(*names: str, at: float = 0, **options: Any) -> SignedTokenValidator:
    keys = key_set(*(jwk(name) for name in names or ("rsa",)))
    return SignedTokenValidator(keys, clock=clock(at), **options)


def rejected(checking: SignedTokenValidator | UnsecuredTokenValidator, token: str) -> str:
    with pytest.raises(TokenRejectedError) as caught:
        checking.validate(token)
    return str(caught.value)


class TestSigned:
    @pytest.mark.parametrize(
        ("name", "algorithm"), [("rsa", "RS256"), ("rsa", "PS512"), ("ec", "ES256"), ("ed", "EdDSA")]
    )
    def test_a_token(self, name: str, algorithm: str) -> None:
        token = signed(name, algorithm)
        found = validator("rsa", "ec", "ed").validate(token)
        assert (found.value, found.principal_name, found.scope) == (token, "alice", frozenset({"read", "write"}))
        assert (found.expiry_ms, found.start_ms) == ((NOW_S + 3600) * 1000, NOW_S * 1000)

    def test_another_key(self) -> None:
        forged = jwt.encode(claims(), private_key("rsa-other"), "RS256", {"kid": "rsa"})
        assert rejected(validator(), forged) == "the signature of the token is not valid (InvalidSignatureError)"
        assert rejected(validator(), signed("rsa-other")) == "the key of the token is not in the key set"

    def test_changed_claims(self) -> None:
        header, _, signature = signed().split(".")
        assert "signature" in rejected(validator(), f"{header}.{encoded(claims(sub='admin'))}.{signature}")

    def test_without_a_signature(self) -> None:
        for algorithm in ("none", "None", "NONE"):
            token = unsecured({"alg": algorithm, "kid": "rsa"})
            assert rejected(validator(), token) == "the algorithm of the token does not fit its key"

    @pytest.mark.parametrize("name", ["rsa", "ec"])
    def test_a_public_key_is_no_hmac_secret(self, name: str) -> None:
        body = f"{encoded({'alg': 'HS256', 'kid': name})}.{encoded(claims())}"
        assert rejected(validator(name), f"{body}.c2ln") == "the algorithm of the token does not fit its key"

    def test_an_algorithm_that_the_key_does_not_name(self) -> None:
        checking = SignedTokenValidator(key_set(jwk("rsa", alg="RS512")), clock=clock())
        assert "does not fit" in rejected(checking, signed("rsa", "RS256"))
        assert checking.validate(signed("rsa", "RS512")).principal_name == "alice"

    def test_a_token_without_a_key_id_needs_a_set_of_one_key(self) -> None:
        token = jwt.encode(claims(), private_key("rsa"), "RS256")
        assert validator("rsa").validate(token).principal_name == "alice"
        assert "not in the key set" in rejected(validator("rsa", "ec"), token)

    def test_critical_headers(self) -> None:
        token = f"{encoded({'alg': 'RS256', 'kid': 'rsa', 'crit': ['x'], 'x': 1})}.{encoded(claims())}.c2ln"
        assert "critical header" in rejected(validator(), token)

    @pytest.mark.parametrize(
        ("at", "changes", "reason"),
        [
            (3600 + 30, {}, "the token has expired"),
            (0, {"nbf": NOW_S + 31}, "the token is not valid yet"),
            (0, {"exp": None}, "needs an expiry"),
            (0, {"iat": None}, "needs an expiry"),
            (0, {"exp": "soon"}, "claim exp of the token is not a time"),
            (0, {"exp": True}, "claim exp of the token is not a time"),
            (0, {"exp": 1e300}, "claim exp of the token is not a time"),
            (0, {"sub": None}, "no claim sub"),
            (0, {"sub": " "}, "no claim sub"),
            (0, {"sub": 5}, "no claim sub"),
            (0, {"iss": "https://elsewhere"}, "another issuer"),
            (0, {"iss": None}, "another issuer"),
            (0, {"aud": None}, "no audience of"),
            (0, {"aud": ["x", "y"]}, "no audience of"),
            (0, {"scope": ["a", "a"]}, "a scope twice"),
            (0, {"scope": ["a", 5]}, "not a string"),
        ],
    )
    def test_claims_that_are_refused(self, at: float, changes: dict[str, Any], reason: str) -> None:
        checking = validator(at=at, issuer="https://issuer", audiences=["kafka"])
        token = signed(**{"iss": "https://issuer", "aud": "kafka", **changes})
        assert reason in rejected(checking, token)

    def test_claims_that_are_accepted(self) -> None:
        checking = validator(at=3600 + 29, issuer="https://issuer", audiences=["kafka", "other"], sub_claim_name="upn")
        token = signed(iss="https://issuer", aud=["x", "kafka"], nbf=NOW_S + 3600 + 58, upn="bob", scope=None)
        found = checking.validate(token)
        assert (found.principal_name, found.scope) == ("bob", frozenset())

    def test_an_audience_that_nobody_expects(self) -> None:
        assert "no audience of" in rejected(validator(), signed(aud="other-service"))

    @pytest.mark.parametrize(
        ("token", "reason"),
        [
            ("", "this one has 1"),
            ("a.b", "this one has 2"),
            ("?.b.c", "header of the JWT are not base64url"),
            (f"{encoded({'alg': 'RS256'})}.YQ.c", "claims of the JWT are not JSON"),
            (f"{encoded([])}.{encoded({})}.c", "header of the JWT are not a JSON object"),
            (f"{encoded({'alg': 'RS256', 'kid': 5})}.{encoded({})}.c", "key id of the token is not a string"),
            ("x" * (MAX_TOKEN + 1), "too long"),
        ],
    )
    def test_other_texts(self, token: str, reason: str) -> None:
        assert reason in rejected(validator(), token)

    @given(st.text(max_size=40), st.text(max_size=40), st.text(max_size=40))
    def test_no_text_is_accepted(self, header: str, body: str, signature: str) -> None:
        for token in (f"{header}.{body}.{signature}", f"{SIGNED[0]}.{body}.{SIGNED[2]}", f"{header}.{SIGNED[1]}."):
            with pytest.raises(TokenRejectedError):
                VALIDATOR.validate(token)

    @pytest.mark.mechanism("A12")
    def test_the_reason_does_not_contain_the_token(self) -> None:
        token = signed("rsa-other")
        assert not any(part in rejected(validator(), token) for part in token.split("."))


SIGNED = signed().split(".")
VALIDATOR = validator()


class TestUnsecured:
    def test_a_token(self) -> None:
        checking = UnsecuredTokenValidator(clock=clock())
        found = checking.validate(unsecured())
        assert (found.principal_name, found.scope) == ("alice", frozenset({"read", "write"}))

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"iat": NOW_S + 1}, "issued in the future"),
            ({"exp": NOW_S, "iat": None}, "has expired"),
            ({"exp": None}, "no expiry"),
            ({"sub": None}, "no claim sub"),
        ],
    )
    def test_claims_that_are_refused(self, changes: dict[str, Any], reason: str) -> None:
        assert reason in rejected(UnsecuredTokenValidator(clock=clock()), unsecured(**changes))

    def test_a_signature(self) -> None:
        checking = UnsecuredTokenValidator(clock=clock())
        for token in (signed(), unsecured(signature="c2ln"), unsecured({"alg": "RS256"}), unsecured({"typ": "JWT"})):
            assert "not an unsecured JWT" in rejected(checking, token)

    def test_it_expires_before_it_is_issued(self) -> None:
        checking = UnsecuredTokenValidator(clock=clock(), clock_skew_ms=10_000)
        assert "before it was issued" in rejected(checking, unsecured(iat=NOW_S + 5, exp=NOW_S + 5))

    def test_kafkas_options(self) -> None:
        checking = UnsecuredTokenValidator.from_jaas(
            {
                "unsecuredValidatorPrincipalClaimName": "user",
                "unsecuredValidatorScopeClaimName": "rights",
                "unsecuredValidatorRequiredScope": "one two",
                "unsecuredValidatorAllowableClockSkewMs": "3000",
            },
            clock(3602),
        )
        found = checking.validate(unsecured(user="bob", rights=["two", "one", "three"]))
        assert found.principal_name == "bob"
        with pytest.raises(TokenRejectedError) as caught:
            checking.validate(unsecured(user="bob", rights="one"))
        assert (caught.value.status, caught.value.scope) == ("insufficient_scope", "one two")

    def test_bad_options(self) -> None:
        with pytest.raises(InvalidConfigurationError, match="AllowableClockSkewMs must not be negative: -1"):
            UnsecuredTokenValidator.from_jaas({"unsecuredValidatorAllowableClockSkewMs": "-1"})


class TestKeySets:
    def test_algorithms_follow_the_key(self) -> None:
        assert algorithms_of({"kty": "oct", "k": "c2VjcmV0"}) == frozenset()
        assert algorithms_of({"kty": "oct", "alg": "HS256"}) == frozenset()
        assert algorithms_of({"kty": "RSA", "alg": "HS256"}) == frozenset()
        assert algorithms_of({"kty": "EC", "crv": "P-384"}) == {"ES384"}
        assert algorithms_of({"kty": "EC", "crv": "secp256k1"}) == frozenset()

    def test_keys_that_cannot_be_used_are_left_out(self, caplog: pytest.LogCaptureFixture) -> None:
        keys = key_set(
            jwk("rsa"),
            jwk("rsa-other", use="enc"),
            {"kty": "oct", "kid": "secret", "k": "c2VjcmV0"},
            {"kty": "RSA", "kid": "broken", "n": "?", "e": "AQAB"},
            {"kid": "no kind"},
        )
        assert len(keys) == 1
        assert "cannot be read" in caplog.text

    @pytest.mark.parametrize("document", [None, [], {}, {"keys": 5}, {"keys": [{}] * 1001}])
    def test_other_documents(self, document: Any) -> None:
        with pytest.raises(ValueError, match="a key set must be"):
            StaticKeySet.parse(document)

    def test_a_file_is_read_again_after_a_change(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        path = tmp_path / "jwks.json"
        path.write_text(json.dumps({"keys": [jwk("rsa")]}))
        checking = SignedTokenValidator(JwksFile(path), clock=clock())
        checking.validate(signed())
        path.write_text(json.dumps({"keys": [jwk("ec"), jwk("ed")]}))
        checking.validate(signed("ec", "ES256"))
        assert "not in the key set" in rejected(checking, signed())
        path.write_text("{")
        with caplog.at_level(logging.ERROR):
            checking.validate(signed("ec", "ES256"))
        assert "is not a JSON key set" in caplog.text
        for missing in (path.with_name("none"), path):
            with pytest.raises(InvalidConfigurationError):
                JwksFile(missing)


class Endpoint:
    """The key set of an issuer, which counts its readers and can fail."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.reads = 0
        self.error: Exception | None = None

    def __call__(self) -> Any:
        self.reads += 1
        if self.error is not None:
            raise self.error
        return {"keys": [jwk(name) for name in self.names]}


class TestRefreshing:
    """The thread sleeps on a mock clock: each step ends when it sleeps again."""

    def test_it_is_read_again_after_a_while(self) -> None:
        time, endpoint = clock(), Endpoint("rsa")
        keys = RefreshingJwks(endpoint, refresh_ms=1_000, clock=time)
        keys.start()
        try:
            time.await_waiters(1)
            endpoint.names = ("ec",)
            assert keys.find("rsa") is not None
            time.advance(1_000)
            self.settle(time, endpoint, 2)
            assert (keys.find("rsa"), keys.find("ec") is not None) == (None, True)
        finally:
            keys.close()

    def settle(self, time: MockClock, endpoint: Endpoint, reads: int) -> None:
        while endpoint.reads < reads:
            time.await_waiters(1)
        time.await_waiters(1)

    def test_an_unknown_key_causes_one_early_read(self) -> None:
        time, endpoint = clock(), Endpoint("rsa")
        keys = RefreshingJwks(endpoint, refresh_ms=10**9, clock=time)
        keys.start()
        try:
            time.await_waiters(1)
            endpoint.names = ("rsa", "ec")
            assert keys.find("ec") is None
            self.settle(time, endpoint, 2)
            assert keys.find("ec") is not None
            for _ in range(5):
                assert keys.find("made-up") is None
            time.await_waiters(1)
            time.advance(EARLY_READ_INTERVAL_MS)
            self.settle(time, endpoint, 3)
            assert keys.find("made-up") is None
            assert keys.find("x" * 1_001) is None
            assert keys.find(None) is None
            time.await_waiters(1)
            assert endpoint.reads == 3
            time.advance(MISSING_KEY_INTERVAL_MS)
            assert keys.find("made-up") is None
            self.settle(time, endpoint, 4)
        finally:
            keys.close()

    def test_many_made_up_keys_cause_few_reads(self) -> None:
        time, endpoint = clock(), Endpoint("rsa")
        keys = RefreshingJwks(endpoint, refresh_ms=10**9, clock=time)
        keys.start()
        try:
            time.await_waiters(1)
            keys.find("made-up")
            self.settle(time, endpoint, 2)
            for number in range(10 * MAX_MISSING_KEYS):
                assert keys.find(f"made-up-{number}") is None
                while keys._next_read_ms <= time.hi_res_milliseconds():
                    time.await_waiters(1)
            time.advance(EARLY_READ_INTERVAL_MS)
            self.settle(time, endpoint, 3)
            assert endpoint.reads == 3
        finally:
            keys.close()

    def test_made_up_keys_are_forgotten(self) -> None:
        keys = RefreshingJwks(Endpoint(), clock=clock())
        for number in range(10 * MAX_MISSING_KEYS):
            keys.find(f"made-up-{number}")
        assert len(keys._missing) == MAX_MISSING_KEYS

    def test_a_failed_read_is_repeated(self, caplog: pytest.LogCaptureFixture) -> None:
        time, endpoint = clock(), Endpoint("rsa")
        keys = RefreshingJwks(endpoint, refresh_ms=10_000, retry_backoff_ms=100, retry_backoff_max_ms=300, clock=time)
        keys.start()
        try:
            time.await_waiters(1)
            endpoint.error = HttpError("status 503")
            for reads, pause in enumerate((10_000, 100, 200, 300, 300), 2):
                time.advance(pause)
                self.settle(time, endpoint, reads)
            assert keys.find("rsa") is not None
            assert "status 503" in caplog.text
            endpoint.error = RuntimeError("a bug")
            time.advance(300)
            self.settle(time, endpoint, 7)
            endpoint.error, endpoint.names = None, ("ec",)
            time.advance(300)
            self.settle(time, endpoint, 8)
            assert keys.find("ec") is not None
        finally:
            keys.close()

    def test_the_first_read_must_succeed(self) -> None:
        endpoint = Endpoint()
        endpoint.error = HttpError("status 404")
        with pytest.raises(InvalidConfigurationError, match="status 404"):
            RefreshingJwks(endpoint).start()
        with pytest.raises(InvalidConfigurationError, match="a key set must be"):
            RefreshingJwks(list).start()
