"""Metadata of the topics that a producer sends to."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from random import Random

from barnabas.clients.common.metadata import Metadata
from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.errors import BarnabasError, Errors, KafkaTimeoutError
from barnabas.protocol.messages.metadata import MetadataResponse

log = logging.getLogger(__name__)


class ProducerMetadata(Metadata):
    """Keeps metadata only for topics in use, and drops a topic after ``metadata.max.idle.ms`` without a send.

    Otherwise a producer that writes to a new topic every hour would request all of them for ever. A send does not store
    the time of each record: it sets a mark, and `was_used` collects the marks when a topic is about to be dropped.
    """

    def __init__(
        self,
        refresh_backoff_ms: int,
        refresh_backoff_max_ms: int,
        metadata_expire_ms: int,
        metadata_idle_ms: int,
        *,
        clock: Clock = SYSTEM_CLOCK,
        random: Random | None = None,
    ) -> None:
        super().__init__(refresh_backoff_ms, refresh_backoff_max_ms, metadata_expire_ms, random=random)
        self._idle_ms = metadata_idle_ms
        self._clock = clock
        self._topics: dict[str, int] = {}
        self._new_topics: dict[str, None] = {}
        self._errors: dict[str, Errors] = {}
        self.was_used: Callable[[str], bool] = lambda _topic: False
        """Whether a topic was sent to since the last call."""

    def add(self, topic: str, now: int) -> None:
        """Adds a topic that is being sent to."""
        with self.lock:
            known = topic in self._topics
            self._topics[topic] = now + self._idle_ms
            if not known:
                self._new_topics[topic] = None
                self.request_update_for_new_topics()

    def request_update_for_topic(self, topic: str) -> int:
        """Requests an update for a topic; returns the current version, to wait for a newer one."""
        with self.lock:
            return self.request_update_for_new_topics() if topic in self._new_topics else self.request_update()

    def topic_names(self) -> Iterable[str]:
        return list(self._topics)

    def new_topic_names(self) -> Iterable[str] | None:
        return list(self._new_topics)

    def retain_topic(self, topic: str, is_internal: bool, now: int) -> bool:  # noqa: ARG002 - it makes no difference
        expire_ms = self._topics.get(topic)
        if expire_ms is None:
            return False
        if topic in self._new_topics:
            return True
        if expire_ms <= now:
            if self.was_used(topic):
                self._topics[topic] = now + self._idle_ms
                return True
            log.debug("Topic %s has not been used for a while and is forgotten", topic)
            del self._topics[topic]
            return False
        return True

    def on_updated(self, response: MetadataResponse) -> None:
        self._errors = {}
        for topic in response.topics:
            if topic.name is not None:
                self._new_topics.pop(topic.name, None)
                if topic.error_code:
                    self._errors[topic.name] = Errors.for_code(topic.error_code)

    def topic_error(self, topic: str) -> Errors | None:
        """Returns the topic's error in the last response, if any."""
        return self._errors.get(topic)

    def await_update(self, last_version: int, timeout_ms: float) -> None:
        """Blocks until there is a newer version; raises `KafkaTimeoutError` on timeout."""
        with self.lock:
            deadline = self._clock.hi_res_milliseconds() + timeout_ms
            while self._update_version <= last_version and not self._closed:
                self.maybe_raise_fatal_error()
                remaining = deadline - self._clock.hi_res_milliseconds()
                if remaining <= 0:
                    raise KafkaTimeoutError(f"No metadata update within {timeout_ms} ms.")
                self._clock.wait(self.updated, remaining)
            if self._closed:
                raise BarnabasError("Requested metadata update after close")
