"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): both ends prove that they know the password (A06).

The password never crosses the wire, and the server does not have it. It keeps a salt, an iteration count and two keys
derived from the salted password, with which one can verify a client but not act as one. Four messages::

    client-first   n,,n=alice,r=CLIENTNONCE
    server-first   r=CLIENTNONCESERVERNONCE,s=BASE64SALT,i=4096
    client-final   c=biws,r=CLIENTNONCESERVERNONCE,p=BASE64PROOF
    server-final   v=BASE64SIGNATURE

``n`` says that the client does not bind the exchange to a TLS channel, the only choice in Kafka. ``biws`` repeats that.
A client adds the extension ``tokenauth=true`` to its first message if the name is the id of a delegation token and the
password its HMAC. The authenticated name is then the owner of the token.

As in Kafka, passwords are not normalized, and the exchange with an unknown user ends after the first message, with the
same error as a wrong password.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, NamedTuple, Protocol

from barnabas.common.dataclass import dataclass, field
from barnabas.common.errors import InvalidConfigurationError, SaslAuthenticationError
from barnabas.security.sasl.mechanism import (
    CREDENTIAL_EXPIRY_MS,
    TOKEN_AUTH,
    TOKEN_ID,
    Exchange,
    Progress,
    SaslExchangeError,
    ServerExchange,
)

SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
HASHES: Final[Mapping[str, str]] = {SCRAM_SHA_256: "sha256", SCRAM_SHA_512: "sha512"}
"""The hash function of each mechanism."""
MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16_384
"""The limit for credentials of this cluster."""
MAX_CLIENT_ITERATIONS: Final = 1 << 20
"""The limit for a client, which must not compute for minutes because a server demands it. Other servers may demand more
than `MAX_ITERATIONS`."""
MAX_MESSAGE: Final = 1 << 14

Nonce = Callable[[], str]


# -- credentials


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """The server's data to verify a password."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    @classmethod
    def of_password(
        cls, mechanism: str, password: str, *, iterations: int = MIN_ITERATIONS, salt: bytes | None = None
    ) -> ScramCredential:
        """Derives the credential of a password; the default salt is random."""
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
            raise ValueError(f"iterations must be between {MIN_ITERATIONS} and {MAX_ITERATIONS}: {iterations}")
        salt = secrets.token_bytes(32) if salt is None else salt
        algorithm = HASHES[mechanism]
        salted = salted_password(algorithm, password.encode(), salt, iterations)
        return cls(salt, stored_key(algorithm, salted), server_key(algorithm, salted), iterations)

    def to_text(self) -> str:
        """Returns Kafka's string form, ``salt=..,stored_key=..,server_key=..,iterations=..``. It is a secret."""
        return (
            f"salt={_encode(self.salt)},stored_key={_encode(self.stored_key)},"
            f"server_key={_encode(self.server_key)},iterations={self.iterations}"
        )

    @classmethod
    def parse(cls, text: str) -> ScramCredential:
        """Parses `to_text`; the errors do not contain the text."""
        parts = [part.partition("=") for part in text.split(",")]
        fields = {name: value for name, equals, value in parts if equals}
        if len(parts) != 4 or fields.keys() != {"salt", "stored_key", "server_key", "iterations"}:
            raise ValueError("a SCRAM credential must have the fields salt, stored_key, server_key and iterations")
        if not re.fullmatch("[0-9]{1,9}", fields["iterations"]):
            raise ValueError("the iterations of a SCRAM credential must be a number")
        try:
            salt, stored, server = (
                base64.b64decode(fields[name], validate=True) for name in ("salt", "stored_key", "server_key")
            )
        except ValueError:
            raise ValueError("salt and keys of a SCRAM credential must be base64") from None
        return cls(salt, stored, server, int(fields["iterations"]))


class ScramCredentialStore(Protocol):
    """The credentials of a cluster's users."""

    def credential(self, mechanism: str, username: str) -> ScramCredential | None:
        """Returns the credential of a user for a mechanism such as ``SCRAM-SHA-256``."""
        ...


class TokenCredential(NamedTuple):
    """A delegation token: its owner, its expiry, and the SCRAM credential of its HMAC as a password."""

    owner: str
    """The name of the owner, without the type."""
    expiry_ms: int
    credential: ScramCredential


class TokenCredentials(Protocol):
    """The delegation tokens of a cluster."""

    def credential(self, mechanism: str, token_id: str) -> TokenCredential | None: ...


# -- the keys of RFC 5802, section 3


def salted_password(algorithm: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    """Returns ``Hi(password, salt, i)``: slow on purpose, a few milliseconds."""
    return hashlib.pbkdf2_hmac(algorithm, password, salt, iterations)


def client_key(algorithm: str, salted: bytes) -> bytes:
    return hmac.digest(salted, b"Client Key", algorithm)


def stored_key(algorithm: str, salted: bytes) -> bytes:
    return hashlib.new(algorithm, client_key(algorithm, salted)).digest()


def server_key(algorithm: str, salted: bytes) -> bytes:
    return hmac.digest(salted, b"Server Key", algorithm)


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def new_nonce() -> str:
    """Returns 192 random bits as printable characters without commas."""
    return secrets.token_urlsafe(24)


# -- messages

_SAFE: Final = "[^\0=,]"
_NAME: Final = f"(?:{_SAFE}|=2C|=3D)+"
_NONCE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64: Final = "[A-Za-z0-9/+]*={0,2}"
_EXTENSIONS: Final = "(?:,[A-Za-z]+=[^\0,]+)*"

_CLIENT_FIRST: Final = re.compile(
    f"(?P<gs2>n,(?:a=(?P<authzid>{_NAME}))?,)(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_NONCE})(?P<ext>{_EXTENSIONS}))",
    re.DOTALL,
)
_SERVER_FIRST: Final = re.compile(
    f"r=(?P<nonce>{_NONCE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,9}}){_EXTENSIONS}", re.DOTALL
)
_CLIENT_FINAL: Final = re.compile(
    f"(?P<bare>c=(?P<channel>{_BASE64}),r=(?P<nonce>{_NONCE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})", re.DOTALL
)
_SERVER_FINAL: Final = re.compile(f"(?:e=(?P<error>{_SAFE}+)|v=(?P<signature>{_BASE64})){_EXTENSIONS}", re.DOTALL)


def sasl_name(username: str) -> str:
    """Escapes a name: a message separates its fields by commas, and names from values by equals signs."""
    return username.replace("=", "=3D").replace(",", "=2C")


def username_of(name: str) -> str:
    """Reverts `sasl_name`."""
    return name.replace("=2C", ",").replace("=3D", "=")


def _match(pattern: re.Pattern[str], what: str, message: bytes) -> re.Match[str]:
    if len(message) > MAX_MESSAGE:
        raise SaslExchangeError(f"SCRAM {what} message has {len(message)} bytes; the maximum is {MAX_MESSAGE}")
    try:
        found = pattern.fullmatch(message.decode("utf-8"))
    except UnicodeDecodeError:
        raise SaslExchangeError(f"SCRAM {what} message is not UTF-8") from None
    if found is None:
        raise SaslExchangeError(f"Invalid SCRAM {what} message format")
    return found


def _decode(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise SaslExchangeError(f"The {what} of a SCRAM message is not base64") from None


# -- the server


class _State(Enum):
    FIRST = "first"
    """The next message is the first of the peer, or for a client, the one it sends."""
    SENT = "sent"
    """A client has sent its first message."""
    FINAL = "final"
    """The next message is the last of the peer."""
    COMPLETE = "complete"
    FAILED = "failed"


class _Event(Enum):
    START = "start"
    CLIENT_FIRST = "client-first message"
    CLIENT_FINAL = "client-final message"
    SERVER_FIRST = "server-first message"
    SERVER_FINAL = "server-final message"
    FAILURE = "failure"


_SERVER: Final = {
    _State.FIRST: {_Event.CLIENT_FIRST: _State.FINAL, _Event.FAILURE: _State.FAILED},
    _State.FINAL: {_Event.CLIENT_FINAL: _State.COMPLETE, _Event.FAILURE: _State.FAILED},
    _State.COMPLETE: {},
    _State.FAILED: {},
}
_CLIENT: Final = {
    _State.FIRST: {_Event.START: _State.SENT},
    _State.SENT: {_Event.SERVER_FIRST: _State.FINAL, _Event.FAILURE: _State.FAILED},
    _State.FINAL: {_Event.SERVER_FINAL: _State.COMPLETE, _Event.FAILURE: _State.FAILED},
    _State.COMPLETE: {},
    _State.FAILED: {},
}


class _Challenge(NamedTuple):
    """What a server remembers between its two messages."""

    credential: ScramCredential
    header: str
    """The GS2 header of the client's first message, which the last one repeats."""
    nonce: str
    messages: str
    """The first messages of both, without that header: the beginning of the text that both ends sign."""


class ScramServer(ServerExchange[_State, _Event]):
    """The server's end."""

    def __init__(
        self,
        mechanism: str,
        store: ScramCredentialStore,
        tokens: TokenCredentials | None = None,
        *,
        nonce: Nonce = new_nonce,
    ) -> None:
        super().__init__(Progress(_SERVER, _State.FIRST, _State.COMPLETE))
        self.mechanism = mechanism
        self._algorithm = HASHES[mechanism]
        self._store = store
        self._tokens = tokens
        self._nonce = nonce
        self._challenge: _Challenge | None = None

    def evaluate(self, token: bytes) -> bytes:
        if self._progress.allows(_Event.CLIENT_FIRST):
            step, event = self._server_first, _Event.CLIENT_FIRST
        else:
            self._progress.check(_Event.CLIENT_FINAL)
            step, event = self._server_final, _Event.CLIENT_FINAL
        try:
            response = step(token)
        except Exception:
            self._challenge = None
            self._progress.move(_Event.FAILURE)
            raise
        self._progress.move(event)
        return response

    def _server_first(self, message: bytes) -> bytes:
        first = _match(_CLIENT_FIRST, "client-first", message)
        username = username_of(first["name"])
        extensions = dict(part.split("=", 1) for part in first["ext"].split(",")[1:])
        if extensions.get(TOKEN_AUTH, "").lower() == "true":
            credential = self._token_credential(username)
        else:
            found = self._store.credential(self.mechanism, username)
            if found is None:
                raise SaslExchangeError(f"user {username!r} has no {self.mechanism} credential")
            credential = found
            self._authorization_id = username
        if username_of(first["authzid"] or "") not in {"", username}:
            raise SaslAuthenticationError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        if credential.iterations < MIN_ITERATIONS:
            raise SaslExchangeError(
                f"the credential of {username!r} has {credential.iterations} iterations; "
                f"the minimum of {self.mechanism} is {MIN_ITERATIONS}"
            )
        nonce = first["nonce"] + self._nonce()
        response = f"r={nonce},s={_encode(credential.salt)},i={credential.iterations}"
        self._challenge = _Challenge(credential, first["gs2"], nonce, f"{first['bare']},{response}")
        return response.encode()

    def _token_credential(self, token_id: str) -> ScramCredential:
        token = None if self._tokens is None else self._tokens.credential(self.mechanism, token_id)
        if token is None:
            raise SaslExchangeError(f"there is no delegation token {token_id!r}")
        self._authorization_id = token.owner
        self._negotiated = {TOKEN_AUTH: True, TOKEN_ID: token_id, CREDENTIAL_EXPIRY_MS: token.expiry_ms}
        return token.credential

    def _server_final(self, message: bytes) -> bytes:
        final = _match(_CLIENT_FINAL, "client-final", message)
        challenge = self._challenge
        assert challenge is not None
        if not hmac.compare_digest(final["nonce"], challenge.nonce):
            raise SaslExchangeError("Invalid client nonce in the final client message.")
        if _decode(final["channel"], "channel binding") != challenge.header.encode():
            raise SaslExchangeError("the channel binding differs from the client's first message")
        signed = f"{challenge.messages},{final['bare']}".encode()
        credential = challenge.credential
        signature = hmac.digest(credential.stored_key, signed, self._algorithm)
        proof = _decode(final["proof"], "proof")
        if len(proof) != len(signature):
            raise SaslExchangeError(f"a proof of {len(proof)} bytes; {self.mechanism} has {len(signature)}")
        presented = hashlib.new(self._algorithm, _xor(signature, proof)).digest()
        if not hmac.compare_digest(presented, credential.stored_key):
            raise SaslExchangeError("Invalid client credentials")
        self._challenge = None
        return f"v={_encode(hmac.digest(credential.server_key, signed, self._algorithm))}".encode()


# -- the client


class ScramClient(Exchange[_State, _Event]):
    """The client's end."""

    def __init__(
        self,
        mechanism: str,
        username: str,
        password: str,
        extensions: Mapping[str, str] | None = None,
        *,
        nonce: Nonce = new_nonce,
    ) -> None:
        super().__init__(Progress(_CLIENT, _State.FIRST, _State.COMPLETE))
        if not username or not password:
            raise InvalidConfigurationError(f"{mechanism} needs a username and a password")
        if "\0" in username:
            raise InvalidConfigurationError(f"a username of {mechanism} must not contain NUL")
        self.mechanism = mechanism
        self._algorithm = HASHES[mechanism]
        self._password = password.encode()
        self._nonce = nonce()
        self._first = ",".join(
            (f"n={sasl_name(username)}", f"r={self._nonce}", *(f"{k}={v}" for k, v in (extensions or {}).items()))
        )
        self._expected = b""
        """The signature with which the server proves that it has the credential."""

    def initial_response(self) -> bytes:
        self._progress.move(_Event.START)
        return f"n,,{self._first}".encode()

    def evaluate(self, challenge: bytes) -> bytes | None:
        if self._progress.allows(_Event.SERVER_FIRST):
            step, event = self._client_final, _Event.SERVER_FIRST
        else:
            self._progress.check(_Event.SERVER_FINAL)
            step, event = self._verified, _Event.SERVER_FINAL
        try:
            response = step(challenge)
        except Exception:
            self._progress.move(_Event.FAILURE)
            raise
        self._progress.move(event)
        return response

    def _client_final(self, message: bytes) -> bytes | None:
        first = _match(_SERVER_FIRST, "server-first", message)
        nonce = first["nonce"]
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise SaslExchangeError("Invalid server nonce: does not start with client nonce")
        iterations = int(first["iterations"])
        if not MIN_ITERATIONS <= iterations <= MAX_CLIENT_ITERATIONS:
            raise SaslExchangeError(
                f"the server requests {iterations} iterations; {self.mechanism} allows {MIN_ITERATIONS} "
                f"to {MAX_CLIENT_ITERATIONS}"
            )
        salted = salted_password(self._algorithm, self._password, _decode(first["salt"], "salt"), iterations)
        bare = f"c=biws,r={nonce}"
        signed = f"{self._first},{message.decode()},{bare}".encode()
        key = client_key(self._algorithm, salted)
        signature = hmac.digest(stored_key(self._algorithm, salted), signed, self._algorithm)
        self._expected = hmac.digest(server_key(self._algorithm, salted), signed, self._algorithm)
        return f"{bare},p={_encode(_xor(key, signature))}".encode()

    def _verified(self, message: bytes) -> bytes | None:
        final = _match(_SERVER_FINAL, "server-final", message)
        if final["error"] is not None:
            raise SaslExchangeError(f"Sasl authentication using {self.mechanism} failed with error: {final['error']}")
        if not hmac.compare_digest(_decode(final["signature"], "signature"), self._expected):
            raise SaslExchangeError("Invalid server signature in server final message")
        return None
