"""DescribeCluster (v0-2), DescribeClientQuotas (v0-1) and DescribeUserScramCredentials (v0).

All read the metadata cache. DescribeCluster lists the brokers with their addresses on the listener of the request, and
needs no permission. DescribeClientQuotas needs DescribeConfigs on the cluster, because quotas are configs.
DescribeUserScramCredentials needs Describe on the cluster.
"""

from __future__ import annotations

from barnabas.common.errors import ClusterAuthorizationError, Errors
from barnabas.metadata.cache import MetadataCache
from barnabas.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from barnabas.security.acl import CLUSTER_NAME, AclOperation, Resource, ResourceType
from barnabas.security.auth_helper import AuthHelper
from barnabas.server.request import Request
from barnabas.server.request_handler_helper import RequestHandlerHelper
from barnabas.server.request_local import RequestLocal

_CLUSTER = Resource(ResourceType.CLUSTER, CLUSTER_NAME)


class ClusterHandler:
    """Handles requests that describe the cluster, quotas and SCRAM credentials."""

    def __init__(self, helper: RequestHandlerHelper, auth: AuthHelper, cache: MetadataCache, cluster_id: str) -> None:
        self._helper = helper
        self._auth = auth
        self._cache = cache
        self._cluster_id = cluster_id

    def describe_cluster(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, DescribeClusterRequest)
        response = self._cache.describe_cluster(
            body, request.api_version, request.context.listener_name, self._cluster_id
        )
        if body.include_cluster_authorized_operations and not response.error_code:
            context = request.request_context
            may_describe = self._auth.authorize(context, AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
            response.cluster_authorized_operations = (
                self._auth.authorized_operations(context, _CLUSTER) if may_describe else 0
            )

        def create(throttle_ms: int) -> DescribeClusterResponse:
            response.throttle_time_ms = throttle_ms
            return response

        self._helper.send_response_maybe_throttle(request, create)

    def describe_client_quotas(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, DescribeClientQuotasRequest)
        self._authorize(request, AclOperation.DESCRIBE_CONFIGS)
        response = self._cache.describe_client_quotas(body)

        def create(throttle_ms: int) -> DescribeClientQuotasResponse:
            response.throttle_time_ms = throttle_ms
            return response

        self._helper.send_response_maybe_throttle(request, create)

    def describe_user_scram_credentials(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, DescribeUserScramCredentialsRequest)
        self._authorize(request, AclOperation.DESCRIBE)
        response = self._cache.describe_scram_credentials(body)

        def create(throttle_ms: int) -> DescribeUserScramCredentialsResponse:
            response.throttle_time_ms = throttle_ms
            return response

        self._helper.send_response_maybe_throttle(request, create)

    def _authorize(self, request: Request, operation: AclOperation) -> None:
        """Raises an error if the client may not perform the operation on the cluster."""
        if not self._auth.authorize(request.request_context, operation, ResourceType.CLUSTER, CLUSTER_NAME):
            raise ClusterAuthorizationError(Errors.CLUSTER_AUTHORIZATION_FAILED.message)
