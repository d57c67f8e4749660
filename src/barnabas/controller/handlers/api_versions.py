"""ApiVersions (v0-5, and every version to come) on a controller (R03).

The first request of a broker that connects, so it needs no permission and is answered whatever the version: one that is
not known yet in version 0, with UNSUPPORTED_VERSION and the versions of ApiVersions itself.

A name or version of the client's software that has other than letters, digits, dots and hyphens is INVALID_REQUEST
(v3). A client that means to talk to another node, or to another cluster, is told REBOOTSTRAP_REQUIRED: the address has
changed hands (v5; it says both or neither).
"""

from __future__ import annotations

import re
from typing import Final

from barnabas.common.errors import (
    ApiError,
    InvalidRequestError,
    RebootstrapRequiredError,
    UnsupportedVersionError,
)
from barnabas.controller.controller_api_versions import ControllerApiVersionManager
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.server.dispatch import handles
from barnabas.server.request import Request
from barnabas.server.request_handler_helper import RequestHandlerHelper
from barnabas.server.request_local import RequestLocal

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_FIRST_WITH_SOFTWARE: Final = 3
_FIRST_WITH_CLUSTER: Final = 5
_NO_NODE_ID: Final = -1


class ControllerApiVersionsHandler:
    """Tells brokers what they may ask."""

    def __init__(
        self, helper: RequestHandlerHelper, versions: ControllerApiVersionManager, cluster_id: str, node_id: int
    ) -> None:
        self._helper = helper
        self._versions = versions
        self._cluster_id = cluster_id
        self._node_id = node_id

    @handles(ApiKey.API_VERSIONS)
    def api_versions(self, request: Request, _local: RequestLocal) -> None:
        version = request.api_version
        error = self._objection(request)
        if error is None:
            self._helper.send_response_maybe_throttle(
                request, lambda throttle_ms: self._versions.api_versions_response(throttle_ms, version)
            )
        else:
            if isinstance(error, UnsupportedVersionError):
                request.api_version = 0  # the answer goes out in the version of the request
            self._helper.send_error_response_maybe_throttle(request, error)

    def _objection(self, request: Request) -> ApiError | None:
        version = request.api_version
        if version not in ApiKey.API_VERSIONS.versions:
            return UnsupportedVersionError()
        body = request.body
        assert isinstance(body, ApiVersionsRequest)
        if version >= _FIRST_WITH_SOFTWARE and not (
            _SOFTWARE.fullmatch(body.client_software_name) and _SOFTWARE.fullmatch(body.client_software_version)
        ):
            return InvalidRequestError("The client's software has no proper name or version.")
        if version >= _FIRST_WITH_CLUSTER:
            if (body.cluster_id is None) != (body.node_id == _NO_NODE_ID):
                return InvalidRequestError("A cluster without a node, or a node without a cluster.")
            if body.cluster_id is not None and (body.cluster_id, body.node_id) != (self._cluster_id, self._node_id):
                return RebootstrapRequiredError()
        return None
