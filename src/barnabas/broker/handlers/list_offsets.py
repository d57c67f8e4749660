"""ListOffsets (v1-11): finds the offset for a timestamp, or for the start or end of a log.

Needs Describe on the topic. Each special negative timestamp was introduced with some version; a timestamp that is
unknown in the request's version is UNSUPPORTED_VERSION for its partition. A partition that is listed twice is
INVALID_REQUEST: it has one response, and the client could not tell which entry it belongs to.

The visible end of the log depends on the client. A consumer (``replica_id`` -1) sees up to the high watermark, or up to
the last stable offset if it reads only committed records. A follower or a tool (-2) sees up to the log end offset. A
broker that is not the leader responds only to a tool.

OFFSET_NOT_AVAILABLE, from a leader that does not know its high watermark yet, becomes LEADER_NOT_AVAILABLE before v5:
both mean "retry", and older clients do not know the former. ``timeout_ms`` (v10) bounds a search in tiered storage.
Nothing here waits, so the timeout is always met.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Final, Protocol

from barnabas.common.errors import ApiError, Errors, InvalidRequestError
from barnabas.common.log_safety import LimitedLogger
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.replica.results import CONSUMER_REPLICA_ID, DEBUGGING_REPLICA_ID, IsolationLevel, OffsetResult
from barnabas.security.acl import AclOperation, ResourceType
from barnabas.security.auth_helper import AuthHelper
from barnabas.server.request import Request
from barnabas.server.request_handler_helper import RequestHandlerHelper
from barnabas.server.request_local import RequestLocal

logger = LimitedLogger(logging.getLogger(__name__))

SINCE_VERSION: Final = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}
"""The special negative timestamps, with the version that introduced each."""

_LEADER_EPOCH: Final = 4
_OFFSET_NOT_AVAILABLE: Final = 5
_UNKNOWN_EPOCH: Final = -1


class OffsetFinder(Protocol):
    """The part of the replica manager that ListOffsets uses."""

    def fetch_offset(
        self,
        partition: TopicPartition,
        timestamp: int,
        isolation: IsolationLevel | None,
        current_leader_epoch: int | None,
        fetch_only_from_leader: bool,
    ) -> OffsetResult: ...


class ListOffsetsHandler:
    """Handles ListOffsets requests."""

    def __init__(self, helper: RequestHandlerHelper, auth: AuthHelper, replicas: OffsetFinder) -> None:
        self._helper = helper
        self._auth = auth
        self._fetch_offset = replicas.fetch_offset

    def list_offsets(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, ListOffsetsRequest)
        isolation = _isolation(body)
        allowed = None
        if self._auth.authorizer is not None:
            allowed = self._auth.filter_by_authorized(
                request.request_context,
                AclOperation.DESCRIBE,
                ResourceType.TOPIC,
                body.topics,
                lambda topic: topic.name,
            )
        counts = Counter(
            (topic.name, partition.partition_index) for topic in body.topics for partition in topic.partitions
        )
        responses: dict[str, dict[int, ListOffsetsPartitionResponse]] = {}
        for topic in body.topics:
            for partition in topic.partitions:
                if allowed is not None and topic.name not in allowed:
                    response = _failed(partition, Errors.TOPIC_AUTHORIZATION_FAILED)
                elif counts[topic.name, partition.partition_index] > 1:
                    response = _failed(partition, Errors.INVALID_REQUEST)
                elif partition.timestamp < 0 and request.api_version < SINCE_VERSION.get(partition.timestamp, 1 << 15):
                    response = _failed(partition, Errors.UNSUPPORTED_VERSION)
                else:
                    response = self._find(request, topic.name, partition, isolation, body.replica_id)
                responses.setdefault(topic.name, {})[partition.partition_index] = response
        topics = [
            ListOffsetsTopicResponse(name=name, partitions=list(found.values())) for name, found in responses.items()
        ]
        self._helper.send_response_maybe_throttle(
            request, lambda throttle_ms: ListOffsetsResponse(throttle_time_ms=throttle_ms, topics=topics)
        )

    def _find(
        self,
        request: Request,
        topic: str,
        asked: ListOffsetsPartition,
        isolation: IsolationLevel | None,
        replica_id: int,
    ) -> ListOffsetsPartitionResponse:
        version = request.api_version
        epoch = asked.current_leader_epoch
        try:
            found = self._fetch_offset(
                TopicPartition(topic, asked.partition_index),
                asked.timestamp,
                isolation,
                None if epoch == _UNKNOWN_EPOCH else epoch,
                replica_id != DEBUGGING_REPLICA_ID,
            )
        except ApiError as error:
            code = Errors.for_exception(error)
            logger.debug("%r failed for %s-%d: %s", request, topic, asked.partition_index, error)
            if code is Errors.OFFSET_NOT_AVAILABLE and version < _OFFSET_NOT_AVAILABLE:
                code = Errors.LEADER_NOT_AVAILABLE
            return _failed(asked, code)
        except Exception as error:
            # The other partitions are not affected.
            logger.exception("Finding offset %d of %s-%d failed", asked.timestamp, topic, asked.partition_index)
            return _failed(asked, Errors.for_exception(error))
        return ListOffsetsPartitionResponse(
            partition_index=asked.partition_index,
            timestamp=found.timestamp,
            offset=found.offset,
            leader_epoch=found.leader_epoch if version >= _LEADER_EPOCH else _UNKNOWN_EPOCH,
        )


def _isolation(body: ListOffsetsRequest) -> IsolationLevel | None:
    """Returns the isolation level of a consumer; None for followers and tools, which see the whole log."""
    try:
        isolation = IsolationLevel(body.isolation_level)
    except ValueError:
        raise InvalidRequestError(f"there is no isolation level {body.isolation_level}") from None
    return isolation if body.replica_id == CONSUMER_REPLICA_ID else None


def _failed(asked: ListOffsetsPartition, error: Errors) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=error)
