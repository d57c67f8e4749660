"""DeleteRecords (v0-2): advances the log start offset.

Needs Delete on the topic. The response is sent when all live replicas have followed, or after ``timeout_ms``. If a
partition is listed twice, its last offset counts, and it has one result.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Protocol

from barnabas.common.errors import Errors
from barnabas.common.topic_partition import TopicPartition
from barnabas.metadata.cache import MetadataCache
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from barnabas.replica.results import DeleteRecordsCallback, DeleteRecordsResult
from barnabas.security.acl import AclOperation, ResourceType
from barnabas.security.auth_helper import AuthHelper
from barnabas.server.request import Request
from barnabas.server.request_handler_helper import RequestHandlerHelper
from barnabas.server.request_local import RequestLocal

logger = logging.getLogger(__name__)


class RecordDeleter(Protocol):
    """The part of the replica manager that DeleteRecords uses."""

    def delete_records(
        self, timeout_ms: int, offsets: Mapping[TopicPartition, int], callback: DeleteRecordsCallback
    ) -> None: ...


class DeleteRecordsHandler:
    """Handles DeleteRecords requests."""

    def __init__(
        self, helper: RequestHandlerHelper, auth: AuthHelper, cache: MetadataCache, replicas: RecordDeleter
    ) -> None:
        self._helper = helper
        self._auth = auth
        self._cache = cache
        self._delete_records = replicas.delete_records

    def delete_records(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, DeleteRecordsRequest)
        allowed = self._auth.filter_by_authorized(
            request.request_context, AclOperation.DELETE, ResourceType.TOPIC, body.topics, lambda topic: topic.name
        )
        by_name = self._cache.image.topics.by_name
        offsets: dict[TopicPartition, int] = {}
        refused: dict[TopicPartition, DeleteRecordsResult] = {}
        for topic in body.topics:
            found = by_name.get(topic.name)
            for asked in topic.partitions:
                partition = TopicPartition(topic.name, asked.partition_index)
                if topic.name not in allowed:
                    refused[partition] = DeleteRecordsResult(Errors.TOPIC_AUTHORIZATION_FAILED)
                elif found is None or asked.partition_index not in found.partitions:
                    refused[partition] = DeleteRecordsResult(Errors.UNKNOWN_TOPIC_OR_PARTITION)
                else:
                    offsets[partition] = asked.offset

        def respond(results: dict[TopicPartition, DeleteRecordsResult]) -> None:
            try:
                self._respond(request, {**results, **refused})
            except Exception as error:  # noqa: BLE001 - on the thread of whoever calls, nobody else would respond
                self._helper.handle_error(request, error)

        if offsets:
            self._delete_records(body.timeout_ms, offsets, respond)
        else:
            respond({})

    def _respond(self, request: Request, results: Mapping[TopicPartition, DeleteRecordsResult]) -> None:
        topics: dict[str, DeleteRecordsTopicResult] = {}
        for (name, index), result in results.items():
            if result.error:
                logger.debug("%r failed for %s-%d: %s", request, name, index, result.error.name)
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = DeleteRecordsTopicResult(name=name)
            topic.partitions.append(
                DeleteRecordsPartitionResult(
                    partition_index=index, low_watermark=result.low_watermark, error_code=result.error
                )
            )
        self._helper.send_response_maybe_throttle(
            request,
            lambda throttle_ms: DeleteRecordsResponse(throttle_time_ms=throttle_ms, topics=list(topics.values())),
        )
