"""Metrics of streaming queries, in the style of the broker's ``/metrics``.

=============================================  ======================================================================
``barnabas_pipeline_lag_records``              records in the topics that no batch has read yet
``barnabas_pipeline_input_rows_per_second``    how fast records arrive
``barnabas_pipeline_processed_rows_per_second``  how fast batches process them
``barnabas_pipeline_rows_total``               rows that were processed since the start of the process
``barnabas_pipeline_dead_letters_total``       dead letters since the start of the process
``barnabas_pipeline_batch_id``,                the last batch and how long it took
``barnabas_pipeline_batch_seconds``
``barnabas_pipeline_state_rows``,              the size of the state of aggregations, joins and the like
``barnabas_pipeline_state_bytes``
``barnabas_pipeline_last_batch_time_seconds``  when the last batch ended, in seconds since 1970
``barnabas_pipeline_failed``                   1 if the query has ended with an error
=============================================  ======================================================================

Each has the label ``pipeline``. `watch_queries` publishes the queries of any Spark session:

    with watch_queries(spark) as metrics, serve_metrics("127.0.0.1:9645", metrics):
        query.awaitTermination()
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.metrics.families import COUNTER, GAUGE, LabelSet, MetricFamily, MetricSelection
from barnabas.metrics.prometheus import render_prometheus
from barnabas.spark.pipelines.progress import BatchProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAMILIES: Final = {
    "lag_records": (GAUGE, "Records in the topics that no batch has read yet"),
    "input_rows_per_second": (GAUGE, "Rate at which records arrive"),
    "processed_rows_per_second": (GAUGE, "Rate at which batches process records"),
    "rows_total": (COUNTER, "Rows processed since the start of the process"),
    "dead_letters_total": (COUNTER, "Dead letters since the start of the process"),
    "batch_id": (GAUGE, "The last batch"),
    "batch_seconds": (GAUGE, "Duration of the last batch"),
    "state_rows": (GAUGE, "Rows in the state of the query"),
    "state_bytes": (GAUGE, "Memory of the state of the query"),
    "last_batch_time_seconds": (GAUGE, "When the last batch ended, in seconds since 1970"),
    "failed": (GAUGE, "1 if the query has ended with an error"),
}


class _Query:
    """The last values of one query."""

    def __init__(self) -> None:
        self.progress: BatchProgress | None = None
        self.last_batch_ms = 0
        self.failed = False
        self.rows = 0
        self.dead_letters = 0
        self.dead_letters_before: int | None = None


class QueryMetrics:
    """Collects the reports of queries; a `FamilySource` for `render_prometheus`."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        """Guards the queries: Spark reports on its own threads, and scrapes run on another."""
        self._queries: dict[str, _Query] = {}

    def batch(self, name: str, progress: BatchProgress) -> None:
        """Takes the report of a batch. A repeated report of the same batch without rows means no new data."""
        with self._lock:
            query = self._query(name)
            query.progress = progress
            if progress.rows:
                query.rows += progress.rows
                query.last_batch_ms = self._clock.milliseconds()

    def dead_letters(self, name: str, total: int) -> None:
        """Takes the number of dead letters in the pipeline's table; the metric counts those that are new."""
        with self._lock:
            query = self._query(name)
            before = total if query.dead_letters_before is None else query.dead_letters_before
            query.dead_letters_before = total
            if total > before:
                query.dead_letters += total - before

    def ended(self, name: str, *, failed: bool) -> None:
        with self._lock:
            self._query(name).failed = failed

    def _query(self, name: str) -> _Query:
        found = self._queries.get(name)
        if found is None:
            found = self._queries[name] = _Query()
        return found

    def families(self, selection: MetricSelection) -> list[MetricFamily]:  # noqa: ARG002 - few families
        """Returns one family per metric, with a sample for each query that has a value."""
        with self._lock:
            values = {LabelSet({"pipeline": name}): _values(query) for name, query in self._queries.items()}
        return [
            MetricFamily.of(
                f"barnabas_pipeline_{name}",
                kind,
                text,
                [(labels, found[name]) for labels, found in values.items() if name in found],
            )
            for name, (kind, text) in FAMILIES.items()
        ]


def _values(query: _Query) -> dict[str, float]:
    values: dict[str, float] = {
        "failed": int(query.failed),
        "rows_total": query.rows,
        "dead_letters_total": query.dead_letters,
    }
    progress = query.progress
    if progress is None:
        return values
    if progress.behind is not None:
        values["lag_records"] = progress.behind
    if query.last_batch_ms:
        values["last_batch_time_seconds"] = query.last_batch_ms / 1_000
    return values | {
        "input_rows_per_second": progress.input_rows_per_second,
        "processed_rows_per_second": progress.rows_per_second,
        "batch_id": progress.batch_id,
        "batch_seconds": progress.seconds,
        "state_rows": progress.state_rows,
        "state_bytes": progress.state_bytes,
    }


@contextmanager
def watch_queries(spark: SparkSession) -> Iterator[QueryMetrics]:
    """Collects metrics of all streaming queries of a session, by name, or by id for a query without a name."""
    from pyspark.sql.streaming.listener import StreamingQueryListener  # an extra

    found = QueryMetrics()

    class Listener(StreamingQueryListener):
        """Passes Spark's events to the metrics."""

        def __init__(self) -> None:
            self._names: dict[str, str] = {}

        def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
            self._names[str(event.runId)] = event.name or str(event.id)

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
            report = json.loads(event.progress.json)
            found.batch(report.get("name") or report["id"], BatchProgress.of(report))

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
            name = self._names.pop(str(event.runId), str(event.id))
            found.ended(name, failed=event.exception is not None)

    listener = Listener()
    spark.streams.addListener(listener)
    try:
        yield found
    finally:
        spark.streams.removeListener(listener)


@contextmanager
def serve_metrics(address: str, metrics: QueryMetrics) -> Iterator[str]:
    """Serves ``/metrics`` and ``/health`` on host:port, and yields the address; port 0 takes any free port."""
    from barnabas.broker.node.http_endpoint import HttpEndpoint
    from barnabas.raft.config import parse_host_and_port

    host, port = parse_host_and_port("metrics", address)
    endpoint = HttpEndpoint(host, port, lambda: render_prometheus(metrics), lambda: {"status": "up"})
    try:
        yield endpoint.address
    finally:
        endpoint.close()
