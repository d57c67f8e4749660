"""The cache of fetch sessions: limits and eviction.

A session costs memory for as long as its reader may come back, and readers do not announce that they leave. So the
cache limits the number of sessions (``max.incremental.fetch.session.cache.slots``), and the number of partitions in
all of them. If the cache is full, a new session must evict another one. Otherwise the reader gets session id 0, and
continues to send full requests: slower, never wrong.

A new session may evict

1. a session that has not been used for two minutes; failing that,
2. if the reader is a follower: the smallest session of a consumer, or
3. the smallest session of its own kind, if that is smaller than the new one and has been in use for two minutes.

So followers take precedence over consumers: they are few, and the high watermark depends on them. Large sessions take
precedence over small ones: they save more. The two minutes in the third rule keep two groups of readers of similar size
from evicting each other at every request.
"""

from __future__ import annotations

import logging
import random
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from barnabas.metrics.yammer.meter import Meter
from barnabas.metrics.yammer.registry import KafkaMetricsGroup, MetricsRegistry
from barnabas.replica.fetch.fetch_session import INVALID_SESSION_ID, CachedPartition, FetchSession

log = logging.getLogger(__name__)

DEFAULT_SLOTS: Final = 1_000
MIN_EVICTION_MS: Final = 120_000
SHARDS: Final = 8
MAX_PARTITIONS: Final = 128_000
"""The limit on the partitions of all sessions of a cache. Kafka limits only the number of sessions, and keeps a session
of any size, at half a kilobyte for each partition, until its slot is needed."""
_MAX_ID: Final = 2**31 - 1


class _EvictionRank(NamedTuple):
    """The eviction order of sessions: the lowest is evicted first. The id only breaks ties."""

    privileged: bool
    size: int
    session_id: int


class FetchSessionCacheShard:
    """A part of the cache: the sessions with ids in one range.

    ``lock`` guards all fields, and ``last_used_ms`` and ``cached_size`` of the sessions. The lock of a session may be
    taken while this one is held, never the other way round.

    Times are monotonic milliseconds, so an ordered dict keeps the sessions in the order of their last use. An eviction
    scans all sessions: about a hundred, and only when the cache is full. Sorted trees would have to be updated on every
    fetch.
    """

    def __init__(
        self,
        max_entries: int,
        eviction_ms: int = MIN_EVICTION_MS,
        *,
        max_partitions: int = MAX_PARTITIONS,
        number: int = 0,
        id_range: int = _MAX_ID,
        randomness: random.Random | None = None,
        evictions: Meter | None = None,
    ) -> None:
        if not max_entries < id_range - 1:
            raise ValueError(f"{max_entries} sessions cannot each have an id out of {id_range}")
        self.number = number
        self.lock = threading.RLock()
        self._max_entries = max_entries
        self.max_partitions = max_partitions
        """The limit on the partitions of all sessions together."""
        self._eviction_ms = eviction_ms
        self._ids = range(max(1, number * id_range), (number + 1) * id_range)
        # The id authenticates the reader of a session: ids that can be guessed would be a security hole.
        self._random = randomness or random.SystemRandom()
        self._evictions = evictions
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        """The least recently used session comes first."""
        self._total_partitions = 0

    def __len__(self) -> int:
        with self.lock:
            return len(self._sessions)

    @property
    def total_partitions(self) -> int:
        with self.lock:
            return self._total_partitions

    def get(self, session_id: int) -> FetchSession | None:
        with self.lock:
            return self._sessions.get(session_id)

    def new_session_id(self) -> int:
        """Returns an unused id in the range of this shard."""
        with self.lock:
            while True:
                session_id = self._ids[self._random.randrange(len(self._ids))]
                if session_id not in self._sessions:
                    return session_id

    def maybe_create_session(
        self,
        now_ms: int,
        privileged: bool,
        uses_topic_ids: bool,
        size: int,
        partitions: Callable[[], Iterable[CachedPartition]],
    ) -> int:
        """Creates a session if there is room for one of this size, or eviction makes room; returns its id, or 0.

        `partitions` is called only then: a full cache can least afford to create thousands of objects in vain.
        """
        with self.lock:
            if (
                size > self.max_partitions
                or (not self._has_room(size) and not self._try_evict(privileged, size, now_ms))
                or not self._has_room(size)
            ):
                log.debug("No room for a fetch session of %d partitions (follower: %s)", size, privileged)
                return INVALID_SESSION_ID
            session = FetchSession(self.new_session_id(), privileged, uses_topic_ids, partitions(), now_ms)
            self._sessions[session.id] = session
            self.touch(session, now_ms)
            log.debug("Created %r", session)
            return session.id

    def _has_room(self, size: int) -> bool:
        return len(self._sessions) < self._max_entries and self._total_partitions + size <= self.max_partitions

    def has_room_for(self, session: FetchSession) -> bool:
        """Whether a session of this shard may keep its present size. The caller holds both locks."""
        return self._total_partitions - session.cached_size + len(session.by_key) <= self.max_partitions

    def _try_evict(self, privileged: bool, size: int, now_ms: int) -> bool:
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms > self._eviction_ms:
            self._evict(oldest)
            return True
        candidates = [
            _EvictionRank(session.privileged, session.cached_size, session.id)
            for session in self._sessions.values()
            if session.last_used_ms - session.creation_ms > self._eviction_ms or (privileged and not session.privileged)
        ]
        if not candidates:
            return False
        least = min(candidates)
        if _EvictionRank(privileged, size, INVALID_SESSION_ID) < least:
            return False
        self._evict(self._sessions[least.session_id])
        return True

    def _evict(self, session: FetchSession) -> None:
        log.debug("Evicting %r", session)
        self.remove(session.id)
        if self._evictions is not None:
            self._evictions.mark()

    def remove(self, session_id: int) -> FetchSession | None:
        """Removes a session; a request of it that is under way still gets its response."""
        with self.lock:
            session = self._sessions.pop(session_id, None)
            if session is not None:
                self._total_partitions -= session.cached_size
            return session

    def touch(self, session: FetchSession, now_ms: int) -> None:
        """Records that a session was used, and its current size."""
        with self.lock:
            size = len(session.by_key)
            self._sessions.move_to_end(session.id)
            self._total_partitions += size - session.cached_size
            session.cached_size = size
            session.last_used_ms = now_ms

    def __repr__(self) -> str:
        return f"FetchSessionCacheShard({self.number}, {len(self)} of {self._max_entries} sessions)"


class FetchSessionCache:
    """All shards. The id of a session determines its shard; new sessions go to the shards in turn.

    Each shard has its own lock, so only readers in the same shard contend. In exchange, a new session looks for room in
    one shard only.
    """

    def __init__(
        self,
        slots: int = DEFAULT_SLOTS,
        eviction_ms: int = MIN_EVICTION_MS,
        *,
        shards: int = SHARDS,
        randomness: random.Random | None = None,
        metrics: MetricsRegistry | None = None,
    ) -> None:
        if slots < 0 or shards < 1:
            raise ValueError(f"a cache of {slots} fetch sessions in {shards} shards")
        shards = max(1, min(shards, slots))
        self._id_range = _MAX_ID // shards
        evictions = None
        if metrics is not None:
            group = KafkaMetricsGroup(metrics, "kafka.server", "FetchSessionCache")
            evictions = group.new_meter("IncrementalFetchSessionEvictionsPerSec", "evictions")
            group.new_gauge("NumIncrementalFetchSessions", self.__len__)
            group.new_gauge("NumIncrementalFetchPartitionsCached", lambda: self.total_partitions)
        self.shards: Sequence[FetchSessionCacheShard] = tuple(
            FetchSessionCacheShard(
                slots // shards + (number < slots % shards),
                eviction_ms,
                max_partitions=MAX_PARTITIONS // shards,
                number=number,
                id_range=self._id_range,
                randomness=randomness,
                evictions=evictions,
            )
            for number in range(shards)
        )
        self._turn_lock = threading.Lock()
        """Guards ``_turn``. Nothing is called while it is held."""
        self._turn = 0

    def shard_of(self, session_id: int) -> FetchSessionCacheShard | None:
        """Returns the shard of a session id, None if the id is out of range: clients may send any number."""
        if session_id <= 0:
            return None
        number = session_id // self._id_range
        return self.shards[number] if number < len(self.shards) else None

    def next_shard(self) -> FetchSessionCacheShard:
        with self._turn_lock:
            number = self._turn
            self._turn = (number + 1) % len(self.shards)
        return self.shards[number]

    def get(self, session_id: int) -> FetchSession | None:
        shard = self.shard_of(session_id)
        return None if shard is None else shard.get(session_id)

    def remove(self, session_id: int) -> FetchSession | None:
        shard = self.shard_of(session_id)
        return None if shard is None else shard.remove(session_id)

    def __len__(self) -> int:
        return sum(len(shard) for shard in self.shards)

    @property
    def total_partitions(self) -> int:
        return sum(shard.total_partitions for shard in self.shards)
