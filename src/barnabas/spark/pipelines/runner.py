"""Runs pipelines to their end, or until they are stopped."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from barnabas.spark.pipelines.config import PipelineConfig, TableOptions
from barnabas.spark.pipelines.progress import BatchProgress, ProgressDisplay
from barnabas.spark.pipelines.quota_advice import LIMITS, AdviceOptions, advise
from barnabas.spark.pipelines.quota_dry_run import SUMMARY, THROTTLES_1M, DryRunOptions, dry_run, summary
from barnabas.spark.pipelines.quotas import QUOTAS, TRAFFIC
from barnabas.spark.pipelines.requests import REQUESTS
from barnabas.spark.pipelines.stream import StreamPipeline, compact
from barnabas.spark.pipelines.tables import Table, pipeline_store
from barnabas.spark.pipelines.telemetry import TELEMETRY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

STREAMS: Final[Mapping[str, StreamPipeline]] = {one.name: one for one in (TELEMETRY, REQUESTS, QUOTAS)}
ADVICE: Final = "quota-advice"
DRY_RUN: Final = "quota-dry-run"
JOBS: Final[Mapping[str, str]] = {
    ADVICE: "limits that keep recorded traffic within a capacity, without throttling well-behaved clients",
    DRY_RUN: "recorded traffic under other limits: who would have been throttled, and for how long",
}
"""The pipelines that run once, over the tables of ``quotas``."""
TABLES: Final[Mapping[str, tuple[Table, ...]]] = {
    **{name: stream.all_tables for name, stream in STREAMS.items()},
    ADVICE: (LIMITS,),
    DRY_RUN: (THROTTLES_1M, SUMMARY),
}
_POLL_SECONDS: Final = 0.5


class PipelineError(Exception):
    """A pipeline has ended with an error; the message is its cause."""


def run_stream(
    spark: SparkSession,
    name: str,
    config: PipelineConfig,
    display: ProgressDisplay,
    stop: threading.Event | None = None,
) -> None:
    """Runs a pipeline over topics until `stop` is set, or, with ``once``, until it has read all records."""
    pipeline = STREAMS[name]
    stop = stop or threading.Event()
    display.note(name, "starting")
    query = pipeline.build(spark, config)
    watch_and_stop(query, name, display, stop)
    if config.once and not stop.is_set():
        display.note(name, "compacting")
        compact(spark, pipeline, config)
    display.note(name, "done")


def watch_and_stop(query: StreamingQuery, name: str, display: ProgressDisplay, stop: threading.Event) -> None:
    """Shows progress until the query ends or `stop` is set; stops the query in any case.

    The next start repeats an interrupted batch.
    """
    try:
        watch(query, name, display, stop)
    finally:
        if query.isActive:
            display.note(name, "stopping")
            query.stop()


def watch(query: StreamingQuery, name: str, display: ProgressDisplay, stop: threading.Event) -> None:
    """Shows progress until the query ends or `stop` is set; raises `PipelineError` if the query failed.

    `stop` is checked between two short waits. An exception from a signal handler could interrupt an exchange with the
    Java process, and all later responses would belong to other requests.
    """
    shown = -1
    while not stop.is_set():
        try:
            is_over = bool(query.awaitTermination(_POLL_SECONDS))  # type: ignore[arg-type]
        except Exception as error:
            raise PipelineError(cause_of(error)) from error
        for report in query.recentProgress:
            progress = BatchProgress.of(report)
            if progress.batch_id > shown:
                shown = progress.batch_id
                display.batch(name, progress)
        display.activity(name, query.status["message"])
        if is_over:
            return


def cause_of(error: BaseException) -> str:
    """Returns the line of Spark's message that names the cause, without the pages around it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # A Python error is the last line of the traceback in Spark's message; otherwise the first line has the cause.
    python = [
        line for line in lines if line.split(":")[0].endswith(("Error", "Exception")) and " " not in line.split(":")[0]
    ]
    return (python or lines or [type(error).__name__])[-1 if python else 0]


def run_advice(spark: SparkSession, out: str, options: AdviceOptions, tables: TableOptions | None = None) -> DataFrame:
    """Computes limits from the traffic that ``quotas`` recorded; returns the rows of ``quota-advice/limits``."""
    traffic = _traffic(spark, out, tables)
    replace_tables(out, ADVICE, {LIMITS: advise(traffic, options)}, tables)
    return read_table(spark, out, ADVICE, LIMITS.name, tables)


def run_dry_run(spark: SparkSession, out: str, options: DryRunOptions, tables: TableOptions | None = None) -> DataFrame:
    """Replays the recorded traffic under other limits; returns the rows of ``quota-dry-run/summary``."""
    traffic = _traffic(spark, out, tables)
    throttles = dry_run(traffic, options).persist()
    try:
        rows = {THROTTLES_1M: throttles, SUMMARY: summary(throttles, traffic, options)}
        replace_tables(out, DRY_RUN, rows, tables)
    finally:
        throttles.unpersist()
    return read_table(spark, out, DRY_RUN, SUMMARY.name, tables)


def _traffic(spark: SparkSession, out: str, tables: TableOptions | None) -> DataFrame:
    traffic = pipeline_store(out, QUOTAS.name, tables).read(spark, TRAFFIC)
    if traffic.isEmpty():
        raise PipelineError(
            f"there is no traffic in {out}: run the pipeline quotas first, with the broker's "
            "barnabas.request.log.sample.rate above 0"
        )
    return traffic


def replace_tables(
    out: str, pipeline: str, frames: Mapping[Table, DataFrame], tables: TableOptions | None = None
) -> None:
    """Replaces all rows of the tables."""
    store = pipeline_store(out, pipeline, tables)
    store.create(frames)
    for table, frame in frames.items():
        store.overwrite(table, frame)


def read_table(
    spark: SparkSession, out: str, pipeline: str, table: str, tables: TableOptions | None = None
) -> DataFrame:
    """Returns the current rows of a table; of a roll-up, one row for each window and key."""
    found = next((one for one in TABLES[pipeline] if one.name == table), None)
    if found is None:
        known = ", ".join(one.name for one in TABLES[pipeline])
        raise PipelineError(f"{pipeline} has no table {table}; it has {known}")
    return pipeline_store(out, pipeline, tables).read(spark, found)
