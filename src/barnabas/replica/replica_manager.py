"""The replica manager: appends, reads and replicates the partitions of a broker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.common.clock import Clock
from barnabas.common.dataclass import dataclass, field
from barnabas.common.errors import Errors
from barnabas.common.identifiers import ZERO_UUID
from barnabas.common.scheduler import ScheduledTask, Scheduler
from barnabas.common.shutdownable_thread import ExitProcedure, exit_process
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.append_origin import AppendOrigin
from barnabas.log.dirs.log_dir_pace import Lane
from barnabas.log.log_append_info import LogAppendInfo
from barnabas.log.manager.log_manager import LogManager
from barnabas.log.producers.producer_append_info import TRANSACTION_VERSION_UNKNOWN
from barnabas.log.producers.verification_state import SENTINEL, VerificationGuard
from barnabas.log.segment.file_handle import Buffer
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.topics_delta import TopicsDelta
from barnabas.metrics.yammer.registry import KafkaMetricsGroup, MetricsRegistry
from barnabas.replica.append.record_appends import RecordAppends
from barnabas.replica.append.record_deletions import RecordDeletions
from barnabas.replica.broker_topic_stats import BrokerTopicStats
from barnabas.replica.config import ReplicaManagerConfig
from barnabas.replica.delayed_operations import DelayedOperations, TimerFactory
from barnabas.replica.directory_event_handler import DirectoryEventHandler, NoDirectoryEvents
from barnabas.replica.fetch.fetch_session import TopicIdPartition
from barnabas.replica.fetch.record_fetches import LogReads, RecordFetches
from barnabas.replica.fetch.replica_selector import make_replica_selector
from barnabas.replica.follower.alter_log_dirs import ReplicaAlterLogDirsManager
from barnabas.replica.follower.replica_fetchers import NoReplicaFetchers, ReplicaFetchers
from barnabas.replica.follower.replica_quota import UNBOUNDED_QUOTA, ReplicaQuota
from barnabas.replica.partition.alter_partition import AlterPartitionManager
from barnabas.replica.partition.hosted_partitions import HostedPartitions
from barnabas.replica.partition.partition_context import IsrMeters, PartitionContext, PartitionListener
from barnabas.replica.replica_changes import LateLeaderListener, ReplicaChanges
from barnabas.replica.replica_log_dirs import LogDirFailureHandler, ReplicaLogDirs
from barnabas.replica.results import (
    DeleteRecordsCallback,
    EpochEndOffsetResult,
    IsolationLevel,
    OffsetResult,
)
from barnabas.server.action_queue import ActionQueue, DelayedActionQueue

if TYPE_CHECKING:
    from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsResult
    from barnabas.protocol.messages.describe_producers import PartitionResponse
    from barnabas.replica.partition.partition import Partition

logger = logging.getLogger(__name__)

_IDLE_THREADS_CHECK_MS: Final = 10_000
_ISR_METERS: Final = ("IsrExpandsPerSec", "IsrShrinksPerSec", "FailedIsrUpdatesPerSec")


def no_broker_epoch() -> int:
    """Stands in for a broker epoch: the controller has not assigned one."""
    return -1


@dataclass(frozen=True, slots=True)
class ReplicaPlugins:
    """The collaborators that the replica manager calls."""

    directory_events: DirectoryEventHandler = field(default_factory=NoDirectoryEvents)
    fetchers: ReplicaFetchers = field(default_factory=NoReplicaFetchers)
    """The follower's side of replication."""
    broker_epoch: Callable[[], int] = no_broker_epoch
    alter_log_dirs_quota: ReplicaQuota = UNBOUNDED_QUOTA
    make_timer: TimerFactory | None = None
    """For tests: see `DelayedOperations`."""


class ReplicaManager:
    """Appends, reads and replicates the records of a broker.

    This class is the entry point. Its collaborators do the work, each of them one task::

        requests                                          events
           |                                                |
        append_records --> RecordAppends   --+      apply_delta --> ReplicaChanges --+
        fetch_messages --> RecordFetches   --+      a disk fails --> ReplicaLogDirs --+
        delete_records --> RecordDeletions --+                                       |
                                             v                                       v
                                      HostedPartitions  <----------------------------+
                                             |
                                         Partition  (leader or follower, ISR, high watermark)
                                             |
                                         UnifiedLog

    Requests that cannot complete at once wait in `DelayedOperations`, keyed by partition. An append queues checks of
    the waiting requests in the `action_queue`, which the dispatcher empties at the end of each request.
    """

    def __init__(
        self,
        config: ReplicaManagerConfig,
        log_manager: LogManager,
        metadata_cache: MetadataCache,
        alter_partition_manager: AlterPartitionManager,
        clock: Clock,
        scheduler: Scheduler,
        registry: MetricsRegistry,
        plugins: ReplicaPlugins,
        *,
        exit_procedure: ExitProcedure = exit_process,
    ) -> None:
        self.config = config
        self.log_manager = log_manager
        self.action_queue: ActionQueue = DelayedActionQueue()
        self.stats = BrokerTopicStats(registry)
        self.partitions = HostedPartitions(metadata_cache)
        self.delayed = DelayedOperations(config, clock, registry, make_timer=plugins.make_timer)
        self.fetchers = plugins.fetchers
        self._clock = clock
        self._scheduler = scheduler
        self._exit_procedure = exit_procedure
        events = plugins.directory_events
        context = PartitionContext(
            config.broker_id,
            config.replica_lag_time_max_ms,
            clock,
            metadata_cache,
            log_manager,
            alter_partition_manager,
            self.delayed,
            IsrMeters(registry),
            plugins.broker_epoch,
        )
        self._appends = RecordAppends(
            self.partitions, self.delayed, self.stats, self.action_queue, clock, registry, log_manager.paces
        )
        self.append_records = self._appends.append_records
        """`RecordAppends.append_records`, bound directly: it saves every produce request a forwarding call."""
        selector = make_replica_selector(config.replica_selector_class)
        reads = LogReads(self.partitions, metadata_cache, self.stats, clock, selector)
        fetches = RecordFetches(self.partitions, reads, self.delayed, registry)
        self.fetch_messages = fetches.fetch_messages
        self._deletions = RecordDeletions(self.partitions, self.delayed, registry)
        self.movers = ReplicaAlterLogDirsManager(
            config, log_manager, events, clock, plugins.alter_log_dirs_quota, exit_procedure
        )
        self._changes = ReplicaChanges(
            self.partitions, context, self.delayed, self.stats, self.fetchers, self.movers, events, scheduler
        )
        self._log_dirs = ReplicaLogDirs(
            self.partitions,
            log_manager,
            self.movers,
            self.fetchers,
            self.delayed,
            self.stats,
            events,
            config.metadata_log_dir,
        )
        self._tasks: list[ScheduledTask] = []
        self._failure_handler: LogDirFailureHandler | None = None
        self._group = KafkaMetricsGroup(registry, "kafka.server", "ReplicaManager")
        self._gauges = self._add_gauges()

    # Start and stop

    def startup(self) -> None:
        """Starts the ISR check and the handling of log directory failures."""
        schedule = self._scheduler.schedule
        # With this interval a follower can lag for up to 1.5 times replica.lag.time.max.ms before it is noticed.
        isr_check_ms = max(self.config.replica_lag_time_max_ms // 2, 1)
        self._tasks = [
            schedule("isr-expiration", self.maybe_shrink_isrs, 0, isr_check_ms),
            schedule(
                "shutdown-idle-replica-alter-log-dirs-thread",
                self.movers.shutdown_idle_threads,
                0,
                _IDLE_THREADS_CHECK_MS,
            ),
        ]
        self._failure_handler = LogDirFailureHandler(
            self.log_manager.failure_channel, self.handle_log_dir_failure, self._exit_procedure
        )
        self._failure_handler.start()

    def shutdown(self, checkpoint_hw: bool = True) -> None:
        """Stops all threads and checkpoints the high watermarks. The log manager closes the logs, not this method."""
        logger.info("The replica manager is shutting down")
        for task in self._tasks:
            task.cancel()
        if self._failure_handler is not None:
            self._failure_handler.shutdown()
        self.log_manager.paces.close()
        self.fetchers.shutdown()
        self.movers.shutdown()
        self.delayed.shutdown()
        if checkpoint_hw:
            self.log_manager.chores.checkpoint_high_watermarks()
        for name in self._gauges:
            self._group.registry.remove(self._group.metric_name(name))
        self.stats.close()
        logger.info("The replica manager is shut down")

    def begin_controlled_shutdown(self) -> None:
        """Prepares for leaders to move away: replicas that are not in sync stop fetching."""
        self._changes.is_in_controlled_shutdown = True

    # Records

    def append_records_to_leader(
        self,
        partition: TopicPartition,
        records: Buffer,
        *,
        required_acks: int,
        origin: AppendOrigin,
        verification_guard: VerificationGuard = SENTINEL,
        transaction_version: int = TRANSACTION_VERSION_UNKNOWN,
    ) -> LogAppendInfo:
        """Appends a batch without waiting for followers: for coordinators, which track the high watermark themselves.

        Raises the error of a failed append. The caller empties the `action_queue` afterwards, when it holds no locks.
        """
        return self._appends.append_records_to_leader(
            partition, records, required_acks, origin, verification_guard, transaction_version
        )

    def append_lane(self, partitions: Iterable[TopicIdPartition]) -> Lane | None:
        """Returns the lane for work that takes the log locks of these partitions, if one of their disks is slow."""
        paces, online = self.log_manager.paces, self.partitions.online
        if paces.attentive and not paces.on_lane:
            for _, topic, number in partitions:
                found = online.get((topic or "", number))
                log = None if found is None else found.role.log
                if log is not None and (log.pace.is_aside() or log.pace.expects_sync(log.topic_partition)):
                    return log.pace.appends
        return None

    def coordinator_lane(self, partition: TopicPartition) -> Lane | None:
        """Returns the lane for a coordinator's events, if they may have to wait for the disk of its partition."""
        if self.log_manager.paces.on_lane:
            return None
        found = self.partitions.online.get(partition)
        log = None if found is None else found.role.log
        if log is None or not (log.syncs_by_count or log.pace.is_aside()):
            return None
        return log.pace.coordination

    def delete_records(
        self,
        timeout_ms: int,
        offsets: Mapping[TopicPartition, int],
        callback: DeleteRecordsCallback,
        *,
        internal_topics_allowed: bool = False,
    ) -> None:
        """Deletes the records before an offset; -1 deletes all committed records.

        `callback` receives the low watermark of each partition when all live replicas have deleted the records, or
        REQUEST_TIMED_OUT after `timeout_ms`.
        """
        delete = partial(
            self._deletions.delete_records,
            timeout_ms,
            offsets,
            callback,
            internal_topics_allowed=internal_topics_allowed,
        )
        lane = self.append_lane(TopicIdPartition(ZERO_UUID, *partition) for partition in offsets)
        if lane is None:
            delete()
            return

        def delete_aside() -> None:
            try:
                delete()
            finally:
                self.action_queue.try_complete_actions()

        lane.submit(delete_aside)

    # Offsets

    def fetch_offset(
        self,
        partition: TopicPartition,
        timestamp: int,
        isolation: IsolationLevel | None,
        current_leader_epoch: int | None,
        fetch_only_from_leader: bool,
    ) -> OffsetResult:
        """See `Partition.fetch_offset_for_timestamp`. All fields are -1 if there is no such offset."""
        return self.partitions.get_partition_or_exception(partition).fetch_offset_for_timestamp(
            timestamp, isolation, current_leader_epoch, fetch_only_from_leader
        )

    def last_offset_for_leader_epoch(
        self, partition: TopicPartition, current_leader_epoch: int | None, leader_epoch: int
    ) -> EpochEndOffsetResult:
        """See `Partition.last_offset_for_leader_epoch`."""
        found = self.partitions.get_partition_or_error(partition)
        if isinstance(found, Errors):
            return EpochEndOffsetResult(found)
        return found.last_offset_for_leader_epoch(current_leader_epoch, leader_epoch, fetch_only_from_leader=True)

    def active_producer_state(self, partition: TopicPartition) -> PartitionResponse:
        """Returns the producer state of a partition's log, in the form of a DescribeProducers response."""
        from barnabas.protocol.messages.describe_producers import PartitionResponse, ProducerState

        found = self.partitions.get_partition_or_error(partition)
        if isinstance(found, Errors):
            return PartitionResponse(partition_index=partition.partition, error_code=found)
        if found.log is None:
            return PartitionResponse(partition_index=partition.partition, error_code=Errors.NOT_LEADER_OR_FOLLOWER)
        return PartitionResponse(
            partition_index=partition.partition,
            active_producers=[
                ProducerState(
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    last_sequence=producer.last_sequence,
                    last_timestamp=producer.last_timestamp,
                    coordinator_epoch=producer.coordinator_epoch,
                    current_txn_start_offset=producer.current_txn_start_offset,
                )
                for producer in found.active_producers()
            ],
        )

    # Partitions

    def get_partition_or_error(self, partition: tuple[str, int]) -> Partition | Errors:
        """Returns the partition if it is online here, otherwise the error: see `HostedPartitions`."""
        return self.partitions.get_partition_or_error(partition)

    def get_partition_or_exception(self, partition: tuple[str, int]) -> Partition:
        return self.partitions.get_partition_or_exception(partition)

    def online_partition(self, partition: tuple[str, int]) -> Partition | None:
        return self.partitions.online.get(partition)

    def maybe_add_listener(self, partition: TopicPartition, listener: PartitionListener) -> bool:
        """Adds a listener to a partition; False if the partition is not online."""
        found = self.partitions.online.get(partition)
        return found is not None and found.maybe_add_listener(listener)

    def remove_listener(self, partition: TopicPartition, listener: PartitionListener) -> None:
        found = self.partitions.online.get(partition)
        if found is not None:
            found.remove_listener(listener)

    def apply_delta(self, delta: TopicsDelta, new_image: MetadataImage) -> None:
        """Applies changes of topics: see `ReplicaChanges`."""
        self._changes.apply_delta(delta, new_image)

    def listen_to_late_leaders(self, listener: LateLeaderListener) -> None:
        """Sets the listener for partitions whose log can be opened only some time after `apply_delta`."""
        self._changes.on_late_leader = listener

    def maybe_shrink_isrs(self) -> None:
        """Proposes to remove lagging followers from their ISRs."""
        for partition in self.partitions.online_partitions():
            partition.maybe_shrink_isr()

    # Log directories

    def describe_log_dirs(self, partitions: Collection[TopicPartition] | None) -> list[DescribeLogDirsResult]:
        """Describes all log directories, with the requested logs in them, or all logs."""
        return self._log_dirs.describe_log_dirs(partitions)

    def alter_replica_log_dirs(self, dirs: Mapping[TopicPartition, str]) -> dict[TopicPartition, Errors]:
        """Starts to move logs to other directories; the result says whether each move has started.

        LOG_DIR_NOT_FOUND if this broker does not have the directory, KAFKA_STORAGE_ERROR if the directory is offline,
        REPLICA_NOT_AVAILABLE if there is no such replica: then a replica created later goes to that directory.
        """
        return self._log_dirs.alter_replica_log_dirs(dirs)

    def handle_log_dir_failure(self, path: Path, notify_controller: bool = True) -> None:
        """Takes a log directory and all its partitions offline, and notifies the controller.

        Raises `FatalExitError` if it was the last log directory, or the one of the metadata log.
        """
        self._log_dirs.handle_log_dir_failure(path, notify_controller)

    # Metrics

    def _add_gauges(self) -> tuple[str, ...]:
        partitions = self.partitions

        def count(condition: Callable[[Partition], bool]) -> Callable[[], int]:
            return lambda: sum(map(condition, partitions.leader_partitions()))

        gauges: dict[str, Callable[[], int]] = {
            "LeaderCount": lambda: sum(1 for _ in partitions.leader_partitions()),
            "PartitionCount": lambda: len(partitions),
            "OfflineReplicaCount": lambda: partitions.offline_count,
            "UnderReplicatedPartitions": count(lambda partition: partition.is_under_replicated),
            "UnderMinIsrPartitionCount": count(lambda partition: partition.is_under_min_isr),
            "AtMinIsrPartitionCount": count(lambda partition: partition.is_at_min_isr),
            "ReassigningPartitions": count(lambda partition: partition.is_reassigning),
            "PartitionsWithLateTransactionsCount": count(
                lambda partition: partition.has_late_transaction(self._clock.milliseconds())
            ),
            "ProducerIdCount": lambda: sum(one.producer_id_count for one in partitions.online_partitions()),
        }
        for name, value in gauges.items():
            self._group.new_gauge(name, value)
        return (*gauges, *_ISR_METERS)
