"""The records of ``__share_group_state``: how far share groups have got with each partition (KIP-932).

The share coordinators, which are the leaders of the topic's partitions, write them. The key is group, topic id,
partition and record type. The state of one key is its newest *snapshot* and all *updates* after it. Most writes append
a small update with the changes. After ``share.coordinator.snapshot.update.records.per.snapshot`` updates, a snapshot
with the whole state replaces all earlier records. ``snapshot_epoch`` links updates to their snapshot.

The topic is therefore *not* compacted, which would keep only the last update. Instead the coordinator deletes the
records before the oldest snapshot still in use. A snapshot key without a value deletes the state.
"""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.fields import array, int8, int16, int32, int64, string, uuid
from barnabas.protocol.internal.framing import CoordinatorKey, CoordinatorValue
from barnabas.protocol.message import Struct


class ShareSnapshotKey(CoordinatorKey, record_type=0, versions="0"):
    group_id: str = string("0", default="")
    topic_id: Uuid = uuid("0", default=ZERO_UUID)
    partition: int = int32("0", default=0)


class StateBatch(Struct):
    """The delivery state of a range of offsets, both ends included.

    The states: 0 available, 2 acknowledged, 4 archived. The state "acquired" is never stored.
    """

    first_offset: int = int64(default=0)
    last_offset: int = int64(default=0)
    delivery_state: int = int8(default=0)
    delivery_count: int = int16(default=0)


class ShareSnapshotValue(CoordinatorValue, record_type=0, versions="0", flexible="0+"):
    """The whole state of a share partition.

    ``state_epoch`` rises when the group's offsets are reset; ``leader_epoch`` is the epoch of the partition leader that
    wrote last. Both fence earlier writers. The batches describe the offsets from ``start_offset`` on;
    ``delivery_complete_count`` is the number of them that are completed, -1 if unknown (KIP-1226).
    """

    snapshot_epoch: int = int32(default=0)
    state_epoch: int = int32(default=0)
    leader_epoch: int = int32(default=0)
    start_offset: int = int64(default=0)
    delivery_complete_count: int = int32(default=-1, tag=0)
    create_timestamp: int = int64(default=0)
    write_timestamp: int = int64(default=0)
    state_batches: list[StateBatch] = array(StateBatch, default_factory=list)


class ShareUpdateKey(CoordinatorKey, record_type=1, versions="0"):
    group_id: str = string("0", default="")
    topic_id: Uuid = uuid("0", default=ZERO_UUID)
    partition: int = int32("0", default=0)


class ShareUpdateValue(CoordinatorValue, record_type=1, versions="0", flexible="0+"):
    """The changes since the snapshot: a ``start_offset`` of -1 is unchanged, the batches overlay the earlier ones."""

    snapshot_epoch: int = int32(default=0)
    leader_epoch: int = int32(default=0)
    start_offset: int = int64(default=0)
    delivery_complete_count: int = int32(default=-1, tag=0)
    state_batches: list[StateBatch] = array(StateBatch, default_factory=list)
