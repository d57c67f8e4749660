"""``barnabas doctor``: each thing that can be wrong is found, and said what it is."""

from __future__ import annotations

import importlib.util
import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from benchmarks.broker_process import free_port

from barnabas import EmbeddedBroker, _kernels
from barnabas.cli.main import run
from barnabas.clients.admin import KafkaAdminClient

WAIT_S = 60


class Doctor:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, address: str, expect: int, timeout_s: int = WAIT_S) -> dict[str, dict[str, Any]]:
        """The findings, by step."""
        code = run(["doctor", "-b", address, "--timeout", str(timeout_s), "--json"])
        out, err = self._capsys.readouterr()
        assert code == expect, out + err
        return {finding["step"]: finding for finding in json.loads(out)}

    def text(self, address: str) -> str:
        run(["doctor", "-b", address, "--timeout", str(WAIT_S)])
        return self._capsys.readouterr().out


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str]) -> Doctor:
    return Doctor(capsys)


@contextmanager
def listener(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """Something that is no broker, at an address."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(WAIT_S)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection, suppress(OSError):
                        serve(connection)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def refusing_port() -> Iterator[int]:
    """A port that nobody listens at, and that nobody else can get meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def test_all_is_well(doctor: Doctor) -> None:
    with EmbeddedBroker() as broker:
        findings = doctor(broker.bootstrap_servers, 0)
        statuses = {finding["status"] for finding in findings.values()}
        assert statuses == ({"ok", "warning"} if _kernels.PURE else {"ok"}), "it warns of Python twins"
        assert "advertised, broker 1" in findings
        assert "controller" in findings
        assert "no authorizer" in findings["access"]["what"]
        text = doctor.text(broker.bootstrap_servers)
        remedies = sum(finding["status"] != "ok" for finding in findings.values())
        assert len(text.splitlines()) == len(findings) + remedies, "one line each, and one for a remedy"


def test_the_address_is_none(doctor: Doctor) -> None:
    assert "host:port" in doctor("localhost", 1)["address"]["remedy"]


def test_the_name_is_not_known(doctor: Doctor) -> None:
    finding = doctor("no-such-host.invalid:9092", 1)["dns no-such-host.invalid"]
    assert finding["status"] == "error"
    assert "/etc/hosts" in finding["remedy"]


def test_nothing_listens(doctor: Doctor, refusing_port: int) -> None:
    port = refusing_port
    findings = doctor(f"127.0.0.1:{port}", 1)
    assert "refuses connections" in findings[f"tcp 127.0.0.1:{port}"]["what"]
    assert "check that the broker runs" in findings[f"tcp 127.0.0.1:{port}"]["remedy"]
    assert not any(step.startswith("protocol") for step in findings), "it ends there"


def test_it_is_a_web_server(doctor: Doctor) -> None:
    with listener(lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as address:
        finding = doctor(address, 1)[f"protocol {address}"]
        assert "HTTP" in finding["what"]


def test_it_hangs_up(doctor: Doctor) -> None:
    with listener(lambda _connection: None) as address:
        assert "closed the connection" in doctor(address, 1)[f"protocol {address}"]["what"]


def test_it_says_nothing(doctor: Doctor) -> None:
    released = threading.Event()

    def serve(_connection: socket.socket) -> None:
        released.wait(WAIT_S)

    with listener(serve) as address:
        assert "does not respond" in doctor(address, 1, timeout_s=1)[f"protocol {address}"]["what"]
        released.set()


def test_it_expects_tls(doctor: Doctor, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "1",
        "-subj",
        "/CN=localhost",
        "-keyout",
    ]
    try:
        subprocess.run([*command, key, "-out", certificate], check=True, capture_output=True, timeout=WAIT_S)
    except FileNotFoundError:
        pytest.skip("there is no openssl here")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    def serve(connection: socket.socket) -> None:
        connection.settimeout(WAIT_S)
        with context.wrap_socket(connection, server_side=True) as secure:
            secure.recv(1)

    with listener(serve) as address:
        finding = doctor(address, 1)[f"protocol {address}"]
        assert finding["what"] == "the listener uses TLS"
        assert "security.protocol=SSL" in finding["remedy"]


def test_it_is_the_controller(doctor: Doctor) -> None:
    with EmbeddedBroker() as broker:
        with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
            ((listener_address,),) = admin.describe_metadata_quorum().nodes.values()
        address = listener_address.removeprefix("CONTROLLER://")
        assert "a controller's listener" in doctor(address, 1)[f"protocol {address}"]["what"]


def test_the_advertised_address_cannot_be_reached(doctor: Doctor, refusing_port: int) -> None:
    """The classical mistake: the bootstrap address works, and nothing after it."""
    port, wrong = free_port(), refusing_port
    with EmbeddedBroker(
        overrides={
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{wrong}",
        }
    ):
        findings = doctor(f"127.0.0.1:{port}", 1)
        assert findings[f"protocol 127.0.0.1:{port}"]["status"] == "ok"
        assert findings["metadata"]["status"] == "ok"
        finding = findings["advertised, broker 1"]
        assert finding["status"] == "error"
        assert f"127.0.0.1:{wrong} refuses connections" in finding["what"]
        assert "advertised.listeners" in finding["remedy"]


def test_several_addresses(doctor: Doctor, refusing_port: int) -> None:
    with EmbeddedBroker() as broker:
        port = refusing_port
        findings = doctor(f"127.0.0.1:{port},{broker.bootstrap_servers}", 1)
        assert findings[f"tcp 127.0.0.1:{port}"]["status"] == "error"
        assert findings["metadata"]["status"] == "ok", "the other one is enough to go on"


def test_the_installation(doctor: Doctor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(_kernels, "PURE", True)
    findings = doctor("127.0.0.1:1", 1)
    assert findings["barnabas"]["status"] == "warning"
    assert "pure Python (BARNABAS_PURE=1), Python 3." in findings["barnabas"]["what"]
    if importlib.util.find_spec("pyspark") is not None:
        assert findings["java"]["what"] == f"Java 17 ({java}), for Spark"
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
        findings = doctor("127.0.0.1:1", 1)
        assert findings["java"]["status"] == "warning"
        assert "where there is no Java" in findings["java"]["what"]
