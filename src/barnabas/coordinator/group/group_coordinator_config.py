"""The settings of the group coordinator."""

from __future__ import annotations

from enum import Enum
from typing import Final, Self

from barnabas.common.config_def import ConfigError, ConfigValues
from barnabas.common.dataclass import dataclass
from barnabas.records.batch import CompressionType


class ConsumerGroupMigrationPolicy(Enum):
    """Whether a group with members may change its protocol. An empty one always may."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def is_upgrade_enabled(self) -> bool:
        """Whether a group may change from classic to consumer."""
        return self in {ConsumerGroupMigrationPolicy.UPGRADE, ConsumerGroupMigrationPolicy.BIDIRECTIONAL}

    @property
    def is_downgrade_enabled(self) -> bool:
        return self in {ConsumerGroupMigrationPolicy.DOWNGRADE, ConsumerGroupMigrationPolicy.BIDIRECTIONAL}


_MAX_INT = 2**31 - 1

_ASSIGNORS: Final = {
    "uniform": "uniform",
    "range": "range",
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}


def assignor_name(setting: str) -> str:
    """Returns the name of an assignor, which may be given by its class in Kafka. Raises `ConfigError` if unknown."""
    name = _ASSIGNORS.get(setting)
    if name is None:
        raise ConfigError.invalid("group.consumer.assignors", setting, "unknown assignor")
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCoordinatorConfig:
    """The group settings of a broker; the defaults are Kafka's."""

    num_threads: int = 4
    num_background_threads: int = 2
    append_linger_ms: int = -1
    """-1: as long as more operations wait for the same partition."""
    rebalance_protocols: frozenset[str] = frozenset({"classic", "consumer"})
    offsets_topic_num_partitions: int = 50
    offsets_topic_compression: CompressionType = CompressionType.NONE
    offset_metadata_max_size: int = 4096
    offset_commit_timeout_ms: int = 5000
    offsets_load_buffer_size: int = 5 * 1024 * 1024
    offsets_retention_ms: int = 7 * 24 * 3600 * 1000
    offsets_retention_check_interval_ms: int = 600_000

    classic_min_session_timeout_ms: int = 6000
    classic_max_session_timeout_ms: int = 1_800_000
    classic_initial_rebalance_delay_ms: int = 3000
    classic_new_member_join_timeout_ms: int = 5 * 60 * 1000
    """How long the first rebalance of a new member may take before it is removed. Not a setting."""
    classic_max_size: int = _MAX_INT

    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    consumer_migration_policy: ConsumerGroupMigrationPolicy = ConsumerGroupMigrationPolicy.BIDIRECTIONAL
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5000
    consumer_assignment_interval_ms: int = 1000
    """The minimum time between two target assignments of a group (KIP-1263)."""
    consumer_max_size: int = _MAX_INT
    consumer_regex_refresh_interval_ms: int = 600_000

    @classmethod
    def from_values(cls, values: ConfigValues) -> Self:
        get_int = values.get_int
        return cls(
            num_threads=get_int("group.coordinator.threads"),
            num_background_threads=get_int("group.coordinator.background.threads"),
            append_linger_ms=get_int("group.coordinator.append.linger.ms"),
            rebalance_protocols=frozenset(values["group.coordinator.rebalance.protocols"]),
            offsets_topic_num_partitions=get_int("offsets.topic.num.partitions"),
            offsets_topic_compression=CompressionType(get_int("offsets.topic.compression.codec")),
            offset_metadata_max_size=get_int("offset.metadata.max.bytes"),
            offset_commit_timeout_ms=get_int("offsets.commit.timeout.ms"),
            offsets_load_buffer_size=get_int("offsets.load.buffer.size"),
            offsets_retention_ms=get_int("offsets.retention.minutes") * 60 * 1000,
            offsets_retention_check_interval_ms=get_int("offsets.retention.check.interval.ms"),
            classic_min_session_timeout_ms=get_int("group.min.session.timeout.ms"),
            classic_max_session_timeout_ms=get_int("group.max.session.timeout.ms"),
            classic_initial_rebalance_delay_ms=get_int("group.initial.rebalance.delay.ms"),
            classic_max_size=get_int("group.max.size"),
            consumer_assignors=tuple(values["group.consumer.assignors"]),
            consumer_migration_policy=ConsumerGroupMigrationPolicy(
                str(values["group.consumer.migration.policy"]).lower()
            ),
            consumer_session_timeout_ms=get_int("group.consumer.session.timeout.ms"),
            consumer_heartbeat_interval_ms=get_int("group.consumer.heartbeat.interval.ms"),
            consumer_assignment_interval_ms=get_int("group.consumer.assignment.interval.ms"),
            consumer_max_size=get_int("group.consumer.max.size"),
            consumer_regex_refresh_interval_ms=get_int("group.consumer.regex.refresh.interval.ms"),
        )
