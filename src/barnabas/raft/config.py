"""The settings of the metadata quorum and its log, under Kafka's names and with Kafka's defaults."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from barnabas.common.config_def import (
    ConfigDef,
    ConfigError,
    ConfigValues,
    Importance,
    LambdaValidator,
    Range,
    Type,
)
from barnabas.common.dataclass import dataclass, field, fields
from barnabas.common.numerals import parse_integer
from barnabas.log.config.server_log_config import log_directories

_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW

MAX_BATCH_SIZE_BYTES: Final = 8 * 1024 * 1024
"""The largest batch in the log. The records of one controller operation must fit in it."""

VOTERS: Final = "controller.quorum.voters"
BOOTSTRAP_SERVERS: Final = "controller.quorum.bootstrap.servers"

_ADDRESS: Final = re.compile(r"\[?(?P<host>[0-9a-zA-Z\-%._:]+?)\]?:(?P<port>[0-9]+)")


class HostAndPort(NamedTuple):
    host: str
    port: int


class VoterAddress(NamedTuple):
    """An entry of ``controller.quorum.voters``: ``1@localhost:9093``."""

    id: int
    host: str
    port: int


def parse_host_and_port(name: str, text: str) -> HostAndPort:
    """Parses ``host:port``, where the host may be an IPv6 address in brackets; `ConfigError` if invalid."""
    match = _ADDRESS.fullmatch(text.strip())
    if match is None:
        raise ConfigError.invalid(name, text, "expected host:port")
    try:
        port = parse_integer(match["port"])
    except ValueError as error:
        raise ConfigError.invalid(name, text, str(error)) from None
    if port > 0xFFFF:
        raise ConfigError.invalid(name, text, f"invalid port {port}")
    return HostAndPort(match["host"], port)


def parse_voters(entries: tuple[str, ...]) -> tuple[VoterAddress, ...]:
    """Parses the entries of ``controller.quorum.voters``."""
    voters: dict[int, VoterAddress] = {}
    for entry in entries:
        number, separator, address = entry.partition("@")
        if not separator:
            raise ConfigError.invalid(VOTERS, entry, "expected id@host:port")
        try:
            voter_id = parse_integer(number.strip())
        except ValueError as error:
            raise ConfigError.invalid(VOTERS, entry, str(error)) from None
        if voter_id < 0:
            raise ConfigError.invalid(VOTERS, entry, "the node id must not be negative")
        if voter_id in voters:
            raise ConfigError.invalid(VOTERS, entry, f"voter {voter_id} is listed twice")
        voters[voter_id] = VoterAddress(voter_id, *parse_host_and_port(VOTERS, address))
    return tuple(voters.values())


def parse_bootstrap_servers(entries: tuple[str, ...]) -> tuple[HostAndPort, ...]:
    return tuple(parse_host_and_port(BOOTSTRAP_SERVERS, entry) for entry in entries)


def _check_voters(_: str, value: object) -> None:
    assert isinstance(value, tuple)
    parse_voters(value)


def _check_bootstrap_servers(_: str, value: object) -> None:
    assert isinstance(value, tuple)
    parse_bootstrap_servers(value)


RAFT_CONFIG_DEF: Final = ConfigDef()
_define: Final = RAFT_CONFIG_DEF.define

# The quorum.
_define(
    VOTERS, Type.LIST, "", LambdaValidator(_check_voters, "a list of id@host:port"), _HIGH,
    "The static voters of the metadata quorum, each as id@host:port. Empty if the voters are in the metadata log.",
)  # fmt: skip
_define(
    BOOTSTRAP_SERVERS, Type.LIST, "", LambdaValidator(_check_bootstrap_servers, "a list of host:port"), _HIGH,
    "Addresses (host:port) for finding the metadata quorum if its voters are in the metadata log.",
)  # fmt: skip
_define(
    "controller.quorum.election.timeout.ms", Type.INT, 1_000, Range.at_least(0), _HIGH,
    "How long a voter without a leader waits before it starts an election.",
)  # fmt: skip
_define(
    "controller.quorum.fetch.timeout.ms", Type.INT, 2_000, Range.at_least(0), _HIGH,
    "How long a follower may go without a successful fetch before it starts an election, and a leader without fetches "
    "from a majority before it resigns.",
)  # fmt: skip
_define(
    "controller.quorum.election.backoff.max.ms", Type.INT, 1_000, Range.at_least(0), _HIGH,
    "The longest time that a candidate waits after an election without a winner.",
)  # fmt: skip
_define(
    "controller.quorum.append.linger.ms", Type.INT, 25, Range.at_least(0), _MEDIUM,
    "How long the leader waits between two flushes of its log, so that the records of many requests share a flush. "
    "The first flush after a pause does not wait.",
)  # fmt: skip
_define(
    "controller.quorum.request.timeout.ms", Type.INT, 2_000, Range.at_least(0), _MEDIUM,
    "How long to wait for the response of another voter.",
)  # fmt: skip
_define(
    "controller.quorum.retry.backoff.ms", Type.INT, 20, Range.at_least(0), _LOW,
    "How long to wait before retrying a failed request to another voter.",
)  # fmt: skip
_define(
    "controller.quorum.auto.join.enable", Type.BOOLEAN, False, None, _LOW,
    "Whether a controller that is not a voter joins the voters automatically.",
)  # fmt: skip
_define(
    "controller.quorum.fetch.snapshot.max.bytes", Type.INT, 1024 * 1024, Range.at_least(1), _LOW,
    "The maximum bytes of a snapshot per fetch.",
)  # fmt: skip
_define(
    "controller.quorum.fetch.max.bytes", Type.INT, 1024 * 1024, Range.at_least(1), _LOW,
    "The maximum bytes of the metadata log per fetch; a larger batch is still returned whole.",
)  # fmt: skip

# The log.
_define(
    "metadata.log.dir", Type.STRING, None, None, _HIGH,
    "The directory of the metadata log; by default the first of log.dirs.",
)  # fmt: skip
_define(
    "metadata.log.segment.bytes", Type.INT, 1024 * 1024 * 1024, Range.at_least(MAX_BATCH_SIZE_BYTES), _HIGH,
    "The largest size of a segment of the metadata log.",
)  # fmt: skip
_define(
    "metadata.log.segment.ms", Type.LONG, 7 * 24 * 60 * 60 * 1000, None, _HIGH,
    "The age at which a segment of the metadata log is closed.",
)  # fmt: skip
_define(
    "metadata.max.retention.bytes", Type.LONG, 100 * 1024 * 1024, None, _HIGH,
    "The size of log and snapshots above which the oldest are deleted, except the latest snapshot; -1 for no limit.",
)  # fmt: skip
_define(
    "metadata.max.retention.ms", Type.LONG, 7 * 24 * 60 * 60 * 1000, None, _HIGH,
    "The age at which snapshots are deleted, except the latest one; -1 for no limit.",
)  # fmt: skip
_define(
    "metadata.log.max.record.bytes.between.snapshots", Type.LONG, 20 * 1024 * 1024, Range.at_least(1), _HIGH,
    "The number of bytes in the log after which a snapshot is created.",
)  # fmt: skip
_define(
    "metadata.log.max.snapshot.interval.ms", Type.LONG, 60 * 60 * 1000, Range.at_least(0), _HIGH,
    "The time after which a snapshot is created if there are new records; 0 for never.",
)  # fmt: skip
_define(
    "metadata.max.idle.interval.ms", Type.INT, 500, Range.at_least(0), _LOW,
    "How often the active controller writes a no-op record; 0 for never.",
)  # fmt: skip
_define(
    "internal.metadata.log.segment.bytes", Type.INT, None, None, _LOW,
    "Overrides metadata.log.segment.bytes, without its lower bound.", internal=True,
)  # fmt: skip
_define(
    "internal.metadata.max.batch.size.in.bytes", Type.INT, MAX_BATCH_SIZE_BYTES, None, _LOW,
    "The largest batch in the metadata log.", internal=True,
)  # fmt: skip
_define(
    "internal.metadata.delete.delay.millis", Type.LONG, 60_000, None, _LOW,
    "How long a deleted file of the metadata log stays on disk, because readers may still have it open.", internal=True,
)  # fmt: skip


def _setting(key: str) -> Any:
    """Returns a field for the setting `key`, with its default."""
    return field(default=RAFT_CONFIG_DEF.keys[key].default, metadata={"key": key})


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftConfig:
    """The settings of a node of the metadata quorum.

    The constructor does not validate, so tests can use segments of a few bytes.
    """

    voters: tuple[VoterAddress, ...] = ()
    bootstrap_servers: tuple[HostAndPort, ...] = ()
    election_timeout_ms: int = _setting("controller.quorum.election.timeout.ms")
    fetch_timeout_ms: int = _setting("controller.quorum.fetch.timeout.ms")
    election_backoff_max_ms: int = _setting("controller.quorum.election.backoff.max.ms")
    append_linger_ms: int = _setting("controller.quorum.append.linger.ms")
    request_timeout_ms: int = _setting("controller.quorum.request.timeout.ms")
    retry_backoff_ms: int = _setting("controller.quorum.retry.backoff.ms")
    auto_join_enable: bool = _setting("controller.quorum.auto.join.enable")
    fetch_snapshot_max_bytes: int = _setting("controller.quorum.fetch.snapshot.max.bytes")
    fetch_max_bytes: int = _setting("controller.quorum.fetch.max.bytes")

    log_segment_bytes: int = _setting("metadata.log.segment.bytes")
    """Includes ``internal.metadata.log.segment.bytes``."""
    log_segment_ms: int = _setting("metadata.log.segment.ms")
    max_retention_bytes: int = _setting("metadata.max.retention.bytes")
    max_retention_ms: int = _setting("metadata.max.retention.ms")
    max_record_bytes_between_snapshots: int = _setting("metadata.log.max.record.bytes.between.snapshots")
    max_snapshot_interval_ms: int = _setting("metadata.log.max.snapshot.interval.ms")
    max_idle_interval_ms: int = _setting("metadata.max.idle.interval.ms")
    max_batch_size_bytes: int = _setting("internal.metadata.max.batch.size.in.bytes")
    delete_delay_ms: int = _setting("internal.metadata.delete.delay.millis")

    @classmethod
    def from_values(cls, values: ConfigValues) -> Self:
        """Creates the settings from a parsed configuration whose definition includes `RAFT_CONFIG_DEF`."""
        settings = {item.name: values[item.metadata["key"]] for item in fields(cls) if "key" in item.metadata}
        segment_bytes = values.get_optional_int("internal.metadata.log.segment.bytes")
        if segment_bytes is not None:
            settings["log_segment_bytes"] = segment_bytes
        return cls(
            voters=parse_voters(values.get_list(VOTERS)),
            bootstrap_servers=parse_bootstrap_servers(values.get_list(BOOTSTRAP_SERVERS)),
            **settings,
        )


def metadata_log_dir(values: ConfigValues) -> Path | None:
    """Returns the directory of the metadata log: ``metadata.log.dir``, else the first of ``log.dirs``, else None.

    The values must have been parsed with both `SERVER_LOG_CONFIG_DEF` and `RAFT_CONFIG_DEF`.
    """
    chosen = values.get_optional_str("metadata.log.dir")
    directories = (chosen,) if chosen else log_directories(values)
    return Path(directories[0]) if directories else None
