"""The transaction coordinator of a scripted cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from barnabas.clients.testing.fate import Handled
from barnabas.clients.testing.partition_log import StoredRecord
from barnabas.common.errors import Errors
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)


@dataclass(slots=True)
class OpenTransaction:
    """A transactional id's producer, and the contents of its transaction so far."""

    producer_id: int
    epoch: int
    partitions: set[TopicPartition] = field(default_factory=set)
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    offsets: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)


class ScriptedTransactions:
    """Assigns producer ids and epochs, and tracks the records that transactions hide."""

    def __init__(self, records: Callable[[TopicPartition], Sequence[StoredRecord]]) -> None:
        self._records = records
        self._next_producer_id = 1000
        self.transactions: dict[str, OpenTransaction] = {}
        self.committed_offsets: dict[tuple[str, TopicPartition], int] = {}
        self.aborted: dict[TopicPartition, set[int]] = {}

    def hidden(self, partition: TopicPartition) -> set[int]:
        """Returns the offsets that a read_committed consumer does not see: of aborted and open transactions."""
        open_offsets = {
            record.offset
            for transaction in self.transactions.values()
            if partition in transaction.starts
            for record in self._records(partition)[transaction.starts[partition] :]
            if record.producer_id == transaction.producer_id
        }
        return self.aborted.get(partition, set()) | open_offsets

    def note_append(self, transactional_id: str | None, partition: TopicPartition) -> None:
        transaction = None if transactional_id is None else self.transactions.get(transactional_id)
        if transaction is not None:
            transaction.partitions.add(partition)
            mine = [
                record.offset
                for record in self._records(partition)
                if record.transactional
                and record.producer_id == transaction.producer_id
                and record.producer_epoch == transaction.epoch
            ]
            if mine:
                transaction.starts.setdefault(partition, mine[0])

    def init_producer_id(self, request: InitProducerIdRequest, error: Errors) -> InitProducerIdResponse:
        if error is not Errors.NONE:
            return InitProducerIdResponse(error_code=error)
        if request.transactional_id is None:
            self._next_producer_id += 1
            return InitProducerIdResponse(producer_id=self._next_producer_id, producer_epoch=0)
        transaction = self.transactions.get(request.transactional_id)
        if transaction is None:
            self._next_producer_id += 1
            transaction = self.transactions[request.transactional_id] = OpenTransaction(self._next_producer_id, 0)
        else:
            if request.producer_id != -1 and (request.producer_id, request.producer_epoch) != (
                transaction.producer_id,
                transaction.epoch,
            ):
                return InitProducerIdResponse(error_code=Errors.PRODUCER_FENCED)
            self._finish(transaction, committed=False)
            transaction.epoch += 1
        return InitProducerIdResponse(producer_id=transaction.producer_id, producer_epoch=transaction.epoch)

    def add_partitions(self, request: AddPartitionsToTxnRequest, error: Errors) -> AddPartitionsToTxnResponse:
        transaction = self.transactions[request.v3_and_below_transactional_id]
        if error is Errors.NONE and request.v3_and_below_producer_epoch != transaction.epoch:
            error = Errors.PRODUCER_FENCED
        results = []
        for topic in request.v3_and_below_topics:
            results.append(
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error)
                        for index in topic.partitions
                    ],
                )
            )
            if error is Errors.NONE:
                transaction.partitions.update(TopicPartition(topic.name, index) for index in topic.partitions)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)

    def txn_offset_commit(self, request: TxnOffsetCommitRequest, error: Errors) -> TxnOffsetCommitResponse:
        transaction = self.transactions[request.transactional_id]
        topics = []
        for topic in request.topics:
            for row in topic.partitions:
                if error is Errors.NONE:
                    key = (request.group_id, TopicPartition(topic.name, row.partition_index))
                    transaction.offsets[key] = row.committed_offset
            topics.append(
                TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        TxnOffsetCommitResponsePartition(partition_index=row.partition_index, error_code=error)
                        for row in topic.partitions
                    ],
                )
            )
        return TxnOffsetCommitResponse(topics=topics)

    def end_txn(self, handled: Handled, request: EndTxnRequest, error: Errors) -> EndTxnResponse:
        transaction = self.transactions[request.transactional_id]
        if error is Errors.NONE and (request.producer_id, request.producer_epoch) != (
            transaction.producer_id,
            transaction.epoch,
        ):
            error = Errors.PRODUCER_FENCED
        if error is not Errors.NONE:
            return EndTxnResponse(error_code=error)
        self._finish(transaction, committed=request.committed)
        if handled.header.api_version < 5:
            return EndTxnResponse()
        transaction.epoch += 1
        return EndTxnResponse(producer_id=transaction.producer_id, producer_epoch=transaction.epoch)

    def _finish(self, transaction: OpenTransaction, *, committed: bool) -> None:
        if committed:
            self.committed_offsets.update(transaction.offsets)
        else:
            for partition, start in transaction.starts.items():
                hidden = self.aborted.setdefault(partition, set())
                for record in self._records(partition)[start:]:
                    if record.producer_id == transaction.producer_id and record.producer_epoch == transaction.epoch:
                        hidden.add(record.offset)
        transaction.partitions.clear()
        transaction.starts.clear()
        transaction.offsets.clear()
