"""DOC consumer_protocol."""

from __future__ import annotations

from barnabas.protocol.fields import array, binary, int32, string
from barnabas.protocol.message import Message, Struct


class ConsumerProtocolSubscriptionTopicPartition(Struct):
    topic: str = string("1+", default="")
    partitions: list[int] = array("int32", "1+", default_factory=list)


class ConsumerProtocolSubscription(Message, versions="0-3"):
    topics: list[str] = array("string", default_factory=list)
    user_data: bytes | None = binary(default=None, nullable="0+")
    owned_partitions: list[ConsumerProtocolSubscriptionTopicPartition] = array(
        ConsumerProtocolSubscriptionTopicPartition, "1+", default_factory=list, ignorable=True
    )
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", default=None, nullable="3+", ignorable=True)


class ConsumerProtocolAssignmentTopicPartition(Struct):
    topic: str = string(default="")
    partitions: list[int] = array("int32", default_factory=list)


class ConsumerProtocolAssignment(Message, versions="0-3"):
    assigned_partitions: list[ConsumerProtocolAssignmentTopicPartition] = array(
        ConsumerProtocolAssignmentTopicPartition, default_factory=list
    )
    user_data: bytes | None = binary(default=None, nullable="0+")
