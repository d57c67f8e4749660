"""ACLs. Brokers without an authorizer refuse all of this with SECURITY_DISABLED."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.clients.admin.internals.admin_api_driver import error_of
from barnabas.clients.admin.internals.node_choice import ANY, CONTROLLER
from barnabas.clients.admin.internals.operation import Operation
from barnabas.clients.admin.results import Results
from barnabas.common.errors import ApiError, UnknownServerError, raise_for_code
from barnabas.protocol.messages import create_acls as create_api
from barnabas.protocol.messages import delete_acls as delete_api
from barnabas.protocol.messages import describe_acls as describe_api
from barnabas.security.acl import AclBinding, AclBindingFilter


async def describe_acls(operation: Operation, acl_filter: AclBindingFilter | None = None) -> list[AclBinding]:
    """Returns all ACLs, or those that match a filter."""
    wanted = AclBindingFilter() if acl_filter is None else acl_filter
    request = describe_api.DescribeAclsRequest(
        resource_type_filter=wanted.pattern_filter.resource_type,
        resource_name_filter=wanted.pattern_filter.name,
        pattern_type_filter=wanted.pattern_filter.pattern_type,
        principal_filter=wanted.entry_filter.principal,
        host_filter=wanted.entry_filter.host,
        operation=wanted.entry_filter.operation,
        permission_type=wanted.entry_filter.permission_type,
    )

    def read(response: describe_api.DescribeAclsResponse) -> list[AclBinding]:
        raise_for_code(response.error_code, response.error_message)
        return [
            AclBinding.from_codes(
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                pattern_type=resource.pattern_type,
                principal=row.principal,
                host=row.host,
                operation=row.operation,
                permission_type=row.permission_type,
            )
            for resource in response.resources
            for row in resource.acls
        ]

    return await operation.ask(ANY, request, read)


async def create_acls(
    operation: Operation, acls: Iterable[AclBinding], *, partial: bool = False
) -> Results[AclBinding, None]:
    """Creates ACLs; existing ones stay."""
    wanted = list(dict.fromkeys(acls))
    request = create_api.CreateAclsRequest(
        creations=[
            create_api.AclCreation(
                resource_type=one.pattern.resource_type,
                resource_name=one.pattern.name,
                resource_pattern_type=one.pattern.pattern_type,
                principal=one.entry.principal,
                host=one.entry.host,
                operation=one.entry.operation,
                permission_type=one.entry.permission_type,
            )
            for one in wanted
        ]
    )

    def read(response: create_api.CreateAclsResponse) -> Results[AclBinding, None]:
        if len(response.results) != len(wanted):
            raise UnknownServerError(f"There are {len(response.results)} responses for {len(wanted)} ACLs.")
        failed = {
            one: error
            for one, row in zip(wanted, response.results, strict=True)
            if (error := error_of(row.error_code, row.error_message)) is not None
        }
        return Results({one: None for one in wanted if one not in failed}, failed)

    return (await operation.ask(CONTROLLER, request, read)).checked(partial)


async def delete_acls(
    operation: Operation, filters: Iterable[AclBindingFilter], *, partial: bool = False
) -> Results[AclBindingFilter, list[AclBinding]]:
    """Deletes the ACLs that match the filters; returns them."""
    wanted = list(dict.fromkeys(filters))
    request = delete_api.DeleteAclsRequest(
        filters=[
            delete_api.DeleteAclsFilter(
                resource_type_filter=one.pattern_filter.resource_type,
                resource_name_filter=one.pattern_filter.name,
                pattern_type_filter=one.pattern_filter.pattern_type,
                principal_filter=one.entry_filter.principal,
                host_filter=one.entry_filter.host,
                operation=one.entry_filter.operation,
                permission_type=one.entry_filter.permission_type,
            )
            for one in wanted
        ]
    )

    def read(response: delete_api.DeleteAclsResponse) -> Results[AclBindingFilter, list[AclBinding]]:
        if len(response.filter_results) != len(wanted):
            raise UnknownServerError(f"There are {len(response.filter_results)} responses for {len(wanted)} filters.")
        deleted: dict[AclBindingFilter, list[AclBinding]] = {}
        failed: dict[AclBindingFilter, ApiError] = {}
        for one, result in zip(wanted, response.filter_results, strict=True):
            error = error_of(result.error_code, result.error_message)
            for row in result.matching_acls:
                error = error or error_of(row.error_code, row.error_message)
            if error is not None:
                failed[one] = error
                continue
            deleted[one] = [
                AclBinding.from_codes(
                    resource_type=row.resource_type,
                    resource_name=row.resource_name,
                    pattern_type=row.pattern_type,
                    principal=row.principal,
                    host=row.host,
                    operation=row.operation,
                    permission_type=row.permission_type,
                )
                for row in result.matching_acls
            ]
        return Results(deleted, failed)

    return (await operation.ask(CONTROLLER, request, read)).checked(partial)
