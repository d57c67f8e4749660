"""Rounds in turns: each case on one broker, then on the other, the order changing with every round."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.broker_process import ServerProcess
from benchmarks.peers.cases import Case, Metric
from benchmarks.peers.systems import KAFKA, OURS


@dataclass(frozen=True, slots=True)
class Measured:
    """A metric of a case with the values of all rounds; the ratio is that of the medians, ours to Kafka's."""

    case: str
    title: str
    metric: Metric
    values: Mapping[str, Sequence[float]]

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


def measure(
    case: Case, servers: Mapping[str, ServerProcess], rounds: int, tell: Callable[[str], None]
) -> list[Measured]:
    values: dict[str, dict[str, list[float]]] = {m.name: {name: [] for name in servers} for m in case.metrics}
    for server in servers.values():
        case.prepare(server)
    for number in range(rounds):
        order = list(servers)
        if number % 2:
            order.reverse()
        for name in order:
            for metric, value in case.measure(servers[name]).items():
                values[metric][name].append(value)
    measured = [Measured(case.key, case.title, metric, values[metric.name]) for metric in case.metrics]
    for one in measured:
        tell(str(one))
    return measured
