"""Metadata (v0-13) and DescribeTopicPartitions (v0): list topics and the leaders of their partitions (R08).

Both read the metadata cache and use neither a log nor the controller, with one exception: a Metadata request for an
unknown topic may create it, if the broker (``auto.create.topics.enable``), the client (``allow_auto_topic_creation``)
and the authorizer allow it. The creation goes to the controller. The response does not wait for it but has
UNKNOWN_TOPIC_OR_PARTITION, and the client retries.

A topic that the client may not Describe is left out if the client asked for all topics. If the client asked by name, it
is TOPIC_AUTHORIZATION_FAILED, whether the topic exists or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from barnabas.common.errors import Errors
from barnabas.common.topic_names import is_internal_topic
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.cluster_responses import NO_CONTROLLER_ID, metadata_brokers
from barnabas.metadata.topic_responses import missing_topic, requested_topics
from barnabas.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from barnabas.security.acl import CLUSTER_NAME, AclOperation, Resource, ResourceType
from barnabas.security.auth_helper import AuthHelper
from barnabas.server.request import Request
from barnabas.server.request_handler_helper import RequestHandlerHelper
from barnabas.server.request_local import RequestLocal

_INLINE_TOPICS: Final = 256
_INLINE_PARTITIONS: Final = 1024
"""About how many topics and partitions a network thread describes inline."""


class TopicCreator(Protocol):
    """Creates topics that clients request."""

    def create_topics(self, names: Iterable[str], request: Request) -> Sequence[MetadataResponseTopic]:
        """Starts the creation of topics for a client; returns the current response for each of them."""
        ...


def _itself(name: str) -> str:
    return name


class MetadataHandler:
    """Handles Metadata and DescribeTopicPartitions requests."""

    def __init__(
        self,
        helper: RequestHandlerHelper,
        auth: AuthHelper,
        cache: MetadataCache,
        cluster_id: str,
        topic_creator: TopicCreator | None,
        max_request_partition_size_limit: int = 2000,
    ) -> None:
        """Without a topic creator no topics are created: ``auto.create.topics.enable`` is off."""
        self._helper = helper
        self._auth = auth
        self._cache = cache
        self._cluster_id = cluster_id
        self._topic_creator = topic_creator
        self._partition_limit = max_request_partition_size_limit

    def metadata(self, request: Request, local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, MetadataRequest)
        version = request.api_version
        listener = request.context.listener_name
        asked = requested_topics(self._cache.image, body, version)
        names: Sequence[str] = asked.names
        if local.inline and self._is_large(names):
            local.hand_over()
            return
        refused: list[MetadataResponseTopic] = []
        if self._auth.authorizer is not None and names:
            names, refused = self._describable(request, names, hide=asked.all_topics, by_id=asked.by_id)
        topics = self._cache.topic_metadata(names, listener, version)
        if len(topics) < len(names):
            missing = [name for name in names if not self._cache.contains(name)]
            topics += self._respond_missing(request, body, missing, asked.all_topics)
        controller_id = self._cache.random_alive_broker_id()
        response = MetadataResponse(
            brokers=metadata_brokers(self._cache.alive_broker_nodes(listener)),
            cluster_id=self._cluster_id,
            controller_id=NO_CONTROLLER_ID if controller_id is None else controller_id,
            topics=[*asked.unknown_ids, *topics, *refused],
        )
        self._add_authorized_operations(request, body, version, response, topics)
        self._helper.send_response_maybe_throttle(request, lambda throttle_ms: _throttled(response, throttle_ms))

    def _is_large(self, names: Sequence[str]) -> bool:
        """Returns whether a response about these topics is too large for a network thread."""
        if len(names) > _INLINE_TOPICS:
            return True
        topics = self._cache.image.topics.by_name
        partitions = 0
        for name in names:
            topic = topics.get(name)
            if topic is not None:
                partitions += len(topic.partitions)
        return partitions > _INLINE_PARTITIONS

    def _describable(
        self, request: Request, names: Sequence[str], *, hide: bool, by_id: bool
    ) -> tuple[list[str], list[MetadataResponseTopic]]:
        """Returns the topics that the client may describe, and the responses for the others."""
        allowed, denied = self._auth.partition_by_authorized(
            request.request_context, AclOperation.DESCRIBE, ResourceType.TOPIC, names, _itself, log_if_denied=not hide
        )
        if hide:
            return allowed, []
        error = Errors.TOPIC_AUTHORIZATION_FAILED
        if by_id:
            # The client already knows the id; the name would reveal something.
            return allowed, [
                MetadataResponseTopic(error_code=error, name=None, topic_id=self._cache.topic_id(name))
                for name in denied
            ]
        return allowed, [MetadataResponseTopic(error_code=error, name=name) for name in denied]

    def _respond_missing(
        self, request: Request, body: MetadataRequest, missing: Sequence[str], all_topics: bool
    ) -> list[MetadataResponseTopic]:
        """Returns the responses for topics that do not exist, and may start their creation."""
        if all_topics:
            return []  # deleted since the names were read
        creator = self._topic_creator
        if creator is None or not body.allow_auto_topic_creation:
            return [missing_topic(name) for name in missing]
        refused: list[MetadataResponseTopic] = []
        if self._auth.authorizer is not None:
            context = request.request_context
            create, cluster = AclOperation.CREATE, ResourceType.CLUSTER
            if not self._auth.authorize(context, create, cluster, CLUSTER_NAME, log_if_denied=False):
                missing, denied = self._auth.partition_by_authorized(
                    context, create, ResourceType.TOPIC, missing, _itself
                )
                refused = [
                    MetadataResponseTopic(
                        error_code=Errors.TOPIC_AUTHORIZATION_FAILED, name=name, is_internal=is_internal_topic(name)
                    )
                    for name in denied
                ]
        return [*(creator.create_topics(missing, request) if missing else ()), *refused]

    def _add_authorized_operations(
        self,
        request: Request,
        body: MetadataRequest,
        version: int,
        response: MetadataResponse,
        topics: Iterable[MetadataResponseTopic],
    ) -> None:
        if 8 <= version <= 10 and body.include_cluster_authorized_operations:
            context = request.request_context
            may_describe = self._auth.authorize(context, AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
            response.cluster_authorized_operations = (
                self._auth.authorized_operations(context, Resource(ResourceType.CLUSTER, CLUSTER_NAME))
                if may_describe
                else 0
            )
        if version >= 8 and body.include_topic_authorized_operations:
            context = request.request_context
            for topic in topics:
                if topic.name is not None:
                    topic.topic_authorized_operations = self._auth.authorized_operations(
                        context, Resource(ResourceType.TOPIC, topic.name)
                    )

    def describe_topic_partitions(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, DescribeTopicPartitionsRequest)
        context = request.request_context
        # A client that asks for all topics names none that it may not see, so denials are not logged.
        log_if_denied = bool(body.topics)

        def may_describe(name: str) -> bool:
            return self._auth.authorize(
                context, AclOperation.DESCRIBE, ResourceType.TOPIC, name, log_if_denied=log_if_denied
            )

        response = self._cache.describe_topic_partitions(
            body, request.context.listener_name, self._partition_limit, may_describe
        )
        for topic in response.topics:
            if topic.name is not None and topic.error_code != Errors.TOPIC_AUTHORIZATION_FAILED:
                topic.topic_authorized_operations = self._auth.authorized_operations(
                    context, Resource(ResourceType.TOPIC, topic.name)
                )

        def create(throttle_ms: int) -> DescribeTopicPartitionsResponse:
            response.throttle_time_ms = throttle_ms
            return response

        self._helper.send_response_maybe_throttle(request, create)


def _throttled(response: MetadataResponse, throttle_ms: int) -> MetadataResponse:
    response.throttle_time_ms = throttle_ms
    return response
