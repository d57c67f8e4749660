"""A transaction whose outcome is decided, and whose markers have to be written."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.common.topic_partition import TopicPartition
from barnabas.coordinator.runtime.transaction_end import TransactionEnd
from barnabas.coordinator.transaction.transaction_metadata import TransactionMetadata
from barnabas.coordinator.transaction.transaction_state import TransactionState
from barnabas.records.control import ControlRecordType


class TxnMarker(NamedTuple):
    """The end of a producer's transaction for some partitions: an entry of a WriteTxnMarkers request."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    result: ControlRecordType
    transaction_version: int
    partitions: tuple[TopicPartition, ...]

    @property
    def end(self) -> TransactionEnd:
        return TransactionEnd(*self[:-1])


class PendingCompleteTxn(NamedTuple):
    """A transaction in one of the PREPARE states, as in the coordinator's log."""

    txn_topic_partition: int
    """The partition of its transactional ID."""
    coordinator_epoch: int
    """The epoch in which this broker is its coordinator. A later coordinator has a higher one and fences this one."""
    metadata: TransactionMetadata

    @property
    def transactional_id(self) -> str:
        return self.metadata.transactional_id

    @property
    def result(self) -> ControlRecordType:
        committed = self.metadata.state is TransactionState.PREPARE_COMMIT
        return ControlRecordType.COMMIT if committed else ControlRecordType.ABORT

    def marker(self, partitions: tuple[TopicPartition, ...]) -> TxnMarker:
        metadata = self.metadata
        return TxnMarker(
            metadata.producer_id,
            metadata.producer_epoch,
            self.coordinator_epoch,
            self.result,
            metadata.client_transaction_version,
            partitions,
        )
