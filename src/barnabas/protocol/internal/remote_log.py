"""The records of ``__remote_log_metadata``: which log segments are in tiered storage (KIP-405).

The brokers write and read the topic through an ordinary producer and consumer. A hash of topic id and partition number
picks the partition for the events of a user partition. Records have no key and are framed like those of the metadata
log (:mod:`~barnabas.protocol.internal.framing`); the topic is not compacted and by default keeps everything. The leader
and the followers of a partition replay its events in order; the last event of a segment id determines its state.

The states of a segment: 0 copy started, 1 copy finished, 2 delete started, 3 delete finished. Readers see only segments
in state 1. A segment that stays in state 0 is the remainder of a failed upload. Its id is never reused: the next
attempt takes a new id. So uploads are safe to repeat, and orphans are easy to find.
"""

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
    """A segment as a whole: its first event, in state 0.

    ``segment_leader_epochs`` lists the epochs in the segment with their start offsets, so that after an unclean
    election readers do not follow an abandoned branch of history. ``txn_index_empty`` avoids fetching an empty index.
    """

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
    """The segment has moved to another state. ``custom_metadata`` is for the storage plug-in."""

    remote_log_segment_id: RemoteLogSegmentIdEntry = struct(
        RemoteLogSegmentIdEntry, default_factory=RemoteLogSegmentIdEntry
    )
    broker_id: int = int32(default=0)
    event_timestamp_ms: int = int64(default=0)
    custom_metadata: bytes | None = binary(default=None, nullable="0+")
    remote_log_segment_state: int = int8(default=0)


class RemotePartitionDeleteMetadataRecord(MetadataRecord, record_type=2, versions="0", flexible="0+"):
    """The deletion of a whole partition.

    The states: 0 marked (by the controller), 1 started, 2 finished (by the leader of the metadata partition).
    """

    topic_id_partition: TopicIdPartitionEntry = struct(TopicIdPartitionEntry, default_factory=TopicIdPartitionEntry)
    broker_id: int = int32(default=0)
    event_timestamp_ms: int = int64(default=0)
    remote_partition_delete_state: int = int8(default=0)


class RemoteLogSegmentMetadataSnapshotRecord(MetadataRecord, record_type=3, versions="0", flexible="0+"):
    """RemoteLogSegmentMetadataRecord without the partition, for a file that describes one partition."""

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
