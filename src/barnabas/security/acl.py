"""ACLs: which principal may perform which operation on which resource from which host.

An ACL binds an entry to a pattern::

    pattern  TOPIC orders. PREFIXED                 every topic whose name begins with "orders."
    entry    User:alice  from 10.0.0.7  READ ALLOW  alice may read it from that host

A LITERAL pattern means the one resource of that name, except that the name ``*`` means all resources of the type.
``User:*`` means every principal, and the host ``*`` every host.

A *filter* selects bindings to describe or delete. It has the same fields, and each may be left open. The pattern type
MATCH is only for filters: it selects all bindings that *apply* to a resource of that name, whether they are literal,
prefixed or for all names.

The numbers are Kafka's. They are used on the wire, in the metadata log, and as bits of authorized operations.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple, Self

from barnabas.common.dataclass import dataclass
from barnabas.common.errors import Errors

WILDCARD: Final = "*"
CLUSTER_NAME: Final = "kafka-cluster"
"""The only name of a CLUSTER resource."""


class _Code(IntEnum):
    """An enum of the protocol. 0 is UNKNOWN, because a newer peer may send a value that is not defined here."""

    @classmethod
    def from_code(cls, code: int) -> Self:
        try:
            return cls(code)
        except ValueError:
            return cls(0)

    @classmethod
    def from_string(cls, text: str) -> Self:
        """Parses a name in any case, with or without underscores: ``DESCRIBE_CONFIGS``, ``DescribeConfigs``."""
        wanted = text.replace("_", "").upper()
        for member in cls:
            if member.name.replace("_", "") == wanted:
                return member
        return cls(0)

    @property
    def title(self) -> str:
        """The name for people: ``DescribeConfigs``."""
        return "".join(part.capitalize() for part in self.name.split("_"))

    @property
    def is_unknown(self) -> bool:
        return self == 0


class AclOperation(_Code):
    UNKNOWN = 0
    ANY = 1
    """For filters only."""
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    """Operations between brokers: replication and forwarding."""
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermissionType(_Code):
    UNKNOWN = 0
    ANY = 1
    """For filters only."""
    DENY = 2
    ALLOW = 3


class ResourceType(_Code):
    UNKNOWN = 0
    ANY = 1
    """For filters only."""
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Code):
    UNKNOWN = 0
    ANY = 1
    """For filters only: a pattern of that name, of any type."""
    MATCH = 2
    """For filters only: any pattern that applies to a resource of that name."""
    LITERAL = 3
    PREFIXED = 4


_O = AclOperation
SUPPORTED_OPERATIONS: Final[dict[ResourceType, tuple[AclOperation, ...]]] = {
    ResourceType.TOPIC: (
        _O.READ,
        _O.WRITE,
        _O.CREATE,
        _O.DELETE,
        _O.ALTER,
        _O.DESCRIBE,
        _O.DESCRIBE_CONFIGS,
        _O.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (_O.READ, _O.DELETE, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
    ResourceType.CLUSTER: (
        _O.CREATE,
        _O.ALTER,
        _O.DESCRIBE,
        _O.CLUSTER_ACTION,
        _O.DESCRIBE_CONFIGS,
        _O.ALTER_CONFIGS,
        _O.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (_O.WRITE, _O.DESCRIBE, _O.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (_O.DESCRIBE,),
    ResourceType.USER: (_O.CREATE_TOKENS, _O.DESCRIBE_TOKENS),
}
"""The operations that exist for each resource type."""

AUTHORIZATION_ERRORS: Final[dict[ResourceType, Errors]] = {
    ResourceType.TOPIC: Errors.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: Errors.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: Errors.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: Errors.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: Errors.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""The error for a resource that a client may not access. (USER resources are only accessed to create tokens.)"""


def to_bit_field(operations: Iterable[AclOperation]) -> int:
    """Encodes a set of operations in an int32: bit n is the operation with code n.

    >>> to_bit_field([AclOperation.READ, AclOperation.DESCRIBE])
    264
    """
    field = 0
    for operation in operations:
        field |= 1 << operation
    return field


def from_bit_field(field: int) -> set[AclOperation]:
    """Decodes :func:`to_bit_field`; ignores unknown bits."""
    return {operation for operation in AclOperation if operation and field & 1 << operation}


class Resource(NamedTuple):
    """A resource that ACLs protect."""

    resource_type: ResourceType
    name: str


CLUSTER: Final = Resource(ResourceType.CLUSTER, CLUSTER_NAME)


class ResourcePattern(NamedTuple):
    """One resource, or all with a common prefix. A tuple, because each topic of each request needs one."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL

    def __str__(self) -> str:
        return f"{self.resource_type.title}:{self.pattern_type.name}:{self.name}"


@dataclass(frozen=True, slots=True)
class AccessControlEntry:
    """Allows or denies an operation to a principal from a host."""

    principal: str
    host: str
    operation: AclOperation
    permission_type: AclPermissionType

    def __str__(self) -> str:
        return f"{self.permission_type.name} {self.operation.title} to {self.principal} from {self.host}"


@dataclass(frozen=True, slots=True)
class AclBinding:
    """One ACL: an entry on a pattern.

    >>> str(acl("User:alice", AclOperation.READ, ResourceType.TOPIC, "orders"))
    'ALLOW Read to User:alice from * on Topic:LITERAL:orders'
    """

    pattern: ResourcePattern
    entry: AccessControlEntry

    @classmethod
    def from_codes(
        cls,
        *,
        resource_type: int,
        resource_name: str,
        pattern_type: int,
        principal: str,
        host: str,
        operation: int,
        permission_type: int,
    ) -> AclBinding:
        """Converts the fields of an ACL on the wire or in the metadata log; a code of a newer version is UNKNOWN."""
        return cls(
            ResourcePattern(ResourceType.from_code(resource_type), resource_name, PatternType.from_code(pattern_type)),
            AccessControlEntry(
                principal, host, AclOperation.from_code(operation), AclPermissionType.from_code(permission_type)
            ),
        )

    @property
    def is_unknown(self) -> bool:
        """Whether a part of it is unknown to this version."""
        pattern, entry = self.pattern, self.entry
        return any(
            code.is_unknown
            for code in (pattern.resource_type, pattern.pattern_type, entry.operation, entry.permission_type)
        )

    def to_filter(self) -> AclBindingFilter:
        """Returns the filter that matches only this binding."""
        return AclBindingFilter(
            ResourcePatternFilter(*self.pattern),
            AccessControlEntryFilter(
                self.entry.principal, self.entry.host, self.entry.operation, self.entry.permission_type
            ),
        )

    def __str__(self) -> str:
        return f"{self.entry} on {self.pattern}"


def acl(
    principal: str,
    operation: AclOperation,
    resource_type: ResourceType,
    name: str,
    pattern_type: PatternType = PatternType.LITERAL,
    permission_type: AclPermissionType = AclPermissionType.ALLOW,
    host: str = WILDCARD,
) -> AclBinding:
    """Creates a binding, with defaults for everything that is not given."""
    return AclBinding(
        ResourcePattern(resource_type, name, pattern_type),
        AccessControlEntry(principal, host, operation, permission_type),
    )


@dataclass(frozen=True, slots=True)
class ResourcePatternFilter:
    """Selects patterns. A name of None matches any name."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY

    @property
    def is_unknown(self) -> bool:
        return self.resource_type.is_unknown or self.pattern_type.is_unknown

    def matches(self, pattern: ResourcePattern) -> bool:
        if self.resource_type not in {ResourceType.ANY, pattern.resource_type}:
            return False
        if self.pattern_type not in {PatternType.ANY, PatternType.MATCH, pattern.pattern_type}:
            return False
        if self.name is None:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return self.name == pattern.name
        if pattern.pattern_type is PatternType.PREFIXED:
            return self.name.startswith(pattern.name)
        return pattern.pattern_type is PatternType.LITERAL and pattern.name in {self.name, WILDCARD}

    def find_indefinite_field(self) -> str | None:
        """Returns why it may match more than one pattern; None if it cannot."""
        if self.resource_type in {ResourceType.ANY, ResourceType.UNKNOWN}:
            return f"resource type is {self.resource_type.name}"
        if self.name is None:
            return "resource name is any"
        if self.pattern_type not in {PatternType.LITERAL, PatternType.PREFIXED}:
            return f"pattern type is {self.pattern_type.name}"
        return None


@dataclass(frozen=True, slots=True)
class AccessControlEntryFilter:
    """Selects entries. A principal or host of None matches any; ``User:*`` and ``*`` match only themselves."""

    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission_type: AclPermissionType = AclPermissionType.ANY

    @property
    def is_unknown(self) -> bool:
        return self.operation.is_unknown or self.permission_type.is_unknown

    def matches(self, entry: AccessControlEntry) -> bool:
        return (
            self.principal in {None, entry.principal}
            and self.host in {None, entry.host}
            and self.operation in {AclOperation.ANY, entry.operation}
            and self.permission_type in {AclPermissionType.ANY, entry.permission_type}
        )

    def find_indefinite_field(self) -> str | None:
        if self.principal is None:
            return "principal is any"
        if self.host is None:
            return "host is any"
        if self.operation in {AclOperation.ANY, AclOperation.UNKNOWN}:
            return f"operation is {self.operation.name}"
        if self.permission_type in {AclPermissionType.ANY, AclPermissionType.UNKNOWN}:
            return f"permission type is {self.permission_type.name}"
        return None


@dataclass(frozen=True, slots=True)
class AclBindingFilter:
    """Selects bindings; without arguments, all of them."""

    pattern_filter: ResourcePatternFilter = ResourcePatternFilter()
    entry_filter: AccessControlEntryFilter = AccessControlEntryFilter()

    @property
    def is_unknown(self) -> bool:
        return self.pattern_filter.is_unknown or self.entry_filter.is_unknown

    def matches(self, binding: AclBinding) -> bool:
        return self.pattern_filter.matches(binding.pattern) and self.entry_filter.matches(binding.entry)

    def matches_at_most_one(self) -> bool:
        return self.find_indefinite_field() is None

    def find_indefinite_field(self) -> str | None:
        return self.pattern_filter.find_indefinite_field() or self.entry_filter.find_indefinite_field()
