"""Copies partitions from a leader: fetch, truncate where the logs diverge, append, back off after an error.

::

    AbstractFetcherManager        assigns each partition to one of its threads, starts and stops them
      AbstractFetcherThread       the loop; owns the fetch state of its partitions
        LeaderEndPoint            where the records come from: this broker's own log, or another broker

A follower and a move between log directories do the same work. They differ in the endpoint, in the log that is written
(`is_future`), and in what happens when the copy has caught up.
"""

from __future__ import annotations

import abc
import logging
import threading
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, NamedTuple, Protocol, TypeVar

from barnabas.common.clock import Clock
from barnabas.common.errors import BarnabasError, KafkaStorageError, OffsetOutOfRangeError
from barnabas.common.shutdownable_thread import ExitProcedure, ShutdownableThread, exit_process
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.leader_epoch_cache import EpochEndOffset
from barnabas.log.segment.file_handle import read_fully
from barnabas.log.unified_log import LogStartOffsetIncrementReason, UnifiedLog
from barnabas.network.reactor.send import FileRegion
from barnabas.replica.follower.replica_quota import ReplicaQuota

if TYPE_CHECKING:
    from barnabas.replica.partition.partition import Partition

logger = logging.getLogger(__name__)

_IDLE_MS: Final = 1000.0
"""How long a thread without progress waits before it fetches again, unless it is woken."""

UNKNOWN_EPOCH: Final = -1


class FetchPosition(NamedTuple):
    """Where the copy ends, and the leader epoch of its last record if there is one."""

    offset: int
    last_fetched_epoch: int | None


class FetchedData(NamedTuple):
    """The leader's data for one partition: records, or where the logs diverge, or an error."""

    records: FileRegion | bytes = b""
    high_watermark: int = 0
    log_start_offset: int = 0
    diverging_epoch: EpochEndOffset | None = None
    """The last epoch up to the fetched one that the leader has, and its end offset."""
    error: Exception | None = None


class LeaderEndPoint(Protocol):
    """The leader, as a fetcher reaches it."""

    def fetch(self, positions: Sequence[tuple[Partition, FetchPosition]]) -> Iterator[tuple[Partition, FetchedData]]:
        """Yields the data of each partition. Raises `BarnabasError` or OSError if the leader cannot be reached."""
        ...

    def earliest_offset(self, partition: Partition) -> int:
        """Returns the log start offset of the leader."""
        ...


class PartitionFetch:
    """The fetch state of one partition."""

    __slots__ = ("not_before_ms", "partition")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.not_before_ms = 0
        """After an error, when to fetch again."""


F = TypeVar("F", bound=PartitionFetch)


class AbstractFetcherThread(ShutdownableThread, Generic[F]):
    """Fetches for its partitions in turn. A subclass defines the log that is written, and `on_caught_up`."""

    is_future: ClassVar[bool] = False
    """Whether the copy is the future log of a partition instead of its current log."""

    def __init__(
        self,
        name: str,
        leader: LeaderEndPoint,
        quota: ReplicaQuota,
        *,
        backoff_ms: int,
        clock: Clock,
        exit_procedure: ExitProcedure = exit_process,
    ) -> None:
        super().__init__(name, clock=clock, exit_procedure=exit_procedure)
        self._leader = leader
        self._quota = quota
        self._backoff_ms = backoff_ms
        self._changed = threading.Condition()
        """Guards the fields below. Not held while anything is copied; no other lock is taken inside it."""
        self._fetches: dict[TopicPartition, F] = {}
        self._busy: TopicPartition | None = None
        """The partition whose data is being processed."""
        self._woken = False
        """Whether there is new work since the last wait."""

    # For subclasses

    @abc.abstractmethod
    def new_fetch(self, partition: Partition) -> F: ...

    def on_caught_up(self, fetch: F) -> bool:  # noqa: ARG002 - for subclasses
        """Called when the leader has no more records; returns whether there is more to do at once."""
        return False

    def on_removed(self, fetch: F) -> None:
        """Called when the manager removes a partition."""

    # Called by the manager

    def add(self, partition: Partition) -> None:
        with self._changed:
            if partition.topic_partition not in self._fetches:
                self._fetches[partition.topic_partition] = self.new_fetch(partition)
                self._woken = True
                self._changed.notify_all()

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Stops fetching for these; returns when no data of theirs is being processed."""
        removed: list[F] = []
        with self._changed:
            for topic_partition in partitions:
                fetch = self._fetches.pop(topic_partition, None)
                if fetch is not None:
                    removed.append(fetch)
                if self is not threading.current_thread():
                    while self._busy == topic_partition:
                        self._changed.wait()
        for fetch in removed:
            self.on_removed(fetch)

    @property
    def partition_count(self) -> int:
        with self._changed:
            return len(self._fetches)

    def on_shutdown_initiated(self) -> None:
        self.wakeup()

    def wakeup(self) -> None:
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    # The loop

    def do_work(self) -> None:
        ready = self._ready()
        positions = [(fetch.partition, position) for fetch, position in ready.values()]
        progress = False
        try:
            for partition, data in self._leader.fetch(positions):
                if not self.is_running():
                    return
                progress |= self._process_if_wanted(ready[partition.topic_partition][0], data)
        except (BarnabasError, OSError) as error:
            logger.warning("%s: the leader cannot be reached: %s", self.name, error)
            for fetch, _ in ready.values():
                self._back_off(fetch)
        if not progress:
            with self._changed:
                if not self._woken:
                    self._clock.wait(self._changed, _IDLE_MS)
                self._woken = False

    def _ready(self) -> dict[TopicPartition, tuple[F, FetchPosition]]:
        """Returns the partitions to fetch for now, without those that back off, are throttled, or have no log."""
        now_ms = self._clock.hi_res_milliseconds()
        with self._changed:
            fetches = [fetch for fetch in self._fetches.values() if fetch.not_before_ms <= now_ms]
        ready = {}
        for fetch in fetches:
            topic_partition = fetch.partition.topic_partition
            log = self._log_of(fetch.partition)
            if log is None or fetch.partition.log is None:
                self._forget(fetch)
            elif not (self._quota.is_quota_exceeded and self._quota.is_throttled(topic_partition)):
                ready[topic_partition] = fetch, FetchPosition(log.log_end_offset, log.leader_epochs.latest_epoch)
        return ready

    def _log_of(self, partition: Partition) -> UnifiedLog | None:
        return partition.future_log if self.is_future else partition.log

    def _process_if_wanted(self, fetch: F, data: FetchedData) -> bool:
        topic_partition = fetch.partition.topic_partition
        with self._changed:
            if self._fetches.get(topic_partition) is not fetch:
                return False
            self._busy = topic_partition
        try:
            return self._process(fetch, data)
        except KafkaStorageError as error:
            # A log directory is offline, or about to be: the handler of its failure removes the partition.
            logger.error("%s cannot be copied: %s", topic_partition, error)
        except (BarnabasError, OSError):
            logger.exception("%s cannot be copied for now", topic_partition)
        finally:
            with self._changed:
                self._busy = None
                self._changed.notify_all()
        self._back_off(fetch)
        return False

    def _process(self, fetch: F, data: FetchedData) -> bool:
        """Truncates, or appends the fetched records; returns whether there is more to do at once."""
        partition, is_future = fetch.partition, self.is_future
        if isinstance(data.error, OffsetOutOfRangeError):
            # The leader has deleted the records there, by retention or by DeleteRecords.
            partition.truncate_fully_and_start_at(self._leader.earliest_offset(partition), is_future=is_future)
            return True
        if data.error is not None:
            raise data.error
        log = self._log_of(partition)
        if log is None:
            self._forget(fetch)
            return False
        if data.diverging_epoch is not None:
            partition.truncate_to(truncation_offset(log, data.diverging_epoch), is_future=is_future)
            return True
        if not data.records:
            _follow_offsets(log, data)
            return self.on_caught_up(fetch)
        records = _load(data.records)
        appended = partition.append_records_to_follower_or_future_replica(records, is_future=is_future)
        if appended is not None and not appended.valid_bytes:
            raise BarnabasError(f"Nothing of what is at offset {log.log_end_offset} could be copied")
        self._quota.record(len(records))
        _follow_offsets(log, data)
        return True

    def _back_off(self, fetch: F) -> None:
        fetch.not_before_ms = self._clock.hi_res_milliseconds() + self._backoff_ms

    def _forget(self, fetch: F) -> None:
        with self._changed:
            if self._fetches.get(fetch.partition.topic_partition) is fetch:
                del self._fetches[fetch.partition.topic_partition]


class AbstractFetcherManager(abc.ABC):
    """Starts a fetcher thread with its first partition, and stops it when it is idle."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Guards the fields below. The lock of a thread is taken inside it. Not held while awaiting a thread's end."""
        self._threads: dict[Hashable, AbstractFetcherThread[Any]] = {}
        self._is_shut_down = False

    @abc.abstractmethod
    def fetcher_id(self, partition: Partition) -> Hashable:
        """Returns the id of the thread that fetches for a partition."""

    @abc.abstractmethod
    def create_fetcher_thread(self, fetcher_id: Hashable) -> AbstractFetcherThread[Any]: ...

    def add_partition(self, partition: Partition) -> None:
        """Starts to fetch for a partition; does nothing if it is being fetched already."""
        fetcher_id = self.fetcher_id(partition)
        with self._lock:
            if self._is_shut_down:
                return
            thread = self._threads.get(fetcher_id)
            if thread is None:
                thread = self._threads[fetcher_id] = self.create_fetcher_thread(fetcher_id)
            thread.add(partition)
            thread.start_once()

    def remove_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Stops fetching for these; returns when no data of theirs is being processed."""
        topic_partitions = list(partitions)
        with self._lock:
            threads = list(self._threads.values())
        for thread in threads:
            thread.remove(topic_partitions)

    def shutdown_idle_threads(self) -> None:
        with self._lock:
            idle = [fetcher_id for fetcher_id, thread in self._threads.items() if not thread.partition_count]
            self._end(gone := [self._threads.pop(fetcher_id) for fetcher_id in idle])
        for thread in gone:
            thread.await_shutdown()

    @property
    def thread_count(self) -> int:
        with self._lock:
            return len(self._threads)

    def shutdown(self) -> None:
        with self._lock:
            self._is_shut_down = True
            self._end(threads := list(self._threads.values()))
            self._threads.clear()
        for thread in threads:
            thread.await_shutdown()

    @staticmethod
    def _end(threads: Iterable[AbstractFetcherThread[Any]]) -> None:
        for thread in threads:
            thread.initiate_shutdown()


def diverging_epoch(leader: UnifiedLog, position: FetchPosition) -> EpochEndOffset | None:
    """Returns the epoch and end offset to truncate a copy to, if the leader's log does not have the same records."""
    offset, epoch = position
    end = None if epoch is None else leader.end_offset_for_epoch(epoch)
    if epoch is not None and end is not None and (end.leader_epoch < epoch or end.end_offset < offset):
        return end
    leader_end = leader.log_end_offset
    return EpochEndOffset(UNKNOWN_EPOCH, leader_end) if leader_end < offset else None


def truncation_offset(log: UnifiedLog, diverging: EpochEndOffset) -> int:
    """Returns the offset up to which a copy has the same records as its leader."""
    own = None if diverging.leader_epoch == UNKNOWN_EPOCH else log.end_offset_for_epoch(diverging.leader_epoch)
    offset = min(log.log_end_offset, diverging.end_offset)
    return offset if own is None else min(offset, own.end_offset)


def _follow_offsets(log: UnifiedLog, data: FetchedData) -> None:
    log.watermarks.update_high_watermark(min(data.high_watermark, log.log_end_offset))
    if log.log_start_offset < data.log_start_offset <= log.high_watermark:
        log.maybe_increment_log_start_offset(
            data.log_start_offset, LogStartOffsetIncrementReason.LEADER_OFFSET_INCREMENTED
        )


def _load(records: FileRegion | bytes) -> bytes:
    if isinstance(records, bytes):
        return records
    return bytes(read_fully(records.fd, records.count, records.position))
