"""DOC share_group_state."""

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
    first_offset: int = int64(default=0)
    last_offset: int = int64(default=0)
    delivery_state: int = int8(default=0)
    delivery_count: int = int16(default=0)


class ShareSnapshotValue(CoordinatorValue, record_type=0, versions="0", flexible="0+"):
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
    snapshot_epoch: int = int32(default=0)
    leader_epoch: int = int32(default=0)
    start_offset: int = int64(default=0)
    delivery_complete_count: int = int32(default=-1, tag=0)
    state_batches: list[StateBatch] = array(StateBatch, default_factory=list)
