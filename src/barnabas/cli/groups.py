"""``barnabas groups``: shows groups and their lag, and changes their offsets.

barnabas groups list
barnabas groups describe billing
barnabas groups reset-offsets billing --topic orders --to-earliest              (shows the new offsets)
barnabas groups reset-offsets billing --topic orders --to-earliest --execute    (commits them)
barnabas groups remove-members billing --all
barnabas groups delete billing
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from barnabas.cli.admin import add_common, add_states, add_yes, administered, confirm, explain, tell, tell_outcome
from barnabas.cli.arguments import ArgumentParser, add_command
from barnabas.cli.console import CommandError, UsageError
from barnabas.cli.group_reset import add_reset

if TYPE_CHECKING:
    from barnabas.cli.arguments import Commands
    from barnabas.cli.cluster import Cluster
    from barnabas.clients.admin import GroupDescription, PartitionLag

DESCRIPTION: Final = "Shows groups with their members and lag, and changes their offsets."
DESCRIBE: Final = """Shows the members of groups, and the committed offset and lag of each partition.

The lag is the number of records between the committed offset and the end of the partition."""
REMOVE: Final = """Removes members from a group of the classic protocol. Their partitions are assigned to the
remaining members; a member that is still running joins again."""
_STATES: Final = ("Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "Dead")
_TYPES: Final = ("classic", "consumer", "share", "streams")


def add_groups(commands: Commands) -> None:
    parser = commands.add_parser(
        "groups", help="show groups and their lag, change their offsets", description=DESCRIPTION
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", parser_class=ArgumentParser, required=True)

    listing = add_command(actions, "list", list_command, "show all groups", "Shows all groups.")
    add_common(listing)
    add_states(listing, "groups", _STATES)
    listing.add_argument(
        "-t",
        "--type",
        dest="types",
        action="append",
        default=[],
        choices=_TYPES,
        metavar="TYPE",
        help=f"only groups of this type; may be repeated: {', '.join(_TYPES)}",
    )

    describing = add_command(actions, "describe", describe_command, "show members and lag", DESCRIBE)
    add_common(describing)
    describing.add_argument("group_ids", nargs="*", metavar="GROUP", help="the groups; default: all")
    describing.add_argument("-m", "--members", dest="only_members", action="store_true", help="only the members")
    describing.add_argument("-l", "--lag", dest="only_lag", action="store_true", help="only the lag")

    add_reset(actions)

    removing = add_command(actions, "remove-members", remove_command, "remove members", REMOVE)
    add_common(removing, json=False)
    removing.add_argument("group_id", metavar="GROUP", help="the group")
    removing.add_argument("--member", action="append", default=[], metavar="ID", help="a member ID; may be repeated")
    removing.add_argument(
        "--instance", action="append", default=[], metavar="ID", help="a group.instance.id; may be repeated"
    )
    removing.add_argument("--all", dest="everybody", action="store_true", help="all members")
    add_yes(removing)

    deleting = add_command(
        actions, "delete", delete_command, "delete groups", "Deletes groups without members, with their offsets."
    )
    add_common(deleting, json=False)
    deleting.add_argument("group_ids", nargs="+", metavar="GROUP", help="the groups")
    add_yes(deleting)

    forgetting = add_command(
        actions,
        "delete-offsets",
        delete_offsets_command,
        "delete committed offsets of a topic",
        "Deletes the committed offsets of a topic that the group no longer subscribes to.",
    )
    add_common(forgetting, json=False)
    forgetting.add_argument("group_id", metavar="GROUP", help="the group")
    forgetting.add_argument("-t", "--topic", required=True, metavar="TOPIC", help="the topic")
    add_yes(forgetting)


def list_command(cluster: Cluster, states: list[str], types: list[str], as_json: bool) -> None:
    """Prints all groups."""
    from barnabas.cli.output import print_json, print_rich, table

    with administered(cluster) as admin:
        groups = admin.list_groups(states=states, types=types)
    if as_json:
        print_json(
            [
                {
                    "group_id": group.group_id,
                    "type": group.type.value,
                    "protocol_type": group.protocol_type,
                    "state": group.state.value,
                }
                for group in groups
            ]
        )
    elif not groups:
        tell("No group matches." if states or types else "There are no groups.")
    else:
        rows = [(one.group_id, one.type.value, one.state.value, one.protocol_type or "-") for one in groups]
        print_rich(table(("group", "type", "state", "protocol"), rows))


def describe_command(cluster: Cluster, group_ids: list[str], only_members: bool, only_lag: bool, as_json: bool) -> None:
    """Prints members and lag."""
    from barnabas.cli.output import print_json, print_rich

    documents = []
    failures: list[str] = []
    with administered(cluster) as admin:
        wanted = group_ids or [group.group_id for group in admin.list_groups(types=["classic", "consumer"])]
        described = admin.describe_groups(wanted, partial=True)
        failures = [f"{group_id}: {explain(error)}" for group_id, error in described.errors.items()]
        for group in described.values():
            lag = {} if only_members and not as_json else admin.describe_group_lag(group.group_id)
            documents.append(_document(group, list(lag.values())))
    if as_json:
        print_json(documents)
    elif not documents and not failures:
        tell("There are no groups.")
    for document in [] if as_json else documents:
        print_rich(*_rendered(document, members=not only_lag, lag=not only_members))
    if failures and group_ids:
        raise CommandError("; ".join(failures))


def _document(group: GroupDescription, lag: list[PartitionLag]) -> dict[str, Any]:
    known = [one.lag for one in lag if one.lag is not None]
    return {
        "group_id": group.group_id,
        "type": group.type.value,
        "state": group.state.value,
        "assignor": group.partition_assignor,
        "coordinator": group.coordinator.id,
        "epoch": group.group_epoch,
        "total_lag": sum(known) if known else None,
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "host": member.host,
                "epoch": member.member_epoch,
                "assignment": [{"topic": one.topic, "partition": one.partition} for one in sorted(member.assignment)],
            }
            for member in group.members
        ],
        "partitions": [
            {
                "topic": one.partition.topic,
                "partition": one.partition.partition,
                "committed": None if one.committed is None else one.committed.offset,
                "metadata": None if one.committed is None else one.committed.metadata,
                "end_offset": one.end_offset,
                "lag": one.lag,
                "member_id": None if one.member is None else one.member.member_id,
                "client_id": None if one.member is None else one.member.client_id,
            }
            for one in lag
        ],
    }


def _rendered(document: dict[str, Any], *, members: bool, lag: bool) -> list[Any]:
    from barnabas.cli.output import number, table, title

    facts = [document["type"].lower(), document["state"], f"coordinator {document['coordinator']}"]
    if document["assignor"]:
        facts.append(f"assignor {document['assignor']}")
    if document["epoch"] is not None:
        facts.append(f"epoch {document['epoch']}")
    if lag and document["total_lag"] is not None:
        facts.append(f"lag {document['total_lag']:,}")
    parts: list[Any] = [title(f"{document['group_id']}  " + ", ".join(facts))]
    if members:
        rows = [
            (
                member["client_id"],
                member["host"].removeprefix("/"),
                member["instance_id"] or "-",
                _assignment_text(member["assignment"]),
                member["member_id"],
            )
            for member in document["members"]
        ]
        if rows:
            parts.append(table(("client", "host", "instance", "reads", "member"), rows))
        elif not lag:
            parts.append("  the group has no members\n")
    if lag and document["partitions"]:
        parts.append(
            table(
                ("topic", "partition", "committed", "end", "lag", "client"),
                [
                    (
                        one["topic"],
                        str(one["partition"]),
                        number(one["committed"]),
                        number(one["end_offset"]),
                        number(one["lag"]),
                        one["client_id"] or "-",
                    )
                    for one in document["partitions"]
                ],
                right=("partition", "committed", "end", "lag"),
            )
        )
    elif lag:
        parts.append("  the group has no committed offsets\n")
    return parts


def _assignment_text(assignment: list[dict[str, Any]]) -> str:
    """
    >>> _assignment_text([{"topic": "a", "partition": 0}, {"topic": "a", "partition": 2}])
    'a: 0,2'
    """
    topics: dict[str, list[str]] = {}
    for one in assignment:
        topics.setdefault(one["topic"], []).append(str(one["partition"]))
    return "; ".join(f"{topic}: {','.join(numbers)}" for topic, numbers in topics.items()) or "-"


def remove_command(
    cluster: Cluster, group_id: str, member: list[str], instance: list[str], everybody: bool, assume_yes: bool
) -> None:
    """Removes members."""
    from barnabas.clients.admin import MemberToRemove

    if everybody == bool(member or instance):
        raise UsageError("name the members to remove: --member, --instance, or --all")
    confirm(f"Remove {'all members' if everybody else 'these members'} from {group_id}?", assume_yes)
    wanted = [MemberToRemove(member_id=one) for one in member] + [MemberToRemove(one) for one in instance]
    with administered(cluster) as admin:
        results = admin.remove_members(group_id, None if everybody else wanted, partial=True)
    if not results and not results.errors:
        tell(f"{group_id}: the group has no members")
    tell_outcome(results, lambda one, _: f"{group_id}: {one} removed")


def delete_command(cluster: Cluster, group_ids: list[str], assume_yes: bool) -> None:
    """Deletes groups."""
    confirm(f"Delete {', '.join(group_ids)} with all committed offsets?", assume_yes)
    with administered(cluster) as admin:
        results = admin.delete_groups(group_ids, partial=True)
    tell_outcome(results, lambda group_id, _: f"{group_id}: deleted")


def delete_offsets_command(cluster: Cluster, group_id: str, topic: str, assume_yes: bool) -> None:
    """Deletes the committed offsets of a topic."""
    confirm(f"Delete the committed offsets of {group_id} for {topic}?", assume_yes)
    with administered(cluster) as admin:
        committed = admin.list_group_offsets(group_id)[group_id]
        wanted = sorted(one for one in committed if one.topic == topic)
        if not wanted:
            raise CommandError(f"{group_id} has no committed offsets of {topic}")
        results = admin.delete_group_offsets(group_id, wanted, partial=True)
    tell_outcome(results, lambda partition, _: f"{group_id}: offset of {partition} deleted")
