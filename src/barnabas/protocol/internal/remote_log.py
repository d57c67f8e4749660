"""The records of ``__remote_log_metadata``: which log segments are in tiered storage (KIP-405).

Written and read by the brokers themselves, through an ordinary producer and consumer. Which partition of the topic a
user partition's events go to follows from a hash of its topic id and number. Records have no key and are framed like
those of the metadata log (:mod:`~barnabas.protocol.internal.framing`); the topic is not compacted and by default
keeps everything. Whoever leads or follows a partition replays its events in order, and the last one for a segment id
counts.

A segment's life: 0 copy started, 1 copy finished, 2 delete started, 3 delete finished. Only a segment in state 1 is
served to readers. One that stays in 0 is the remains of a failed upload, under an id that is never used again: the
next attempt takes a new one. That makes uploads safe to repeat, and orphans easy to find.
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
    """A segment as a whole; its first event, in state 0.

    ``segment_leader_epochs`` tells which epochs the segment covers and where each begins, so that after an unclean
    election readers do not follow a branch of history that was given up. ``txn_index_empty`` saves fetching an index
    with nothing in it.
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
    """A whole partition is being deleted: 0 marked (by the controller), 1 started, 2 finished (by the leader of the
    metadata partition).
    """

    topic_id_partition: TopicIdPartitionEntry = struct(TopicIdPartitionEntry, default_factory=TopicIdPartitionEntry)
    broker_id: int = int32(default=0)
    event_timestamp_ms: int = int64(default=0)
    remote_partition_delete_state: int = int8(default=0)


class RemoteLogSegmentMetadataSnapshotRecord(MetadataRecord, record_type=3, versions="0", flexible="0+"):
    """The same as RemoteLogSegmentMetadataRecord, for a file that concerns one partition and need not name it each
    time.
    """

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
