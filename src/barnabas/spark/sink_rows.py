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
    """What is needed of a `KafkaProducer`."""

    def send_table(self, topic: str, table: object) -> Future[Any]: ...

    def flush(self) -> None: ...


class RowSender:
    """Passes record batches on to a producer, as they are: no row ever becomes an object.

    A table that could not be written shows as soon as another one is sent, and at the latest in `finish`.
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
        """Returns when all rows are acknowledged."""
        self._producer.flush()
        while self._under_way:
            self._under_way.popleft().result()
