"""How long a broker takes to start and to stop, and what it costs when nobody uses it.

The targets are for a machine that has nothing else to do; ``python -m benchmarks broker`` measures them there, with
Apache Kafka beside it. A test machine runs other tests meanwhile, so the bounds here are wide: they are to notice a
wait that somebody has built in, or an import that costs more than all the rest.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from benchmarks.broker_process import BrokerProcess
from benchmarks.wire_client import WireClient

from barnabas.embedded import EmbeddedBroker

EMPTY_S = 0.4
WITH_PARTITIONS_S = 1.0
RESIDENT_BYTES = 60 << 20
FIXTURE_S = 0.15
PARTITIONS = 1_000
SLACK = 3.0
"""How much more time than on an idle machine."""


@pytest.fixture(scope="module")
def pycache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiled modules, made by a first start that does not count."""
    directory = tmp_path_factory.mktemp("pycache")
    with BrokerProcess(directory / "data", pycache=directory, output=directory / "out"):
        pass
    return directory


def test_an_empty_broker_is_there_at_once_and_small(tmp_path: Path, pycache: Path) -> None:
    seconds = []
    for number in range(3):
        with BrokerProcess(tmp_path / str(number), pycache=pycache, output=tmp_path / "out") as broker:
            assert broker.resident_bytes < RESIDENT_BYTES
            broker.stop()
            seconds.append(broker.start())
            started = time.perf_counter()
            assert broker.stop() == 0
            assert time.perf_counter() - started < SLACK
    assert min(seconds) < SLACK * EMPTY_S


def test_a_thousand_partitions_take_a_moment_longer(tmp_path: Path, pycache: Path) -> None:
    broker = BrokerProcess(tmp_path / "data", pycache=pycache)
    with broker, WireClient(broker.bootstrap_servers) as client:
        client.create_topics([(f"topic-{number}", 100) for number in range(PARTITIONS // 100 - 1)])
        client.create_topic("last", 100)
    seconds = broker.start()
    with WireClient(broker.bootstrap_servers) as client:
        topics = client.metadata().topics
        assert sum(len(topic.partitions) for topic in topics) == PARTITIONS
        assert all(partition.leader_id == 1 for topic in topics for partition in topic.partitions)
        assert client.produce("last", 99, b"value")[0].name == "NONE"
        assert broker.descriptors < PARTITIONS + 100, "one for each log, and none for its indexes"
    assert broker.stop() == 0
    assert seconds < SLACK * WITH_PARTITIONS_S


def test_a_broker_for_each_test_costs_next_to_nothing() -> None:
    """What is slow is only the first one, which loads the modules and compiles the codecs."""
    with EmbeddedBroker():
        pass
    seconds = []
    for _ in range(5):
        started = time.perf_counter()
        with EmbeddedBroker():
            pass
        seconds.append(time.perf_counter() - started)
    assert min(seconds) < 2 * FIXTURE_S


def test_an_idle_broker_does_next_to_nothing() -> None:
    """Nobody looks every few milliseconds whether there is something to do."""
    with EmbeddedBroker():
        done = threading.Event()
        before = time.process_time()
        done.wait(1.0)
        assert time.process_time() - before < 0.1
