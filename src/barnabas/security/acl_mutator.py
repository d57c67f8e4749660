"""Applies changes to ACLs.

In a cluster the controller writes them to the metadata log, from which every node, including itself, reads them. A
single node or a test keeps them in memory.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Protocol

from barnabas.common.errors import InvalidRequestError
from barnabas.common.identifiers import Uuid, random_uuid
from barnabas.security.acl import (
    CLUSTER_NAME,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from barnabas.security.acl_index import AclChange, AclIndex
from barnabas.security.authorizer import AclBindingDeleteResult, AclCreateResult, AclDeleteResult, done
from barnabas.security.principal import KafkaPrincipal
from barnabas.security.request_context import AuthorizableRequestContext


class AclMutator(Protocol):
    """Creates and deletes ACLs durably. The results are in the order of the bindings or filters."""

    def create_acls(
        self, context: AuthorizableRequestContext, bindings: Sequence[AclBinding], /
    ) -> Future[list[AclCreateResult]]: ...

    def delete_acls(
        self, context: AuthorizableRequestContext, filters: Sequence[AclBindingFilter], /
    ) -> Future[list[AclDeleteResult]]: ...


class AclStore(Protocol):
    """Holds the current ACLs."""

    @property
    def index(self) -> AclIndex: ...

    def apply_changes(self, changes: Iterable[AclChange]) -> None: ...


def validate_new_acl(binding: AclBinding) -> None:
    """Raises :class:`InvalidRequestError` if the ACL can never match, or has a value that is only for filters."""
    pattern, entry = binding.pattern, binding.entry
    if pattern.resource_type in {ResourceType.UNKNOWN, ResourceType.ANY}:
        raise InvalidRequestError(f"an ACL cannot have the resource type {pattern.resource_type.name}")
    if pattern.pattern_type not in {PatternType.LITERAL, PatternType.PREFIXED}:
        raise InvalidRequestError(f"an ACL cannot have the pattern type {pattern.pattern_type.name}")
    if entry.operation in {AclOperation.UNKNOWN, AclOperation.ANY}:
        raise InvalidRequestError(f"an ACL cannot have the operation {entry.operation.name}")
    if entry.permission_type not in {AclPermissionType.DENY, AclPermissionType.ALLOW}:
        raise InvalidRequestError(f"an ACL cannot have the permission type {entry.permission_type.name}")
    if not pattern.name:
        raise InvalidRequestError("the resource name of an ACL must not be empty")
    if pattern.resource_type is ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        raise InvalidRequestError(f"the only resource of type CLUSTER is {CLUSTER_NAME}: {pattern.name!r}")
    try:
        KafkaPrincipal.parse(entry.principal)
    except ValueError as error:
        raise InvalidRequestError(str(error)) from None


def validate_filter(acl_filter: AclBindingFilter) -> None:
    """Raises :class:`InvalidRequestError` for a filter with an unknown value."""
    if acl_filter.is_unknown:
        raise InvalidRequestError(f"the filter has an unknown value: {acl_filter}")


class LocalAclMutator:
    """Changes the ACLs of this process, in memory only."""

    __slots__ = ("_lock", "_store")

    def __init__(self, store: AclStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        """Held from reading the ACLs until they are changed. The store's lock is taken inside it."""

    def create_acls(
        self,
        _context: AuthorizableRequestContext,
        bindings: Sequence[AclBinding],
    ) -> Future[list[AclCreateResult]]:
        results = []
        new: dict[AclBinding, Uuid] = {}
        with self._lock:
            for binding in bindings:
                try:
                    validate_new_acl(binding)
                except InvalidRequestError as error:
                    results.append(AclCreateResult(error))
                    continue
                if binding not in self._store.index:
                    new.setdefault(binding, random_uuid())
                results.append(AclCreateResult())
            self._store.apply_changes([(acl_id, binding) for binding, acl_id in new.items()])
        return done(results)

    def delete_acls(
        self,
        _context: AuthorizableRequestContext,
        filters: Sequence[AclBindingFilter],
    ) -> Future[list[AclDeleteResult]]:
        results = []
        gone: dict[Uuid, None] = {}
        with self._lock:
            for acl_filter in filters:
                try:
                    validate_filter(acl_filter)
                except InvalidRequestError as error:
                    results.append(AclDeleteResult(error=error))
                    continue
                found = [
                    (acl_id, binding) for acl_id, binding in self._store.index.items() if acl_filter.matches(binding)
                ]
                gone.update(dict.fromkeys(acl_id for acl_id, _ in found))
                results.append(AclDeleteResult([AclBindingDeleteResult(binding) for _, binding in found]))
            self._store.apply_changes([(acl_id, None) for acl_id in gone])
        return done(results)
