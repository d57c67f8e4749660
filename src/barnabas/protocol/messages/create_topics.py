"""DOC CreateTopics."""

from __future__ import annotations

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.fields import array, boolean, int8, int16, int32, string, uuid
from barnabas.protocol.message import Request, Response, Struct


class CreatableReplicaAssignment(Struct):
    partition_index: int = int32(default=0)
    broker_ids: list[int] = array("int32", default_factory=list)


class CreatableTopicConfig(Struct):
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
