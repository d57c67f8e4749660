"""OffsetForLeaderEpoch (v2-4): returns the end offset of a leader epoch.

It was first used by brokers only, so ClusterAction on the cluster is enough. Consumers use it to detect that records
they have read were lost in a leader change (KIP-320), and need Describe on the topic. A missing ClusterAction is not
written to the audit log.

``replica_id`` (v3) makes no difference: followers and consumers both get the response only from the leader.
"""

from __future__ import annotations

from typing import Final, Protocol

from barnabas.common.errors import Errors
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)
from barnabas.replica.results import EpochEndOffsetResult
from barnabas.security.acl import CLUSTER_NAME, AclOperation, ResourceType
from barnabas.security.auth_helper import AuthHelper
from barnabas.server.request import Request
from barnabas.server.request_handler_helper import RequestHandlerHelper
from barnabas.server.request_local import RequestLocal

_UNKNOWN_EPOCH: Final = -1


class EpochFinder(Protocol):
    """The part of the replica manager that OffsetForLeaderEpoch uses."""

    def last_offset_for_leader_epoch(
        self, partition: TopicPartition, current_leader_epoch: int | None, leader_epoch: int
    ) -> EpochEndOffsetResult: ...


class OffsetForLeaderEpochHandler:
    """Handles OffsetForLeaderEpoch requests."""

    def __init__(self, helper: RequestHandlerHelper, auth: AuthHelper, replicas: EpochFinder) -> None:
        self._helper = helper
        self._auth = auth
        self._find = replicas.last_offset_for_leader_epoch

    def offset_for_leader_epoch(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, OffsetForLeaderEpochRequest)
        allowed, denied = self._authorized(request, body)
        topics = [
            OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[self._end_offset(topic.topic, asked) for asked in topic.partitions]
            )
            for topic in allowed
        ]
        topics += [
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    EpochEndOffset(error_code=Errors.TOPIC_AUTHORIZATION_FAILED, partition=asked.partition)
                    for asked in topic.partitions
                ],
            )
            for topic in denied
        ]
        self._helper.send_response_maybe_throttle(
            request, lambda throttle_ms: OffsetForLeaderEpochResponse(throttle_time_ms=throttle_ms, topics=topics)
        )

    def _authorized(
        self, request: Request, body: OffsetForLeaderEpochRequest
    ) -> tuple[list[OffsetForLeaderTopic], list[OffsetForLeaderTopic]]:
        if self._auth.authorizer is None:
            return body.topics, []
        context = request.request_context
        if self._auth.authorize(
            context, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME, log_if_denied=False
        ):
            return body.topics, []
        return self._auth.partition_by_authorized(
            context, AclOperation.DESCRIBE, ResourceType.TOPIC, body.topics, lambda topic: topic.topic
        )

    def _end_offset(self, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
        epoch = asked.current_leader_epoch
        found = self._find(
            TopicPartition(topic, asked.partition), None if epoch == _UNKNOWN_EPOCH else epoch, asked.leader_epoch
        )
        return EpochEndOffset(
            error_code=found.error,
            partition=asked.partition,
            leader_epoch=found.leader_epoch,
            end_offset=found.end_offset,
        )
