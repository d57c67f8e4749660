"""The configuration of a log, and the validation of a topic's settings.

A topic's setting has one of three origins: the topic's own override, the broker's default for all topics (its own
settings under other names, see `barnabas.log.config.server_log_config`), or the default in
`barnabas.log.config.log_config_def`. `LogConfig.from_properties` merges them into a frozen value, which a log
can keep and compare.

    defaults = broker_topic_defaults(server_values)                        # once
    config = LogConfig.from_properties({"cleanup.policy": "compact"}, defaults)
    config.compact, config.segment_bytes

The definition of a setting checks its value. The controller calls `validate_topic_config` before it stores a topic's
configuration; it also rejects settings that contradict each other.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final, Self

from barnabas.common.config_def import ConfigError, ConfigValues, convert_to_string
from barnabas.common.dataclass import dataclass, field, fields
from barnabas.common.errors import InvalidConfigurationError
from barnabas.log.config.log_config_def import (
    CLEANUP_POLICY_COMPACT,
    CLEANUP_POLICY_DELETE,
    LOCAL_RETENTION_AS_TOTAL,
    LOG_CONFIG_DEF,
)
from barnabas.records.batch import CompressionType, TimestampType

UNLIMITED: Final = -1
"""``retention.ms`` and ``retention.bytes``: no limit."""

_DERIVED: Final = -1
"""``remote.copy.lag.*``: as much as local retention allows."""


def _setting(key: str) -> Any:
    """Creates a field for the setting `key`, with its default."""
    return field(default=LOG_CONFIG_DEF.keys[key].default, metadata={"key": key})


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """A topic's settings, each under its name with underscores for dots.

    The constructor checks nothing, so that tests can have segments of a few bytes.
    """

    segment_bytes: int = _setting("segment.bytes")
    """The size at which segments roll; ``internal.segment.bytes`` is already taken into account."""
    segment_ms: int = _setting("segment.ms")
    segment_jitter_ms: int = _setting("segment.jitter.ms")
    segment_index_bytes: int = _setting("segment.index.bytes")
    index_interval_bytes: int = _setting("index.interval.bytes")
    preallocate: bool = _setting("preallocate")
    file_delete_delay_ms: int = _setting("file.delete.delay.ms")

    flush_messages: int = _setting("flush.messages")
    flush_ms: int = _setting("flush.ms")

    cleanup_policy: tuple[str, ...] = _setting("cleanup.policy")
    retention_ms: int = _setting("retention.ms")
    retention_bytes: int = _setting("retention.bytes")
    delete_retention_ms: int = _setting("delete.retention.ms")
    min_compaction_lag_ms: int = _setting("min.compaction.lag.ms")
    max_compaction_lag_ms: int = _setting("max.compaction.lag.ms")
    min_cleanable_dirty_ratio: float = _setting("min.cleanable.dirty.ratio")

    max_message_bytes: int = _setting("max.message.bytes")
    max_decompressed_message_bytes: int = _setting("max.decompressed.message.bytes")
    message_timestamp_type: str = _setting("message.timestamp.type")
    message_timestamp_before_max_ms: int = _setting("message.timestamp.before.max.ms")
    message_timestamp_after_max_ms: int = _setting("message.timestamp.after.max.ms")
    compression_type: str = _setting("compression.type")
    compression_gzip_level: int = _setting("compression.gzip.level")
    compression_lz4_level: int = _setting("compression.lz4.level")
    compression_zstd_level: int = _setting("compression.zstd.level")

    min_insync_replicas: int = _setting("min.insync.replicas")
    unclean_leader_election_enable: bool = _setting("unclean.leader.election.enable")
    leader_replication_throttled_replicas: tuple[str, ...] = _setting("leader.replication.throttled.replicas")
    follower_replication_throttled_replicas: tuple[str, ...] = _setting("follower.replication.throttled.replicas")

    remote_storage_enable: bool = _setting("remote.storage.enable")
    local_retention_ms: int = _setting("local.retention.ms")
    """The configured value; use `effective_local_retention_ms`."""
    local_retention_bytes: int = _setting("local.retention.bytes")
    """The configured value; use `effective_local_retention_bytes`."""
    remote_log_copy_disable: bool = _setting("remote.log.copy.disable")
    remote_copy_lag_ms: int = _setting("remote.copy.lag.ms")
    remote_copy_lag_bytes: int = _setting("remote.copy.lag.bytes")
    remote_log_delete_on_disable: bool = _setting("remote.log.delete.on.disable")
    errors_deadletterqueue_group_enable: bool = _setting("errors.deadletterqueue.group.enable")

    overridden: frozenset[str] = frozenset()
    """The names of the settings that the topic overrides."""

    # Derived values that the append and read paths use often are computed once.
    compact: bool = field(init=False, repr=False, compare=False)
    """Whether the cleaner compacts this log."""
    delete: bool = field(init=False, repr=False, compare=False)
    """Whether old segments are deleted by age and size."""
    timestamp_type: TimestampType = field(init=False, repr=False, compare=False)
    compression: CompressionType | None = field(init=False, repr=False, compare=False)
    """The codec for batches; None keeps the producer's codec."""
    compression_level: int | None = field(init=False, repr=False, compare=False)
    """The level that goes with `compression`; None for codecs that have no levels."""
    max_segment_ms: int = field(init=False, repr=False, compare=False)
    """The age at which a segment rolls. ``max.compaction.lag.ms`` limits it in a compacted log, because the active
    segment is not compacted."""

    def __post_init__(self) -> None:
        def derive(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        derive("compact", CLEANUP_POLICY_COMPACT in self.cleanup_policy)
        derive("delete", CLEANUP_POLICY_DELETE in self.cleanup_policy)
        derive("timestamp_type", TimestampType.for_name(self.message_timestamp_type))
        match self.compression_type:
            case "producer":
                compression = None
            case "uncompressed":
                compression = CompressionType.NONE
            case name:
                compression = CompressionType.for_name(name)
        derive("compression", compression)
        levels = {
            CompressionType.GZIP: self.compression_gzip_level,
            CompressionType.LZ4: self.compression_lz4_level,
            CompressionType.ZSTD: self.compression_zstd_level,
        }
        derive("compression_level", None if compression is None else levels.get(compression))
        limited = self.compact and self.max_compaction_lag_ms > 0
        derive("max_segment_ms", min(self.max_compaction_lag_ms, self.segment_ms) if limited else self.segment_ms)

    @classmethod
    def from_properties(cls, overrides: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> Self:
        """Creates the configuration of a topic with these overrides. Raises `ConfigError` for an invalid value.

        Settings unknown to Kafka and Barnabas are ignored: a later version may have created the topic.
        """
        values = LOG_CONFIG_DEF.parse({**(defaults or {}), **overrides})
        settings = {item.name: values[item.metadata["key"]] for item in fields(cls) if "key" in item.metadata}
        internal_segment_bytes = values.get_optional_int("internal.segment.bytes")
        if internal_segment_bytes is not None:
            settings["segment_bytes"] = internal_segment_bytes
        return cls(**settings, overridden=frozenset(overrides))

    @property
    def init_file_size(self) -> int:
        """The initial size of a new segment's file."""
        return self.segment_bytes if self.preallocate else 0

    def random_segment_jitter(self, source: random.Random) -> int:
        """Returns how much earlier than `max_segment_ms` a new segment rolls."""
        if self.segment_jitter_ms == 0:
            return 0
        return source.randrange(1 << 31) % min(self.segment_jitter_ms, self.segment_ms)

    @property
    def effective_local_retention_ms(self) -> int:
        return self.retention_ms if self.local_retention_ms == LOCAL_RETENTION_AS_TOTAL else self.local_retention_ms

    @property
    def effective_local_retention_bytes(self) -> int:
        if self.local_retention_bytes == LOCAL_RETENTION_AS_TOTAL:
            return self.retention_bytes
        return self.local_retention_bytes

    @property
    def effective_remote_copy_lag_ms(self) -> int:
        """The age at which a segment may be copied; -1 if age does not count, because local retention is unlimited."""
        return self.effective_local_retention_ms if self.remote_copy_lag_ms == _DERIVED else self.remote_copy_lag_ms

    @property
    def effective_remote_copy_lag_bytes(self) -> int:
        if self.remote_copy_lag_bytes == _DERIVED:
            return self.effective_local_retention_bytes
        return self.remote_copy_lag_bytes

    def to_properties(self) -> dict[str, str]:
        """Returns all settings as strings by name, for the ``DescribeConfigs`` response."""
        return {
            item.metadata["key"]: convert_to_string(getattr(self, item.name)) or ""
            for item in fields(self)
            if "key" in item.metadata
        }


def topic_config_names() -> list[str]:
    """Returns the names of all topic settings, except internal ones."""
    return sorted(key.name for key in LOG_CONFIG_DEF.keys.values() if not key.internal)


def validate_topic_config(
    properties: Mapping[str, Any],
    *,
    defaults: Mapping[str, Any] | None = None,
    existing: Mapping[str, Any] | None = None,
    remote_storage_available: bool = False,
) -> None:
    """Raises `InvalidConfigurationError` if a topic may not have these settings.

    `defaults` are the broker's, `existing` are the topic's current settings (to detect that remote storage is being
    switched off), `remote_storage_available` is whether this cluster has remote storage.
    """
    for name in properties:
        if name not in LOG_CONFIG_DEF.keys:
            raise InvalidConfigurationError(f"Unknown topic config name: {name}")
    values = LOG_CONFIG_DEF.parse({**(defaults or {}), **properties})
    _validate_compaction_lag(values)
    if values.get_bool("remote.storage.enable"):
        if not remote_storage_available:
            raise ConfigError(
                "Configuration remote.storage.enable cannot be true: this broker has no remote storage.",
                name="remote.storage.enable",
            )
        _validate_remote_storage(values)
    elif convert_to_string((existing or {}).get("remote.storage.enable")) == "true":
        _validate_end_of_remote_storage(values)


def validate_broker_topic_defaults(defaults: Mapping[str, Any], *, remote_storage_available: bool = False) -> None:
    """Raises an error if the topic defaults from a broker's settings are invalid."""
    values = LOG_CONFIG_DEF.parse(defaults)
    _validate_compaction_lag(values)
    if remote_storage_available:
        _validate_local_retention(values, "ms")
        _validate_local_retention(values, "bytes")


def _validate_compaction_lag(values: ConfigValues) -> None:
    shortest, longest = values.get_int("min.compaction.lag.ms"), values.get_int("max.compaction.lag.ms")
    if shortest > longest:
        raise InvalidConfigurationError(
            f"min.compaction.lag.ms ({shortest}) cannot be above max.compaction.lag.ms ({longest})."
        )


def _validate_remote_storage(values: ConfigValues) -> None:
    policy = values.get_list("cleanup.policy")
    if policy not in {(), (CLEANUP_POLICY_DELETE,)}:
        raise ConfigError.invalid(
            "cleanup.policy", policy, "a topic with remote storage can only have delete, or an empty list"
        )
    for unit in ("bytes", "ms"):
        _validate_local_retention(values, unit)
        _validate_copy_lag(values, unit)
        local, total = values.get_int(f"local.retention.{unit}"), values.get_int(f"retention.{unit}")
        if values.get_bool("remote.log.copy.disable") and local not in {LOCAL_RETENTION_AS_TOTAL, total}:
            raise InvalidConfigurationError(
                f"With remote.log.copy.disable, local.retention.{unit} ({local}) has to be the same as "
                f"retention.{unit} ({total}), because nothing goes to remote storage any more."
            )


def _validate_local_retention(values: ConfigValues, unit: str) -> None:
    name = f"local.retention.{unit}"
    local, total = values.get_int(name), values.get_int(f"retention.{unit}")
    if total <= UNLIMITED or local == LOCAL_RETENTION_AS_TOTAL:
        return
    if local == UNLIMITED or local > total:
        raise ConfigError.invalid(name, local, f"it must stay within retention.{unit}, which is {total}")


def _validate_copy_lag(values: ConfigValues, unit: str) -> None:
    name = f"remote.copy.lag.{unit}"
    lag, local = values.get_int(name), values.get_int(f"local.retention.{unit}")
    if local == LOCAL_RETENTION_AS_TOTAL:
        local = values.get_int(f"retention.{unit}")
    if 0 <= local < lag:
        raise ConfigError.invalid(name, lag, f"it must stay within local.retention.{unit}, which comes to {local}")


def _validate_end_of_remote_storage(values: ConfigValues) -> None:
    if not values.get_bool("remote.log.delete.on.disable"):
        raise InvalidConfigurationError(
            "Remote storage cannot be switched off while its data stays. To delete the data, also set "
            "remote.log.delete.on.disable=true; to keep it for reading, leave remote.storage.enable=true and set "
            "remote.log.copy.disable=true."
        )
