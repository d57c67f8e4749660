"""Dynamic configuration: IncrementalAlterConfigs, AlterConfigs, and the rules around min.insync.replicas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from barnabas.common.config_def import ConfigDef, Password, Type
from barnabas.common.errors import Errors, InvalidConfigurationError, InvalidRequestError, PolicyViolationError
from barnabas.controller.bootstrap import BootstrapMetadata
from barnabas.controller.config import ControllerPlugins
from barnabas.controller.config_schema import (
    ELECTION_CONFIGS,
    ELECTION_SCHEMA,
    ConfigEntry,
    KafkaConfigSchema,
)
from barnabas.controller.config_validator import ControllerConfigurationValidator
from barnabas.metadata.configs import ConfigResource, ConfigResourceType, ConfigSource
from barnabas.metadata.metadata_version import MetadataVersion
from barnabas.protocol.internal.metadata import ClearElrRecord, ConfigRecord
from barnabas.protocol.messages import alter_configs, incremental_alter_configs
from unit.controller.harness import CONTEXT, Harness

SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


class Hours:
    name = "log.roll.hours"

    def convert(self, value: str) -> str:
        return str(int(value) * 3_600_000)


class Milliseconds:
    name = "log.roll.ms"

    def convert(self, value: str) -> str:
        return value


TOPIC_CONFIGS = ConfigDef(ELECTION_CONFIGS)
TOPIC_CONFIGS.define("cleanup.policy", Type.LIST, "delete")
TOPIC_CONFIGS.define("segment.ms", Type.LONG, 7)
TOPIC_CONFIGS.define("secret", Type.PASSWORD, None)
TOPIC_CONFIGS.define("internal.size", Type.INT, None, internal=True)
SCHEMA = KafkaConfigSchema(
    {ConfigResourceType.TOPIC: TOPIC_CONFIGS},
    {**ELECTION_SCHEMA._synonyms, "segment.ms": (Milliseconds(), Hours())},
)


def no_colours(settings: Mapping[str, str], _existing: Mapping[str, str]) -> None:
    if "colour" in settings:
        raise InvalidConfigurationError("topics have no colour")


PLUGINS = ControllerPlugins(config_schema=SCHEMA, config_validator=ControllerConfigurationValidator(topic=no_colours))


@pytest.fixture
def harness() -> Harness:
    made = Harness(plugins=PLUGINS)
    made.add_brokers(1, 2)
    made.create("a", 1, 2)
    made.mark()
    return made


Change = tuple[str, int, str | None]


def alter(harness: Harness, *resources: tuple[int, str, list[Change]], validate_only: bool = False) -> list[Errors]:
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        validate_only=validate_only,
        resources=[
            incremental_alter_configs.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    incremental_alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
                    for key, operation, value in changes
                ],
            )
            for kind, name, changes in resources
        ],
    )
    response = harness.result(harness.controller.incremental_alter_configs(CONTEXT, request))
    return [Errors(each.error_code) for each in response.responses]


def replace(
    harness: Harness, kind: int, name: str, settings: dict[str, str | None], validate_only: bool = False
) -> Errors:
    request = alter_configs.AlterConfigsRequest(
        validate_only=validate_only,
        resources=[
            alter_configs.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[alter_configs.AlterableConfig(name=key, value=value) for key, value in settings.items()],
            )
        ],
    )
    response = harness.result(harness.controller.legacy_alter_configs(CONTEXT, request))
    return Errors(response.responses[0].error_code)


def settings(harness: Harness, kind: int, name: str) -> dict[str, str]:
    return harness.result(harness.controller.describe_configs(CONTEXT, ConfigResource(kind, name)))


def config(kind: int, name: str, key: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)


# -- IncrementalAlterConfigs


def test_keys_are_set_and_deleted(harness: Harness) -> None:
    assert alter(harness, (TOPIC, "a", [("segment.ms", SET, "5")])) == [Errors.NONE]
    assert settings(harness, TOPIC, "a") == {"segment.ms": "5"}
    assert alter(harness, (TOPIC, "a", [("segment.ms", DELETE, None)])) == [Errors.NONE]
    assert settings(harness, TOPIC, "a") == {}
    assert harness.written() == [config(TOPIC, "a", "segment.ms", "5"), config(TOPIC, "a", "segment.ms", None)]
    resources = harness.result(harness.controller.list_config_resources(CONTEXT))
    assert resources == [ConfigResource(BROKER, "")]


def test_what_changes_nothing_is_not_written_except_for_brokers(harness: Harness) -> None:
    alter(harness, (TOPIC, "a", [("segment.ms", SET, "5")]), (BROKER, "1", [("ssl.keystore", SET, "f")]))
    harness.mark()
    alter(harness, (TOPIC, "a", [("segment.ms", SET, "5"), ("other", DELETE, None)]))
    assert harness.written() == []
    alter(harness, (BROKER, "1", [("ssl.keystore", SET, "f")]))
    assert harness.written() == [config(BROKER, "1", "ssl.keystore", "f")]


def test_lists_are_appended_to_and_subtracted_from(harness: Harness) -> None:
    key = "cleanup.policy"
    assert alter(harness, (TOPIC, "a", [(key, APPEND, "compact,delete")])) == [Errors.NONE]
    assert settings(harness, TOPIC, "a") == {key: "delete,compact"}  # the default was there first
    assert alter(harness, (TOPIC, "a", [(key, SUBTRACT, "delete,nothing")])) == [Errors.NONE]
    assert settings(harness, TOPIC, "a") == {key: "compact"}
    assert alter(harness, (TOPIC, "a", [("segment.ms", APPEND, "1")])) == [Errors.INVALID_CONFIG]


def test_a_resource_changes_as_a_whole_and_others_by_themselves(harness: Harness) -> None:
    errors = alter(
        harness,
        (TOPIC, "a", [("segment.ms", SET, "5"), ("colour", SET, "red")]),
        (GROUP, "g", [("x", SET, "1")]),
    )
    assert errors == [Errors.INVALID_CONFIG, Errors.NONE]
    assert settings(harness, TOPIC, "a") == {}
    assert settings(harness, GROUP, "g") == {"x": "1"}


@pytest.mark.parametrize(
    ("kind", "name", "change", "error"),
    [
        (TOPIC, "nope", ("segment.ms", SET, "5"), Errors.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "", ("segment.ms", SET, "5"), Errors.INVALID_REQUEST),
        (TOPIC, "a/b", ("segment.ms", SET, "5"), Errors.INVALID_TOPIC_EXCEPTION),
        (BROKER, "9", ("x", SET, "5"), Errors.BROKER_ID_NOT_REGISTERED),
        (BROKER, "x", ("x", SET, "5"), Errors.INVALID_REQUEST),
        (BROKER, "-1", ("x", SET, "5"), Errors.INVALID_REQUEST),
        (LOGGER, "1", ("root", SET, "DEBUG"), Errors.INVALID_REQUEST),
        (GROUP, "", ("x", SET, "1"), Errors.INVALID_REQUEST),
        (METRICS, "", ("x", SET, "1"), Errors.INVALID_REQUEST),
        (99, "x", ("x", SET, "1"), Errors.INVALID_REQUEST),
        (TOPIC, "a", ("segment.ms", SET, None), Errors.INVALID_REQUEST),
        (TOPIC, "a", ("segment.ms", 7, "1"), Errors.INVALID_REQUEST),
        (TOPIC, "a", ("segment.ms", SET, "x" * 32_768), Errors.INVALID_CONFIG),
    ],
)
def test_what_cannot_be_configured_is_refused(
    harness: Harness, kind: int, name: str, change: Change, error: Errors
) -> None:
    assert alter(harness, (kind, name, [change])) == [error]
    assert harness.written() == []


def test_what_is_mentioned_twice_is_refused(harness: Harness) -> None:
    twice: tuple[int, str, list[Change]] = (TOPIC, "a", [("segment.ms", SET, "5")])
    assert alter(harness, twice, twice) == [Errors.INVALID_REQUEST]
    assert alter(harness, (TOPIC, "a", [("x", SET, "1"), ("x", DELETE, None)])) == [Errors.INVALID_REQUEST]


def test_validation_writes_nothing(harness: Harness) -> None:
    assert alter(harness, (TOPIC, "a", [("segment.ms", SET, "5")]), validate_only=True) == [Errors.NONE]
    assert replace(harness, TOPIC, "a", {"segment.ms": "5"}, validate_only=True) is Errors.NONE
    assert alter(harness, (TOPIC, "a", [("colour", SET, "5")]), validate_only=True) == [Errors.INVALID_CONFIG]
    assert harness.written() == []


def test_controllers_are_nodes_that_can_be_configured(harness: Harness) -> None:
    harness = Harness(plugins=PLUGINS, quorum_node_ids=(1, 7))
    assert alter(harness, (BROKER, "7", [("x", SET, "1")])) == [Errors.NONE]


def test_a_metrics_subscription_exists_by_being_configured(harness: Harness) -> None:
    assert alter(harness, (METRICS, "sub", [("interval.ms", SET, "1")])) == [Errors.NONE]
    assert settings(harness, METRICS, "sub") == {"interval.ms": "1"}
    error = harness.error(harness.controller.describe_configs(CONTEXT, ConfigResource(LOGGER, "1")))
    assert isinstance(error, InvalidRequestError)


def test_the_operators_policy_sees_what_changes() -> None:
    seen: list[tuple[ConfigResource, Mapping[str, str | None]]] = []

    def policy(resource: ConfigResource, changes: Mapping[str, str | None]) -> None:
        seen.append((resource, changes))
        if "x" in changes:
            raise PolicyViolationError("no x")

    harness = Harness(plugins=ControllerPlugins(alter_config_policy=policy))
    harness.add_brokers(1)
    harness.create("a", 1)
    assert alter(harness, (TOPIC, "a", [("y", SET, "1")])) == [Errors.NONE]
    assert replace(harness, TOPIC, "a", {"z": "2"}) is Errors.NONE
    assert alter(harness, (TOPIC, "a", [("x", SET, "1")])) == [Errors.POLICY_VIOLATION]
    topic = ConfigResource.topic("a")
    assert seen == [(topic, {"y": "1"}), (topic, {"z": "2"}), (topic, {"x": "1"})]


# -- AlterConfigs


def test_the_legacy_form_resets_what_it_does_not_mention(harness: Harness) -> None:
    assert replace(harness, TOPIC, "a", {"segment.ms": "5", "cleanup.policy": "compact"}) is Errors.NONE
    harness.mark()
    assert replace(harness, TOPIC, "a", {"segment.ms": "6"}) is Errors.NONE
    assert harness.written() == [
        config(TOPIC, "a", "segment.ms", "6"),
        config(TOPIC, "a", "cleanup.policy", None),
    ]
    assert settings(harness, TOPIC, "a") == {"segment.ms": "6"}
    assert replace(harness, TOPIC, "a", {"segment.ms": None}) is Errors.INVALID_REQUEST
    assert replace(harness, TOPIC, "nope", {}) is Errors.UNKNOWN_TOPIC_OR_PARTITION
    request = alter_configs.AlterConfigsRequest(
        resources=[
            alter_configs.AlterConfigsResource(
                resource_type=TOPIC,
                resource_name="a",
                configs=[alter_configs.AlterableConfig(name="x", value="1")] * 2,
            )
        ]
    )
    response = harness.result(harness.controller.legacy_alter_configs(CONTEXT, request))
    assert response.responses[0].error_code == Errors.INVALID_REQUEST


# -- min.insync.replicas


def test_a_change_of_min_insync_replicas_voids_the_eligible_leaders(harness: Harness) -> None:
    alter(harness, (TOPIC, "a", [("min.insync.replicas", SET, "2")]))
    harness.fence(2)
    assert harness.partition("a").elr == (2,)
    epoch = harness.partition("a").partition_epoch
    harness.mark()
    alter(harness, (TOPIC, "a", [("min.insync.replicas", SET, "1")]))
    assert harness.written() == [
        config(TOPIC, "a", "min.insync.replicas", "1"),
        ClearElrRecord(topic_name="a"),
    ]
    assert harness.partition("a").elr == ()
    assert harness.partition("a").partition_epoch == epoch + 1
    assert harness.state()["elr"] == {}
    harness.mark()
    alter(harness, (BROKER, "", [("min.insync.replicas", SET, "2")]))
    assert harness.written() == [config(BROKER, "", "min.insync.replicas", "2"), ClearElrRecord()]
    assert harness.managers.configs.min_insync_replicas("a") == 1


def test_with_elr_the_cluster_has_one_min_insync_replicas(harness: Harness) -> None:
    key = "min.insync.replicas"
    assert alter(harness, (BROKER, "1", [(key, SET, "2")])) == [Errors.INVALID_CONFIG]
    assert alter(harness, (BROKER, "", [(key, DELETE, None)])) == [Errors.INVALID_CONFIG]
    assert replace(harness, BROKER, "", {"x": "1"}) is Errors.INVALID_CONFIG
    assert alter(harness, (BROKER, "", [(key, SET, "2")])) == [Errors.NONE]


def test_without_elr_every_broker_may_have_its_own() -> None:
    levels = {"eligible.leader.replicas.version": 0}
    harness = Harness(bootstrap=BootstrapMetadata.for_version(levels=levels))
    harness.add_brokers(1)
    assert alter(harness, (BROKER, "1", [("min.insync.replicas", SET, "2")])) == [Errors.NONE]
    assert [type(record) for record in harness.written()] == [ConfigRecord]


def test_cordoned_directories_can_only_be_released_through_a_controller(harness: Harness) -> None:
    key = "cordoned.log.dirs"
    assert alter(harness, (BROKER, "1", [(key, SET, "/a")])) == [Errors.INVALID_CONFIG]
    assert alter(harness, (BROKER, "1", [(key, SET, " ")])) == [Errors.NONE]
    harness.managers.replay(config(BROKER, "1", key, "/a, /b"), 0)
    assert alter(harness, (BROKER, "1", [(key, SET, "/b")])) == [Errors.NONE]
    assert alter(harness, (BROKER, "1", [(key, DELETE, None)])) == [Errors.NONE]
    old = Harness(bootstrap=BootstrapMetadata.for_version(MetadataVersion.IBP_4_2_IV1, "a test"))
    old.add_brokers(1)
    assert alter(old, (BROKER, "1", [(key, SET, "/a")])) == [Errors.INVALID_CONFIG]


# -- where a value comes from


def resolve(**places: Mapping[str, Any]) -> ConfigEntry:
    empty: dict[str, Any] = {"static": {}, "cluster": {}, "node": {}, "topic": {}}
    return SCHEMA.resolve_topic_config("segment.ms", **{**empty, **places})


def test_the_nearest_place_wins() -> None:
    default = resolve()
    assert (default.value, default.source) == ("7", ConfigSource.DEFAULT_CONFIG)
    static = resolve(static={"log.roll.hours": 2})
    assert (static.value, static.source) == ("7200000", ConfigSource.STATIC_BROKER_CONFIG)
    assert resolve(static={"log.roll.hours": "2", "log.roll.ms": "9"}).value == "9"
    cluster = resolve(static={"log.roll.ms": "9"}, cluster={"log.roll.hours": "1"})
    assert (cluster.value, cluster.source) == ("3600000", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    node = resolve(cluster={"log.roll.ms": "4"}, node={"log.roll.ms": "3"})
    assert (node.value, node.source) == ("3", ConfigSource.DYNAMIC_BROKER_CONFIG)
    topic = resolve(node={"log.roll.ms": "3"}, topic={"segment.ms": "1"})
    assert (topic.value, topic.source) == ("1", ConfigSource.TOPIC_CONFIG)


def test_secrets_are_known_but_not_shown() -> None:
    entry = SCHEMA.resolve_topic_config("secret", {}, {}, {}, {"secret": "x"})
    assert (entry.value, entry.is_sensitive) == ("x", True)
    assert SCHEMA.is_sensitive(TOPIC, "secret")
    assert SCHEMA.is_sensitive(TOPIC, "unheard of")
    assert not SCHEMA.is_sensitive(TOPIC, "segment.ms")
    assert SCHEMA.default(TOPIC, "segment.ms") == "7"
    assert SCHEMA.default(TOPIC, "unheard of") is None
    schema = KafkaConfigSchema({TOPIC: ConfigDef().define("p", Type.PASSWORD, Password("q"))})
    assert schema.default(TOPIC, "p") == "q"
    harness = Harness(plugins=PLUGINS)
    harness.add_brokers(1)
    shown = harness.create("a", configs={"secret": "x"}).configs
    assert shown is not None
    assert [(each.value, each.is_sensitive) for each in shown if each.name == "secret"] == [(None, True)]


def test_internal_settings_are_shown_to_who_gives_them() -> None:
    harness = Harness(plugins=PLUGINS)
    harness.add_brokers(1)

    def shown(name: str, configs: dict[str, str]) -> list[str | None]:
        return [each.value for each in harness.create(name, configs=configs).configs or () if "internal" in each.name]

    assert shown("a", {"internal.size": "1000"}) == ["1000"]
    assert shown("b", {"segment.ms": "1"}) == []


def test_the_defaults_of_new_topics_follow_the_cluster(harness: Harness) -> None:
    def segment_ms(name: str) -> tuple[str | None, int]:
        shown = harness.create(name).configs
        assert shown is not None
        return next((each.value, each.config_source) for each in shown if each.name == "segment.ms")

    assert segment_ms("b") == ("7", 5)
    alter(harness, (BROKER, "", [("log.roll.ms", SET, "8")]))
    assert segment_ms("c") == ("8", 3)
    alter(harness, (BROKER, "1", [("log.roll.hours", SET, "1")]))
    assert segment_ms("d") == ("3600000", 2)
