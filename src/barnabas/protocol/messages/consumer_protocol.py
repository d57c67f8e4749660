"""The consumer embedded protocol: the messages that classic consumers exchange through JoinGroup and SyncGroup.

To the broker these are opaque bytes. A member's *subscription* is the ``metadata`` of its JoinGroup; the group's leader
collects all of them, computes the assignment, and gives each member its *assignment* through SyncGroup. Kafka Connect
and others use their own formats in the same fields.

Both messages are preceded by an int16 version, which is not part of the classes below. A reader decodes a newer version
as the newest one it knows and ignores the rest; so versions may only append. The same version number is used for both
messages.

Versions: v1 ``owned_partitions``, the basis of cooperative rebalancing (KIP-429); v2 ``generation_id``, so that the
leader can recognize a stale claim of ownership, -1 if unknown (KIP-792); v3 ``rack_id`` (KIP-881). The assignment has
been the same since v0.
"""

from __future__ import annotations

from barnabas.protocol.fields import array, binary, int32, string
from barnabas.protocol.message import Message, Struct


class ConsumerProtocolSubscriptionTopicPartition(Struct):
    topic: str = string("1+", default="")
    partitions: list[int] = array("int32", "1+", default_factory=list)


class ConsumerProtocolSubscription(Message, versions="0-3"):
    """``user_data`` is for the assignor: the sticky one keeps the previous assignment there."""

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
