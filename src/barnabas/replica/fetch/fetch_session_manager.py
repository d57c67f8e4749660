"""The fetch manager: finds or creates the session of a fetch request, and its context."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from barnabas.common.clock import Clock
from barnabas.common.errors import Errors
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.replica.fetch.fetch_context import (
    FetchContext,
    FullFetchContext,
    IncrementalFetchContext,
    SessionErrorContext,
    SessionlessFetchContext,
)
from barnabas.replica.fetch.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    INVALID_SESSION_ID,
    FetchData,
    FetchMetadata,
    FetchSession,
    TopicIdPartition,
    TopicNames,
    next_epoch,
)
from barnabas.replica.fetch.fetch_session_cache import FetchSessionCache

log = logging.getLogger(__name__)

FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
_FULL_EPOCHS: Final = frozenset({INITIAL_EPOCH, FINAL_EPOCH})
_NO_ERROR: Final = Errors.NONE  # looking up an enum member costs as much as a call
_new_tuple = tuple.__new__
"""Creates a named tuple without calling its class, which takes several times as long."""


def replica_id(request: FetchRequest, version: int) -> int:
    """Returns the follower's broker id, negative for a consumer. Since v15 consumers omit ``replica_state``."""
    if version < 15:
        return request.replica_id
    return -1 if request.replica_state is None else request.replica_state.replica_id


def fetch_data(request: FetchRequest, version: int, topic_names: TopicNames) -> dict[TopicIdPartition, FetchPartition]:
    """Returns the partitions that a request lists."""
    by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS
    found: dict[TopicIdPartition, FetchPartition] = {}
    for topic in request.topics:
        topic_id = topic.topic_id
        name = topic_names.get(topic_id) if by_id else topic.topic
        for partition in topic.partitions:
            # A session keeps this struct: do not keep unknown fields that the client has sent.
            partition.unknown_tagged_fields = None
            found[_new_tuple(TopicIdPartition, (topic_id, name, partition.partition))] = partition
    return found


def forgotten_partitions(request: FetchRequest, version: int, topic_names: TopicNames) -> list[TopicIdPartition]:
    """Returns the partitions that a request removes from its session."""
    by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS
    return [
        TopicIdPartition(topic.topic_id, topic_names.get(topic.topic_id) if by_id else topic.topic, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]


class FetchManager:
    """Creates the context of each fetch request, and advances the session.

    Locks are taken in this order: the cache shard, then the session. Both are held from finding the session until its
    epoch has advanced, so of two requests with the same epoch one is served and the other refused.
    """

    __slots__ = ("_cache", "_clock")

    def __init__(self, clock: Clock, cache: FetchSessionCache) -> None:
        self._clock = clock
        self._cache = cache

    def session_size(self, session_id: int) -> int:
        """Returns the number of partitions of a session; 0 if there is no such session."""
        shard = self._cache.shard_of(session_id)
        if shard is None:
            return 0
        with shard.lock:
            session = shard.get(session_id)
            return 0 if session is None else len(session)

    def context_of(self, request: FetchRequest, version: int, topic_names: TopicNames) -> FetchContext:
        """Returns the context of a decoded request."""
        session_epoch = request.session_epoch
        metadata = _new_tuple(FetchMetadata, (request.session_id, session_epoch))
        is_full = session_epoch in _FULL_EPOCHS
        if not is_full and not request.forgotten_topics_data:
            context = self._next_context(request.topics, version, metadata, topic_names)
            if context is not None:
                return context
        return self.new_context(
            version,
            metadata,
            session_epoch == INITIAL_EPOCH and replica_id(request, version) >= 0,
            fetch_data(request, version, topic_names),
            () if is_full else forgotten_partitions(request, version, topic_names),
            topic_names,
        )

    def _next_context(
        self, topics: Iterable[FetchTopic], version: int, metadata: FetchMetadata, topic_names: TopicNames
    ) -> FetchContext | None:
        """Fast path of :meth:`new_context` for the next request of a session, without new partitions.

        Nearly all requests are like that. Returns None, without changes, for any other.
        """
        shard = self._cache.shard_of(metadata[0])
        if shard is None:
            return None
        with shard.lock:
            session = shard.get(metadata[0])
            if session is None:
                return None
            with session.lock:
                if _mismatch(session, version, metadata) is not _NO_ERROR or not session.renew(topics):
                    return None
                shard.touch(session, self._clock.hi_res_milliseconds())
                session.epoch = next_epoch(session.epoch)
                return IncrementalFetchContext(session, topic_names)

    def new_context(
        self,
        version: int,
        metadata: FetchMetadata,
        is_follower: bool,
        fetch_data: FetchData,
        forgotten: Iterable[TopicIdPartition],
        topic_names: TopicNames,
    ) -> FetchContext:
        session_id, epoch = metadata
        if epoch not in _FULL_EPOCHS:
            return self._incremental(version, metadata, fetch_data, forgotten, topic_names)
        # A full request closes the session that it names: it lists all partitions that the reader wants from now on.
        if session_id != INVALID_SESSION_ID:
            removed = self._cache.remove(session_id)
            if removed is not None:
                log.debug("%r was closed by a full fetch", removed)
        if epoch == FINAL_EPOCH:
            return SessionlessFetchContext(fetch_data)
        uses_topic_ids = version >= FIRST_VERSION_WITH_TOPIC_IDS
        return FullFetchContext(self._clock, self._cache, fetch_data, uses_topic_ids, is_follower)

    def _incremental(
        self,
        version: int,
        metadata: FetchMetadata,
        fetch_data: FetchData,
        forgotten: Iterable[TopicIdPartition],
        topic_names: TopicNames,
    ) -> FetchContext:
        shard = self._cache.shard_of(metadata.session_id)
        if shard is None:
            return self._refuse(metadata, Errors.FETCH_SESSION_ID_NOT_FOUND)
        with shard.lock:
            session = shard.get(metadata.session_id)
            if session is None:
                return self._refuse(metadata, Errors.FETCH_SESSION_ID_NOT_FOUND)
            with session.lock:
                error = _mismatch(session, version, metadata)
                if error is not _NO_ERROR:
                    return self._refuse(metadata, error, session)
                change = session.update(fetch_data, forgotten)
                if not shard.has_room_for(session):
                    shard.remove(session.id)
                    return self._refuse(metadata, Errors.FETCH_SESSION_ID_NOT_FOUND, session)
                if not len(session):
                    shard.remove(session.id)
                    log.debug("%r has no partitions left and is closed", session)
                    return SessionlessFetchContext(fetch_data)
                shard.touch(session, self._clock.hi_res_milliseconds())
                session.epoch = next_epoch(session.epoch)
                log.debug("%r: added %d, updated %d, removed %d", session, *change)
                return IncrementalFetchContext(session, topic_names)

    @staticmethod
    def _refuse(metadata: FetchMetadata, error: Errors, session: FetchSession | None = None) -> FetchContext:
        log.debug("A fetch of %s is refused: %s (%r)", metadata, error.name, session)
        return SessionErrorContext(error)


def _mismatch(session: FetchSession, version: int, metadata: FetchMetadata) -> Errors:
    """Returns the error if a request cannot be the next one of its session, otherwise NONE."""
    if session.epoch != metadata[1]:
        return Errors.INVALID_FETCH_SESSION_EPOCH
    if session.uses_topic_ids != (version >= FIRST_VERSION_WITH_TOPIC_IDS):
        return Errors.FETCH_SESSION_TOPIC_ID_ERROR
    return _NO_ERROR
