"""The page on security: its node starts, and each of its commands does what it says."""

from __future__ import annotations

import json
import re
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.broker.config.kafka_config import KafkaConfig
from barnabas.broker.node.kafka_raft_server import KafkaRaftServer
from barnabas.broker.node.storage_formatter import format_storage
from barnabas.cli.main import run
from barnabas.common.properties import load_properties
from secured_node import store
from tls_fixtures import PKI

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
PASSWORD = "admin-secret"


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)


def here(text: str, directory: Path) -> str:
    """Replaces the directory and the ports of the page."""
    return re.sub(r":909\d", ":0", text.replace("/etc/barnabas", str(directory)))


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaRaftServer]:
    """The node of the page, as ``barnabas format --add-scram`` and ``barnabas start`` make it."""
    block, *_ = blocks("properties")
    (tmp_path / "authority.pem").write_text(PKI.authority.pem)
    store(tmp_path, PKI.server)
    monkeypatch.setenv("NODE_PASSWORD", "node-secret")
    monkeypatch.setenv("TOKEN_SECRET", "token-secret")
    path = tmp_path / "server.properties"
    path.write_text(here(block, tmp_path))
    config = KafkaConfig.from_properties(load_properties(path) | {"log.dirs": str(tmp_path / "data")})
    format_storage(config, add_scram=[f"SCRAM-SHA-512=[name=admin,password={PASSWORD}]"])
    server = KafkaRaftServer(config)
    server.startup()
    yield server
    server.shutdown()


def address(node: KafkaRaftServer, listener: str) -> str:
    assert node.broker is not None
    return next(f"localhost:{one.port}" for one in node.broker.advertised if one.listener_name == listener)


@pytest.mark.mechanism("A10", "A13")
def test_every_command_of_the_page(
    node: KafkaRaftServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    users = tmp_path / "users"
    users.write_text("bob=bob-secret\n")
    users.chmod(0o600)
    (tmp_path / "jwks.json").write_text(json.dumps({"keys": []}))
    monkeypatch.setenv("ALICE_PASSWORD", "alice-secret")
    (block,) = blocks("ini")
    admin = tmp_path / "admin.properties"
    admin.write_text(here(block, tmp_path).replace('password="..."', f'password="{PASSWORD}"'))
    monkeypatch.setenv("BARNABAS_COMMAND_CONFIG", str(admin))
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", address(node, "CLIENTS"))
    commands = [
        shlex.split(line)[1:]
        for block in blocks("sh")
        for line in here(block, tmp_path).replace("\\\n", "").splitlines()
        if line.startswith("barnabas ")
    ]
    assert {command[0] for command in commands} == {"doctor", "topics", "users", "acls", "tokens", "configs"}
    for command in commands:
        capsys.readouterr()
        status = run(command)
        shown = capsys.readouterr()
        assert status == 0, f"{command}: {shown.out}{shown.err}"
    host, _, port = address(node, "MUTUAL").rpartition(":")
    socket.create_connection((host, int(port)), 60).close()
