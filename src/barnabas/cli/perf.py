"""``barnabas perf``: measures the throughput and latency of a cluster."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from barnabas.cli.arguments import ArgumentParser, add_command
from barnabas.cli.cluster import Cluster, add_cluster
from barnabas.cli.perf_consume import add_perf_consume

if TYPE_CHECKING:
    from barnabas.cli.arguments import Commands

DESCRIPTION: Final = "Measures a cluster, with the options and the output of Kafka's own performance tools."
PRODUCE: Final = """Sends records as fast as it can, or at a given rate, and prints throughput and latency: a line every
five seconds and one at the end, in the format of kafka-producer-perf-test.

  barnabas perf produce --topic test --num-records 1000000 --record-size 100
  barnabas perf produce --topic test --num-records 1000000 --record-size 100 --table
  barnabas perf produce --topic test --num-records 50000 --payload-file lines.txt --throughput 1000 \\
      --producer-props acks=1 linger.ms=20"""
TABLE_ROWS: Final = 10_000


def add_perf(commands: Commands) -> None:
    parser = commands.add_parser("perf", help="measure the throughput of a cluster", description=DESCRIPTION)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", parser_class=ArgumentParser, required=True)
    producing = add_command(actions, "produce", produce_command, "measure a producer", PRODUCE)
    add_cluster(producing)
    producing.add_argument("--topic", required=True, help="the topic")
    producing.add_argument("--num-records", type=count, required=True, metavar="N", help="the number of records")
    payload = producing.add_mutually_exclusive_group(required=True)
    payload.add_argument("--record-size", type=count, metavar="BYTES", help="the size of random values")
    payload.add_argument("--payload-file", metavar="FILE", help="values to choose from at random")
    producing.add_argument(
        "--payload-delimiter", default="\\n", metavar="TEXT", help="the delimiter in that file; default: \\n"
    )
    producing.add_argument(
        "--throughput", type=float, default=-1, metavar="N", help="records per second, approximately; -1: no limit"
    )
    producing.add_argument(
        "--producer-props", nargs="+", default=[], metavar="NAME=VALUE", help="settings of the producer"
    )
    producing.add_argument(
        "--table",
        type=count,
        nargs="?",
        const=TABLE_ROWS,
        metavar="ROWS",
        help=f"send Arrow tables of this size; default: {TABLE_ROWS:,} rows; all rows of a table have its latency",
    )
    producing.add_argument("--json", dest="as_json", action="store_true", help="one JSON document per line")
    add_perf_consume(actions)


def count(text: str) -> int:
    """Parses a positive number for ``type=``."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a number of at least 1: {text!r}")
    return int(text)


def produce_command(
    cluster: Cluster,
    topic: str,
    num_records: int,
    record_size: int | None,
    payload_file: str | None,
    payload_delimiter: str,
    throughput: float,
    producer_props: list[str],
    table: int | None,
    as_json: bool,
) -> None:
    """Measures a producer."""
    from barnabas.cli.perf_produce import PerfProduce
    from barnabas.cli.perf_stats import json_line, text_line
    from barnabas.cli.producer_settings import parse_settings
    from barnabas.common.clock import SYSTEM_CLOCK

    settings = cluster.properties({"client.id": "perf-producer-client"})
    settings |= parse_settings(producer_props, "--producer-props")
    PerfProduce(
        topic,
        num_records,
        settings,
        record_size=record_size,
        payload_file=payload_file,
        payload_delimiter=payload_delimiter.replace("\\n", "\n"),
        throughput=throughput if throughput > 0 else None,
        table_rows=table,
        line=json_line if as_json else text_line,
        clock=SYSTEM_CLOCK,
    ).run()
