"""The authorization calls of request handlers.

=================================== ===========================================================================
``authorize``                       one resource: yes or no
``filter_by_authorized``            many resources: the names of the allowed ones
``partition_by_authorized``         many resources: the allowed ones and the others
``authorize_by_resource_type``      any resource of a type: yes or no
``authorize_cluster_operation``     the cluster: raises an error that fails the request
``authorized_operations``           one resource: all authorized operations, as a bit field
=================================== ===========================================================================

A client may be authorized for a part of its request. So a denial is the error code of one resource in the response, and
the rest of the request proceeds. Only a missing permission on the cluster fails the whole request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

from barnabas.common.errors import ClusterAuthorizationError
from barnabas.security.acl import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    AclOperation,
    Resource,
    ResourcePattern,
    ResourceType,
    to_bit_field,
)
from barnabas.security.authorizer import ALLOWED, Action, Authorizer
from barnabas.security.request_context import AuthorizableRequestContext

T = TypeVar("T")


class AuthHelper:
    """Calls the authorizer; without one, everything is allowed."""

    __slots__ = ("authorizer",)

    def __init__(self, authorizer: Authorizer | None = None) -> None:
        self.authorizer = authorizer

    def authorize(
        self,
        context: AuthorizableRequestContext,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        log_if_allowed: bool = True,
        log_if_denied: bool = True,
        ref_count: int = 1,
    ) -> bool:
        """Returns whether the request may perform the operation on one resource."""
        if self.authorizer is None:
            return True
        action = Action(operation, ResourcePattern(resource_type, name), ref_count, log_if_allowed, log_if_denied)
        return self.authorizer.authorize(context, [action])[0] is ALLOWED

    def filter_by_authorized(
        self,
        context: AuthorizableRequestContext,
        operation: AclOperation,
        resource_type: ResourceType,
        resources: Iterable[T],
        name_of: Callable[[T], str],
        log_if_allowed: bool = True,
        log_if_denied: bool = True,
    ) -> set[str]:
        """Returns the names of the resources on which the request may perform the operation.

        It calls the authorizer once, with one action per name. The number of resources of a name is its reference
        count. A fetch of 1,000 partitions of three topics has three actions.
        """
        if self.authorizer is None:
            return set(map(name_of, resources))
        names = Counter(map(name_of, resources))
        if not names:
            return set()
        actions = [
            Action(operation, ResourcePattern(resource_type, name), count, log_if_allowed, log_if_denied)
            for name, count in names.items()
        ]
        results = self.authorizer.authorize(context, actions)
        return {name for name, result in zip(names, results, strict=True) if result is ALLOWED}

    def partition_by_authorized(
        self,
        context: AuthorizableRequestContext,
        operation: AclOperation,
        resource_type: ResourceType,
        resources: Iterable[T],
        name_of: Callable[[T], str],
        log_if_allowed: bool = True,
        log_if_denied: bool = True,
    ) -> tuple[list[T], list[T]]:
        """Splits the resources into allowed and denied ones, both in their order."""
        resources = list(resources)
        if self.authorizer is None:
            return resources, []
        names = self.filter_by_authorized(
            context, operation, resource_type, resources, name_of, log_if_allowed, log_if_denied
        )
        allowed: list[T] = []
        denied: list[T] = []
        for resource in resources:
            (allowed if name_of(resource) in names else denied).append(resource)
        return allowed, denied

    def authorize_by_resource_type(
        self, context: AuthorizableRequestContext, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Returns whether the request may perform the operation on any resource of the type."""
        if self.authorizer is None:
            return True
        return self.authorizer.authorize_by_resource_type(context, operation, resource_type) is ALLOWED

    def authorize_cluster_operation(self, context: AuthorizableRequestContext, operation: AclOperation) -> None:
        """Raises :class:`ClusterAuthorizationError` if the request may not perform the operation on the cluster."""
        if not self.authorize(context, operation, ResourceType.CLUSTER, CLUSTER_NAME):
            raise ClusterAuthorizationError(f"{context} requires {operation.title} on the cluster")

    def authorized_operations(self, context: AuthorizableRequestContext, resource: Resource) -> int:
        """Returns the authorized operations of a resource, for Metadata and the Describe APIs.

        It performs no operation, so it is not in the audit log.
        """
        operations = SUPPORTED_OPERATIONS[resource.resource_type]
        if self.authorizer is None:
            return to_bit_field(operations)
        pattern = ResourcePattern(*resource)
        actions = [Action(operation, pattern, 1, False, False) for operation in operations]
        results = self.authorizer.authorize(context, actions)
        return to_bit_field(
            operation for operation, result in zip(operations, results, strict=True) if result is ALLOWED
        )
