"""Results of a run that nobody has run."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.peers.case import Metric
from benchmarks.peers.rounds import Measured
from benchmarks.peers.systems import KAFKA, OURS

MACHINE = {
    "cores": 2,
    "processor": "A Processor",
    "memory_gb": 25,
    "system": "Linux x86_64",
    "python": "3.11.7",
    "java": "17",
    "kafka": "4.3.1",
    "confluent-kafka": "2.16.1",
}


def measured(
    case: str,
    ours: Sequence[float],
    kafka: Sequence[float],
    *,
    target: float | None = None,
    more_is_better: bool = True,
    name: str = "throughput",
) -> Measured:
    metric = Metric(name, "MB/s", more_is_better, target)
    return Measured(case, f"the case {case}", metric, {OURS: ours, KAFKA: kafka}, [0.01] * len(ours))
