"""Runs a pipeline over files of records, and kills itself (SIGKILL) at a point of a batch.

    python table_crash_program.py PIPELINE FORMAT INPUT OUT [BATCH POINT]

Each file of the input is a batch. Without BATCH and POINT the pipeline runs to its end. FORMAT is ``delta``,
``iceberg``, or ``iceberg=URI`` with the URI of a REST catalog.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from barnabas.spark.pipelines import sessions, tables
from barnabas.spark.pipelines.change_envelopes import Debezium
from barnabas.spark.pipelines.changes import ChangesConfig, changes_writer, json_rows
from barnabas.spark.pipelines.config import PipelineConfig, TableOptions
from barnabas.spark.pipelines.lake import LakeConfig, lake_writer
from barnabas.spark.pipelines.runner import STREAMS
from barnabas.spark.pipelines.stream import start
from barnabas.spark.pipelines.table_formats import DeltaTableFormat, IcebergTableFormat
from barnabas.spark.pipelines.tables import TableStore
from barnabas.spark.session import make_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

BEFORE_FILES: Final = "before-files"
AFTER_FILES: Final = "after-files"
AFTER_COMMIT: Final = "after-commit"
AFTER_STATE: Final = "after-state"
POINTS: Final = (BEFORE_FILES, AFTER_FILES, AFTER_COMMIT, AFTER_STATE)
GAP_MS: Final = 1_800_000
LATENESS_MS: Final = 600_000
RAW: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>"
)


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_at(batch: int, point: str, kill: Callable[[], None] = kill) -> None:
    """Replaces the step of the batch after which, or before which, a process is killed: this one by default."""
    if point in {BEFORE_FILES, AFTER_FILES}:
        write_files: Any = vars(tables)["write_files"]

        def write(frame: Any, layout: Any, storage: Any, prefix: str) -> Any:
            is_batch = prefix == f"batch-{batch:09d}"
            if is_batch and point == BEFORE_FILES:
                kill()
            files = write_files(frame, layout, storage, prefix)
            if is_batch and point == AFTER_FILES:
                kill()
            return files

        vars(tables)["write_files"] = write
    elif point == AFTER_COMMIT:
        for owner in (DeltaTableFormat, IcebergTableFormat):
            _kill_after(owner, "replace", lambda *_, batch_of=batch, **settings: _batch(settings) == batch_of, kill)
    else:
        _kill_after(TableStore, "set_state", lambda state: state.batch_id == batch, kill)


def _kill_after(owner: Any, name: str, is_due: Any, kill: Callable[[], None]) -> None:
    original = getattr(owner, name)

    def method(self: Any, *arguments: Any, **settings: Any) -> None:
        original(self, *arguments, **settings)
        if is_due(*arguments, **settings):
            kill()

    setattr(owner, name, method)


def _batch(settings: Mapping[str, Any]) -> int | None:
    """The batch that a commit holds; None for that of a compaction."""
    batch = settings.get("batch")
    return None if batch is None else int(batch[1])


def clicks_config(config: PipelineConfig) -> sessions.SessionsConfig:
    """The sessions of ``spark.session_clicks``."""
    return sessions.SessionsConfig(
        dataclasses.replace(config, lateness_ms=LATENESS_MS),
        ("clicks",),
        gap_ms=GAP_MS,
        key_column="user",
        schema="user string, ms int, page string",
        aggregates=(sessions.Aggregate("ms", "sum"), sessions.Aggregate("page", "last")),
    )


def started(pipeline: str, raw: DataFrame, config: PipelineConfig) -> StreamingQuery:
    """Starts a pipeline over a stream with the columns of the source."""
    if pipeline == "changes":
        changes = ChangesConfig(config, ("records",), schemas=json_rows("id bigint, n bigint", Debezium()), key=("id",))
        return changes_writer(changes).start(raw)
    if pipeline == "lake":
        lake = LakeConfig(config, ("records",))
        return lake_writer(lake).start(raw)
    if pipeline == sessions.NAME:
        return sessions.start(raw, clicks_config(config))
    return start(raw, STREAMS[pipeline], config)


def main(pipeline: str, table_format: str, source: str, out: str, *crash: str) -> None:
    spark = make_session("table crash", "local[2]", {"spark.sql.shuffle.partitions": "2"})
    if crash:
        kill_at(int(crash[0]), crash[1])
    raw = spark.readStream.schema(RAW).option("maxFilesPerTrigger", 1).parquet(source)
    kind, _, uri = table_format.partition("=")
    options = TableOptions(kind, properties={"type": "rest", "uri": uri} if uri else {})
    config = PipelineConfig(out=out, once=True, sketch_k=200, compact_every=3, keep_hours=0, tables=options)
    started(pipeline, raw, config).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
