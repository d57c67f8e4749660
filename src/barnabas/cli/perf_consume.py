"""``barnabas perf consume``: measures a consumer, with the output of ``kafka-consumer-perf-test``."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from barnabas.cli.arguments import add_command
from barnabas.cli.cluster import Cluster, add_cluster, invalid_settings
from barnabas.cli.console import CommandError, UsageError, say

if TYPE_CHECKING:
    from barnabas.cli.arguments import Commands

CONSUME: Final = """Reads records as fast as it can and prints the throughput in the columns of
kafka-consumer-perf-test. With --table, it reads Arrow tables.

  barnabas perf consume --topic test --num-records 1000000
  barnabas perf consume --topic test --num-records 1000000 --table"""
MEBIBYTE: Final = 1024 * 1024
POLL_MS: Final = 100
COLUMNS: Final = (
    "start.time",
    "end.time",
    "data.consumed.in.MB",
    "MB.sec",
    "data.consumed.in.nMsg",
    "nMsg.sec",
    "rebalance.time.ms",
    "fetch.time.ms",
    "fetch.MB.sec",
    "fetch.nMsg.sec",
)


def add_perf_consume(actions: Commands) -> None:
    parser = add_command(actions, "consume", perf_consume_command, "measure a consumer", CONSUME)
    add_cluster(parser)
    parser.add_argument("--topic", required=True, help="the topic")
    parser.add_argument("--num-records", type=int, required=True, metavar="N", help="the number of records")
    parser.add_argument("--group", metavar="ID", help="the group; default: a new one")
    parser.add_argument("--from-latest", action="store_true", help="read only records that are written from now on")
    parser.add_argument(
        "--timeout", type=float, default=10.0, metavar="SECONDS", help="stop after this time without a record; 10"
    )
    parser.add_argument("--table", action="store_true", help="read Arrow tables")
    parser.add_argument(
        "--consumer-props", nargs="+", default=[], metavar="NAME=VALUE", help="settings of the consumer"
    )
    parser.add_argument("--json", dest="as_json", action="store_true", help="print JSON")


def perf_consume_command(
    cluster: Cluster,
    topic: str,
    num_records: int,
    group: str | None,
    from_latest: bool,
    timeout: float,
    table: bool,
    consumer_props: list[str],
    as_json: bool,
) -> None:
    """Measures a consumer."""
    from barnabas.cli.admin import administered, explain, key_values
    from barnabas.cli.output import print_json
    from barnabas.clients.consumer import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
    from barnabas.common.clock import SYSTEM_CLOCK
    from barnabas.common.errors import ApiError, InvalidConfigurationError

    if num_records < 1:
        raise UsageError(f"--num-records must be at least 1: {num_records}")
    with administered(cluster) as admin:
        admin.describe_topics([topic])
    settings = cluster.properties(
        {
            "client.id": "perf-consumer-client",
            "group.id": f"perf-consumer-{uuid.uuid4().hex[:8]}",
            "auto.offset.reset": "latest" if from_latest else "earliest",
        }
    )
    settings |= ({} if group is None else {"group.id": group}) | key_values(consumer_props)
    try:
        consumer = KafkaConsumer(settings)
    except InvalidConfigurationError as error:
        raise invalid_settings(error) from None
    records = octets = 0
    joined: list[int] = []

    class Joined(ConsumerRebalanceListener):
        """Records when the first partitions were assigned."""

        def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            if partitions and not joined:
                joined.append(SYSTEM_CLOCK.nanoseconds())

    with consumer:
        consumer.subscribe([topic], Joined())
        started_ms, started_ns = SYSTEM_CLOCK.milliseconds(), SYSTEM_CLOCK.nanoseconds()
        last_ns = started_ns
        try:
            while records < num_records:
                count, size = _poll(consumer, table)
                now = SYSTEM_CLOCK.nanoseconds()
                if count:
                    records, octets, last_ns = records + count, octets + size, now
                elif now - last_ns > timeout * 1e9:
                    break
        except ApiError as error:
            raise CommandError(explain(error)) from None
    figures = _figures(started_ms, started_ns, joined[0] if joined else None, last_ns, records, octets)
    if as_json:
        print_json(dict(zip(COLUMNS, figures, strict=True)))
    else:
        say(", ".join(COLUMNS) + "\n" + ", ".join(map(str, figures)) + "\n", sys.stdout)
    if records < num_records:
        raise CommandError(f"received only {records:,} of {num_records:,} records, then none for {timeout:g} s")


def _poll(consumer: Any, table: bool) -> tuple[int, int]:
    """Polls once; returns the number of records and the bytes of their keys and values."""
    if table:
        rows = consumer.poll_table(POLL_MS, columns=("key", "value"))
        return rows.num_rows, rows.nbytes
    count = size = 0
    for record in consumer.poll(POLL_MS):
        count += 1
        size += max(record.serialized_key_size, 0) + max(record.serialized_value_size, 0)
    return count, size


def _figures(
    started_ms: int, started_ns: int, joined_ns: int | None, ended_ns: int, records: int, octets: int
) -> list[Any]:
    from barnabas.cli.output import time_text

    seconds = max(ended_ns - started_ns, 1) / 1e9
    joining = 0.0 if joined_ns is None else min((joined_ns - started_ns) / 1e9, seconds)
    fetching = max(seconds - joining, 1e-9)
    mebibytes = octets / MEBIBYTE
    return [
        time_text(started_ms),
        time_text(started_ms + round(seconds * 1_000)),
        round(mebibytes, 4),
        round(mebibytes / seconds, 4),
        records,
        round(records / seconds, 4),
        round(joining * 1_000),
        round(fetching * 1_000),
        round(mebibytes / fetching, 4),
        round(records / fetching, 4),
    ]
