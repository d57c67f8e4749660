"""Builds and reads OffsetCommit and OffsetFetch in all versions.

Up to version 9 both name topics; from 10 on they have ids, so that an offset of a deleted and recreated topic is not
taken for one of its successor. Ids are used if those of all topics are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from barnabas.clients.common.metadata_snapshot import MetadataSnapshot
from barnabas.clients.common.offsets import OffsetAndMetadata
from barnabas.clients.consumer.internals.membership_manager import MemberIdentity
from barnabas.common.errors import Errors
from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.message import Request
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from barnabas.protocol.versions import VersionRange

_FIRST_WITH_TOPIC_IDS: Final = 10
_FIRST_WITH_GROUPS: Final = 8
_FIRST_WITH_REQUIRE_STABLE: Final = 7
_FIRST_WITH_INSTANCE_ID: Final = 7


class _ByTopic:
    """Partitions by topic, and the topic ids."""

    def __init__(self, partitions: Iterable[TopicPartition], snapshot: MetadataSnapshot) -> None:
        self.topics: dict[str, list[TopicPartition]] = {}
        for partition in partitions:
            self.topics.setdefault(partition.topic, []).append(partition)
        self.ids = {topic: snapshot.topic_id(topic) for topic in self.topics}
        self._names = {topic_id: topic for topic, topic_id in self.ids.items() if topic_id != ZERO_UUID}

    def versions(self, api_key: ApiKey) -> VersionRange:
        stable = api_key.stable_versions
        if len(self._names) == len(self.topics):
            return stable
        return VersionRange(stable.lowest, min(stable.highest, _FIRST_WITH_TOPIC_IDS - 1))

    def name(self, name: str, topic_id: Uuid) -> str:
        """Returns the topic of a response, which has a name or an id; empty if it was not requested."""
        return name or self._names.get(topic_id, "")


class OffsetCommitBuilder:
    """Builds a commit of these offsets by this member."""

    api_key: ApiKey = ApiKey.OFFSET_COMMIT

    def __init__(
        self,
        group_id: str,
        identity: MemberIdentity,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        snapshot: MetadataSnapshot,
    ) -> None:
        self._group_id = group_id
        self.identity = identity
        self.offsets = offsets
        self._by_topic = _ByTopic(offsets, snapshot)

    @property
    def allowed_versions(self) -> VersionRange:
        return self._by_topic.versions(self.api_key)

    def build(self, version: int) -> Request:
        ids = version >= _FIRST_WITH_TOPIC_IDS
        topics = []
        for topic, partitions in self._by_topic.topics.items():
            rows = []
            for partition in partitions:
                committed = self.offsets[partition]
                rows.append(
                    OffsetCommitRequestPartition(
                        partition_index=partition.partition,
                        committed_offset=committed.offset,
                        committed_leader_epoch=-1 if committed.leader_epoch is None else committed.leader_epoch,
                        committed_metadata=committed.metadata,
                    )
                )
            if ids:
                topics.append(OffsetCommitRequestTopic(topic_id=self._by_topic.ids[topic], partitions=rows))
            else:
                topics.append(OffsetCommitRequestTopic(name=topic, partitions=rows))
        return OffsetCommitRequest(
            group_id=self._group_id,
            generation_id_or_member_epoch=self.identity.generation_or_epoch,
            member_id=self.identity.member_id,
            group_instance_id=self.identity.group_instance_id if version >= _FIRST_WITH_INSTANCE_ID else None,
            topics=topics,
        )

    def errors(self, response: OffsetCommitResponse) -> Iterator[tuple[TopicPartition, Errors]]:
        for topic in response.topics:
            name = self._by_topic.name(topic.name, topic.topic_id)
            for row in topic.partitions:
                yield TopicPartition(name, row.partition_index), Errors.for_code(row.error_code)


class FetchedOffset(NamedTuple):
    """A coordinator's response for one partition; an offset of -1: nothing was committed."""

    partition: TopicPartition
    error: Errors
    offset: int
    leader_epoch: int
    metadata: str

    @property
    def committed(self) -> OffsetAndMetadata | None:
        if self.offset < 0:
            return None
        return OffsetAndMetadata(self.offset, self.metadata, self.leader_epoch if self.leader_epoch >= 0 else None)


class OffsetFetchBuilder:
    """Builds a request for the offsets of these partitions."""

    api_key: ApiKey = ApiKey.OFFSET_FETCH

    def __init__(
        self,
        group_id: str,
        identity: MemberIdentity,
        partitions: Iterable[TopicPartition],
        snapshot: MetadataSnapshot,
    ) -> None:
        self._group_id = group_id
        self.identity = identity
        self._by_topic = _ByTopic(partitions, snapshot)

    @property
    def allowed_versions(self) -> VersionRange:
        return self._by_topic.versions(self.api_key)

    def build(self, version: int) -> Request:
        numbers = {
            topic: [partition.partition for partition in partitions]
            for topic, partitions in self._by_topic.topics.items()
        }
        # Offsets of open transactions are not stable yet. Brokers before version 7 cannot report that.
        stable = version >= _FIRST_WITH_REQUIRE_STABLE
        if version < _FIRST_WITH_GROUPS:
            rows = [OffsetFetchRequestTopic(name=topic, partition_indexes=one) for topic, one in numbers.items()]
            return OffsetFetchRequest(group_id=self._group_id, topics=rows, require_stable=stable)
        topics = []
        for topic, one in numbers.items():
            if version >= _FIRST_WITH_TOPIC_IDS:
                topics.append(OffsetFetchRequestTopics(topic_id=self._by_topic.ids[topic], partition_indexes=one))
            else:
                topics.append(OffsetFetchRequestTopics(name=topic, partition_indexes=one))
        group = OffsetFetchRequestGroup(
            group_id=self._group_id,
            member_id=self.identity.member_id or None,
            member_epoch=self.identity.generation_or_epoch,
            topics=topics,
        )
        return OffsetFetchRequest(groups=[group], require_stable=stable)

    def group_error(self, response: OffsetFetchResponse) -> Errors:
        if response.groups:
            return Errors.for_code(response.groups[0].error_code)
        return Errors.for_code(response.error_code)

    def rows(self, response: OffsetFetchResponse) -> Iterator[FetchedOffset]:
        if response.groups:
            for group_topic in response.groups[0].topics:
                name = self._by_topic.name(group_topic.name, group_topic.topic_id)
                for row in group_topic.partitions:
                    yield FetchedOffset(
                        TopicPartition(name, row.partition_index),
                        Errors.for_code(row.error_code),
                        row.committed_offset,
                        row.committed_leader_epoch,
                        row.metadata or "",
                    )
        for topic in response.topics:
            for old in topic.partitions:
                yield FetchedOffset(
                    TopicPartition(topic.name, old.partition_index),
                    Errors.for_code(old.error_code),
                    old.committed_offset,
                    old.committed_leader_epoch,
                    old.metadata or "",
                )
