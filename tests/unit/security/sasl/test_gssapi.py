"""Both ends of GSSAPI with a context that is none of Kerberos; the real one is in tests/security/test_kerberos.py."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import pytest

from barnabas.common.errors import IllegalSaslStateError, InvalidConfigurationError, SaslAuthenticationError
from barnabas.security.sasl.gssapi import MAX_TOKEN, GssapiClient, GssapiServer, KerberosAcceptor, KerberosNames
from barnabas.security.sasl.mechanism import SaslExchangeError

pytestmark = pytest.mark.mechanism("A04")


class Wrapped(NamedTuple):
    message: bytes


class Context:
    """Takes and gives one token, and wraps by a prefix."""

    def __init__(self, *, mutual: bool = True, initiates: bool = False) -> None:
        self.complete = False
        self.initiator_name = "alice@CASTLE.EXAMPLE"
        self._mutual = mutual
        self._initiates = initiates

    def step(self, token: bytes | None = None) -> bytes | None:
        if token is None:
            return b"ticket"
        if token != (b"proof" if self._initiates else b"ticket"):
            raise ValueError("defective token")
        self.complete = True
        return b"proof" if self._mutual and not self._initiates else None

    def wrap(self, data: bytes, encrypt: bool) -> Wrapped:
        assert not encrypt
        return Wrapped(b"W" + data)

    def unwrap(self, data: bytes) -> Wrapped:
        if data[:1] != b"W":
            raise ValueError("not wrapped")
        return Wrapped(data[1:])


class Acceptor:
    def __init__(self, **options: bool) -> None:
        self._options = options

    def context(self) -> Context:
        return Context(**self._options)

    def short_name(self, principal: str) -> str:
        return KerberosNames("CASTLE.EXAMPLE").short_name(principal)


def new_server(**options: bool) -> GssapiServer:
    return GssapiServer(cast("KerberosAcceptor", Acceptor(**options)))


def new_client() -> GssapiClient:
    return GssapiClient(lambda: Context(initiates=True))


def test_both_ends_of_an_exchange() -> None:
    client, server = new_client(), new_server()
    token: bytes | None = client.initial_response()
    for _ in range(3):
        assert not client.complete
        assert not server.complete
        assert token is not None
        token = client.evaluate(server.evaluate(token))
    assert token is None
    assert client.complete
    assert server.complete
    assert server.authorization_id == "alice"
    with pytest.raises(IllegalSaslStateError):
        server.evaluate(b"")
    with pytest.raises(IllegalSaslStateError):
        client.evaluate(b"")


def test_a_client_that_wants_no_proof_of_the_server() -> None:
    server = new_server(mutual=False)
    assert server.evaluate(b"ticket") == b"W\1\0\0\0"
    assert server.evaluate(b"W\1\0\0\0a name that nobody asked for") == b""
    assert server.authorization_id == "alice"


@pytest.mark.parametrize(
    "tokens",
    [
        [b"forged"],
        [b"ticket", b"not empty"],
        [b"ticket", b"", b"\1\0\0\0"],
        [b"ticket", b"", b"W\1\0"],
        [b"ticket", b"", b"W\2\0\0\0"],
        [bytes(MAX_TOKEN + 1)],
    ],
)
def test_tokens_that_a_server_refuses(tokens: list[bytes]) -> None:
    server = new_server()
    for token in tokens[:-1]:
        server.evaluate(token)
    with pytest.raises(SaslExchangeError):
        server.evaluate(tokens[-1])
    assert not server.complete
    with pytest.raises(IllegalSaslStateError):
        server.authorization_id  # noqa: B018 - it must not be there
    with pytest.raises(IllegalSaslStateError):
        server.evaluate(b"ticket")


@pytest.mark.parametrize("challenges", [[b"forged"], [b"proof", b"W\2\0\0\0"], [b"proof", b"W\1\0\0\0", b"more"]])
def test_challenges_that_a_client_refuses(challenges: list[bytes]) -> None:
    client = new_client()
    client.initial_response()
    for challenge in challenges[:-1]:
        client.evaluate(challenge)
    with pytest.raises(SaslExchangeError):
        client.evaluate(challenges[-1])
    assert not client.complete


def test_a_client_without_a_ticket() -> None:
    def fail() -> Any:
        raise ValueError("no credentials cache")

    with pytest.raises(SaslAuthenticationError, match="no ticket for the broker: no credentials cache"):
        GssapiClient(fail).initial_response()


@pytest.mark.parametrize(
    ("rules", "principal", "name"),
    [
        (["DEFAULT"], "alice@CASTLE.EXAMPLE", "alice"),
        (["DEFAULT"], "alice/host@CASTLE.EXAMPLE", "alice"),
        (["DEFAULT"], "alice@VILLAGE.EXAMPLE", None),
        (["RULE:[1:$1@$0](.*@VILLAGE.EXAMPLE)s/@.*//", "DEFAULT"], "bob@VILLAGE.EXAMPLE", "bob"),
        (["RULE:[1:$1@$0](.*@VILLAGE.EXAMPLE)s/@.*//", "DEFAULT"], "alice@CASTLE.EXAMPLE", "alice"),
        (["RULE:[2:$1-$2]s/-.*$/-guest/"], "alice/host@VILLAGE.EXAMPLE", "alice-guest"),
        (["RULE:[1:$1]/U"], "alice@VILLAGE.EXAMPLE", "ALICE"),
        (["RULE:[1:$1]s/A/b/g/L"], "ADA@VILLAGE.EXAMPLE", "bdb"),
        (["RULE:[1:$1@$0]"], "alice@VILLAGE.EXAMPLE", None),
        (["DEFAULT"], "not a principal", None),
    ],
)
def test_short_names(rules: list[str], principal: str, name: str | None) -> None:
    names = KerberosNames("CASTLE.EXAMPLE", rules)
    if name is not None:
        assert names.short_name(principal) == name
    else:
        with pytest.raises(SaslExchangeError):
            names.short_name(principal)


def test_rules_that_cannot_be_parsed() -> None:
    for rule in ("RULE:", "RULE:[1:$1", "default", "RULE:[1:$1]s/a/b"):
        with pytest.raises(InvalidConfigurationError, match="invalid rule"):
            KerberosNames("CASTLE.EXAMPLE", [rule])
