"""Rounds in turns: each case on one broker, then on the other, the order changing with every round.

Before the first case both brokers do some of everything that is measured later, so that Kafka's virtual machine has
compiled what it needs and no case is the first. Before each round the machine settles.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.peers.cases import Case, Metric
from benchmarks.peers.quiet import Others, settle
from benchmarks.peers.systems import KAFKA, OURS, AnyBroker

LEAST_ROUNDS = 2
HURRY_PART = 0.8
DELETION_BEGINS_S = 35.0
"""Both brokers delete nothing in their first half minute."""
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


class Budget:
    """How long a run may take. When most of the time is gone, cases that are left do with fewer rounds."""

    def __init__(self, seconds: float) -> None:
        self._started = time.perf_counter()
        self._hurry_after_s = seconds * HURRY_PART

    @property
    def elapsed_s(self) -> float:
        return time.perf_counter() - self._started

    def allows(self, round_number: int) -> bool:
        return round_number < LEAST_ROUNDS or self.elapsed_s < self._hurry_after_s


def measure(
    case: Case, servers: Mapping[str, AnyBroker], rounds: int, budget: Budget, tell: Callable[[str], None]
) -> list[Measured]:
    values: dict[str, dict[str, list[float]]] = {m.name: {name: [] for name in servers} for m in case.metrics}
    others: list[float] = []
    for server in servers.values():
        case.prepare(server)
    for number in range(rounds):
        if not budget.allows(number):
            break
        order = list(servers)
        if number % 2:
            order.reverse()
        most = 0.0
        for name in order:
            settle(servers.values())
            watch = Others(servers.values())
            for metric, value in case.measure(servers[name]).items():
                values[metric][name].append(value)
            most = max(most, watch.part())
        others.append(most)
    for server in servers.values():
        case.clean_up(server)
    measured = [Measured(case.key, case.title, metric, values[metric.name], others) for metric in case.metrics]
    for one in measured:
        tell(str(one))
    if max(others) > BUSY_PART:
        tell(f"  others had up to {max(others):.0%} of the cores meanwhile")
    return measured


def warm_up(cases: Sequence[Case], servers: Mapping[str, AnyBroker], tell: Callable[[str], None]) -> None:
    started = time.perf_counter()
    for case in cases:
        for server in servers.values():
            case.prepare(server)
            case.measure(server)
            case.clean_up(server)
    settle(servers.values(), DELETION_BEGINS_S)
    tell(f"warm-up: {time.perf_counter() - started:.0f} s")
