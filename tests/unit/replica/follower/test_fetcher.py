"""The loop of a fetcher, stepped by hand with a leader that does what the test says."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path

import pytest

from barnabas.common.clock import MockClock
from barnabas.common.errors import KafkaTimeoutError, NotLeaderOrFollowerError, OffsetOutOfRangeError
from barnabas.log.leader_epoch_cache import EpochEndOffset
from barnabas.replica.follower.fetcher import (
    UNKNOWN_EPOCH,
    AbstractFetcherManager,
    AbstractFetcherThread,
    FetchedData,
    FetchPosition,
    PartitionFetch,
    diverging_epoch,
    truncation_offset,
)
from barnabas.replica.follower.replica_quota import UNBOUNDED_QUOTA
from barnabas.replica.partition.partition import Partition
from log_fixtures import NOW, all_records, client_batch, values
from replica_fixtures import T0, T0_ID, ReplicaBox

BACKOFF_MS = 500


class Leader:
    """A `LeaderEndPoint` whose next data the test sets."""

    def __init__(self) -> None:
        self.asked: list[FetchPosition] = []
        self.data: FetchedData = FetchedData()
        self.unreachable: Exception | None = None
        self.earliest = 0

    def fetch(self, positions: Sequence[tuple[Partition, FetchPosition]]) -> Iterator[tuple[Partition, FetchedData]]:
        if self.unreachable is not None:
            raise self.unreachable
        for partition, position in positions:
            self.asked.append(position)
            yield partition, self.data

    def earliest_offset(self, partition: Partition) -> int:
        assert partition.topic_partition == T0
        return self.earliest


class Thread(AbstractFetcherThread[PartitionFetch]):
    caught_up = 0
    removed = 0

    def new_fetch(self, partition: Partition) -> PartitionFetch:
        return PartitionFetch(partition)

    def on_caught_up(self, fetch: PartitionFetch) -> bool:
        self.caught_up += 1
        return False

    def on_removed(self, fetch: PartitionFetch) -> None:
        self.removed += 1


class Box:
    """A partition that this broker follows in leader epoch 1, and its fetcher. The clock's waits end at once."""

    def __init__(self, path: Path) -> None:
        self.clock = MockClock(NOW)
        self.replicas = ReplicaBox([path], clock=self.clock)
        self.partition = self.replicas.create_topic(replicas=[1, 2])
        self.replicas.produce({T0_ID: client_batch([b"a"])})
        self.replicas.produce({T0_ID: client_batch([b"b"])})
        self.replicas.change(leader=2)
        self.leader = Leader()
        self.thread = Thread("fetcher", self.leader, UNBOUNDED_QUOTA, backoff_ms=BACKOFF_MS, clock=self.clock)
        self.thread.add(self.partition)

    def turn(self) -> None:
        self.thread.wakeup()  # so that it does not wait
        self.thread.do_work()

    @property
    def values(self) -> list[bytes]:
        return values(all_records(self.partition.local_log_or_raise()))


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    made = Box(tmp_path / "one")
    yield made
    made.replicas.kill()


def batch(value: bytes, offset: int, epoch: int) -> bytes:
    return bytes(client_batch([value], base_offset=offset, leader_epoch=epoch))


def test_records_are_appended_and_the_offsets_of_the_leader_followed(box: Box) -> None:
    box.leader.data = FetchedData(batch(b"c", 2, 1), high_watermark=2)
    box.turn()
    assert box.leader.asked == [FetchPosition(2, 0)]
    assert box.values == [b"a", b"b", b"c"]
    assert box.partition.local_log_or_raise().high_watermark == 2
    box.leader.data = FetchedData(high_watermark=3)
    box.turn()
    assert box.leader.asked[1] == FetchPosition(3, 1)
    assert box.thread.caught_up == 1
    assert box.partition.local_log_or_raise().high_watermark == 3


def test_a_diverging_epoch_truncates(box: Box) -> None:
    box.leader.data = FetchedData(diverging_epoch=EpochEndOffset(0, 1))
    box.turn()
    assert box.values == [b"a"]
    box.leader.data = FetchedData(batch(b"x", 1, 1))
    box.turn()
    assert box.values == [b"a", b"x"]
    assert box.leader.asked == [FetchPosition(2, 0), FetchPosition(1, 0)]


def test_a_log_that_the_leader_has_deleted_starts_anew(box: Box) -> None:
    box.leader.data = FetchedData(error=OffsetOutOfRangeError("gone"))
    box.leader.earliest = 40
    box.turn()
    log = box.partition.local_log_or_raise()
    assert (log.log_start_offset, log.log_end_offset) == (40, 40)


@pytest.mark.parametrize("everything", [False, True], ids=["partition", "leader"])
def test_an_error_backs_off(box: Box, everything: bool) -> None:
    if everything:
        box.leader.unreachable = KafkaTimeoutError("no response")
    else:
        box.leader.data = FetchedData(error=NotLeaderOrFollowerError("moved"))
    box.turn()
    box.leader.unreachable = None
    box.leader.asked.clear()
    box.turn()
    assert box.leader.asked == []
    box.clock.advance(BACKOFF_MS)
    box.turn()
    assert len(box.leader.asked) == 1


def test_a_partition_that_is_removed_is_not_fetched_for(box: Box) -> None:
    box.thread.remove([T0])
    assert (box.thread.partition_count, box.thread.removed) == (0, 1)
    box.turn()
    assert box.leader.asked == []


def test_data_that_comes_after_the_removal_is_dropped(box: Box) -> None:
    class Slow(Leader):
        def fetch(
            self, positions: Sequence[tuple[Partition, FetchPosition]]
        ) -> Iterator[tuple[Partition, FetchedData]]:
            for partition, _ in positions:
                box.thread.remove([T0])
                box.thread.add(partition)
                yield partition, FetchedData(batch(b"late", 2, 1))

    box.thread._leader = Slow()
    box.turn()
    assert box.values == [b"a", b"b"]


def test_the_truncation_offset_is_where_both_logs_end_the_same_epoch(box: Box) -> None:
    log = box.partition.local_log_or_raise()
    assert diverging_epoch(log, FetchPosition(2, 0)) is None
    assert diverging_epoch(log, FetchPosition(1, 0)) is None
    assert diverging_epoch(log, FetchPosition(3, 0)) == EpochEndOffset(0, 2)
    assert diverging_epoch(log, FetchPosition(2, 7)) is None, "nothing is known of that epoch"
    assert diverging_epoch(log, FetchPosition(3, None)) == EpochEndOffset(UNKNOWN_EPOCH, 2)
    assert truncation_offset(log, EpochEndOffset(0, 1)) == 1
    assert truncation_offset(log, EpochEndOffset(0, 9)) == 2
    assert truncation_offset(log, EpochEndOffset(UNKNOWN_EPOCH, 1)) == 1


def test_a_manager_starts_and_ends_its_threads(box: Box) -> None:
    class Manager(AbstractFetcherManager):
        def fetcher_id(self, partition: Partition) -> Hashable:
            return partition.leader_id

        def create_fetcher_thread(self, fetcher_id: Hashable) -> Thread:
            return Thread(f"from-{fetcher_id}", box.leader, UNBOUNDED_QUOTA, backoff_ms=1, clock=box.clock)

    manager = Manager()
    manager.add_partition(box.partition)
    manager.add_partition(box.partition)
    assert manager.thread_count == 1
    manager.shutdown_idle_threads()
    assert manager.thread_count == 1
    manager.remove_partitions([T0])
    manager.shutdown_idle_threads()
    assert manager.thread_count == 0
    manager.shutdown()
    manager.add_partition(box.partition)
    assert manager.thread_count == 0
