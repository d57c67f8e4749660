"""Changing the settings of a broker while it runs (KIP-226).

The value of a setting is the first found of

1. what was set dynamically for this broker,
2. what was set dynamically for all brokers,
3. what ``server.properties`` says,
4. the default.

1 and 2 are in the metadata log, and come back after a restart. Each change makes a new `KafkaConfig` out of all four;
then those who registered as `Reconfigurable` for a setting that changed are told of it. They are asked before, too:
when somebody proposes a change, the broker that gets the request builds the configuration as it would be, and refuses
what cannot be::

    kafka-configs --alter --entity-type brokers --entity-name 1 --add-config num.io.threads=100
        num.io.threads=100 is refused: one step may at most halve or double it, and there are 8.

A setting with several names (``log.roll.ms``, ``log.roll.hours``) needs care: a dynamic value under one of them must
hide a static one under another, even one that counts more.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import Protocol

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
from barnabas.broker.config.listener_prefix import base_name, broker_config_synonyms
from barnabas.common.config_def import ConfigError
from barnabas.common.errors import InvalidConfigurationError
from barnabas.common.named_tuple import NamedTuple
from barnabas.metadata.configs import Settings

logger = logging.getLogger(__name__)


class Reconfigurable(Protocol):
    """A part of the broker that can do with another configuration."""

    @property
    def reconfigurable_configs(self) -> Collection[str]:
        """The settings that it wants to hear of. One for a listener counts as the setting itself."""
        ...

    def validate_reconfiguration(self, current: KafkaConfig, new: KafkaConfig) -> None:
        """Raises `ConfigError` if this step is not possible. Nothing is to be changed yet, and perhaps never."""
        ...

    def reconfigure(self, old: KafkaConfig, new: KafkaConfig) -> None:
        """Changes what there is to change."""
        ...


class _State(NamedTuple):
    broker: Mapping[str, str]
    default: Mapping[str, str]
    current: KafkaConfig


class DynamicBrokerConfig:
    """The configuration in force, and where it comes from.

    Changes come from the metadata, on the loader's thread; questions from anywhere. All state is one reference to
    something that does not change, so that questions need no lock and get answers that fit together.
    """

    def __init__(self, config: KafkaConfig) -> None:
        self.static_broker_configs: Mapping[str, str] = config.properties
        """What the properties file says."""
        self._state = _State({}, {}, config)
        self._update_lock = threading.Lock()
        """One change after the other, with all that follows from it: held while reconfigurables do their work, so they
        must not wait for anybody who changes settings. Guards writes to the fields below and to ``_state``."""
        self._reconfigurables: tuple[Reconfigurable, ...] = ()

    # -- what is in force

    @cached_property
    def static_default_configs(self) -> Mapping[str, str]:
        """What every setting is if nobody says anything."""
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

    # -- who wants to know

    def add_reconfigurable(self, reconfigurable: Reconfigurable) -> None:
        fixed = sorted(NON_DYNAMIC_CONFIGS.intersection(reconfigurable.reconfigurable_configs))
        if fixed:
            raise ValueError(f"{reconfigurable} wants to hear of settings that never change: {', '.join(fixed)}")
        with self._update_lock:
            self._reconfigurables += (reconfigurable,)

    def remove_reconfigurable(self, reconfigurable: Reconfigurable) -> None:
        with self._update_lock:
            self._reconfigurables = tuple(other for other in self._reconfigurables if other is not reconfigurable)

    # -- what may become of it

    def validate(self, properties: Mapping[str, str], *, per_broker: bool) -> None:
        """Whether these could be all of the dynamic settings, of this broker or of all; `ConfigError` if not."""
        validate_dynamic_configs(properties, per_broker=per_broker)
        state = self._state
        merged = dict(self.static_broker_configs)
        for overrides in (state.default, properties) if per_broker else (properties, state.broker):
            override_properties(merged, overrides)
        new = KafkaConfig.from_properties(merged, warn=False)
        for reconfigurable in self._concerned(state.current, new):
            reconfigurable.validate_reconfiguration(state.current, new)

    # -- what becomes of it

    def update_configs(self, *, broker: Settings | None = None, default: Settings | None = None) -> None:
        """The dynamic settings of this broker, of all, or both, are these now, and no others.

        Both at once where both have changed, or values would be in force in between that nobody has asked for.
        """
        with self._update_lock:
            state = self._state
            if broker is not None:
                state = state._replace(broker=_heeded(broker, per_broker=True))
            if default is not None:
                state = state._replace(default=_heeded(default, per_broker=False))
            self._update(state)

    def update_broker_config(self, properties: Settings) -> None:
        """The dynamic settings of this broker are these now, and no others."""
        self.update_configs(broker=properties)

    def update_default_config(self, properties: Settings) -> None:
        """The dynamic settings of all brokers are these now, and no others."""
        self.update_configs(default=properties)

    def _update(self, state: _State) -> None:
        merged = dict(self.static_broker_configs)
        override_properties(merged, state.default)
        override_properties(merged, state.broker)
        old = state.current
        try:
            new = KafkaConfig.from_properties(merged, warn=False)
            concerned = self._concerned(old, new)
            for reconfigurable in concerned:
                reconfigurable.validate_reconfiguration(old, new)
        except InvalidConfigurationError as error:
            # The settings are in the log, so they are what others see; but nothing can be done about them here.
            self._state = state
            logger.error("The broker goes on with its settings as they were: %s", error)
            return
        if not changed_names(old, new):
            self._state = state
            return
        self._state = state._replace(current=new)
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
    """Puts settings over others. A setting also hides those that mean the same under another name."""
    for name, value in overrides.items():
        for synonym in broker_config_synonyms(name, match_listener=False):
            properties.pop(synonym, None)
        properties[name] = value


def changed_names(old: KafkaConfig, new: KafkaConfig) -> set[str]:
    """The settings that differ; one of a listener is in there under its own and under the setting's name."""
    before, after = old.properties, new.properties
    names = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    return names | set(map(base_name, names))


def _heeded(properties: Settings, *, per_broker: bool) -> dict[str, str]:
    """What of the settings in the metadata can be used: another version may have written them."""
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
            problem = f"it is about {feature}, which this broker does not have yet"
        elif (feature := absent_feature(name)) is not None:
            logger.warning(
                "The dynamic setting %s has no effect: it is about %s, which this broker does not have yet.",
                name,
                feature,
            )
        if problem is not None:
            del heeded[name]
            logger.warning("The dynamic setting %s is left out: %s", name, problem)
    return heeded


class FunctionReconfigurable:
    """Calls a function when some settings have changed."""

    def __init__(
        self,
        configs: Collection[str],
        reconfigure: Callable[[KafkaConfig, KafkaConfig], object],
        validate: Callable[[KafkaConfig, KafkaConfig], object] | None = None,
    ) -> None:
        self.reconfigurable_configs = frozenset(configs)
        self._reconfigure = reconfigure
        self._validate = validate

    def validate_reconfiguration(self, current: KafkaConfig, new: KafkaConfig) -> None:
        if self._validate is not None:
            self._validate(current, new)

    def reconfigure(self, old: KafkaConfig, new: KafkaConfig) -> None:
        self._reconfigure(old, new)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(sorted(self.reconfigurable_configs))})"
