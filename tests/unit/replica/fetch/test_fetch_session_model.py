"""Readers and a broker that go on and on, and must never disagree about what a session holds.

The readers here are written from the other side of the protocol: they keep what they want, what they have told the
broker of it, and what they have been told. Whatever happens in between (other readers push them out, answers get lost,
requests arrive twice, topics come and go), after a response without an error a reader knows the truth about each of its
partitions, and the broker's session is exactly what the reader thinks it is, down to the order.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.common.clock import MockClock
from barnabas.common.errors import Errors
from barnabas.common.identifiers import Uuid
from barnabas.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from barnabas.replica.fetch.fetch_context import FetchContext, IncrementalFetchContext
from barnabas.replica.fetch.fetch_session import (
    INITIAL,
    INVALID_SESSION_ID,
    FetchMetadata,
    FetchSession,
    TopicIdPartition,
)
from barnabas.replica.fetch.fetch_session_cache import FetchSessionCache
from barnabas.replica.fetch.fetch_session_manager import FetchManager

pytestmark = pytest.mark.mechanism("R07")

EVICTION_MS = 1_000
TOPICS = {Uuid(bytes([number]) * 16): name for number, name in enumerate(("ant", "bee", "cat"), 1)}
IDS = {name: topic_id for topic_id, name in TOPICS.items()}
PARTITIONS = [(topic, index) for topic in IDS for index in range(3)]
Partition = tuple[str, int]


@dataclass
class Truth:
    """What is so about a partition."""

    high_watermark: int = 0
    log_start_offset: int = 0
    error: Errors = Errors.NONE


Seen = tuple[int, int, int]
"""What a reader has been told: error, high watermark, log start."""


@dataclass
class Reader:
    version: int
    wanted: dict[Partition, int] = field(default_factory=dict)
    metadata: FetchMetadata = INITIAL
    told_broker: dict[Partition, int] = field(default_factory=dict)
    """The partitions of the session with their offsets, in the order that the session should have."""
    seen: dict[Partition, Seen] = field(default_factory=dict)
    last_request: bytes | None = None

    def topic(self, name: str) -> FetchTopic:
        return FetchTopic(topic=name) if self.version < 13 else FetchTopic(topic_id=IDS[name])

    def request(self) -> FetchRequest:
        if self.metadata.is_full:
            send, forget = dict(self.wanted), []
            self.told_broker = dict(self.wanted)
        else:
            send = {key: offset for key, offset in self.wanted.items() if self.told_broker.get(key) != offset}
            forget = [key for key in self.told_broker if key not in self.wanted]
            self.told_broker |= send
            for key in forget:
                del self.told_broker[key]
                self.seen.pop(key, None)
        request = FetchRequest(session_id=self.metadata.session_id, session_epoch=self.metadata.epoch)
        for (name, index), offset in send.items():
            topic = self.topic(name)
            topic.partitions.append(FetchPartition(partition=index, fetch_offset=offset))
            request.topics.append(topic)
        for name, index in forget:
            of = self.topic(name)
            request.forgotten_topics_data.append(
                ForgottenTopic(topic=of.topic, topic_id=of.topic_id, partitions=[index])
            )
        return request

    def start_again(self) -> None:
        self.metadata = self.metadata.next_close_existing_attempt_new()
        self.seen = {}

    def receive(self, response: FetchResponse) -> None:
        was_full = self.metadata.is_full
        if response.error_code:
            assert not was_full, "a full request has no session that could be wrong"
            assert response.responses == []
            self.start_again()
            return
        answers = {
            (TOPICS[topic.topic_id] if self.version >= 13 else topic.topic, data.partition_index): data
            for topic in response.responses
            for data in topic.partitions
        }
        if was_full:
            assert set(answers) == set(self.told_broker), "a full answer has all that was asked"
            self.seen = {}
        for key, data in answers.items():
            assert key in self.told_broker, "nobody asked for this"
            self.seen[key] = (data.error_code, data.high_watermark, data.log_start_offset)
            if data.records:
                # It has had its turn. A full answer has the order that the session starts with, data or not.
                if not was_full:
                    self.told_broker[key] = self.told_broker.pop(key)
                self.wanted[key] = data.high_watermark
        if response.session_id == INVALID_SESSION_ID:
            self.metadata = INITIAL
        elif was_full:
            self.metadata = FetchMetadata(response.session_id, 1)
        else:
            assert response.session_id == self.metadata.session_id
            self.metadata = self.metadata.next_incremental()


class World:
    """The readers, the broker, and what goes on between them, decided by one source of chance."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.clock = MockClock()
        slots = chance.choice((4, 4, 3, 2, 1, 0))
        self.cache = FetchSessionCache(slots, EVICTION_MS, shards=chance.choice((1, 2)), randomness=chance)
        self.manager = FetchManager(self.clock, self.cache)
        self.truth = {key: Truth() for key in PARTITIONS}
        self.names = dict(TOPICS)
        self.readers = [Reader(12), Reader(13), Reader(17)]
        self.happened: Counter[str] = Counter()

    def step(self) -> None:
        event, _ = EVENTS[self.chance.choices(range(len(EVENTS)), WEIGHTS)[0]]
        event(self)
        self.check_sessions()
        self.check_counts()

    # -- what happens on the broker

    def partition_changes(self) -> None:
        truth = self.truth[self.chance.choice(PARTITIONS)]
        change = self.chance.choice(("append", "append", "delete", "fail", "heal", "heal"))
        if change == "append":
            truth.high_watermark += 1
        elif change == "delete":
            truth.log_start_offset = truth.high_watermark
        else:
            truth.error = Errors.NOT_LEADER_OR_FOLLOWER if change == "fail" else Errors.NONE

    def name_comes_or_goes(self) -> None:
        topic_id = self.chance.choice(list(TOPICS))
        if topic_id in self.names:
            del self.names[topic_id]
        else:
            self.names[topic_id] = TOPICS[topic_id]

    def time_passes(self) -> None:
        self.clock.advance(self.chance.choice((1, EVICTION_MS // 2, EVICTION_MS + 1)))

    def session_is_lost(self) -> None:
        self.cache.remove(self.chance.choice(self.readers).metadata.session_id)

    # -- what readers do

    def plans_change(self) -> None:
        reader = self.chance.choice(self.readers)
        key = self.chance.choice(PARTITIONS)
        if self.chance.random() < 0.7:
            reader.wanted[key] = self.chance.randint(0, 5)
        elif self.chance.random() < 0.9:
            reader.wanted.pop(key, None)
        else:
            reader.wanted.clear()

    def fetch(self) -> None:
        reader = self.chance.choice(self.readers)
        if not reader.wanted and reader.metadata.is_full:
            return
        self.happened["full fetch" if reader.metadata.is_full else "incremental fetch"] += 1
        request = reader.request()
        session = self.cache.get(reader.metadata.session_id)
        response = self.serve(reader, request, self.chance.randint(0, 3), self.chance.random() < 0.5)
        reader.receive(response)
        if response.error_code:
            self.happened[Errors(response.error_code).name] += 1
            assert session is None, "a session that is there takes the next request of its reader"
        else:
            self.check_what_it_knows(reader)

    def answer_is_lost(self) -> None:
        reader = self.chance.choice(self.readers)
        if reader.wanted:
            self.serve(reader, reader.request(), 3, False)
            old = reader.metadata.session_id
            reader.start_again()
            self.serve(reader, reader.request(), 0, False)
            assert self.cache.get(old) is None, "the full request that followed has closed it"
            reader.metadata = INITIAL

    def throttled(self) -> None:
        reader = self.chance.choice(self.readers)
        if reader.metadata.is_full:
            return
        self.happened["throttled"] += 1
        context = self.manager.context_of(self.over_the_wire(reader, reader.request()), reader.version, self.names)
        context.get_response_size(self.read(context, 3, False), reader.version)
        response = context.get_throttled_response(100)
        # Of a session that is lost or closed this answer says no more than "no session": the reader starts again.
        assert (response.session_id == INVALID_SESSION_ID) is not isinstance(context, IncrementalFetchContext)
        reader.receive(response)

    def sent_twice(self) -> None:
        reader = self.chance.choice(self.readers)
        if reader.last_request is None or reader.metadata.is_full:
            return
        request = FetchRequest.decode(reader.last_request, reader.version)
        if FetchMetadata(request.session_id, request.session_epoch).next_incremental() != reader.metadata:
            return
        self.happened["sent twice"] += 1
        session = self.cache.get(reader.metadata.session_id)
        before = None if session is None else self.inside(session)
        again = self.manager.context_of(request, reader.version, self.names)
        error = Errors.FETCH_SESSION_ID_NOT_FOUND if session is None else Errors.INVALID_FETCH_SESSION_EPOCH
        assert again.update_and_generate_response_data({}).error_code == error
        assert (None if session is None else self.inside(session)) == before

    def overtaken(self) -> None:
        """A request is answered after the one that follows it has come, which can only be the work of a duplicate."""
        reader = self.chance.choice(self.readers)
        session = self.cache.get(reader.metadata.session_id)
        if reader.metadata.is_full or session is None or not reader.wanted:
            return
        self.happened["overtaken"] += 1
        slow = self.manager.context_of(self.over_the_wire(reader, reader.request()), reader.version, self.names)
        if not isinstance(slow, IncrementalFetchContext):
            reader.metadata = INITIAL
            return
        updates = self.read(slow, 3, False)
        reader.metadata = reader.metadata.next_incremental()
        reader.receive(self.serve(reader, reader.request(), 0, False))
        assert slow.update_and_generate_response_data(updates).error_code == Errors.INVALID_FETCH_SESSION_EPOCH
        self.check_what_it_knows(reader)

    # -- the broker's side of a fetch

    def over_the_wire(self, reader: Reader, request: FetchRequest) -> FetchRequest:
        reader.last_request = request.encode(reader.version)
        return FetchRequest.decode(reader.last_request, reader.version)

    def serve(self, reader: Reader, request: FetchRequest, budget: int, omit: bool) -> FetchResponse:
        context = self.manager.context_of(self.over_the_wire(reader, request), reader.version, self.names)
        updates = self.read(context, budget, omit)
        size = context.get_response_size(updates, reader.version)
        encoded = context.update_and_generate_response_data(updates).encode(reader.version)
        assert size == 4 + len(encoded)
        return FetchResponse.decode(encoded, reader.version)

    def read(self, context: FetchContext, budget: int, omit: bool) -> dict[TopicIdPartition, PartitionData]:
        updates = {}
        for partition, wanted in context.partitions():
            if partition.topic is None:
                updates[partition] = PartitionData(error_code=Errors.UNKNOWN_TOPIC_ID, high_watermark=-1)
                continue
            truth = self.truth[partition.topic, partition.partition]
            if truth.error:
                told = self.chance.random() < 0.5  # some errors come with the offsets, some without
                updates[partition] = PartitionData(
                    error_code=truth.error,
                    high_watermark=truth.high_watermark if told else -1,
                    log_start_offset=truth.log_start_offset if told else -1,
                )
                continue
            records = None
            if budget and wanted.fetch_offset < truth.high_watermark:
                budget -= 1
                records = b"records"
            elif omit and context.may_omit(partition, truth.high_watermark, truth.log_start_offset):
                continue
            updates[partition] = PartitionData(
                high_watermark=truth.high_watermark, log_start_offset=truth.log_start_offset, records=records
            )
        return updates

    # -- what must hold

    def check_what_it_knows(self, reader: Reader) -> None:
        for key in reader.told_broker:
            truth = self.truth[key]
            error, high_watermark, log_start_offset = reader.seen[key]
            if error == Errors.UNKNOWN_TOPIC_ID:
                assert reader.version >= 13
                assert IDS[key[0]] not in self.names
            elif truth.error:
                assert error == truth.error
            else:
                assert (error, high_watermark, log_start_offset) == (0, truth.high_watermark, truth.log_start_offset)

    @staticmethod
    def inside(session: FetchSession) -> list[tuple[Uuid, int, int]]:
        return [
            (
                partition.topic_id if session.uses_topic_ids else partition.topic,
                partition.partition,
                wanted.fetch_offset,
            )  # type: ignore[misc]
            for partition, wanted in session.partitions({})
        ]

    def check_sessions(self) -> None:
        for reader in self.readers:
            session = self.cache.get(reader.metadata.session_id)
            if session is None or reader.metadata.is_full:
                continue
            assert session.metadata == reader.metadata
            assert self.inside(session) == [
                (IDS[name] if session.uses_topic_ids else name, index, offset)
                for (name, index), offset in reader.told_broker.items()
            ]

    def check_counts(self) -> None:
        sessions = [session for shard in self.cache.shards for session in shard._sessions.values()]
        assert len(self.cache) == len(sessions)
        assert self.cache.total_partitions == sum(map(len, sessions))


EVENTS: list[tuple[Callable[[World], None], int]] = [
    (World.fetch, 30),
    (World.partition_changes, 20),
    (World.plans_change, 20),
    (World.name_comes_or_goes, 4),
    (World.time_passes, 2),
    (World.session_is_lost, 1),
    (World.answer_is_lost, 1),
    (World.throttled, 3),
    (World.sent_twice, 3),
    (World.overtaken, 3),
]
WEIGHTS = [weight for _, weight in EVENTS]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_readers_and_broker_agree(seed: int) -> None:
    world = World(seed)
    for _ in range(300):
        world.step()


def test_the_walks_get_everywhere() -> None:
    """Chance could also mean that nothing of interest ever happens."""
    happened: Counter[str] = Counter()
    for seed in range(10):
        world = World(seed)
        for _ in range(300):
            world.step()
        happened += world.happened
    assert happened["incremental fetch"] > happened["full fetch"] > 0
    for what in ("FETCH_SESSION_ID_NOT_FOUND", "throttled", "sent twice", "overtaken"):
        assert happened[what] > 0, what
