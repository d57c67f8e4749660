"""Settings of groups and of metrics subscriptions: what they can be, and what the controller is told about settings."""

from __future__ import annotations

import pytest

from barnabas.broker.config.client_metrics_config import parse_matching_patterns, validate_client_metrics_config
from barnabas.broker.config.config_schemas import CONFIG_SCHEMA, configuration_validator
from barnabas.broker.config.group_config import validate_group_config
from barnabas.common.errors import InvalidConfigurationError, InvalidRequestError
from barnabas.metadata.configs import ConfigResource, ConfigResourceType
from unit.broker.config.configs import node


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"consumer.session.timeout.ms": "45000"},
        {"consumer.session.timeout.ms": "60000", "consumer.heartbeat.interval.ms": "15000"},
        {"share.auto.offset.reset": "earliest"},
        {"share.auto.offset.reset": "by_duration:PT1H30M"},
        {"share.auto.offset.reset": "by_duration:P1DT0.5S"},
        {"streams.num.standby.replicas": "2"},
        {"share.renew.acknowledge.enable": "false"},
    ],
)
def test_what_a_group_can_have(settings: dict[str, str]) -> None:
    validate_group_config(settings, node().values)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"no.such": "1"}, r"^Unknown group config name: no\.such$"),
        ({"consumer.session.timeout.ms": "44999"}, r"at least group\.consumer\.min\.session\.timeout\.ms"),
        ({"consumer.session.timeout.ms": "60001"}, r"at most group\.consumer\.max\.session\.timeout\.ms"),
        ({"consumer.heartbeat.interval.ms": "4999"}, r"at least group\.consumer\.min"),
        ({"share.record.lock.duration.ms": "14999"}, r"at least group\.share\.min\.record\.lock"),
        ({"share.delivery.count.limit": "11"}, r"at most group\.share\.max\.delivery"),
        ({"share.partition.max.record.locks": "4001"}, r"at most group\.share\.max\.partition"),
        ({"streams.num.standby.replicas": "3"}, r"at most group\.streams\.max\.standby\.replicas"),
        ({"share.auto.offset.reset": "by_duration:PT0S"}, "duration"),
        ({"share.auto.offset.reset": "by_duration:P"}, "duration"),
        ({"share.auto.offset.reset": "by_duration:1h"}, "duration"),
        ({"share.auto.offset.reset": "none"}, "duration"),
        ({"share.isolation.level": "serializable"}, "read_committed"),
        ({"consumer.session.timeout.ms": "x"}, "an integer"),
    ],
)
def test_what_a_group_cannot_have(settings: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=message):
        validate_group_config(settings, node().values)


def test_a_session_is_longer_than_a_heartbeat() -> None:
    values = node(
        group_consumer_min_session_timeout_ms="1",
        group_consumer_min_heartbeat_interval_ms="1",
        group_consumer_max_heartbeat_interval_ms="60000",
    ).values
    with pytest.raises(InvalidConfigurationError, match="must be longer than"):
        validate_group_config({"consumer.session.timeout.ms": "5000"}, values)
    with pytest.raises(InvalidConfigurationError, match="must be longer than"):
        validate_group_config({"consumer.heartbeat.interval.ms": "45000"}, values)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"no.such": "1"}, InvalidRequestError),
        ({"interval.ms": "99"}, InvalidRequestError),
        ({"interval.ms": "3600001"}, InvalidRequestError),
        ({"interval.ms": "soon"}, InvalidConfigurationError),
        ({"match": "client_id"}, InvalidConfigurationError),
        ({"match": "colour=red"}, InvalidConfigurationError),
        ({"match": "client_id=a=b"}, InvalidConfigurationError),
        ({"match": "client_id=("}, InvalidConfigurationError),
    ],
)
def test_what_a_subscription_cannot_have(settings: dict[str, str], error: type[Exception]) -> None:
    with pytest.raises(error):
        validate_client_metrics_config("m", settings)


def test_an_unknown_setting_of_a_subscription_is_named_as_by_kafka() -> None:
    with pytest.raises(InvalidRequestError, match=r"^Unknown client metrics configuration: no\.such$"):
        validate_client_metrics_config("m", {"no.such": "1"})


def test_what_a_subscription_can_have() -> None:
    validate_client_metrics_config("m", {"interval.ms": "100", "metrics": "*", "match": "client_id=a.*"})
    validate_client_metrics_config("m", {})
    with pytest.raises(InvalidRequestError):
        validate_client_metrics_config("", {})
    patterns = parse_matching_patterns(["client_id = app-[0-9]+", "client_software_name=x"])
    assert patterns["client_id"].matches("app-7")


def test_the_controllers_rules() -> None:
    validator = configuration_validator(node(log_cleaner_max_compaction_lag_ms="5"))
    topic = ConfigResource.topic("t")
    validator.validate(topic, {"retention.ms": "5"}, {})
    with pytest.raises(InvalidConfigurationError):
        validator.validate(topic, {"no.such": "5"}, {})
    with pytest.raises(InvalidConfigurationError, match=r"max\.compaction\.lag\.ms"):
        validator.validate(topic, {"min.compaction.lag.ms": "6"}, {})
    with pytest.raises(InvalidConfigurationError, match="remote storage"):
        validator.validate(topic, {"remote.storage.enable": "true"}, {})
    with pytest.raises(InvalidRequestError):
        validator.validate(ConfigResource(ConfigResourceType.CLIENT_METRICS, "m"), {"interval.ms": "1"}, {})
    with pytest.raises(InvalidConfigurationError):
        validator.validate(ConfigResource(ConfigResourceType.GROUP, "g"), {"consumer.session.timeout.ms": "1"}, {})


def test_the_controllers_schema() -> None:
    assert CONFIG_SCHEMA.is_splittable(ConfigResourceType.BROKER, "cordoned.log.dirs")
    assert not CONFIG_SCHEMA.is_splittable(ConfigResourceType.CLIENT_METRICS, "metrics")
    assert CONFIG_SCHEMA.is_sensitive(ConfigResourceType.BROKER, "ssl.key.password")
    assert not CONFIG_SCHEMA.is_sensitive(ConfigResourceType.GROUP, "share.isolation.level")
    entry = CONFIG_SCHEMA.resolve_topic_config("retention.ms", {"log.retention.hours": "2"}, {}, {}, {})
    assert entry.value == "7200000"
