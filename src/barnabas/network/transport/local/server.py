"""The broker's side of the local socket: see `barnabas.network.transport.local.offer`."""

from __future__ import annotations

import logging
import os
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from barnabas.network.reactor.channel import KafkaChannel
from barnabas.network.transport.local.frame_references import MOST_MEMORIES, is_same_user
from barnabas.network.transport.local.layer import LocalTransportLayer
from barnabas.network.transport.local.offer import (
    PREFIX,
    SUPPORTED,
    LocalSocketOffer,
    says_references,
    set_send_buffer,
)
from barnabas.network.transport.loopback import on_one_machine

if TYPE_CHECKING:
    from barnabas.network.reactor.selector import Selector
    from barnabas.network.server.config import SocketServerConfig
    from barnabas.protocol.messages.api_versions import ApiVersionsRequest

log = logging.getLogger(__name__)

_CLOSE_AT_ONCE = struct.pack("ii", 1, 0)
_RANDOM_BYTES = 16
MOST_PER_TURN = 64
"""The most arrivals handled per turn, so that connected clients get their turn."""


class LocalListener:
    """Accepts the connections of one processor that move to the local socket.

    It belongs to a processor and not to the acceptor, because a moving connection has already been accepted. No quota
    applies again, so it must not wait behind connections that need one: an acceptor waits when the broker has reached
    its maximum of connections, and a client that is one of these would wait with it.
    """

    def __init__(self, backlog: int, send_buffer: int, *, same_user: bool = False) -> None:
        """With ``same_user``, peers of other users are rejected."""
        self._send_buffer = send_buffer
        self._same_user = same_user
        self._offered: dict[bytes, KafkaChannel] = {}
        """The connections that may move, by the client names offered to them."""
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
        """Returns the offer for a connection; None if its client is on another machine or no longer on TCP."""
        sock = channel.transport.socket
        try:
            own, peer = sock.getsockname(), sock.getpeername()
        except OSError:  # the connection has just ended
            return None
        if sock.family == socket.AF_UNIX or not on_one_machine(own, peer):
            return None
        name = _new_name()
        self._offered[name] = channel
        return LocalSocketOffer.on(own, peer, self.name, name)

    def withdraw(self, offer: LocalSocketOffer) -> None:
        """Removes the offer of a connection that has moved or ended."""
        self._offered.pop(offer.client_name, None)

    def arrivals(self) -> Iterator[tuple[KafkaChannel, socket.socket]]:
        """Yields the connections that move now, with their new sockets.

        Rejects peers whose name was never offered, and those of another user if the connection is authenticated: names
        in use can be listed by all users of the machine, and one that its client has given up must not let somebody
        else become its principal. Raises ``OSError`` if the socket can accept no more.
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
            if self._same_user and not is_same_user(sock):
                log.debug("%s cannot move: its client runs as another user", channel.id)
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


class LocalConnections:
    """Moves the connections of one processor to its local socket, and lets them use frame references.

    It belongs to the processor's thread.
    """

    def __init__(self, selector: Selector, listener: LocalListener, processor_id: int, *, may_refer: bool) -> None:
        self.due = False
        """Whether a connection waits at the local socket."""
        self.listener: LocalListener | None = listener
        self._selector = selector
        self._processor_id = processor_id
        self._may_refer = may_refer
        selector.watch_listener(listener.fileno(), self._note_arrival)

    @classmethod
    def of(
        cls, selector: Selector, config: SocketServerConfig, processor_id: int, *, may_refer: bool, same_user: bool
    ) -> LocalConnections | None:
        """Opens the local socket of a processor; None where that is impossible.

        ``same_user`` is for listeners with authentication: see `LocalListener.arrivals`.
        """
        if not SUPPORTED:
            return None
        try:
            listener = LocalListener(
                config.socket_listen_backlog_size, config.local_socket_send_buffer_bytes, same_user=same_user
            )
        except OSError as error:  # a sandbox may forbid it
            log.info("Processor %d has no local socket: %s", processor_id, error)
            return None
        return cls(selector, listener, processor_id, may_refer=may_refer)

    def _note_arrival(self) -> None:
        self.due = True

    def note_request(self, channel: KafkaChannel, body: ApiVersionsRequest) -> None:
        """Allows frame references if the client asks for them in its ApiVersions request.

        A memory pool limits the memory of requests but does not see references, so with a pool they are not allowed.
        """
        transport = channel.transport
        if (
            says_references(body)
            and self._may_refer
            and isinstance(transport, LocalTransportLayer)
            and is_same_user(transport.socket)
        ):
            transport.refer(most_files=MOST_MEMORIES)
            channel.context.refers = True

    def offer_to(self, channel: KafkaChannel) -> None:
        """Offers the local socket to a client of ours, with the response to its ApiVersions request."""
        if channel.context.local_socket is None and self.listener is not None:
            channel.context.local_socket = self.listener.offer(channel)

    def move_connections(self, failed: Callable[[str, str, Exception], None]) -> None:
        """Moves the connections whose clients have connected to the local socket."""
        self.due = False
        if self.listener is None:
            return
        try:
            for channel, sock in self.listener.arrivals():
                self._move(channel, sock, failed)
        except OSError as error:  # possibly out of descriptors: it would recur endlessly
            log.warning("Processor %d closes its local socket: %s", self._processor_id, error)
            self.close()

    def _move(self, channel: KafkaChannel, sock: socket.socket, failed: Callable[[str, str, Exception], None]) -> None:
        if self._selector.channel(channel.id) is not channel or channel.send is not None:
            log.debug("%s cannot move to the local socket any more", channel.id)
            sock.close()
            return
        try:
            former = self._selector.replace_socket(channel, sock)
        except OSError as error:
            sock.close()
            failed(channel.id, "Moving to the local socket failed for", error)
            return
        channel.context.local_socket = None
        with suppress(OSError):
            # Nothing is in flight, so skip the lingering close: the side that closes first would keep the port busy.
            former.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _CLOSE_AT_ONCE)
        former.close()
        log.debug("%s has moved to the local socket", channel.id)

    def forget(self, channel: KafkaChannel) -> None:
        """Withdraws the offer to a connection that has ended."""
        if self.listener is not None and channel.context.local_socket is not None:
            self.listener.withdraw(channel.context.local_socket)

    def close(self) -> None:
        if self.listener is not None:
            self._selector.forget_listener(self.listener.fileno())
            self.listener.close()
            self.listener = None
