"""Sends the rows of a task."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

from barnabas.spark.sink_columns import SinkColumns

if TYPE_CHECKING:
    from concurrent.futures import Future

    import pyarrow as pa


class Producer(Protocol):
    """The part of `KafkaProducer` that the sender uses."""

    def send_table(self, topic: str, table: object) -> Future[Any]: ...

    def flush(self) -> None: ...


class RowSender:
    """Passes record batches to a producer without creating an object per row.

    A failed write is raised when the next table is sent, or at the latest in `finish`.
    """

    def __init__(self, producer: Producer, columns: SinkColumns) -> None:
        self._producer = producer
        self._columns = columns
        self._under_way: deque[Future[Any]] = deque()
        self.rows = 0
        self.first_topic: str | None = None

    def send(self, batch: pa.RecordBatch) -> None:
        for topic, table in self._columns.tables(batch):
            if self.first_topic is None:
                self.first_topic = topic
            self._under_way.append(self._producer.send_table(topic, table))
        self.rows += batch.num_rows
        while self._under_way and self._under_way[0].done():
            self._under_way.popleft().result()

    def send_all(self, batches: Iterable[pa.RecordBatch]) -> None:
        for batch in batches:
            self.send(batch)
        self.finish()

    def finish(self) -> None:
        """Waits until all rows are acknowledged."""
        self._producer.flush()
        while self._under_way:
            self._under_way.popleft().result()
