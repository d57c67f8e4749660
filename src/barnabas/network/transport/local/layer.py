"""The transport of a local socket: plain bytes, and references in place of large messages."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Final

from barnabas._kernels.channel_state import InvalidReceiveError
from barnabas.network.transport import PlaintextTransportLayer
from barnabas.network.transport.local.frame_references import HEAD as REFERENCE_HEAD
from barnabas.network.transport.local.frame_references import MARK, MOST_FILES, FrameReferences
from barnabas.network.transport.local.frame_references import MOST_BYTES as MOST_REFERENCE_BYTES
from barnabas.network.transport.local.unread_message import FileReading

if TYPE_CHECKING:
    from barnabas.network.reactor.channel import KafkaChannel

_unpack_size: Final = struct.Struct(">i").unpack_from


class LocalTransportLayer(PlaintextTransportLayer):
    """A Unix socket between processes of this machine."""

    __slots__ = ("references", "send_whole", "special_frame")

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self.references: FrameReferences | None = None
        self.send_whole = self.special_frame = None

    def refer(self, reading: FileReading | None = None, most_files: int = MOST_FILES) -> None:
        """Allows sending and receiving large messages as references: see `frame_references`.

        At most ``most_files`` arriving descriptors are kept until their reference is resolved; more end the connection.
        """
        if self.references is not None:
            return
        self.references = FrameReferences(self._io.send_with_files, reading)
        self.send_whole = self.references.send
        self.special_frame = self._follow
        self._io.keep_files(self.references.files, most_files)
        self.recv, self.recv_into = self._io.recv, self._io.recv_into

    def _follow(self, view: memoryview, start: int, channel: KafkaChannel) -> tuple[memoryview | None, int] | None:
        """Reads a frame reference: a mark in place of the length, the length of the reference, and the reference."""
        (mark,) = _unpack_size(view, start)
        if mark != MARK or self.references is None:
            return None
        arrived = len(view)
        if arrived - start < REFERENCE_HEAD.size:
            return None, 0
        _, length = REFERENCE_HEAD.unpack_from(view, start)
        if not 0 < length <= MOST_REFERENCE_BYTES:
            raise InvalidReceiveError(f"a frame reference of {length} bytes from {channel.id}", length)
        stop = start + REFERENCE_HEAD.size + length
        if arrived < stop:
            return None, 0
        reference = view[start + REFERENCE_HEAD.size : stop]
        payload = self.references.follow(reference, channel.allocate, channel.max_receive_size)
        if len(payload) > channel.max_receive_size:
            channel.allocate(len(payload))  # raises
        return payload, stop

    def close(self) -> None:
        if self.references is not None:
            self.references.close()
            self.references = self.send_whole = self.special_frame = None
        super().close()


__all__ = ["LocalTransportLayer"]
