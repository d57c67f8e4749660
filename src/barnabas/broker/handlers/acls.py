"""DescribeAcls (v1-3).

The broker's authorizer lists the ACLs that it has read from the metadata; the controller changes ACLs (see
:mod:`barnabas.broker.handlers.forwarded`). Needs Describe on the cluster; SECURITY_DISABLED without an authorizer.
"""

from __future__ import annotations

from barnabas.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from barnabas.security.acl import AclOperation
from barnabas.security.acl_responses import describe_acls
from barnabas.security.auth_helper import AuthHelper
from barnabas.server.request import Request
from barnabas.server.request_handler_helper import RequestHandlerHelper
from barnabas.server.request_local import RequestLocal


class AclsHandler:
    """Describes the ACLs that this broker applies."""

    def __init__(self, helper: RequestHandlerHelper, auth: AuthHelper) -> None:
        self._helper = helper
        self._auth = auth

    def describe_acls(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, DescribeAclsRequest)
        self._auth.authorize_cluster_operation(request.request_context, AclOperation.DESCRIBE)
        response = describe_acls(self._auth, body)

        def create(throttle_ms: int) -> DescribeAclsResponse:
            response.throttle_time_ms = throttle_ms
            return response

        self._helper.send_response_maybe_throttle(request, create)
