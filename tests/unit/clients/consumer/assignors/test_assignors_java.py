"""Our assignors and Kafka's own, on random groups.

Where Kafka goes through members in the order of a hash table, the names here are such that this is the alphabetical
order, which is ours.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from barnabas.clients.common.metadata_snapshot import MetadataSnapshot, PartitionInfo, TopicInfo
from barnabas.clients.common.offsets import ConsumerGroupMetadata
from barnabas.clients.consumer.assignors import (
    Assignment,
    ConsumerPartitionAssignor,
    CooperativeStickyAssignor,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    Subscription,
)
from barnabas.clients.consumer.assignors.sticky_assignor import encode_member_data
from barnabas.clients.consumer.internals.consumer_protocol import (
    deserialize_assignment,
    deserialize_subscription,
    serialize_assignment,
    serialize_subscription,
)
from barnabas.common.identifiers import ZERO_UUID
from barnabas.common.topic_partition import TopicPartition
from barnabas.network.client.node import Node
from oracles.assignors import AssignorOracle

pytestmark = pytest.mark.java

Topics = dict[str, list[frozenset[str]]]
RACKS = ("r1", "r2", "r3")


def cluster(topics: Topics) -> MetadataSnapshot:
    nodes = [Node(number, "host", 9092, rack) for number, rack in enumerate(RACKS)]
    made = []
    for name, racks in topics.items():
        partitions = tuple(
            PartitionInfo(name, number, None, None, tuple(sorted(RACKS.index(rack) for rack in one)))
            for number, one in enumerate(racks)
        )
        made.append(TopicInfo(name, ZERO_UUID, partitions))
    return MetadataSnapshot(nodes, made)


def ours(
    assignor: ConsumerPartitionAssignor, topics: Topics, members: Mapping[str, Subscription]
) -> dict[str, set[TopicPartition]]:
    given = assignor.assign(cluster(topics), members)
    assert all(len(set(one.partitions)) == len(one.partitions) for one in given.values())
    return {member: set(one.partitions) for member, one in given.items()}


def random_topics(dice: random.Random, *, racks: bool) -> Topics:
    names = [chr(ord("a") + number) for number in range(dice.randint(1, 5))]
    same = dice.randint(1, 6) if dice.random() < 0.5 else None  # co-partitioned topics
    return {
        name: [
            frozenset(dice.sample(RACKS, dice.randint(1, 3))) if racks else frozenset()
            for _ in range(same or dice.randint(1, 9))
        ]
        for name in names
    }


def random_members(dice: random.Random, topics: Topics, *, racks: bool, alike: bool) -> dict[str, Subscription]:
    names = [chr(ord("A") + number) for number in range(dice.randint(1, 8))]
    everything = [*topics, "missing"]
    common = dice.sample(everything, dice.randint(1, len(everything)))
    members = {}
    for name in names:
        wanted = common if alike else dice.sample(everything, dice.randint(1, len(everything)))
        members[name] = Subscription(
            tuple(wanted),
            rack_id=dice.choice([*RACKS, None]) if racks else None,
            group_instance_id=f"static-{dice.randint(0, 99)}-{name}" if dice.random() < 0.2 else None,
        )
    return members


def with_history(
    dice: random.Random, members: Mapping[str, Subscription], topics: Topics, *, eager: bool
) -> dict[str, Subscription]:
    """Members that had something before: mostly without conflict and in one generation."""
    free = [TopicPartition(topic, number) for topic, racks in topics.items() for number in range(len(racks))]
    dice.shuffle(free)
    made = {}
    for name, subscription in members.items():
        count = dice.randint(0, len(free) // 2)
        owned, free = free[:count], free[count:]
        if eager:
            made[name] = replace(subscription, user_data=encode_member_data(owned, 5), generation_id=5)
        else:
            made[name] = replace(subscription, owned_partitions=tuple(owned), generation_id=5)
    return made


@pytest.mark.parametrize("racks", [False, True], ids=["plain", "racks"])
@pytest.mark.parametrize("kind", [RangeAssignor, RoundRobinAssignor])
def test_divided_exactly_as_kafka_does(
    kind: type[ConsumerPartitionAssignor], racks: bool, assignor_oracle: AssignorOracle
) -> None:
    for seed in range(250):
        dice = random.Random(seed)
        topics = random_topics(dice, racks=racks)
        members = random_members(dice, topics, racks=racks, alike=dice.random() < 0.5)
        assignor = kind()
        assert ours(assignor, topics, members) == assignor_oracle.assign(assignor.name, topics, members), seed


@pytest.mark.parametrize("racks", [False, True], ids=["plain", "racks"])
@pytest.mark.parametrize("kind", [StickyAssignor, CooperativeStickyAssignor])
def test_sticky_divides_exactly_as_kafka_does_if_all_want_the_same(
    kind: type[ConsumerPartitionAssignor], racks: bool, assignor_oracle: AssignorOracle
) -> None:
    for seed in range(250):
        dice = random.Random(seed)
        topics = random_topics(dice, racks=racks)
        members = random_members(dice, topics, racks=racks, alike=True)
        if dice.random() < 0.8:
            members = with_history(dice, members, topics, eager=kind is StickyAssignor)
        assignor = kind()
        assert ours(assignor, topics, members) == assignor_oracle.assign(assignor.name, topics, members), seed


@pytest.mark.parametrize("racks", [False, True], ids=["plain", "racks"])
@pytest.mark.parametrize("kind", [StickyAssignor, CooperativeStickyAssignor])
def test_sticky_is_as_even_and_as_sticky_as_kafka_if_members_want_different_topics(
    kind: type[ConsumerPartitionAssignor], racks: bool, assignor_oracle: AssignorOracle
) -> None:
    same = 0
    for seed in range(250):
        dice = random.Random(seed)
        topics = random_topics(dice, racks=racks)
        members = random_members(dice, topics, racks=racks, alike=False)
        if dice.random() < 0.8:
            members = with_history(dice, members, topics, eager=kind is StickyAssignor)
        assignor = kind()
        mine = ours(assignor, topics, members)
        theirs = assignor_oracle.assign(assignor.name, topics, members)
        same += mine == theirs
        check_valid(mine, topics, members, complete=kind is StickyAssignor)
        assert unevenness(mine) == unevenness(theirs), seed
        assert kept(mine, members, assignor) == kept(theirs, members, assignor), seed
    assert same > 200


def check_valid(
    assignment: Mapping[str, set[TopicPartition]],
    topics: Topics,
    members: Mapping[str, Subscription],
    *,
    complete: bool,
) -> None:
    everything = sorted(partition for partitions in assignment.values() for partition in partitions)
    assert len(set(everything)) == len(everything)
    for member, partitions in assignment.items():
        assert {partition.topic for partition in partitions} <= set(members[member].topics)
    if complete:
        wanted = {topic for one in members.values() for topic in one.topics if topic in topics}
        assert everything == sorted(
            TopicPartition(topic, number) for topic in wanted for number in range(len(topics[topic]))
        )


def unevenness(assignment: Mapping[str, set[TopicPartition]]) -> list[int]:
    return sorted(map(len, assignment.values()))


def kept(
    assignment: Mapping[str, set[TopicPartition]],
    members: Mapping[str, Subscription],
    assignor: ConsumerPartitionAssignor,
) -> int:
    assert isinstance(assignor, StickyAssignor | CooperativeStickyAssignor)
    return sum(
        len(partitions.intersection(assignor.member_data(members[member]).partitions))
        for member, partitions in assignment.items()
    )


def test_members_of_an_older_generation_give_way(assignor_oracle: AssignorOracle) -> None:
    for seed in range(100):
        dice = random.Random(seed)
        topics = random_topics(dice, racks=False)
        members = random_members(dice, topics, racks=False, alike=True)
        everything = [TopicPartition(topic, number) for topic, racks in topics.items() for number in range(len(racks))]
        claiming = {
            name: replace(
                subscription,
                owned_partitions=tuple(dice.sample(everything, dice.randint(0, len(everything)))),
                generation_id=generation,
            )
            for generation, (name, subscription) in enumerate(dice.sample(list(members.items()), len(members)), 3)
        }
        claiming = dict(sorted(claiming.items()))
        assignor = CooperativeStickyAssignor()
        assert ours(assignor, topics, claiming) == assignor_oracle.assign(assignor.name, topics, claiming), seed


@pytest.mark.parametrize("kind", [StickyAssignor, CooperativeStickyAssignor])
def test_what_a_member_tells_the_leader(kind: type[ConsumerPartitionAssignor], assignor_oracle: AssignorOracle) -> None:
    partitions = [TopicPartition("a", 1), TopicPartition("a", 4), TopicPartition("b", 0)]
    assignor = kind()
    assignor.on_assignment(Assignment(tuple(partitions)), ConsumerGroupMetadata("group", 7, "member"))
    assert assignor.subscription_user_data(frozenset({"a"})) == assignor_oracle.user_data(assignor.name, partitions, 7)


def test_bytes_of_the_consumer_protocol(assignor_oracle: AssignorOracle) -> None:
    subscriptions: Sequence[Subscription] = [
        Subscription(("b", "a")),
        Subscription(("a",), b"mine", (TopicPartition("b", 1), TopicPartition("a", 2)), 3, "r1"),
    ]
    for subscription in subscriptions:
        written = serialize_subscription(subscription)
        assert written == assignor_oracle.subscription(subscription)
        read = deserialize_subscription(written)
        assert read == replace(
            subscription,
            topics=tuple(sorted(subscription.topics)),
            owned_partitions=tuple(sorted(subscription.owned_partitions)),
        )
    partitions = (TopicPartition("b", 0), TopicPartition("a", 1), TopicPartition("a", 0))
    written = serialize_assignment(Assignment(partitions))
    assert written == assignor_oracle.assignment(partitions)
    assert sorted(deserialize_assignment(written).partitions) == sorted(partitions)
