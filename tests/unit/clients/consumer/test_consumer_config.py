"""The settings of a consumer."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.clients.consumer.auto_offset_reset import EARLIEST, AutoOffsetResetStrategy, StrategyType
from barnabas.clients.consumer.consumer_config import ConsumerConfig, GroupProtocol, IsolationLevel
from barnabas.clients.consumer.internals.consumer_parts import ConsumerParts
from barnabas.common.config_def import ConfigError

SERVERS = {"bootstrap.servers": "localhost:9092"}


def test_defaults_are_kafkas() -> None:
    config = ConsumerConfig.of(SERVERS, group_id="g")
    assert config.enable_auto_commit
    assert config.auto_offset_reset == AutoOffsetResetStrategy(StrategyType.LATEST)
    assert config.isolation_level is IsolationLevel.READ_UNCOMMITTED
    assert (config.max_poll_records, config.max_poll_interval_ms, config.session_timeout_ms) == (500, 300_000, 45_000)
    assert (config.fetch_min_bytes, config.fetch_max_bytes, config.fetch_max_wait_ms) == (1, 52_428_800, 500)
    assert (config.max_partition_fetch_bytes, config.default_api_timeout_ms) == (1_048_576, 60_000)
    assert config.values.get_int("receive.buffer.bytes") == 65_536
    assert config.partition_assignment_strategy == ("range", "cooperative-sticky")
    assert config.group_protocol is GroupProtocol.AUTO
    assert not config.wants_classic


def test_both_spellings() -> None:
    config = ConsumerConfig.of({**SERVERS, "auto.offset.reset": "earliest"}, max_poll_records=7, client_id="me")
    assert (config.auto_offset_reset, config.max_poll_records, config.client_id) == (EARLIEST, 7, "me")
    with pytest.raises(ConfigError, match="twice"):
        ConsumerConfig.of({**SERVERS, "client.id": "a"}, client_id="b")
    with pytest.raises(TypeError, match="max_poll_record"):
        ConsumerConfig.of(SERVERS, max_poll_record=1)


def test_names_of_clients() -> None:
    assert ConsumerConfig.of(SERVERS).client_id.startswith("consumer-null-")
    assert ConsumerConfig.of(SERVERS, group_id="g").client_id.startswith("consumer-g-")
    assert ConsumerConfig.of(SERVERS, group_id="g", group_instance_id="i").client_id == "consumer-g-i"


def test_without_a_group_nothing_is_committed() -> None:
    assert not ConsumerConfig.of(SERVERS).enable_auto_commit
    with pytest.raises(ConfigError, match=r"enable\.auto\.commit"):
        ConsumerConfig.of(SERVERS, enable_auto_commit=True)


@pytest.mark.parametrize(
    ("settings", "culprit"),
    [
        ({"group_protocol": "consumer", "session_timeout_ms": 6_000}, "session.timeout.ms"),
        ({"group_protocol": "consumer", "heartbeat_interval_ms": 600}, "heartbeat.interval.ms"),
        ({"group_protocol": "consumer", "partition_assignment_strategy": "range"}, "partition.assignment.strategy"),
        ({"group_protocol": "classic", "group_remote_assignor": "uniform"}, "group.remote.assignor"),
        ({"heartbeat_interval_ms": 45_000}, "heartbeat.interval.ms"),
        ({"group_instance_id": ""}, "group.instance.id"),
        ({"auto_offset_reset": "first"}, "auto.offset.reset"),
        ({"auto_offset_reset": "by_duration:PT"}, "auto.offset.reset"),
        ({"auto_offset_reset": "by_duration:-PT1H"}, "auto.offset.reset"),
        ({"isolation_level": "serializable"}, "isolation.level"),
        ({"max_poll_records": 0}, "max.poll.records"),
        ({"security_protocol": "TLS"}, "security.protocol"),
    ],
)
def test_contradictions(settings: dict[str, Any], culprit: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ConsumerConfig.of(SERVERS, group_id="g", **settings)
    assert caught.value.name == culprit


def test_classic_settings_ask_for_the_classic_protocol() -> None:
    assert ConsumerConfig.of(SERVERS, group_id="g", session_timeout_ms=6_000).wants_classic
    assert ConsumerConfig.of(SERVERS, group_id="g", partition_assignment_strategy=["sticky"]).wants_classic


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("PT0S", 0), ("PT1.5S", 1_500), ("P1D", 86_400_000), ("P1DT2H3M4S", 93_784_000), ("pt10m", 600_000)],
)
def test_durations(text: str, milliseconds: int) -> None:
    strategy = AutoOffsetResetStrategy.parse(f"by_duration:{text}")
    assert strategy.duration_ms == milliseconds
    assert strategy.timestamp(date_ms=10**12) == 10**12 - milliseconds


def test_only_a_receive_buffer_that_was_asked_for_is_tied_to_its_size() -> None:
    def asked_for(**settings: Any) -> int:
        parts = ConsumerParts({"bootstrap.servers": "127.0.0.1:9092"}, settings)
        try:
            return parts.delegate.client.config.receive_buffer_bytes
        finally:
            parts.delegate.close()
            parts.close_plug_ins()

    assert asked_for() == -1
    assert asked_for(receive_buffer_bytes=65_536) == 65_536
    assert asked_for(receive_buffer_bytes=-1) == -1
