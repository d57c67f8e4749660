"""The configurations part of an image: dynamic settings of topics, brokers and other resources."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from barnabas.common.dataclass import dataclass, field
from barnabas.metadata.map_delta import NestedMapDelta
from barnabas.metadata.persistent_map import PersistentMap
from barnabas.protocol.internal.metadata import ConfigRecord

if TYPE_CHECKING:
    from barnabas.metadata.writer import ImageWriter, ImageWriterOptions


class ConfigResourceType(IntEnum):
    """The types of resources with a configuration, with the codes of DescribeConfigs."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """The source of a value, with the codes of DescribeConfigs."""

    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class ConfigResource(NamedTuple):
    """A resource with a configuration. A broker is named by its ID; the empty name is the default of all brokers.

    >>> ConfigResource(ConfigResourceType.TOPIC, "orders") == ConfigResource(2, "orders")
    True
    """

    type: int
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        return cls(ConfigResourceType.TOPIC, name)

    @classmethod
    def broker(cls, broker_id: int | None = None) -> ConfigResource:
        """Returns a broker resource; without an ID the default of all brokers."""
        return cls(ConfigResourceType.BROKER, "" if broker_id is None else str(broker_id))


Settings = Mapping[str, str]
"""The settings of one resource. Must not be modified."""

_NO_SETTINGS: Settings = {}


@dataclass(frozen=True, slots=True)
class ConfigurationsImage:
    """Settings by resource; a resource without settings is not included."""

    resources: PersistentMap[ConfigResource, Settings] = field(default_factory=PersistentMap)

    def __bool__(self) -> bool:
        return bool(self.resources)

    def of(self, resource: ConfigResource) -> Settings:
        """Returns the settings of this resource itself, without defaults."""
        return self.resources.get(resource, _NO_SETTINGS)

    def write(self, writer: ImageWriter, _options: ImageWriterOptions) -> None:
        for resource, settings in sorted(self.resources.items(), key=lambda item: item[0]):
            for name, value in sorted(settings.items()):
                writer.write(
                    ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value)
                )

    def __repr__(self) -> str:
        """Leaves out values, because some of them are passwords."""
        return f"ConfigurationsImage({ {resource: sorted(settings) for resource, settings in self.resources.items()} })"


class ConfigurationsDelta:
    """Changed settings."""

    def __init__(self, image: ConfigurationsImage) -> None:
        self.image = image
        self._resources = NestedMapDelta(image.resources)

    @classmethod
    def of_everything(cls, image: ConfigurationsImage) -> ConfigurationsDelta:
        delta = cls(ConfigurationsImage())
        delta._resources = NestedMapDelta.of_everything(image.resources)
        return delta

    @property
    def changes(self) -> Mapping[ConfigResource, Mapping[str, str | None]]:
        """The changed keys by resource: the new value, or None for a key that is reset to its default."""
        return self._resources.changes

    def replay(self, record: ConfigRecord) -> None:
        resource = ConfigResource(record.resource_type, record.resource_name)
        if record.value is None:
            self._resources.remove(resource, record.name)
        else:
            self._resources.put(resource, record.name, record.value)

    def remove_topic(self, name: str) -> None:
        """Removes the configuration of a deleted topic."""
        self._resources.remove_all(ConfigResource.topic(name))

    def finish_snapshot(self) -> None:
        self._resources.finish_snapshot()

    def __bool__(self) -> bool:
        return bool(self._resources)

    def apply(self) -> ConfigurationsImage:
        return ConfigurationsImage(self._resources.apply()) if self else self.image

    def __repr__(self) -> str:
        return f"ConfigurationsDelta({ {resource: sorted(keys) for resource, keys in self.changes.items()} })"
