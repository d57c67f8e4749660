"""Converts decoded record columns to the rows that Spark expects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

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


class Places(NamedTuple):
    """The topics and partitions of rows, as columns; None for one that is not selected."""

    topics: pa.Array | None
    partitions: pa.Array | None


class RowColumns:
    """The selected columns of a query's rows."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._schema = arrow_schema(names)
        self._decoded = [_DECODED[name] for name in names if name in _DECODED]
        self._topic = ""
        self._topics = pa.array([], pa.string())
        """A column of one topic, as long as the longest so far. Others are slices of it, without a copy."""

    def decoded(self, *, with_offset: bool) -> list[str]:
        """Returns the columns to decode; at least one, because it gives the number of rows."""
        if "offset" not in self._decoded and (with_offset or not self._decoded):
            return [*self._decoded, "offset"]
        return self._decoded

    def places(self, partitions: Sequence[TopicPartition], counts: Sequence[int]) -> Places:
        """Returns the topic and partition columns of rows: `counts` of each partition, one after the other."""
        topics = numbers = None
        if "topic" in self._names:
            topics = self._topic_column([one.topic for one in partitions], counts)
        if "partition" in self._names:
            numbers = pa.array(np.repeat(np.array([one.partition for one in partitions], dtype=np.int32), counts))
        return Places(topics, numbers)

    def rows(self, batch: pa.RecordBatch, places: Places, first: int) -> pa.RecordBatch:
        """Returns decoded columns with the names and types that Spark expects.

        `first` is the index of the batch's first row in `places`.
        """
        count = batch.num_rows
        arrays = []
        for name in self._names:
            if name == "topic":
                assert places.topics is not None
                arrays.append(places.topics.slice(first, count))
            elif name == "partition":
                assert places.partitions is not None
                arrays.append(places.partitions.slice(first, count))
            elif name == HEADERS:
                arrays.append(_headers(batch.column("headers")))
            else:
                arrays.append(batch.column(_DECODED[name]))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _topic_column(self, topics: list[str], counts: Sequence[int]) -> pa.Array:
        total = sum(counts)
        names = dict.fromkeys(topics)
        if len(names) > 1:
            index = {name: number for number, name in enumerate(names)}
            numbers = np.repeat(np.array([index[name] for name in topics], dtype=np.int32), counts)
            return pa.array(list(names), pa.string()).take(pa.array(numbers))
        if topics[0] != self._topic or total > len(self._topics):
            self._topic = topics[0]
            name = self._topic.encode()
            offsets = np.arange(total + 1, dtype=np.int32) * len(name)
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(name * total)]
            self._topics = pa.Array.from_buffers(pa.string(), total, buffers, 0)
        return self._topics.slice(0, total)


def _headers(column: pa.Array) -> pa.Array:
    """Replaces empty header lists with null, as the stock connector does."""
    offsets = column.offsets.to_numpy(zero_copy_only=True)  # may be a slice, which does not accept a mask
    mask = pa.array(np.diff(offsets) == 0)
    return pa.ListArray.from_arrays(pa.array(offsets), column.values, type=ARROW_HEADERS, mask=mask)
