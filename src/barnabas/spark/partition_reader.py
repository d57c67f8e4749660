"""Runs a read task: reads an offset range in a Python worker of an executor."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from barnabas.spark.client_settings import ClientSettings
from barnabas.spark.cluster_client import ClusterClient
from barnabas.spark.data_loss import DataLoss
from barnabas.spark.offset_ranges import OffsetRange
from barnabas.spark.partition_fetcher import PartitionFetcher
from barnabas.spark.row_columns import RowColumns
from barnabas.spark.source_options import SourceOptions

_clients: dict[ClientSettings, ClusterClient] = {}
"""Connected clients, kept for the next task of this process. A worker runs one task at a time, in one thread; a client
is removed while it is in use."""


def read_range(wanted: OffsetRange, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a range. Spark reuses Python workers, so a micro-batch reuses the last one's connections."""
    client = _clients.pop(options.client, None) or ClusterClient(options.client)
    try:
        yield from PartitionFetcher(
            client,
            wanted,
            RowColumns(wanted.topic_partition, options.columns),
            DataLoss(options.fail_on_data_loss),
            poll_timeout_ms=options.poll_timeout_ms,
        )
    except BaseException:
        client.close()  # not reused: a response may still be in flight
        raise
    if client.is_idle:
        _clients[options.client] = client
    else:
        client.close()
