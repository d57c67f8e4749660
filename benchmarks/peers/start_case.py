"""How soon each broker is there and what it takes up: starts in turns, from the process to the first answer."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from benchmarks.broker_process import BrokerProcess, ServerProcess
from benchmarks.peers.case import Metric
from benchmarks.peers.rounds import Measured
from benchmarks.peers.systems import KAFKA, OURS, barnabas, kafka

SETTLE_S = 2.0
START = Metric("to the first answer", "ms", more_is_better=False, target=0.1)
IDLE_MEMORY = Metric("idle memory", "MB", more_is_better=False, target=0.15)
LOADED_MEMORY = Metric("memory after all cases", "MB", more_is_better=False)
PEAK_MEMORY = Metric("most memory under load", "MB", more_is_better=False)


def start_up_rounds(directory: Path, pycache: Path, rounds: int) -> list[Measured]:
    """With an empty directory, which ours has to format by itself; Kafka's is formatted beforehand."""
    place = Path(tempfile.mkdtemp(dir=directory))
    servers: dict[str, ServerProcess] = {KAFKA: kafka(place), OURS: barnabas(place, pycache)}
    starts: dict[str, list[float]] = {name: [] for name in servers}
    memory: dict[str, list[float]] = {name: [] for name in servers}
    for number in range(rounds):
        for name, server in sorted(servers.items(), reverse=number % 2 == 1):
            if isinstance(server, BrokerProcess) and server.data_dir.exists():
                shutil.rmtree(server.data_dir)
            with ExitStack() as ends:
                ends.push(server)
                starts[name].append(server.start() * 1000)
                time.sleep(SETTLE_S)
                memory[name].append(server.resident_bytes / 1e6)
    return [
        Measured("start-up", "start-up", START, starts),
        Measured("idle-memory", "start-up", IDLE_MEMORY, memory),
    ]


def loaded_memory(servers: Mapping[str, ServerProcess]) -> list[Measured]:
    after = {name: [server.resident_bytes / 1e6] for name, server in servers.items()}
    most = {name: [server.most_resident_bytes / 1e6] for name, server in servers.items()}
    return [
        Measured("loaded-memory", "after all cases", LOADED_MEMORY, after),
        Measured("peak-memory", "during all cases", PEAK_MEMORY, most),
    ]
