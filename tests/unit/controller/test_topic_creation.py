"""CreateTopics and CreatePartitions: what is made, and what is refused with which code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from barnabas.common.errors import (
    Errors,
    InvalidConfigurationError,
    PolicyViolationError,
    ThrottlingQuotaExceededError,
)
from barnabas.controller.bootstrap import BootstrapMetadata
from barnabas.controller.config import ControllerPlugins
from barnabas.controller.config_validator import ControllerConfigurationValidator
from barnabas.controller.request_context import ControllerRequestContext
from barnabas.controller.topic_creation import CreateTopicRequestMetadata
from barnabas.metadata.configs import ConfigResource
from barnabas.metadata.directory_id import UNASSIGNED
from barnabas.metadata.metadata_version import MetadataVersion
from barnabas.protocol.internal.metadata import ConfigRecord, PartitionRecord, TopicRecord
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from barnabas.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from unit.controller.harness import CONTEXT, Harness, directory, topic


@pytest.fixture
def harness() -> Harness:
    made = Harness(default_num_partitions=2)
    made.add_brokers(1, 2, 3)
    return made


def create(harness: Harness, *topics: CreatableTopic, **fields: Any) -> CreateTopicsResponse:
    request = CreateTopicsRequest(topics=list(topics), **fields)
    return harness.result(harness.controller.create_topics(CONTEXT, request))


# -- what is made


def test_defaults_fill_in_what_is_left_open(harness: Harness) -> None:
    result = harness.create("a")
    assert (result.error_code, result.error_message) == (0, None)
    assert (result.num_partitions, result.replication_factor) == (2, 1)
    assert result.topic_id == harness.topic_id("a")


def test_the_response_has_the_configuration_of_the_topic(harness: Harness) -> None:
    result = harness.create("a", configs={"min.insync.replicas": "2"})
    assert result.configs is not None
    assert [(c.name, c.value, c.config_source) for c in result.configs] == [
        ("min.insync.replicas", "2", 1),
        ("unclean.leader.election.enable", "false", 5),
    ]
    plain = harness.create("b")
    assert plain.configs is not None
    assert [(c.name, c.value, c.config_source) for c in plain.configs] == [
        ("min.insync.replicas", "1", 3),
        ("unclean.leader.election.enable", "false", 5),
    ]


def test_who_may_not_see_configurations_is_told_so(harness: Harness) -> None:
    request = CreateTopicsRequest(topics=[topic("a"), topic("b")])
    response = harness.result(harness.controller.create_topics(CONTEXT, request, describable={"b"}))
    hidden, shown = response.topics
    assert hidden.error_code == 0
    assert hidden.topic_config_error_code == Errors.TOPIC_AUTHORIZATION_FAILED
    assert (hidden.num_partitions, hidden.replication_factor, hidden.configs) == (-1, -1, [])
    assert (shown.topic_config_error_code, shown.num_partitions) == (0, 2)


def test_replicas_can_be_chosen_by_hand(harness: Harness) -> None:
    result = harness.create("a", assignments=[[2, 3], [3, 1]])
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 2, 2)
    assert harness.partition("a", 0).replicas == (2, 3)
    assert harness.partition("a", 1).leader == 3


def test_configurations_are_written_between_topic_and_partitions(harness: Harness) -> None:
    harness.create("a", 1, configs={"min.insync.replicas": "2"})
    assert [type(record) for record in harness.written()] == [TopicRecord, ConfigRecord, PartitionRecord]
    assert harness.managers.configs.settings(ConfigResource.topic("a")) == {"min.insync.replicas": "2"}


def test_a_fenced_replica_is_not_in_sync_and_does_not_lead(harness: Harness) -> None:
    harness.fence(1)
    harness.create("a", assignments=[[1, 2]])
    partition = harness.partition("a")
    assert (partition.replicas, partition.isr, partition.leader) == ((1, 2), (2,), 2)


def test_a_broker_with_several_directories_chooses_one_later(harness: Harness) -> None:
    harness.result(harness.register(4, directories=[directory(4, 0), directory(4, 1)]))
    harness.unfence(4)
    harness.create("a", assignments=[[4, 1]])
    assert harness.partition("a").directories == (UNASSIGNED, directory(1))


def test_partition_records_are_of_the_clusters_version() -> None:
    for release, version in (("3.6", 0), ("3.9", 1), ("4.0", 2)):
        bootstrap = BootstrapMetadata.for_version(MetadataVersion.for_release(release), "a test")
        harness = Harness(bootstrap=bootstrap)
        harness.add_brokers(1)
        harness.create("a", 1)
        record, written = harness.written_with_versions()[-1]
        assert written == version
        assert isinstance(record, PartitionRecord)
        assert bool(record.directories) == (version > 0)


def test_validation_writes_nothing(harness: Harness) -> None:
    result = harness.create("a", 3, 2, validate_only=True)
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 3, 2)
    assert harness.written() == []
    assert harness.create("a", 3, 9, validate_only=True).error_code == Errors.INVALID_REPLICATION_FACTOR


def test_topics_of_one_request_succeed_and_fail_each_by_itself(harness: Harness) -> None:
    response = create(harness, topic("good"), topic("bad", 0), topic("fine"))
    assert [(t.name, t.error_code) for t in response.topics] == [
        ("good", 0),
        ("bad", Errors.INVALID_PARTITIONS),
        ("fine", 0),
    ]
    assert sorted(harness.managers.replication.topic_ids) == ["fine", "good"]
    assert len(harness.raft.log.batches[-1].values) == 6  # both in one batch


# -- what is refused


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (topic("a", 0, 1), Errors.INVALID_PARTITIONS),
        (topic("a", -2, 1), Errors.INVALID_PARTITIONS),
        (topic("a", 1, 0), Errors.INVALID_REPLICATION_FACTOR),
        (topic("a", 1, -2), Errors.INVALID_REPLICATION_FACTOR),
        (topic("a", 1, 4), Errors.INVALID_REPLICATION_FACTOR),
        (topic("", 1, 1), Errors.INVALID_TOPIC_EXCEPTION),
        (topic("..", 1, 1), Errors.INVALID_TOPIC_EXCEPTION),
        (topic("a" * 250, 1, 1), Errors.INVALID_TOPIC_EXCEPTION),
        (topic("a/b", 1, 1), Errors.INVALID_TOPIC_EXCEPTION),
        (topic("__cluster_metadata", 1, 1), Errors.INVALID_REQUEST),
        (topic("a", 1, 1, configs={"min.insync.replicas": None}), Errors.INVALID_CONFIG),
        (topic("a", 2, -1, assignments=[[1]]), Errors.INVALID_REQUEST),
        (topic("a", -1, 1, assignments=[[1]]), Errors.INVALID_REQUEST),
        (topic("a", assignments=[[]]), Errors.INVALID_REPLICA_ASSIGNMENT),
        (topic("a", assignments=[[1, 1]]), Errors.INVALID_REPLICA_ASSIGNMENT),
        (topic("a", assignments=[[9]]), Errors.INVALID_REPLICA_ASSIGNMENT),
        (topic("a", assignments=[[1, 2], [3]]), Errors.INVALID_REPLICA_ASSIGNMENT),
        (
            CreatableTopic(
                name="a",
                num_partitions=-1,
                replication_factor=-1,
                assignments=[CreatableReplicaAssignment(partition_index=1, broker_ids=[1])],
            ),
            Errors.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            CreatableTopic(
                name="a",
                num_partitions=-1,
                replication_factor=-1,
                assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[1])] * 2,
            ),
            Errors.INVALID_REPLICA_ASSIGNMENT,
        ),
    ],
)
def test_what_cannot_be_is_refused(harness: Harness, wanted: CreatableTopic, error: Errors) -> None:
    (result,) = create(harness, wanted).topics
    assert Errors(result.error_code) is error
    assert result.error_message
    assert harness.written() == []


def test_a_topic_that_exists_is_refused(harness: Harness) -> None:
    harness.create("a_b")
    assert harness.create("a_b").error_code == Errors.TOPIC_ALREADY_EXISTS


def test_names_that_look_the_same_in_metrics_collide(harness: Harness) -> None:
    harness.create("a.b_c")
    assert harness.create("a_b.c").error_code == Errors.INVALID_TOPIC_EXCEPTION
    assert harness.create("a-b-c").error_code == 0
    response = create(harness, topic("x.y"), topic("x_y"), topic("x.z"))
    assert [t.error_code for t in response.topics] == [0, Errors.INVALID_TOPIC_EXCEPTION, 0]


def test_a_name_is_free_again_after_deletion(harness: Harness) -> None:
    harness.create("a.b")
    delete(harness, "a.b")
    assert harness.create("a_b").error_code == 0


def test_a_topic_named_twice_in_a_request_is_not_made(harness: Harness) -> None:
    response = create(harness, topic("a"), topic("b"), topic("a"))
    assert [(t.name, t.error_code) for t in response.topics] == [("a", Errors.INVALID_REQUEST), ("b", 0)]


def test_nothing_is_made_while_all_brokers_are_fenced(harness: Harness) -> None:
    harness.fence(1, 2, 3)
    assert harness.create("a", 1, 1).error_code == Errors.INVALID_REPLICATION_FACTOR
    assert harness.create("a", assignments=[[1]]).error_code == Errors.INVALID_REPLICA_ASSIGNMENT


def test_a_request_for_too_many_partitions_is_refused_as_a_whole(harness: Harness) -> None:
    request = CreateTopicsRequest(topics=[topic("a", 9_999), topic("b")])
    error = harness.error(harness.controller.create_topics(CONTEXT, request))
    assert isinstance(error, PolicyViolationError)
    huge = CreateTopicsRequest(topics=[topic("a", 2**31 - 1)])
    assert isinstance(harness.error(harness.controller.create_topics(CONTEXT, huge)), PolicyViolationError)
    assert harness.written() == []


def test_too_many_records_are_too_many_as_well(harness: Harness) -> None:
    request = CreateTopicsRequest(topics=[topic("a", 9_999, configs={"min.insync.replicas": "1"})])
    assert isinstance(harness.error(harness.controller.create_topics(CONTEXT, request)), PolicyViolationError)
    assert harness.create("a", 9_999).error_code == 0


# -- what others have a say in


def test_configurations_are_validated_before_the_topic_is_made() -> None:
    def check(settings: Mapping[str, str], _existing: Mapping[str, str]) -> None:
        if "retention.ms" in settings:
            raise InvalidConfigurationError("no such setting")

    plugins = ControllerPlugins(config_validator=ControllerConfigurationValidator(topic=check))
    harness = Harness(plugins=plugins)
    harness.add_brokers(1)
    result = harness.create("a", configs={"retention.ms": "1"})
    assert (result.error_code, result.error_message) == (Errors.INVALID_CONFIG, "no such setting")
    assert harness.create("a").error_code == 0


def test_the_operators_policy_may_forbid_a_topic() -> None:
    seen: list[CreateTopicRequestMetadata] = []

    def policy(metadata: CreateTopicRequestMetadata) -> None:
        seen.append(metadata)
        if metadata.topic.startswith("no"):
            raise PolicyViolationError("not that one")

    harness = Harness(plugins=ControllerPlugins(create_topic_policy=policy))
    harness.add_brokers(1)
    refused = harness.create("no", 3)
    assert (refused.error_code, refused.error_message) == (Errors.POLICY_VIOLATION, "not that one")
    assert harness.create("yes", assignments=[[1]], configs={"min.insync.replicas": "1"}).error_code == 0
    assert seen == [
        CreateTopicRequestMetadata("no", 3, 1, None, {}),
        CreateTopicRequestMetadata("yes", None, None, {0: (1,)}, {"min.insync.replicas": "1"}),
    ]


class MutationQuota:
    """So many partitions, and not one more."""

    def __init__(self, permits: int) -> None:
        self.permits = permits
        self.asked: list[int] = []

    def __call__(self, partitions: int) -> None:
        self.asked.append(partitions)
        if partitions > self.permits:
            raise ThrottlingQuotaExceededError("slow down", throttle_time_ms=700)
        self.permits -= partitions


def test_partitions_are_paid_for_before_they_are_made(harness: Harness) -> None:
    quota = MutationQuota(5)
    context = ControllerRequestContext(partition_change_quota=quota)
    request = CreateTopicsRequest(topics=[topic("a", 3), topic("b", 3), topic("c", 2), topic("bad", 0)])
    response = harness.result(harness.controller.create_topics(context, request))
    assert [(t.name, t.error_code) for t in response.topics] == [
        ("a", 0),
        ("b", Errors.THROTTLING_QUOTA_EXCEEDED),
        ("c", 0),
        ("bad", Errors.INVALID_PARTITIONS),
    ]
    assert quota.asked == [3, 3, 2]  # what is refused anyway costs nothing
    assert sorted(harness.managers.replication.topic_ids) == ["a", "c"]


# -- more partitions


def grow(
    harness: Harness,
    name: str,
    count: int,
    assignments: list[list[int]] | None = None,
    context: ControllerRequestContext = CONTEXT,
    **fields: Any,
) -> CreatePartitionsTopicResult:
    wanted = CreatePartitionsTopic(
        name=name,
        count=count,
        assignments=None
        if assignments is None
        else [CreatePartitionsAssignment(broker_ids=replicas) for replicas in assignments],
    )
    request = CreatePartitionsRequest(topics=[wanted], **fields)
    return harness.result(harness.controller.create_partitions(context, request)).results[0]


def test_a_topic_grows(harness: Harness) -> None:
    harness.create("a", 1, 2)
    harness.mark()
    assert grow(harness, "a", 3).error_code == 0
    assert [record.partition_id for record in harness.written() if isinstance(record, PartitionRecord)] == [1, 2]
    assert all(len(harness.partition("a", number).replicas) == 2 for number in range(3))
    assert grow(harness, "a", 4, [[3, 1]]).error_code == 0
    assert harness.partition("a", 3).replicas == (3, 1)


@pytest.mark.parametrize(
    ("name", "count", "assignments", "error"),
    [
        ("nope", 2, None, Errors.UNKNOWN_TOPIC_OR_PARTITION),
        ("a", 2, None, Errors.INVALID_PARTITIONS),
        ("a", 1, None, Errors.INVALID_PARTITIONS),
        ("a", -1, None, Errors.INVALID_PARTITIONS),
        ("a", 3, [], Errors.INVALID_REPLICA_ASSIGNMENT),
        ("a", 4, [[1, 2]], Errors.INVALID_REPLICA_ASSIGNMENT),
        ("a", 3, [[1]], Errors.INVALID_REPLICA_ASSIGNMENT),
        ("a", 3, [[1, 9]], Errors.INVALID_REPLICA_ASSIGNMENT),
        ("a", 4, [[1, 2], [2, 2]], Errors.INVALID_REPLICA_ASSIGNMENT),
        ("a", 2**31 - 1, None, Errors.POLICY_VIOLATION),
    ],
)
def test_growth_that_cannot_be_is_refused(
    harness: Harness, name: str, count: int, assignments: list[list[int]] | None, error: Errors
) -> None:
    harness.create("a", 2, 2)
    harness.mark()
    result = grow(harness, name, count, assignments)
    assert Errors(result.error_code) is error
    assert result.error_message
    assert harness.written() == []


def test_growth_is_validated_paid_for_and_not_asked_for_twice(harness: Harness) -> None:
    harness.create("a", 1, 1)
    harness.mark()
    assert grow(harness, "a", 5, validate_only=True).error_code == 0
    quota = MutationQuota(3)
    context = ControllerRequestContext(partition_change_quota=quota)
    assert grow(harness, "a", 5, context=context).error_code == Errors.THROTTLING_QUOTA_EXCEEDED
    twice = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="a", count=2, assignments=None)] * 2)
    response = harness.result(harness.controller.create_partitions(context, twice))
    assert [r.error_code for r in response.results] == [Errors.INVALID_REQUEST]
    assert harness.written() == []
    assert quota.asked == [4]
    harness.fence(1, 2, 3)
    assert grow(harness, "a", 2).error_code == Errors.INVALID_REPLICATION_FACTOR
    assert grow(harness, "a", 2, [[1]]).error_code == Errors.INVALID_REPLICA_ASSIGNMENT


def delete(harness: Harness, name: str) -> None:
    from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest

    request = DeleteTopicsRequest(topic_names=[name])
    assert harness.result(harness.controller.delete_topics(CONTEXT, request)).responses[0].error_code == 0
