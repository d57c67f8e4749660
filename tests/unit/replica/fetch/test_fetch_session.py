"""What a session remembers, and which requests it takes."""

from __future__ import annotations

import gc
import random
import threading
from collections.abc import Iterable, Mapping

import pytest

from barnabas import _kernels
from barnabas.common.clock import MockClock
from barnabas.common.errors import Errors
from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    NodeEndpoint,
    PartitionData,
    ReplicaState,
)
from barnabas.replica.fetch.fetch_context import (
    FetchContext,
    FullFetchContext,
    IncrementalFetchContext,
    SessionErrorContext,
    SessionlessFetchContext,
)
from barnabas.replica.fetch.fetch_session import (
    FINAL_EPOCH,
    INITIAL,
    INITIAL_EPOCH,
    INVALID_SESSION_ID,
    LEGACY,
    MAX_EPOCH,
    CachedPartition,
    FetchMetadata,
    FetchSession,
    TopicIdPartition,
    next_epoch,
)
from barnabas.replica.fetch.fetch_session_cache import FetchSessionCache
from barnabas.replica.fetch.fetch_session_manager import (
    FetchManager,
    fetch_data,
    forgotten_partitions,
    replica_id,
)

pytestmark = pytest.mark.mechanism("R07")

FOO, BAR, ZAR = Uuid(b"f" * 16), Uuid(b"b" * 16), Uuid(b"z" * 16)
NAMES: dict[Uuid, str] = {FOO: "foo", BAR: "bar"}
BY_NAME, BY_ID = 12, 17
"""Versions of the request before and after topic ids."""


def by_name(topic: str, index: int) -> TopicIdPartition:
    return TopicIdPartition(ZERO_UUID, topic, index)


def by_id(topic_id: Uuid, index: int, names: Mapping[Uuid, str] = NAMES) -> TopicIdPartition:
    return TopicIdPartition(topic_id, names.get(topic_id), index)


def asking(**offsets: int) -> dict[TopicIdPartition, FetchPartition]:
    """``asking(foo_0=5)``: partition 0 of foo from offset 5, by name."""
    found = {}
    for name, offset in offsets.items():
        topic, _, index = name.rpartition("_")
        found[by_name(topic, int(index))] = FetchPartition(partition=int(index), fetch_offset=offset)
    return found


def news(context: FetchContext, **fields: object) -> dict[TopicIdPartition, PartitionData]:
    """The same outcome for all partitions of a context."""
    defaults: dict[str, object] = {"high_watermark": 10, "log_start_offset": 0}
    return {partition: PartitionData(**(defaults | fields)) for partition, _ in context.partitions()}  # type: ignore[arg-type]


def sent(response: FetchResponse) -> list[tuple[str, int]]:
    return [(topic.topic, data.partition_index) for topic in response.responses for data in topic.partitions]


def state(context: FetchContext) -> list[CachedPartition]:
    assert isinstance(context, IncrementalFetchContext)
    return list(context.session.by_key.values())


def order(context: FetchContext) -> list[str]:
    return [str(partition) for partition, _ in context.partitions()]


class Broker:
    """A fetch manager and the small change around it."""

    def __init__(self, slots: int = 10) -> None:
        self.clock = MockClock()
        self.cache = FetchSessionCache(slots, shards=1, randomness=random.Random(7))
        self.manager = FetchManager(self.clock, self.cache)

    def context(
        self,
        metadata: FetchMetadata,
        data: Mapping[TopicIdPartition, FetchPartition] | None = None,
        forgotten: Iterable[TopicIdPartition] = (),
        version: int = BY_NAME,
        names: Mapping[Uuid, str] = NAMES,
        is_follower: bool = False,
    ) -> FetchContext:
        return self.manager.new_context(version, metadata, is_follower, data or {}, forgotten, names)

    def open_session(self, **offsets: int) -> FetchMetadata:
        """A session with these partitions, all told; what its first incremental request carries."""
        context = self.context(INITIAL, asking(**offsets))
        response = context.update_and_generate_response_data(news(context))
        assert response.session_id != INVALID_SESSION_ID
        return FetchMetadata(response.session_id, 1)


@pytest.fixture
def broker() -> Broker:
    return Broker()


class TestFetchMetadata:
    def test_epochs_count_up_and_wrap_past_the_one_with_a_meaning(self) -> None:
        assert next_epoch(INITIAL_EPOCH) == 1
        assert next_epoch(41) == 42
        assert next_epoch(MAX_EPOCH) == 1
        assert next_epoch(FINAL_EPOCH) == FINAL_EPOCH
        assert next_epoch(-7) == FINAL_EPOCH

    def test_initial_and_final_are_full_and_the_rest_is_not(self) -> None:
        assert INITIAL.is_full
        assert LEGACY.is_full
        assert FetchMetadata(5, FINAL_EPOCH).is_full
        assert not FetchMetadata(5, 1).is_full
        assert not FetchMetadata(0, 1).is_full
        assert not FetchMetadata(5, -2).is_full

    def test_what_can_come_next(self) -> None:
        metadata = FetchMetadata(5, 3)
        assert metadata.next_incremental() == (5, 4)
        assert metadata.next_close_existing() == (5, FINAL_EPOCH)
        assert metadata.next_close_existing_attempt_new() == (5, INITIAL_EPOCH)

    def test_it_is_readable_in_a_log(self) -> None:
        assert str(INITIAL) == "no session, initial epoch"
        assert str(FetchMetadata(5, 3)) == "session 5, epoch 3"


class TestCachedPartition:
    def cached(self) -> CachedPartition:
        return CachedPartition(by_name("foo", 0), FetchPartition(), high_watermark=10, log_start_offset=2)

    def told(self, **fields: object) -> PartitionData:
        defaults: dict[str, object] = {"high_watermark": 10, "log_start_offset": 2}
        return PartitionData(**(defaults | fields))  # type: ignore[arg-type]

    def test_what_was_said_already_is_not_said_again(self) -> None:
        assert not self.cached().maybe_update_response_data(self.told())

    @pytest.mark.parametrize(
        "fields",
        [
            {"high_watermark": 11},
            {"high_watermark": 9},
            {"log_start_offset": 3},
            {"records": b"x"},
            {"error_code": Errors.NOT_LEADER_OR_FOLLOWER},
            {"preferred_read_replica": 2},
            {"diverging_epoch": EpochEndOffset(epoch=1, end_offset=4)},
        ],
    )
    def test_each_kind_of_news_is_told(self, fields: dict[str, object]) -> None:
        assert self.cached().maybe_update_response_data(self.told(**fields))
        assert self.cached().maybe_update_response_data(self.told(**fields), update=False)

    @pytest.mark.parametrize("fields", [{"records": b""}, {"records": None}, {"diverging_epoch": EpochEndOffset()}])
    def test_nothing_in_a_field_is_no_news(self, fields: dict[str, object]) -> None:
        assert not self.cached().maybe_update_response_data(self.told(**fields))

    def test_offsets_are_news_once(self) -> None:
        cached = self.cached()
        assert cached.maybe_update_response_data(self.told(high_watermark=11, log_start_offset=3))
        assert not cached.maybe_update_response_data(self.told(high_watermark=11, log_start_offset=3))

    def test_looking_does_not_count_as_telling(self) -> None:
        cached = self.cached()
        assert cached.maybe_update_response_data(self.told(high_watermark=11), update=False)
        assert cached.maybe_update_response_data(self.told(log_start_offset=3), update=False)
        assert cached.maybe_update_response_data(self.told(log_start_offset=3), update=False)
        assert cached.maybe_update_response_data(self.told(error_code=3), update=False)
        assert cached.maybe_update_response_data(self.told(high_watermark=11))

    def test_an_error_is_told_every_time_and_so_is_its_end(self) -> None:
        cached = self.cached()
        assert cached.maybe_update_response_data(self.told(error_code=3))
        assert cached.maybe_update_response_data(self.told(error_code=3))
        assert cached.maybe_update_response_data(self.told()), "back to what was said before the error, but it is news"
        assert not cached.maybe_update_response_data(self.told())


class TestFullRequests:
    def test_without_a_session_wanted_none_is_made(self, broker: Broker) -> None:
        context = broker.context(LEGACY, asking(foo_0=5))
        assert type(context) is SessionlessFetchContext
        response = context.update_and_generate_response_data(news(context))
        assert (response.error_code, response.session_id, sent(response)) == (0, INVALID_SESSION_ID, [("foo", 0)])
        assert len(broker.cache) == 0

    def test_a_session_is_made_with_the_response_and_not_before(self, broker: Broker) -> None:
        context = broker.context(INITIAL, asking(foo_0=5, foo_1=6, bar_0=7))
        assert type(context) is FullFetchContext
        assert len(broker.cache) == 0
        response = context.update_and_generate_response_data(news(context))
        assert sent(response) == [("foo", 0), ("foo", 1), ("bar", 0)]
        session = broker.cache.get(response.session_id)
        assert session is not None
        assert (session.epoch, len(session), session.privileged) == (1, 3, False)

    def test_an_error_in_it_is_not_the_last_word(self, broker: Broker) -> None:
        context = broker.context(INITIAL, asking(foo_0=5))
        response = context.update_and_generate_response_data(news(context, error_code=Errors.NOT_LEADER_OR_FOLLOWER))
        context = broker.context(FetchMetadata(response.session_id, 1))
        assert sent(context.update_and_generate_response_data(news(context))) == [("foo", 0)]

    def test_the_session_it_names_is_closed(self, broker: Broker) -> None:
        metadata = broker.open_session(foo_0=5)
        context = broker.context(metadata.next_close_existing_attempt_new(), asking(foo_0=5))
        assert type(context) is FullFetchContext
        assert broker.cache.get(metadata.session_id) is None

    def test_the_final_epoch_closes_and_makes_no_other(self, broker: Broker) -> None:
        metadata = broker.open_session(foo_0=5)
        context = broker.context(metadata.next_close_existing())
        assert type(context) is SessionlessFetchContext
        assert context.update_and_generate_response_data({}).session_id == INVALID_SESSION_ID
        assert len(broker.cache) == 0

    def test_a_full_cache_means_no_session_and_a_complete_response(self) -> None:
        broker = Broker(slots=0)
        context = broker.context(INITIAL, asking(foo_0=5, foo_1=5))
        response = context.update_and_generate_response_data(news(context))
        assert (response.session_id, sent(response)) == (INVALID_SESSION_ID, [("foo", 0), ("foo", 1)])

    def test_a_throttled_reader_gets_an_empty_response_and_no_session(self, broker: Broker) -> None:
        context = broker.context(INITIAL, asking(foo_0=5))
        response = context.get_throttled_response(250)
        assert (response.throttle_time_ms, response.session_id, response.responses) == (250, INVALID_SESSION_ID, [])
        assert len(broker.cache) == 0

    def test_nothing_may_be_omitted(self, broker: Broker) -> None:
        for metadata in (INITIAL, LEGACY):
            assert not broker.context(metadata, asking(foo_0=5)).may_omit(by_name("foo", 0), 10, 0)

    def test_followers_get_privileged_sessions(self, broker: Broker) -> None:
        context = broker.context(INITIAL, asking(foo_0=5), is_follower=True)
        response = context.update_and_generate_response_data(news(context))
        session = broker.cache.get(response.session_id)
        assert session is not None
        assert session.privileged


class TestIncrementalRequests:
    def test_partitions_that_are_not_mentioned_are_read_all_the_same(self, broker: Broker) -> None:
        metadata = broker.open_session(foo_0=5, foo_1=6)
        context = broker.context(metadata)
        assert type(context) is IncrementalFetchContext
        assert [(str(partition), wanted.fetch_offset) for partition, wanted in context.partitions()] == [
            ("foo-0", 5),
            ("foo-1", 6),
        ]

    def test_partitions_without_news_are_left_out(self, broker: Broker) -> None:
        metadata = broker.open_session(foo_0=5, foo_1=6)
        context = broker.context(metadata)
        updates = news(context)
        updates[by_name("foo", 1)].high_watermark = 11
        response = context.update_and_generate_response_data(updates)
        assert (response.error_code, response.session_id, sent(response)) == (0, metadata.session_id, [("foo", 1)])
        context = broker.context(metadata.next_incremental())
        updates = news(context)
        updates[by_name("foo", 1)].high_watermark = 11
        assert sent(context.update_and_generate_response_data(updates)) == []

    def test_new_partitions_are_told_and_changed_ones_are_read_from_their_new_offset(self, broker: Broker) -> None:
        metadata = broker.open_session(foo_0=5, foo_1=6)
        context = broker.context(metadata, asking(foo_1=9, bar_0=1))
        assert order(context) == ["foo-0", "foo-1", "bar-0"]
        assert [request.fetch_offset for _, request in context.partitions()] == [5, 9, 1]
        assert sent(context.update_and_generate_response_data(news(context))) == [("bar", 0)]

    def test_forgotten_partitions_are_gone(self, broker: Broker) -> None:
        metadata = broker.open_session(foo_0=5, foo_1=6)
        context = broker.context(metadata, forgotten=[by_name("foo", 0), by_name("foo", 99)])
        assert order(context) == ["foo-1"]

    def test_what_is_added_and_forgotten_at_once_is_gone(self, broker: Broker) -> None:
        metadata = broker.open_session(foo_0=5)
        assert order(broker.context(metadata, asking(foo_1=1), [by_name("foo", 1)])) == ["foo-0"]

    def test_a_session_without_partitions_is_closed(self, broker: Broker) -> None:
        metadata = broker.open_session(foo_0=5)
        context = broker.context(metadata, forgotten=[by_name("foo", 0)])
        assert type(context) is SessionlessFetchContext
        assert context.update_and_generate_response_data({}).session_id == INVALID_SESSION_ID
        assert len(broker.cache) == 0

    def test_a_partition_that_is_no_longer_in_the_session_gets_no_response(self, broker: Broker) -> None:
        metadata = broker.open_session(foo_0=5)
        context = broker.context(metadata)
        updates = {by_name("foo", 7): PartitionData(high_watermark=3, records=b"x")}
        assert sent(context.update_and_generate_response_data(updates)) == []
        assert context.get_response_size(updates, BY_NAME) == context.get_response_size({}, BY_NAME)
        assert context.may_omit(by_name("foo", 7), 1, 1)

    def test_unknown_session(self, broker: Broker) -> None:
        metadata = broker.open_session(foo_0=5)
        context = broker.context(FetchMetadata(metadata.session_id + 1, 1), asking(foo_0=5))
        assert_session_error(context, Errors.FETCH_SESSION_ID_NOT_FOUND)

    @pytest.mark.parametrize("session_id", [0, -1, -(2**31), 2**31 - 1, 2**31 - 8])
    def test_any_number_may_come_as_a_session_id(self, session_id: int) -> None:
        cache = FetchSessionCache()
        manager = FetchManager(MockClock(), cache)
        context = manager.new_context(BY_NAME, FetchMetadata(session_id, 5), False, {}, (), NAMES)
        assert_session_error(context, Errors.FETCH_SESSION_ID_NOT_FOUND)
        context = manager.new_context(BY_NAME, FetchMetadata(session_id, FINAL_EPOCH), False, {}, (), NAMES)
        assert type(context) is SessionlessFetchContext

    @pytest.mark.parametrize("epoch", [2, 5, MAX_EPOCH, -2])
    def test_an_epoch_that_is_not_the_next_is_refused_and_changes_nothing(self, broker: Broker, epoch: int) -> None:
        metadata = broker.open_session(foo_0=5)
        wrong = broker.context(FetchMetadata(metadata.session_id, epoch), asking(bar_0=1), [by_name("foo", 0)])
        assert_session_error(wrong, Errors.INVALID_FETCH_SESSION_EPOCH)
        assert order(broker.context(metadata)) == ["foo-0"]

    def test_a_request_counts_once(self, broker: Broker) -> None:
        metadata = broker.open_session(foo_0=5)
        assert type(broker.context(metadata)) is IncrementalFetchContext
        assert_session_error(broker.context(metadata), Errors.INVALID_FETCH_SESSION_EPOCH)
        assert type(broker.context(metadata.next_incremental())) is IncrementalFetchContext

    def test_epochs_wrap(self, broker: Broker) -> None:
        metadata = broker.open_session(foo_0=5)
        session = broker.cache.get(metadata.session_id)
        assert session is not None
        session.epoch = MAX_EPOCH
        context = broker.context(FetchMetadata(metadata.session_id, MAX_EPOCH))
        assert context.update_and_generate_response_data(news(context)).error_code == 0
        assert session.metadata == metadata

    def test_a_response_that_comes_after_the_next_request_is_refused(self, broker: Broker) -> None:
        metadata = broker.open_session(foo_0=5)
        slow = broker.context(metadata)
        updates = news(slow, high_watermark=12)
        overtaking = broker.context(metadata.next_incremental())
        empty = slow.get_response_size({}, BY_NAME)
        assert slow.get_response_size(updates, BY_NAME) == empty
        response = slow.update_and_generate_response_data(updates)
        assert (response.error_code, response.responses) == (Errors.INVALID_FETCH_SESSION_EPOCH, [])
        assert slow.get_throttled_response(9).error_code == Errors.INVALID_FETCH_SESSION_EPOCH
        assert sent(overtaking.update_and_generate_response_data(updates)) == [("foo", 0)], "it was not taken as told"

    def test_a_session_that_grows_beyond_the_limit_is_ended(self, broker: Broker) -> None:
        """Otherwise many small requests would make the session that one large request may not make."""
        (shard,) = broker.cache.shards
        shard.max_partitions = 2
        metadata = broker.open_session(foo_0=5)
        grown = broker.context(metadata, asking(foo_1=1))
        assert grown.update_and_generate_response_data(news(grown)).error_code == 0
        refused = broker.context(metadata.next_incremental(), asking(foo_2=1))
        assert refused.update_and_generate_response_data({}).error_code == Errors.FETCH_SESSION_ID_NOT_FOUND
        assert broker.cache.get(metadata.session_id) is None
        assert broker.cache.total_partitions == 0

    def test_sessions_that_grow_share_the_room_with_all_others(self, broker: Broker) -> None:
        """Otherwise many small sessions could each grow to the size that is the limit for all of them."""
        (shard,) = broker.cache.shards
        shard.max_partitions = 3
        one, other = broker.open_session(foo_0=5), broker.open_session(foo_0=5)
        grown = broker.context(one, asking(foo_1=1))
        assert grown.update_and_generate_response_data(news(grown)).error_code == 0
        assert broker.cache.total_partitions == 3
        refused = broker.context(other, asking(foo_1=1))
        assert refused.update_and_generate_response_data({}).error_code == Errors.FETCH_SESSION_ID_NOT_FOUND
        assert broker.cache.get(other.session_id) is None
        assert broker.cache.total_partitions == 2
        swapped = broker.context(one.next_incremental(), asking(foo_2=1), [by_name("foo", 1)])
        assert swapped.update_and_generate_response_data(news(swapped)).error_code == 0
        assert broker.cache.total_partitions == 2

    def test_every_request_moves_the_session_to_the_safe_end_of_the_cache(self) -> None:
        broker = Broker(slots=2)
        used, unused = broker.open_session(foo_0=5), broker.open_session(foo_0=5)
        broker.clock.advance(100_000)
        broker.context(used, asking(foo_1=1, foo_2=1))
        assert broker.cache.total_partitions == 4
        broker.clock.advance(100_000)
        broker.open_session(foo_0=5)
        assert broker.cache.get(used.session_id) is not None
        assert broker.cache.get(unused.session_id) is None

    def test_an_offset_that_moves_is_listed(self, broker: Broker) -> None:
        metadata = broker.open_session(foo_0=5)
        context = broker.context(metadata)
        assert [wanted.fetch_offset for _, wanted in context.partitions()] == [5]
        context = broker.context(metadata.next_incremental(), asking(foo_0=9))
        assert [wanted.fetch_offset for _, wanted in context.partitions()] == [9]

    def test_throttling_leaves_the_session_as_it_was(self, broker: Broker) -> None:
        metadata = broker.open_session(foo_0=5)
        context = broker.context(metadata)
        updates = news(context, high_watermark=12)
        assert context.get_response_size(updates, BY_NAME) > context.get_response_size({}, BY_NAME)
        response = context.get_throttled_response(250)
        assert (response.error_code, response.throttle_time_ms, response.session_id, response.responses) == (
            0,
            250,
            metadata.session_id,
            [],
        )
        context = broker.context(metadata.next_incremental())
        assert sent(context.update_and_generate_response_data(updates)) == [("foo", 0)]

    def test_a_partition_that_had_data_goes_to_the_end(self, broker: Broker) -> None:
        metadata = broker.open_session(foo_0=0, foo_1=0, foo_2=0, foo_3=0)
        context = broker.context(metadata)
        updates = news(context)
        updates[by_name("foo", 0)].records = b"data"
        updates[by_name("foo", 2)].records = b"data"
        updates[by_name("foo", 3)].high_watermark = 99  # news, but no data: keeps its place
        assert sent(context.update_and_generate_response_data(updates)) == [("foo", 0), ("foo", 2), ("foo", 3)]
        assert order(broker.context(metadata.next_incremental())) == ["foo-1", "foo-3", "foo-0", "foo-2"]

    def test_looking_at_the_size_moves_nothing(self, broker: Broker) -> None:
        metadata = broker.open_session(foo_0=0, foo_1=0)
        context = broker.context(metadata)
        updates = news(context, records=b"data", high_watermark=20)
        size = context.get_response_size(updates, BY_NAME)
        assert order(context) == ["foo-0", "foo-1"]
        response = context.update_and_generate_response_data(updates)
        assert len(sent(response)) == 2
        assert size == 4 + len(response.encode(BY_NAME))

    def test_what_may_be_omitted_would_not_be_sent(self, broker: Broker) -> None:
        metadata = broker.open_session(foo_0=0)
        context = broker.context(metadata)
        assert context.may_omit(by_name("foo", 0), 10, 0)
        assert not context.may_omit(by_name("foo", 0), 11, 0)
        assert not context.may_omit(by_name("foo", 0), 10, 1)

    def test_an_idle_session_is_listed_without_work(self, broker: Broker) -> None:
        metadata = broker.open_session(**{f"foo_{index}": 0 for index in range(100)})
        context = broker.context(metadata)
        before = context.partitions()
        assert sent(context.update_and_generate_response_data(news(context))) == []
        assert broker.context(metadata.next_incremental()).partitions() is before

    def test_a_fetch_that_waits_goes_on_with_what_it_asked(self, broker: Broker) -> None:
        metadata = broker.open_session(foo_0=5)
        waiting = broker.context(metadata).partitions()
        broker.context(metadata.next_incremental(), asking(foo_0=900, foo_1=1))
        assert [wanted.fetch_offset for _, wanted in waiting] == [5]

    def test_of_many_requests_with_one_epoch_one_gets_through(self, broker: Broker) -> None:
        metadata = broker.open_session(foo_0=5)
        barrier = threading.Barrier(8)
        got: list[FetchContext] = []

        def ask() -> None:
            barrier.wait(60)
            got.append(broker.context(metadata))

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert (
            sorted(type(context).__name__ for context in got)
            == ["IncrementalFetchContext"] + ["SessionErrorContext"] * 7
        )


class TestTopicIds:
    def request(self, *partitions: tuple[Uuid, int]) -> dict[TopicIdPartition, FetchPartition]:
        return {by_id(topic_id, index): FetchPartition(partition=index) for topic_id, index in partitions}

    def open_session(self, broker: Broker, *partitions: tuple[Uuid, int]) -> FetchMetadata:
        context = broker.context(INITIAL, self.request(*partitions), version=BY_ID)
        updates = {
            partition: PartitionData(error_code=Errors.UNKNOWN_TOPIC_ID, high_watermark=-1)
            if partition.topic is None
            else PartitionData(high_watermark=10, log_start_offset=0)
            for partition, _ in context.partitions()
        }
        return FetchMetadata(context.update_and_generate_response_data(updates).session_id, 1)

    def test_a_session_keeps_to_the_kind_of_request_that_made_it(self, broker: Broker) -> None:
        with_ids = self.open_session(broker, (FOO, 0))
        assert_session_error(broker.context(with_ids, version=12), Errors.FETCH_SESSION_TOPIC_ID_ERROR)
        assert type(broker.context(with_ids, version=13)) is IncrementalFetchContext
        with_names = broker.open_session(foo_0=1)
        assert_session_error(broker.context(with_names, version=13), Errors.FETCH_SESSION_TOPIC_ID_ERROR)
        assert type(broker.context(with_names, version=12)) is IncrementalFetchContext

    def test_the_epoch_is_looked_at_before_the_kind(self, broker: Broker) -> None:
        metadata = self.open_session(broker, (FOO, 0))
        wrong = FetchMetadata(metadata.session_id, 9)
        assert_session_error(broker.context(wrong, version=12), Errors.INVALID_FETCH_SESSION_EPOCH)

    def test_an_unknown_topic_is_resolved_when_its_name_turns_up(self, broker: Broker) -> None:
        metadata = self.open_session(broker, (FOO, 0), (ZAR, 0), (ZAR, 1))
        context = broker.context(metadata, version=BY_ID)
        assert [partition.topic for partition, _ in context.partitions()] == ["foo", None, None]
        unknown = PartitionData(error_code=Errors.UNKNOWN_TOPIC_ID, high_watermark=-1)
        response = context.update_and_generate_response_data({by_id(ZAR, 0): unknown, by_id(ZAR, 1): unknown})
        assert [topic.topic_id for topic in response.responses] == [ZAR], "told every time"
        assert FetchResponse.decode(response.encode(BY_ID), BY_ID).responses[0].topic_id == ZAR

        names = NAMES | {ZAR: "zar"}
        context = broker.context(metadata.next_incremental(), version=BY_ID, names=names)
        assert [partition.topic for partition, _ in context.partitions()] == ["foo", "zar", "zar"]
        response = context.update_and_generate_response_data(news(context))
        assert sent(response) == [("zar", 0), ("zar", 1)]

    def test_a_name_once_found_stays(self, broker: Broker) -> None:
        metadata = self.open_session(broker, (FOO, 0))
        context = broker.context(metadata, version=BY_ID, names={})
        assert order(context) == ["foo-0"]

    @pytest.mark.parametrize("names", [{}, NAMES | {ZAR: "zar"}])
    def test_forgetting_goes_by_id_whether_the_name_is_known_or_not(
        self, broker: Broker, names: dict[Uuid, str]
    ) -> None:
        metadata = self.open_session(broker, (FOO, 0), (ZAR, 0))
        forgotten = [by_id(FOO, 0, names), by_id(ZAR, 0, names)]
        context = broker.context(metadata, {by_id(BAR, 0): FetchPartition()}, forgotten, BY_ID, names)
        assert order(context) == ["bar-0"]
        context = broker.context(metadata.next_incremental(), version=BY_ID, names=NAMES | {ZAR: "zar"})
        assert order(context) == ["bar-0"]
        assert context.partitions() is broker.context(FetchMetadata(metadata.session_id, 3), version=BY_ID).partitions()

    def test_nothing_is_left_of_a_forgotten_partition_without_a_name(self, broker: Broker) -> None:
        metadata = self.open_session(broker, (FOO, 0), (ZAR, 0))
        session = broker.cache.get(metadata.session_id)
        assert session is not None
        assert len(session._unresolved) == 1
        broker.context(metadata, forgotten=[by_id(ZAR, 0)], version=BY_ID)
        assert len(session._unresolved) == 0

    def test_a_topic_made_anew_is_another_partition(self, broker: Broker) -> None:
        metadata = self.open_session(broker, (FOO, 0))
        names = {ZAR: "foo"}
        replacing = {by_id(ZAR, 0, names): FetchPartition(partition=0)}
        context = broker.context(metadata, replacing, [by_id(FOO, 0, names)], BY_ID, names)
        assert [partition.topic_id for partition, _ in context.partitions()] == [ZAR]

    def test_the_id_that_stands_for_none_is_one_that_nobody_knows(self, broker: Broker) -> None:
        metadata = self.open_session(broker, (ZERO_UUID, 0), (ZERO_UUID, 1))
        context = broker.context(metadata, version=BY_ID)
        assert [partition.topic for partition, _ in context.partitions()] == [None, None]


class TestReadingRequests:
    def round_trip(self, request: FetchRequest, version: int) -> FetchRequest:
        return FetchRequest.decode(request.encode(version), version)

    def test_by_name(self) -> None:
        request = self.round_trip(
            FetchRequest(
                topics=[FetchTopic(topic="foo", partitions=[FetchPartition(partition=3, fetch_offset=8)])],
                forgotten_topics_data=[ForgottenTopic(topic="bar", partitions=[1, 2])],
            ),
            12,
        )
        assert {key: data.fetch_offset for key, data in fetch_data(request, 12, {}).items()} == {by_name("foo", 3): 8}
        assert forgotten_partitions(request, 12, {}) == [by_name("bar", 1), by_name("bar", 2)]

    def test_by_id(self) -> None:
        request = self.round_trip(
            FetchRequest(
                topics=[FetchTopic(topic_id=FOO, partitions=[FetchPartition(partition=3)])],
                forgotten_topics_data=[ForgottenTopic(topic_id=ZAR, partitions=[1])],
            ),
            13,
        )
        assert list(fetch_data(request, 13, NAMES)) == [(FOO, "foo", 3)]
        assert forgotten_partitions(request, 13, NAMES) == [(ZAR, None, 1)]

    def test_what_a_session_does_not_need_is_not_kept(self) -> None:
        partition = FetchPartition(unknown_tagged_fields={9: b"x" * 1_000_000})
        request = self.round_trip(FetchRequest(topics=[FetchTopic(topic="foo", partitions=[partition])]), 12)
        assert request.topics[0].partitions[0].unknown_tagged_fields is not None
        (kept,) = fetch_data(request, 12, {}).values()
        assert kept.unknown_tagged_fields is None

    def test_who_asks(self) -> None:
        assert replica_id(FetchRequest(replica_id=4), 14) == 4
        assert replica_id(FetchRequest(), 14) == -1
        assert replica_id(FetchRequest(replica_state=ReplicaState(replica_id=4)), 15) == 4
        assert replica_id(FetchRequest(), 15) == -1

    def test_a_whole_request(self, broker: Broker) -> None:
        request = FetchRequest(
            session_epoch=0,
            replica_id=2,
            topics=[FetchTopic(topic="foo", partitions=[FetchPartition(partition=3)])],
        )
        context = broker.manager.context_of(self.round_trip(request, 12), 12, {})
        response = context.update_and_generate_response_data(news(context))
        session = broker.cache.get(response.session_id)
        assert session is not None
        assert session.privileged
        assert not session.uses_topic_ids
        following = FetchRequest(
            session_id=session.id, session_epoch=1, forgotten_topics_data=[ForgottenTopic(topic="foo", partitions=[3])]
        )
        assert type(broker.manager.context_of(self.round_trip(following, 12), 12, {})) is SessionlessFetchContext

    @pytest.mark.parametrize("seed", range(10))
    @pytest.mark.parametrize("version", [BY_NAME, BY_ID])
    def test_a_request_of_a_session_means_the_same_by_the_short_way(self, version: int, seed: int) -> None:
        chance = random.Random(seed)
        short, long = Broker(), Broker()
        sessions: list[FetchMetadata] = []
        for way in (short, long):
            context = self.by_the_long_way(way, self.some_request(random.Random(seed), version, INITIAL), version)
            response = context.update_and_generate_response_data(news(context))
            sessions.append(FetchMetadata(response.session_id, 1))
        for _ in range(30):
            metadata = sessions[0]
            sent_again = chance.random() < 0.1
            if sent_again:
                metadata = FetchMetadata(metadata.session_id, metadata.epoch - 1 or 7)
            other = BY_ID + BY_NAME - version if chance.random() < 0.05 else version
            request = self.some_request(chance, other, metadata)
            passed_ms = chance.randrange(5)
            short.clock.advance(passed_ms)
            long.clock.advance(passed_ms)
            one = short.manager.context_of(self.round_trip(request, other), other, NAMES)
            two = self.by_the_long_way(long, self.round_trip(request, other), other)
            assert type(one) is type(two)
            assert [(str(key), str(value)) for key, value in one.partitions()] == [
                (str(key), str(value)) for key, value in two.partitions()
            ]
            assert short.cache.total_partitions == long.cache.total_partitions
            kept = [way.cache.get(metadata.session_id) for way in (short, long)]
            assert (
                len({session and (session.epoch, session.last_used_ms, session.cached_size) for session in kept}) == 1
            )
            if kept[0] is None:
                break
            if type(one) is IncrementalFetchContext:
                sessions = [metadata.next_incremental()] * 2

    @staticmethod
    def some_request(chance: random.Random, version: int, metadata: FetchMetadata) -> FetchRequest:
        """Mostly partitions that the session has, now and then twice, a new one, or one less."""
        full = metadata == INITIAL
        topics = [
            FetchTopic(
                **({"topic": topic} if version == BY_NAME else {"topic_id": topic_id}),
                partitions=[
                    FetchPartition(partition=index, fetch_offset=chance.randrange(1000))
                    for index in (range(4) if full else chance.choices([*range(4)] * 6 + [4, 5], k=chance.randrange(5)))
                ],
            )
            for topic_id, topic in NAMES.items()
        ]
        forgotten = []
        if not full and chance.random() < 0.2:
            topic_id, topic = chance.choice([*NAMES.items()])
            forgotten.append(
                ForgottenTopic(
                    **({"topic": topic} if version == BY_NAME else {"topic_id": topic_id}),
                    partitions=[chance.randrange(5)],
                )
            )
        return FetchRequest(
            session_id=metadata.session_id,
            session_epoch=metadata.epoch,
            topics=topics,
            forgotten_topics_data=forgotten,
        )

    @staticmethod
    def by_the_long_way(broker: Broker, request: FetchRequest, version: int) -> FetchContext:
        return broker.manager.new_context(
            version,
            FetchMetadata(request.session_id, request.session_epoch),
            False,
            fetch_data(request, version, NAMES),
            forgotten_partitions(request, version, NAMES),
            NAMES,
        )

    def test_a_request_too_old_for_sessions(self, broker: Broker) -> None:
        request = self.round_trip(FetchRequest(topics=[FetchTopic(topic="foo", partitions=[FetchPartition()])]), 6)
        context = broker.manager.context_of(request, 6, {})
        assert type(context) is SessionlessFetchContext
        assert context.update_and_generate_response_data(news(context)).encode(6)


class TestResponses:
    def test_neighbours_share_a_topic_and_the_order_stays(self, broker: Broker) -> None:
        context = broker.context(LEGACY, asking(foo_0=0, foo_1=0, bar_0=0, foo_2=0))
        response = context.update_and_generate_response_data(news(context))
        assert [(topic.topic, len(topic.partitions)) for topic in response.responses] == [
            ("foo", 2),
            ("bar", 1),
            ("foo", 1),
        ]

    @pytest.mark.parametrize("version", [4, 6, 7, 11, 12, 16])
    def test_the_size_is_that_of_what_is_sent(self, broker: Broker, version: int) -> None:
        context = broker.context(LEGACY, asking(foo_0=0, bar_0=0, bar_1=0))
        updates = news(context, records=b"0123456789", high_watermark=2**40)
        size = context.get_response_size(updates, version)
        assert size == 4 + len(context.update_and_generate_response_data(updates).encode(version))

    def test_a_session_error_is_all_that_is_said(self, broker: Broker) -> None:
        context = SessionErrorContext(Errors.INVALID_FETCH_SESSION_EPOCH)
        response = context.update_and_generate_response_data({by_name("foo", 0): PartitionData()})
        assert (response.session_id, response.responses) == (INVALID_SESSION_ID, [])
        assert context.get_response_size({by_name("foo", 0): PartitionData()}, 12) == 4 + len(response.encode(12))

    def test_new_leaders_are_named_in_every_kind_of_response(self, broker: Broker) -> None:
        nodes = [NodeEndpoint(node_id=3, host="h", port=9)]
        metadata = broker.open_session(foo_0=1)
        for context in (
            broker.context(LEGACY),
            broker.context(INITIAL, asking(foo_0=1)),
            broker.context(metadata),
            SessionErrorContext(Errors.INVALID_FETCH_SESSION_EPOCH),
        ):
            assert context.update_and_generate_response_data({}, nodes).node_endpoints == nodes
            assert context.get_throttled_response(1, nodes).node_endpoints == nodes


@pytest.mark.skipif(not _kernels.is_compiled("memory"), reason="the twin leaves that to the interpreter")
def test_the_partitions_of_a_session_are_freed_like_structs() -> None:
    """In turns with other threads: a session may have tens of thousands, and is evicted as a whole."""
    cached = CachedPartition(TopicIdPartition(ZERO_UUID, "t", 0), FetchPartition(partition=0))
    assert not gc.is_tracked(cached)


def test_a_session_says_what_it_is() -> None:
    session = FetchSession(77, True, False, [CachedPartition(by_name("foo", 0), FetchPartition(fetch_offset=5))], 0)
    assert repr(session) == "FetchSession(77, epoch 1, 1 partitions, follower, topic names)"
    assert repr(session.find(by_name("foo", 0))) == (
        "CachedPartition(foo-0, fetch offset 5, high watermark -1, log start -1)"
    )


def assert_session_error(context: FetchContext, error: Errors) -> None:
    assert type(context) is SessionErrorContext
    assert list(context.partitions()) == []
    assert context.update_and_generate_response_data({}).error_code == error
