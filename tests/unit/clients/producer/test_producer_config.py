"""The settings of a producer."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.clients.producer.producer_config import CONFIG, ProducerConfig
from barnabas.clients.testing import ScriptedCluster
from barnabas.common.config_def import NO_DEFAULT, ConfigError, Type
from barnabas.records.batch import CompressionType
from oracles.producer import ProducerOracle

# What is different on purpose: classes are Python's, and bytes need no serializer.
OUR_DEFAULTS = {
    "key.serializer": "NONE GIVEN",
    "value.serializer": "NONE GIVEN",
    "metric.reporters": "[org.apache.kafka.common.metrics.JmxReporter]",
    "sasl.oauthbearer.jwt.retriever.class": "class org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
    "sasl.oauthbearer.jwt.validator.class": "class org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
}
# What Kafka has not.
OUR_SETTINGS = {"batch.max.size", "local.socket.enable"}


def config(**settings: Any) -> ProducerConfig:
    return ProducerConfig.of(bootstrap_servers="localhost:9092", **settings)


def java_text(value: object) -> str:
    if value is NO_DEFAULT:
        return "NONE GIVEN"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return str(value)


@pytest.mark.java
@pytest.mark.mechanism("P11")
def test_all_of_kafkas_settings(producer_oracle: ProducerOracle) -> None:
    theirs = producer_oracle.config()
    assert sorted(CONFIG.keys.keys() - OUR_SETTINGS) == sorted(theirs)
    for name, row in theirs.items():
        ours = CONFIG.keys[name]
        assert ours.type is Type[row["type"]], name
        assert ours.importance.name == row["importance"], name
        assert ours.internal == row["internal"], name
        if name in OUR_DEFAULTS:
            assert row["default"] == OUR_DEFAULTS[name], "the difference is gone: so should be the exception"
        else:
            assert java_text(ours.default) == row["default"], name
        # A list that may be empty says nothing about itself; the order within a set is anybody's.
        assert sorted(ours.valid_values) == sorted(row["validator"].replace("null", "")), name


def test_defaults_of_the_document() -> None:
    made = config()
    assert (made.acks, made.enable_idempotence, made.batch_size, made.linger_ms) == (-1, True, 16_384, 5)
    assert (made.buffer_memory, made.max_block_ms, made.max_in_flight) == (33_554_432, 60_000, 5)
    assert (made.retries, made.delivery_timeout_ms, made.request_timeout_ms) == (2_147_483_647, 120_000, 30_000)
    assert (made.retry_backoff_ms, made.compression, made.max_request_size) == (100, CompressionType.NONE, 1_048_576)
    assert made.adaptive_partitioning
    assert not made.partitioner_ignore_keys
    assert (made.partition_availability_timeout_ms, made.transactional_id) == (0, None)
    assert made.transaction_timeout_ms == 60_000


def test_both_spellings() -> None:
    made = ProducerConfig.of({"linger.ms": "7", "bootstrap.servers": "a:1,b:2"}, batch_size=100, acks=1)
    assert (made.linger_ms, made.batch_size, made.acks, made.bootstrap_servers) == (7, 100, 1, ("a:1", "b:2"))
    assert ProducerConfig.of(bootstrap_servers=["a:1", "b:2"]).bootstrap_servers == ("a:1", "b:2")
    with pytest.raises(ConfigError, match=r"given twice"):
        ProducerConfig.of({"linger.ms": 1, "bootstrap.servers": "a:1"}, linger_ms=2)
    with pytest.raises(TypeError, match="lingers_ms"):
        config(lingers_ms=2)
    with pytest.raises(ConfigError, match=r"linger\.ms\?"):
        ProducerConfig.of({"linger_ms": 1})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"linger_ms": -1}, r"linger\.ms cannot be -1: it must be at least 0"),
        ({"acks": "2"}, r"acks cannot be 2: it must be one of all, -1, 0, 1"),
        ({"compression_type": "brotli"}, r"compression\.type cannot be brotli"),
        ({"compression_gzip_level": 10}, r"compression\.gzip\.level"),
        ({"max_in_flight_requests_per_connection": 0}, "at least 1"),
        ({"transactional_id": ""}, "must not be empty"),
        ({"security_protocol": "TLS"}, r"security\.protocol cannot be TLS"),
        ({"transaction_two_phase_commit_enable": True, "transaction_timeout_ms": 1}, "has no timeout"),
    ],
)
def test_wrong_values(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(**settings)


@pytest.mark.mechanism("P11")
@pytest.mark.parametrize("settings", [{"acks": "1"}, {"acks": "0"}, {"retries": 0}])
def test_idempotence_gives_way_unless_asked_for(settings: dict[str, Any]) -> None:
    assert not config(**settings).enable_idempotence
    with pytest.raises(ConfigError, match="idempotent producer"):
        config(enable_idempotence=True, **settings)
    with pytest.raises(ConfigError, match="without also enabling idempotence"):
        config(transactional_id="t", **settings)


@pytest.mark.mechanism("P11")
def test_at_most_five_in_flight() -> None:
    assert config(max_in_flight_requests_per_connection=5).enable_idempotence
    with pytest.raises(ConfigError, match="at most 5"):
        config(max_in_flight_requests_per_connection=6)
    assert config(max_in_flight_requests_per_connection=6, enable_idempotence=False).max_in_flight == 6
    assert config(max_in_flight_requests_per_connection=1).guarantee_message_order


@pytest.mark.mechanism("P11")
def test_the_delivery_deadline_covers_a_request() -> None:
    with pytest.raises(ConfigError, match=r"linger\.ms \+ request\.timeout\.ms"):
        config(delivery_timeout_ms=30_000, request_timeout_ms=30_000, linger_ms=1)
    assert config(request_timeout_ms=200_000, linger_ms=10).delivery_timeout_ms == 200_010
    assert config(delivery_timeout_ms=30_001, request_timeout_ms=30_000, linger_ms=1).delivery_timeout_ms == 30_001


def test_client_ids() -> None:
    first, second = config().client_id, config().client_id
    assert first != second
    assert first.startswith("producer-")
    assert config(transactional_id="billing").client_id == "producer-billing"
    assert config(client_id="mine").client_id == "mine"


def test_a_batch_size_of_zero_is_one_record() -> None:
    assert config(batch_size=0).batch_size == 1


@pytest.mark.mechanism("P05")
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, 262_144),
        ({"batch_size": 16_384}, 16_384),  # Kafka's behaviour, to the byte
        ({"batch_size": 0}, 1),
        ({"batch_max_size": 20_000}, 20_000),
        ({"batch_size": 1_000, "batch_max_size": 1_000}, 1_000),
        ({"batch_size": 1_000, "batch_max_size": 500_000}, 500_000),
        ({"max_request_size": 100_000}, 100_000),
        ({"batch_max_size": 500_000, "max_request_size": 100_000}, 100_000),
        ({"max_request_size": 5_000}, 16_384),
    ],
)
def test_how_large_a_batch_may_become(settings: dict[str, int], expected: int) -> None:
    assert config(**settings).batch_max_size == expected


@pytest.mark.mechanism("P05")
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, 1_000_000),
        ({"compression_type": "lz4"}, 1_000_000),
        ({"batch_size": 16_384}, 16_384),
        ({"batch_size": 2_000_000}, 1_048_576),
        ({"batch_size": 2_000_000, "max_request_size": 3_000_000}, 2_000_000),
        ({"batch_max_size": 20_000}, 20_000),
        ({"batch_max_size": 20_000, "compression_type": "lz4"}, 20_000),
        ({"max_request_size": 100_000}, 100_000),
        ({"max_request_size": 5_000}, 5_000),
        ({"max_request_size": 50_000_000}, 1_000_000),
    ],
)
def test_how_large_a_batch_of_a_table_may_become(settings: dict[str, Any], expected: int) -> None:
    assert config(**settings).table_batch_size == expected


@pytest.mark.mechanism("P05")
def test_a_batch_may_not_become_smaller_than_it_is_meant_to() -> None:
    with pytest.raises(ConfigError, match=r"batch\.max\.size should be equal to or larger than batch\.size"):
        config(batch_max_size=16_383)
    with pytest.raises(ConfigError, match=r"batch\.max\.size"):
        config(batch_size=1_000, batch_max_size=999)


def test_a_buffer_of_the_socket_is_asked_for_only_if_it_is_set() -> None:
    assert config().send_buffer_bytes == -1
    assert config(send_buffer_bytes=131_072).send_buffer_bytes == 131_072
    for settings, expected in (({}, -1), ({"send_buffer_bytes": 5_000}, 5_000)):
        producer = ScriptedCluster({"t": 1}).producer(**settings)
        assert producer.client.config.send_buffer_bytes == expected
        # The local socket has one in any case, because what the system begins with does not grow.
        assert producer.client.config.local_send_buffer_bytes == (4 * 1024 * 1024 if expected == -1 else expected)
        assert producer.client.config.local_socket_enable
        producer.close(0)
    producer = ScriptedCluster({"t": 1}).producer(local_socket_enable=False)
    assert not producer.client.config.local_socket_enable
    producer.close(0)
