"""Records of the broker itself: queued at once, written later, dropped when there is no room."""

from __future__ import annotations

import logging

import pytest

from barnabas.common.errors import Errors
from barnabas.common.scheduler import MockScheduler
from barnabas.metrics.yammer.registry import MetricsRegistry
from barnabas.records.batch import CompressionType, iter_batches
from barnabas.records.reader import Record, read_records
from barnabas.replica.results import ProduceResult
from barnabas.telemetry.topic_writer import BATCH_BYTES, TopicRecord, TopicWriter
from telemetry_fixtures import Appends, OneTopic

pytestmark = pytest.mark.mechanism("Q15")


class Bench:
    """A writer on node 1, to a topic with two partitions that node 1 leads."""

    def __init__(self, max_records: int = 1_000, max_bytes: int = 1_000_000, *, exists: bool = True) -> None:
        self.scheduler = MockScheduler()
        self.cache = OneTopic()
        if exists:
            self.cache.leaders = [1, 1]
        self.appends = Appends()
        self.created: list[str] = []
        self.drained = 0
        self.writer: TopicWriter[TopicRecord | str] = TopicWriter(
            "__t",
            self.encode,
            1,
            self.cache,
            self.appends,
            self.created.append,
            self.drain,
            self.scheduler,
            self.scheduler.clock,
            MetricsRegistry(self.scheduler.clock),
            max_records=max_records,
            max_bytes=max_bytes,
        )

    def encode(self, item: TopicRecord | str) -> TopicRecord:
        if isinstance(item, str):
            return TopicRecord(7, item.encode())
        return item

    def drain(self) -> None:
        self.drained += 1

    def records(self, partition: int | None = None) -> list[Record]:
        return [
            record
            for _, number, data in self.appends.batches
            for batch in iter_batches(data)
            for record in read_records(batch)
            if partition in {None, number}
        ]

    def values(self) -> list[bytes]:
        return [bytes(record.value or b"") for record in self.records()]


def test_records_are_written_a_moment_later_in_one_batch() -> None:
    bench = Bench()
    for text in "abc":
        assert bench.writer.offer(text, 1)
    assert bench.appends.batches == []
    assert bench.scheduler.pending == ["write-__t"]
    bench.scheduler.advance(200)
    assert len(bench.appends.batches) == 1
    assert bench.values() == [b"a", b"b", b"c"]
    assert bench.appends.internal_topics_allowed
    assert bench.drained == 1
    assert bench.writer.written == 3
    (batch,) = iter_batches(bench.appends.batches[0][2])
    assert batch.compression_type is CompressionType.ZSTD
    assert bench.scheduler.pending == [], "nothing is to be done while there is nothing to write"


def test_a_record_keeps_its_time_key_and_headers() -> None:
    bench = Bench()
    record = TopicRecord(1_234, b"value", b"key", (("who", b"me"), ("what", None)))
    bench.writer.offer(record, record.size)
    bench.scheduler.advance(200)
    (found,) = bench.records()
    assert (found.timestamp, found.key, found.value) == (1_234, b"key", b"value")
    assert found.headers == (("who", b"me"), ("what", None))
    assert record.size == len(b"value") + len(b"key") + len("who") + len(b"me") + len("what")


def test_a_key_stays_in_its_partition_and_others_take_turns() -> None:
    bench = Bench()
    for _ in range(4):
        for key in (b"a", b"b", b"c", b"d"):
            bench.writer.offer(TopicRecord(1, b"v", key), 2)
        bench.scheduler.advance(200)
    places = {bytes(record.key or b""): number for number in (0, 1) for record in bench.records(number)}
    assert len(bench.records(0)) + len(bench.records(1)) == 16
    assert len([1 for number in (0, 1) for key in {record.key for record in bench.records(number)}]) == 4
    assert set(places.values()) == {0, 1}
    bench.appends.batches.clear()
    for text in ("x", "y"):
        bench.writer.offer(text, 1)
        bench.scheduler.advance(200)
    assert {number for _, number, _ in bench.appends.batches} == {0, 1}


def test_what_does_not_fit_is_dropped_and_counted() -> None:
    bench = Bench(max_records=3)
    assert [bench.writer.offer(text, 1) for text in "abcde"] == [True, True, True, False, False]
    assert bench.writer.dropped == 2
    bench.scheduler.advance(200)
    assert bench.values() == [b"a", b"b", b"c"]
    assert bench.writer.offer("f", 1)


@pytest.mark.parametrize(("count", "size"), [(500, 1), (5, 100_000)])
def test_with_half_of_the_room_taken_it_waits_no_longer(count: int, size: int) -> None:
    bench = Bench(max_records=1_000, max_bytes=1_000_000)
    for _ in range(count - 1):
        bench.writer.offer("a", size)
    assert bench.scheduler.tick() == 0
    for _ in range(3):
        bench.writer.offer("b", size)
    assert bench.scheduler.pending == ["write-__t"], "one flush, however much comes after it"
    assert bench.scheduler.tick() == 1
    assert bench.writer.written == count + 2
    bench.writer.offer("c", size)
    assert bench.scheduler.tick() == 0
    bench.scheduler.advance(200)
    assert bench.writer.written == count + 3


def test_many_that_wait_for_a_topic_do_not_have_it_asked_for_more_often() -> None:
    bench = Bench(max_records=10, exists=False)
    for _ in range(20):
        bench.writer.offer("a", 1)
    bench.scheduler.tick()
    assert bench.created == ["__t"]
    assert bench.scheduler.pending == ["write-__t"]


def test_bytes_are_bounded_as_well() -> None:
    bench = Bench(max_bytes=100)
    assert bench.writer.offer("a", 60)
    assert not bench.writer.offer("b", 41)
    assert bench.writer.offer("c", 40)
    assert bench.writer.dropped == 1
    bench.scheduler.advance(200)
    assert bench.writer.offer("d", 100), "what was written takes no room any more"


def test_the_first_record_has_the_topic_made_and_waits_for_it() -> None:
    bench = Bench(exists=False)
    assert bench.created == []
    bench.writer.offer("a", 1)
    bench.scheduler.advance(200)
    assert bench.created == ["__t"]
    assert bench.writer.queued == 1
    bench.cache.leaders = [1]
    bench.scheduler.advance(100)
    assert bench.values() == [b"a"]


def test_it_looks_less_and_less_often_for_a_topic_that_is_not_made() -> None:
    bench = Bench(exists=False)
    bench.writer.offer("a", 1)
    bench.scheduler.advance(200)
    bench.scheduler.advance(60_000)
    assert 8 <= len(bench.created) <= 14
    bench.cache.leaders = [1]
    bench.scheduler.advance(10_000)
    assert bench.writer.written == 1


def test_it_writes_only_to_partitions_that_this_broker_leads(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.cache.leaders = [2, 1, 3]
    for number in range(6):
        bench.writer.offer(TopicRecord(1, b"v", str(number).encode()), 1)
    bench.scheduler.advance(200)
    assert {number for _, number, _ in bench.appends.batches} == {1}
    caplog.set_level(logging.WARNING)
    bench.cache.leaders = [2, 3]
    bench.writer.offer("a", 1)
    bench.scheduler.advance(60_000)
    assert caplog.text.count("leads none of its partitions") == 1
    assert bench.created == []


def test_what_comes_while_others_are_put_back_is_behind_them() -> None:
    bench = Bench()
    bench.cache.leaders = [1]

    def refuse(_number: int) -> ProduceResult:
        bench.writer.offer("c", 1)
        return ProduceResult(Errors.NOT_LEADER_OR_FOLLOWER)

    bench.appends.answer = refuse
    bench.writer.offer("a", 1)
    bench.writer.offer("b", 1)
    bench.scheduler.advance(200)
    bench.appends.answer = None
    bench.scheduler.advance(200)
    assert bench.values() == [b"a", b"b", b"c"]


@pytest.mark.parametrize("error", [Errors.NOT_LEADER_OR_FOLLOWER, Errors.UNKNOWN_TOPIC_OR_PARTITION])
def test_what_passes_is_tried_again_in_order(error: Errors) -> None:
    bench = Bench()
    bench.cache.leaders = [1]
    bench.appends.answer = lambda _number: ProduceResult(error)
    bench.writer.offer("a", 1)
    bench.writer.offer("b", 1)
    bench.scheduler.advance(1_000)
    assert bench.writer.queued == 2
    bench.writer.offer("c", 1)
    bench.appends.answer = None
    bench.scheduler.advance(200)
    assert bench.values() == [b"a", b"b", b"c"]


def test_what_the_log_refuses_is_counted_and_gone() -> None:
    bench = Bench()
    bench.appends.answer = lambda _number: ProduceResult(Errors.MESSAGE_TOO_LARGE)
    bench.writer.offer("a", 1)
    bench.scheduler.advance(1_000)
    assert (bench.writer.failed, bench.writer.queued, bench.writer.dropped) == (1, 0, 0)


def test_a_record_that_cannot_be_encoded_keeps_no_other_back() -> None:
    bench = Bench()
    bench.writer.offer("a", 1)
    bench.writer.offer(None, 1)  # type: ignore[arg-type]
    bench.writer.offer("b", 1)
    bench.encode = lambda item: TopicRecord(1, item.encode())  # type: ignore[method-assign, union-attr]
    bench.writer._encode = bench.encode
    bench.scheduler.advance(200)
    assert bench.values() == [b"a", b"b"]
    assert bench.writer.failed == 1


def test_large_records_are_spread_over_batches() -> None:
    bench = Bench()
    bench.cache.leaders = [1]
    for _ in range(3):
        bench.writer.offer(TopicRecord(1, bytes(BATCH_BYTES // 2)), 1)
    bench.writer.offer(TopicRecord(1, bytes(2 * BATCH_BYTES)), 1)
    bench.scheduler.advance(200)
    counts = [batch.record_count for _, _, data in bench.appends.batches for batch in iter_batches(data)]
    assert counts == [2, 1, 1]


def test_close_writes_what_is_left_and_takes_no_more() -> None:
    bench = Bench()
    bench.writer.offer("a", 1)
    bench.writer.close()
    assert bench.values() == [b"a"]
    assert not bench.writer.offer("b", 1)
    assert bench.writer.dropped == 1
    bench.scheduler.advance(1_000)
    assert bench.values() == [b"a"]


def test_close_without_a_topic_drops() -> None:
    bench = Bench(exists=False)
    bench.writer.offer("a", 1)
    bench.writer.close()
    assert (bench.writer.dropped, bench.writer.queued) == (1, 0)
