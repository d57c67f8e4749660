"""OffsetFetch (API 9): reads the committed offsets of groups.

Sent to the group coordinator, by consumers when they are assigned partitions and by tools. ``committed_offset`` -1
means that nothing is committed, *without* an error: the consumer then uses ``auto.offset.reset``. ``topics`` null
requests all offsets of the group.

``require_stable`` matters for exactly-once: offsets that belong to an open transaction are not readable yet, and the
partition reports UNSTABLE_OFFSET_COMMIT: retry until that transaction has ended. Without the flag a consumer would get
the previous offset and process the same records twice (KIP-447).

Up to v7 one group per request, in the ``*Topic`` and ``*Partition`` structs; from v8 on many, in ``groups``, each
with its own error code. The two forms exclude each other.

Versions: v2 null for all topics, top-level error; v3 throttle time; v4 client-side throttling (KIP-219); v5 leader
epochs (KIP-320); v6 flexible; v7 ``require_stable``; v8 several groups (KIP-709); v9 member id and epoch,
STALE_MEMBER_EPOCH (KIP-848), -1 and null for a caller that is not a member; v10 topic ids instead of names.
"""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, boolean, int16, int32, int64, string, uuid
from barnabas.protocol.message import Request, Response, Struct


class OffsetFetchRequestTopic(Struct):
    """The form up to v7."""

    name: str = string("0-7", default="")
    partition_indexes: list[int] = array("int32", "0-7", default_factory=list)


class OffsetFetchRequestTopics(Struct):
    """The form since v8, within a group."""

    name: str = string("8-9", default="", ignorable=True)
    topic_id: Uuid = uuid("10+", default=ZERO_UUID, ignorable=True)
    partition_indexes: list[int] = array("int32", "8+", default_factory=list)


class OffsetFetchRequestGroup(Struct):
    group_id: str = string("8+", default="")
    member_id: str | None = string("9+", default=None, nullable="9+", ignorable=True)
    member_epoch: int = int32("9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = array(
        OffsetFetchRequestTopics, "8+", default_factory=list, nullable="8+"
    )


class OffsetFetchRequest(Request, api_key=ApiKey.OFFSET_FETCH):
    group_id: str = string("0-7", default="")
    topics: list[OffsetFetchRequestTopic] | None = array(
        OffsetFetchRequestTopic, "0-7", default_factory=list, nullable="2-7"
    )
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, "8+", default_factory=list)
    require_stable: bool = boolean("7+", default=False)


class OffsetFetchResponsePartition(Struct):
    """The form up to v7."""

    partition_index: int = int32("0-7", default=0)
    committed_offset: int = int64("0-7", default=0)
    committed_leader_epoch: int = int32("5-7", default=-1, ignorable=True)
    metadata: str | None = string("0-7", default="", nullable="0-7")
    error_code: int = int16("0-7", default=0)


class OffsetFetchResponseTopic(Struct):
    """The form up to v7."""

    name: str = string("0-7", default="")
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition, "0-7", default_factory=list)


class OffsetFetchResponsePartitions(Struct):
    """The form since v8, within a group."""

    partition_index: int = int32("8+", default=0)
    committed_offset: int = int64("8+", default=0)
    committed_leader_epoch: int = int32("8+", default=-1, ignorable=True)
    metadata: str | None = string("8+", default="", nullable="8+")
    error_code: int = int16("8+", default=0)


class OffsetFetchResponseTopics(Struct):
    """The form since v8, within a group."""

    name: str = string("8-9", default="", ignorable=True)
    topic_id: Uuid = uuid("10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions, "8+", default_factory=list)


class OffsetFetchResponseGroup(Struct):
    group_id: str = string("8+", default="")
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics, "8+", default_factory=list)
    error_code: int = int16("8+", default=0)


class OffsetFetchResponse(Response, api_key=ApiKey.OFFSET_FETCH):
    throttle_time_ms: int = int32("3+", default=0, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "0-7", default_factory=list)
    error_code: int = int16("2-7", default=0, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, "8+", default_factory=list)
