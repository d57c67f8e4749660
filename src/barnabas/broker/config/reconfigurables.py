"""The parts of a broker that support changes of its settings.

=============================== ====================================================================================
``DynamicThreadPool``           sizes of thread pools, at most halved or doubled in one step
``DynamicNetworkThreads``       the same for the network threads of each listener
``DynamicConnectionLimits``     limits of connections and of their rate
``DynamicLogConfig``            the defaults of topics
``DynamicLogCleaner``           threads and buffers of the cleaner
``DynamicProducerStates``       the expiration of producer IDs
``DynamicListeners``            the listeners of a broker: which there are, and their security
``DynamicListenerSecurity``     the security of a controller's listeners
``DynamicAuthorizer``           the settings of the authorizer, such as ``super.users``
=============================== ====================================================================================

Other parts register a `FunctionReconfigurable` or implement `Reconfigurable`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from barnabas.broker.config.dynamic_broker_config import ANY_LISTENER_SETTING, FunctionReconfigurable
from barnabas.broker.config.dynamic_config_names import (
    CLUSTER_LEVEL_LISTENER_CONFIGS,
    CONNECTION_CONFIGS,
    LOG_CONFIGS,
    PRODUCER_STATE_CONFIGS,
    THREAD_POOL_CONFIGS,
)
from barnabas.broker.config.kafka_config import KafkaConfig
from barnabas.broker.config.listener_prefix import without_mechanism
from barnabas.common.config_def import ConfigError
from barnabas.log.cleaner.cleaner_config import RECONFIGURABLE_CONFIGS as CLEANER_CONFIGS
from barnabas.log.cleaner.log_cleaner import LogCleaner
from barnabas.log.config.log_config import validate_broker_topic_defaults
from barnabas.log.producers.producer_states import ProducerStateManagerConfig
from barnabas.network.server.connection_quotas import ConnectionQuotas
from barnabas.network.server.endpoint import Endpoint

logger = logging.getLogger(__name__)


def check_step(name: str, current: int, new: int) -> None:
    """Rejects a step that more than halves or doubles a pool: a typo must not start ten thousand threads."""
    if not current / 2 <= new <= current * 2:
        raise ConfigError(
            f"{name}={new} is rejected: one step may at most halve or double the current value of {current}.", name=name
        )


class DynamicThreadPool(FunctionReconfigurable):
    """Resizes thread pools. A pool that cannot be resized gets its new size after a restart."""

    def __init__(self, resize: Mapping[str, Callable[[int], object]]) -> None:
        """`resize` has a function for each setting in `THREAD_POOL_CONFIGS` whose pool can be resized."""
        super().__init__(THREAD_POOL_CONFIGS, self._resize_changed, self._check_changed)
        self._resize = dict(resize)

    def _check_changed(self, current: KafkaConfig, new: KafkaConfig) -> None:
        for name in sorted(self.reconfigurable_configs):
            check_step(name, current.value(name), new.value(name))

    def _resize_changed(self, old: KafkaConfig, new: KafkaConfig) -> None:
        for name in sorted(self.reconfigurable_configs):
            if old.value(name) == new.value(name):
                continue
            if name in self._resize:
                self._resize[name](new.value(name))
            else:
                logger.warning("%s will be %d after the next restart", name, new.value(name))


class DynamicNetworkThreads(FunctionReconfigurable):
    """Resizes the network threads of listeners."""

    NAME = "num.network.threads"

    def __init__(self, resize: Callable[[str, int], object], listeners: Callable[[], Iterable[str]]) -> None:
        """`resize` takes a listener and a number; `listeners` returns the current listeners."""
        super().__init__((self.NAME,), self._resize_changed, self._check_changed)
        self._resize = resize
        self._listeners = listeners

    def _check_changed(self, current: KafkaConfig, new: KafkaConfig) -> None:
        for listener in self._listeners():
            check_step(self.NAME, current.listener_value(listener, self.NAME), new.listener_value(listener, self.NAME))

    def _resize_changed(self, old: KafkaConfig, new: KafkaConfig) -> None:
        for listener in self._listeners():
            wanted = new.listener_value(listener, self.NAME)
            if wanted != old.listener_value(listener, self.NAME):
                self._resize(listener, wanted)


class DynamicConnectionLimits(FunctionReconfigurable):
    """Changes the limits of connections."""

    def __init__(self, quotas: ConnectionQuotas) -> None:
        super().__init__(CONNECTION_CONFIGS, self._change)
        self._quotas = quotas

    def _change(self, old: KafkaConfig, new: KafkaConfig) -> None:
        quotas = self._quotas
        before, after = old.socket_server().limits, new.socket_server().limits
        if before.max_connections_per_ip != after.max_connections_per_ip:
            quotas.update_max_connections_per_ip(after.max_connections_per_ip)
        if before.max_connections_per_ip_overrides != after.max_connections_per_ip_overrides:
            quotas.update_max_connections_per_ip_overrides(after.max_connections_per_ip_overrides)
        if before.max_connections != after.max_connections:
            quotas.update_broker_max_connections(after.max_connections)
        if before.max_connection_creation_rate != after.max_connection_creation_rate:
            quotas.update_broker_max_connection_rate(after.max_connection_creation_rate)
        # Also of listeners that are not open: a limit may be set before its listener is added.
        for listener, maximum in _changes(before.listener_max_connections, after.listener_max_connections):
            quotas.update_listener_max_connections(listener, maximum)
        for listener, rate in _changes(
            before.listener_max_connection_creation_rate, after.listener_max_connection_creation_rate
        ):
            quotas.update_listener_max_connection_rate(listener, rate)


def _changes(before: Mapping[str, int], after: Mapping[str, int]) -> list[tuple[str, int | None]]:
    """Returns the new values of all keys that have another value, or None if they have none any more."""
    keys = sorted(before.keys() | after.keys())
    return [(key, after.get(key)) for key in keys if before.get(key) != after.get(key)]


class Logs(Protocol):
    """The part of the log manager that handles changed settings."""

    def topic_defaults_changed(self, topic_defaults: Mapping[str, Any]) -> None: ...

    def topic_config_changed(self, topic: str) -> None: ...


class DynamicLogConfig(FunctionReconfigurable):
    """Applies new topic defaults to logs without their own settings."""

    def __init__(self, logs: Logs) -> None:
        super().__init__(
            LOG_CONFIGS,
            lambda _old, new: logs.topic_defaults_changed(new.topic_defaults),
            lambda _current, new: validate_broker_topic_defaults(new.topic_defaults),
        )


class DynamicLogCleaner(FunctionReconfigurable):
    """Reconfigures the threads and buffers of the log cleaner."""

    def __init__(self, cleaner: LogCleaner) -> None:
        super().__init__(
            CLEANER_CONFIGS,
            lambda _old, new: cleaner.reconfigure(new.cleaner()),
            lambda _current, new: cleaner.validate_reconfiguration(new.cleaner()),
        )


class DynamicProducerStates(FunctionReconfigurable):
    """Changes the configuration object that all logs share."""

    def __init__(self, shared: ProducerStateManagerConfig) -> None:
        super().__init__(PRODUCER_STATE_CONFIGS, self._change)
        self._shared = shared

    def _change(self, _old: KafkaConfig, new: KafkaConfig) -> None:
        self._shared.producer_id_expiration_ms = new.value("producer.id.expiration.ms")
        self._shared.transaction_verification_enabled = new.value("transaction.partition.verification.enable")


class Securable(Protocol):
    """The security of listeners, as far as it can be changed."""

    def validate(self, new: KafkaConfig) -> None: ...

    def reconfigure(self, new: KafkaConfig) -> None: ...


class DynamicListenerSecurity(FunctionReconfigurable):
    """Replaces certificates, JAAS configurations and mechanisms of listeners, for new connections."""

    def __init__(self, security: Securable) -> None:
        super().__init__(
            (ANY_LISTENER_SETTING,),
            lambda _old, new: security.reconfigure(new),
            lambda _current, new: security.validate(new),
        )
        self.reads_files = True


class ListenerHost(Securable, Protocol):
    """The part of a node that opens and closes listeners."""

    def validate_new(self, new: KafkaConfig, endpoints: Sequence[Endpoint]) -> None:
        """Raises `ConfigError` if these listeners cannot be opened."""
        ...

    def close_listeners(self, names: Sequence[str]) -> None:
        """Closes listeners and their connections."""
        ...

    def open_listeners(self, new: KafkaConfig, endpoints: Sequence[Endpoint]) -> None:
        """Opens listeners; raises OSError if a port is in use."""
        ...

    def advertise(self, new: KafkaConfig) -> None:
        """Registers the advertised listeners with the controller, if they have changed."""
        ...


class DynamicListeners(FunctionReconfigurable):
    """Opens and closes listeners, and changes the security of the others.

    A new listener is advertised after it has been opened, and a closed one before it is closed, so that clients are
    not sent to an address where nobody listens. A listener that stays keeps its address and protocol, and its open
    connections. Apache Kafka 4.3 refuses every change of the advertised listeners.
    """

    def __init__(self, host: ListenerHost) -> None:
        names = ("listeners", "advertised.listeners", "listener.security.protocol.map", ANY_LISTENER_SETTING)
        super().__init__(names, self._change, self._check)
        self.reads_files = True
        self._host = host

    def _check(self, current: KafkaConfig, new: KafkaConfig) -> None:
        if current.listener_config.controller != new.listener_config.controller:
            raise ConfigError("The controller's listeners cannot be changed while the node runs.", name="listeners")
        before = {endpoint.listener_name: endpoint for endpoint in current.listeners}
        added = []
        for endpoint in new.listeners:
            old = before.get(endpoint.listener_name)
            if old is None:
                added.append(endpoint)
            elif old != endpoint:
                raise ConfigError(
                    f"Listener {old} cannot become {endpoint} while it is open: remove it first, or add another one.",
                    name="listeners",
                )
            else:
                _check_unchanged(endpoint.listener_name, current, new)
        self._host.validate(new)
        self._host.validate_new(new, added)

    def _change(self, old: KafkaConfig, new: KafkaConfig) -> None:
        before = {endpoint.listener_name for endpoint in old.listeners}
        after = {endpoint.listener_name for endpoint in new.listeners}
        self._host.reconfigure(new)
        try:
            self._host.open_listeners(new, [one for one in new.listeners if one.listener_name not in before])
        finally:
            self._host.advertise(new)
            self._host.close_listeners(sorted(before - after))


def _check_unchanged(listener: str, current: KafkaConfig, new: KafkaConfig) -> None:
    """Rejects a change of a listener's settings that would have no effect before a restart."""
    before, after = current.listener_values.get(listener, {}), new.listener_values.get(listener, {})
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name) and not _can_change(without_mechanism(name)):
            raise ConfigError(
                f"{name} cannot be changed for the existing listener {listener}: edit the file and restart.",
                name=f"listener.name.{listener.lower()}.{name}",
            )


def _can_change(name: str) -> bool:
    if name == "ssl.principal.mapping.rules":
        return False
    return name.startswith(("ssl.", "sasl.")) or name in {*CLUSTER_LEVEL_LISTENER_CONFIGS, "connections.max.reauth.ms"}


class ReconfigurableAuthorizer(Protocol):
    """An authorizer that supports changes of its settings. `StandardAuthorizer` is one."""

    reconfigurable_configs: Collection[str]
    """The settings that it depends on."""

    def validate_reconfiguration(self, configs: Mapping[str, str]) -> None:
        """Raises `InvalidConfigurationError` if these settings of the node cannot be applied."""
        ...

    def reconfigure(self, configs: Mapping[str, str]) -> None: ...


class DynamicAuthorizer(FunctionReconfigurable):
    """Passes changed settings to an authorizer. They apply to the next request of every connection."""

    def __init__(self, authorizer: ReconfigurableAuthorizer) -> None:
        super().__init__(
            authorizer.reconfigurable_configs,
            lambda _old, new: authorizer.reconfigure(new.properties),
            lambda _current, new: authorizer.validate_reconfiguration(new.properties),
        )
