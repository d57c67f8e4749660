"""Many connections: ten thousand that do nothing, and five thousand that come at once.

**Idle connections.** A server that holds ten thousand of them, and the same server without any, each in a process of
its own. Reported are the memory that each connection adds to the process, and the p99 of one active connection. For
that, one client asks first the one server and then the other, a thousand times each, and so on: whatever else goes on
on the machine happens to both.

**A connection storm.** Five thousand connects from one address against a creation-rate limit, first of the address,
then of the listener. Meanwhile another client asks on the inter-broker listener, on an open connection and on new ones
in turn. What it waits is compared with what the connections of the storm wait.

Where a target is an upper bound, the ratio says how much room there is: the bound divided by what was measured.

Clients are in processes of their own: they have other things to do than to take the interpreter lock from the server,
and their descriptors do not count against the server's.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import resource
import select
import socket
import statistics
import struct
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from barnabas.common.clock import SYSTEM_CLOCK
from barnabas.metrics.registry import Metrics
from barnabas.metrics.yammer.registry import MetricsRegistry
from barnabas.network.server.config import SocketServerConfig
from barnabas.network.server.connection_limits import ConnectionLimits
from barnabas.network.server.endpoint import Endpoint
from barnabas.network.server.socket_server import SocketServer
from barnabas.protocol.api_keys import ApiKey, Scope
from barnabas.protocol.framing import encode_request
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
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
from benchmarks.waiting import WaitedInVainError, until

IDLE = 10_000
STORM = 5_000
ALLOWED_BYTES = 6 * 1024
ALLOWED_P99_RATIO = 1.5
ALLOWED_STORM_P99_MS = 50.0
"""A twentieth of the longest delay that a rate limit asks for."""
ALONE, CROWDED = "alone", "crowded"
CLIENTS, BROKERS = "EXTERNAL", "REPLICATION"
STORM_ADDRESS = "127.0.0.2"
BACKLOG = 4096
SPARE_DESCRIPTORS = 200
TIMEOUT_S = 120
ANSWER = struct.Struct(">iiq")
REQUEST = encode_request(HeartbeatRequest(group_id="group", generation_id=1), 4, 7, "bench")


class DescriptorLimitError(RuntimeError):
    """This process may not have as many files open as it would need."""


def allow_descriptors(count: int) -> None:
    """Raises the limit of open files, as far as an ordinary user may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = count + SPARE_DESCRIPTORS
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise DescriptorLimitError(f"{needed:,} open files are needed, and the hard limit is {hard:,}")
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


# -- processes that are told and tell things line by line


class Child:
    """One of the commands below in a process of its own."""

    def __init__(self, *arguments: object, trace: bool = False) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.connections", *map(str, arguments)],
            cwd=Path(__file__).parents[1],
            env={**os.environ, "PYTHONTRACEMALLOC": "1"} if trace else None,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin, self._process.stdout
        self._heard = b""

    def tell(self, *words: object) -> None:
        self._to.write((" ".join(map(str, words)) + "\n").encode())

    def hear(self) -> Any:
        """The next thing that it tells."""
        readable = select.poll()
        readable.register(self._from, select.POLLIN)
        while b"\n" not in self._heard:
            if not readable.poll(TIMEOUT_S * 1000):
                raise TimeoutError(f"{self._process.args!r} has told nothing for {TIMEOUT_S} s")
            part = self._from.read(1 << 16)
            if not part:
                raise EOFError(f"{self._process.args!r} ended with status {self._process.wait(TIMEOUT_S)}")
            self._heard += part
        line, _, self._heard = self._heard.partition(b"\n")
        return json.loads(line)

    def ask(self, *words: object) -> Any:
        self.tell(*words)
        return self.hear()

    def kill(self) -> None:
        """Ends it without a chance to close anything; the system does."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        """It ends when its input does; nobody waits for that if something has gone wrong."""
        try:
            self._to.close()
            if kind is None:
                self._process.wait(TIMEOUT_S)
        finally:
            self.kill()
            self._from.close()


def say(thing: Any) -> None:
    print(json.dumps(thing), flush=True)


# -- the server


class HeartbeatHandler:
    """The only handler: it responds at once."""

    def __init__(self, channel: RequestChannel) -> None:
        self._channel = channel

    def heartbeat(self, request: Request, _local: RequestLocal) -> None:
        self._channel.send_parts(request, [ANSWER.pack(12, request.correlation_id, 0)])


class Server:
    """A socket server with a listener for clients and one for brokers."""

    def __init__(self, hand_off: HandOff, limits: ConnectionLimits) -> None:
        times = RequestTimes(MetricsRegistry(SYSTEM_CLOCK), SYSTEM_CLOCK)
        self._channel = RequestChannel(500, SYSTEM_CLOCK, times, short_apis={ApiKey.HEARTBEAT})
        helper = RequestHandlerHelper(self._channel, SYSTEM_CLOCK)
        apis = ApiDispatcher(handlers_of(HeartbeatHandler(self._channel)), helper, inline_apis=[ApiKey.HEARTBEAT])
        runner = RequestRunner(apis, self._channel, SYSTEM_CLOCK)
        plane = DataPlane(self._channel, runner, ApiVersionManager(Scope.BROKER), SYSTEM_CLOCK, hand_off)
        config = SocketServerConfig(
            num_network_threads=hand_off.default_network_threads, socket_listen_backlog_size=BACKLOG, limits=limits
        )
        endpoints = [Endpoint(name, port=0) for name in (CLIENTS, BROKERS)]
        self.sockets = SocketServer(0, endpoints, config, plane, Metrics(clock=SYSTEM_CLOCK))
        self._pool = KafkaRequestHandlerPool(runner, 2, SYSTEM_CLOCK)
        self.sockets.enable_request_processing().result()

    def state(self) -> dict[str, int]:
        acceptor = self.sockets.acceptors[CLIENTS]
        return {
            "connections": self.sockets.quotas.total,
            "accepted": acceptor.accepted,
            "refused": acceptor.refused,
            "parked": acceptor.throttled,
        }

    def await_empty(self) -> dict[str, int]:
        """Waits until all connections are gone, those of the clients and those that are parked."""

        def is_empty() -> bool:
            state = self.state()
            return not state["connections"] + state["parked"]

        with suppress(WaitedInVainError):
            until(is_empty, seconds=TIMEOUT_S)
        return self.state()

    def close(self) -> None:
        self.sockets.stop_processing_requests()
        self._pool.shutdown()
        self._channel.close()


def serve(hand_off: str, rate_limit: str, rate: int) -> None:
    """Tells its ports, and then answers questions about itself."""
    limits = ConnectionLimits(
        inter_broker_listener=BROKERS,
        # The rate is then taken over the second before: the storm meets the limit at once, not after ten seconds.
        quota_samples=2,
        listener_max_connection_creation_rate={CLIENTS: rate, BROKERS: 100_000} if rate_limit == "listener" else {},
    )
    allow_descriptors(max(IDLE, STORM))
    server = Server(HandOff(hand_off), limits)
    if rate_limit == "address":
        server.sockets.quotas.update_ip_connection_rate(STORM_ADDRESS, rate)
    questions: dict[str, Callable[[], Any]] = {
        "memory": resident_bytes,
        "cpu": time.process_time,
        "traced": lambda: tracemalloc.get_traced_memory()[0],
        "state": server.state,
        "await_empty": server.await_empty,
    }
    try:
        say({name: server.sockets.bound_port(name) for name in (CLIENTS, BROKERS)})
        for line in sys.stdin:
            say(questions[line.strip()]())
    finally:
        server.close()


def resident_bytes() -> int:
    """The memory of this process; where the system does not say, the most it has ever had."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


# -- clients


def connect(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def ask(sock: socket.socket) -> None:
    sock.sendall(REQUEST)
    receive(sock)


def receive(sock: socket.socket) -> None:
    """One answer, of whatever length."""
    data = b""
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        part = sock.recv(4096)
        if not part:
            raise ConnectionError("the server closed the connection")
        data += part


def hold(port: int, count: int) -> None:
    """Opens that many connections, each of which asks once and is silent from then on; tells when all are answered."""
    allow_descriptors(count)
    held: list[socket.socket] = []
    sources = iter([None, *(f"127.0.0.{number}" for number in range(2, 255))])
    source = next(sources)
    while len(held) < count:
        sock = socket.socket()
        sock.settimeout(TIMEOUT_S)
        try:
            if source is not None:
                sock.bind((source, 0))
            sock.connect(("127.0.0.1", port))
        except OSError as error:
            sock.close()
            if error.errno not in {errno.EADDRNOTAVAIL, errno.EADDRINUSE}:
                raise
            source = next(sources)  # no port is left at this address
            continue
        held.append(sock)
        sock.sendall(REQUEST)
        if len(held) % 500 == 0 or len(held) == count:
            for waiting in held[-((len(held) - 1) % 500 + 1) :]:
                receive(waiting)
    say(len(held))
    sys.stdin.read()
    for sock in held:
        sock.close()


def ping(*ports: int) -> None:
    """For each line ``which samples``: asks one server so often, and tells the microseconds of each answer."""
    sockets = [connect(port) for port in ports]
    for sock in sockets:
        ask(sock)
    say("ready")
    for line in sys.stdin:
        which, samples = map(int, line.split())
        say(ask_repeatedly(sockets[which], samples))


def ask_repeatedly(sock: socket.socket, samples: int) -> list[float]:
    clock = time.perf_counter_ns
    taken = []
    for _ in range(samples):
        started = clock()
        ask(sock)
        taken.append((clock() - started) / 1000)
    return taken


def probe(port: int) -> None:
    """Asks on an open connection and on a new one, in turn, and at each line tells the milliseconds since the last."""
    clock = time.perf_counter_ns
    taken: dict[str, list[float]] = {"open": [], "new": []}
    with connect(port) as sock:
        while True:
            started = clock()
            ask(sock)
            taken["open"].append((clock() - started) / 1e6)
            started = clock()
            with connect(port) as fresh:
                ask(fresh)
            taken["new"].append((clock() - started) / 1e6)
            if select.select([sys.stdin], [], [], 0.001)[0]:
                if not sys.stdin.readline():
                    return
                say(taken)
                taken = {"open": [], "new": []}


def storm(port: int, count: int, address: str) -> None:
    """Connects that often, all at once; each sends a request and waits for the answer or for the end.

    Waits for a line before it starts. Tells how many got which, and how long that took, in milliseconds.
    """
    allow_descriptors(count)
    say("ready")
    sys.stdin.readline()
    clock = time.perf_counter_ns
    poll = select.poll()
    waiting: dict[int, tuple[socket.socket, int]] = {}
    outcome: dict[str, list[float]] = {"answered": [], "closed": []}

    def settle(patience_ms: int) -> None:
        for fd, ready in poll.poll(patience_ms):
            sock, started = waiting[fd]
            if ready & (select.POLLIN | select.POLLHUP | select.POLLERR):
                data = b""
                with suppress(ConnectionError):  # what was closed with our request unread is reset
                    data = sock.recv(64)
                outcome["answered" if data else "closed"].append((clock() - started) / 1e6)
                poll.unregister(fd)
                del waiting[fd]
                sock.close()
            else:
                with suppress(ConnectionError):
                    sock.send(REQUEST)
                poll.modify(fd, select.POLLIN)

    for number in range(count):
        sock = socket.socket()
        sock.setblocking(False)
        with suppress(OSError):
            sock.bind((address, 0))
        waiting[sock.fileno()] = sock, clock()
        with suppress(BlockingIOError):
            sock.connect(("127.0.0.1", port))
        poll.register(sock.fileno(), select.POLLIN | select.POLLOUT)
        if number % 64 == 63:
            settle(0)
    deadline = time.monotonic() + TIMEOUT_S
    while waiting and time.monotonic() < deadline:
        settle(1000)
    say({**outcome, "unsettled": len(waiting)})


# -- what is measured


def percentile(values: Sequence[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)]


@contextmanager
def serving(hand_off: HandOff, rate_limit: str = "none", rate: int = 0, *, trace: bool = False) -> Iterator[Any]:
    with Child("serve", hand_off, rate_limit, rate, trace=trace) as server:
        yield server, server.hear()


def added_bytes(hand_off: HandOff, count: int, question: str) -> float:
    """What one idle connection adds to the memory of the server, by that measure."""
    with serving(hand_off, trace=question == "traced") as (server, ports):
        with Child("hold", ports[CLIENTS], 20) as warm_up:  # few: what these free will be used again
            warm_up.hear()
        server.ask("await_empty")
        before: int = server.ask(question)
        with Child("hold", ports[CLIENTS], count) as held:
            held.hear()
            connections = server.ask("state")["connections"]
            after: int = server.ask(question)
        if connections < count:
            raise RuntimeError(f"{connections} connections are there, not {count}")
        return (after - before) / count


def active_beside_idle(hand_off: HandOff, count: int, rounds: int, samples: int) -> dict[str, list[float]]:
    """Latencies of one connection, in microseconds: of a server without others, and of one with that many."""
    with ExitStack() as stack:
        ports = {name: stack.enter_context(serving(hand_off))[1][CLIENTS] for name in (ALONE, CROWDED)}
        stack.enter_context(Child("hold", ports[CROWDED], count)).hear()
        client = stack.enter_context(Child("ping", *ports.values()))
        client.hear()
        taken: dict[str, list[float]] = {ALONE: [], CROWDED: []}
        for which in range(2):
            client.ask(which, samples)  # warm-up
        for number in range(rounds):
            for name in (ALONE, CROWDED) if number % 2 else (CROWDED, ALONE):  # neither always goes first
                taken[name] += client.ask(list(ports).index(name), samples)
    return taken


def cpu_beside_idle(hand_off: HandOff, count: int, rounds: int, samples: int) -> dict[str, list[float]]:
    """CPU seconds of a server for so many requests of one connection, in each round: without others, and with many."""
    with ExitStack() as stack:
        servers = {name: stack.enter_context(serving(hand_off)) for name in (ALONE, CROWDED)}
        ports = {name: ports[CLIENTS] for name, (_, ports) in servers.items()}
        stack.enter_context(Child("hold", ports[CROWDED], count)).hear()
        client = stack.enter_context(Child("ping", *ports.values()))
        client.hear()
        taken: dict[str, list[float]] = {ALONE: [], CROWDED: []}
        for which in range(2):
            client.ask(which, samples)  # warm-up
        for _ in range(rounds):
            for which, (name, (server, _)) in enumerate(servers.items()):
                before = server.ask("cpu")
                client.ask(which, samples)
                taken[name].append(server.ask("cpu") - before)
    return taken


def idle_rows(hand_off: HandOff, count: int, rounds: int, samples: int = 1000) -> list[Row]:
    case = f"{count:,} idle connections on one listener, {hand_off}"
    rows = []
    for question, name in (("memory", "resident memory of the server"), ("traced", "of it Python objects")):
        added = added_bytes(hand_off, count, question)
        rows.append(Row(case, name, added, "bytes each", ALLOWED_BYTES / added, "room to 6 KiB", 1.0))
    taken = active_beside_idle(hand_off, count, rounds, samples)
    blocks = [slice(start, start + samples) for start in range(0, rounds * samples, samples)]
    ratio = statistics.median(
        percentile(taken[CROWDED][one], 0.99) / percentile(taken[ALONE][one], 0.99) for one in blocks
    )
    p99 = {name: statistics.median(percentile(values[one], 0.99) for one in blocks) for name, values in taken.items()}
    p50 = {name: percentile(values, 0.5) for name, values in taken.items()}
    rows.append(
        Row(
            case,
            f"p99 of an active connection beside them ({ratio:.2f}x of alone; p50 {p50[CROWDED]:,.0f} us)",
            p99[CROWDED],
            "us",
            ALLOWED_P99_RATIO / ratio,
            f"room to {ALLOWED_P99_RATIO}x of alone",
            1.0,
        )
    )
    rows.append(Row(case, f"p99 of an active connection alone (p50 {p50[ALONE]:,.0f} us)", p99[ALONE], "us"))
    return rows


def storm_rows(hand_off: HandOff, count: int, rate_limit: str, rate: int) -> list[Row]:
    case = f"{count:,} connects at once from one address, limit {rate}/s of the {rate_limit}, {hand_off}"
    with serving(hand_off, rate_limit, rate) as (server, ports):
        with (
            Child("probe", ports[BROKERS]) as prober,
            Child("storm", ports[CLIENTS], count, STORM_ADDRESS) as storming,
        ):
            storming.hear()
            prober.ask("warm-up")
            time.sleep(1)
            quiet = prober.ask("before")
            storming.tell("go")
            outcome = storming.hear()
            during = prober.ask("during")
        left = server.ask("await_empty")
    if left["connections"] or left["parked"] or outcome["unsettled"]:
        raise RuntimeError(f"after the storm {left} are left, {outcome['unsettled']} without an end")
    rows = [
        Row(
            case,
            f"inter-broker listener, p99 of {what} connection ({len(during[kind]):,} asked; "
            f"p50 {percentile(during[kind], 0.5):.2f} ms, p99 without a storm {percentile(quiet[kind], 0.99):.2f} ms)",
            percentile(during[kind], 0.99) * 1000,
            "us",
            ALLOWED_STORM_P99_MS / percentile(during[kind], 0.99),
            f"room to {ALLOWED_STORM_P99_MS:g} ms",
            1.0,
        )
        for kind, what in (("open", "an open"), ("new", "a new"))
    ]
    waited = outcome["answered"] + outcome["closed"]
    rows.append(
        Row(
            case,
            f"client listener, p99 ({len(outcome['answered']):,} answered, {len(outcome['closed']):,} turned away; "
            f"p50 {percentile(waited, 0.5):.0f} ms)",
            percentile(waited, 0.99) * 1000,
            "us",
        )
    )
    return rows


def run(rounds: int = 15, idle: int = IDLE, connects: int = STORM) -> list[Row]:
    rows: list[Row] = []
    try:
        allow_descriptors(max(idle, connects))
    except DescriptorLimitError as reason:
        return [Row("many connections", f"left out: {reason}", 0, "")]
    for hand_off in HandOff:
        rows += idle_rows(hand_off, idle, rounds)
    for hand_off in HandOff:
        rows += storm_rows(hand_off, connects, "address", 100)
        rows += storm_rows(hand_off, connects, "listener", 1000)
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("command", nargs="?", choices=["serve", "hold", "ping", "probe", "storm"])
    parser.add_argument("arguments", nargs="*")
    chosen = parser.parse_args()
    numbers = [int(argument) if argument.isdigit() else argument for argument in chosen.arguments]
    if chosen.command:
        commands: dict[str, Callable[..., None]] = {
            "serve": serve,
            "hold": hold,
            "ping": ping,
            "probe": probe,
            "storm": storm,
        }
        commands[chosen.command](*numbers)
    else:
        from benchmarks.measure import print_rows

        print_rows(run())
