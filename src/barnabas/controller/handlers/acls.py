"""DescribeAcls, CreateAcls and DeleteAcls (v1-3).

The authorizer stores the ACLs. Without an authorizer there are none, and every request fails with SECURITY_DISABLED.
Describing ACLs needs Describe on the cluster, changing them Alter.

The response to a change is sent when the change is in force. Each ACL, and each deletion filter, succeeds or fails by
itself.
"""

from __future__ import annotations

from barnabas.common.errors import ApiError, Errors, InvalidRequestError
from barnabas.controller.handlers.backend import Backend
from barnabas.controller.handlers.future_steps import all_of, mapped
from barnabas.protocol.messages import create_acls, delete_acls, describe_acls
from barnabas.security.acl import AclBinding, AclOperation
from barnabas.security.acl_mutator import validate_new_acl
from barnabas.security.acl_responses import binding_filter, required_authorizer
from barnabas.security.acl_responses import describe_acls as describe
from barnabas.security.authorizer import AclBindingDeleteResult, AclCreateResult, AclDeleteResult
from barnabas.server.request import Request
from barnabas.server.request_local import RequestLocal


class AclsHandler:
    """Serves the ACLs of the authorizer."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def describe_acls(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, describe_acls.DescribeAclsRequest)
        self._backend.authorize_cluster(request, AclOperation.DESCRIBE)
        self._backend.send(request, describe(self._backend.auth, body))

    def create_acls(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, create_acls.CreateAclsRequest)
        self._backend.authorize_cluster(request, AclOperation.ALTER)
        authorizer = required_authorizer(self._backend.auth)
        bindings = list(map(_binding, body.creations))
        refused: dict[int, ApiError] = {}
        for index, binding in enumerate(bindings):
            try:
                validate_new_acl(binding)
            except InvalidRequestError as error:
                refused[index] = error
        valid = [binding for index, binding in enumerate(bindings) if index not in refused]
        futures = authorizer.create_acls(request.request_context, valid)

        def response(results: list[AclCreateResult]) -> create_acls.CreateAclsResponse:
            created = iter(results)
            return create_acls.CreateAclsResponse(
                results=[
                    _creation_result(refused[index] if index in refused else next(created).error)
                    for index in range(len(bindings))
                ]
            )

        self._backend.respond(request, mapped(all_of(futures), response))

    def delete_acls(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, delete_acls.DeleteAclsRequest)
        self._backend.authorize_cluster(request, AclOperation.ALTER)
        authorizer = required_authorizer(self._backend.auth)
        futures = authorizer.delete_acls(request.request_context, list(map(binding_filter, body.filters)))

        def response(results: list[AclDeleteResult]) -> delete_acls.DeleteAclsResponse:
            return delete_acls.DeleteAclsResponse(filter_results=list(map(_deletion_result, results)))

        self._backend.respond(request, mapped(all_of(futures), response))


def _binding(creation: create_acls.AclCreation) -> AclBinding:
    return AclBinding.from_codes(
        resource_type=creation.resource_type,
        resource_name=creation.resource_name,
        pattern_type=creation.resource_pattern_type,
        principal=creation.principal,
        host=creation.host,
        operation=creation.operation,
        permission_type=creation.permission_type,
    )


def _fields(error: ApiError | None) -> tuple[int, str | None]:
    return (Errors.NONE, None) if error is None else (Errors.for_exception(error), str(error))


def _creation_result(error: ApiError | None) -> create_acls.AclCreationResult:
    if error is None:
        return create_acls.AclCreationResult()
    code, message = _fields(error)
    return create_acls.AclCreationResult(error_code=code, error_message=message)


def _deletion_result(result: AclDeleteResult) -> delete_acls.DeleteAclsFilterResult:
    code, message = _fields(result.error)
    return delete_acls.DeleteAclsFilterResult(
        error_code=code, error_message=message, matching_acls=list(map(_matching_acl, result.deleted))
    )


def _matching_acl(result: AclBindingDeleteResult) -> delete_acls.DeleteAclsMatchingAcl:
    code, message = _fields(result.error)
    pattern, entry = result.binding.pattern, result.binding.entry
    return delete_acls.DeleteAclsMatchingAcl(
        error_code=code,
        error_message=message,
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission_type,
    )
