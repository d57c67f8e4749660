"""PLAIN (RFC 4616): the client sends its name and password (A05).

One token, ``[authorization id] NUL name NUL password``, in clear: use it over TLS. The authorization id is empty or the
name itself. There is no SASLprep, as in Kafka: the password must match byte for byte.

An unknown user and a wrong password are refused with the same message and take the same time.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Final

from barnabas.common.errors import InvalidConfigurationError, SaslAuthenticationError
from barnabas.security.reloaded_file import ReloadedFile
from barnabas.security.sasl.mechanism import Exchange, Progress, ServerExchange
from barnabas.security.secret_file import read_secret_file

log = logging.getLogger(__name__)

PLAIN: Final = "PLAIN"
MAX_MESSAGE: Final = 1 << 16
"""RFC 4616 demands 255 bytes for each of the three parts. Some services use long tokens as passwords."""
JAAS_USER_PREFIX: Final = "user_"

PlainAuthenticate = Callable[[str, str], bool]
"""Takes a name and a password and returns whether they match. Runs on a network thread and must not wait."""


class _State(Enum):
    START = "start"
    SENT = "sent"
    COMPLETE = "complete"
    FAILED = "failed"


class _Event(Enum):
    MESSAGE = "PLAIN message"
    SUCCESS = "success"
    FAILURE = "failure"


_SERVER: Final = {
    _State.START: {_Event.SUCCESS: _State.COMPLETE, _Event.FAILURE: _State.FAILED},
    _State.COMPLETE: {},
    _State.FAILED: {},
}
_CLIENT: Final = {
    _State.START: {_Event.MESSAGE: _State.SENT},
    _State.SENT: {_Event.SUCCESS: _State.COMPLETE, _Event.FAILURE: _State.FAILED},
    _State.COMPLETE: {},
    _State.FAILED: {},
}


class PlainServer(ServerExchange[_State, _Event]):
    """The server's end."""

    mechanism = PLAIN

    def __init__(self, authenticate: PlainAuthenticate) -> None:
        super().__init__(Progress(_SERVER, _State.START, _State.COMPLETE))
        self._authenticate = authenticate

    def evaluate(self, token: bytes) -> bytes:
        self._progress.check(_Event.SUCCESS)
        try:
            self._authorization_id = self._authenticated(token)
        except Exception:
            self._progress.move(_Event.FAILURE)
            raise
        self._progress.move(_Event.SUCCESS)
        return b""

    def _authenticated(self, token: bytes) -> str:
        authorization_id, username, password = _parse(token)
        if not username:
            raise SaslAuthenticationError("Authentication failed: username not specified")
        if not password:
            raise SaslAuthenticationError("Authentication failed: password not specified")
        try:
            matches = self._authenticate(username, password)
        except Exception as error:
            log.exception("The PLAIN credentials of user %s could not be verified", username)
            raise SaslAuthenticationError(
                "Authentication failed: credentials for user could not be verified"
            ) from error
        if matches is not True:
            raise SaslAuthenticationError("Authentication failed: Invalid username or password")
        if authorization_id not in {"", username}:
            raise SaslAuthenticationError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        return username


def _parse(token: bytes) -> tuple[str, str, str]:
    if len(token) > MAX_MESSAGE:
        raise SaslAuthenticationError(
            f"Invalid SASL/PLAIN response: {len(token)} bytes are more than the maximum of {MAX_MESSAGE}"
        )
    try:
        parts = token.decode("utf-8").split("\0", 3)
    except UnicodeDecodeError:
        raise SaslAuthenticationError("Invalid SASL/PLAIN response: it is not UTF-8") from None
    if len(parts) != 3:
        raise SaslAuthenticationError(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
    return parts[0], parts[1], parts[2]


class PlainClient(Exchange[_State, _Event]):
    """The client's end."""

    mechanism = PLAIN

    def __init__(self, username: str, password: str, authorization_id: str = "") -> None:
        super().__init__(Progress(_CLIENT, _State.START, _State.COMPLETE))
        if not username or not password:
            raise InvalidConfigurationError("SASL/PLAIN needs a username and a password")
        if "\0" in username + password + authorization_id:
            raise InvalidConfigurationError("a username or password of SASL/PLAIN must not contain NUL")
        self._message = "\0".join((authorization_id, username, password)).encode()

    def initial_response(self) -> bytes:
        self._progress.move(_Event.MESSAGE)
        return self._message

    def evaluate(self, challenge: bytes) -> bytes | None:
        self._progress.check(_Event.SUCCESS)
        if challenge:
            self._progress.move(_Event.FAILURE)
            raise SaslAuthenticationError(f"the server sent an unexpected PLAIN challenge of {len(challenge)} bytes")
        self._progress.move(_Event.SUCCESS)
        return None


class PlainCredentials:
    """Names and passwords in memory: a `PlainAuthenticate`.

    Keeps keyed digests instead of the passwords. They have one length, so a comparison takes the same time for every
    password, and an unknown user is compared with a digest that no password has.
    """

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._key = secrets.token_bytes(32)
        self._nobody = secrets.token_bytes(32)
        self._digests = {name: self._digest(password) for name, password in passwords.items()}

    @classmethod
    def from_jaas(cls, options: Mapping[str, str]) -> PlainCredentials:
        """Takes the options ``user_NAME="password"`` of Kafka's PlainLoginModule."""
        return cls(
            {
                option.removeprefix(JAAS_USER_PREFIX): password
                for option, password in options.items()
                if option.startswith(JAAS_USER_PREFIX)
            }
        )

    def _digest(self, password: str) -> bytes:
        return hmac.digest(self._key, password.encode("utf-8", "surrogatepass"), hashlib.sha256)

    def __call__(self, username: str, password: str) -> bool:
        return hmac.compare_digest(self._digest(password), self._digests.get(username, self._nobody))

    def __len__(self) -> int:
        return len(self._digests)

    def __repr__(self) -> str:
        return f"PlainCredentials({len(self._digests)} users)"


class PlainCredentialsFile:
    """The credentials of a file with lines ``name=password``: a `PlainAuthenticate`.

    Blank lines and lines that start with ``#`` are ignored. The file is read again when it has changed. If it cannot be
    read any more, the last credentials stay valid, and the reason is logged once.
    """

    def __init__(self, path: str | Path) -> None:
        self._file = ReloadedFile(path, _read_credentials)

    def __call__(self, username: str, password: str) -> bool:
        return self._file.contents()(username, password)

    def __repr__(self) -> str:
        return f"PlainCredentialsFile({str(self._file.path)!r})"


def _read_credentials(path: Path) -> PlainCredentials:
    passwords: dict[str, str] = {}
    for number, line in enumerate(read_secret_file(path, "credentials file").splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, password = line.partition("=")
        name = name.strip()
        if not (name and equals and password):
            raise InvalidConfigurationError(f"credentials file {path}, line {number}: expected name=password")
        if name in passwords:
            raise InvalidConfigurationError(f"credentials file {path}, line {number}: user {name} is listed twice")
        passwords[name] = password
    return PlainCredentials(passwords)
