"""The local socket: how a client on the broker's own machine gets around TCP.

Between two processes of one machine TCP divides into packets, acknowledges and puts together again what never leaves
the memory. A Unix domain socket does none of that: 1 KiB costs both ends together about 500 ns over loopback (300
without pacing), 170 over a Unix socket, if ``sendfile`` fills it. The bytes on it are the same, frame for frame.

A connection begins as TCP and *moves*. It stays the same connection all the while, in every count, quota and log of the
broker: only its socket is another one.

    client                                   broker
      TCP connect              ->            accepted, counted, given an id
      ApiVersions              ->
                               <-            its APIs, and an offer: "I see you as 127.0.0.1:40000 at 127.0.0.1:9092;
                                             my local socket is S, come as C"
      is this who I am, and where I connected to?
      binds to C, connects to S
                                             takes the connection whose offer named C, and gives it this socket;
                                             the TCP one is closed
      ApiVersions over S       ->
                               <-            its APIs, and no offer
      closes its end of the TCP one; from here on the connection is ready

The comparison keeps a proxy in between from being bypassed, be it a tunnel or one that a test breaks connections with:
the broker sees the proxy's port there, not the client's. The names are of Linux' abstract namespace. No file is left
behind, and they can be reached from where the loopback interface can be reached, since both belong to the network
namespace: a container that has the port forwarded finds nobody there, and stays with TCP. Each name is made of 128
random bits, and C can be used once.

In the second exchange both say that they can do with references (`frame_references`): the client
always, the broker if the client's process belongs to its own user.

The offer is a tagged field of ApiVersionsResponse that Kafka does not have. Only a client that calls itself by our name
gets it, in the versions that have tagged fields; for all others not a byte of the answer is different.
"""

from __future__ import annotations

import logging
import socket
import sys
from typing import Any, Final, Self

from barnabas.common.errors import ProtocolError
from barnabas.network.connection_limits import canonical_address
from barnabas.protocol.fields import binary, int32, string
from barnabas.protocol.message import Message
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

log = logging.getLogger(__name__)

SUPPORTED: Final = sys.platform == "linux"
"""Other systems have Unix sockets, but no abstract names."""
PREFIX: Final = b"\0barnabas/"
"""How all names begin. A client connects to no other: a peer must not be able to send it to somebody else's socket."""
OFFER_TAG: Final = 0x62726E62
"""The tag of the offer, far away from those that Kafka counts up from 0: "brnb"."""
REFERENCES_TAG: Final = OFFER_TAG + 1
"""The tag, in question and answer, of who can do with references."""
FIRST_VERSION_WITH_TAGS: Final = 3
"""Of ApiVersions."""
SEND_BUFFER_BYTES: Final = 4 * 1024 * 1024
"""What is asked of the system for the buffer, unless a user has asked for something else. The buffer of the sender is
all there is between the two. The system's own 208 KiB would be filled four times for one batch of a table, with a
switch from one process to the other each time; it gives no more than ``net.core.wmem_max``."""

_VERSION: Final = 0


class LocalSocketOffer(Message, versions="0", flexible="0"):
    """What a broker tells a client on its own machine."""

    broker_name: bytes = binary(default=b"")
    """Where to connect to."""
    client_name: bytes = binary(default=b"")
    """What to bind to before: this is how the broker knows which connection it is that moves."""
    client_host: str = string(default="")
    client_port: int = int32(default=0)
    broker_host: str = string(default="")
    broker_port: int = int32(default=0)

    @classmethod
    def on(cls, own: tuple[Any, ...], peer: tuple[Any, ...], broker_name: bytes, client_name: bytes) -> Self:
        """The offer for a connection between these two addresses, as the broker has them."""
        return cls(
            broker_name=broker_name,
            client_name=client_name,
            client_host=canonical_address(peer[0]),
            client_port=peer[1],
            broker_host=canonical_address(own[0]),
            broker_port=own[1],
        )

    @classmethod
    def in_answer(cls, answer: ApiVersionsResponse) -> Self | None:
        """The offer in an answer, if there is one that can be read."""
        data = (answer.unknown_tagged_fields or {}).get(OFFER_TAG)
        if data is None:
            return None
        try:
            return cls.decode(data, _VERSION)
        except ProtocolError as error:
            log.debug("A tagged field that is no offer of a local socket: %s", error)
            return None

    def put_into(self, answer: ApiVersionsResponse) -> None:
        answer.unknown_tagged_fields = {OFFER_TAG: bytes(self.encode(_VERSION))}

    def is_for(self, sock: socket.socket) -> bool:
        """Whether the broker sees the two ends of this TCP connection as they are: then nobody is in between."""
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
    """Adds that its sender can do with references."""
    message.unknown_tagged_fields = {**(message.unknown_tagged_fields or {}), REFERENCES_TAG: bytes([_VERSION])}


def says_references(message: ApiVersionsRequest | ApiVersionsResponse) -> bool:
    return (message.unknown_tagged_fields or {}).get(REFERENCES_TAG) == bytes([_VERSION])


def connect(offer: LocalSocketOffer, sock: socket.socket, send_buffer: int) -> socket.socket | None:
    """The local socket that a TCP connection is to move to; None if it is to stay, which is no error."""
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
        local.connect(offer.broker_name)  # at once, or not at all
    except (OSError, ValueError) as error:  # the latter for an address that is none, or a name that is too long
        log.debug("Staying with TCP; the local socket cannot be reached: %s", error)
        if local is not None:
            local.close()
        return None
    return local


def set_send_buffer(local: socket.socket, size: int) -> None:
    """How much may be on its way to the other end; -1 leaves it to the system."""
    if size >= 0:
        local.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
