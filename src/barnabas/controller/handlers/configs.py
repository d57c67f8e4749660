"""AlterConfigs (v0-2), IncrementalAlterConfigs (v0-1) and AlterClientQuotas (v0-1).

AlterConfigs replaces all configs of a resource, IncrementalAlterConfigs changes single ones; each resource succeeds or
fails by itself. An unknown resource type fails with UNSUPPORTED_VERSION, a duplicate resource with INVALID_REQUEST.
Altering needs AlterConfigs on the topic, on the group, or on the cluster for brokers and client metrics. Quotas are
configs of the cluster: they need AlterConfigs on it.

The log levels of a node (BROKER_LOGGER) are not in the metadata. They change in this process, at once, which needs
ClusterAction on the cluster. The older AlterConfigs does not support them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

from barnabas.common.errors import (
    ApiError,
    ClusterAuthorizationError,
    Errors,
    GroupAuthorizationError,
    InvalidRequestError,
    TopicAuthorizationError,
    UnsupportedVersionError,
)
from barnabas.controller.handlers.backend import Backend
from barnabas.controller.handlers.future_steps import mapped
from barnabas.metadata.configs import ConfigResource, ConfigResourceType
from barnabas.protocol.messages import alter_configs, incremental_alter_configs
from barnabas.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from barnabas.protocol.messages.alter_configs import AlterConfigsResourceResponse
from barnabas.protocol.messages.incremental_alter_configs import AlterConfigsResource
from barnabas.security.acl import CLUSTER_NAME, AclOperation, ResourceType
from barnabas.server.request import Request
from barnabas.server.request_local import RequestLocal


class AlterLoggers(Protocol):
    """Changes the log levels of this node, or only validates the change; raises on an error."""

    def __call__(self, resource: AlterConfigsResource, *, authorized: bool, validate_only: bool) -> None: ...


class _Resource(Protocol):
    resource_type: int
    resource_name: str


R = TypeVar("R", bound=_Resource)

_KNOWN = frozenset(ConfigResourceType)
_RIGHTS: Mapping[int, tuple[ResourceType, type[ApiError]]] = {
    ConfigResourceType.TOPIC: (ResourceType.TOPIC, TopicAuthorizationError),
    ConfigResourceType.GROUP: (ResourceType.GROUP, GroupAuthorizationError),
    ConfigResourceType.BROKER: (ResourceType.CLUSTER, ClusterAuthorizationError),
    ConfigResourceType.CLIENT_METRICS: (ResourceType.CLUSTER, ClusterAuthorizationError),
}
"""The resource type for authorization, and the error on a denial, by config resource type."""


class ConfigsHandler:
    """Alters dynamic configs."""

    def __init__(self, backend: Backend, *, alter_loggers: AlterLoggers | None = None) -> None:
        self._backend = backend
        self._controller = backend.controller
        self._auth = backend.auth
        self._alter_loggers = alter_loggers

    def alter_configs(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, alter_configs.AlterConfigsRequest)
        refused = self._refused(request, body.resources)
        effective = alter_configs.AlterConfigsRequest(
            resources=[resource for resource in body.resources if _key(resource) not in refused],
            validate_only=body.validate_only,
        )

        def complete(response: alter_configs.AlterConfigsResponse) -> alter_configs.AlterConfigsResponse:
            response.responses = _all_results(body.resources, response.responses, refused)
            return response

        future = self._controller.legacy_alter_configs(self._backend.context(request), effective)
        self._backend.respond(request, mapped(future, complete))

    def incremental_alter_configs(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, incremental_alter_configs.IncrementalAlterConfigsRequest)
        decided: dict[ConfigResource, ApiError | None] = {}
        others = []
        for resource in body.resources:
            if resource.resource_type == ConfigResourceType.BROKER_LOGGER and self._alter_loggers is not None:
                decided[_key(resource)] = self._changed_loggers(request, resource, body.validate_only)
            else:
                others.append(resource)
        decided |= self._refused(request, others)
        effective = incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[resource for resource in others if _key(resource) not in decided],
            validate_only=body.validate_only,
        )

        def complete(
            response: incremental_alter_configs.IncrementalAlterConfigsResponse,
        ) -> incremental_alter_configs.IncrementalAlterConfigsResponse:
            response.responses = _all_results(body.resources, response.responses, decided)
            return response

        future = self._controller.incremental_alter_configs(self._backend.context(request), effective)
        self._backend.respond(request, mapped(future, complete))

    def alter_client_quotas(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, AlterClientQuotasRequest)
        self._backend.authorize_cluster(request, AclOperation.ALTER_CONFIGS)
        self._backend.respond(request, self._controller.alter_client_quotas(self._backend.context(request), body))

    def _refused(self, request: Request, resources: Iterable[_Resource]) -> dict[ConfigResource, ApiError | None]:
        """Returns the resources that are refused without asking the controller, with their errors."""
        refused: dict[ConfigResource, ApiError | None] = {}
        for key, count in Counter(map(_key, resources)).items():
            error = self._objection(request, key, count)
            if error is not None:
                refused[key] = error
        return refused

    def _objection(self, request: Request, resource: ConfigResource, mentions: int) -> ApiError | None:
        if resource.type not in _KNOWN:
            return UnsupportedVersionError(f"Unknown resource type {resource.type}.")
        if mentions > 1:
            return InvalidRequestError("The request has the resource more than once.")
        right = _RIGHTS.get(resource.type)
        if right is None:
            return InvalidRequestError(f"{ConfigResourceType(resource.type).name} resources cannot be altered here.")
        resource_type, denial = right
        name = CLUSTER_NAME if resource_type is ResourceType.CLUSTER else resource.name
        if self._auth.authorize(request.request_context, AclOperation.ALTER_CONFIGS, resource_type, name):
            return None
        return denial()

    def _changed_loggers(
        self, request: Request, resource: AlterConfigsResource, validate_only: bool
    ) -> ApiError | None:
        assert self._alter_loggers is not None
        authorized = self._auth.authorize(
            request.request_context, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
        )
        try:
            self._alter_loggers(resource, authorized=authorized, validate_only=validate_only)
        except ApiError as error:
            return error
        return None


def _all_results(
    asked: Iterable[_Resource],
    results: Iterable[AlterConfigsResourceResponse],
    decided: Mapping[ConfigResource, ApiError | None],
) -> list[AlterConfigsResourceResponse]:
    """Returns one result per distinct resource, in the order of the request: the controller's, or the one decided
    here."""
    done = {_key(result): result for result in results}
    for key, error in decided.items():
        code, message = _fields(error)
        done[key] = AlterConfigsResourceResponse(
            error_code=code, error_message=message, resource_type=key.type, resource_name=key.name
        )
    return [done[key] for key in dict.fromkeys(map(_key, asked))]


def _key(resource: _Resource) -> ConfigResource:
    return ConfigResource(resource.resource_type, resource.resource_name)


def _fields(error: ApiError | None) -> tuple[int, str | None]:
    """Returns code and message; a denial has no message of its own."""
    code = Errors.NONE if error is None else Errors.for_exception(error)
    return code, None if error is None or str(error) == code.message else str(error)
