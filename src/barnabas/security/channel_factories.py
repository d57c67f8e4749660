"""Channel factories of the secured protocols: they put a transport and an authenticator together.

    SSL              TLS transport, principal of the certificate
    SASL_SSL         TLS transport, SASL authenticator
    SASL_PLAINTEXT   plaintext transport, SASL authenticator

A factory asks its `SslFactory` for the context of each new connection, so a replaced key store takes effect at once.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TypeAlias

from barnabas.network.reactor.channel import ANONYMOUS, Authenticator
from barnabas.network.reactor.channel_factory import ChannelFactory
from barnabas.network.transport import PlaintextTransportLayer, TransportLayer
from barnabas.network.transport.handshakes import HandshakePool
from barnabas.network.transport.tls import TlsTransportLayer
from barnabas.security.tls.principal import CertificatePrincipalBuilder, PrincipalBuilder, TlsAuthenticator
from barnabas.security.tls.ssl_factory import SslFactory

AuthenticatorFactory: TypeAlias = Callable[[str, TransportLayer], Authenticator]
"""Takes the channel's id and its transport."""


def tls_server_channel_factory(
    ssl_factory: SslFactory,
    *,
    principal_builder: PrincipalBuilder | None = None,
    authenticator: AuthenticatorFactory | None = None,
    handshakes: HandshakePool | None = None,
) -> ChannelFactory:
    """Makes the channels of a TLS listener.

    ``authenticator`` is that of SASL_SSL; without it the principal is that of the certificate. ``handshakes`` is shared
    by all listeners of a node.
    """
    build = CertificatePrincipalBuilder() if principal_builder is None else principal_builder

    def make(channel_id: str, sock: socket.socket) -> tuple[TransportLayer, Authenticator]:
        transport = TlsTransportLayer(sock, ssl_factory.context, server_side=True, handshakes=handshakes)
        if authenticator is not None:
            return transport, authenticator(channel_id, transport)
        return transport, TlsAuthenticator(build)

    return make


def tls_client_channel_factory(
    ssl_factory: SslFactory,
    host_of: Callable[[str], str] | None = None,
    *,
    authenticator: AuthenticatorFactory | None = None,
) -> ChannelFactory:
    """Makes the channels of a client.

    The server's certificate must have the host name that the channel's node was configured or advertised with, never
    one that a reverse lookup of its address found. It is an argument of the factory, or ``host_of`` tells it by the
    channel's id. A name that no certificate can have raises ``OSError``.
    """

    def make(channel_id: str, sock: socket.socket, host: str = "") -> tuple[TransportLayer, Authenticator]:
        if host_of is not None and not host:
            host = host_of(channel_id)
        try:
            transport = TlsTransportLayer(
                sock, ssl_factory.context, server_side=False, server_hostname=_certificate_name(host)
            )
        except ValueError as error:  # empty, with a leading dot, or not encodable
            raise OSError(f"{host!r} is not a valid host name of a certificate: {error}") from None
        return transport, ANONYMOUS if authenticator is None else authenticator(channel_id, transport)

    return make


def sasl_plaintext_channel_factory(authenticator: AuthenticatorFactory) -> ChannelFactory:
    """Makes unencrypted channels with SASL, for listeners and clients."""

    def make(
        channel_id: str,
        sock: socket.socket,
        host: str = "",  # noqa: ARG001 - only TLS checks it
    ) -> tuple[TransportLayer, Authenticator]:
        transport = PlaintextTransportLayer(sock)
        return transport, authenticator(channel_id, transport)

    return make


def _certificate_name(host: str) -> str:
    """Returns a host name as certificates have it: without brackets, scope and the dot of the root."""
    return host.strip("[]").partition("%")[0].rstrip(".")
