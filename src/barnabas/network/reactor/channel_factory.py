"""Channel factories: choose the transport and the authenticator of a new connection.

Each listener and each client has one. `FACTORIES` contains those of the supported security protocols.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from barnabas.network.reactor.channel import ANONYMOUS, Authenticator
from barnabas.network.transport import PlaintextTransportLayer, TransportLayer
from barnabas.network.transport.local.layer import LocalTransportLayer

ChannelFactory: TypeAlias = Callable[..., tuple[TransportLayer, Authenticator]]
"""Takes the channel's id and its socket; for an outgoing connection also the host name to connect to, which TLS
verifies."""


def plaintext(
    channel_id: str,  # noqa: ARG001 - the parameters of every factory
    sock: socket.socket,
    host: str = "",  # noqa: ARG001
) -> tuple[TransportLayer, Authenticator]:
    """Makes channels without encryption and authentication."""
    if sock.family == socket.AF_UNIX:
        return LocalTransportLayer(sock), ANONYMOUS
    return PlaintextTransportLayer(sock), ANONYMOUS


FACTORIES: Final[Mapping[str, ChannelFactory]] = {"PLAINTEXT": plaintext}
"""Factories by the name of the security protocol."""


def channel_factory_for(security_protocol: str) -> ChannelFactory:
    """Returns the factory of a security protocol; ValueError if the protocol is not supported."""
    found = FACTORIES.get(security_protocol.upper())
    if found is None:
        raise ValueError(f"security protocol {security_protocol} is not supported; supported: {', '.join(FACTORIES)}")
    return found
