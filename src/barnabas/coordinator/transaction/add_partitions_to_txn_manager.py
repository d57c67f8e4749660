"""Verifies transactional records with the transaction coordinator (KIP-890)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import Future
from enum import Enum
from typing import Final, Protocol

from barnabas.common.errors import Errors
from barnabas.common.topic_names import TRANSACTION_STATE_TOPIC
from barnabas.common.topic_partition import TopicPartition
from barnabas.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from barnabas.coordinator.transaction.transaction_metadata import ProducerIdAndEpoch
from barnabas.coordinator.transaction.transaction_version import TransactionVersion
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.endpoint import Node

_PRODUCE_WITH_IMPLICIT_ADD: Final = 12
_PRODUCE_WITH_ABORTABLE_ERROR: Final = 11
_TXN_OFFSET_COMMIT_WITH_IMPLICIT_ADD: Final = 5
_TXN_OFFSET_COMMIT_WITH_ABORTABLE_ERROR: Final = 4


class TransactionSupportedOperation(Enum):
    """What the version of a client's request implies about its transactions."""

    DEFAULT_ERROR = "default error"
    """It adds partitions itself, and understands INVALID_TXN_STATE."""
    GENERIC_ERROR_SUPPORTED = "generic error supported"
    """It adds partitions itself, and understands TRANSACTION_ABORTABLE, after which it can begin a transaction."""
    ADD_PARTITION = "add partition"
    """Brokers add partitions for it: transaction version 2."""

    @property
    def supports_epoch_bump(self) -> bool:
        return self is TransactionSupportedOperation.ADD_PARTITION

    @classmethod
    def for_produce(cls, api_version: int) -> TransactionSupportedOperation:
        if api_version >= _PRODUCE_WITH_IMPLICIT_ADD:
            return cls.ADD_PARTITION
        return cls.GENERIC_ERROR_SUPPORTED if api_version >= _PRODUCE_WITH_ABORTABLE_ERROR else cls.DEFAULT_ERROR

    @classmethod
    def for_txn_offset_commit(cls, api_version: int) -> TransactionSupportedOperation:
        if api_version >= _TXN_OFFSET_COMMIT_WITH_IMPLICIT_ADD:
            return cls.ADD_PARTITION
        if api_version >= _TXN_OFFSET_COMMIT_WITH_ABORTABLE_ERROR:
            return cls.GENERIC_ERROR_SUPPORTED
        return cls.DEFAULT_ERROR


PartitionErrors = dict[TopicPartition, Errors]


class RemoteTransactions(Protocol):
    """Calls the coordinator on another broker with AddPartitionsToTxn; NETWORK_EXCEPTION if it does not respond."""

    def add_or_verify(
        self,
        coordinator: Node,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        callback: Callable[[PartitionErrors], object],
        *,
        verify_only: bool,
    ) -> None: ...


class AddPartitionsToTxnManager:
    """Verifies that records may be appended, or adds their partition to the transaction.

    A leader that gets the first batch of a transaction asks the coordinator whether the transaction is ongoing and
    includes the partition; for clients that leave it to the broker, it has the partition added. If this broker is the
    coordinator, no network is involved.
    """

    def __init__(
        self,
        node_id: int,
        listener_name: str,
        cache: MetadataCache,
        coordinator: TransactionCoordinator,
        remote: RemoteTransactions | None = None,
    ) -> None:
        self._node_id = node_id
        self._listener_name = listener_name
        self._cache = cache
        self._coordinator = coordinator
        self._remote = remote

    def add_or_verify_transaction(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        operation: TransactionSupportedOperation,
    ) -> Future[PartitionErrors]:
        """Returns the partitions that must not be appended to, with errors that producers understand."""
        result: Future[PartitionErrors] = Future()

        def on_errors(errors: PartitionErrors) -> None:
            result.set_result(
                {partition: _for_producer(error, operation) for partition, error in errors.items() if error}
            )

        leader = self._cache.partition_leader_endpoint(
            TRANSACTION_STATE_TOPIC, self._coordinator.partition_for(transactional_id), self._listener_name
        )
        if leader is not None and leader.id == self._node_id:
            self._ask_here(transactional_id, producer, partitions, operation, on_errors)
        elif leader is None or leader.id < 0 or self._remote is None:
            on_errors(dict.fromkeys(partitions, Errors.COORDINATOR_NOT_AVAILABLE))
        else:
            self._remote.add_or_verify(
                leader,
                transactional_id,
                producer,
                partitions,
                on_errors,
                verify_only=not operation.supports_epoch_bump,
            )
        return result

    def _ask_here(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        operation: TransactionSupportedOperation,
        on_errors: Callable[[PartitionErrors], object],
    ) -> None:
        if operation.supports_epoch_bump:
            self._coordinator.add_partitions_to_transaction(
                transactional_id, producer, partitions, TransactionVersion.TV_2
            ).add_done_callback(lambda future: on_errors(dict.fromkeys(partitions, future.result())))
        else:
            self._coordinator.verify_partitions_in_transaction(
                transactional_id, producer, partitions
            ).add_done_callback(lambda future: on_errors(future.result()))

    def verify_offset_commit(
        self, partition: TopicPartition, transactional_id: str, producer_id: int, producer_epoch: int, api_version: int
    ) -> Future[None]:
        """Does the same for transactional offset commits: completes, or fails with the error for the client.

        It is the `TransactionVerifier` of the group coordinator's writer.
        """
        result: Future[None] = Future()

        def on_verified(future: Future[PartitionErrors]) -> None:
            error = future.result().get(partition, Errors.NONE)
            failure = error.to_exception()
            if failure is None:
                result.set_result(None)
            else:
                result.set_exception(failure)

        self.add_or_verify_transaction(
            transactional_id,
            ProducerIdAndEpoch(producer_id, producer_epoch),
            (partition,),
            TransactionSupportedOperation.for_txn_offset_commit(api_version),
        ).add_done_callback(on_verified)
        return result


def _for_producer(error: Errors, operation: TransactionSupportedOperation) -> Errors:
    if error is Errors.PRODUCER_FENCED:
        return Errors.INVALID_PRODUCER_EPOCH  # as a log does for such a producer
    if error is Errors.TRANSACTION_ABORTABLE and operation is TransactionSupportedOperation.DEFAULT_ERROR:
        return Errors.INVALID_TXN_STATE
    return error
