"""What a task does that writes its rows in a transaction which somebody else will end."""

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
"""Clusters that have refused two-phase commit, so that this process need not ask each time. Written by the one thread
that a Python worker runs a task in."""


class JobAbortedError(BarnabasError):
    """The driver has given up the job while this task was about to begin."""


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """Which part of which batch of which query a task writes."""

    job: str
    run: str
    partition: int
    batch: int | None
    """None in a batch query, which nobody repeats."""

    @property
    def transactional_id(self) -> str:
        return transactional_id(self.job, self.partition)


class TransactionalTask:
    """Writes rows in a transaction, and leaves it open.

    The transactional id is the same for all attempts at a task, and for the same task of all batches. So beginning
    (`init_transactions`) ends whatever an attempt before has left, and makes sure that nothing more comes from it.

    In a stream, the transaction also commits an offset, to a group of the same name as the transactional id: the number
    of the batch. It is there if and only if the rows are, which makes it a proof that they are. A task that has begun
    looks for it, and if it is there, has nothing to do: whatever has happened, no batch is written twice by a task.

    But before it begins, it looks whether the driver has decided about this batch already (`DecisionLog`). If so,
    the transaction may still be open, waiting for the driver to end it, and must not be aborted by beginning anew::

        decision        transaction                         task
        older batch     -                                   writes
        this batch      open, or committed                  nothing
        this batch      aborted by its time-out             writes again, unless there is proof
        later batch     -                                   nothing

    When it has begun, it looks whether the driver has given up meanwhile (`abort_tasks`), for nobody would end its
    transaction then.

    Rows that need not be written are read all the same: what comes before the sink may keep state, and notes it when
    all rows are through.
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
                    raise JobAbortedError(f"{self._identity.transactional_id} came too late: its job was aborted.")
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
            return False  # the mark would be one for all runs of the query, and is not set
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
        """A producer that has got rid of its predecessors."""
        choice = self._options.two_phase_commit
        cluster = self._options.settings.client.bootstrap_servers
        if choice is TwoPhaseCommit.ALWAYS:
            return self._initialized(two_phase_commit=True)
        if choice is TwoPhaseCommit.AUTO and cluster not in _without_two_phase_commit:
            try:
                return self._initialized(two_phase_commit=True)
            except (UnsupportedVersionError, TransactionalIdAuthorizationError) as error:
                log.info("Two-phase commit is not to be had, so transactions have a time-out: %s", error)
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
        # By force, for a producer that is closed with patience aborts what is open. All is acknowledged.
        producer.close(0)
        return transaction

    def _give_up(self, producer: KafkaProducer) -> None:
        """Readers of committed data would else wait for the time-out."""
        try:
            producer.close(_CLOSE_SECONDS)  # which aborts what is open
        except BarnabasError as error:
            log.warning("The transaction of %s stays open: %s", self._identity.transactional_id, error)
