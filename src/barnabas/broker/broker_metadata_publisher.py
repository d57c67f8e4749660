"""What a broker does when the metadata change."""

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
    """The log manager, as far as it is started here."""

    def startup(
        self,
        is_stray: Callable[[UnifiedLog], bool] | None = None,
        replica_for: Callable[[Uuid, int], TopicPartition | None] | None = None,
    ) -> None: ...


class Replicas(Protocol):
    """The replica manager, as far as it hears of metadata."""

    def startup(self) -> None: ...

    def apply_delta(self, delta: TopicsDelta, new_image: MetadataImage) -> None: ...


class CoordinatorHooks(Protocol):
    """A coordinator: whoever leads a partition of ``topic`` is responsible for the groups or transactions in it."""

    @property
    def topic(self) -> str:
        """The internal topic that has its state."""
        ...

    def startup(self) -> None: ...

    def on_election(self, partition: int, leader_epoch: int) -> None:
        """This broker leads the partition now: load what is in it."""
        ...

    def on_resignation(self, partition: int, leader_epoch: int | None) -> None:
        """It does not any more: unload."""
        ...

    def on_partitions_deleted(self, partitions: Sequence[TopicPartition]) -> None:
        """These do not exist any more, whatever topic they were of."""
        ...

    def on_new_metadata_image(self, image: MetadataImage, delta: MetadataDelta) -> None: ...


Fault = Callable[[str, BaseException], object]
"""Told of something that went wrong."""


class BrokerMetadataPublisher(MetadataPublisher):
    """Turns metadata into logs and replicas on this broker.

    The order within one update matters. The cache first, so that everybody finds there what they are told of; the
    replicas before the coordinators, which read the logs of those replicas. The first update starts the log manager,
    which until then could not know which logs it should have, nor with which settings. That image is complete: the
    loader publishes nothing before it has caught up with the high watermark, and ends the node if it cannot load a
    part. So a log without a replica in it may be set aside as stray.

    A part that fails does not keep the others from hearing the news: a broker with one stale part is better than one
    that is stale as a whole. What fails at the start, however, is the end of the broker.
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
        """Done when the broker has caught up with what was there when it started."""

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

    def _try(self, what: str, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001 - reported, and the others go on
            self._on_fault(what, error)


def is_stray(broker_id: int, image: MetadataImage, log: UnifiedLog) -> bool:
    """Whether a log that was found on disk belongs to no replica of this broker: its topic was deleted meanwhile.

    The topic's id decides, not its name, which may have been given to another topic since. A log without an id was made
    right before a crash, and has nothing in it.
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
    """The partition with this topic id and number, if this broker has a replica of it."""
    topic = image.topics.by_id.get(topic_id)
    partition = None if topic is None else topic.partitions.get(number)
    if topic is None or partition is None or broker_id not in partition.replicas:
        return None
    return TopicPartition(topic.name, number)


def deleted_partitions(topics: TopicsDelta) -> list[TopicPartition]:
    """The partitions of the topics that a delta deletes."""
    by_id = topics.image.by_id
    return [
        TopicPartition(by_id[topic_id].name, number)
        for topic_id in topics.deleted_topic_ids
        for number in by_id[topic_id].partitions
    ]
