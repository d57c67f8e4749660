"""AlterPartitionReassignments and ListPartitionReassignments (KIP-455)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.common.errors import (
    ApiError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    NoReassignmentInProgressError,
)
from barnabas.common.identifiers import Uuid
from barnabas.controller.partition_change_builder import Election
from barnabas.controller.replication_control_manager import ReplicationControlManager, TopicControlInfo
from barnabas.controller.result import ControllerResult, check_operation_size, error_fields
from barnabas.controller.topic_creation import TopicCreation
from barnabas.metadata.partition_registration import PartitionRegistration
from barnabas.raft.client import ApiMessageAndVersion

if TYPE_CHECKING:
    from barnabas.protocol.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
        ReassignablePartition,
    )
    from barnabas.protocol.messages.list_partition_reassignments import (
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
    )

log = logging.getLogger(__name__)


class Reassignments:
    """Starts, replaces and cancels partition reassignments.

    :mod:`~barnabas.controller.partition_reassignment` computes the replica lists. This class completes nothing: the
    :class:`~barnabas.controller.partition_change_builder.PartitionChangeBuilder` does, when a leader's AlterPartition
    brings the last new replica into the ISR.
    """

    def __init__(self, replication: ReplicationControlManager, topic_creation: TopicCreation) -> None:
        self._replication = replication
        self._check_assignment = topic_creation.check_assignment

    def alter(
        self, request: AlterPartitionReassignmentsRequest
    ) -> ControllerResult[AlterPartitionReassignmentsResponse]:
        from barnabas.protocol.messages.alter_partition_reassignments import (
            AlterPartitionReassignmentsResponse,
            ReassignablePartitionResponse,
            ReassignableTopicResponse,
        )

        records: list[ApiMessageAndVersion] = []
        response = AlterPartitionReassignmentsResponse(
            error_message=None, allow_replication_factor_change=request.allow_replication_factor_change
        )
        for topic in request.topics:
            topic_response = ReassignableTopicResponse(name=topic.name)
            response.responses.append(topic_response)
            for wanted in topic.partitions:
                error: ApiError | None = None
                try:
                    record = self._alter(topic.name, wanted, request.allow_replication_factor_change)
                    if record is not None:
                        records.append(record)
                except ApiError as raised:
                    error = raised
                    log.info("Cannot reassign %s-%d: %s", topic.name, wanted.partition_index, error)
                code, message = error_fields(error)
                topic_response.partitions.append(
                    ReassignablePartitionResponse(
                        partition_index=wanted.partition_index, error_code=code, error_message=message
                    )
                )
        check_operation_size(len(records))
        return ControllerResult.atomic_of(records, response)

    def _alter(
        self, topic_name: str, wanted: ReassignablePartition, allow_factor_change: bool
    ) -> ApiMessageAndVersion | None:
        from barnabas.controller.partition_reassignment import begin_reassignment, replication_factor_after

        topic = self._replication.existing_topic(topic_name)
        partition = self._replication.existing_partition(topic, wanted.partition_index)
        if wanted.replicas is None:
            return self._cancel(topic, wanted.partition_index, partition)
        target = tuple(wanted.replicas)
        self._check_assignment(target, None)
        if not allow_factor_change and len(target) != replication_factor_after(partition):
            raise InvalidReplicationFactorError(
                f"The partition has {replication_factor_after(partition)} replicas and the target {len(target)}, but "
                "the request does not allow a change of the replication factor."
            )
        reassignment = begin_reassignment(partition, target)
        builder = self._replication.change_builder(topic, wanted.partition_index, partition)
        builder.target_replicas = reassignment.replicas
        builder.target_adding = reassignment.adding
        builder.target_removing = reassignment.removing
        return builder.build()

    def _cancel(
        self, topic: TopicControlInfo, number: int, partition: PartitionRegistration
    ) -> ApiMessageAndVersion | None:
        from barnabas.controller.partition_reassignment import revert_reassignment

        if not partition.is_reassigning:
            raise NoReassignmentInProgressError
        reverted = revert_reassignment(partition)
        unclean_allowed = self._replication.configs.is_unclean_leader_election_enabled(topic.name)
        if reverted.unclean and not unclean_allowed:
            raise InvalidReplicaAssignmentError(
                f"Reverting would require an unclean leader election in {topic.name}-{number}, which the topic does "
                "not allow."
            )
        builder = self._replication.change_builder(topic, number, partition)
        if unclean_allowed:
            builder.election = Election.UNCLEAN
        builder.target_isr = reverted.isr
        builder.target_replicas = reverted.replicas
        builder.target_adding = builder.target_removing = ()
        return builder.build()

    def list_ongoing(
        self, request: ListPartitionReassignmentsRequest, epoch: int
    ) -> ListPartitionReassignmentsResponse:
        from barnabas.protocol.messages.list_partition_reassignments import (
            ListPartitionReassignmentsResponse,
            OngoingPartitionReassignment,
            OngoingTopicReassignment,
        )

        wanted: dict[Uuid, list[int]] = {}
        if request.topics is None:
            for topic_id, number in self._replication.reassigning.members_at(epoch):
                wanted.setdefault(topic_id, []).append(number)
        else:
            ids = self._replication.find_topic_ids((topic.name for topic in request.topics), epoch)
            for asked in request.topics:
                found = ids[asked.name]
                if not isinstance(found, ApiError):
                    wanted.setdefault(found, []).extend(asked.partition_indexes)
        response = ListPartitionReassignmentsResponse(error_message=None)
        for topic_id, numbers in wanted.items():
            topic = self._replication.topic_at(topic_id, epoch)
            if topic is None:
                continue
            ongoing = [
                OngoingPartitionReassignment(
                    partition_index=number,
                    replicas=list(partition.replicas),
                    adding_replicas=list(partition.adding_replicas),
                    removing_replicas=list(partition.removing_replicas),
                )
                for number in dict.fromkeys(numbers)
                if (partition := topic.partitions.get(number, epoch)) is not None and partition.is_reassigning
            ]
            if ongoing:
                response.topics.append(OngoingTopicReassignment(name=topic.name, partitions=ongoing))
        return response
