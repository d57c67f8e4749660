"""ShareAcknowledge (API 79): acknowledges the records that a share consumer acquired (KIP-932).

The next ShareFetch usually carries the acknowledgements; this request is for when there is nothing to fetch, as in a
synchronous commit or on closing. A batch has a range of offsets and their ``acknowledge_types``: one entry for the
whole range, or one per offset.

- 0 gap: there is no record at this offset (compacted away, or a control record)
- 1 accept: processed
- 2 release: not processed, deliver again
- 3 reject: cannot be processed, never deliver again
- 4 renew: still processing, extend the lock; a final acknowledgement must follow (v2, with ``is_renew_ack`` set)

INVALID_RECORD_STATE for a partition means that the member no longer holds the records: the acquisition lock expired and
they may have gone to another member. So delivery is at least once. ``share_session_epoch`` continues the session that
ShareFetch opened: it counts up, -1 closes it and releases the records still held, and 0 is refused, because there is
nothing to acknowledge yet. SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH: open a new session with ShareFetch.

Versions: v1 the first stable one; v2 renewal, and the length of the lock in the response (KIP-1222).
"""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, boolean, int16, int32, int64, string, struct, uuid
from barnabas.protocol.message import Request, Response, Struct


class AcknowledgementBatch(Struct):
    """``first_offset`` to ``last_offset``, both included, with one acknowledge type for all or one for each."""

    first_offset: int = int64(default=0)
    last_offset: int = int64(default=0)
    acknowledge_types: list[int] = array("int8", default_factory=list)


class AcknowledgePartition(Struct):
    partition_index: int = int32(default=0)
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch, default_factory=list)


class AcknowledgeTopic(Struct):
    topic_id: Uuid = uuid(default=ZERO_UUID)
    partitions: list[AcknowledgePartition] = array(AcknowledgePartition, default_factory=list)


class ShareAcknowledgeRequest(Request, api_key=ApiKey.SHARE_ACKNOWLEDGE):
    group_id: str | None = string(default=None, nullable="0+")
    member_id: str | None = string(default="", nullable="0+")
    share_session_epoch: int = int32(default=0)
    is_renew_ack: bool = boolean("2+", default=False)
    topics: list[AcknowledgeTopic] = array(AcknowledgeTopic, default_factory=list)


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32(default=0)
    leader_epoch: int = int32(default=0)


class PartitionData(Struct):
    partition_index: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(default=None, nullable="0+")
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, default_factory=LeaderIdAndEpoch)


class ShareAcknowledgeTopicResponse(Struct):
    topic_id: Uuid = uuid(default=ZERO_UUID)
    partitions: list[PartitionData] = array(PartitionData, default_factory=list)


class NodeEndpoint(Struct):
    node_id: int = int32(default=0)
    host: str = string(default="")
    port: int = int32(default=0)
    rack: str | None = string(default=None, nullable="0+")


class ShareAcknowledgeResponse(Response, api_key=ApiKey.SHARE_ACKNOWLEDGE):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(default=None, nullable="0+")
    acquisition_lock_timeout_ms: int = int32("2+", default=0, ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse] = array(ShareAcknowledgeTopicResponse, default_factory=list)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, default_factory=list)
