"""Applies changed settings in the metadata to the parts of the broker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container
from functools import partial
from typing import TypeAlias

from barnabas.broker.config.client_metrics_config import CLIENT_METRICS_CONFIG_DEF
from barnabas.broker.config.dynamic_broker_config import DynamicBrokerConfig
from barnabas.broker.config.dynamic_config_names import DYNAMIC_CONFIG_DEF
from barnabas.broker.config.group_config import GROUP_CONFIG_DEF
from barnabas.broker.config.listener_prefix import base_name
from barnabas.common.config_def import ConfigDef, Password
from barnabas.log.config.log_config_def import LOG_CONFIG_DEF
from barnabas.metadata.configs import ConfigResource, ConfigResourceType, Settings
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.publisher import LoaderManifest, MetadataPublisher

logger = logging.getLogger(__name__)

ConfigHandler: TypeAlias = Callable[[str, Settings], object]
"""Is called with the name of a resource and all its current settings."""

Fault: TypeAlias = Callable[[str, BaseException], object]
"""Is called with an error."""

_DEFINITIONS: dict[int, ConfigDef] = {
    ConfigResourceType.TOPIC: LOG_CONFIG_DEF,
    ConfigResourceType.BROKER: DYNAMIC_CONFIG_DEF,
    ConfigResourceType.CLIENT_METRICS: CLIENT_METRICS_CONFIG_DEF,
    ConfigResourceType.GROUP: GROUP_CONFIG_DEF,
}


class DynamicConfigPublisher(MetadataPublisher):
    """Calls the handler of each resource whose settings have changed.

    The failure of a handler is reported and does not affect the others. Settings of other brokers are ignored.
    """

    def __init__(
        self,
        node_id: int,
        broker: DynamicBrokerConfig | None = None,
        *,
        on_fault: Fault,
        topic: ConfigHandler | None = None,
        client_metrics: ConfigHandler | None = None,
        group: ConfigHandler | None = None,
        after_broker: Callable[[], object] | None = None,
        node_type: str = "broker",
    ) -> None:
        """`after_broker` is called after settings of this broker or of all brokers were applied. Replication throttles
        need it: they are purely dynamic settings, which are not in `KafkaConfig`.
        """
        self._node_id = node_id
        self._broker = broker
        self._after_broker = after_broker
        self._on_fault = on_fault
        self._this_broker, self._all_brokers = ConfigResource.broker(node_id), ConfigResource.broker()
        self._handlers: dict[int, ConfigHandler | None] = {
            ConfigResourceType.TOPIC: topic,
            ConfigResourceType.CLIENT_METRICS: client_metrics,
            ConfigResourceType.GROUP: group,
        }
        self._node_type = node_type

    @property
    def name(self) -> str:
        return f"DynamicConfigPublisher {self._node_type} id={self._node_id}"

    def on_metadata_update(self, delta: MetadataDelta, new_image: MetadataImage, manifest: LoaderManifest) -> None:  # noqa: ARG002
        if delta.configs is None:
            return
        changed = delta.configs.changes
        if self._broker is not None and not changed.keys().isdisjoint((self._all_brokers, self._this_broker)):
            self._try("the settings of this broker", partial(self._update_broker, changed, new_image))
        for resource in changed:
            handler = self._handlers.get(resource.type)
            if handler is not None:
                settings = _settings(resource, new_image)
                self._try(f"the settings of {_described(resource)}", partial(handler, resource.name, settings))

    def _try(self, what: str, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001 - reported, and the other handlers run
            self._on_fault(f"applying {what}", error)

    def _update_broker(self, changed: Container[ConfigResource], image: MetadataImage) -> None:
        assert self._broker is not None
        self._broker.update_configs(
            broker=_settings(self._this_broker, image) if self._this_broker in changed else None,
            default=_settings(self._all_brokers, image) if self._all_brokers in changed else None,
        )
        if self._after_broker is not None:
            self._after_broker()


def _settings(resource: ConfigResource, image: MetadataImage) -> Settings:
    settings = image.configs.of(resource)
    if logger.isEnabledFor(logging.INFO):
        logger.info("Updated the settings of %s: %s", _described(resource), _loggable(resource.type, settings))
    return settings


def _described(resource: ConfigResource) -> str:
    kind = ConfigResourceType(resource.type).name.lower().replace("_", " ")
    return f"{kind} {resource.name}" if resource.name else f"every {kind}"


def _loggable(kind: int, settings: Settings) -> str:
    keys = _DEFINITIONS[kind].keys
    shown = []
    for name, value in sorted(settings.items()):
        key = keys.get(base_name(name))
        shown.append(f"{name}={Password.HIDDEN if key is None or key.type.is_sensitive else value}")
    return ", ".join(shown) or "none"
