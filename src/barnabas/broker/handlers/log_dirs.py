"""DescribeLogDirs (v1-5) and AlterReplicaLogDirs (v1-2): describe this broker's log directories, and move replicas.

Both concern only this broker and are not forwarded. The first needs Describe on the cluster, the second Alter. A client
without Describe gets CLUSTER_AUTHORIZATION_FAILED, or an empty list before v3, which has no top-level error code.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from barnabas.common.errors import ClusterAuthorizationError, Errors
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from barnabas.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from barnabas.security.acl import CLUSTER_NAME, AclOperation, ResourceType
from barnabas.security.auth_helper import AuthHelper
from barnabas.server.request import Request
from barnabas.server.request_handler_helper import RequestHandlerHelper
from barnabas.server.request_local import RequestLocal


class ReplicaDirectories(Protocol):
    """The part of the replica manager that these APIs use."""

    def describe_log_dirs(self, partitions: Collection[TopicPartition] | None) -> list[DescribeLogDirsResult]: ...

    def alter_replica_log_dirs(self, dirs: Mapping[TopicPartition, str]) -> dict[TopicPartition, Errors]: ...


class LogDirsHandler:
    """Handles DescribeLogDirs and AlterReplicaLogDirs requests."""

    def __init__(self, helper: RequestHandlerHelper, auth: AuthHelper, replicas: ReplicaDirectories) -> None:
        self._helper = helper
        self._auth = auth
        self._replicas = replicas

    def describe_log_dirs(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, DescribeLogDirsRequest)
        error = Errors.NONE
        results: list[DescribeLogDirsResult] = []
        if self._auth.authorize(request.request_context, AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
            results = self._replicas.describe_log_dirs(
                None
                if body.topics is None
                else {TopicPartition(topic.topic, index) for topic in body.topics for index in topic.partitions}
            )
        else:
            error = Errors.CLUSTER_AUTHORIZATION_FAILED
        self._helper.send_response_maybe_throttle(
            request,
            lambda throttle_ms: DescribeLogDirsResponse(
                throttle_time_ms=throttle_ms, error_code=error, results=results
            ),
        )

    def alter_replica_log_dirs(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, AlterReplicaLogDirsRequest)
        if not self._auth.authorize(request.request_context, AclOperation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
            raise ClusterAuthorizationError
        results = self._replicas.alter_replica_log_dirs(
            {
                TopicPartition(topic.name, index): directory.path
                for directory in body.dirs
                for topic in directory.topics
                for index in topic.partitions
            }
        )
        topics: dict[str, AlterReplicaLogDirTopicResult] = {}
        for (name, index), error in results.items():
            topics.setdefault(name, AlterReplicaLogDirTopicResult(topic_name=name)).partitions.append(
                AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error)
            )
        self._helper.send_response_maybe_throttle(
            request,
            lambda throttle_ms: AlterReplicaLogDirsResponse(
                throttle_time_ms=throttle_ms, results=list(topics.values())
            ),
        )
