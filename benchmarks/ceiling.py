"""What this machine can move at most: the same bytes between two processes, with nothing done to them.

Beside the clients of a broker these are no peers, they are the ceiling: no encoding, no checksum, no protocol, no
Python for each batch. A target above them cannot be reached by any client of any broker that keeps what it gets.

``written``: one process sends, the other receives and writes to a file, as a broker has to.
``read``: one process sends a file without looking at it (``sendfile``), the other receives.

Both by ``TCP`` on the loopback interface, as every client can, or by a ``UNIX`` socket, as ours do on one machine.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHUNK = 1 << 20
TIMEOUT_S = 60.0
TCP = "TCP"
UNIX = "Unix socket"
WAYS = (TCP, UNIX) if sys.platform == "linux" else (TCP,)
SEND_BUFFER = 4 << 20
"""Of a Unix socket; the system may allow less."""


def written(total: int, way: str = TCP) -> float:
    """Bytes/s from one process into a file of another."""
    chunks = -(-total // CHUNK)
    with _other("receive", chunks, way) as connection:
        data = bytes(CHUNK)
        started = time.perf_counter()
        for _ in range(chunks):
            connection.sendall(data)
        _answer(connection)
        return chunks * CHUNK / (time.perf_counter() - started)


def read(total: int, way: str = TCP) -> float:
    """Bytes/s out of a file of one process into the memory of another."""
    chunks = -(-total // CHUNK)
    with _other("send", chunks, way) as connection:
        buffer = bytearray(CHUNK)
        _answer(connection)  # the file is there
        connection.sendall(b"!")
        started, missing = time.perf_counter(), chunks * CHUNK
        while missing:
            got = connection.recv_into(buffer)
            if not got:
                raise ConnectionError(f"{missing} bytes are missing")
            missing -= got
        return chunks * CHUNK / (time.perf_counter() - started)


@contextmanager
def _other(job: str, chunks: int, way: str) -> Iterator[socket.socket]:
    """A connection to a process that does the other half."""
    with _server(way) as server:
        server.settimeout(TIMEOUT_S)
        name = server.getsockname()
        # As text: a Unix socket of Linux without a file has a name of bytes that begins with a zero.
        place = name.hex() if isinstance(name, bytes) else str(name[1])
        with subprocess.Popen([sys.executable, "-m", "benchmarks.ceiling", job, way, place, str(chunks)]) as process:
            try:
                connection, _ = server.accept()
                with connection:
                    _enlarge(connection, way)
                    connection.settimeout(TIMEOUT_S)
                    yield connection
                process.wait(TIMEOUT_S)
            finally:
                process.kill()


def _server(way: str) -> socket.socket:
    if way == TCP:
        return socket.create_server(("127.0.0.1", 0))
    server = socket.socket(socket.AF_UNIX)
    server.bind("")  # the system chooses a name
    server.listen()
    return server


def _connect(way: str, place: str) -> socket.socket:
    if way == TCP:
        return socket.create_connection(("127.0.0.1", int(place)), TIMEOUT_S)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(bytes.fromhex(place))
    _enlarge(connection, way)
    return connection


def _enlarge(connection: socket.socket, way: str) -> None:
    if way == UNIX:  # TCP's buffers grow by themselves
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)


def _answer(connection: socket.socket) -> None:
    if not connection.recv(1):
        raise ConnectionError("the other process has gone")


def _receive(connection: socket.socket, file: int, chunks: int) -> None:
    buffer = memoryview(bytearray(CHUNK))
    for _ in range(chunks):
        connection.recv_into(buffer, CHUNK, socket.MSG_WAITALL)
        os.write(file, buffer)
    connection.sendall(b"!")


def _send(connection: socket.socket, file: int, chunks: int) -> None:
    data = bytes(CHUNK)
    for _ in range(chunks):
        os.write(file, data)
    connection.sendall(b"!")
    _answer(connection)
    position, end = 0, chunks * CHUNK
    while position < end:
        position += os.sendfile(connection.fileno(), file, position, end - position)
    connection.recv(1)  # until the other end has all of it and closes


def main() -> None:
    job, way, place, chunks = sys.argv[1:]
    with (
        tempfile.TemporaryDirectory() as name,
        Path(name, "bytes").open("w+b", buffering=0) as file,
        _connect(way, place) as connection,
    ):
        connection.setblocking(True)
        (_receive if job == "receive" else _send)(connection, file.fileno(), int(chunks))


if __name__ == "__main__":
    main()
