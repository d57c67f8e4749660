"""Creates topics automatically when clients or coordinators need them (R08)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from barnabas.broker.to_controller.forwarding_manager import make_envelope, open_envelope_response
from barnabas.common.dataclass import dataclass, field
from barnabas.common.errors import Errors, ProtocolError
from barnabas.common.log_safety import LimitedLogger
from barnabas.common.topic_names import is_internal_topic, is_valid_topic_name
from barnabas.network.client.client_request import ClientResponse
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.framing import LENGTH_SIZE, encode_request
from barnabas.protocol.message import Request as RequestMessage
from barnabas.protocol.messages.envelope import EnvelopeResponse
from barnabas.protocol.messages.metadata import MetadataResponseTopic
from barnabas.server.request import Request
from barnabas.server.throttling import UNLIMITED, ControllerMutationQuota

if TYPE_CHECKING:
    from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsResponse
    from barnabas.server.controller_channel import ControllerChannel

log = LimitedLogger(logging.getLogger(__name__))


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """Partitions, replication factor and configs of a topic to create."""

    num_partitions: int = 1
    replication_factor: int = 1
    configs: Mapping[str, str] = field(default_factory=dict)


class AutoTopicCreationManager:
    """Asks the controller to create topics, and lets the client retry.

    The response does not wait for the creation. A client must handle missing topics anyway, so it gets
    UNKNOWN_TOPIC_OR_PARTITION and retries; the next response or the one after has the topic. An invalid name is refused
    with INVALID_TOPIC_EXCEPTION at once. The controller checks the rest (enough brokers for the replication factor, the
    controller mutation quota, a policy). If it refuses, the reason is logged, and the client still gets
    UNKNOWN_TOPIC_OR_PARTITION.

    A topic whose creation is in flight is not requested again: a hundred clients that start together ask for it a
    hundred times within milliseconds.

    A creation caused by a client's Metadata request goes to the controller in an Envelope, so that the client is
    authorized and its quota charged; the client id and correlation id identify it in the logs. A topic that a
    coordinator needs (``request`` is None) is created by a plain CreateTopics of this broker.
    """

    def __init__(
        self,
        channel: ControllerChannel,
        default_settings: TopicSettings,
        internal_topic_settings: Mapping[str, TopicSettings] | None = None,
        request_timeout_ms: int = 30_000,
    ) -> None:
        """``internal_topic_settings`` are the settings of ``__consumer_offsets`` and other internal topics, by name."""
        self._channel = channel
        self._default = default_settings
        self._internal = dict(internal_topic_settings or {})
        self._request_timeout_ms = request_timeout_ms
        self._lock = threading.Lock()
        """Guards ``_in_flight``; nothing is called while it is held."""
        self._in_flight: set[str] = set()

    def create_topics(
        self,
        names: Iterable[str],
        request: Request | None = None,
        mutation_quota: ControllerMutationQuota = UNLIMITED,
    ) -> list[MetadataResponseTopic]:
        """Starts the creation of topics; returns the Metadata response entry of each, in order.

        If the client's mutation quota is exhausted, no request is sent: the controller would refuse it.
        """
        found: list[MetadataResponseTopic] = []
        creatable: dict[str, CreatableTopic] = {}
        exhausted = mutation_quota.is_exceeded
        for name in dict.fromkeys(names):
            error = Errors.UNKNOWN_TOPIC_OR_PARTITION
            if not is_valid_topic_name(name):
                error = Errors.INVALID_TOPIC_EXCEPTION
            elif not exhausted and self._claim(name):
                creatable[name] = self._creatable(name)
            found.append(MetadataResponseTopic(error_code=error, name=name, is_internal=is_internal_topic(name)))
        if creatable:
            self._send(creatable, request)
        return found

    def _claim(self, name: str) -> bool:
        with self._lock:
            if name in self._in_flight:
                return False
            self._in_flight.add(name)
            return True

    def _creatable(self, name: str) -> CreatableTopic:
        from barnabas.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig

        settings = self._internal.get(name, self._default)
        return CreatableTopic(
            name=name,
            num_partitions=settings.num_partitions,
            replication_factor=settings.replication_factor,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in settings.configs.items()],
        )

    def _send(self, topics: Mapping[str, CreatableTopic], request: Request | None) -> None:
        from barnabas.protocol.messages.create_topics import CreateTopicsRequest

        create = CreateTopicsRequest(topics=list(topics.values()), timeout_ms=self._request_timeout_ms)
        creation = _Creation(self, topics)
        try:
            body: RequestMessage = create
            if request is not None:
                versions = self._channel.controller_api_versions
                # Without a connection the controller's versions are unknown. If it does not support this version, the
                # client's next request tries again.
                version = (
                    ApiKey.CREATE_TOPICS.stable_versions.highest
                    if versions is None
                    else versions.latest_usable_version(ApiKey.CREATE_TOPICS)
                )
                context = request.request_context
                frame = encode_request(create, version, context.correlation_id, context.client_id)
                body = make_envelope(context, frame[LENGTH_SIZE:])
                creation.inner = version, context.correlation_id
            self._channel.send_request(body, creation)
        except BaseException:
            self.forget(topics)
            raise
        log.info("Asked the controller to create %s", ", ".join(topics))

    def forget(self, names: Iterable[str]) -> None:
        """Removes topics from the creations in flight, after success or failure."""
        with self._lock:
            self._in_flight.difference_update(names)

    @property
    def in_flight(self) -> frozenset[str]:
        with self._lock:
            return frozenset(self._in_flight)


class _Creation:
    """One request in flight."""

    __slots__ = ("_manager", "_topics", "inner")

    def __init__(self, manager: AutoTopicCreationManager, topics: Mapping[str, CreatableTopic]) -> None:
        self._manager = manager
        self._topics = topics
        self.inner: tuple[int, int] | None = None
        """Version and correlation id of the request in the Envelope, if there is an Envelope."""

    def on_timeout(self) -> None:
        self._manager.forget(self._topics)
        log.warning("The creation of %s timed out", ", ".join(self._topics))

    def on_complete(self, response: ClientResponse) -> None:
        self._manager.forget(self._topics)
        failure: Exception | None = response.authentication_error or response.version_mismatch
        if failure is None:
            try:
                body = self._body(response)
            except ProtocolError as problem:
                failure = problem
            else:
                self._report(body)
                return
        log.warning("The creation of %s failed: %s", ", ".join(self._topics), failure)

    def _body(self, response: ClientResponse) -> CreateTopicsResponse:
        from barnabas.protocol.messages.create_topics import CreateTopicsResponse

        body = response.body
        if isinstance(body, EnvelopeResponse):
            if body.error_code:
                raise ProtocolError(f"the response to the Envelope is {Errors.for_code(body.error_code).name}")
            assert self.inner is not None
            version, correlation_id = self.inner
            body = open_envelope_response(body.response_data or b"", ApiKey.CREATE_TOPICS, version, correlation_id)
        assert isinstance(body, CreateTopicsResponse)
        return body

    @staticmethod
    def _report(body: CreateTopicsResponse) -> None:
        for topic in body.topics:
            # Another broker may have created the topic first.
            if topic.error_code in (Errors.NONE, Errors.TOPIC_ALREADY_EXISTS):
                log.debug("Topic %s has been created", topic.name)
            else:
                error = Errors.for_code(topic.error_code)
                log.warning("Topic %s was not created: %s (%s)", topic.name, error.name, topic.error_message)
