"""Runs a task that writes its rows in a transaction, which the driver ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from barnabas.clients.producer.kafka_producer import KafkaProducer
from barnabas.clients.producer.offsets import OffsetAndMetadata
from barnabas.common.errors import BarnabasError, TransactionalIdAuthorizationError, UnsupportedVersionError
from barnabas.common.topic_partition import TopicPartition
from barnabas.spark.sink_columns import SinkColumns
from barnabas.spark.sink_messages import Outcome, TaskTransaction, TaskWritten
from barnabas.spark.sink_options import SinkOptions, TwoPhaseCommit
from barnabas.spark.sink_rows import RowSender
from barnabas.spark.sink_settings import SinkSettings
from barnabas.spark.transaction_client import TransactionClient
from barnabas.spark.transaction_decision import DecisionLog
from barnabas.spark.transaction_driver import is_aborted, last_batch
from barnabas.spark.transaction_names import NO_RUN, transactional_id

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

_CLOSE_SECONDS: Final = 10.0

_without_two_phase_commit: set[tuple[str, ...]] = set()
"""Clusters that have refused two-phase commit, so that this process does not try again. Written only by the thread in
which a Python worker runs a task."""


class JobAbortedError(BarnabasError):
    """The driver has aborted the job while this task was about to begin."""


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """Identifies the query, batch and partition that a task writes."""

    job: str
    run: str
    partition: int
    batch: int | None
    """None in a batch query, which is not repeated."""

    @property
    def transactional_id(self) -> str:
        return transactional_id(self.job, self.partition)


class TransactionalTask:
    """Writes rows in a transaction, and leaves it open.

    The transactional id is the same for all attempts at a task, and for the same task of all batches. So beginning
    (`init_transactions`) aborts the transaction of an earlier attempt and fences its producer.

    In a stream, the transaction also commits the batch number as an offset of the group with the same name as the
    transactional id. The offset is visible if and only if the rows are, so it proves that they are. A task that has
    begun reads it, and if it is there, writes nothing: a task never writes a batch twice.

    Before it begins, a task checks whether the driver has already decided about this batch (`DecisionLog`). If so, the
    transaction may still be open, waiting for the driver to end it, and a new beginning must not abort it::

        decision        transaction                         task
        older batch     -                                   writes
        this batch      open, or committed                  nothing
        this batch      aborted by its timeout              writes again, unless there is proof
        later batch     -                                   nothing

    After it has begun, it checks whether the driver has aborted the job (`abort_tasks`): then its transaction would
    never be ended.

    Rows that need not be written are still read: operators before the sink may keep state, and store it after the last
    row.
    """

    def __init__(
        self,
        options: SinkOptions,
        columns: SinkColumns,
        identity: TaskIdentity,
        *,
        new_client: Callable[[SinkSettings], TransactionClient] = TransactionClient,
        new_producer: Callable[[Mapping[str, str]], KafkaProducer] = KafkaProducer,
    ) -> None:
        self._options = options
        self._columns = columns
        self._identity = identity
        self._new_client = new_client
        self._new_producer = new_producer

    def write(self, batches: Iterator[pa.RecordBatch]) -> TaskWritten:
        with self._new_client(self._options.settings) as client:
            if self._is_decided(client):
                return self._nothing(batches, Outcome.DECIDED)
            first = next((batch for batch in batches if batch.num_rows), None)
            if first is None:
                return self._nothing(batches, Outcome.EMPTY)
            producer = self._begin()
            try:
                if self._is_aborted(client):
                    raise JobAbortedError(f"{self._identity.transactional_id} began too late: its job was aborted.")
                if self._is_proven(client):
                    producer.close(_CLOSE_SECONDS)
                    return self._nothing(batches, Outcome.DECIDED)
                return self._write(producer, first, batches)
            except BaseException:
                self._give_up(producer)
                raise

    def _is_decided(self, client: TransactionClient) -> bool:
        identity = self._identity
        if identity.batch is None:
            return False
        decision = DecisionLog(identity.job, client).read()
        if decision is None or decision.batch < identity.batch:
            return False
        if decision.batch > identity.batch or identity.partition >= len(decision.transactions):
            return True
        transaction = decision.transactions[identity.partition]
        if transaction is None:
            return True
        name = identity.transactional_id
        status = client.statuses([name]).get(name)
        return status is not None and (status.is_open(transaction) or status.is_committed(transaction))

    def _is_aborted(self, client: TransactionClient) -> bool:
        identity = self._identity
        if identity.batch is not None and identity.run == NO_RUN:
            return False  # no mark is set, as it would apply to all runs of the query
        return is_aborted(client, identity.job, identity.run)

    def _is_proven(self, client: TransactionClient) -> bool:
        identity = self._identity
        return identity.batch is not None and last_batch(client, identity.transactional_id) >= identity.batch

    def _nothing(self, batches: Iterator[pa.RecordBatch], outcome: Outcome) -> TaskWritten:
        for _ in batches:
            pass
        return TaskWritten(self._identity.job, self._identity.run, self._identity.partition, outcome)

    # -- the transaction

    def _begin(self) -> KafkaProducer:
        """Returns a producer that has fenced its predecessors."""
        choice = self._options.two_phase_commit
        cluster = self._options.settings.client.bootstrap_servers
        if choice is TwoPhaseCommit.ALWAYS:
            return self._initialized(two_phase_commit=True)
        if choice is TwoPhaseCommit.AUTO and cluster not in _without_two_phase_commit:
            try:
                return self._initialized(two_phase_commit=True)
            except (UnsupportedVersionError, TransactionalIdAuthorizationError) as error:
                log.info("Two-phase commit is not available, so transactions have a timeout: %s", error)
                _without_two_phase_commit.add(cluster)
        return self._initialized(two_phase_commit=False)

    def _initialized(self, *, two_phase_commit: bool) -> KafkaProducer:
        properties = self._options.settings.of_transactions(
            self._identity.transactional_id, two_phase_commit=two_phase_commit
        )
        producer = self._new_producer(properties)
        try:
            producer.init_transactions()
        except BaseException:
            producer.close(0)
            raise
        return producer

    def _write(self, producer: KafkaProducer, first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> TaskWritten:
        identity = self._identity
        producer.begin_transaction()
        sender = RowSender(producer, self._columns)
        sender.send(first)
        sender.send_all(rest)
        topic = sender.first_topic
        assert topic is not None
        if identity.batch is not None:
            proof = {TopicPartition(topic, 0): OffsetAndMetadata(identity.batch)}
            producer.send_offsets_to_transaction(proof, identity.transactional_id)
        return TaskWritten(
            identity.job,
            identity.run,
            identity.partition,
            Outcome.WRITTEN,
            sender.rows,
            topic,
            self._leave_open(producer),
        )

    def _leave_open(self, producer: KafkaProducer) -> TaskTransaction:
        manager = producer.transaction_manager
        assert manager is not None
        if manager.enable_two_phase_commit:
            producer.prepare_transaction()
        identity = manager.producer_id_and_epoch
        transaction = TaskTransaction(
            identity.producer_id, identity.epoch, manager.coordinators.is_transaction_v2_enabled
        )
        # Close with timeout 0: a graceful close would abort the transaction. All rows are acknowledged.
        producer.close(0)
        return transaction

    def _give_up(self, producer: KafkaProducer) -> None:
        """Aborts the transaction, so that readers of committed data need not wait for its timeout."""
        try:
            producer.close(_CLOSE_SECONDS)  # aborts the open transaction
        except BarnabasError as error:
            log.warning("The transaction of %s stays open: %s", self._identity.transactional_id, error)
