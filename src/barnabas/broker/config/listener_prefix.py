"""Settings of one listener: ``listener.name.<listener>.<setting>`` takes precedence over ``<setting>``."""

from __future__ import annotations

import re
from typing import Final

_PREFIXED: Final = re.compile(r"listener\.name\.([^.]*)\.(.*)")
_OF_MECHANISM: Final = re.compile(r"[^.]+\.(sasl\..+|connections\.max\.reauth\.ms)")
"""A mechanism has no dot in its name, and no SASL setting has ``sasl`` as its second part."""

MECHANISM_CONFIGS: Final = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)
"""Settings that DescribeConfigs names as synonyms of ``listener.name.<listener>.<mechanism>.<setting>``."""


def split_listener(name: str) -> tuple[str, str] | None:
    """Splits the name of a listener's setting into listener and setting; returns None for other names.

    >>> split_listener("listener.name.internal.max.connections")
    ('INTERNAL', 'max.connections')
    """
    match = _PREFIXED.fullmatch(name)
    return None if match is None else (match[1].upper(), match[2])


def without_mechanism(setting: str) -> str:
    """Returns a listener's setting without the SASL mechanism in front, if it has one.

    >>> without_mechanism("scram-sha-256.sasl.jaas.config"), without_mechanism("max.connections")
    ('sasl.jaas.config', 'max.connections')
    >>> without_mechanism("oauthbearer.sasl.oauthbearer.expected.issuer")
    'sasl.oauthbearer.expected.issuer'
    """
    match = _OF_MECHANISM.fullmatch(setting)
    return setting if match is None else match[1]


def base_name(name: str) -> str:
    """Returns the name without a listener's prefix."""
    match = _PREFIXED.fullmatch(name)
    return name if match is None else match[2]


def broker_config_synonyms(name: str, *, match_listener: bool) -> tuple[str, ...]:
    """Returns the names that can define the value of a setting, in order of precedence."""
    for family in _FAMILIES:
        if name in family:
            return family
    if name == "log.flush.interval.ms":
        return (name, "log.flush.scheduler.interval.ms")
    prefixed = _PREFIXED.fullmatch(name) if match_listener else None
    if prefixed is None:
        return (name,)
    base = prefixed[2]
    return (name, next((config for config in MECHANISM_CONFIGS if base.endswith(config)), base))


_FAMILIES: Final = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
"""Settings with one name per unit."""
