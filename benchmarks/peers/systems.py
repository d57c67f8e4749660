"""The two brokers that are compared, each with its defaults, in a process of its own on 127.0.0.1.

One setting is not the default, in both: the files of a topic that was deleted go at once and not a minute later. Else
the files of one round would be written to the disk and deleted in the middle of others, and gigabytes of them would
take up memory: a round on pages that the machine has not used before takes three times the processor time in the
kernel, whichever broker it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.broker import JARS, KafkaProcess
from benchmarks.broker_process import BrokerProcess

OURS = "barnabas"
KAFKA = "Apache Kafka"
OVERRIDES = {"log.segment.delete.delay.ms": 100}

AnyBroker = BrokerProcess | KafkaProcess


class Secured(NamedTuple):
    """Further listeners, each named by its security protocol, and the settings that they need."""

    listeners: tuple[str, ...] = ()
    settings: Mapping[str, object] = {}


OPEN = Secured()


def barnabas(directory: Path, pycache: Path, secured: Secured = OPEN) -> BrokerProcess:
    return BrokerProcess(
        directory / "barnabas",
        "--quiet",
        overrides={**OVERRIDES, **secured.settings},
        pycache=pycache,
        listeners=secured.listeners,
    )


def kafka(directory: Path, secured: Secured = OPEN) -> KafkaProcess:
    return KafkaProcess(directory / "kafka", {**OVERRIDES, **secured.settings}, secured.listeners)


@contextmanager
def both(directory: Path, pycache: Path, secured: Secured = OPEN) -> Iterator[dict[str, AnyBroker]]:
    """Both running; the one that is not measured is idle meanwhile."""
    with ExitStack() as stack:
        servers: dict[str, AnyBroker] = {
            OURS: barnabas(directory, pycache, secured),
            KAFKA: kafka(directory, secured),
        }
        for server in servers.values():
            stack.enter_context(server)
        yield servers


def kafka_version() -> str:
    """As the name of its jar says."""
    (jar,) = JARS.glob("kafka_2.13-*.jar")
    return jar.stem.removeprefix("kafka_2.13-")
