"""Handles DescribeConfigs: the effective values of settings, and where they come from.

For a setting of a broker or a topic the response may list **synonyms**: all places that define it, in order of
precedence. ``retention.ms`` of a topic, with a value in every place::

    retention.ms=1          TOPIC_CONFIG                    the topic's own
    log.retention.ms=2      DYNAMIC_BROKER_CONFIG           of this broker
    log.retention.ms=3      DYNAMIC_DEFAULT_BROKER_CONFIG   of all brokers
    log.retention.ms=4      STATIC_BROKER_CONFIG            server.properties
    log.retention.hours=168 DEFAULT_CONFIG

Passwords are never returned. Neither are unknown settings, because they may be passwords of a plug-in.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from barnabas.broker.config import runtime_loggers
from barnabas.broker.config.absent_features import absent_feature
from barnabas.broker.config.broker_config_def import BROKER_CONFIG_DEF
from barnabas.broker.config.client_metrics_config import CLIENT_METRICS_CONFIG_DEF
from barnabas.broker.config.dynamic_broker_config import DynamicBrokerConfig
from barnabas.broker.config.dynamic_config_names import ALL_DYNAMIC_CONFIGS, THROTTLE_CONFIG_DEF
from barnabas.broker.config.group_config import GROUP_CONFIG_DEF, GROUP_CONFIG_SYNONYMS, group_defaults
from barnabas.broker.config.java_double import java_double
from barnabas.broker.config.listener_prefix import broker_config_synonyms
from barnabas.common.config_def import ConfigDef, ConfigKey, ConfigValues, Type, convert_to_string
from barnabas.common.errors import (
    ApiError,
    Errors,
    InvalidRequestError,
    UnknownTopicOrPartitionError,
)
from barnabas.common.log_safety import LimitedLogger
from barnabas.common.numerals import parse_integer
from barnabas.common.topic_names import validate_topic_name
from barnabas.log.config.log_config_def import LOG_CONFIG_DEF
from barnabas.log.config.server_log_config import server_synonym
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.configs import ConfigResource, ConfigResourceType, ConfigSource, Settings
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

logger = LimitedLogger(logging.getLogger(__name__))

Entry: TypeAlias = DescribeConfigsResourceResult


_UNKNOWN_TYPE = 0


class ConfigHelper:
    """Describes the configuration of every resource type."""

    def __init__(self, node_id: int, cache: MetadataCache, dynamic: DynamicBrokerConfig) -> None:
        self._node_id = node_id
        self._cache = cache
        self._dynamic = dynamic

    def describe(
        self,
        resources: Iterable[DescribeConfigsResource],
        *,
        include_synonyms: bool,
        include_documentation: bool,
    ) -> list[DescribeConfigsResult]:
        """Returns one result per resource, in their order. A resource that cannot be described has an error."""
        return [self._describe(resource, include_synonyms, include_documentation) for resource in resources]

    def _describe(
        self, resource: DescribeConfigsResource, include_synonyms: bool, include_documentation: bool
    ) -> DescribeConfigsResult:
        try:
            entries = self._entries(resource.resource_type, resource.resource_name, _wanted(resource))
        except Exception as error:
            if not isinstance(error, ApiError):
                logger.exception("Cannot describe the configuration of %r", resource.resource_name)
            code = Errors.for_exception(error)
            return DescribeConfigsResult(
                error_code=code,
                error_message=str(error) if isinstance(error, ApiError) else code.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        for entry in entries:
            if not include_synonyms:
                entry.synonyms = []
            if not include_documentation:
                entry.documentation = None
        return DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name, configs=entries
        )

    def _entries(self, kind: int, name: str, wanted: Callable[[str], bool]) -> list[Entry]:
        match kind:
            case ConfigResourceType.TOPIC:
                return self._topic_entries(name, wanted)
            case ConfigResourceType.BROKER:
                return self._broker_entries(name, wanted)
            case ConfigResourceType.BROKER_LOGGER:
                return self._logger_entries(name, wanted)
            case ConfigResourceType.CLIENT_METRICS:
                return self._client_metrics_entries(name, wanted)
            case ConfigResourceType.GROUP:
                return self._group_entries(name, wanted)
            case _:
                raise InvalidRequestError(f"Resources of type {kind} have no configuration.")

    # -- topics

    def _topic_entries(self, topic: str, wanted: Callable[[str], bool]) -> list[Entry]:
        validate_topic_name(topic)
        if not self._cache.contains(topic):
            raise UnknownTopicOrPartitionError(f"Topic {topic} does not exist.")
        own = self._cache.topic_config(topic)
        values = LOG_CONFIG_DEF.parse({**self._dynamic.current.topic_defaults, **own})
        entries = []
        for name, value in _all_configs(values, LOG_CONFIG_DEF, own):
            if not wanted(name):
                continue
            key = LOG_CONFIG_DEF.keys.get(name)
            text = _shown(value, key)
            twin = server_synonym(name)
            synonyms = [] if twin is None else self._synonyms(twin, sensitive=_is_sensitive(key))
            if name in own:
                synonyms.insert(0, _synonym(name, text, ConfigSource.TOPIC_CONFIG))
            entries.append(_entry(name, text, key, synonyms))
        return entries

    # -- brokers

    def _broker_entries(self, name: str, wanted: Callable[[str], bool]) -> list[Entry]:
        if not name:
            configs: Iterable[tuple[str, Any]] = self._dynamic.current_dynamic_default_configs.items()
        else:
            self._check_broker_id(name)
            config = self._dynamic.current
            # A listener's setting has no definition of its own. Settings without effect are not described,
            shown = dict(_all_configs(config.values, BROKER_CONFIG_DEF, config.values.originals))
            # except those of features that are still missing: a user has set them and may want to remove them.
            for dynamic in (
                self._dynamic.current_dynamic_default_configs,
                self._dynamic.current_dynamic_broker_configs,
            ):
                shown |= {setting: value for setting, value in dynamic.items() if absent_feature(setting) is not None}
            configs = sorted(shown.items())
        return [self._broker_entry(key, value, is_default=not name) for key, value in configs if wanted(key)]

    def _broker_entry(self, name: str, value: object, *, is_default: bool) -> Entry:
        key = _broker_key(name)
        text = None if _is_sensitive(key) else value if isinstance(value, str) else _shown(value, key)
        synonyms = self._synonyms(name, sensitive=_is_sensitive(key))
        if is_default:
            synonyms = [synonym for synonym in synonyms if synonym.source == ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG]
        return _entry(name, text, key, synonyms, read_only=name not in ALL_DYNAMIC_CONFIGS)

    def _synonyms(self, name: str, *, sensitive: bool) -> list[DescribeConfigsSynonym]:
        """Returns all places that define a broker's setting, in order of precedence."""
        names = broker_config_synonyms(name, match_listener=True)
        places: tuple[tuple[Mapping[str, str], ConfigSource], ...] = (
            (self._dynamic.current_dynamic_broker_configs, ConfigSource.DYNAMIC_BROKER_CONFIG),
            (self._dynamic.current_dynamic_default_configs, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (self._dynamic.static_broker_configs, ConfigSource.STATIC_BROKER_CONFIG),
            (self._dynamic.static_default_configs, ConfigSource.DEFAULT_CONFIG),
        )
        found = [
            _synonym(synonym, None if sensitive else values[synonym], source)
            for values, source in places
            for synonym in names
            if synonym in values
        ]
        # As in Kafka: a synonym that takes precedence under another name is not listed.
        first = next((index for index, synonym in enumerate(found) if synonym.name == name), len(found))
        return found[first:]

    def _check_broker_id(self, name: str) -> None:
        try:
            broker_id = parse_integer(name)
        except ValueError:
            raise InvalidRequestError(f"The name of a broker resource must be its ID: {name!r}") from None
        if broker_id != self._node_id:
            raise InvalidRequestError(
                f"This is broker {self._node_id}: send the request for broker {name} to that broker."
            )

    # -- loggers

    def _logger_entries(self, name: str, wanted: Callable[[str], bool]) -> list[Entry]:
        if not name:
            raise InvalidRequestError("A BROKER_LOGGER resource must be named by the ID of its broker.")
        self._check_broker_id(name)
        return [
            Entry(
                name=logger_name,
                value=level,
                config_source=ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
                config_type=_UNKNOWN_TYPE,
                documentation=None,
            )
            for logger_name, level in runtime_loggers.loggers().items()
            if wanted(logger_name)
        ]

    # -- subscriptions and groups

    def _client_metrics_entries(self, name: str, wanted: Callable[[str], bool]) -> list[Entry]:
        if not name:
            raise InvalidRequestError("A metrics subscription must have a name.")
        own = self._cache.config(ConfigResource(ConfigResourceType.CLIENT_METRICS, name))
        values = CLIENT_METRICS_CONFIG_DEF.parse(own)
        entries = []
        for setting, value in _all_configs(values, CLIENT_METRICS_CONFIG_DEF, own):
            if wanted(setting):
                key = CLIENT_METRICS_CONFIG_DEF.keys.get(setting)
                text = convert_to_string(value)
                synonyms = [_synonym(setting, text, ConfigSource.CLIENT_METRICS_CONFIG)] if setting in own else []
                entries.append(_entry(setting, text, key, synonyms, is_sensitive=False))
        return entries

    def _group_entries(self, group: str, wanted: Callable[[str], bool]) -> list[Entry]:
        if not group:
            raise InvalidRequestError("A group must have an ID.")
        own = self._cache.config(ConfigResource(ConfigResourceType.GROUP, group))
        values = GROUP_CONFIG_DEF.parse({**group_defaults(self._dynamic.current.values), **own})
        entries = []
        for name, value in _all_configs(values, GROUP_CONFIG_DEF, own):
            if not wanted(name):
                continue
            key = GROUP_CONFIG_DEF.keys.get(name)
            text = _shown(value, key)
            twin = GROUP_CONFIG_SYNONYMS.get(name)
            if twin is not None:
                synonyms = self._synonyms(twin, sensitive=_is_sensitive(key))
            elif key is not None:
                synonyms = [_synonym(name, _shown(key.default, key), ConfigSource.DEFAULT_CONFIG)]
            else:
                synonyms = []
            if name in own:
                synonyms.insert(0, _synonym(name, text, ConfigSource.GROUP_CONFIG))
            entries.append(_entry(name, text, key, synonyms))
        return entries


def _wanted(resource: DescribeConfigsResource) -> Callable[[str], bool]:
    """Returns a predicate for the requested keys; a request without keys wants all."""
    if not resource.configuration_keys:
        return lambda _name: True
    return frozenset(resource.configuration_keys).__contains__


def _all_configs(
    values: ConfigValues, definition: ConfigDef, given: Settings | Mapping[str, Any]
) -> list[tuple[str, Any]]:
    """Returns all settings that are defined and not internal, and all that were given; sorted by name."""
    found = {name: value for name, value in values.items() if name in given or not definition.keys[name].internal}
    for name, text in given.items():
        found.setdefault(name, text)
    return sorted(found.items())


def _broker_key(name: str) -> ConfigKey | None:
    """Returns the definition of a broker's setting, also if its name has the prefix of a listener."""
    for candidate in (name, *broker_config_synonyms(name, match_listener=True)):
        key = BROKER_CONFIG_DEF.keys.get(candidate) or THROTTLE_CONFIG_DEF.keys.get(candidate)
        if key is not None:
            return key
    return None


def _is_sensitive(key: ConfigKey | None) -> bool:
    return key is None or key.type.is_sensitive


def _shown(value: object, key: ConfigKey | None) -> str | None:
    if key is None or key.type.is_sensitive:
        return None
    return java_double(value) if isinstance(value, float) else convert_to_string(value, key.type)


def _synonym(name: str, value: str | None, source: ConfigSource) -> DescribeConfigsSynonym:
    return DescribeConfigsSynonym(name=name, value=value, source=source)


def _entry(
    name: str,
    value: str | None,
    key: ConfigKey | None,
    synonyms: Sequence[DescribeConfigsSynonym],
    *,
    read_only: bool = False,
    is_sensitive: bool | None = None,
) -> Entry:
    return Entry(
        name=name,
        value=value,
        read_only=read_only,
        config_source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        is_sensitive=_is_sensitive(key) if is_sensitive is None else is_sensitive,
        synonyms=list(synonyms),
        config_type=_UNKNOWN_TYPE if key is None else _TYPES[key.type],
        documentation=None if key is None else key.documentation,
    )


_TYPES = {kind: kind.value for kind in Type}
