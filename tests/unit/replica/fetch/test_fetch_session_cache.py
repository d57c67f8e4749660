"""Which sessions there is room for, and which of them have to go."""

from __future__ import annotations

import random
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.common.identifiers import ZERO_UUID
from barnabas.metrics.names import MBeanName
from barnabas.metrics.yammer.meter import Meter
from barnabas.metrics.yammer.registry import Gauge, MetricsRegistry
from barnabas.protocol.messages.fetch import FetchPartition
from barnabas.replica.fetch.fetch_session import INVALID_SESSION_ID, CachedPartition, TopicIdPartition
from barnabas.replica.fetch.fetch_session_cache import (
    DEFAULT_SLOTS,
    MAX_PARTITIONS,
    MIN_EVICTION_MS,
    FetchSessionCache,
    FetchSessionCacheShard,
)

pytestmark = pytest.mark.mechanism("R07")

MINUTE = 60_000


def partitions(count: int) -> list[CachedPartition]:
    return [CachedPartition(TopicIdPartition(ZERO_UUID, "t", index), FetchPartition()) for index in range(count)]


def create(shard: FetchSessionCacheShard, now: int, size: int, follower: bool = False) -> int:
    return shard.maybe_create_session(now, follower, True, size, lambda: partitions(size))


def touch(shard: FetchSessionCacheShard, session_id: int, now: int) -> None:
    session = shard.get(session_id)
    assert session is not None
    shard.touch(session, now)


def shard_of(slots: int) -> FetchSessionCacheShard:
    return FetchSessionCacheShard(slots, randomness=random.Random(3))


class TestPartitions:
    """Sessions are bounded in number, and so are their partitions."""

    def shard(self, most: int) -> FetchSessionCacheShard:
        return FetchSessionCacheShard(100, max_partitions=most, randomness=random.Random(3))

    def test_a_session_that_is_too_large_is_not_kept(self) -> None:
        shard = self.shard(10)
        assert create(shard, 0, 11, follower=True) == INVALID_SESSION_ID
        assert create(shard, 0, 10) != INVALID_SESSION_ID

    def test_a_session_that_is_too_large_evicts_no_other(self) -> None:
        shard = self.shard(10)
        idle = create(shard, 0, 6)
        assert create(shard, MIN_EVICTION_MS + 1, 11, follower=True) == INVALID_SESSION_ID
        assert shard.get(idle) is not None

    def test_all_sessions_share_the_room(self) -> None:
        shard = self.shard(10)
        assert create(shard, 0, 6) != INVALID_SESSION_ID
        assert create(shard, 0, 5) == INVALID_SESSION_ID
        assert create(shard, 0, 4) != INVALID_SESSION_ID

    def test_an_idle_session_makes_room(self) -> None:
        shard = self.shard(10)
        create(shard, 0, 6)
        assert create(shard, MIN_EVICTION_MS + 1, 10) != INVALID_SESSION_ID
        assert shard.total_partitions == 10

    def test_one_eviction_may_not_be_enough(self) -> None:
        shard = self.shard(10)
        for _ in range(5):
            create(shard, 0, 2)
        assert create(shard, MIN_EVICTION_MS + 1, 8) == INVALID_SESSION_ID

    def test_the_whole_cache_is_bounded(self) -> None:
        cache = FetchSessionCache()
        assert sum(shard.max_partitions for shard in cache.shards) == MAX_PARTITIONS
        most = cache.shards[0].max_partitions
        assert len(cache.shards) > 1
        assert create(cache.shards[0], 0, most) != INVALID_SESSION_ID
        assert create(cache.shards[0], 0, 1) == INVALID_SESSION_ID


class TestEviction:
    def test_while_there_is_room_everybody_gets_a_session(self) -> None:
        shard = shard_of(3)
        ids = {create(shard, 0, 1) for _ in range(3)}
        assert INVALID_SESSION_ID not in ids
        assert len(ids) == len(shard) == 3

    def test_no_slots_no_sessions(self) -> None:
        assert create(shard_of(0), 0, 5, follower=True) == INVALID_SESSION_ID

    def test_partitions_are_not_made_for_a_session_that_is_not(self) -> None:
        shard = shard_of(0)
        shard.maybe_create_session(0, False, True, 1, lambda: pytest.fail("asked for partitions"))

    def test_a_session_unused_for_long_gives_way_to_anybody(self) -> None:
        shard = shard_of(2)
        old = create(shard, 0, 50, follower=True)
        other = create(shard, 1, 50)
        assert create(shard, MIN_EVICTION_MS, 1) == INVALID_SESSION_ID, "not yet"
        new = create(shard, MIN_EVICTION_MS + 1, 1)
        assert new != INVALID_SESSION_ID
        assert shard.get(old) is None
        assert shard.get(other) is not None

    def test_of_the_unused_the_one_unused_longest_goes(self) -> None:
        shard = shard_of(2)
        first, second = create(shard, 0, 1), create(shard, 1, 1)
        touch(shard, first, 2)
        create(shard, 10 * MINUTE, 1)
        assert shard.get(second) is None
        assert shard.get(first) is not None

    def test_a_consumer_does_not_evict_one_that_has_just_come(self) -> None:
        shard = shard_of(1)
        create(shard, 0, 1)
        assert create(shard, 1 * MINUTE, 100) == INVALID_SESSION_ID

    @pytest.mark.parametrize(("size", "evicts"), [(4, False), (5, False), (6, True)])
    def test_a_larger_one_evicts_a_smaller_one_that_has_had_its_time(self, size: int, evicts: bool) -> None:
        shard = shard_of(1)
        small = create(shard, 0, 5)
        touch(shard, small, 3 * MINUTE)
        assert (create(shard, 3 * MINUTE, size) != INVALID_SESSION_ID) is evicts
        assert (shard.get(small) is None) is evicts

    def test_having_had_its_time_is_judged_when_it_is_used(self) -> None:
        shard = shard_of(1)
        small = create(shard, 0, 5)
        touch(shard, small, MIN_EVICTION_MS)
        assert create(shard, MIN_EVICTION_MS + 10, 6) == INVALID_SESSION_ID
        touch(shard, small, MIN_EVICTION_MS + 11)
        assert create(shard, MIN_EVICTION_MS + 11, 6) != INVALID_SESSION_ID

    def test_the_smallest_goes_first(self) -> None:
        shard = shard_of(3)
        ids = [create(shard, 0, size) for size in (7, 3, 5)]
        for session_id in ids:
            touch(shard, session_id, 3 * MINUTE)
        create(shard, 3 * MINUTE, 6)
        assert [shard.get(session_id) is not None for session_id in ids] == [True, False, True]

    def test_a_follower_evicts_any_consumer_at_once_and_the_smallest_first(self) -> None:
        shard = shard_of(2)
        large, small = create(shard, 0, 100), create(shard, 0, 50)
        assert create(shard, 1, 1, follower=True) != INVALID_SESSION_ID
        assert shard.get(small) is None
        assert shard.get(large) is not None

    def test_a_consumer_never_evicts_a_follower_in_use(self) -> None:
        shard = shard_of(1)
        follower = create(shard, 0, 1, follower=True)
        touch(shard, follower, 10 * MINUTE)
        assert create(shard, 10 * MINUTE, 1_000) == INVALID_SESSION_ID

    def test_followers_among_themselves_go_by_size_and_time(self) -> None:
        shard = shard_of(1)
        first = create(shard, 0, 5, follower=True)
        assert create(shard, 1 * MINUTE, 9, follower=True) == INVALID_SESSION_ID
        touch(shard, first, 3 * MINUTE)
        assert create(shard, 3 * MINUTE, 5, follower=True) == INVALID_SESSION_ID
        assert create(shard, 3 * MINUTE, 6, follower=True) != INVALID_SESSION_ID

    def test_a_follower_prefers_a_consumer_to_a_smaller_follower(self) -> None:
        shard = shard_of(2)
        follower, consumer = create(shard, 0, 1, follower=True), create(shard, 0, 100)
        touch(shard, follower, 3 * MINUTE)
        touch(shard, consumer, 3 * MINUTE)
        create(shard, 3 * MINUTE, 50, follower=True)
        assert shard.get(consumer) is None
        assert shard.get(follower) is not None

    def test_the_size_that_counts_is_that_of_the_last_request(self) -> None:
        shard = shard_of(1)
        session_id = create(shard, 0, 5)
        session = shard.get(session_id)
        assert session is not None
        session.update({TopicIdPartition(ZERO_UUID, "t", index): FetchPartition() for index in range(5, 12)}, ())
        shard.touch(session, 3 * MINUTE)
        assert session.cached_size == 12
        assert create(shard, 3 * MINUTE, 12) == INVALID_SESSION_ID
        assert create(shard, 3 * MINUTE, 13) != INVALID_SESSION_ID

    @given(
        st.lists(
            st.tuples(
                st.booleans(), st.integers(1, 6), st.integers(0, 50_000), st.sampled_from(["create", "use", "close"])
            ),
            max_size=60,
        ),
        st.integers(0, 2**32),
    )
    def test_it_evicts_what_the_rules_say_and_never_grows(
        self, steps: list[tuple[bool, int, int, str]], seed: int
    ) -> None:
        """Against the rules as two sorted trees that are brought up to date on every use, the way Kafka keeps them."""
        choice = random.Random(seed)
        shard = FetchSessionCacheShard(3, randomness=random.Random(seed))
        now = 0
        model: dict[int, tuple[int, int, bool, int]] = {}  # id: last used, created, follower, size
        evictable_by_all: dict[int, tuple[bool, int, int]] = {}
        evictable_by_followers: dict[int, tuple[bool, int, int]] = {}

        def forget(session_id: int) -> None:
            for table in (model, evictable_by_all, evictable_by_followers):
                table.pop(session_id, None)

        def use(session_id: int, created: int, follower: bool, size: int) -> None:
            forget(session_id)
            model[session_id] = (now, created, follower, size)
            if now - created > MIN_EVICTION_MS:
                evictable_by_all[session_id] = (follower, size, session_id)
            if not follower or now - created > MIN_EVICTION_MS:
                evictable_by_followers[session_id] = (follower, size, session_id)

        def victim(follower: bool, size: int) -> int | None:
            oldest = next(iter(model))
            if now - model[oldest][0] > MIN_EVICTION_MS:
                return oldest
            ranks = (evictable_by_followers if follower else evictable_by_all).values()
            if not ranks or (follower, size, 0) < min(ranks):
                return None
            return min(ranks)[2]

        for follower, size, wait, what in steps:
            now += wait
            if what == "create":
                expected = victim(follower, size) if len(model) == 3 else None
                room = len(model) < 3 or expected is not None
                session_id = create(shard, now, size, follower)
                assert (session_id != INVALID_SESSION_ID) is room
                if expected is not None:
                    forget(expected)
                if room:
                    use(session_id, now, follower, size)
            elif model:
                session_id = choice.choice(list(model))
                if what == "use":
                    _, created, is_follower, old_size = model[session_id]
                    touch(shard, session_id, now)
                    use(session_id, created, is_follower, old_size)
                else:
                    assert shard.remove(session_id) is not None
                    forget(session_id)
            assert {session_id for session_id in model if shard.get(session_id) is not None} == set(model)
            assert len(shard) == len(model)
            assert shard.total_partitions == sum(size for *_, size in model.values())


class TestShard:
    def test_partitions_are_counted(self) -> None:
        shard = shard_of(3)
        first, second = create(shard, 0, 4), create(shard, 0, 6)
        assert shard.total_partitions == 10
        session = shard.get(first)
        assert session is not None
        session.update({}, [cached.partition for cached in partitions(3)])
        assert shard.total_partitions == 10, "as of the last use"
        del session
        shard.remove(second)
        assert shard.total_partitions == 4
        assert shard.remove(second) is None

    def test_ids_are_new_and_in_range(self) -> None:
        shard = FetchSessionCacheShard(50, number=2, id_range=100, randomness=random.Random(1))
        ids = [create(shard, 0, 1) for _ in range(50)]
        assert len(set(ids)) == 50
        assert all(200 <= session_id < 300 for session_id in ids)

    def test_no_session_has_the_id_of_none(self) -> None:
        shard = FetchSessionCacheShard(8, id_range=10, randomness=random.Random(1))
        assert {create(shard, 0, 1) for _ in range(8)} <= set(range(1, 10))

    def test_more_sessions_than_ids_is_a_mistake(self) -> None:
        with pytest.raises(ValueError, match="cannot each have an id"):
            FetchSessionCacheShard(10, id_range=10)


class TestShards:
    def test_the_id_says_which_shard(self) -> None:
        cache = FetchSessionCache()
        assert len(cache.shards) == 8
        for shard in cache.shards:
            for _ in range(20):
                assert cache.shard_of(shard.new_session_id()) is shard

    @pytest.mark.parametrize("session_id", [0, -1, -(2**31), 2**31 - 1, 8 * ((2**31 - 1) // 8)])
    def test_an_id_that_no_shard_gives_out_is_in_none(self, session_id: int) -> None:
        cache = FetchSessionCache()
        assert cache.shard_of(session_id) is None
        assert cache.get(session_id) is None
        assert cache.remove(session_id) is None

    def test_new_sessions_are_dealt_out_in_turn(self) -> None:
        cache = FetchSessionCache(shards=3)
        assert [cache.next_shard().number for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]

    @pytest.mark.parametrize("slots", [0, 1, 5, 8, 13, DEFAULT_SLOTS])
    def test_all_slots_are_there(self, slots: int) -> None:
        cache = FetchSessionCache(slots)
        for _ in range(slots + 10):
            create(cache.next_shard(), 0, 1)
        assert len(cache) == slots
        assert cache.total_partitions == slots

    def test_nonsense_is_refused(self) -> None:
        with pytest.raises(ValueError, match="-1 fetch sessions"):
            FetchSessionCache(-1)
        with pytest.raises(ValueError, match="in 0 shards"):
            FetchSessionCache(1, shards=0)

    def test_metrics_have_kafkas_names(self) -> None:
        registry = MetricsRegistry()
        cache = FetchSessionCache(1, metrics=registry)
        create(cache.next_shard(), 0, 3)
        create(cache.next_shard(), 1, 2, follower=True)
        found = {name: registry.get(MBeanName("kafka.server", "FetchSessionCache", name)) for name in METRICS}
        sessions, cached, evictions = (found[name] for name in METRICS)
        assert isinstance(sessions, Gauge)
        assert isinstance(cached, Gauge)
        assert isinstance(evictions, Meter)
        assert (sessions.value(), cached.value(), evictions.count) == (1, 2, 1)

    def test_many_threads(self) -> None:
        cache = FetchSessionCache(40, shards=4)
        barrier = threading.Barrier(4)
        failures: list[BaseException] = []

        def churn(seed: int) -> None:
            choice = random.Random(seed)
            mine: list[int] = []
            try:
                barrier.wait(60)
                for _ in range(300):
                    shard = cache.next_shard()
                    session_id = create(shard, 0, choice.randint(1, 3), choice.random() < 0.5)
                    if session_id != INVALID_SESSION_ID:
                        mine.append(session_id)
                    if mine and choice.random() < 0.5:
                        cache.remove(mine.pop(choice.randrange(len(mine))))
            except BaseException as failure:  # noqa: BLE001 - shown by the test
                failures.append(failure)

        threads = [threading.Thread(target=churn, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert failures == []
        assert len(cache) <= 40
        assert cache.total_partitions == sum(
            session.cached_size for shard in cache.shards for session in list(shard._sessions.values())
        )


METRICS = (
    "NumIncrementalFetchSessions",
    "NumIncrementalFetchPartitionsCached",
    "IncrementalFetchSessionEvictionsPerSec",
)
