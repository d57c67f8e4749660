"""The authorizer: the plug-in that decides who may do what.

A broker asks it for every resource that a request touches. So :meth:`Authorizer.authorize` answers from memory, takes
all questions of a request at once, and is called by many threads; whatever loads the rules does so on a thread of its
own. Until they are loaded a listener does not open: :meth:`Authorizer.start` returns a future for each.

An authorizer that keeps no ACLs of its own (one that asks a directory service, say) refuses to change any.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from enum import Enum
from typing import Any, Final, Protocol, TypeVar

from barnabas.common.dataclass import dataclass
from barnabas.common.errors import ApiError, RetriableError, SecurityDisabledError
from barnabas.common.named_tuple import NamedTuple
from barnabas.network.endpoint import Endpoint
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
    """One question: may this request do that to this resource?"""

    operation: AclOperation
    resource_pattern: ResourcePattern
    """A literal one: the resource itself."""
    resource_reference_count: int = 1
    """How often the request names the resource: 12 partitions of a topic are one question and 12 references."""
    log_if_allowed: bool = True
    """False if nothing is done with the resource even so, as when a client asks what it may do."""
    log_if_denied: bool = True
    """False if the client did not ask for it in particular, or if there is another permission that would do as well."""


@dataclass(frozen=True, slots=True)
class AuthorizerServerInfo:
    """What an authorizer is told about the node it runs in."""

    cluster_id: str
    node_id: int
    endpoints: Sequence[Endpoint]
    inter_broker_endpoint: Endpoint | None = None
    early_start_listeners: Collection[str] = ()
    """Listeners that open before the rules are loaded, as the rules come in over them: those of the controllers."""


@dataclass(frozen=True, slots=True)
class AclCreateResult:
    """The error is None for an ACL that is there now, even if it was there before."""

    error: ApiError | None = None


@dataclass(frozen=True, slots=True)
class AclBindingDeleteResult:
    binding: AclBinding
    error: ApiError | None = None


@dataclass(frozen=True, slots=True)
class AclDeleteResult:
    """What came of one filter: an error, or what it matched."""

    deleted: Sequence[AclBindingDeleteResult] = ()
    error: ApiError | None = None


class Authorizer(Protocol):
    """What a broker wants of an authorizer. All of it may be called from any thread.

    A class that derives from this gets :meth:`authorize_by_resource_type`, worked out from its ACLs, and the methods
    that have nothing to do.
    """

    def configure(self, configs: Mapping[str, Any]) -> None:  # noqa: ARG002 - for those who have settings
        """Gets the settings of the broker, before anything else is called."""
        return  # which tells a type checker that nothing is left to implement

    @abstractmethod
    def start(self, server_info: AuthorizerServerInfo) -> Mapping[str, Future[None]]:
        """Begins to load the rules. The futures, by listener name, are done when requests can be decided there."""

    @abstractmethod
    def authorize(self, context: AuthorizableRequestContext, actions: Sequence[Action]) -> list[AuthorizationResult]:
        """Answers each question of a request, in their order."""

    def authorize_by_resource_type(
        self, context: AuthorizableRequestContext, operation: AclOperation, resource_type: ResourceType
    ) -> AuthorizationResult:
        """Whether there is any resource of the type, existing or not, to which the client may do that.

        An idempotent producer needs no more than that it may write to some topic. This goes through all ACLs; an
        authorizer that can look them up should do so instead.
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
        """The ACLs that match, as of now."""

    def acl_count(self) -> int:
        """How many ACLs there are, for the metrics; -1 if that cannot be said."""
        return -1

    @abstractmethod
    def create_acls(
        self, context: AuthorizableRequestContext, bindings: Sequence[AclBinding]
    ) -> list[Future[AclCreateResult]]:
        """Adds ACLs. A future is done when its ACL is in force; one that fails does not keep the others from it."""

    @abstractmethod
    def delete_acls(
        self, context: AuthorizableRequestContext, filters: Sequence[AclBindingFilter]
    ) -> list[Future[AclDeleteResult]]:
        """Removes the ACLs that match, for each filter by itself."""

    def close(self) -> None:
        """Ends what :meth:`configure` and :meth:`start` have begun."""
        return


def check_by_resource_type(operation: AclOperation, resource_type: ResourceType) -> None:
    """Raises ValueError for what only has a meaning in a filter."""
    if operation in {AclOperation.ANY, AclOperation.UNKNOWN}:
        raise ValueError(f"{operation.name} is not an operation that a request performs")
    if resource_type in {ResourceType.ANY, ResourceType.UNKNOWN}:
        raise ValueError(f"{resource_type.name} is not a type that a resource has")


def probe(operation: AclOperation, resource_type: ResourceType) -> Action:
    """Asks about one resource by a made-up name.

    If that is allowed, be it to a super user, by an ACL for all names or for want of any ACL, then something is. The
    name is the one that Kafka makes up, so that somebody who happens to use it is treated alike by both.
    """
    return Action(operation, ResourcePattern(resource_type, "hardcode"), 0, log_if_denied=False)


def any_resource_allowed(bindings: Iterable[AclBinding]) -> AuthorizationResult:
    """Whether these ACLs leave anything allowed. They are all about the client, the operation and the type in question.

    What is allowed by name or prefix counts unless the same name, or a prefix of it, is denied. What is denied to all
    names leaves nothing.
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
    """Lets everybody do everything, and writes it down. There are no ACLs, and none can be made."""

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
        context: AuthorizableRequestContext,  # noqa: ARG002 - whoever it is
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
        context: AuthorizableRequestContext,  # noqa: ARG002 - whoever it is
        bindings: Sequence[AclBinding],
    ) -> list[Future[AclCreateResult]]:
        return [done(AclCreateResult(_disabled())) for _ in bindings]

    def delete_acls(
        self,
        context: AuthorizableRequestContext,  # noqa: ARG002 - whoever it is
        filters: Sequence[AclBindingFilter],
    ) -> list[Future[AclDeleteResult]]:
        return [done(AclDeleteResult(error=_disabled())) for _ in filters]


def _disabled() -> SecurityDisabledError:
    return SecurityDisabledError("everything is allowed here: set authorizer.class.name to use ACLs")


def done(result: T) -> Future[T]:
    """A future that has its result."""
    future: Future[T] = Future()
    future.set_result(result)
    return future
