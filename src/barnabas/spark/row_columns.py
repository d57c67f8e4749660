"""Converts decoded record columns to the rows that Spark expects."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from barnabas.common.topic_partition import TopicPartition
from barnabas.spark.source_schema import ARROW_HEADERS, HEADERS, arrow_schema

_DECODED: Final = {
    "key": "key",
    "value": "value",
    "offset": "offset",
    "timestamp": "timestamp",
    "timestampType": "timestamp_type",
    HEADERS: "headers",
}
"""The column names in `barnabas.records.columns.arrow`; records contain no topic and partition."""


class RowColumns:
    """The columns of one partition's rows.

    Topic and partition are the same in all rows. Their columns are made once, as long as the longest batch, and each
    batch gets a slice without a copy.
    """

    def __init__(self, partition: TopicPartition, names: tuple[str, ...]) -> None:
        self._partition = partition
        self._names = names
        self._schema = arrow_schema(names)
        self._decoded = [_DECODED[name] for name in names if name in _DECODED]
        self._topics = pa.array([], pa.string())
        self._partitions = pa.array([], pa.int32())

    def decoded(self, *, with_offset: bool) -> list[str]:
        """Returns the columns to decode; at least one, because it gives the number of rows."""
        if "offset" not in self._decoded and (with_offset or not self._decoded):
            return [*self._decoded, "offset"]
        return self._decoded

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Adds the topic and partition columns to decoded columns, with the names and types that Spark expects."""
        count = batch.num_rows
        if count > len(self._topics):
            self._grow(count)
        arrays = []
        for name in self._names:
            if name == "topic":
                arrays.append(self._topics.slice(0, count))
            elif name == "partition":
                arrays.append(self._partitions.slice(0, count))
            elif name == HEADERS:
                arrays.append(_headers(batch.column("headers")))
            else:
                arrays.append(batch.column(_DECODED[name]))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _grow(self, count: int) -> None:
        topic = self._partition.topic.encode()
        offsets = np.arange(count + 1, dtype=np.int32) * len(topic)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(topic * count)]
        self._topics = pa.Array.from_buffers(pa.string(), count, buffers, 0)
        self._partitions = pa.array(np.full(count, self._partition.partition, dtype=np.int32))


def _headers(column: pa.Array) -> pa.Array:
    """Replaces empty header lists with null, as the stock connector does."""
    offsets = column.offsets.to_numpy(zero_copy_only=True)  # may be a slice, which does not accept a mask
    mask = pa.array(np.diff(offsets) == 0)
    return pa.ListArray.from_arrays(pa.array(offsets), column.values, type=ARROW_HEADERS, mask=mask)
