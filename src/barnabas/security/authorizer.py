"""The authorizer: the plug-in that authorizes requests.

A broker calls it for every resource of a request. So :meth:`Authorizer.authorize` decides from memory, takes all
actions of a request at once, and is called by many threads. Rules are loaded on another thread. Until they are loaded a
listener does not open: :meth:`Authorizer.start` returns a future for each.

An authorizer without its own ACLs (for example one that uses a directory service) rejects changes of ACLs.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from barnabas.common.dataclass import dataclass
from barnabas.common.errors import ApiError, RetriableError, SecurityDisabledError
from barnabas.network.server.endpoint import Endpoint
from barnabas.security.acl import (
    WILDCARD,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from barnabas.security.audit_log import AuditLog
from barnabas.security.client_host import canonical_host
from barnabas.security.principal import WILDCARD_PRINCIPAL
from barnabas.security.request_context import AuthorizableRequestContext

T = TypeVar("T")


class AuthorizationResult(Enum):
    ALLOWED = "ALLOWED"
    DENIED = "DENIED"


ALLOWED: Final = AuthorizationResult.ALLOWED
DENIED: Final = AuthorizationResult.DENIED


class AuthorizerNotReadyError(RetriableError):
    """The rules are not loaded yet."""


class Action(NamedTuple):
    """Asks whether the request may perform an operation on a resource."""

    operation: AclOperation
    resource_pattern: ResourcePattern
    """A literal pattern: the resource itself."""
    resource_reference_count: int = 1
    """How often the request refers to the resource: 12 partitions of a topic are one action with 12 references."""
    log_if_allowed: bool = True
    """False if the resource is not accessed, as when a client asks for its authorized operations."""
    log_if_denied: bool = True
    """False if the client did not ask for this resource, or if another permission suffices as well."""


@dataclass(frozen=True, slots=True)
class AuthorizerServerInfo:
    """Describes the node to its authorizer."""

    cluster_id: str
    node_id: int
    endpoints: Sequence[Endpoint]
    inter_broker_endpoint: Endpoint | None = None
    early_start_listeners: Collection[str] = ()
    """Listeners that open before the rules are loaded, because the rules arrive over them: the controllers' ones."""


@dataclass(frozen=True, slots=True)
class AclCreateResult:
    """The error is None if the ACL exists now, even if it existed before."""

    error: ApiError | None = None


@dataclass(frozen=True, slots=True)
class AclBindingDeleteResult:
    binding: AclBinding
    error: ApiError | None = None


@dataclass(frozen=True, slots=True)
class AclDeleteResult:
    """The result of one filter: an error, or the matching ACLs."""

    deleted: Sequence[AclBindingDeleteResult] = ()
    error: ApiError | None = None


class Authorizer(Protocol):
    """The interface of authorizers. All methods may be called from any thread.

    A derived class inherits :meth:`authorize_by_resource_type`, computed from its ACLs, and empty default methods.
    """

    def configure(self, configs: Mapping[str, Any]) -> None:  # noqa: ARG002 - for authorizers with settings
        """Receives the settings of the broker before any other call."""
        return  # tells type checkers that this method is not abstract

    @abstractmethod
    def start(self, server_info: AuthorizerServerInfo) -> Mapping[str, Future[None]]:
        """Starts to load the rules. The futures by listener name complete when requests can be authorized there."""

    @abstractmethod
    def authorize(self, context: AuthorizableRequestContext, actions: Sequence[Action]) -> list[AuthorizationResult]:
        """Decides each action of a request, in order."""

    def authorize_by_resource_type(
        self, context: AuthorizableRequestContext, operation: AclOperation, resource_type: ResourceType
    ) -> AuthorizationResult:
        """Returns whether the client may perform the operation on any resource of the type, existing or not.

        An idempotent producer only needs permission to write to some topic. This scans all ACLs; an authorizer with an
        index should override it.
        """
        check_by_resource_type(operation, resource_type)
        if self.authorize(context, [probe(operation, resource_type)]) == [ALLOWED]:
            return ALLOWED
        principals = {str(context.principal), str(WILDCARD_PRINCIPAL)}
        hosts = {canonical_host(context.client_address), WILDCARD}
        of_type = AclBindingFilter(ResourcePatternFilter(resource_type))
        return any_resource_allowed(
            binding
            for binding in self.acls(of_type)
            if binding.entry.principal in principals
            and canonical_host(binding.entry.host) in hosts
            and binding.entry.operation in {operation, AclOperation.ALL}
        )

    @abstractmethod
    def acls(self, acl_filter: AclBindingFilter) -> Iterable[AclBinding]:
        """Returns the matching ACLs."""

    def acl_count(self) -> int:
        """Returns the number of ACLs for metrics; -1 if it is unknown."""
        return -1

    @abstractmethod
    def create_acls(
        self, context: AuthorizableRequestContext, bindings: Sequence[AclBinding]
    ) -> list[Future[AclCreateResult]]:
        """Creates ACLs. A future completes when its ACL is in force; a failure does not affect the others."""

    @abstractmethod
    def delete_acls(
        self, context: AuthorizableRequestContext, filters: Sequence[AclBindingFilter]
    ) -> list[Future[AclDeleteResult]]:
        """Deletes the ACLs that match, separately for each filter."""

    def close(self) -> None:
        """Releases everything that :meth:`configure` and :meth:`start` have created."""
        return


def check_by_resource_type(operation: AclOperation, resource_type: ResourceType) -> None:
    """Raises ValueError for values that are only valid in filters."""
    if operation in {AclOperation.ANY, AclOperation.UNKNOWN}:
        raise ValueError(f"{operation.name} is not an operation of a request")
    if resource_type in {ResourceType.ANY, ResourceType.UNKNOWN}:
        raise ValueError(f"{resource_type.name} is not the type of a resource")


def probe(operation: AclOperation, resource_type: ResourceType) -> Action:
    """Returns an action on a resource with an invented name.

    If it is allowed (to a super user, by an ACL for all names, or because no ACL exists), some resource is allowed. The
    name is the same as Kafka's, so that a resource that happens to have it is treated alike by both.
    """
    return Action(operation, ResourcePattern(resource_type, "hardcode"), 0, log_if_denied=False)


def any_resource_allowed(bindings: Iterable[AclBinding]) -> AuthorizationResult:
    """Returns whether these ACLs allow any resource. All of them apply to the client, the operation and the type.

    An allowed name or prefix counts unless the same name or a prefix of it is denied. A denial of all names leaves
    nothing.
    """
    names: dict[tuple[AclPermissionType, PatternType], set[str]] = {
        (permission, pattern): set()
        for permission in (AclPermissionType.ALLOW, AclPermissionType.DENY)
        for pattern in (PatternType.LITERAL, PatternType.PREFIXED)
    }
    for binding in bindings:
        found = names.get((binding.entry.permission_type, binding.pattern.pattern_type))
        if found is not None:
            found.add(binding.pattern.name)
    allowed = names[AclPermissionType.ALLOW, PatternType.LITERAL]
    denied = names[AclPermissionType.DENY, PatternType.LITERAL]
    denied_prefixes = names[AclPermissionType.DENY, PatternType.PREFIXED]
    if WILDCARD in denied:
        return DENIED
    if WILDCARD in allowed:
        return ALLOWED
    for name in (allowed - denied) | names[AclPermissionType.ALLOW, PatternType.PREFIXED]:
        if not any(name[:length] in denied_prefixes for length in range(1, len(name) + 1)):
            return ALLOWED
    return DENIED


class AllowAllAuthorizer(Authorizer):
    """Allows everything, and writes the audit log. It has no ACLs, and none can be created."""

    def __init__(self, audit: AuditLog | None = None) -> None:
        self._audit = audit or AuditLog()

    def start(self, server_info: AuthorizerServerInfo) -> Mapping[str, Future[None]]:
        return {endpoint.listener_name: done(None) for endpoint in server_info.endpoints}

    def authorize(self, context: AuthorizableRequestContext, actions: Sequence[Action]) -> list[AuthorizationResult]:
        for action in actions:
            self._audit.record(context, action, True, str, "everything is allowed")
        return [ALLOWED] * len(actions)

    def authorize_by_resource_type(
        self,
        context: AuthorizableRequestContext,  # noqa: ARG002 - any client
        operation: AclOperation,
        resource_type: ResourceType,
    ) -> AuthorizationResult:
        check_by_resource_type(operation, resource_type)
        return ALLOWED

    def acls(self, acl_filter: AclBindingFilter) -> Iterable[AclBinding]:  # noqa: ARG002 - there are none
        return ()

    def acl_count(self) -> int:
        return 0

    def create_acls(
        self,
        context: AuthorizableRequestContext,  # noqa: ARG002 - any client
        bindings: Sequence[AclBinding],
    ) -> list[Future[AclCreateResult]]:
        return [done(AclCreateResult(_disabled())) for _ in bindings]

    def delete_acls(
        self,
        context: AuthorizableRequestContext,  # noqa: ARG002 - any client
        filters: Sequence[AclBindingFilter],
    ) -> list[Future[AclDeleteResult]]:
        return [done(AclDeleteResult(error=_disabled())) for _ in filters]


def _disabled() -> SecurityDisabledError:
    return SecurityDisabledError("no authorizer is configured: set authorizer.class.name to use ACLs")


def done(result: T) -> Future[T]:
    """Returns a completed future."""
    future: Future[T] = Future()
    future.set_result(result)
    return future
