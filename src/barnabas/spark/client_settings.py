"""The ``kafka.*`` options of a reader: the Kafka consumer settings that apply to a reader without a group."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from barnabas.clients.common.bootstrap import bootstrap_nodes
from barnabas.clients.common.client_config import HIGH, LOW, MEDIUM, define_common, define_security
from barnabas.clients.common.client_security import SECURITY, ClientSecurity, may_use_local_socket
from barnabas.clients.common.fetch_client import FetchSettings
from barnabas.clients.common.security_aliases import NAMES, with_kafka_names
from barnabas.common.config_def import ConfigDef, ConfigError, Range, Type, ValidString
from barnabas.network.client.client_config import NetworkClientConfig
from barnabas.network.reactor.channel_factory import ChannelFactory
from barnabas.network.transport.local.offer import SEND_BUFFER_BYTES
from barnabas.spark.config_variables import is_provider_setting, resolved
from barnabas.spark.option_definitions import PREFIX

log = logging.getLogger(__name__)

READ_UNCOMMITTED: Final = "read_uncommitted"
READ_COMMITTED: Final = "read_committed"

_REFUSED: Final = {
    "auto.offset.reset": "Set startingOffsets instead; Spark keeps track of offsets itself.",
    "key.deserializer": "Keys are bytes; cast them with DataFrame operations.",
    "value.deserializer": "Values are bytes; cast them with DataFrame operations.",
    "enable.auto.commit": "Spark keeps track of offsets itself; commitOffsetsToGroup shows them in a group.",
    "interceptor.classes": "Records are read in columns; there are no record objects for an interceptor.",
}

WITHOUT_EFFECT: Final = frozenset(
    {
        "allow.auto.create.topics",
        "auto.commit.interval.ms",
        "auto.include.jmx.reporter",
        "client.dns.lookup",
        "enable.metrics.push",
        "exclude.internal.topics",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "internal.leave.group.on.close",
        "max.poll.interval.ms",
        "max.poll.records",
        "metadata.cluster.check.enable",
        "metadata.max.age.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "bootstrap.resolve.timeout.ms",
        "partition.assignment.strategy",
        "session.timeout.ms",
    }
)
"""Consumer settings for polling, rebalancing and metrics. Queries written for the stock connector may set them; they
are accepted, logged and ignored."""

_DEFAULT_MAX_PARTITION_FETCH_BYTES: Final = 4 * 1024 * 1024
"""A response of this size is decoded while the next one arrives. Larger values are not faster: decoded data would leave
the processor's caches before it is sent on."""


def _definition() -> ConfigDef:
    definition = define_common(ConfigDef())
    define = definition.define
    at_least_0 = Range.at_least(0)
    define("group.id", Type.STRING, None, None, HIGH, "The group to which offsets are committed, as `groupId`.")
    define(
        "isolation.level",
        Type.STRING,
        READ_UNCOMMITTED,
        ValidString.of(READ_COMMITTED, READ_UNCOMMITTED),
        MEDIUM,
        "Whether records of open and aborted transactions are left out.",
    )
    define("fetch.min.bytes", Type.INT, 1, at_least_0, HIGH, "The minimum bytes of a response.")
    define("fetch.max.bytes", Type.INT, 50 * 1024 * 1024, at_least_0, MEDIUM, "The maximum bytes of a response.")
    define("fetch.max.wait.ms", Type.INT, 500, at_least_0, LOW, "How long a broker waits for the minimum bytes.")
    define(
        "max.partition.fetch.bytes",
        Type.INT,
        _DEFAULT_MAX_PARTITION_FETCH_BYTES,
        at_least_0,
        HIGH,
        "The maximum bytes of a partition in a response, and of a response.",
    )
    define("check.crcs", Type.BOOLEAN, True, None, LOW, "Whether the checksums of batches are checked.")
    define(
        "default.api.timeout.ms",
        Type.INT,
        60_000,
        at_least_0,
        MEDIUM,
        "How long a missing partition, or a lookup of offsets while no broker responds, is retried.",
    )
    return define_security(definition)


CONFIG: Final = _definition()
SETTINGS: Final = frozenset(CONFIG.keys)
"""The names of the settings that have an effect."""


class SecurityOptions:
    """The TLS and SASL settings as given: variables in them are not replaced by their values.

    Can be hashed and pickled. Its repr shows names only.
    """

    __slots__ = ("_given",)

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Keeps the TLS and SASL settings among the settings of a client; raises `ConfigError`."""
        self._given = tuple(
            sorted(
                (name, value)
                for name, value in properties.items()
                if name in SECURITY.keys or name in NAMES or is_provider_setting(name)
            )
        )
        self._resolved()  # only to validate them

    def channel_factory(self) -> ChannelFactory:
        """Replaces variables by their values, and creates the channel factory."""
        return self._resolved().channel_factory()

    def _resolved(self) -> ClientSecurity:
        return ClientSecurity(resolved(dict(self._given)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SecurityOptions) and self._given == other._given

    def __hash__(self) -> int:
        return hash(self._given)

    def __repr__(self) -> str:
        return f"SecurityOptions({', '.join(name for name, _ in self._given)})"


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The settings of a reader's connections. Sent to executors inside the reader, so it can be pickled."""

    bootstrap_servers: tuple[str, ...]
    client_id: str
    client_rack: str
    group_id: str | None
    read_committed: bool
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    max_partition_fetch_bytes: int
    check_crcs: bool
    request_timeout_ms: int
    default_api_timeout_ms: int
    max_idle_ms: int
    """How long an unused client is kept."""
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    connection_setup_timeout_ms: int
    connection_setup_timeout_max_ms: int
    send_buffer_bytes: int
    receive_buffer_bytes: int
    local_socket_enable: bool
    local_send_buffer_bytes: int
    security: SecurityOptions

    @classmethod
    def of(cls, options: Mapping[str, str]) -> ClientSettings:
        """Makes settings from the options that begin with ``kafka.``; raises `ConfigError` if they are invalid."""
        properties = {
            name[len(PREFIX) :].lower(): value for name, value in options.items() if name.lower().startswith(PREFIX)
        }
        for name, reason in _REFUSED.items():
            if name in properties:
                raise ConfigError(f"Kafka option {PREFIX}{name} is not supported here. {reason}", name=PREFIX + name)
        if not properties.get("bootstrap.servers", "").strip():
            raise ConfigError(
                "Option kafka.bootstrap.servers must be specified: host:port of one or more brokers.",
                name="kafka.bootstrap.servers",
            )
        _check_names(properties)
        values = CONFIG.parse(with_kafka_names(resolved(properties)))
        servers = values.get_list("bootstrap.servers")
        bootstrap_nodes(servers, None)  # only to validate the addresses
        return cls(
            bootstrap_servers=servers,
            client_id=values.get_str("client.id") or "barnabas-spark",
            client_rack=values.get_str("client.rack"),
            group_id=values.get_optional_str("group.id"),
            read_committed=values.get_str("isolation.level") == READ_COMMITTED,
            fetch_min_bytes=values.get_int("fetch.min.bytes"),
            fetch_max_bytes=values.get_int("fetch.max.bytes"),
            fetch_max_wait_ms=values.get_int("fetch.max.wait.ms"),
            max_partition_fetch_bytes=values.get_int("max.partition.fetch.bytes"),
            check_crcs=values.get_bool("check.crcs"),
            request_timeout_ms=values.get_int("request.timeout.ms"),
            default_api_timeout_ms=values.get_int("default.api.timeout.ms"),
            max_idle_ms=values.get_int("connections.max.idle.ms"),
            retry_backoff_ms=values.get_int("retry.backoff.ms"),
            retry_backoff_max_ms=values.get_int("retry.backoff.max.ms"),
            reconnect_backoff_ms=values.get_int("reconnect.backoff.ms"),
            reconnect_backoff_max_ms=values.get_int("reconnect.backoff.max.ms"),
            connection_setup_timeout_ms=values.get_int("socket.connection.setup.timeout.ms"),
            connection_setup_timeout_max_ms=values.get_int("socket.connection.setup.timeout.max.ms"),
            send_buffer_bytes=values.get_int("send.buffer.bytes"),
            # By default the system sizes the buffer: a response arrives while the previous one is decoded, and the
            # broker can only send as much as fits into the socket buffer.
            receive_buffer_bytes=(
                values.get_int("receive.buffer.bytes") if values.is_set("receive.buffer.bytes") else -1
            ),
            local_socket_enable=may_use_local_socket(values),
            local_send_buffer_bytes=(
                values.get_int("send.buffer.bytes") if values.is_set("send.buffer.bytes") else SEND_BUFFER_BYTES
            ),
            security=SecurityOptions(properties),
        )

    def fetch_settings(self) -> FetchSettings:
        return FetchSettings(
            max_wait_ms=self.fetch_max_wait_ms,
            min_bytes=self.fetch_min_bytes,
            max_bytes=self.fetch_max_bytes,
            isolation_level=int(self.read_committed),
            client_rack=self.client_rack,
        )

    def network_config(self) -> NetworkClientConfig:
        return NetworkClientConfig(
            client_id=self.client_id,
            request_timeout_ms=self.request_timeout_ms,
            reconnect_backoff_ms=self.reconnect_backoff_ms,
            reconnect_backoff_max_ms=self.reconnect_backoff_max_ms,
            socket_connection_setup_timeout_ms=self.connection_setup_timeout_ms,
            socket_connection_setup_timeout_max_ms=self.connection_setup_timeout_max_ms,
            send_buffer_bytes=self.send_buffer_bytes,
            receive_buffer_bytes=self.receive_buffer_bytes,
            local_socket_enable=self.local_socket_enable,
            local_send_buffer_bytes=self.local_send_buffer_bytes,
        )


def _check_names(properties: Mapping[str, str]) -> None:
    for name in sorted(properties):
        if name in WITHOUT_EFFECT:
            log.warning("Kafka option %s%s has no effect on this source", PREFIX, name)
        elif name not in CONFIG.keys and name not in NAMES and not is_provider_setting(name):
            close = difflib.get_close_matches(name, CONFIG.keys, 1)
            hint = f" Did you mean {PREFIX}{close[0]}?" if close else ""
            raise ConfigError(f"There is no Kafka option {PREFIX}{name} for this source.{hint}", name=PREFIX + name)
