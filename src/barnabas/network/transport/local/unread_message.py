"""Messages of which a part is in files still.

A consumer's answer can be megabytes that the broker has sent no more of than the descriptors of their files
(`frame_references`). Somebody has to read these, and where to is best known to who makes something of
the records: so a client can have them left to that one.
"""

from __future__ import annotations

import os
from typing import Final

from barnabas._kernels import sockets
from barnabas.common.memory_reuse import is_free

LEAST_BYTES: Final = 1 << 18
"""What is smaller is read with the message: it costs little, and its file need not stay open."""
MOST_FILES: Final = 16
"""So many files of one message are left open at most."""
MOST_MESSAGES: Final = 4
"""As many as a consumer has at a time: see `barnabas.network.channel_state.MOST_SPARES`."""
ROOM: Final = 1 << 24
"""What each has room for, or twice as much, and so on: nothing but what is written to costs memory."""


class FileReading:
    """Who reads the files of a client's answers: the channel at once, or, if they are ``left``, whoever wants what is
    in them. Belongs to the thread of the client's selector."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = False


class UnreadFile:
    """A part of a message that has not been read. It is closed when nobody has it any more, if not before."""

    __slots__ = ("_fd", "position", "size", "start")

    def __init__(self, fd: int, position: int, start: int, size: int) -> None:
        self._fd = fd
        self.position = position
        """Where it is in the file."""
        self.start = start
        """Where it is to be in the message."""
        self.size = size

    def fileno(self) -> int:
        return self._fd

    def read(self, into: memoryview, start: int) -> None:
        """Fills this with what begins so many bytes behind the position; ``EOFError`` if there is not so much."""
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
    """The memory of a message, where the places of its files are empty. The system finds memory for what is written to,
    and no other. Whatever is cut out of it as a view leads back to it: see `unread_file_of`."""

    __slots__ = ("files",)

    def __init__(self) -> None:
        self.files: list[UnreadFile] = []


class UnreadMessages:
    """The memory of a connection's last few messages, to be used again when nobody has a view of them any more: then
    what little is written to it is where there is memory already."""

    __slots__ = ("_messages",)

    def __init__(self) -> None:
        self._messages: list[UnreadMessage] = []

    def take(self, size: int) -> UnreadMessage:
        """One of at least so many bytes, without files."""
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
    """The file that has what is missing in this part of a message, which is the caller's now; None if nothing is."""
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
