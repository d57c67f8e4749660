"""All groups of one partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from barnabas.common.errors import GroupIdNotFoundError
from barnabas.common.snapshot_registry import LATEST_EPOCH, SnapshotRegistry, TimelineHashMap, TimelineHashSet
from barnabas.coordinator.group.classic.classic_group import ClassicGroup
from barnabas.coordinator.group.consumer.consumer_group import ConsumerGroup
from barnabas.coordinator.group.group import Group
from barnabas.metadata.image import EMPTY_IMAGE, MetadataImage

AnyGroup = ClassicGroup | ConsumerGroup


class GroupStore:
    """The groups by ID, the consumer groups by topic, and the current metadata image."""

    def __init__(self, registry: SnapshotRegistry, now_ms: Callable[[], int]) -> None:
        self.registry = registry
        self.now_ms = now_ms
        self.image: MetadataImage = EMPTY_IMAGE
        self.groups: TimelineHashMap[str, AnyGroup] = TimelineHashMap(registry)
        self._by_topic: TimelineHashMap[str, TimelineHashSet[str]] = TimelineHashMap(registry)
        """The IDs of consumer groups that subscribe to a topic."""

    def group(self, group_id: str, epoch: int = LATEST_EPOCH) -> AnyGroup:
        """Returns the group; raises `GroupIdNotFoundError` if it does not exist."""
        group = self.groups.get(group_id, epoch)
        if group is None:
            raise GroupIdNotFoundError(f"Group {group_id} not found.")
        return group

    def classic_group(self, group_id: str, epoch: int = LATEST_EPOCH) -> ClassicGroup:
        group = self.group(group_id, epoch)
        if isinstance(group, ClassicGroup):
            return group
        raise GroupIdNotFoundError(f"Group {group_id} is not a classic group.")

    def consumer_group(self, group_id: str, epoch: int = LATEST_EPOCH) -> ConsumerGroup:
        group = self.group(group_id, epoch)
        if isinstance(group, ConsumerGroup):
            return group
        raise GroupIdNotFoundError(f"Group {group_id} is not a consumer group.")

    def get_or_create_classic_group(self, group_id: str) -> ClassicGroup:
        """Returns or creates a group; raises `GroupIdNotFoundError` if it has another type."""
        group = self.groups.get(group_id)
        if group is None:
            made = self.groups[group_id] = ClassicGroup(group_id, self.now_ms, current_state_timestamp_ms=self.now_ms())
            return made
        if isinstance(group, ClassicGroup):
            return group
        raise GroupIdNotFoundError(f"Group {group_id} is not a classic group.")

    def get_or_create_persisted_consumer_group(self, group_id: str) -> ConsumerGroup:
        """Returns the group of a record during replay. It replaces a classic group that only has offsets."""
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if group is None or group.is_simple_group:
            made = self.groups[group_id] = ConsumerGroup(self.registry, group_id)
            return made
        raise RuntimeError(f"there is a consumer group record of group {group_id}, which is not a consumer group")

    def remove(self, group_id: str) -> Group | None:
        return self.groups.pop(group_id)

    # -- by topic

    def groups_subscribed_to(self, topic: str) -> list[str]:
        found = self._by_topic.get(topic)
        return [] if found is None else list(found)

    def update_groups_by_topic(self, group_id: str, before: Iterable[str], after: Iterable[str]) -> None:
        old, new = set(before), set(after)
        for topic in old - new:
            groups = self._by_topic.get(topic)
            if groups is not None:
                groups.discard(group_id)
                if not len(groups):
                    self._by_topic.pop(topic)
        for topic in new - old:
            groups = self._by_topic.get(topic)
            if groups is None:
                groups = self._by_topic[topic] = TimelineHashSet(self.registry, nested=True)
            groups.add(group_id)
