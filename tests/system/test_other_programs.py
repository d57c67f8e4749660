"""Programs of other projects, as their users run them: Kafka Connect and Apache Flink.

Each one is a process of its own against a broker in another process. Both promise exactly-once delivery, so they and
the broker are killed meanwhile.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest
from benchmarks.broker_process import BrokerProcess, free_port
from benchmarks.waiting import until
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from clients.java.conftest import java_or_skip
from oracles.java_process import JavaProcess, connect_jars, flink_jars
from system.committed_reader import CommittedReader
from system.steady_writer import SteadyWriter

pytestmark = [pytest.mark.nightly, pytest.mark.java]

WAIT_S: Final = 180.0
KILLS: Final = 4
OVERRIDES: Final[Mapping[str, object]] = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    running = BrokerProcess(tmp_path / "data", output=tmp_path / "broker.log", overrides=OVERRIDES)
    running.start()
    try:
        yield running
        assert "Traceback" not in running.text()
    finally:
        running.kill()


def create_topics(bootstrap: str, *names: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        future.result(WAIT_S)


@contextmanager
def running(program: JavaProcess) -> Iterator[JavaProcess]:
    program.spawn()
    try:
        yield program
    finally:
        program.kill()


def kill_both_in_turn(broker: BrokerProcess, program: JavaProcess, output: CommittedReader) -> None:
    """Kills the broker and the program `KILLS` times, each time after another record has arrived."""
    for number in range(KILLS):
        output.read(output.total + 1)
        if number % 2 == 0:
            program.kill()
            program.spawn()
        else:
            broker.kill()
            broker.start()
    output.read(output.total + 1)


# -- Kafka Connect


class ConnectWorker:
    """A distributed worker with exactly-once support for sources, and its REST interface."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self._port = free_port()
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": "workers",
            "listeners": f"http://127.0.0.1:{self._port}",
            "exactly.once.source.support": "enabled",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "1000",
            "scheduled.rebalance.max.delay.ms": "0",  # a killed worker is replaced at once
        }
        for topic in ("config", "offset", "status"):
            settings |= {f"{topic}.storage.topic": f"connect-{topic}", f"{topic}.storage.replication.factor": "1"}
        settings |= {"offset.storage.partitions": "1", "status.storage.partitions": "1"}
        file = directory / "worker.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        self.process = JavaProcess(main, connect_jars(), [str(file)], directory / "worker.log")

    def configure(self, name: str, settings: Mapping[str, str]) -> None:
        """Creates a connector; retries while the worker is starting or rebalancing."""

        def accepted() -> bool:
            request = urllib.request.Request(
                f"http://127.0.0.1:{self._port}/connectors/{name}/config",
                json.dumps(settings).encode(),
                {"Content-Type": "application/json"},
                method="PUT",
            )
            try:
                with urllib.request.urlopen(request, timeout=60) as response:
                    return bool(response.status < 300)
            except OSError:
                return False

        until(accepted, lambda: self.process.text()[-2000:], WAIT_S, pause_s=0.2)


class LineFile:
    """A file to which the test appends numbered lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.lines: list[str] = []

    def append(self, count: int) -> None:
        new = [f"line {number}" for number in range(len(self.lines), len(self.lines) + count)]
        with self._path.open("a") as file:
            file.writelines(f"{line}\n" for line in new)
        self.lines += new


def test_connect_delivers_each_line_once(broker: BrokerProcess, tmp_path: Path) -> None:
    source = LineFile(tmp_path / "lines.txt")
    create_topics(broker.bootstrap_servers, "lines")
    found: list[str] = []
    with ExitStack() as stack:
        with java_or_skip():
            worker = ConnectWorker(broker.bootstrap_servers, tmp_path)
        stack.enter_context(running(worker.process))
        worker.configure(
            "lines",
            {
                "connector.class": "FileStreamSource",
                "file": str(tmp_path / "lines.txt"),
                "topic": "lines",
                "exactly.once.support": "required",
                "transaction.boundary": "poll",
            },
        )
        output = CommittedReader(
            broker.bootstrap_servers, "lines", 1, lambda _partition, _key, value: found.append(value.decode())
        )
        stack.callback(output.close)
        for number in range(KILLS + 1):
            source.append(100)
            output.read(output.total + 1)
            source.append(400)  # the worker is killed while it reads these
            if number % 2 == 0:
                worker.process.kill()
                worker.process.spawn()
            else:
                broker.kill()
                broker.start()
        output.read(len(source.lines), to_the_end=True)
    assert found == source.lines


# -- Apache Flink


def test_flink_copies_each_record_once(broker: BrokerProcess, tmp_path: Path) -> None:
    create_topics(broker.bootstrap_servers, "input", "output")
    found: list[int] = []
    with ExitStack() as stack:
        with java_or_skip():
            arguments = [broker.bootstrap_servers, "input", "output", str(tmp_path / "checkpoints")]
            opened = ("java.util", "java.lang", "java.time")  # Flink's serializers look into these
            options = ["-Xmx512m", *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in opened)]
            job = JavaProcess("FlinkCopy", flink_jars(), arguments, tmp_path / "job.log", options)
        stack.enter_context(running(job))
        output = CommittedReader(
            broker.bootstrap_servers, "output", 1, lambda _partition, _key, value: found.append(int(value))
        )
        stack.callback(output.close)
        writer = stack.enter_context(
            SteadyWriter(broker.bootstrap_servers, "input", lambda number: (0, str(number).encode()), 0.01)
        )
        kill_both_in_turn(broker, job, output)
        count = writer.stop()
        output.read(count, to_the_end=True)
    assert found == list(range(count))
