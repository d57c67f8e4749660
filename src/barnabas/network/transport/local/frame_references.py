"""Frame references: sent through a local socket in place of large messages.

Two processes of one user on one machine need not send large data through a socket. Each sends its location instead:

- A client's batch is in shared memory (`shared_memory`). The broker copies it once, before it examines it: the client
  can change that memory at any time, even between the check of a batch and its write to the log.
- The records that a consumer fetches are in the files of the log, and so in the system's page cache. The broker sends
  the *descriptors* of these files, which a Unix socket can carry (``SCM_RIGHTS``). The client reads the files into the
  memory that would have received the message, or leaves that to the consumer of the records (`unread_message`). The
  file stays open as long as needed, whatever the broker does with it meanwhile. The descriptors are read-only.

A reference begins with a length that no message has:

    int32 -2   int32 length of what follows   int8 1   int32 memory   int64 position   int32 size
    int32 -2   int32 length of what follows   int8 2   int32 size     int32 pieces, then for each of these
                                                       int32 length   so many bytes of the message
                                                    or int32 -1       int64 position in the next file   int32 size

The descriptor of a memory comes with the first reference to it, those of files come each time. Each end keeps only a
few descriptors until it reaches their reference; a peer that sends more loses its connection. Unless references were
agreed on, the system closes arriving descriptors. The result is the message as the socket would have delivered it, and
layers above a channel see no difference: sizes, quotas and metrics are those of the message.

A broker allows references only for a client process of its own user, which the system verifies (``SO_PEERCRED``): such
a process could read and write the log files anyway. Both sides announce references before they use them, in the
ApiVersions request and response that come first on a local socket (`barnabas.network.transport.local.offer`).
"""

from __future__ import annotations

import logging
import os
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from barnabas._kernels import reactor, sockets
from barnabas._kernels.channel_state import with_room_to_grow
from barnabas.common.memory_reuse import is_free
from barnabas.network.transport.local.shared_memory import LEAST_BYTES, SharedMemory, map_memory, memory_of
from barnabas.network.transport.local.unread_message import LEAST_BYTES as LEAST_UNREAD_BYTES
from barnabas.network.transport.local.unread_message import MOST_FILES as MOST_UNREAD_FILES
from barnabas.network.transport.local.unread_message import FileReading, UnreadFile, UnreadMessages

FileRegion = reactor.FileRegion

log = logging.getLogger(__name__)

MARK: Final = -2
"""Marks a reference, in place of a message's length."""
HEAD: Final = struct.Struct(">ii")
"""The mark and the length of the reference."""
MOST_BYTES: Final = 1 << 14
"""The maximum length of a reference: a socket must take it in one piece or not at all."""
MOST_FILES: Final = 64
"""The maximum of descriptors per reference, and of descriptors that a receiver keeps. The system's limit is 253."""
MOST_MEMORIES: Final = 2
"""How many memories a broker keeps per connection. The previous one may still hold requests."""
MOST_KEPT_BYTES: Final = 1 << 22
"""The buffer that a batch is copied into is kept for the next batch, unless it is larger than this."""
LEAST_BYTES_PER_FILE: Final = 1 << 15
"""Opening and closing a file costs as much as receiving this many bytes."""
_MEMORY: Final = 1
_FILES: Final = 2
_IN_MEMORY: Final = struct.Struct(">bIqi")
_IN_FILES: Final = struct.Struct(">bii")
_LENGTH: Final = struct.Struct(">i")
_REGION: Final = struct.Struct(">iqi")
_NO_BYTES: Final = -1
_CREDENTIALS: Final = struct.Struct("3i")


class FrameReferences:
    """The references of one connection, in both directions. Belongs to the thread of the connection's selector."""

    __slots__ = ("_announced", "_kept", "_known", "_reading", "_send_with_files", "_unread", "files")

    def __init__(self, send_with_files: Callable[[bytes, list[int]], int], reading: FileReading | None = None) -> None:
        self._send_with_files = send_with_files
        self._reading = FileReading() if reading is None else reading
        self._unread = UnreadMessages()
        self.files: list[int] = []
        """Descriptors that have arrived for references that have not been resolved yet."""
        self._announced: dict[int, SharedMemory] = {}
        """The memories that the other end knows, by id."""
        self._known: dict[int, memoryview] = {}
        """The other end's memories that this end has mapped, by id."""
        self._kept: bytearray | None = None

    # -- sending

    def send(self, pieces: Sequence[Any], size: int) -> bool:
        """Sends a suitable message as a reference; ``BlockingIOError`` if the socket has no room for it now."""
        if size < LEAST_BYTES:
            return False
        if len(pieces) <= 3:
            for index, piece in enumerate(pieces):
                memory = memory_of(piece)
                if memory is not None:
                    return self._send_memory(memory, pieces, index)
        return self._send_files(pieces, size)

    def _send_memory(self, memory: SharedMemory, pieces: Sequence[Any], index: int) -> bool:
        placed = memory.place(pieces, index)
        if placed is None:
            return False
        is_new = memory.id not in self._announced
        self._send(_IN_MEMORY.pack(_MEMORY, memory.id, *placed), [memory.fileno()] if is_new else [])
        if is_new:
            self._announced[memory.id] = memory
            for former in [one for one in self._announced.values() if one.retired]:
                del self._announced[former.id]
        return True

    def _send_files(self, pieces: Sequence[Any], size: int) -> bool:
        parts = [_IN_FILES.pack(_FILES, size - 4, len(pieces))]
        files: list[int] = []
        first = True
        for piece in pieces:
            if type(piece) is FileRegion:
                parts.append(_REGION.pack(_NO_BYTES, piece.position, piece.count))
                files.append(int(piece.fd))
            else:
                data = piece[4:] if first else piece  # without the length at its beginning
                if len(data) > MOST_BYTES:
                    return False
                parts += (_LENGTH.pack(len(data)), data)
            first = False
        if not files or len(files) > min(MOST_FILES, size // LEAST_BYTES_PER_FILE):
            return False
        reference = b"".join(parts)
        if len(reference) > MOST_BYTES:
            return False
        readable: list[int] = []
        try:
            for fd in files:
                readable.append(_reopened(fd))  # noqa: PERF401 - those before one that fails have to be closed
        except OSError as error:
            log.debug("Files of the log are sent through the socket, as they cannot be opened again: %s", error)
            _close_all(readable)
            return False
        try:
            self._send(reference, readable)
        finally:
            _close_all(readable)
        return True

    def _send(self, reference: bytes, files: list[int]) -> None:
        data = HEAD.pack(MARK, len(reference)) + reference
        sent = self._send_with_files(data, files)
        if sent != len(data):
            raise OSError(f"{sent} bytes of a reference of {len(data)} were taken: it cannot be continued")

    # -- resolving

    def follow(self, reference: memoryview, buffer_for: Callable[[int], bytearray], most: int) -> memoryview:
        """Returns the message that a reference stands for.

        ``buffer_for`` returns a buffer for a number of bytes, or raises if that exceeds ``most``, the maximum. Raises
        ``OSError``, ``EOFError`` or ``ValueError`` if there is no such message.
        """
        try:
            kind = reference[0]
            if kind == _MEMORY:
                _, memory_id, position, size = _IN_MEMORY.unpack(reference)
                return self._in_memory(memory_id, position, size, buffer_for, most)
            if kind == _FILES:
                return self._in_files(reference, buffer_for, most)
        except (struct.error, IndexError) as error:
            raise ValueError(f"a reference that cannot be read: {error}") from None
        raise ValueError(f"a reference of the kind {kind}, which is not known")

    def _in_memory(
        self, memory_id: int, position: int, size: int, buffer_for: Callable[[int], bytearray], most: int
    ) -> memoryview:
        memory = self._known.get(memory_id)
        if memory is None:
            fd = self._next_file()
            try:
                memory = map_memory(fd)
            finally:
                os.close(fd)
            while len(self._known) >= MOST_MEMORIES:
                del self._known[next(iter(self._known))]
            self._known[memory_id] = memory
        if position < 0 or size < 0 or position + size > len(memory):
            raise ValueError(f"{size} bytes at {position} of {len(memory)}")
        # Copy first: the data written must be the data checked, and the other end may change its memory in between.
        keep = LEAST_BYTES <= size <= min(most, MOST_KEPT_BYTES)
        view = memoryview(self._kept_buffer(size) if keep else buffer_for(size))[:size]
        view[:] = memory[position : position + size]
        return view

    def _kept_buffer(self, size: int) -> bytearray:
        """Returns the buffer of the last batch if it is unused: allocating memory costs as much as the copy."""
        buffer = self._kept
        if buffer is None or len(buffer) < size or not is_free(buffer):
            buffer = self._kept = sockets.large_buffer(with_room_to_grow(size))
        return buffer

    def _in_files(self, reference: memoryview, buffer_for: Callable[[int], bytearray], most: int) -> memoryview:
        _, size, count = _IN_FILES.unpack_from(reference)
        unread: list[UnreadFile] | None = None
        if self._reading.left and LEAST_UNREAD_BYTES <= size <= most:
            message = self._unread.take(size)
            unread = message.files
            view = memoryview(message)[:size]
        else:
            view = memoryview(buffer_for(size))[:size]
        at, filled = _IN_FILES.size, 0
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(reference, at)
            if length == _NO_BYTES:
                _, position, length = _REGION.unpack_from(reference, at)
                at += _REGION.size
                file = UnreadFile(self._next_file(), position, filled, length)
                part = _part(view, filled, length)
                if unread is not None and length >= LEAST_UNREAD_BYTES and len(unread) < MOST_UNREAD_FILES:
                    unread.append(file)
                else:
                    file.read(part, 0)
                    file.close()
            else:
                at += _LENGTH.size
                _part(view, filled, length)[:] = reference[at : at + length]
                at += length
            filled += length
        if filled != size:
            raise ValueError(f"a message of {filled} bytes where {size} were announced")
        return view

    def _next_file(self) -> int:
        if not self.files:
            raise OSError("a reference has come without its file: perhaps there are too many open files")
        return self.files.pop(0)

    # -- closing

    def close(self) -> None:
        """Retires the memories sent: the other end may go on reading them for an unknown time."""
        for memory in self._announced.values():
            memory.retire()
        self._announced.clear()
        self._known.clear()
        self._kept = None
        self._unread.clear()
        _close_all(self.files)
        self.files.clear()


def is_same_user(sock: socket.socket) -> bool:
    """Whether the process at the other end of a Unix socket runs as the same user."""
    if sock.family != socket.AF_UNIX or not hasattr(socket, "SO_PEERCRED"):
        return False
    data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(data)
    return bool(user == os.geteuid())


def _reopened(fd: int) -> int:
    """Reopens a file read-only: the log's own descriptor would let the receiver write."""
    return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)


def _close_all(files: list[int]) -> None:
    for fd in files:
        os.close(fd)


def _part(view: memoryview, start: int, length: int) -> memoryview:
    if length < 0 or length > len(view) - start:
        raise ValueError(f"a piece of {length} bytes at {start} of a message of {len(view)}")
    return view[start : start + length]


__all__ = ["HEAD", "MARK", "MOST_BYTES", "FrameReferences", "is_same_user"]
