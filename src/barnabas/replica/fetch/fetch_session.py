"""Incremental fetch sessions (KIP-227): the state that a broker keeps of a reader between its requests.

A consumer or a follower of a thousand partitions fetches the same thousand again and again, and nearly all of them have
nothing new. With a session, requests and responses omit the unchanged partitions::

    reader                                                 broker
    Fetch session 0, epoch 0: t-0 at 5, t-1 at 9, t-2 at 0
                        session 77: all three, as they are
    Fetch session 77, epoch 1: t-0 at 8                    the others have not moved
                        session 77: t-2                    only t-2 has changed
    Fetch session 77, epoch 2: t-2 at 4, forget t-1
                        session 77: nothing

For each partition the broker keeps the reader's last request (offset, limit, epochs) and the offsets in its last
response (high watermark and log start offset). A partition is in the response if these offsets have changed, if there
are records, or if it has an error.

The epoch counts the requests of a session. A request with another epoch than expected is a duplicate, or comes from a
reader that has lost a response. The two sides may then disagree about the state, so the request is refused and the
reader starts again with a full request. A session is never repaired.

The order of the partitions is kept from request to request, and a partition that has returned records moves to the end.
A response is filled in that order until it is full; otherwise a busy partition at the front would starve the rest.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from barnabas._kernels import memory
from barnabas.common.identifiers import Uuid
from barnabas.protocol.messages.fetch import FetchPartition, FetchTopic, PartitionData

INVALID_SESSION_ID: Final = 0
"""In a request: there is no session yet. In a response: no session was created."""
INITIAL_EPOCH: Final = 0
"""A full request that asks for a session."""
FINAL_EPOCH: Final = -1
"""A full request that closes its session and asks for no other."""
MAX_EPOCH: Final = 2**31 - 1
INVALID_OFFSET: Final = -1


def next_epoch(epoch: int) -> int:
    """Returns the epoch of the next request: 1 after the largest, as 0 is special; the final epoch stays final.

    >>> next_epoch(INITIAL_EPOCH), next_epoch(MAX_EPOCH), next_epoch(FINAL_EPOCH)
    (1, 1, -1)
    """
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == MAX_EPOCH else epoch + 1


class FetchMetadata(NamedTuple):
    """The session id and the session epoch of a request."""

    session_id: int
    epoch: int

    @property
    def is_full(self) -> bool:
        """Whether the request lists all its partitions, instead of changes only."""
        return self.epoch in {INITIAL_EPOCH, FINAL_EPOCH}

    def next_incremental(self) -> FetchMetadata:
        return FetchMetadata(self.session_id, next_epoch(self.epoch))

    def next_close_existing(self) -> FetchMetadata:
        """For a full request that ends the session."""
        return FetchMetadata(self.session_id, FINAL_EPOCH)

    def next_close_existing_attempt_new(self) -> FetchMetadata:
        """For a full request that ends the session and asks for another."""
        return FetchMetadata(self.session_id, INITIAL_EPOCH)

    def __str__(self) -> str:
        session = "no session" if self.session_id == INVALID_SESSION_ID else f"session {self.session_id}"
        names = {INITIAL_EPOCH: "initial epoch", FINAL_EPOCH: "final epoch"}
        return f"{session}, {names.get(self.epoch, f'epoch {self.epoch}')}"


INITIAL: Final = FetchMetadata(INVALID_SESSION_ID, INITIAL_EPOCH)
"""The metadata of a reader's first request."""
LEGACY: Final = FetchMetadata(INVALID_SESSION_ID, FINAL_EPOCH)
"""The metadata of a request whose version is too old for sessions."""


class TopicIdPartition(NamedTuple):
    """A partition, identified by topic id, topic name, or both.

    Requests before v13 have only the name, and the id is zero. Later requests have only the id, and the broker looks
    up the name, which is None while the broker does not know the id.
    """

    topic_id: Uuid
    topic: str | None
    partition: int

    def __str__(self) -> str:
        return f"{self.topic_id.hex() if self.topic is None else self.topic}-{self.partition}"


FetchData = Mapping[TopicIdPartition, FetchPartition]
"""The partitions of a request, in its order, with their parameters."""
TopicNames = Mapping[Uuid, str]
_Key = tuple[Uuid | str | None, int]


class CachedPartition(memory.StructMemory):
    """A partition of a session: its parameters in the last request, and its offsets in the last response.

    A broker may have millions of these. ``request`` is the struct decoded from the request. It is replaced as a whole,
    never changed: a fetch that waits in the purgatory continues with the struct that it started with.
    """

    __slots__ = ("high_watermark", "log_start_offset", "partition", "request")

    def __init__(
        self,
        partition: TopicIdPartition,
        request: FetchPartition,
        high_watermark: int = INVALID_OFFSET,
        log_start_offset: int = INVALID_OFFSET,
    ) -> None:
        self.partition = partition
        self.request = request
        self.high_watermark = high_watermark
        self.log_start_offset = log_start_offset
        """The log start offset of this broker. The reader's own is in ``request``."""

    def maybe_update_response_data(self, data: PartitionData, update: bool = True) -> bool:
        """Returns whether the response must contain the partition; with ``update``, remembers the offsets as sent."""
        must_respond = bool(data.records)
        if data.high_watermark != self.high_watermark:
            must_respond = True
            if update:
                self.high_watermark = data.high_watermark
        if data.log_start_offset != self.log_start_offset:
            must_respond = True
            if update:
                self.log_start_offset = data.log_start_offset
        if data.error_code:
            must_respond = True
            if update:
                # No partition has this high watermark, so the first response after the error contains the partition.
                self.high_watermark = INVALID_OFFSET
        return (
            must_respond
            or data.preferred_read_replica != -1
            or (data.diverging_epoch is not None and data.diverging_epoch.epoch >= 0)
        )

    def __repr__(self) -> str:
        return (
            f"CachedPartition({self.partition}, fetch offset {self.request.fetch_offset}, "
            f"high watermark {self.high_watermark}, log start {self.log_start_offset})"
        )


class SessionChange(NamedTuple):
    """How many partitions a request has added to its session, updated and removed."""

    added: int
    updated: int
    removed: int


class FetchSession:
    """The partitions of one reader, and the epoch that its next request must carry.

    The request that creates a session decides whether it uses topic ids (v13 and later) or names. With ids, the name
    may be missing: a reader can learn of a new topic before this broker does. Such a partition stays in the session,
    and its result is UNKNOWN_TOPIC_ID until the name is known.

    Two locks guard a session. ``lock`` guards the partitions, their state, and ``epoch``. The lock of the cache shard
    guards the fields of the cache, ``last_used_ms`` and ``cached_size``. Lock order: the shard's lock, then ``lock``.
    """

    __slots__ = (
        "_listing",
        "_unresolved",
        "by_key",
        "cached_size",
        "creation_ms",
        "epoch",
        "id",
        "last_used_ms",
        "lock",
        "privileged",
        "uses_topic_ids",
    )

    def __init__(
        self,
        session_id: int,
        privileged: bool,
        uses_topic_ids: bool,
        partitions: Iterable[CachedPartition],
        creation_ms: int,
    ) -> None:
        self.id = session_id
        self.privileged = privileged
        """Whether the reader is a follower."""
        self.uses_topic_ids = uses_topic_ids
        self.creation_ms = creation_ms
        self.last_used_ms = creation_ms
        self.cached_size = 0
        """The number of partitions that the cache has last accounted for."""
        self.lock = threading.RLock()
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.by_key: dict[_Key, CachedPartition] = {}
        self._unresolved: dict[_Key, CachedPartition] = {}
        """The partitions whose topic name is not known yet."""
        self._listing: tuple[tuple[TopicIdPartition, FetchPartition], ...] | None = None
        """The cached result of :meth:`partitions`; None after a change."""
        for cached in partitions:
            self._add(self._key(cached.partition), cached)

    def _key(self, partition: TopicIdPartition) -> _Key:
        return (partition[0] if self.uses_topic_ids else partition[1], partition[2])

    def _add(self, key: _Key, cached: CachedPartition) -> None:
        self.by_key[key] = cached
        if cached.partition.topic is None:
            self._unresolved[key] = cached

    def __len__(self) -> int:
        return len(self.by_key)

    @property
    def metadata(self) -> FetchMetadata:
        """The session id and epoch that the next request must carry."""
        return FetchMetadata(self.id, self.epoch)

    def find(self, partition: TopicIdPartition) -> CachedPartition | None:
        """Returns the partition in this session. To change it, the caller must hold ``lock`` from here on."""
        return self.by_key.get((partition[0] if self.uses_topic_ids else partition[1], partition[2]))

    def update(self, fetch_data: FetchData, forgotten: Iterable[TopicIdPartition]) -> SessionChange:
        """Applies a request: new partitions go to the end, known ones keep their place."""
        added = updated = removed = 0
        with self.lock:
            for partition, request in fetch_data.items():
                key = self._key(partition)
                cached = self.by_key.get(key)
                if cached is None:
                    self._add(key, CachedPartition(partition, request))
                    added += 1
                else:
                    cached.request = request
                    updated += 1
            for partition in forgotten:
                key = self._key(partition)
                if self.by_key.pop(key, None) is not None:
                    self._unresolved.pop(key, None)
                    removed += 1
            if added or updated or removed:
                self._listing = None
        return SessionChange(added, updated, removed)

    def renew(self, topics: Iterable[FetchTopic]) -> bool:
        """Fast path of :meth:`update` for a request without new partitions; False, without changes, for any other.

        It uses the decoded structs as they are: finding a known partition takes nothing but its key. The caller holds
        ``lock``.
        """
        by_key = self.by_key
        uses_topic_ids = self.uses_topic_ids
        renewed: list[tuple[CachedPartition, FetchPartition]] = []
        for topic in topics:
            which = topic.topic_id if uses_topic_ids else topic.topic
            for request in topic.partitions:
                cached = by_key.get((which, request.partition))
                if cached is None:
                    return False
                renewed.append((cached, request))
        for cached, request in renewed:
            # Do not keep unknown fields that the client has sent.
            request.unknown_tagged_fields = None
            cached.request = request
        if renewed:
            self._listing = None
        return bool(by_key)  # False for an empty session: the manager closes it

    def partitions(self, topic_names: TopicNames) -> tuple[tuple[TopicIdPartition, FetchPartition], ...]:
        """Returns all partitions in their order, each with its parameters.

        The result is a snapshot, rebuilt only after a change, so an idle session costs nothing here, however many
        partitions it has.
        """
        with self.lock:
            if self._unresolved:
                self._resolve(topic_names)
            if self._listing is None:
                self._listing = tuple([(cached.partition, cached.request) for cached in self.by_key.values()])
            return self._listing

    def _resolve(self, topic_names: TopicNames) -> None:
        for key, cached in list(self._unresolved.items()):
            name = topic_names.get(cached.partition.topic_id)
            if name is not None:
                cached.partition = cached.partition._replace(topic=name)
                del self._unresolved[key]
                self._listing = None

    def update_responses(
        self, updates: Mapping[TopicIdPartition, PartitionData], news: list[tuple[TopicIdPartition, PartitionData]]
    ) -> None:
        """Adds the changed partitions to `news`, and remembers their offsets as sent. The caller holds ``lock``.

        A partition with records moves to the end of the order.
        """
        by_key = self.by_key
        uses_topic_ids = self.uses_topic_ids
        for partition, data in updates.items():
            key = (partition[0] if uses_topic_ids else partition[1], partition[2])
            cached = by_key.get(key)
            if cached is not None and cached.maybe_update_response_data(data):
                news.append((partition, data))
                if data.records:
                    del by_key[key]
                    by_key[key] = cached
                    self._listing = None

    def __repr__(self) -> str:
        return (
            f"FetchSession({self.id}, epoch {self.epoch}, {len(self)} partitions, "
            f"{'follower' if self.privileged else 'consumer'}, {'topic ids' if self.uses_topic_ids else 'topic names'})"
        )
