"""Settings of features that this broker does not have yet.

Files written for Apache Kafka are full of them. To stop at every one would make such files useless here, and to say
nothing would let somebody believe that a key store is in use. So a setting that only matters once its feature is on is
left out with a warning, and one that turns the feature on is an error. The same goes for settings that are made while
the broker runs: what tunes a feature is kept, and shown, and has no effect until the feature is there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from barnabas.broker.config.listener_prefix import base_name
from barnabas.common.config_def import ConfigError
from barnabas.common.named_tuple import NamedTuple
from barnabas.network.endpoint import Endpoint, SecurityProtocol

logger = logging.getLogger(__name__)


class AbsentFeature(NamedTuple):
    """A feature, and which settings are about it."""

    name: str
    prefixes: tuple[str, ...]


ABSENT_FEATURES: Final = (
    AbsentFeature("TLS", ("ssl.", "security.providers")),
    AbsentFeature("SASL", ("sasl.", "connections.max.reauth.ms", "principal.builder.class")),
    AbsentFeature("delegation tokens", ("delegation.token.",)),
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
"""Values that say what is the case anyway; no warning is due."""


def absent_feature(name: str) -> str | None:
    """The feature that a setting is about, if this broker lacks it."""
    base = base_name(name)
    for feature in ABSENT_FEATURES:
        if base.startswith(feature.prefixes):
            return feature.name
    # Settings of one mechanism stand behind its name: listener.name.internal.plain.sasl.jaas.config.
    return "SASL" if ".sasl." in base or base.endswith(".connections.max.reauth.ms") else None


def turned_on_feature(name: str, value: str) -> str | None:
    """The feature that this dynamic setting would turn on, if this broker lacks it.

    TLS, SASL and remote storage are turned on in the file, by listeners and by a setting that cannot change; all that
    is dynamic about them tunes what is on already. Reporters are on as soon as they are named.
    """
    base = base_name(name)
    return absent_feature(name) if base == "metric.reporters" and value.strip() not in _HARMLESS[base] else None


def without_absent_features(properties: Mapping[str, str], *, warn: bool) -> dict[str, str]:
    """The settings that can be heeded. `ConfigError` for one that asks for something which is not there."""
    if properties.get("remote.log.storage.system.enable", "").strip().lower() == "true":
        raise ConfigError(
            "Configuration remote.log.storage.system.enable cannot be true: remote storage is not supported yet.",
            name="remote.log.storage.system.enable",
        )
    if properties.get("config.providers", "").strip():
        # Variables inside of values would be taken literally: a password of "${file:...}".
        raise ConfigError(
            "Configuration config.providers cannot be set: variables inside of values are not supported yet.",
            name="config.providers",
        )
    kept: dict[str, str] = {}
    for name, value in properties.items():
        feature = absent_feature(name)
        if feature is None:
            kept[name] = value
        elif warn and value.strip() not in _HARMLESS.get(base_name(name), ()):
            logger.warning("%s has no effect: it is about %s, which this broker does not have yet.", name, feature)
    return kept


def check_protocols_supported(endpoints: Iterable[Endpoint]) -> None:
    for endpoint in endpoints:
        if endpoint.security_protocol is not SecurityProtocol.PLAINTEXT:
            raise ConfigError(
                f"Configuration listeners has {endpoint} with the protocol {endpoint.security_protocol.name}, which is "
                "not supported yet: use PLAINTEXT.",
                name="listeners",
            )
