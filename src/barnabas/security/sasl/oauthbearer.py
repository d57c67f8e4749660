"""OAUTHBEARER (RFC 7628, KIP-255): the client presents a token of an identity provider (A07).

One message, with control-A (``^A``) as separator, answered by an empty token::

    n,,^Aauth=Bearer TOKEN^Atraceid=123^A^A

A token that is not accepted is answered with a JSON object, ``{"status":"invalid_token"}``. RFC 7628 lets the client
acknowledge that with a single control-A, and only then the exchange fails, with the JSON as its message. The reason is
not in it; the broker logs the reason, without the token.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final

from barnabas.common.errors import InvalidConfigurationError, SaslAuthenticationError
from barnabas.common.log_safety import LimitedLogger
from barnabas.security.sasl.mechanism import (
    CREDENTIAL_EXPIRY_MS,
    Exchange,
    Progress,
    SaslExchangeError,
    ServerExchange,
)
from barnabas.security.sasl.mechanism_table import OAUTHBEARER
from barnabas.security.sasl.oauth_token import MAX_TOKEN, TokenRejectedError, TokenValidator

log = LimitedLogger(logging.getLogger(__name__))

TOKEN: Final = "OAUTHBEARER.token"  # noqa: S105 - a name
"""In `OAuthBearerServer.negotiated`: the checked `OAuthBearerToken`."""
ACKNOWLEDGEMENT: Final = b"\x01"
_AUTH: Final = "auth"
_EXTENSION_NAME: Final = re.compile("[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")
_AUTHORIZATION: Final = re.compile(r"(\w+) +([-_~+/.a-zA-Z0-9]+=*)", re.ASCII)
_HEADER: Final = re.compile(r"n,(?:a=((?:[^=,\x00\x80-\U0010ffff]|=2C|=3D)+))?,", re.DOTALL)
_MAX_MESSAGE: Final = MAX_TOKEN + (1 << 14)


class _State(Enum):
    START = "start"
    SENT = "sent"
    """A client has sent its token."""
    REJECTED = "rejected"
    """The token was not accepted; the client has to acknowledge that, or the server to answer the acknowledgement."""
    COMPLETE = "complete"
    FAILED = "failed"


class _Event(Enum):
    SENT = "client's first message"
    SUCCESS = "success"
    REJECTION = "rejection"
    FAILURE = "failure"


_SERVER: Final = {
    _State.START: {
        _Event.SUCCESS: _State.COMPLETE,
        _Event.REJECTION: _State.REJECTED,
        _Event.FAILURE: _State.FAILED,
    },
    _State.REJECTED: {_Event.FAILURE: _State.FAILED},
    _State.COMPLETE: {},
    _State.FAILED: {},
}
_CLIENT: Final = {
    _State.START: {_Event.SENT: _State.SENT},
    _State.SENT: {
        _Event.SUCCESS: _State.COMPLETE,
        _Event.REJECTION: _State.REJECTED,
    },
    _State.REJECTED: {_Event.FAILURE: _State.FAILED},
    _State.COMPLETE: {},
    _State.FAILED: {},
}


class OAuthBearerServer(ServerExchange[_State, _Event]):
    """The server's end."""

    mechanism = OAUTHBEARER

    def __init__(self, validator: TokenValidator) -> None:
        super().__init__(Progress(_SERVER, _State.START, _State.COMPLETE))
        self._validator = validator
        self._rejection = ""

    def evaluate(self, token: bytes) -> bytes:
        self._progress.check(_Event.FAILURE)
        try:
            if self._progress.state is _State.REJECTED:
                # Whatever the client sends now, there is no second attempt on this exchange.
                raise SaslAuthenticationError(self._rejection)
            return self._first(token)
        except Exception:
            self._progress.move(_Event.FAILURE)
            raise

    def _first(self, message: bytes) -> bytes:
        value, authorization_id, extensions = _parse(message)
        try:
            token = self._validator.validate(value)
        except TokenRejectedError as error:
            log.info("Rejected a token: %s", error)
            self._rejection = _rejection(error)
            self._progress.move(_Event.REJECTION)
            return self._rejection.encode()
        if authorization_id not in {"", token.principal_name}:
            raise SaslAuthenticationError(
                f"Authentication failed: Client requested an authorization id ({authorization_id}) that is different "
                f"from the token's principal name ({token.principal_name})"
            )
        self._authorization_id = token.principal_name
        self._negotiated = {**extensions, TOKEN: token, CREDENTIAL_EXPIRY_MS: token.expiry_ms}
        self._progress.move(_Event.SUCCESS)
        return b""


def _parse(message: bytes) -> tuple[str, str, dict[str, str]]:
    """Returns the token, the authorization id and the extensions of a client's message."""
    if len(message) > _MAX_MESSAGE:
        raise SaslExchangeError(f"OAUTHBEARER message has {len(message)} bytes; the maximum is {_MAX_MESSAGE}")
    try:
        header, *pairs = message.decode("utf-8").split("\x01")
    except UnicodeDecodeError:
        raise SaslExchangeError("Invalid OAUTHBEARER client first message: it is not UTF-8") from None
    found = _HEADER.fullmatch(header)
    if found is None or len(pairs) < 3 or pairs[-2:] != ["", ""]:
        raise SaslExchangeError("Invalid OAUTHBEARER client first message")
    properties: dict[str, str] = {}
    for pair in pairs[:-2]:
        name, equals, value = pair.partition("=")
        if not equals or not _EXTENSION_NAME.fullmatch(name) or not _EXTENSION_VALUE.fullmatch(value):
            raise SaslExchangeError("Invalid OAUTHBEARER client first message: invalid key or value")
        properties[name] = value
    authorization = _AUTHORIZATION.fullmatch(properties.pop(_AUTH, ""))
    if authorization is None:
        raise SaslExchangeError("Invalid OAUTHBEARER client first message: 'auth' is missing or has an invalid format")
    if authorization[1].lower() != "bearer":
        raise SaslExchangeError("Invalid scheme in OAUTHBEARER client first message: it is not Bearer")
    return authorization[2], (found[1] or "").replace("=2C", ",").replace("=3D", "="), properties


def _rejection(error: TokenRejectedError) -> str:
    """Returns the JSON object in Kafka's form."""
    scope = "" if error.scope is None else f', "scope":{json.dumps(error.scope)}'
    return f'{{"status":{json.dumps(error.status)}{scope}}}'


class OAuthBearerClient(Exchange[_State, _Event]):
    """The client's end.

    ``token`` returns the value of the current token; `OAuthLogin.token` is one such function.
    """

    mechanism = OAUTHBEARER

    def __init__(self, token: Callable[[], str], extensions: Mapping[str, str] | None = None) -> None:
        super().__init__(Progress(_CLIENT, _State.START, _State.COMPLETE))
        self._token = token
        self._extensions = check_extensions(extensions or {})
        self._rejection = ""

    def initial_response(self) -> bytes:
        self._progress.check(_Event.SENT)
        token = self._token()
        authorization = f"Bearer {token}"
        if not _AUTHORIZATION.fullmatch(authorization):
            raise SaslAuthenticationError("the token has characters that OAUTHBEARER does not allow")
        self._progress.move(_Event.SENT)
        pairs = {_AUTH: authorization, **self._extensions}
        return "".join(("n,,", *(f"\x01{name}={value}" for name, value in pairs.items()), "\x01\x01")).encode()

    def evaluate(self, challenge: bytes) -> bytes | None:
        if self._progress.state is _State.REJECTED:
            self._progress.move(_Event.FAILURE)
            raise SaslAuthenticationError(self._rejection)
        if not challenge:
            self._progress.move(_Event.SUCCESS)
            return None
        self._progress.move(_Event.REJECTION)
        self._rejection = challenge[:1000].decode("utf-8", "replace")
        return ACKNOWLEDGEMENT


def check_extensions(extensions: Mapping[str, str]) -> Mapping[str, str]:
    """Returns SASL extensions that can be sent; raises `InvalidConfigurationError` for others."""
    for name, value in extensions.items():
        if name == _AUTH or not _EXTENSION_NAME.fullmatch(name):
            raise InvalidConfigurationError(f"Extension name {name} is invalid")
        if not _EXTENSION_VALUE.fullmatch(value):
            raise InvalidConfigurationError(f"the value of extension {name} has characters that are not allowed")
    return dict(extensions)
