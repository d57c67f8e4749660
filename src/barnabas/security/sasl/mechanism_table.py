"""The SASL mechanisms by name, for brokers and clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from barnabas.common.dataclass import dataclass, field
from barnabas.common.errors import InvalidConfigurationError
from barnabas.security.sasl.mechanism import SaslClient, SaslServer
from barnabas.security.sasl.oauth_token import TokenValidator
from barnabas.security.sasl.plain import PLAIN, PlainAuthenticate, PlainClient, PlainServer
from barnabas.security.sasl.scram import (
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    ScramClient,
    ScramCredentialStore,
    ScramServer,
    TokenCredentials,
)

if TYPE_CHECKING:
    from barnabas.security.sasl.gssapi import KerberosAcceptor, KerberosLogin

GSSAPI: Final = "GSSAPI"
OAUTHBEARER: Final = "OAUTHBEARER"


@dataclass(frozen=True, slots=True)
class ServerCallbacks:
    """The sources of credentials on a listener; a mechanism needs its own only."""

    plain: PlainAuthenticate | None = None
    scram: ScramCredentialStore | None = None
    delegation_tokens: TokenCredentials | None = None
    oauth: TokenValidator | None = None
    kerberos: KerberosAcceptor | None = None


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """What a client authenticates with."""

    username: str = ""
    password: str = field(default="", repr=False)
    delegation_token: bool = False
    """Whether the name is the id of a delegation token, and the password its HMAC."""
    token: Callable[[], str] | None = field(default=None, repr=False)
    """Returns the bearer token, for OAUTHBEARER."""
    extensions: Mapping[str, str] = field(default_factory=dict)
    kerberos: KerberosLogin | None = None


def _plain_server(callbacks: ServerCallbacks) -> SaslServer:
    assert callbacks.plain is not None
    return PlainServer(callbacks.plain)


def _scram_server(mechanism: str, callbacks: ServerCallbacks) -> SaslServer:
    assert callbacks.scram is not None
    return ScramServer(mechanism, callbacks.scram, callbacks.delegation_tokens)


def _oauth_server(callbacks: ServerCallbacks) -> SaslServer:
    from barnabas.security.sasl.oauthbearer import OAuthBearerServer  # most listeners do without its patterns

    assert callbacks.oauth is not None
    return OAuthBearerServer(callbacks.oauth)


def _gssapi_server(callbacks: ServerCallbacks) -> SaslServer:
    from barnabas.security.sasl.gssapi import GssapiServer

    assert callbacks.kerberos is not None
    return GssapiServer(callbacks.kerberos)


def _plain_client(credentials: ClientCredentials) -> SaslClient:
    return PlainClient(credentials.username, credentials.password)


def _scram_client(mechanism: str, credentials: ClientCredentials) -> SaslClient:
    extensions = dict(credentials.extensions)
    if credentials.delegation_token:
        extensions["tokenauth"] = "true"
    return ScramClient(mechanism, credentials.username, credentials.password, extensions)


def _oauth_client(credentials: ClientCredentials) -> SaslClient:
    if credentials.token is None:
        raise InvalidConfigurationError("OAUTHBEARER needs a source of tokens")
    from barnabas.security.sasl.oauthbearer import OAuthBearerClient

    return OAuthBearerClient(credentials.token, credentials.extensions)


def gssapi_client(credentials: ClientCredentials, host: str) -> SaslClient:
    """Begins an exchange of GSSAPI, the one mechanism that depends on the name of the host."""
    from barnabas.security.sasl.gssapi import GssapiClient

    if credentials.kerberos is None:
        raise InvalidConfigurationError("GSSAPI needs a keytab or a ticket cache")
    return GssapiClient(partial(credentials.kerberos.context, host))


SERVER_MECHANISMS: Final[Mapping[str, Callable[[ServerCallbacks], SaslServer]]] = {
    PLAIN: _plain_server,
    SCRAM_SHA_256: partial(_scram_server, SCRAM_SHA_256),
    SCRAM_SHA_512: partial(_scram_server, SCRAM_SHA_512),
    OAUTHBEARER: _oauth_server,
    GSSAPI: _gssapi_server,
}
CLIENT_MECHANISMS: Final[Mapping[str, Callable[[ClientCredentials], SaslClient]]] = {
    PLAIN: _plain_client,
    SCRAM_SHA_256: partial(_scram_client, SCRAM_SHA_256),
    SCRAM_SHA_512: partial(_scram_client, SCRAM_SHA_512),
    OAUTHBEARER: _oauth_client,
}
_NEEDS: Final = {
    PLAIN: "plain",
    SCRAM_SHA_256: "scram",
    SCRAM_SHA_512: "scram",
    OAUTHBEARER: "oauth",
    GSSAPI: "kerberos",
}


def _check(mechanism: str, known: Mapping[str, object]) -> None:
    if mechanism not in known:
        raise InvalidConfigurationError(f"SASL mechanism {mechanism} is not supported; supported: {', '.join(known)}")


def server_mechanism(mechanism: str, callbacks: ServerCallbacks) -> Callable[[], SaslServer]:
    """Returns what begins an exchange of an enabled mechanism, for `SaslServerSettings.mechanisms`."""
    _check(mechanism, SERVER_MECHANISMS)
    if getattr(callbacks, _NEEDS[mechanism]) is None:
        raise InvalidConfigurationError(f"SASL mechanism {mechanism} is enabled but has no source of credentials")
    return partial(SERVER_MECHANISMS[mechanism], callbacks)


def client_mechanism(mechanism: str, credentials: ClientCredentials) -> Callable[[], SaslClient]:
    """Returns what begins an exchange, for `SaslClientAuthenticator`; checks the credentials at once."""
    _check(mechanism, CLIENT_MECHANISMS)
    begin = partial(CLIENT_MECHANISMS[mechanism], credentials)
    begin()
    return begin
