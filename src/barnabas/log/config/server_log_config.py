"""The broker's settings about logs, and what they make of the topics' defaults.

Most settings of a topic have a twin among the broker's, which is the default of every topic that says nothing. For
reasons of history the twins have other names, sometimes several with different units; the first that is set counts::

    retention.ms < -log.retention.ms, log.retention.minutes, log.retention.hours

`TOPIC_CONFIG_SYNONYMS` is that table. `broker_topic_defaults` applies it to a parsed configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from barnabas.common.config_def import ConfigDef, ConfigError, ConfigValues, Importance, Range, Type, ValidList
from barnabas.common.numerals import parse_integer
from barnabas.log.config.log_config_def import LOG_CONFIG_DEF, LONGEST

MINUTE_MS: Final = 60 * 1000
HOUR_MS: Final = 60 * MINUTE_MS


class ConfigSynonym(NamedTuple):
    """A broker setting that stands for a topic's, and how many of the topic's units one of its own is."""

    name: str
    factor: int = 1

    def convert(self, value: str) -> str:
        """The text of this setting as a text for the topic's; ValueError if it should be a number and is not."""
        return value if self.factor == 1 else str(parse_integer(value.strip()) * self.factor)


def _synonyms(**by_topic_key: str | tuple[ConfigSynonym, ...]) -> dict[str, tuple[ConfigSynonym, ...]]:
    return {
        key.replace("_", "."): (ConfigSynonym(name),) if isinstance(name, str) else name
        for key, name in by_topic_key.items()
    }


TOPIC_CONFIG_SYNONYMS: Final[Mapping[str, tuple[ConfigSynonym, ...]]] = MappingProxyType(
    _synonyms(
        segment_bytes="log.segment.bytes",
        segment_ms=(ConfigSynonym("log.roll.ms"), ConfigSynonym("log.roll.hours", HOUR_MS)),
        segment_jitter_ms=(ConfigSynonym("log.roll.jitter.ms"), ConfigSynonym("log.roll.jitter.hours", HOUR_MS)),
        segment_index_bytes="log.index.size.max.bytes",
        flush_messages="log.flush.interval.messages",
        flush_ms=(ConfigSynonym("log.flush.interval.ms"), ConfigSynonym("log.flush.scheduler.interval.ms")),
        retention_bytes="log.retention.bytes",
        retention_ms=(
            ConfigSynonym("log.retention.ms"),
            ConfigSynonym("log.retention.minutes", MINUTE_MS),
            ConfigSynonym("log.retention.hours", HOUR_MS),
        ),
        max_message_bytes="message.max.bytes",
        max_decompressed_message_bytes="max.decompressed.message.bytes",
        index_interval_bytes="log.index.interval.bytes",
        delete_retention_ms="log.cleaner.delete.retention.ms",
        min_compaction_lag_ms="log.cleaner.min.compaction.lag.ms",
        max_compaction_lag_ms="log.cleaner.max.compaction.lag.ms",
        file_delete_delay_ms="log.segment.delete.delay.ms",
        min_cleanable_dirty_ratio="log.cleaner.min.cleanable.ratio",
        cleanup_policy="log.cleanup.policy",
        unclean_leader_election_enable="unclean.leader.election.enable",
        min_insync_replicas="min.insync.replicas",
        compression_type="compression.type",
        compression_gzip_level="compression.gzip.level",
        compression_lz4_level="compression.lz4.level",
        compression_zstd_level="compression.zstd.level",
        preallocate="log.preallocate",
        message_timestamp_type="log.message.timestamp.type",
        message_timestamp_before_max_ms="log.message.timestamp.before.max.ms",
        message_timestamp_after_max_ms="log.message.timestamp.after.max.ms",
        local_retention_ms="log.local.retention.ms",
        local_retention_bytes="log.local.retention.bytes",
        remote_copy_lag_ms="log.remote.copy.lag.ms",
        remote_copy_lag_bytes="log.remote.copy.lag.bytes",
    )
)
"""For each setting of a topic that has a twin: the broker's settings, the one that counts first in front."""


def server_synonym(topic_key: str) -> str | None:
    """The broker's setting that counts most as the default of a topic's; None for the few that have none."""
    synonyms = TOPIC_CONFIG_SYNONYMS.get(topic_key)
    return None if synonyms is None else synonyms[0].name


_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW

SERVER_LOG_CONFIG_DEF: Final = ConfigDef()
_define: Final = SERVER_LOG_CONFIG_DEF.define


def _define_twin(topic_key: str, importance: Importance = _MEDIUM) -> None:
    """The broker's setting that is just like a topic's: same type, same default, same bounds."""
    key = LOG_CONFIG_DEF.keys[topic_key]
    name = TOPIC_CONFIG_SYNONYMS[topic_key][0].name
    _define(
        name, key.type, key.default, key.validator, importance, f"For topics without {topic_key}. {key.documentation}"
    )


# Directories and topics.
# Kafka's default for log.dir is a directory that the system empties at every start; here the broker chooses one.
_define(
    "log.dir", Type.LIST, None, ValidList.any_non_duplicate_values(empty_allowed=False, null_allowed=True),
    _HIGH, "The log directory, if log.dirs is not set.",
)  # fmt: skip
_define(
    "log.dirs", Type.LIST, None, ValidList.any_non_duplicate_values(empty_allowed=False, null_allowed=True),
    _HIGH, "The log directories, usually one per disk.",
)  # fmt: skip
_define(
    "cordoned.log.dirs", Type.LIST, "", ValidList.any_non_duplicate_values(empty_allowed=True, null_allowed=False),
    _MEDIUM, "Log directories that receive no new partitions; * for all.",
)  # fmt: skip
_define(
    "num.partitions", Type.INT, 1, Range.at_least(1), _MEDIUM,
    "The number of partitions of a topic that is created without one.",
)  # fmt: skip
_define(
    "auto.create.topics.enable", Type.BOOLEAN, True, None, _HIGH,
    "Whether a metadata request for an unknown topic creates it.",
)  # fmt: skip
_define(
    "create.topic.policy.class.name", Type.CLASS, None, None, _LOW,
    "The class that can reject the creation of topics.",
)  # fmt: skip
_define(
    "alter.config.policy.class.name", Type.CLASS, None, None, _LOW,
    "The class that can reject changes of configurations.",
)  # fmt: skip

# Rolling and retention: the settings with several names.
_define_twin("segment.bytes", _HIGH)
_define(
    "log.roll.ms", Type.LONG, None, None, _HIGH,
    "The age at which a segment is rolled even if it is not full. Not set: log.roll.hours applies.",
)  # fmt: skip
_define(
    "log.roll.hours",
    Type.INT,
    168,
    Range.at_least(1),
    _HIGH,
    "The age in hours at which a segment is rolled even if it is not full.",
)
_define(
    "log.roll.jitter.ms", Type.LONG, None, None, _HIGH,
    "The maximum random time by which a segment is rolled earlier. Not set: log.roll.jitter.hours applies.",
)  # fmt: skip
_define(
    "log.roll.jitter.hours",
    Type.INT,
    0,
    Range.at_least(0),
    _HIGH,
    "The maximum random time in hours by which a segment is rolled earlier.",
)
_define(
    "log.retention.ms", Type.LONG, None, None, _HIGH,
    "The minimum time that records are kept; -1 for no limit. Not set: log.retention.minutes applies.",
)  # fmt: skip
_define(
    "log.retention.minutes", Type.INT, None, None, _HIGH,
    "The minimum time in minutes that records are kept. Not set: log.retention.hours applies.",
)  # fmt: skip
_define("log.retention.hours", Type.INT, 168, None, _HIGH, "The minimum time in hours that records are kept.")
_define_twin("retention.bytes", _HIGH)
_define(
    "log.retention.check.interval.ms", Type.LONG, 300_000, Range.at_least(1), _MEDIUM,
    "How often the log manager looks for segments to delete.",
)  # fmt: skip
_define_twin("cleanup.policy")
_define_twin("file.delete.delay.ms", _HIGH)

# Indexes and files.
_define_twin("segment.index.bytes")
_define_twin("index.interval.bytes")
_define_twin("preallocate")

# Flushing and checkpoints.
_define_twin("flush.messages", _HIGH)
_define(
    "log.flush.interval.ms", Type.LONG, None, None, _HIGH,
    "The time after which a log is flushed to disk. Not set: log.flush.scheduler.interval.ms applies.",
)  # fmt: skip
_define(
    "log.flush.scheduler.interval.ms", Type.LONG, LONGEST, None, _HIGH,
    "How often the log manager looks for logs to flush to disk.",
)  # fmt: skip
_define(
    "log.flush.offset.checkpoint.interval.ms", Type.INT, 60_000, Range.at_least(0), _HIGH,
    "How often the recovery points (the offsets up to which logs are flushed) are written to the checkpoint file. "
    "Recovery starts there.",
)  # fmt: skip
_define(
    "log.flush.start.offset.checkpoint.interval.ms", Type.INT, 60_000, Range.at_least(0), _HIGH,
    "How often log start offsets are written to the checkpoint file, so that deleted records do not reappear.",
)  # fmt: skip
_define(
    "num.recovery.threads.per.data.dir", Type.INT, 2, Range.at_least(1), _HIGH,
    "The number of threads per log directory that load logs at startup and flush them at shutdown.",
)  # fmt: skip
_define(
    "log.dir.failure.timeout.ms", Type.LONG, 30_000, Range.at_least(1), _LOW,
    "How long the broker tries to report a failed log directory to the controller. If it cannot, and leads a "
    "partition in that directory, it stops.",
)  # fmt: skip
_define(
    "log.initial.task.delay.ms", Type.LONG, 30_000, Range.at_least(0), _LOW,
    "How long after startup the periodic tasks of the log manager begin.", internal=True,
)  # fmt: skip

# What is accepted from producers, and replication.
_define_twin("max.message.bytes", _HIGH)
_define_twin("max.decompressed.message.bytes")
_define_twin("message.timestamp.type")
_define_twin("message.timestamp.before.max.ms")
_define_twin("message.timestamp.after.max.ms")
_define_twin("compression.type", _HIGH)
_define_twin("compression.gzip.level")
_define_twin("compression.lz4.level")
_define_twin("compression.zstd.level")
_define_twin("min.insync.replicas", _HIGH)
_define_twin("unclean.leader.election.enable", _HIGH)

# The cleaner.
_define(
    "log.cleaner.enable", Type.BOOLEAN, True, None, _MEDIUM,
    "Whether the log cleaner runs. Some internal topics need it.",
)  # fmt: skip
_define(
    "log.cleaner.threads", Type.INT, 1, Range.at_least(0), _MEDIUM, "The number of cleaner threads.",
)  # fmt: skip
_define(
    "log.cleaner.io.max.bytes.per.second", Type.DOUBLE, 1.7976931348623157e308, None, _MEDIUM,
    "The maximum number of bytes per second that all cleaner threads together read and write.",
)  # fmt: skip
_define(
    "log.cleaner.dedupe.buffer.size", Type.LONG, 128 * 1024 * 1024, None, _MEDIUM,
    "The memory for the key maps of all cleaner threads together.",
)  # fmt: skip
_define(
    "log.cleaner.io.buffer.size", Type.INT, 512 * 1024, Range.at_least(0), _MEDIUM,
    "The memory for the I/O buffers of all cleaner threads together.",
)  # fmt: skip
_define(
    "log.cleaner.io.buffer.load.factor", Type.DOUBLE, 0.9, None, _MEDIUM,
    "How full a key map may become. A higher value cleans more keys per pass, with more hash collisions.",
)  # fmt: skip
_define(
    "log.cleaner.backoff.ms", Type.LONG, 15_000, Range.at_least(0), _MEDIUM,
    "How long a cleaner thread sleeps when no log needs cleaning.",
)  # fmt: skip
_define_twin("min.cleanable.dirty.ratio")
_define_twin("delete.retention.ms")
_define_twin("min.compaction.lag.ms")
_define_twin("max.compaction.lag.ms")

# Remote storage.
_define_twin("local.retention.ms")
_define_twin("local.retention.bytes")
_define_twin("remote.copy.lag.ms")
_define_twin("remote.copy.lag.bytes")


def broker_topic_defaults(values: ConfigValues) -> dict[str, Any]:
    """The topic settings that a broker's parsed configuration stands for: the `defaults` of a `LogConfig`.

    Raises `ConfigError` if it cannot stand for one, named after the broker's setting.
    """
    defaults: dict[str, Any] = {}
    for topic_key, synonyms in TOPIC_CONFIG_SYNONYMS.items():
        # The last synonym has a default, so one of them always has a value.
        name, factor = next(synonym for synonym in synonyms if values[synonym.name] is not None)
        value = values[name] if factor == 1 else values[name] * factor
        if topic_key == "retention.ms" and value < 0:
            value = -1  # -1 hours is "for ever" as well
        if topic_key == "retention.ms" and value == 0:
            raise ConfigError.invalid(name, value, "it must be at least 1, or -1 for ever")
        try:
            defaults[topic_key] = LOG_CONFIG_DEF.parse_value(topic_key, value)
        except ConfigError as error:
            raise ConfigError(f"{error} (It comes from {name}.)", name=name) from None
    return defaults


def log_directories(values: ConfigValues) -> tuple[str, ...]:
    """Where the logs are: ``log.dirs`` if it is set, else ``log.dir``; nothing if neither is."""
    return values.get_optional_list("log.dirs") or values.get_optional_list("log.dir") or ()
