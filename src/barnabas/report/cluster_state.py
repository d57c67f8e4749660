"""Topics and groups of a cluster, as they are while the report is made: how much they hold, who lags.

No table has this: what a topic holds and how far a group is behind are states, and the brokers know them at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.clients.admin import GroupListing, KafkaAdminClient, PartitionLag, TopicDescription
    from barnabas.common.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class TopicState:
    """What a topic holds."""

    name: str
    partitions: int
    records: int
    """Offsets between the beginning and the end. Records that compaction has removed are among them."""
    bytes: int
    """The size of the logs of all replicas."""


@dataclass(frozen=True, slots=True)
class GroupLag:
    """How far a group is behind in a topic."""

    group: str
    topic: str
    state: str
    members: int
    """The members that read the topic."""
    partitions: int
    lag: int
    """Records after the committed offsets. Partitions without a committed offset, or without a leader, are left out."""
    largest: int
    """The lag of the partition with the largest one."""
    is_abandoned: bool
    """Whether members have read it and none is left. A group that only has offsets, such as Spark's, has none ever."""


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Topics by size, and groups by lag, the largest first."""

    topics: Sequence[TopicState]
    groups: Sequence[GroupLag]


def read_cluster(admin: KafkaAdminClient) -> ClusterState:
    """Asks the brokers. Topics and groups that are deleted meanwhile are left out."""
    from barnabas.clients.admin import OffsetSpec
    from barnabas.common.topic_partition import TopicPartition

    topics = admin.describe_topics(admin.list_topics(list_internal=True), partial=True)
    partitions = [TopicPartition(topic.name, one.partition) for topic in topics.values() for one in topic.partitions]
    first, end = (
        admin.list_offsets(dict.fromkeys(partitions, spec), patient=False, partial=True)
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
    )
    records = {one: end[one].offset - first[one].offset for one in partitions if one in first and one in end}
    nodes = [node.id for node in admin.describe_cluster().nodes]
    sizes: dict[str, int] = {}
    for directories in admin.describe_log_dirs(nodes, partial=True).values():
        for directory in directories.values():
            for partition, replica in directory.replicas.items():
                sizes[partition.topic] = sizes.get(partition.topic, 0) + replica.size
    readers = [group for group in admin.list_groups() if group.protocol_type in {"consumer", ""}]
    groups = [lag for group in readers for lag in _lags(admin, group)]
    return ClusterState(
        sorted(_topic_states(topics.values(), records, sizes), key=lambda one: (-one.bytes, one.name)),
        sorted(groups, key=lambda one: (-one.lag, one.group, one.topic)),
    )


def _topic_states(
    topics: Iterable[TopicDescription], records: Mapping[TopicPartition, int], sizes: Mapping[str, int]
) -> list[TopicState]:
    held: dict[str, int] = {}
    for partition, count in records.items():
        held[partition.topic] = held.get(partition.topic, 0) + count
    return [
        TopicState(topic.name, len(topic.partitions), held.get(topic.name, 0), sizes.get(topic.name, 0))
        for topic in topics
    ]


def _lags(admin: KafkaAdminClient, group: GroupListing) -> list[GroupLag]:
    from barnabas.clients.admin import GroupState
    from barnabas.common.errors import GroupIdNotFoundError

    try:
        found = admin.describe_group_lag(group.group_id)
    except GroupIdNotFoundError:  # it was deleted meanwhile
        return []
    by_topic: dict[str, list[PartitionLag]] = {}
    for partition, one in found.items():
        by_topic.setdefault(partition.topic, []).append(one)
    lags = []
    for topic, several in by_topic.items():
        known = [one.lag for one in several if one.lag is not None]
        if not known:
            continue
        members = {one.member.member_id for one in several if one.member is not None}
        is_abandoned = group.state is GroupState.EMPTY and not group.is_simple_consumer_group
        state = str(group.state.value)
        lags.append(
            GroupLag(group.group_id, topic, state, len(members), len(several), sum(known), max(known), is_abandoned)
        )
    return lags
