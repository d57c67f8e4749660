"""``barnabas groups reset-offsets``: changes the committed offsets of a group.

As with Kafka's own tool, it changes nothing without ``--execute``; it only prints a table of the new offsets. A group
with members cannot be reset, because its members would commit their own offsets right afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.cli.admin import add_common, administered, tell
from barnabas.cli.arguments import add_command
from barnabas.cli.console import CommandError, UsageError
from barnabas.cli.times import parse_duration_ms, parse_time_ms

if TYPE_CHECKING:
    from barnabas.cli.arguments import Commands
    from barnabas.cli.cluster import Cluster
    from barnabas.clients.admin import KafkaAdminClient, OffsetAndMetadata, TopicPartition

RESET: Final = """Sets the offsets of a group without members. Without --execute it only shows the new offsets.

  barnabas groups reset-offsets billing --topic orders --to-earliest
  barnabas groups reset-offsets billing --topic orders:0,1 --to-datetime 2026-03-01T12:00:00 --execute
  barnabas groups reset-offsets billing --all-topics --by-duration 2h --execute"""


def add_reset(actions: Commands) -> None:
    parser = add_command(actions, "reset-offsets", reset_command, "change committed offsets", RESET)
    # argparse would print all alternatives on one line.
    parser.usage = f"{parser.prog} [-h] [-b HOST:PORT] [--json] GROUP (--topic T | --all-topics) WHERE [--execute]"
    add_common(parser)
    parser.add_argument("group_id", metavar="GROUP", help="the group; it is created if it does not exist")
    scope = parser.add_argument_group("partitions").add_mutually_exclusive_group(required=True)
    scope.add_argument(
        "-t",
        "--topic",
        dest="topics",
        action="append",
        default=[],
        metavar="TOPIC[:N,N]",
        help="a topic, or some of its partitions; may be repeated",
    )
    scope.add_argument("--all-topics", action="store_true", help="all topics with committed offsets of the group")
    target = parser.add_argument_group("new position").add_mutually_exclusive_group(required=True)
    target.add_argument("--to-earliest", action="store_true", help="the first record")
    target.add_argument("--to-latest", action="store_true", help="the end of the partition")
    target.add_argument("--to-current", action="store_true", help="the committed offset, or the end if there is none")
    target.add_argument("--to-offset", type=int, metavar="N", help="an offset, or the nearest one that exists")
    target.add_argument("--shift-by", type=int, metavar="N", help="forward by N records, or back if negative")
    target.add_argument("--to-datetime", metavar="TIME", help="the first record since this time, in UTC")
    target.add_argument("--by-duration", metavar="TIME", help="the first record of this last period, for example 2h")
    doing = parser.add_mutually_exclusive_group()
    doing.add_argument("--execute", action="store_true", help="commit the new offsets")
    doing.add_argument("--dry-run", action="store_true", help="only show the new offsets (the default)")


def reset_command(
    cluster: Cluster,
    group_id: str,
    topics: list[str],
    all_topics: bool,
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    to_offset: int | None,
    shift_by: int | None,
    to_datetime: str | None,
    by_duration: str | None,
    execute: bool,
    dry_run: bool,  # noqa: ARG001 - only excludes --execute; it is the default
    as_json: bool,
) -> None:
    """Shows or commits new offsets of a group."""
    from barnabas.cli.output import number, print_json, print_rich, table
    from barnabas.clients.admin import OffsetSpec
    from barnabas.common.clock import SYSTEM_CLOCK

    spec: OffsetSpec | None = None
    if to_earliest:
        spec = OffsetSpec.earliest()
    elif to_latest:
        spec = OffsetSpec.latest()
    elif to_datetime is not None:
        spec = OffsetSpec.for_timestamp(parse_time_ms(to_datetime))
    elif by_duration is not None:
        spec = OffsetSpec.for_timestamp(max(SYSTEM_CLOCK.milliseconds() - parse_duration_ms(by_duration), 0))
    with administered(cluster) as admin:
        _refuse_active(admin, group_id)
        committed = admin.list_group_offsets(group_id)[group_id]
        wanted = sorted(committed) if all_topics else _partitions(admin, topics)
        if not wanted:
            raise CommandError(f"{group_id} has no offsets")
        limits = _limits(admin, wanted)
        new: dict[TopicPartition, int] = {}
        if spec is not None:
            found = admin.list_offsets(dict.fromkeys(wanted, spec), patient=False)
            # A timestamp after the last record resolves to the end.
            new = {one: limits[one][1] if found[one].offset < 0 else found[one].offset for one in wanted}
        else:
            for one in wanted:
                new[one] = _target(one, committed.get(one), limits[one], to_offset, shift_by, to_current)
        if execute:
            admin.alter_group_offsets(group_id, new)
    before = {one: None if (old := committed.get(one)) is None else old.offset for one in wanted}
    if as_json:
        print_json(
            [
                {
                    "topic": one.topic,
                    "partition": one.partition,
                    "before": before[one],
                    "after": new[one],
                    "executed": execute,
                }
                for one in wanted
            ]
        )
        return
    rows = [(one.topic, str(one.partition), number(before[one]), number(new[one])) for one in wanted]
    print_rich(
        table(("topic", "partition", "before", "after"), rows, right=("partition", "before", "after")),
    )
    tell(f"{group_id}: offsets committed" if execute else f"{group_id}: nothing was changed; use --execute to commit")


def _refuse_active(admin: KafkaAdminClient, group_id: str) -> None:
    from barnabas.common.errors import GroupIdNotFoundError

    found = admin.describe_groups([group_id], partial=True)
    if group_id in found and found[group_id].members:
        count = len(found[group_id].members)
        raise CommandError(
            f"{group_id} has {count} member{'s' * (count != 1)}; stop {'it' if count == 1 else 'them'} first, "
            "because members would overwrite the new offsets"
        )
    error = found.errors.get(group_id)
    if error is not None and not isinstance(error, GroupIdNotFoundError):
        raise error


def _partitions(admin: KafkaAdminClient, topics: list[str]) -> list[TopicPartition]:
    from barnabas.clients.admin import TopicPartition

    asked: dict[str, list[int] | None] = {}
    for text in topics:
        name, colon, numbers = text.partition(":")
        if colon and not all(part.strip().isdecimal() for part in numbers.split(",")):
            raise UsageError(f"--topic must have the form TOPIC or TOPIC:N,N, for example orders:0,1: {text!r}")
        asked[name] = [int(part) for part in numbers.split(",")] if colon else None
    described = admin.describe_topics(asked)
    found: list[TopicPartition] = []
    for name, wanted in asked.items():
        there = [partition.partition for partition in described[name].partitions]
        missing = [one for one in wanted or () if one not in there]
        if missing:
            raise CommandError(f"{name} has no partition {missing[0]}; it has {len(there)}")
        found += [TopicPartition(name, one) for one in (there if wanted is None else wanted)]
    return sorted(set(found))


def _limits(admin: KafkaAdminClient, partitions: list[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
    """Returns the start and end offset of each partition."""
    from barnabas.clients.admin import OffsetSpec

    starts = admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.earliest()), patient=False)
    ends = admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.latest()), patient=False)
    return {one: (starts[one].offset, ends[one].offset) for one in partitions}


def _target(
    partition: TopicPartition,
    committed: OffsetAndMetadata | None,
    limits: tuple[int, int],
    to_offset: int | None,
    shift_by: int | None,
    to_current: bool,
) -> int:
    """Returns the requested offset, limited to the offsets that exist."""
    start, end = limits
    if to_offset is not None:
        wanted = to_offset
    elif to_current:
        wanted = end if committed is None else committed.offset
    else:
        if committed is None:
            raise CommandError(f"--shift-by: the group has no committed offset of {partition}")
        assert shift_by is not None
        wanted = committed.offset + shift_by
    return min(max(wanted, start), end)
