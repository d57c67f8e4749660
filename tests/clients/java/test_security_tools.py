"""Kafka's tools for ACLs, SCRAM users and delegation tokens against a broker of ours, beside our own commands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas import EmbeddedBroker
from barnabas.cli.main import run as run_ours
from oracles.kafka_tools import KafkaTools, ToolFailedError

pytestmark = pytest.mark.java


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with EmbeddedBroker(
        overrides={
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "delegation.token.secret.key": "a key",
        }
    ) as broker:
        yield broker.bootstrap_servers


def ours(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    capsys.readouterr()
    assert run_ours([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.mechanism("A11")
def test_acls(tools: KafkaTools, bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Both tools mean the same ACLs by ``--producer`` and ``--consumer``, and see those of each other."""
    at = ("--bootstrap-server", bootstrap)
    producer = ("--allow-principal", "User:a", "--producer", "--topic", "t.", "--transactional-id", "x", "--idempotent")
    consumer = ("--allow-principal", "User:b", "--consumer", "--topic", "t", "--group", "g")
    tools.run("kafka-acls", *at, "--add", *producer, "--resource-pattern-type", "prefixed")
    tools.run("kafka-acls", *at, "--add", *consumer)
    tools.run("kafka-acls", *at, "--add", "--deny-principal", "User:c", "--deny-host", "192.0.2.1", "--cluster")
    by_kafka = ours(capsys, "acls", "list", "-b", bootstrap)
    assert len(by_kafka) == 10
    listed = tools.run("kafka-acls", *at, "--list")
    assert "principal=User:c, host=192.0.2.1, operation=ALL, permissionType=DENY" in listed
    everything = ("--topic", "t", "--topic", "t.", "--group", "g", "--transactional-id", "x", "--cluster")
    assert run_ours(["acls", "remove", *everything, "-b", bootstrap]) == 0
    assert "principal" not in tools.run("kafka-acls", *at, "--list")
    for arguments in (
        (*producer, "--pattern-type", "prefixed"),
        consumer,
        ("--deny-principal", "User:c", "--deny-host", "192.0.2.1", "--cluster"),
    ):
        assert run_ours(["acls", "add", *arguments, "-b", bootstrap]) == 0
    assert ours(capsys, "acls", "list", "-b", bootstrap) == by_kafka
    tools.run("kafka-acls", *at, "--remove", "--force", *everything, "--resource-pattern-type", "any")
    tools.run("kafka-acls", *at, "--remove", "--force", "--cluster")  # which the tool leaves out with other patterns
    assert ours(capsys, "acls", "list", "-b", bootstrap) == []


def test_scram_users(tools: KafkaTools, bootstrap: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    at = ("--bootstrap-server", bootstrap, "--entity-type", "users")
    secret = tmp_path / "secret"
    secret.write_text("a password")
    secret.chmod(0o600)
    config = "SCRAM-SHA-256=[iterations=8192,password=another],SCRAM-SHA-512=[password=another]"
    tools.run("kafka-configs", *at, "--alter", "--entity-name", "alice", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=another]")  # noqa: E501  # fmt: skip
    with pytest.raises(ToolFailedError):
        tools.run("kafka-configs", *at, "--alter", "--entity-name", "bob", "--add-config", config)
    assert run_ours(["users", "create", "alice", "--password-file", str(secret), "-b", bootstrap]) == 0
    assert ours(capsys, "users", "list", "-b", bootstrap) == {"alice": {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 4096}}
    described = tools.run("kafka-configs", *at, "--describe", "--entity-name", "alice")
    assert "SCRAM-SHA-256=iterations=8192" in described
    assert "SCRAM-SHA-512=iterations=4096" in described
    tools.run("kafka-configs", *at, "--alter", "--entity-name", "alice", "--delete-config", "SCRAM-SHA-256")
    assert run_ours(["users", "delete", "alice", "-b", bootstrap]) == 0
    assert "SCRAM" not in tools.run("kafka-configs", *at, "--describe", "--entity-name", "alice")


@pytest.mark.mechanism("A08")
def test_tokens_need_an_authenticated_connection(tools: KafkaTools, bootstrap: str, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.touch()
    for action in (("--create", "--max-life-time-period", "-1"), ("--describe",)):
        with pytest.raises(ToolFailedError, match="Delegation Token requests are not allowed"):
            tools.run(
                "kafka-delegation-tokens", "--bootstrap-server", bootstrap, "--command-config", str(config), *action
            )
