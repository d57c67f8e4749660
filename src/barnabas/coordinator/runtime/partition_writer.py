"""Appends records of a coordinator to its partition of an internal topic."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Protocol

from barnabas.common.topic_partition import TopicPartition
from barnabas.log.append_origin import AppendOrigin
from barnabas.log.producers.producer_append_info import TRANSACTION_VERSION_UNKNOWN
from barnabas.log.producers.verification_state import SENTINEL, VerificationGuard
from barnabas.replica.partition.partition_context import PartitionListener
from barnabas.replica.replica_manager import ReplicaManager
from barnabas.replica.results import ACKS_ALL

TXN_OFFSET_COMMIT_WITH_EPOCH_BUMP = 5
"""The first version of TxnOffsetCommit of clients with a separate epoch for every transaction."""

HighWatermarkCallback = Callable[[TopicPartition, int], None]


class PartitionWriter(Protocol):
    """The log of a partition, from the view of its coordinator."""

    def max_batch_size(self, partition: TopicPartition) -> int:
        """Returns the maximum batch size. Raises `NotLeaderOrFollowerError` if there is no log."""
        ...

    def append(
        self,
        partition: TopicPartition,
        batch: bytearray,
        guard: VerificationGuard = SENTINEL,
        transaction_version: int = TRANSACTION_VERSION_UNKNOWN,
    ) -> int:
        """Appends a batch and returns the next offset, without waiting for replicas; raises errors."""
        ...

    def register_listener(self, partition: TopicPartition, on_high_watermark: HighWatermarkCallback) -> None:
        """Registers a callback for the high watermark. It runs on any thread, under locks, so it must be fast."""
        ...

    def deregister_listener(self, partition: TopicPartition, on_high_watermark: HighWatermarkCallback) -> None: ...

    def high_watermark(self, partition: TopicPartition) -> int:
        """Returns the current high watermark. Raises `NotLeaderOrFollowerError` if there is no log."""
        ...

    def maybe_start_transaction_verification(
        self,
        partition: TopicPartition,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        api_version: int,
    ) -> Future[VerificationGuard]:
        """Verifies that the transaction is ongoing, and returns the guard for a transactional append (KIP-890)."""
        ...


TransactionVerifier = Callable[[TopicPartition, str, int, int, int], Future[None]]
"""Asks the transaction coordinator whether a partition is part of an ongoing transaction, and adds it if the client
leaves that to the broker. Arguments: partition, transactional ID, producer ID, producer epoch, version of the
TxnOffsetCommit. The future fails with the error for the client."""


class ReplicaPartitionWriter:
    """Appends through the replica manager."""

    def __init__(self, replicas: ReplicaManager, verifier: TransactionVerifier | None = None) -> None:
        self._replicas = replicas
        self.verifier = verifier
        """Without one no transaction is verified. The broker sets it later, because it needs the transaction
        coordinator, which has such a writer itself."""
        self._listeners: dict[tuple[TopicPartition, HighWatermarkCallback], _Listener] = {}
        """Changed by loops of different partitions, each with its own keys."""

    def max_batch_size(self, partition: TopicPartition) -> int:
        return self._replicas.get_partition_or_exception(partition).local_log_or_raise().config.max_message_bytes

    def append(
        self,
        partition: TopicPartition,
        batch: bytearray,
        guard: VerificationGuard = SENTINEL,
        transaction_version: int = TRANSACTION_VERSION_UNKNOWN,
    ) -> int:
        replicas = self._replicas
        try:
            info = replicas.append_records_to_leader(
                partition,
                batch,
                required_acks=ACKS_ALL,
                origin=AppendOrigin.COORDINATOR,
                verification_guard=guard,
                transaction_version=transaction_version,
            )
        finally:
            # Consumers of the internal topic may wait for this, and no request ends on this thread to complete them.
            replicas.action_queue.try_complete_actions()
        return info.last_offset + 1

    def register_listener(self, partition: TopicPartition, on_high_watermark: HighWatermarkCallback) -> None:
        listener = self._listeners[partition, on_high_watermark] = _Listener(on_high_watermark)
        self._replicas.maybe_add_listener(partition, listener)

    def deregister_listener(self, partition: TopicPartition, on_high_watermark: HighWatermarkCallback) -> None:
        listener = self._listeners.pop((partition, on_high_watermark), None)
        if listener is not None:
            self._replicas.remove_listener(partition, listener)

    def high_watermark(self, partition: TopicPartition) -> int:
        return self._replicas.get_partition_or_exception(partition).local_log_or_raise().high_watermark

    def maybe_start_transaction_verification(
        self,
        partition: TopicPartition,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        api_version: int,
    ) -> Future[VerificationGuard]:
        guard_future: Future[VerificationGuard] = Future()
        start = partial(
            self._start_verification,
            guard_future,
            partition,
            transactional_id,
            producer_id,
            producer_epoch,
            api_version,
        )
        lane = self._replicas.coordinator_lane(partition)
        if lane is None:
            start()
        else:
            lane.submit(start)  # it takes the lock of the log
        return guard_future

    def _start_verification(
        self,
        guard_future: Future[VerificationGuard],
        partition: TopicPartition,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        api_version: int,
    ) -> None:
        try:
            guard = self._replicas.get_partition_or_exception(partition).maybe_start_transaction_verification(
                producer_id,
                0,
                producer_epoch,
                supports_epoch_bump=api_version >= TXN_OFFSET_COMMIT_WITH_EPOCH_BUMP,
            )
            if guard is SENTINEL or self.verifier is None:
                guard_future.set_result(guard)
                return
            verified = self.verifier(partition, transactional_id, producer_id, producer_epoch, api_version)
        except Exception as error:  # noqa: BLE001 - passed to the future
            guard_future.set_exception(error)
            return

        def on_verified(future: Future[None]) -> None:
            error = future.exception()
            if error is None:
                guard_future.set_result(guard)
            else:
                guard_future.set_exception(error)

        verified.add_done_callback(on_verified)


class _Listener(PartitionListener):
    def __init__(self, callback: HighWatermarkCallback) -> None:
        self._callback = callback

    def on_high_watermark_updated(self, partition: TopicPartition, offset: int) -> None:
        self._callback(partition, offset)
