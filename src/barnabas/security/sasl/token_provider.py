"""Where a client gets its bearer tokens (KIP-768, KIP-1139): an identity provider, a file, or the client itself (A07).

A provider is a function without arguments that returns a token; an application may write its own, also as a coroutine
function. `OAuthLogin` calls it, in a thread, and calls it again before the token expires.
"""

from __future__ import annotations

import base64
import json
import secrets
import ssl
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import quote_plus, urlencode

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.dataclass import dataclass, field
from barnabas.common.errors import InvalidConfigurationError
from barnabas.common.extras import extra
from barnabas.security.sasl.oauth_http import DEFAULT_TIMEOUT_MS, HttpError, check_url, fetch_json
from barnabas.security.sasl.oauth_token import MAX_TOKEN, OAuthBearerToken
from barnabas.security.secret_file import read_secret_file

TokenProvider: TypeAlias = Callable[[], "str | OAuthBearerToken | Awaitable[str | OAuthBearerToken]"]
"""Returns a JWT, or any token together with its principal and expiry. It may wait. Errors that may pass with time are
`HttpError` without ``permanent``, and OSError."""

TOKEN_ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105 - the name of a setting
_JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_UNSECURED: Final = "unsecuredLogin"


class FileTokenProvider:
    """Reads the token from a file, which something else replaces before the token expires."""

    def __init__(self, path: str | Path) -> None:
        self._path = path

    def __call__(self) -> str:
        token = read_secret_file(self._path, "token file").strip()
        if not token or len(token) > MAX_TOKEN:
            raise InvalidConfigurationError(f"token file {self._path} has no token of up to {MAX_TOKEN} characters")
        return token

    def __repr__(self) -> str:
        return f"FileTokenProvider({str(self._path)!r})"


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """The endpoint of an identity provider that issues tokens."""

    url: str
    ssl_context: ssl.SSLContext | None = field(default=None, repr=False)
    timeout_ms: int = DEFAULT_TIMEOUT_MS

    def __post_init__(self) -> None:
        check_url(self.url, TOKEN_ENDPOINT)

    def request(self, form: Mapping[str, str], headers: Mapping[str, str] | None = None) -> str:
        """Posts a form and returns the access token of the response."""
        response = fetch_json(
            self.url,
            urlencode(form).encode(),
            {"Content-Type": "application/x-www-form-urlencoded", "Cache-Control": "no-cache", **(headers or {})},
            ssl_context=self.ssl_context,
            timeout_ms=self.timeout_ms,
        )
        token = response.get("access_token") if isinstance(response, dict) else None
        if not isinstance(token, str) or not token.strip() or len(token) > MAX_TOKEN:
            raise HttpError(f"the response of {self.url} has no access_token of up to {MAX_TOKEN} characters")
        return token.strip()


def _form(grant_type: str, scope: str | None, **fields: str) -> dict[str, str]:
    form = {"grant_type": grant_type, **fields}
    if scope and scope.strip():
        form["scope"] = scope.strip()
    return form


class ClientCredentialsProvider:
    """The client-credentials grant (RFC 6749, section 4.4)."""

    def __init__(
        self,
        endpoint: TokenEndpoint,
        client_id: str,
        client_secret: str,
        scope: str | None = None,
        *,
        header_urlencode: bool = False,
    ) -> None:
        """``header_urlencode`` is ``sasl.oauthbearer.header.urlencode``: as RFC 6749 demands, but many ignore."""
        if not client_id.strip() or not client_secret.strip():
            raise InvalidConfigurationError("the client-credentials grant needs a client id and a client secret")
        self._endpoint = endpoint
        self._form = _form("client_credentials", scope)
        parts = [client_id.strip(), client_secret.strip()]
        credentials = ":".join(map(quote_plus, parts) if header_urlencode else parts)
        self._authorization = "Basic " + base64.b64encode(credentials.encode()).decode("ascii")

    def __call__(self) -> str:
        return self._endpoint.request(self._form, {"Authorization": self._authorization})

    def __repr__(self) -> str:
        return f"ClientCredentialsProvider({self._endpoint.url!r})"


class JwtBearerProvider:
    """The JWT-bearer grant (RFC 7523): exchanges an assertion that the client has signed, or read from a file."""

    def __init__(self, endpoint: TokenEndpoint, assertion: Callable[[], str], scope: str | None = None) -> None:
        """``assertion`` is an `AssertionSigner` or a `FileTokenProvider`."""
        self._endpoint = endpoint
        self._assertion = assertion
        self._scope = scope

    def __call__(self) -> str:
        return self._endpoint.request(_form(_JWT_BEARER, self._scope, assertion=self._assertion()))

    def __repr__(self) -> str:
        return f"JwtBearerProvider({self._endpoint.url!r})"


class AssertionSigner:
    """Makes signed assertions for the JWT-bearer grant."""

    def __init__(
        self,
        private_key_file: str | Path,
        claims: Mapping[str, Any],
        *,
        algorithm: str = "RS256",
        passphrase: str | None = None,
        lifetime_s: int = 300,
        not_before_s: int = 60,
        include_id: bool = False,
        header: Mapping[str, Any] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """``claims`` has ``aud``, ``iss``, ``sub`` and others; the times are set for each assertion."""
        if algorithm not in {"RS256", "ES256"}:
            raise InvalidConfigurationError(f"sasl.oauthbearer.assertion.algorithm must be RS256 or ES256: {algorithm}")
        with extra("security", "the JWT-bearer grant with a private key"):
            import jwt
            from cryptography.hazmat.primitives.serialization import load_pem_private_key
        text = read_secret_file(private_key_file, "private key file")
        try:
            self._key: Any = load_pem_private_key(text.encode(), None if passphrase is None else passphrase.encode())
        except (ValueError, TypeError):
            raise InvalidConfigurationError(
                f"private key file {private_key_file} is not a PEM key, or the passphrase does not open it"
            ) from None
        self._encode = jwt.encode
        self._claims = dict(claims)
        self._header = dict(header or {})
        self._algorithm = algorithm
        self._lifetime_s = lifetime_s
        self._not_before_s = not_before_s
        self._include_id = include_id
        self._clock = clock

    def __call__(self) -> str:
        now = self._clock.milliseconds() // 1000
        times = {"iat": now, "exp": now + self._lifetime_s, "nbf": now - self._not_before_s}
        claims = {**self._claims, **times}
        if self._include_id:
            claims["jti"] = secrets.token_hex(16)
        signed: str = self._encode(claims, self._key, algorithm=self._algorithm, headers=self._header)
        return signed

    def __repr__(self) -> str:
        return f"AssertionSigner({self._algorithm})"


class UnsecuredTokenProvider:
    """Makes JWTs without a signature from Kafka's JAAS options ``unsecuredLogin...``: for tests only."""

    def __init__(self, options: Mapping[str, str], clock: Clock = SYSTEM_CLOCK) -> None:
        lifetime = options.get(_UNSECURED + "LifetimeSeconds", "3600").strip()
        if not lifetime.isdecimal():
            raise InvalidConfigurationError(f"{_UNSECURED}LifetimeSeconds must be a number of seconds: {lifetime}")
        self._lifetime_s = int(lifetime)
        self._clock = clock
        self._claims = dict(_unsecured_claims(options))
        principal = options.get(_UNSECURED + "PrincipalClaimName", "").strip() or "sub"
        if not isinstance(self._claims.get(principal), str) or not self._claims[principal]:
            raise InvalidConfigurationError(
                f"an unsecured token needs a principal: the option {_UNSECURED}StringClaim_{principal}"
            )

    @staticmethod
    def extensions(options: Mapping[str, str]) -> dict[str, str]:
        """Returns the SASL extensions among the options."""
        prefix = _UNSECURED + "Extension_"
        return {name.removeprefix(prefix): value for name, value in options.items() if name.startswith(prefix)}

    def __call__(self) -> str:
        now = self._clock.milliseconds() / 1000
        parts = ({"alg": "none"}, {"exp": now + self._lifetime_s, "iat": now, **self._claims})
        encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
        return ".".join((*encoded, ""))


def _unsecured_claims(options: Mapping[str, str]) -> list[tuple[str, Any]]:
    claims: list[tuple[str, Any]] = []
    for option, value in options.items():
        for kind in ("StringClaim_", "NumberClaim_", "ListClaim_"):
            name = option.removeprefix(_UNSECURED + kind)
            if name in {option, ""}:
                continue
            if name in {"iat", "exp"}:
                raise InvalidConfigurationError(f"Cannot explicitly set the '{name}' claim")
            claims.append((name, _claim_value(kind, option, value)))
    return claims


def _claim_value(kind: str, option: str, value: str) -> Any:
    if kind == "StringClaim_":
        return value
    if kind == "ListClaim_":  # the first character separates the elements of the rest
        return value[1:].split(value[0]) if len(value) > 1 else []
    try:
        return float(value)
    except ValueError:
        raise InvalidConfigurationError(f"{option} must be a number: {value}") from None
