"""What the sink can be told, and what it says to the rest."""

from __future__ import annotations

import pickle

import pytest

from barnabas.clients.common.client_config import client_properties
from barnabas.common.config_def import ConfigError
from barnabas.spark.sink_options import SinkOptions, TwoPhaseCommit

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def test_defaults() -> None:
    stream = SinkOptions.of(SERVERS, is_stream=True)
    assert stream.exactly_once
    assert stream.topic is None
    assert stream.prefix == "barnabas-spark"
    assert stream.two_phase_commit is TwoPhaseCommit.AUTO
    assert not SinkOptions.of(SERVERS, is_stream=False).exactly_once
    assert SinkOptions.of({**SERVERS, "exactlyOnce": "true"}, is_stream=False).exactly_once
    assert pickle.loads(pickle.dumps(stream)) == stream


def test_kafka_options_go_to_the_producer() -> None:
    options = SinkOptions.of(
        {**SERVERS, "kafka.Linger.ms": "7", "kafka.compression.type": "zstd", "kafka.retry.backoff.ms": "11"},
        is_stream=True,
    )
    properties = options.settings.of_transactions("t-1", two_phase_commit=False)
    assert properties == {
        "bootstrap.servers": "127.0.0.1:9092",
        "client.id": "barnabas-spark-sink",
        "enable.metrics.push": "false",
        "linger.ms": "7",
        "compression.type": "zstd",
        "retry.backoff.ms": "11",
        "transactional.id": "t-1",
        "transaction.timeout.ms": "900000",
    }
    assert options.settings.client.retry_backoff_ms == 11
    with_two_phases = options.settings.of_transactions("t-1", two_phase_commit=True)
    assert with_two_phases["transaction.two.phase.commit.enable"] == "true"
    assert "transaction.timeout.ms" not in with_two_phases


def test_a_transaction_timeout_rules_out_two_phase_commit() -> None:
    given = {**SERVERS, "kafka.transaction.timeout.ms": "60000"}
    options = SinkOptions.of(given, is_stream=True)
    assert options.two_phase_commit is TwoPhaseCommit.NEVER
    properties = options.settings.of_transactions("t", two_phase_commit=False)
    assert properties["transaction.timeout.ms"] == "60000"
    with pytest.raises(ConfigError, match="cannot be set if twoPhaseCommit is true"):
        SinkOptions.of({**given, "twoPhaseCommit": "true"}, is_stream=True)


def test_what_spark_adds_is_let_through() -> None:
    SinkOptions.of({**SERVERS, "checkpointLocation": "/c", "path": "/p", "queryName": "q"}, is_stream=True)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "kafka.bootstrap.servers must be specified"),
        ({**SERVERS, "kafka.key.serializer": "x"}, "kafka.key.serializer is not supported here. Keys are"),
        ({**SERVERS, "kafka.value.serializer": "x"}, "kafka.value.serializer is not supported"),
        ({**SERVERS, "kafka.interceptor.classes": "x"}, "kafka.interceptor.classes is not supported"),
        ({**SERVERS, "kafka.transactional.id": "x"}, "set transactionalIdPrefix instead"),
        ({**SERVERS, "kafka.transaction.two.phase.commit.enable": "true"}, "Set the option twoPhaseCommit instead"),
        ({**SERVERS, "kafka.linger": "5"}, "no Kafka option kafka.linger for this sink. Did you mean kafka.linger.ms"),
        ({**SERVERS, "kafka.linger.ms": "soon"}, "linger.ms"),
        ({**SERVERS, "kafka.acks": "1"}, "without also enabling idempotence"),
        ({**SERVERS, "kafka.enable.idempotence": "false"}, "without also enabling idempotence"),
        ({**SERVERS, "topics": "x"}, "no option topics for this sink. Did you mean topic"),
        ({**SERVERS, "topic": " "}, "topic is empty"),
        ({**SERVERS, "transactionalIdPrefix": ""}, "transactionalIdPrefix is empty"),
        ({**SERVERS, "exactlyOnce": "yes"}, "exactlyOnce must be true or false, not 'yes'"),
        ({**SERVERS, "twoPhaseCommit": "maybe"}, "twoPhaseCommit must be auto, true or false"),
    ],
)
def test_what_is_wrong_is_told(given: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        SinkOptions.of(given, is_stream=True)


def test_weaker_acks_go_with_at_least_once() -> None:
    options = SinkOptions.of({**SERVERS, "kafka.acks": "1"}, is_stream=False)
    assert options.settings.properties["acks"] == "1"


@pytest.mark.mechanism("S13")
def test_variables_are_looked_up_by_the_producer_of_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WRITER_PASSWORD", "open-sesame")
    given = {
        **SERVERS,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "SCRAM-SHA-256",
        "kafka.sasl.username": "writer",
        "kafka.sasl.password": "${env:WRITER_PASSWORD}",
    }
    options = SinkOptions.of(given, is_stream=True)
    assert b"open-sesame" not in pickle.dumps(options)
    properties = options.settings.of_transactions("t-1", two_phase_commit=False)
    assert properties["sasl.password"] == "${env:WRITER_PASSWORD}"
    assert "open-sesame" in str(client_properties(properties, {})["sasl.jaas.config"].value)  # type: ignore[attr-defined]
    monkeypatch.delenv("WRITER_PASSWORD")
    with pytest.raises(ConfigError, match="has no value"):
        SinkOptions.of(given, is_stream=True)


def test_what_was_probably_meant() -> None:
    with pytest.raises(
        ConfigError, match=r"no option bootstrapServers for this sink. Did you mean kafka.bootstrap.serv"
    ):
        SinkOptions.of({**SERVERS, "bootstrapServers": "one:1"}, is_stream=False)
    SinkOptions.of({**SERVERS, "path": "t", "checkpointLocation": "a-folder"}, is_stream=True)  # Spark's own
