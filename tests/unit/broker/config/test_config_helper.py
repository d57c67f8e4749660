"""DescribeConfigs: values, where they come from, and what is not told."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.broker.config.config_helper import ConfigHelper
from barnabas.broker.config.dynamic_broker_config import DynamicBrokerConfig
from barnabas.broker.config.java_double import java_double
from barnabas.common.errors import Errors
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.configs import ConfigResourceType, ConfigSource
from barnabas.protocol.internal.metadata import ConfigRecord
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from unit.broker.config.configs import node
from unit.metadata.samples import broker, image_of, metadata_version, topic, uid

TOPIC, BROKER, LOGGER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER
CLIENT_METRICS, GROUP = ConfigResourceType.CLIENT_METRICS, ConfigResourceType.GROUP


class World:
    def __init__(self, **settings: Any) -> None:
        self.cache = MetadataCache()
        self.configs: list[ConfigRecord] = []
        self.dynamic = DynamicBrokerConfig(node(**settings))
        self.helper = ConfigHelper(1, self.cache, self.dynamic)
        self.set(TOPIC, "t")

    def set(self, kind: int, name: str, **settings: str) -> None:
        self.configs += [
            ConfigRecord(resource_type=kind, resource_name=name, name=key.replace("_", "."), value=value)
            for key, value in settings.items()
        ]
        records = [metadata_version(), broker(1), *topic("t", uid(1), partitions=1, replicas=[1]), *self.configs]
        self.cache.set_image(image_of(records))

    def result(
        self,
        kind: int,
        name: str,
        keys: list[str] | None = None,
        *,
        synonyms: bool = True,
        documentation: bool = False,
    ) -> DescribeConfigsResult:
        resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        (result,) = self.helper.describe([resource], include_synonyms=synonyms, include_documentation=documentation)
        assert (result.resource_type, result.resource_name) == (kind, name)
        return result

    def entries(self, kind: int, name: str, **options: Any) -> dict[str, DescribeConfigsResourceResult]:
        result = self.result(kind, name, **options)
        assert result.error_code == 0, result.error_message
        return {entry.name: entry for entry in result.configs}

    def one(self, kind: int, name: str, key: str, **options: Any) -> DescribeConfigsResourceResult:
        return self.entries(kind, name, keys=[key], **options)[key]


@pytest.fixture
def world() -> World:
    return World()


def synonyms(entry: DescribeConfigsResourceResult) -> list[tuple[str, str | None, str]]:
    return [(synonym.name, synonym.value, ConfigSource(synonym.source).name) for synonym in entry.synonyms]


# -- topics


def test_a_topic_without_settings(world: World) -> None:
    entries = world.entries(TOPIC, "t")
    assert len(entries) == 37
    assert "internal.segment.bytes" not in entries
    assert all(not entry.read_only and not entry.is_sensitive for entry in entries.values())
    assert entries["retention.ms"].value == "604800000"
    assert entries["cleanup.policy"].value == "delete"
    assert entries["min.cleanable.dirty.ratio"].value == "0.5"
    assert entries["preallocate"].value == "false"
    assert {entry.config_source for entry in entries.values()} == {ConfigSource.DEFAULT_CONFIG}
    assert synonyms(entries["max.message.bytes"]) == [("message.max.bytes", "1048588", "DEFAULT_CONFIG")]


def test_a_topic_with_everything_that_can_be_set() -> None:
    world = World(log_retention_ms="4")
    world.set(TOPIC, "t", retention_ms="1")
    world.dynamic.update_broker_config({"log.retention.ms": "2"})
    world.dynamic.update_default_config({"log.retention.ms": "3"})
    entry = world.one(TOPIC, "t", "retention.ms")
    assert entry.value == "1"
    assert entry.config_source == ConfigSource.TOPIC_CONFIG
    assert synonyms(entry) == [
        ("retention.ms", "1", "TOPIC_CONFIG"),
        ("log.retention.ms", "2", "DYNAMIC_BROKER_CONFIG"),
        ("log.retention.ms", "3", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
        ("log.retention.ms", "4", "STATIC_BROKER_CONFIG"),
        ("log.retention.hours", "168", "DEFAULT_CONFIG"),
    ]


def test_what_a_topic_gets_from_the_broker() -> None:
    world = World(log_cleanup_policy="compact,delete", log_retention_hours="1")
    entry = world.one(TOPIC, "t", "cleanup.policy")
    assert (entry.value, entry.config_source) == ("compact,delete", ConfigSource.STATIC_BROKER_CONFIG)
    world.dynamic.update_default_config({"log.cleanup.policy": "compact"})
    entry = world.one(TOPIC, "t", "cleanup.policy")
    assert (entry.value, entry.config_source) == ("compact", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    # Under its first name nothing is set, so Kafka, too, says that this is a default.
    entry = world.one(TOPIC, "t", "retention.ms")
    assert (entry.value, entry.config_source) == ("3600000", ConfigSource.DEFAULT_CONFIG)


def test_a_topics_setting_that_nobody_knows(world: World) -> None:
    world.set(TOPIC, "t", **{"future.setting": "x", "internal.segment.bytes": "9"})
    entry = world.one(TOPIC, "t", "future.setting")
    assert (entry.value, entry.is_sensitive, entry.config_type) == (None, True, 0)
    assert world.one(TOPIC, "t", "internal.segment.bytes").value == "9"


def test_topics_that_are_not_there(world: World) -> None:
    assert world.result(TOPIC, "other").error_code == Errors.UNKNOWN_TOPIC_OR_PARTITION
    assert world.result(TOPIC, "a/b").error_code == Errors.INVALID_TOPIC_EXCEPTION


# -- brokers


def test_a_broker() -> None:
    world = World(num_io_threads="4", **{"my.password": "secret", "listener.name.plaintext.max.connections": "5"})
    entries = world.entries(BROKER, "1")
    assert len(entries) > 330
    entry = entries["num.io.threads"]
    assert (entry.value, entry.read_only, entry.config_type) == ("4", False, 3)
    assert synonyms(entry) == [
        ("num.io.threads", "4", "STATIC_BROKER_CONFIG"),
        ("num.io.threads", "8", "DEFAULT_CONFIG"),
    ]
    assert entries["node.id"].read_only
    assert entries["node.id"].config_source == ConfigSource.STATIC_BROKER_CONFIG
    assert entries["log.cleaner.io.max.bytes.per.second"].value == "1.7976931348623157E308"
    assert entries["ssl.key.password"].is_sensitive
    assert entries["my.password"].is_sensitive
    assert entries["my.password"].value is None
    assert synonyms(entries["my.password"]) == [("my.password", None, "STATIC_BROKER_CONFIG")]
    listener = entries["listener.name.plaintext.max.connections"]
    assert (listener.value, listener.config_type, listener.is_sensitive) == ("5", 3, False)
    assert synonyms(listener) == [
        ("listener.name.plaintext.max.connections", "5", "STATIC_BROKER_CONFIG"),
        ("max.connections", "2147483647", "DEFAULT_CONFIG"),
    ]
    assert "unstable.api.versions.enable" not in entries
    assert entries["broker.rack"].value is None
    assert entries["advertised.listeners"].value is None


def test_dynamic_settings_of_a_broker(world: World) -> None:
    world.dynamic.update_broker_config({"num.io.threads": "9", "leader.replication.throttled.rate": "7"})
    world.dynamic.update_default_config({"num.io.threads": "10", "log.cleaner.threads": "2"})
    entry = world.one(BROKER, "1", "num.io.threads")
    assert (entry.value, entry.config_source) == ("9", ConfigSource.DYNAMIC_BROKER_CONFIG)
    assert synonyms(entry) == [
        ("num.io.threads", "9", "DYNAMIC_BROKER_CONFIG"),
        ("num.io.threads", "10", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
        ("num.io.threads", "8", "DEFAULT_CONFIG"),
    ]
    throttle = world.one(BROKER, "1", "leader.replication.throttled.rate", documentation=True)
    assert (throttle.value, throttle.is_sensitive, throttle.read_only, throttle.config_type) == ("7", False, False, 5)
    assert throttle.documentation


def test_dynamic_settings_that_wait_for_a_feature(world: World) -> None:
    password = "listener.name.plaintext.ssl.key.password"
    world.dynamic.update_broker_config({"sasl.kerberos.min.time.before.relogin": "58000", password: "secret"})
    entry = world.one(BROKER, "1", "sasl.kerberos.min.time.before.relogin")
    assert (entry.value, entry.config_source) == ("58000", ConfigSource.DYNAMIC_BROKER_CONFIG)
    hidden = world.one(BROKER, "1", password)
    assert (hidden.value, hidden.is_sensitive) == (None, True)
    world.dynamic.update_broker_config({})
    assert password not in world.entries(BROKER, "1")


def test_the_default_for_all_brokers(world: World) -> None:
    assert world.entries(BROKER, "") == {}
    world.dynamic.update_broker_config({"num.io.threads": "9"})
    world.dynamic.update_default_config({"num.io.threads": "10"})
    (entry,) = world.entries(BROKER, "").values()
    assert (entry.name, entry.value) == ("num.io.threads", "10")
    assert synonyms(entry) == [("num.io.threads", "10", "DYNAMIC_DEFAULT_BROKER_CONFIG")]
    assert entry.config_source == ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG


def test_names_in_several_units() -> None:
    world = World(log_retention_hours="5")
    entry = world.one(BROKER, "1", "log.retention.hours")
    assert synonyms(entry) == [
        ("log.retention.hours", "5", "STATIC_BROKER_CONFIG"),
        ("log.retention.hours", "168", "DEFAULT_CONFIG"),
    ]
    assert synonyms(world.one(BROKER, "1", "log.retention.ms")) == []


@pytest.mark.parametrize("kind", [BROKER, LOGGER])
def test_only_this_broker(world: World, kind: int) -> None:
    for name in ("2", "one", "1.0"):
        assert world.result(kind, name).error_code == Errors.INVALID_REQUEST


# -- loggers


@pytest.fixture
def levels() -> Iterator[None]:
    log = logging.getLogger("barnabas.testing.config.helper")
    log.setLevel(logging.DEBUG)
    yield
    log.setLevel(logging.NOTSET)


@pytest.mark.usefixtures("levels")
def test_loggers(world: World) -> None:
    entries = world.entries(LOGGER, "1")
    assert entries["barnabas.testing.config.helper"].value == "DEBUG"
    assert entries["barnabas.testing.config.helper"].config_source == ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG
    assert entries["barnabas.testing.config"].value == entries["root"].value
    assert set(world.entries(LOGGER, "1", keys=["root"])) == {"root"}
    assert world.result(LOGGER, "").error_code == Errors.INVALID_REQUEST


# -- subscriptions and groups


def test_a_subscription(world: World) -> None:
    world.set(CLIENT_METRICS, "m", **{"interval.ms": "1000", "metrics": "a,b"})
    entries = world.entries(CLIENT_METRICS, "m")
    assert {name: entry.value for name, entry in entries.items()} == {
        "interval.ms": "1000",
        "match": "",
        "metrics": "a,b",
    }
    assert entries["metrics"].config_source == ConfigSource.CLIENT_METRICS_CONFIG
    assert entries["match"].config_source == ConfigSource.DEFAULT_CONFIG
    assert synonyms(entries["metrics"]) == [("metrics", "a,b", "CLIENT_METRICS_CONFIG")]
    assert synonyms(entries["match"]) == []
    assert world.result(CLIENT_METRICS, "").error_code == Errors.INVALID_REQUEST


def test_a_group() -> None:
    world = World(group_consumer_session_timeout_ms="46000")
    world.set(GROUP, "g", **{"consumer.heartbeat.interval.ms": "6000"})
    entries = world.entries(GROUP, "g")
    assert len(entries) == 17
    assert synonyms(entries["consumer.heartbeat.interval.ms"]) == [
        ("consumer.heartbeat.interval.ms", "6000", "GROUP_CONFIG"),
        ("group.consumer.heartbeat.interval.ms", "5000", "DEFAULT_CONFIG"),
    ]
    assert entries["consumer.session.timeout.ms"].value == "46000"
    assert entries["consumer.session.timeout.ms"].config_source == ConfigSource.STATIC_BROKER_CONFIG
    assert synonyms(entries["share.isolation.level"]) == [
        ("share.isolation.level", "read_uncommitted", "DEFAULT_CONFIG")
    ]
    assert world.result(GROUP, "").error_code == Errors.INVALID_REQUEST


# -- all of them


@pytest.mark.parametrize(("kind", "name"), [(TOPIC, "t"), (BROKER, "1"), (CLIENT_METRICS, "m"), (GROUP, "g")])
def test_what_is_only_told_if_asked_for(world: World, kind: int, name: str) -> None:
    for entry in world.entries(kind, name, synonyms=False).values():
        assert entry.synonyms == []
        assert entry.documentation is None
    for entry in world.entries(kind, name, documentation=True).values():
        assert entry.documentation
        assert entry.config_type > 0


def test_keys(world: World) -> None:
    assert set(world.entries(TOPIC, "t", keys=["retention.ms", "no.such"])) == {"retention.ms"}
    assert len(world.entries(TOPIC, "t", keys=[])) == len(world.entries(TOPIC, "t", keys=None))


def test_an_unknown_kind_of_resource(world: World) -> None:
    assert world.result(64, "x").error_code == Errors.INVALID_REQUEST


def test_a_surprise_is_told_without_details(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world.cache, "topic_config", lambda _name: 1 / 0)
    result = world.result(TOPIC, "t")
    assert result.error_code == Errors.UNKNOWN_SERVER_ERROR
    assert "division" not in (result.error_message or "")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (0.5, "0.5"),
        (0.001, "0.001"),
        (0.0009, "9.0E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (123456789.0, "1.23456789E8"),
        (-1.5e300, "-1.5E300"),
        (float("inf"), "Infinity"),
        (float("nan"), "NaN"),
    ],
)
def test_numbers_as_java_writes_them(value: float, text: str) -> None:
    assert java_double(value) == text
