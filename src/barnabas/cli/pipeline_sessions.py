"""The options of ``barnabas pipeline run sessions``: which records make a session."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from barnabas.cli.console import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from barnabas.cli.arguments import ArgumentParser
    from barnabas.cli.pipeline_lake import ValueOptions
    from barnabas.spark.pipelines.config import PipelineConfig
    from barnabas.spark.pipelines.progress import ProgressDisplay
    from barnabas.spark.pipelines.sessions import Aggregate, SessionsConfig

DEFAULT_GAP: Final = "30m"
SESSIONS_OPTIONS: Final = ("key_column", "gap", "aggregates")


def add_sessions_options(parser: ArgumentParser) -> None:
    sessions = parser.add_argument_group("sessions (with --topic, --table and --schema of lake)")
    sessions.add_argument("--key-column", metavar="COLUMN", help="the key is a column of the values, not the record's")
    sessions.add_argument("--gap", metavar="TIME", help=f"time without a record that ends a session; {DEFAULT_GAP}")
    sessions.add_argument(
        "--aggregate",
        dest="aggregates",
        action="append",
        default=[],
        metavar="COLUMN:FUNCTION",
        help="a column of the values, and sum, min, max, first or last",
    )


def sessions_config(
    pipeline: PipelineConfig,
    *,
    values: ValueOptions,
    key_column: str | None,
    gap: str | None,
    aggregates: list[str],
) -> SessionsConfig:
    """From the options; `UsageError` says what is wrong with them."""
    from barnabas.cli.telemetry import parse_duration
    from barnabas.spark.pipelines.lake_values import ddl_of
    from barnabas.spark.pipelines.sessions import SessionsConfig

    if not values.topics:
        raise UsageError("sessions needs a --topic")
    others = (values.message, values.registry_header, values.registry, values.registry_options, values.reader_schema)
    if values.values not in {"raw", "json"} or any(others) or values.subject is not None:
        raise UsageError(
            "sessions reads JSON values: --values, --message and --registry-header are for lake and changes, "
            "and so are the other options of registries"
        )
    try:
        return SessionsConfig(
            pipeline,
            tuple(values.topics),
            values.table,
            gap_ms=parse_duration(gap or DEFAULT_GAP),
            key_column=key_column,
            schema=None if values.schema is None else ddl_of(values.schema),
            aggregates=tuple(map(_aggregate, aggregates)),
        )
    except ValueError as error:
        raise UsageError(str(error)) from None


def _aggregate(text: str) -> Aggregate:
    from barnabas.spark.pipelines.sessions import Aggregate

    column, colon, function = text.rpartition(":")
    if not (column and colon and function):
        raise UsageError(f"--aggregate: {text!r} is not COLUMN:FUNCTION, such as amount:sum")
    return Aggregate(column, function)


def run_sessions(spark: SparkSession, config: SessionsConfig, display: ProgressDisplay, stop: threading.Event) -> None:
    from barnabas.spark.pipelines.runner import watch_and_stop
    from barnabas.spark.pipelines.sessions import build, compact

    name = config.query_name
    display.note(name, "starting")
    query = build(spark, config)
    watch_and_stop(query, name, display, stop)
    if config.pipeline.once and not stop.is_set():
        display.note(name, "compacting")
        compact(spark, config)
    display.note(name, f"done: {config.location}")
