"""The ACL index: finds the ACLs that apply to a request among many.

Which ACLs apply to a topic ``orders.eu``? Those on the literal ``orders.eu``, on the literal ``*``, and on each prefix
of the name. There may be ten thousand ACLs, but prefixes have only a few different *lengths*, so the index looks up
``orders.eu`` cut to each length: with prefixes of 3 and 7 characters, ``ord`` and ``orders.``. The first key is the
principal, because a client has only a few of all ACLs; ``User:*`` is looked up as well.

A lookup does not end with a list of ACLs either. The index folds the ACLs of one principal on one pattern into two bit
masks per host, of allowed and denied operations. So a decision takes a few dict lookups and bit tests, independent of
the number of ACLs.

An index is immutable. An index with a few more or fewer ACLs shares the unchanged parts, so readers need no lock, and
all decisions of a request use the same rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Final

from barnabas.common.identifiers import Uuid, uuid_to_string
from barnabas.security.acl import (
    WILDCARD,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from barnabas.security.client_host import canonical_host
from barnabas.security.principal import WILDCARD_PRINCIPAL, KafkaPrincipal

_ALL_OPERATIONS: Final = -1
"""The mask with all bits set."""
_IMPLIED: Final[dict[AclOperation, AclOperation]] = {
    AclOperation.READ: AclOperation.DESCRIBE,
    AclOperation.WRITE: AclOperation.DESCRIBE,
    AclOperation.DELETE: AclOperation.DESCRIBE,
    AclOperation.ALTER: AclOperation.DESCRIBE,
    AclOperation.ALTER_CONFIGS: AclOperation.DESCRIBE_CONFIGS,
}
"""Operations that imply another one, in this direction only: denying READ does not deny DESCRIBE."""

_Who = tuple[ResourceType, str, str]
"""A resource type, and the type and name of a principal."""
AclChange = tuple[Uuid, AclBinding | None]
"""An ACL by its ID; None removes the ACL with that ID."""


class Verdict(Enum):
    """The decision of the ACLs about a request."""

    DENIED = "an ACL denies it"
    ALLOWED = "an ACL allows it, and none denies it"
    NO_MATCH = "no ACL matches"


class _Grants:
    """The ACLs of one principal on one pattern, as masks of operations."""

    __slots__ = ("allow", "allow_hosts", "bindings", "deny", "deny_hosts")

    def __init__(self, bindings: tuple[AclBinding, ...]) -> None:
        self.bindings = bindings
        self.allow = self.deny = 0
        """For any host."""
        self.allow_hosts: dict[str, int] = {}
        self.deny_hosts: dict[str, int] = {}
        for binding in bindings:
            entry = binding.entry
            allows = _allows(binding)
            mask = _mask(entry.operation, allows)
            if entry.host != WILDCARD:
                hosts = self.allow_hosts if allows else self.deny_hosts
                host = canonical_host(entry.host)
                hosts[host] = hosts.get(host, 0) | mask
            elif allows:
                self.allow |= mask
            else:
                self.deny |= mask


def _allows(binding: AclBinding) -> bool:
    """Returns False for an ACL with unknown parts: a newer version may mean something else by it."""
    return binding.entry.permission_type is AclPermissionType.ALLOW and not binding.is_unknown


def _mask(operation: AclOperation, allows: bool) -> int:
    if operation is AclOperation.ALL:
        return _ALL_OPERATIONS
    mask = 1 << operation
    if allows and operation in _IMPLIED:
        mask |= 1 << _IMPLIED[operation]
    return mask


class _PrincipalAcls:
    """The ACLs of one principal on one resource type, by pattern."""

    __slots__ = ("lengths", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, _Grants] = {}
        self.prefixed: dict[str, _Grants] = {}
        self.lengths: list[int] = []
        """The lengths of the prefixes, in ascending order."""

    def copy(self) -> _PrincipalAcls:
        new = _PrincipalAcls()
        new.literal = dict(self.literal)
        new.prefixed = dict(self.prefixed)
        return new

    def table(self, binding: AclBinding) -> dict[str, _Grants]:
        return self.literal if binding.pattern.pattern_type is PatternType.LITERAL else self.prefixed

    def change(self, binding: AclBinding, added: bool) -> None:
        table = self.table(binding)
        name = binding.pattern.name
        bindings = list(table[name].bindings) if name in table else []
        if added:
            bindings.append(binding)
        else:
            bindings.remove(binding)
        if bindings:
            table[name] = _Grants(tuple(bindings))
        else:
            del table[name]

    def finish(self) -> None:
        """Must be called after the last change."""
        self.lengths = sorted({len(prefix) for prefix in self.prefixed})

    def matching(self, name: str) -> list[_Grants]:
        """Returns the grants that apply to a resource of this name."""
        found = []
        literal = self.literal
        grants = literal.get(name)
        if grants is not None:
            found.append(grants)
        grants = literal.get(WILDCARD)
        if grants is not None:
            found.append(grants)
        if self.lengths:
            size = len(name)
            prefixed = self.prefixed
            for length in self.lengths:
                if length > size:
                    break
                grants = prefixed.get(name[:length])
                if grants is not None:
                    found.append(grants)
        return found

    def __bool__(self) -> bool:
        return bool(self.literal or self.prefixed)


class AclIndex:
    """An immutable set of ACLs with fast decisions."""

    __slots__ = ("_acls", "_by_principal", "_patterns")

    def __init__(self, acls: Mapping[Uuid, AclBinding] | None = None) -> None:
        self._acls: dict[Uuid, AclBinding] = {}
        self._by_principal: dict[_Who, _PrincipalAcls] = {}
        self._patterns: dict[ResourcePattern, int] = {}
        """The number of ACLs on each pattern."""
        if acls:
            self._change(acls.items())

    def with_changes(self, changes: Iterable[AclChange]) -> AclIndex:
        """Returns the index after these changes, applied in order. Raises ValueError for an unknown ID to remove.

        An ACL whose ID is in use replaces the existing one.
        """
        new = AclIndex()
        new._acls = dict(self._acls)
        new._by_principal = dict(self._by_principal)
        new._patterns = dict(self._patterns)
        new._change(changes)
        return new

    def _change(self, changes: Iterable[AclChange]) -> None:
        mine: dict[_Who, _PrincipalAcls] = {}
        """The parts that no other index shares, and that may be changed."""
        for acl_id, binding in changes:
            old = self._acls.pop(acl_id, None)
            if old is not None:
                self._change_one(old, False, mine)
            elif binding is None:
                raise ValueError(f"no ACL has the ID {uuid_to_string(acl_id)}")
            if binding is not None:
                self._acls[acl_id] = binding
                self._change_one(binding, True, mine)
        for who, acls in mine.items():
            acls.finish()
            if acls:
                self._by_principal[who] = acls
            else:
                self._by_principal.pop(who, None)

    def _change_one(self, binding: AclBinding, added: bool, mine: dict[_Who, _PrincipalAcls]) -> None:
        who = _who(binding)
        if who not in mine:
            shared = self._by_principal.get(who)
            mine[who] = _PrincipalAcls() if shared is None else shared.copy()
        mine[who].change(binding, added)
        count = self._patterns.get(binding.pattern, 0) + (1 if added else -1)
        if count:
            self._patterns[binding.pattern] = count
        else:
            del self._patterns[binding.pattern]

    # -- decisions

    def decide(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> Verdict:
        """Decides by the ACLs. ``host`` must be canonical."""
        bit = 1 << operation
        verdict = Verdict.NO_MATCH
        for acls in self._of(principal, resource_type):
            for grants in acls.matching(name):
                if grants.deny & bit or (grants.deny_hosts and grants.deny_hosts.get(host, 0) & bit):
                    return Verdict.DENIED
                if grants.allow & bit or (grants.allow_hosts and grants.allow_hosts.get(host, 0) & bit):
                    verdict = Verdict.ALLOWED
        return verdict

    def _of(self, principal: KafkaPrincipal, resource_type: ResourceType) -> list[_PrincipalAcls]:
        by_principal = self._by_principal
        own = by_principal.get((resource_type, principal.type, principal.name))
        everybodys = by_principal.get((resource_type, WILDCARD_PRINCIPAL.type, WILDCARD_PRINCIPAL.name))
        return [acls for acls in (own, everybodys) if acls is not None]

    def has_acls(self, resource_type: ResourceType, name: str) -> bool:
        """Returns whether any ACL applies to the resource, for any principal and operation."""
        patterns = self._patterns
        return (
            ResourcePattern(resource_type, name) in patterns
            or ResourcePattern(resource_type, WILDCARD) in patterns
            or any(
                ResourcePattern(resource_type, name[:length], PatternType.PREFIXED) in patterns
                for length in range(len(name) + 1)
            )
        )

    def explain(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> AclBinding | None:
        """Returns the ACL that determined a decision: the first that denies, or else the first that allows."""
        allowing = None
        for acls in self._of(principal, resource_type):
            for grants in acls.matching(name):
                for binding in grants.bindings:
                    allows = _allows(binding)
                    if _from(binding, host) and _mask(binding.entry.operation, allows) & (1 << operation):
                        if not allows:
                            return binding
                        allowing = allowing or binding
        return allowing

    def about(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> Iterator[AclBinding]:
        """Yields the ACLs of a principal for an operation, or all operations, on any resource of a type."""
        for acls in self._of(principal, resource_type):
            for table in (acls.literal, acls.prefixed):
                for grants in table.values():
                    for binding in grants.bindings:
                        if _from(binding, host) and binding.entry.operation in {operation, AclOperation.ALL}:
                            yield binding

    # -- contents

    def acls(self, acl_filter: AclBindingFilter) -> list[AclBinding]:
        return [binding for binding in self._acls.values() if acl_filter.matches(binding)]

    def items(self) -> Iterable[tuple[Uuid, AclBinding]]:
        return self._acls.items()

    def __contains__(self, binding: AclBinding) -> bool:
        acls = self._by_principal.get(_who(binding))
        grants = None if acls is None else acls.table(binding).get(binding.pattern.name)
        return grants is not None and binding in grants.bindings

    def __len__(self) -> int:
        return len(self._acls)


def _who(binding: AclBinding) -> _Who:
    """Returns the key of an ACL. An ACL with a malformed principal matches no principal."""
    kind, colon, name = binding.entry.principal.partition(":")
    return (binding.pattern.resource_type, kind, name) if colon else (binding.pattern.resource_type, "", kind)


def _from(binding: AclBinding, host: str) -> bool:
    return binding.entry.host == WILDCARD or canonical_host(binding.entry.host) == host
