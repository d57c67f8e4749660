"""The sticky assignors: balanced, with as few moves as possible."""

from __future__ import annotations

import logging
import struct
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from barnabas.clients.common.offsets import ConsumerGroupMetadata
from barnabas.clients.consumer.assignors.constrained_assignment import ConstrainedAssignmentBuilder
from barnabas.clients.consumer.assignors.general_assignment import GeneralAssignmentBuilder, previous_owners
from barnabas.clients.consumer.assignors.partition_assignor import (
    DEFAULT_GENERATION,
    AbstractPartitionAssignor,
    Assignment,
    RebalanceProtocol,
    Subscription,
    TopicPartitions,
)
from barnabas.clients.consumer.assignors.rack_info import RackInfo
from barnabas.common.topic_partition import TopicPartition

log = logging.getLogger(__name__)

_INT32 = struct.Struct(">i")
_INT16 = struct.Struct(">h")


class MemberData(NamedTuple):
    """A member's previous partitions and their generation; None if it does not report them."""

    partitions: Sequence[TopicPartition]
    generation: int | None


class AbstractStickyAssignor(AbstractPartitionAssignor):
    """Balances first: members differ by at most one partition, as far as subscriptions allow. Among such assignments,
    it chooses one with few moves.

    Members report their partitions. A newer generation's claim overrides an older one; two claims of the same partition
    in the same generation cancel each other, because it is unknown which one is wrong.
    """

    @abstractmethod
    def member_data(self, subscription: Subscription) -> MemberData: ...

    def assign_partitions(
        self, topics: Mapping[str, TopicPartitions], subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        assignment, _ = self._divide(topics, subscriptions)
        return assignment

    def _divide(
        self, topics: Mapping[str, TopicPartitions], subscriptions: Mapping[str, Subscription]
    ) -> tuple[dict[str, list[TopicPartition]], dict[TopicPartition, str] | None]:
        """Returns the assignment, and the partitions that change owners, if known."""
        if not subscriptions:
            return {}, {}
        claims = {member: self.member_data(one) for member, one in sorted(subscriptions.items())}
        owned, doubly_claimed = _resolve(claims, topics)
        racks = RackInfo(topics.values(), subscriptions)
        if len({frozenset(one.topics) for one in subscriptions.values()}) == 1:
            constrained = ConstrainedAssignmentBuilder(topics, racks, owned, doubly_claimed)
            return constrained.build(), constrained.transferring
        latest = max(_generation(claim) for claim in claims.values())
        general = GeneralAssignmentBuilder(topics, racks, owned, subscriptions, previous_owners(claims, latest))
        return general.build(), None


def _generation(claim: MemberData) -> int:
    return DEFAULT_GENERATION if claim.generation is None else claim.generation


def _resolve(
    claims: Mapping[str, MemberData], topics: Mapping[str, TopicPartitions]
) -> tuple[dict[str, list[TopicPartition]], set[TopicPartition]]:
    """Returns each member's valid claims, and the partitions that two members claimed equally."""
    owned: dict[str, list[TopicPartition]] = {member: [] for member in claims}
    owners: dict[TopicPartition, str] = {}
    doubly_claimed: set[TopicPartition] = set()
    for member, claim in claims.items():
        generation = _generation(claim)
        for partition in claim.partitions:
            known = topics.get(partition.topic)
            if known is None or partition.partition >= len(known):
                continue
            other = owners.get(partition)
            if other is None:
                owned[member].append(partition)
                owners[partition] = member
                continue
            other_generation = _generation(claims[other])
            log.warning(
                "Members %s (generation %d) and %s (generation %d) both claim %s",
                other,
                other_generation,
                member,
                generation,
                partition,
            )
            if generation < other_generation:
                continue
            if partition in owned[other]:
                owned[other].remove(partition)
            owners[partition] = member
            if generation == other_generation:
                doubly_claimed.add(partition)
            else:
                doubly_claimed.discard(partition)
                owned[member].append(partition)
    return owned, doubly_claimed


class StickyAssignor(AbstractStickyAssignor):
    """The sticky assignor of eager groups. Members give up everything before they join, so their previous partitions
    are sent as the assignor's own data."""

    def __init__(self) -> None:
        self._partitions: tuple[TopicPartition, ...] | None = None
        self._generation = DEFAULT_GENERATION

    @property
    def name(self) -> str:
        return "sticky"

    def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:
        self._partitions = assignment.partitions
        self._generation = metadata.generation_id

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:  # noqa: ARG002 - all the same
        return None if self._partitions is None else encode_member_data(self._partitions, self._generation)

    def member_data(self, subscription: Subscription) -> MemberData:
        if not subscription.user_data:
            return MemberData((), None)
        return decode_member_data(subscription.user_data)


class CooperativeStickyAssignor(AbstractStickyAssignor):
    """The sticky assignor of cooperative groups: members keep and report their partitions while they join.

    A partition that changes owners is left out at first. Its owner sees that, gives it up, and joins again; in that
    second rebalance nobody claims it, and it goes to its new owner (KIP-429).
    """

    def __init__(self) -> None:
        self._generation = DEFAULT_GENERATION

    @property
    def name(self) -> str:
        return "cooperative-sticky"

    @property
    def supported_protocols(self) -> Sequence[RebalanceProtocol]:
        return (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:  # noqa: ARG002
        self._generation = metadata.generation_id

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:  # noqa: ARG002 - all the same
        return _INT32.pack(self._generation)

    def member_data(self, subscription: Subscription) -> MemberData:
        generation = subscription.generation_id
        if generation is None and subscription.user_data is not None:
            short = len(subscription.user_data) < _INT32.size
            generation = DEFAULT_GENERATION if short else _INT32.unpack_from(subscription.user_data)[0]
        return MemberData(subscription.owned_partitions, generation)

    def assign_partitions(
        self, topics: Mapping[str, TopicPartitions], subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        assignment, transferring = self._divide(topics, subscriptions)
        if transferring is None:
            transferring = _transferring(assignment, subscriptions)
        for partition, member in transferring.items():
            assignment[member].remove(partition)
        return assignment


def _transferring(
    assignment: Mapping[str, Sequence[TopicPartition]], subscriptions: Mapping[str, Subscription]
) -> dict[TopicPartition, str]:
    """Returns the partitions that one member gets while another one still has them."""
    added: dict[TopicPartition, str] = {}
    revoked: set[TopicPartition] = set()
    for member, assigned in assignment.items():
        owned = set(subscriptions[member].owned_partitions)
        added.update((partition, member) for partition in assigned if partition not in owned)
        revoked |= owned.difference(assigned)
    return {partition: member for partition, member in added.items() if partition in revoked}


def encode_member_data(partitions: Sequence[TopicPartition], generation: int) -> bytes:
    """Encodes topics with partition numbers, and the generation: the format of all clients with this assignor."""
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    parts = [_INT32.pack(len(topics))]
    for topic, numbers in topics.items():
        name = topic.encode()
        parts += [_INT16.pack(len(name)), name, _INT32.pack(len(numbers)), *map(_INT32.pack, numbers)]
    parts.append(_INT32.pack(generation))
    return b"".join(parts)


def decode_member_data(data: bytes) -> MemberData:
    """Decodes member data; old clients send no generation. Invalid data counts as none."""
    partitions: list[TopicPartition] = []
    at = 0

    def take(form: struct.Struct) -> int:
        nonlocal at
        value: int = form.unpack_from(data, at)[0]
        at += form.size
        if value < 0:
            raise ValueError("a negative length")
        return value

    try:
        for _ in range(take(_INT32)):
            length = take(_INT16)
            topic = data[at : at + length].decode()
            at += length
            partitions += [TopicPartition(topic, take(_INT32)) for _ in range(take(_INT32))]
    except (struct.error, ValueError):
        return MemberData((), DEFAULT_GENERATION)
    if at + _INT32.size > len(data):
        return MemberData(partitions, None)
    return MemberData(partitions, _INT32.unpack_from(data, at)[0])
