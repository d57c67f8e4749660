"""Apache Kafka's own definitions as an oracle: the same names, types, defaults, bounds, and rules for changing them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tools import setting_differences

from barnabas.broker.config.broker_config_def import BROKER_CONFIG_DEF
from barnabas.broker.config.client_metrics_config import CLIENT_METRICS_CONFIG_DEF
from barnabas.broker.config.dynamic_config_names import (
    ALL_DYNAMIC_CONFIGS,
    BARNABAS_CONFIGS,
    DYNAMIC_CONFIG_DEF,
    update_mode,
    validate_dynamic_configs,
)
from barnabas.broker.config.group_config import GROUP_CONFIG_DEF, GROUP_CONFIG_SYNONYMS
from barnabas.broker.config.java_double import java_double
from barnabas.broker.config.listener_prefix import broker_config_synonyms
from barnabas.clients.admin.admin_config import CONFIG as ADMIN
from barnabas.clients.consumer.consumer_config import CONFIG as CONSUMER
from barnabas.clients.producer.producer_config import CONFIG as PRODUCER
from barnabas.common.config_def import ConfigDef, ConfigError, ConfigKey, convert_to_string
from barnabas.log.config.log_config_def import LOG_CONFIG_DEF
from oracles.definitions import JARS

pytestmark = pytest.mark.java

SOURCE = Path(__file__).with_name("ConfigOracle.java")

KAFKA_4_4 = {"log.remote.copy.lag.bytes", "log.remote.copy.lag.ms", "max.decompressed.message.bytes"}
"""Settings of topics that came after the version of the jars."""

OTHER_DEFAULTS = {
    "log.dir": "there is none: whoever starts a broker says where its data goes",
    "num.network.threads": "it follows the interpreter",
    "metric.reporters": "a Java class",
    "principal.builder.class": "a Java class",
    "sasl.oauthbearer.jwt.retriever.class": "a Java class",
    "sasl.oauthbearer.jwt.validator.class": "a Java class",
    "group.share.persister.class.name": "a Java class",
    "listener.security.protocol.map": "the same pairs in another order",
}

OTHER_VALIDATORS = {
    "log.dir",  # may be left out here
    "cordoned.log.dirs",  # no difference but that null is not allowed
    "controller.quorum.voters",  # says more about itself
    "controller.quorum.bootstrap.servers",
}


@cache
def kafka() -> dict[str, Any]:
    """What Kafka says. A machine without Java skips the tests; a CI run must not lose them that way."""
    servers = sorted(JARS.parent.glob("*/kafka-server-4*.jar"))
    java = shutil.which("java")
    if java is None or not servers:
        reason = "no java on the PATH, or no kafka-server jar in a directory of target (make jars)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    jars = os.pathsep.join(map(str, servers[0].parent.glob("*.jar")))
    run = subprocess.run(
        [java, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", jars, str(SOURCE)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    answer: dict[str, Any] = json.loads(run.stdout)
    return answer


def shown(key: ConfigKey, *, but: set[str] | frozenset[str] = frozenset()) -> dict[str, Any]:
    default = key.default if key.has_default else None
    found = {
        "type": key.type.name,
        "has_default": key.has_default,
        "default": java_double(default) if isinstance(default, float) else convert_to_string(default),
        "importance": key.importance.name,
        "internal": key.internal,
        "validator": None if key.validator is None else str(key.validator),
    }
    return {name: value for name, value in found.items() if name not in but}


def differences(definition: ConfigDef, theirs: dict[str, dict[str, Any]]) -> dict[str, Any]:
    found = {}
    for name, key in definition.keys.items():
        but = set()
        if name in OTHER_DEFAULTS:
            but.add("default")
        if name in OTHER_VALIDATORS:
            but.add("validator")
        if name in theirs:
            ours = shown(key, but=but)
            other = {field: theirs[name][field] for field in ours}
            if ours.get("validator") == "non-null":
                ours["validator"] = "non-null string"
            if ours != other:
                found[name] = (ours, other)
    return found


def test_the_broker_has_the_settings_of_kafka() -> None:
    theirs = set(kafka()["broker"])
    ours = {name for name in BROKER_CONFIG_DEF.keys if not name.startswith("barnabas.")}
    assert theirs - ours == set()
    assert ours - theirs == KAFKA_4_4


def test_types_defaults_and_bounds_of_the_broker() -> None:
    assert differences(BROKER_CONFIG_DEF, kafka()["broker"]) == {}


def test_exceptions_are_still_needed() -> None:
    theirs = kafka()["broker"]
    for name in OTHER_DEFAULTS.keys() - {"num.network.threads"}:  # without the global lock it is Kafka's
        assert shown(BROKER_CONFIG_DEF.keys[name])["default"] != theirs[name]["default"], name


KAFKA_4_4_CLIENTS = {
    "bootstrap.resolve.timeout.ms",
    "buffer.memory.allocation.strategy",
    "client.rack",
    "internal.leave.group.on.close",
    "metadata.cluster.check.enable",
    "partitioner.rack.aware",
    "sasl.oauthbearer.allow.unverified.audience",
    "sasl.oauthbearer.allow.unverified.issuer",
}
"""Settings of clients that came after the version of the jars, or that Java's other clients have."""


@pytest.mark.parametrize(
    ("definition", "kind", "listed"),
    [
        (BROKER_CONFIG_DEF, "broker", setting_differences.BROKER),
        (LOG_CONFIG_DEF, "topic", {}),
        (PRODUCER, "producer", setting_differences.CLIENTS["producer"]),
        (CONSUMER, "consumer", setting_differences.CLIENTS["consumer"]),
        (ADMIN, "admin", setting_differences.CLIENTS["admin-client"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_reference_says_where_types_and_defaults_differ(
    definition: ConfigDef, kind: str, listed: dict[str, str]
) -> None:
    theirs = kafka()[kind]
    fields = ("type", "has_default", "default")
    differing = {
        name
        for name, key in definition.keys.items()
        if name in theirs and any(shown(key)[field] != theirs[name][field] for field in fields)
    }
    assert differing - listed.keys() == set()
    assert listed.keys() - definition.keys.keys() == set(), "no such setting"
    if kind not in {"broker", "topic"}:
        ours = {name for name in definition.keys if name not in theirs}
        assert ours - KAFKA_4_4_CLIENTS == setting_differences.ONLY_HERE & definition.keys.keys()


def test_groups() -> None:
    assert set(GROUP_CONFIG_DEF.keys) == set(kafka()["group"])
    assert differences(GROUP_CONFIG_DEF, kafka()["group"]) == {}
    assert kafka()["group_synonyms"] == GROUP_CONFIG_SYNONYMS


def test_client_metrics() -> None:
    assert set(CLIENT_METRICS_CONFIG_DEF.keys) == set(kafka()["client_metrics"])
    assert differences(CLIENT_METRICS_CONFIG_DEF, kafka()["client_metrics"]) == {}


def test_what_can_change_and_for_whom() -> None:
    theirs = kafka()["update_modes"]
    assert {name: update_mode(name) for name in ALL_DYNAMIC_CONFIGS - KAFKA_4_4 - BARNABAS_CONFIGS} == theirs
    assert set(DYNAMIC_CONFIG_DEF.keys) - KAFKA_4_4 - BARNABAS_CONFIGS == set(kafka()["dynamic_broker"])


def test_synonyms() -> None:
    for name, synonyms in kafka()["synonyms"].items():
        assert list(broker_config_synonyms(name, match_listener=True)) == synonyms


def test_what_may_be_proposed() -> None:
    for case in kafka()["validations"]:
        try:
            validate_dynamic_configs({case["name"]: case["value"]}, per_broker=case["per_broker"])
            refused = False
        except ConfigError:
            refused = True
        if case["name"] in BARNABAS_CONFIGS:
            assert refused != case["per_broker"]
            continue
        assert refused == (case["error"] is not None), case
