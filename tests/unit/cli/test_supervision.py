"""For supervisors and scripts: notifications, a log of JSON, a quiet start, waiting for a broker, tables in a pipe."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
from itertools import takewhile
from pathlib import Path

import pytest
from benchmarks.broker_process import free_port

from barnabas import EmbeddedBroker, KafkaAdminClient
from barnabas.cli.service_manager import ServiceManager
from barnabas.clients.admin import NewTopic
from unit.cli.command_line import COMMAND, broker, environment, run

LIMIT_S = 120.0


class Supervisor:
    """The socket that systemd listens on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(LIMIT_S)

    def read(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self._socket.recv(4096).decode().splitlines())

    def close(self) -> None:
        self._socket.close()


def test_a_supervisor_hears_how_far_it_is(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path / "notify")
    env = environment(NOTIFY_SOCKET=str(supervisor.path), WATCHDOG_USEC="300000")
    with broker(tmp_path / "data", env=env) as terminal:
        address = terminal.bootstrap_servers
        assert supervisor.read() == {"READY": "1", "STATUS": f"Serving {address}"}
        assert [supervisor.read() for _ in range(3)] == 3 * [{"WATCHDOG": "1"}]
        terminal.signal(signal.SIGTERM)
        while (last := supervisor.read()) == {"WATCHDOG": "1"}:
            pass
        assert last["STOPPING"] == "1"
        assert terminal.wait() == 0
    supervisor.close()


def test_what_the_environment_says_about_the_supervisor() -> None:
    environment = {"NOTIFY_SOCKET": "@abstract", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1", "HOME": "/"}
    found = ServiceManager.of(environment)
    assert found is not None
    assert found.watchdog_s is None, "another process is watched"
    assert environment == {"HOME": "/"}, "children do not notify"
    assert ServiceManager.of({}) is None
    assert ServiceManager.of({"NOTIFY_SOCKET": "relative"}) is None


def test_a_supervisor_that_is_gone_is_no_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ServiceManager(str(tmp_path / "none")).ready("x")
    assert "Cannot notify the service manager" in caplog.text


def test_recovery_asks_for_more_time(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path / "notify")
    ServiceManager(str(supervisor.path)).progress("Recovered 1 of 2 logs")
    assert supervisor.read() == {"STATUS": "Recovered 1 of 2 logs", "EXTEND_TIMEOUT_USEC": "60000000"}
    supervisor.close()


def before_the_banner(text: str) -> list[str]:
    return [line for line in text.partition("\nBarnabas ")[0].splitlines() if line.strip()]


def test_a_start_takes_few_lines(tmp_path: Path) -> None:
    with broker(tmp_path / "data") as terminal:
        terminal.read_until("Ctrl-C stops it")
        few = before_the_banner(terminal.text)
        assert 0 < len(few) <= 5, few
        terminal.interrupt()
        assert terminal.wait() == 0
        # All lines again once it serves.
        assert "Shutting down after SIGINT" in terminal.text
    with broker(tmp_path / "data", "--log-level=info") as terminal:
        terminal.read_until("Ctrl-C stops it")
        assert len(before_the_banner(terminal.text)) > 30


def test_a_log_for_programs(tmp_path: Path) -> None:
    """A supervisor collects both streams, so no other text is on either."""
    process = subprocess.Popen(
        [*COMMAND, "start", "--port=0", f"--data-dir={tmp_path}", "--log-format=json", "--log-level=info"],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    first = list(takewhile(lambda line: "is running" not in line, process.stdout))
    process.send_signal(signal.SIGTERM)
    rest, _ = process.communicate(timeout=LIMIT_S)
    documents = [json.loads(line) for line in [*first, *rest.splitlines()]]
    assert len(documents) > 30
    assert all(set(one) == {"time", "level", "logger", "thread", "message"} for one in documents)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", documents[0]["time"])
    assert "Listening on" in " ".join(one["message"] for one in documents)


def test_the_doctor_waits_for_a_broker(tmp_path: Path) -> None:
    port = free_port()
    waiting = subprocess.Popen(
        [*COMMAND, "doctor", "-b", f"127.0.0.1:{port}", "--wait", "120", "--json"],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    with broker(tmp_path, f"--port={port}"):
        output, _ = waiting.communicate(timeout=LIMIT_S)
    assert waiting.returncode == 0
    assert {one["status"] for one in json.loads(output)} <= {"ok", "warning", "skipped"}
    gone = run("doctor", "-b", f"127.0.0.1:{port}", "--wait", "0.3")
    assert gone.returncode == 1
    assert gone.stdout.count("  tcp ") == 1, "the last try alone"
    assert run("doctor", "--wait", "-1").returncode == 2


def test_tables_in_a_pipe_are_not_wrapped() -> None:
    names = [f"{'a-topic-with-a-very-long-name-' * 6}{number}" for number in range(2)]
    with EmbeddedBroker() as started:
        with KafkaAdminClient(bootstrap_servers=started.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(name, 1, 1) for name in names])
        shown = run("topics", "list", "-b", started.bootstrap_servers, COLUMNS="").stdout
        narrow = run("topics", "list", "-b", started.bootstrap_servers, COLUMNS="80").stdout
    assert all(any(name in line for line in shown.splitlines()) for name in names)
    assert all(line == line.rstrip() for line in shown.splitlines())
    assert max(map(len, narrow.splitlines())) <= 80, "a width that is asked for is kept"
