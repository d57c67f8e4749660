"""CreateTopics (v2-7), DeleteTopics (v1-6), CreatePartitions (v0-3).

**Rights.** Creating a topic needs Create on the cluster, which covers all names, or on the topic; DescribeConfigs on
the topic to see its configs in the response. Deleting needs Delete on the cluster or the topic. Adding partitions needs
Alter on the topic.

Each topic succeeds or fails by itself. A topic that occurs twice in a request fails, regardless of the rights on it.

**A denial reveals nothing.** A client must not be able to find out by deletions which topics exist. So a name that the
client may not describe is refused with TOPIC_AUTHORIZATION_FAILED, whether or not the topic exists, and the response to
a topic id has no name unless the client may describe the topic. Results are in the order of the request, which reveals
nothing either. (Kafka shuffles them.)

All three count against the client's mutation quota, one permit per partition. For clients that are new enough, the
topics beyond the quota fail with THROTTLING_QUOTA_EXCEEDED (CreateTopics from v6, DeleteTopics from v5,
CreatePartitions from v3); older clients succeed and are throttled.
"""

from __future__ import annotations

from collections import Counter

from barnabas.common.errors import ApiError, Errors, InvalidRequestError, TopicDeletionDisabledError
from barnabas.common.topic_names import CLUSTER_METADATA_TOPIC
from barnabas.controller.handlers.backend import Backend
from barnabas.controller.handlers.future_steps import mapped
from barnabas.controller.handlers.topic_deletion_steps import TopicDeletionSteps
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from barnabas.protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.security.acl import CLUSTER_NAME, AclOperation, ResourceType
from barnabas.server.request import Request
from barnabas.server.request_local import RequestLocal

CREATE_TOPICS_STRICT_SINCE = 6
DELETE_TOPICS_STRICT_SINCE = 5
CREATE_PARTITIONS_STRICT_SINCE = 3
FIRST_WITH_DELETION_DISABLED = 3
"""First DeleteTopics version whose clients know TOPIC_DELETION_DISABLED."""


class TopicsHandler:
    """Creates topics, adds partitions, and deletes topics."""

    def __init__(self, backend: Backend, *, delete_topic_enable: bool) -> None:
        self._backend = backend
        self._controller = backend.controller
        self._auth = backend.auth
        self._delete_topic_enable = delete_topic_enable

    def create_topics(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, CreateTopicsRequest)
        quota = self._backend.new_mutation_quota(request, CREATE_TOPICS_STRICT_SINCE)
        names = Counter(topic.name for topic in body.topics)
        allowed = {name for name, count in names.items() if count == 1 and name != CLUSTER_METADATA_TOPIC}
        creatable, describable = self._creatable_and_describable(request, allowed)
        refused = {name: _creation_refused(name, count) for name, count in names.items() if name not in creatable}
        effective = CreateTopicsRequest(
            topics=[topic for topic in body.topics if topic.name in creatable],
            timeout_ms=body.timeout_ms,
            validate_only=body.validate_only,
        )

        def complete(response: CreateTopicsResponse) -> CreateTopicsResponse:
            results = {topic.name: topic for topic in response.topics} | refused
            response.topics = [results[name] for name in names]
            return response

        future = self._controller.create_topics(
            self._backend.context(request, body.timeout_ms, quota), effective, describable
        )
        self._backend.respond_to_mutation(request, quota, mapped(future, complete))

    def _creatable_and_describable(self, request: Request, names: set[str]) -> tuple[set[str], set[str]]:
        context, auth = request.request_context, self._auth
        # Not logged as a denial: a right on the topic is sufficient.
        if auth.authorize(context, AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, log_if_denied=False):
            creatable = names
        else:
            creatable = auth.filter_by_authorized(context, AclOperation.CREATE, ResourceType.TOPIC, names, str)
        describable = auth.filter_by_authorized(
            context, AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, names, str, log_if_denied=False
        )
        return creatable, describable

    def delete_topics(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, DeleteTopicsRequest)
        if not self._delete_topic_enable:
            raise _deletion_disabled(request.api_version)
        quota = self._backend.new_mutation_quota(request, DELETE_TOPICS_STRICT_SINCE)
        context = self._backend.context(request, body.timeout_ms, quota)
        steps = TopicDeletionSteps(self._controller, self._auth, request.request_context, context, body)
        self._backend.respond_to_mutation(request, quota, steps.run())

    def create_partitions(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, CreatePartitionsRequest)
        quota = self._backend.new_mutation_quota(request, CREATE_PARTITIONS_STRICT_SINCE)
        names = Counter(topic.name for topic in body.topics)
        alterable = self._auth.filter_by_authorized(
            request.request_context,
            AclOperation.ALTER,
            ResourceType.TOPIC,
            [name for name, count in names.items() if count == 1],
            str,
        )
        refused = {name: _growth_refused(name, count) for name, count in names.items() if name not in alterable}
        effective = CreatePartitionsRequest(
            topics=[topic for topic in body.topics if topic.name in alterable],
            timeout_ms=body.timeout_ms,
            validate_only=body.validate_only,
        )

        def complete(response: CreatePartitionsResponse) -> CreatePartitionsResponse:
            results = {result.name: result for result in response.results} | refused
            response.results = [results[name] for name in names]
            return response

        future = self._controller.create_partitions(self._backend.context(request, body.timeout_ms, quota), effective)
        self._backend.respond_to_mutation(request, quota, mapped(future, complete))


def _creation_refused(name: str, mentions: int) -> CreatableTopicResult:
    if mentions > 1:
        error, message = Errors.INVALID_REQUEST, "The request has the topic more than once."
    elif name == CLUSTER_METADATA_TOPIC:
        error, message = Errors.INVALID_REQUEST, f"{name} is the cluster's metadata log and cannot be created."
    else:
        error, message = Errors.TOPIC_AUTHORIZATION_FAILED, "Not authorized to create this topic."
    return CreatableTopicResult(name=name, error_code=error, error_message=message)


def _growth_refused(name: str, mentions: int) -> CreatePartitionsTopicResult:
    if mentions > 1:
        return CreatePartitionsTopicResult(
            name=name,
            error_code=Errors.INVALID_REQUEST,
            error_message="The request has the topic more than once.",
        )
    return CreatePartitionsTopicResult(name=name, error_code=Errors.TOPIC_AUTHORIZATION_FAILED)


def _deletion_disabled(version: int) -> ApiError:
    if version < FIRST_WITH_DELETION_DISABLED:
        return InvalidRequestError("Topics cannot be deleted: delete.topic.enable is false.")
    return TopicDeletionDisabledError()
