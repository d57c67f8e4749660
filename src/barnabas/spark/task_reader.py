"""Runs a read task in a Python worker of an executor."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from barnabas.spark.data_loss import DataLoss
from barnabas.spark.offset_ranges import ReadTask
from barnabas.spark.source_options import SourceOptions
from barnabas.spark.task_fetcher import TaskFetcher
from barnabas.spark.worker_clients import WORKER_CLIENTS
from barnabas.spark.worker_memory import keep_modules


def read_task(task: ReadTask, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a task."""
    with WORKER_CLIENTS.client(options.client) as client:
        yield from TaskFetcher(
            client,
            task,
            options.columns,
            DataLoss(options.fail_on_data_loss),
            poll_timeout_ms=options.poll_timeout_ms,
        )
    keep_modules()
