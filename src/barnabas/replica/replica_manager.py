"""The replicas of a broker."""

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
from barnabas.log.file_handle import Buffer
from barnabas.log.log_append_info import LogAppendInfo
from barnabas.log.log_dir_pace import Lane
from barnabas.log.log_manager import LogManager
from barnabas.log.producer_append_info import TRANSACTION_VERSION_UNKNOWN
from barnabas.log.verification_state import SENTINEL, VerificationGuard
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.topics_delta import TopicsDelta
from barnabas.metrics.yammer.registry import KafkaMetricsGroup, MetricsRegistry
from barnabas.replica.alter_log_dirs import ReplicaAlterLogDirsManager
from barnabas.replica.alter_partition import AlterPartitionManager
from barnabas.replica.broker_topic_stats import BrokerTopicStats
from barnabas.replica.config import ReplicaManagerConfig
from barnabas.replica.delayed_operations import DelayedOperations, TimerFactory
from barnabas.replica.directory_event_handler import DirectoryEventHandler, NoDirectoryEvents
from barnabas.replica.fetch_session import TopicIdPartition
from barnabas.replica.hosted_partitions import HostedPartitions
from barnabas.replica.log_reads import LogReads
from barnabas.replica.partition_context import IsrMeters, PartitionContext, PartitionListener
from barnabas.replica.record_appends import RecordAppends
from barnabas.replica.record_deletions import RecordDeletions
from barnabas.replica.record_fetches import RecordFetches
from barnabas.replica.replica_changes import ReplicaChanges
from barnabas.replica.replica_fetchers import NoReplicaFetchers, ReplicaFetchers
from barnabas.replica.replica_log_dirs import LogDirFailureHandler, ReplicaLogDirs
from barnabas.replica.replica_quota import UNBOUNDED_QUOTA, ReplicaQuota
from barnabas.replica.replica_selector import make_replica_selector
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
    from barnabas.replica.partition import Partition

logger = logging.getLogger(__name__)

_IDLE_THREADS_CHECK_MS: Final = 10_000
_ISR_METERS: Final = ("IsrExpandsPerSec", "IsrShrinksPerSec", "FailedIsrUpdatesPerSec")


def no_broker_epoch() -> int:
    """The controller has not given one."""
    return -1


@dataclass(frozen=True, slots=True)
class ReplicaPlugins:
    """What the replica manager asks others."""

    directory_events: DirectoryEventHandler = field(default_factory=NoDirectoryEvents)
    fetchers: ReplicaFetchers = field(default_factory=NoReplicaFetchers)
    """The follower's side of replication."""
    broker_epoch: Callable[[], int] = no_broker_epoch
    alter_log_dirs_quota: ReplicaQuota = UNBOUNDED_QUOTA
    make_timer: TimerFactory | None = None
    """For tests: see `DelayedOperations`."""


class ReplicaManager:
    """What a broker does with records: appends them, reads them, replicates them.

    It is the entrance; the work is done by its parts, each of which knows one thing::

        requests                                          news
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

    Requests that cannot be answered at once wait in `DelayedOperations`, keyed by partition. What an append makes
    possible for them goes to the `action_queue`, which the dispatcher empties at the end of each request.
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
        """See there: every produce request comes this way, and a method in between would do nothing for it."""
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
        """Begins to look after ISRs and log directories."""
        schedule = self._scheduler.schedule
        # So a follower can lag one and a half times as long as it should before it is noticed.
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
        """Ends all threads, and writes the high watermarks down. The logs stay open: they are the log manager's."""
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
        """Leaders are going to move away; replicas that are not in sync are not worth keeping up."""
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
        """Appends a batch and waits for nobody: for coordinators, which follow the high watermark themselves.

        Raises what went wrong. The caller empties the `action_queue` afterwards, when it holds no locks.
        """
        return self._appends.append_records_to_leader(
            partition, records, required_acks, origin, verification_guard, transaction_version
        )

    def append_lane(self, partitions: Iterable[TopicIdPartition]) -> Lane | None:
        """Where to do what takes the locks of the logs of these partitions, if a log directory of theirs is slow."""
        paces, online = self.log_manager.paces, self.partitions.online
        if paces.attentive and not paces.on_lane:
            for _, topic, number in partitions:
                found = online.get((topic or "", number))
                log = None if found is None else found.role.log
                if log is not None and (log.pace.is_aside() or log.pace.expects_sync(log.topic_partition)):
                    return log.pace.appends
        return None

    def coordinator_lane(self, partition: TopicPartition) -> Lane | None:
        """Where a coordinator has to run its events, if they may have to wait for the disk of its partition."""
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
        """Deletes the records before an offset, -1 for all that are committed.

        `callback` gets the low watermark of each partition: when all live replicas have deleted them, or after
        `timeout_ms` with REQUEST_TIMED_OUT.
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
        """See `Partition.fetch_offset_for_timestamp`; all -1 if there is no such offset. Raises Kafka's errors."""
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
        """The producers that the log of a partition remembers, as DescribeProducers tells them."""
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
        """The partition if it is online here, or why it is not: see `HostedPartitions`."""
        return self.partitions.get_partition_or_error(partition)

    def get_partition_or_exception(self, partition: tuple[str, int]) -> Partition:
        return self.partitions.get_partition_or_exception(partition)

    def online_partition(self, partition: tuple[str, int]) -> Partition | None:
        return self.partitions.online.get(partition)

    def maybe_add_listener(self, partition: TopicPartition, listener: PartitionListener) -> bool:
        """Adds somebody who wants to know what becomes of a partition; False if it is not online."""
        found = self.partitions.online.get(partition)
        return found is not None and found.maybe_add_listener(listener)

    def remove_listener(self, partition: TopicPartition, listener: PartitionListener) -> None:
        found = self.partitions.online.get(partition)
        if found is not None:
            found.remove_listener(listener)

    def apply_delta(self, delta: TopicsDelta, new_image: MetadataImage) -> None:
        """Topics have changed: see `ReplicaChanges`."""
        self._changes.apply_delta(delta, new_image)

    def maybe_shrink_isrs(self) -> None:
        """Has followers that lag taken out of their ISRs."""
        for partition in self.partitions.online_partitions():
            partition.maybe_shrink_isr()

    # Log directories

    def describe_log_dirs(self, partitions: Collection[TopicPartition] | None) -> list[DescribeLogDirsResult]:
        """All log directories, with those of the logs in them that are asked for, or all."""
        return self._log_dirs.describe_log_dirs(partitions)

    def alter_replica_log_dirs(self, dirs: Mapping[TopicPartition, str]) -> dict[TopicPartition, Errors]:
        """Begins to move logs to other directories; the answer says whether it has begun.

        LOG_DIR_NOT_FOUND for a directory that this broker has not, KAFKA_STORAGE_ERROR for one that is offline,
        REPLICA_NOT_AVAILABLE if there is no such replica: then the directory is noted for when there is one.
        """
        return self._log_dirs.alter_replica_log_dirs(dirs)

    def handle_log_dir_failure(self, path: Path, notify_controller: bool = True) -> None:
        """Takes a log directory out of service with all partitions in it, and tells the controller.

        `FatalExitError` if it was the last one, or the one of the metadata log.
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
