"""The broker's part of AlterConfigs and IncrementalAlterConfigs, before the controller does the rest.

=================== =================================================================================================
BROKER_LOGGER       everything: levels of loggers are not stored
BROKER              validation: only this broker knows whether a setting suits it, such as the number of its threads
TOPIC and others    nothing: the controller validates and stores them
=================== =================================================================================================

A resource that is finished here, or has an error, is not sent to the controller. The response combines both parts in
the order of the request.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from barnabas.broker.config.broker_config_def import BROKER_CONFIG_DEF
from barnabas.broker.config.dynamic_broker_config import DynamicBrokerConfig
from barnabas.broker.config.runtime_loggers import RuntimeLoggerManager
from barnabas.common.config_def import Type, convert_to_string
from barnabas.common.errors import ApiError, Errors, InvalidConfigurationError, InvalidRequestError
from barnabas.common.log_safety import LimitedLogger
from barnabas.common.numerals import parse_integer
from barnabas.controller.configuration_control_manager import ConfigOperation
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.configs import ConfigResource, ConfigResourceType
from barnabas.protocol.messages import alter_configs, incremental_alter_configs

logger = LimitedLogger(logging.getLogger(__name__))


class ResourceResult(NamedTuple):
    """The result of one resource."""

    error: Errors
    message: str | None = None


DONE = ResourceResult(Errors.NONE)

Authorize: TypeAlias = Callable[[], bool]
"""Returns whether the request is authorized to alter the configuration of the cluster."""


class Resource(Protocol):
    """A resource in a request or a response."""

    resource_type: int
    resource_name: str


R = TypeVar("R", bound=Resource)


class ConfigAdminManager:
    """Preprocesses requests that alter configurations. Results are keyed by position in the request."""

    def __init__(self, node_id: int, cache: MetadataCache, dynamic: DynamicBrokerConfig) -> None:
        self._node_id = node_id
        self._cache = cache
        self._dynamic = dynamic
        self._loggers = RuntimeLoggerManager(node_id)

    def preprocess_incremental(
        self, request: incremental_alter_configs.IncrementalAlterConfigsRequest, authorize: Authorize
    ) -> dict[int, ResourceResult]:
        """Returns the results of resources that are finished; the controller does the others."""

        def process(resource: incremental_alter_configs.AlterConfigsResource) -> ResourceResult | None:
            _check_names([config.name for config in resource.configs])
            _check_values(
                config.name
                for config in resource.configs
                if config.value is None and config.config_operation != ConfigOperation.DELETE
            )
            match resource.resource_type:
                case ConfigResourceType.BROKER_LOGGER:
                    self._loggers.apply_changes(resource, authorized=authorize(), validate_only=request.validate_only)
                    return DONE
                case ConfigResourceType.BROKER:
                    self._check_node_id(resource.resource_name)
                    self._check_broker(resource.resource_name, self._altered(resource))
                case kind:
                    _check_kept_by_controller(kind)
            return None

        return _process_all(request.resources, process)

    def preprocess_legacy(self, request: alter_configs.AlterConfigsRequest) -> dict[int, ResourceResult]:
        """Does the same for the legacy request, which replaces all settings of a resource and has no loggers."""

        def process(resource: alter_configs.AlterConfigsResource) -> ResourceResult | None:
            _check_names([config.name for config in resource.configs])
            _check_values(config.name for config in resource.configs if config.value is None)
            if resource.resource_type == ConfigResourceType.BROKER:
                self._check_node_id(resource.resource_name)
                settings = {config.name: config.value for config in resource.configs if config.value is not None}
                self._check_broker(resource.resource_name, settings)
            else:
                _check_kept_by_controller(resource.resource_type)
            return None

        return _process_all(request.resources, process)

    def _altered(self, resource: incremental_alter_configs.AlterConfigsResource) -> dict[str, str]:
        """Returns the dynamic settings of a broker as they would be after the change."""
        settings = dict(self._cache.config(ConfigResource(ConfigResourceType.BROKER, resource.resource_name)))
        for config in resource.configs:
            value = config.value or ""
            match config.config_operation:
                case ConfigOperation.SET:
                    settings[config.name] = value
                case ConfigOperation.DELETE:
                    settings.pop(config.name, None)
                case ConfigOperation.APPEND | ConfigOperation.SUBTRACT as operation:
                    items = _list_items(config.name, settings)
                    changes = value.split(",")
                    if operation == ConfigOperation.APPEND:
                        items += [item for item in changes if item not in items]
                    else:
                        items = [item for item in items if item not in changes]
                    settings[config.name] = ",".join(items)
                case operation:
                    raise InvalidRequestError(f"Unknown operation {operation}.")
        return settings

    def _check_broker(self, name: str, settings: Mapping[str, str]) -> None:
        try:
            self._dynamic.validate(settings, per_broker=bool(name))
        except InvalidConfigurationError as error:
            # Kafka returns this instead of INVALID_CONFIG because clients rely on it (KAFKA-13609).
            raise InvalidRequestError(str(error)) from error

    def _check_node_id(self, name: str) -> None:
        if not name:  # the default of all brokers
            return
        try:
            node_id = parse_integer(name)
        except ValueError:
            raise InvalidRequestError(f"The name of a broker resource must be its ID: {name!r}") from None
        if node_id != self._node_id:
            raise InvalidRequestError(
                f"This is broker {self._node_id}: send the request for broker {name} to that broker."
            )


def _process_all(resources: Sequence[R], process: Callable[[R], ResourceResult | None]) -> dict[int, ResourceResult]:
    counts = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    results: dict[int, ResourceResult] = {}
    for index, resource in enumerate(resources):
        if counts[resource.resource_type, resource.resource_name] > 1:
            results[index] = ResourceResult(Errors.INVALID_REQUEST, "Each resource must appear at most once.")
            continue
        try:
            result = process(resource)
        except Exception as error:  # noqa: BLE001 - the result has the error, and the other resources are processed
            logger.info("Did not alter the configuration of %r: %s", resource.resource_name, error)
            code = Errors.for_exception(error)
            result = ResourceResult(code, str(error) if isinstance(error, ApiError) else code.message)
        if result is not None:
            results[index] = result
    return results


def _check_names(names: Sequence[str]) -> None:
    if len(set(names)) != len(names):
        repeated = sorted(name for name, count in Counter(names).items() if count > 1)
        raise InvalidRequestError(f"The request contains duplicate keys: {', '.join(repeated)}")


def _check_values(names_without: Iterable[str]) -> None:
    missing = list(names_without)
    if missing:
        raise InvalidRequestError(f"The request has no value for these keys: {', '.join(missing)}")


def _check_kept_by_controller(kind: int) -> None:
    if kind not in {ConfigResourceType.TOPIC, ConfigResourceType.CLIENT_METRICS, ConfigResourceType.GROUP}:
        raise InvalidRequestError(f"Unknown resource type {kind}.")


def _list_items(name: str, settings: Mapping[str, str]) -> list[str]:
    key = BROKER_CONFIG_DEF.keys.get(name)
    if key is None:
        raise InvalidConfigurationError(f"Unknown broker setting {name}.")
    if key.type is not Type.LIST:
        raise InvalidConfigurationError(f"{name} is not a list: APPEND and SUBTRACT are not possible, use SET.")
    text = settings[name] if name in settings else convert_to_string(key.default)
    return [item for item in (text or "").split(",") if item]


def reassembled(
    resources: Sequence[Resource], preprocessed: Mapping[int, ResourceResult], responses: Sequence[ResourceResponse]
) -> list[ResourceResult]:
    """Returns the results from here and from the controller, in the order of the request."""
    from_controller = {
        (response.resource_type, response.resource_name): ResourceResult(
            Errors.for_code(response.error_code), response.error_message
        )
        for response in responses
    }
    results = []
    for index, resource in enumerate(resources):
        result = preprocessed.get(index)
        if result is None:
            result = from_controller.get((resource.resource_type, resource.resource_name))
        if result is None:
            logger.error("The controller's response lacks the result of %r", resource.resource_name)
            result = ResourceResult(Errors.UNKNOWN_SERVER_ERROR, "The controller's response lacks this resource.")
        results.append(result)
    return results


class ResourceResponse(Resource, Protocol):
    """A resource in the controller's response."""

    error_code: int
    error_message: str | None
