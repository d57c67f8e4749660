"""Brokers inside this process, and the pytest plug-in: they come up, they go, and they leave nothing behind."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.wire_client import WireClient

import barnabas
from barnabas.broker.node.kafka_raft_server import KafkaRaftServer
from barnabas.common.config_def import ConfigError
from barnabas.common.errors import Errors
from barnabas.embedded import EmbeddedBroker
from barnabas.log.dirs.log_dir_lock import LogDirLockedError

WAIT_S = 60


def descriptors() -> set[str]:
    """What is open, by what it is: numbers are used again."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found.add(f"{entry.name} {entry.readlink()}")
        except FileNotFoundError:
            continue  # that of the listing itself
    return found


@pytest.fixture
def nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Fails a test that leaves a thread, a descriptor or a temporary directory; gives the place of the latter."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with EmbeddedBroker():
        pass  # what is opened once for good, such as a source of randomness, is opened here
    gc.collect()
    threads, open_files = set(threading.enumerate()), descriptors()
    yield tmp_path
    gc.collect()
    assert set(threading.enumerate()) - threads == set()
    assert descriptors() - open_files == set()
    assert list(tmp_path.iterdir()) == []


def test_it_serves_and_leaves_nothing(nothing_left: Path) -> None:
    with EmbeddedBroker() as broker:
        assert broker.data_dir.parent == nothing_left
        with WireClient(broker.bootstrap_servers) as client:
            client.create_topic("orders")
            assert client.produce("orders", 0, b"value") == (Errors.NONE, 0)
            assert client.fetch_all("orders", 0) == [b"value"]
            assert client.metadata().cluster_id == broker.cluster_id
        assert repr(broker) == f"EmbeddedBroker({broker.bootstrap_servers})"
    assert repr(broker) == "EmbeddedBroker(not running)"
    assert not broker.failed


def test_clients_that_are_still_connected_do_not_keep_it(nothing_left: Path) -> None:
    broker = EmbeddedBroker().start()
    with WireClient(broker.bootstrap_servers) as client:
        client.create_topic("orders")
        broker.stop()
        with pytest.raises(ConnectionError):
            client.produce("orders", 0, b"value")
    broker.stop()


def test_several_at_once_know_nothing_of_each_other(nothing_left: Path) -> None:
    with EmbeddedBroker() as one, EmbeddedBroker() as two, EmbeddedBroker() as three:
        brokers = [one, two, three]
        assert len({broker.bootstrap_servers for broker in brokers}) == 3
        assert len({broker.cluster_id for broker in brokers}) == 3
        for number, broker in enumerate(brokers):
            with WireClient(broker.bootstrap_servers) as client:
                client.create_topic(f"topic-{number}")
                assert [topic.name for topic in client.metadata().topics] == [f"topic-{number}"]


def test_one_can_be_started_and_stopped_by_any_thread(nothing_left: Path) -> None:
    seen: list[object] = []

    def run() -> None:
        with EmbeddedBroker() as broker, WireClient(broker.bootstrap_servers) as client:
            client.create_topic("orders")
            seen.append(client.produce("orders", 0, b"value"))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert seen == [(Errors.NONE, 0)] * 2


def test_a_broker_with_a_place_keeps_its_data(tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path / "data")
    with broker, WireClient(broker.bootstrap_servers) as client:
        client.create_topic("orders")
        client.produce("orders", 0, b"value")
        cluster_id = broker.cluster_id
    with broker, WireClient(broker.bootstrap_servers) as client:
        assert broker.cluster_id == cluster_id
        assert client.fetch_all("orders", 0) == [b"value"]


def test_settings_have_the_keys_of_kafka_and_values_of_python() -> None:
    overrides = {"num.partitions": 3, "auto.create.topics.enable": False, "log.cleanup.policy": ["compact", "delete"]}
    with EmbeddedBroker(overrides=overrides) as broker:
        config = broker.server.config
        assert config.num_partitions == 3
        assert not config.auto_create_topics_enable
        assert list(config.value("log.cleanup.policy")) == ["compact", "delete"]


def test_internal_topics_are_small_where_they_are_temporary(tmp_path: Path) -> None:
    names = ("offsets.topic.num.partitions", "transaction.state.log.num.partitions")
    with EmbeddedBroker(overrides={names[1]: 4}) as broker:
        assert [broker.server.config.value(name) for name in names] == [1, 4]
    with EmbeddedBroker(tmp_path) as broker:
        assert [broker.server.config.value(name) for name in names] == [50, 50]


def test_what_cannot_start_leaves_nothing_either(nothing_left: Path) -> None:
    with pytest.raises(ConfigError):
        EmbeddedBroker(overrides={"num.partitions": "many"}).start()
    with EmbeddedBroker() as broker:
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        with pytest.raises(OSError, match="cannot open PLAINTEXT"):
            EmbeddedBroker(port=port).start()


@pytest.mark.parametrize("enabled", [True, False])
def test_no_collection_interrupts_a_start(enabled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full collection took a fifth of the first start of a secured broker. The collector's state stays as it was."""
    seen: list[bool] = []

    def startup(_server: KafkaRaftServer) -> None:
        seen.append(gc.isenabled())
        raise OSError("stop here")

    monkeypatch.setattr(KafkaRaftServer, "startup", startup)
    (gc.enable if enabled else gc.disable)()
    try:
        with pytest.raises(OSError, match="stop here"):
            EmbeddedBroker().start()
        assert seen == [False]
        assert gc.isenabled() is enabled
    finally:
        gc.enable()


def test_two_do_not_use_one_directory(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path), pytest.raises(LogDirLockedError, match="in use by another broker"):
        EmbeddedBroker(tmp_path).start()


def test_what_is_not_running_says_so() -> None:
    broker = EmbeddedBroker()
    for use in (lambda: broker.bootstrap_servers, lambda: broker.data_dir, lambda: broker.server):
        with pytest.raises(RuntimeError, match="not running"):
            use()
    with broker, pytest.raises(RuntimeError, match="running already"):
        broker.start()


def test_a_fatal_error_does_not_end_this_process(nothing_left: Path, caplog: pytest.LogCaptureFixture) -> None:
    broker = EmbeddedBroker()
    seen = [broker.failed]
    with broker:
        broker.server.shared.fatal_fault("pretending", RuntimeError("the end"))
        seen.append(broker.failed)
        broker.server.await_shutdown()  # returns: there is nothing to wait for any more
    seen.append(broker.failed)
    assert "the end" in caplog.text
    with broker:
        seen.append(broker.failed)
    assert seen == [False, True, True, False], "also when it is stopped; but a new start is a new start"


def test_all_disks_lost_is_fatal_and_does_not_end_this_process(
    nothing_left: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where a broker by itself would exit."""
    caplog.set_level(logging.CRITICAL)
    broker = EmbeddedBroker().start()
    manager = broker.server.broker
    assert manager is not None
    with WireClient(broker.bootstrap_servers) as client:
        client.create_topic("orders")
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", _broken)
            assert client.produce("orders", 0, b"value")[0] is not Errors.NONE
            broker.server.await_shutdown()
    assert broker.failed
    broker.stop()


def _broken(*_arguments: object) -> int:
    raise OSError(5, "Input/output error")


def test_the_package_has_it() -> None:
    assert barnabas.EmbeddedBroker is EmbeddedBroker
    with pytest.raises(AttributeError, match="no attribute 'EmbeddedBrokers'"):
        _ = barnabas.EmbeddedBrokers


# ---------------------------------------------------------------------------------------------------- the plug-in

PROJECT = """
import confluent_kafka, pytest

@pytest.fixture(scope="session")
def barnabas_overrides():
    return {"num.partitions": 3}

seen = []

@pytest.mark.parametrize("number", range(2))
def test_orders(barnabas_broker, number):
    seen.append(barnabas_broker.cluster_id)
    producer = confluent_kafka.Producer({"bootstrap.servers": barnabas_broker.bootstrap_servers})
    producer.produce("orders", b"value", partition=2)
    assert producer.flush(10) == 0
    consumer = confluent_kafka.Consumer({"bootstrap.servers": barnabas_broker.bootstrap_servers, "group.id": "g",
                                         "log_level": 0})
    consumer.assign([confluent_kafka.TopicPartition("orders", 2, 0)])
    message = consumer.poll(10)
    assert message.error() is None and message.value() == b"value" and message.offset() == 0
    del consumer  # close() would look for the coordinator of a group that does not exist

def test_each_test_has_its_own():
    assert len(set(seen)) == 2

def test_shared(barnabas_session_broker):
    seen.append(barnabas_session_broker.cluster_id)

def test_shared_again(barnabas_session_broker):
    assert barnabas_session_broker.cluster_id == seen[-1]

def test_broken(barnabas_broker):
    barnabas_broker.server.shared.fatal_fault("pretending", RuntimeError("the end"))
"""


def test_a_project_that_only_uses_the_fixture(tmp_path: Path) -> None:
    (tmp_path / "test_project.py").write_text(PROJECT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "test_project.py"]
    result = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=180, check=False
    )
    assert "6 passed, 1 error" in result.stdout, result.stdout + result.stderr
    assert "ERROR at teardown of test_broken" in result.stdout
