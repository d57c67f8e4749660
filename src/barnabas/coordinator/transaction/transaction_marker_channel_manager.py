"""Writes the markers of decided transactions to all their partitions, and retries until it succeeds."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Final, Protocol

from barnabas.common.errors import Errors
from barnabas.common.log_safety import LimitedLogger
from barnabas.common.scheduler import Scheduler
from barnabas.common.topic_partition import TopicPartition
from barnabas.coordinator.transaction.pending_complete_txn import PendingCompleteTxn, TxnMarker
from barnabas.coordinator.transaction.txn_marker_writer import MarkerErrors, TxnMarkerWriter
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.endpoint import Node
from barnabas.metrics.yammer.registry import KafkaMetricsGroup, MetricsRegistry

logger = LimitedLogger(logging.getLogger(__name__))

_RETRIABLE: Final = frozenset(
    {
        Errors.UNKNOWN_TOPIC_OR_PARTITION,
        Errors.NOT_LEADER_OR_FOLLOWER,
        Errors.NOT_ENOUGH_REPLICAS,
        Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Errors.REQUEST_TIMED_OUT,
        Errors.KAFKA_STORAGE_ERROR,
        Errors.NETWORK_EXCEPTION,
    }
)
_REPLACED: Final = frozenset({Errors.INVALID_PRODUCER_EPOCH, Errors.TRANSACTION_COORDINATOR_FENCED})
"""The producer or the coordinator was replaced, and its successor has done this."""
_NEVER_HAD_RECORDS: Final = frozenset({Errors.UNSUPPORTED_FOR_MESSAGE_FORMAT, Errors.UNSUPPORTED_VERSION})
_NOT_OURS: Final = frozenset({Errors.NOT_COORDINATOR, Errors.COORDINATOR_LOAD_IN_PROGRESS})
"""Another coordinator is responsible, or this one after loading its log."""


def _nobody(_transaction: PendingCompleteTxn) -> Future[bool]:
    """Fails: the default before the coordinator exists, when there are no transactions."""
    raise RuntimeError("no function to complete a transaction is set")


class RemoteMarkers(Protocol):
    """Sends WriteTxnMarkers to other brokers.

    `callback` gets None if there was no response: then it is unknown whether the markers are written, and they are sent
    again, which is idempotent.
    """

    def send(self, broker: Node, marker: TxnMarker, callback: Callable[[MarkerErrors | None], object]) -> None: ...


class _Sending:
    """A transaction, and its partitions without a marker. Guarded by the manager's lock."""

    __slots__ = ("is_completing", "left", "transaction")

    def __init__(self, transaction: PendingCompleteTxn) -> None:
        self.transaction = transaction
        self.is_completing = False
        self.left = set(transaction.metadata.topic_partitions)


class TransactionMarkerChannelManager:
    """Writes the markers of decided transactions to all their partitions.

    The leader of a partition writes its marker. If this broker is the leader, the thread that has committed the
    decision writes it at once: on a single node a transaction is complete, including markers, before its producer gets
    the response. Other brokers get a WriteTxnMarkers request.

    A partition without a leader, or whose leader does not respond, is retried until it succeeds. A deleted partition
    needs no marker. When all markers are written, `on_written` is called.

    A transaction is dropped when this broker is no longer its coordinator: the new one finds it in the log.
    """

    def __init__(
        self,
        node_id: int,
        listener_name: str,
        cache: MetadataCache,
        local: TxnMarkerWriter,
        scheduler: Scheduler,
        registry: MetricsRegistry,
        *,
        retry_backoff_ms: int,
        remote: RemoteMarkers | None = None,
        after_local_write: Callable[[], object] = lambda: None,
    ) -> None:
        """`remote` may be missing if there are no other brokers.

        `after_local_write` wakes up requests that wait for the written markers.
        """
        self._node_id = node_id
        self._listener_name = listener_name
        self._cache = cache
        self._local = local
        self._remote = remote
        self._scheduler = scheduler
        self._retry_backoff_ms = retry_backoff_ms
        self._after_local_write = after_local_write
        self.on_written: Callable[[PendingCompleteTxn], Future[bool]] = _nobody
        """Called when all markers of a transaction are written, to complete it in the coordinator's log. The
        coordinator, which is created later, sets it."""
        self._lock = threading.Lock()
        """Guards the fields below. Nothing is written, sent or called while it is held."""
        self._pending: dict[str, _Sending] = {}
        self._unknown_destinations = 0
        self._append_retries = 0
        self._closed = False
        self._metrics = KafkaMetricsGroup(registry, "kafka.coordinator.transaction", "TransactionMarkerChannelManager")
        self._metrics.new_gauge("UnknownDestinationQueueSize", lambda: self._unknown_destinations)
        self._metrics.new_gauge("LogAppendRetryQueueSize", lambda: self._append_retries)

    def add_txn_markers_to_send(self, transaction: PendingCompleteTxn) -> None:
        """Starts to write markers. Does nothing for a transaction in progress."""
        sending = _Sending(transaction)
        with self._lock:
            known = self._pending.get(transaction.transactional_id)
            if self._closed or (known is not None and known.transaction == transaction):
                return
            self._pending[transaction.transactional_id] = sending
        self._send(sending, tuple(sending.left))

    def remove_markers_for_txn_topic_partition(self, txn_topic_partition: int) -> None:
        """Drops the transactions of a partition that this broker no longer coordinates, or loads again."""
        with self._lock:
            for transactional_id, sending in list(self._pending.items()):
                if sending.transaction.txn_topic_partition == txn_topic_partition:
                    del self._pending[transactional_id]

    def shutdown(self) -> None:
        with self._lock:
            self._closed = True
            self._pending.clear()
        for name in ("UnknownDestinationQueueSize", "LogAppendRetryQueueSize"):
            self._metrics.registry.remove(self._metrics.metric_name(name))

    def num_txns_with_pending_markers(self) -> int:
        with self._lock:
            return len(self._pending)

    # -- sending

    def _send(self, sending: _Sending, partitions: Iterable[TopicPartition]) -> None:
        by_leader: dict[Node, list[TopicPartition]] = {}
        gone: list[TopicPartition] = []
        unknown: list[TopicPartition] = []
        for partition in partitions:
            leader = self._cache.partition_leader_endpoint(*partition, self._listener_name)
            if self._cache.partition(*partition) is None:
                gone.append(partition)
            elif leader is None or leader.id < 0:
                unknown.append(partition)
            else:
                by_leader.setdefault(leader, []).append(partition)
        if gone:
            logger.info("%s: dropping markers for deleted partitions %s", sending.transaction.transactional_id, gone)
        if unknown:
            self._retry_later(sending, unknown)
        for node, led in by_leader.items():
            self._send_to(node, sending, led)
        self._remove_partitions(sending, gone)

    def _send_to(self, leader: Node, sending: _Sending, partitions: list[TopicPartition]) -> None:
        marker = sending.transaction.marker(tuple(partitions))

        def on_response(response: MarkerErrors | None) -> None:
            errors = {} if response is None else response.get(marker.producer_id, {})
            self._on_response(sending, {one: errors.get(one, Errors.NETWORK_EXCEPTION) for one in partitions})

        if leader.id == self._node_id:
            self._local.write((marker,), on_response)
            self._after_local_write()
        elif self._remote is not None:
            self._remote.send(leader, marker, on_response)
        else:
            self._retry_later(sending, partitions)

    def _on_response(self, sending: _Sending, errors: dict[TopicPartition, Errors]) -> None:
        transaction = sending.transaction
        written: list[TopicPartition] = []
        again: list[TopicPartition] = []
        for partition, error in errors.items():
            if not error or error in _NEVER_HAD_RECORDS:
                written.append(partition)
            elif error in _REPLACED:
                logger.info(
                    "%s: no longer sending markers, because %s returned %s",
                    transaction.transactional_id,
                    partition,
                    error.name,
                )
                self._drop(sending)
                return
            else:
                if error not in _RETRIABLE:
                    # Giving up would block readers of the partition forever.
                    logger.error("%s: marker for %s: %s", transaction.transactional_id, partition, error.name)
                again.append(partition)
        if again:
            self._retry_later(sending, again)
        self._remove_partitions(sending, written)

    def _remove_partitions(self, sending: _Sending, partitions: Iterable[TopicPartition]) -> None:
        """Removes partitions that need no marker any more; completes the transaction after the last of them."""
        with self._lock:
            if not self._is_current(sending):
                return
            sending.left.difference_update(partitions)
            if sending.left or sending.is_completing:
                return
            sending.is_completing = True
        self._complete(sending)

    def _complete(self, sending: _Sending) -> None:
        """Writes that the transaction is complete; retries temporary failures."""

        def on_completed(future: Future[bool]) -> None:
            failure = future.exception()
            if failure is None:
                self._drop(sending)
                return
            error = Errors.for_exception(failure)
            if error in _NOT_OURS:
                logger.info(
                    "%s: not completing the transaction here: %s", sending.transaction.transactional_id, error.name
                )
                self._drop(sending)
                return
            logger.info("%s: cannot complete the transaction yet: %r", sending.transaction.transactional_id, failure)
            with self._lock:
                if not self._is_current(sending):
                    return
                self._append_retries += 1
            self._scheduler.schedule("retry-txn-completion", retry, self._retry_backoff_ms)

        def retry() -> None:
            with self._lock:
                self._append_retries -= 1
                current = self._is_current(sending)
            if current:
                self._complete(sending)

        self.on_written(sending.transaction).add_done_callback(on_completed)

    def _drop(self, sending: _Sending) -> None:
        with self._lock:
            if self._is_current(sending):
                del self._pending[sending.transaction.transactional_id]

    def _is_current(self, sending: _Sending) -> bool:
        """The lock must be held."""
        return self._pending.get(sending.transaction.transactional_id) is sending

    def _retry_later(self, sending: _Sending, partitions: list[TopicPartition]) -> None:
        with self._lock:
            if not self._is_current(sending):
                return
            self._unknown_destinations += len(partitions)

        def retry() -> None:
            with self._lock:
                self._unknown_destinations -= len(partitions)
                current = self._is_current(sending)
            if current:
                self._send(sending, partitions)

        self._scheduler.schedule("retry-txn-markers", retry, self._retry_backoff_ms)
