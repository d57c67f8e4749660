"""Handles settings of features that this broker does not have yet.

Configuration files for Apache Kafka are full of them. Failing on each would make such files unusable here, and ignoring
them silently would let a user believe that, say, a key store is in use. So a setting that only tunes a missing feature
is ignored with a warning, and a setting that enables the feature is an error. The same holds for dynamic settings: one
that tunes a feature is stored and described, but has no effect until the feature exists.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from barnabas.broker.config.listener_prefix import base_name
from barnabas.common.config_def import ConfigError
from barnabas.network.server.endpoint import Endpoint, SecurityProtocol

logger = logging.getLogger(__name__)


class AbsentFeature(NamedTuple):
    """A feature, and the prefixes of its settings."""

    name: str
    prefixes: tuple[str, ...]


ABSENT_FEATURES: Final = (
    AbsentFeature("TLS", ("ssl.", "security.providers")),
    AbsentFeature("SASL", ("sasl.", "connections.max.reauth.ms", "principal.builder.class")),
    AbsentFeature(
        "remote storage",
        ("remote.log.", "remote.fetch.", "remote.list.offsets.", "follower.fetch.last.tiered.offset.enable"),
    ),
    AbsentFeature("metrics reporters", ("metric.reporters", "kafka.metrics.")),
)

_HARMLESS: Final = {
    "metric.reporters": frozenset({"", "org.apache.kafka.common.metrics.JmxReporter"}),
    "principal.builder.class": frozenset(
        {"org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"}
    ),
    "remote.log.storage.system.enable": frozenset({"false"}),
    "sasl.enabled.mechanisms": frozenset({""}),
}
"""Values that describe the actual behaviour, so no warning is needed."""


def absent_feature(name: str) -> str | None:
    """Returns the missing feature that a setting belongs to, or None."""
    base = base_name(name)
    for feature in ABSENT_FEATURES:
        if base.startswith(feature.prefixes):
            return feature.name
    # A mechanism's settings have its name in front: listener.name.internal.plain.sasl.jaas.config.
    return "SASL" if ".sasl." in base or base.endswith(".connections.max.reauth.ms") else None


def turned_on_feature(name: str, value: str) -> str | None:
    """Returns the missing feature that this dynamic setting would enable, or None.

    TLS, SASL and remote storage are enabled in the file, by listeners and by a read-only setting; their dynamic
    settings only tune them. Naming a metrics reporter enables it.
    """
    base = base_name(name)
    return absent_feature(name) if base == "metric.reporters" and value.strip() not in _HARMLESS[base] else None


def without_absent_features(properties: Mapping[str, str], *, warn: bool) -> dict[str, str]:
    """Returns the settings that have an effect. Raises `ConfigError` for one that enables a missing feature."""
    if properties.get("remote.log.storage.system.enable", "").strip().lower() == "true":
        raise ConfigError(
            "Configuration remote.log.storage.system.enable cannot be true: remote storage is not supported yet.",
            name="remote.log.storage.system.enable",
        )
    kept: dict[str, str] = {}
    for name, value in properties.items():
        feature = absent_feature(name)
        if feature is None:
            kept[name] = value
        elif warn and value.strip() not in _HARMLESS.get(base_name(name), ()):
            logger.warning("%s has no effect: this broker does not support %s yet.", name, feature)
    return kept


def check_protocols_supported(endpoints: Iterable[Endpoint]) -> None:
    for endpoint in endpoints:
        if endpoint.security_protocol is not SecurityProtocol.PLAINTEXT:
            raise ConfigError(
                f"Configuration listeners has {endpoint} with the protocol {endpoint.security_protocol.name}, which is "
                "not supported yet: use PLAINTEXT.",
                name="listeners",
            )
