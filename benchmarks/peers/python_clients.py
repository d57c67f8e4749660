"""kafka-python and aiokafka as clients, each in a process of its own, as in the benchmarks of our own clients."""

from __future__ import annotations

from benchmarks.peers.client_process import run_client
from benchmarks.producer_clients import WARM_UP

KAFKA_PYTHON = "kafka-python"
AIOKAFKA = "aiokafka"
NAMES = (KAFKA_PYTHON, AIOKAFKA)
__all__ = ["AIOKAFKA", "KAFKA_PYTHON", "NAMES", "WARM_UP", "consume", "produce"]


def produce(client: str, bootstrap: str, topic: str, size: int, records: int) -> float:
    """Records per second, with ``acks=all``; the first ones (`WARM_UP`) do not count."""
    report = run_client("benchmarks.producer_clients", client, bootstrap, topic, str(size), str(records))
    return records / float(report["seconds"])


def consume(client: str, bootstrap: str, topic: str, partitions: int, records: int) -> float:
    """Records per second, from the first on."""
    report = run_client("benchmarks.consumer_clients", client, bootstrap, topic, str(partitions), str(records))
    return float(report["records"]) / float(report["seconds"])
