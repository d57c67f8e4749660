"""Fetches topic metadata for the application: ``partitions_for`` and ``list_topics``."""

from __future__ import annotations

import logging
from concurrent.futures import Future

from barnabas.clients.common.metadata_snapshot import PartitionInfo
from barnabas.clients.consumer.internals.background_future import new_future
from barnabas.clients.consumer.internals.request_managers import (
    EMPTY,
    FOREVER,
    PatientRequestManager,
    PollResult,
    UnsentRequest,
)
from barnabas.common.errors import (
    Errors,
    InvalidTopicError,
    KafkaTimeoutError,
    TopicAuthorizationError,
)
from barnabas.network.client.client_request import ClientResponse
from barnabas.network.client.node import Node
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

log = logging.getLogger(__name__)

Topics = dict[str, tuple[PartitionInfo, ...]]


class _Question:
    __slots__ = ("deadline_ms", "future", "in_flight", "not_before_ms", "topic")

    def __init__(self, topic: str | None, deadline_ms: int) -> None:
        self.topic = topic
        """None: all of them."""
        self.deadline_ms = deadline_ms
        self.future: Future[Topics] = new_future()
        self.in_flight = False
        self.not_before_ms = 0


class TopicMetadataRequestManager(PatientRequestManager):
    """Requests metadata each time and does not cache it, unlike the consumer's own metadata."""

    def __init__(self, *, allow_auto_topic_creation: bool, retry_backoff_ms: int) -> None:
        self._allow_auto_topic_creation = allow_auto_topic_creation
        self._retry_backoff_ms = retry_backoff_ms
        self._questions: list[_Question] = []

    def request(self, topic: str | None, deadline_ms: int) -> Future[Topics]:
        question = _Question(topic, deadline_ms)
        self._questions.append(question)
        return question.future

    def poll(self, now: int) -> PollResult:
        if not self._questions:
            return EMPTY
        requests = []
        wait_ms = FOREVER
        for question in list(self._questions):
            if now >= question.deadline_ms:
                self._end(question, KafkaTimeoutError("Timeout expired while fetching topic metadata"))
            elif question.in_flight:
                wait_ms = min(wait_ms, question.deadline_ms - now)
            elif now < question.not_before_ms:
                wait_ms = min(wait_ms, question.not_before_ms - now)
            else:
                question.in_flight = True
                wait_ms = min(wait_ms, question.deadline_ms - now)
                requests.append(self._request(question))
        return PollResult(wait_ms, requests)

    def _request(self, question: _Question) -> UnsentRequest:
        topics = None if question.topic is None else [MetadataRequestTopic(name=question.topic)]
        return UnsentRequest(
            MetadataRequest(topics=topics, allow_auto_topic_creation=self._allow_auto_topic_creation),
            None,
            lambda response: self._on_response(question, response),
        )

    def _on_response(self, question: _Question, response: ClientResponse) -> None:
        question.in_flight = False
        question.not_before_ms = response.received_ms + self._retry_backoff_ms
        if question.future.done():
            return
        body = response.body
        if not isinstance(body, MetadataResponse):
            fatal = response.authentication_error or response.version_mismatch
            if fatal is not None:
                self._end(question, fatal)
            return
        found: Topics = {}
        nodes = {row.node_id: Node(row.node_id, row.host, row.port, row.rack) for row in body.brokers}
        for topic in body.topics:
            error = Errors.for_code(topic.error_code)
            if topic.name is None:
                continue
            if error is Errors.NONE:
                found[topic.name] = tuple(
                    PartitionInfo(
                        topic.name,
                        row.partition_index,
                        nodes.get(row.leader_id),
                        row.leader_epoch if row.leader_epoch >= 0 else None,
                        tuple(row.replica_nodes),
                        tuple(row.isr_nodes),
                        tuple(row.offline_replicas),
                    )
                    for row in sorted(topic.partitions, key=lambda row: row.partition_index)
                )
            elif error is Errors.INVALID_TOPIC_EXCEPTION:
                self._end(question, InvalidTopicError(f"Topic '{topic.name}' is invalid"))
                return
            elif error is Errors.TOPIC_AUTHORIZATION_FAILED:
                if question.topic is not None:
                    self._end(question, TopicAuthorizationError(f"Not authorized to access topics: [{topic.name}]"))
                    return
            elif error is Errors.UNKNOWN_TOPIC_OR_PARTITION:
                continue  # the topic does not exist: a valid result
            elif error.retriable:
                log.debug("Metadata of topic %s: %s, asking again", topic.name, error.name)
                if question.topic is not None:
                    return
            elif question.topic is not None:
                self._end(question, error.to_exception())
                return
        self._questions.remove(question)
        question.future.set_result(found)

    def _end(self, question: _Question, error: Exception | None) -> None:
        self._questions.remove(question)
        question.future.set_exception(error)

    def poll_on_close(self, now: int) -> PollResult:  # noqa: ARG002
        return EMPTY
