"""``barnabas container``: the variables of Apache Kafka's image configure a broker."""

from __future__ import annotations

import json
import signal
import urllib.request
from pathlib import Path

import pytest
from benchmarks.broker_process import free_port
from benchmarks.wire_client import WireClient

from barnabas.cli.console import UsageError
from barnabas.cli.container import DEFAULT_CLUSTER_ID, container_settings, level_of, settings_of
from unit.cli.command_line import Terminal, environment, run

CLUSTER_ID = "kT3pXo0zQZ2Jc5V7mWn1aA"


def variables(data: Path, **more: str) -> dict[str, str]:
    """As in the examples of Apache Kafka's image for one node, but with free ports."""
    client, controller, http = free_port(), free_port(), free_port()
    return environment(
        BARNABAS_DATA_DIR=str(data),
        CLUSTER_ID=CLUSTER_ID,
        KAFKA_NODE_ID="7",
        KAFKA_PROCESS_ROLES="broker,controller",
        KAFKA_LISTENERS=f"PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}",
        KAFKA_ADVERTISED_LISTENERS=f"PLAINTEXT://localhost:{client}",
        KAFKA_CONTROLLER_LISTENER_NAMES="CONTROLLER",
        KAFKA_LISTENER_SECURITY_PROTOCOL_MAP="CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        KAFKA_CONTROLLER_QUORUM_VOTERS=f"7@127.0.0.1:{controller}",
        KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR="1",
        KAFKA_NUM_PARTITIONS="3",
        KAFKA_BARNABAS_HTTP_LISTENER=f"127.0.0.1:{http}",
        KAFKA_HEAP_OPTS="-Xmx1g",
        **more,
    )


def test_a_broker_in_a_container(tmp_path: Path) -> None:
    env = variables(tmp_path / "data")
    with Terminal("container", env=env) as terminal:
        address = terminal.bootstrap_servers
        assert address.startswith("localhost:"), "the advertised one"
        with WireClient(address) as client:
            assert client.metadata().cluster_id == CLUSTER_ID
            assert [broker.node_id for broker in client.metadata().brokers] == [7]
        with urllib.request.urlopen(f"{terminal.http_address}/health", timeout=60) as response:
            assert json.load(response)["status"] == "up", "what the image's health check asks for"
        assert "no Java virtual machine: KAFKA_HEAP_OPTS" in terminal.text
        terminal.signal(signal.SIGTERM)
        assert terminal.wait() == 0
    # The second start finds formatted directories; those of another cluster are refused.
    with Terminal("container", env=env) as terminal:
        _ = terminal.bootstrap_servers
        terminal.signal(signal.SIGTERM)
        assert terminal.wait() == 0
    other = run("container", **{**env, "CLUSTER_ID": "9mFvG2hTS0uYb4LqRe8wDg"})
    assert other.returncode == 1
    assert "9mFvG2hTS0uYb4LqRe8wDg" in other.stderr


def test_without_variables_it_is_one_node_as_in_the_image_of_kafka(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BARNABAS_DATA_DIR", str(tmp_path / "data"))
    config = container_settings({}, tmp_path, tmp_path)
    assert [(one.host, one.port) for one in config.advertised_listeners] == [("localhost", 9092)]
    assert config.listeners[0].host in {"", "0.0.0.0"}
    assert config.value("barnabas.http.listener") == "127.0.0.1:9644"
    assert config.log_dirs == (tmp_path / "data",)
    # With some settings it is still that node; Apache Kafka's image would refuse to start.
    config = container_settings(
        {"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka.example.com:9092"}, tmp_path, tmp_path
    )
    assert [(one.host, one.port) for one in config.advertised_listeners] == [("kafka.example.com", 9092)]
    assert next((one.host, one.port) for one in config.listeners) == ("0.0.0.0", 9092)
    assert len(DEFAULT_CLUSTER_ID) == len(CLUSTER_ID)


def test_variables_override_the_mounted_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARNABAS_DATA_DIR", str(tmp_path / "data"))
    (tmp_path / "server.properties").write_text("num.partitions=4\nlog.retention.hours=5\n")
    config = container_settings({"KAFKA_NUM_PARTITIONS": "8"}, tmp_path, tmp_path)
    assert (config.value("num.partitions"), config.value("log.retention.hours")) == (8, 5)


def test_names() -> None:
    given = {
        "KAFKA_LOG_RETENTION_MS": "1",
        "KAFKA_LISTENER_NAME_HOST_SASL_ENABLED_MECHANISMS": "PLAIN",
        "KAFKA_LISTENER_NAME_SASL__SSL_PLAIN_SASL_JAAS_CONFIG": "x",
        "KAFKA_LISTENER_NAME_A___B_SSL_CLIENT_AUTH": "required",
        "KAFKA_OPTS": "-Djava.security.auth.login.config=x",
        "KAFKA_SSL_KEYSTORE_FILENAME": "a.p12",
        "KAFKA_VERSION": "4.3.1",
        "PATH": "/bin",
    }
    assert settings_of(given) == {
        "log.retention.ms": "1",
        "listener.name.host.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": "x",
        "listener.name.a-b.ssl.client.auth": "required",
    }
    assert (level_of({}), level_of({"KAFKA_LOG4J_ROOT_LOGLEVEL": "WARN"})) == (None, "warning")


def test_stores_come_from_the_directory_of_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARNABAS_DATA_DIR", str(tmp_path / "data"))
    (tmp_path / "broker.p12").touch()
    (tmp_path / "password").write_text("secret\n")
    config = container_settings(
        {
            "KAFKA_SSL_KEYSTORE_FILENAME": "broker.p12",
            "KAFKA_SSL_KEYSTORE_CREDENTIALS": "password",
            "KAFKA_SSL_KEYSTORE_TYPE": "PKCS12",
        },
        tmp_path / "none",
        tmp_path,
    )
    assert config.value("ssl.keystore.location") == str(tmp_path / "broker.p12")
    assert config.value("ssl.keystore.password").value == "secret"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"KAFKA_SSL_KEYSTORE_FILENAME": "none.p12"}, "KAFKA_SSL_KEYSTORE_FILENAME: file not found"),
        ({"KAFKA_NUM_PARTITIONS": "many"}, "num.partitions"),
        (
            {"KAFKA_PROCESS_ROLES": "controller", "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://a:1"},
            "must not be set for a node that is only a controller",
        ),
    ],
)
def test_mistakes_are_named(
    given: dict[str, str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BARNABAS_DATA_DIR", str(tmp_path))
    with pytest.raises(UsageError, match=message):
        container_settings(given, tmp_path, tmp_path)
    with pytest.raises(UsageError, match="must be one of TRACE"):
        level_of({"KAFKA_LOG4J_ROOT_LOGLEVEL": "LOUD"})
    assert list(tmp_path.iterdir()) == []
