"""DescribeCluster (v0-2) and UpdateFeatures (v0-2) on a controller.

DescribeCluster reports the controllers and the active one to tools that talk to the controllers directly (KIP-919). It
needs Alter on the cluster, more than on a broker, because its clients administer the cluster. The request must be for
controllers (endpoint type 2). A request for brokers fails with MISMATCHED_ENDPOINT_TYPE, or with INVALID_REQUEST in v0,
which has no endpoint types.

UpdateFeatures raises or lowers the finalized feature levels, all features of a request or none. It needs Alter on the
cluster.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.common.errors import Errors, UnsupportedVersionError
from barnabas.controller.handlers.backend import Backend
from barnabas.metadata.cluster_responses import BROKER_ENDPOINTS, CONTROLLER_ENDPOINTS, NO_CONTROLLER_ID
from barnabas.metadata.image import MetadataImage
from barnabas.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from barnabas.protocol.messages.update_features import UpdateFeaturesRequest
from barnabas.security.acl import CLUSTER, CLUSTER_NAME, AclOperation, ResourceType
from barnabas.server.request import Request
from barnabas.server.request_local import RequestLocal


class ControllerClusterHandler:
    """Serves the cluster's metadata from the controllers' view."""

    def __init__(
        self,
        backend: Backend,
        cluster_id: str,
        image: Callable[[], MetadataImage],
        leader_id: Callable[[], int | None],
    ) -> None:
        self._backend = backend
        self._controller = backend.controller
        self._cluster_id = cluster_id
        self._image = image
        self._leader_id = leader_id

    def describe_cluster(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, DescribeClusterRequest)
        image = self._image()
        version = image.features.metadata_version
        if version is None or not version.supports_controller_registration:
            raise UnsupportedVersionError("The cluster's metadata.version does not support controller registration.")
        self._backend.authorize_cluster(request, AclOperation.ALTER)
        response = _wrong_endpoint(body, request.api_version)
        if response is None:
            response = self._describe(image, request, body)
        self._backend.send(request, response)

    def _describe(
        self, image: MetadataImage, request: Request, body: DescribeClusterRequest
    ) -> DescribeClusterResponse:
        nodes = [
            node
            for _, controller in sorted(image.cluster.controllers.items())
            if (node := controller.node(request.context.listener_name)) is not None
        ]
        # A client could not find a leader that is not registered yet.
        leader_id = self._leader_id()
        if leader_id is None or all(node.id != leader_id for node in nodes):
            leader_id = NO_CONTROLLER_ID
        response = DescribeClusterResponse(
            endpoint_type=CONTROLLER_ENDPOINTS,
            cluster_id=self._cluster_id,
            controller_id=leader_id,
            brokers=[DescribeClusterBroker(broker_id=node.id, host=node.host, port=node.port) for node in nodes],
        )
        if body.include_cluster_authorized_operations:
            context, auth = request.request_context, self._backend.auth
            may_describe = auth.authorize(context, AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
            response.cluster_authorized_operations = auth.authorized_operations(context, CLUSTER) if may_describe else 0
        return response

    def update_features(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, UpdateFeaturesRequest)
        self._backend.authorize_cluster(request, AclOperation.ALTER)
        # No deadline: `timeout_ms` limits the client's wait, and the update may be done later.
        self._backend.respond(request, self._controller.update_features(self._backend.context(request), body))


def _wrong_endpoint(body: DescribeClusterRequest, version: int) -> DescribeClusterResponse | None:
    if body.endpoint_type == CONTROLLER_ENDPOINTS:
        return None
    if body.endpoint_type == BROKER_ENDPOINTS:
        error = Errors.MISMATCHED_ENDPOINT_TYPE
        message = "the request is for brokers, but this is an endpoint of controllers"
    else:
        error = Errors.UNSUPPORTED_ENDPOINT_TYPE
        message = f"unknown endpoint type {body.endpoint_type}"
    return DescribeClusterResponse(error_code=Errors.INVALID_REQUEST if version == 0 else error, error_message=message)
