from __future__ import annotations

import dataclasses
import random

import pytest

from barnabas.common.config_def import ConfigError, Type
from barnabas.common.errors import Errors, InvalidConfigurationError
from barnabas.log.config.log_config import (
    LogConfig,
    topic_config_names,
    validate_broker_topic_defaults,
    validate_topic_config,
)
from barnabas.log.config.log_config_def import LOG_CONFIG_DEF
from barnabas.log.config.server_log_config import (
    SERVER_LOG_CONFIG_DEF,
    TOPIC_CONFIG_SYNONYMS,
    ConfigSynonym,
    broker_topic_defaults,
    log_directories,
    server_synonym,
)
from barnabas.records.batch import CompressionType, TimestampType

DAY_MS = 24 * 60 * 60 * 1000


def config(**overrides: str) -> LogConfig:
    return LogConfig.from_properties({name.replace("_", "."): value for name, value in overrides.items()})


def test_without_settings_everything_has_its_default() -> None:
    assert LogConfig.from_properties({}) == LogConfig()
    assert LogConfig().segment_bytes == 1 << 30
    assert LogConfig().max_message_bytes == 1_048_588
    assert LogConfig().retention_ms == 7 * DAY_MS
    assert LogConfig().message_timestamp_after_max_ms == 60 * 60 * 1000
    assert LogConfig().timestamp_type is TimestampType.CREATE_TIME
    assert LogConfig().compression is None
    assert (LogConfig().compact, LogConfig().delete) == (False, True)


def test_every_setting_has_its_field() -> None:
    fields = {item.metadata["key"]: item.name for item in dataclasses.fields(LogConfig) if "key" in item.metadata}
    assert set(fields) == set(LOG_CONFIG_DEF.keys) - {"internal.segment.bytes"}
    assert all(name == key.replace(".", "_") for key, name in fields.items())
    assert sorted(fields) == topic_config_names()


def test_every_setting_says_what_it_is_for() -> None:
    for key in [*LOG_CONFIG_DEF.keys.values(), *SERVER_LOG_CONFIG_DEF.keys.values()]:
        assert key.documentation, key.name


def test_a_topic_overrides_the_broker_which_overrides_the_default() -> None:
    defaults = {"segment.bytes": 2 << 20, "segment.ms": 5}
    made = LogConfig.from_properties({"segment.ms": "7", "from.a.later.version": "x"}, defaults)
    assert (made.segment_bytes, made.segment_ms, made.segment_jitter_ms) == (2 << 20, 7, 0)
    assert made.overridden == {"segment.ms", "from.a.later.version"}


def test_it_is_frozen_and_comparable() -> None:
    assert config(segment_ms="5") == config(segment_ms="5")
    assert config(segment_ms="5") != config(segment_ms="6")
    with pytest.raises(dataclasses.FrozenInstanceError):
        config().segment_ms = 5  # type: ignore[misc]


def test_all_settings_as_texts_make_the_same_again() -> None:
    made = config(cleanup_policy="compact,delete", min_cleanable_dirty_ratio="0.25", preallocate="true")
    again = LogConfig.from_properties(made.to_properties())
    assert dataclasses.replace(again, overridden=made.overridden) == made


@pytest.mark.parametrize(
    ("policy", "compact", "delete"),
    [("delete", False, True), ("compact", True, False), ("compact, delete", True, True), ("", False, False)],
)
def test_cleanup_policies(policy: str, compact: bool, delete: bool) -> None:
    made = config(cleanup_policy=policy)
    assert (made.compact, made.delete) == (compact, delete)


@pytest.mark.parametrize(
    ("settings", "compression", "level"),
    [
        ({"compression_type": "producer"}, None, None),
        ({"compression_type": "uncompressed"}, CompressionType.NONE, None),
        ({"compression_type": "snappy"}, CompressionType.SNAPPY, None),
        ({"compression_type": "gzip"}, CompressionType.GZIP, -1),
        ({"compression_type": "gzip", "compression_gzip_level": "9"}, CompressionType.GZIP, 9),
        ({"compression_type": "lz4", "compression_lz4_level": "17"}, CompressionType.LZ4, 17),
        ({"compression_type": "zstd", "compression_zstd_level": "-5"}, CompressionType.ZSTD, -5),
        ({"compression_type": "zstd", "compression_gzip_level": "9"}, CompressionType.ZSTD, 3),
    ],
)
def test_compression(settings: dict[str, str], compression: CompressionType | None, level: int | None) -> None:
    made = config(**settings)
    assert (made.compression, made.compression_level) == (compression, level)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("segment.bytes", "1048575"),
        ("segment.bytes", "2147483648"),
        ("segment.ms", "0"),
        ("segment.index.bytes", "3"),
        ("retention.ms", "-2"),
        ("flush.messages", "0"),
        ("max.compaction.lag.ms", "0"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("min.cleanable.dirty.ratio", "NaN"),
        ("cleanup.policy", "discard"),
        ("cleanup.policy", "delete,,compact"),
        ("message.timestamp.type", "createtime"),
        ("min.insync.replicas", "0"),
        ("unclean.leader.election.enable", "yes"),
        ("compression.type", "none"),
        ("compression.gzip.level", "0"),
        ("compression.gzip.level", "10"),
        ("compression.lz4.level", "18"),
        ("compression.zstd.level", "23"),
        ("leader.replication.throttled.replicas", "0:1,x"),
        ("follower.replication.throttled.replicas", "*,0:1"),
        ("local.retention.ms", "-3"),
        ("remote.copy.lag.bytes", "-2"),
    ],
)
def test_values_out_of_bounds(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=rf"^Configuration {name} cannot be ") as caught:
        LogConfig.from_properties({name: value})
    with pytest.raises(ConfigError):
        validate_topic_config({name: value})
    assert Errors.for_exception(caught.value) is Errors.INVALID_CONFIG


@pytest.mark.parametrize("value", ["", "*", "0:1", "0:1, 1:2 ,12:101"])
def test_throttled_replicas(value: str) -> None:
    made = LogConfig.from_properties({"leader.replication.throttled.replicas": value})
    assert made.leader_replication_throttled_replicas == tuple(part.strip() for part in value.split(",") if part)


def test_tests_may_have_tiny_segments() -> None:
    assert LogConfig.from_properties({"internal.segment.bytes": "100"}).segment_bytes == 100
    assert LogConfig(segment_bytes=100).init_file_size == 0
    assert LogConfig(segment_bytes=100, preallocate=True).init_file_size == 100
    assert "internal.segment.bytes" not in topic_config_names()


def test_a_compacted_log_rolls_in_time_for_its_compaction() -> None:
    assert LogConfig(segment_ms=50, max_compaction_lag_ms=10).max_segment_ms == 50
    assert LogConfig(segment_ms=50, max_compaction_lag_ms=10, cleanup_policy=("compact",)).max_segment_ms == 10
    assert LogConfig(segment_ms=50, max_compaction_lag_ms=90, cleanup_policy=("compact",)).max_segment_ms == 50


def test_segment_jitter_is_less_than_its_limit_and_than_the_age() -> None:
    source = random.Random(5)
    assert LogConfig().random_segment_jitter(source) == 0
    drawn = {LogConfig(segment_jitter_ms=10, segment_ms=3).random_segment_jitter(source) for _ in range(100)}
    assert drawn == {0, 1, 2}


def test_derived_remote_settings() -> None:
    made = LogConfig(retention_ms=100, retention_bytes=1000)
    assert (made.effective_local_retention_ms, made.effective_local_retention_bytes) == (100, 1000)
    assert (made.effective_remote_copy_lag_ms, made.effective_remote_copy_lag_bytes) == (0, 1000)
    made = LogConfig(local_retention_ms=10, local_retention_bytes=20, remote_copy_lag_ms=-1, remote_copy_lag_bytes=5)
    assert (made.effective_local_retention_ms, made.effective_local_retention_bytes) == (10, 20)
    assert (made.effective_remote_copy_lag_ms, made.effective_remote_copy_lag_bytes) == (10, 5)


# Settings that have to fit together


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(InvalidConfigurationError, match=r"^Unknown topic config name: segment\.size$"):
        validate_topic_config({"segment.size": "5"})


def test_compaction_lags_must_not_cross() -> None:
    validate_topic_config({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"})
    with pytest.raises(InvalidConfigurationError, match=r"min\.compaction\.lag\.ms \(6\) cannot be above"):
        validate_topic_config({"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"})
    with pytest.raises(InvalidConfigurationError, match=r"cannot be above"):
        validate_topic_config({"min.compaction.lag.ms": "6"}, defaults={"max.compaction.lag.ms": 5})
    with pytest.raises(InvalidConfigurationError, match=r"cannot be above"):
        validate_broker_topic_defaults({"min.compaction.lag.ms": 6, "max.compaction.lag.ms": 5})


def test_remote_storage_needs_a_broker_that_has_it() -> None:
    validate_topic_config({"remote.storage.enable": "true"}, remote_storage_available=True)
    with pytest.raises(ConfigError, match="has no remote storage"):
        validate_topic_config({"remote.storage.enable": "true"})


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"cleanup.policy": "compact"}, r"cleanup\.policy cannot be \[compact\]"),
        ({"cleanup.policy": "compact,delete"}, "can only have delete"),
        ({"retention.ms": "10", "local.retention.ms": "11"}, r"stay within retention\.ms, which is 10"),
        ({"retention.ms": "10", "local.retention.ms": "-1"}, r"local\.retention\.ms cannot be -1"),
        ({"retention.bytes": "10", "local.retention.bytes": "11"}, r"stay within retention\.bytes"),
        ({"retention.bytes": "10", "local.retention.bytes": "-1"}, r"local\.retention\.bytes cannot be -1"),
        ({"local.retention.ms": "10", "remote.copy.lag.ms": "11"}, r"within local\.retention\.ms, which comes to 10"),
        ({"retention.bytes": "10", "remote.copy.lag.bytes": "11"}, r"within local\.retention\.bytes"),
        ({"remote.log.copy.disable": "true", "local.retention.ms": "5"}, "has to be the same"),
        ({"remote.log.copy.disable": "true", "local.retention.bytes": "5"}, "has to be the same"),
    ],
)
def test_remote_storage_limits_other_settings(settings: dict[str, str], reason: str) -> None:
    validate_topic_config(settings, remote_storage_available=True)
    with pytest.raises(InvalidConfigurationError, match=reason):
        validate_topic_config({"remote.storage.enable": "true", **settings}, remote_storage_available=True)


@pytest.mark.parametrize(
    "settings",
    [
        {"cleanup.policy": ""},
        {"retention.ms": "-1", "local.retention.ms": "-1"},
        {"retention.ms": "10", "local.retention.ms": "10"},
        {"retention.ms": "10", "local.retention.ms": "0"},
        {"local.retention.bytes": "-1"},
        {"local.retention.ms": "10", "remote.copy.lag.ms": "10"},
        {"retention.ms": "-1", "remote.copy.lag.ms": "99999999999"},
        {"remote.log.copy.disable": "true", "retention.ms": "5", "local.retention.ms": "5"},
    ],
)
def test_what_remote_storage_allows(settings: dict[str, str]) -> None:
    validate_topic_config({"remote.storage.enable": "true", **settings}, remote_storage_available=True)


def test_remote_storage_is_not_switched_off_by_accident() -> None:
    existing = {"remote.storage.enable": "true"}
    with pytest.raises(InvalidConfigurationError, match="cannot be switched off"):
        validate_topic_config({}, existing=existing)
    validate_topic_config({"remote.log.delete.on.disable": "true"}, existing=existing)
    validate_topic_config({}, existing={"remote.storage.enable": "false"})


def test_local_retention_of_the_broker() -> None:
    defaults = {"retention.ms": 10, "local.retention.ms": 11}
    validate_broker_topic_defaults(defaults)
    with pytest.raises(ConfigError, match="stay within"):
        validate_broker_topic_defaults(defaults, remote_storage_available=True)


# The broker's own settings


def defaults_of(**settings: str) -> LogConfig:
    values = SERVER_LOG_CONFIG_DEF.parse({name.replace("_", "."): value for name, value in settings.items()})
    return LogConfig.from_properties({}, broker_topic_defaults(values))


def test_a_broker_without_settings_changes_nothing() -> None:
    assert defaults_of() == LogConfig()


@pytest.mark.parametrize(
    ("settings", "retention_ms"),
    [
        ({"log_retention_hours": "2"}, 2 * 60 * 60 * 1000),
        ({"log_retention_hours": "2", "log_retention_minutes": "3"}, 3 * 60 * 1000),
        ({"log_retention_hours": "2", "log_retention_minutes": "3", "log_retention_ms": "4"}, 4),
        ({"log_retention_hours": "-1"}, -1),
        ({"log_retention_minutes": "-7"}, -1),
        ({"log_retention_ms": "-1"}, -1),
    ],
)
def test_the_first_name_that_is_set_counts(settings: dict[str, str], retention_ms: int) -> None:
    assert defaults_of(**settings).retention_ms == retention_ms


def test_other_names_of_the_broker() -> None:
    assert defaults_of(log_roll_hours="2").segment_ms == 2 * 60 * 60 * 1000
    assert defaults_of(log_roll_hours="2", log_roll_ms="9").segment_ms == 9
    assert defaults_of(log_roll_jitter_hours="1").segment_jitter_ms == 60 * 60 * 1000
    assert defaults_of(log_flush_scheduler_interval_ms="5").flush_ms == 5
    assert defaults_of(log_flush_scheduler_interval_ms="5", log_flush_interval_ms="6").flush_ms == 6
    assert defaults_of(log_preallocate="true").preallocate is True
    assert defaults_of(log_cleanup_policy="compact").compact
    assert defaults_of(message_max_bytes="77").max_message_bytes == 77


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"log_retention_ms": "0"}, "log.retention.ms"),
        ({"log_roll_ms": "0"}, "log.roll.ms"),
        ({"log_roll_jitter_ms": "-1"}, "log.roll.jitter.ms"),
        ({"log_flush_interval_ms": "-1"}, "log.flush.interval.ms"),
    ],
)
def test_a_fault_is_reported_under_the_name_that_was_used(settings: dict[str, str], name: str) -> None:
    with pytest.raises(ConfigError, match=name.replace(".", r"\.")) as caught:
        defaults_of(**settings)
    assert caught.value.name == name


def test_synonyms() -> None:
    assert server_synonym("retention.ms") == "log.retention.ms"
    assert server_synonym("remote.storage.enable") is None
    assert ConfigSynonym("log.retention.hours", 3_600_000).convert(" 2 ") == "7200000"
    assert ConfigSynonym("log.cleanup.policy").convert("compact") == "compact"
    for topic_key, synonyms in TOPIC_CONFIG_SYNONYMS.items():
        assert topic_key in LOG_CONFIG_DEF.keys
        for synonym in synonyms:
            assert synonym.name in SERVER_LOG_CONFIG_DEF.keys
            if synonym.factor != 1:
                assert SERVER_LOG_CONFIG_DEF.keys[synonym.name].type is Type.INT
        assert SERVER_LOG_CONFIG_DEF.keys[synonyms[-1].name].default is not None


def test_log_directories() -> None:
    parse = SERVER_LOG_CONFIG_DEF.parse
    assert log_directories(parse({})) == ()
    assert log_directories(parse({"log.dir": "/a"})) == ("/a",)
    assert log_directories(parse({"log.dir": "/a", "log.dirs": "/b,/c"})) == ("/b", "/c")
    with pytest.raises(ConfigError):
        parse({"log.dirs": ""})
