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

ChannelFactory: TypeAlias = Callable[[str, socket.socket], tuple[TransportLayer, Authenticator]]
"""Takes the channel's id and its socket."""


def plaintext(channel_id: str, sock: socket.socket) -> tuple[TransportLayer, Authenticator]:  # noqa: ARG001
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
