"""The sink in batch queries: ``df.write.format("barnabas")``."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from barnabas.clients.producer.kafka_producer import KafkaProducer
from barnabas.spark.sink_columns import SinkColumns
from barnabas.spark.sink_messages import Outcome, RowsWritten, TaskTransaction, TaskWritten
from barnabas.spark.sink_options import SinkOptions
from barnabas.spark.sink_rows import RowSender
from barnabas.spark.transaction_client import TransactionClient
from barnabas.spark.transaction_driver import TransactionLostError, abort_tasks
from barnabas.spark.transaction_names import NO_RUN, job_name, transactional_id
from barnabas.spark.transaction_task import TaskIdentity, TransactionalTask
from barnabas.spark.worker_memory import keep_modules

if TYPE_CHECKING:
    import pyarrow as pa


def write_at_least_once(
    options: SinkOptions, columns: SinkColumns, batches: Iterator[pa.RecordBatch]
) -> WriterCommitMessage:
    """Runs a task without transactions: each attempt of the task writes each row once."""
    with KafkaProducer(options.settings.properties) as producer:
        sender = RowSender(producer, columns)
        sender.send_all(batches)
    return RowsWritten(sender.rows)


class BatchWriter(DataSourceArrowWriter):
    """Writes the rows of a query once.

    With ``exactlyOnce``, tasks write in transactions, which are committed when all tasks have succeeded. A batch query
    is not repeated, so if the driver dies while it commits them, the remaining ones are aborted by their timeout.
    """

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns
        self._job = job_name(options.prefix, str(uuid.uuid4()))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        written = self._write(iterator)
        keep_modules()
        return written

    def _write(self, batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        if not self._options.exactly_once:
            return write_at_least_once(self._options, self._columns, batches)
        context = TaskContext.get()
        assert context is not None
        identity = TaskIdentity(self._job, NO_RUN, context.partitionId(), None)
        return TransactionalTask(self._options, self._columns, identity).write(batches)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if open_ := _open_transactions(messages):
            with TransactionClient(self._options.settings) as client:
                statuses = client.statuses(open_)
                gone = [name for name, one in open_.items() if name not in statuses or not statuses[name].is_open(one)]
                lost = gone or sorted(client.end_transactions(open_, commit=True))
            if lost:
                what = "Nothing is" if gone else "The rest is"
                raise TransactionLostError(
                    f"Transactions were aborted before they could be committed: {', '.join(sorted(lost))}. "
                    f"{what} committed."
                )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._options.exactly_once:
            with TransactionClient(self._options.settings) as client:
                client.end_transactions(_open_transactions(messages), commit=False)
                abort_tasks(client, self._job, NO_RUN, len(messages))


def _open_transactions(messages: Sequence[WriterCommitMessage | None]) -> dict[str, TaskTransaction]:
    return {
        transactional_id(one.job, one.partition): one.transaction
        for one in messages
        if isinstance(one, TaskWritten) and one.outcome is Outcome.WRITTEN and one.transaction is not None
    }
