"""Our admin client against our broker and against Apache Kafka: the same tests for both."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import confluent_kafka
import pytest

from barnabas.clients.admin import (
    ANY_NAME,
    AbortTransactionSpec,
    AlterConfigOp,
    AsyncKafkaAdminClient,
    ClientQuotaEntity,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    ElectionType,
    FeatureUpdate,
    GroupState,
    GroupType,
    IsolationLevel,
    KafkaAdminClient,
    MemberToRemove,
    NewPartitions,
    NewTopic,
    OffsetAndMetadata,
    OffsetSpec,
    OpType,
    ScramCredentialDeletion,
    ScramCredentialInfo,
    ScramCredentialUpsertion,
    ScramMechanism,
    TopicPartition,
    TopicPartitionReplica,
    TransactionState,
    UpgradeType,
)
from barnabas.clients.common.blocking_client import BlockingClient
from barnabas.clients.producer import KafkaProducer
from barnabas.common.errors import (
    ApiError,
    Errors,
    FeatureUpdateFailedError,
    GroupIdNotFoundError,
    GroupNotEmptyError,
    GroupSubscribedToTopicError,
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidTopicError,
    InvalidUpdateVersionError,
    KafkaTimeoutError,
    LogDirNotFoundError,
    NoReassignmentInProgressError,
    OffsetOutOfRangeError,
    ResourceNotFoundError,
    SecurityDisabledError,
    TopicExistsError,
    TransactionalIdNotFoundError,
    UnacceptableCredentialError,
    UnknownMemberIdError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from barnabas.common.identifiers import random_uuid, uuid_from_string
from barnabas.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from oracles.java import OracleUnavailableError
from oracles.kafka_server import KafkaServer, ensure_available

SECONDS: Final = 60


@pytest.fixture(scope="module", params=["barnabas", pytest.param("kafka", marks=pytest.mark.java)])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a broker is: one of ours, then one of Apache Kafka's."""
    if request.param == "barnabas":
        yield request.getfixturevalue("shared_broker").bootstrap_servers
        return
    try:
        ensure_available()
    except OracleUnavailableError as reason:
        if os.environ.get("CI") == "true":
            pytest.fail(f"Apache Kafka is not available: {reason}")
        pytest.skip(f"Apache Kafka is not available: {reason}")
    kafka = KafkaServer(
        tmp_path_factory.mktemp("kafka"),
        transaction_state_log_replication_factor="1",
        transaction_state_log_min_isr="1",
        offsets_topic_num_partitions="3",
        transaction_state_log_num_partitions="3",
        group_initial_rebalance_delay_ms="0",
    )
    kafka.format()
    with kafka:
        yield kafka.bootstrap_servers


@pytest.fixture(scope="module")
def shared_admin(server: str) -> Iterator[KafkaAdminClient]:
    with KafkaAdminClient(bootstrap_servers=server, default_api_timeout_ms=SECONDS * 1_000) as admin:
        yield admin


@pytest.fixture
def admin(shared_admin: KafkaAdminClient) -> KafkaAdminClient:
    return shared_admin


@pytest.fixture
def name() -> str:
    """For a topic, a group or a transactional id that no other test has."""
    return f"admin-{uuid.uuid4().hex[:12]}"


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        threading.Event().wait(0.02)


def made(admin: KafkaAdminClient, name: str, partitions: int = 1, **configs: str) -> TopicPartition:
    """A new topic; its first partition. Returns when its leader can be asked."""
    admin.create_topics([NewTopic(name, partitions, 1, configs={k.replace("_", "."): v for k, v in configs.items()})])
    admin.list_offsets({TopicPartition(name, index): OffsetSpec.latest() for index in range(partitions)})
    return TopicPartition(name, 0)


def fill(server: str, partition: TopicPartition, count: int, timestamp_ms: int | None = None) -> None:
    with KafkaProducer(bootstrap_servers=server, linger_ms=0) as producer:
        for number in range(count):
            producer.send(
                partition.topic,
                b"%d" % number,
                partition=partition.partition,
                timestamp_ms=None if timestamp_ms is None else timestamp_ms + number,
            )


# -- topics


def test_topics_are_made_described_and_deleted(admin: KafkaAdminClient, name: str) -> None:
    other = f"{name}-other"
    results = admin.create_topics([NewTopic(name, 3, 1, configs={"retention.ms": "1000"}), other])
    assert list(results) == [name, other]
    assert results[name].num_partitions == 3
    assert results[name].replication_factor == 1
    assert results[name].configs["retention.ms"] == "1000"
    until(lambda: name in admin.list_topics(), "the topic is listed")
    described = admin.describe_topics([name, other])
    assert list(described) == [name, other]
    topic = described[name]
    assert topic.topic_id == results[name].topic_id == admin.list_topics()[name].topic_id
    assert not topic.is_internal
    assert [one.partition for one in topic.partitions] == [0, 1, 2]
    assert all(one.leader is not None and one.replicas == one.isr == (one.leader,) for one in topic.partitions)
    assert topic.authorized_operations, "everything is allowed"
    admin.delete_topics([name, other])
    until(lambda: name not in admin.list_topics(), "the topic is gone")


def test_pages_of_partitions_are_put_together(admin: KafkaAdminClient, name: str) -> None:
    names = [f"{name}-{index}" for index in range(3)]
    admin.create_topics([NewTopic(one, 5, 1) for one in names])
    until(lambda: set(names) <= set(admin.list_topics()), "the topics are listed")
    described = admin.describe_topics(names, partition_size_limit=2)
    assert {one: [part.partition for part in topic.partitions] for one, topic in described.items()} == {
        one: [0, 1, 2, 3, 4] for one in names
    }


def test_each_topic_has_its_own_outcome(admin: KafkaAdminClient, name: str) -> None:
    made(admin, name)
    results = admin.create_topics([name, f"{name}-new", "not/a/name"], partial=True)
    assert list(results) == [f"{name}-new"]
    assert isinstance(results.errors[name], TopicExistsError)
    assert isinstance(results.errors["not/a/name"], InvalidTopicError)
    with pytest.raises(TopicExistsError) as raised:
        admin.create_topics([name, f"{name}-new"])
    assert any(f"{name}-new" in note for note in raised.value.__notes__), "the other error is noted"
    described = admin.describe_topics([name, f"{name}-missing"], partial=True)
    assert name in described
    with pytest.raises(UnknownTopicOrPartitionError):
        described[f"{name}-missing"]
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([f"{name}-missing"])


def test_validate_only_makes_nothing(admin: KafkaAdminClient, name: str) -> None:
    admin.create_topics([NewTopic(name, 2, 1)], validate_only=True)
    assert name not in admin.list_topics()
    with pytest.raises(InvalidConfigurationError):
        admin.create_topics([NewTopic(name, 1, 1, configs={"retention.ms": "soon"})], validate_only=True)


def test_replicas_are_placed_as_told(admin: KafkaAdminClient, name: str) -> None:
    (broker,) = [node.id for node in admin.describe_cluster().nodes]
    admin.create_topics([NewTopic(name, replicas_assignments={0: [broker], 1: [broker]})])
    until(lambda: name in admin.list_topics(), "the topic is listed")
    assert len(admin.describe_topics([name])[name].partitions) == 2
    with pytest.raises(InvalidReplicaAssignmentError):
        admin.create_partitions({name: NewPartitions(3, [[4711]])})
    with pytest.raises(ValueError, match="replicas_assignments"):
        admin.create_topics([NewTopic(name, 1, replicas_assignments={0: [broker]})])


def test_topics_by_id(admin: KafkaAdminClient, name: str) -> None:
    made(admin, name)
    topic_id = uuid_from_string(admin.list_topics()[name].topic_id)
    assert admin.describe_topics_by_id([topic_id])[topic_id].name == name
    missing = random_uuid()
    assert isinstance(admin.describe_topics_by_id([missing], partial=True).errors[missing], UnknownTopicIdError)
    admin.delete_topics_by_id([topic_id])
    until(lambda: name not in admin.list_topics(), "the topic is gone")
    with pytest.raises(UnknownTopicIdError):
        admin.delete_topics_by_id([topic_id])


def test_partitions_are_added(admin: KafkaAdminClient, name: str) -> None:
    made(admin, name)
    admin.create_partitions({name: 3}, validate_only=True)
    admin.create_partitions({name: 3})
    until(lambda: len(admin.describe_topics([name])[name].partitions) == 3, "there are three partitions")
    with pytest.raises(InvalidPartitionsError):
        admin.create_partitions({name: 2})


# -- offsets of partitions


def test_offsets_of_partitions(admin: KafkaAdminClient, server: str, name: str) -> None:
    partition = made(admin, name)
    fill(server, partition, 10, timestamp_ms=1_700_000_000_000)

    def offset(spec: OffsetSpec) -> int:
        return admin.list_offsets({partition: spec})[partition].offset

    assert offset(OffsetSpec.earliest()) == 0
    assert offset(OffsetSpec.latest()) == 10
    assert offset(OffsetSpec.for_timestamp(1_700_000_000_004)) == 4
    assert offset(OffsetSpec.for_timestamp(1_700_000_000_100)) == -1
    assert offset(OffsetSpec.max_timestamp()) == 9
    assert offset(OffsetSpec.earliest_local()) == 0
    assert offset(OffsetSpec.latest_tiered()) == -1
    found = admin.list_offsets({partition: OffsetSpec.for_timestamp(1_700_000_000_004)})[partition]
    assert found.timestamp == 1_700_000_000_004
    missing = TopicPartition(f"{name}-missing", 0)
    results = admin.list_offsets(
        {partition: OffsetSpec.latest(), missing: OffsetSpec.latest()}, patient=False, partial=True
    )
    assert results[partition].offset == 10
    assert isinstance(results.errors[missing], UnknownTopicOrPartitionError)
    with pytest.raises(KafkaTimeoutError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        admin.with_timeout(400).list_offsets({missing: OffsetSpec.latest()})


def test_records_are_deleted(admin: KafkaAdminClient, server: str, name: str) -> None:
    partition = made(admin, name)
    fill(server, partition, 10)
    assert admin.delete_records({partition: 4})[partition] == 4
    assert admin.list_offsets({partition: OffsetSpec.earliest()})[partition].offset == 4
    with pytest.raises(OffsetOutOfRangeError):
        admin.delete_records({partition: 11})
    assert admin.delete_records({partition: -1})[partition] == 10


# -- settings


def test_settings_of_topics(admin: KafkaAdminClient, name: str) -> None:
    made(admin, name)
    resource = ConfigResource.topic(name)

    def entry(key: str) -> Any:
        return admin.describe_configs([resource], include_synonyms=True)[resource][key]

    assert entry("retention.ms").is_default
    admin.incremental_alter_configs({resource: {"retention.ms": "5000"}})
    until(lambda: entry("retention.ms").value == "5000", "the value is known")
    assert entry("retention.ms").source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert entry("retention.ms").synonyms[0].source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    admin.incremental_alter_configs({resource: [AlterConfigOp("cleanup.policy", "compact", OpType.APPEND)]})
    until(lambda: entry("cleanup.policy").value == "delete,compact", "the list is longer")
    admin.incremental_alter_configs({resource: [AlterConfigOp("cleanup.policy", "delete", OpType.SUBTRACT)]})
    until(lambda: entry("cleanup.policy").value == "compact", "the list is shorter")
    admin.incremental_alter_configs({resource: {"retention.ms": None}})
    until(lambda: entry("retention.ms").is_default, "the default is back")
    with pytest.raises(InvalidConfigurationError):
        admin.incremental_alter_configs({resource: {"retention.ms": "soon"}})
    admin.incremental_alter_configs({resource: {"retention.ms": "7000"}}, validate_only=True)
    assert entry("retention.ms").is_default
    only = admin.describe_configs([resource], names=["retention.ms"], include_documentation=True)[resource]
    assert list(only) == ["retention.ms"]
    assert only["retention.ms"].documentation
    missing = ConfigResource.topic(f"{name}-missing")
    results = admin.describe_configs([resource, missing], partial=True)
    assert resource in results
    assert isinstance(results.errors[missing], UnknownTopicOrPartitionError)


def test_settings_of_brokers_go_to_the_broker(admin: KafkaAdminClient) -> None:
    (broker,) = [node.id for node in admin.describe_cluster().nodes]
    own, everybody = ConfigResource.broker(broker), ConfigResource.broker()
    key = "log.cleaner.threads"
    assert admin.describe_configs([own])[own]["node.id"].value == str(broker)
    try:
        admin.incremental_alter_configs({everybody: {key: "2"}})
        until(lambda: admin.describe_configs([own])[own][key].value == "2", "the value has arrived")
        assert admin.describe_configs([own])[own][key].source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        admin.incremental_alter_configs({own: {key: "1"}})
        until(lambda: admin.describe_configs([own])[own][key].value == "1", "its own value counts more")
        assert admin.describe_configs([own])[own][key].source is ConfigSource.DYNAMIC_BROKER_CONFIG
    finally:
        admin.incremental_alter_configs({everybody: {key: None}, own: {key: None}})
    with pytest.raises(KafkaTimeoutError, match="no broker 4711"):
        admin.with_timeout(300).describe_configs([ConfigResource.broker(4711)])


def test_settings_of_groups_and_subscriptions(admin: KafkaAdminClient, name: str) -> None:
    group, metrics = ConfigResource.group(name), ConfigResource.client_metrics(name)
    admin.incremental_alter_configs(
        {group: {"consumer.session.timeout.ms": "50000"}, metrics: {"metrics": "*", "interval.ms": "1000"}}
    )
    until(
        lambda: {group, metrics} <= set(admin.list_config_resources()),
        "both are listed",
    )
    assert admin.describe_configs([group])[group]["consumer.session.timeout.ms"].value == "50000"
    assert admin.describe_configs([metrics])[metrics]["interval.ms"].value == "1000"
    assert name in admin.list_client_metrics_resources()
    assert group not in admin.list_config_resources([ConfigResourceType.CLIENT_METRICS])
    admin.incremental_alter_configs(
        {group: {"consumer.session.timeout.ms": None}, metrics: {"metrics": None, "interval.ms": None}}
    )
    until(lambda: name not in admin.list_client_metrics_resources(), "the subscription is gone")


# -- groups


class Members:
    """Members of a group, of confluent-kafka, which a thread keeps alive."""

    def __init__(self, server: str, group: str, topic: str, count: int, *, protocol: str = "classic") -> None:
        self._consumers = []
        for index in range(count):
            consumer = confluent_kafka.Consumer(
                {
                    "bootstrap.servers": server,
                    "group.id": group,
                    "group.protocol": protocol,
                    "client.id": f"member-{index}",
                    "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                }
            )
            consumer.subscribe([topic])
            self._consumers.append(consumer)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            for consumer in self._consumers:
                consumer.poll(0.02)

    def close(self) -> None:
        self._stop.set()
        self._thread.join(SECONDS)
        for consumer in self._consumers:
            consumer.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_with_members(admin: KafkaAdminClient, server: str, name: str, protocol: str) -> None:
    partition = made(admin, name, partitions=2)
    fill(server, partition, 10)
    # In the consumer protocol a second member gets its share with its second heartbeat, five seconds later.
    count = 2 if protocol == "classic" else 1
    members = Members(server, name, name, count, protocol=protocol)
    try:

        def settled() -> bool:
            described = admin.describe_groups([name], partial=True).get(name)
            return (
                described is not None
                and described.state is GroupState.STABLE
                and [len(member.assignment) for member in described.members] == [2 // count] * count
            )

        until(settled, "the partitions are shared out")
        group = admin.describe_groups([name], include_authorized_operations=True)[name]
        assert group.type is (GroupType.CONSUMER if protocol == "consumer" else GroupType.CLASSIC)
        assert group.protocol_type == "consumer"
        assert group.partition_assignor in {"range", "uniform"}
        assert {member.client_id for member in group.members} == {f"member-{index}" for index in range(count)}
        assert {one for member in group.members for one in member.assignment} == {
            TopicPartition(name, 0),
            TopicPartition(name, 1),
        }
        assert group.authorized_operations
        assert group.coordinator.port == int(server.rsplit(":", 1)[1])
        if protocol == "consumer":
            assert group.group_epoch == group.target_assignment_epoch == 2, "a group begins with 1"
            assert all(member.target_assignment == member.assignment for member in group.members)
            assert all(member.subscribed_topics == (name,) for member in group.members)
        listings = {one.group_id: one for one in admin.list_groups()}
        assert listings[name].state is GroupState.STABLE
        assert listings[name].type is group.type
        assert name in {one.group_id for one in admin.list_groups(states=["Stable"], types=[protocol])}
        assert name not in {one.group_id for one in admin.list_groups(states=["Empty"])}
        lag = admin.describe_group_lag(name)
        assert lag[partition].lag is None, "nothing is committed"
        assert lag[partition].end_offset == 10
        assert lag[partition].member is not None
        with pytest.raises(GroupNotEmptyError):
            admin.delete_groups([name])
        with pytest.raises(ApiError) as raised:
            admin.alter_group_offsets(name, {partition: 3})
        assert raised.value.code in {Errors.UNKNOWN_MEMBER_ID, Errors.STALE_MEMBER_EPOCH}, "members commit their own"
    finally:
        members.close()
    until(lambda: admin.describe_groups([name])[name].state is GroupState.EMPTY, "everybody has left")
    admin.delete_groups([name])
    with pytest.raises(GroupIdNotFoundError):
        admin.describe_groups([name])


def join_static(server: str, group: str, instance: str, partition: TopicPartition) -> None:
    """A static member that joins a group, is given a partition, and is not heard of again."""
    subscription = ConsumerProtocolSubscription(topics=[partition.topic]).encode(0)
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignmentTopicPartition(topic=partition.topic, partitions=[partition.partition])
        ]
    ).encode(0)
    with BlockingClient(server) as client:
        joined: JoinGroupResponse = client.send(
            JoinGroupRequest(
                group_id=group,
                session_timeout_ms=30_000,
                rebalance_timeout_ms=30_000,
                group_instance_id=instance,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\0" + subscription)],
            )
        )
        assert joined.error_code == 0
        synced: SyncGroupResponse = client.send(
            SyncGroupRequest(
                group_id=group,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                group_instance_id=instance,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"\0\0" + assignment)],
            )
        )
        assert synced.error_code == 0


def test_members_are_removed(admin: KafkaAdminClient, server: str, name: str) -> None:
    partition = made(admin, name)
    admin.alter_group_offsets(name, {partition: 0})
    join_static(server, name, "instance-0", partition)
    (member,) = admin.describe_groups([name])[name].members
    assert member.group_instance_id == "instance-0"
    assert member.assignment == {partition}
    results = admin.remove_members(
        name, [MemberToRemove("instance-0"), MemberToRemove("nobody")], reason="a test", partial=True
    )
    assert list(results) == [MemberToRemove("instance-0")]
    assert isinstance(results.errors[MemberToRemove("nobody")], UnknownMemberIdError)
    until(lambda: not admin.describe_groups([name])[name].members, "it has left")
    join_static(server, name, "instance-1", partition)
    assert list(admin.remove_members(name)) == [MemberToRemove("instance-1")]
    until(lambda: not admin.describe_groups([name])[name].members, "nobody is left")
    assert not admin.remove_members(name)


def test_offsets_of_groups(admin: KafkaAdminClient, server: str, name: str) -> None:
    partition = made(admin, name, partitions=2)
    second = TopicPartition(name, 1)
    missing = TopicPartition(f"{name}-missing", 0)
    fill(server, partition, 10)
    results = admin.alter_group_offsets(
        name, {partition: OffsetAndMetadata(4, "here"), second: 0, missing: 1}, partial=True
    )
    assert set(results) == {partition, second}
    assert isinstance(results.errors[missing], UnknownTopicOrPartitionError)
    offsets = admin.list_group_offsets(name)[name]
    assert {one: None if value is None else value.offset for one, value in offsets.items()} == {partition: 4, second: 0}
    found = offsets[partition]
    assert found is not None
    assert found.metadata == "here"
    asked = admin.list_group_offsets({name: [partition, TopicPartition(name, 7)]}, require_stable=True)[name]
    assert asked[TopicPartition(name, 7)] is None
    lag = admin.describe_group_lag(name)
    assert {one: value.lag for one, value in lag.items()} == {partition: 6, second: 0}
    admin.delete_group_offsets(name, [second])
    assert set(admin.list_group_offsets(name)[name]) == {partition}
    many = admin.list_group_offsets([name, f"{name}-unknown"])
    assert many[f"{name}-unknown"] == {}, "a group that is not there has no offsets"
    outcomes = admin.delete_groups([name, f"{name}-unknown"], partial=True)
    assert list(outcomes) == [name]
    assert isinstance(outcomes.errors[f"{name}-unknown"], GroupIdNotFoundError)


def test_offsets_of_a_subscribed_topic_stay(admin: KafkaAdminClient, server: str, name: str) -> None:
    partition = made(admin, name)
    admin.alter_group_offsets(name, {partition: 0})
    members = Members(server, name, name, 1)
    try:
        until(lambda: admin.describe_groups([name])[name].state is GroupState.STABLE, "the member has joined")
        with pytest.raises(GroupSubscribedToTopicError):
            admin.delete_group_offsets(name, [partition])
    finally:
        members.close()


# -- quotas, ACLs, credentials


def test_quotas(admin: KafkaAdminClient, name: str) -> None:
    entity = ClientQuotaEntity.of({"user": name, "client-id": None})
    admin.alter_client_quotas({entity: {"producer_byte_rate": 1000.0}}, validate_only=True)
    assert entity not in admin.describe_client_quotas()
    admin.alter_client_quotas({entity: {"producer_byte_rate": 1000.0, "consumer_byte_rate": 2000.0}})
    until(lambda: entity in admin.describe_client_quotas(), "the quota is known")
    assert admin.describe_client_quotas({"user": name})[entity] == {
        "producer_byte_rate": 1000.0,
        "consumer_byte_rate": 2000.0,
    }
    assert entity in admin.describe_client_quotas({"user": ANY_NAME, "client-id": None}, strict=True)
    assert entity not in admin.describe_client_quotas({"user": name}, strict=True)
    admin.alter_client_quotas({entity: dict.fromkeys(("producer_byte_rate", "consumer_byte_rate"))})
    until(lambda: entity not in admin.describe_client_quotas(), "the quota is gone")
    with pytest.raises(ApiError) as raised:
        admin.alter_client_quotas({entity: {"no_such_quota": 1.0}})
    assert raised.value.code == Errors.INVALID_REQUEST


def test_credentials(admin: KafkaAdminClient, name: str) -> None:
    other = f"{name}-other"
    admin.alter_user_scram_credentials(
        [
            ScramCredentialUpsertion(name, ScramMechanism.SCRAM_SHA_256, b"secret"),
            ScramCredentialUpsertion(other, ScramMechanism.SCRAM_SHA_512, b"secret", iterations=8192),
        ]
    )
    until(lambda: {name, other} <= set(admin.describe_user_scram_credentials()), "they are not there")
    described = admin.describe_user_scram_credentials([name, other])
    assert described[name] == (ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096),)
    assert described[other] == (ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192),)

    admin.alter_user_scram_credentials([ScramCredentialDeletion(name, ScramMechanism.SCRAM_SHA_256)])
    until(lambda: name not in admin.describe_user_scram_credentials(), "it is still there")
    with pytest.raises(ResourceNotFoundError):
        admin.describe_user_scram_credentials([name])
    with pytest.raises(ResourceNotFoundError):
        admin.alter_user_scram_credentials([ScramCredentialDeletion(name, ScramMechanism.SCRAM_SHA_256)])
    with pytest.raises(UnacceptableCredentialError):
        admin.alter_user_scram_credentials(
            [ScramCredentialUpsertion(name, ScramMechanism.SCRAM_SHA_256, b"secret", iterations=4095)]
        )


def test_acls_need_an_authorizer(admin: KafkaAdminClient) -> None:
    with pytest.raises(SecurityDisabledError):
        admin.describe_acls()


# -- transactions


def test_transactions(admin: KafkaAdminClient, server: str, name: str) -> None:
    partition = made(admin, name)
    with KafkaProducer(bootstrap_servers=server, transactional_id=name, transaction_timeout_ms=50_000) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(name, b"open").result(SECONDS)
        (listing,) = admin.list_transactions(transactional_id_pattern=f"{name}.*")
        assert listing.state is TransactionState.ONGOING
        assert name in {one.transactional_id for one in admin.list_transactions(producer_ids=[listing.producer_id])}
        assert name in {one.transactional_id for one in admin.list_transactions(states=["Ongoing"])}
        assert name not in {one.transactional_id for one in admin.list_transactions(min_duration_ms=60_000)}
        described = admin.describe_transactions([name])[name]
        assert described.state is TransactionState.ONGOING
        assert described.partitions == {partition}
        assert described.transaction_timeout_ms == 50_000
        assert described.transaction_start_ms is not None
        (state,) = admin.describe_producers([partition])[partition]
        assert state.producer_id == listing.producer_id
        assert state.current_transaction_start_offset == 0
        (broker,) = [node.id for node in admin.describe_cluster().nodes]
        assert admin.describe_producers([partition], broker_id=broker)[partition] == (state,)
        committed = admin.list_offsets({partition: OffsetSpec.latest()}, isolation_level=IsolationLevel.READ_COMMITTED)
        assert committed[partition].offset == 0, "the transaction is open"
        fenced = admin.fence_producers([name])[name]
        assert fenced.producer_epoch > described.producer_epoch or fenced.producer_id != described.producer_id
        until(
            lambda: (
                admin.describe_transactions([name])[name].state
                in {TransactionState.COMPLETE_ABORT, TransactionState.EMPTY}
            ),
            "the transaction is aborted",
        )
        with pytest.raises(ApiError):
            producer.commit_transaction()
    results = admin.describe_transactions([name, f"{name}-unknown"], partial=True)
    assert name in results
    assert isinstance(results.errors[f"{name}-unknown"], TransactionalIdNotFoundError)


def test_a_transaction_is_aborted_without_its_coordinator(admin: KafkaAdminClient, server: str, name: str) -> None:
    partition = made(admin, name)
    with KafkaProducer(bootstrap_servers=server, transactional_id=name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(name, b"open").result(SECONDS)
        (state,) = admin.describe_producers([partition])[partition]
        epoch = 0 if state.coordinator_epoch is None else state.coordinator_epoch
        # As an operator does it, with the epoch after the producer's (KIP-890).
        admin.abort_transaction(
            AbortTransactionSpec(partition, state.producer_id, state.producer_epoch + 1, coordinator_epoch=epoch)
        )
        (after,) = admin.describe_producers([partition])[partition]
        assert after.current_transaction_start_offset is None
        end = admin.list_offsets({partition: OffsetSpec.latest()}, isolation_level=IsolationLevel.READ_COMMITTED)
        assert end[partition].offset == 2, "the record and the marker"


# -- the cluster


def test_the_cluster(admin: KafkaAdminClient, server: str) -> None:
    cluster = admin.describe_cluster(include_authorized_operations=True, include_fenced_brokers=True)
    assert len(cluster.cluster_id) == 22
    assert [f"{node.host}:{node.port}" for node in cluster.nodes] == [server]
    assert cluster.controller == cluster.nodes[0]
    assert cluster.fenced == frozenset()
    assert cluster.authorized_operations
    quorum = admin.describe_metadata_quorum()
    assert quorum.leader_id == cluster.nodes[0].id
    assert [voter.replica_id for voter in quorum.voters] == [quorum.leader_id]
    assert quorum.high_watermark > 0
    assert list(quorum.nodes) == [quorum.leader_id]


def test_features(admin: KafkaAdminClient) -> None:
    features = admin.describe_features()
    level = features.finalized["metadata.version"]
    assert level in features.supported["metadata.version"]
    assert features.finalized_epoch is not None
    assert admin.describe_features(broker_id=admin.describe_cluster().nodes[0].id).supported == features.supported
    admin.update_features({"metadata.version": level}, validate_only=True)
    with pytest.raises((FeatureUpdateFailedError, InvalidUpdateVersionError)):
        admin.update_features({"metadata.version": FeatureUpdate(1, UpgradeType.SAFE_DOWNGRADE)})


def test_leaders_and_reassignments(admin: KafkaAdminClient, name: str) -> None:
    partition = made(admin, name)
    missing = TopicPartition(f"{name}-missing", 0)
    results = admin.elect_leaders(ElectionType.PREFERRED, [partition, missing], partial=True)
    assert dict(results) == {partition: False}, "it is led by the preferred replica already"
    assert isinstance(results.errors[missing], UnknownTopicOrPartitionError)
    assert not admin.elect_leaders(ElectionType.PREFERRED).errors
    (broker,) = [node.id for node in admin.describe_cluster().nodes]
    admin.alter_partition_reassignments({partition: [broker]})
    assert admin.list_partition_reassignments([partition]) == {}, "it is where it should be"
    assert admin.list_partition_reassignments() == {}
    with pytest.raises(NoReassignmentInProgressError):
        admin.alter_partition_reassignments({partition: None})
    with pytest.raises(InvalidReplicaAssignmentError):
        admin.alter_partition_reassignments({partition: [4711]})


def test_log_directories(admin: KafkaAdminClient, server: str, name: str) -> None:
    partition = made(admin, name)
    fill(server, partition, 10)
    (broker,) = [node.id for node in admin.describe_cluster().nodes]
    ((path, directory),) = admin.describe_log_dirs([broker])[broker].items()
    assert directory.error is None
    assert directory.replicas[partition].size > 0
    assert directory.total_bytes is not None
    assert directory.usable_bytes is not None
    ((_, selected),) = admin.describe_log_dirs([broker], partitions=[partition])[broker].items()
    assert set(selected.replicas) == {partition}
    replica = TopicPartitionReplica(name, 0, broker)
    admin.alter_replica_log_dirs({replica: path})  # where it is already
    with pytest.raises(LogDirNotFoundError):
        admin.alter_replica_log_dirs({replica: f"{path}-missing"})


# -- the client


def test_many_threads_share_a_client(admin: KafkaAdminClient, name: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        names = [f"{name}-{index}" for index in range(24)]
        list(pool.map(lambda one: admin.create_topics([one]), names))
        until(lambda: set(names) <= set(admin.list_topics()), "all are there")
        list(pool.map(lambda one: admin.delete_topics([one]), names))


def test_asyncio(server: str, name: str) -> None:
    async def use() -> None:
        async with AsyncKafkaAdminClient({"bootstrap.servers": server}) as admin:
            made, cluster = await asyncio.gather(admin.create_topics([name]), admin.describe_cluster())
            assert list(made) == [name]
            assert cluster.nodes
            with pytest.raises(TopicExistsError):
                await admin.create_topics([name])
            await admin.with_timeout(5_000).delete_topics([name])

    asyncio.run(use())
