"""The steps of DeleteTopics: from names and ids to the topics that may be deleted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future

from barnabas.common.errors import ApiError, Errors, InvalidRequestError, TopicAuthorizationError
from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.controller.handlers.future_steps import mapped, then
from barnabas.controller.quorum_controller import QuorumController
from barnabas.controller.request_context import ControllerRequestContext
from barnabas.controller.result import error_fields
from barnabas.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.security.acl import CLUSTER_NAME, AclOperation, ResourceType
from barnabas.security.auth_helper import AuthHelper
from barnabas.security.request_context import AuthorizableRequestContext

Given = tuple[str | None, Uuid]
"""A topic as given in the request: its name, or its id, or by mistake both or neither."""


class TopicDeletionSteps:
    """Processes one DeleteTopics request.

    Authorization is by name, so ids must first be resolved to names. Names must be resolved to ids, so that the deleted
    topic is the authorized one, and not one that has been created under the same name since:

        ids    --find_topic_names-->  names --\\
                                               authorize --> ids --delete_topics--> results
        names  --find_topic_ids---->  ids   --/

    A result reveals only what the client may know about the topic: see the handlers of topics.
    """

    def __init__(
        self,
        controller: QuorumController,
        auth: AuthHelper,
        request_context: AuthorizableRequestContext,
        context: ControllerRequestContext,
        request: DeleteTopicsRequest,
    ) -> None:
        self._controller = controller
        self._auth = auth
        self._request_context = request_context
        self._context = context
        self._given: list[Given] = [
            *((name, ZERO_UUID) for name in request.topic_names),
            *((topic.name, topic.topic_id) for topic in request.topics),
        ]
        self._given_ids = {topic_id for name, topic_id in self._given if name is None}
        self._results: dict[Given, DeletableTopicResult] = {}
        self._deletable: dict[Uuid, Given] = {}
        """The topics left to delete, by id, as given in the request."""
        self._names: dict[Uuid, str] = {}

    def run(self) -> Future[DeleteTopicsResponse]:
        self._refuse_mistakes()
        pending = [given for given in dict.fromkeys(self._given) if given not in self._results]
        names = [name for name, _ in pending if name is not None]
        ids = [topic_id for name, topic_id in pending if name is None]
        return then(
            self._controller.find_topic_names(self._context, ids),
            lambda found_names: then(
                self._controller.find_topic_ids(self._context, names),
                lambda found_ids: self._delete(found_names, found_ids),
            ),
        )

    def _refuse_mistakes(self) -> None:
        for given, count in Counter(self._given).items():
            name, topic_id = given
            if name is not None and topic_id != ZERO_UUID:
                self._refuse(given, InvalidRequestError("A topic must have a name or an ID, not both."))
            elif name is None and topic_id == ZERO_UUID:
                self._refuse(given, InvalidRequestError("A topic must have a name or an ID."))
            elif count > 1:
                self._refuse(given, InvalidRequestError("The request has the topic more than once."))

    def _delete(
        self, found_names: Mapping[Uuid, str | ApiError], found_ids: Mapping[str, Uuid | ApiError]
    ) -> Future[DeleteTopicsResponse]:
        named = {topic_id: name for topic_id, name in found_names.items() if isinstance(name, str)}
        describable, deletable = self._rights({*found_ids, *named.values()})
        for topic_id, found_name in found_names.items():
            self._decide_id(topic_id, found_name, describable, deletable)
        for name, found_id in found_ids.items():
            self._decide_name(name, found_id, describable, deletable)
        future = self._controller.delete_topics(
            self._context, DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=id_) for id_ in self._deletable])
        )
        return mapped(future, self._complete)

    def _rights(self, names: set[str]) -> tuple[set[str], set[str]]:
        """Returns the names that the client may describe, and those that it may delete."""
        context, auth = self._request_context, self._auth
        if auth.authorize(context, AclOperation.DELETE, ResourceType.CLUSTER, CLUSTER_NAME, log_if_denied=False):
            return names, names
        return (
            auth.filter_by_authorized(context, AclOperation.DESCRIBE, ResourceType.TOPIC, names, str),
            auth.filter_by_authorized(context, AclOperation.DELETE, ResourceType.TOPIC, names, str),
        )

    def _decide_id(self, topic_id: Uuid, name: str | ApiError, describable: set[str], deletable: set[str]) -> None:
        given = (None, topic_id)
        if not isinstance(name, str):
            self._refuse(given, name)
        elif name in deletable:
            self._deletable[topic_id] = given
            self._names[topic_id] = name
        else:
            self._refuse(given, TopicAuthorizationError(), name if name in describable else None)

    def _decide_name(self, name: str, topic_id: Uuid | ApiError, describable: set[str], deletable: set[str]) -> None:
        given = (name, ZERO_UUID)
        if name not in describable:
            self._refuse(given, TopicAuthorizationError())
        elif isinstance(topic_id, ApiError):
            self._refuse(given, topic_id)
        elif name not in deletable:
            self._refuse(given, TopicAuthorizationError())
        elif topic_id in self._given_ids:
            # Only a client that may delete the topic gets here, so this reveals nothing.
            error = InvalidRequestError("The request has the topic by name and by ID.")
            self._refuse(given, error, topic_id=topic_id)
            if self._deletable.pop(topic_id, None) is not None:
                self._refuse((None, topic_id), error, name)
        else:
            self._deletable[topic_id] = given
            self._names[topic_id] = name

    def _complete(self, response: DeleteTopicsResponse) -> DeleteTopicsResponse:
        for result in response.responses:
            result.name = self._names[result.topic_id]
            self._results[self._deletable[result.topic_id]] = result
        response.responses = [self._results[given] for given in dict.fromkeys(self._given)]
        return response

    def _refuse(self, given: Given, error: ApiError, name: str | None = None, topic_id: Uuid | None = None) -> None:
        code, message = error_fields(error)
        self._results[given] = DeletableTopicResult(
            name=given[0] if name is None else name,
            topic_id=given[1] if topic_id is None else topic_id,
            error_code=code,
            error_message=None if message == Errors.for_code(code).message else message,
        )
