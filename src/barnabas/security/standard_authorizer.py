"""The standard authorizer: decides by ACLs.

The first rule that applies decides:

1. A super user may do everything. No ACL can change that, so administrators cannot be locked out.
2. If an ACL denies it, it is denied, whatever else allows it. A full name has no precedence over a prefix or ``*``.
3. If an ACL allows it, it is allowed. READ, WRITE, DELETE and ALTER imply DESCRIBE, and ALTER_CONFIGS implies
   DESCRIBE_CONFIGS.
4. If the resource has other ACLs, for other principals or operations, it is denied.
5. If it has none, ``allow.everyone.if.no.acl.found`` decides, which is false by default.

Resources have no hierarchy. An ACL on the cluster does not apply to its topics, and the permission to alter configs of
a topic does not extend to the cluster.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, InvalidStateError
from typing import Any, Final, TypeVar

from barnabas.common.dataclass import dataclass, replace
from barnabas.common.errors import (
    ApiError,
    Errors,
    InvalidConfigurationError,
    KafkaTimeoutError,
    NotControllerError,
    UnknownServerError,
)
from barnabas.common.identifiers import Uuid, random_uuid
from barnabas.security.acl import AclBinding, AclBindingFilter, AclOperation, PatternType, ResourceType
from barnabas.security.acl_index import AclChange, AclIndex, Verdict
from barnabas.security.acl_mutator import AclMutator, LocalAclMutator
from barnabas.security.audit_log import AuditLog
from barnabas.security.authorizer import (
    ALLOWED,
    DENIED,
    AclCreateResult,
    AclDeleteResult,
    Action,
    AuthorizationResult,
    Authorizer,
    AuthorizerNotReadyError,
    AuthorizerServerInfo,
    any_resource_allowed,
    check_by_resource_type,
    done,
    probe,
)
from barnabas.security.client_host import canonical_host
from barnabas.security.principal import KafkaPrincipal
from barnabas.security.request_context import AuthorizableRequestContext

log = logging.getLogger(__name__)

T = TypeVar("T")

SUPER_USERS_CONFIG: Final = "super.users"
ALLOW_EVERYONE_IF_NO_ACL_IS_FOUND_CONFIG: Final = "allow.everyone.if.no.acl.found"


@dataclass(frozen=True, slots=True)
class _State:
    """Everything that a decision depends on, in one object, so that readers never see half of a change."""

    index: AclIndex
    super_users: frozenset[tuple[str, str]] = frozenset()
    default_result: AuthorizationResult = DENIED
    loaded: bool = False
    mutator: AclMutator | None = None


class StandardAuthorizer(Authorizer):
    """Decides by ACLs from the metadata log, or by those passed to the constructor.

    With ``acls`` it is ready at once, and keeps changes in memory. Without, it waits for :meth:`load_snapshot` and
    :meth:`complete_initial_load`; only super users are authorized before that.

        authorizer = StandardAuthorizer([acl("User:alice", AclOperation.READ, ResourceType.TOPIC, "orders")])
        authorizer.configure({"super.users": "User:admin"})

    Its settings can be changed while the node runs, unlike those of Apache Kafka's.
    """

    reconfigurable_configs = frozenset({SUPER_USERS_CONFIG, ALLOW_EVERYONE_IF_NO_ACL_IS_FOUND_CONFIG})

    def __init__(self, acls: Iterable[AclBinding] | None = None, audit: AuditLog | None = None) -> None:
        self._audit = audit or AuditLog()
        self._initial_load: Future[None] = Future()
        self._lock = threading.Lock()
        """Guards the replacement of ``_state``. Readers take the reference once and need no lock."""
        self._state = _State(AclIndex())
        if acls is not None:
            self._state = _State(
                AclIndex({random_uuid(): binding for binding in dict.fromkeys(acls)}),
                mutator=LocalAclMutator(self),
            )
            self.complete_initial_load()

    def _replace(self, **changes: Any) -> None:
        with self._lock:
            self._state = replace(self._state, **changes)

    # -- lifecycle

    def configure(self, configs: Mapping[str, Any]) -> None:
        """Applies settings; raises `InvalidConfigurationError`, and changes nothing, if one is invalid."""
        super_users, default_result = _parsed(configs)
        names = frozenset((user.type, user.name) for user in super_users)
        self._replace(super_users=names, default_result=default_result)
        log.info(
            "Super users: %s; default result without a matching ACL: %s",
            ", ".join(sorted(map(str, super_users))) or "none",
            default_result.name,
        )

    def validate_reconfiguration(self, configs: Mapping[str, Any]) -> None:
        """Raises `InvalidConfigurationError` if `reconfigure` would."""
        _parsed(configs)

    def reconfigure(self, configs: Mapping[str, Any]) -> None:
        """Applies changed settings to the next request of every connection."""
        self.configure(configs)

    def start(self, server_info: AuthorizerServerInfo) -> Mapping[str, Future[None]]:
        early = set(server_info.early_start_listeners)
        return {
            endpoint.listener_name: done(None) if endpoint.listener_name in early else self._initial_load
            for endpoint in server_info.endpoints
        }

    def complete_initial_load(self, error: BaseException | None = None) -> None:
        """Ends the initial load of ACLs. After an error the listeners do not open."""
        if error is None:
            self._replace(loaded=True)
        try:
            if error is None:
                self._initial_load.set_result(None)
                log.info("Loaded %d ACLs", self.acl_count())
            else:
                self._initial_load.set_exception(error)
                log.error("Cannot load ACLs: %r", error)
        except InvalidStateError:
            log.debug("The initial load of ACLs had already ended", exc_info=True)

    def close(self) -> None:
        if not self._initial_load.done():
            self.complete_initial_load(KafkaTimeoutError("the authorizer was closed before its ACLs were loaded"))

    # -- decisions

    def authorize(self, context: AuthorizableRequestContext, actions: Sequence[Action]) -> list[AuthorizationResult]:
        state = self._state
        principal = context.principal
        if (principal.type, principal.name) in state.super_users:
            for action in actions:
                self._audit.record(context, action, True, str, "super user")
            return [ALLOWED] * len(actions)
        if not state.loaded:
            raise AuthorizerNotReadyError("the ACLs are not loaded yet")
        host = canonical_host(context.client_address)
        index = state.index
        results = []
        for action in actions:
            resource_type, name, pattern_type = action.resource_pattern
            if pattern_type is not PatternType.LITERAL:
                raise ValueError(f"an action must be on a literal resource: {action.resource_pattern}")
            verdict = index.decide(principal, host, action.operation, resource_type, name)
            if verdict is Verdict.NO_MATCH:
                allowed = state.default_result is ALLOWED and not index.has_acls(resource_type, name)
                self._audit.record(context, action, allowed, str, "no ACL matches")
            else:
                allowed = verdict is Verdict.ALLOWED
                self._audit.record(
                    context, action, allowed, index.explain, principal, host, action.operation, resource_type, name
                )
            results.append(ALLOWED if allowed else DENIED)
        return results

    def authorize_by_resource_type(
        self, context: AuthorizableRequestContext, operation: AclOperation, resource_type: ResourceType
    ) -> AuthorizationResult:
        check_by_resource_type(operation, resource_type)
        if self.authorize(context, [probe(operation, resource_type)]) == [ALLOWED]:
            return ALLOWED
        host = canonical_host(context.client_address)
        return any_resource_allowed(self._state.index.about(context.principal, host, operation, resource_type))

    # -- current ACLs

    @property
    def index(self) -> AclIndex:
        return self._state.index

    def load_snapshot(self, acls: Mapping[Uuid, AclBinding]) -> None:
        """Replaces all ACLs."""
        self._replace(index=AclIndex(acls))

    def apply_changes(self, changes: Iterable[AclChange]) -> None:
        """Adds and removes ACLs atomically."""
        with self._lock:
            self._state = replace(self._state, index=self._state.index.with_changes(changes))

    def add_acl(self, acl_id: Uuid, binding: AclBinding) -> None:
        self.apply_changes([(acl_id, binding)])

    def remove_acl(self, acl_id: Uuid) -> None:
        self.apply_changes([(acl_id, None)])

    def acls(self, acl_filter: AclBindingFilter) -> list[AclBinding]:
        return self._state.index.acls(acl_filter)

    def acl_count(self) -> int:
        return len(self._state.index)

    @property
    def super_users(self) -> frozenset[KafkaPrincipal]:
        return frozenset(KafkaPrincipal(*user) for user in self._state.super_users)

    # -- changes on behalf of a request

    def set_acl_mutator(self, mutator: AclMutator | None) -> None:
        """Sets the target of changes: None on a node that is not the active controller."""
        self._replace(mutator=mutator)

    def _mutator(self) -> AclMutator:
        mutator = self._state.mutator
        if mutator is None:
            raise NotControllerError("this node is not the active controller, which alone can change ACLs")
        return mutator

    def create_acls(
        self, context: AuthorizableRequestContext, bindings: Sequence[AclBinding]
    ) -> list[Future[AclCreateResult]]:
        together = self._mutator().create_acls(context, bindings)
        return _one_by_one(together, len(bindings), AclCreateResult)

    def delete_acls(
        self, context: AuthorizableRequestContext, filters: Sequence[AclBindingFilter]
    ) -> list[Future[AclDeleteResult]]:
        together = self._mutator().delete_acls(context, filters)
        return _one_by_one(together, len(filters), lambda error: AclDeleteResult(error=error))

    def __repr__(self) -> str:
        return f"StandardAuthorizer({self.acl_count()} ACLs)"


def _one_by_one(together: Future[list[T]], count: int, failed: Callable[[ApiError], T]) -> list[Future[T]]:
    """Splits a future list into one future per result; if the list fails, all of them fail."""
    futures: list[Future[T]] = [Future() for _ in range(count)]

    def hand_out(finished: Future[list[T]]) -> None:
        try:
            results = finished.result()
            if len(results) != count:
                raise UnknownServerError(f"{count} ACL changes returned {len(results)} results")
        except (Exception, CancelledError) as error:  # noqa: BLE001 - passed on to the waiting caller
            results = [failed(_api_error(error))] * count
        for future, result in zip(futures, results, strict=True):
            if future.set_running_or_notify_cancel():
                future.set_result(result)

    together.add_done_callback(hand_out)
    return futures


def _api_error(error: BaseException) -> ApiError:
    if isinstance(error, ApiError):
        return error
    exception = Errors.for_exception(error).exception or UnknownServerError
    return exception(str(error))


def _parsed(configs: Mapping[str, Any]) -> tuple[frozenset[KafkaPrincipal], AuthorizationResult]:
    """Returns the super users, and the result where no ACL matches."""
    return (
        _super_users(configs.get(SUPER_USERS_CONFIG)),
        _default_result(configs.get(ALLOW_EVERYONE_IF_NO_ACL_IS_FOUND_CONFIG)),
    )


def _super_users(value: object) -> frozenset[KafkaPrincipal]:
    """Parses ``User:alice;User:bob``. Semicolons, because names in certificates have commas."""
    names = [] if value is None else [name.strip() for name in str(value).split(";")]
    try:
        return frozenset(KafkaPrincipal.parse(name) for name in names if name)
    except ValueError as error:
        raise InvalidConfigurationError(f"{SUPER_USERS_CONFIG}={value}: {error}") from None


def _default_result(value: object) -> AuthorizationResult:
    if value is None:
        return DENIED
    text = str(value).strip().lower()
    if text not in {"true", "false"}:
        raise InvalidConfigurationError(f"{ALLOW_EVERYONE_IF_NO_ACL_IS_FOUND_CONFIG}={value}: must be true or false")
    return ALLOWED if text == "true" else DENIED
