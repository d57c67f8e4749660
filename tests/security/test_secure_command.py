"""``barnabas secure`` makes all that a secured broker and its clients need."""

from __future__ import annotations

import socket
import ssl
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from benchmarks.broker_process import free_port
from confluent_kafka.admin import AdminClient

from barnabas import KafkaAdminClient
from barnabas.broker.config.kafka_config import KafkaConfig
from barnabas.broker.node.kafka_raft_server import KafkaRaftServer
from barnabas.broker.node.storage_formatter import format_storage
from barnabas.cli.main import run
from barnabas.common.errors import ClusterAuthorizationError, SaslAuthenticationError
from barnabas.common.properties import load_properties
from barnabas.protocol.framing import encode_request
from barnabas.protocol.messages.api_versions import ApiVersionsRequest

WAIT_S = 60


def free_pair() -> int:
    """A port whose successor is free, too."""
    while True:
        port = free_port()
        with suppress(OSError):
            socket.create_server(("127.0.0.1", port + 1)).close()
            return port


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Secrets of alice and bob, and a running broker made of them."""
    made = tmp_path_factory.mktemp("secure") / "secrets"
    command = ["secure", str(made), "--host", "localhost", "--user", "alice", "--user", "bob"]
    assert run([*command, "--port", str(free_pair())]) == 0
    config = KafkaConfig.from_properties(load_properties(made / "server.properties"))
    format_storage(config, add_scram=[f"@{made / 'users.scram'}"])
    server = KafkaRaftServer(config)
    server.startup()
    yield made
    server.shutdown()


@pytest.mark.mechanism("A01", "A06", "A10", "A13")
def test_our_client_connects_with_its_file(directory: Path) -> None:
    with KafkaAdminClient(load_properties(directory / "alice.properties")) as alice:
        alice.create_topics(["letters"])
        assert "letters" in alice.list_topics()


@pytest.mark.mechanism("A11")
def test_only_the_first_user_is_a_super_user(directory: Path) -> None:
    with (
        KafkaAdminClient(load_properties(directory / "bob.properties")) as bob,
        pytest.raises(ClusterAuthorizationError),
    ):
        bob.describe_acls()


def test_librdkafka_connects_with_its_file(directory: Path) -> None:
    lines = (directory / "alice.librdkafka.conf").read_text().splitlines()
    settings: dict[str, Any] = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
    assert AdminClient(settings).list_topics(timeout=WAIT_S).brokers
    assert confluent_kafka.version()


@pytest.mark.mechanism("A10")
def test_the_controller_wants_a_certificate(directory: Path) -> None:
    host, _, port = (
        load_properties(directory / "server.properties")["controller.quorum.voters"].partition("@")[2].rpartition(":")
    )
    context = ssl.create_default_context(cafile=str(directory / "authority.pem"))
    with pytest.raises(OSError, match=r"certificate|closed|reset"):  # TLS 1.3 reports it after the handshake
        exchange(host, int(port), context)
    context.load_cert_chain(directory / "alice.pem")
    exchange(host, int(port), context)


def exchange(host: str, port: int, context: ssl.SSLContext) -> None:
    """Asks for the versions, which need no right; raises ``OSError`` without a response."""
    with (
        socket.create_connection((host, port), WAIT_S) as plain,
        context.wrap_socket(plain, server_hostname=host) as wrapped,
    ):
        wrapped.sendall(encode_request(ApiVersionsRequest(), 0, 1, "test"))
        if not wrapped.recv(1):
            raise OSError("the controller has closed the connection")


@pytest.mark.mechanism("A12")
def test_files_are_private_and_never_overwritten(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in directory.iterdir() if path.is_file())
    assert run(["secure", str(directory), "--user", "alice", "--user", "carol"]) == 0
    after = {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}
    assert {name: after[name] for name in before} == before
    assert after.keys() - before.keys() == {"carol.pem", "carol.properties", "carol.librdkafka.conf"}
    shown = capsys.readouterr()
    for name in ("alice", "carol"):
        password = load_properties(directory / f"{name}.properties")["sasl.jaas.config"].split('password="')[1]
        assert password.partition('"')[0] not in shown.out + shown.err


def test_a_user_that_the_cluster_does_not_have_is_refused(directory: Path) -> None:
    settings = load_properties(directory / "alice.properties")
    settings["sasl.jaas.config"] = settings["sasl.jaas.config"].replace("alice", "mallory")
    with KafkaAdminClient(settings) as mallory, pytest.raises(SaslAuthenticationError):
        mallory.list_topics()
