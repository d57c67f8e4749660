"""Fetch contexts: the partitions of a fetch request, from the request itself or from its session.

A handler gets a context from the :class:`~barnabas.replica.fetch.fetch_session_manager.FetchManager`, reads its
partitions, and passes the results to it. The context hides the differences between the four kinds of requests:

======================= ===================== ===============================================
context                 partitions            response
======================= ===================== ===============================================
SessionlessFetchContext those of the request  all of them, no session
FullFetchContext        those of the request  all of them, and a new session if there is room
IncrementalFetchContext those of the session  those that have changed
SessionErrorContext     none                  the error alone
======================= ===================== ===============================================
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence

from barnabas.common.clock import Clock
from barnabas.common.errors import Errors
from barnabas.common.identifiers import ZERO_UUID
from barnabas.common.log_safety import LimitedLogger
from barnabas.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
)
from barnabas.replica.fetch.fetch_session import (
    INVALID_SESSION_ID,
    CachedPartition,
    FetchData,
    FetchSession,
    TopicIdPartition,
    TopicNames,
)
from barnabas.replica.fetch.fetch_session_cache import FetchSessionCache

log = LimitedLogger(logging.getLogger(__name__))

Updates = Mapping[TopicIdPartition, PartitionData]
"""The results by partition, in the order of the response."""


class FetchContext(ABC):
    """The partitions of a fetch request; builds its response."""

    __slots__ = ()

    @abstractmethod
    def partitions(self) -> Collection[tuple[TopicIdPartition, FetchPartition]]:
        """Returns all partitions to read, in order, with their parameters.

        No lock is held while the caller iterates. A partition whose topic is None has an id that this broker does not
        know; its result is UNKNOWN_TOPIC_ID.
        """

    def may_omit(self, _partition: TopicIdPartition, _high_watermark: int, _log_start_offset: int, /) -> bool:
        """Whether the response can omit a partition that has nothing but these two offsets.

        That is: no records, no error, no preferred read replica, no divergence. The caller then creates no struct for
        it; most partitions of most fetches are like that.
        """
        return False

    @abstractmethod
    def get_response_size(self, updates: Updates, version: int) -> int:
        """Returns the size of the response for the quota, without changing the session: it may not be sent."""

    @abstractmethod
    def update_and_generate_response_data(
        self, updates: Updates, node_endpoints: Sequence[NodeEndpoint] = ()
    ) -> FetchResponse:
        """Returns the response. The session considers it sent from here on."""

    def get_throttled_response(
        self, throttle_time_ms: int, node_endpoints: Sequence[NodeEndpoint] = ()
    ) -> FetchResponse:
        """Returns the empty response for a throttled reader; the session does not change."""
        return make_response((), throttle_time_ms=throttle_time_ms, node_endpoints=node_endpoints)


class SessionErrorContext(FetchContext):
    """For a request that does not match its session. Its partitions are unknown."""

    __slots__ = ("error",)

    def __init__(self, error: Errors) -> None:
        self.error = error

    def partitions(self) -> Collection[tuple[TopicIdPartition, FetchPartition]]:
        return ()

    def get_response_size(self, updates: Updates, version: int) -> int:  # noqa: ARG002 - there are none
        return response_size((), version)

    def update_and_generate_response_data(
        self,
        updates: Updates,  # noqa: ARG002 - there are none
        node_endpoints: Sequence[NodeEndpoint] = (),
    ) -> FetchResponse:
        log.debug("Fetch refused with %s", self.error.name)
        return make_response((), error=self.error, node_endpoints=node_endpoints)


class SessionlessFetchContext(FetchContext):
    """For a full request without a session."""

    __slots__ = ("_fetch_data",)

    def __init__(self, fetch_data: FetchData) -> None:
        self._fetch_data = fetch_data

    def partitions(self) -> Collection[tuple[TopicIdPartition, FetchPartition]]:
        return self._fetch_data.items()

    def get_response_size(self, updates: Updates, version: int) -> int:
        return response_size(updates.items(), version)

    def update_and_generate_response_data(
        self, updates: Updates, node_endpoints: Sequence[NodeEndpoint] = ()
    ) -> FetchResponse:
        return make_response(updates.items(), node_endpoints=node_endpoints)


class FullFetchContext(SessionlessFetchContext):
    """For a full request that asks for a session: the response creates it, with the partitions of the response."""

    __slots__ = ("_cache", "_clock", "_is_follower", "_uses_topic_ids")

    def __init__(
        self, clock: Clock, cache: FetchSessionCache, fetch_data: FetchData, uses_topic_ids: bool, is_follower: bool
    ) -> None:
        super().__init__(fetch_data)
        self._clock = clock
        self._cache = cache
        self._uses_topic_ids = uses_topic_ids
        self._is_follower = is_follower

    def update_and_generate_response_data(
        self, updates: Updates, node_endpoints: Sequence[NodeEndpoint] = ()
    ) -> FetchResponse:
        session_id = self._cache.next_shard().maybe_create_session(
            self._clock.hi_res_milliseconds(),
            self._is_follower,
            self._uses_topic_ids,
            len(updates),
            lambda: [self._cached(partition, data) for partition, data in updates.items()],
        )
        log.debug("Full fetch: session %d and %d partitions", session_id, len(updates))
        return make_response(updates.items(), session_id, node_endpoints=node_endpoints)

    def _cached(self, partition: TopicIdPartition, data: PartitionData) -> CachedPartition:
        """Returns the session's state of a partition after this response; an error leaves the high watermark unsent."""
        cached = CachedPartition(partition, self._fetch_data[partition])
        cached.maybe_update_response_data(data)
        return cached


class IncrementalFetchContext(FetchContext):
    """For the next request of a session.

    The request may wait for data before its response. If the session has advanced meanwhile, because the reader sent
    the request again over another connection, the reader no longer waits for this response.
    """

    __slots__ = ("_next_epoch", "_topic_names", "session")

    def __init__(self, session: FetchSession, topic_names: TopicNames) -> None:
        """Must be called with the session's lock held, after its epoch has advanced to that of the next request."""
        self.session = session
        self._topic_names = topic_names
        self._next_epoch = session.epoch

    def partitions(self) -> Collection[tuple[TopicIdPartition, FetchPartition]]:
        return self.session.partitions(self._topic_names)

    def may_omit(self, partition: TopicIdPartition, high_watermark: int, log_start_offset: int, /) -> bool:
        # No lock: only another request of the session can change the fields read here. It would have advanced the
        # epoch, and then this request is refused, whatever its response omits.
        session = self.session
        cached = session.by_key.get((partition[0] if session.uses_topic_ids else partition[1], partition[2]))
        return cached is None or (
            cached.high_watermark == high_watermark and cached.log_start_offset == log_start_offset
        )

    def _is_current(self) -> bool:
        """Whether this is still the current request of the session. The caller holds the session's lock."""
        if self.session.epoch == self._next_epoch:
            return True
        log.info(
            "%r was at epoch %d when this fetch began: it seems to have been sent twice", self.session, self._next_epoch
        )
        return False

    def get_response_size(self, updates: Updates, version: int) -> int:
        session = self.session
        with session.lock:
            if session.epoch != self._next_epoch:
                return response_size((), version)
            news = [
                (partition, data)
                for partition, data in updates.items()
                if (cached := session.find(partition)) is not None
                and cached.maybe_update_response_data(data, update=False)
            ]
        return response_size(news, version)

    def update_and_generate_response_data(
        self, updates: Updates, node_endpoints: Sequence[NodeEndpoint] = ()
    ) -> FetchResponse:
        session = self.session
        news: list[tuple[TopicIdPartition, PartitionData]] = []
        error = Errors.NONE
        with session.lock:
            if session.epoch == self._next_epoch or self._is_current():
                session.update_responses(updates, news)
            else:
                error = Errors.INVALID_FETCH_SESSION_EPOCH
        return make_response(news, session.id, error, node_endpoints=node_endpoints)

    def get_throttled_response(
        self, throttle_time_ms: int, node_endpoints: Sequence[NodeEndpoint] = ()
    ) -> FetchResponse:
        with self.session.lock:
            error = Errors.NONE if self._is_current() else Errors.INVALID_FETCH_SESSION_EPOCH
        return make_response((), self.session.id, error, throttle_time_ms, node_endpoints)


def make_response(
    partitions: Iterable[tuple[TopicIdPartition, PartitionData]],
    session_id: int = INVALID_SESSION_ID,
    error: Errors = Errors.NONE,
    throttle_time_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> FetchResponse:
    """Returns a response with these partitions in this order.

    The order matters to the reader, so only adjacent partitions of a topic share an entry: a topic may have several.
    """
    topics: list[FetchableTopicResponse] = []
    current: object = None
    neighbours: list[PartitionData] = []
    for (topic_id, topic, index), data in partitions:
        data.partition_index = index
        which = topic if topic_id == ZERO_UUID else topic_id
        if topics and which == current:
            neighbours.append(data)
        else:
            current = which
            neighbours = [data]
            topics.append(FetchableTopicResponse(topic or "", topic_id, neighbours))
    return FetchResponse(throttle_time_ms, error, session_id, topics, list(node_endpoints))


def response_size(partitions: Iterable[tuple[TopicIdPartition, PartitionData]], version: int) -> int:
    """Returns the bytes of a response with these partitions and the length prefix. Other fields have a fixed size."""
    return 4 + sum(map(len, make_response(partitions).encode_parts(version)))
