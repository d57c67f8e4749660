"""Reads and writes what classic consumers say to each other: subscriptions and assignments (the embedded protocol).

A classic coordinator need not understand them, and mostly does not look: it is the members who do. But it wants to know
which topics a group is subscribed to, whose offsets must not expire; and a group that changes between the classic and
the consumer protocol has to be translated.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

from barnabas.common.errors import ProtocolError
from barnabas.common.identifiers import Uuid
from barnabas.metadata.topics import TopicsImage
from barnabas.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)

_VERSION = struct.Struct(">h")
_LATEST = ConsumerProtocolSubscription.versions.highest


def read_version(data: bytes) -> int:
    """The version that a message begins with; one that is not known yet is read as the latest that is."""
    if len(data) < _VERSION.size:
        raise ProtocolError(f"a message of the consumer protocol must have at least 2 bytes: {len(data)}")
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise ProtocolError(f"unknown version of the consumer protocol: {version}")
    return min(version, _LATEST)


def version_for_assignment(metadata: bytes) -> int:
    """The version of an assignment for a member with this subscription; 0 if the subscription cannot be read.

    Members have metadata for each protocol that they support, and nobody has looked at all of it.
    """
    try:
        return read_version(metadata)
    except ProtocolError:
        return 0


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """`ProtocolError` if it cannot be read. What a later version has appended is ignored."""
    subscription, _ = ConsumerProtocolSubscription.decode_from(data, read_version(data), _VERSION.size)
    return subscription


def read_subscribed_topics(data: bytes) -> set[str]:
    """The topics of a subscription, read as version 0, as much as every client gets right."""
    read_version(data)
    subscription, _ = ConsumerProtocolSubscription.decode_from(data, 0, _VERSION.size)
    return set(subscription.topics)


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    if not data:
        return ConsumerProtocolAssignment()
    assignment, _ = ConsumerProtocolAssignment.decode_from(data, read_version(data), _VERSION.size)
    return assignment


def write_assignment(assignment: ConsumerProtocolAssignment, version: int) -> bytes:
    return _VERSION.pack(version) + assignment.encode(version)


def to_consumer_protocol(partitions: Mapping[Uuid, Iterable[int]], topics: TopicsImage) -> ConsumerProtocolAssignment:
    """Topic ids to names; topics that do not exist any more are left out."""
    made = []
    for topic_id, numbers in partitions.items():
        topic = topics.topic_by_id(topic_id)
        if topic is not None:
            made.append(ConsumerProtocolAssignmentTopicPartition(topic=topic.name, partitions=sorted(numbers)))
    return ConsumerProtocolAssignment(assigned_partitions=made)


def from_consumer_protocol(assignment: ConsumerProtocolAssignment, topics: TopicsImage) -> dict[Uuid, set[int]]:
    """Names to topic ids; topics that do not exist are left out."""
    made: dict[Uuid, set[int]] = {}
    for entry in assignment.assigned_partitions:
        topic = topics.topic(entry.topic)
        if topic is not None:
            made.setdefault(topic.id, set()).update(entry.partitions)
    return made
