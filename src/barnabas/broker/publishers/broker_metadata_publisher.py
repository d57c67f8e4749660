"""Applies metadata changes to a broker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol

from barnabas.common.identifiers import Uuid
from barnabas.common.topic_partition import TopicPartition
from barnabas.log.unified_log import UnifiedLog
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.publisher import LoaderManifest, MetadataPublisher
from barnabas.metadata.topics_delta import TopicsDelta

logger = logging.getLogger(__name__)


class Logs(Protocol):
    """The part of the log manager that the publisher starts."""

    def startup(
        self,
        is_stray: Callable[[UnifiedLog], bool] | None = None,
        replica_for: Callable[[Uuid, int], TopicPartition | None] | None = None,
    ) -> None: ...


class Replicas(Protocol):
    """The part of the replica manager that applies metadata."""

    def startup(self) -> None: ...

    def apply_delta(self, delta: TopicsDelta, new_image: MetadataImage) -> None: ...

    def listen_to_late_leaders(self, listener: Callable[[TopicPartition, int], object]) -> None: ...


class CoordinatorHooks(Protocol):
    """A coordinator: the leader of a partition of ``topic`` owns the groups or transactions in it."""

    @property
    def topic(self) -> str:
        """The internal topic that stores its state."""
        ...

    def startup(self) -> None: ...

    def on_election(self, partition: int, leader_epoch: int) -> None:
        """Loads the partition: this broker has become its leader."""
        ...

    def on_resignation(self, partition: int, leader_epoch: int | None) -> None:
        """Unloads the partition: this broker is no longer its leader."""
        ...

    def on_partitions_deleted(self, partitions: Sequence[TopicPartition]) -> None:
        """Handles the deletion of partitions, of any topic."""
        ...

    def on_new_metadata_image(self, image: MetadataImage, delta: MetadataDelta) -> None: ...


Fault = Callable[[str, BaseException], object]
"""Called with a description and the exception when an update fails."""


class BrokerMetadataPublisher(MetadataPublisher):
    """Applies metadata to the logs and replicas of this broker.

    The order within one update matters. The cache is updated first, because the other parts read it. The replicas come
    before the coordinators, which read their logs. The first update starts the log manager, which needs to know the
    expected logs and their settings. That first image is complete: the loader publishes nothing before it has caught
    up with the high watermark, and ends the node if it cannot load a part. So a log without a replica in it is stray.

    If one part fails, the others are still updated: one stale part is better than a stale broker. A failure in the
    first update, however, stops the broker.
    """

    def __init__(
        self,
        broker_id: int,
        cache: MetadataCache,
        logs: Logs,
        replicas: Replicas,
        coordinators: Sequence[CoordinatorHooks] = (),
        *,
        on_fault: Fault,
        on_fatal_fault: Fault,
    ) -> None:
        self._broker_id = broker_id
        self._cache = cache
        self._logs = logs
        self._replicas = replicas
        self._coordinators = tuple(coordinators)
        self._on_fault = on_fault
        self._on_fatal_fault = on_fatal_fault
        self.first_publish_future: Future[None] = Future()
        """Done when the broker has applied the metadata that existed when it started."""
        replicas.listen_to_late_leaders(self._load_late)

    @property
    def name(self) -> str:
        return "BrokerMetadataPublisher"

    def on_metadata_update(self, delta: MetadataDelta, new_image: MetadataImage, manifest: LoaderManifest) -> None:  # noqa: ARG002
        is_first = not self.first_publish_future.done()
        self._cache.set_image(new_image)
        if is_first:
            logger.info("The first metadata have come, up to offset %d", new_image.offset)
            self._start_managers(new_image)
        topics = delta.topics
        if topics is not None:
            self._try("applying changes of topics", lambda: self._replicas.apply_delta(topics, new_image))
            deleted = deleted_partitions(topics)
            for coordinator in self._coordinators:
                self._try(
                    f"telling the coordinator of {coordinator.topic} who leads",
                    lambda coordinator=coordinator: self._update_coordinator(coordinator, topics),  # type: ignore[misc]
                )
                if deleted:
                    self._try(
                        f"telling the coordinator of {coordinator.topic} of deleted partitions",
                        lambda coordinator=coordinator: coordinator.on_partitions_deleted(deleted),  # type: ignore[misc]
                    )
        for coordinator in self._coordinators:
            self._try(
                f"giving the coordinator of {coordinator.topic} an image",
                lambda coordinator=coordinator: coordinator.on_new_metadata_image(new_image, delta),  # type: ignore[misc]
            )
        if is_first:
            self.first_publish_future.set_result(None)

    def _start_managers(self, image: MetadataImage) -> None:
        try:
            self._logs.startup(
                lambda log: is_stray(self._broker_id, image, log),
                lambda topic_id, number: replica_for(self._broker_id, image, topic_id, number),
            )
            self._replicas.startup()
            for coordinator in self._coordinators:
                coordinator.startup()
        except BaseException as error:
            self.first_publish_future.set_exception(error)
            self._on_fatal_fault("starting the managers of logs, replicas and groups", error)
            raise

    def _update_coordinator(self, coordinator: CoordinatorHooks, topics: TopicsDelta) -> None:
        name = coordinator.topic
        changes = topics.local_changes(self._broker_id)
        for partition in changes.deletes:
            if partition.topic == name:
                coordinator.on_resignation(partition.partition, None)
        for partition, info in changes.elected_leaders.items():
            if partition.topic == name:
                coordinator.on_election(partition.partition, info.partition.leader_epoch)
        for partition, info in changes.followers.items():
            if partition.topic == name:
                coordinator.on_resignation(partition.partition, info.partition.leader_epoch)

    def _load_late(self, partition: TopicPartition, leader_epoch: int) -> None:
        """Lets a coordinator load a partition again: its log could not be opened at the election."""
        for coordinator in self._coordinators:
            if coordinator.topic == partition.topic:
                self._try(
                    f"telling the coordinator of {coordinator.topic} who leads",
                    lambda coordinator=coordinator: coordinator.on_election(partition.partition, leader_epoch),  # type: ignore[misc]
                )

    def _try(self, what: str, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001 - reported, and the others go on
            self._on_fault(what, error)


def is_stray(broker_id: int, image: MetadataImage, log: UnifiedLog) -> bool:
    """Returns whether a log on disk belongs to no replica of this broker, because its topic was deleted meanwhile.

    The topic id decides, not the name, which another topic may have now. A log without an id was created right before
    a crash, and is empty.
    """
    if log.topic_id is None:
        logger.info("The log in %s has no topic id: it was made and never written to", log.directory)
        return True
    topic = image.topics.by_id.get(log.topic_id)
    if topic is None:
        logger.info("The log in %s is of a topic that does not exist any more", log.directory)
        return True
    partition = topic.partitions.get(log.topic_partition.partition)
    if partition is None or broker_id not in partition.replicas:
        logger.info("The log in %s is of a replica that is not on this broker any more", log.directory)
        return True
    return False


def replica_for(broker_id: int, image: MetadataImage, topic_id: Uuid, number: int) -> TopicPartition | None:
    """Returns the partition with this topic id and number if this broker has a replica of it, else None."""
    topic = image.topics.by_id.get(topic_id)
    partition = None if topic is None else topic.partitions.get(number)
    if topic is None or partition is None or broker_id not in partition.replicas:
        return None
    return TopicPartition(topic.name, number)


def deleted_partitions(topics: TopicsDelta) -> list[TopicPartition]:
    """Returns the partitions of the topics that a delta deletes."""
    by_id = topics.image.by_id
    return [
        TopicPartition(by_id[topic_id].name, number)
        for topic_id in topics.deleted_topic_ids
        for number in by_id[topic_id].partitions
    ]
