"""CreateTopics and CreatePartitions."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from typing import TYPE_CHECKING

from barnabas.common.dataclass import dataclass
from barnabas.common.errors import (
    ApiError,
    Errors,
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTopicError,
    PolicyViolationError,
    TopicExistsError,
)
from barnabas.common.identifiers import Uuid, random_uuid, uuid_to_string
from barnabas.common.log_safety import LimitedLogger
from barnabas.common.topic_names import (
    CLUSTER_METADATA_TOPIC,
    collision_key,
    has_collision_characters,
    validate_topic_name,
)
from barnabas.controller.configuration_control_manager import ConfigOperation
from barnabas.controller.replica_placer import ReplicaPlacer
from barnabas.controller.replication_control_manager import ReplicationControlManager
from barnabas.controller.request_context import ControllerRequestContext
from barnabas.controller.result import (
    MAX_RECORDS_PER_USER_OP,
    ControllerResult,
    check_operation_size,
    error_fields,
)
from barnabas.metadata.configs import ConfigResource
from barnabas.protocol.internal.metadata import PartitionRecord, TopicRecord
from barnabas.raft.client import ApiMessageAndVersion

if TYPE_CHECKING:
    from barnabas.protocol.messages.create_partitions import (
        CreatePartitionsRequest,
        CreatePartitionsResponse,
        CreatePartitionsTopic,
        CreatePartitionsTopicResult,
    )
    from barnabas.protocol.messages.create_topics import (
        CreatableTopic,
        CreatableTopicResult,
        CreateTopicsRequest,
        CreateTopicsResponse,
    )

log = LimitedLogger(logging.getLogger(__name__))

DEFAULT = -1
"""As a number of partitions or replicas: use the cluster's configured default."""

Replicas = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CreateTopicRequestMetadata:
    """The view of a topic that the operator's policy gets: either the two numbers, or the assignments."""

    topic: str
    num_partitions: int | None
    replication_factor: int | None
    replica_assignments: Mapping[int, Sequence[int]] | None
    configs: Mapping[str, str]


CreateTopicPolicy = Callable[[CreateTopicRequestMetadata], None]
"""Raises PolicyViolationError to refuse a topic."""


class TopicCreation:
    """Creates topics and adds partitions to them.

    Each topic succeeds or fails by itself; the records of all successful topics are written in one batch. A topic costs
    the client one permit of the mutation quota per partition. The permits are taken after all other checks, before any
    record is generated.
    """

    def __init__(
        self,
        replication: ReplicationControlManager,
        placer: ReplicaPlacer,
        *,
        default_num_partitions: int = 1,
        default_replication_factor: int = 1,
        policy: CreateTopicPolicy | None = None,
        new_uuid: Callable[[], Uuid] = random_uuid,
    ) -> None:
        self._replication = replication
        self._cluster = replication.cluster
        self._configs = replication.configs
        self._features = replication.features
        self._placer = placer
        self._default_num_partitions = default_num_partitions
        self._default_replication_factor = default_replication_factor
        self._policy = policy
        self._new_uuid = new_uuid

    # -- CreateTopics

    def create_topics(
        self,
        context: ControllerRequestContext,
        request: CreateTopicsRequest,
        describable: Container[str] | None = None,
    ) -> ControllerResult[CreateTopicsResponse]:
        """Creates topics. `describable` are the topics whose configs the client may see; None means all."""
        from barnabas.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse

        self._check_total_partitions(request)
        mentions = Counter(topic.name for topic in request.topics)
        records: list[ApiMessageAndVersion] = []
        results: dict[str, CreatableTopicResult] = {}
        taken: set[str] = set()
        for topic in request.topics:
            if topic.name in results:
                continue
            try:
                if mentions[topic.name] > 1:
                    raise InvalidRequestError(f"The request has the topic {topic.name!r} more than once.")
                self._check_name(topic.name, taken)
                show_configs = describable is None or topic.name in describable
                result, topic_records = self._create_topic(context, topic, show_configs)
                records += topic_records
                if has_collision_characters(topic.name):
                    taken.add(collision_key(topic.name))
            except ApiError as error:
                code, message = error_fields(error)
                result = CreatableTopicResult(name=topic.name, error_code=code, error_message=message)
                log.info("Cannot create topic %s: %s", topic.name, error)
            results[topic.name] = result
        check_operation_size(len(records))
        response = CreateTopicsResponse(topics=list(results.values()))
        return ControllerResult.atomic_of([] if request.validate_only else records, response)

    def _check_total_partitions(self, request: CreateTopicsRequest) -> None:
        """Refuses a request for more partitions than one batch of records can hold, before placing any."""
        total = 0
        for topic in request.topics:
            if topic.assignments:
                total += len(topic.assignments)
            elif topic.num_partitions == DEFAULT:
                total += self._default_num_partitions
            else:
                total += max(topic.num_partitions, 0)
        if total > MAX_RECORDS_PER_USER_OP:
            raise PolicyViolationError(
                f"The request would create {total} partitions; at most {MAX_RECORDS_PER_USER_OP} are allowed."
            )

    def _check_name(self, name: str, taken: Container[str]) -> None:
        if name == CLUSTER_METADATA_TOPIC:
            raise InvalidRequestError(f"{name} is the cluster's metadata log and cannot be created.")
        validate_topic_name(name)
        if name in self._replication.topic_ids:
            # Kafka's wording: programs that create a topic if it is missing look for "already exists".
            raise TopicExistsError(f"Topic '{name}' already exists.")
        collides = self._replication.colliding_topic(name)
        if collides is None and has_collision_characters(name) and collision_key(name) in taken:
            collides = "another one in this request"
        if collides is not None:
            raise InvalidTopicError(
                f"The topic name {name!r} collides with {collides} in metrics, where '.' becomes '_'."
            )

    def _create_topic(
        self, context: ControllerRequestContext, topic: CreatableTopic, show_configs: bool
    ) -> tuple[CreatableTopicResult, list[ApiMessageAndVersion]]:
        from barnabas.protocol.messages.create_topics import CreatableTopicResult

        configs = self._creation_configs(topic)
        config_records = (
            self._configs.incremental_alter_config(
                ConfigResource.topic(topic.name),
                {name: (ConfigOperation.SET, value) for name, value in configs.items()},
                newly_created=True,
            )
            if configs
            else []
        )
        assignments = self._manual(topic, configs) if topic.assignments else self._automatic(topic, configs)
        context.apply_partition_change_quota(len(assignments))
        topic_id = self._new_uuid()
        records = [ApiMessageAndVersion(TopicRecord(name=topic.name, topic_id=topic_id), 0), *config_records]
        for number, replicas in enumerate(assignments):
            records.append(self._partition_record(topic_id, number, replicas))
        result = CreatableTopicResult(name=topic.name, topic_id=topic_id, error_code=0, error_message=None)
        if show_configs:
            result.num_partitions = len(assignments)
            result.replication_factor = len(assignments[0])
            result.configs = self._configs.effective_topic_configs(configs)
        else:
            result.topic_config_error_code = Errors.TOPIC_AUTHORIZATION_FAILED.value
        log.info("Creating topic %s: ID %s, %d partition(s)", topic.name, uuid_to_string(topic_id), len(assignments))
        return result, records

    def _creation_configs(self, topic: CreatableTopic) -> dict[str, str]:
        configs: dict[str, str] = {}
        for config in topic.configs:
            if config.value is None:
                raise InvalidConfigurationError(f"The value of {config.name} must not be null.")
            configs[config.name] = config.value
        return configs

    def _manual(self, topic: CreatableTopic, configs: Mapping[str, str]) -> list[Replicas]:
        """Returns the client's replica assignment."""
        if topic.replication_factor != DEFAULT:
            raise InvalidRequestError("With a manual replica assignment the replication factor must be -1.")
        if topic.num_partitions != DEFAULT:
            raise InvalidRequestError("With a manual replica assignment the number of partitions must be -1.")
        by_number: dict[int, Replicas] = {}
        factor: int | None = None
        for assignment in topic.assignments:
            number = assignment.partition_index
            if number in by_number:
                raise InvalidReplicaAssignmentError(f"Partition {number} is assigned more than once.")
            replicas = tuple(assignment.broker_ids)
            self.check_assignment(replicas, factor)
            factor = len(replicas)
            if not any(map(self._cluster.is_active, replicas)):
                raise InvalidReplicaAssignmentError(f"All brokers of partition {number} are fenced or shutting down.")
            by_number[number] = replicas
        if set(by_number) != set(range(len(by_number))):
            raise InvalidReplicaAssignmentError("The assigned partitions must be numbered consecutively from 0.")
        assignments = [by_number[number] for number in range(len(by_number))]
        self._check_policy(CreateTopicRequestMetadata(topic.name, None, None, dict(enumerate(assignments)), configs))
        return assignments

    def _automatic(self, topic: CreatableTopic, configs: Mapping[str, str]) -> list[Replicas]:
        """Returns the placer's replica assignment."""
        partitions, factor = topic.num_partitions, topic.replication_factor
        if factor == 0 or factor < DEFAULT:
            raise InvalidReplicationFactorError("The replication factor must be above 0, or -1 for the default.")
        if partitions == 0 or partitions < DEFAULT:
            raise InvalidPartitionsError("The number of partitions must be above 0, or -1 for the default.")
        if partitions == DEFAULT:
            partitions = self._default_num_partitions
        if factor == DEFAULT:
            factor = self._default_replication_factor
        assignments = self._place(partitions, factor)
        self._check_policy(CreateTopicRequestMetadata(topic.name, partitions, factor, None, configs))
        return assignments

    def _place(self, partitions: int, factor: int) -> list[Replicas]:
        assignments = self._placer.place(partitions, factor, self._cluster.usable_brokers())
        for replicas in assignments:
            if not any(map(self._cluster.is_active, replicas)):
                raise InvalidReplicationFactorError("All brokers are fenced or shutting down.")
        return assignments

    def _check_policy(self, metadata: CreateTopicRequestMetadata) -> None:
        if self._policy is not None:
            self._policy(metadata)

    # -- CreatePartitions

    def create_partitions(
        self, context: ControllerRequestContext, request: CreatePartitionsRequest
    ) -> ControllerResult[CreatePartitionsResponse]:
        from barnabas.protocol.messages.create_partitions import CreatePartitionsResponse, CreatePartitionsTopicResult

        mentions = Counter(topic.name for topic in request.topics)
        records: list[ApiMessageAndVersion] = []
        results: dict[str, CreatePartitionsTopicResult] = {}
        for topic in request.topics:
            if topic.name in results:
                continue
            error: ApiError | None = None
            try:
                if mentions[topic.name] > 1:
                    raise InvalidRequestError(f"The request has the topic {topic.name!r} more than once.")
                records += self._create_partitions(context, topic)
            except ApiError as raised:
                error = raised
                log.info("Cannot add partitions to topic %s: %s", topic.name, error)
            code, message = error_fields(error)
            results[topic.name] = CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message)
        check_operation_size(len(records))
        result = ControllerResult.atomic_of(records, CreatePartitionsResponse(results=list(results.values())))
        return result.without_records() if request.validate_only else result

    def _create_partitions(
        self, context: ControllerRequestContext, request: CreatePartitionsTopic
    ) -> list[ApiMessageAndVersion]:
        topic = self._replication.existing_topic(request.name)
        present = len(topic.partitions)
        additional = request.count - present
        if additional == 0:
            raise InvalidPartitionsError(f"Topic {topic.name!r} already has {present} partition(s).")
        if additional < 0:
            raise InvalidPartitionsError(
                f"Topic {topic.name!r} has {present} partitions; the number cannot be reduced to {request.count}."
            )
        check_operation_size(additional)
        if request.assignments is not None and len(request.assignments) != additional:
            raise InvalidReplicaAssignmentError(
                f"The request adds {additional} partitions but assigns {len(request.assignments)}."
            )
        context.apply_partition_change_quota(additional)
        factor = len(self._replication.existing_partition(topic, 0).replicas)
        if request.assignments is None:
            assignments = self._place(additional, factor)
        else:
            assignments = []
            for assignment in request.assignments:
                replicas = tuple(assignment.broker_ids)
                self.check_assignment(replicas, factor)
                if not any(map(self._cluster.is_active, replicas)):
                    raise InvalidReplicaAssignmentError(
                        f"All brokers of partition {present + len(assignments)} are fenced or shutting down."
                    )
                assignments.append(replicas)
        return [
            self._partition_record(topic.id, number, replicas)
            for number, replicas in enumerate(assignments, start=present)
        ]

    # -- both

    def check_assignment(self, replicas: Replicas, factor: int | None) -> None:
        """Checks a manual replica assignment; `factor` is the replication factor of the other partitions."""
        if not replicas:
            raise InvalidReplicaAssignmentError("A partition must be assigned to at least one broker.")
        if len(set(replicas)) != len(replicas):
            raise InvalidReplicaAssignmentError(f"A partition has duplicate brokers: {list(replicas)}")
        for broker_id in replicas:
            if self._cluster.broker(broker_id) is None:
                raise InvalidReplicaAssignmentError(f"A partition is assigned to the unknown broker {broker_id}.")
        if factor is not None and len(replicas) != factor:
            raise InvalidReplicaAssignmentError(
                f"All partitions must have the same number of replicas: {len(replicas)} and {factor}"
            )

    def _partition_record(self, topic_id: Uuid, number: int, replicas: Replicas) -> ApiMessageAndVersion:
        """Returns the record of a new, empty partition: all active replicas are in the ISR, and the first leads."""
        version = self._features.metadata_version
        isr = [broker_id for broker_id in replicas if self._cluster.is_active(broker_id)]
        record = PartitionRecord(
            partition_id=number,
            topic_id=topic_id,
            replicas=list(replicas),
            isr=isr,
            leader=isr[0],
            leader_epoch=0,
            partition_epoch=0,
        )
        if version.supports_directories:
            record.directories = [self._cluster.default_directory(broker_id) for broker_id in replicas]
        return ApiMessageAndVersion(record, version.partition_record_version)
