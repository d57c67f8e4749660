"""The transport of a local socket: bytes as they are, and references to what need not go through it."""

from __future__ import annotations

from barnabas.network.frame_references import MOST_FILES, FrameReferences
from barnabas.network.transport import PlaintextTransportLayer
from barnabas.network.unread_message import FileReading


class LocalTransportLayer(PlaintextTransportLayer):
    """A Unix socket, to and from a process of this machine."""

    __slots__ = ()

    def refer(self, reading: FileReading | None = None, most_files: int = MOST_FILES) -> None:
        """From here on large messages may come, and go, as references: see `barnabas.network.frame_references`.

        At most so many descriptors that arrive are kept until their reference is followed; more end the connection.
        """
        if self.references is not None:
            return
        self.references = FrameReferences(self._io.send_with_files, reading)
        self._io.keep_files(self.references.files, most_files)
        self.recv, self.recv_into = self._io.recv, self._io.recv_into

    def close(self) -> None:
        if self.references is not None:
            self.references.close()
            self.references = None
        super().close()


__all__ = ["LocalTransportLayer"]
