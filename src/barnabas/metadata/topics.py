"""The topics part of an image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from barnabas.common.identifiers import Uuid, uuid_to_string
from barnabas.metadata.partition_registration import PartitionRegistration
from barnabas.metadata.persistent_map import EMPTY_MAP, PersistentMap
from barnabas.protocol.internal.metadata import TopicRecord

if TYPE_CHECKING:
    from barnabas.metadata.writer import ImageWriter, ImageWriterOptions


class TopicImage:
    """A topic: its name, its ID, its partitions by number and in order. Immutable.

    ``derived`` holds data that readers have computed from this topic. It is discarded with the topic, and cannot be
    outdated as far as it depends on the topic alone. Two threads may compute the same data at once; one of them wins.
    """

    __slots__ = ("derived", "id", "name", "partitions")

    def __init__(self, name: str, topic_id: Uuid, partitions: Mapping[int, PartitionRegistration]) -> None:
        self.name = name
        self.id = topic_id
        self.partitions = partitions
        self.derived: dict[Any, Any] | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TopicImage):
            return NotImplemented
        return self is other or (
            self.id == other.id and self.name == other.name and self.partitions == other.partitions
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"TopicImage({self.name!r}, {uuid_to_string(self.id)}, {dict(self.partitions)!r})"

    def with_partitions(self, changed: Mapping[int, PartitionRegistration]) -> TopicImage:
        partitions = {**self.partitions, **changed}
        if len(partitions) > len(self.partitions):
            partitions = dict(sorted(partitions.items()))
        return TopicImage(self.name, self.id, partitions)

    def write(self, writer: ImageWriter, options: ImageWriterOptions) -> None:
        writer.write(TopicRecord(name=self.name, topic_id=self.id))
        version = options.metadata_version.partition_record_version
        for number, partition in self.partitions.items():
            writer.write(partition.to_record(self.id, number, options), version)


class TopicsImage:
    """All topics, by ID and by name.

    The metadata log uses IDs: a topic that is deleted and created again with its old name is another topic. Most
    clients use names.
    """

    __slots__ = ("_sorted_names", "by_id", "by_name")

    def __init__(
        self,
        by_id: PersistentMap[Uuid, TopicImage] = EMPTY_MAP,
        by_name: PersistentMap[str, TopicImage] = EMPTY_MAP,
        sorted_names: tuple[str, ...] | None = None,
    ) -> None:
        self.by_id = by_id
        self.by_name = by_name
        self._sorted_names = sorted_names

    def __bool__(self) -> bool:
        return bool(self.by_id)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TopicsImage):
            return NotImplemented
        return self is other or (self.by_id == other.by_id and self.by_name == other.by_name)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"TopicsImage({', '.join(repr(self.by_name[name]) for name in self.sorted_names)})"

    @property
    def sorted_names(self) -> tuple[str, ...]:
        """All names, sorted by the first caller. Successors share them while no topic is added or removed."""
        names = self._sorted_names
        if names is None:
            names = self._sorted_names = tuple(sorted(self.by_name))
        return names

    @property
    def known_sorted_names(self) -> tuple[str, ...] | None:
        """The sorted names, if they have been computed."""
        return self._sorted_names

    def topic(self, name: str) -> TopicImage | None:
        return self.by_name.get(name)

    def topic_by_id(self, topic_id: Uuid) -> TopicImage | None:
        return self.by_id.get(topic_id)

    def partition(self, topic_id: Uuid, number: int) -> PartitionRegistration | None:
        topic = self.by_id.get(topic_id)
        return None if topic is None else topic.partitions.get(number)

    def write(self, writer: ImageWriter, options: ImageWriterOptions) -> None:
        for name in self.sorted_names:
            self.by_name[name].write(writer, options)
