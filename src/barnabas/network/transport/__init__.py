"""Transports: how bytes get in and out of one socket.

All layers above use this interface, so TLS needs only another class here. The methods that move data are attributes
holding the socket's own methods, or those of the compiled `sockets`: the plaintext transport adds no Python call to a
read or a write.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol

from barnabas._kernels import sockets
from barnabas.network.transport.loopback import do_not_pace

READ: Final = 1
WRITE: Final = 4
ELSEWHERE: Final = 0x1000
"""In the result of `TransportLayer.handshake`: the next step is expensive and must run in another thread."""


_KEEPS_BACK: Final = hasattr(socket, "MSG_MORE")
"""Whether the system may keep back what `TransportLayer.send_more` has given it."""


def _push(sock: socket.socket) -> None:
    """Makes Linux send what it has kept back, by setting an option again that every connection has."""
    with suppress(OSError):  # a socket that has been closed has sent it
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class TransportLayer(Protocol):
    """A non-blocking connection. An operation that would block raises ``BlockingIOError``."""

    send_whole: Callable[[list[Any], int], bool] | None
    """Sends all pieces of a message by a method of the transport's own, or returns False; None if it has no such
    method."""
    special_frame: Callable[[memoryview, int, Any], tuple[memoryview | None, int] | None] | None
    """Reads a frame with a negative length, at a position of a view, for a channel; None if the transport has none.

    Returns the payload and the position after the frame; no payload if the frame is incomplete; None if the frame does
    not belong to this transport.
    """

    push: Callable[[], None] | None
    """Sends what the system has kept back after `send_more`; None if nothing may be left there."""

    def recv(self, size: int, /) -> bytes | bytearray:
        """Receives up to this many bytes; empty at the end of the stream."""
        ...

    def recv_into(self, buffer: Any, /) -> int: ...

    def send(self, data: Any, /) -> int: ...

    def send_more(self, data: Any, /) -> int:
        """Like `send`, if more will follow at once: the head of a longer message, or one of several responses.

        A packet for it alone would only wake the peer for a few bytes. If nothing follows, `push` is due.
        """
        ...

    def sendmsg(self, pieces: Any, /) -> int: ...

    @property
    def is_ready(self) -> bool:
        """Whether the handshake is done."""
        ...

    def handshake(self) -> int:
        """Continues the handshake as far as possible without waiting.

        Returns the readiness it waits for: ``READ``, ``WRITE``, both, or 0 to leave the watched events unchanged. With
        ``ELSEWHERE`` the caller stops watching the socket and calls ``continue_elsewhere(done)``, a method that only
        transports with such steps have; after ``done``, which another thread calls, it continues with `handshake`.
        """
        ...

    @property
    def has_bytes_buffered(self) -> bool:
        """Whether the transport holds bytes that it has read from the socket, which no poller sees."""
        ...

    def send_file(self, fd: int, position: int, count: int, /) -> int:
        """Sends part of a file; returns the number of bytes sent."""
        ...

    def expect(self, count: int) -> None:
        """Makes the socket readable only after ``count`` bytes or at the end of the stream; the default is 1."""
        ...

    def finish_connect(self) -> bool: ...

    def fileno(self) -> int: ...

    @property
    def socket(self) -> socket.socket: ...

    def close(self) -> None: ...


class PlaintextTransportLayer:
    """Sends and receives bytes unencrypted."""

    __slots__ = (
        "_can_expect",
        "_expected",
        "_fd",
        "_io",
        "_socket",
        "push",
        "recv",
        "recv_into",
        "send",
        "send_file",
        "send_more",
        "sendmsg",
    )

    send_whole: Callable[[list[Any], int], bool] | None = None
    special_frame: Callable[[memoryview, int, Any], tuple[memoryview | None, int] | None] | None = None
    is_ready = True
    has_bytes_buffered = False
    reads_all = True
    """A read that returns fewer bytes than requested has emptied the socket, so another read is useless."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._fd = sock.fileno()
        self._expected = 1
        is_tcp = sock.family != socket.AF_UNIX
        self._can_expect = sys.platform == "linux" and is_tcp
        # Not a method of this object: with a reference to itself, only the garbage collector would free it.
        self.push: Callable[[], None] | None = partial(_push, sock) if _KEEPS_BACK and is_tcp else None
        self._io = io = sockets.SocketIo(sock)
        self.recv: Callable[[int], bytes | bytearray] = io.recv
        self.recv_into: Callable[[Any], int] = io.recv_into
        self.send: Callable[[Any], int] = io.send
        self.send_more: Callable[[Any], int] = io.send_more
        self.sendmsg: Callable[[Any], int] = io.sendmsg
        self.send_file: Callable[[int, int, int], int] = io.send_file

    def handshake(self) -> int:
        return 0

    def expect(self, count: int) -> None:
        """Supported for TCP on Linux, which enlarges its buffer for it and does not wait for bytes that cannot fit."""
        if count != self._expected and self._can_expect:
            self._expected = count
            with suppress(OSError):  # on failure every piece is reported
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)

    def finish_connect(self) -> bool:
        """Whether an outgoing connection is established; raises if it failed."""
        error = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise OSError(error, os.strerror(error))
        try:
            peer = self._socket.getpeername()
        except OSError as problem:
            if problem.errno == errno.ENOTCONN:
                return False
            raise
        do_not_pace(self._socket, peer)
        return True

    def fileno(self) -> int:
        return self._fd

    @property
    def socket(self) -> socket.socket:
        return self._socket

    def close(self) -> None:
        self._io.close()
        self._socket.close()
