"""Validators of tokens: signed JWTs, checked against the keys of their issuer (KIP-768), and unsecured ones (A07).

What a signed token must have, as in Kafka: a signature by a key of the key set, with an asymmetric algorithm that fits
the key; an expiry and a time of issue; the configured issuer; an audience that is expected, and no audience at all if
none is expected; a principal. Times may be off by the clock skew.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, Protocol

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.dataclass import dataclass
from barnabas.common.errors import InvalidConfigurationError
from barnabas.common.extras import extra
from barnabas.security.sasl.oauth_token import (
    OAuthBearerToken,
    TokenRejectedError,
    parse_jwt,
    principal_claim,
    scope_claim,
    seconds_claim,
)

_EC_ALGORITHMS: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
_RSA_ALGORITHMS: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
UNSECURED_OPTIONS: Final = "unsecuredValidator"
"""The prefix of the JAAS options of `UnsecuredTokenValidator`."""


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A public key of an issuer, and the algorithms that it may be used with."""

    key: Any
    algorithms: frozenset[str]


class KeySet(Protocol):
    """The keys of an issuer. Runs on a network thread and must not wait."""

    def find(self, key_id: str | None) -> VerificationKey | None:
        """Returns a key; None if it is not, or not yet, known. Without an id: the only key, if there is one."""
        ...


def algorithms_of(jwk: Mapping[str, Any]) -> frozenset[str]:
    """Returns the algorithms that a JSON web key may be used with.

    They depend on the key alone: a token that could choose its algorithm could choose a public key as an HMAC secret.
    """
    kind = jwk.get("kty")
    if kind == "RSA":
        suitable = _RSA_ALGORITHMS
    elif kind == "EC":
        suitable = frozenset({_EC_ALGORITHMS.get(str(jwk.get("crv")), "")}) - {""}
    elif kind == "OKP":
        suitable = frozenset({"EdDSA"})
    else:
        suitable = frozenset()
    return suitable & {jwk["alg"]} if "alg" in jwk else suitable


class SignedTokenValidator:
    """Checks signed JWTs."""

    def __init__(
        self,
        keys: KeySet,
        *,
        issuer: str | None = None,
        audiences: Collection[str] = (),
        scope_claim_name: str = "scope",
        sub_claim_name: str = "sub",
        clock_skew_ms: int = 30_000,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        with extra("security", "OAUTHBEARER with signed tokens"):
            import jwt  # the core works without it
        self._verify = jwt.PyJWS().decode
        self._invalid: type[Exception] = jwt.InvalidTokenError
        self._keys = keys
        self._issuer = issuer
        self._audiences = frozenset(audiences)
        self._scope_claim = scope_claim_name
        self._sub_claim = sub_claim_name
        self._skew_ms = clock_skew_ms
        self._clock = clock

    def validate(self, token: str) -> OAuthBearerToken:
        header, claims, _ = parse_jwt(token)
        self._check_signature(token, header)
        expiry_ms, start_ms = self._check_times(claims)
        if self._issuer is not None and claims.get("iss") != self._issuer:
            raise TokenRejectedError("the token has another issuer than sasl.oauthbearer.expected.issuer")
        self._check_audience(claims)
        return OAuthBearerToken(
            token,
            principal_claim(claims, self._sub_claim),
            expiry_ms,
            scope_claim(claims, self._scope_claim),
            start_ms,
        )

    def _check_signature(self, token: str, header: Mapping[str, Any]) -> None:
        if "crit" in header:
            raise TokenRejectedError("the token has critical header parameters, of which none is supported")
        key_id = header.get("kid")
        if key_id is not None and not isinstance(key_id, str):
            raise TokenRejectedError("the key id of the token is not a string")
        key = self._keys.find(key_id)
        if key is None:
            raise TokenRejectedError("the key of the token is not in the key set")
        algorithm = header.get("alg")
        if algorithm not in key.algorithms:
            raise TokenRejectedError("the algorithm of the token does not fit its key")
        try:
            self._verify(token, key.key, algorithms=[algorithm])
        except self._invalid as error:
            raise TokenRejectedError(f"the signature of the token is not valid ({type(error).__name__})") from None

    def _check_times(self, claims: Mapping[str, Any]) -> tuple[int, int]:
        expiry, start = seconds_claim(claims, "exp"), seconds_claim(claims, "iat")
        if expiry is None or start is None:
            raise TokenRejectedError("the token needs an expiry (claim exp) and a time of issue (claim iat)")
        now_ms = self._clock.milliseconds()
        if now_ms - self._skew_ms >= expiry * 1000:
            raise TokenRejectedError("the token has expired")
        not_before = seconds_claim(claims, "nbf")
        if not_before is not None and now_ms + self._skew_ms < not_before * 1000:
            raise TokenRejectedError("the token is not valid yet")
        return int(expiry * 1000), int(start * 1000)

    def _check_audience(self, claims: Mapping[str, Any]) -> None:
        value = claims.get("aud")
        found = {value} if isinstance(value, str) else {str(one) for one in value} if isinstance(value, list) else set()
        if (found or self._audiences) and not found & self._audiences:
            raise TokenRejectedError("the token has no audience of sasl.oauthbearer.expected.audience")


class UnsecuredTokenValidator:
    """Accepts JWTs without a signature, which anybody can make: for tests only, and only if configured."""

    def __init__(
        self,
        *,
        principal_claim_name: str = "sub",
        scope_claim_name: str = "scope",
        required_scope: Collection[str] = (),
        clock_skew_ms: int = 0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._principal_claim = principal_claim_name
        self._scope_claim = scope_claim_name
        self._required_scope = tuple(required_scope)
        self._skew_ms = clock_skew_ms
        self._clock = clock

    @classmethod
    def from_jaas(cls, options: Mapping[str, str], clock: Clock = SYSTEM_CLOCK) -> UnsecuredTokenValidator:
        """Takes the options ``unsecuredValidator...`` of Kafka's OAuthBearerLoginModule."""

        def option(name: str) -> str:
            return options.get(UNSECURED_OPTIONS + name, "").strip()

        skew = option("AllowableClockSkewMs") or "0"
        if not skew.isdecimal():
            raise InvalidConfigurationError(f"{UNSECURED_OPTIONS}AllowableClockSkewMs must not be negative: {skew}")
        return cls(
            principal_claim_name=option("PrincipalClaimName") or "sub",
            scope_claim_name=option("ScopeClaimName") or "scope",
            required_scope=option("RequiredScope").split(),
            clock_skew_ms=int(skew),
            clock=clock,
        )

    def validate(self, token: str) -> OAuthBearerToken:
        header, claims, signature = parse_jwt(token)
        if header.get("alg") != "none" or signature:
            raise TokenRejectedError("the token is not an unsecured JWT: algorithm none, no signature")
        principal = principal_claim(claims, self._principal_claim)
        expiry, start = seconds_claim(claims, "exp"), seconds_claim(claims, "iat")
        if expiry is None:
            raise TokenRejectedError("the token has no expiry (claim exp)")
        now_ms = self._clock.milliseconds()
        if start is not None and start * 1000 > now_ms + self._skew_ms:
            raise TokenRejectedError("the token was issued in the future")
        if now_ms - self._skew_ms >= expiry * 1000:
            raise TokenRejectedError("the token has expired")
        if start is not None and expiry <= start:
            raise TokenRejectedError("the token expires before it was issued")
        scope = scope_claim(claims, self._scope_claim)
        if not scope.issuperset(self._required_scope):
            raise TokenRejectedError(
                "the token lacks a required scope", status="insufficient_scope", scope=" ".join(self._required_scope)
            )
        return OAuthBearerToken(
            token, principal, int(expiry * 1000), scope, None if start is None else int(start * 1000)
        )
