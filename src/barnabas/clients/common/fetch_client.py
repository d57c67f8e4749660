"""The fetch client: makes fetch requests and reads their responses, for every client that reads records.

It does no I/O. The consumer sends its requests from the background thread, and keeps a fetch session with each broker;
`TopicReader` sends them with a `BlockingClient`, for Spark's tasks and for `TopicTail`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from barnabas.clients.common.fetch_session_handler import FetchSessionHandler, PartitionToFetch
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from barnabas.protocol.versions import VersionRange

_VERSIONS: Final = ApiKey.FETCH.stable_versions
_VERSIONS_WITH_NAMES: Final = VersionRange(_VERSIONS.lowest, 12)
"""Later versions name topics by id only."""


class FetchSettings(NamedTuple):
    """The limits of a fetch request, as Kafka's configs name them."""

    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 50 * 1024 * 1024
    isolation_level: int = 0
    client_rack: str = ""


class Fetch(NamedTuple):
    """A fetch request, and the context to read its response."""

    body: FetchRequest
    versions: VersionRange
    partitions: Mapping[TopicPartition, PartitionToFetch]
    """The partitions that the response may have. A request within a session names the changed ones only."""
    session: FetchSessionHandler

    def read(self, response: FetchResponse) -> list[tuple[TopicPartition, PartitionData]] | None:
        """Returns the partitions of the response; None if its error code, or its content, makes it unusable."""
        return self.session.read_response(response)


class FetchClient:
    """Makes fetch requests to any number of brokers."""

    def __init__(self, settings: FetchSettings, *, sessionless: bool = False) -> None:
        self._settings = settings
        self._sessionless = sessionless
        self._sessions: dict[int, FetchSessionHandler] = {}

    def fetch(
        self,
        node_id: int,
        wanted: Mapping[TopicPartition, PartitionToFetch],
        *,
        max_wait_ms: int | None = None,
        max_bytes: int | None = None,
    ) -> Fetch:
        """Returns a request for these partitions, in this order.

        A broker has one request of a session at a time: the next one is made after the response was read.
        """
        settings = self._settings
        session = self._sessions.get(node_id)
        if session is None:
            session = FetchSessionHandler(node_id, sessionless=self._sessionless)
            if not self._sessionless:
                self._sessions[node_id] = session
        made = session.build(wanted)
        body = FetchRequest(
            max_wait_ms=settings.max_wait_ms if max_wait_ms is None else max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes if max_bytes is None else max_bytes,
            isolation_level=settings.isolation_level,
            session_id=made.session_id,
            session_epoch=made.session_epoch,
            topics=made.topics,
            forgotten_topics_data=made.forgotten,
            rack_id=settings.client_rack,
        )
        return Fetch(body, _VERSIONS if made.can_use_topic_ids else _VERSIONS_WITH_NAMES, made.partitions, session)

    def close(self) -> list[tuple[int, FetchRequest]]:
        """Returns the requests that end the sessions, by node. Brokers keep a limited number of sessions."""
        final = [(node_id, session.final_request()) for node_id, session in self._sessions.items()]
        self._sessions.clear()
        return [(node_id, body) for node_id, body in final if body is not None]
