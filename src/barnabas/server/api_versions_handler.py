"""ApiVersions (v0-5, and all future versions): lists the API versions of this broker or controller (R03).

It is the first request on nearly every connection, so clients of every version must get a response. An unknown version
gets a version 0 body with UNSUPPORTED_VERSION and the versions of ApiVersions itself; the client picks one and retries.
It needs no permission.

From v3 on, a client sends its software name and version; one with characters other than letters, digits, dots and
hyphens is INVALID_REQUEST. From v5 on, it sends the cluster id and node id that it expects, both or neither. If they
do not match, an address has been reassigned, and REBOOTSTRAP_REQUIRED sends the client back to its bootstrap servers
before it can do harm to the wrong cluster (KIP-1242).

Barnabas clients on this machine are also offered a socket that is not TCP (`transport.local.offer`).

``zk_migration_ready`` is a remnant of the ZooKeeper migration, and always false.
"""

from __future__ import annotations

from typing import Final, Protocol

from barnabas.common.errors import (
    ApiError,
    InvalidRequestError,
    RebootstrapRequiredError,
    UnsupportedVersionError,
)
from barnabas.network.client.client_config import SOFTWARE_NAME
from barnabas.network.transport.local.offer import (
    FIRST_VERSION_WITH_TAGS,
    LocalSocketOffer,
    say_references,
    says_references,
)
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.api_versions import SOFTWARE, ApiVersionsRequest, ApiVersionsResponse
from barnabas.server.request import Request
from barnabas.server.request_handler_helper import RequestHandlerHelper
from barnabas.server.request_local import RequestLocal

_FIRST_WITH_SOFTWARE: Final = 3
_FIRST_WITH_CLUSTER: Final = 5
_NO_NODE_ID: Final = -1


class SpokenVersions(Protocol):
    """The API versions of a node, and the features of its cluster."""

    def api_versions_response(self, throttle_time_ms: int, version: int) -> ApiVersionsResponse:
        """Returns the response to a request of this version."""
        ...


class ApiVersionsHandler:
    """Handles ApiVersions requests of clients and other nodes."""

    def __init__(self, helper: RequestHandlerHelper, versions: SpokenVersions, cluster_id: str, node_id: int) -> None:
        self._helper = helper
        self._versions = versions
        self._cluster_id = cluster_id
        self._node_id = node_id

    def api_versions(self, request: Request, _local: RequestLocal) -> None:
        version = request.api_version
        error = self._objection(request)
        if error is None:
            offer = self._local_socket_for(request)
            assert isinstance(request.body, ApiVersionsRequest)
            refers = request.context.refers and says_references(request.body)

            def respond(throttle_ms: int) -> ApiVersionsResponse:
                response = self._versions.api_versions_response(throttle_ms, version)
                if offer is not None:
                    offer.put_into(response)
                if refers:
                    say_references(response)
                return response

            self._helper.send_response_maybe_throttle(request, respond)
            return
        if isinstance(error, UnsupportedVersionError):
            # The response has the version of the request, so that is set to 0: every client can read v0.
            request.api_version = 0
        self._helper.send_error_response_maybe_throttle(request, error)

    @staticmethod
    def _local_socket_for(request: Request) -> LocalSocketOffer | None:
        """Returns the local socket for a client on this machine; only Barnabas clients support it."""
        context = request.context
        ours = request.api_version >= FIRST_VERSION_WITH_TAGS and context.client_software_name == SOFTWARE_NAME
        return context.local_socket if ours else None

    def _objection(self, request: Request) -> ApiError | None:
        version = request.api_version
        if version not in ApiKey.API_VERSIONS.versions:
            return UnsupportedVersionError()
        body = request.body
        assert isinstance(body, ApiVersionsRequest)
        if version >= _FIRST_WITH_SOFTWARE and not (
            SOFTWARE.fullmatch(body.client_software_name) and SOFTWARE.fullmatch(body.client_software_version)
        ):
            return InvalidRequestError("The client's software has no proper name or version.")
        if version >= _FIRST_WITH_CLUSTER:
            if (body.cluster_id is None) != (body.node_id == _NO_NODE_ID):
                return InvalidRequestError("A cluster without a node, or a node without a cluster.")
            if body.cluster_id is not None and (body.cluster_id, body.node_id) != (self._cluster_id, self._node_id):
                return RebootstrapRequiredError()
        if version >= _FIRST_WITH_SOFTWARE:
            request.context.client_software_name = body.client_software_name
            request.context.client_software_version = body.client_software_version
        return None
