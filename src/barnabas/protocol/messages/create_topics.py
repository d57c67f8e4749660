"""CreateTopics (API 19): creates topics.

Forwarded to the controller. Each topic succeeds or fails by itself. Either partitions and replication factor are
given, -1 for the cluster's default, or ``assignments`` spells out the replicas of every partition, preferred leader
first, and the two numbers must be -1. A null config value is refused (INVALID_CONFIG). REQUEST_TIMED_OUT does not
undo anything: the topic may exist a moment later.

Success means that the metadata log has the topic; brokers learn of it shortly after, so a producer may still see
UNKNOWN_TOPIC_OR_PARTITION for a while. The response describes the created topic. A caller that may create topics but
not describe configurations gets null ``configs`` and the reason in ``topic_config_error_code``.

Versions: v3 client-side throttling (KIP-219); v4 defaults for partitions and replication factor (KIP-464); v5
flexible, configs in the response (KIP-525); v6 THROTTLING_QUOTA_EXCEEDED when the controller mutation quota is used up
(KIP-599); v7 topic id (KIP-516).
"""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, boolean, int8, int16, int32, string, uuid
from barnabas.protocol.message import Request, Response, Struct


class CreatableReplicaAssignment(Struct):
    partition_index: int = int32(default=0)
    broker_ids: list[int] = array("int32", default_factory=list)


class CreatableTopicConfig(Struct):
    """A requested setting of a topic."""

    name: str = string(default="")
    value: str | None = string(default="", nullable="0+")


class CreatableTopic(Struct):
    name: str = string(default="")
    num_partitions: int = int32(default=0)
    replication_factor: int = int16(default=0)
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment, default_factory=list)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig, default_factory=list)


class CreateTopicsRequest(Request, api_key=ApiKey.CREATE_TOPICS):
    topics: list[CreatableTopic] = array(CreatableTopic, default_factory=list)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean("1+", default=False)


class CreatableTopicConfigs(Struct):
    """The resulting value of a setting; ``config_source`` as in DescribeConfigs."""

    name: str = string("5+", default="")
    value: str | None = string("5+", default="", nullable="5+")
    read_only: bool = boolean("5+", default=False)
    config_source: int = int8("5+", default=-1, ignorable=True)
    is_sensitive: bool = boolean("5+", default=False)


class CreatableTopicResult(Struct):
    name: str = string(default="")
    topic_id: Uuid = uuid("7+", default=ZERO_UUID, ignorable=True)
    error_code: int = int16(default=0)
    error_message: str | None = string("1+", default="", nullable="0+", ignorable=True)
    topic_config_error_code: int = int16("5+", default=0, tag=0, ignorable=True)
    num_partitions: int = int32("5+", default=-1, ignorable=True)
    replication_factor: int = int16("5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = array(
        CreatableTopicConfigs, "5+", default_factory=list, nullable="5+", ignorable=True
    )


class CreateTopicsResponse(Response, api_key=ApiKey.CREATE_TOPICS):
    throttle_time_ms: int = int32("2+", default=0, ignorable=True)
    topics: list[CreatableTopicResult] = array(CreatableTopicResult, default_factory=list)
