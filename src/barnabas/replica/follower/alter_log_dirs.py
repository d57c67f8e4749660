"""Moving replicas from one log directory of this broker to another (KIP-113).

::

    /disk1/orders-3                          the current log, in use all the time
    /disk2/orders-3.8f...-future             the future log: a copy that catches up
    /disk2/orders-3                          the copy has caught up and replaces the original, which is deleted

The copy is fetched as by a follower, from the current log of this broker. It is flushed before it replaces the
original. During the last step producers wait while its last records are flushed and two directories are renamed.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterator, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING

from barnabas.common.clock import Clock
from barnabas.common.errors import BarnabasError
from barnabas.common.identifiers import ZERO_UUID
from barnabas.common.shutdownable_thread import ExitProcedure, exit_process
from barnabas.log.fetch_isolation import FetchIsolation
from barnabas.log.manager.log_manager import LogManager
from barnabas.log.unified_log import UnifiedLog
from barnabas.replica.config import ReplicaManagerConfig
from barnabas.replica.directory_event_handler import DirectoryEventHandler
from barnabas.replica.fetch.fetch_session import TopicIdPartition
from barnabas.replica.follower.fetcher import (
    AbstractFetcherManager,
    AbstractFetcherThread,
    FetchedData,
    FetchPosition,
    PartitionFetch,
    diverging_epoch,
)
from barnabas.replica.follower.replica_quota import UNBOUNDED_QUOTA, ReplicaQuota

if TYPE_CHECKING:
    from barnabas.replica.partition.partition import Partition

logger = logging.getLogger(__name__)


class LocalLeaderEndPoint:
    """Fetches from the current logs of this broker, one partition at a time."""

    def __init__(self, fetch_max_bytes: int) -> None:
        self._fetch_max_bytes = fetch_max_bytes

    def fetch(self, positions: Sequence[tuple[Partition, FetchPosition]]) -> Iterator[tuple[Partition, FetchedData]]:
        for partition, position in positions:
            try:
                yield partition, self._read(partition.local_log_or_raise(), position)
            except (BarnabasError, OSError) as error:
                yield partition, FetchedData(error=error)

    def _read(self, log: UnifiedLog, position: FetchPosition) -> FetchedData:
        diverging = diverging_epoch(log, position)
        if diverging is not None:
            return FetchedData(diverging_epoch=diverging)
        info = log.read(position.offset, self._fetch_max_bytes, FetchIsolation.LOG_END, min_one_message=True)
        return FetchedData(info.records, log.high_watermark, log.log_start_offset)

    def earliest_offset(self, partition: Partition) -> int:
        return partition.local_log_or_raise().log_start_offset


class _Assignment(Enum):
    """Whether the controller knows the new directory of the replica (KIP-858).

    It must know before the log moves: if the new disk failed right after, the controller would still have the replica
    on the old disk, and not elect another leader.
    """

    NONE = auto()
    REQUESTED = auto()
    EFFECTIVE = auto()


class _Move(PartitionFetch):
    """The move of one partition."""

    __slots__ = ("assignment",)

    def __init__(self, partition: Partition) -> None:
        super().__init__(partition)
        self.assignment = _Assignment.NONE


class ReplicaAlterLogDirsThread(AbstractFetcherThread[_Move]):
    """Copies partitions to their future logs, one fetch of each in turn."""

    is_future = True

    def __init__(
        self,
        name: str,
        leader: LocalLeaderEndPoint,
        quota: ReplicaQuota,
        *,
        backoff_ms: int,
        clock: Clock,
        exit_procedure: ExitProcedure = exit_process,
        log_manager: LogManager,
        directory_events: DirectoryEventHandler,
    ) -> None:
        super().__init__(name, leader, quota, backoff_ms=backoff_ms, clock=clock, exit_procedure=exit_procedure)
        self._log_manager = log_manager
        self._directory_events = directory_events

    def new_fetch(self, partition: Partition) -> _Move:
        return _Move(partition)

    def on_caught_up(self, fetch: _Move) -> bool:
        """Replaces the current log with the copy, once the controller knows the new directory."""
        partition = fetch.partition
        if fetch.assignment is _Assignment.NONE:
            self._request_assignment(fetch)
        if fetch.assignment is not _Assignment.EFFECTIVE:
            return False
        if not partition.maybe_replace_current_with_future_replica():
            return True  # records were appended meanwhile
        logger.info("%s has moved to %s", partition.topic_partition, partition.local_log_or_raise().parent_dir)
        self._forget(fetch)
        return True

    def _request_assignment(self, fetch: _Move) -> None:
        partition = fetch.partition
        future = partition.future_log
        directory_id = None if future is None else self._log_manager.log_dirs.directory_ids.get(future.parent_dir)
        if directory_id is None:
            # Directories have no ids if the cluster does not track them.
            fetch.assignment = _Assignment.EFFECTIVE
            return
        fetch.assignment = _Assignment.REQUESTED

        def accepted() -> None:
            fetch.assignment = _Assignment.EFFECTIVE
            self.wakeup()

        self._directory_events.handle_assignment(
            _topic_id_partition(partition), directory_id, "Migrating log directory", accepted
        )

    def on_removed(self, fetch: _Move) -> None:
        """Reports the current directory again, if the abandoned move was reported to the controller."""
        if fetch.assignment is _Assignment.NONE:
            return
        partition = fetch.partition
        log = partition.log
        directory_id = None if log is None else self._log_manager.log_dirs.directory_ids.get(log.parent_dir)
        if directory_id is not None:
            self._directory_events.handle_assignment(
                _topic_id_partition(partition), directory_id, "Reverting a move of the log that was given up", _nothing
            )


class ReplicaAlterLogDirsManager(AbstractFetcherManager):
    """The threads that move replicas, at most one for each log directory unless configured."""

    def __init__(
        self,
        config: ReplicaManagerConfig,
        log_manager: LogManager,
        directory_events: DirectoryEventHandler,
        clock: Clock,
        quota: ReplicaQuota = UNBOUNDED_QUOTA,
        exit_procedure: ExitProcedure = exit_process,
    ) -> None:
        super().__init__()
        self._config = config
        self._log_manager = log_manager
        self._directory_events = directory_events
        self._clock = clock
        self._quota = quota
        self._exit_procedure = exit_procedure

    def fetcher_id(self, partition: Partition) -> Hashable:
        threads = self._config.num_replica_alter_log_dirs_threads or len(self._log_manager.log_dirs.configured)
        return hash(partition.topic_partition) % max(threads, 1)

    def create_fetcher_thread(self, fetcher_id: Hashable) -> ReplicaAlterLogDirsThread:
        return ReplicaAlterLogDirsThread(
            f"ReplicaAlterLogDirsThread-{fetcher_id}",
            LocalLeaderEndPoint(self._config.replica_fetch_max_bytes),
            self._quota,
            backoff_ms=self._config.replica_fetch_backoff_ms,
            clock=self._clock,
            exit_procedure=self._exit_procedure,
            log_manager=self._log_manager,
            directory_events=self._directory_events,
        )


def _topic_id_partition(partition: Partition) -> TopicIdPartition:
    return TopicIdPartition(partition.topic_id or ZERO_UUID, *partition.topic_partition)


def _nothing() -> None: ...
