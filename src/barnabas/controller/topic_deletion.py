"""DeleteTopics."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

from barnabas.common.errors import (
    ApiError,
    InvalidRequestError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.common.log_safety import LimitedLogger
from barnabas.common.memory_reuse import empty
from barnabas.controller.replication_control_manager import ReplicationControlManager
from barnabas.controller.request_context import ControllerRequestContext
from barnabas.controller.result import ControllerResult, check_operation_size, error_fields
from barnabas.protocol.internal.metadata import RemoveTopicRecord
from barnabas.raft.client import ApiMessageAndVersion

if TYPE_CHECKING:
    from barnabas.protocol.messages.delete_topics import (
        DeletableTopicResult,
        DeleteTopicsRequest,
        DeleteTopicsResponse,
        DeleteTopicState,
    )

log = LimitedLogger(logging.getLogger(__name__))


class TopicDeletion:
    """Deletes topics, given by id or by name.

    One record deletes a topic with its partitions and configs. Names are resolved inside the operation, so a name means
    the topic that has it when the record is written.

    A topic that a request gives twice, even once by name and once by id, is not deleted: the client has made a mistake.
    """

    def __init__(self, replication: ReplicationControlManager) -> None:
        self._replication = replication

    def delete_topics(
        self, context: ControllerRequestContext, request: DeleteTopicsRequest
    ) -> ControllerResult[DeleteTopicsResponse]:
        from barnabas.protocol.messages.delete_topics import (
            DeletableTopicResult,
            DeleteTopicsResponse,
            DeleteTopicState,
        )

        states = [DeleteTopicState(name=name) for name in request.topic_names] + list(request.topics)
        wanted = [self._resolve(state) for state in states]
        mentions = Counter((name, topic_id) if topic_id == ZERO_UUID else topic_id for name, topic_id, _ in wanted)
        records: list[ApiMessageAndVersion] = []
        results: dict[tuple[str | None, Uuid], DeletableTopicResult] = {}
        for name, topic_id, problem in wanted:
            if (name, topic_id) in results:
                continue
            error = problem
            try:
                if mentions[(name, topic_id) if topic_id == ZERO_UUID else topic_id] > 1:
                    raise InvalidRequestError("The request has the topic more than once.")
                if error is None:
                    records.append(self._delete(context, topic_id))
            except ApiError as raised:
                error = raised
                log.info("Cannot delete topic %s: %s", name, error)
            code, message = error_fields(error)
            results[name, topic_id] = DeletableTopicResult(
                name=name, topic_id=topic_id, error_code=code, error_message=message
            )
        empty(wanted)  # tens of thousands of errors: in pieces
        check_operation_size(len(records))
        return ControllerResult.atomic_of(records, DeleteTopicsResponse(responses=list(results.values())))

    def _resolve(self, state: DeleteTopicState) -> tuple[str | None, Uuid, ApiError | None]:
        """Returns the name, the id and the error, if any. For an unknown id the name is None."""
        if state.name is None:
            if state.topic_id == ZERO_UUID:
                return None, ZERO_UUID, InvalidRequestError("A topic must have a name or an ID.")
            topic = self._replication.topic(state.topic_id)
            if topic is None:
                return None, state.topic_id, UnknownTopicIdError()
            return topic.name, topic.id, None
        if state.topic_id != ZERO_UUID:
            return state.name, state.topic_id, InvalidRequestError("A topic must have a name or an ID, not both.")
        topic = self._replication.topic_named(state.name)
        if topic is None:
            return state.name, ZERO_UUID, UnknownTopicOrPartitionError(f"Topic {state.name!r} does not exist.")
        return topic.name, topic.id, None

    def _delete(self, context: ControllerRequestContext, topic_id: Uuid) -> ApiMessageAndVersion:
        topic = self._replication.topic(topic_id)
        if topic is None:
            raise UnknownTopicIdError
        context.apply_partition_change_quota(len(topic.partitions))
        return ApiMessageAndVersion(RemoveTopicRecord(topic_id=topic_id), 0)
