"""The settings of a consumer: definitions, validation, and conflicts between settings."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, Final

from barnabas.clients.common.client_config import (
    HIGH,
    LOW,
    MEDIUM,
    client_properties,
    define_common,
    define_security,
    refuse_unknown,
)
from barnabas.clients.common.fetch_client import FetchSettings
from barnabas.clients.consumer.auto_offset_reset import AutoOffsetResetStrategy
from barnabas.common.config_def import (
    CaseInsensitiveValidString,
    ConfigDef,
    ConfigError,
    ConfigValues,
    LambdaValidator,
    NonEmptyString,
    Range,
    Type,
    ValidList,
    ValidString,
)

log = logging.getLogger(__name__)

_client_ids = itertools.count(1)

ONLY_CLASSIC: Final = ("partition.assignment.strategy", "heartbeat.interval.ms", "session.timeout.ms")
"""Settings of the classic protocol only. With the consumer protocol, the broker has these settings."""


class IsolationLevel(IntEnum):
    """Whether a consumer reads records of open and aborted transactions."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class GroupProtocol(Enum):
    """The protocol by which a group assigns partitions to its members."""

    AUTO = "auto"
    """``consumer`` if the broker supports it and no setting requires ``classic``; else ``classic``."""
    CONSUMER = "consumer"
    CLASSIC = "classic"


def _reset_policy(name: str, value: object) -> None:  # noqa: ARG001 - the message names the setting
    AutoOffsetResetStrategy.parse(str(value))


def _definition() -> ConfigDef:
    at_least_0 = Range.at_least(0)
    distinct = ValidList.any_non_duplicate_values(empty_allowed=True, null_allowed=False)
    definition = define_common(ConfigDef(), receive_buffer_bytes=65_536)
    define = definition.define
    define("group.id", Type.STRING, None, None, HIGH, "The consumer group that this consumer belongs to.")
    define(
        "group.instance.id",
        Type.STRING,
        None,
        NonEmptyString(),
        MEDIUM,
        "The instance ID of a static member (KIP-345).",
    )
    define(
        "group.protocol",
        Type.STRING,
        GroupProtocol.AUTO.value,
        CaseInsensitiveValidString.of("AUTO", "CONSUMER", "CLASSIC"),
        HIGH,
        "The group protocol: consumer (KIP-848), classic, or auto, which uses consumer if the broker supports it.",
    )
    define("group.remote.assignor", Type.STRING, None, None, MEDIUM, "The server-side assignor to use.")
    define(
        "session.timeout.ms",
        Type.INT,
        45_000,
        None,
        HIGH,
        "How long a member may go without a heartbeat before it is removed from the group.",
    )
    define("heartbeat.interval.ms", Type.INT, 3_000, None, HIGH, "How often a member sends heartbeats.")
    define(
        "partition.assignment.strategy",
        Type.LIST,
        ("range", "cooperative-sticky"),
        ValidList.any_non_duplicate_values(empty_allowed=False, null_allowed=False),
        MEDIUM,
        "The client-side assignors in order of preference: names, classes or instances.",
    )
    define(
        "max.poll.interval.ms",
        Type.INT,
        300_000,
        Range.at_least(1),
        MEDIUM,
        "The maximum time between two polls. A member that exceeds it leaves the group.",
    )
    define(
        "max.poll.records",
        Type.INT,
        500,
        Range.at_least(1),
        MEDIUM,
        "The maximum number of records that a poll returns.",
    )
    define("enable.auto.commit", Type.BOOLEAN, True, None, MEDIUM, "Commit consumed offsets periodically.")
    define("auto.commit.interval.ms", Type.INT, 5_000, at_least_0, LOW, "The interval between automatic commits.")
    define(
        "auto.offset.reset",
        Type.STRING,
        "latest",
        LambdaValidator(_reset_policy, "[earliest, latest, none, by_duration:PnDTnHnMn.nS]"),
        MEDIUM,
        "Where to start when there is no committed offset, or when it is out of range.",
    )
    define(
        "isolation.level",
        Type.STRING,
        "read_uncommitted",
        ValidString.of("read_committed", "read_uncommitted"),
        MEDIUM,
        "Whether records of open and aborted transactions are returned.",
    )
    define(
        "fetch.min.bytes",
        Type.INT,
        1,
        at_least_0,
        HIGH,
        "How many bytes a broker collects before it responds to a fetch.",
    )
    define(
        "fetch.max.bytes", Type.INT, 52_428_800, at_least_0, MEDIUM, "The maximum number of bytes in a fetch response."
    )
    define("fetch.max.wait.ms", Type.INT, 500, at_least_0, LOW, "How long a broker may wait for fetch.min.bytes.")
    define(
        "max.partition.fetch.bytes",
        Type.INT,
        1_048_576,
        at_least_0,
        HIGH,
        "The maximum number of bytes per partition in a fetch response.",
    )
    define("check.crcs", Type.BOOLEAN, True, None, LOW, "Verify the checksums of fetched batches.")
    define("allow.auto.create.topics", Type.BOOLEAN, True, None, MEDIUM, "Let the broker create subscribed topics.")
    define(
        "exclude.internal.topics",
        Type.BOOLEAN,
        True,
        None,
        MEDIUM,
        "Exclude internal topics from subscriptions by pattern.",
    )
    define(
        "default.api.timeout.ms",
        Type.INT,
        60_000,
        at_least_0,
        MEDIUM,
        "The timeout of calls that are made without one.",
    )
    define("key.deserializer", Type.CLASS, None, None, HIGH, "The deserializer of keys. Not set: keys are bytes.")
    define("value.deserializer", Type.CLASS, None, None, HIGH, "The deserializer of values. Not set: values are bytes.")
    define(
        "interceptor.classes",
        Type.LIST,
        (),
        distinct,
        LOW,
        "Interceptors that process records before the application receives them.",
    )
    define("internal.leave.group.on.close", Type.BOOLEAN, True, None, LOW, "Leave the group on close.", internal=True)
    return define_security(definition)


CONFIG: Final = _definition()
"""The definitions of all settings of a consumer."""


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """The validated settings of a consumer, with derived values.

    A consumer without a ``group.id`` can read, but cannot commit: then ``enable.auto.commit`` is off by default, and
    setting it to true is an error. Settings of one group protocol are refused with the other.
    """

    bootstrap_servers: tuple[str, ...]
    client_id: str
    client_rack: str
    group_id: str | None
    group_instance_id: str | None
    group_protocol: GroupProtocol
    group_remote_assignor: str | None
    partition_assignment_strategy: tuple[Any, ...]
    """Names, dotted class names, classes or instances, as given."""
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    max_poll_records: int
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    auto_offset_reset: AutoOffsetResetStrategy
    isolation_level: IsolationLevel
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    max_partition_fetch_bytes: int
    check_crcs: bool
    allow_auto_create_topics: bool
    exclude_internal_topics: bool
    default_api_timeout_ms: int
    request_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    metadata_max_age_ms: int
    leave_group_on_close: bool
    values: ConfigValues
    """Every setting, by Kafka's name."""

    @classmethod
    def of(cls, config: Mapping[str, object] | None = None, **keywords: object) -> ConsumerConfig:
        """Parses settings from a mapping with Kafka's names, from keywords, or from both."""
        refuse_unknown(keywords, CONFIG)
        return cls.from_properties(client_properties(config, keywords))

    @classmethod
    def from_properties(cls, properties: Mapping[str, object]) -> ConsumerConfig:
        """Parses settings under Kafka's names, and checks that they fit each other."""
        given = {name: _plain(value) for name, value in properties.items()}
        strategies = given.pop("partition.assignment.strategy", None)
        assignors = _assignors(strategies)
        if strategies is not None:
            given["partition.assignment.strategy"] = tuple(_assignor_name(assignor) for assignor in assignors)
        values = CONFIG.parse(given)
        group_id = values.get_optional_str("group.id")
        instance_id = values.get_optional_str("group.instance.id")
        protocol = GroupProtocol(values.get_str("group.protocol").lower())
        _check_protocol(values, protocol)
        return cls(
            bootstrap_servers=values.get_list("bootstrap.servers"),
            client_id=values.get_str("client.id") or _default_client_id(group_id, instance_id),
            client_rack=values.get_str("client.rack"),
            group_id=group_id,
            group_instance_id=instance_id,
            group_protocol=protocol,
            group_remote_assignor=values.get_optional_str("group.remote.assignor"),
            partition_assignment_strategy=assignors,
            session_timeout_ms=values.get_int("session.timeout.ms"),
            heartbeat_interval_ms=values.get_int("heartbeat.interval.ms"),
            max_poll_interval_ms=values.get_int("max.poll.interval.ms"),
            max_poll_records=values.get_int("max.poll.records"),
            enable_auto_commit=_auto_commit(values, group_id),
            auto_commit_interval_ms=values.get_int("auto.commit.interval.ms"),
            auto_offset_reset=AutoOffsetResetStrategy.parse(values.get_str("auto.offset.reset")),
            isolation_level=IsolationLevel[values.get_str("isolation.level").upper()],
            fetch_min_bytes=values.get_int("fetch.min.bytes"),
            fetch_max_bytes=values.get_int("fetch.max.bytes"),
            fetch_max_wait_ms=values.get_int("fetch.max.wait.ms"),
            max_partition_fetch_bytes=values.get_int("max.partition.fetch.bytes"),
            check_crcs=values.get_bool("check.crcs"),
            allow_auto_create_topics=values.get_bool("allow.auto.create.topics"),
            exclude_internal_topics=values.get_bool("exclude.internal.topics"),
            default_api_timeout_ms=values.get_int("default.api.timeout.ms"),
            request_timeout_ms=values.get_int("request.timeout.ms"),
            retry_backoff_ms=values.get_int("retry.backoff.ms"),
            retry_backoff_max_ms=values.get_int("retry.backoff.max.ms"),
            metadata_max_age_ms=values.get_int("metadata.max.age.ms"),
            leave_group_on_close=values.get_bool("internal.leave.group.on.close"),
            values=values,
        )

    def fetch_settings(self) -> FetchSettings:
        """Returns the settings of fetch requests."""
        return FetchSettings(
            max_wait_ms=self.fetch_max_wait_ms,
            min_bytes=self.fetch_min_bytes,
            max_bytes=self.fetch_max_bytes,
            isolation_level=self.isolation_level,
            client_rack=self.client_rack,
        )

    @property
    def wants_classic(self) -> bool:
        """Whether a setting of the classic protocol is set, so that ``auto`` selects that protocol."""
        return any(self.values.is_set(name) for name in ONLY_CLASSIC)


def _plain(value: object) -> Any:
    if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping | type):
        return tuple(value)
    return value


def _assignors(given: Any) -> tuple[Any, ...]:
    if given is None:
        return ("range", "cooperative-sticky")
    if isinstance(given, str):
        return tuple(name.strip() for name in given.split(",") if name.strip())
    return given if isinstance(given, tuple) else (given,)


def _assignor_name(assignor: Any) -> str:
    """Returns the name of an assignor that is given as a name, a class or an object."""
    if isinstance(assignor, str):
        return assignor
    kind = assignor if isinstance(assignor, type) else type(assignor)
    return f"{kind.__module__}.{kind.__qualname__}"


def _default_client_id(group_id: str | None, instance_id: str | None) -> str:
    group = "null" if group_id is None else group_id
    return f"consumer-{group}-{next(_client_ids) if instance_id is None else instance_id}"


def _auto_commit(values: ConfigValues, group_id: str | None) -> bool:
    name = "enable.auto.commit"
    if group_id is not None:
        return values.get_bool(name)
    if values.is_set(name) and values.get_bool(name):
        raise ConfigError(f"{name} cannot be set to true when there is no group.id.", name=name)
    return False


def _check_protocol(values: ConfigValues, protocol: GroupProtocol) -> None:
    if protocol is GroupProtocol.CONSUMER:
        for name in ONLY_CLASSIC:
            if values.is_set(name):
                raise ConfigError(f"{name} cannot be set when group.protocol=CONSUMER", name=name)
        return
    if protocol is GroupProtocol.CLASSIC and values.is_set("group.remote.assignor"):
        raise ConfigError(
            "group.remote.assignor cannot be set when group.protocol=CLASSIC", name="group.remote.assignor"
        )
    if values.get_int("heartbeat.interval.ms") >= values.get_int("session.timeout.ms"):
        raise ConfigError("Heartbeat must be set lower than the session timeout", name="heartbeat.interval.ms")
