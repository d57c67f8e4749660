"""Fetch (API 1): reads records, for consumers, follower replicas and readers of the metadata log.

Sent to the leader of the partitions (a consumer may also read from a follower in its rack, KIP-392). The broker holds
the request until ``min_bytes`` are available or ``max_wait_ms`` have passed. This long polling makes both idle and busy
consumers cheap. Partitions are served in the order of the request until ``max_bytes`` is reached, so a client rotates
them. The limits are soft: the first batch of the first partition that has data is sent whole, whatever its size,
because the reader could otherwise never pass it (KIP-74).

The response has **an unchanged range of the log**: batches, compressed as the producer sent them. So the first batch
may begin *before* ``fetch_offset``, and the last may be truncated; the reader skips both ends.

``replica_id`` determines how far the reader may read. -1 is a consumer, which reads up to the high watermark, or up to
the last stable offset with ``isolation_level`` 1 (read committed). Then ``aborted_transactions`` lists which producers'
records to drop, from which offset on; the reader does the filtering. A broker id is a follower, which reads the whole
log. Its ``fetch_offset`` *acknowledges* all records before it, which lets the leader advance the high watermark. -2 is
for debugging tools.

**Sessions (KIP-227)** keep a request with thousands of unchanged partitions small. ``session_epoch`` 0 is a full
request that opens a session; the response has its ``session_id`` (0: not opened). Afterwards the epoch counts 1, 2, 3
..., ``topics`` lists only new partitions and those whose offset moved, ``forgotten_topics_data`` those to remove, and
the response leaves out unchanged partitions. -1 is a full request without a session, or closes one.
FETCH_SESSION_ID_NOT_FOUND and INVALID_FETCH_SESSION_EPOCH: start again with a full request.

**Fencing and divergence (KIP-320, KIP-595).** A ``current_leader_epoch`` (-1: unknown) below the leader's gets
FENCED_LEADER_EPOCH, one above it UNKNOWN_LEADER_EPOCH. From ``last_fetched_epoch`` the leader determines whether the
reader's log is a prefix of its own; if not, the response has no records, and ``diverging_epoch`` says where to
truncate. ``snapshot_id`` directs a reader of the metadata log that is too far behind to FetchSnapshot.

OFFSET_OUT_OF_RANGE: the offset is below the log start or beyond the end. ``preferred_read_replica`` other than -1: the
response has no records; fetch from that replica. ``current_leader`` and ``node_endpoints`` save a Metadata round trip
after a leader change.

Versions: v5 log start offset; v6 KAFKA_STORAGE_ERROR; v7 incremental sessions (KIP-227); v8 client-side throttling
(KIP-219); v9 leader epoch (KIP-320); v10 zstd (KIP-110); v11 rack and preferred replica (KIP-392); v12 flexible,
divergence, current leader, cluster id; v13 topic ids, UNKNOWN_TOPIC_ID (KIP-516); v14 OFFSET_MOVED_TO_TIERED_STORAGE
for followers (KIP-405); v15 ``replica_state`` with the broker epoch in place of ``replica_id`` (KIP-903); v16 endpoints
of new leaders (KIP-951); v17 directory of the replica (KIP-853); v18 the high watermark that the follower knows, so
that the leader responds early when only the high watermark has moved; -1 unknown, the largest int64 if the follower
does not use this (KIP-1166).
"""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, int8, int16, int32, int64, records, string, struct, uuid
from barnabas.protocol.message import Records, Request, Response, Struct


class ReplicaState(Struct):
    """The replica that fetches (v15 and later); omitted by consumers, which are replica -1."""

    replica_id: int = int32("15+", default=-1)
    replica_epoch: int = int64("15+", default=-1)


class FetchPartition(Struct):
    partition: int = int32(default=0)
    current_leader_epoch: int = int32("9+", default=-1, ignorable=True)
    fetch_offset: int = int64(default=0)
    last_fetched_epoch: int = int32("12+", default=-1)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    partition_max_bytes: int = int32(default=0)
    replica_directory_id: Uuid = uuid("17+", default=ZERO_UUID, tag=0, ignorable=True)
    high_watermark: int = int64("18+", default=9223372036854775807, tag=1, ignorable=True)


class FetchTopic(Struct):
    topic: str = string("0-12", default="", ignorable=True)
    topic_id: Uuid = uuid("13+", default=ZERO_UUID, ignorable=True)
    partitions: list[FetchPartition] = array(FetchPartition, default_factory=list)


class ForgottenTopic(Struct):
    """Partitions to remove from the fetch session."""

    topic: str = string("7-12", default="", ignorable=True)
    topic_id: Uuid = uuid("13+", default=ZERO_UUID, ignorable=True)
    partitions: list[int] = array("int32", "7+", default_factory=list)


class FetchRequest(Request, api_key=ApiKey.FETCH):
    cluster_id: str | None = string("12+", default=None, nullable="12+", tag=0, ignorable=True)
    replica_id: int = int32("0-14", default=-1)
    replica_state: ReplicaState | None = struct(ReplicaState, "15+", default=None, tag=1)
    max_wait_ms: int = int32(default=0)
    min_bytes: int = int32(default=0)
    max_bytes: int = int32("3+", default=2147483647, ignorable=True)
    isolation_level: int = int8("4+", default=0, ignorable=True)
    session_id: int = int32("7+", default=0, ignorable=True)
    session_epoch: int = int32("7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = array(FetchTopic, default_factory=list)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+", default_factory=list)
    rack_id: str = string("11+", default="", ignorable=True)


class EpochEndOffset(Struct):
    """The leader's largest epoch not above the reader's, and its end offset: truncate to there and fetch again."""

    epoch: int = int32("12+", default=-1)
    end_offset: int = int64("12+", default=-1)


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32("12+", default=-1)
    leader_epoch: int = int32("12+", default=-1)


class SnapshotId(Struct):
    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


class AbortedTransaction(Struct):
    """Readers skip the records of this producer from ``first_offset`` to its next abort marker."""

    producer_id: int = int64("4+", default=0)
    first_offset: int = int64("4+", default=0)


class PartitionData(Struct):
    partition_index: int = int32(default=0)
    error_code: int = int16(default=0)
    high_watermark: int = int64(default=0)
    last_stable_offset: int = int64("4+", default=-1, ignorable=True)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset | None = struct(EpochEndOffset, "12+", default=None, tag=0)
    current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, "12+", default=None, tag=1)
    snapshot_id: SnapshotId | None = struct(SnapshotId, "12+", default=None, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = array(
        AbortedTransaction, "4+", default_factory=list, nullable="4+", ignorable=True
    )
    preferred_read_replica: int = int32("11+", default=-1)
    records: Records | None = records(default=None, nullable="0+")


class FetchableTopicResponse(Struct):
    topic: str = string("0-12", default="", ignorable=True)
    topic_id: Uuid = uuid("13+", default=ZERO_UUID, ignorable=True)
    partitions: list[PartitionData] = array(PartitionData, default_factory=list)


class NodeEndpoint(Struct):
    """The endpoint of a broker named in a ``current_leader``."""

    node_id: int = int32("16+", default=0)
    host: str = string("16+", default="")
    port: int = int32("16+", default=0)
    rack: str | None = string("16+", default=None, nullable="16+")


class FetchResponse(Response, api_key=ApiKey.FETCH):
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16("7+", default=0, ignorable=True)
    session_id: int = int32("7+", default=0)
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse, default_factory=list)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "16+", default_factory=list, tag=0)
