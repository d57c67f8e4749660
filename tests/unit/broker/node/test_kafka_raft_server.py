"""A whole node: what it starts, in which order it stops, and what becomes of a start that fails."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import threading
from pathlib import Path

import pytest
from benchmarks.waiting import until
from benchmarks.wire_client import WireClient

from barnabas.broker.config.kafka_config import KafkaConfig
from barnabas.broker.node.broker_server import BrokerServer
from barnabas.broker.node.broker_state import BrokerState
from barnabas.broker.node.controller_server import ControllerServer
from barnabas.broker.node.kafka_raft_server import KafkaRaftServer, StartupError, initialize_log_dirs
from barnabas.broker.node.shared_server import SharedServer
from barnabas.broker.node.storage_formatter import format_if_empty
from barnabas.common.errors import Errors
from barnabas.embedded import EmbeddedBroker

WAIT_S = 60


def node(directory: Path, **overrides: object) -> KafkaRaftServer:
    settings = {name.replace("_", "."): value for name, value in overrides.items()}
    config = KafkaConfig.for_zero_configuration(directory, port=0, overrides=settings)
    format_if_empty(config)
    return KafkaRaftServer(config, exit_procedure=lambda _status: None)


def test_a_node_from_start_to_stop(tmp_path: Path) -> None:
    server = node(tmp_path)
    server.startup()
    assert server.broker is not None
    assert server.controller is not None
    assert server.broker.state is BrokerState.RUNNING
    assert server.controller.is_active
    assert server.health()["status"] == "up"
    with WireClient(server.bootstrap_servers) as client:
        assert [broker.node_id for broker in client.metadata().brokers] == [1]
    stopper = threading.Thread(target=server.await_shutdown)
    stopper.start()
    server.shutdown()
    stopper.join(WAIT_S)
    assert not stopper.is_alive()
    assert server.health()["status"] == "down"
    server.shutdown()
    with pytest.raises(StartupError, match="no broker that runs"):
        _ = server.bootstrap_servers


def test_a_controller_alone_is_a_node_too(tmp_path: Path) -> None:
    config = KafkaConfig.from_properties(
        {
            "process.roles": "controller",
            "node.id": "5",
            "controller.listener.names": "CONTROLLER",
            "listeners": "CONTROLLER://127.0.0.1:0",
            "controller.quorum.voters": "5@127.0.0.1:0",
            "log.dirs": str(tmp_path),
        }
    )
    format_if_empty(config)
    server = KafkaRaftServer(config, exit_procedure=lambda _status: None)
    server.startup()
    try:
        assert server.broker is None
        assert server.controller is not None
        assert server.health() == {
            "status": "up",
            "node": 5,
            "cluster": server.cluster_id,
            "broker": "NOT_RUNNING",
            "active_controller": server.controller.is_active,
        }
    finally:
        server.shutdown()


def test_everything_in_a_data_directory_is_for_its_user_only(tmp_path: Path) -> None:
    data = tmp_path / "data"
    before = os.umask(0)  # as wide as it gets
    try:
        overrides = {"metadata.log.max.record.bytes.between.snapshots": 1}
        with EmbeddedBroker(data, overrides=overrides) as broker, WireClient(broker.bootstrap_servers) as client:
            client.create_topic("orders")
            assert client.produce("orders", 0, b"value")[0] is Errors.NONE
            metadata = data / "__cluster_metadata-0"
            until(lambda: list(metadata.glob("0*.checkpoint")), "a metadata snapshot", 60)
    finally:
        os.umask(before)
    found = {path: stat.S_IMODE(path.stat().st_mode) for path in (data, *data.rglob("*"))}
    assert {mode for path, mode in found.items() if path.is_dir()} == {0o700}
    wrong = {path: oct(mode) for path, mode in found.items() if path.is_file() and mode & 0o177}
    assert not wrong
    names = {path.name.lstrip("0123456789-") for path in found}
    assert names >= {
        ".log", ".index", ".timeindex", ".checkpoint", "leader-epoch-checkpoint", "partition.metadata", "quorum-state",
        "meta.properties", "bootstrap.checkpoint", ".kafka_cleanshutdown", "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint", "log-start-offset-checkpoint", ".lock",
    }, names  # fmt: skip


def test_data_that_others_can_read_are_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    data = Path(tempfile.mkdtemp())  # the directory of pytest is closed to others, and what is in it
    try:
        data.chmod(0o755)
        config = KafkaConfig.for_zero_configuration(data)
        format_if_empty(config)
        initialize_log_dirs(config)
        assert caplog.records == []
        for name in ("meta.properties", "bootstrap.checkpoint"):
            (data / name).chmod(0o644)
        initialize_log_dirs(config)
        (line,) = [record.getMessage() for record in caplog.records]
        assert line.startswith("Other users of this machine can read data of this node, such as ")
        assert line.endswith(f"chmod -R o-rwx {data}")
        assert (data / "meta.properties").stat().st_mode & 0o777 == 0o644, "it is left as it was"
    finally:
        shutil.rmtree(data)


def test_a_broker_alone_is_not_there_yet(tmp_path: Path) -> None:
    config = KafkaConfig.from_properties(
        {
            "process.roles": "broker",
            "node.id": "5",
            "controller.listener.names": "CONTROLLER",
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "controller.quorum.voters": "6@127.0.0.1:1234",
            "log.dirs": str(tmp_path),
        }
    )
    with pytest.raises(StartupError, match=r"metadata log .* use process\.roles=broker,controller"):
        KafkaRaftServer(config)


def test_the_controller_starts_first_and_stops_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    for kind in (SharedServer, ControllerServer, BrokerServer):
        for name in ("startup", "shutdown", "close"):
            if (real := vars(kind).get(name)) is not None:

                def noted(self: object, real: object = real, name: str = f"{kind.__name__}.{name}") -> object:
                    told.append(name)
                    return real(self)  # type: ignore[operator]

                monkeypatch.setattr(kind, name, noted)
    server = node(tmp_path)
    server.startup()
    server.shutdown()
    assert told == [
        "ControllerServer.startup",
        "BrokerServer.startup",
        "BrokerServer.shutdown",
        "ControllerServer.shutdown",
        "SharedServer.close",
    ]


@pytest.mark.parametrize("part", [ControllerServer, BrokerServer])
def test_what_was_started_is_stopped_if_the_rest_cannot_start(
    part: type[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(threading.enumerate())
    with monkeypatch.context() as patch:

        def broken(_self: object) -> None:
            raise OSError("no port")

        patch.setattr(part, "startup", broken)
        with pytest.raises(OSError, match="no port"):
            node(tmp_path).startup()
    assert set(threading.enumerate()) - before == set()
    again = node(tmp_path)
    again.startup()
    again.shutdown()


def test_a_part_that_cannot_be_stopped_does_not_keep_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before = set(threading.enumerate())
    server = node(tmp_path)
    server.startup()
    real = BrokerServer.shutdown

    def broken(broker: BrokerServer) -> None:
        real(broker)
        raise RuntimeError("stuck")

    monkeypatch.setattr(BrokerServer, "shutdown", broken)
    server.shutdown()
    assert "stuck" in caplog.text
    assert set(threading.enumerate()) - before == set()


def test_a_fatal_error_is_reported_to_whoever_runs_the_node(tmp_path: Path) -> None:
    statuses: list[int] = []
    config = KafkaConfig.for_zero_configuration(tmp_path, port=0)
    format_if_empty(config)
    server = KafkaRaftServer(config, exit_procedure=statuses.append)
    server.startup()
    server.shared.fatal_fault("pretending", RuntimeError("the end"))
    assert statuses == [1]
    assert server.failed
    server.await_shutdown()
    server.shutdown()


def test_a_fault_that_one_can_live_with_is_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = node(tmp_path)
    server.startup()
    server.shared.fault("publishing something", RuntimeError("oops"))
    counts = {name.name: metric for name, metric in server.shared.registry.metrics.items()}
    assert getattr(counts["MetadataApplyErrorCount"], "count") == 1  # noqa: B009 - one of several kinds of metric
    assert "publishing something" in caplog.text
    assert not server.failed
    server.shutdown()
