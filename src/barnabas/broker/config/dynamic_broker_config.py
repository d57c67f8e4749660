"""Changes the settings of a broker while it runs (KIP-226).

The value of a setting is the first of

1. the dynamic value of this broker,
2. the dynamic value of all brokers,
3. the value in ``server.properties``,
4. the default.

1 and 2 are in the metadata log, so they survive a restart. Each change builds a new `KafkaConfig` from all four, and
calls each `Reconfigurable` that is registered for a changed setting. They are also asked in advance: the broker that
receives a change builds the configuration as it would be, and rejects an impossible one::

    kafka-configs --alter --entity-type brokers --entity-name 1 --add-config num.io.threads=100
        num.io.threads=100 is rejected: one step may at most halve or double the current value of 8.

A setting with several names (``log.roll.ms``, ``log.roll.hours``) needs care: a dynamic value under one name must hide
a static value under another, even one with higher precedence.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import Final, NamedTuple, Protocol

from barnabas.broker.config.absent_features import absent_feature, turned_on_feature
from barnabas.broker.config.broker_config_def import BROKER_CONFIG_DEF
from barnabas.broker.config.dynamic_config_names import (
    NON_DYNAMIC_CONFIGS,
    SECURITY_CONFIGS,
    check_type,
    per_broker_names,
    validate_dynamic_configs,
)
from barnabas.broker.config.kafka_config import KafkaConfig, as_texts
from barnabas.broker.config.listener_prefix import base_name, broker_config_synonyms, without_mechanism
from barnabas.common.config_def import ConfigError
from barnabas.common.errors import InvalidConfigurationError
from barnabas.metadata.configs import Settings

logger = logging.getLogger(__name__)

ANY_LISTENER_SETTING: Final = "listener.name."
"""Stands for every setting with a listener's prefix, also for those that are not dynamic without it."""


class Reconfigurable(Protocol):
    """A part of the broker that supports changes of its configuration.

    One with an attribute ``reads_files`` that is true is also reconfigured when the same settings are set again.
    """

    @property
    def reconfigurable_configs(self) -> Collection[str]:
        """The settings that it depends on. A setting with a listener's prefix counts as the setting itself, and as
        `ANY_LISTENER_SETTING`."""
        ...

    def validate_reconfiguration(self, current: KafkaConfig, new: KafkaConfig) -> None:
        """Raises `ConfigError` if this change is not possible. It must not change anything yet."""
        ...

    def reconfigure(self, old: KafkaConfig, new: KafkaConfig) -> None:
        """Applies the change."""
        ...


class _State(NamedTuple):
    broker: Mapping[str, str]
    default: Mapping[str, str]
    current: KafkaConfig


class DynamicBrokerConfig:
    """The current configuration and its sources.

    Changes come from the metadata, on the loader's thread; reads come from any thread. All state is one reference to
    an immutable object, so reads need no lock and are consistent.
    """

    def __init__(self, config: KafkaConfig) -> None:
        self.static_broker_configs: Mapping[str, str] = config.properties
        """The contents of the properties file."""
        self._originals: Mapping[str, str] = config.originals
        """The same with variables: they are resolved together with those of dynamic settings, once."""
        self._state = _State({}, {}, config)
        self._update_lock = threading.Lock()
        """Serializes changes, including the calls of reconfigurables, so these must not wait for another thread that
        changes settings. Guards writes to the fields below and to ``_state``."""
        self._reconfigurables: tuple[Reconfigurable, ...] = ()

    # -- current values

    @cached_property
    def static_default_configs(self) -> Mapping[str, str]:
        """Returns the default of every setting."""
        return as_texts(BROKER_CONFIG_DEF.default_values())

    @property
    def current(self) -> KafkaConfig:
        return self._state.current

    @property
    def current_dynamic_broker_configs(self) -> Mapping[str, str]:
        return self._state.broker

    @property
    def current_dynamic_default_configs(self) -> Mapping[str, str]:
        return self._state.default

    # -- reconfigurables

    def add_reconfigurable(self, reconfigurable: Reconfigurable) -> None:
        fixed = sorted(NON_DYNAMIC_CONFIGS.intersection(reconfigurable.reconfigurable_configs))
        if fixed:
            raise ValueError(f"{reconfigurable} depends on settings that are not dynamic: {', '.join(fixed)}")
        with self._update_lock:
            self._reconfigurables += (reconfigurable,)

    # -- validation

    def validate(self, properties: Mapping[str, str], *, per_broker: bool) -> None:
        """Raises `ConfigError` if these cannot be all dynamic settings of this broker, or of all brokers."""
        validate_dynamic_configs(properties, per_broker=per_broker)
        state = self._state
        merged = dict(self._originals)
        for overrides in (state.default, properties) if per_broker else (properties, state.broker):
            override_properties(merged, overrides)
        new = KafkaConfig.from_properties(merged, warn=False)
        for reconfigurable in self._concerned(state.current, new):
            reconfigurable.validate_reconfiguration(state.current, new)

    # -- updates

    def update_configs(self, *, broker: Settings | None = None, default: Settings | None = None) -> None:
        """Replaces all dynamic settings of this broker, of all brokers, or both.

        If both have changed they must be applied together; otherwise a mixture that nobody has set would be in force.
        """
        with self._update_lock:
            state = self._state
            if broker is not None:
                state = state._replace(broker=_heeded(broker, per_broker=True))
            if default is not None:
                state = state._replace(default=_heeded(default, per_broker=False))
            self._update(state)

    def update_broker_config(self, properties: Settings) -> None:
        """Replaces all dynamic settings of this broker."""
        self.update_configs(broker=properties)

    def update_default_config(self, properties: Settings) -> None:
        """Replaces all dynamic settings of all brokers."""
        self.update_configs(default=properties)

    def _update(self, state: _State) -> None:
        merged = dict(self._originals)
        override_properties(merged, state.default)
        override_properties(merged, state.broker)
        old = state.current
        try:
            new = KafkaConfig.from_properties(merged, warn=False)
            concerned = self._concerned(old, new)
            for reconfigurable in concerned:
                reconfigurable.validate_reconfiguration(old, new)
        except InvalidConfigurationError as error:
            # The settings are in the metadata log, so DescribeConfigs shows them, but they cannot be applied.
            self._state = state
            logger.error("Keeping the current settings, because the new ones are invalid: %s", error)
            return
        if changed_names(old, new):
            self._state = state._replace(current=new)
        else:
            self._state = state
            # The same settings again: a file that one of them names may have new contents.
            concerned = [one for one in self._reconfigurables if getattr(one, "reads_files", False)]
        for reconfigurable in concerned:
            try:
                reconfigurable.reconfigure(old, new)
            except Exception:
                logger.exception("%r could not be reconfigured", reconfigurable)

    def _concerned(self, old: KafkaConfig, new: KafkaConfig) -> list[Reconfigurable]:
        changed = changed_names(old, new)
        return [
            reconfigurable
            for reconfigurable in self._reconfigurables
            if not changed.isdisjoint(reconfigurable.reconfigurable_configs)
        ]


def override_properties(properties: dict[str, str], overrides: Mapping[str, str]) -> None:
    """Overrides settings. A setting also hides those with the same meaning under another name."""
    for name, value in overrides.items():
        for synonym in broker_config_synonyms(name, match_listener=False):
            properties.pop(synonym, None)
        properties[name] = value


def changed_names(old: KafkaConfig, new: KafkaConfig) -> set[str]:
    """Returns the names that differ; a listener's setting also without its prefix, and as `ANY_LISTENER_SETTING`."""
    before, after = old.properties, new.properties
    names = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    listeners = {ANY_LISTENER_SETTING for name in names if name.startswith(ANY_LISTENER_SETTING)}
    return names | {without_mechanism(base_name(name)) for name in names} | listeners


def _heeded(properties: Settings, *, per_broker: bool) -> dict[str, str]:
    """Returns the settings in the metadata that can be applied; another version may have written the others."""
    heeded = dict(properties)
    for name, value in properties.items():
        problem = None
        try:
            check_type(name, value)
        except ConfigError as error:
            problem = str(error)
        if name in NON_DYNAMIC_CONFIGS:
            problem = "it cannot be set dynamically"
        elif name in SECURITY_CONFIGS:
            problem = "it needs the prefix of a listener"
        elif not per_broker and per_broker_names((name,)):
            problem = "it cannot be set for all brokers"
        elif (feature := turned_on_feature(name, value)) is not None:
            problem = f"this broker does not support {feature} yet"
        elif (feature := absent_feature(name)) is not None:
            logger.warning(
                "The dynamic setting %s has no effect: this broker does not support %s yet.",
                name,
                feature,
            )
        if problem is not None:
            del heeded[name]
            logger.warning("Ignoring the dynamic setting %s: %s", name, problem)
    return heeded


class FunctionReconfigurable:
    """Calls a function when one of some settings has changed."""

    def __init__(
        self,
        configs: Collection[str],
        reconfigure: Callable[[KafkaConfig, KafkaConfig], object],
        validate: Callable[[KafkaConfig, KafkaConfig], object] | None = None,
    ) -> None:
        self.reconfigurable_configs = frozenset(configs)
        self.reads_files = False
        self._reconfigure = reconfigure
        self._validate = validate

    def validate_reconfiguration(self, current: KafkaConfig, new: KafkaConfig) -> None:
        if self._validate is not None:
            self._validate(current, new)

    def reconfigure(self, old: KafkaConfig, new: KafkaConfig) -> None:
        self._reconfigure(old, new)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(sorted(self.reconfigurable_configs))})"
