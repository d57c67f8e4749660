"""One hostile client, and what a good client beside it notices: ours beside Apache Kafka in one run.

    python -m benchmarks hostile                      all attacks, both brokers
    python -m benchmarks.hostile --attacks metadata   those whose name contains a word, more options below

The good client sends one produce with acks=all every 10 ms and measures each from the moment it was due: a broker that
stalls for a second costs a hundred of its requests, not one. The hostile client sends one of `ATTACKS` over and over,
each time after the response to the one before. Both are processes of their own. Reported for each attack are the p50,
p99 and maximum of the good client, the processor time of the broker per attack, and by how much its memory grew at
the most.

Targets: the p99 stays below ten times the quiet p99 and below 100 ms, and memory grows by less than 128 MB.
"""

from __future__ import annotations

import argparse
import json
import resource
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.broker_process import ServerProcess, source_environment
from benchmarks.hostile_requests import ATTACKS, TARGET, TARGET_PARTITIONS, Attack
from benchmarks.measure import Row
from benchmarks.peers.systems import KAFKA, OURS, barnabas, kafka
from benchmarks.wire_client import WireClient

INTERVAL_S = 0.01
GOOD = "good"
TOPICS = 1_000
"""Topics beside those two, so that "all topics" are some."""
MOST_MS = 100.0
MOST_TIMES = 10.0
MOST_GROWTH = 128_000_000


class Latency(NamedTuple):
    """What the good client saw, in milliseconds."""

    p50: float
    p99: float
    most: float
    requests: int


class Outcome(NamedTuple):
    """One attack on one broker."""

    latency: Latency
    attacks: int
    cpu_s: float
    growth: int
    errors: str


# -- the two clients, each in a process of its own


def good_client(servers: str, seconds: float) -> None:
    """Prints a line when it has begun, and its latencies when it ends."""
    late: list[float] = []
    with WireClient(servers) as client:
        client.produce(GOOD, 0, b"x" * 100)
        print("ready", flush=True)
        start = time.perf_counter()
        due = start
        while due < start + seconds:
            pause = due - time.perf_counter()
            if pause > 0:
                time.sleep(pause)
            error, _ = client.produce(GOOD, 0, b"x" * 100)
            if error:
                raise RuntimeError(f"a good request failed: {error.name}")
            late.append((time.perf_counter() - due) * 1000)
            due += INTERVAL_S
    late.sort()
    print(
        json.dumps(
            Latency(late[len(late) // 2], late[int(len(late) * 0.99)], late[-1], len(late)),
        ),
        flush=True,
    )


def hostile_client(servers: str, name: str, seconds: float) -> None:
    """Attacks until it is stopped or the time is up; prints how often."""
    attack = ATTACKS[name]()
    connections = [_connect(servers) for _ in range(0 if attack.reads else attack.connections)]
    print("ready", flush=True)
    sys.stdin.readline()
    end = time.perf_counter() + seconds
    done, errors = _unread(connections, attack, end) if connections else _sent(servers, attack, end)
    print(json.dumps([done, errors]), flush=True)


def _connect(servers: str) -> socket.socket:
    host, _, port = servers.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _sent(servers: str, attack: Attack, end: float) -> tuple[int, str]:
    done = 0
    closed = 0
    connection: socket.socket | None = None
    while time.perf_counter() < end:
        try:
            if connection is None:
                connection = _connect(servers)
            connection.settimeout(max(end - time.perf_counter(), 0.1))
            connection.sendall(attack.frame)
            left = int.from_bytes(_receive(connection, 4)) if attack.reads else 0
            while left:
                left -= len(_receive(connection, min(left, 1 << 20)))
            done += 1
        except TimeoutError:
            break
        except OSError:
            closed += 1
            done += 1
            if connection is not None:
                connection.close()
            connection = None
    return done, f"{closed} closed" if closed else ""


def send_once(servers: str, attack: Attack, on_sent: Callable[[], object]) -> int:
    """Sends one attack and reads its response; the size of that. `ConnectionError` if there is none."""
    with _connect(servers) as connection:
        connection.sendall(attack.frame)
        on_sent()
        size = left = int.from_bytes(_receive(connection, 4))
        while left:
            left -= len(_receive(connection, min(left, 1 << 20)))
        return size


def _receive(connection: socket.socket, size: int) -> bytes:
    data = connection.recv(size)
    if not data:
        raise ConnectionError("closed")
    return data


def _unread(connections: Sequence[socket.socket], attack: Attack, end: float) -> tuple[int, str]:
    """Sends on all connections, reads on none."""
    for connection in connections:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.setblocking(False)
    left = {connection.fileno(): (connection, memoryview(attack.frame)) for connection in connections}
    done = closed = 0
    while time.perf_counter() < end:
        _, writable, _ = select.select((), list(left), (), 0.1)
        for number in writable:
            connection, rest = left[number]
            try:
                rest = rest[connection.send(rest) :]
            except BlockingIOError:
                continue
            except OSError:
                closed += 1
                del left[number]
                continue
            if rest:
                left[number] = (connection, rest)
            else:
                done += 1
                del left[number]
    return done, f"{closed} closed" if closed else ""


# -- the driver


class _Client:
    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.hostile", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=source_environment(),
        )
        assert self.process.stdout is not None
        if self.process.stdout.readline().strip() != "ready":
            raise RuntimeError(f"the client {arguments} did not get ready")

    def begin(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def result(self, timeout_s: float) -> Any:
        output, _ = self.process.communicate(timeout=timeout_s)
        if self.process.returncode != 0:
            raise RuntimeError(f"a client ended with {self.process.returncode}")
        return json.loads(output)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def quiet(server: ServerProcess, seconds: float) -> Latency:
    """The good client alone."""
    return Latency(*_Client("--good", server.bootstrap_servers, "--seconds", str(seconds)).result(seconds * 4 + 60))


def under_attack(server: ServerProcess, name: str, seconds: float) -> Outcome:
    address = server.bootstrap_servers
    hostile = _Client("--hostile", address, "--attacks", name, "--seconds", str(seconds))
    try:
        resident = server.resident_bytes
        Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")  # the peak begins anew
        cpu = server.cpu_seconds
        good = _Client("--good", address, "--seconds", str(seconds))
        hostile.begin()
        latency = Latency(*good.result(seconds * 4 + 120))
        done, errors = hostile.result(seconds * 4 + 120)
    finally:
        hostile.kill()
    _settle(server)
    growth = server.most_resident_bytes - resident
    return Outcome(latency, done, (server.cpu_seconds - cpu) / max(done, 1), growth, errors)


def _settle(server: ServerProcess) -> None:
    """Waits until the broker has nothing more to do."""
    before = -1.0
    for _ in range(240):
        now = server.cpu_seconds
        if now - before < 0.05:
            return
        before = now
        time.sleep(0.5)


def prepare(server: ServerProcess, topics: int = TOPICS) -> None:
    with WireClient(server.bootstrap_servers) as client:
        client.create_topic(GOOD)
        client.create_topic(TARGET, TARGET_PARTITIONS)
        for start in range(0, topics, 100):
            client.create_topics([(f"other-{number}", 1) for number in range(start, start + 100)])


def measure(names: Sequence[str], seconds: float, peers: bool, topics: int = TOPICS) -> list[Row]:
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder, ExitStack() as stack:
        directory = Path(folder)
        servers: dict[str, ServerProcess] = {OURS: barnabas(directory, directory / "pycache")}
        if peers:
            servers[KAFKA] = kafka(directory)
        for name, server in servers.items():
            stack.enter_context(server)
            prepare(server, topics)
            quiet(server, 2)  # warm
            if name == KAFKA:
                quiet(server, 5)
        print(f"{'':36}{'':14}{'p50 ms':>8}{'p99 ms':>9}{'max ms':>9}{'attacks':>9}{'CPU s':>8}{'MB':>7}")
        calm = {name: quiet(server, max(seconds, 5)) for name, server in servers.items()}
        for name, latency in calm.items():
            print(f"{'quiet':36}{name:14}{latency.p50:8.2f}{latency.p99:9.2f}{latency.most:9.1f}")
        for attack in names:
            for name, server in servers.items():
                try:
                    outcome = under_attack(server, attack, seconds)
                except Exception as error:
                    print(f"{attack:36}{name:14} failed: {error}", flush=True)
                    if name == OURS:
                        raise
                    with suppress(Exception):
                        server.kill()
                    server.start()
                    continue
                print(
                    f"{attack:36}{name:14}{outcome.latency.p50:8.2f}{outcome.latency.p99:9.2f}"
                    f"{outcome.latency.most:9.1f}{outcome.attacks:9d}{outcome.cpu_s:8.3f}{outcome.growth / 1e6:7.0f}"
                    f"  {outcome.errors}",
                    flush=True,
                )
                if name == OURS:
                    rows += _rows(attack, outcome, calm[OURS])
    return rows


def _rows(attack: str, outcome: Outcome, calm: Latency) -> list[Row]:
    """The ratio says how much room there is: the bound divided by what was measured."""
    bound = min(MOST_MS, MOST_TIMES * calm.p99)
    p99 = outcome.latency.p99
    return [
        Row(attack, "p99 of the good client", p99 * 1000, "us", bound / p99, "of the bound", 1),
        Row(attack, "growth", outcome.growth, "bytes", MOST_GROWTH / max(outcome.growth, 1), "of the bound", 1),
    ]


def run() -> list[Row]:
    return measure(list(ATTACKS), 5, peers=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hostile", description=__doc__)
    parser.add_argument("--good", metavar="SERVERS", help="be the good client")
    parser.add_argument("--hostile", metavar="SERVERS", help="be the hostile client")
    parser.add_argument(
        "--attacks", default="", help="only those whose name contains one of these words, separated by |"
    )
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--topics", type=int, default=TOPICS)
    parser.add_argument("--alone", action="store_true", help="without Apache Kafka")
    arguments = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    if arguments.good:
        good_client(arguments.good, arguments.seconds)
    elif arguments.hostile:
        hostile_client(arguments.hostile, arguments.attacks, arguments.seconds)
    else:
        chosen = [name for name in ATTACKS if any(word in name for word in arguments.attacks.split("|"))]
        rows = measure(chosen, arguments.seconds, not arguments.alone, arguments.topics)
        missed = [row for row in rows if row.reached is False]
        print(f"\n{len(missed)} of {len(rows)} targets not reached")
        for row in missed:
            print(f"  {row.case}: {row.contender} {row.rate:,.0f} {row.unit} ({row.ratio:.2f} of the bound)")


if __name__ == "__main__":
    main()
