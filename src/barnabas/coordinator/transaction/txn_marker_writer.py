"""Writes the markers that end transactions into local partitions: the implementation of WriteTxnMarkers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Final, Protocol

from barnabas.common.clock import Clock
from barnabas.common.errors import Errors
from barnabas.common.identifiers import ZERO_UUID
from barnabas.common.topic_names import GROUP_METADATA_TOPIC
from barnabas.common.topic_partition import TopicPartition
from barnabas.coordinator.runtime.transaction_end import TransactionEnd
from barnabas.coordinator.transaction.pending_complete_txn import TxnMarker
from barnabas.log.append_origin import AppendOrigin
from barnabas.log.segment.file_handle import Buffer
from barnabas.replica.append.record_appender import RecordAppender
from barnabas.replica.fetch.fetch_session import TopicIdPartition
from barnabas.replica.partition.partition import Partition
from barnabas.replica.results import UNCOUNTED_BUFFERS, ProduceResult

logger = logging.getLogger(__name__)

MarkerErrors = dict[int, dict[TopicPartition, Errors]]
"""The results of markers, by producer ID and partition."""

_ACKS_ALL: Final = -1

_COORDINATOR_IS_AWAY: Final = frozenset(
    {Errors.COORDINATOR_NOT_AVAILABLE, Errors.COORDINATOR_LOAD_IN_PROGRESS, Errors.NOT_COORDINATOR}
)


class MarkerReplicas(RecordAppender, Protocol):
    """The part of the replica manager that is needed."""

    def get_partition_or_error(self, partition: tuple[str, int]) -> Partition | Errors: ...


class GroupTransactions(Protocol):
    """The part of the group coordinator for transactions with offset commits.

    It writes the marker itself, because it has to commit or drop those offsets at the same time.
    """

    def complete_transaction(
        self,
        partition: TopicPartition,
        end: TransactionEnd,
        timeout_ms: int,
    ) -> Future[None]: ...


class TxnMarkerWriter:
    """Ends transactions in the partitions of this broker.

    There is one append per marker, because batches of different producers have different headers. A partition that is
    listed twice gets one marker.
    """

    def __init__(
        self,
        replicas: MarkerReplicas,
        clock: Clock,
        request_timeout_ms: int,
        groups: GroupTransactions | None = None,
    ) -> None:
        """Without `groups` there is no group coordinator, and ``__consumer_offsets`` is an ordinary topic."""
        self._replicas = replicas
        self._now_ms = clock.milliseconds
        self._request_timeout_ms = request_timeout_ms
        self.groups = groups

    def write(self, markers: Sequence[TxnMarker], callback: Callable[[MarkerErrors], object]) -> None:
        """Calls `callback` when all markers are done, on any thread, possibly before this returns."""
        collected = _MarkerResults(sum(len(set(marker.partitions)) for marker in markers), callback)
        for marker in markers:
            self._write(marker, collected)
        collected.release()

    def _write(self, marker: TxnMarker, collected: _MarkerResults) -> None:
        problem = _problem_with(marker)
        if problem is not None:
            collected.add(marker.producer_id, dict.fromkeys(marker.partitions, problem))
            return
        appends: dict[TopicIdPartition, Buffer] = {}
        for partition in dict.fromkeys(marker.partitions):
            found = self._replicas.get_partition_or_error(partition)
            if isinstance(found, Errors) or found.log is None:
                collected.add(marker.producer_id, {partition: Errors.UNKNOWN_TOPIC_OR_PARTITION})
            elif partition.topic == GROUP_METADATA_TOPIC and self.groups is not None:
                self._complete_offsets(self.groups, marker, partition, collected)
            else:
                appends[TopicIdPartition(ZERO_UUID, *partition)] = marker.end.marker_batch(self._now_ms())
        if not appends:
            return

        def on_appended(results: dict[TopicIdPartition, ProduceResult]) -> None:
            collected.add(
                marker.producer_id,
                {TopicPartition(one.topic or "", one.partition): result.error for one, result in results.items()},
            )

        self._replicas.append_records(
            self._request_timeout_ms,
            _ACKS_ALL,
            appends,
            on_appended,
            origin=AppendOrigin.COORDINATOR,
            internal_topics_allowed=True,
            transaction_version=marker.transaction_version,
            holder=UNCOUNTED_BUFFERS,
        )

    def _complete_offsets(
        self, groups: GroupTransactions, marker: TxnMarker, partition: TopicPartition, collected: _MarkerResults
    ) -> None:
        def on_completed(future: Future[None]) -> None:
            failure = future.exception()
            error = Errors.NONE if failure is None else Errors.for_exception(failure)
            if error in _COORDINATOR_IS_AWAY:
                # The sender of markers knows leaders, not coordinators: this makes it look for the new leader.
                error = Errors.NOT_LEADER_OR_FOLLOWER
            collected.add(marker.producer_id, {partition: error})

        groups.complete_transaction(partition, marker.end, self._request_timeout_ms).add_done_callback(on_completed)


def _problem_with(marker: TxnMarker) -> Errors | None:
    """Returns an error of the marker itself, independent of partitions. No broker sends such a marker."""
    if marker.producer_epoch < 0:
        return Errors.INVALID_PRODUCER_EPOCH
    if marker.producer_id < 0 or marker.transaction_version < 0:
        return Errors.INVALID_REQUEST
    return None


class _MarkerResults:
    """Collects the results of all partitions, then calls back once."""

    __slots__ = ("_callback", "_errors", "_left", "_lock")

    def __init__(self, partitions: int, callback: Callable[[MarkerErrors], object]) -> None:
        self._callback = callback
        self._lock = threading.Lock()
        """Guards the fields below; the callback is called without it."""
        self._errors: MarkerErrors = {}
        self._left = partitions + 1
        """One more than the partitions, for `write` itself, so that it does not complete before all are started."""

    def add(self, producer_id: int, errors: Mapping[TopicPartition, Errors]) -> None:
        with self._lock:
            self._errors.setdefault(producer_id, {}).update(errors)
            self._left -= len(errors)
            done = self._left == 0
        if done:
            self._callback(self._errors)

    def release(self) -> None:
        with self._lock:
            self._left -= 1
            done = self._left == 0
        if done:
            self._callback(self._errors)
