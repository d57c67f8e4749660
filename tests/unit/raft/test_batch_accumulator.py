"""The accumulator: offsets, batches, what may be drained and when."""

from __future__ import annotations

import threading

import pytest

from barnabas.common.clock import MockClock
from barnabas.common.errors import RecordBatchTooLargeError
from barnabas.protocol.internal.metadata import TopicRecord
from barnabas.protocol.internal.topics import CLUSTER_METADATA
from barnabas.raft.batch_accumulator import AccumulatorFullError, BatchAccumulator, CompletedBatch
from barnabas.raft.client import ApiMessageAndVersion, NotLeaderError
from barnabas.records.batch import RecordBatch
from barnabas.records.control import ControlRecordType
from barnabas.records.reader import read_records
from unit.raft.raft_box import NOW, names, topic_record

EPOCH = 5
FOOTER = [(ControlRecordType.SNAPSHOT_FOOTER, b"\0\0\0")]


@pytest.fixture
def clock() -> MockClock:
    return MockClock(NOW)


def accumulator(clock: MockClock, *, linger_ms: int | None = 0, max_batch_size: int = 4096) -> BatchAccumulator:
    return BatchAccumulator(
        EPOCH, 100, linger_ms=linger_ms, clock=clock, types=CLUSTER_METADATA, max_batch_size=max_batch_size
    )


def ranges(batches: list[CompletedBatch]) -> list[tuple[int, int]]:
    return [(batch.base_offset, batch.last_offset) for batch in batches]


def test_appends_share_a_batch_that_reads_back(clock: MockClock) -> None:
    subject = accumulator(clock)
    assert subject.append(EPOCH, [topic_record("a"), topic_record("b")]) == 101
    clock.advance(3)
    assert subject.append(EPOCH, [topic_record("c")]) == 102
    (batch,) = subject.drain()
    assert ranges([batch]) == [(100, 102)]
    assert names(batch.records) == ["a", "b", "c"]
    raw = RecordBatch(batch.data)
    raw.ensure_valid()
    assert (raw.base_offset, raw.last_offset, raw.partition_leader_epoch) == (100, 102, EPOCH)
    assert not raw.is_control_batch
    # Kafka's reader refuses a record whose timestamp is not its batch's.
    assert {record.timestamp for record in read_records(raw)} == {NOW} == {batch.append_timestamp}
    decoded = [CLUSTER_METADATA.decode(record.value or b"")[0] for record in read_records(raw)]
    assert [record.name for record in decoded if isinstance(record, TopicRecord)] == ["a", "b", "c"]
    assert subject.is_empty
    assert subject.time_until_drain() is None


def test_prepared_records_stay_until_they_are_allowed_out(clock: MockClock) -> None:
    subject = accumulator(clock)
    subject.append(EPOCH, [topic_record("a")], delay_drain=True)
    assert subject.time_until_drain() is None
    assert subject.drain() == []
    subject.append(EPOCH, [topic_record("b")])
    assert subject.drain() == [], "what comes behind must not overtake"
    subject.allow_drain()
    assert subject.time_until_drain() == 0
    assert ranges(subject.drain()) == [(100, 101)]


def test_what_was_scheduled_before_gets_out_if_it_is_in_a_batch_of_its_own(clock: MockClock) -> None:
    subject = accumulator(clock)
    subject.append(EPOCH, [topic_record("a")])
    subject.append_control_records(FOOTER)
    subject.append(EPOCH, [topic_record("b")], delay_drain=True)
    assert subject.time_until_drain() == 0
    assert ranges(subject.drain()) == [(100, 100), (101, 101)]
    assert subject.time_until_drain() is None


def test_the_first_append_after_a_pause_does_not_linger(clock: MockClock) -> None:
    subject = accumulator(clock, linger_ms=25)
    subject.append(EPOCH, [topic_record("a")])
    assert subject.time_until_drain() == 0
    subject.drain()
    clock.advance(5)
    subject.append(EPOCH, [topic_record("b")])
    assert subject.time_until_drain() == 20
    clock.advance(15)
    subject.append(EPOCH, [topic_record("c")])
    assert subject.time_until_drain() == 5
    clock.advance(5)
    assert subject.time_until_drain() == 0
    assert names(subject.drain()[0].records) == ["b", "c"]
    clock.advance(1000)
    subject.append(EPOCH, [topic_record("d")])
    assert subject.time_until_drain() == 0


def test_control_records_are_due_at_once_and_in_a_batch_of_their_own(clock: MockClock) -> None:
    subject = accumulator(clock, linger_ms=25)
    subject.append(EPOCH, [topic_record("a")])
    subject.drain()
    subject.append(EPOCH, [topic_record("b")])
    assert subject.append_control_records(FOOTER) == 102
    assert subject.time_until_drain() == 0
    first, second = subject.drain()
    assert ranges([first, second]) == [(101, 101), (102, 102)]
    assert RecordBatch(second.data).is_control_batch
    assert second.records == ()


def test_a_full_batch_is_due_although_the_linger_time_is_not_over(clock: MockClock) -> None:
    subject = accumulator(clock, linger_ms=25, max_batch_size=200)
    subject.append(EPOCH, [topic_record("first")])
    subject.drain()
    for name in "abcdef":
        subject.append(EPOCH, [topic_record(name)])
    assert subject.time_until_drain() == 0
    batches = subject.drain()
    assert [names(batch.records) for batch in batches] == [["a", "b", "c", "d"], ["e", "f"]]
    assert all(len(batch.data) <= 200 for batch in batches)


def test_an_append_is_in_one_batch_or_refused(clock: MockClock) -> None:
    subject = accumulator(clock, max_batch_size=200)
    subject.append(EPOCH, [topic_record("a"), topic_record("b")])
    subject.append(EPOCH, [topic_record("c"), topic_record("d"), topic_record("e")])
    with pytest.raises(RecordBatchTooLargeError, match="6 metadata records need a batch of"):
        subject.append(EPOCH, [topic_record(name) for name in "uvwxyz"])
    assert subject.append(EPOCH, [topic_record("f")]) == 105
    assert [names(batch.records) for batch in subject.drain()] == [["a", "b"], ["c", "d", "e", "f"]]


def test_a_record_that_cannot_be_written_changes_nothing(clock: MockClock) -> None:
    subject = accumulator(clock)
    with pytest.raises(Exception, match="TopicRecord"):
        subject.append(EPOCH, [topic_record("a"), ApiMessageAndVersion(TopicRecord(name="x"), 99)])
    assert subject.is_empty
    assert subject.append(EPOCH, [topic_record("b")]) == 100


def test_epochs_are_checked(clock: MockClock) -> None:
    subject = accumulator(clock)
    with pytest.raises(NotLeaderError, match="epoch 4 is over"):
        subject.append(EPOCH - 1, [topic_record("a")])
    with pytest.raises(ValueError, match="epoch 6 has not come yet"):
        subject.append(EPOCH + 1, [topic_record("a")])
    with pytest.raises(ValueError, match="at least one record"):
        subject.append(EPOCH, [])
    with pytest.raises(ValueError, match="at least one record"):
        subject.append_control_records([])


def test_a_closed_one_takes_nothing_and_gives_nothing(clock: MockClock) -> None:
    subject = accumulator(clock)
    subject.append(EPOCH, [topic_record("a")])
    subject.close()
    assert subject.drain() == []
    with pytest.raises(NotLeaderError):
        subject.append(EPOCH, [topic_record("b")])
    with pytest.raises(NotLeaderError):
        subject.append_control_records(FOOTER)


def test_only_so_many_batches_wait(clock: MockClock) -> None:
    subject = accumulator(clock, max_batch_size=100)
    for number in range(10):
        subject.append(EPOCH, [topic_record(f"{number}")])
    with pytest.raises(AccumulatorFullError, match="10 batches wait"):
        subject.append(EPOCH, [topic_record("x")])


def test_without_linger_only_full_batches_are_due(clock: MockClock) -> None:
    subject = accumulator(clock, linger_ms=None, max_batch_size=100)
    subject.append(EPOCH, [topic_record("a")])
    assert subject.time_until_drain() is None
    assert subject.drain(complete=False) == []
    subject.append(EPOCH, [topic_record("b")])
    assert names(subject.drain(complete=False)[0].records) == ["a"]
    assert names(subject.drain()[0].records) == ["b"]


def test_offsets_are_given_out_once_with_many_appenders(clock: MockClock) -> None:
    subject = accumulator(clock, max_batch_size=1 << 20)
    offsets: list[int] = []
    drained: list[CompletedBatch] = []

    def work(number: int) -> None:
        mine = [subject.append(EPOCH, [topic_record(f"{number}-{count}")]) for count in range(100)]
        assert mine == sorted(mine)
        offsets.extend(mine)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        drained += subject.drain()
    drained += subject.drain()
    assert sorted(offsets) == list(range(100, 500))
    assert [batch.base_offset for batch in drained] == [100, *(batch.last_offset + 1 for batch in drained[:-1])]
    assert drained[-1].last_offset == 499
