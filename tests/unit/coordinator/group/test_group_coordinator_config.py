from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.broker.config.kafka_config import KafkaConfig
from barnabas.common.config_def import ConfigError
from barnabas.coordinator.group.group_coordinator_builder import make_assignors
from barnabas.coordinator.group.group_coordinator_config import (
    ConsumerGroupMigrationPolicy,
    GroupCoordinatorConfig,
)
from barnabas.coordinator.group.group_settings import GroupSettings
from barnabas.records.batch import CompressionType


def config(tmp_path: Path, **overrides: str) -> GroupCoordinatorConfig:
    given = {name.replace("_", "."): value for name, value in overrides.items()}
    return GroupCoordinatorConfig.from_values(KafkaConfig.for_zero_configuration(tmp_path, overrides=given).values)


def test_the_defaults_are_kafkas(tmp_path: Path) -> None:
    made, plain = config(tmp_path, group_initial_rebalance_delay_ms="3000"), GroupCoordinatorConfig()
    different = {
        name for name in GroupCoordinatorConfig.__dataclass_fields__ if getattr(made, name) != getattr(plain, name)
    }
    # This broker serves no streams groups, whatever the setting says.
    assert different <= {"rebalance_protocols"}


def test_what_is_set_counts(tmp_path: Path) -> None:
    made = config(
        tmp_path,
        group_consumer_migration_policy="UPGRADE",
        offsets_retention_minutes="2",
        offsets_topic_compression_codec="4",
        group_consumer_assignors="range",
    )
    assert made.consumer_migration_policy is ConsumerGroupMigrationPolicy.UPGRADE
    assert made.consumer_migration_policy.is_upgrade_enabled
    assert not made.consumer_migration_policy.is_downgrade_enabled
    assert made.offsets_retention_ms == 120_000
    assert made.offsets_topic_compression is CompressionType.ZSTD
    assert [assignor.name for assignor in make_assignors(made.consumer_assignors)] == ["range"]


def test_an_assignor_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match="unknown assignor"):
        make_assignors(("com.example.Mine",))


def test_a_group_has_its_own_settings_or_the_brokers() -> None:
    settings = GroupSettings(
        GroupCoordinatorConfig(), lambda group_id: {"consumer.session.timeout.ms": "1"} if group_id == "g" else {}
    )
    assert (settings.session_timeout_ms("g"), settings.session_timeout_ms("h")) == (1, 45_000)
    assert (settings.heartbeat_interval_ms("g"), settings.assignment_interval_ms("g")) == (5000, 1000)
