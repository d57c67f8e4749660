"""Transports: how bytes get in and out of one socket.

Everything above works with this interface, so that TLS is another class here and nothing else. The methods that move
data are attributes holding the socket's own methods, or those of the compiled `sockets`: the plaintext transport
adds no Python call to a read or a write.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from barnabas._kernels import sockets
from barnabas.network.loopback import do_not_pace


class TransportLayer(Protocol):
    """A non-blocking connection. ``BlockingIOError`` means that it would have to wait."""

    send_whole: Callable[[list[Any], int], bool] | None
    """Sends all pieces of a message in a way of the transport's own, or returns False; None if there is no such way."""
    special_frame: Callable[[memoryview, int, Any], tuple[memoryview | None, int] | None] | None
    """Reads a frame whose length is negative, at some position of a view, for a channel; None if there are none.

    Returns the payload and the position behind the frame; no payload if the frame is not complete; None if the frame is
    not one of this transport."""
    recv: Callable[[int], bytes | bytearray]
    """Up to so many bytes; empty at the end of the stream."""
    recv_into: Callable[[Any], int]
    send: Callable[[Any], int]
    send_more: Callable[[Any], int]
    """`send` for the head of something longer. The rest follows at once, so nothing is gained by a packet for the head
    alone: it would wake the peer up for a few bytes."""
    sendmsg: Callable[[Any], int]

    @property
    def is_ready(self) -> bool:
        """Whether the handshake is done."""
        ...

    def handshake(self) -> int:
        """Continues the handshake as far as possible without waiting.

        Returns what it waits for: ``READ``, ``WRITE``, both, or 0 for no change of what is watched.
        """
        ...

    @property
    def has_bytes_buffered(self) -> bool:
        """Whether bytes have left the socket and wait inside the transport, where no poller sees them."""
        ...

    def send_file(self, fd: int, position: int, count: int) -> int:
        """Sends part of a file; returns how many bytes went out."""
        ...

    def expect(self, count: int) -> None:
        """Asks to be found readable only when so many bytes have arrived, or the stream has ended; 1 is as usual."""
        ...

    def finish_connect(self) -> bool: ...

    def fileno(self) -> int: ...

    @property
    def socket(self) -> socket.socket: ...

    def close(self) -> None: ...


class PlaintextTransportLayer:
    """Bytes as they are."""

    __slots__ = (
        "_can_expect",
        "_expected",
        "_fd",
        "_io",
        "_socket",
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
    """A read that brings less than was asked for has brought all that was there: there is no use in another one."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._fd = sock.fileno()
        self._expected = 1
        self._can_expect = sys.platform == "linux" and sock.family != socket.AF_UNIX
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
        """Where the system can do that: for TCP on Linux, which lets its buffer grow for it, and does not wait for what
        will not fit."""
        if count != self._expected and self._can_expect:
            self._expected = count
            with suppress(OSError):  # then every piece is reported
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)

    def finish_connect(self) -> bool:
        """Whether an outgoing connection is there; raises if it failed."""
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
