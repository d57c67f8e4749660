"""FetchSnapshot (API 59): downloads a snapshot of the metadata log, piece by piece (KIP-630).

For a controller or broker so far behind that the leader no longer has the log it needs; Fetch then responds with the
``snapshot_id`` to download. The reader starts at ``position`` 0 and continues after the bytes it has, until it has
``size`` bytes. Pieces are cut by size, so ``unaligned_records`` may begin and end within a batch: the bytes can be
decoded only once the file is complete.

Only the leader serves it: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH and NOT_LEADER_OR_FOLLOWER as in Fetch.
SNAPSHOT_NOT_FOUND: the leader has deleted it in favour of a newer one; start over with Fetch. POSITION_OUT_OF_RANGE:
the position is outside of the snapshot.

Versions: v1 directory of the replica, endpoint of the leader (KIP-853).
"""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int16, int32, int64, records, string, struct, uint16, uuid
from barnabas.protocol.message import Records, Request, Response, Struct


class SnapshotId(Struct):
    """A snapshot holds everything before ``end_offset``; ``epoch`` is that of the last record in it."""

    end_offset: int = int64(default=0)
    epoch: int = int32(default=0)


class RequestPartitionSnapshot(Struct):
    partition: int = int32(default=0)
    current_leader_epoch: int = int32(default=0)
    snapshot_id: SnapshotId = struct(SnapshotId, default_factory=SnapshotId)
    position: int = int64(default=0)
    replica_directory_id: Uuid = uuid("1+", default=ZERO_UUID, tag=0, ignorable=True)


class RequestTopicSnapshot(Struct):
    name: str = string(default="")
    partitions: list[RequestPartitionSnapshot] = array(RequestPartitionSnapshot, default_factory=list)


class FetchSnapshotRequest(Request, api_key=ApiKey.FETCH_SNAPSHOT):
    cluster_id: str | None = string(default=None, nullable="0+", tag=0)
    replica_id: int = int32(default=-1)
    max_bytes: int = int32(default=2147483647)
    topics: list[RequestTopicSnapshot] = array(RequestTopicSnapshot, default_factory=list)


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32(default=0)
    leader_epoch: int = int32(default=0)


class ResponsePartitionSnapshot(Struct):
    index: int = int32(default=0)
    error_code: int = int16(default=0)
    snapshot_id: SnapshotId = struct(SnapshotId, default_factory=SnapshotId)
    current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, default=None, tag=0)
    size: int = int64(default=0)
    position: int = int64(default=0)
    unaligned_records: Records | None = records(default=None)


class ResponseTopicSnapshot(Struct):
    name: str = string(default="")
    partitions: list[ResponsePartitionSnapshot] = array(ResponsePartitionSnapshot, default_factory=list)


class NodeEndpoint(Struct):
    node_id: int = int32("1+", default=0)
    host: str = string("1+", default="")
    port: int = uint16("1+", default=0)


class FetchSnapshotResponse(Response, api_key=ApiKey.FETCH_SNAPSHOT):
    throttle_time_ms: int = int32(default=0, ignorable=True)
    error_code: int = int16(default=0)
    topics: list[ResponseTopicSnapshot] = array(ResponseTopicSnapshot, default_factory=list)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", default_factory=list, tag=0)
