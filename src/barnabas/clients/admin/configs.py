"""Settings of topics, brokers, groups and client metrics subscriptions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeVar

from barnabas.clients.admin.internals.admin_api_driver import error_of
from barnabas.clients.admin.internals.node_choice import ANY, Broker, NodeChoice
from barnabas.clients.admin.internals.operation import Operation
from barnabas.clients.admin.internals.steps import together
from barnabas.clients.admin.results import Results
from barnabas.common.errors import ApiError, UnknownServerError, UnsupportedVersionError, raise_for_code
from barnabas.protocol.messages import describe_configs as describe_api
from barnabas.protocol.messages import incremental_alter_configs as alter_api
from barnabas.protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from barnabas.protocol.versions import VersionRange

E = TypeVar("E", bound=IntEnum)
K = TypeVar("K")
V = TypeVar("V")


class ConfigResourceType(IntEnum):
    """The kinds of resources with settings."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """The source of a value; lower numbers take precedence, except for the last."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class ConfigType(IntEnum):
    """The type of a value."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class OpType(IntEnum):
    """The operation on a setting. APPEND and SUBTRACT are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True, order=True)
class ConfigResource:
    """A resource: one topic, one broker. A broker without a name means all of them."""

    type: ConfigResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        """Returns a topic as a resource."""
        return cls(ConfigResourceType.TOPIC, name)

    @classmethod
    def broker(cls, broker_id: int | None = None) -> ConfigResource:
        """Returns a broker resource; without an id, the default of all brokers."""
        return cls(ConfigResourceType.BROKER, "" if broker_id is None else str(broker_id))

    @classmethod
    def group(cls, group_id: str) -> ConfigResource:
        """Returns a group as a resource."""
        return cls(ConfigResourceType.GROUP, group_id)

    @classmethod
    def client_metrics(cls, name: str) -> ConfigResource:
        """Returns a client-metrics subscription as a resource."""
        return cls(ConfigResourceType.CLIENT_METRICS, name)

    @property
    def is_default(self) -> bool:
        """Whether it stands for the default of all resources of its type."""
        return not self.name

    def __str__(self) -> str:
        kind = self.type.name.lower().replace("_", "-")
        return f"{kind} {self.name}" if self.name else f"all {kind}s"


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """Another source of the setting, with its value."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A setting."""

    name: str
    value: str | None
    """None if it has no value, or is a secret."""
    source: ConfigSource
    is_sensitive: bool = False
    is_read_only: bool = False
    synonyms: tuple[ConfigSynonym, ...] = ()
    type: ConfigType = ConfigType.UNKNOWN
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        """Whether the value is the default of the setting."""
        return self.source is ConfigSource.DEFAULT_CONFIG


@dataclass(frozen=True, slots=True)
class AlterConfigOp:
    """A change of a setting."""

    name: str
    value: str | None = None
    op_type: OpType = OpType.SET


_NODE_TYPES: Final = frozenset({ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER})
_ONLY_CLIENT_METRICS: Final = VersionRange(0, 0)
_ALL_TYPES: Final = VersionRange(1, 1)


def _responsible(resource: ConfigResource) -> NodeChoice:
    """Returns the node to ask: a broker for the settings in its own file, else any."""
    if resource.type in _NODE_TYPES and resource.name.isdecimal():
        return Broker(int(resource.name))
    return ANY


def _by_node(resources: Iterable[ConfigResource]) -> dict[NodeChoice, list[ConfigResource]]:
    grouped: dict[NodeChoice, list[ConfigResource]] = {}
    for resource in dict.fromkeys(resources):
        grouped.setdefault(_responsible(resource), []).append(resource)
    return grouped


async def describe_configs(
    operation: Operation,
    resources: Iterable[ConfigResource],
    *,
    names: Sequence[str] | None = None,
    include_synonyms: bool = False,
    include_documentation: bool = False,
    partial: bool = False,
) -> Results[ConfigResource, dict[str, ConfigEntry]]:
    """Returns the settings of resources, by name: all of them, or only ``names``."""

    async def ask(where: NodeChoice, asked: list[ConfigResource]) -> Results[ConfigResource, dict[str, ConfigEntry]]:
        request = describe_api.DescribeConfigsRequest(
            resources=[
                describe_api.DescribeConfigsResource(
                    resource_type=one.type,
                    resource_name=one.name,
                    configuration_keys=None if names is None else list(names),
                )
                for one in asked
            ],
            include_synonyms=include_synonyms,
            include_documentation=include_documentation,
        )
        return await operation.ask(where, request, lambda response: _read_described(response, asked))

    grouped = _by_node(resources)
    return _joined(await together(*(ask(where, asked) for where, asked in grouped.items()))).checked(partial)


def _read_described(
    response: describe_api.DescribeConfigsResponse, asked: list[ConfigResource]
) -> Results[ConfigResource, dict[str, ConfigEntry]]:
    found: dict[ConfigResource, dict[str, ConfigEntry]] = {}
    failed: dict[ConfigResource, ApiError] = {}
    for row in response.results:
        resource = ConfigResource(_known(ConfigResourceType, row.resource_type), row.resource_name)
        error = error_of(row.error_code, row.error_message)
        if error is None:
            found[resource] = {config.name: _entry(config) for config in row.configs}
        else:
            failed[resource] = error
    for one in asked:
        if one not in found and one not in failed:
            failed[one] = UnknownServerError(f"The broker's response does not include {one}.")
    return Results(found, failed)


def _entry(row: describe_api.DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        row.name,
        row.value,
        _known(ConfigSource, row.config_source),
        row.is_sensitive,
        row.read_only,
        tuple(ConfigSynonym(one.name, one.value, _known(ConfigSource, one.source)) for one in row.synonyms),
        _known(ConfigType, row.config_type),
        row.documentation,
    )


def _known(kind: type[E], code: int) -> E:
    """Maps unknown codes of later Kafka versions to UNKNOWN."""
    try:
        return kind(code)
    except ValueError:
        return kind(0)


async def incremental_alter_configs(
    operation: Operation,
    configs: Mapping[ConfigResource, Iterable[AlterConfigOp] | Mapping[str, str | None]],
    *,
    validate_only: bool = False,
    partial: bool = False,
) -> Results[ConfigResource, None]:
    """Changes the named settings only.

    A mapping is the short form: a value sets, None deletes.
    """
    wanted = {resource: _ops(changes) for resource, changes in configs.items()}

    async def ask(where: NodeChoice, asked: list[ConfigResource]) -> Results[ConfigResource, None]:
        request = alter_api.IncrementalAlterConfigsRequest(
            resources=[
                alter_api.AlterConfigsResource(
                    resource_type=one.type,
                    resource_name=one.name,
                    configs=[
                        alter_api.AlterableConfig(name=change.name, config_operation=change.op_type, value=change.value)
                        for change in wanted[one]
                    ],
                )
                for one in asked
            ],
            validate_only=validate_only,
        )

        def read(response: alter_api.IncrementalAlterConfigsResponse) -> Results[ConfigResource, None]:
            rows = {(row.resource_type, row.resource_name): row for row in response.responses}
            failed: dict[ConfigResource, ApiError] = {}
            for one in asked:
                row = rows.get((int(one.type), one.name))
                if row is None:
                    failed[one] = UnknownServerError(f"The broker's response does not include {one}.")
                elif (error := error_of(row.error_code, row.error_message)) is not None:
                    failed[one] = error
            return Results({one: None for one in asked if one not in failed}, failed)

        return await operation.ask(where, request, read)

    grouped = _by_node(wanted)
    return _joined(await together(*(ask(where, asked) for where, asked in grouped.items()))).checked(partial)


def _ops(changes: Iterable[AlterConfigOp] | Mapping[str, str | None]) -> list[AlterConfigOp]:
    if isinstance(changes, Mapping):
        return [
            AlterConfigOp(name, value, OpType.DELETE if value is None else OpType.SET)
            for name, value in changes.items()
        ]
    return list(changes)


def _joined(parts: Iterable[Results[K, V]]) -> Results[K, V]:
    found: dict[K, V] = {}
    failed: dict[K, ApiError] = {}
    for part in parts:
        found.update(part)
        failed.update(part.errors)
    return Results(found, failed)


async def list_config_resources(operation: Operation, types: Iterable[ConfigResourceType] = ()) -> list[ConfigResource]:
    """Lists resources with settings, of these types or of all: every topic and broker, but only those groups and
    subscriptions that have settings of their own."""
    wanted = set(types)
    request = ListConfigResourcesRequest(resource_types=sorted(map(int, wanted)))

    def read(response: ListConfigResourcesResponse) -> list[ConfigResource]:
        raise_for_code(response.error_code)
        return [
            ConfigResource(_known(ConfigResourceType, row.resource_type), row.resource_name)
            for row in response.config_resources
        ]

    try:
        return await operation.ask(ANY, request, read, _ALL_TYPES)
    except UnsupportedVersionError:
        # Before KIP-1142 the same API listed only client metrics subscriptions.
        if wanted != {ConfigResourceType.CLIENT_METRICS}:
            raise
        return await operation.ask(ANY, ListConfigResourcesRequest(), read, _ONLY_CLIENT_METRICS)


async def list_client_metrics_resources(operation: Operation) -> list[str]:
    """Returns the names of all client metrics subscriptions (KIP-714)."""
    found = await list_config_resources(operation, [ConfigResourceType.CLIENT_METRICS])
    return [resource.name for resource in found]
