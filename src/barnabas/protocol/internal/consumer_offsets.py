"""The records of ``__consumer_offsets`` for classic groups: committed offsets and group state.

A compacted topic of 50 partitions. The hash of the group id picks the partition of a group; the leader of that
partition is the group's coordinator, and replays it when it takes over. The records of the newer kinds of groups are in
the same topic: see :mod:`~barnabas.protocol.internal.consumer_groups`, :mod:`~barnabas.protocol.internal.share_groups`
and :mod:`~barnabas.protocol.internal.streams_groups`. :mod:`~barnabas.protocol.internal.framing` explains how a key
encodes its type.

- **Offsets** are keyed by group, topic name and partition, for *all* kinds of groups except share groups. Type 1 is
  written; type 0, of the same layout, is only found in very old topics. A tombstone is written when the offset expires,
  or when the topic or the group is deleted.
- **Groups** (type 2) are keyed by group. The value is the whole group, written with each generation once its
  assignment is known; a group without members has an empty list, a deleted one a tombstone.

Offsets committed in a transaction are in transactional batches, and take effect only with the commit marker.
"""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.fields import array, binary, int32, int64, string, uuid
from barnabas.protocol.internal.framing import CoordinatorKey, CoordinatorValue
from barnabas.protocol.message import Struct


class LegacyOffsetCommitKey(CoordinatorKey, record_type=0, versions="0"):
    """From the first releases that kept offsets in a topic; read, never written."""

    group: str = string("0", default="")
    topic: str = string("0", default="")
    partition: int = int32("0", default=0)


class LegacyOffsetCommitValue(CoordinatorValue, record_type=0, versions="0"):
    offset: int = int64("0", default=0)
    metadata: str = string("0", default="")
    commit_timestamp: int = int64("0", default=0)


class OffsetCommitKey(CoordinatorKey, record_type=1, versions="0"):
    group: str = string("0", default="")
    topic: str = string("0", default="")
    partition: int = int32("0", default=0)


class OffsetCommitValue(CoordinatorValue, record_type=1, versions="0-4", flexible="4+"):
    """The offset of a group in a partition; ``offsets.retention.minutes`` counts from ``commit_timestamp``.

    Versions: v1 has a fixed expiry, for commits that requested one; v2 has none; v3 leader epoch; v4 flexible, topic
    id, which distinguishes an offset of a deleted topic of the same name. Kafka 4 writes v4, and v1 where there is an
    expiry.
    """

    offset: int = int64(default=0)
    leader_epoch: int = int32("3+", default=-1, ignorable=True)
    metadata: str = string(default="")
    commit_timestamp: int = int64(default=0)
    expire_timestamp: int = int64("1", default=-1, ignorable=True)
    topic_id: Uuid = uuid("4+", default=ZERO_UUID, tag=0, ignorable=True)


class GroupMetadataKey(CoordinatorKey, record_type=2, versions="0"):
    group: str = string("0", default="")


class MemberMetadata(Struct):
    member_id: str = string(default="")
    group_instance_id: str | None = string("3+", default=None, nullable="3+", ignorable=True)
    client_id: str = string(default="")
    client_host: str = string(default="")
    rebalance_timeout: int = int32("1+", default=-1, ignorable=True)
    session_timeout: int = int32(default=0)
    subscription: bytes = binary(default=b"")
    assignment: bytes = binary(default=b"")


class GroupMetadataValue(CoordinatorValue, record_type=2, versions="0-4", flexible="4+"):
    """A classic group: its generation, chosen protocol, leader, and every member with subscription and assignment.

    Versions: v1 rebalance timeout; v2 time of the last change of state; v3 static ids (the version that Kafka 4
    writes); v4 flexible.
    """

    protocol_type: str = string(default="")
    generation: int = int32(default=0)
    protocol: str | None = string(default="", nullable="0+")
    leader: str | None = string(default="", nullable="0+")
    current_state_timestamp: int = int64("2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata, default_factory=list)
