"""The settings of the quorum, under Kafka's names."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.common.config_def import ConfigDef, ConfigError
from barnabas.log.config.server_log_config import SERVER_LOG_CONFIG_DEF
from barnabas.raft.config import (
    RAFT_CONFIG_DEF,
    HostAndPort,
    RaftConfig,
    VoterAddress,
    metadata_log_dir,
)

KAFKA_4_3_1 = {
    "controller.quorum.voters": (),
    "controller.quorum.bootstrap.servers": (),
    "controller.quorum.election.timeout.ms": 1000,
    "controller.quorum.fetch.timeout.ms": 2000,
    "controller.quorum.election.backoff.max.ms": 1000,
    "controller.quorum.append.linger.ms": 25,
    "controller.quorum.request.timeout.ms": 2000,
    "controller.quorum.retry.backoff.ms": 20,
    "controller.quorum.auto.join.enable": False,
    "controller.quorum.fetch.snapshot.max.bytes": 1048576,
    "controller.quorum.fetch.max.bytes": 1048576,
    "metadata.log.max.record.bytes.between.snapshots": 20971520,
    "metadata.log.max.snapshot.interval.ms": 3600000,
    "metadata.log.dir": None,
    "metadata.log.segment.bytes": 1073741824,
    "metadata.log.segment.ms": 604800000,
    "metadata.max.retention.bytes": 104857600,
    "metadata.max.retention.ms": 604800000,
    "metadata.max.idle.interval.ms": 500,
    "internal.metadata.log.segment.bytes": None,
    "internal.metadata.max.batch.size.in.bytes": 8388608,
    "internal.metadata.delete.delay.millis": 60000,
}


def test_names_and_defaults_are_kafkas() -> None:
    assert RAFT_CONFIG_DEF.default_values() == KAFKA_4_3_1
    internal = {key.name for key in RAFT_CONFIG_DEF.keys.values() if key.internal}
    assert internal == {name for name in KAFKA_4_3_1 if name.startswith("internal.")}


def test_a_configuration_of_defaults() -> None:
    assert RaftConfig.from_values(RAFT_CONFIG_DEF.parse({})) == RaftConfig()


def test_settings_get_where_they_belong() -> None:
    values = RAFT_CONFIG_DEF.parse(
        {
            "controller.quorum.voters": "1@localhost:9093, 2@[::1]:9094",
            "controller.quorum.bootstrap.servers": "a.example:9093,10.0.0.1:0",
            "controller.quorum.append.linger.ms": "0",
            "metadata.max.retention.ms": "-1",
            "internal.metadata.log.segment.bytes": "1000",
        }
    )
    config = RaftConfig.from_values(values)
    assert config.voters == (VoterAddress(1, "localhost", 9093), VoterAddress(2, "::1", 9094))
    assert config.bootstrap_servers == (HostAndPort("a.example", 9093), HostAndPort("10.0.0.1", 0))
    assert (config.append_linger_ms, config.max_retention_ms, config.log_segment_bytes) == (0, -1, 1000)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("controller.quorum.voters", "localhost:9093", "expected id@host:port"),
        ("controller.quorum.voters", "one@localhost:9093", "is not a whole number"),
        ("controller.quorum.voters", "-1@localhost:9093", "must not be negative"),
        ("controller.quorum.voters", "1@localhost", "expected host:port"),
        ("controller.quorum.voters", "1@localhost:99999", "invalid port 99999"),
        ("controller.quorum.voters", "1@a:1,1@b:2", "voter 1 is listed twice"),
        ("controller.quorum.bootstrap.servers", "localhost", "expected host:port"),
        ("metadata.log.segment.bytes", "8388607", "at least 8388608"),
        ("controller.quorum.append.linger.ms", "-1", "at least 0"),
    ],
)
def test_what_cannot_be_is_refused(name: str, value: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        RAFT_CONFIG_DEF.parse({name: value})
    assert name in str(caught.value)


def test_where_the_metadata_log_is() -> None:
    definition = ConfigDef(RAFT_CONFIG_DEF, SERVER_LOG_CONFIG_DEF)
    assert metadata_log_dir(definition.parse({})) is None
    assert metadata_log_dir(definition.parse({"log.dirs": "a,b"})) == Path("a")
    assert metadata_log_dir(definition.parse({"log.dirs": "a,b", "metadata.log.dir": "c"})) == Path("c")
