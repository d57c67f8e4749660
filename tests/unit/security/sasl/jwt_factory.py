"""Keys and tokens of an issuer that exists only in tests."""

from __future__ import annotations

import base64
import json
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

NOW_S = 1_700_000_000


@cache
def private_key(name: str) -> Any:
    """A key by its name, which begins with its kind: rsa, ec or ed."""
    if name.startswith("rsa"):
        return rsa.generate_private_key(65537, 2048)
    return ec.generate_private_key(ec.SECP256R1()) if name.startswith("ec") else ed25519.Ed25519PrivateKey.generate()


def jwk(name: str, **fields: Any) -> dict[str, Any]:
    """The public part, as an entry of a key set."""
    kinds: dict[str, Any] = {"rsa": RSAAlgorithm, "ec": ECAlgorithm, "ed": OKPAlgorithm}
    kind = next(value for prefix, value in kinds.items() if name.startswith(prefix))
    return {**json.loads(kind.to_jwk(private_key(name).public_key())), "kid": name, **fields}


def claims(**changes: Any) -> dict[str, Any]:
    """Claims that are accepted; a change to None leaves one out."""
    values = {"sub": "alice", "iat": NOW_S, "exp": NOW_S + 3600, "scope": "read write", **changes}
    return {name: value for name, value in values.items() if value is not None}


def signed(key: str = "rsa", algorithm: str = "RS256", headers: dict[str, Any] | None = None, **changes: Any) -> str:
    return jwt.encode(claims(**changes), private_key(key), algorithm, {"kid": key, **(headers or {})})


def encoded(part: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


def unsecured(header: dict[str, Any] | None = None, signature: str = "", **changes: Any) -> str:
    return f"{encoded(header or {'alg': 'none'})}.{encoded(claims(**changes))}.{signature}"
