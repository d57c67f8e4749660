"""How a coordinator writes to its partition of an internal topic."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Protocol

from barnabas.common.topic_partition import TopicPartition
from barnabas.log.append_origin import AppendOrigin
from barnabas.log.producer_append_info import TRANSACTION_VERSION_UNKNOWN
from barnabas.log.verification_state import SENTINEL, VerificationGuard
from barnabas.replica.partition_context import PartitionListener
from barnabas.replica.partition_log import ACKS_ALL
from barnabas.replica.replica_manager import ReplicaManager

TXN_OFFSET_COMMIT_WITH_EPOCH_BUMP = 5
"""TxnOffsetCommit from this version on comes from clients for which every transaction has an epoch of its own."""

HighWatermarkCallback = Callable[[TopicPartition, int], None]


class PartitionWriter(Protocol):
    """The log of a partition, as far as its coordinator writes to it."""

    def max_batch_size(self, partition: TopicPartition) -> int:
        """How large a batch may be. Raises `NotLeaderOrFollowerError` where there is no log."""
        ...

    def append(
        self,
        partition: TopicPartition,
        batch: bytearray,
        guard: VerificationGuard = SENTINEL,
        transaction_version: int = TRANSACTION_VERSION_UNKNOWN,
    ) -> int:
        """Appends a batch and returns the offset behind it, without waiting for replicas; raises what went wrong."""
        ...

    def register_listener(self, partition: TopicPartition, on_high_watermark: HighWatermarkCallback) -> None:
        """Has somebody told how far the partition is committed: on any thread, under locks, so be quick."""
        ...

    def deregister_listener(self, partition: TopicPartition, on_high_watermark: HighWatermarkCallback) -> None: ...

    def maybe_start_transaction_verification(
        self,
        partition: TopicPartition,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        api_version: int,
    ) -> Future[VerificationGuard]:
        """What an append for a transaction has to present, once it is known that the transaction goes on (KIP-890)."""
        ...


TransactionVerifier = Callable[[TopicPartition, str, int, int, int], Future[None]]
"""Asks the transaction coordinator whether a partition is part of a transaction that is going on; it is added to it if
the client leaves that to the broker. Partition, transactional id, producer id, producer epoch, version of the
TxnOffsetCommit. The future fails with what to tell the client."""


class ReplicaPartitionWriter:
    """Writes through the replica manager."""

    def __init__(self, replicas: ReplicaManager, verifier: TransactionVerifier | None = None) -> None:
        self._replicas = replicas
        self.verifier = verifier
        """Without one every transaction is taken for granted. It is set by whoever assembles the broker, as it leads to
        the transaction coordinator, which has such a writer itself."""
        self._listeners: dict[tuple[TopicPartition, HighWatermarkCallback], _Listener] = {}
        """Changed by loops of different partitions, each its own keys."""

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
            # Consumers of the internal topic may wait for this; no request ends on this thread that would do it.
            replicas.action_queue.try_complete_actions()
        return info.last_offset + 1

    def register_listener(self, partition: TopicPartition, on_high_watermark: HighWatermarkCallback) -> None:
        listener = self._listeners[partition, on_high_watermark] = _Listener(on_high_watermark)
        self._replicas.maybe_add_listener(partition, listener)

    def deregister_listener(self, partition: TopicPartition, on_high_watermark: HighWatermarkCallback) -> None:
        listener = self._listeners.pop((partition, on_high_watermark), None)
        if listener is not None:
            self._replicas.remove_listener(partition, listener)

    def maybe_start_transaction_verification(
        self,
        partition: TopicPartition,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        api_version: int,
    ) -> Future[VerificationGuard]:
        answer: Future[VerificationGuard] = Future()
        start = partial(
            self._start_verification, answer, partition, transactional_id, producer_id, producer_epoch, api_version
        )
        lane = self._replicas.coordinator_lane(partition)
        if lane is None:
            start()
        else:
            lane.submit(start)  # it takes the lock of the log
        return answer

    def _start_verification(
        self,
        answer: Future[VerificationGuard],
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
                answer.set_result(guard)
                return
            verified = self.verifier(partition, transactional_id, producer_id, producer_epoch, api_version)
        except Exception as error:  # noqa: BLE001 - it is for whoever waits for the answer
            answer.set_exception(error)
            return

        def on_verified(future: Future[None]) -> None:
            error = future.exception()
            if error is None:
                answer.set_result(guard)
            else:
                answer.set_exception(error)

        verified.add_done_callback(on_verified)


class _Listener(PartitionListener):
    def __init__(self, callback: HighWatermarkCallback) -> None:
        self._callback = callback

    def on_high_watermark_updated(self, partition: TopicPartition, offset: int) -> None:
        self._callback(partition, offset)
