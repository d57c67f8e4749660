"""DescribeTopicPartitions (API 75): lists topics and partitions page by page (KIP-966).

Administrators use it instead of Metadata: responses have a bounded size, and two more replica sets. Any broker
responds. No ``topics`` means all topics. The broker sorts topics by name and stops after ``response_partition_limit``
partitions (or its own ``max.request.partition.size.limit``, 2000, whichever is lower); ``next_cursor`` then says where
to continue, and is copied unchanged into the next request. Null marks the last page. A topic that the limit splits
appears on both pages, with different partitions. The cursor's topic must be among the requested ones.

``eligible_leader_replicas`` were in the ISR when it fell below ``min.insync.replicas`` and have every committed record,
so that one of them can be elected without loss. ``last_known_elr`` were eligible, but have had an unclean shutdown
since. Both are nullable in the schema, but must be sent as lists, possibly empty: Kafka's admin client fails on null.
"""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, boolean, int16, int32, string, struct, uuid
from barnabas.protocol.message import Request, Response, Struct


class TopicRequest(Struct):
    name: str = string(default="")


class Cursor(Struct):
    topic_name: str = string(default="")
    partition_index: int = int32(default=0)


class DescribeTopicPartitionsRequest(Request, api_key=ApiKey.DESCRIBE_TOPIC_PARTITIONS):
    topics: list[TopicRequest] = array(TopicRequest, default_factory=list)
    response_partition_limit: int = int32(default=2000)
    cursor: Cursor | None = struct(Cursor, default=None, nullable="0+")


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: int = int16(default=0)
    partition_index: int = int32(default=0)
    leader_id: int = int32(default=0)
    leader_epoch: int = int32(default=-1, ignorable=True)
    replica_nodes: list[int] = array("int32", default_factory=list)
    isr_nodes: list[int] = array("int32", default_factory=list)
    eligible_leader_replicas: list[int] | None = array("int32", default=None, nullable="0+")
    last_known_elr: list[int] | None = array("int32", default=None, nullable="0+")
    offline_replicas: list[int] = array("int32", default_factory=list, ignorable=True)


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: int = int16(default=0)
    name: str | None = string(default="", nullable="0+")
    topic_id: Uuid = uuid(default=ZERO_UUID, ignorable=True)
    is_internal: bool = boolean(default=False, ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(
        DescribeTopicPartitionsResponsePartition, default_factory=list
    )
    topic_authorized_operations: int = int32(default=-2147483648)


class DescribeTopicPartitionsResponse(Response, api_key=ApiKey.DESCRIBE_TOPIC_PARTITIONS):
    throttle_time_ms: int = int32(default=0, ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = array(
        DescribeTopicPartitionsResponseTopic, default_factory=list
    )
    next_cursor: Cursor | None = struct(Cursor, default=None, nullable="0+")
