"""How handlers ask: the call shapes of authorization.

=================================== ===========================================================================
``authorize``                       one resource: yes or no
``filter_by_authorized``            many resources: the names of those that are allowed
``partition_by_authorized``         many resources: the allowed ones and the others
``authorize_by_resource_type``      any resource of a type: yes or no
``authorize_cluster_operation``     the cluster: nothing, or an error that ends the request
``authorized_operations``           one resource: all that the client may do to it, as a bit field
=================================== ===========================================================================

A client may be allowed a part of what it asks for. So a denial is the error code of one resource in the answer, and the
rest of the request goes ahead; only what needs a right on the cluster as a whole fails as a whole.
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
    """Asks the authorizer; without one, everything is allowed."""

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
        """Whether the request may do that to one resource."""
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
        """The names, among those of the resources, to which the request may do that.

        The authorizer is called once, and asked once about each name, however many resources have it; how many do is
        the reference count. A fetch of 1,000 partitions of three topics is three questions.
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
        """The resources to which the request may do that, and the others, both in their order."""
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
        """Whether the request may do that to some resource of the type, whichever."""
        if self.authorizer is None:
            return True
        return self.authorizer.authorize_by_resource_type(context, operation, resource_type) is ALLOWED

    def authorize_cluster_operation(self, context: AuthorizableRequestContext, operation: AclOperation) -> None:
        """Raises :class:`ClusterAuthorizationError` if the request may not do that to the cluster."""
        if not self.authorize(context, operation, ResourceType.CLUSTER, CLUSTER_NAME):
            raise ClusterAuthorizationError(f"{context} needs the permission {operation.title} on the cluster")

    def authorized_operations(self, context: AuthorizableRequestContext, resource: Resource) -> int:
        """What the client may do to a resource, of all that can be done to one; for Metadata and the Describe APIs.

        Nothing is done by this, so it leaves no trace in the audit log.
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
