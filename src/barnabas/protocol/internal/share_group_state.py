"""The records of ``__share_group_state``: how far share groups have got with each partition (KIP-932).

Kept by share coordinators, the leaders of the topic's partitions. The key is group, topic id and partition, and the
record type. The state of one key is its newest *snapshot* and all *updates* after it: most writes append a small
update with what changed, every so often (``share.coordinator.snapshot.update.records.per.snapshot``) a snapshot says
it all again and supersedes everything before. ``snapshot_epoch`` ties updates to their snapshot.

The topic is therefore *not* compacted, which would keep only the last update. Instead the coordinator deletes the
records before the oldest snapshot that still counts. A snapshot key without a value: the state was deleted.
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
    """A range of offsets, both ends included: 0 available, 2 acknowledged, 4 archived. That a record is acquired is
    never stored.
    """

    first_offset: int = int64(default=0)
    last_offset: int = int64(default=0)
    delivery_state: int = int8(default=0)
    delivery_count: int = int16(default=0)


class ShareSnapshotValue(CoordinatorValue, record_type=0, versions="0", flexible="0+"):
    """The whole state of a share partition.

    ``state_epoch`` rises when the group's offsets are reset, ``leader_epoch`` is that of the partition leader that
    wrote last; both fence writers from before. The batches say what lies after ``start_offset``, and
    ``delivery_complete_count`` how much of it is done with, -1 unknown (KIP-1226).
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
    """What changed since the snapshot: a ``start_offset`` of -1 is unchanged, the batches overlay the earlier ones."""

    snapshot_epoch: int = int32(default=0)
    leader_epoch: int = int32(default=0)
    start_offset: int = int64(default=0)
    delivery_complete_count: int = int32(default=-1, tag=0)
    state_batches: list[StateBatch] = array(StateBatch, default_factory=list)
