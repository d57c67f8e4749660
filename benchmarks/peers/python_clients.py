"""kafka-python and aiokafka as clients, each in a process of its own, as in the benchmarks of our own clients."""

from __future__ import annotations

import json
import subprocess
import sys

from benchmarks.broker_process import source_environment
from benchmarks.producer_clients import WARM_UP

KAFKA_PYTHON = "kafka-python"
AIOKAFKA = "aiokafka"
NAMES = (KAFKA_PYTHON, AIOKAFKA)
TIMEOUT_S = 120
__all__ = ["AIOKAFKA", "KAFKA_PYTHON", "NAMES", "WARM_UP", "consume", "produce"]


def produce(client: str, bootstrap: str, topic: str, size: int, records: int) -> float:
    """Records per second, with ``acks=all``; the first ones (`WARM_UP`) do not count."""
    report = _run("benchmarks.producer_clients", client, bootstrap, topic, str(size), str(records))
    return records / report["seconds"]


def consume(client: str, bootstrap: str, topic: str, partitions: int, records: int) -> float:
    """Records per second, from the first on."""
    report = _run("benchmarks.consumer_clients", client, bootstrap, topic, str(partitions), str(records))
    return report["records"] / report["seconds"]


def _run(module: str, *arguments: str) -> dict[str, float]:
    result = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
        env=source_environment(),
    )
    if result.returncode != 0:
        raise RuntimeError(f"{module} {' '.join(arguments)}\n{result.stdout}\n{result.stderr}")
    report: dict[str, float] = json.loads(result.stdout)
    return report
