"""The two brokers that are compared, each with its defaults, in a process of its own on 127.0.0.1."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.broker import JARS, KafkaProcess
from benchmarks.broker_process import BrokerProcess, ServerProcess

OURS = "barnabas"
KAFKA = "Apache Kafka"


def barnabas(directory: Path, pycache: Path) -> BrokerProcess:
    return BrokerProcess(directory / "barnabas", "--quiet", pycache=pycache)


def kafka(directory: Path) -> KafkaProcess:
    return KafkaProcess(directory / "kafka")


@contextmanager
def both(directory: Path, pycache: Path) -> Iterator[dict[str, ServerProcess]]:
    """Both running; the one that is not measured is idle meanwhile."""
    with ExitStack() as stack:
        servers: dict[str, ServerProcess] = {OURS: barnabas(directory, pycache), KAFKA: kafka(directory)}
        for server in servers.values():
            stack.enter_context(server)
        yield servers


def kafka_version() -> str:
    """As the name of its jar says."""
    (jar,) = JARS.glob("kafka_2.13-*.jar")
    return jar.stem.removeprefix("kafka_2.13-")
