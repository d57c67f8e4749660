"""How long a broker takes to start and to stop, and what it costs when nobody uses it.

The targets are for a machine that has nothing else to do; ``python -m benchmarks broker`` measures them there, with
Apache Kafka beside it. A test machine runs other tests meanwhile, so the bounds here are wide: they are to notice a
wait that somebody has built in, or an import that costs more than all the rest.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
from benchmarks.broker_process import BrokerProcess, source_environment
from benchmarks.wire_client import WireClient

from barnabas.broker.config.kafka_config import KafkaConfig
from barnabas.broker.node import background_loading
from barnabas.broker.node.kafka_raft_server import KafkaRaftServer
from barnabas.broker.node.storage_formatter import format_if_empty
from barnabas.embedded import EmbeddedBroker
from machine_speed import slowdown

EMPTY_S = 0.4
WITH_PARTITIONS_S = 1.0
RESIDENT_BYTES = 60 << 20
FIXTURE_S = 0.15
PARTITIONS = 1_000
OWN_MODULES = 516
ALL_MODULES = 650
THREADS = 48
SLACK = 3.0
"""How much more time than on a machine that does nothing else, or that is as slow for any other process."""
ATTEMPTS = 6


def assert_some_are_quick(measure: Callable[[], Sequence[float]], limits_s: Sequence[float]) -> None:
    """Measures until each time is within its limit, on a machine as slow as this one is before or after it."""
    found: list[tuple[float, Sequence[float]]] = []
    while not found or any(one > found[-1][0] * limit for one, limit in zip(found[-1][1], limits_s, strict=True)):
        assert len(found) < ATTEMPTS, found
        before = slowdown()
        seconds = measure()
        found.append((max(before, slowdown()), seconds))


@pytest.fixture(scope="module")
def pycache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiled modules, made by a first start that does not count."""
    directory = tmp_path_factory.mktemp("pycache")
    with BrokerProcess(directory / "data", pycache=directory, output=directory / "out"):
        pass
    return directory


def test_an_empty_broker_is_there_at_once_and_small(tmp_path: Path, pycache: Path) -> None:
    with BrokerProcess(tmp_path / "data", pycache=pycache, output=tmp_path / "out") as broker:
        assert broker.resident_bytes < RESIDENT_BYTES
        broker.stop()

        def start_and_stop() -> tuple[float, float]:
            seconds = broker.start()
            started = time.perf_counter()
            assert broker.stop() == 0
            return seconds, time.perf_counter() - started

        assert_some_are_quick(start_and_stop, (SLACK * EMPTY_S, SLACK))


def test_a_thousand_partitions_take_a_moment_longer(tmp_path: Path, pycache: Path) -> None:
    broker = BrokerProcess(tmp_path / "data", pycache=pycache)
    with broker, WireClient(broker.bootstrap_servers) as client:
        client.create_topics([(f"topic-{number}", 100) for number in range(PARTITIONS // 100 - 1)])
        client.create_topic("last", 100)

    def start() -> tuple[float]:
        seconds = broker.start()
        with WireClient(broker.bootstrap_servers) as client:
            topics = client.metadata().topics
            assert sum(len(topic.partitions) for topic in topics) == PARTITIONS
            assert all(partition.leader_id == 1 for topic in topics for partition in topic.partitions)
            assert client.produce("last", 99, b"value")[0].name == "NONE"
            assert broker.descriptors < PARTITIONS + 100, "one for each log, and none for its indexes"
        assert broker.stop() == 0
        return (seconds,)

    assert_some_are_quick(start, (SLACK * WITH_PARTITIONS_S,))


def test_a_broker_for_each_test_costs_next_to_nothing() -> None:
    """What is slow is only the first one, which loads the modules and compiles the codecs."""
    with EmbeddedBroker():
        pass

    def start_and_stop() -> tuple[float]:
        started = time.perf_counter()
        with EmbeddedBroker():
            pass
        return (time.perf_counter() - started,)

    assert_some_are_quick(start_and_stop, (2 * FIXTURE_S,))


def test_an_idle_broker_does_next_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks every few milliseconds whether there is something to do."""
    monkeypatch.setattr(background_loading, "LOAD_DELAY_MS", 60_000)  # once in each process: another matter
    with EmbeddedBroker():
        done = threading.Event()
        spent: list[float] = []
        while not spent or spent[-1] >= 0.1:  # the start may have left something to do, once
            assert len(spent) < ATTEMPTS, spent
            before = time.process_time()
            done.wait(1.0)
            spent.append(time.process_time() - before)


def test_a_broker_is_up_without_what_nobody_has_asked_for(tmp_path: Path) -> None:
    """Each module takes a quarter of a millisecond; what is on this list would take a fifth of the start."""
    code = """
import os, sys, threading
from barnabas.cli import main, start
from barnabas.broker.node import background_loading
background_loading.LOAD_DELAY_MS = 60_000
def stop(_server):
    print(threading.active_count(), *sys.modules, flush=True)
    os._exit(0)
start.print_banner = stop
sys.argv = ["barnabas", "start", "--port=0", "--data-dir=" + sys.argv[1], "--log-level=error"]
main.main()
"""
    # On a busy machine the broker may register before the controller is active, and the retry loads more.
    starts = []
    for number in range(5):
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / str(number))],
            capture_output=True,
            text=True,
            check=True,
            timeout=180,
            env=source_environment(),
        )
        starts.append(done.stdout.split())
        ours = sum(name.startswith("barnabas") for name in starts[-1])
        if ours <= OWN_MODULES and len(starts[-1]) <= ALL_MODULES:
            break
    threads, *modules = min(starts, key=len)
    own = [name for name in modules if name.startswith("barnabas")]
    assert len(own) <= OWN_MODULES, f"{len(own)} modules of ours"
    assert len(modules) <= ALL_MODULES, f"{len(modules)} modules"
    assert int(threads) <= THREADS
    late = (
        "barnabas.broker.handlers.produce",
        "barnabas.coordinator.group.group_coordinator_service",
        "barnabas.coordinator.transaction.transaction_coordinator",
        "barnabas.controller.handlers.topics",
        "barnabas.replica.partition.partition",
        "barnabas.security.standard_authorizer",
        "barnabas.protocol.messages.create_topics",
        "barnabas.protocol.messages.join_group",
        "barnabas.protocol.internal.share_groups",
        "cramjam",
        "re2",
        "shutil",
        "tempfile",
        "encodings.idna",
        "dataclasses",
        "asyncio",
        "ssl",
        "numpy",
        "rich",
    )
    assert not set(late) & set(modules)


def test_what_was_left_out_is_loaded_soon_after(tmp_path: Path) -> None:
    loaded = threading.Event()
    config = KafkaConfig.for_zero_configuration(tmp_path / "data", port=0)
    format_if_empty(config)
    server = KafkaRaftServer(config, on_loaded=loaded.set)
    server.startup()
    try:
        assert loaded.wait(120)
        assert server.broker is not None
        assert server.broker._apis is not None
        assert server.broker._coordinators is not None
        assert server.broker._coordinators.is_made
        assert not [handler for handler in server.broker._apis._handlers.values() if isinstance(handler, partial)]
    finally:
        server.shutdown()


def test_a_broker_may_stop_while_it_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_loading, "LOAD_DELAY_MS", 0)
    for number in range(3):
        with EmbeddedBroker(tmp_path / str(number)) as broker:
            pass
        assert not broker.failed
