"""Channel factories: choose the transport and the authenticator of a new connection.

Each listener and each client has one. Those of TLS and SASL are in `barnabas.security.channel_factories`.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TypeAlias

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
