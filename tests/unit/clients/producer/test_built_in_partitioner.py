"""The adaptive sticky partitioner."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from barnabas.clients.common.metadata_snapshot import MetadataSnapshot, PartitionInfo, TopicInfo
from barnabas.clients.producer.internals.built_in_partitioner import BuiltInPartitioner, PartitionLoadStats
from barnabas.common.identifiers import ZERO_UUID
from barnabas.network.client.node import Node

pytestmark = pytest.mark.mechanism("P04")

HERE, THERE = Node(1, "one", 1, rack="here"), Node(2, "two", 1, rack="there")


def snapshot(*leaders: Node | None) -> MetadataSnapshot:
    partitions = tuple(PartitionInfo("t", index, leader) for index, leader in enumerate(leaders))
    return MetadataSnapshot([HERE, THERE], [TopicInfo("t", ZERO_UUID, partitions)])


def partitioner(size: int = 100, rack: str | None = None, seed: int = 1) -> BuiltInPartitioner:
    return BuiltInPartitioner("t", size, rack=rack, random=Random(seed))


class Numbers(Random):
    """Draws 0, 1, 2 and so on."""

    def __init__(self) -> None:
        super().__init__()
        self.next = -1

    def getrandbits(self, k: int, /) -> int:
        self.next += 1
        return self.next


def test_the_table_of_the_document() -> None:
    """Queues of 0, 3 and 1 have the weights 4, 1 and 3."""
    stats = PartitionLoadStats([0, 3, 1], [0, 1, 2])
    assert stats.cumulative_frequency_table == [4, 5, 8]
    assert [stats.draw(number) for number in range(8)] == [0, 0, 0, 0, 1, 2, 2, 2]
    assert stats.draw(8) == 0


def test_sticks_until_a_batch_is_full() -> None:
    chooser = partitioner()
    world = snapshot(HERE, HERE, HERE)
    info = chooser.peek_current_partition_info(world)
    assert chooser.peek_current_partition_info(world) is info
    chooser.update_partition_info(info, 99, world)
    assert not chooser.is_partition_changed(info)
    chooser.update_partition_info(info, 1, world)
    assert chooser.is_partition_changed(info)


def test_does_not_leave_a_batch_half_full_but_not_for_ever() -> None:
    chooser = partitioner()
    world = snapshot(HERE, HERE)
    info = chooser.peek_current_partition_info(world)
    chooser.update_partition_info(info, 199, world, enable_switch=False)
    assert not chooser.is_partition_changed(info)
    chooser.update_partition_info(info, 1, world, enable_switch=False)
    assert chooser.is_partition_changed(info), "at twice the size it happens anyway"


def test_a_switch_that_was_put_off() -> None:
    chooser = partitioner()
    world = snapshot(HERE, HERE)
    info = chooser.peek_current_partition_info(world)
    chooser.update_partition_info(info, 150, world, enable_switch=False)
    chooser.update_partition_info(info, 0, world, enable_switch=True)
    assert chooser.is_partition_changed(info)


def test_uniform_over_partitions_with_a_leader() -> None:
    chooser = BuiltInPartitioner("t", 1, random=Numbers())
    world = snapshot(HERE, None, HERE, HERE)
    drawn: Counter[int] = Counter()
    for _ in range(30):
        info = chooser.peek_current_partition_info(world)
        drawn[info.partition] += 1
        chooser.update_partition_info(info, 1, world)
    assert drawn == {0: 10, 2: 10, 3: 10}


def test_without_any_leader_all_partitions_count() -> None:
    chooser = BuiltInPartitioner("t", 1, random=Numbers())
    world = snapshot(None, None)
    seen = set()
    for _ in range(4):
        info = chooser.peek_current_partition_info(world)
        seen.add(info.partition)
        chooser.update_partition_info(info, 1, world)
    assert seen == {0, 1}


def test_short_queues_get_more() -> None:
    chooser = BuiltInPartitioner("t", 1, random=Numbers())
    world = snapshot(HERE, HERE, HERE)
    chooser.update_partition_load_stats([0, 3, 1], [0, 1, 2], ["here"] * 3)
    drawn: Counter[int] = Counter()
    for _ in range(80):
        info = chooser.peek_current_partition_info(world)
        drawn[info.partition] += 1
        chooser.update_partition_info(info, 1, world)
    assert drawn == {0: 40, 1: 10, 2: 30}


def test_no_table_where_there_is_nothing_to_choose_by() -> None:
    chooser = partitioner()
    for sizes in (None, [], [3], [2, 2, 2]):
        chooser.update_partition_load_stats([0, 1], [0, 1])
        assert chooser.load_stats is not None
        chooser.update_partition_load_stats(sizes, list(range(len(sizes or ()))))
        assert chooser.load_stats is None, sizes


def test_excluded_partitions_are_never_drawn() -> None:
    """Even if the rest have queues of the same length: the uniform choice would draw the excluded one, too."""
    chooser = BuiltInPartitioner("t", 1, random=Numbers())
    world = snapshot(HERE, HERE, HERE)
    chooser.update_partition_load_stats([1, 1], [0, 2], ["here"] * 2, excluded=1)
    for _ in range(10):
        info = chooser.peek_current_partition_info(world)
        assert info.partition != 1
        chooser.update_partition_info(info, 1, world)


def test_rack_awareness() -> None:
    world = snapshot(THERE, HERE, THERE, HERE)
    chooser = BuiltInPartitioner("t", 1, rack="here", random=Numbers())
    for with_stats in (False, True):
        if with_stats:
            chooser.update_partition_load_stats([0, 5, 0, 1], [0, 1, 2, 3], ["there", "here", "there", "here"])
        seen: Counter[int] = Counter()
        for _ in range(60):
            info = chooser.peek_current_partition_info(world)
            seen[info.partition] += 1
            chooser.update_partition_info(info, 1, world)
        assert set(seen) == {1, 3}
        if with_stats:
            assert seen[3] == 5 * seen[1], "also within the rack by load"


def test_a_rack_without_leaders_is_no_reason_to_stop() -> None:
    chooser = BuiltInPartitioner("t", 1, rack="nowhere", random=Numbers())
    assert chooser.peek_current_partition_info(snapshot(THERE)).partition == 0
    chooser.update_partition_load_stats([0, 1], [0, 1], ["there", "there"])
    assert chooser.load_stats is not None


def test_size_must_be_positive() -> None:
    with pytest.raises(ValueError, match=">= 1"):
        partitioner(0)
