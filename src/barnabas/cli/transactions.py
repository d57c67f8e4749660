"""``barnabas transactions``: shows transactions, finds hanging ones and aborts them.

barnabas transactions list --state Ongoing
barnabas transactions describe billing-1
barnabas transactions find-hanging --topic orders
barnabas transactions abort --topic orders --partition 0 --start-offset 1207
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.cli.admin import add_common, add_states, add_yes, administered, confirm, tell, tell_outcome
from barnabas.cli.arguments import ArgumentParser, add_command
from barnabas.cli.console import CommandError, UsageError
from barnabas.cli.times import parse_duration_ms

if TYPE_CHECKING:
    from barnabas.cli.arguments import Commands
    from barnabas.cli.cluster import Cluster
    from barnabas.clients.admin import KafkaAdminClient, ProducerState, TopicPartition

DESCRIPTION: Final = "Shows transactions, finds hanging ones and aborts them."
FIND: Final = """Finds hanging transactions: they are open in a partition but unknown to any coordinator.
Nothing ends them, and read_committed consumers cannot read past them.

A transaction is suspicious when it is older than the longest timeout (--max-age, which should
be transaction.max.timeout.ms of the brokers). It hangs if its producer has no open
transaction that includes this partition."""
ABORT: Final = """Aborts a transaction that find-hanging has found, in one partition and without its coordinator.

Name the transaction by its start offset, or by its producer ID as shown by find-hanging."""
_STATES: Final = ("Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Empty")
_MAX_AGE: Final = "15m"


def add_transactions(commands: Commands) -> None:
    parser = commands.add_parser("transactions", help="show transactions, abort hanging ones", description=DESCRIPTION)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", parser_class=ArgumentParser, required=True)

    listing = add_command(
        actions, "list", list_command, "show transactional IDs", "Shows transactional IDs with their states."
    )
    add_common(listing)
    add_states(listing, "transactions", _STATES)
    listing.add_argument("--min-duration", metavar="TIME", help="only transactions open for at least this long")
    listing.add_argument("--pattern", metavar="REGEX", help="only matching transactional IDs")

    describing = add_command(
        actions, "describe", describe_command, "show transactions", "Shows the coordinator's state of transactions."
    )
    add_common(describing)
    describing.add_argument("transactional_ids", nargs="+", metavar="ID", help="the transactional IDs")

    finding = add_command(actions, "find-hanging", find_command, "find hanging transactions", FIND)
    add_common(finding)
    finding.add_argument("-t", "--topic", metavar="TOPIC", help="only in this topic; default: all topics")
    finding.add_argument("-p", "--partition", type=int, metavar="N", help="only in this partition of the topic")
    finding.add_argument(
        "--max-age", default=_MAX_AGE, metavar="TIME", help=f"older transactions are suspicious; default: {_MAX_AGE}"
    )

    aborting = add_command(actions, "abort", abort_command, "abort a hanging transaction", ABORT)
    add_common(aborting, json=False)
    aborting.add_argument("-t", "--topic", required=True, metavar="TOPIC", help="the topic")
    aborting.add_argument("-p", "--partition", type=int, required=True, metavar="N", help="the partition")
    aborting.add_argument("--start-offset", type=int, metavar="N", help="the start offset of the transaction")
    aborting.add_argument("--producer-id", type=int, metavar="N", help="the producer ID, instead of the offset")
    add_yes(aborting)

    fencing = add_command(
        actions,
        "fence",
        fence_command,
        "fence producers",
        "Fences the producers of transactional IDs and aborts their open transactions.",
    )
    add_common(fencing, json=False)
    fencing.add_argument("transactional_ids", nargs="+", metavar="ID", help="the transactional IDs")
    add_yes(fencing)


def list_command(
    cluster: Cluster, states: list[str], min_duration: str | None, pattern: str | None, as_json: bool
) -> None:
    """Prints transactional IDs."""
    from barnabas.cli.output import print_json, print_rich, table

    duration_ms = None if min_duration is None else parse_duration_ms(min_duration)
    with administered(cluster) as admin:
        found = admin.list_transactions(states=states, min_duration_ms=duration_ms, transactional_id_pattern=pattern)
    if as_json:
        print_json(
            [
                {"transactional_id": one.transactional_id, "producer_id": one.producer_id, "state": one.state.value}
                for one in found
            ]
        )
    elif not found:
        tell("No transactional ID matches." if states or min_duration or pattern else "There are no transactional IDs.")
    else:
        rows = [(one.transactional_id, str(one.producer_id), one.state.value) for one in found]
        print_rich(table(("transactional id", "producer", "state"), rows, right=("producer",)))


def describe_command(cluster: Cluster, transactional_ids: list[str], as_json: bool) -> None:
    """Prints the coordinator's state of transactions."""
    from barnabas.cli.output import number, print_json, print_rich, table, time_text
    from barnabas.clients.admin import Results

    with administered(cluster) as admin:
        results = admin.describe_transactions(transactional_ids, partial=True)
    if as_json:
        print_json(
            [
                {
                    "transactional_id": one.transactional_id,
                    "state": one.state.value,
                    "coordinator": one.coordinator_id,
                    "producer_id": one.producer_id,
                    "producer_epoch": one.producer_epoch,
                    "timeout_ms": one.transaction_timeout_ms,
                    "start_ms": one.transaction_start_ms,
                    "partitions": [
                        {"topic": part.topic, "partition": part.partition} for part in sorted(one.partitions)
                    ],
                }
                for one in results.values()
            ]
        )
    elif results:
        rows = [
            (
                one.transactional_id,
                one.state.value,
                str(one.producer_id),
                str(one.producer_epoch),
                str(one.coordinator_id),
                number(one.transaction_timeout_ms),
                time_text(one.transaction_start_ms),
                " ".join(map(str, sorted(one.partitions))) or "-",
            )
            for one in results.values()
        ]
        headers = ("transactional id", "state", "producer", "epoch", "coordinator", "timeout ms", "since", "partitions")
        print_rich(table(headers, rows, right=("producer", "epoch", "coordinator", "timeout ms")))
    tell_outcome(Results({}, results.errors), lambda *_: "")


def find_command(cluster: Cluster, topic: str | None, partition: int | None, max_age: str, as_json: bool) -> None:
    """Prints hanging transactions."""
    from barnabas.cli.output import number, print_json, print_rich, table, time_text
    from barnabas.common.clock import SYSTEM_CLOCK

    if partition is not None and topic is None:
        raise UsageError("--partition requires --topic")
    oldest_ms = SYSTEM_CLOCK.milliseconds() - parse_duration_ms(max_age)
    with administered(cluster) as admin:
        found = _hanging(admin, _partitions(admin, topic, partition), oldest_ms)
    if as_json:
        print_json(
            [
                {
                    "topic": where.topic,
                    "partition": where.partition,
                    "producer_id": producer.producer_id,
                    "producer_epoch": producer.producer_epoch,
                    "start_offset": producer.current_transaction_start_offset,
                    "last_timestamp": producer.last_timestamp,
                }
                for where, producer in found
            ]
        )
    elif not found:
        tell("There are no hanging transactions.")
    else:
        rows = [
            (
                where.topic,
                str(where.partition),
                number(producer.current_transaction_start_offset),
                str(producer.producer_id),
                str(producer.producer_epoch),
                time_text(producer.last_timestamp),
            )
            for where, producer in found
        ]
        headers = ("topic", "partition", "begins at", "producer", "epoch", "last record")
        print_rich(table(headers, rows, right=("partition", "begins at", "producer", "epoch")))


def _partitions(admin: KafkaAdminClient, topic: str | None, partition: int | None) -> list[TopicPartition]:
    from barnabas.clients.admin import TopicPartition

    described = admin.describe_topics([topic] if topic is not None else list(admin.list_topics()))
    found = [
        TopicPartition(name, one.partition)
        for name, description in described.items()
        for one in description.partitions
        if one.leader is not None and partition in {None, one.partition}
    ]
    if partition is not None and not found:
        raise CommandError(f"{topic} has no partition {partition} with a leader")
    return found


def _hanging(
    admin: KafkaAdminClient, partitions: list[TopicPartition], oldest_ms: int
) -> list[tuple[TopicPartition, ProducerState]]:
    """Returns transactions that are open in a partition but not with their producer's coordinator."""
    suspicious = [
        (partition, producer)
        for partition, producers in admin.describe_producers(partitions, patient=False).items()
        for producer in producers
        if producer.current_transaction_start_offset is not None and producer.last_timestamp <= oldest_ms
    ]
    if not suspicious:
        return []
    owners = {
        listing.producer_id: listing.transactional_id
        for listing in admin.list_transactions(producer_ids={producer.producer_id for _, producer in suspicious})
    }
    known = admin.describe_transactions(set(owners.values()), partial=True)
    found = []
    for partition, producer in suspicious:
        owner = owners.get(producer.producer_id)
        description = known.get(owner) if owner is not None else None
        if description is None or partition not in description.partitions:
            found.append((partition, producer))
    return found


def abort_command(
    cluster: Cluster,
    topic: str,
    partition: int,
    start_offset: int | None,
    producer_id: int | None,
    assume_yes: bool,
) -> None:
    """Aborts a hanging transaction."""
    from barnabas.clients.admin import AbortTransactionSpec, TopicPartition

    if (start_offset is None) == (producer_id is None):
        raise UsageError("name the transaction: --start-offset or --producer-id")
    where = TopicPartition(topic, partition)
    with administered(cluster) as admin:
        producers = admin.describe_producers([where], patient=False)[where]
        found = next(
            (
                one
                for one in producers
                if one.current_transaction_start_offset is not None
                and (one.current_transaction_start_offset == start_offset or one.producer_id == producer_id)
            ),
            None,
        )
        if found is None:
            named = f"at offset {start_offset}" if producer_id is None else f"of producer {producer_id}"
            raise CommandError(f"{where} has no open transaction {named}")
        confirm(f"Abort the transaction of producer {found.producer_id} in {where}?", assume_yes)
        # A producer without any transaction marker in the partition has no coordinator epoch yet.
        epoch = 0 if found.coordinator_epoch is None else found.coordinator_epoch
        admin.abort_transaction(AbortTransactionSpec(where, found.producer_id, found.producer_epoch, epoch))
    tell(f"{where}: aborted the transaction of producer {found.producer_id}")


def fence_command(cluster: Cluster, transactional_ids: list[str], assume_yes: bool) -> None:
    """Fences producers."""
    confirm(f"Fence the producers of {', '.join(transactional_ids)}?", assume_yes)
    with administered(cluster) as admin:
        results = admin.fence_producers(transactional_ids, partial=True)
    tell_outcome(results, lambda name, new: f"{name}: fenced; the new epoch is {new.producer_epoch}")
