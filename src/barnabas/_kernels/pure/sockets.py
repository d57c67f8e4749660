"""System calls on sockets: the twin of `compiled.sockets`, made of the standard library's own methods."""

from __future__ import annotations

import array
import ctypes
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from barnabas._kernels.sendfile import send_file

if TYPE_CHECKING:
    import select

MAX_EVENTS: Final = 512
_MORE: Final = getattr(socket, "MSG_MORE", 0)
_CLOSE_ON_EXEC: Final = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_MOST_FILES: Final = 64


def wait(epoll: select.epoll, timeout_ms: float) -> list[tuple[int, int]]:
    """Waits for events of the epoll instance, and returns file descriptors with their events.

    It may return an empty list early if a signal arrives.
    """
    return epoll.poll(timeout_ms / 1000, MAX_EVENTS)


def new_buffer(size: int) -> bytearray:
    """Returns a buffer to receive into. Its bytes are undefined."""
    if size < 0:
        raise ValueError(f"a buffer of {size} bytes")
    return bytearray(size)


large_buffer = new_buffer
"""`new_buffer` for a buffer that is used many times: the compiled kernel asks for large memory pages."""


def resize(buffer: bytearray, size: int) -> None:
    """Changes the size of a buffer. New bytes are undefined."""
    if not isinstance(buffer, bytearray):
        raise TypeError(f"{buffer!r} is no bytearray")
    if size <= len(buffer):
        del buffer[size:]
    else:
        buffer.extend(bytes(size - len(buffer)))


def address_of(buffer: Any) -> int:
    """Returns the address of the first byte of a writable buffer."""
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


class SocketIo:
    """Reads and writes one non-blocking socket. `close` must be called before the socket is closed."""

    __slots__ = ("_files", "_most_files", "_socket", "recv", "recv_into", "send", "sendmsg")

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._files: list[int] = []
        self._most_files = 0
        self.recv: Callable[[int], bytes | bytearray] = sock.recv
        self.recv_into: Callable[[Any], int] = sock.recv_into
        self.send: Callable[[Any], int] = sock.send
        self.sendmsg: Callable[[Any], int] = sock.sendmsg

    def close(self) -> None:
        """Stops using the socket."""

    def send_more(self, data: Any) -> int:
        """Sends data with more to follow: the system may wait for the rest before it sends a packet."""
        return self._socket.send(data, _MORE)

    def send_with_files(self, data: bytes, files: list[int]) -> int:
        """Sends a few bytes together with file descriptors."""
        if len(files) > _MOST_FILES:
            raise ValueError(f"{len(files)} files are too many for one message")
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
        return self._socket.sendmsg([data], rights, socket.MSG_DONTWAIT)

    def keep_files(self, files: list[int], most: int) -> None:
        """From now on appends received file descriptors to `files`; receiving fails if there are more than `most`."""
        self._files = files
        self._most_files = most
        self.recv = self._recv_with_files
        self.recv_into = self._recv_into_with_files

    def _recv_with_files(self, size: int) -> bytes:
        data = bytearray(size)
        return bytes(data[: self._recv_into_with_files(data)])

    def _recv_into_with_files(self, buffer: Any) -> int:
        room = socket.CMSG_SPACE(_MOST_FILES * array.array("i").itemsize)
        count, ancillary, _, _ = self._socket.recvmsg_into([buffer], room, _CLOSE_ON_EXEC)
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                files = array.array("i")
                files.frombytes(data[: len(data) - len(data) % files.itemsize])
                total = len(self._files) + len(files)
                if total > self._most_files:
                    for fd in files:
                        os.close(fd)
                    raise OSError(f"{total} files have come, and at most {self._most_files} are expected")
                self._files.extend(files)
        return count

    def send_file(self, source: int, position: int, count: int) -> int:
        """Sends part of a file, as much as the socket takes now, and returns the number of bytes."""
        return send_file(self._socket.fileno(), source, position, count)
