"""AlterPartition: a leader proposes a new ISR."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.common.errors import Errors
from barnabas.controller.partition_change_builder import Election
from barnabas.controller.replication_control_manager import ReplicationControlManager, TopicControlInfo
from barnabas.controller.request_context import ControllerRequestContext
from barnabas.controller.result import ControllerResult
from barnabas.metadata.partition_registration import NO_LEADER_CHANGE, LeaderRecoveryState, PartitionRegistration
from barnabas.protocol.internal.metadata import PartitionChangeRecord
from barnabas.raft.client import ApiMessageAndVersion

if TYPE_CHECKING:
    from barnabas.protocol.messages.alter_partition import (
        AlterPartitionRequest,
        AlterPartitionResponse,
        BrokerState,
        RequestPartitionData,
        ResponsePartitionData,
    )

log = logging.getLogger(__name__)

SKIP_EPOCH_CHECK = -1
"""The epoch of a proposed ISR member whose epoch is unknown."""
FIRST_VERSION_WITH_EPOCHS = 3


class IsrChanges:
    """Accepts or refuses ISR proposals of leaders.

    A proposal is based on the leader's view of the partition. It may be outdated, or newer than this controller's view
    if another controller has taken over. The epochs decide:

    ============================== =========================================== =========================
    in the request                 meaning                                     response
    ============================== =========================================== =========================
    an epoch higher than ours      another node is the controller now          NOT_CONTROLLER
    a lower leader epoch           there has been an election since            FENCED_LEADER_EPOCH
    a lower partition epoch        the partition has changed since             INVALID_UPDATE_VERSION
    a member that is fenced,       it cannot be in the ISR                     INELIGIBLE_REPLICA
    shutting down, or restarted
    ============================== =========================================== =========================
    """

    def __init__(self, replication: ReplicationControlManager) -> None:
        self._replication = replication
        self._cluster = replication.cluster

    def alter_partition(
        self, context: ControllerRequestContext, request: AlterPartitionRequest
    ) -> ControllerResult[AlterPartitionResponse]:
        from barnabas.protocol.messages.alter_partition import AlterPartitionResponse, ResponseTopicData

        self._cluster.check_broker_epoch(request.broker_id, request.broker_epoch)
        records: list[ApiMessageAndVersion] = []
        response = AlterPartitionResponse()
        for topic_data in request.topics:
            topic_response = ResponseTopicData(topic_id=topic_data.topic_id)
            response.topics.append(topic_response)
            topic = self._replication.topic(topic_data.topic_id)
            for data in topic_data.partitions:
                if topic is None:
                    partition_response = _refusal(data, Errors.UNKNOWN_TOPIC_ID)
                else:
                    partition_response = self._alter(request.broker_id, topic, data, context.request_version, records)
                topic_response.partitions.append(partition_response)
        return ControllerResult.of(records, response)

    def _alter(
        self,
        sender: int,
        topic: TopicControlInfo,
        data: RequestPartitionData,
        request_version: int,
        records: list[ApiMessageAndVersion],
    ) -> ResponsePartitionData:
        from barnabas.protocol.messages.alter_partition import BrokerState, ResponsePartitionData

        members = data.new_isr_with_epochs
        if request_version < FIRST_VERSION_WITH_EPOCHS:
            members = [BrokerState(broker_id=broker_id) for broker_id in data.new_isr]
        partition = topic.partitions.get(data.partition_index)
        if partition is None:
            return _refusal(data, Errors.UNKNOWN_TOPIC_OR_PARTITION)
        error, why = self._objection(sender, partition, data, members)
        if error is not Errors.NONE:
            log.info("Broker %d cannot alter %s-%d: %s (%s)", sender, topic.name, data.partition_index, why, error.name)
            return _refusal(data, error)
        builder = self._replication.change_builder(topic, data.partition_index, partition)
        if self._replication.configs.is_unclean_leader_election_enabled(topic.name):
            builder.election = Election.UNCLEAN
        builder.target_isr = tuple(member.broker_id for member in members)
        builder.target_leader_recovery_state = LeaderRecoveryState(data.leader_recovery_state)
        built = builder.build()
        if built is not None:
            records.append(built)
            change = built.message
            assert isinstance(change, PartitionChangeRecord)
            partition = partition.merge(change)
            if change.leader not in (sender, NO_LEADER_CHANGE):
                # The new ISR completed a reassignment that removes the sender. The sender gets an error although the
                # change is made: it must fetch new metadata before it does anything else.
                log.info(
                    "Broker %d lost the leadership of %s-%d by its own change", sender, topic.name, data.partition_index
                )
                return _refusal(data, Errors.NEW_LEADER_ELECTED)
        return ResponsePartitionData(
            partition_index=data.partition_index,
            error_code=0,
            leader_id=partition.leader,
            leader_epoch=partition.leader_epoch,
            isr=list(partition.isr),
            leader_recovery_state=partition.leader_recovery_state.value,
            partition_epoch=partition.partition_epoch,
        )

    def _objection(
        self, sender: int, partition: PartitionRegistration, data: RequestPartitionData, members: list[BrokerState]
    ) -> tuple[Errors, str]:
        """Checks a proposal: returns an error code and an explanation for the log."""
        if data.leader_epoch > partition.leader_epoch or data.partition_epoch > partition.partition_epoch:
            return Errors.NOT_CONTROLLER, "it has later epochs than this controller"
        if data.leader_epoch < partition.leader_epoch:
            return Errors.FENCED_LEADER_EPOCH, f"the leader epoch is {partition.leader_epoch}"
        if sender != partition.leader:
            return Errors.INVALID_REQUEST, f"the leader is {partition.leader}"
        if data.partition_epoch < partition.partition_epoch:
            return Errors.INVALID_UPDATE_VERSION, f"the partition epoch is {partition.partition_epoch}"
        isr = [member.broker_id for member in members]
        if len(set(isr)) != len(isr) or not set(isr) <= set(partition.replicas):
            return Errors.INVALID_REQUEST, f"{isr} cannot be the ISR of replicas {list(partition.replicas)}"
        if sender not in isr:
            return Errors.INVALID_REQUEST, f"the leader is missing from the ISR {isr}"
        if data.leader_recovery_state not in (LeaderRecoveryState.RECOVERED, LeaderRecoveryState.RECOVERING):
            return Errors.INVALID_REQUEST, f"unknown leader recovery state {data.leader_recovery_state}"
        if data.leader_recovery_state == LeaderRecoveryState.RECOVERING:
            if len(isr) > 1:
                return Errors.INVALID_REQUEST, f"the ISR of a recovering leader must have one member: {isr}"
            if partition.leader_recovery_state is LeaderRecoveryState.RECOVERED:
                return Errors.INVALID_REQUEST, "a recovered leader cannot become recovering again"
        ineligible = [reason for member in members if (reason := self._ineligible(member)) is not None]
        if ineligible:
            return Errors.INELIGIBLE_REPLICA, ", ".join(ineligible)
        return Errors.NONE, ""

    def _ineligible(self, member: BrokerState) -> str | None:
        """Returns why a replica cannot be in the ISR, None if it can."""
        broker = self._cluster.broker(member.broker_id)
        if broker is None:
            return f"broker {member.broker_id} is not registered"
        if broker.in_controlled_shutdown:
            return f"broker {member.broker_id} is shutting down"
        if broker.fenced:
            return f"broker {member.broker_id} is fenced"
        if member.broker_epoch not in (SKIP_EPOCH_CHECK, broker.epoch):
            return f"the epoch of broker {member.broker_id} is {broker.epoch}, not {member.broker_epoch}"
        return None


def _refusal(data: RequestPartitionData, error: Errors) -> ResponsePartitionData:
    from barnabas.protocol.messages.alter_partition import ResponsePartitionData

    return ResponsePartitionData(partition_index=data.partition_index, error_code=error.value)
