"""Dynamic configs of topics, brokers, groups and metrics subscriptions."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from barnabas.common.config_def import Password
from barnabas.common.errors import ApiError, InvalidConfigurationError, InvalidRequestError
from barnabas.common.snapshot_registry import SnapshotRegistry, TimelineHashMap
from barnabas.controller.config_schema import (
    MIN_IN_SYNC_REPLICAS,
    UNCLEAN_LEADER_ELECTION_ENABLE,
    ConfigEntry,
    KafkaConfigSchema,
)
from barnabas.controller.config_validator import ConfigurationValidator
from barnabas.controller.feature_control_manager import FeatureControlManager
from barnabas.controller.result import ControllerResult, check_operation_size, error_fields
from barnabas.metadata.configs import ConfigResource, ConfigResourceType
from barnabas.metadata.feature_versions import ELR_VERSION
from barnabas.metadata.metadata_version import MetadataVersion
from barnabas.protocol.internal.metadata import ClearElrRecord, ConfigRecord
from barnabas.raft.client import ApiMessageAndVersion

if TYPE_CHECKING:
    from barnabas.protocol.messages import alter_configs, incremental_alter_configs
    from barnabas.protocol.messages.create_topics import CreatableTopicConfigs
    from barnabas.protocol.messages.update_features import FeatureUpdateKey

log = logging.getLogger(__name__)

CORDONED_LOG_DIRS = "cordoned.log.dirs"
MAX_VALUE_LENGTH = 32_767
DEFAULT_NODE = ConfigResource.broker()

AlterConfigPolicy = Callable[[ConfigResource, Mapping[str, str | None]], None]
"""The operator's own rules: called with the changed keys, raises PolicyViolationError to refuse the change."""

_COMMA = re.compile(r"\s*,\s*")


class ConfigOperation(IntEnum):
    """Operations of IncrementalAlterConfigs on a key."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigurationControlManager:
    """Holds the dynamic configs by resource, and the rules for changing them.

    The keys of one resource change atomically. Each resource of a request succeeds or fails by itself.

    While eligible leader replicas are enabled (KIP-966), ``min.insync.replicas`` has rules of its own. The number
    determines which replicas are sure to have every committed record, so all nodes must see the same value: there must
    be a cluster-wide value, no broker may override it, and each change of it clears the ELRs.
    """

    def __init__(
        self,
        registry: SnapshotRegistry,
        features: FeatureControlManager,
        schema: KafkaConfigSchema,
        validator: ConfigurationValidator,
        check_exists: Callable[[ConfigResource], None],
        *,
        node_id: int,
        static_config: Mapping[str, object],
        alter_config_policy: AlterConfigPolicy | None = None,
    ) -> None:
        self._registry = registry
        self._features = features
        self._schema = schema
        self._validator = validator
        self._check_exists = check_exists
        self._node = ConfigResource.broker(node_id)
        self._static_config = dict(static_config)
        self._policy = alter_config_policy
        self._configs: TimelineHashMap[ConfigResource, TimelineHashMap[str, str]] = TimelineHashMap(registry)
        self._effective_defaults: tuple[object, list[CreatableTopicConfigs]] | None = None

    # -- requests

    def incremental_alter_configs(
        self, request: incremental_alter_configs.IncrementalAlterConfigsRequest
    ) -> ControllerResult[incremental_alter_configs.IncrementalAlterConfigsResponse]:
        from barnabas.protocol.messages import incremental_alter_configs

        def alter(resource: ConfigResource, entry: Any) -> list[ApiMessageAndVersion]:
            return self.incremental_alter_config(resource, _operations(entry.configs), newly_created=False)

        records, responses = self._alter_each(request.resources, alter)
        response = incremental_alter_configs.IncrementalAlterConfigsResponse(responses=responses)
        result = ControllerResult.atomic_of(records, response)
        return result.without_records() if request.validate_only else result

    def legacy_alter_configs(
        self, request: alter_configs.AlterConfigsRequest
    ) -> ControllerResult[alter_configs.AlterConfigsResponse]:
        from barnabas.protocol.messages import alter_configs

        def alter(resource: ConfigResource, entry: Any) -> list[ApiMessageAndVersion]:
            return self._replace_config(resource, entry.configs)

        records, responses = self._alter_each(request.resources, alter)
        result = ControllerResult.atomic_of(records, alter_configs.AlterConfigsResponse(responses=responses))
        return result.without_records() if request.validate_only else result

    def _alter_each(
        self, resources: Iterable[Any], alter: Callable[[ConfigResource, Any], list[ApiMessageAndVersion]]
    ) -> tuple[list[ApiMessageAndVersion], list[alter_configs.AlterConfigsResourceResponse]]:
        """Returns the records of all resources that can be altered, and a response for each."""
        from barnabas.protocol.messages.alter_configs import AlterConfigsResourceResponse

        records: list[ApiMessageAndVersion] = []
        responses = []
        for resource, entries in _by_resource(resources):
            error: ApiError | None = None
            try:
                records += alter(resource, _only(entries, resource))
            except ApiError as raised:
                error = raised
            code, message = error_fields(error)
            responses.append(
                AlterConfigsResourceResponse(
                    error_code=code, error_message=message, resource_type=resource.type, resource_name=resource.name
                )
            )
        records += self._clear_elr_records(records)
        check_operation_size(len(records))
        return records, responses

    def update_features(
        self, updates: Iterable[FeatureUpdateKey], *, request_version: int, validate_only: bool, claimed_epoch: int
    ) -> ControllerResult[ApiError | None]:
        """Updates feature levels; if that enables eligible leader replicas, adds the configs they require."""
        updates = list(updates)
        result = self._features.update_features(
            updates, request_version=request_version, validate_only=validate_only, claimed_epoch=claimed_epoch
        )
        turns_on_elr = any(update.feature == ELR_VERSION.name and update.max_version_level > 0 for update in updates)
        if result.response is not None or validate_only or not turns_on_elr:
            return result
        return ControllerResult.atomic_of([*self.elr_safety_records(), *result.records], None)

    # -- one resource

    def incremental_alter_config(
        self,
        resource: ConfigResource,
        operations: Mapping[str, tuple[ConfigOperation, str | None]],
        newly_created: bool,
    ) -> list[ApiMessageAndVersion]:
        """Returns the records for the operations; raises if they are not allowed."""
        current = self.settings(resource)
        changes: dict[str, str | None] = {}
        for name, (operation, value) in operations.items():
            before = current.get(name)
            after = value
            if operation is ConfigOperation.DELETE:
                after = None
            elif operation is not ConfigOperation.SET:
                after = self._edit_list(resource, name, before, operation, value or "")
            if after != before or resource.type == ConfigResourceType.BROKER:
                # A broker's config is written even if unchanged: a key store, for example, may have new contents under
                # the same file name, and the record makes the broker reload it (KAFKA-14136).
                changes[name] = after
        self._check(resource, changes, implicitly_deleted=(), newly_created=newly_created)
        return self._records(resource, changes)

    def _edit_list(
        self, resource: ConfigResource, name: str, before: str | None, operation: ConfigOperation, value: str
    ) -> str:
        if not self._schema.is_splittable(resource.type, name):
            raise InvalidConfigurationError(f"{name} does not support {operation.name}: it is not a list.")
        if before is None:
            before = self._schema.default(resource.type, name)
        items = [item for item in (before or "").split(",") if item]
        for item in value.split(","):
            if operation is ConfigOperation.APPEND and item not in items:
                items.append(item)
            elif operation is ConfigOperation.SUBTRACT and item in items:
                items.remove(item)
        return ",".join(items)

    def _replace_config(
        self, resource: ConfigResource, configs: Iterable[alter_configs.AlterableConfig]
    ) -> list[ApiMessageAndVersion]:
        """Applies a legacy AlterConfigs: a key that is not in the request returns to its default."""
        wanted: dict[str, str] = {}
        for config in configs:
            if config.name in wanted:
                raise InvalidRequestError(f"The request has the key {config.name} more than once.")
            if config.value is None:
                raise InvalidRequestError(f"The value of {config.name} must not be null.")
            wanted[config.name] = config.value
        current = self.settings(resource)
        changes: dict[str, str | None] = {
            name: value
            for name, value in wanted.items()
            if current.get(name) != value or resource.type == ConfigResourceType.BROKER
        }
        implicitly_deleted = [name for name in current if name not in wanted]
        self._check(resource, changes, implicitly_deleted, newly_created=False)
        return self._records(resource, {**changes, **dict.fromkeys(implicitly_deleted)})

    def _check(
        self,
        resource: ConfigResource,
        changes: Mapping[str, str | None],
        implicitly_deleted: Iterable[str],
        newly_created: bool,
    ) -> None:
        existing = dict(self.settings(resource))
        settings = dict(existing)
        for name in implicitly_deleted:
            self._check_special_rules(resource, name, None, existing, newly_created)
            settings.pop(name, None)
        for name, value in changes.items():
            self._check_special_rules(resource, name, value, existing, newly_created)
            if value is None:
                settings.pop(name, None)
            elif len(value) > MAX_VALUE_LENGTH:
                raise InvalidConfigurationError(
                    f"The value of {name} has {len(value)} characters; at most {MAX_VALUE_LENGTH} are allowed."
                )
            else:
                settings[name] = value
        self._validator.validate(resource, settings, existing)
        if not newly_created:
            self._check_exists(resource)
        if self._policy is not None:
            # The policy does not see keys that are deleted only because a legacy request omits them (KAFKA-14195).
            self._policy(resource, dict(changes))

    def _check_special_rules(
        self,
        resource: ConfigResource,
        name: str,
        value: str | None,
        existing: Mapping[str, str],
        newly_created: bool,
    ) -> None:
        if resource.type != ConfigResourceType.BROKER:
            return
        if name == MIN_IN_SYNC_REPLICAS and self._features.is_elr_enabled:
            if resource.name:
                raise InvalidConfigurationError(
                    f"{name} cannot be set for a single broker while eligible leader replicas are enabled."
                )
            if value is None:
                raise InvalidConfigurationError(
                    f"{name} must have a cluster-wide value while eligible leader replicas are enabled."
                )
        elif name == CORDONED_LOG_DIRS:
            if not self._features.metadata_version.supports_cordoned_directories:
                raise InvalidConfigurationError(
                    f"{name} requires metadata.version {MetadataVersion.IBP_4_3_IV0.value} or later."
                )
            if not newly_created and value is not None and value.strip():
                cordoned = set(_COMMA.split(existing.get(name, "").strip()))
                if not cordoned.issuperset(_COMMA.split(value.strip())):
                    raise InvalidConfigurationError(
                        f"A controller can only remove directories from {name}, because it does not know the "
                        "directories of a broker. Send the request to the broker."
                    )

    def _records(self, resource: ConfigResource, changes: Mapping[str, str | None]) -> list[ApiMessageAndVersion]:
        return [
            ApiMessageAndVersion(
                ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value), 0
            )
            for name, value in changes.items()
        ]

    # -- eligible leader replicas

    def _clear_elr_records(self, records: Iterable[ApiMessageAndVersion]) -> list[ApiMessageAndVersion]:
        if not self._features.is_elr_enabled:
            return []
        cleared = []
        for message, _ in records:
            if isinstance(message, ConfigRecord) and message.name == MIN_IN_SYNC_REPLICAS:
                is_topic = message.resource_type == ConfigResourceType.TOPIC
                record = ClearElrRecord(topic_name=message.resource_name if is_topic else "")
                cleared.append(ApiMessageAndVersion(record, 0))
        return cleared

    def elr_safety_records(self) -> list[ApiMessageAndVersion]:
        """Returns the records that make ``min.insync.replicas`` unambiguous; none if it already is."""
        records = []
        if MIN_IN_SYNC_REPLICAS not in self.settings(DEFAULT_NODE):
            records += self._records(DEFAULT_NODE, {MIN_IN_SYNC_REPLICAS: str(self.static_min_insync_replicas())})
        for resource, settings in self._configs.items():
            if (
                resource.type == ConfigResourceType.BROKER
                and resource != DEFAULT_NODE
                and MIN_IN_SYNC_REPLICAS in settings
            ):
                records += self._records(resource, {MIN_IN_SYNC_REPLICAS: None})
        return records

    def static_min_insync_replicas(self) -> int:
        entry = self._schema.resolve_topic_config(MIN_IN_SYNC_REPLICAS, self._static_config, {}, {}, {})
        return int(entry.value or 1)

    # -- reading

    def settings(self, resource: ConfigResource) -> Mapping[str, str]:
        """Returns the current configs of a resource, committed or not."""
        found = self._configs.get(resource)
        return _NOTHING if found is None else found.present

    def describe(self, resource: ConfigResource, epoch: int) -> dict[str, str]:
        """Returns the configs of a resource at an offset; raises if the resource is invalid."""
        self._validator.validate_resource(resource)
        found = self._configs.get(resource, epoch)
        return {} if found is None else dict(found.items_at(epoch))

    def resources(self, epoch: int) -> list[ConfigResource]:
        """Returns the resources that had configs at an offset."""
        return [resource for resource, _ in self._configs.items_at(epoch)]

    def topic_config(self, topic: str, name: str) -> ConfigEntry:
        return self._schema.resolve_topic_config(
            name,
            self._static_config,
            self.settings(DEFAULT_NODE),
            self.settings(self._node),
            self.settings(ConfigResource.topic(topic)),
        )

    def min_insync_replicas(self, topic: str) -> int:
        return int(self.topic_config(topic, MIN_IN_SYNC_REPLICAS).value or 1)

    def is_unclean_leader_election_enabled(self, topic: str) -> bool:
        value = self.topic_config(topic, UNCLEAN_LEADER_ELECTION_ENABLE).value
        return value is not None and value.lower() == "true"

    def effective_topic_configs(self, creation_configs: Mapping[str, str]) -> list[CreatableTopicConfigs]:
        """Returns all configs of a topic that is being created, sorted by name, as CreateTopics reports them.

        Most topics are created without configs of their own; they share one cached result.
        """
        cluster, node = self.settings(DEFAULT_NODE), self.settings(self._node)
        if creation_configs:
            return self._effective(cluster, node, creation_configs)
        state = (dict(cluster), dict(node))
        if self._effective_defaults is None or self._effective_defaults[0] != state:
            self._effective_defaults = (state, self._effective(cluster, node, {}))
        return self._effective_defaults[1]

    def _effective(
        self, cluster: Mapping[str, str], node: Mapping[str, str], topic: Mapping[str, str]
    ) -> list[CreatableTopicConfigs]:
        from barnabas.protocol.messages.create_topics import CreatableTopicConfigs

        entries = [
            self._schema.resolve_topic_config(name, self._static_config, cluster, node, topic)
            for name in sorted(self._schema.topic_config_names(topic))
        ]
        return [
            CreatableTopicConfigs(
                name=entry.name,
                value=None if entry.is_sensitive else entry.value,
                read_only=False,
                config_source=entry.source.value,
                is_sensitive=entry.is_sensitive,
            )
            for entry in entries
        ]

    # -- replay

    def replay(self, record: ConfigRecord) -> None:
        resource = ConfigResource(record.resource_type, record.resource_name)
        settings = self._configs.get(resource)
        if record.value is None:
            if settings is not None:
                settings.pop(record.name)
                if not settings:
                    self._configs.pop(resource)
        else:
            if settings is None:
                settings = self._configs[resource] = TimelineHashMap(self._registry, nested=True)
            settings[record.name] = record.value
        if log.isEnabledFor(logging.INFO):
            shown = Password.HIDDEN if self._schema.is_sensitive(record.resource_type, record.name) else record.value
            log.info("%s: set %s to %s", resource, record.name, shown)

    def delete_topic_configs(self, topic: str) -> None:
        self._configs.pop(ConfigResource.topic(topic))


_NOTHING: Mapping[str, str] = {}


class _ResourceEntry(Protocol):
    resource_type: int
    resource_name: str


_R = TypeVar("_R", bound=_ResourceEntry)


def _by_resource(resources: Iterable[_R]) -> list[tuple[ConfigResource, list[_R]]]:
    """Groups the entries of a request by resource, in the order of the request."""
    found: dict[ConfigResource, list[_R]] = {}
    for entry in resources:
        found.setdefault(ConfigResource(entry.resource_type, entry.resource_name), []).append(entry)
    return list(found.items())


def _only(entries: list[_R], resource: ConfigResource) -> _R:
    if len(entries) > 1:
        raise InvalidRequestError(f"The request has the resource {resource.name!r} more than once.")
    return entries[0]


def _operations(
    configs: Iterable[incremental_alter_configs.AlterableConfig],
) -> dict[str, tuple[ConfigOperation, str | None]]:
    operations: dict[str, tuple[ConfigOperation, str | None]] = {}
    for config in configs:
        if config.name in operations:
            raise InvalidRequestError(f"The request has the key {config.name} more than once.")
        try:
            operation = ConfigOperation(config.config_operation)
        except ValueError:
            raise InvalidRequestError(f"Unknown operation {config.config_operation}.") from None
        if config.value is None and operation is not ConfigOperation.DELETE:
            raise InvalidRequestError(f"The value of {config.name} must not be null.")
        operations[config.name] = (operation, config.value)
    return operations
