"""The single future for all rows of a table."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt

from barnabas.clients.producer.internals.produce_request_result import INVALID_OFFSET, ProduceRequestResult
from barnabas.clients.producer.table_metadata import PartitionOffsets, TableFuture, TableMetadata, TableSendError
from barnabas.common.errors import ApiError

Rows = npt.NDArray[np.int64]


def row_numbers(start: int, stop: int) -> Rows:
    """Returns the numbers of consecutive rows."""
    return np.arange(start, stop, dtype=np.int64)


class TableProgress:
    """Counts down the batches of a table, and completes its future when all have ended and no more will come.

    It does not complete at the first error: the acknowledged rows are known only when the last batch has ended, and
    without them the rest could not be sent again.
    """

    __slots__ = ("_acknowledged", "_failed", "_lock", "_on_split", "_open", "_partitions", "_topic", "error", "future")

    def __init__(self, topic: str, on_split: Callable[[], None] = lambda: None) -> None:
        self.future = TableFuture()
        self.error: Exception | None = None
        """The first error. The sender stops when it sees one."""
        self._topic = topic
        self._on_split = on_split
        self._lock = threading.Lock()
        """Guards the fields below: batches end on the I/O thread, the table is sent on another. No callback runs while
        it is held."""
        self._open = 1
        """The number of open batches, plus one for the sender of the table while there may be more."""
        self._acknowledged = 0
        self._failed: list[Rows] = []
        self._partitions: dict[int, PartitionOffsets] = {}

    def add(self, result: ProduceRequestResult, rows: Rows) -> None:
        """Adds a batch with these rows."""
        with self._lock:
            self._open += 1
        result.add_listener(partial(self._ended, result, rows))

    def _ended(self, result: ProduceRequestResult, rows: Rows) -> None:
        parts = result.parts
        if parts is not None:
            self._on_split()
            ends = [part.start for part in parts[1:]] + [len(rows)]
            for part, end in zip(parts, ends, strict=True):
                self.add(part.result, rows[part.start : end])
            self._close()
        elif result.errors is None:
            self._succeeded(result, len(rows))
        else:
            self.fail(_first_error(result, len(rows)), rows)
            self._close()

    def _succeeded(self, result: ProduceRequestResult, count: int) -> None:
        partition, first = result.topic_partition.partition, result.base_offset
        last = first if first == INVALID_OFFSET else first + count - 1
        with self._lock:
            self._acknowledged += count
            before = self._partitions.get(partition)
            if before is not None:
                first = min(first, before.first_offset)
                last = max(last, before.last_offset) if first != INVALID_OFFSET else INVALID_OFFSET
                count += before.count
            self._partitions[partition] = PartitionOffsets(first, last, count)
            self._open -= 1
            if self._open:
                return
        self._complete()

    def fail(self, error: Exception, rows: Rows) -> None:
        """Marks these rows as not acknowledged."""
        with self._lock:
            if self.error is None:
                self.error = error
            self._failed.append(rows)

    def seal(self) -> TableFuture:
        """Declares that no more batches will come."""
        self._close()
        return self.future

    def _close(self) -> None:
        with self._lock:
            self._open -= 1
            if self._open:
                return
        self._complete()

    def _complete(self) -> None:
        written = TableMetadata(self._topic, self._acknowledged, dict(sorted(self._partitions.items())))
        if self.error is None:
            self.future.set_result(written)
        else:
            self.future.set_exception(TableSendError(self.error, np.sort(np.concatenate(self._failed)), written))


def _first_error(result: ProduceRequestResult, count: int) -> Exception:
    """Returns the error of a batch; if the broker named invalid records, that of the first of these."""
    assert result.errors is not None
    first = result.errors(0)
    if isinstance(first, ApiError):
        return first
    for index in range(1, count):
        error = result.errors(index)
        if isinstance(error, ApiError):
            return error
    return first
