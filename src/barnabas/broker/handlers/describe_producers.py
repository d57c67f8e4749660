"""DescribeProducers (v0): lists the active producers of partitions, to find hanging transactions (KIP-664).

Needs Read on the topic, as for consumers, which hanging transactions block. The topic name is checked first:
INVALID_TOPIC_EXCEPTION is more specific than an unknown topic.
"""

from __future__ import annotations

from typing import Protocol

from barnabas.common.errors import ApiError, Errors, InvalidTopicError
from barnabas.common.topic_names import validate_topic_name
from barnabas.common.topic_partition import TopicPartition
from barnabas.metadata.cache import MetadataCache
from barnabas.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicResponse,
)
from barnabas.security.acl import AclOperation, ResourceType
from barnabas.security.auth_helper import AuthHelper
from barnabas.server.request import Request
from barnabas.server.request_handler_helper import RequestHandlerHelper
from barnabas.server.request_local import RequestLocal


class ProducerStates(Protocol):
    """The part of the replica manager that DescribeProducers uses."""

    def active_producer_state(self, partition: TopicPartition) -> PartitionResponse: ...


class DescribeProducersHandler:
    """Handles DescribeProducers requests."""

    def __init__(
        self, helper: RequestHandlerHelper, auth: AuthHelper, cache: MetadataCache, replicas: ProducerStates
    ) -> None:
        self._helper = helper
        self._auth = auth
        self._cache = cache
        self._active_producer_state = replicas.active_producer_state

    def describe_producers(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, DescribeProducersRequest)
        topics = []
        for topic in body.topics:
            error = self._why_not(request, topic.name)
            topics.append(
                TopicResponse(
                    name=topic.name,
                    partitions=[
                        self._active_producer_state(TopicPartition(topic.name, index))
                        if error is None
                        else PartitionResponse(
                            partition_index=index, error_code=Errors.for_exception(error), error_message=str(error)
                        )
                        for index in topic.partition_indexes
                    ],
                )
            )
        self._helper.send_response_maybe_throttle(
            request, lambda throttle_ms: DescribeProducersResponse(throttle_time_ms=throttle_ms, topics=topics)
        )

    def _why_not(self, request: Request, topic: str) -> ApiError | None:
        try:
            validate_topic_name(topic)
        except InvalidTopicError as error:
            return error
        code = Errors.NONE
        if not self._auth.authorize(request.request_context, AclOperation.READ, ResourceType.TOPIC, topic):
            code = Errors.TOPIC_AUTHORIZATION_FAILED
        elif not self._cache.contains(topic):
            code = Errors.UNKNOWN_TOPIC_OR_PARTITION
        return code.to_exception()
