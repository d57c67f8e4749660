"""Definitions of settings: all there, all explained, and cheap."""

from __future__ import annotations

import subprocess
import sys

import pytest

from barnabas.broker.config.broker_config_def import BROKER_CONFIG_DEF
from barnabas.broker.config.client_metrics_config import CLIENT_METRICS_CONFIG_DEF
from barnabas.broker.config.dynamic_config_names import ALL_DYNAMIC_CONFIGS, DYNAMIC_CONFIG_DEF, update_mode
from barnabas.broker.config.group_config import GROUP_CONFIG_DEF
from barnabas.common.config_def import ConfigDef
from barnabas.server.data_plane import HandOff


@pytest.mark.parametrize(
    "definition", [BROKER_CONFIG_DEF, DYNAMIC_CONFIG_DEF, GROUP_CONFIG_DEF, CLIENT_METRICS_CONFIG_DEF]
)
def test_every_setting_is_explained(definition: ConfigDef) -> None:
    for key in definition.keys.values():
        assert key.documentation.endswith("."), key.name
        assert len(key.documentation) > 15, key.name


def test_what_kafka_does_not_have_is_named_after_us() -> None:
    ours = {name for name in BROKER_CONFIG_DEF.keys if name.startswith("barnabas.")}
    assert ours == {
        "barnabas.request.handoff",
        "barnabas.local.socket.enable",
        "barnabas.http.listener",
        "barnabas.http.hosts",
        "barnabas.metrics.include",
        "barnabas.metrics.exclude",
        "barnabas.metrics.topics.include",
        "barnabas.metrics.topics.exclude",
        "barnabas.metrics.groups.include",
        "barnabas.metrics.groups.exclude",
        "barnabas.otlp.endpoint",
        "barnabas.otlp.headers",
        "barnabas.otlp.metrics.interval.ms",
        "barnabas.otlp.traces.enable",
        "barnabas.telemetry.advertise",
        "barnabas.telemetry.exporters",
        "barnabas.telemetry.topics.num.partitions",
        "barnabas.telemetry.topics.retention.ms",
        "barnabas.telemetry.topics.retention.bytes",
        "barnabas.request.log.sample.rate",
        "barnabas.quota.usage.interval.ms",
    }


def test_network_threads_follow_the_interpreter() -> None:
    key = BROKER_CONFIG_DEF.keys["num.network.threads"]
    assert key.default == HandOff.default().default_network_threads


def test_all_dynamic_settings_are_defined() -> None:
    assert set(DYNAMIC_CONFIG_DEF.keys) == ALL_DYNAMIC_CONFIGS


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("log.dirs", "read-only"),
        ("node.id", "read-only"),
        ("advertised.listeners", "per-broker"),
        ("log.retention.hours", "read-only"),
        ("listeners", "per-broker"),
        ("ssl.keystore.location", "per-broker"),
        ("cordoned.log.dirs", "per-broker"),
        ("num.io.threads", "cluster-wide"),
        ("max.connections", "cluster-wide"),
        ("log.retention.ms", "cluster-wide"),
        ("message.max.bytes", "cluster-wide"),
        ("leader.replication.throttled.rate", "cluster-wide"),
        ("barnabas.request.log.sample.rate", "cluster-wide"),
        ("barnabas.quota.usage.interval.ms", "cluster-wide"),
        ("barnabas.telemetry.exporters", "read-only"),
    ],
)
def test_update_modes(name: str, mode: str) -> None:
    assert update_mode(name) == mode


def test_definitions_take_no_heavy_imports() -> None:
    """A broker that is to answer within 400 ms cannot load numpy to read its settings."""
    code = (
        "import sys, barnabas.broker.config.kafka_config; "
        "print(sorted({'numpy', 'pyarrow', 'asyncio', 'pandas', 'http.server', 'decimal'} & sys.modules.keys()))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=180)
    assert run.stdout.strip() == "[]"
