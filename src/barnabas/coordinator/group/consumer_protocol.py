"""Decodes and encodes the embedded protocol of classic consumers: subscriptions and assignments.

A classic coordinator usually treats them as opaque, because only members interpret them. But it needs the subscribed
topics of a group, whose offsets must not expire; and a group that changes between the classic and the consumer protocol
has to be converted.
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
    """Returns the version of a message; an unknown newer one is decoded as the latest known one."""
    if len(data) < _VERSION.size:
        raise ProtocolError(f"a message of the consumer protocol must have at least 2 bytes: {len(data)}")
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise ProtocolError(f"unknown version of the consumer protocol: {version}")
    return min(version, _LATEST)


def version_for_assignment(metadata: bytes) -> int:
    """Returns the version of an assignment for a member with this subscription; 0 if it cannot be decoded.

    Members have metadata for each of their protocols, and not all of it has been validated.
    """
    try:
        return read_version(metadata)
    except ProtocolError:
        return 0


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Decodes a subscription; raises `ProtocolError`. Fields that a later version has appended are ignored."""
    subscription, _ = ConsumerProtocolSubscription.decode_from(data, read_version(data), _VERSION.size)
    return subscription


def read_subscribed_topics(data: bytes) -> set[str]:
    """Returns the topics of a subscription, decoded as version 0, which every client encodes correctly."""
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
    """Converts topic IDs to names; leaves out deleted topics."""
    made = []
    for topic_id, numbers in partitions.items():
        topic = topics.topic_by_id(topic_id)
        if topic is not None:
            made.append(ConsumerProtocolAssignmentTopicPartition(topic=topic.name, partitions=sorted(numbers)))
    return ConsumerProtocolAssignment(assigned_partitions=made)


def from_consumer_protocol(assignment: ConsumerProtocolAssignment, topics: TopicsImage) -> dict[Uuid, set[int]]:
    """Converts names to topic IDs; leaves out unknown topics."""
    made: dict[Uuid, set[int]] = {}
    for entry in assignment.assigned_partitions:
        topic = topics.topic(entry.topic)
        if topic is not None:
            made.setdefault(topic.id, set()).update(entry.partitions)
    return made
