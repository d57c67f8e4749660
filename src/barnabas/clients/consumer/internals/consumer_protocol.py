"""The embedded protocol of classic consumers: subscriptions and assignments.

Each is preceded by a version. A version newer than this client's is read as the newest it knows: added fields come at
the end, and are ignored.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from barnabas.clients.consumer.assignors.partition_assignor import Assignment, Subscription
from barnabas.common.errors import ProtocolError
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)

PROTOCOL_TYPE: Final = "consumer"
"""The protocol type of consumer groups; Kafka Connect has another."""

_VERSION: Final = struct.Struct(">h")
_LATEST: Final = ConsumerProtocolSubscription.versions.highest


def _version(data: bytes) -> int:
    if len(data) < _VERSION.size:
        raise ProtocolError(f"{len(data)} bytes are no message of the consumer protocol")
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise ProtocolError(f"the consumer protocol has no version {version}")
    return min(version, _LATEST)


def serialize_subscription(subscription: Subscription, version: int = _LATEST) -> bytes:
    message = ConsumerProtocolSubscription(
        topics=sorted(subscription.topics),
        user_data=subscription.user_data,
        owned_partitions=[
            ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in sorted(_by_topic(sorted(subscription.owned_partitions)).items())
        ],
        generation_id=-1 if subscription.generation_id is None else subscription.generation_id,
        rack_id=subscription.rack_id,
    )
    return _VERSION.pack(version) + message.encode(version)


def deserialize_subscription(data: bytes, group_instance_id: str | None = None) -> Subscription:
    message, _ = ConsumerProtocolSubscription.decode_from(data, _version(data), _VERSION.size)
    return Subscription(
        tuple(message.topics),
        message.user_data,
        tuple(TopicPartition(topic.topic, number) for topic in message.owned_partitions for number in topic.partitions),
        message.generation_id if message.generation_id >= 0 else None,
        message.rack_id or None,
        group_instance_id,
    )


def serialize_assignment(assignment: Assignment, version: int = _LATEST) -> bytes:
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in _by_topic(assignment.partitions).items()
        ],
        user_data=assignment.user_data,
    )
    return _VERSION.pack(version) + message.encode(version)


def deserialize_assignment(data: bytes) -> Assignment:
    message, _ = ConsumerProtocolAssignment.decode_from(data, _version(data), _VERSION.size)
    return Assignment(
        tuple(
            TopicPartition(topic.topic, number) for topic in message.assigned_partitions for number in topic.partitions
        ),
        message.user_data,
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return topics
