"""WriteShareGroupState (API 85): persists the delivery state of share partitions (KIP-932).

Sent by the partition leader to the share coordinator whenever acknowledgements or expired locks changed the state; the
response to an acknowledgement is sent only after this. ``state_batches`` hold only the changed ranges: 0 available, 2
acknowledged, 4 archived, with their delivery counts. ``start_offset`` -1 leaves it unchanged.

FENCED_LEADER_EPOCH: another broker leads the partition now. FENCED_STATE_EPOCH: the group's offsets were reset
meanwhile. In both cases the sender drops its state.

Versions: v1 ``delivery_complete_count``: the number of records at or after the start offset that are completed, -1
unknown (KIP-1226).
"""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int16, int32, int64, string, uuid
from barnabas.protocol.message import Request, Response, Struct
from barnabas.protocol.messages.read_share_group_state import StateBatch


class PartitionData(Struct):
    partition: int = int32(default=0)
    state_epoch: int = int32(default=0)
    leader_epoch: int = int32(default=0)
    start_offset: int = int64(default=0)
    delivery_complete_count: int = int32("1+", default=-1, ignorable=True)
    state_batches: list[StateBatch] = array(StateBatch, default_factory=list)


class WriteStateData(Struct):
    topic_id: Uuid = uuid(default=ZERO_UUID)
    partitions: list[PartitionData] = array(PartitionData, default_factory=list)


class WriteShareGroupStateRequest(Request, api_key=ApiKey.WRITE_SHARE_GROUP_STATE):
    group_id: str = string(default="")
    topics: list[WriteStateData] = array(WriteStateData, default_factory=list)


class PartitionResult(Struct):
    partition: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(default=None, nullable="0+")


class WriteStateResult(Struct):
    topic_id: Uuid = uuid(default=ZERO_UUID)
    partitions: list[PartitionResult] = array(PartitionResult, default_factory=list)


class WriteShareGroupStateResponse(Response, api_key=ApiKey.WRITE_SHARE_GROUP_STATE):
    results: list[WriteStateResult] = array(WriteStateResult, default_factory=list)
