"""Commits the progress of a stream to a consumer group.

Spark's checkpoint has the authoritative offsets, but lag monitoring tools read consumer groups. So a stream also
commits to a group, like a consumer with manually assigned partitions: it is not a member. The committed offsets are
never read back, and a failed commit does not fail the query.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from barnabas.clients.common.blocking_client import ClientError, raise_for
from barnabas.clients.common.topic_reader import Leader
from barnabas.common.clock import Clock
from barnabas.common.errors import Errors
from barnabas.common.topic_partition import TopicPartition
from barnabas.network.client.node import Node
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.spark.cluster_client import ClusterClient

log = logging.getLogger(__name__)

_ATTEMPTS: Final = 10
_PASSING: Final = frozenset(
    {Errors.COORDINATOR_NOT_AVAILABLE, Errors.COORDINATOR_LOAD_IN_PROGRESS, Errors.NOT_COORDINATOR}
)


class GroupCommits:
    """Commits offsets to one group if they have changed."""

    def __init__(self, group: str, clock: Clock) -> None:
        self._group = group
        self._clock = clock
        self._coordinator: Node | None = None
        self._committed: dict[TopicPartition, int] = {}

    def commit(
        self, client: ClusterClient, offsets: Mapping[TopicPartition, int], leaders: Mapping[TopicPartition, Leader]
    ) -> None:
        """Commits the offsets that have changed. `leaders` have the topic ids, as far as they are known."""
        changed = {one: offset for one, offset in offsets.items() if self._committed.get(one) != offset}
        if not changed:
            return
        try:
            for attempt in range(_ATTEMPTS):
                if attempt:
                    self._clock.sleep(client.settings.retry_backoff_ms)
                if self._try(client, changed, leaders):
                    self._committed |= changed
                    return
            log.warning("Group %s has no coordinator at present: offsets are not committed", self._group)
        except ClientError as error:
            self._coordinator = None
            log.warning("Cannot commit offsets to group %s: %s", self._group, error)

    def _try(
        self, client: ClusterClient, offsets: Mapping[TopicPartition, int], leaders: Mapping[TopicPartition, Leader]
    ) -> bool:
        if self._coordinator is None:
            self._coordinator = self._find(client)
        if self._coordinator is None:
            return False
        # OffsetCommit has topic names up to version 9, and topic ids since.
        known = leaders or client.reader.describe({one.topic for one in offsets}).leaders
        topic_ids = {one.topic: known[one].topic_id for one in offsets if one in known}
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for (name, partition), offset in offsets.items():
            if name in topic_ids:
                topic = topics.setdefault(name, OffsetCommitRequestTopic(name=name, topic_id=topic_ids[name]))
                topic.partitions.append(
                    OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
                )
        request = OffsetCommitRequest(group_id=self._group, topics=list(topics.values()))
        response: OffsetCommitResponse = client.send(request, self._coordinator)
        for answer in (one for topic in response.topics for one in topic.partitions):
            if answer.error_code in _PASSING:
                self._coordinator = None
                return False
            if answer.error_code == Errors.UNKNOWN_MEMBER_ID:
                raise ClientError("the group has active members; name a group that only this query uses")
            raise_for(answer.error_code, "the commit was refused")
        return True

    def _find(self, client: ClusterClient) -> Node | None:
        response: FindCoordinatorResponse = client.send(FindCoordinatorRequest(coordinator_keys=[self._group]))
        for found in response.coordinators:
            if found.error_code in _PASSING:
                return None
            raise_for(found.error_code, "there is no coordinator")
            return Node(found.node_id, found.host, found.port)
        return None
