"""AssignReplicasToDirs: a broker reports the log directories of its replicas (KIP-858)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.common.errors import Errors, UnsupportedVersionError
from barnabas.common.identifiers import Uuid, uuid_to_string
from barnabas.controller.leader_elections import LeaderElections
from barnabas.controller.partition_index import TopicIdPartition
from barnabas.controller.replication_control_manager import ReplicationControlManager
from barnabas.controller.result import ControllerResult
from barnabas.raft.client import ApiMessageAndVersion

if TYPE_CHECKING:
    from barnabas.protocol.messages.assign_replicas_to_dirs import (
        AssignReplicasToDirsRequest,
        AssignReplicasToDirsResponse,
    )

log = logging.getLogger(__name__)


class ReplicaDirectories:
    """Records the directories of replicas. A replica in a failed directory counts as offline."""

    def __init__(self, replication: ReplicationControlManager, elections: LeaderElections) -> None:
        self._replication = replication
        self._elections = elections

    def assign(self, request: AssignReplicasToDirsRequest) -> ControllerResult[AssignReplicasToDirsResponse]:
        from barnabas.protocol.messages.assign_replicas_to_dirs import (
            AssignReplicasToDirsResponse,
            ResponseDirectoryData,
            ResponsePartitionData,
            ResponseTopicData,
        )

        cluster = self._replication.cluster
        if not self._replication.features.metadata_version.supports_directories:
            raise UnsupportedVersionError("The cluster's metadata.version does not support assignments to directories.")
        cluster.check_broker_epoch(request.broker_id, request.broker_epoch)
        records: list[ApiMessageAndVersion] = []
        offline: list[TopicIdPartition] = []
        response = AssignReplicasToDirsResponse()
        for directory in request.directories:
            is_online = cluster.has_online_directory(request.broker_id, directory.id)
            directory_response = ResponseDirectoryData(id=directory.id)
            response.directories.append(directory_response)
            for topic in directory.topics:
                topic_response = ResponseTopicData(topic_id=topic.topic_id)
                directory_response.topics.append(topic_response)
                for asked in topic.partitions:
                    key = TopicIdPartition(topic.topic_id, asked.partition_index)
                    error, record = self._assign(request.broker_id, key, directory.id)
                    if record is not None:
                        records.append(record)
                    if error is Errors.NONE and not is_online:
                        offline.append(key)
                    topic_response.partitions.append(
                        ResponsePartitionData(partition_index=asked.partition_index, error_code=error.value)
                    )
        if offline:
            records += self._elections.leader_and_isr_updates(
                f"Broker {request.broker_id} has replicas in a failed directory", offline, remove=request.broker_id
            )
        return ControllerResult.of(records, response)

    def _assign(
        self, broker_id: int, key: TopicIdPartition, directory: Uuid
    ) -> tuple[Errors, ApiMessageAndVersion | None]:
        topic = self._replication.topic(key.topic_id)
        if topic is None:
            log.warning("Broker %d has a replica of the unknown topic %s", broker_id, uuid_to_string(key.topic_id))
            return Errors.UNKNOWN_TOPIC_ID, None
        partition = topic.partitions.get(key.partition)
        if partition is None:
            return Errors.UNKNOWN_TOPIC_OR_PARTITION, None
        if broker_id not in partition.replicas:
            return Errors.NOT_LEADER_OR_FOLLOWER, None
        builder = self._replication.change_builder(topic, key.partition, partition)
        builder.set_directory(broker_id, directory)
        return Errors.NONE, builder.build()
