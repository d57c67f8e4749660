"""What the options of the source mean, and which are refused."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path
from typing import Any

import pytest

from barnabas.common.config_def import ConfigError
from barnabas.common.topic_partition import TopicPartition
from barnabas.spark.source_options import SourceOptions
from barnabas.spark.source_schema import check_schema, spark_schema
from barnabas.spark.starting_points import Point

_LEAST = {"kafka.bootstrap.servers": "one:9092", "subscribe": "t"}


def options(**given: str) -> SourceOptions:
    """The least that is needed, and what is given as well."""
    return SourceOptions.of(_LEAST | {name.replace("_", "."): value for name, value in given.items()})


def without(name: str, **given: str) -> SourceOptions:
    left = {key: value for key, value in _LEAST.items() if key != name}
    return SourceOptions.of(left | {key.replace("_", "."): value for key, value in given.items()})


def test_defaults() -> None:
    found = options()
    assert found.start is None
    assert found.end.offset == -1
    assert found.fail_on_data_loss
    assert found.commit_to_group is None
    assert found.fetch_offset_attempts == 4
    assert found.columns == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    assert not found.client.read_committed
    assert not found.push_down_filters


def test_they_travel() -> None:
    found = options(startingOffsets='{"t":{"0":5}}', includeHeaders="true")
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize(
    ("given", "point"),
    [
        ({"startingOffsets": "Earliest"}, Point("startingOffsets", offset=-2)),
        ({"startingOffsets": '{"t":{"1":7}}'}, Point("startingOffsets", offsets={TopicPartition("t", 1): 7})),
        (
            {"startingOffsetsByTimestamp": '{"t":{"1":7}}', "startingOffsets": "latest"},
            Point("startingOffsetsByTimestamp", timestamps={TopicPartition("t", 1): 7}),
        ),
        (
            {"startingTimestamp": "5", "startingOffsetsByTimestamp": '{"t":{"1":7}}'},
            Point("startingTimestamp", timestamp=5),
        ),
    ],
)
def test_the_start_by_precedence(given: dict[str, str], point: Point) -> None:
    assert options(**given).start == point


def test_durations() -> None:
    for text, milliseconds in (("15m", 900_000), ("30 s", 30_000), ("250", 250), ("2H", 7_200_000), ("1d", 86_400_000)):
        assert options(minOffsetsPerTrigger="1", maxTriggerDelay=text).max_trigger_delay_ms == milliseconds


def test_settings_of_the_client_are_honoured() -> None:
    client = options(
        kafka_client_id="billing",
        kafka_client_rack="r1",
        kafka_isolation_level="read_committed",
        kafka_fetch_min_bytes="2",
        kafka_fetch_max_bytes="3",
        kafka_fetch_max_wait_ms="4",
        kafka_max_partition_fetch_bytes="5",
        kafka_check_crcs="false",
        kafka_request_timeout_ms="6",
        kafka_default_api_timeout_ms="7",
        kafka_retry_backoff_ms="8",
        kafka_retry_backoff_max_ms="9",
        kafka_reconnect_backoff_ms="10",
        kafka_reconnect_backoff_max_ms="11",
        kafka_socket_connection_setup_timeout_ms="12",
        kafka_socket_connection_setup_timeout_max_ms="13",
        kafka_send_buffer_bytes="14",
        kafka_receive_buffer_bytes="15",
        kafka_local_socket_enable="false",
    ).client
    assert (client.client_rack, client.read_committed, client.check_crcs) == ("r1", True, False)
    assert (client.fetch_min_bytes, client.fetch_max_bytes, client.fetch_max_wait_ms) == (2, 3, 4)
    assert (client.max_partition_fetch_bytes, client.default_api_timeout_ms) == (5, 7)
    assert (client.retry_backoff_ms, client.retry_backoff_max_ms) == (8, 9)
    network = client.network_config()
    assert (network.client_id, network.request_timeout_ms) == ("billing", 6)
    assert (network.reconnect_backoff_ms, network.reconnect_backoff_max_ms) == (10, 11)
    assert (network.socket_connection_setup_timeout_ms, network.socket_connection_setup_timeout_max_ms) == (12, 13)
    assert (network.send_buffer_bytes, network.receive_buffer_bytes) == (14, 15)
    assert (network.local_socket_enable, network.local_send_buffer_bytes) == (False, 14)
    network = options().client.network_config()
    assert (network.local_socket_enable, network.local_send_buffer_bytes) == (True, 4 * 1024 * 1024)


def test_what_has_no_effect_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        options(kafka_max_poll_records="500", groupIdPrefix="x", maxTriggerDelay="1s")
        options(maxOffsetsPerTrigger="1", commitOffsetsToGroup="false").check_batch()
        options(pushDownFilters="true").check_stream()
    said = caplog.text
    for name in (
        "kafka.max.poll.records",
        "groupIdPrefix",
        "maxTriggerDelay",
        "maxOffsetsPerTrigger",
        "commitOffsetsToGroup",
        "pushDownFilters",
    ):
        assert f"ption {name} " in said


def test_groups() -> None:
    assert options(groupId="g").commit_to_group == "g"
    assert options(kafka_group_id="g").commit_to_group == "g"
    assert options(kafka_group_id="g", groupId="g", commitOffsetsToGroup="true").commit_to_group == "g"
    assert options(kafka_group_id="g", commitOffsetsToGroup="false").commit_to_group is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"startingOffsets": "newest"}, "startingOffsets must be JSON such as"),
        ({"startingOffsets": "[1]"}, "startingOffsets must be JSON such as"),
        ({"startingOffsets": '{"t":3}'}, "t must be an object of partitions"),
        ({"startingOffsets": '{"t":{"x":3}}'}, "'x' is not a partition"),
        ({"startingOffsets": '{"t":{"0":-3}}'}, "-3 is not a valid value for t-0"),
        ({"startingOffsets": '{"t":{"0":true}}'}, "True is not a valid value"),
        ({"startingOffsetsByTimestamp": '{"t":{"0":-1}}'}, "-1 is not a valid value"),
        ({"startingTimestamp": "noon"}, "milliseconds since 1970"),
        ({"startingTimestamp": "5", "startingOffsets": "newest"}, "startingOffsets must be JSON"),
        ({"startingOffsetsByTimestampStrategy": "skip"}, "error or latest"),
        ({"endingOffsets": "earliest"}, "endingOffsets can't be earliest"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, r"endingOffsets for t-0 can't be earliest \(-2\)"),
        ({"failOnDataLoss": "yes"}, "true or false, not 'yes'"),
        ({"maxOffsetsPerTrigger": "0"}, "at least 1, not '0'"),
        ({"maxBytesPerTrigger": "1MB"}, "whole number"),
        ({"minPartitions": "-1"}, "at least 1"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "must not be greater"),
        ({"minOffsetsPerTrigger": "5", "maxTriggerDelay": "soon"}, "such as 15m"),
        ({"commitOffsetsToGroup": "true"}, "groupId is not set"),
        ({"groupId": "a", "kafka_group_id": "b"}, "groupId is a, but kafka.group.id is b"),
        ({"columns": "value,value"}, "names value twice"),
        ({"columns": "value", "includeHeaders": "true"}, "columns does not name headers"),
        ({"includeHeader": "true"}, "Did you mean includeHeaders"),
        ({"kafka_key_deserializer": "x"}, "kafka.key.deserializer is not supported"),
        ({"kafka_value_deserializer": "x"}, "kafka.value.deserializer is not supported"),
        ({"kafka_enable_auto_commit": "true"}, "kafka.enable.auto.commit is not supported"),
        ({"kafka_auto_offset_reset": "latest"}, "kafka.auto.offset.reset is not supported"),
        ({"kafka_interceptor_classes": "x"}, "kafka.interceptor.classes is not supported"),
        ({"kafka_isolation_level": "dirty"}, "isolation.level"),
        ({"kafka_security_protocol": "TLS"}, "security.protocol cannot be TLS"),
        ({"kafka_bootstrap_servers": "nowhere"}, "host:port"),
        ({"kafka_fetch_maximum_bytes": "1"}, "no Kafka option kafka.fetch.maximum.bytes"),
    ],
)
def test_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        options(**given)


def test_what_to_read() -> None:
    with pytest.raises(ConfigError, match="One of the options assign, subscribe, subscribePattern must"):
        without("subscribe")
    with pytest.raises(ConfigError, match="not subscribe and subscribePattern"):
        options(subscribePattern="x")
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers must be specified"):
        without("kafka.bootstrap.servers")
    assert without("subscribe", subscribe=" a, b ,a").subscription.topics == ("a", "b")
    assigned = without("subscribe", assign='{"b":[1],"a":[2,0]}').subscription
    assert assigned.partitions == (TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1))
    assert assigned.topic_names == ("a", "b")
    wrong: Any
    for wrong in ('{"a":0}', '{"a":["0"]}', '{"a":[0,0]}', "{}", "a"):
        with pytest.raises(ConfigError, match="assign"):
            without("subscribe", assign=wrong)
    pattern = without("subscribe", subscribePattern="a.*").subscription
    assert pattern.matches("ab", is_internal=False)
    assert not pattern.matches("ba", is_internal=False)
    assert not pattern.matches("a", is_internal=True)
    with pytest.raises(ConfigError, match="not a regular expression"):
        without("subscribe", subscribePattern="(")


def test_batches_and_streams() -> None:
    with pytest.raises(ConfigError, match="can't be latest"):
        options(startingOffsets="latest").check_batch()
    with pytest.raises(ConfigError, match=r"t-0 can't be latest \(-1\)"):
        options(startingOffsets='{"t":{"0":-1}}').check_batch()
    for name, value in (("endingOffsets", "latest"), ("endingTimestamp", "1")):
        with pytest.raises(ConfigError, match=f"{name} is not valid in streaming queries"):
            options(**{name: value}).check_stream()
    options(startingOffsets="latest").check_stream()
    options(endingOffsets="latest").check_batch()


def test_a_schema_of_ones_own_is_refused() -> None:
    names = options(columns="value,offset").columns
    check_schema(spark_schema(names), names)
    with pytest.raises(ConfigError, match="fixed schema"):
        check_schema(spark_schema(("value",)), names)


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("bootstrapServers", "kafka.bootstrap.servers"),
        ("bootstrap.servers", "kafka.bootstrap.servers"),
        ("bootstrap_servers", "kafka.bootstrap.servers"),
        ("securityProtocol", "kafka.security.protocol"),
        ("startingOffset", "startingOffsets"),
        ("topics", None),
    ],
)
def test_what_was_probably_meant(name: str, suggestion: str | None) -> None:
    with pytest.raises(ConfigError) as refused:
        SourceOptions.of(_LEAST | {name: "one:9092"})
    hint = "" if suggestion is None else f" Did you mean {suggestion}?"
    assert str(refused.value) == f"There is no option {name} for this source.{hint}"


@pytest.mark.mechanism("S13")
def test_variables_are_looked_up_where_a_client_is_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text("name=reader\n")
    given = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "SCRAM-SHA-256",
        "kafka.sasl.username": f"${{file:{file}:name}}",
        "kafka.sasl.password": "${env:READER_PASSWORD}",
        "kafka.client.id": f"${{dir:{tmp_path}:id}}",
    }
    (tmp_path / "id").write_text("spark-7")
    with pytest.raises(
        ConfigError, match=r"sasl.password has the variable \$\{env:READER_PASSWORD\}, which has no value"
    ):
        SourceOptions.of(_LEAST | given)
    monkeypatch.setenv("READER_PASSWORD", "open-sesame")
    found = SourceOptions.of(_LEAST | given)
    assert found.client.client_id == "spark-7"
    assert "open-sesame" not in repr(found)
    travelling = pickle.dumps(found)
    assert b"open-sesame" not in travelling
    assert b"READER_PASSWORD" in travelling
    pickle.loads(travelling).client.security.channel_factory()
    monkeypatch.delenv("READER_PASSWORD")
    with pytest.raises(ConfigError, match="has no value"):  # of another machine, for example
        pickle.loads(travelling).client.security.channel_factory()


@pytest.mark.mechanism("S13")
def test_config_providers_as_kafka_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("READER_ID", "spark-8")
    given = {
        "kafka.config.providers": "vault",
        "kafka.config.providers.vault.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
        "kafka.config.providers.vault.param.allowlist.pattern": "READER_.*",
        "kafka.client.id": "${vault:READER_ID}${env:HOME}",
    }
    assert SourceOptions.of(_LEAST | given).client.client_id == "spark-8${env:HOME}"
