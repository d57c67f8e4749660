"""Coordinators that are made when they are needed: what they are told before, and that nothing is missed."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, cast

import pytest

from barnabas.broker.node.coordinators import GROUP, TRANSACTION, Coordinators, CoordinatorType, Made
from barnabas.common.errors import CoordinatorNotAvailableError, Errors
from barnabas.common.topic_names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from barnabas.common.topic_partition import TopicPartition
from barnabas.security.acl import AclOperation, ResourceType

Call = tuple[Any, ...]


class Recorder:
    """A coordinator that remembers what it was told."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.calls: list[Call] = []

    def startup(self) -> None:
        self.calls.append(("startup",))

    def shutdown(self) -> None:
        self.calls.append(("shutdown",))

    def on_election(self, partition: int, leader_epoch: int) -> None:
        self.calls.append(("elected", partition, leader_epoch))

    def on_resignation(self, partition: int, leader_epoch: int | None) -> None:
        self.calls.append(("resigned", partition, leader_epoch))

    def on_partitions_deleted(self, partitions: Sequence[TopicPartition]) -> None:
        self.calls.append(("deleted", *partitions))

    def on_new_metadata_image(self, image: object, delta: object) -> None:
        self.calls.append(("image", image, delta))


class Parts:
    """`TransactionParts` around a recorder."""

    def __init__(self, coordinator: Recorder) -> None:
        self.coordinator = coordinator

    def shutdown(self) -> None:
        self.coordinator.shutdown()


class Box:
    def __init__(self) -> None:
        self.groups = Recorder(GROUP_METADATA_TOPIC)
        self.transactions = Recorder(TRANSACTION_STATE_TOPIC)
        self.made = 0
        self.coordinators = Coordinators({TRANSACTION: self.make_transactions, GROUP: self.make_groups})
        self.transaction_hooks: Any = self.coordinators.hooks[0]
        self.group_hooks: Any = self.coordinators.hooks[1]

    def make_transactions(self, made: Made) -> Parts:
        assert not made
        self.made += 1
        return Parts(self.transactions)

    def make_groups(self, made: Made) -> Recorder:
        assert made[TRANSACTION].coordinator is self.transactions, "those that were made before"
        return self.groups

    def begin(self) -> None:
        """As the publisher does it with the first metadata."""
        for hooks in self.coordinators.hooks:
            hooks.startup()
        self.image("first")

    def image(self, name: str) -> None:
        for hooks in (self.group_hooks, self.transaction_hooks):
            hooks.on_new_metadata_image(name, f"{name} delta")


@pytest.fixture
def box() -> Box:
    return Box()


def test_the_hooks_know_their_topics(box: Box) -> None:
    assert [hooks.topic for hooks in box.coordinators.hooks] == [TRANSACTION_STATE_TOPIC, GROUP_METADATA_TOPIC]


def test_without_work_none_is_made(box: Box) -> None:
    box.begin()
    box.group_hooks.on_resignation(3, None)
    box.transaction_hooks.on_partitions_deleted([TopicPartition("t", 0)])
    box.coordinators.shutdown_responding()
    box.coordinators.shutdown()
    assert box.made == 0
    assert not box.coordinators.is_made


def test_what_is_made_late_is_started_and_has_the_newest_image(box: Box) -> None:
    box.begin()
    box.image("second")
    assert box.coordinators.get(GROUP) is cast("Any", box.groups)
    assert box.coordinators.get(TRANSACTION).coordinator is cast("Any", box.transactions)
    for recorder in (box.groups, box.transactions):
        assert recorder.calls == [("startup",), ("image", "second", "second delta")]
    box.image("third")
    assert box.groups.calls[2:] == [("image", "third", "third delta")]
    assert box.made == 1


def test_a_partition_to_load_makes_both(box: Box) -> None:
    """As at a start with groups on the disk: the elections come before the image that they are in."""
    for hooks in box.coordinators.hooks:
        hooks.startup()
    box.group_hooks.on_election(7, 2)
    box.image("first")
    assert box.groups.calls == [("startup",), ("elected", 7, 2), ("image", "first", "first delta")]
    assert box.transactions.calls == [("startup",), ("image", "first", "first delta")]
    box.group_hooks.on_resignation(7, 3)
    box.transaction_hooks.on_partitions_deleted([TopicPartition("t", 0)])
    assert box.groups.calls[-1] == ("resigned", 7, 3)
    assert box.transactions.calls[-1] == ("deleted", TopicPartition("t", 0))


def test_what_was_made_before_the_start_is_started_with_it(box: Box) -> None:
    box.coordinators.get(GROUP)
    assert box.groups.calls == []
    box.begin()
    assert box.groups.calls == [("startup",), ("image", "first", "first delta")]


def test_after_the_end_none_is_made(box: Box) -> None:
    box.begin()
    box.coordinators.shutdown_responding()
    with pytest.raises(CoordinatorNotAvailableError):
        box.coordinators.get(GROUP)


def test_both_are_shut_down_each_in_its_turn(box: Box) -> None:
    box.coordinators.get(GROUP)
    box.coordinators.shutdown_responding()
    assert (box.groups.calls, box.transactions.calls) == ([("shutdown",)], [])
    box.coordinators.shutdown()
    assert box.transactions.calls == [("shutdown",)]


def test_a_further_coordinator_is_a_further_entry() -> None:
    share: CoordinatorType[Recorder] = CoordinatorType(
        "__share_group_state",
        lambda recorder: cast("Any", recorder),
        key_type=2,
        resource_type=ResourceType.CLUSTER,
        denied=Errors.CLUSTER_AUTHORIZATION_FAILED,
        operation=AclOperation.CLUSTER_ACTION,
        since_version=6,
    )
    recorder = Recorder(share.topic)
    coordinators = Coordinators({share: lambda _: recorder})
    (hooks,) = coordinators.hooks
    hooks.startup()
    hooks.on_election(1, 4)
    assert coordinators.get(share) is recorder
    coordinators.shutdown_responding()
    hooks.on_resignation(1, 5)
    coordinators.shutdown()
    assert recorder.calls == [("startup",), ("elected", 1, 4), ("resigned", 1, 5), ("shutdown",)]


def test_many_threads_make_one_pair_and_miss_no_image(box: Box) -> None:
    box.begin()
    barrier = threading.Barrier(9)
    found: list[object] = []

    def ask() -> None:
        barrier.wait()
        found.append(box.coordinators.get(GROUP))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    barrier.wait()
    for number in range(100):
        box.image(str(number))
    for thread in threads:
        thread.join()
    assert box.made == 1
    assert len({id(pair) for pair in found}) == 1
    images = [call[1] for call in box.groups.calls if call[0] == "image"]
    numbers = [-1 if image == "first" else int(image) for image in images]
    assert numbers == list(range(numbers[0], 100)), "in order, to the last one"
