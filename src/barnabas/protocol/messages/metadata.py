"""Metadata (API 3): lists brokers, topics, partitions and their leaders, for clients to route requests.

Any broker responds, from its own copy of the metadata, which may lag slightly behind the controller's. Clients request
it at the start, every few minutes, and whenever an error shows that their metadata is stale (NOT_LEADER_OR_FOLLOWER and
similar). The addresses are those of the *listener the request came in on*, which is why advertised listeners matter;
fenced brokers are left out.

- ``topics`` **null means all, an empty list means none** (in v0 the empty list meant all). A request for all topics
  omits those that the caller may not describe; a request by name gets TOPIC_AUTHORIZATION_FAILED.
- A topic that does not exist is created if both ``auto.create.topics.enable`` of the broker and
  ``allow_auto_topic_creation`` permit it; the response has UNKNOWN_TOPIC_OR_PARTITION or LEADER_NOT_AVAILABLE until the
  topic exists. Below v4 a client cannot disable this.
- ``leader_id`` -1 with LEADER_NOT_AVAILABLE: no leader at the moment; retry. Partitions come in no particular order.
- ``leader_epoch`` lets a client keep the newer metadata when two brokers disagree: it ignores an epoch lower than the
  one it knows (KIP-320).
- ``controller_id`` is *some* live broker, not the controller: clients cannot reach controllers, and any broker
  forwards.
- ``*_authorized_operations`` are bit sets over ACL operation codes; -2147483648 if not requested.

Versions: v1 null for all topics, racks, controller, internal topics; v2 cluster id; v3 throttle time; v4 auto-creation
flag; v5 offline replicas (KIP-112); v6 client-side throttling (KIP-219), LISTENER_NOT_FOUND; v7 leader epochs
(KIP-320); v8 authorized operations (KIP-430); v9 flexible; v10 topic ids in the response (KIP-516; in the request they
work from v12 on, with a null name); v11 the cluster's authorized operations have moved to DescribeCluster (KIP-700);
v12 request by topic id, UNKNOWN_TOPIC_ID; v13 top-level error REBOOTSTRAP_REQUIRED (KIP-1102).
"""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, boolean, int16, int32, string, uuid
from barnabas.protocol.message import Request, Response, Struct


class MetadataRequestTopic(Struct):
    """A topic requested by name, or (v12 and later) by id with a null name."""

    topic_id: Uuid = uuid("10+", default=ZERO_UUID, ignorable=True)
    name: str | None = string(default="", nullable="10+")


class MetadataRequest(Request, api_key=ApiKey.METADATA):
    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, default_factory=list, nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10", default=False)
    include_topic_authorized_operations: bool = boolean("8+", default=False)


class MetadataResponseBroker(Struct):
    node_id: int = int32(default=0)
    host: str = string(default="")
    port: int = int32(default=0)
    rack: str | None = string("1+", default=None, nullable="1+", ignorable=True)


class MetadataResponsePartition(Struct):
    error_code: int = int16(default=0)
    partition_index: int = int32(default=0)
    leader_id: int = int32(default=0)
    leader_epoch: int = int32("7+", default=-1, ignorable=True)
    replica_nodes: list[int] = array("int32", default_factory=list)
    isr_nodes: list[int] = array("int32", default_factory=list)
    offline_replicas: list[int] = array("int32", "5+", default_factory=list, ignorable=True)


class MetadataResponseTopic(Struct):
    error_code: int = int16(default=0)
    name: str | None = string(default="", nullable="12+")
    topic_id: Uuid = uuid("10+", default=ZERO_UUID, ignorable=True)
    is_internal: bool = boolean("1+", default=False, ignorable=True)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition, default_factory=list)
    topic_authorized_operations: int = int32("8+", default=-2147483648)


class MetadataResponse(Response, api_key=ApiKey.METADATA):
    throttle_time_ms: int = int32("3+", default=0, ignorable=True)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker, default_factory=list)
    cluster_id: str | None = string("2+", default=None, nullable="2+", ignorable=True)
    controller_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic, default_factory=list)
    cluster_authorized_operations: int = int32("8-10", default=-2147483648)
    error_code: int = int16("13+", default=0, ignorable=True)
