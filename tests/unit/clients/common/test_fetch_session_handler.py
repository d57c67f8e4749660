"""The client's half of fetch sessions, with partitions that come, go and change at random."""

from __future__ import annotations

from random import Random

from barnabas.clients.common.fetch_session_handler import (
    INITIAL_EPOCH,
    FetchSessionHandler,
    PartitionToFetch,
    SessionFetch,
)
from barnabas.common.errors import Errors
from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData

TOPICS = ("a", "b")
PARTITIONS = [TopicPartition(topic, partition) for topic in TOPICS for partition in range(3)]


def topic_id(topic: str, generation: int) -> Uuid:
    return Uuid(topic.encode() * 15 + bytes([generation]))


def answer(rows: dict[TopicPartition, Uuid], session_id: int = 7) -> FetchResponse:
    return FetchResponse(
        session_id=session_id,
        responses=[
            FetchableTopicResponse(
                topic="" if topic != ZERO_UUID else partition.topic,
                topic_id=topic,
                partitions=[PartitionData(partition_index=partition.partition, high_watermark=index)],
            )
            for index, (partition, topic) in enumerate(rows.items())
        ],
    )


class Broker:
    """What a broker knows of a session."""

    def __init__(self) -> None:
        self.partitions: dict[tuple[str, Uuid, int], tuple[int, int, int]] = {}

    def take(self, fetch: SessionFetch) -> None:
        if fetch.session_epoch == INITIAL_EPOCH:
            self.partitions.clear()
        for forgotten in fetch.forgotten:
            for index in forgotten.partitions:
                del self.partitions[forgotten.topic, forgotten.topic_id, index]
        for topic in fetch.topics:
            for row in topic.partitions:
                key = (topic.topic, topic.topic_id, row.partition)
                said = (row.fetch_offset, row.partition_max_bytes, row.current_leader_epoch)
                assert self.partitions.get(key) != said, "that was said already"
                self.partitions[key] = said


def test_both_sides_agree_on_what_the_session_is_about() -> None:
    """Whatever was changed, dropped, added, or created anew."""
    source = Random(4)
    handler, broker = FetchSessionHandler(1), Broker()
    incremental = 0
    for turn in range(1000):
        named = source.random() < 0.05
        generation = {topic: int(source.random() < 0.1) for topic in TOPICS}
        wanted = {
            partition: PartitionToFetch(
                ZERO_UUID if named else topic_id(partition.topic, generation[partition.topic]),
                source.randrange(2),
                100,
                source.choice((None, 5)),
            )
            for partition in source.sample(PARTITIONS, source.choice((3, 6, 6, 6)) if turn else 3)
        }
        fetch = handler.build(wanted)
        incremental += fetch.session_epoch != INITIAL_EPOCH
        broker.take(fetch)
        expected = {
            (partition.topic, row.topic_id, partition.partition): (
                row.fetch_offset,
                row.max_bytes,
                -1 if row.current_leader_epoch is None else row.current_leader_epoch,
            )
            for partition, row in wanted.items()
        }
        assert broker.partitions == expected
        assert (fetch.partitions, fetch.can_use_topic_ids) == (wanted, not named)
        full = fetch.session_epoch == INITIAL_EPOCH
        some = list(wanted) if full else source.sample(list(wanted), source.randrange(len(wanted)))
        answered = handler.read_response(answer({part: wanted[part].topic_id for part in some}))
        assert answered is not None
        assert [(part, row.partition_index, row.high_watermark) for part, row in answered] == [
            (part, part.partition, index) for index, part in enumerate(some)
        ]
        assert all(isinstance(partition, TopicPartition) for partition, _ in answered)
    assert incremental > 500


def test_responses_about_something_else_end_the_session() -> None:
    a0, a1, a2 = PARTITIONS[:3]
    known = topic_id("a", 0)
    for strange in ({a2: known}, {a0: topic_id("a", 1)}, {TopicPartition("c", 0): ZERO_UUID}):
        handler = FetchSessionHandler(1)
        wanted = {partition: PartitionToFetch(known, 0, 1, None) for partition in (a0, a1)}
        assert handler.build(wanted).session_epoch == 0
        assert handler.read_response(answer({a0: known})) is None, "a full answer has all of them"
        assert handler.build(wanted).session_epoch == 0
        assert handler.read_response(answer({a0: known, a1: known})) is not None
        assert handler.build(wanted).session_epoch == 1
        assert handler.read_response(answer({a1: known})) is not None
        assert handler.build(wanted).session_epoch == 2
        assert handler.read_response(answer({a1: known, **strange})) is None
        assert handler.build(wanted).session_epoch == 0


def test_an_error_and_a_broker_without_room() -> None:
    wanted = {PARTITIONS[0]: PartitionToFetch(topic_id("a", 0), 0, 1, None)}
    rows = {PARTITIONS[0]: topic_id("a", 0)}
    handler = FetchSessionHandler(1)
    handler.build(wanted)
    assert handler.read_response(answer(rows, session_id=0)) is not None
    assert handler.build(wanted).session_epoch == 0
    assert handler.read_response(answer(rows)) is not None
    handler.build(wanted)
    assert handler.read_response(FetchResponse(error_code=Errors.FETCH_SESSION_ID_NOT_FOUND.value)) is None
    fetch = handler.build(wanted)
    assert (fetch.session_id, fetch.session_epoch) == (0, 0)
