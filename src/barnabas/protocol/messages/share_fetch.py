"""ShareFetch (API 78): fetches records for a share group, and acknowledges earlier ones (KIP-932).

In a share group several consumers read the *same* partition, like workers on a queue. The partition's leader tracks
delivery: it **acquires** records for a member, which locks them for ``acquisition_lock_timeout_ms``, and waits for an
acknowledgement (for the types see :mod:`~barnabas.protocol.messages.share_acknowledge`). When the lock expires, the
record becomes available to others; after too many deliveries (``group.share.delivery.count.limit``) it is archived and
not delivered again.

The response's ``records`` are whole batches, as in Fetch, but the member processes only the ranges in
``acquired_records`` and skips the rest. ``delivery_count`` says how often they have been delivered. The request has no
offset: the leader decides which records come next.

Sessions are mandatory. The key is group and member, a UUID in its text form. ``share_session_epoch`` 0 opens one (and
drops an older one), with no acknowledgements in it; then it counts 1, 2, 3 ...; -1 closes it, with the last
acknowledgements and nothing to fetch. As in Fetch, ``topics`` lists partitions to add, or with acknowledgements,
``forgotten_topics_data`` those to drop. SHARE_SESSION_NOT_FOUND and INVALID_SHARE_SESSION_EPOCH: open a new session;
SHARE_SESSION_LIMIT_REACHED: the broker cannot open another session.

Each partition has two errors, one for the fetch and one for the acknowledgements. ``max_records`` is soft: batches are
not split for it; ``batch_size`` is the preferred size of acquired ranges.

Versions: v1 the first stable one; v2 ``share_acquire_mode`` 1, which makes ``max_records`` a hard limit (0: by whole
batches, KIP-1206), and renewal of locks: with ``is_renew_ack`` the request fetches nothing, and its wait, byte and
record limits have to be 0 (KIP-1222).
"""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, boolean, int8, int16, int32, int64, records, string, struct, uuid
from barnabas.protocol.message import Records, Request, Response, Struct
from barnabas.protocol.messages.share_acknowledge import AcknowledgementBatch, LeaderIdAndEpoch, NodeEndpoint


class FetchPartition(Struct):
    partition_index: int = int32(default=0)
    partition_max_bytes: int = int32("0", default=0)
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch, default_factory=list)


class FetchTopic(Struct):
    topic_id: Uuid = uuid(default=ZERO_UUID)
    partitions: list[FetchPartition] = array(FetchPartition, default_factory=list)


class ForgottenTopic(Struct):
    topic_id: Uuid = uuid(default=ZERO_UUID)
    partitions: list[int] = array("int32", default_factory=list)


class ShareFetchRequest(Request, api_key=ApiKey.SHARE_FETCH):
    group_id: str | None = string(default=None, nullable="0+")
    member_id: str | None = string(default="", nullable="0+")
    share_session_epoch: int = int32(default=0)
    max_wait_ms: int = int32(default=0)
    min_bytes: int = int32(default=0)
    max_bytes: int = int32(default=2147483647)
    max_records: int = int32("1+", default=0)
    batch_size: int = int32("1+", default=0)
    share_acquire_mode: int = int8("2+", default=0, ignorable=True)
    is_renew_ack: bool = boolean("2+", default=False)
    topics: list[FetchTopic] = array(FetchTopic, default_factory=list)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, default_factory=list)


class AcquiredRecords(Struct):
    """A range of offsets that are now locked for this member, both ends included."""

    first_offset: int = int64(default=0)
    last_offset: int = int64(default=0)
    delivery_count: int = int16(default=0)


class PartitionData(Struct):
    partition_index: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(default=None, nullable="0+")
    acknowledge_error_code: int = int16(default=0)
    acknowledge_error_message: str | None = string(default=None, nullable="0+")
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, default_factory=LeaderIdAndEpoch)
    records: Records | None = records(default=None, nullable="0")
    acquired_records: list[AcquiredRecords] = array(AcquiredRecords, default_factory=list)


class ShareFetchableTopicResponse(Struct):
    topic_id: Uuid = uuid(default=ZERO_UUID)
    partitions: list[PartitionData] = array(PartitionData, default_factory=list)


class ShareFetchResponse(Response, api_key=ApiKey.SHARE_FETCH):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(default=None, nullable="0+")
    acquisition_lock_timeout_ms: int = int32("1+", default=0)
    responses: list[ShareFetchableTopicResponse] = array(ShareFetchableTopicResponse, default_factory=list)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, default_factory=list)
