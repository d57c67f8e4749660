"""Handles settings of features that this broker does not have yet.

Configuration files for Apache Kafka are full of them. Failing on each would make such files unusable here, and ignoring
them silently would let a user believe that, say, a tier of storage is in use. So a setting that only tunes a missing
feature is ignored with a warning, and a setting that enables the feature is an error. The same holds for dynamic
settings: one that tunes a feature is stored and described, but has no effect until the feature exists.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, NamedTuple

from barnabas.broker.config.listener_prefix import base_name, without_mechanism
from barnabas.common.config_def import ConfigError

logger = logging.getLogger(__name__)


class AbsentFeature(NamedTuple):
    """A feature, and the prefixes of its settings."""

    name: str
    prefixes: tuple[str, ...]


ABSENT_FEATURES: Final = (
    AbsentFeature(
        "Java's security providers",
        (
            "security.providers",
            "ssl.provider",
            "ssl.engine.factory.class",
            "ssl.keymanager.algorithm",
            "ssl.trustmanager.algorithm",
            "ssl.secure.random.implementation",
        ),
    ),
    AbsentFeature(
        "renewal of Kerberos tickets by kinit",
        ("sasl.kerberos.kinit.cmd", "sasl.kerberos.ticket.renew.", "sasl.kerberos.min.time.before.relogin"),
    ),
    AbsentFeature(
        "Java's login classes",
        ("sasl.login.class", "sasl.login.callback.handler.class", "sasl.client.callback.handler.class"),
    ),
    AbsentFeature("principal builders of Java", ("principal.builder.class",)),
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
}
"""Values that describe the actual behaviour, so no warning is needed."""
_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer."
_BUILT_IN: Final = frozenset(
    {f"{_OAUTH}OAuthBearerValidatorCallbackHandler", f"{_OAUTH}secured.OAuthBearerValidatorCallbackHandler"}
)
"""Classes of Java in ``sasl.server.callback.handler.class`` whose work is done here without them."""


def absent_feature(name: str) -> str | None:
    """Returns the missing feature that a setting belongs to, or None."""
    base = without_mechanism(base_name(name))
    return next((feature.name for feature in ABSENT_FEATURES if base.startswith(feature.prefixes)), None)


def turned_on_feature(name: str, value: str) -> str | None:
    """Returns the missing feature that this dynamic setting would enable, or None.

    Remote storage is enabled in the file, by a read-only setting; its dynamic settings only tune it. Naming a metrics
    reporter enables it.
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
        if value.strip() in _BUILT_IN:
            continue
        feature = absent_feature(name)
        if feature is None:
            kept[name] = value
        elif warn and value.strip() not in _HARMLESS.get(base_name(name), ()):
            logger.warning("%s has no effect: this broker does not support %s yet.", name, feature)
    return kept
