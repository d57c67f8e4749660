"""Bearer tokens: the interface between OAUTHBEARER and those who check or obtain tokens."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any, Final, Protocol

from barnabas.common.dataclass import dataclass, field
from barnabas.common.errors import BarnabasError

MAX_TOKEN: Final = 1 << 17
_BASE64_URL: Final = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class OAuthBearerToken:
    """A token and what it says. The value is a secret."""

    value: str = field(repr=False)
    principal_name: str
    expiry_ms: int
    """When it expires, in milliseconds since 1970."""
    scope: frozenset[str] = frozenset()
    start_ms: int | None = None
    """When it was issued, if known."""


class TokenRejectedError(BarnabasError):
    """A token is not accepted. ``status`` and ``scope`` are sent to the client, the message is for the log."""

    def __init__(self, reason: str, *, status: str = "invalid_token", scope: str | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.scope = scope


class TokenValidator(Protocol):
    """Checks the tokens of clients. Runs on a network thread and must not wait."""

    def validate(self, token: str) -> OAuthBearerToken:
        """Returns the checked token; raises `TokenRejectedError`."""
        ...


def parse_jwt(token: str) -> tuple[Mapping[str, Any], Mapping[str, Any], str]:
    """Returns header, claims and signature of a JWT *without checking it*; raises `TokenRejectedError`."""
    if len(token) > MAX_TOKEN:
        raise TokenRejectedError(f"the token is too long: {len(token)} characters")
    parts = token.split(".")
    if len(parts) != 3:
        raise TokenRejectedError(f"a JWT has 3 parts separated by dots: this one has {len(parts)}")
    return _json_object(parts[0], "header"), _json_object(parts[1], "claims"), parts[2]


def _json_object(part: str, what: str) -> Mapping[str, Any]:
    if not _BASE64_URL.fullmatch(part):
        raise TokenRejectedError(f"the {what} of the JWT are not base64url")
    try:
        value = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, RecursionError):
        raise TokenRejectedError(f"the {what} of the JWT are not JSON") from None
    if not isinstance(value, dict):
        raise TokenRejectedError(f"the {what} of the JWT are not a JSON object")
    return value


def seconds_claim(claims: Mapping[str, Any], name: str) -> float | None:
    """Returns a claim that is a time in seconds since 1970; None if it is absent."""
    value = claims.get(name)
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 10**12:
        raise TokenRejectedError(f"the claim {name} of the token is not a time in seconds")
    return value


def principal_claim(claims: Mapping[str, Any], name: str) -> str:
    """Returns the claim that names the principal."""
    value = claims.get(name)
    if not isinstance(value, str) or not value.strip():
        raise TokenRejectedError(f"the token has no claim {name} that names its principal")
    return value.strip()


def scope_claim(claims: Mapping[str, Any], name: str) -> frozenset[str]:
    """Returns the scopes of a claim: a string with blanks between them, or a list."""
    value = claims.get(name)
    scopes = value.split() if isinstance(value, str) else value if isinstance(value, list) else []
    if not all(isinstance(scope, str) and scope.strip() for scope in scopes):
        raise TokenRejectedError(f"the claim {name} of the token has a scope that is not a string")
    found = [scope.strip() for scope in scopes]
    if len(set(found)) != len(found):
        raise TokenRejectedError(f"the claim {name} of the token has a scope twice")
    return frozenset(found)


def read_token(value: str, *, principal_claim_name: str = "sub", scope_claim_name: str = "scope") -> OAuthBearerToken:
    """Reads a JWT that was obtained from its issuer, without checking it; the broker will."""
    _, claims, _ = parse_jwt(value)
    expiry = seconds_claim(claims, "exp")
    if expiry is None:
        raise TokenRejectedError("the token has no expiry (claim exp)")
    start = seconds_claim(claims, "iat")
    return OAuthBearerToken(
        value,
        principal_claim(claims, principal_claim_name),
        int(expiry * 1000),
        scope_claim(claims, scope_claim_name),
        None if start is None else int(start * 1000),
    )
