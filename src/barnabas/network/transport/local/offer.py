"""The local socket: how a client on the broker's own machine bypasses TCP.

Between two processes of one machine TCP splits, acknowledges and reassembles data that never leaves the memory. A Unix
domain socket does none of that: 1 KiB costs both ends together about 500 ns over loopback (300 without pacing), 170
over a Unix socket, if ``sendfile`` fills it. The bytes on it are the same, frame for frame.

A connection begins as TCP and then *moves*. It remains the same connection in every count, quota and log of the broker:
only its socket changes.

    client                                   broker
      TCP connect              ->            accepted, counted, given an id
      ApiVersions              ->
                               <-            its APIs, and an offer: "I see you as 127.0.0.1:40000 at 127.0.0.1:9092;
                                             my local socket is S, connect as C"
      are these my address and the one I connected to?
      binds to C, connects to S
                                             takes the connection whose offer named C, and gives it this socket;
                                             closes the TCP socket
      ApiVersions over S       ->
                               <-            its APIs, and no offer
      closes its TCP socket; the connection is ready

The comparison keeps a client from bypassing a proxy, such as a tunnel or a proxy that a test uses to break connections:
the broker sees the proxy's port, not the client's. The names belong to Linux' abstract namespace. They leave no file
behind, and they are reachable wherever the loopback interface is, since both belong to the network namespace: a
container with a forwarded port cannot reach them, and stays with TCP. Each name contains 128 random bits, and C can be
used once.

On a listener with SASL the connection moves after it has been authenticated, and keeps its principal and its session.
Both ends then make sure that the other one runs as the same user. A TLS connection does not move: it stays encrypted.

In the second exchange both sides announce that they support references (`frame_references`): the client always, the
broker if the client's process belongs to its own user.

The offer is a tagged field of ApiVersionsResponse that Kafka does not have. Only a client with our software name gets
it, in the versions that have tagged fields; the response to all others is unchanged.
"""

from __future__ import annotations

import logging
import socket
import sys
from typing import Any, Final, Self

from barnabas.common.errors import ProtocolError
from barnabas.network.server.connection_limits import canonical_address
from barnabas.protocol.fields import binary, int32, string
from barnabas.protocol.message import Message
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

log = logging.getLogger(__name__)

SUPPORTED: Final = sys.platform == "linux"
"""Other systems have Unix sockets, but no abstract names."""
PREFIX: Final = b"\0barnabas/"
"""The prefix of all names. A client connects to no other: a peer must not direct it to a foreign socket."""
OFFER_TAG: Final = 0x62726E62
"""The tag of the offer, "brnb", far from Kafka's tags, which count up from 0."""
REFERENCES_TAG: Final = OFFER_TAG + 1
"""The tag, in request and response, that announces support for references."""
FIRST_VERSION_WITH_TAGS: Final = 3
"""The first version of ApiVersions with tagged fields."""
SEND_BUFFER_BYTES: Final = 4 * 1024 * 1024
"""The send buffer to request from the system, unless the user has configured one. The sender's buffer is the only
one between the two processes. The system's default of 208 KiB would be filled four times for one batch of a table,
with a process switch each time. The system grants at most ``net.core.wmem_max``."""

_VERSION: Final = 0


class LocalSocketOffer(Message, versions="0", flexible="0"):
    """The local socket that a broker offers to a client on its own machine."""

    broker_name: bytes = binary(default=b"")
    """The name to connect to."""
    client_name: bytes = binary(default=b"")
    """The name to bind to first: it tells the broker which connection is moving."""
    client_host: str = string(default="")
    client_port: int = int32(default=0)
    broker_host: str = string(default="")
    broker_port: int = int32(default=0)

    @classmethod
    def on(cls, own: tuple[Any, ...], peer: tuple[Any, ...], broker_name: bytes, client_name: bytes) -> Self:
        """Returns the offer for a connection between these two addresses, as the broker sees them."""
        return cls(
            broker_name=broker_name,
            client_name=client_name,
            client_host=canonical_address(peer[0]),
            client_port=peer[1],
            broker_host=canonical_address(own[0]),
            broker_port=own[1],
        )

    @classmethod
    def in_response(cls, response: ApiVersionsResponse) -> Self | None:
        """Returns the offer in a response, if it has a readable one."""
        data = (response.unknown_tagged_fields or {}).get(OFFER_TAG)
        if data is None:
            return None
        try:
            return cls.decode(data, _VERSION)
        except ProtocolError as error:
            log.debug("A tagged field that is no offer of a local socket: %s", error)
            return None

    def put_into(self, response: ApiVersionsResponse) -> None:
        response.unknown_tagged_fields = {OFFER_TAG: bytes(self.encode(_VERSION))}

    def is_for(self, sock: socket.socket) -> bool:
        """Whether the broker sees both ends of this TCP connection as they are, that is, without a proxy in between."""
        if sock.family not in {socket.AF_INET, socket.AF_INET6}:
            return False
        own, peer = sock.getsockname(), sock.getpeername()
        return (canonical_address(own[0]), own[1], canonical_address(peer[0]), peer[1]) == (
            self.client_host,
            self.client_port,
            self.broker_host,
            self.broker_port,
        )


def say_references(message: ApiVersionsRequest | ApiVersionsResponse) -> None:
    """Adds to the message that its sender supports references."""
    message.unknown_tagged_fields = {**(message.unknown_tagged_fields or {}), REFERENCES_TAG: bytes([_VERSION])}


def says_references(message: ApiVersionsRequest | ApiVersionsResponse) -> bool:
    return (message.unknown_tagged_fields or {}).get(REFERENCES_TAG) == bytes([_VERSION])


def connect(offer: LocalSocketOffer, sock: socket.socket, send_buffer: int) -> socket.socket | None:
    """Returns the local socket for a TCP connection to move to; None if it stays on TCP, which is no error."""
    if not SUPPORTED or not offer.broker_name.startswith(PREFIX) or not offer.client_name.startswith(PREFIX):
        return None
    local = None
    try:
        if not offer.is_for(sock):
            log.debug("The local socket of %s is not for %s: something is in between", offer, sock)
            return None
        local = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        local.setblocking(False)
        set_send_buffer(local, send_buffer)
        local.bind(offer.client_name)
        local.connect(offer.broker_name)  # succeeds or fails at once
    except (OSError, ValueError) as error:  # ValueError: invalid address, or a name that is too long
        log.debug("Staying with TCP; the local socket cannot be reached: %s", error)
        if local is not None:
            local.close()
        return None
    return local


def set_send_buffer(local: socket.socket, size: int) -> None:
    """Sets how many bytes may be in flight to the other end; -1 keeps the system's default."""
    if size >= 0:
        local.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
