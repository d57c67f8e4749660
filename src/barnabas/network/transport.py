"""Transports: how bytes get in and out of one socket.

Everything above works with this interface, so that TLS is another class here and nothing else. The methods that move
data are attributes holding the socket's own methods, or those of the compiled `_socket_io`: the plaintext transport
adds no Python call to a read or a write.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from barnabas.network.loopback import do_not_pace

if TYPE_CHECKING:
    from barnabas.network._socket_io import SENDS_FILES, SocketIo, large_buffer, new_buffer, resize
    from barnabas.network.frame_references import FrameReferences
else:
    SocketIo = None
    SENDS_FILES = False
    new_buffer = large_buffer = bytearray

    def resize(buffer: bytearray, size: int) -> None:
        """Makes a buffer longer."""
        buffer.extend(bytes(size - len(buffer)))

    if os.environ.get("BARNABAS_PURE") != "1":
        with suppress(ImportError):  # not built
            from barnabas.network._socket_io import SENDS_FILES, SocketIo, large_buffer, new_buffer, resize

__all__ = ["PlaintextTransportLayer", "SocketIo", "TransportLayer", "large_buffer", "new_buffer", "resize"]

_TRY_AGAIN = {errno.EAGAIN, errno.EWOULDBLOCK, errno.EINTR}
_FALLBACK_CHUNK = 1 << 18
_MORE = getattr(socket, "MSG_MORE", 0)


class TransportLayer(Protocol):
    """A non-blocking connection. ``BlockingIOError`` means that it would have to wait."""

    references: FrameReferences | None
    """How large messages go around the socket; None if they do not."""
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

    def handshake(self) -> None:
        """Goes on with the handshake as far as possible without waiting."""
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
        "references",
        "send",
        "send_file",
        "send_more",
        "sendmsg",
    )

    is_ready = True
    has_bytes_buffered = False
    reads_all = True
    """A read that brings less than was asked for has brought all that was there: there is no use in another one."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._fd = sock.fileno()
        self._expected = 1
        self.references: FrameReferences | None = None
        self._can_expect = sys.platform == "linux" and sock.family != socket.AF_UNIX
        self._io = None if SocketIo is None else SocketIo(self._fd)
        io = sock if self._io is None else self._io
        self.recv: Callable[[int], bytes | bytearray] = io.recv
        self.recv_into: Callable[[Any], int] = io.recv_into
        self.send: Callable[[Any], int] = io.send
        self.send_more: Callable[[Any], int] = self._send_more if self._io is None else self._io.send_more
        self.sendmsg: Callable[[Any], int] = io.sendmsg
        self.send_file: Callable[[int, int, int], int] = (
            self._io.send_file if SENDS_FILES and self._io is not None else self._send_file
        )

    def handshake(self) -> None: ...

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

    def _send_file(self, fd: int, position: int, count: int) -> int:
        """File to socket inside the kernel where there is ``sendfile``."""
        if hasattr(os, "sendfile"):
            return _sendfile(self._fd, fd, position, count)
        chunk = os.pread(fd, min(count, _FALLBACK_CHUNK), position)
        return self.send(chunk) if chunk else 0

    def _send_more(self, data: Any) -> int:
        return self._socket.send(data, _MORE)

    def fileno(self) -> int:
        return self._fd

    @property
    def socket(self) -> socket.socket:
        return self._socket

    def close(self) -> None:
        if self._io is not None:
            self._io.close()
        self._socket.close()


def _sendfile(out: int, source: int, position: int, count: int) -> int:
    try:
        return os.sendfile(out, source, position, count)
    except OSError as error:
        if error.errno in _TRY_AGAIN:
            raise BlockingIOError(error.errno, "the socket is full") from None
        raise
