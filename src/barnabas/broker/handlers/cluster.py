"""DescribeCluster (v0-2), DescribeClientQuotas (v0-1) and DescribeUserScramCredentials (v0): what the cluster consists
of, and what its clients may use.

All from the metadata cache. DescribeCluster gives the brokers with the addresses of the listener that the request came
over; anybody may ask. Quotas are settings, so they need DescribeConfigs on the cluster; who has a password is for those
with Describe.
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
    """Tells clients about the cluster."""

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
        """Raises if the client may not do that on the cluster."""
        if not self._auth.authorize(request.request_context, operation, ResourceType.CLUSTER, CLUSTER_NAME):
            raise ClusterAuthorizationError(Errors.CLUSTER_AUTHORIZATION_FAILED.message)
