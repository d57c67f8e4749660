"""The security of a client's connections: chooses transport and authenticator by ``security.protocol``.

=================  =============  ====================================================
security.protocol  transport      authenticator
=================  =============  ====================================================
PLAINTEXT          plaintext      none
SSL                TLS            none: the broker may check the client's certificate
SASL_PLAINTEXT     plaintext      the mechanism of ``sasl.mechanism``
SASL_SSL           TLS            the mechanism of ``sasl.mechanism``
=================  =============  ====================================================

Every client creates its selector with `client_channel_factory`.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from barnabas.clients.common.client_config import define_security
from barnabas.clients.common.security_aliases import OBJECTS, SSL_CONTEXT, with_kafka_names
from barnabas.common.config_def import ConfigDef, ConfigError, ConfigValues, Password
from barnabas.network.reactor.channel import ANONYMOUS, Authenticator
from barnabas.network.reactor.channel_factory import ChannelFactory, plaintext
from barnabas.network.server.endpoint import TLS_PROTOCOLS, SecurityProtocol
from barnabas.network.transport import PlaintextTransportLayer, TransportLayer

if TYPE_CHECKING:
    import ssl

    from barnabas.clients.common.client_sasl import ClientMechanism

SECURITY: Final = define_security(ConfigDef())
"""The settings of TLS and SASL alone."""


def client_channel_factory(values: ConfigValues) -> ChannelFactory:
    """Returns the factory for the settings of a client; raises `ConfigError` if they are invalid.

    With OAUTHBEARER it obtains the first token, and raises `SaslAuthenticationError` if it gets none.
    """
    protocol = values.get_str("security.protocol").upper()
    if protocol == "PLAINTEXT":
        return plaintext
    context = client_ssl_context(values) if protocol.endswith("SSL") else None
    if not protocol.startswith("SASL_"):
        return ClientChannelFactory(context)
    from barnabas.clients.common.client_sasl import client_mechanism  # most clients do not use SASL

    return ClientChannelFactory(context, client_mechanism(values), values.get("client.id") or None)


class ClientChannelFactory:
    """Makes the channels of a client that uses TLS, SASL or both. The selector closes it at its end."""

    __slots__ = ("_client_id", "_context", "_mechanism")

    def __init__(
        self,
        context: ssl.SSLContext | None,
        mechanism: ClientMechanism | None = None,
        client_id: str | None = None,
    ) -> None:
        self._context = context
        self._mechanism = mechanism
        self._client_id = client_id

    def __call__(self, channel_id: str, sock: socket.socket, host: str) -> tuple[TransportLayer, Authenticator]:  # noqa: ARG002
        return self._transport(sock, host), self._authenticator(host)

    def _transport(self, sock: socket.socket, host: str) -> TransportLayer:
        if self._context is None:
            return PlaintextTransportLayer(sock)
        from barnabas.network.transport.tls import TlsTransportLayer

        # Certificates have names without brackets, scope and trailing dot.
        name = host.strip("[]").partition("%")[0].rstrip(".")
        try:
            return TlsTransportLayer(sock, self._context, server_side=False, server_hostname=name or None)
        except ValueError as error:  # ends this attempt to connect, as any other reason does
            raise OSError(f"{host!r} is not a valid host name of a certificate: {error}") from None

    def _authenticator(self, host: str) -> Authenticator:
        if self._mechanism is None:
            return ANONYMOUS
        from barnabas.security.sasl.channel_authenticator import SaslClientChannelAuthenticator
        from barnabas.security.sasl.client_authenticator import SaslClientAuthenticator

        name, begin, _ = self._mechanism
        return SaslClientChannelAuthenticator(
            SaslClientAuthenticator(name, partial(begin, host), client_id=self._client_id)
        )

    def close(self) -> None:
        """Ends the login of OAUTHBEARER, which renews tokens."""
        if self._mechanism is not None:
            self._mechanism.close()

    def __repr__(self) -> str:
        tls, sasl = self._context is not None, self._mechanism
        return f"ClientChannelFactory(tls={tls}, sasl={None if sasl is None else sasl.name})"


def client_ssl_context(values: ConfigValues) -> ssl.SSLContext:
    """Returns the context of TLS connections; raises `ConfigError` if the settings are invalid."""
    import ssl  # loads slowly, and plaintext does not need it

    given = values.originals.get(SSL_CONTEXT)
    if given is not None:
        if not isinstance(given, ssl.SSLContext):
            raise ConfigError(f"{SSL_CONTEXT} must be an ssl.SSLContext: {type(given).__name__}", name=SSL_CONTEXT)
        return given
    if values.get_optional_class("ssl.engine.factory.class") is not None:
        raise ConfigError(
            "ssl.engine.factory.class is not supported; pass ssl_context=, an ssl.SSLContext.",
            name="ssl.engine.factory.class",
        )
    from barnabas.security.tls.ssl_config import SslSettings
    from barnabas.security.tls.ssl_factory import Mode, SslFactory

    return SslFactory(SslSettings.of(values), Mode.CLIENT).context


def may_use_local_socket(values: ConfigValues) -> bool:
    """Whether connections may move to a broker's local socket. Those of TLS stay encrypted."""
    protocol = SecurityProtocol[values.get_str("security.protocol").upper()]
    return values.get_bool("local.socket.enable") and protocol not in TLS_PROTOCOLS


class ClientSecurity:
    """The security settings of a client, apart from its others. Can be hashed and pickled; shows names only."""

    __slots__ = ("_given",)

    def __init__(self, properties: Mapping[str, Any]) -> None:
        """Keeps the security settings among the settings of a client; raises `ConfigError` if they are invalid."""
        given = with_kafka_names(properties)
        self._given = tuple(
            sorted((name, _plain(given[name])) for name in given if name in SECURITY.keys or name in OBJECTS)
        )
        self.values()  # only to validate them

    def values(self) -> ConfigValues:
        return SECURITY.parse(dict(self._given))

    def channel_factory(self) -> ChannelFactory:
        return client_channel_factory(self.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClientSecurity) and self._given == other._given

    def __hash__(self) -> int:
        return hash(self._given)

    def __repr__(self) -> str:
        return f"ClientSecurity({', '.join(name for name, _ in self._given)})"


def _plain(value: object) -> object:
    return value.value if isinstance(value, Password) else value
