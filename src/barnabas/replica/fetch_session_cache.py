"""The cache of fetch sessions: how many there may be, and which has to go.

A session costs memory for as long as its reader may come back, and readers do not say when they will not. So there is
room for so many (``max.incremental.fetch.session.cache.slots``), and for so many partitions in all of them. A newcomer
that finds the cache full gets a session only if it can take the place of another. Otherwise it is told "no session" and
sends full requests from then on: slower, never wrong.

A newcomer may evict

1. a session that nobody has used for two minutes; failing that,
2. if it is a follower: the smallest session of a consumer, or
3. the smallest session of its own kind, if that is smaller than itself and has been in use for two minutes.

So followers, of which there are few and on which the high watermark depends, come before consumers, and large sessions,
which save most, before small ones. The two minutes in the third rule keep two groups of readers of similar size from
throwing each other out at every request.
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
from barnabas.replica.fetch_session import INVALID_SESSION_ID, CachedPartition, FetchSession

log = logging.getLogger(__name__)

DEFAULT_SLOTS: Final = 1_000
MIN_EVICTION_MS: Final = 120_000
SHARDS: Final = 8
MAX_PARTITIONS: Final = 128_000
"""How many partitions the sessions of a cache may have in all. Kafka bounds the number of sessions only, and a session
of any size is kept, at half a kilobyte for each partition, for as long as nobody needs its slot."""
_MAX_ID: Final = 2**31 - 1


class _EvictionRank(NamedTuple):
    """How much a session is worth: the lowest goes first. The id only settles ties."""

    privileged: bool
    size: int
    session_id: int


class FetchSessionCacheShard:
    """A part of the cache: the sessions with ids in one range.

    ``lock`` guards everything in it, and ``last_used_ms`` and ``cached_size`` of its sessions. The lock of a session
    may be taken while this one is held, never the other way round.

    Times are steady milliseconds that never go back, so the order in which sessions were last used is the order of a
    linked dict. Which one to evict is found by looking at all of them: that is a hundred or so, and happens only when
    the cache is full, whereas sorted trees would have to be kept up to date on every fetch.
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
        """How many partitions all sessions together may have."""
        self._eviction_ms = eviction_ms
        self._ids = range(max(1, number * id_range), (number + 1) * id_range)
        # A reader proves by the id that it is the session's: an id that can be guessed would be a hole.
        self._random = randomness or random.SystemRandom()
        self._evictions = evictions
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        """The one that was not used for the longest time comes first."""
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
        """A number that is in this shard's range and not in use."""
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
        """Makes a session if there is, or can be made, room for one of this size; the id of it, or none's.

        The partitions are asked for only then: to make thousands of objects just to be turned away is what a full
        cache can least afford.
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
        """Takes a session out; a request that is under way with it still gets its answer."""
        with self.lock:
            session = self._sessions.pop(session_id, None)
            if session is not None:
                self._total_partitions -= session.cached_size
            return session

    def touch(self, session: FetchSession, now_ms: int) -> None:
        """The session is in use, and may have got another size."""
        with self.lock:
            size = len(session.by_key)
            self._sessions.move_to_end(session.id)
            self._total_partitions += size - session.cached_size
            session.cached_size = size
            session.last_used_ms = now_ms

    def __repr__(self) -> str:
        return f"FetchSessionCacheShard({self.number}, {len(self)} of {self._max_entries} sessions)"


class FetchSessionCache:
    """All shards. A session's id says which one it is in; new ones are handed out to the shards in turn.

    Only the shards have locks, so readers get in each other's way only if they meet in one. The price is that a
    newcomer looks for room in one shard alone.
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
        """Where a session is if it is anywhere. The number comes from a client, which may send any."""
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
