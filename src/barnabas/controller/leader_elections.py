"""Elections of partition leaders: on request, periodically, and when the state of a broker changes."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING

from barnabas.common.errors import (
    ApiError,
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    InvalidRequestError,
    PreferredLeaderNotAvailableError,
)
from barnabas.controller.partition_change_builder import Election
from barnabas.controller.partition_index import TopicIdPartition
from barnabas.controller.replication_control_manager import ReplicationControlManager, TopicControlInfo
from barnabas.controller.result import ControllerResult, check_operation_size, error_fields
from barnabas.metadata.partition_registration import NO_LEADER
from barnabas.raft.client import ApiMessageAndVersion

if TYPE_CHECKING:
    from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, PartitionResult

log = logging.getLogger(__name__)

MAX_ELECTIONS_PER_IMBALANCE = 1_000
"""The limit for one run of a periodic task; the next run does the rest."""


class ElectionType(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


class LeaderElections:
    """Elects partition leaders."""

    def __init__(
        self, replication: ReplicationControlManager, max_elections_per_run: int = MAX_ELECTIONS_PER_IMBALANCE
    ) -> None:
        self._replication = replication
        self._max_elections_per_run = max_elections_per_run

    # -- ElectLeaders

    def elect_leaders(self, request: ElectLeadersRequest) -> ControllerResult[ElectLeadersResponse]:
        from barnabas.protocol.messages.elect_leaders import ElectLeadersResponse, ReplicaElectionResult

        try:
            election_type = ElectionType(request.election_type)
        except ValueError:
            raise InvalidRequestError(f"Unknown election type {request.election_type}.") from None
        records: list[ApiMessageAndVersion] = []
        response = ElectLeadersResponse()
        if request.topic_partitions is None:
            for topic in self._replication.topics.values():
                results = [
                    result
                    for number in topic.partitions
                    if (result := self._elect_one(topic.name, number, election_type, records)).error_code
                    != ElectionNotNeededError.code
                ]
                # The response has every topic, even one without a partition to report, as in Kafka.
                response.replica_election_results.append(
                    ReplicaElectionResult(topic=topic.name, partition_result=results)
                )
        else:
            for wanted in request.topic_partitions:
                results = [
                    self._elect_one(wanted.topic, number, election_type, records) for number in wanted.partitions
                ]
                response.replica_election_results.append(
                    ReplicaElectionResult(topic=wanted.topic, partition_result=results)
                )
        check_operation_size(len(records))
        return ControllerResult.of(records, response)

    def _elect_one(
        self, topic: str, number: int, election_type: ElectionType, records: list[ApiMessageAndVersion]
    ) -> PartitionResult:
        from barnabas.protocol.messages.elect_leaders import PartitionResult

        error: ApiError | None = None
        try:
            records.append(self._elect(topic, number, election_type))
        except ApiError as raised:
            error = raised
        code, message = error_fields(error)
        return PartitionResult(partition_id=number, error_code=code, error_message=message)

    def _elect(self, topic_name: str, number: int, election_type: ElectionType) -> ApiMessageAndVersion:
        topic = self._replication.existing_topic(topic_name)
        partition = self._replication.existing_partition(topic, number)
        preferred = election_type is ElectionType.PREFERRED
        if partition.has_preferred_leader if preferred else partition.has_leader:
            raise ElectionNotNeededError
        builder = self._replication.change_builder(topic, number, partition)
        builder.election = Election.PREFERRED if preferred else Election.UNCLEAN
        record = builder.build()
        if record is None:
            raise PreferredLeaderNotAvailableError if preferred else EligibleLeadersNotAvailableError
        return record

    # -- periodic

    def balance_partition_leaders(self) -> ControllerResult[bool]:
        """Returns leadership to preferred replicas that have recovered; True if there may be more to do."""
        records: list[ApiMessageAndVersion] = []
        for key in self._replication.imbalanced:
            if len(records) >= self._max_elections_per_run:
                break
            topic = self._replication.topics[key.topic_id]
            partition = topic.partitions[key.partition]
            builder = self._replication.change_builder(topic, key.partition, partition)
            builder.election = Election.PREFERRED
            record = builder.build()
            if record is not None:
                records.append(record)
        return ControllerResult.of(records, len(records) >= self._max_elections_per_run)

    def elect_unclean_leaders(self) -> ControllerResult[bool]:
        """Elects any live replica for leaderless partitions whose topic permits it; True if there may be more to do."""
        records: list[ApiMessageAndVersion] = []
        for key in self._replication.leaders.of(NO_LEADER):
            if len(records) >= self._max_elections_per_run:
                break
            topic = self._replication.topics[key.topic_id]
            if not self._replication.configs.is_unclean_leader_election_enabled(topic.name):
                continue
            try:
                records.append(self._elect(topic.name, key.partition, ElectionType.UNCLEAN))
            except ApiError as error:
                log.warning("Cannot elect a leader of %s-%d: %s", topic.name, key.partition, error)
        return ControllerResult.of(records, len(records) >= self._max_elections_per_run)

    # -- on state changes of brokers

    def leader_and_isr_updates(
        self,
        why: str,
        partitions: Iterable[TopicIdPartition],
        *,
        remove: int = NO_LEADER,
        add: int = NO_LEADER,
        unclean_shutdown: int = NO_LEADER,
    ) -> list[ApiMessageAndVersion]:
        """Returns the records for partitions affected by a state change of a broker.

        ``remove`` is a broker that leaves the ISR and may no longer lead; ``add`` is one that may lead now. The
        registration does not show either yet, because its record is written together with these. ``unclean_shutdown``
        is a broker that has crashed: it also loses its ELR membership.
        """
        is_active = self._replication.cluster.is_active

        def is_alive(broker_id: int) -> bool:
            if broker_id in (remove, unclean_shutdown):
                return False
            return broker_id == add or is_active(broker_id)

        records: list[ApiMessageAndVersion] = []
        unclean_elections = 0
        facts: dict[TopicControlInfo, tuple[int, bool]] = {}
        for key in partitions:
            topic = self._replication.topics[key.topic_id]
            partition = topic.partitions[key.partition]
            if topic not in facts:
                unclean = self._replication.configs.is_unclean_leader_election_enabled(topic.name)
                facts[topic] = (self._replication.effective_min_isr(topic), unclean)
            min_isr, unclean = facts[topic]
            builder = self._replication.change_builder(
                topic, key.partition, partition, min_isr=min_isr, is_alive=is_alive
            )
            if unclean:
                builder.election = Election.UNCLEAN
            if unclean_shutdown != NO_LEADER:
                builder.unclean_shutdown_replicas = (unclean_shutdown,)
            builder.target_isr = tuple(
                broker_id for broker_id in partition.isr if broker_id not in (remove, unclean_shutdown)
            )
            record = builder.build()
            if record is not None:
                records.append(record)
                unclean_elections += builder.target_leader_recovery_state is not partition.leader_recovery_state
        if records:
            log.info("%s: changing %d partition(s)", why, len(records))
        if unclean_elections:
            log.info("%s: %d unclean election(s); records may be lost", why, unclean_elections)
        return records
