"""The sink in streaming queries: ``df.writeStream.format("barnabas")``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from barnabas.common.errors import BarnabasError
from barnabas.spark.sink_batch import write_at_least_once
from barnabas.spark.sink_columns import SinkColumns
from barnabas.spark.sink_messages import TaskWritten
from barnabas.spark.sink_options import SinkOptions
from barnabas.spark.transaction_client import TransactionClient
from barnabas.spark.transaction_driver import TransactionDriver
from barnabas.spark.transaction_names import NO_RUN, job_name
from barnabas.spark.transaction_task import TaskIdentity, TransactionalTask
from barnabas.spark.worker_memory import keep_modules

if TYPE_CHECKING:
    import pyarrow as pa

_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
_RUN_ID: Final = "spark.jobGroup.id"


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the rows of micro-batches, by default exactly once.

    Spark repeats a batch, with the same number and the same rows, if it does not know whether the batch was written. It
    calls `write` in tasks, and then `commit` or `abort` on a new writer in another Python process, which has only the
    messages of the tasks.
    """

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        written = self._write(iterator)
        keep_modules()
        return written

    def _write(self, batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        if not self._options.exactly_once:
            return write_at_least_once(self._options, self._columns, batches)
        return TransactionalTask(self._options, self._columns, self.identity()).write(batches)

    def identity(self) -> TaskIdentity:
        """Returns the identity of this task, from the properties that Spark passes to it."""
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(_QUERY_ID)
        batch = None if context is None else context.getLocalProperty(_BATCH_ID)
        if context is None or query is None or batch is None:
            raise BarnabasError("Spark does not say which query and batch this is. Set exactlyOnce to false.")
        run = (context.getLocalProperty(_RUN_ID) or NO_RUN)[:8]
        return TaskIdentity(job_name(self._options.prefix, query), run, context.partitionId(), int(batch))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        tasks = _tasks(messages)
        if tasks:
            with TransactionClient(self._options.settings) as client:
                self.driver(tasks[0].job, client).commit(tasks, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        tasks = _tasks(messages)
        if tasks:
            with TransactionClient(self._options.settings) as client:
                self.driver(tasks[0].job, client).abort(tasks, batchId, len(messages))

    def driver(self, job: str, client: TransactionClient) -> TransactionDriver:
        return TransactionDriver(job, client)


def _tasks(messages: list[WriterCommitMessage | None]) -> list[TaskWritten]:
    return [one for one in messages if isinstance(one, TaskWritten)]
