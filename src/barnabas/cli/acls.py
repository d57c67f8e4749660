"""``barnabas acls``: shows, adds and removes ACLs.

barnabas acls list
barnabas acls list --topic orders --principal User:alice
barnabas acls add --allow-principal User:alice --operation Read --topic orders
barnabas acls add --allow-principal User:app --producer --topic orders. --pattern-type prefixed
barnabas acls add --allow-principal User:app --consumer --topic orders --group billing
barnabas acls remove --allow-principal User:alice --operation Read --topic orders
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from barnabas.cli.admin import add_common, add_yes, administered, confirm, tell
from barnabas.cli.arguments import ArgumentParser, add_command
from barnabas.cli.console import CommandError, UsageError

if TYPE_CHECKING:
    from barnabas.cli.arguments import Commands
    from barnabas.cli.cluster import Cluster
    from barnabas.security.acl import AclBinding, AclBindingFilter, AclOperation, PatternType, ResourceType

DESCRIPTION: Final = "Shows, adds and removes ACLs: which principal may do what with which resource, from which host."
LIST: Final = """Shows all ACLs, or those of resources and principals.

  barnabas acls list --topic orders
  barnabas acls list --topic orders --pattern-type match    every ACL that applies to the topic"""
ADD: Final = """Adds ACLs for each combination of principal, host, operation and resource.

  barnabas acls add --allow-principal User:alice --operation Read --topic orders
  barnabas acls add --deny-principal User:bob --topic orders. --pattern-type prefixed
  barnabas acls add --allow-principal User:app --producer --topic orders
  barnabas acls add --allow-principal User:app --consumer --topic orders --group billing

A denial has precedence over every permission. Where no ACL applies, only super users are allowed, unless
allow.everyone.if.no.acl.found is set."""
REMOVE: Final = """Removes ACLs of resources. An option that is not given selects all: principals, hosts, operations.

  barnabas acls remove --topic orders --allow-principal User:alice --operation Read
  barnabas acls remove --topic orders"""
WILDCARD: Final = "*"
HostT = TypeVar("HostT", str, None)
PATTERN_TYPES: Final = ("literal", "prefixed", "match", "any")


class Selection(NamedTuple):
    """The resources that the options name, by type."""

    resources: list[tuple[ResourceType, str]]
    pattern_type: PatternType


class Rule(NamedTuple):
    """An operation on a resource."""

    resource_type: ResourceType
    name: str
    operation: AclOperation


def add_acls(commands: Commands) -> None:
    parser = commands.add_parser("acls", help="show, add and remove ACLs", description=DESCRIPTION)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", parser_class=ArgumentParser, required=True)

    listing = add_command(actions, "list", list_command, "show ACLs", LIST)
    add_common(listing)
    _add_resources(listing, PATTERN_TYPES)
    listing.add_argument(
        "--principal",
        dest="principals",
        action="append",
        default=[],
        metavar="PRINCIPAL",
        help="only of this principal",
    )

    adding = add_command(actions, "add", add_acls_command, "add ACLs", ADD)
    add_common(adding, json=False)
    _add_resources(adding, PATTERN_TYPES[:2])
    _add_entries(adding)

    removing = add_command(actions, "remove", remove_command, "remove ACLs", REMOVE)
    add_common(removing, json=False)
    _add_resources(removing, PATTERN_TYPES)
    _add_entries(removing)
    add_yes(removing)


def _add_resources(parser: ArgumentParser, pattern_types: Sequence[str]) -> None:
    group = parser.add_argument_group("resources; each option may be repeated, and * stands for all names")
    for option, meaning in (
        ("topic", "a topic"),
        ("group", "a consumer group"),
        ("transactional-id", "a transactional ID"),
        ("delegation-token", "a delegation token's ID"),
        ("user-principal", "a user whose delegation tokens are managed, as User:NAME"),
    ):
        group.add_argument(f"--{option}", action="append", default=[], metavar="NAME", help=meaning)
    group.add_argument("--cluster", action="store_true", dest="whole_cluster", help="the cluster")
    default = "any" if "any" in pattern_types else "literal"
    group.add_argument(
        "--pattern-type", choices=pattern_types, default=default, help=f"how names are matched; default: {default}"
    )


def _add_entries(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("permissions; each option may be repeated")
    for permission in ("allow", "deny"):
        group.add_argument(
            f"--{permission}-principal",
            dest=f"{permission}_principals",
            action="append",
            default=[],
            metavar="PRINCIPAL",
            help="for example User:alice; User:* for everybody",
        )
        group.add_argument(
            f"--{permission}-host",
            dest=f"{permission}_hosts",
            action="append",
            default=[],
            metavar="ADDRESS",
            help="an IP address; default: every host",
        )
    group.add_argument(
        "--operation",
        dest="operations",
        action="append",
        default=[],
        metavar="NAME",
        help="for example Read, Write, DescribeConfigs; default: All",
    )
    group.add_argument(
        "--producer", action="store_true", help="the permissions of a producer on topics and transactional IDs"
    )
    group.add_argument("--idempotent", action="store_true", help="with --producer: for brokers before Kafka 2.8")
    group.add_argument("--consumer", action="store_true", help="the permissions of a consumer on topics and groups")


# -- the options


def _selection(options: dict[str, Any]) -> Selection:
    from barnabas.security.acl import CLUSTER_NAME, PatternType, ResourceType

    resources = [
        (resource_type, name)
        for resource_type, option in (
            (ResourceType.TOPIC, "topic"),
            (ResourceType.GROUP, "group"),
            (ResourceType.TRANSACTIONAL_ID, "transactional_id"),
            (ResourceType.DELEGATION_TOKEN, "delegation_token"),
            (ResourceType.USER, "user_principal"),
        )
        for name in dict.fromkeys(options[option])
    ]
    if options["whole_cluster"] or options.get("idempotent"):
        resources.append((ResourceType.CLUSTER, CLUSTER_NAME))
    return Selection(resources, PatternType.from_string(options["pattern_type"]))


def _rules(options: dict[str, Any], selection: Selection) -> list[Rule]:
    """Returns the operations on resources that the options select; raises `UsageError` if they are inconsistent."""
    from barnabas.security.acl import SUPPORTED_OPERATIONS, AclOperation, ResourceType

    if not selection.resources:
        raise UsageError("name a resource: --topic, --group, --cluster, --transactional-id, ...")
    types = {resource_type for resource_type, _ in selection.resources}
    if options["producer"] or options["consumer"]:
        if options["operations"]:
            raise UsageError("--producer and --consumer imply their operations: leave out --operation")
        if options["deny_principals"]:
            raise UsageError("--producer and --consumer only grant permissions: use --allow-principal")
        if ResourceType.TOPIC not in types:
            raise UsageError("--producer and --consumer need --topic")
        if options["consumer"] and ResourceType.GROUP not in types:
            raise UsageError("--consumer needs --group")
        return _convenience_rules(selection, producer=options["producer"], consumer=options["consumer"])
    if options["idempotent"]:
        raise UsageError("--idempotent needs --producer")
    operations = [_operation(text) for text in options["operations"]] or [AclOperation.ALL]
    for resource_type in sorted(types):
        known = {AclOperation.ALL, *SUPPORTED_OPERATIONS[resource_type]}
        wrong = [operation.title for operation in operations if operation not in known]
        if wrong:
            names = ", ".join(operation.title for operation in SUPPORTED_OPERATIONS[resource_type])
            raise UsageError(f"a {resource_type.title} resource has no operation {wrong[0]}; it has {names}, All")
    return [Rule(*resource, operation) for resource in selection.resources for operation in operations]


def _operation(text: str) -> AclOperation:
    from barnabas.security.acl import AclOperation

    found = AclOperation.from_string(text.replace("-", "_"))
    if found in {AclOperation.UNKNOWN, AclOperation.ANY}:
        known = ", ".join(one.title for one in AclOperation if one > AclOperation.ANY)
        raise UsageError(f"unknown operation {text!r}; operations: {known}")
    return found


def _convenience_rules(selection: Selection, *, producer: bool, consumer: bool) -> list[Rule]:
    from barnabas.security.acl import AclOperation, ResourceType

    operations: dict[ResourceType, list[AclOperation]] = {}

    def need(resource_type: ResourceType, *names: AclOperation) -> None:
        operations.setdefault(resource_type, []).extend(names)

    if producer:
        need(ResourceType.TOPIC, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE)
        need(ResourceType.TRANSACTIONAL_ID, AclOperation.WRITE, AclOperation.DESCRIBE)
        need(ResourceType.CLUSTER, AclOperation.IDEMPOTENT_WRITE)
    if consumer:
        need(ResourceType.TOPIC, AclOperation.READ, AclOperation.DESCRIBE)
        need(ResourceType.GROUP, AclOperation.READ)
    return [
        Rule(resource_type, name, operation)
        for resource_type, name in selection.resources
        for operation in dict.fromkeys(operations.get(resource_type, ()))
    ]


def _principals(options: dict[str, Any], default_host: HostT) -> list[tuple[str, str | HostT, bool]]:
    """Returns principal, host and whether it is allowed, for each combination."""
    from barnabas.security.principal import KafkaPrincipal

    found = []
    for permission in ("allow", "deny"):
        if options[f"{permission}_hosts"] and not options[f"{permission}_principals"]:
            raise UsageError(f"--{permission}-host needs --{permission}-principal")
        for text in options[f"{permission}_principals"]:
            try:
                principal = str(KafkaPrincipal.parse(text))
            except ValueError as error:
                raise UsageError(str(error)) from None
            found += [
                (principal, host, permission == "allow") for host in options[f"{permission}_hosts"] or [default_host]
            ]
    return found


# -- the commands


def list_command(cluster: Cluster, as_json: bool, principals: list[str], **options: Any) -> None:
    """Prints ACLs."""
    from barnabas.cli.output import print_json, print_rich, table

    with administered(cluster) as admin:
        found = {acl for one in _list_filters(_selection(options), principals) for acl in admin.describe_acls(one)}
    rows = sorted(_row(acl) for acl in found)
    if as_json:
        names = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission")
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    elif not rows:
        tell("There are no such ACLs." if principals or _selection(options).resources else "There are no ACLs.")
    else:
        print_rich(table(("resource", "name", "pattern", "principal", "host", "operation", "permission"), rows))


def _list_filters(selection: Selection, principals: list[str]) -> list[AclBindingFilter]:
    from barnabas.security.acl import (
        AccessControlEntryFilter,
        AclBindingFilter,
        ResourcePatternFilter,
        ResourceType,
    )

    resources: list[tuple[ResourceType, str | None]] = [*selection.resources] or [(ResourceType.ANY, None)]
    wanted: list[str | None] = [*principals] or [None]
    return [
        AclBindingFilter(
            ResourcePatternFilter(resource_type, name, selection.pattern_type), AccessControlEntryFilter(principal)
        )
        for resource_type, name in resources
        for principal in wanted
    ]


def _row(acl: AclBinding) -> tuple[str, ...]:
    pattern, entry = acl.pattern, acl.entry
    return (
        pattern.resource_type.title,
        pattern.name,
        pattern.pattern_type.title,
        entry.principal,
        entry.host,
        entry.operation.title,
        entry.permission_type.title,
    )


def add_acls_command(cluster: Cluster, **options: Any) -> None:
    """Adds ACLs."""
    from barnabas.security.acl import AclPermissionType, acl

    selection = _selection(options)
    rules = _rules(options, selection)
    entries = _principals(options, WILDCARD)
    if not entries:
        raise UsageError("name a principal: --allow-principal or --deny-principal")
    wanted = [
        acl(
            principal,
            rule.operation,
            rule.resource_type,
            rule.name,
            _pattern_type(rule.resource_type, selection),
            AclPermissionType.ALLOW if allowed else AclPermissionType.DENY,
            host,
        )
        for rule in rules
        for principal, host, allowed in entries
    ]
    with administered(cluster) as admin:
        admin.create_acls(wanted)
    for one in wanted:
        tell(f"added: {one}")


def _pattern_type(resource_type: ResourceType, selection: Selection) -> PatternType:
    """Returns the pattern type of a resource. There is one cluster, so its name is never a prefix."""
    from barnabas.security.acl import PatternType, ResourceType

    return PatternType.LITERAL if resource_type is ResourceType.CLUSTER else selection.pattern_type


def remove_command(cluster: Cluster, assume_yes: bool, **options: Any) -> None:
    """Removes ACLs."""
    filters = _removal_filters(options)
    with administered(cluster) as admin:
        matching = {acl for one in filters for acl in admin.describe_acls(one)}
        if not matching:
            raise CommandError("there are no such ACLs")
        for line in sorted(map(str, matching)):
            tell(line)
        confirm(f"Remove {'this ACL' if len(matching) == 1 else f'these {len(matching)} ACLs'}?", assume_yes)
        removed = {acl for found in admin.delete_acls(filters).values() for acl in found}
    tell(f"removed: {len(removed)}")


def _removal_filters(options: dict[str, Any]) -> list[AclBindingFilter]:
    from barnabas.security.acl import (
        AccessControlEntryFilter,
        AclBindingFilter,
        AclOperation,
        AclPermissionType,
        ResourcePatternFilter,
    )

    selection = _selection(options)
    entries = _principals(options, None)
    is_narrow = bool(options["operations"] or options["producer"] or options["consumer"])
    if is_narrow and not entries:
        raise UsageError("name the principal whose operations are removed: --allow-principal or --deny-principal")
    rules = _rules(options, selection)
    filters: dict[AclBindingFilter, None] = {}
    for rule in rules:
        pattern = ResourcePatternFilter(rule.resource_type, rule.name, _pattern_type(rule.resource_type, selection))
        operation = rule.operation if is_narrow else AclOperation.ANY
        for principal, host, allowed in entries:
            permission = AclPermissionType.ALLOW if allowed else AclPermissionType.DENY
            filters[AclBindingFilter(pattern, AccessControlEntryFilter(principal, host, operation, permission))] = None
        if not entries:
            filters[AclBindingFilter(pattern)] = None
    return list(filters)
