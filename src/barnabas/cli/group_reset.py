"""``barnabas groups reset-offsets``: lets a group begin somewhere else.

It changes nothing unless ``--execute`` says so, as with Kafka's own tool: what it would do is a table to be looked at
first. A group that somebody is in cannot be reset, because its members would commit their own offsets right after.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.cli.admin import add_common, administered, tell
from barnabas.cli.arguments import add_command
from barnabas.cli.console import CommandError, UsageError
from barnabas.cli.times import parse_duration_ms, parse_time_ms

if TYPE_CHECKING:
    from barnabas.cli.arguments import Commands
    from barnabas.clients.admin import KafkaAdminClient, OffsetAndMetadata, TopicPartition

RESET: Final = """Sets the offsets of a group that nobody is in. Without --execute it only shows what would be set.

  barnabas groups reset-offsets billing --topic orders --to-earliest
  barnabas groups reset-offsets billing --topic orders:0,1 --to-datetime 2026-03-01T12:00:00 --execute
  barnabas groups reset-offsets billing --all-topics --by-duration 2h --execute"""


def add_reset(actions: Commands) -> None:
    parser = add_command(actions, "reset-offsets", reset_command, "let a group begin somewhere else", RESET)
    # argparse would put all the alternatives into one line.
    parser.usage = f"{parser.prog} [-h] [-b HOST:PORT] [--json] GROUP (--topic T | --all-topics) WHERE [--execute]"
    add_common(parser)
    parser.add_argument("group_id", metavar="GROUP", help="the group; one that is not there is made")
    scope = parser.add_argument_group("which partitions").add_mutually_exclusive_group(required=True)
    scope.add_argument(
        "-t",
        "--topic",
        dest="topics",
        action="append",
        default=[],
        metavar="TOPIC[:N,N]",
        help="a topic, or some of its partitions; may be repeated",
    )
    scope.add_argument("--all-topics", action="store_true", help="all topics that the group has offsets of")
    target = parser.add_argument_group("where to").add_mutually_exclusive_group(required=True)
    target.add_argument("--to-earliest", action="store_true", help="the first record that is there")
    target.add_argument("--to-latest", action="store_true", help="after the last record")
    target.add_argument("--to-current", action="store_true", help="where it is; the end where it is nowhere")
    target.add_argument("--to-offset", type=int, metavar="N", help="an offset, or the nearest that is there")
    target.add_argument("--shift-by", type=int, metavar="N", help="so many records on, or back if negative")
    target.add_argument("--to-datetime", metavar="TIME", help="the first record not older than that, in UTC")
    target.add_argument("--by-duration", metavar="TIME", help="the first record not older than so long, such as 2h")
    doing = parser.add_mutually_exclusive_group()
    doing.add_argument("--execute", action="store_true", help="do it")
    doing.add_argument("--dry-run", action="store_true", help="only show it, as without --execute")


def reset_command(
    bootstrap: str,
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
    dry_run: bool,  # noqa: ARG001 - excludes --execute, and is what happens anyway
    as_json: bool,
) -> None:
    """Lets a group begin somewhere else."""
    from barnabas.cli.output import number, print_json, print_rich, table  # noqa: PLC0415 - not for --help
    from barnabas.clients.admin import OffsetSpec  # noqa: PLC0415
    from barnabas.common.clock import SYSTEM_CLOCK  # noqa: PLC0415

    spec: OffsetSpec | None = None
    if to_earliest:
        spec = OffsetSpec.earliest()
    elif to_latest:
        spec = OffsetSpec.latest()
    elif to_datetime is not None:
        spec = OffsetSpec.for_timestamp(parse_time_ms(to_datetime))
    elif by_duration is not None:
        spec = OffsetSpec.for_timestamp(max(SYSTEM_CLOCK.milliseconds() - parse_duration_ms(by_duration), 0))
    with administered(bootstrap) as admin:
        _refuse_active(admin, group_id)
        committed = admin.list_group_offsets(group_id)[group_id]
        wanted = sorted(committed) if all_topics else _partitions(admin, topics)
        if not wanted:
            raise CommandError(f"{group_id} has no offsets")
        limits = _limits(admin, wanted)
        new: dict[TopicPartition, int] = {}
        if spec is not None:
            found = admin.list_offsets(dict.fromkeys(wanted, spec), patient=False)
            # No record is that new: then the end it is.
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
    tell(f"{group_id}: done" if execute else f"{group_id}: nothing was changed; --execute does it")


def _refuse_active(admin: KafkaAdminClient, group_id: str) -> None:
    from barnabas.common.errors import GroupIdNotFoundError  # noqa: PLC0415

    found = admin.describe_groups([group_id], partial=True)
    if group_id in found and found[group_id].members:
        count = len(found[group_id].members)
        raise CommandError(
            f"{group_id} has {count} member{'s' * (count != 1)}; stop {'it' if count == 1 else 'them'} first, "
            "or they would commit their own offsets again"
        )
    error = found.errors.get(group_id)
    if error is not None and not isinstance(error, GroupIdNotFoundError):
        raise error


def _partitions(admin: KafkaAdminClient, topics: list[str]) -> list[TopicPartition]:
    from barnabas.clients.admin import TopicPartition  # noqa: PLC0415

    asked: dict[str, list[int] | None] = {}
    for text in topics:
        name, colon, numbers = text.partition(":")
        if colon and not all(part.strip().isdecimal() for part in numbers.split(",")):
            raise UsageError(f"--topic: {text!r} is not a topic with partitions, as in orders:0,1")
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
    """Where each partition begins and ends."""
    from barnabas.clients.admin import OffsetSpec  # noqa: PLC0415

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
    """The offset that is asked for, or the nearest that is there."""
    start, end = limits
    if to_offset is not None:
        wanted = to_offset
    elif to_current:
        wanted = end if committed is None else committed.offset
    else:
        if committed is None:
            raise CommandError(f"{partition} cannot be shifted: the group has no offset there")
        assert shift_by is not None
        wanted = committed.offset + shift_by
    return min(max(wanted, start), end)
