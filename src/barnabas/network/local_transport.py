"""The transport of a local socket: bytes as they are, and references to what need not go through it."""

from __future__ import annotations

import array
import os
import socket
from collections.abc import Callable
from typing import Any, Final

from barnabas.network.frame_references import MOST_FILES, FrameReferences
from barnabas.network.transport import PlaintextTransportLayer
from barnabas.network.unread_message import FileReading

_FILES_BYTES: Final = MOST_FILES * array.array("i").itemsize
_CONTROL_BYTES: Final = socket.CMSG_SPACE(_FILES_BYTES) if hasattr(socket, "CMSG_SPACE") else 0
_CLOSE_ON_EXEC: Final = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class LocalTransportLayer(PlaintextTransportLayer):
    """A Unix socket, to and from a process of this machine."""

    __slots__ = ("_most_files",)

    def refer(self, reading: FileReading | None = None, most_files: int = MOST_FILES) -> None:
        """From here on large messages may come, and go, as references: see `barnabas.network.frame_references`.

        At most so many descriptors that arrive are kept until their reference is followed; more end the connection.
        """
        if self.references is not None:
            return
        if self._io is not None:
            self.references = FrameReferences(self._io.send_with_files, reading)
            self._io.files = self.references.files
            self._io.most_files = most_files
        else:
            self.references = FrameReferences(self._send_with_files, reading)
            self._most_files = most_files
            self.recv: Callable[[int], bytes | bytearray] = self._recv_with_files
            self.recv_into: Callable[[Any], int] = self._recv_into_with_files

    def _send_with_files(self, data: bytes, files: list[int]) -> int:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
        return self._socket.sendmsg([data], rights, socket.MSG_DONTWAIT)

    def _recv_with_files(self, size: int) -> bytes:
        data, ancillary, _, _ = self._socket.recvmsg(size, _CONTROL_BYTES, _CLOSE_ON_EXEC)
        self._keep_files(ancillary)
        return data

    def _recv_into_with_files(self, buffer: Any) -> int:
        count, ancillary, _, _ = self._socket.recvmsg_into([buffer], _CONTROL_BYTES, _CLOSE_ON_EXEC)
        self._keep_files(ancillary)
        return count

    def _keep_files(self, ancillary: list[tuple[int, int, bytes]]) -> None:
        assert self.references is not None
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                files = array.array("i")
                files.frombytes(data[: len(data) - len(data) % files.itemsize])
                kept, most = self.references.files, self._most_files
                if len(kept) + len(files) > most:
                    for fd in files:
                        os.close(fd)
                    raise OSError(f"{len(kept) + len(files)} files have come, and at most {most} are expected")
                kept.extend(files)

    def close(self) -> None:
        if self.references is not None:
            self.references.close()
            self.references = None
        super().close()


__all__ = ["LocalTransportLayer"]
