"""Rounds in turns: each case on one broker, then on the other, the order changing with every round.

Before the first case both brokers do some of everything that is measured later, so that Kafka's virtual machine has
compiled what it needs and no case is the first. Before each round the machine settles.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.peers.budget import Budget, Timing
from benchmarks.peers.case import Case, Metric
from benchmarks.peers.quiet import Others, settle
from benchmarks.peers.systems import KAFKA, OURS, AnyBroker

DELETION_BEGINS_S = 35.0
"""Both brokers delete nothing in their first half minute."""
MAX_REASON = 300
_DIRECTORIES = re.compile(r"(?<![\w.])/(?:[\w.@+-]+/)+")
BUSY_PART = 0.1
"""What others may have before a round is called into question."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A metric of a case with the values of all rounds; the ratio is that of the medians, ours to Kafka's."""

    case: str
    title: str
    metric: Metric
    values: Mapping[str, Sequence[float]]
    others: Sequence[float] = ()
    """What part of the machine others had, in each round."""

    def median(self, system: str) -> float:
        return statistics.median(self.values[system])

    @property
    def ratio(self) -> float | None:
        kafka = self.median(KAFKA)
        return self.median(OURS) / kafka if kafka else None

    @property
    def ratios(self) -> list[float]:
        """Of each round by itself: how far the ratio moves."""
        return [ours / kafka for ours, kafka in zip(self.values[OURS], self.values[KAFKA], strict=True) if kafka]

    @property
    def merit(self) -> float | None:
        """How good the ratio is beside its target, or beside Kafka itself if it has none: from 1 on it is reached."""
        if not self.ratio:
            return None
        target = self.metric.target or 1.0
        return self.ratio / target if self.metric.more_is_better else target / self.ratio

    @property
    def reached(self) -> bool | None:
        return None if self.ratio is None else self.metric.reached(self.ratio)

    def __str__(self) -> str:
        ours, kafka = self.median(OURS), self.median(KAFKA)
        text = f"{self.title}: {self.metric.name} {figure(ours)} / {figure(kafka)} {self.metric.unit}"
        if self.ratio is not None:
            text += f" = {self.ratio:.2f}x ({min(self.ratios):.2f}-{max(self.ratios):.2f})"
        if self.metric.target is not None:
            text += f", target {self.metric.target:g}x: {'reached' if self.reached else 'NOT REACHED'}"
        return text


def figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case. One that broke off may have whole rounds all the same."""

    measured: Sequence[Measured]
    timing: Timing
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """A case, or a part of one, that there is no figure of, and why."""

    case: str
    title: str
    reason: str


def measure(case: Case, servers: Mapping[str, AnyBroker], rounds: int, budget: Budget) -> Outcome:
    """Whatever goes wrong with a case ends this case, and no other."""
    started = time.perf_counter()
    values: dict[str, dict[str, list[float]]] = {m.name: {name: [] for name in servers} for m in case.metrics}
    others: list[float] = []
    failure: str | None = None
    try:
        for server in servers.values():
            case.prepare(server)
        for number in range(rounds):
            if not budget.allows(number):
                break
            found, part = one_round(case, servers, number)
            for name, each in found.items():
                for metric, value in each.items():
                    values[metric][name].append(value)
            others.append(part)
    except Exception as error:  # noqa: BLE001 - it is reported, and the run goes on
        failure = reason_of(error)
    for server in servers.values():
        try:
            case.clean_up(server)
        except Exception as error:  # noqa: BLE001 - as above
            failure = failure or f"cleaning up: {reason_of(error)}"
    measured = [Measured(case.key, case.title, metric, values[metric.name], others) for metric in case.metrics]
    timing = Timing(time.perf_counter() - started, len(others))
    return Outcome(measured if others else [], timing, failure)


def one_round(case: Case, servers: Mapping[str, AnyBroker], number: int) -> tuple[dict[str, dict[str, float]], float]:
    """The values of both, or none; and what part of the machine others had."""
    order = list(servers)
    if number % 2:
        order.reverse()
    found: dict[str, dict[str, float]] = {}
    most = 0.0
    for name in order:
        settle(servers.values())
        watch = Others(servers.values())
        found[name] = case.measure(servers[name])
        most = max(most, watch.part())
    return found, most


def reason_of(error: Exception) -> str:
    """One line, the last one that says something, without the directories of this machine."""
    # Lines with a percent sign are what librdkafka logs.
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.startswith("%")]
    text = lines[-1] if lines else ""
    if isinstance(error, subprocess.TimeoutExpired):
        text = f"not done after {error.timeout:.0f} s"
    return _DIRECTORIES.sub("", f"{type(error).__name__}: {text}")[:MAX_REASON]


def revive(servers: Mapping[str, AnyBroker], tell: Callable[[str], None]) -> list[Measured]:
    """A broker that has ended is started again, or all cases after the one that it ended in would fail."""
    for name, server in servers.items():
        if server.process.poll() is not None:
            tell(f"  {name} had ended with {server.process.returncode}; it is started again")
            server.start()
    return []


def warm_up(cases: Sequence[Case], servers: Mapping[str, AnyBroker], tell: Callable[[str], None]) -> list[Measured]:
    """Nothing of it counts."""
    started = time.perf_counter()
    for case in cases:
        for server in servers.values():
            case.prepare(server)
            case.measure(server)
            case.clean_up(server)
    settle(servers.values(), DELETION_BEGINS_S)
    tell(f"warm-up: {time.perf_counter() - started:.0f} s")
    return []
