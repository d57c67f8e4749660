"""``barnabas topics``: lists, creates, describes, changes and deletes topics.

barnabas topics create orders --partitions 6 --config retention.ms=86400000
barnabas topics list
barnabas topics describe orders
barnabas topics alter orders --partitions 12
barnabas topics delete orders
barnabas topics delete-records orders --partition 0 --before 1000
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from barnabas.cli.admin import (
    add_common,
    add_yes,
    administered,
    confirm,
    explain,
    explain_topic,
    key_values,
    tell,
    tell_outcome,
)
from barnabas.cli.arguments import ArgumentParser, add_command
from barnabas.cli.console import CommandError, UsageError

if TYPE_CHECKING:
    from barnabas.cli.arguments import Commands
    from barnabas.cli.cluster import Cluster
    from barnabas.clients.admin import KafkaAdminClient, TopicDescription

DESCRIPTION: Final = "Lists, creates, describes, changes and deletes topics."
CREATE: Final = """Creates topics. The broker's defaults apply to options that are not given.

  barnabas topics create orders --partitions 6 --config cleanup.policy=compact"""
DESCRIBE: Final = """Shows partitions: leader, replicas, ISR, and offsets.

Without a name, all topics are shown. --under-replicated and --unavailable select the
partitions that need attention."""
ALTER: Final = """Adds partitions to a topic, or changes its settings.

After adding partitions, a key may map to a different partition. The number of partitions cannot be reduced."""
DELETE_RECORDS: Final = """Permanently deletes the records of a partition before an offset.

  barnabas topics delete-records orders --partition 0 --before 1000
  barnabas topics delete-records orders --partition 0 --before end"""


def add_topics(commands: Commands) -> None:
    parser = commands.add_parser("topics", help="list, create, describe and delete topics", description=DESCRIPTION)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", parser_class=ArgumentParser, required=True)

    listing = add_command(actions, "list", list_command, "show all topics", "Shows all topics.")
    add_common(listing)
    listing.add_argument("-i", "--internal", action="store_true", help="also internal topics")

    creating = add_command(actions, "create", create_command, "create topics", CREATE)
    add_common(creating)
    creating.add_argument("names", nargs="+", metavar="TOPIC", help="the topics")
    creating.add_argument("-p", "--partitions", type=int, metavar="N", help="the number of partitions")
    creating.add_argument("-r", "--replication-factor", type=int, metavar="N", help="the number of replicas of each")
    creating.add_argument(
        "-c", "--config", action="append", default=[], metavar="KEY=VALUE", help="a setting; may be repeated"
    )
    creating.add_argument("--if-not-exists", action="store_true", help="do not fail if a topic exists")
    creating.add_argument("--dry-run", action="store_true", help="only validate the request")

    describing = add_command(actions, "describe", describe_command, "show partitions", DESCRIBE)
    add_common(describing)
    describing.add_argument("names", nargs="*", metavar="TOPIC", help="the topics; default: all")
    describing.add_argument("--under-replicated", action="store_true", help="only partitions with replicas out of sync")
    describing.add_argument("--unavailable", action="store_true", help="only partitions without a leader")

    altering = add_command(actions, "alter", alter_command, "change a topic", ALTER)
    add_common(altering, json=False)
    altering.add_argument("name", metavar="TOPIC", help="the topic")
    altering.add_argument("-p", "--partitions", type=int, metavar="N", help="the new number of partitions")
    altering.add_argument(
        "-c", "--config", action="append", default=[], metavar="KEY=VALUE", help="a setting; may be repeated"
    )
    altering.add_argument(
        "--delete-config", action="append", default=[], metavar="KEY", help="reset to the default; may be repeated"
    )

    deleting = add_command(actions, "delete", delete_command, "delete topics", "Deletes topics with all their records.")
    add_common(deleting, json=False)
    deleting.add_argument("names", nargs="+", metavar="TOPIC", help="the topics")
    deleting.add_argument("--if-exists", action="store_true", help="do not fail if a topic does not exist")
    add_yes(deleting)

    cutting = add_command(actions, "delete-records", delete_records_command, "delete old records", DELETE_RECORDS)
    add_common(cutting, json=False)
    cutting.add_argument("name", metavar="TOPIC", help="the topic")
    cutting.add_argument("-p", "--partition", type=int, required=True, metavar="N", help="the partition")
    cutting.add_argument("--before", required=True, metavar="OFFSET", help="the first offset to keep, or end")
    add_yes(cutting)


def list_command(cluster: Cluster, internal: bool, as_json: bool) -> None:
    """Prints all topics."""
    from barnabas.cli.output import number, print_json, print_rich, table

    with administered(cluster) as admin:
        names = admin.list_topics(list_internal=internal)
        # Leaves out a topic that was deleted meanwhile.
        topics = list(admin.describe_topics(names, partial=True).values())
    if as_json:
        print_json([_summary(topic) for topic in topics])
    elif not topics:
        tell("There are no topics.")
    else:
        rows = [
            (topic.name, number(len(topic.partitions)), number(_replicas(topic)), topic.topic_id, _health(topic))
            for topic in topics
        ]
        print_rich(table(("topic", "partitions", "replicas", "id", "state"), rows, right=("partitions", "replicas")))


def _replicas(topic: TopicDescription) -> int:
    return max((len(partition.replicas) for partition in topic.partitions), default=0)


def _summary(topic: TopicDescription) -> dict[str, Any]:
    return {
        "name": topic.name,
        "id": topic.topic_id,
        "internal": topic.is_internal,
        "partitions": len(topic.partitions),
        "replicas": _replicas(topic),
    }


def _health(topic: TopicDescription) -> str:
    without = sum(partition.leader is None for partition in topic.partitions)
    behind = sum(len(partition.isr) < len(partition.replicas) for partition in topic.partitions)
    if without:
        return f"{without} without leader"
    return f"{behind} under-replicated" if behind else "ok"


def create_command(
    cluster: Cluster,
    names: list[str],
    partitions: int | None,
    replication_factor: int | None,
    config: list[str],
    if_not_exists: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Creates topics."""
    from barnabas.cli.output import print_json
    from barnabas.clients.admin import NewTopic, Results
    from barnabas.common.errors import TopicExistsError

    settings = key_values(config)
    wanted = [NewTopic(name, partitions, replication_factor, configs=settings) for name in names]
    with administered(cluster) as admin:
        results = admin.create_topics(wanted, validate_only=dry_run, partial=True)
    present = [name for name, error in results.errors.items() if if_not_exists and isinstance(error, TopicExistsError)]
    results = Results(results, {name: error for name, error in results.errors.items() if name not in present})
    if as_json:
        print_json(
            [
                {"name": made.name, "id": made.topic_id, "partitions": made.num_partitions, "created": not dry_run}
                for made in results.values()
            ]
        )
        tell_outcome(Results({}, results.errors), lambda *_: "")
        return
    for name in present:
        tell(f"{name}: already exists")
    what = "could be created" if dry_run else "created"
    tell_outcome(
        results,
        lambda name, made: (
            f"{name}: {what}, {made.num_partitions} partition{'s' * (made.num_partitions != 1)}, "
            f"{made.replication_factor} replica{'s' * (made.replication_factor != 1)}"
        ),
    )


def describe_command(
    cluster: Cluster, names: list[str], under_replicated: bool, unavailable: bool, as_json: bool
) -> None:
    """Prints partitions."""
    from barnabas.cli.output import print_json, print_rich, title

    with administered(cluster) as admin:
        asked = names or list(admin.list_topics(list_internal=True))
        results = admin.describe_topics(asked, partial=True)
        documents = [_document(admin, topic) for topic in results.values()]
    for document in documents:
        document["partitions"] = [
            row
            for row in document["partitions"]
            if (not under_replicated or len(row["isr"]) < len(row["replicas"]))
            and (not unavailable or row["leader"] is None)
        ]
    if under_replicated or unavailable:
        documents = [document for document in documents if document["partitions"]]
    if as_json:
        print_json(documents)
    elif not documents and not results.errors:
        tell("No partition matches." if under_replicated or unavailable else "There are no topics.")
    for document in [] if as_json else documents:
        settings = "  ".join(f"{key}={value}" for key, value in document["configs"].items())
        internal = "  internal" if document["internal"] else ""
        head = f"{document['name']}  {document['id']}{internal}" + (f"  {settings}" if settings else "")
        print_rich(title(head), _partition_table(document["partitions"]))
    if names and results.errors:
        raise CommandError("; ".join(explain_topic(name, error) for name, error in results.errors.items()))


def _partition_table(rows: list[dict[str, Any]]) -> Any:
    from barnabas.cli.output import number, table

    def ids(values: list[int]) -> str:
        return ",".join(map(str, values)) or "-"

    return table(
        ("partition", "leader", "epoch", "replicas", "in sync", "offline", "start", "end", "records"),
        [
            (
                str(row["partition"]),
                "none" if row["leader"] is None else str(row["leader"]),
                str(row["leader_epoch"]),
                ids(row["replicas"]),
                ids(row["isr"]),
                ids(row["offline"]),
                number(row["start_offset"]),
                number(row["end_offset"]),
                number(row["records"]),
            )
            for row in rows
        ],
        right=("partition", "leader", "epoch", "start", "end", "records"),
    )


def _document(admin: KafkaAdminClient, topic: TopicDescription) -> dict[str, Any]:
    from barnabas.clients.admin import ConfigResource, ConfigSource, OffsetSpec, TopicPartition

    keys = [TopicPartition(topic.name, partition.partition) for partition in topic.partitions if partition.leader]
    starts = admin.list_offsets(dict.fromkeys(keys, OffsetSpec.earliest()), patient=False, partial=True)
    ends = admin.list_offsets(dict.fromkeys(keys, OffsetSpec.latest()), patient=False, partial=True)
    resource = ConfigResource.topic(topic.name)
    configs = admin.describe_configs([resource], partial=True).get(resource, {})
    partitions = []
    for partition in topic.partitions:
        key = TopicPartition(topic.name, partition.partition)
        start = starts[key].offset if key in starts else None
        end = ends[key].offset if key in ends else None
        partitions.append(
            {
                "partition": partition.partition,
                "leader": None if partition.leader is None else partition.leader.id,
                "leader_epoch": partition.leader_epoch,
                "replicas": [node.id for node in partition.replicas],
                "isr": [node.id for node in partition.isr],
                "eligible_leader_replicas": [node.id for node in partition.eligible_leader_replicas],
                "offline": [node.id for node in partition.offline_replicas],
                "start_offset": start,
                "end_offset": end,
                "records": None if start is None or end is None else end - start,
            }
        )
    return {
        "name": topic.name,
        "id": topic.topic_id,
        "internal": topic.is_internal,
        "configs": {
            name: entry.value
            for name, entry in sorted(configs.items())
            if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
        },
        "partitions": partitions,
    }


def alter_command(
    cluster: Cluster, name: str, partitions: int | None, config: list[str], delete_config: list[str]
) -> None:
    """Changes a topic."""
    from barnabas.clients.admin import ConfigResource

    changes: dict[str, str | None] = {**key_values(config), **dict.fromkeys(delete_config)}
    if partitions is None and not changes:
        raise UsageError("name what to change: --partitions, --config or --delete-config")
    with administered(cluster) as admin:
        if changes:
            admin.incremental_alter_configs({ConfigResource.topic(name): changes})
            for key, value in changes.items():
                tell(f"{name}: {key} " + ("reset to its default" if value is None else f"set to {value}"))
        if partitions is not None:
            admin.create_partitions({name: partitions})
            tell(f"{name}: {partitions} partitions")


def delete_command(cluster: Cluster, names: list[str], if_exists: bool, assume_yes: bool) -> None:
    """Deletes topics."""
    from barnabas.clients.admin import Results
    from barnabas.common.errors import UnknownTopicOrPartitionError

    confirm(f"Delete {', '.join(names)} with all records?", assume_yes)
    with administered(cluster) as admin:
        results = admin.delete_topics(names, partial=True)
    missing = [
        name for name, error in results.errors.items() if if_exists and isinstance(error, UnknownTopicOrPartitionError)
    ]
    for name in missing:
        tell(f"{name}: does not exist")
    failed = {name: error for name, error in results.errors.items() if name not in missing}
    tell_outcome(Results(results, failed), lambda name, _: f"{name}: deleted")


def delete_records_command(cluster: Cluster, name: str, partition: int, before: str, assume_yes: bool) -> None:
    """Deletes old records."""
    from barnabas.clients.admin import TopicPartition

    if before != "end" and not before.isdecimal():
        raise UsageError(f"--before must be an offset or end: {before!r}")
    confirm(f"Delete the records of {name}-{partition} before {before}?", assume_yes)
    key = TopicPartition(name, partition)
    with administered(cluster) as admin:
        results = admin.delete_records({key: -1 if before == "end" else int(before)}, patient=False, partial=True)
    if results.errors:
        raise CommandError(f"{key}: {explain(results.errors[key])}")
    tell(f"{key}: log start offset is {results[key]:,}")
