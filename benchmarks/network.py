"""The whole request path beside a bare loop.

A load generator in a process of its own keeps five requests under way on each of eight connections. The server checks
the CRC of each request, writes it to a file and answers with a few bytes. It is built in several ways:

* ``bare``: one thread, an epoll loop, nothing else. Nobody can be faster in this language.
* ``direct``, ``queue``: our socket server with all that belongs to it, with the two hand-off policies, and the numbers
  of network and handler threads. ``spread`` leaves the threads where the kernel puts them.

All take turns in each round; what counts is the ratio to ``bare`` in the same round.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import crc32c

from barnabas.common.clock import SYSTEM_CLOCK
from barnabas.common.placement import Placement, anywhere
from barnabas.metrics.registry import Metrics
from barnabas.metrics.yammer.registry import MetricsRegistry
from barnabas.network.server.config import SocketServerConfig
from barnabas.network.server.endpoint import Endpoint
from barnabas.network.server.socket_server import SocketServer
from barnabas.protocol.api_keys import ApiKey, Scope
from barnabas.protocol.framing import encode_request
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.server.api_version_manager import ApiVersionManager
from barnabas.server.data_plane import DataPlane, HandOff
from barnabas.server.dispatch import ApiDispatcher, RequestRunner, handlers_of
from barnabas.server.handler_pool import KafkaRequestHandlerPool
from barnabas.server.request import Request
from barnabas.server.request_channel import RequestChannel
from barnabas.server.request_handler_helper import RequestHandlerHelper
from barnabas.server.request_local import RequestLocal
from barnabas.server.request_metrics import RequestTimes
from benchmarks.measure import Row

CONNECTIONS, PIPELINED = 8, 5
ANSWER = struct.Struct(">iiq")
FILE_LIMIT = 64 << 20


class Work:
    """What the handler does with a request, in every server alike."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self._written = 0

    def __call__(self, payload: Any, correlation_id: int) -> bytes:
        checksum = crc32c.crc32c(payload)
        os.write(self._fd, payload)
        self._written += len(payload)
        if self._written > FILE_LIMIT:
            os.lseek(self._fd, 0, os.SEEK_SET)
            self._written = 0
        return ANSWER.pack(12, correlation_id, checksum)

    def close(self) -> None:
        os.close(self._fd)


# -- servers


class BareServer:
    """One thread, epoll, recv, handle, send."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._running = True
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        poll = select.epoll()
        self._listening.setblocking(False)
        poll.register(self._listening.fileno(), select.EPOLLIN)
        sockets: dict[int, socket.socket] = {}
        pending: dict[int, bytes] = {}
        unpack = struct.Struct(">ihhi").unpack_from
        work = self._work
        while self._running:
            for fd, _ in poll.poll(0.1):
                if fd == self._listening.fileno():
                    sock, _ = self._listening.accept()
                    sock.setblocking(False)
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    sockets[sock.fileno()] = sock
                    pending[sock.fileno()] = b""
                    poll.register(sock.fileno(), select.EPOLLIN)
                    continue
                sock = sockets[fd]
                try:
                    data = sock.recv(1 << 17)
                except ConnectionError:
                    data = b""
                if not data:
                    poll.unregister(fd)
                    sockets.pop(fd).close()
                    continue
                if pending[fd]:
                    data = pending[fd] + data
                view, start, answers = memoryview(data), 0, []
                while len(data) - start >= 12:
                    size, _, _, correlation_id = unpack(view, start)
                    stop = start + 4 + size
                    if stop > len(data):
                        break
                    answers.append(work(view[start + 4 : stop], correlation_id))
                    start = stop
                pending[fd] = data[start:]
                with suppress(ConnectionError):  # the generator has ended
                    for answer in answers:  # one send for each request, as a server that answers one by one has to
                        sock.send(answer)
        for sock in sockets.values():
            sock.close()
        poll.close()
        self._listening.close()

    def close(self) -> None:
        self._running = False
        self._thread.join()


class WorkHandler:
    """The only handler of the benchmark."""

    def __init__(self, work: Work, channel: RequestChannel) -> None:
        self._work = work
        self._channel = channel

    def produce(self, request: Request, _local: RequestLocal) -> None:
        self._channel.send_parts(request, [self._work(request.buffer, request.correlation_id)])


class FullServer:
    """Our socket server, request channel and handler pool."""

    def __init__(
        self, work: Work, hand_off: HandOff, network_threads: int, io_threads: int, placement: Placement
    ) -> None:
        times = RequestTimes(MetricsRegistry(SYSTEM_CLOCK), SYSTEM_CLOCK)
        self._channel = RequestChannel(500, SYSTEM_CLOCK, times, short_apis={ApiKey.PRODUCE})
        apis = ApiDispatcher(
            handlers_of(WorkHandler(work, self._channel)),
            RequestHandlerHelper(self._channel, SYSTEM_CLOCK),
            inline_apis=[ApiKey.PRODUCE],
            light_bytes={ApiKey.PRODUCE: 4 << 20},
        )
        runner = RequestRunner(apis, self._channel, SYSTEM_CLOCK, placement=placement)
        plane = DataPlane(self._channel, runner, ApiVersionManager(Scope.BROKER), SYSTEM_CLOCK, hand_off)
        config = SocketServerConfig(num_network_threads=network_threads)
        endpoint = Endpoint("PLAINTEXT", port=0)
        self._server = SocketServer(0, [endpoint], config, plane, Metrics(clock=SYSTEM_CLOCK))
        self._pool = KafkaRequestHandlerPool(runner, io_threads, SYSTEM_CLOCK)
        self._server.enable_request_processing().result()
        self.port = self._server.bound_port("PLAINTEXT")

    def close(self) -> None:
        self._server.stop_processing_requests()
        self._pool.shutdown()
        self._channel.close()


@contextmanager
def serving(kind: str, directory: Path) -> Iterator[int]:
    work = Work(directory / "log")
    server: BareServer | FullServer
    if kind == "bare":
        server = BareServer(work)
    else:
        policy, network, io, *placed = kind.split("-")
        server = FullServer(
            work, HandOff(policy), int(network), int(io), anywhere if placed else HandOff(policy).default_placement()
        )
    try:
        yield server.port
    finally:
        server.close()
        work.close()


# -- the load generator


def request_frame(size: int) -> bytes:
    """A Produce request of about that size."""
    body = ProduceRequest(
        acks=1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(name="bench", partition_data=[PartitionProduceData(index=0, records=bytes(size - 60))])
        ],
    )
    return encode_request(body, 9, 0, "bench")


def generate(port: int, size: int, seconds: float) -> dict[str, float]:
    """Keeps five requests under way on each connection; returns the rate and the latency."""
    frame = request_frame(size)
    frames = [frame * count for count in range(PIPELINED + 1)]
    poll = select.epoll()
    sockets: dict[int, socket.socket] = {}
    sent_at: dict[int, deque[float]] = {}
    partial: dict[int, int] = {}
    for _ in range(CONNECTIONS):
        sock = socket.create_connection(("127.0.0.1", port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sockets[sock.fileno()] = sock
        sent_at[sock.fileno()] = deque()
        partial[sock.fileno()] = 0
        poll.register(sock.fileno(), select.EPOLLIN)
    latencies: list[float] = []
    clock = time.perf_counter
    started = clock()
    warm = started + 0.3
    end = warm + seconds
    for fd, sock in sockets.items():
        sent_at[fd].extend([clock()] * PIPELINED)
        sock.sendall(frames[PIPELINED])
    counted = 0
    while (now := clock()) < end:
        for fd, _ in poll.poll(1):
            sock = sockets[fd]
            data = sock.recv(4096)
            if not data:
                raise ConnectionError("the server closed the connection")
            got, partial[fd] = divmod(partial[fd] + len(data), ANSWER.size)
            if not got:
                continue
            now = clock()
            times = sent_at[fd]
            latencies.extend(now - times.popleft() for _ in range(got))
            if now >= warm:
                counted += got
            else:
                latencies.clear()
            times.extend([now] * got)
            sock.sendall(frames[got])
    elapsed = clock() - warm
    for sock in sockets.values():
        sock.close()
    latencies.sort()
    return {
        "rate": counted / elapsed,
        "p50_us": latencies[len(latencies) // 2] * 1e6,
        "p99_us": latencies[int(len(latencies) * 0.99)] * 1e6,
    }


def load(port: int, size: int, seconds: float) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.network", "--generate", str(port), str(size), str(seconds)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=seconds + 30)
    result: dict[str, float] = json.loads(done.stdout)
    return result


TARGETS = {"direct-1-8": 0.7, "queue-3-8": 0.35}


def run(rounds: int = 5, seconds: float = 1.5, kinds: tuple[str, ...] = ()) -> list[Row]:
    chosen = kinds or ("bare", "direct-1-8", "queue-3-8", "queue-3-8-spread", "queue-1-2")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        for size in (16_384, 1_024):
            seen: dict[str, list[dict[str, float]]] = {kind: [] for kind in chosen}
            for _ in range(rounds):
                for kind in chosen:
                    with serving(kind, Path(name)) as port:
                        seen[kind].append(load(port, size, seconds))
            for kind in chosen:
                rate = statistics.median(one["rate"] for one in seen[kind])
                ratio = statistics.median(
                    one["rate"] / bare["rate"] for one, bare in zip(seen[kind], seen["bare"], strict=True)
                )
                p50 = statistics.median(one["p50_us"] for one in seen[kind])
                p99 = statistics.median(one["p99_us"] for one in seen[kind])
                rows.append(
                    Row(
                        f"request path, {size // 1024} KiB requests, {CONNECTIONS} connections x {PIPELINED} pipelined",
                        f"{kind} (p50 {p50:,.0f} us, p99 {p99:,.0f} us)",
                        rate,
                        "requests/s",
                        None if kind == "bare" else ratio,
                        "" if kind == "bare" else "bare",
                        TARGETS.get(kind),
                    )
                )
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--generate", nargs=3)
    arguments = parser.parse_args()
    if arguments.generate:
        port, size, seconds = arguments.generate
        print(json.dumps(generate(int(port), int(size), float(seconds))))
    else:
        from benchmarks.measure import print_rows

        print_rows(run())
