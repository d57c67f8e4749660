"""Clients that connect, authenticate and leave, or that wait for responses meanwhile; each in a process of its own.

    python -m benchmarks.tls_clients JOB        the job and the result are JSON

A connection is a generator that yields ``READ`` or ``WRITE`` whenever the socket must become ready. So one process has
many of them in progress, and a blocking caller can use the same code. What a client may keep or leave out to cost the
machine less, it does: it does not verify the broker's certificate, and it derives the SCRAM keys of the password once,
which would otherwise take as long as all the rest.
"""

from __future__ import annotations

import base64
import functools
import hmac
import json
import os
import resource
import select
import socket
import ssl
import struct
import sys
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, Final

from barnabas.common.errors import Errors
from barnabas.protocol.framing import encode_request
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.security.sasl.scram import HASHES, client_key, new_nonce, salted_password, stored_key
from benchmarks.peers.client_process import run_client
from benchmarks.peers.listeners import MECHANISM
from benchmarks.wire_client import TIMEOUT_S, WireClient

READ: Final = select.EPOLLIN
WRITE: Final = select.EPOLLOUT
INTERVAL_S: Final = 0.01
"""How often the waiting client sends a request."""
AUTHENTICATE_VERSION: Final = 1
"""The last one that is not flexible."""
NICENESS: Final = 10
"""Clients that connect in masses are on other machines in reality: here they leave the processor to the broker and to
the client that waits."""
REAL_TIME_PRIORITY: Final = 1
_LENGTH: Final = struct.Struct(">i")
_HEADER: Final = 4
HANDSHAKE: Final = encode_request(SaslHandshakeRequest(mechanism=MECHANISM), 1, 1, "bench")
VERSIONS: Final = encode_request(ApiVersionsRequest(), 0, 2, "bench")

Steps = Generator[int, None, None]


def ask(job: dict[str, Any]) -> dict[str, Any]:
    """Runs a job in a process of its own."""
    return run_client("benchmarks.tls_clients", json.dumps(job))


class Connection:
    """One connection of a user, or without a user a plaintext one."""

    def __init__(self, job: dict[str, Any]) -> None:
        host, _, port = job["address"].rpartition(":")
        self._address = (host, int(port))
        self._user: list[str] | None = job.get("user")
        self.socket = socket.socket()
        self.socket.setblocking(False)

    def steps(self) -> Steps:
        """Connects, authenticates, and gets one response to ApiVersions."""
        with suppress(BlockingIOError):
            self.socket.connect(self._address)
        yield WRITE
        if error := self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(error, os.strerror(error))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._user is not None:
            yield from self._log_in(*self._user)
        yield from self._exchange(VERSIONS)

    def _log_in(self, name: str, password: str) -> Steps:
        self.socket = tls = _context().wrap_socket(self.socket, do_handshake_on_connect=False)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                yield READ
            except ssl.SSLWantWriteError:
                yield WRITE
        yield from self._exchange(HANDSHAKE)
        first = f"n={name},r={new_nonce()}"
        challenge = yield from self._token(f"n,,{first}")
        fields = dict(part.split("=", 1) for part in challenge.split(","))
        key, stored = _keys(password, fields["s"], int(fields["i"]))
        last = f"c=biws,r={fields['r']}"
        signature = _hmac(stored, f"{first},{challenge},{last}".encode())
        proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
        yield from self._token(f"{last},p={proof}")

    def _token(self, text: str) -> Generator[int, None, str]:
        request = SaslAuthenticateRequest(auth_bytes=text.encode())
        frame = yield from self._exchange(encode_request(request, AUTHENTICATE_VERSION, 3, "bench"))
        response, _ = SaslAuthenticateResponse.decode_from(frame, AUTHENTICATE_VERSION, _HEADER)
        if response.error_code:
            raise RuntimeError(f"{Errors.for_code(response.error_code).name}: {response.error_message}")
        return bytes(response.auth_bytes).decode()

    def _exchange(self, request: bytes) -> Generator[int, None, bytes]:
        """Sends a request, small enough for the socket's buffer, and returns the response."""
        self.socket.send(request)
        received = bytearray()
        needed = _LENGTH.size
        while len(received) < needed:
            try:
                part = self.socket.recv(1 << 16)
            except (BlockingIOError, ssl.SSLWantReadError):
                yield READ
                continue
            if not part:
                raise ConnectionError("the broker has closed the connection")
            received += part
            if len(received) >= _LENGTH.size:
                needed = _LENGTH.size + _LENGTH.unpack_from(received)[0]
        return bytes(received[_LENGTH.size :])


@functools.cache
def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@functools.cache
def _keys(password: str, salt: str, iterations: int) -> tuple[bytes, bytes]:
    algorithm = HASHES[MECHANISM]
    salted = salted_password(algorithm, password.encode(), base64.b64decode(salt), iterations)
    return client_key(algorithm, salted), stored_key(algorithm, salted)


def _hmac(key: bytes, text: bytes) -> bytes:
    return hmac.digest(key, text, HASHES[MECHANISM])


class Driver:
    """Continues connections whose socket is ready."""

    def __init__(self, job: dict[str, Any], finished: Callable[[Connection], None]) -> None:
        self._job = job
        self._finished = finished
        self._poll = select.epoll()
        self._steps: dict[int, tuple[Connection, Steps]] = {}

    def add(self) -> None:
        connection = Connection(self._job)
        steps = connection.steps()
        number = connection.socket.fileno()
        self._steps[number] = connection, steps
        self._poll.register(number, next(steps))

    def turn(self) -> None:
        """Waits for a connection that can go on."""
        for number, _ in self._poll.poll(TIMEOUT_S) or _nothing():
            connection, steps = self._steps[number]
            events = next(steps, None)
            if events is None:
                del self._steps[number]
                self._poll.unregister(number)
                self._finished(connection)
            else:
                self._poll.modify(number, events)

    @property
    def busy(self) -> bool:
        return bool(self._steps)


def _nothing() -> list[tuple[int, int]]:
    raise RuntimeError(f"no connection has made progress for {TIMEOUT_S:g} s")


def connect(job: dict[str, Any]) -> dict[str, Any]:
    """Keeps a number of connections in progress for some seconds; returns the rate at which they completed."""
    done = 0

    def finished(connection: Connection) -> None:
        nonlocal done
        connection.socket.close()
        done += 1
        if time.perf_counter() < end:
            driver.add()

    driver = Driver(job, finished)
    started = time.perf_counter()
    end = started + job["seconds"]
    for _ in range(job["connections"]):
        driver.add()
    while driver.busy:
        driver.turn()
    elapsed = time.perf_counter() - started
    use = resource.getrusage(resource.RUSAGE_SELF)
    return {"connections": done, "rate": done / elapsed, "cpu_s": use.ru_utime + use.ru_stime}


def storm(job: dict[str, Any]) -> dict[str, Any]:
    """Connects all at once, closes all when all are authenticated, and begins again until the time is up."""
    os.nice(NICENESS)
    kept: list[Connection] = []
    done = 0
    driver = Driver(job, kept.append)
    started = time.perf_counter()
    while time.perf_counter() < started + job["seconds"]:
        for _ in range(job["connections"]):
            driver.add()
        while driver.busy:
            driver.turn()
        for connection in kept:
            connection.socket.close()
        done += len(kept)
        kept.clear()
    return {"connections": done, "elapsed_s": time.perf_counter() - started}


def run_at_once() -> None:
    """Makes this process run as soon as it can, if the system permits: it is on another machine in reality.

    Otherwise its latency is that of the scheduler: up to a tick of 4 ms for the request, and again for the response,
    while the broker and the clients that connect occupy all processors.
    """
    if hasattr(os, "sched_setscheduler"):
        with suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(REAL_TIME_PRIORITY))


def wait(job: dict[str, Any]) -> dict[str, Any]:
    """Sends a produce with acks=all every 10 ms on one open connection; the latency counts from when it was due."""
    run_at_once()
    connection = Connection(job)
    for events in connection.steps():
        number = [connection.socket.fileno()]
        if not any(select.select(number if events == READ else (), number if events == WRITE else (), (), TIMEOUT_S)):
            raise TimeoutError(f"not connected after {TIMEOUT_S:g} s")
    connection.socket.settimeout(TIMEOUT_S)
    late: list[float] = []
    with WireClient(job["address"], connection.socket) as client:
        client.produce(job["topic"], 0, b"x" * 100)
        start = due = time.perf_counter()
        while due < start + job["seconds"]:
            if (pause := due - time.perf_counter()) > 0:
                time.sleep(pause)
            error, _ = client.produce(job["topic"], 0, b"x" * 100)
            if error:
                raise RuntimeError(f"a request failed: {error.name}")
            late.append((time.perf_counter() - due) * 1000)
            due += INTERVAL_S
    late.sort()
    return {"p50": late[len(late) // 2], "p99": late[int(len(late) * 0.99)], "max": late[-1]}


JOBS: Final[dict[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {"connect": connect, "storm": storm, "wait": wait}

if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    print(json.dumps(JOBS[asked["job"]](asked)))
