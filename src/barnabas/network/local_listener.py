"""The broker's end of the local socket: see `barnabas.network.local_socket`."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator

from barnabas.network.channel import KafkaChannel
from barnabas.network.local_socket import PREFIX, LocalSocketOffer, set_send_buffer
from barnabas.network.loopback import on_one_machine

log = logging.getLogger(__name__)

_RANDOM_BYTES = 16
MOST_PER_TURN = 64
"""Then those that are connected get their turn, however many others come."""


class LocalListener:
    """Where the connections of one processor may move to.

    It belongs to a processor and not to the acceptor, for a connection that moves was accepted before. No quota has to
    be asked again, so it must not wait behind those that do: an acceptor waits when the broker has as many connections
    as it may have, and a client that is one of these would wait with it.
    """

    def __init__(self, backlog: int, send_buffer: int) -> None:
        self._send_buffer = send_buffer
        self._offered: dict[bytes, KafkaChannel] = {}
        """The connections that may move, by the names that they were given for it."""
        self.name = _new_name()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.setblocking(False)
            self._socket.bind(self.name)
            self._socket.listen(backlog)
        except OSError:
            self._socket.close()
            raise

    def fileno(self) -> int:
        return self._socket.fileno()

    def offer(self, channel: KafkaChannel) -> LocalSocketOffer | None:
        """What to tell the client of a connection; None if that is on another machine, or no longer on TCP."""
        sock = channel.transport.socket
        try:
            own, peer = sock.getsockname(), sock.getpeername()
        except OSError:  # it has just ended
            return None
        if sock.family == socket.AF_UNIX or not on_one_machine(own, peer):
            return None
        name = _new_name()
        self._offered[name] = channel
        return LocalSocketOffer.on(own, peer, self.name, name)

    def withdraw(self, offer: LocalSocketOffer) -> None:
        """The connection has moved, or has ended."""
        self._offered.pop(offer.client_name, None)

    def arrivals(self) -> Iterator[tuple[KafkaChannel, socket.socket]]:
        """The connections that move now, and the sockets that they move to.

        Who comes under a name that was given to nobody is turned away. ``OSError`` if nobody can be let in any more.
        """
        for _ in range(MOST_PER_TURN):
            try:
                sock, name = self._socket.accept()
            except BlockingIOError:
                return
            channel = self._offered.pop(name, None)
            if channel is None:
                log.debug("Turning away a local connection that nobody was asked to make")
                sock.close()
                continue
            try:
                sock.setblocking(False)
                set_send_buffer(sock, self._send_buffer)
            except OSError as error:
                log.debug("A local connection ended while it was being configured: %s", error)
                sock.close()
                continue
            yield channel, sock

    def close(self) -> None:
        self._socket.close()
        self._offered.clear()

    def __repr__(self) -> str:
        return f"LocalListener({self.name[1:].decode()}, {len(self._offered)} offers)"


def _new_name() -> bytes:
    return PREFIX + os.urandom(_RANDOM_BYTES).hex().encode()
