"""The accumulator: what goes in, what is ready, what comes out."""

from __future__ import annotations

import threading
from collections import Counter
from random import Random
from typing import Any, NamedTuple

import pytest

from barnabas.clients.common.metadata_snapshot import MetadataSnapshot, PartitionInfo, TopicInfo
from barnabas.clients.producer.errors import BufferExhaustedError, ProducerClosedError
from barnabas.clients.producer.internals.accumulator_config import AccumulatorConfig
from barnabas.clients.producer.internals.buffer_pool import BufferPool
from barnabas.clients.producer.internals.built_in_partitioner import BuiltInPartitioner
from barnabas.clients.producer.internals.future_record_metadata import FutureRecordMetadata
from barnabas.clients.producer.internals.partition_queue import PartitionQueue
from barnabas.clients.producer.internals.producer_batch import ProducerBatch
from barnabas.clients.producer.internals.record_accumulator import RecordAccumulator
from barnabas.clients.producer.record_metadata import UNKNOWN_PARTITION
from barnabas.common.clock import MockClock
from barnabas.common.identifiers import ZERO_UUID
from barnabas.common.topic_partition import TopicPartition
from barnabas.network.client.exponential_backoff import ExponentialBackoff
from barnabas.network.client.inflight import FOREVER
from barnabas.network.client.node import Node
from barnabas.records.batch import CompressionType
from barnabas.records.builder import NO_BATCH

pytestmark = pytest.mark.mechanism("P05")

ONE, TWO = Node(1, "one", 1), Node(2, "two", 1)


def world(*leaders: Node | None, epoch: int = 0) -> MetadataSnapshot:
    partitions = tuple(PartitionInfo("t", index, leader, epoch) for index, leader in enumerate(leaders))
    return MetadataSnapshot([ONE, TWO], [TopicInfo("t", ZERO_UUID, partitions)])


class Appended(NamedTuple):
    """What an append did."""

    future: FutureRecordMetadata
    partition: int
    wake: bool
    new_batch_created: bool


class Harness:
    def __init__(self, *, memory: int = 1 << 20, **config: Any) -> None:
        self.clock = MockClock()
        settings: dict[str, Any] = {"batch_size": 200, "linger_ms": 10, "retry_backoff_ms": 100, **config}
        self.accumulator = RecordAccumulator(
            AccumulatorConfig(**settings),
            BufferPool(memory, settings["batch_size"], clock=self.clock),
            clock=self.clock,
            random=Random(1),
        )
        self.world = world(ONE, ONE, TWO)
        self.woken = 0
        self.accumulator.wake = self._woken

    def _woken(self) -> None:
        self.woken += 1

    @property
    def now(self) -> int:
        return self.clock.hi_res_milliseconds()

    def append(self, partition: int = 0, size: int = 50, block_ms: float = 0) -> Appended:
        batches = {id(batch) for queue in self.accumulator.queues for batch in queue.batches}
        woken = self.woken
        record = (1, None, b"v" * size, (), None)
        future = self.accumulator.append("t", partition, record, 82 + size, self.world, block_ms)
        assert future is not None
        queue = self.accumulator.queues.find(future.batch_result.topic_partition)
        assert queue is not None
        new = id(queue.batches[-1]) not in batches
        return Appended(future, queue.topic_partition.partition, self.woken > woken, new)

    def queue(self, partition: int = 0) -> PartitionQueue:
        queue = self.accumulator.queues.find(TopicPartition("t", partition))
        assert queue is not None
        return queue

    def ready(self) -> list[Node]:
        return self.accumulator.ready(self.world, self.now).ready_nodes

    def delay(self) -> int:
        return self.accumulator.ready(self.world, self.now).next_ready_check_delay_ms

    def drain(self, *nodes: Node, max_size: int = 1 << 20) -> list[ProducerBatch]:
        drained = self.accumulator.batch_drain.drain(self.world, nodes or (ONE,), max_size, self.now)
        return [batch for batches in drained.values() for batch in batches]


def test_records_share_a_batch_until_it_is_full() -> None:
    harness = Harness()
    first = harness.append()
    assert (first.new_batch_created, first.wake) == (True, True), "linger begins: the I/O thread has to know"
    second = harness.append()
    assert (second.new_batch_created, second.wake) == (False, False)
    third = harness.append()
    assert (third.new_batch_created, third.wake) == (True, True), "the first batch is closed, and so ready"
    harness.append()
    assert not harness.append().wake, "it was ready before"
    queue = harness.accumulator.queues.find(TopicPartition("t", 0))
    assert queue is not None
    assert [batch.record_count for batch in queue.batches] == [2, 2, 1]
    assert harness.accumulator.pool.available_memory() == (1 << 20) - 600


@pytest.mark.parametrize("leaves", ["drained", "expired", "aborted"])
def test_nothing_keeps_a_batch_that_has_left_its_queue(leaves: str) -> None:
    """Or there would be memory in use that the pool counts as free."""
    harness = Harness(delivery_timeout_ms=50)
    accumulator = harness.accumulator
    assert harness.append(UNKNOWN_PARTITION).future is not None
    entry = accumulator.queues.topics["t"]
    sticky = entry.partitioner.sticky
    assert sticky is not None
    queue = harness.queue(sticky.partition)
    builder = queue.batches[0].builder
    assert builder.accept(1, None, b"v" * 20, (), None, True) is not None
    assert queue.open_batch is entry.partitioner.open_batch is builder
    if leaves == "drained":
        assert len(harness.drain(ONE, TWO)) == 1
    elif leaves == "expired":
        harness.clock.advance(100)
        harness.ready()
        assert len(accumulator.expired_batches(harness.now)) == 1
    else:
        accumulator.abort_batches(ProducerClosedError("x"))
    assert queue.open_batch is entry.partitioner.open_batch is NO_BATCH
    assert sticky.produced_bytes == builder.estimated_size, "what it counted is not lost"
    assert builder.accept(1, None, b"v", (), None, True) is None


def test_a_large_record_has_a_batch_of_its_own() -> None:
    harness = Harness()
    harness.append(size=1_000)
    assert harness.accumulator.pool.available_memory() == (1 << 20) - 1_082
    (batch,) = harness.drain()
    assert batch.record_count == 1
    harness.accumulator.deallocate(batch)
    assert harness.accumulator.pool.available_memory() == 1 << 20


def test_memory_is_given_back_when_somebody_else_made_the_batch() -> None:
    """While a record waits for memory, another thread makes a batch; the record fits in there."""
    harness = Harness()
    pool = harness.accumulator.pool
    allocate = pool.allocate
    pool.allocate(pool.total_memory, 0)

    def slow(size: int, max_time_to_block_ms: float) -> int:
        pool.allocate = allocate  # type: ignore[method-assign]
        pool.deallocate(pool.total_memory)
        harness.append()
        return allocate(size, max_time_to_block_ms)

    pool.allocate = slow  # type: ignore[method-assign]
    harness.append()
    queue = harness.accumulator.queues.find(TopicPartition("t", 0))
    assert queue is not None
    assert [batch.record_count for batch in queue.batches] == [2]
    assert pool.available_memory() == (1 << 20) - 200


def test_no_memory_and_no_time() -> None:
    harness = Harness(memory=200)
    harness.append()
    with pytest.raises(BufferExhaustedError, match=r"Poolable size: \d+ bytes$"):
        harness.append(partition=1)
    harness.accumulator.errors.leaderless_topics = {"orders", "bills"}
    with pytest.raises(BufferExhaustedError, match=r"Batches wait for a leader of partitions of bills, orders$"):
        harness.append(partition=1)
    assert harness.accumulator.pool.available_memory() == 0


def test_ready_when_it_has_lingered() -> None:
    harness = Harness()
    harness.append()
    assert harness.ready() == []
    assert harness.delay() == 10
    harness.clock.advance(9)
    assert harness.delay() == 1
    harness.clock.advance(1)
    assert harness.ready() == [ONE]


def test_ready_when_it_is_full() -> None:
    harness = Harness()
    for _ in range(3):
        harness.append()
    assert harness.ready() == [ONE]
    for _ in range(3):
        harness.append(partition=2)
    assert harness.ready() == [ONE, TWO]


def test_ready_when_memory_has_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness()
    harness.append()
    monkeypatch.setattr(BufferPool, "queued", 1)
    assert harness.ready() == [ONE]


def test_ready_when_it_is_flushed_or_closed() -> None:
    harness = Harness()
    harness.append()
    harness.accumulator.begin_flush()
    assert harness.ready() == [ONE]
    (batch,) = harness.drain()
    batch.complete(0, -1)
    harness.accumulator.deallocate(batch)
    harness.accumulator.await_flush_completion()
    harness.append()
    assert harness.ready() == []
    harness.accumulator.close()
    assert harness.ready() == [ONE]


def test_muted_partitions_are_left_out() -> None:
    harness = Harness()
    for _ in range(3):
        harness.append()
    harness.accumulator.mute_partition(TopicPartition("t", 0))
    assert harness.ready() == []
    assert harness.drain() == []
    harness.accumulator.unmute_partition(TopicPartition("t", 0))
    assert harness.ready() == [ONE]
    assert len(harness.drain()) == 1


def test_without_a_leader_metadata_is_needed() -> None:
    harness = Harness()
    harness.world = world(None)
    harness.append(size=200)
    result = harness.accumulator.ready(harness.world, harness.now)
    assert (result.ready_nodes, result.unknown_leader_topics) == ([], {"t"})
    assert result.next_ready_check_delay_ms == FOREVER


def test_backs_off_after_a_failure_unless_the_leader_is_another() -> None:
    harness = Harness(retry_backoff_max_ms=100)
    harness.append(size=200)
    (batch,) = harness.drain()
    harness.accumulator.reenqueue(batch, harness.now)
    assert harness.ready() == []
    assert harness.drain() == []
    assert 0 < harness.delay() <= 120
    harness.world = world(TWO, ONE, TWO, epoch=1)
    assert harness.ready() == [TWO], "a new leader has done nothing wrong"
    (batch,) = harness.drain(TWO)
    harness.accumulator.reenqueue(batch, harness.now)
    assert harness.ready() == []
    harness.clock.advance(120)
    assert harness.ready() == [TWO]


def test_ready_and_drain_agree_on_whether_a_retry_backs_off() -> None:
    harness = Harness(retry_backoff_max_ms=1_000)
    waits_ms = set()
    for _ in range(50):
        harness.append(size=200)
        (batch,) = harness.drain()
        failed_ms = harness.now
        harness.accumulator.reenqueue(batch, failed_ms)
        while not harness.ready():
            assert harness.drain() == []
            harness.clock.advance(1)
        assert harness.drain() == [batch]
        waits_ms.add(harness.now - failed_ms)
    assert min(waits_ms) >= 80
    assert max(waits_ms) <= 120
    assert len(waits_ms) > 5, "the backoff has jitter"


def test_drain_takes_one_batch_of_each_partition_and_goes_round() -> None:
    harness = Harness(batch_size=100)
    for partition in (0, 1):
        for _ in range(3):
            harness.append(partition, size=100)
    first = harness.drain()
    assert [batch.topic_partition.partition for batch in first] == [0, 1]
    size = len(first[0].records)
    second = harness.drain(max_size=size)
    third = harness.drain(max_size=size)
    assert {batch.topic_partition.partition for batch in second + third} == {0, 1}, "no partition starves"
    assert all(batch.is_closed for batch in first + second + third)


def test_one_batch_is_drained_however_large() -> None:
    harness = Harness()
    harness.append(size=1_000)
    assert len(harness.drain(max_size=10)) == 1


def test_expiry() -> None:
    harness = Harness(delivery_timeout_ms=1_000)
    harness.append()
    harness.ready()
    assert harness.accumulator.ready_check.next_expiry_time_ms == harness.now + 1_000
    harness.clock.advance(999)
    assert harness.accumulator.expired_batches(harness.now) == []
    harness.clock.advance(1)
    (batch,) = harness.accumulator.expired_batches(harness.now)
    assert not harness.accumulator.has_undrained
    assert batch.builder.is_open is False


def test_the_sticky_partition_moves_on_when_its_batch_is_full() -> None:
    harness = Harness()
    harness.world = world(ONE, ONE, ONE, ONE)
    chosen = [harness.append(UNKNOWN_PARTITION, size=60).partition for _ in range(12)]
    assert chosen[0] == chosen[1], "one batch goes to one partition"
    assert len(set(chosen)) > 1
    for partition in set(chosen):
        queue = harness.accumulator.queues.find(TopicPartition("t", partition))
        assert queue is not None
        assert all(batch.record_count == 2 for batch in list(queue.batches)[:-1])


# -- batches that are expanded while they wait


def test_a_batch_that_is_ready_takes_more_as_long_as_it_waits() -> None:
    harness = Harness(batch_size=200, batch_max_size=1_000)
    pool = harness.accumulator.pool
    harness.append()
    harness.append()
    assert harness.ready() == [], "as ever, a batch of less than batch.size lingers"
    assert pool.available_memory() == (1 << 20) - 200
    third = harness.append()
    assert (third.new_batch_created, third.wake) == (False, True)
    assert harness.ready() == [ONE], "as ever, a batch of batch.size does not"
    assert pool.available_memory() == (1 << 20) - 800
    results = [harness.append() for _ in range(13)]
    assert not any(result.new_batch_created or result.wake for result in results), "it was ready before"
    assert pool.available_memory() == (1 << 20) - 1_000, "four times as large, but for the last step"
    last = harness.append()
    assert (last.new_batch_created, last.wake) == (True, True)
    (batch,) = harness.drain()
    assert (batch.record_count, batch.reserved_bytes) == (16, 1_000)
    assert 200 < len(batch.records) <= 1_000
    assert [future.partition for future in results] == [0] * 13
    harness.accumulator.deallocate(batch)
    assert pool.available_memory() == (1 << 20) - 200
    assert harness.append().new_batch_created is False


def test_a_batch_that_was_drained_takes_no_more() -> None:
    harness = Harness(batch_size=200, batch_max_size=1_000)
    for _ in range(4):
        harness.append()
    (batch,) = harness.drain()
    assert harness.append().new_batch_created
    assert batch.builder.accept(1, None, b"v", (), None, False, True) is None
    assert batch.record_count == 4
    assert (batch.reserved_bytes, harness.accumulator.pool.available_memory()) == (800, (1 << 20) - 1_000)


def test_a_large_record_goes_where_it_fits() -> None:
    harness = Harness(batch_size=200, batch_max_size=1_000)
    harness.append()
    assert not harness.append(size=700).new_batch_created
    assert harness.accumulator.pool.available_memory() == (1 << 20) - 839, "just what is needed, if that is more"
    assert harness.append(size=700).new_batch_created
    assert [(batch.record_count, batch.reserved_bytes) for batch in harness.drain()] == [(2, 839)]


def test_nobody_waits_for_memory_to_expand_a_batch() -> None:
    harness = Harness(memory=1_000, batch_size=200, batch_max_size=1_600)
    for _ in range(12):
        assert harness.append(block_ms=0).future is not None
    assert harness.accumulator.pool.available_memory() == 200, "not enough to expand it once more"
    result = harness.append()
    assert result.new_batch_created, "the usual way, on which a thread may wait its turn"
    assert harness.accumulator.pool.available_memory() == 0
    for batch in (*harness.drain(), *harness.drain()):
        harness.accumulator.deallocate(batch)
    assert harness.accumulator.pool.available_memory() == 1_000


def test_a_batch_is_not_expanded_past_those_who_wait_for_memory() -> None:
    harness = Harness(batch_size=200, batch_max_size=1_000)
    for _ in range(2):
        harness.append()
    pool = harness.accumulator.pool
    waiter = threading.Condition(pool._lock)
    pool._waiters.append(waiter)
    with pytest.raises(BufferExhaustedError):
        harness.append()
    pool._waiters.remove(waiter)
    assert pool.available_memory() == (1 << 20) - 200


@pytest.mark.mechanism("P11")
def test_a_batch_that_has_waited_for_long_is_not_expanded() -> None:
    """What it takes in late has to be delivered by the time that its first record was given."""
    harness = Harness(batch_size=200, batch_max_size=1_000, delivery_timeout_ms=1_000)
    for _ in range(2):
        harness.append()
    harness.clock.advance(99)
    assert not any(harness.append().new_batch_created for _ in range(10)), "expanded once"
    harness.clock.advance(1)
    assert harness.append().new_batch_created


@pytest.mark.mechanism("P08")
def test_a_topic_that_has_refused_a_batch_gets_no_larger_ones() -> None:
    harness = Harness(batch_size=200, batch_max_size=1_000)
    accumulator = harness.accumulator
    for _ in range(10):
        harness.append()
    (big,) = harness.drain()
    for _ in range(2):
        harness.append()
    parts = accumulator.split_and_reenqueue(big)
    accumulator.deallocate(big)
    assert parts == 5, "of batch.size"
    assert harness.append().new_batch_created, "also one that was there before is not expanded"
    assert accumulator.pool.available_memory() == (1 << 20) - 400
    queue = accumulator.queues.find(TopicPartition("t", 0))
    assert queue is not None
    assert [batch.record_count for batch in queue.batches] == [2] * 6 + [1]
    for _ in range(3):
        accumulator.append("u", 0, (1, None, b"v" * 50, (), None), 132, harness.world, 0)
    assert accumulator.pool.available_memory() == (1 << 20) - 1_200, "another topic may have another limit"


@pytest.mark.mechanism("P12")
def test_a_compressed_batch_is_not_expanded_in_vain_hope() -> None:
    """Were its records not to compress any more, it would come out as large as they are: no request could take it."""
    harness = Harness(
        batch_size=1_000, batch_max_size=10_000, max_request_size=60_000, compression=CompressionType.ZSTD
    )
    harness.accumulator.estimator.set_estimation("t", CompressionType.ZSTD, 0.05)
    harness.append(size=10)
    while not harness.append(size=10).new_batch_created:
        pass
    first = harness.queue().batches[0]
    assert 55_000 < first.builder.records_size <= 60_000 < first.reserved_bytes / 0.05


@pytest.mark.mechanism("P04")
@pytest.mark.parametrize("batch_max_size", [1_000, 16_000])
def test_a_slow_partition_gets_no_more_than_its_share(batch_max_size: int) -> None:
    """Its batches wait longer, and so become larger; but it is not stuck to for longer (KIP-794)."""
    harness = Harness(batch_size=1_000, batch_max_size=batch_max_size, adaptive_partitioning=False)
    harness.world = world(TWO, ONE, ONE, ONE)
    counts = Counter[int]()
    for _ in range(20_000):
        counts[harness.append(UNKNOWN_PARTITION, size=30).partition] += 1
        while ONE in harness.ready():
            for batch in harness.drain():
                harness.accumulator.deallocate(batch)
    assert 0.75 * 5_000 < counts[0] < 1.25 * 5_000
    assert (len(harness.queue(0).batches[0].builder.close()) > 10_000) == (batch_max_size > 1_000)


@pytest.mark.mechanism("P04")
def test_what_waits_in_expanded_batches_counts_as_load() -> None:
    harness = Harness(batch_max_size=1_000)
    harness.world = world(ONE, ONE)
    for _ in range(6):
        harness.append(0)
    harness.append(1)
    harness.ready()
    stats = harness.accumulator.queues.topic("t").partitioner.load_stats
    assert stats is not None
    assert stats.cumulative_frequency_table == [1, 5], "four times batch.size in one batch, and one"


def test_a_producer_that_is_closed_expands_nothing() -> None:
    harness = Harness(batch_size=200, batch_max_size=1_000)
    append = harness.append()
    harness.append()
    harness.accumulator.pool.close()
    with pytest.raises(ProducerClosedError):
        harness.append()
    harness.accumulator.close()
    harness.accumulator.abort_incomplete_batches()
    assert append.future is not None
    assert append.future.done()
    assert harness.accumulator.pool.available_memory() == 1 << 20


@pytest.mark.mechanism("P04")
def test_a_switch_between_the_look_and_the_lock() -> None:
    harness = Harness()
    harness.append(UNKNOWN_PARTITION)
    accumulator = harness.accumulator
    partitioner = accumulator.queues.topic("t").partitioner
    looked = partitioner.sticky
    assert looked is not None
    queue = harness.queue(looked.partition)
    lock = queue.lock

    class Switching:
        """A lock that is taken just after another thread has switched."""

        def __enter__(self) -> None:
            queue.lock = lock
            assert looked is not None
            partitioner.update_partition_info(looked, 10_000, harness.world)

        def __exit__(self, *_: object) -> None:
            pass

    queue.lock = Switching()  # type: ignore[assignment]
    result = harness.append(UNKNOWN_PARTITION)
    assert partitioner.sticky is not None
    assert partitioner.sticky is not looked
    assert partitioner.sticky.partition == result.partition
    assert partitioner.sticky.produced_bytes > 0, "it was counted for the partition that it went to"


@pytest.mark.mechanism("P04")
def test_the_next_partition_follows_a_share_without_an_append() -> None:
    """A batch that grows while it waits takes its share of records directly; the next record goes elsewhere."""
    harness = Harness(batch_max_size=2_000)
    entry = harness.accumulator.queues.topic("t")
    entry.snapshot = harness.world
    assert not entry.switch_partition(), "nothing is chosen yet"
    partitioner = entry.partitioner
    while not partitioner.may_switch:
        harness.append(UNKNOWN_PARTITION)
    sticky, batch = partitioner.sticky, partitioner.open_batch
    assert sticky is not None
    assert not entry.switch_partition(), "it has not had its share"
    before = batch.record_count
    batch.max_size = 2_000
    while batch.accept(1, None, b"v" * 20, (), None, True) is not None:
        assert batch.estimated_size < 1_000
    assert batch.record_count > before
    assert entry.switch_partition()
    assert partitioner.sticky is not sticky
    assert sticky.produced_bytes >= 200
    assert batch.accept(1, None, b"v" * 20, (), None, True) is None, "another partition is sticky now"
    assert batch.accept(1, None, b"v" * 20, (), None, False) is not None, "but the batch has room"


@pytest.mark.mechanism("P04")
def test_a_switch_that_was_put_off_happens_when_the_batch_is_gone() -> None:
    harness = Harness()
    harness.world = world(ONE, ONE, ONE)
    for _ in range(3):
        harness.append(UNKNOWN_PARTITION)
    partitioner = harness.accumulator.queues.topic("t").partitioner
    before = partitioner.sticky
    assert before is not None
    assert before.produced_bytes >= 200, "enough for a switch, but the second batch has room"
    harness.clock.advance(10)
    while harness.drain():
        pass
    harness.append(UNKNOWN_PARTITION)
    assert partitioner.sticky is not before
    assert partitioner.sticky is not None
    assert 0 < partitioner.sticky.produced_bytes < 200


@pytest.mark.mechanism("P04")
def test_load_is_told_to_the_partitioner_when_all_partitions_are_known() -> None:
    harness = Harness(batch_size=100, partition_availability_timeout_ms=50)
    harness.world = world(ONE, ONE, TWO)
    harness.append(0, size=100)
    harness.append(1, size=100)
    harness.ready()
    partitioner = harness.accumulator.queues.topic("t").partitioner
    nothing = partitioner.load_stats
    assert nothing is None, "nothing is known about the third"
    harness.append(2, size=100)
    harness.append(2, size=100)
    harness.ready()
    stats = partitioner.load_stats
    assert stats is not None
    assert stats.cumulative_frequency_table == [2, 4, 5]
    harness.accumulator.ready_check.update_node_latency_stats(TWO.id, harness.now, True)
    harness.clock.advance(51)
    harness.accumulator.ready_check.update_node_latency_stats(TWO.id, harness.now, False)
    harness.ready()
    stats = partitioner.load_stats
    assert stats is not None
    assert stats.partition_ids == [0, 1], "its leader has taken nothing for too long"


def test_closed() -> None:
    harness = Harness()
    append = harness.append()
    harness.accumulator.close()
    with pytest.raises(ProducerClosedError):
        harness.append()
    with pytest.raises(ProducerClosedError):
        harness.append(partition=1)
    harness.accumulator.abort_incomplete_batches()
    assert append.future is not None
    assert isinstance(append.future.exception(0), ProducerClosedError)
    assert not harness.accumulator.has_incomplete
    assert harness.accumulator.pool.available_memory() == 1 << 20


def test_only_what_is_not_drained_is_aborted() -> None:
    harness = Harness(batch_size=100)
    sent = harness.append(size=100).future
    kept = harness.append(size=100).future
    (batch,) = harness.drain()
    harness.accumulator.abort_undrained_batches(ValueError("abort"))
    assert sent is not None
    assert kept is not None
    assert not sent.done()
    assert isinstance(kept.exception(0), ValueError)
    batch.complete(0, -1)
    harness.accumulator.deallocate(batch)
    assert harness.accumulator.pool.available_memory() == 1 << 20


def test_a_batch_is_completed_once() -> None:
    harness = Harness()
    harness.append()
    (batch,) = harness.drain()
    harness.accumulator.deallocate(batch)
    with pytest.raises(RuntimeError, match="completed twice"):
        harness.accumulator.deallocate(batch)
    assert harness.accumulator.pool.available_memory() == 1 << 20


def expected(harness: Harness) -> tuple[list[Node], int, set[str], int, list[int] | None, list[int]]:
    """What `ready` has to find, looked up afresh for each partition: nodes, delay, topics without a leader, the next
    expiry, and the lengths of the queues to choose between with their partitions."""
    accumulator, now = harness.accumulator, harness.now
    config = accumulator.config
    nodes: dict[int, Node] = {}
    delay, earliest, unknown = FOREVER, FOREVER, set()
    queues = accumulator.queues.topics["t"].queues
    sizes: list[int] = []
    ids: list[int] = []
    for partition, queue in queues.items():
        info = harness.world.partition(queue.topic_partition)
        leader = None if info is None else info.leader
        stats = None if leader is None else accumulator.ready_check._latencies.get(leader.id)
        late = 0 if stats is None else stats.ready_time_ms - stats.drain_time_ms
        if leader is not None and not 0 < config.partition_availability_timeout_ms < late:
            sizes.append(len(queue.batches))
            ids.append(partition)
        if not queue.batches:
            continue
        batch = queue.batches[0]
        earliest = min(earliest, batch.created_ms)
        if leader is None:
            unknown.add("t")
            continue
        if queue.muted or leader.id in nodes:
            continue
        waited = batch.waited_time_ms(now)
        backs_off = batch.attempts > 0 and waited < 100 and not batch.has_leader_changed_for_the_ongoing_retry
        wait = 100 if backs_off else config.linger_ms
        if not backs_off and (len(queue.batches) > 1 or batch.is_ready or waited >= wait):
            nodes[leader.id] = leader
        else:
            delay = min(delay, wait - waited)
    expiry = FOREVER if earliest == FOREVER else earliest + config.delivery_timeout_ms
    covered = len(queues) >= (harness.world.partition_count("t") or 0)
    return list(nodes.values()), delay, unknown, expiry, sizes if covered else None, ids


@pytest.mark.parametrize("seed", range(30))
def test_ready_follows_every_change_of_queues_and_metadata(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps what it has looked up for a topic, and must not keep it for longer than it is true."""
    random = Random(seed)
    harness = Harness(
        batch_size=100,
        retry_backoff_max_ms=100,
        partition_availability_timeout_ms=random.choice([0, 20]),
    )
    harness.accumulator.retry_backoff = ExponentialBackoff(100, 1, 100, 0, Random(1))
    told: list[Any] = []

    def tell(_: BuiltInPartitioner, sizes: Any, ids: Any = (), racks: Any = (), excluded: int = 0) -> None:
        assert len(racks) == len(ids)
        told.append((sizes, ids, excluded))

    monkeypatch.setattr(BuiltInPartitioner, "update_partition_load_stats", tell)
    harness.accumulator.queues.topic("t")
    in_flight: list[ProducerBatch] = []
    epoch = 0
    for _ in range(80):
        step = random.randrange(8)
        if step < 3:
            harness.append(random.randrange(3), random.choice([5, 60]))
        elif step == 3:
            epoch += 1
            leaders = [random.choice([ONE, TWO, None]) for _ in range(random.choice([2, 3, 3, 4]))]
            harness.world = world(*leaders, epoch=epoch)
        elif step == 4:
            in_flight += harness.drain(random.choice([ONE, TWO]))
        elif step == 5 and in_flight:
            harness.accumulator.reenqueue(in_flight.pop(random.randrange(len(in_flight))), harness.now)
        elif step == 6:
            harness.accumulator.ready_check.update_node_latency_stats(
                random.choice([1, 2]), harness.now, random.random() < 0.5
            )
        elif harness.accumulator.queues.topics["t"].queues:
            queue = random.choice(list(harness.accumulator.queues.topics["t"].queues.values()))
            queue.muted = not queue.muted
        harness.clock.advance(random.choice([0, 1, 5, 30]))
        found = harness.accumulator.ready(harness.world, harness.now)
        nodes, delay, unknown, expiry, sizes, ids = expected(harness)
        assert found.ready_nodes == nodes
        assert found.next_ready_check_delay_ms == delay
        assert found.unknown_leader_topics == unknown
        assert harness.accumulator.ready_check.next_expiry_time_ms == expiry
        if sizes is None:
            assert told[-1][0] is None
        else:
            assert told[-1][:2] == (sizes, ids)
            queues = harness.accumulator.queues.topics["t"].queues.values()
            leaders_known = [harness.world.leader_for(queue.topic_partition) for queue in queues]
            assert told[-1][2] == sum(leader is not None for leader in leaders_known) - len(sizes)


def test_a_topic_that_has_refused_a_batch_is_no_longer_weighed_by_bytes() -> None:
    harness = Harness(batch_max_size=1_000)
    harness.world = world(ONE, TWO)
    accumulator = harness.accumulator
    for _ in range(6):
        harness.append(0)
        harness.append(1)
    harness.append(1)
    (big,) = harness.drain(ONE)
    harness.ready()
    stats = accumulator.queues.topic("t").partitioner.load_stats
    assert stats is not None
    assert stats.cumulative_frequency_table == [5, 6], "none, and one batch with four times batch.size"
    accumulator.split_and_reenqueue(big)
    harness.ready()
    stats = accumulator.queues.topic("t").partitioner.load_stats
    assert stats is not None
    assert stats.cumulative_frequency_table == [1, 4], "three batches of those that it was split into, and one"


@pytest.mark.parametrize("seed", range(30))
def test_drain_follows_every_change_of_queues_and_metadata(seed: int) -> None:
    """It keeps which queues are those of a node, and must not keep it for longer than it is true."""
    random = Random(seed)
    harness = Harness(linger_ms=0)
    epoch = 0
    for _ in range(60):
        step = random.randrange(6)
        if step < 3:
            harness.append(random.randrange(4), 5)
        elif step == 3:
            epoch += 1
            harness.world = world(*[random.choice([ONE, TWO, None]) for _ in range(4)], epoch=epoch)
        else:
            node = random.choice([ONE, TWO])
            mine = harness.world.partitions_for_node(node.id)
            waiting = {
                where.partition: queue.batches[0]
                for where in mine
                if (queue := harness.accumulator.queues.find(where)) is not None and queue.batches
            }
            drained = harness.drain(node)
            assert {batch.topic_partition.partition: batch for batch in drained} == waiting
            assert all(batch.current_leader_epoch == epoch for batch in drained)
            assert all(batch.drained_ms == harness.now for batch in drained)
        harness.clock.advance(1)
