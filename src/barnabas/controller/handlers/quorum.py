"""DescribeQuorum (v0-2): the progress of the replicas of the metadata log.

Needs Describe on the cluster. The request may name only the one partition of the metadata log; any other, or more than
one, fails with UNKNOWN_TOPIC_OR_PARTITION. Only the leader knows the state: another node responds with
NOT_LEADER_OR_FOLLOWER, and a broker that has forwarded the request then looks for the leader.

Versions: v1 adds when a replica last fetched and was last caught up; v2 adds directories of the replicas, addresses of
the nodes, and error messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from barnabas.common.errors import Errors, NotLeaderOrFollowerError
from barnabas.common.topic_names import CLUSTER_METADATA_TOPIC
from barnabas.controller.handlers.backend import Backend
from barnabas.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)
from barnabas.raft.quorum_info import QuorumInfo, QuorumReplica
from barnabas.security.acl import AclOperation
from barnabas.server.request import Request
from barnabas.server.request_local import RequestLocal

METADATA_PARTITION = 0
FIRST_WITH_NODES = 2

DescribeQuorum = Callable[[], QuorumInfo]
"""Returns the Raft client's view; raises `NotLeaderOrFollowerError` if this node does not lead."""


class QuorumHandler:
    """Describes the quorum as this node's Raft client sees it."""

    def __init__(self, backend: Backend, describe: DescribeQuorum) -> None:
        self._backend = backend
        self._describe = describe

    def describe_quorum(self, request: Request, _local: RequestLocal) -> None:
        body = request.body
        assert isinstance(body, DescribeQuorumRequest)
        self._backend.authorize_cluster(request, AclOperation.DESCRIBE)
        if _asked(body) != [(CLUSTER_METADATA_TOPIC, METADATA_PARTITION)]:
            response = _unknown(body)
        else:
            try:
                response = quorum_response(self._describe(), request.api_version)
            except NotLeaderOrFollowerError:
                response = _of_the_log(_failed(METADATA_PARTITION, Errors.NOT_LEADER_OR_FOLLOWER))
        self._backend.helper.send_response_exempt_throttle(request, response)


def quorum_response(info: QuorumInfo, version: int) -> DescribeQuorumResponse:
    response = _of_the_log(
        ResponsePartitionData(
            partition_index=METADATA_PARTITION,
            leader_id=info.leader_id,
            leader_epoch=info.leader_epoch,
            high_watermark=info.high_watermark,
            current_voters=_replicas(info.current_voters, version),
            observers=_replicas(info.observers, version),
        )
    )
    if version >= FIRST_WITH_NODES:
        response.nodes = [
            Node(
                node_id=node.node_id,
                listeners=[
                    Listener(name=endpoint.name, host=endpoint.host, port=endpoint.port) for endpoint in node.listeners
                ],
            )
            for node in info.nodes
        ]
    return response


def _replicas(replicas: Iterable[QuorumReplica], version: int) -> list[ReplicaState]:
    """Converts replicas; omits directories in versions without that field."""
    states = [ReplicaState(**replica._asdict()) for replica in replicas]
    if version < FIRST_WITH_NODES:
        for state in states:
            state.replica_directory_id = ReplicaState().replica_directory_id
    return states


def _asked(body: DescribeQuorumRequest) -> list[tuple[str, int]]:
    return [(topic.topic_name, partition.partition_index) for topic in body.topics for partition in topic.partitions]


def _of_the_log(partition: ResponsePartitionData) -> DescribeQuorumResponse:
    topic = ResponseTopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])
    return DescribeQuorumResponse(topics=[topic])


def _unknown(body: DescribeQuorumRequest) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(
        topics=[
            ResponseTopicData(
                topic_name=topic.topic_name,
                partitions=[
                    _failed(partition.partition_index, Errors.UNKNOWN_TOPIC_OR_PARTITION)
                    for partition in topic.partitions
                ],
            )
            for topic in body.topics
        ],
    )


def _failed(partition: int, error: Errors) -> ResponsePartitionData:
    return ResponsePartitionData(partition_index=partition, error_code=error, error_message=error.message)
