"""TLS and SCRAM, ours beside Apache Kafka in one run, with the same certificates and the same users.

    python -m benchmarks tls                       everything, in about five minutes
    python -m benchmarks.tls --only consume        cases whose key contains a word; more options below

**Records**: 1 KiB records produced and consumed over TLS 1.3 by Kafka's own performance tools and by librdkafka, and
without TLS for comparison. **Connections**: how many per second connect, complete the TLS handshake, authenticate with
SCRAM-SHA-256, get one response and close, and what one of them costs the broker. **A storm**: the p99 of one open
connection while 1,000 others connect and authenticate at once, again and again. Two figures are beside it: the p99 when
everything is quiet, and the p99 while the storm hits another broker of the same kind. The clients of a storm and its
broker keep all processors busy here, so the second one is what a busy machine alone does to the connection.

Rounds take turns, and the medians count; the processor time of a broker is what a busy machine changes least.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.broker import KafkaProcess, compiled
from benchmarks.broker_process import BrokerProcess, ServerProcess
from benchmarks.measure import Row
from benchmarks.peers.budget import Budget
from benchmarks.peers.case import JAVA, RDKAFKA, Case, Metric, new_topic, remove_topic
from benchmarks.peers.listeners import MECHANISM, SASL_SSL, SSL, WITHOUT_TLS, Certificates, ClientListener
from benchmarks.peers.rounds import Measured, measure, revive, warm_up
from benchmarks.peers.systems import KAFKA, OURS, AnyBroker, Secured, both
from benchmarks.peers.tables import figures
from benchmarks.peers.throughput_cases import Consume, Produce
from benchmarks.tls_clients import ask

USER = ("alice", "alice-secret")
ITERATIONS = 4096
ROUNDS = 3
PLAINTEXT_ROUNDS = 2
PROCESSES = 2
IN_PROGRESS = 8
"""Connections in progress in each of the client's processes."""
STORM = 1_000
MOST_TIMES = 3.0
TIMES = "p99 in the storm to quiet"
TIMES_ELSEWHERE = "p99 in the storm to a storm elsewhere"
BUDGET_S = 4 * 60
"""For the rounds. When most of it is gone, two rounds of a case must do."""


@dataclass(frozen=True, slots=True)
class Connect:
    """Connections as fast as the broker takes them."""

    listener: str
    seconds: float
    target: float | None = None

    @property
    def key(self) -> str:
        return f"connect-{self.listener}"

    @property
    def title(self) -> str:
        how = f"TLS and {MECHANISM}" if self.listener == SASL_SSL else "plaintext"
        return f"connect, one request, close: {how}"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (
            Metric("rate", "connections/s", target=self.target),
            Metric("broker CPU", "us/connection", more_is_better=False, target=self.target),
            Metric("client CPU", "us/connection", more_is_better=False),
        )

    def prepare(self, server: ServerProcess) -> None:
        pass

    def measure(self, server: ServerProcess) -> dict[str, float]:
        job = {
            "job": "connect",
            "address": server.address(self.listener),
            "user": USER if self.listener == SASL_SSL else None,
            "connections": IN_PROGRESS,
            "seconds": self.seconds,
        }
        before = server.cpu_seconds
        with ThreadPoolExecutor(PROCESSES) as pool:
            found = list(pool.map(ask, [job] * PROCESSES))
        cpu = server.cpu_seconds - before
        count = sum(one["connections"] for one in found)
        return {
            "rate": sum(one["rate"] for one in found),
            "broker CPU": cpu / count * 1e6,
            "client CPU": sum(one["cpu_s"] for one in found) / count * 1e6,
        }

    def clean_up(self, server: ServerProcess) -> None:
        pass


@dataclass(slots=True)
class Storm:
    """An open connection: in quiet, while many others connect to another broker at once, and to the same one."""

    seconds: float
    start_others: Callable[[], AbstractContextManager[Mapping[str, AnyBroker]]]
    """Starts another broker of each kind."""
    _topics: dict[int, str] = field(default_factory=dict)
    _running: ExitStack = field(default_factory=ExitStack)
    _others: Mapping[str, AnyBroker] = field(default_factory=dict)

    key = "storm"
    title = f"{STORM:,} clients connect at once with TLS and {MECHANISM}"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (
            Metric("p99 when quiet", "ms", more_is_better=False),
            Metric("p99 in the storm", "ms", more_is_better=False),
            Metric("p99 with the storm elsewhere", "ms", more_is_better=False),
            Metric(TIMES, "times", more_is_better=False),
            Metric(TIMES_ELSEWHERE, "times", more_is_better=False),
            Metric("connections in the storm", "/s"),
        )

    def prepare(self, server: ServerProcess) -> None:
        if not self._others:
            self._others = self._running.enter_context(self.start_others())
            for other in self._others.values():
                add_user(other)
        self._topics[server.port] = new_topic(server, 1)

    def measure(self, server: ServerProcess) -> dict[str, float]:
        job = {"address": server.address(SASL_SSL), "user": USER, "topic": self._topics[server.port]}
        waiting = {**job, "job": "wait", "seconds": self.seconds}
        other = self._others[OURS if isinstance(server, BrokerProcess) else KAFKA]
        quiet = ask(waiting)
        elsewhere, _ = self._wait_in_storm(waiting, other)
        busy, rate = self._wait_in_storm(waiting, server)
        return {
            "p99 when quiet": quiet["p99"],
            "p99 in the storm": busy["p99"],
            "p99 with the storm elsewhere": elsewhere["p99"],
            TIMES: busy["p99"] / quiet["p99"],
            TIMES_ELSEWHERE: busy["p99"] / elsewhere["p99"],
            "connections in the storm": rate,
        }

    def _wait_in_storm(self, waiting: dict[str, Any], target: ServerProcess) -> tuple[dict[str, float], float]:
        """Returns the latencies of the open connection, and how many others per second connected to the target."""
        storm = {
            "job": "storm",
            "address": target.address(SASL_SSL),
            "user": USER,
            "seconds": self.seconds + 1,
            "connections": STORM // PROCESSES,
        }
        with ThreadPoolExecutor(PROCESSES + 1) as pool:
            storms = [pool.submit(ask, storm) for _ in range(PROCESSES)]
            found = pool.submit(ask, waiting).result()
            return found, sum(one.result()["connections"] / one.result()["elapsed_s"] for one in storms)

    def clean_up(self, server: ServerProcess) -> None:
        self._others = {}
        self._running.close()
        if (topic := self._topics.pop(server.port, None)) is not None:
            remove_topic(server, topic)


def throughput(listener: ClientListener, target: float | None) -> Iterable[Case]:
    yield Produce(JAVA, 1024, "all", 12, 200, target=target, cpu_target=target, listener=listener)
    yield Produce(RDKAFKA, 1024, "all", 12, 500, target=target, cpu_target=target, listener=listener)
    yield Consume(JAVA, 1024, 12, 700, target=target, cpu_target=target, listener=listener)
    yield Consume(RDKAFKA, 1024, 12, 500, reads=2, target=target, cpu_target=target, listener=listener)


def cases(
    tls: ClientListener, start_others: Callable[[], AbstractContextManager[Mapping[str, AnyBroker]]]
) -> list[tuple[Case, int]]:
    """Each with its number of rounds."""
    return [
        *((case, ROUNDS) for case in throughput(tls, 1.0)),
        (Connect(SASL_SSL, 3, target=1.0), ROUNDS),
        (Storm(3, start_others), ROUNDS),
        *((case, PLAINTEXT_ROUNDS) for case in throughput(WITHOUT_TLS, None)),
        (Connect("PLAINTEXT", 2), PLAINTEXT_ROUNDS),
    ]


def warm_up_cases(tls: ClientListener) -> list[Case]:
    """Some of everything, for a broker that has just been started."""
    return [
        Produce(RDKAFKA, 1024, "all", 12, 150, listener=tls),
        Consume(RDKAFKA, 1024, 12, 300, listener=tls),
        Connect(SASL_SSL, 4),
    ]


def add_user(server: ServerProcess) -> None:
    """Over the listener that asks nobody who they are."""
    from barnabas import KafkaAdminClient
    from barnabas.clients.admin import ScramCredentialUpsertion, ScramMechanism

    name, password = USER
    with KafkaAdminClient(bootstrap_servers=server.bootstrap_servers) as admin:
        admin.alter_user_scram_credentials(
            [ScramCredentialUpsertion(name, ScramMechanism.SCRAM_SHA_256, password.encode(), ITERATIONS)]
        )


def compare(only: str = "", rounds: int | None = None) -> list[Measured]:
    """Runs the cases and prints a table. A case that fails does not keep the others from being measured."""
    found: list[Measured] = []
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="tls-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        certificates = Certificates(directory)
        secured = Secured((SSL, SASL_SSL), certificates.broker_settings)
        pycache = compiled(directory / "pycache")
        aside = directory / "others"
        aside.mkdir()
        with both(directory, pycache, secured) as servers:
            for server in servers.values():
                add_user(server)
            warm_up(warm_up_cases(certificates.tls), servers, tell)
            budget = Budget(BUDGET_S)
            for case, usual in cases(certificates.tls, lambda: both(aside, pycache, secured)):
                if only not in case.key:
                    continue
                outcome = measure(case, servers, rounds or usual, budget)
                for one in outcome.measured:
                    tell(str(one))
                found += outcome.measured
                if outcome.failure is not None:
                    failures.append(f"{case.title}: {outcome.failure}")
                    tell(f"FAILED: {failures[-1]}")
                    revive(servers, tell)
    tell(f"\n{figures(found)}")
    if failures:
        raise RuntimeError(f"cases failed: {'; '.join(failures)}")
    return found


def tell(text: str) -> None:
    print(text, flush=True)


def rows(measured: Sequence[Measured]) -> list[Row]:
    """Rows with a target. If less is better the ratio is Kafka's to ours, so that it must always be at least 1."""
    result: list[Row] = []
    for one in measured:
        if one.metric.target is not None:
            name = f"{one.metric.name}, {one.metric.unit}"
            result.append(Row(one.title, name, one.median(OURS), one.metric.unit, one.merit, KAFKA, 1.0))
        if one.metric.name == TIMES:
            times = one.median(OURS)
            result.append(Row(one.title, one.metric.name, times, "times", MOST_TIMES / times, "of the bound", 1.0))
    return result


def run() -> list[Row]:
    return rows(compare())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tls", description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="only cases with this in their key")
    parser.add_argument("--rounds", type=int, help=f"default: {ROUNDS}; {PLAINTEXT_ROUNDS} without TLS")
    arguments = parser.parse_args()
    if not KafkaProcess.is_available():
        parser.error("Apache Kafka is the peer, and is not here: it takes Java and `make jars`")
    missed = [row for row in rows(compare(arguments.only, arguments.rounds)) if row.reached is False]
    print(f"{len(missed)} targets not reached")


if __name__ == "__main__":
    main()
