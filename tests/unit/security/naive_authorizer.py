"""The rules of the standard authorizer, one after the other, for every ACL there is."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from barnabas.security.acl import AclBinding, AclOperation, AclPermissionType, PatternType, ResourceType, acl

IMPLIES = {
    AclOperation.DESCRIBE: {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER},
    AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
}


def naive(
    acls: Sequence[AclBinding],
    default: bool,
    principal: str,
    host: str,
    operation: AclOperation,
    resource_type: ResourceType,
    name: str,
) -> bool:
    on_resource = []
    for binding in acls:
        pattern = binding.pattern
        if pattern.resource_type == resource_type and (
            (pattern.pattern_type == PatternType.LITERAL and pattern.name in {name, "*"})
            or (pattern.pattern_type == PatternType.PREFIXED and name.startswith(pattern.name))
        ):
            on_resource.append(binding)
    if not on_resource:
        return default
    allowed = False
    for binding in on_resource:
        entry = binding.entry
        if entry.principal not in {principal, "User:*"} or entry.host not in {host, "*"}:
            continue
        if entry.permission_type == AclPermissionType.DENY:
            if entry.operation in {operation, AclOperation.ALL}:
                return False
        elif entry.operation in {operation, AclOperation.ALL} | IMPLIES.get(operation, set()):
            allowed = True
    return allowed


# Few of each, so that ACLs and requests meet.
NAMES = ["a", "ab", "abc", "abd", "b", "ba", "*", "*a", "kafka-cluster", "hardcode"]
PRINCIPALS = ["User:alice", "User:bob", "User:*", "Group:alice"]
HOSTS = ["192.0.2.7", "192.0.2.8", "*"]
OPERATIONS = [operation for operation in AclOperation if operation not in {AclOperation.UNKNOWN, AclOperation.ANY}]
TYPES = [ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER]

bindings = st.builds(
    acl,
    st.sampled_from(PRINCIPALS),
    st.sampled_from(OPERATIONS),
    st.sampled_from(TYPES),
    st.sampled_from(NAMES),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from([AclPermissionType.ALLOW, AclPermissionType.ALLOW, AclPermissionType.DENY]),
    st.sampled_from(HOSTS),
)
questions = st.tuples(
    st.sampled_from(["User:alice", "User:bob", "User:carol", "Group:alice"]),
    st.sampled_from(HOSTS[:2]),
    st.sampled_from(OPERATIONS),
    st.sampled_from(TYPES),
    st.sampled_from(NAMES),
)
Question = tuple[str, str, AclOperation, ResourceType, str]
