"""The `AclMutator` of a cluster: the controller writes ACL changes to the metadata log."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from barnabas.common.errors import Errors
from barnabas.controller.handlers.future_steps import mapped
from barnabas.controller.quorum_controller import QuorumController
from barnabas.controller.request_context import ControllerRequestContext
from barnabas.security.acl import AclBinding, AclBindingFilter
from barnabas.security.authorizer import AclBindingDeleteResult, AclCreateResult, AclDeleteResult
from barnabas.security.request_context import AuthorizableRequestContext

if TYPE_CHECKING:
    from barnabas.protocol.messages.create_acls import AclCreation, CreateAclsResponse
    from barnabas.protocol.messages.delete_acls import (
        DeleteAclsFilter,
        DeleteAclsFilterResult,
        DeleteAclsMatchingAcl,
        DeleteAclsResponse,
    )


class ControllerAclMutator:
    """Writes ACL changes through the controller, for an authorizer that learns its ACLs from the metadata.

    A change comes back to its authorizer: the handler of CreateAcls calls the authorizer, which calls this mutator,
    which calls the controller. The next metadata image brings the records to the authorizers of all nodes.
    """

    __slots__ = ("_controller",)

    def __init__(self, controller: QuorumController) -> None:
        self._controller = controller

    def create_acls(
        self, context: AuthorizableRequestContext, bindings: Sequence[AclBinding], /
    ) -> Future[list[AclCreateResult]]:
        from barnabas.protocol.messages.create_acls import CreateAclsRequest

        request = CreateAclsRequest(creations=list(map(_creation, bindings)))
        return mapped(self._controller.create_acls(_context(context), request), _created)

    def delete_acls(
        self, context: AuthorizableRequestContext, filters: Sequence[AclBindingFilter], /
    ) -> Future[list[AclDeleteResult]]:
        from barnabas.protocol.messages.delete_acls import DeleteAclsRequest

        request = DeleteAclsRequest(filters=list(map(_filter, filters)))
        return mapped(self._controller.delete_acls(_context(context), request), _deleted)


def _context(context: AuthorizableRequestContext) -> ControllerRequestContext:
    return ControllerRequestContext(
        principal=str(context.principal), request_version=context.api_version, client_id=context.client_id or ""
    )


def _creation(binding: AclBinding) -> AclCreation:
    from barnabas.protocol.messages.create_acls import AclCreation

    pattern, entry = binding.pattern, binding.entry
    return AclCreation(
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        resource_pattern_type=pattern.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission_type,
    )


def _filter(wanted: AclBindingFilter) -> DeleteAclsFilter:
    from barnabas.protocol.messages.delete_acls import DeleteAclsFilter

    pattern, entry = wanted.pattern_filter, wanted.entry_filter
    return DeleteAclsFilter(
        resource_type_filter=pattern.resource_type,
        resource_name_filter=pattern.name,
        pattern_type_filter=pattern.pattern_type,
        principal_filter=entry.principal,
        host_filter=entry.host,
        operation=entry.operation,
        permission_type=entry.permission_type,
    )


def _created(response: CreateAclsResponse) -> list[AclCreateResult]:
    return [
        AclCreateResult(Errors.for_code(result.error_code).to_exception(result.error_message))
        for result in response.results
    ]


def _deleted(response: DeleteAclsResponse) -> list[AclDeleteResult]:
    return [_deleted_by_filter(result) for result in response.filter_results]


def _deleted_by_filter(result: DeleteAclsFilterResult) -> AclDeleteResult:
    return AclDeleteResult(
        [AclBindingDeleteResult(_binding(acl)) for acl in result.matching_acls],
        Errors.for_code(result.error_code).to_exception(result.error_message),
    )


def _binding(acl: DeleteAclsMatchingAcl) -> AclBinding:
    return AclBinding.from_codes(
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )
