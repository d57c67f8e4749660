"""``barnabas pipeline``: builds tables of client telemetry, the request log and quota usage with Spark.

barnabas pipeline list
barnabas pipeline run requests --once --out tables
barnabas pipeline run quotas --once --out tables
barnabas pipeline run quota-advice --out tables --capacity producer_byte_rate=50MB
barnabas pipeline run quota-dry-run --out tables --advised
barnabas pipeline show requests latency_1m --out tables
barnabas pipeline status --out tables
barnabas pipeline init shop
barnabas pipeline refresh shop
barnabas pipeline convert tables
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from barnabas.cli.arguments import ArgumentParser, add_command
from barnabas.cli.cluster import Cluster, add_cluster
from barnabas.cli.console import CommandError, UsageError, say
from barnabas.cli.pipeline_changes import CHANGES_OPTIONS, add_changes_options, changes_config
from barnabas.cli.pipeline_lake import (
    VALUE_OPTIONS,
    ValueOptions,
    add_lake_options,
    lake_config,
    pair,
    run_topic_table,
)
from barnabas.cli.pipeline_project import add_project_commands
from barnabas.cli.pipeline_sessions import SESSIONS_OPTIONS, add_sessions_options, run_sessions, sessions_config
from barnabas.cli.pipeline_status import add_metrics_option, add_status_command, observed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from barnabas.cli.arguments import Commands
    from barnabas.quota.config import QuotaWindows
    from barnabas.spark.pipelines.config import TableOptions
    from barnabas.spark.pipelines.quota_proposal import ProposedLimit

DESCRIPTION: Final = """Pipelines build tables of the topics __client_telemetry, __request_log and __quota_usage, with
Spark. They need the extra (pip install 'barnabas[spark]') and Java 17 or later."""
RUN: Final = """Runs a pipeline until Ctrl-C, or with --once until it has read all records. The next run continues
where it stopped, and counts every record once.

  barnabas pipeline run telemetry --out tables
  barnabas pipeline run quotas --once --out tables
  barnabas pipeline run quota-advice --out tables --capacity producer_byte_rate=50MB --by user
  barnabas pipeline run quota-dry-run --out tables --limit producer_byte_rate=2MB,client-id=reports
  barnabas pipeline run lake --topic orders --format delta --values json --schema 'id bigint, total double'
  barnabas pipeline run sessions --topic clicks --key-column user --schema 'user string, ms int' --aggregate ms:sum
  barnabas pipeline run changes --topic shop.public.orders --values connect --key id"""
SHOW: Final = "Shows rows of a table."
CONVERT: Final = """Converts the tables of release 0.1 in a directory to Delta tables (--format: to Iceberg).
Stop the pipelines first. An interrupted conversion can run again; the old files are deleted at its end."""
TABLE_FORMATS: Final = ("delta", "iceberg")
DEFAULT_OUT: Final = "barnabas-tables"
LAKE: Final = "lake"
SESSIONS: Final = "sessions"
CHANGES: Final = "changes"
_WIDTH: Final = 36


def add_pipeline(commands: Commands) -> None:
    parser = commands.add_parser("pipeline", help="build tables of telemetry with Spark", description=DESCRIPTION)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", parser_class=ArgumentParser, required=True)
    listing = add_command(actions, "list", list_command, "show the pipelines", "Shows the pipelines and their tables.")
    _add_json(listing, "print JSON")

    running = add_command(actions, "run", run_command, "run a pipeline", RUN)
    add_cluster(running)
    running.add_argument("name", help="the pipeline; see barnabas pipeline list")
    running.add_argument("--once", action="store_true", help="end when all records have been read")
    _add_place(running)
    running.add_argument(
        "--keep", default="168h", metavar="TIME", help="how long unused files of the tables are kept; default: 168h"
    )
    running.add_argument(
        "--checkpoint", metavar="DIR", help="where Spark stores its offsets; default: beside the tables"
    )
    running.add_argument(
        "--from",
        dest="starting_offsets",
        default="earliest",
        metavar="OFFSETS",
        help="where the first run starts: earliest (the default), latest, or JSON as for Spark's Kafka source",
    )
    running.add_argument("--every", default="10s", metavar="TIME", help="the interval between batches; default: 10s")
    running.add_argument("--lateness", default="10m", metavar="TIME", help="how late a record may be; default: 10m")
    running.add_argument(
        "--option",
        dest="options",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a further option of the source",
    )
    add_metrics_option(running)
    _add_json(running, "quota-advice and quota-dry-run: print their table as JSON")
    _add_quota_options(running)
    add_lake_options(running)
    add_sessions_options(running)
    add_changes_options(running)

    showing = add_command(actions, "show", show_command, "show rows of a table", SHOW)
    showing.add_argument("name", help="the pipeline")
    showing.add_argument("table", help="the table")
    _add_place(showing)
    showing.add_argument("-n", "--count", type=int, default=20, metavar="N", help="the number of rows; default: 20")
    _add_json(showing, "print JSON, with whole values")

    add_status_command(actions, _add_tables)
    add_project_commands(actions)

    converting = add_command(actions, "convert", convert_command, "convert tables of release 0.1", CONVERT)
    converting.add_argument("directory", metavar="DIR", help="the directory that was the pipelines' --out")
    converting.add_argument("--master", default="local[*]", metavar="URL", help="Spark's master; default: local[*]")
    _add_table_options(converting)


def _add_json(parser: ArgumentParser, text: str) -> None:
    parser.add_argument("--json", dest="as_json", action="store_true", help=text)


def _add_table_options(parser: ArgumentParser) -> None:
    tables = parser.add_argument_group("tables")
    tables.add_argument(
        "--format",
        dest="table_format",
        choices=TABLE_FORMATS,
        help="the format of the tables; default: the format of existing tables, else delta",
    )
    tables.add_argument("--catalog", metavar="NAME", help="iceberg: a catalog of pyiceberg's configuration")
    tables.add_argument(
        "--table-option",
        dest="table_options",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="delta: an option of the object store (AWS_ENDPOINT_URL=...); iceberg: a property of the catalog",
    )


def _add_tables(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--out", default=DEFAULT_OUT, metavar="DIR", help=f"the directory of the tables; default: {DEFAULT_OUT}"
    )
    _add_table_options(parser)


def table_options_of(table_format: str | None, catalog: str | None, table_options: list[str]) -> TableOptions:
    from barnabas.spark.pipelines.config import TableOptions

    return TableOptions(table_format, catalog, dict(pair(one, "--table-option") for one in table_options))


def _add_place(parser: ArgumentParser) -> None:
    _add_tables(parser)
    parser.add_argument("--master", default="local[*]", metavar="URL", help="Spark's master; default: local[*]")


def _add_quota_options(parser: ArgumentParser) -> None:
    quotas = parser.add_argument_group("quota-advice and quota-dry-run")
    quotas.add_argument(
        "--capacity", action="append", default=[], metavar="QUOTA=AMOUNT", help="the capacity of a broker, per second"
    )
    quotas.add_argument(
        "--by",
        choices=("user", "client-id", "user,client-id"),
        default="client-id",
        help="what identifies a tenant; default: client-id",
    )
    quotas.add_argument(
        "--headroom",
        type=float,
        default=1.25,
        metavar="X",
        help="limit of a well-behaved client, as a multiple of its peak; default: 1.25",
    )
    quotas.add_argument(
        "--simultaneous", action="store_true", help="as if all tenants had their peaks at the same time"
    )
    quotas.add_argument(
        "--limit",
        dest="limits",
        action="append",
        default=[],
        metavar="QUOTA=AMOUNT,ENTITY",
        help="a limit to try, such as producer_byte_rate=2MB,client-id=reports or ...,user (the default user)",
    )
    quotas.add_argument("--advised", action="store_true", help="try the limits of quota-advice")
    quotas.add_argument(
        "--clients", choices=("backlog", "shift"), default="backlog", help="how throttled clients behave"
    )
    quotas.add_argument("--only", metavar="PATTERN", help="only clients whose id matches")
    quotas.add_argument("--windows", default="11x1", metavar="NxS", help="quota.window.num x quota.window.size.seconds")


def list_command(as_json: bool) -> None:
    """Shows the pipelines and their tables."""
    from barnabas.cli.quota_output import print_json, print_rich, table
    from barnabas.spark.pipelines.runner import JOBS, STREAMS, TABLES

    rows = [
        (name, stream.summary, list(stream.topics), [one.name for one in stream.all_tables])
        for name, stream in STREAMS.items()
    ]
    rows += [(name, text, ["quotas/traffic"], [one.name for one in TABLES[name]]) for name, text in JOBS.items()]
    rows.append((LAKE, "any topic as a table, with each record exactly once", ["--topic"], ["--table"]))
    rows.append((CHANGES, "change records as an up-to-date table, one row for each key", ["--topic"], ["--table"]))
    rows.append((SESSIONS, "sessions by key: records with less than a gap between them", ["--topic"], ["--table"]))
    if as_json:
        print_json([dict(zip(("pipeline", "makes", "of", "tables"), row, strict=True)) for row in rows])
        return
    shown = [(name, text, ", ".join(sources), ", ".join(tables)) for name, text, sources, tables in rows]
    print_rich(table(("pipeline", "makes", "of", "tables"), shown))


def run_command(
    name: str,
    cluster: Cluster,
    once: bool,
    out: str,
    master: str,
    checkpoint: str | None,
    starting_offsets: str,
    every: str,
    lateness: str,
    keep: str,
    options: list[str],
    table_format: str | None,
    catalog: str | None,
    table_options: list[str],
    **further: Any,
) -> None:
    """Runs a pipeline."""
    from barnabas.cli.telemetry import parse_duration
    from barnabas.spark.pipelines.config import PipelineConfig
    from barnabas.spark.pipelines.progress import progress_display
    from barnabas.spark.pipelines.runner import ADVICE, JOBS, STREAMS, run_stream
    from barnabas.spark.pipelines.tables import pipeline_store

    known = (*STREAMS, *JOBS, LAKE, CHANGES, SESSIONS)
    if name not in known:
        raise UsageError(f"there is no pipeline {name}; there are {', '.join(known)}")
    settings = cluster.properties_for_spark() | dict(pair(option, "--option") for option in options)
    config = PipelineConfig(
        out=out,
        bootstrap_servers=cluster.bootstrap,
        checkpoint=checkpoint,
        starting_offsets=starting_offsets,
        once=once,
        trigger_ms=parse_duration(every),
        lateness_ms=parse_duration(lateness),
        keep_hours=parse_duration(keep) // 3_600_000,
        source_options=settings,
        tables=table_options_of(table_format, catalog, table_options),
    )
    values = ValueOptions(**{option: further.pop(option) for option in VALUE_OPTIONS})
    changes_options = {option: further.pop(option) for option in CHANGES_OPTIONS}
    sessions_options = {option: further.pop(option) for option in SESSIONS_OPTIONS}
    metrics = further.pop("metrics")
    if further["as_json"] and name not in JOBS:
        raise UsageError(f"--json is for {' and '.join(JOBS)}; {name} prints no table")
    if metrics and name in JOBS:
        raise UsageError(f"--metrics is only for pipelines that read topics, not for {name}")
    if name in {LAKE, CHANGES}:
        table = (
            lake_config(config, values) if name == LAKE else changes_config(config, values=values, **changes_options)
        )
        shown = observed(progress_display(), f"{name}/{table.name}", table.store, cluster, metrics)
        with _session(f"barnabas {name}", master) as spark, shown as display, _stop_signals() as stop:
            run_topic_table(spark, table, display, stop)
    elif name == SESSIONS:
        sessions = sessions_config(config, values=values, **sessions_options)
        shown = observed(progress_display(), f"{SESSIONS}/{sessions.name}", sessions.store, cluster, metrics)
        with _session(f"barnabas {name}", master) as spark, shown as display, _stop_signals() as stop:
            run_sessions(spark, sessions, display, stop)
    elif name in STREAMS:
        shown = observed(progress_display(), name, partial(pipeline_store, out, name, config.tables), cluster, metrics)
        with _session(f"barnabas {name}", master) as spark, shown as display, _stop_signals() as stop:
            run_stream(spark, name, config, display, stop)
    elif name == ADVICE:
        _advise(out, master, config.tables, **further)
    else:
        _dry_run(out, master, config.tables, **further)


def show_command(
    name: str,
    table: str,
    out: str,
    master: str,
    count: int,
    table_format: str | None,
    catalog: str | None,
    table_options: list[str],
    as_json: bool,
) -> None:
    """Shows rows of a table."""
    from barnabas.spark.pipelines.runner import TABLES, read_table

    if name not in TABLES:
        raise UsageError(f"there is no pipeline {name}; there are {', '.join(TABLES)}")
    with _session("barnabas show", master) as spark:
        options = table_options_of(table_format, catalog, table_options)
        _print(read_table(spark, out, name, table, options).limit(count), as_json)


def convert_command(
    directory: str, master: str, table_format: str | None, catalog: str | None, table_options: list[str]
) -> None:
    """Converts the tables of release 0.1."""
    from barnabas.spark.pipelines.convert import convert
    from barnabas.spark.pipelines.progress import progress_display

    if not Path(directory).is_dir():
        raise UsageError(f"there is no directory {directory}")
    with _session("barnabas convert", master) as spark:
        with progress_display() as display:
            found = convert(spark, directory, table_options_of(table_format, catalog, table_options), display.note)
        for name, rows in found.items():
            say(f"{name}: {rows:,} rows\n", sys.stdout)
        if not found:
            say("There are no tables of release 0.1.\n", sys.stdout)


def _advise(
    out: str,
    master: str,
    tables: TableOptions,
    *,
    capacity: list[str],
    by: str,
    headroom: float,
    simultaneous: bool,
    only: str | None,
    windows: str,
    limits: list[str],
    advised: bool,
    clients: str,  # noqa: ARG001 - for the dry run
    as_json: bool,
) -> None:
    from barnabas.cli.quota_output import parse_amount
    from barnabas.spark.pipelines.quota_advice import AdviceOptions
    from barnabas.spark.pipelines.quota_proposal import Tenancy
    from barnabas.spark.pipelines.runner import run_advice

    if limits or advised:
        raise UsageError("--limit and --advised are for quota-dry-run")
    amounts = {key: parse_amount(text) for key, text in (pair(one, "--capacity") for one in capacity)}
    try:
        options = AdviceOptions(
            amounts, Tenancy(by), headroom, simultaneous, parse_windows(windows), client_pattern=only
        )
    except ValueError as error:
        raise UsageError(str(error)) from None
    with _session("barnabas quota-advice", master) as spark:
        found = run_advice(spark, out, options, tables)
        _print(
            found.select("quota", "user", "client_id", "verdict", "limit", "peak", "mean", "share", "fair_share"),
            as_json,
        )


def _dry_run(
    out: str,
    master: str,
    tables: TableOptions,
    *,
    capacity: list[str],
    by: str,
    headroom: float,  # noqa: ARG001 - for the advice
    simultaneous: bool,
    only: str | None,
    windows: str,
    limits: list[str],
    advised: bool,
    clients: str,
    as_json: bool,
) -> None:
    from barnabas.spark.pipelines.quota_advice import LIMITS, proposals
    from barnabas.spark.pipelines.quota_dry_run import DryRunOptions
    from barnabas.spark.pipelines.quota_proposal import Tenancy
    from barnabas.spark.pipelines.quota_replay import ClientBehaviour
    from barnabas.spark.pipelines.runner import ADVICE, read_table, run_dry_run

    if capacity or simultaneous:
        raise UsageError("--capacity and --simultaneous are for quota-advice")
    tried = [parse_limit(text) for text in limits]
    with _session("barnabas quota-dry-run", master) as spark:
        if advised:
            tried += proposals(read_table(spark, out, ADVICE, LIMITS.name, tables), Tenancy(by))
        try:
            options = DryRunOptions(tuple(tried), ClientBehaviour(clients), parse_windows(windows), client_pattern=only)
        except ValueError as error:
            raise UsageError(f"{error}: --limit, or --advised after quota-advice") from None
        found = run_dry_run(spark, out, options, tables)
        _print(
            found.select(
                "quota", "client_id", "principal", "limit", "peak", "requests", "throttled", "throttle_ms",
                "max_throttle_ms", "max_behind_ms", "recorded_throttle_ms",
            ),
            as_json,
        )  # fmt: skip


def parse_windows(text: str) -> QuotaWindows:
    """
    >>> parse_windows("11x1")
    QuotaWindows(samples=11, window_seconds=1)
    """
    from barnabas.quota.config import QuotaWindows

    samples, by, seconds = text.partition("x")
    if not (by and samples.isdecimal() and seconds.isdecimal() and int(samples) and int(seconds)):
        raise UsageError(f"--windows must be the number of windows and their seconds, such as 11x1: {text!r}")
    return QuotaWindows(int(samples), int(seconds))


def parse_limit(text: str) -> ProposedLimit:
    """Parses a limit and its entity; an entity type without a name is the default entity.

    >>> parse_limit("producer_byte_rate=2MB,client-id=reports").limit
    2000000.0
    """
    from barnabas.cli.quota_output import parse_amount
    from barnabas.quota.quota_entity import DEFAULT, EntityName, QuotaEntity
    from barnabas.spark.pipelines.quota_proposal import ProposedLimit

    first, *parts = text.split(",")
    quota, amount = pair(first, "--limit")
    names: dict[str, EntityName] = {}
    for part in parts:
        kind, has_name, name = part.partition("=")
        if kind not in {"user", "client-id"} or kind in names:
            raise UsageError(f"--limit: {part!r} in {text!r} is neither user=... nor client-id=...")
        names[kind] = name if has_name else DEFAULT
    if not names:
        raise UsageError(f"--limit: {text!r} has no entity, such as client-id=reports")
    try:
        return ProposedLimit(quota, QuotaEntity(names.get("user"), names.get("client-id")), parse_amount(amount))
    except ValueError as error:
        raise UsageError(f"--limit: {error}") from None


@contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """Yields an event that Ctrl-C sets. Replaces Spark's handler, which raises in the middle of any operation."""
    stop = threading.Event()
    before = {one: signal.signal(one, lambda *_: stop.set()) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


@contextmanager
def _session(application: str, master: str) -> Iterator[SparkSession]:
    """Yields a Spark session. An error in it ends the command with a one-line message."""
    from barnabas.spark.java_runtime import JavaMissingError
    from barnabas.spark.pipelines.runner import PipelineError, cause_of
    from barnabas.spark.session import make_session

    try:
        spark = make_session(application, master)
    except JavaMissingError as error:
        raise CommandError(str(error)) from None
    except ImportError as error:
        raise CommandError(str(error)) from None
    try:
        yield spark
    except (PipelineError, CommandError) as error:
        raise CommandError(str(error)) from None
    except Exception as error:
        if os.environ.get("BARNABAS_DEBUG"):
            raise
        raise CommandError(cause_of(error)) from None
    finally:
        spark.stop()


def _print(frame: DataFrame, as_json: bool) -> None:
    from barnabas.cli.quota_output import print_json, print_rich, table

    frame = frame.select(*(name for name in frame.columns if name != "sketch"))
    if as_json:
        import json

        from pyspark.sql import functions

        # Times and decimals as Spark writes them.
        text = functions.to_json(functions.struct(*frame.columns), {"ignoreNullFields": "false"})
        print_json([json.loads(row[0]) for row in frame.select(text).collect()])
        return
    rows = [[_text(value) for value in row] for row in frame.collect()]
    if not rows:
        say("The table is empty.\n", sys.stdout)
        return
    print_rich(table(frame.columns, rows))


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1_000 or value == int(value) else f"{value:,.3g}"
    text = str(value)
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"
