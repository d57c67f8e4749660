"""DescribeAcls: returns an authorizer's ACLs in the form of the protocol, for brokers and controllers."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.common.errors import SecurityDisabledError
from barnabas.protocol.messages.delete_acls import DeleteAclsFilter
from barnabas.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from barnabas.security.acl import (
    AccessControlEntryFilter,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from barnabas.security.acl_mutator import validate_filter
from barnabas.security.auth_helper import AuthHelper
from barnabas.security.authorizer import Authorizer


def required_authorizer(auth: AuthHelper) -> Authorizer:
    """Returns the authorizer; raises `SecurityDisabledError` if there is none."""
    if auth.authorizer is None:
        raise SecurityDisabledError("No authorizer is configured on this node.")
    return auth.authorizer


def describe_acls(auth: AuthHelper, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """Returns the ACLs that match a filter."""
    authorizer = required_authorizer(auth)
    wanted = binding_filter(request)
    validate_filter(wanted)
    return DescribeAclsResponse(resources=_by_resource(authorizer.acls(wanted)))


def binding_filter(wanted: DescribeAclsRequest | DeleteAclsFilter) -> AclBindingFilter:
    return AclBindingFilter(
        ResourcePatternFilter(
            ResourceType.from_code(wanted.resource_type_filter),
            wanted.resource_name_filter,
            PatternType.from_code(wanted.pattern_type_filter),
        ),
        AccessControlEntryFilter(
            wanted.principal_filter,
            wanted.host_filter,
            AclOperation.from_code(wanted.operation),
            AclPermissionType.from_code(wanted.permission_type),
        ),
    )


def _by_resource(bindings: Iterable[AclBinding]) -> list[DescribeAclsResource]:
    found: dict[ResourcePattern, list[AclDescription]] = {}
    for binding in bindings:
        entry = binding.entry
        found.setdefault(binding.pattern, []).append(
            AclDescription(
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission_type,
            )
        )
    return [
        DescribeAclsResource(
            resource_type=pattern.resource_type,
            resource_name=pattern.name,
            pattern_type=pattern.pattern_type,
            acls=acls,
        )
        for pattern, acls in found.items()
    ]
