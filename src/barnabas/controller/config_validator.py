"""Validates the configs of a resource."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from barnabas.common.errors import InvalidRequestError
from barnabas.common.numerals import parse_integer
from barnabas.common.topic_names import validate_topic_name
from barnabas.metadata.configs import ConfigResource, ConfigResourceType

Settings = Mapping[str, str]


class ConfigurationValidator(Protocol):
    """The fixed rules; the operator's policy applies in addition."""

    def validate_resource(self, resource: ConfigResource) -> None:
        """Raises if the resource is invalid."""
        ...

    def validate(self, resource: ConfigResource, settings: Settings, existing: Settings) -> None:
        """Raises if the resource cannot have exactly these settings in place of the existing ones."""
        ...


class ControllerConfigurationValidator:
    """Checks names. The owners of the configs check values: the log for topics, the coordinator for groups.

    Broker loggers are not configured through the controller: the broker changes them itself, and nothing is stored.
    """

    def __init__(
        self,
        topic: Callable[[Settings, Settings], None] | None = None,
        client_metrics: Callable[[str, Settings], None] | None = None,
        group: Callable[[str, Settings], None] | None = None,
    ) -> None:
        self._topic = topic
        self._client_metrics = client_metrics
        self._group = group

    def validate_resource(self, resource: ConfigResource) -> None:
        name = resource.name
        match resource.type:
            case ConfigResourceType.TOPIC:
                if not name:
                    raise InvalidRequestError("Topics have no default configuration: name a topic.")
                validate_topic_name(name)
            case ConfigResourceType.BROKER:
                if name:
                    _check_broker_id(name)
            case ConfigResourceType.GROUP:
                if not name:
                    raise InvalidRequestError("Groups have no default configuration: name a group.")
            case ConfigResourceType.CLIENT_METRICS:
                if not name:
                    raise InvalidRequestError("A metrics subscription must have a name.")
            case _:
                raise InvalidRequestError(f"Resources of type {resource.type} have no configuration in the controller.")

    def validate(self, resource: ConfigResource, settings: Settings, existing: Settings) -> None:
        self.validate_resource(resource)
        match resource.type:
            case ConfigResourceType.TOPIC if self._topic is not None:
                self._topic(settings, existing)
            case ConfigResourceType.CLIENT_METRICS if self._client_metrics is not None:
                self._client_metrics(resource.name, settings)
            case ConfigResourceType.GROUP if self._group is not None:
                self._group(resource.name, settings)


def _check_broker_id(name: str) -> None:
    try:
        broker_id = parse_integer(name)
    except ValueError as error:
        raise InvalidRequestError(f"The name of a broker resource must be its ID: {error}.") from None
    if broker_id < 0:
        raise InvalidRequestError(f"A broker ID must not be negative: {broker_id}")
