"""Applies the metadata log to the partitions on this broker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from barnabas.common.errors import BarnabasError, InconsistentTopicIdError, KafkaStorageError
from barnabas.common.identifiers import ZERO_UUID, Uuid, uuid_to_string
from barnabas.common.scheduler import Scheduler
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.storage_errors import is_descriptor_shortage
from barnabas.log.unified_log import UnifiedLog
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.partition_registration import NO_LEADER
from barnabas.metadata.topics_delta import TopicsDelta
from barnabas.replica.broker_topic_stats import BrokerTopicStats
from barnabas.replica.delayed_operations import DelayedOperations
from barnabas.replica.directory_event_handler import DirectoryEventHandler
from barnabas.replica.fetch.fetch_session import TopicIdPartition
from barnabas.replica.follower.alter_log_dirs import ReplicaAlterLogDirsManager
from barnabas.replica.follower.replica_fetchers import InitialFetchState, ReplicaFetchers
from barnabas.replica.partition.hosted_partitions import HostedPartitions
from barnabas.replica.partition.partition_context import PartitionContext

if TYPE_CHECKING:
    from barnabas.metadata.local_replica_changes import PartitionInfo
    from barnabas.replica.partition.partition import Partition

logger = logging.getLogger(__name__)

RETRY_MS: Final = 1000
"""The delay before opening a log is retried that failed for lack of file descriptors."""


LateLeaderListener = Callable[[TopicPartition, int], object]
"""Receives a partition that this broker leads, and the leader epoch, once its log could be opened."""


class ReplicaChanges:
    """Applies changes of topics to this broker: creates and deletes logs, and changes the roles of partitions.

    The order matters. Deletions come first, as a topic may be created again under its old name. A fetcher is stopped
    before the role of its partition changes, and started afterwards: it must not append to a log that this broker
    leads.

    A partition whose log cannot be opened, because its disk has failed, goes offline; other partitions are not
    affected. If no file descriptor is available to open the log, opening is retried until there is one; then
    `on_late_leader` is called, because the coordinators have tried to read the log in vain.
    """

    def __init__(
        self,
        partitions: HostedPartitions,
        context: PartitionContext,
        delayed: DelayedOperations,
        stats: BrokerTopicStats,
        fetchers: ReplicaFetchers,
        movers: ReplicaAlterLogDirsManager,
        directory_events: DirectoryEventHandler,
        scheduler: Scheduler,
    ) -> None:
        self._partitions = partitions
        self._context = context
        self._delayed = delayed
        self._stats = stats
        self._fetchers = fetchers
        self._movers = movers
        self._directory_events = directory_events
        self._scheduler = scheduler
        self._unopened: dict[TopicPartition, Callable[[], object]] = {}
        """Partitions whose logs could not be opened for lack of descriptors, with the change to retry. Guarded by the
        state change lock of `_partitions`, like `_is_retry_scheduled`."""
        self._is_retry_scheduled = False
        self.on_late_leader: LateLeaderListener = _ignore
        """Called with the state change lock held."""
        self.is_in_controlled_shutdown = False
        """Whether to stop fetching for replicas that are not in the ISR, or have no leader."""

    def apply_delta(self, delta: TopicsDelta, new_image: MetadataImage) -> None:
        changes = delta.local_changes(self._context.broker_id)
        if not changes:
            return
        with self._partitions.state_change_lock:
            for changed_partition in (*changes.deletes, *changes.leaders, *changes.followers):
                self._unopened.pop(changed_partition, None)
            if changes.deletes:
                logger.info("Deleting %d partitions", len(changes.deletes))
                self.stop_partitions(changes.deletes, delete_logs=True)
            changed: list[Partition] = []
            if changes.leaders:
                changed += self._apply_leaders(changes.leaders, delta)
            if changes.followers:
                changed += self._apply_followers(changes.followers, delta, new_image)
            if changed:
                led = sum(partition.is_leader for partition in changed)
                logger.info("Leads %d and follows in %d of the partitions that changed", led, len(changed) - led)
                self._resume_moves(changed)
                self._fetchers.shutdown_idle_fetcher_threads()
            version = new_image.features.metadata_version
            if version is not None and version.supports_directories:
                for topic_partition, info in changes.directory_ids.items():
                    self._maybe_correct_directory(topic_partition, info)

    # Leaders

    def _apply_leaders(self, leaders: Mapping[TopicPartition, PartitionInfo], delta: TopicsDelta) -> list[Partition]:
        self._fetchers.remove_fetcher_for_partitions(leaders)
        changed = []
        for topic_partition, info in leaders.items():
            found = self._get_or_create(topic_partition, delta, info.topic_id)
            if found is None:
                continue
            partition, is_new = found
            try:
                partition.make_leader(info.partition, is_new=is_new)
            except KafkaStorageError as error:
                if is_descriptor_shortage(error):
                    again = partial(self._apply_leaders, {topic_partition: info}, delta)
                    self._try_again(topic_partition, error, again)
                    continue
                logger.error("%s cannot be led: %s", topic_partition, error)
                self._partitions.mark_offline(topic_partition)
            except InconsistentTopicIdError as error:
                self._refuse(partition, error)
            else:
                changed.append(partition)
        return changed

    # Retries of logs that could not be opened

    def _try_again(
        self, topic_partition: TopicPartition, error: KafkaStorageError, change: Callable[[], object]
    ) -> None:
        if topic_partition not in self._unopened:
            logger.error("%s has no log yet, and is tried again every %d ms: %s", topic_partition, RETRY_MS, error)
        if not self._is_retry_scheduled:
            self._is_retry_scheduled = True
            self._scheduler.schedule("open-partitions", self._open_partitions, RETRY_MS)
        self._unopened[topic_partition] = change

    def _open_partitions(self) -> None:
        with self._partitions.state_change_lock:
            self._is_retry_scheduled = False
            for topic_partition, change in list(self._unopened.items()):
                change()
                if self._unopened[topic_partition] is change:
                    del self._unopened[topic_partition]
                    opened = self._partitions.online.get(topic_partition)
                    if opened is not None and opened.is_leader:
                        self.on_late_leader(topic_partition, opened.leader_epoch)

    # Followers

    def _apply_followers(
        self, followers: Mapping[TopicPartition, PartitionInfo], delta: TopicsDelta, image: MetadataImage
    ) -> list[Partition]:
        changed: list[Partition] = []
        to_fetch: list[Partition] = []
        to_stop: list[TopicPartition] = []
        for topic_partition, info in followers.items():
            found = self._get_or_create(topic_partition, delta, info.topic_id)
            if found is None:
                continue
            partition, is_new = found
            registration = info.partition
            try:
                # Also without a leader: this broker may have to step down as leader, and the log must exist.
                is_new_epoch = partition.make_follower(registration, is_new=is_new)
            except KafkaStorageError as error:
                if is_descriptor_shortage(error):
                    again = partial(self._apply_followers, {topic_partition: info}, delta, image)
                    self._try_again(topic_partition, error, again)
                    continue
                logger.error("%s cannot be followed: %s", topic_partition, error)
                self._fetchers.add_failed_partition(topic_partition)
                self._partitions.mark_offline(topic_partition)
                continue
            except InconsistentTopicIdError as error:
                self._fetchers.add_failed_partition(topic_partition)
                self._refuse(partition, error)
                continue
            changed.append(partition)
            if self.is_in_controlled_shutdown and (
                registration.leader == NO_LEADER or self._context.broker_id not in registration.isr
            ):
                to_stop.append(topic_partition)
            elif is_new_epoch:
                to_fetch.append(partition)
        if to_fetch:
            self._start_fetching(to_fetch, image)
        if to_stop:
            self.stop_partitions(to_stop, delete_logs=False)
        return changed

    def _start_fetching(self, partitions: list[Partition], image: MetadataImage) -> None:
        # All fetchers stop before one starts: the initial fetch offset depends on the log end offset.
        self._fetchers.remove_fetcher_for_partitions([partition.topic_partition for partition in partitions])
        states = {}
        for partition in partitions:
            log = partition.local_log_or_raise()
            if image.cluster.broker(partition.leader_id) is not None:
                states[partition.topic_partition] = InitialFetchState(
                    partition.topic_id, partition.leader_id, partition.leader_epoch, initial_fetch_offset(log)
                )
        if states:
            self._fetchers.add_fetcher_for_partitions(states)
        for partition in partitions:
            self._complete_when_not_leader(partition.topic_partition)

    # Creating and stopping partitions

    def _get_or_create(
        self, topic_partition: TopicPartition, delta: TopicsDelta, topic_id: Uuid
    ) -> tuple[Partition, bool] | None:
        """Returns the partition, and whether it is new; None if it is offline."""
        from barnabas.replica.partition.partition import Partition

        found = self._partitions.online.get(topic_partition)
        if found is not None:
            if found.topic_id != topic_id:
                raise BarnabasError(
                    f"{topic_partition} has the topic id {uuid_to_string(found.topic_id or ZERO_UUID)} here, and "
                    f"{uuid_to_string(topic_id)} in the metadata"
                )
            return found, False
        offline = self._partitions.offline(topic_partition)
        if offline is not None and offline.topic_id == topic_id:
            logger.warning("%s stays offline with its log directory", topic_partition)
            return None
        if offline is None and topic_id in delta.image.by_id:
            logger.info("%s is new on this broker", topic_partition)
        partition = Partition(topic_partition, topic_id, self._context)
        self._partitions.add(partition)
        return partition, True

    def _refuse(self, partition: Partition, error: InconsistentTopicIdError) -> None:
        """Takes a partition offline: its log is of an earlier topic of that name, and could not be deleted."""
        logger.error("%s cannot be used: %s", partition.topic_partition, error)
        self._partitions.mark_offline(partition.topic_partition)

    def stop_partitions(self, partitions: Iterable[TopicPartition], *, delete_logs: bool) -> None:
        """Stops fetching and moving these partitions; with `delete_logs`, also removes them from this broker."""
        topic_partitions = list(partitions)
        self._fetchers.remove_fetcher_for_partitions(topic_partitions)
        self._movers.remove_partitions(topic_partitions)
        if delete_logs:
            for topic_partition in topic_partitions:
                removed = self._partitions.remove(topic_partition)
                if removed is not None:
                    removed.delete()
            for topic in {topic_partition.topic for topic_partition in topic_partitions}:
                if not self._partitions.has_topic(topic):
                    self._stats.remove_metrics(topic)
        for topic_partition in topic_partitions:
            self._complete_when_not_leader(topic_partition)
        if delete_logs:
            self._context.log_manager.async_delete_all(
                topic_partitions,
                on_error=lambda partition, error: logger.error("%s cannot be deleted: %s", partition, error),
            )

    def _complete_when_not_leader(self, topic_partition: TopicPartition) -> None:
        """Completes requests that wait for a partition whose leader is no longer this broker."""
        self._delayed.check_and_complete_all(topic_partition)

    # Log directories

    def _resume_moves(self, partitions: Iterable[Partition]) -> None:
        """Resumes moves between log directories that a restart has interrupted."""
        for partition in partitions:
            future = self._context.log_manager.get_log(partition.topic_partition, is_future=True)
            if future is not None and partition.log is not None:
                partition.maybe_create_future_replica(future.parent_dir)
                self._movers.add_partition(partition)

    def _maybe_correct_directory(self, topic_partition: TopicPartition, info: PartitionInfo) -> None:
        """Reports the directory of a replica's log to the controller, if the metadata has another one or none."""
        log = self._context.log_manager.get_log(topic_partition)
        if log is None:
            return
        actual = self._context.log_manager.log_dirs.directory_ids.get(log.parent_dir)
        if actual is not None and actual != info.partition.directory(self._context.broker_id):
            self._directory_events.handle_assignment(
                TopicIdPartition(info.topic_id, *topic_partition), actual, "Applying metadata delta", _nothing
            )


def _nothing() -> None: ...


def _ignore(_partition: TopicPartition, _leader_epoch: int) -> None: ...


def initial_fetch_offset(log: UnifiedLog) -> int:
    """Returns where a follower starts to fetch: at its log end offset; the leader's response tells where to truncate.

    Without leader epochs divergence cannot be detected, and only records before the high watermark are certain.
    """
    return log.high_watermark if log.leader_epochs.latest_epoch is None else log.log_end_offset
