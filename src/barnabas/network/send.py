"""What goes out: a response or request as a list of pieces, and how much of it has left.

Pieces are buffers, or regions of files that the transport moves without reading them. Nothing is copied but the small
pieces, which are joined: one system call for a 60-byte header and a 40-byte body costs less than two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from barnabas.network.reactor import SendCore
from barnabas.network.transport import TransportLayer

_JOIN_UP_TO = 1 << 16
_SMALL = 1 << 10
"""Pieces up to this size that follow each other are joined in a long message, too."""
_MAX_PIECES = 512
"""How many buffers one ``sendmsg`` takes; POSIX guarantees 16, Linux and macOS have 1024."""


class FileRegion:
    """A part of a file that goes out as it is."""

    __slots__ = ("count", "fd", "position")

    def __init__(self, fd: int, position: int, count: int) -> None:
        self.fd = fd
        self.position = position
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        return f"FileRegion(fd={self.fd}, position={self.position}, count={self.count})"


class NetworkSend(SendCore):
    """A message on its way out.

    ``write_to`` sends as much as the socket takes and may be called again until ``completed``.
    """

    __slots__ = ()

    def _gather(self, pieces: Sequence[Any]) -> int:
        size = sum(map(len, pieces))
        if size <= _JOIN_UP_TO and not any(isinstance(piece, FileRegion) for piece in pieces):
            self._pieces = [b"".join(pieces)]
            return size
        gathered: list[Any] = []
        small: list[Any] = []
        for piece in pieces:
            # Bytes only: what the encoders make of fields. Anything else may change until it goes out.
            if type(piece) is bytes and len(piece) <= _SMALL:
                small.append(piece)
                continue
            if small:
                gathered.append(small[0] if len(small) == 1 else b"".join(small))
                small = []
            gathered.append(piece)
        if small:
            gathered.append(b"".join(small))
        self._pieces = gathered
        return size

    def _write_pieces(self, transport: TransportLayer) -> int:
        written = 0
        pieces = self._pieces
        try:
            while self._at < len(pieces):
                piece = pieces[self._at]
                if isinstance(piece, FileRegion):
                    sent = transport.send_file(piece.fd, piece.position, piece.count)
                    if sent == 0 and piece.count:
                        raise EOFError(f"{piece!r} is beyond the end of its file: it shrank while it was being sent")
                    self._region_sent(piece, sent)
                elif self._at + 1 == len(pieces):
                    sent = transport.send(piece)
                    self._sent(sent)
                else:
                    sent = transport.sendmsg(self._run_of_buffers())
                    if sent == self.remaining:  # as nearly always: there is nothing to find out
                        self._at = len(pieces)
                    else:
                        self._sent(sent)
                written += sent
                self.remaining -= sent
        except BlockingIOError:
            pass
        return written

    def _run_of_buffers(self) -> list[Any]:
        stop = self._at
        while stop < len(self._pieces) and stop - self._at < _MAX_PIECES and not self._is_region(stop):
            stop += 1
        return self._pieces[self._at : stop]

    def _is_region(self, index: int) -> bool:
        return isinstance(self._pieces[index], FileRegion)

    def _region_sent(self, region: FileRegion, sent: int) -> None:
        if sent == region.count:
            self._at += 1
        else:
            self._pieces[self._at] = FileRegion(region.fd, region.position + sent, region.count - sent)

    def _sent(self, sent: int) -> None:
        """Steps over the buffers that went out whole, and keeps the rest of one that did not."""
        pieces = self._pieces
        while self._at < len(pieces) and not self._is_region(self._at):
            length = len(pieces[self._at])
            if sent < length:
                if sent:
                    pieces[self._at] = memoryview(pieces[self._at])[sent:]
                return
            sent -= length
            self._at += 1

    def __repr__(self) -> str:
        return f"NetworkSend({self.size - self.remaining} of {self.size} bytes sent)"
