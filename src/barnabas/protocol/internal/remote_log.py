"""DOC remote."""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.fields import array, binary, boolean, int8, int32, int64, string, struct, uuid
from barnabas.protocol.internal.framing import MetadataRecord
from barnabas.protocol.message import Struct


class TopicIdPartitionEntry(Struct):
    name: str = string(default="")
    id: Uuid = uuid(default=ZERO_UUID)
    partition: int = int32(default=0)


class RemoteLogSegmentIdEntry(Struct):
    topic_id_partition: TopicIdPartitionEntry = struct(TopicIdPartitionEntry, default_factory=TopicIdPartitionEntry)
    id: Uuid = uuid(default=ZERO_UUID)


class SegmentLeaderEpochEntry(Struct):
    leader_epoch: int = int32(default=0)
    offset: int = int64(default=0)


class RemoteLogSegmentMetadataRecord(MetadataRecord, record_type=0, versions="0", flexible="0+"):
    remote_log_segment_id: RemoteLogSegmentIdEntry = struct(
        RemoteLogSegmentIdEntry, default_factory=RemoteLogSegmentIdEntry
    )
    start_offset: int = int64(default=0)
    end_offset: int = int64(default=0)
    broker_id: int = int32(default=0)
    max_timestamp_ms: int = int64(default=0)
    event_timestamp_ms: int = int64(default=0)
    segment_leader_epochs: list[SegmentLeaderEpochEntry] = array(SegmentLeaderEpochEntry, default_factory=list)
    segment_size_in_bytes: int = int32(default=0)
    custom_metadata: bytes | None = binary(default=None, nullable="0+")
    remote_log_segment_state: int = int8(default=0)
    txn_index_empty: bool = boolean(default=False, tag=0)


class RemoteLogSegmentMetadataUpdateRecord(MetadataRecord, record_type=1, versions="0", flexible="0+"):
    remote_log_segment_id: RemoteLogSegmentIdEntry = struct(
        RemoteLogSegmentIdEntry, default_factory=RemoteLogSegmentIdEntry
    )
    broker_id: int = int32(default=0)
    event_timestamp_ms: int = int64(default=0)
    custom_metadata: bytes | None = binary(default=None, nullable="0+")
    remote_log_segment_state: int = int8(default=0)


class RemotePartitionDeleteMetadataRecord(MetadataRecord, record_type=2, versions="0", flexible="0+"):
    topic_id_partition: TopicIdPartitionEntry = struct(TopicIdPartitionEntry, default_factory=TopicIdPartitionEntry)
    broker_id: int = int32(default=0)
    event_timestamp_ms: int = int64(default=0)
    remote_partition_delete_state: int = int8(default=0)


class RemoteLogSegmentMetadataSnapshotRecord(MetadataRecord, record_type=3, versions="0", flexible="0+"):
    segment_id: Uuid = uuid(default=ZERO_UUID)
    start_offset: int = int64(default=0)
    end_offset: int = int64(default=0)
    broker_id: int = int32(default=0)
    max_timestamp_ms: int = int64(default=0)
    event_timestamp_ms: int = int64(default=0)
    segment_leader_epochs: list[SegmentLeaderEpochEntry] = array(SegmentLeaderEpochEntry, default_factory=list)
    segment_size_in_bytes: int = int32(default=0)
    custom_metadata: bytes | None = binary(default=None, nullable="0+")
    remote_log_segment_state: int = int8(default=0)
    txn_index_empty: bool = boolean(default=False, tag=0)
