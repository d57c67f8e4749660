"""Incremental fetch sessions (KIP-227): what a broker remembers about a reader between two of its requests.

A consumer or a follower of a thousand partitions asks for the same thousand again and again, and nearly all answers
are "nothing new". A session makes both sides leave that out::

    reader                                                 broker
    Fetch session 0, epoch 0: t-0 at 5, t-1 at 9, t-2 at 0
                        session 77: all three, as they are
    Fetch session 77, epoch 1: t-0 at 8                    the others have not moved
                        session 77: t-2                    only t-2 has something to tell
    Fetch session 77, epoch 2: t-2 at 4, forget t-1
                        session 77: nothing

For that the broker keeps, per partition, what the reader asked last (offset, limit, epochs) and what it was told last
(high watermark and log start). A partition is in the answer if that has changed, if there are records, or if there is
something wrong with it.

The epoch counts the requests of a session. One that does not carry the expected number is a duplicate or comes from a
reader that has lost an answer; either way the two sides may disagree about the state, so it is refused and the reader
starts again with a full request. Nothing is ever repaired.

Partitions are listed in an order that is kept from request to request, and one that has returned records moves to the
end. An answer is filled in that order until it is full, so without this the busy partition at the front would starve
the rest.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from barnabas.common.identifiers import Uuid
from barnabas.protocol.messages.fetch import FetchPartition, FetchTopic, PartitionData

INVALID_SESSION_ID: Final = 0
"""In a request: there is no session yet. In an answer: none was made."""
INITIAL_EPOCH: Final = 0
"""A full request that asks for a session."""
FINAL_EPOCH: Final = -1
"""A full request that wants no session, and closes the one it names."""
MAX_EPOCH: Final = 2**31 - 1
INVALID_OFFSET: Final = -1


def next_epoch(epoch: int) -> int:
    """The epoch of the request after this one: 1 after the largest, as 0 has a meaning; there is none after the final.

    >>> next_epoch(INITIAL_EPOCH), next_epoch(MAX_EPOCH), next_epoch(FINAL_EPOCH)
    (1, 1, -1)
    """
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == MAX_EPOCH else epoch + 1


class FetchMetadata(NamedTuple):
    """The session that a request belongs to, and which of its requests it is."""

    session_id: int
    epoch: int

    @property
    def is_full(self) -> bool:
        """Whether the request lists all its partitions, instead of what has changed."""
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
"""What the first request of a reader carries."""
LEGACY: Final = FetchMetadata(INVALID_SESSION_ID, FINAL_EPOCH)
"""What a request stands for that is too old to know of sessions."""


class TopicIdPartition(NamedTuple):
    """A partition by the id of its topic, by the topic's name, or by both.

    Requests before v13 have the name alone, and the id is zero. Later ones have the id alone, and the name is looked
    up; it is None while this broker does not know the id.
    """

    topic_id: Uuid
    topic: str | None
    partition: int

    def __str__(self) -> str:
        return f"{self.topic_id.hex() if self.topic is None else self.topic}-{self.partition}"


FetchData = Mapping[TopicIdPartition, FetchPartition]
"""What a request asks, by partition, in its order."""
TopicNames = Mapping[Uuid, str]
_Key = tuple[Uuid | str | None, int]


class CachedPartition:
    """A partition of a session: what was last asked about it, and what was last said.

    A broker may have millions of these. ``request`` is the struct that the request was decoded into, and is replaced
    as a whole, never changed: a fetch that waits in the purgatory goes on with the one it started with.
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
        """Of the log here. The reader's own is in ``request``."""

    def maybe_update_response_data(self, data: PartitionData, update: bool = True) -> bool:
        """Whether the reader has to be told; and with ``update``, that it is now."""
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
                # No partition has this watermark, so the first answer after the error is news, whatever it says.
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
    """How many partitions a request has added to its session, altered, and taken out."""

    added: int
    updated: int
    removed: int


class FetchSession:
    """One reader's partitions, and the epoch that its next request must carry.

    A session belongs to the kind of request that made it: with topic ids (v13 and later) or with names. In the first
    kind the id says which partition it is, and the name may be missing: a reader can hear of a new topic before this
    broker does. Such a partition stays in the session and is answered with UNKNOWN_TOPIC_ID until the name turns up.

    Two locks guard it. ``lock`` is for the partitions, what is remembered of them, and ``epoch``. What the cache needs
    for its bookkeeping, ``last_used_ms`` and ``cached_size``, is under the lock of the cache shard instead. Who wants
    both takes the shard's first.
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
        """Whether it is a follower's."""
        self.uses_topic_ids = uses_topic_ids
        self.creation_ms = creation_ms
        self.last_used_ms = creation_ms
        self.cached_size = 0
        """Its number of partitions when the cache last looked."""
        self.lock = threading.RLock()
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.by_key: dict[_Key, CachedPartition] = {}
        self._unresolved: dict[_Key, CachedPartition] = {}
        """Those whose topic has no name yet."""
        self._listing: tuple[tuple[TopicIdPartition, FetchPartition], ...] | None = None
        """All partitions as :meth:`partitions` shows them, until something about them changes."""
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
        """What the next request must carry."""
        return FetchMetadata(self.id, self.epoch)

    def find(self, partition: TopicIdPartition) -> CachedPartition | None:
        """The partition in this session. Who changes it holds ``lock`` from here on."""
        return self.by_key.get((partition[0] if self.uses_topic_ids else partition[1], partition[2]))

    def get_fetch_offset(self, partition: TopicIdPartition) -> int | None:
        with self.lock:
            cached = self.find(partition)
            return None if cached is None else cached.request.fetch_offset

    def update(self, fetch_data: FetchData, forgotten: Iterable[TopicIdPartition]) -> SessionChange:
        """Takes in what a request says: new partitions go to the end, known ones stay where they are."""
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
        """As :meth:`update` for a request that lists nothing new; false, and nothing has changed, for any other.

        It takes what was decoded as it is: to find a partition that is known nothing has to be made, or looked up,
        beside its key. The caller holds ``lock``.
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
            # Whatever else the client has put in is not to be kept.
            request.unknown_tagged_fields = None
            cached.request = request
        if renewed:
            self._listing = None
        return bool(by_key)  # one without partitions ends

    def partitions(self, topic_names: TopicNames) -> tuple[tuple[TopicIdPartition, FetchPartition], ...]:
        """All partitions in their order, each with what the reader asks.

        This is a snapshot: it is made again only after something has changed, so an idle session costs nothing here,
        however many partitions it has.
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
        """Adds to `news` what the reader has to be told, and remembers that it is. The caller holds ``lock``.

        A partition with records has had its turn, and goes to the end of the order.
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
