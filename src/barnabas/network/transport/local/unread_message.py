"""Messages whose records are still in files.

For a fetch response of megabytes the broker may send only the descriptors of the log files (`frame_references`). The
code that decodes the records knows best where to read them to, so a client can leave the reading to that code.
"""

from __future__ import annotations

import os
from typing import Final

from barnabas._kernels import sockets
from barnabas.common.memory_reuse import is_free

LEAST_BYTES: Final = 1 << 18
"""A smaller part is read with the message: that costs little, and its file need not stay open."""
MOST_FILES: Final = 16
"""The maximum of files that one message leaves open."""
MOST_MESSAGES: Final = 4
"""The number a consumer holds at a time: see `barnabas._kernels.channel_state.MOST_SPARES`."""
ROOM: Final = 1 << 24
"""The size of each buffer, doubled as often as needed: only pages that are written to cost memory."""


class FileReading:
    """Decides who reads the files of a client's responses.

    The channel reads them at once, or, if they are ``left``, the code that uses their contents. Belongs to the thread
    of the client's selector.
    """

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = False


class UnreadFile:
    """A part of a message that has not been read. Its file is closed with the last reference, if not before."""

    __slots__ = ("_fd", "position", "size", "start")

    def __init__(self, fd: int, position: int, start: int, size: int) -> None:
        self._fd = fd
        self.position = position
        """Its position in the file."""
        self.start = start
        """Its position in the message."""
        self.size = size

    def fileno(self) -> int:
        return self._fd

    def read(self, into: memoryview, start: int) -> None:
        """Fills ``into`` from ``start`` bytes after the position; ``EOFError`` if the file ends before."""
        position, done = self.position + start, 0
        while done < len(into):
            count = os.preadv(self._fd, [into[done:]], position + done)
            if not count:
                raise EOFError("a file shrank while it was being read")
            done += count

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


class UnreadMessage(bytearray):
    """The memory of a message, in which the parts from files are empty.

    The system allocates only pages that are written to. A view of it leads back to it: see `unread_file_of`.
    """

    __slots__ = ("files",)

    def __init__(self) -> None:
        self.files: list[UnreadFile] = []


class UnreadMessages:
    """Reuses the memory of a connection's last few messages when no view of them is left.

    The little that is written then goes to pages that are allocated already.
    """

    __slots__ = ("_messages",)

    def __init__(self) -> None:
        self._messages: list[UnreadMessage] = []

    def take(self, size: int) -> UnreadMessage:
        """Returns a message of at least this many bytes, without files."""
        messages = self._messages
        for index in range(len(messages) - 1, -1, -1):
            message = messages[index]
            if size <= len(message) and is_free(message):
                messages.append(messages.pop(index))
                message.files.clear()
                return message
        message, room = UnreadMessage(), ROOM
        while room < size:
            room *= 2
        sockets.resize(message, room)
        messages.append(message)
        del messages[:-MOST_MESSAGES]
        return message

    def clear(self) -> None:
        self._messages.clear()


def unread_file_of(view: object) -> UnreadFile | None:
    """Returns the file of an unread part of a message, and gives it to the caller; None if the part has been read."""
    if type(view) is not memoryview or not view or type(view.obj) is not UnreadMessage:
        return None
    message = view.obj
    start = sockets.address_of(view) - sockets.address_of(message)
    for index, file in enumerate(message.files):
        if file.start == start and file.size == len(view):
            return message.files.pop(index)
    return None


__all__ = [
    "LEAST_BYTES",
    "MOST_FILES",
    "FileReading",
    "UnreadFile",
    "UnreadMessage",
    "UnreadMessages",
    "unread_file_of",
]
