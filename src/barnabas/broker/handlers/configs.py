"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources: the configuration family.

==== ========================= ======== ============================================================================
key  API                       versions served by
==== ========================= ======== ============================================================================
32   DescribeConfigs           1-4      any broker; a broker and its loggers only by that broker itself
33   AlterConfigs              0-2      the controller, after checks here (deprecated: it replaces all configs)
44   IncrementalAlterConfigs   0-1      the controller, after checks here; levels of loggers here
74   ListConfigResources       0-1      any broker; v0 lists metrics subscriptions only
==== ========================= ======== ============================================================================

Each resource of a request succeeds or fails by itself. Permissions: DESCRIBE_CONFIGS and ALTER_CONFIGS on the topic,
the group, or for everything else the cluster. The controller authorizes the requests that it serves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from barnabas.broker.config.config_admin_manager import ConfigAdminManager, ResourceResult, reassembled
from barnabas.broker.config.config_helper import ConfigHelper
from barnabas.common.errors import Errors, InvalidRequestError
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.configs import ConfigResourceType
from barnabas.protocol.message import Request as RequestMessage
from barnabas.protocol.message import Response
from barnabas.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from barnabas.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from barnabas.security.acl import CLUSTER_NAME, AclOperation, ResourceType
from barnabas.security.auth_helper import AuthHelper
from barnabas.server.request import Request
from barnabas.server.request_handler_helper import RequestHandlerHelper
from barnabas.server.request_local import RequestLocal

Forward = Callable[[Request, RequestMessage | None, Callable[[Response | None], None]], None]
"""Sends a request, with another body if one is given, to the controller, and calls back with the response. It is None
if the controller does not support this version; the client's connection must then be closed."""

_RESOURCES: Final[Mapping[int, tuple[ResourceType, Errors]]] = {
    ConfigResourceType.TOPIC: (ResourceType.TOPIC, Errors.TOPIC_AUTHORIZATION_FAILED),
    ConfigResourceType.GROUP: (ResourceType.GROUP, Errors.GROUP_AUTHORIZATION_FAILED),
    ConfigResourceType.BROKER: (ResourceType.CLUSTER, Errors.CLUSTER_AUTHORIZATION_FAILED),
    ConfigResourceType.BROKER_LOGGER: (ResourceType.CLUSTER, Errors.CLUSTER_AUTHORIZATION_FAILED),
    ConfigResourceType.CLIENT_METRICS: (ResourceType.CLUSTER, Errors.CLUSTER_AUTHORIZATION_FAILED),
}
"""The ACL resource that each config resource type needs permission on, and the error if it is denied."""


def describe_authorized(request: Request, auth: AuthHelper, describer: ConfigHelper) -> list[DescribeConfigsResult]:
    """Returns the results of a DescribeConfigs request, with errors for resources that the client may not see."""
    body = request.body
    assert isinstance(body, DescribeConfigsRequest)
    allowed: list[DescribeConfigsResource] = []
    denied: list[DescribeConfigsResult] = []
    # One result per resource, even if it is named repeatedly: the description of a broker is 30 KB.
    distinct = {(resource.resource_type, resource.resource_name): resource for resource in body.resources}
    for resource in distinct.values():
        if resource.resource_type not in _RESOURCES:
            raise InvalidRequestError(
                f"The resource {resource.resource_name!r} is of a type that has no configuration: "
                f"{resource.resource_type}."
            )
        resource_type, error = _RESOURCES[resource.resource_type]
        name = CLUSTER_NAME if resource_type is ResourceType.CLUSTER else resource.resource_name
        if auth.authorize(request.request_context, AclOperation.DESCRIBE_CONFIGS, resource_type, name):
            allowed.append(resource)
        else:
            denied.append(
                DescribeConfigsResult(
                    error_code=error,
                    error_message=error.message,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
            )
    results = describer.describe(
        allowed, include_synonyms=body.include_synonyms, include_documentation=body.include_documentation
    )
    return [*results, *denied]


class ConfigsHandler:
    """Describes and changes configurations."""

    def __init__(
        self,
        helper: RequestHandlerHelper,
        auth: AuthHelper,
        cache: MetadataCache,
        describer: ConfigHelper,
        admin: ConfigAdminManager,
        forward: Forward,
    ) -> None:
        self._helper = helper
        self._auth = auth
        self._cache = cache
        self._describer = describer
        self._admin = admin
        self._forward = forward

    # -- describing

    def describe_configs(self, request: Request, local: RequestLocal) -> None:  # noqa: ARG002
        results = describe_authorized(request, self._auth, self._describer)
        self._helper.send_response_maybe_throttle(
            request, lambda ms: DescribeConfigsResponse(throttle_time_ms=ms, results=results)
        )

    # -- altering

    def incremental_alter_configs(self, request: Request, local: RequestLocal) -> None:  # noqa: ARG002
        body = request.body
        assert isinstance(body, IncrementalAlterConfigsRequest)
        preprocessed = self._admin.preprocess_incremental(body, lambda: self._may_alter_cluster(request))
        remaining = [resource for index, resource in enumerate(body.resources) if index not in preprocessed]

        rest = IncrementalAlterConfigsRequest(resources=remaining, validate_only=body.validate_only)
        self._forward_rest(request, rest, preprocessed, IncrementalAlterConfigsResponse)

    def alter_configs(self, request: Request, local: RequestLocal) -> None:  # noqa: ARG002
        body = request.body
        assert isinstance(body, AlterConfigsRequest)
        preprocessed = self._admin.preprocess_legacy(body)
        remaining = [resource for index, resource in enumerate(body.resources) if index not in preprocessed]

        rest = AlterConfigsRequest(resources=remaining, validate_only=body.validate_only)
        self._forward_rest(request, rest, preprocessed, AlterConfigsResponse)

    def _forward_rest(
        self,
        request: Request,
        rest: AlterConfigsRequest | IncrementalAlterConfigsRequest,
        preprocessed: Mapping[int, ResourceResult],
        response_class: type[AlterConfigsResponse | IncrementalAlterConfigsResponse],
    ) -> None:
        """Forwards the resources that this broker has not processed, and responds with the results of all."""
        resources: list[Any] = request.body.resources  # type: ignore[attr-defined]

        def respond(response: Response | None) -> None:
            if not isinstance(response, response_class):
                self._helper.channel.close_connection(request, {})
                return
            results: list[ResourceResult] = reassembled(resources, preprocessed, response.responses)
            responses = [
                AlterConfigsResourceResponse(
                    error_code=result.error,
                    error_message=result.message,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
                for resource, result in zip(resources, results, strict=True)
            ]
            self._helper.send_response_maybe_throttle(
                request, lambda ms: response_class(throttle_time_ms=ms, responses=responses)
            )

        if rest.resources:
            self._forward(request, rest, respond)
        else:
            respond(response_class())

    def _may_alter_cluster(self, request: Request) -> bool:
        return self._auth.authorize(
            request.request_context, AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME
        )

    # -- listing

    def list_config_resources(self, request: Request, local: RequestLocal) -> None:  # noqa: ARG002
        body = request.body
        assert isinstance(body, ListConfigResourcesRequest)
        self._auth.authorize_cluster_operation(request.request_context, AclOperation.DESCRIBE_CONFIGS)
        supported = {int(ConfigResourceType.CLIENT_METRICS)} if request.api_version == 0 else set(ConfigResourceType)
        kinds = body.resource_types or sorted(supported)
        if supported.issuperset(kinds):
            error, found = Errors.NONE, self._resources(set(kinds), request.context.listener_name)
        else:
            error, found = Errors.UNSUPPORTED_VERSION, []
        self._helper.send_response_maybe_throttle(
            request,
            lambda ms: ListConfigResourcesResponse(throttle_time_ms=ms, error_code=error, config_resources=found),
        )

    def _resources(self, kinds: set[int], listener: str) -> list[ConfigResource]:
        image = self._cache.image
        found: list[tuple[int, str]] = []
        for kind in (ConfigResourceType.GROUP, ConfigResourceType.CLIENT_METRICS):
            if kind in kinds:
                # Listed from their configs: a resource of these types without configs does not exist.
                found += sorted((kind, resource.name) for resource in image.configs.resources if resource.type == kind)
        for kind in (ConfigResourceType.BROKER_LOGGER, ConfigResourceType.BROKER):
            if kind in kinds:
                # Including fenced brokers: those are the ones an operator wants to inspect.
                brokers = sorted(image.cluster.brokers.items())
                found += [(kind, str(number)) for number, broker in brokers if broker.node(listener) is not None]
        if ConfigResourceType.TOPIC in kinds:
            found += [(ConfigResourceType.TOPIC, topic) for topic in self._cache.all_topics]
        return [ConfigResource(resource_type=kind, resource_name=name) for kind, name in found]
