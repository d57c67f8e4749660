"""The configuration of a node: `server.properties`, parsed, checked and typed.

    config = KafkaConfig.from_properties(load_properties(Path("server.properties")))
    config.node_id, config.process_roles, config.listeners
    SocketServer(config.node_id, config.listeners, config.socket_server(), ...)

It is immutable. A change at run time creates a new one: see
`barnabas.broker.config.dynamic_broker_config`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self

from barnabas.broker.config.absent_features import without_absent_features
from barnabas.broker.config.barnabas_config_def import HAND_OFF_AUTO
from barnabas.broker.config.broker_config_def import BROKER_CONFIG_DEF
from barnabas.broker.config.java_double import java_double
from barnabas.broker.config.kafka_config_rules import ProcessRole, parse_roles, validate
from barnabas.broker.config.listener_prefix import base_name, split_listener, without_mechanism
from barnabas.broker.config.listeners import Listeners, parse_map
from barnabas.common.config_def import ConfigError, ConfigValues, Password, convert_to_string
from barnabas.common.dataclass import dataclass, field
from barnabas.common.errors import InvalidConfigurationError
from barnabas.common.numerals import parse_integer
from barnabas.controller.bootstrap import BootstrapMetadata
from barnabas.controller.config import ControllerConfig
from barnabas.controller.delegation_token_control_manager import DelegationTokenConfig
from barnabas.log.cleaner.cleaner_config import CleanerConfig
from barnabas.log.config.server_log_config import broker_topic_defaults, log_directories
from barnabas.log.manager.log_manager_config import LogManagerConfig
from barnabas.log.producers.producer_states import ProducerStateManagerConfig
from barnabas.network.server.config import SocketServerConfig
from barnabas.network.server.connection_limits import ConnectionLimits
from barnabas.network.server.endpoint import Endpoint
from barnabas.network.transport.local.offer import SEND_BUFFER_BYTES
from barnabas.raft.config import HostAndPort, RaftConfig, VoterAddress, metadata_log_dir, parse_host_and_port
from barnabas.replica.config import ReplicaManagerConfig
from barnabas.server.data_plane import HandOff

logger = logging.getLogger(__name__)

PLUGIN_CONFIGS: Final = frozenset({"super.users", "allow.everyone.if.no.acl.found"})
"""Settings without a definition that an authorizer reads."""

KAFKA_CLASSES: Final = MappingProxyType({
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer": (
        "barnabas.security.standard_authorizer.StandardAuthorizer"
    ),
})  # fmt: skip
"""The classes here that replace classes of Apache Kafka in its configuration files."""

TCP_SEND_BUFFER_BYTES: Final = 256 * 1024
"""Holds a response of 256 KiB, which Kafka's default of 100 KiB takes in pieces. A buffer that the system sizes fills
librdkafka's queue of 64 MB faster than its program reads, and then that client stops fetching for up to a second."""
_HOST: Final = r"\[?[0-9A-Za-z%._:-]+\]?"
_HTTP_LISTENER: Final = "barnabas.http.listener"
_REQUIRED: Final = {
    "process.roles": "a single-node cluster has process.roles=broker,controller",
    "node.id": "use a non-negative number that no other node of the cluster has",
    "controller.listener.names": "usually controller.listener.names=CONTROLLER",
}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class KafkaConfig:
    """The settings of a node. Frequently used ones have properties; `value` returns any of them.

    Create it with `from_properties`: the constructor checks nothing.
    """

    values: ConfigValues
    properties: Mapping[str, str]
    """The settings as strings, without those of features that this node does not have."""
    originals: Mapping[str, str]
    """The same, before config providers have resolved their variables."""
    process_roles: frozenset[ProcessRole]
    listener_config: Listeners
    quorum_voters: tuple[VoterAddress, ...]
    """``controller.quorum.voters``. The entry of this node may have port 0, if its listener has."""
    topic_defaults: Mapping[str, Any]
    """The default settings of topics."""
    hand_off: HandOff
    listener_values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Settings of single listeners (``listener.name.<listener>.<setting>``), by upper-case listener and setting."""

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any], *, warn: bool = True) -> Self:
        """Parses and validates settings; `ConfigError` says what is wrong and what to do.

        Settings that are unknown or not supported yet are ignored with a warning, unless `warn` is false.
        """
        originals = without_absent_features(_with_node_id(as_texts(properties)), warn=warn)
        heeded = originals
        if "config.providers" in originals:
            from barnabas.common.config_providers import resolve_variables  # few nodes have any

            heeded = resolve_variables(originals)
        for name, hint in _REQUIRED.items():
            if name not in heeded:
                raise ConfigError(f"Configuration {name} is missing and has no default: {hint}.", name=name)
        values = BROKER_CONFIG_DEF.parse(heeded)
        if warn:
            _warn_of_unknown(values.unknown)
        chosen = values.get_str("barnabas.request.handoff")
        hand_off = HandOff.default() if chosen == HAND_OFF_AUTO else HandOff(chosen)
        if not values.is_set("num.network.threads"):
            network_threads = {"num.network.threads": hand_off.default_network_threads}
            values = ConfigValues({**values, **network_threads}, values.unknown, values.originals)
        listeners = Listeners.from_values(values)
        roles = parse_roles(values.get_list("process.roles"))
        raft = RaftConfig.from_values(values)
        topic_defaults = broker_topic_defaults(values)
        validate(values, roles, listeners, [voter.id for voter in raft.voters])
        config = cls(
            values=values,
            properties=MappingProxyType(heeded),
            originals=MappingProxyType(originals),
            process_roles=roles,
            listener_config=listeners,
            quorum_voters=raft.voters,
            topic_defaults=MappingProxyType(topic_defaults),
            hand_off=hand_off,
            listener_values=_listener_values(values.unknown),
        )
        # Validates these settings now instead of at their first use.
        config.cleaner()
        config.socket_server()
        _ = config.http_listener
        return config

    @classmethod
    def for_zero_configuration(
        cls,
        data_dir: Path,
        host: str = "127.0.0.1",
        port: int = 9092,
        controller_port: int = 0,
        *,
        overrides: Mapping[str, object] | None = None,
        **settings: object,
    ) -> Self:
        """Returns the configuration of a broker with its controller on a laptop.

        `overrides` and `settings` are added to it; the latter have underscores for dots: ``num_partitions=3``.
        """
        laid_over = {name.replace("_", "."): value for name, value in settings.items()} | dict(overrides or {})
        return cls.from_properties(zero_configuration(data_dir, host, port, controller_port, laid_over))

    # -- any setting

    def value(self, name: str) -> Any:
        """Returns the value of any setting; raises KeyError for an unknown name."""
        return self.values[name]

    def listener_value(self, listener: str, name: str) -> Any:
        """Returns the value for one listener: its own, or else the broker's."""
        return self.listener_values.get(listener, {}).get(name, self.values[name])

    def mechanism_value(self, listener: str, mechanism: str, name: str) -> Any:
        """Returns the value for one SASL mechanism of a listener: its own, the listener's, or else the broker's."""
        own = self.listener_values.get(listener, {})
        return own.get(f"{mechanism.lower()}.{name}", own.get(name, self.values[name]))

    def with_prefix(self, listener: str, prefix: str) -> dict[str, Any]:
        """Returns all settings of a family, such as ``ssl.``, as one listener sees them."""
        own = self.listener_values.get(listener, {})
        found = {name: value for name, value in self.values.items() if name.startswith(prefix)}
        return found | {name: value for name, value in own.items() if name.startswith(prefix)}

    # -- identity

    @property
    def node_id(self) -> int:
        return self.values.get_int("node.id")

    @property
    def rack(self) -> str | None:
        return self.values.get_optional_str("broker.rack")

    @property
    def is_broker(self) -> bool:
        return ProcessRole.BROKER in self.process_roles

    @property
    def is_controller(self) -> bool:
        return ProcessRole.CONTROLLER in self.process_roles

    # -- addresses and directories

    @property
    def listeners(self) -> tuple[Endpoint, ...]:
        """The listeners of the broker; an empty host means all interfaces."""
        return self.listener_config.broker

    @property
    def advertised_listeners(self) -> tuple[Endpoint, ...]:
        """The addresses for clients; `barnabas.broker.config.listeners.resolved` fills in hosts and ports."""
        return self.listener_config.advertised_broker

    @property
    def controller_listeners(self) -> tuple[Endpoint, ...]:
        return self.listener_config.controller

    @property
    def advertised_controller_listeners(self) -> tuple[Endpoint, ...]:
        return self.listener_config.advertised_controller

    @property
    def controller_listener_names(self) -> tuple[str, ...]:
        return self.listener_config.controller_names

    @property
    def inter_broker_listener_name(self) -> str:
        return self.listener_config.inter_broker_name

    @property
    def early_start_listeners(self) -> frozenset[str]:
        return self.listener_config.early_start

    @property
    def http_listener(self) -> HostAndPort | None:
        text = self.values.get_optional_str(_HTTP_LISTENER)
        return None if text is None else parse_host_and_port(_HTTP_LISTENER, text)

    @property
    def http_hosts(self) -> tuple[str, ...]:
        return self.values.get_list("barnabas.http.hosts")

    @property
    def log_dirs(self) -> tuple[Path, ...]:
        return tuple(map(Path, log_directories(self.values)))

    @property
    def metadata_log_dir(self) -> Path:
        found = metadata_log_dir(self.values)
        assert found is not None  # there is at least one log directory
        return found

    # -- requests

    @property
    def num_io_threads(self) -> int:
        return self.values.get_int("num.io.threads")

    @property
    def num_network_threads(self) -> int:
        return self.values.get_int("num.network.threads")

    @property
    def background_threads(self) -> int:
        return self.values.get_int("background.threads")

    @property
    def queued_max_requests(self) -> int:
        return self.values.get_int("queued.max.requests")

    @property
    def request_timeout_ms(self) -> int:
        return self.values.get_int("request.timeout.ms")

    @property
    def fetch_max_bytes(self) -> int:
        return self.values.get_int("fetch.max.bytes")

    @property
    def max_incremental_fetch_session_cache_slots(self) -> int:
        return self.values.get_int("max.incremental.fetch.session.cache.slots")

    @property
    def max_request_partition_size_limit(self) -> int:
        return self.values.get_int("max.request.partition.size.limit")

    @property
    def unstable_api_versions_enable(self) -> bool:
        return self.values.get_bool("unstable.api.versions.enable")

    @property
    def authorizer_class_name(self) -> str | None:
        """The dotted name of a Python class; the name of Kafka's own authorizer is replaced by ours."""
        name = self.values.get_str("authorizer.class.name")
        return KAFKA_CLASSES.get(name, name) or None

    # -- topics

    @property
    def auto_create_topics_enable(self) -> bool:
        return self.values.get_bool("auto.create.topics.enable")

    @property
    def delete_topic_enable(self) -> bool:
        return self.values.get_bool("delete.topic.enable")

    @property
    def num_partitions(self) -> int:
        return self.values.get_int("num.partitions")

    @property
    def default_replication_factor(self) -> int:
        return self.values.get_int("default.replication.factor")

    # -- broker lifecycle

    @property
    def broker_heartbeat_interval_ms(self) -> int:
        return self.values.get_int("broker.heartbeat.interval.ms")

    @property
    def broker_session_timeout_ms(self) -> int:
        return self.values.get_int("broker.session.timeout.ms")

    @property
    def initial_broker_registration_timeout_ms(self) -> int:
        return self.values.get_int("initial.broker.registration.timeout.ms")

    @property
    def server_max_startup_time_ms(self) -> int:
        return self.values.get_int("server.max.startup.time.ms")

    @property
    def controlled_shutdown_enable(self) -> bool:
        return self.values.get_bool("controlled.shutdown.enable")

    # -- configurations of components

    def socket_server(self, *, for_clients: bool = True) -> SocketServerConfig:
        """Local sockets are disabled for connections between nodes, which do not use them."""
        values = self.values
        return SocketServerConfig(
            num_network_threads=self.num_network_threads,
            listener_num_network_threads=self._of_listeners("num.network.threads"),
            queued_max_request_bytes=values.get_int("queued.max.request.bytes"),
            socket_request_max_bytes=values.get_int("socket.request.max.bytes"),
            socket_send_buffer_bytes=_size_if_set(values, "socket.send.buffer.bytes", TCP_SEND_BUFFER_BYTES),
            # A buffer of a fixed size does not grow. Kafka's default would hold only a tenth of a large batch, and each
            # read would have to wait for the next tenth to be sent.
            socket_receive_buffer_bytes=_size_if_set(values, "socket.receive.buffer.bytes", -1),
            socket_listen_backlog_size=values.get_int("socket.listen.backlog.size"),
            connections_max_idle_ms=values.get_int("connections.max.idle.ms"),
            connection_failed_authentication_delay_ms=values.get_int("connection.failed.authentication.delay.ms"),
            local_socket_enable=for_clients and values.get_bool("barnabas.local.socket.enable"),
            local_socket_send_buffer_bytes=_size_if_set(values, "socket.send.buffer.bytes", SEND_BUFFER_BYTES),
            for_clients=for_clients,
            limits=self._connection_limits(),
        )

    def _connection_limits(self) -> ConnectionLimits:
        values = self.values
        return ConnectionLimits(
            max_connections_per_ip=values.get_int("max.connections.per.ip"),
            max_connections_per_ip_overrides=self.max_connections_per_ip_overrides,
            max_connections=values.get_int("max.connections"),
            max_connection_creation_rate=values.get_int("max.connection.creation.rate"),
            quota_samples=values.get_int("quota.window.num"),
            quota_window_seconds=values.get_int("quota.window.size.seconds"),
            inter_broker_listener=self.inter_broker_listener_name,
            listener_max_connections=self._of_listeners("max.connections"),
            listener_max_connection_creation_rate=self._of_listeners("max.connection.creation.rate"),
        )

    def _of_listeners(self, name: str) -> dict[str, int]:
        return {listener: own[name] for listener, own in self.listener_values.items() if name in own}

    @property
    def max_connections_per_ip_overrides(self) -> dict[str, int]:
        """Limits by address or host name."""
        name = "max.connections.per.ip.overrides"
        limits = {}
        for host, text in parse_map(self.values.get_str(name), name).items():
            if re.fullmatch(_HOST, host) is None:
                raise ConfigError.invalid(name, f"{host}:{text}", f"{host!r} is neither an address nor a host name")
            try:
                limits[host] = parse_integer(text)
            except ValueError as error:
                raise ConfigError.invalid(name, f"{host}:{text}", str(error)) from None
            if limits[host] < 0:
                raise ConfigError.invalid(name, f"{host}:{text}", "the number of connections must not be negative")
        return limits

    def log_manager(self, cluster_id: str | None = None) -> LogManagerConfig:
        values = self.values
        return LogManagerConfig.from_values(
            values,
            cluster_id=cluster_id,
            node_id=self.node_id,
            high_watermark_checkpoint_ms=values.get_int("replica.high.watermark.checkpoint.interval.ms"),
            producer_id_expiration_check_ms=values.get_int("producer.id.expiration.check.interval.ms"),
            max_transaction_timeout_ms=values.get_int("transaction.max.timeout.ms"),
            producer_state=ProducerStateManagerConfig(
                producer_id_expiration_ms=values.get_int("producer.id.expiration.ms"),
                transaction_verification_enabled=values.get_bool("transaction.partition.verification.enable"),
            ),
        )

    def controller(self, cluster_id: str, bootstrap: BootstrapMetadata) -> ControllerConfig:
        values = self.values
        rebalances = values.get_bool("auto.leader.rebalance.enable")
        return ControllerConfig(
            node_id=self.node_id,
            cluster_id=cluster_id,
            quorum_node_ids=tuple(voter.id for voter in self.quorum_voters),
            bootstrap=bootstrap,
            static_config=self.properties,
            default_num_partitions=self.num_partitions,
            default_replication_factor=self.default_replication_factor,
            session_timeout_ms=self.broker_session_timeout_ms,
            leader_imbalance_check_interval_ms=(
                values.get_int("leader.imbalance.check.interval.seconds") * 1000 if rebalances else 0
            ),
            unclean_leader_election_check_interval_ms=values.get_int("unclean.leader.election.interval.ms"),
            max_idle_interval_ms=values.get_int("metadata.max.idle.interval.ms"),
            max_bytes_between_snapshots=values.get_int("metadata.log.max.record.bytes.between.snapshots"),
            max_snapshot_interval_ms=values.get_int("metadata.log.max.snapshot.interval.ms"),
            delegation_tokens=DelegationTokenConfig(
                self.delegation_token_secret_key,
                max_lifetime_ms=values.get_int("delegation.token.max.lifetime.ms"),
                expiry_time_ms=values.get_int("delegation.token.expiry.time.ms"),
                expiry_check_interval_ms=values.get_int("delegation.token.expiry.check.interval.ms"),
            ),
        )

    @property
    def delegation_token_secret_key(self) -> Password | None:
        """The key of delegation tokens; None, also for an empty one, if the node has no tokens."""
        key: Password | None = self.value("delegation.token.secret.key")
        return key if key is not None and key.value else None

    def raft(self) -> RaftConfig:
        return RaftConfig.from_values(self.values)

    def cleaner(self) -> CleanerConfig:
        return CleanerConfig.from_values(self.values)

    def replica_manager(self) -> ReplicaManagerConfig:
        return ReplicaManagerConfig.from_values(self.values, broker_id=self.node_id)

    def __repr__(self) -> str:
        """Returns the settings without passwords."""
        shown = (f"{name}={loggable_value(name, value)}" for name, value in sorted(self.properties.items()))
        return f"KafkaConfig({', '.join(shown)})"


def zero_configuration(
    data_dir: Path,
    host: str = "127.0.0.1",
    port: int = 9092,
    controller_port: int = 0,
    overrides: Mapping[str, object] | None = None,
) -> dict[str, str]:
    """Returns the properties of a broker with its controller on a laptop.

    The controller listens on this machine only. Internal topics have one replica, because there is only one broker. A
    new group does not wait for more members, and the metadata log does not wait for more writes to share an fsync.
    """
    if host in {"0.0.0.0", "::"}:  # noqa: S104 - requested by the caller
        host = ""  # means the same, and advertises the name of the machine
    bracketed = f"[{host}]" if ":" in host else host
    given = as_texts(overrides or {})
    node_id = given.get("node.id", "1")
    return {
        "process.roles": "broker,controller",
        "node.id": node_id,
        "listeners": f"PLAINTEXT://{bracketed}:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"{node_id}@127.0.0.1:{controller_port}",
        "log.dirs": str(data_dir),
        "auto.create.topics.enable": "true",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "controller.quorum.append.linger.ms": "0",
        **given,
    }


def _size_if_set(values: ConfigValues, name: str, otherwise: int) -> int:
    return values.get_int(name) if values.is_set(name) else otherwise


def loggable_value(name: str, value: object) -> str:
    """Returns a value for logs; the value of an unknown setting may be a password and is hidden."""
    key = BROKER_CONFIG_DEF.keys.get(base_name(name))
    if key is None or key.type.is_sensitive:
        return Password.HIDDEN
    return str(value)


def as_texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Returns the values that are set as strings, including passwords."""
    found = {}
    for name, value in values.items():
        if isinstance(value, Password):
            text: str | None = value.value
        else:
            text = java_double(value) if isinstance(value, float) else convert_to_string(value)
        if text is not None:
            found[name] = text
    return found


def _with_node_id(properties: dict[str, str]) -> dict[str, str]:
    """Copies node.id to broker.id, or the other way round."""
    if "node.id" in properties:
        properties.setdefault("broker.id", properties["node.id"])
    elif "broker.id" in properties:
        properties["node.id"] = properties["broker.id"]
    return properties


def _warn_of_unknown(unknown: Mapping[str, object]) -> None:
    names = [
        name
        for name in unknown
        if split_listener(name) is None and name not in PLUGIN_CONFIGS and not name.startswith("config.providers.")
    ]
    if names:
        from difflib import get_close_matches  # for mistakes only

        close = {name: get_close_matches(name, BROKER_CONFIG_DEF.keys, 1, 0.85) for name in sorted(names)}
        shown = [f"{name} (did you mean {found[0]}?)" if found else name for name, found in close.items()]
        logger.warning("Ignoring unknown settings: %s", ", ".join(shown))


def _listener_values(unknown: Mapping[str, object]) -> Mapping[str, Mapping[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name, text in unknown.items():
        split = split_listener(name)
        if split is None:
            continue
        listener, base = split
        defined = without_mechanism(base)
        if defined not in BROKER_CONFIG_DEF.keys:
            continue
        try:
            found.setdefault(listener, {})[base] = BROKER_CONFIG_DEF.parse_value(defined, text)
        except InvalidConfigurationError as error:
            raise ConfigError(f"{error} (It is set as {name}.)", name=name) from None
    return MappingProxyType({listener: MappingProxyType(own) for listener, own in found.items()})
