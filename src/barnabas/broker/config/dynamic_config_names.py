"""Lists the settings of a broker that can change while it runs, and their scope.

========================= =============================================================================================
read-only                 only in ``server.properties``: most settings
per-broker                dynamic for one broker, because they only make sense there: listeners, key stores
cluster-wide              dynamic for all brokers, or for one, where the value for one takes precedence
========================= =============================================================================================

Settings of one listener (``listener.name.<listener>.<setting>``) are per-broker, except a few about connections and
threads. Security settings of a listener can only be changed with that prefix.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from barnabas.broker.config.absent_features import turned_on_feature
from barnabas.broker.config.broker_config_def import BROKER_CONFIG_DEF
from barnabas.broker.config.listener_prefix import base_name, split_listener
from barnabas.broker.config.terms import LONG, MAX_LONG, MEDIUM, at_least
from barnabas.common.config_def import ConfigDef, ConfigError
from barnabas.log.cleaner.cleaner_config import RECONFIGURABLE_CONFIGS as CLEANER_CONFIGS
from barnabas.log.config.server_log_config import TOPIC_CONFIG_SYNONYMS

LOG_CONFIGS: Final = frozenset(synonyms[0].name for synonyms in TOPIC_CONFIG_SYNONYMS.values())
"""The defaults of topic settings."""

THREAD_POOL_CONFIGS: Final = frozenset({
    "num.io.threads",
    "num.replica.fetchers",
    "num.recovery.threads.per.data.dir",
    "background.threads",
})  # fmt: skip

CONNECTION_CONFIGS: Final = frozenset({
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
    "max.connections",
    "max.connection.creation.rate",
})  # fmt: skip

PRODUCER_STATE_CONFIGS: Final = frozenset({"producer.id.expiration.ms", "transaction.partition.verification.enable"})

COORDINATOR_CONFIGS: Final = frozenset({
    "group.coordinator.cached.buffer.max.bytes",
    "group.consumer.assignment.interval.ms",
    "group.share.assignment.interval.ms",
    "group.streams.assignment.interval.ms",
    "share.coordinator.cached.buffer.max.bytes",
})  # fmt: skip

REMOTE_LOG_CONFIGS: Final = frozenset({
    "remote.log.index.file.cache.total.size.bytes",
    "remote.fetch.max.wait.ms",
    "remote.log.manager.copy.max.bytes.per.second",
    "remote.log.manager.fetch.max.bytes.per.second",
    "remote.list.offsets.request.timeout.ms",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
    "follower.fetch.last.tiered.offset.enable",
})  # fmt: skip

SECURITY_CONFIGS: Final = frozenset(
    {
        "ssl.keystore.type",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.truststore.type",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.certificates",
    }
)
"""Key and trust stores, which may change while a listener runs; they require its prefix."""

CLUSTER_LEVEL_LISTENER_CONFIGS: Final = frozenset({
    "max.connections",
    "max.connection.creation.rate",
    "num.network.threads",
})  # fmt: skip
"""Settings that are cluster-wide even with a listener's prefix."""

LISTENER_CONFIGS: Final = CLUSTER_LEVEL_LISTENER_CONFIGS | {
    "listeners",
    "listener.security.protocol.map",
    "principal.builder.class",
    "ssl.protocol",
    "ssl.provider",
    "ssl.cipher.suites",
    "ssl.enabled.protocols",
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.key.password",
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.keymanager.algorithm",
    "ssl.trustmanager.algorithm",
    "ssl.endpoint.identification.algorithm",
    "ssl.secure.random.implementation",
    "ssl.client.auth",
    "ssl.engine.factory.class",
    "sasl.mechanism.inter.broker.protocol",
    "sasl.jaas.config",
    "sasl.enabled.mechanisms",
    "sasl.kerberos.service.name",
    "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.ticket.renew.window.factor",
    "sasl.kerberos.ticket.renew.jitter",
    "sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.principal.to.local.rules",
    "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter",
    "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.buffer.seconds",
}  # fmt: skip
"""Settings of listeners."""

PER_BROKER_CONFIGS: Final = ((SECURITY_CONFIGS | LISTENER_CONFIGS) - CLUSTER_LEVEL_LISTENER_CONFIGS) | {
    "advertised.listeners",
    "cordoned.log.dirs",
}

REPLICATION_THROTTLES: Final = frozenset({
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
})  # fmt: skip
"""Settings that exist only dynamically."""

TELEMETRY_CONFIGS: Final = frozenset({"barnabas.request.log.sample.rate", "barnabas.quota.usage.interval.ms"})
BARNABAS_CONFIGS: Final = TELEMETRY_CONFIGS | {"advertised.listeners"}
"""Settings that Apache Kafka does not have, or that are read-only there."""

ALL_DYNAMIC_CONFIGS: Final = (
    SECURITY_CONFIGS
    | LISTENER_CONFIGS
    | LOG_CONFIGS
    | CLEANER_CONFIGS
    | THREAD_POOL_CONFIGS
    | CONNECTION_CONFIGS
    | PRODUCER_STATE_CONFIGS
    | COORDINATOR_CONFIGS
    | REMOTE_LOG_CONFIGS
    | REPLICATION_THROTTLES
    | BARNABAS_CONFIGS
    | {"metric.reporters", "config.providers", "cordoned.log.dirs"}
)

THROTTLE_CONFIG_DEF: Final = (
    ConfigDef()
    .define(
        "leader.replication.throttled.rate",
        LONG,
        MAX_LONG,
        at_least(0),
        MEDIUM,
        "The maximum number of bytes per second that this broker sends to followers, for throttled replicas.",
    )
    .define(
        "follower.replication.throttled.rate",
        LONG,
        MAX_LONG,
        at_least(0),
        MEDIUM,
        "The maximum number of bytes per second that this broker fetches from leaders, for throttled replicas.",
    )
    .define(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        LONG,
        MAX_LONG,
        at_least(0),
        MEDIUM,
        "The maximum number of bytes per second that are moved between log directories.",
    )
)


def _dynamic_config_def() -> ConfigDef:
    found = ConfigDef(THROTTLE_CONFIG_DEF)
    for key in BROKER_CONFIG_DEF.keys.values():
        if key.name in ALL_DYNAMIC_CONFIGS:
            found.define(key.name, key.type, key.default, key.validator, key.importance, key.documentation)
    return found


DYNAMIC_CONFIG_DEF: Final = _dynamic_config_def()
NON_DYNAMIC_CONFIGS: Final = frozenset(BROKER_CONFIG_DEF.keys) - DYNAMIC_CONFIG_DEF.keys.keys()


def update_mode(name: str) -> str:
    """Returns ``read-only``, ``per-broker`` or ``cluster-wide``."""
    if name in PER_BROKER_CONFIGS:
        return "per-broker"
    return "cluster-wide" if name in ALL_DYNAMIC_CONFIGS else "read-only"


def per_broker_names(names: Iterable[str]) -> list[str]:
    """Returns the names that can only be set for one broker."""
    found = []
    for name in names:
        split = split_listener(name)
        if name in PER_BROKER_CONFIGS or (split is not None and split[1] not in CLUSTER_LEVEL_LISTENER_CONFIGS):
            found.append(name)
    return found


def check_type(name: str, value: object) -> None:
    """Raises `ConfigError` if the value does not have the setting's type. Unknown names may have any value."""
    base = base_name(name)
    if base in DYNAMIC_CONFIG_DEF.keys:
        DYNAMIC_CONFIG_DEF.parse_value(base, value)


def validate_dynamic_configs(properties: Mapping[str, str], *, per_broker: bool) -> None:
    """Raises `ConfigError` if these cannot be set dynamically, with all names that have the first kind of error."""
    _refuse((name for name in properties if name in NON_DYNAMIC_CONFIGS), "Cannot update these configs dynamically")
    _refuse(
        (name for name in properties if name in SECURITY_CONFIGS),
        "These security configs can only be updated for a listener, with its prefix",
    )
    for name, value in properties.items():
        check_type(name, value)
    if not per_broker:
        _refuse(per_broker_names(properties), "These configs can only be updated for a single broker: name one")
    for name, value in properties.items():
        feature = turned_on_feature(name, value)
        if feature is not None:
            raise ConfigError(f"{name} cannot be set: this broker does not support {feature} yet.")


def _refuse(names: Iterable[str], message: str) -> None:
    refused = sorted(names)
    if refused:
        raise ConfigError(f"{message}: {', '.join(refused)}", name=refused[0])
