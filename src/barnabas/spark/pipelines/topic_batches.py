"""Adds the batches of topics to the table that is made of them, each batch once.

    TopicTableWriter(config, add).start(config.read(spark))

`lake`, `changes` and `sessions` differ in how they add the rows of a batch. The life of a batch around that is the
same. A batch that the table holds is skipped. Its number is noted when all of its rows are in (`tables` says why in
that order). Every few batches the small files are merged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.spark.pipelines.stream import query_id_of, start_query
from barnabas.spark.pipelines.tables import BatchState, Table, TableStore
from barnabas.spark.pipelines.topic_tables import TopicTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TopicBatch:
    """A batch that the table does not hold yet."""

    records: DataFrame
    query_id: str
    batch_id: int
    store: TableStore
    is_first: bool
    """Whether the table holds no batch yet."""

    def add(self, table: Table, rows: DataFrame) -> int:
        """Adds the rows of the batch to one of its tables; returns how many it added."""
        return self.store.add(table, rows, self.query_id, self.batch_id)


@dataclass(frozen=True, slots=True)
class AddedBatch:
    """The tables that a batch was added to, and how many of its records are dead letters."""

    tables: Sequence[Table]
    dead_letters: int


class TopicTableWriter:
    """Adds one batch after the other with a function of the pipeline."""

    def __init__(
        self, config: TopicTable, add: Callable[[TopicBatch], AddedBatch], *, run_skipped: bool = False
    ) -> None:
        """``run_skipped``: a batch also runs if the table holds it, because a stateful query needs its state."""
        self._config = config
        self._add = add
        self._run_skipped = run_skipped

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        self.write(batch, query_id_of(batch, self._config.checkpoint), batch_id)

    def start(self, records: DataFrame) -> StreamingQuery:
        """Starts a query that writes each batch of a stream."""
        config = self._config
        return start_query(records, self, config.query_name, config.pipeline, config.checkpoint)

    def write(self, batch: DataFrame, query_id: str, batch_id: int) -> None:
        """Adds a batch, unless the table holds it."""
        store = self._config.store()
        state = store.state()
        if state.has_batch(query_id, batch_id):
            logger.info("%s: the table already holds batch %d", self._config.name, batch_id)
            if self._run_skipped:
                batch.count()
            return
        added = self._add(TopicBatch(batch, query_id, batch_id, store, is_first=state.batch_id < 0))
        store.set_state(BatchState(query_id, batch_id, dead_letters=state.dead_letters + added.dead_letters))
        pipeline = self._config.pipeline
        if batch_id % pipeline.compact_every == pipeline.compact_every - 1:
            store.compact(batch.sparkSession, added.tables, 0, pipeline.keep_hours)
