"""The admin client of kafka-python: topics, partitions, settings, offsets, records, the cluster."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import kafka
import pytest
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import ConfigResource
from kafka.errors import (
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidReplicationAssignmentError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from kafka.protocol.admin import ElectionType
from kafka.protocol.consumer import IsolationLevel, OffsetSpec

from clients.broker_process import BrokerProcess
from clients.drivers import DRIVERS, eventually
from clients.records import RECENTLY, Record


@pytest.fixture
def admin(bootstrap: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


# ------------------------------------------------------------------------------------------------ topics


def test_create_describe_and_delete(admin: KafkaAdminClient, topic: str) -> None:
    answer = admin.create_topics(
        {topic: {"num_partitions": 3, "replication_factor": 1, "configs": {"retention.ms": "1234567"}}}
    )["topics"][0]
    assert (answer["num_partitions"], answer["replication_factor"]) == (3, 1)
    assert answer["configs"]["retention.ms"]["value"] == "1234567"
    assert answer["configs"]["cleanup.policy"]["config_source"] == "DEFAULT_CONFIG"
    admin.wait_for_topics([topic])
    assert topic in admin.list_topics()

    by_name = admin.describe_topics([topic])
    assert by_name == admin.describe_topics([uuid.UUID(answer["topic_id"])])
    assert by_name[0]["topic_id"] == answer["topic_id"]
    assert [partition["partition_index"] for partition in by_name[0]["partitions"]] == [0, 1, 2]
    assert {partition["leader_id"] for partition in by_name[0]["partitions"]} == {node_of(admin)}
    assert "ALTER_CONFIGS" in by_name[0]["authorized_operations"]

    admin.delete_topics([topic])
    eventually(lambda: topic not in admin.list_topics())
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([topic])
    # The name is free again, for another topic.
    again = admin.create_topics([topic])["topics"][0]
    assert again["topic_id"] != answer["topic_id"]
    assert again["num_partitions"] == 1
    admin.delete_topics([uuid.UUID(again["topic_id"])])
    eventually(lambda: topic not in admin.list_topics())


@pytest.mark.parametrize(
    ("name", "options", "error"),
    [
        ("{}", {"replication_factor": 2}, InvalidReplicationFactorError),
        ("{}", {"replication_factor": 0}, InvalidReplicationFactorError),
        ("{}", {"num_partitions": 0}, InvalidPartitionsError),
        ("{} with spaces", {}, InvalidTopicError),
        ("{}" + "x" * 250, {}, InvalidTopicError),
        ("", {}, InvalidTopicError),
        ("..", {}, InvalidTopicError),
        ("{}", {"configs": {"no.such.setting": "1"}}, InvalidConfigurationError),
        ("{}", {"configs": {"retention.ms": "soon"}}, InvalidConfigurationError),
        ("{}", {"assignments": {0: [99]}}, InvalidReplicationAssignmentError),
        ("{}", {"assignments": {1: [1]}}, InvalidReplicationAssignmentError),
    ],
)
@pytest.mark.parametrize("validate_only", [False, True])
def test_topics_that_cannot_be(
    admin: KafkaAdminClient, topic: str, name: str, options: dict[str, Any], error: type[Exception], validate_only: bool
) -> None:
    with pytest.raises(error):
        admin.create_topics({name.format(topic): options}, validate_only=validate_only)


def test_a_topic_that_exists(admin: KafkaAdminClient, topic: str) -> None:
    admin.create_topics([f"{topic}.a"])
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([f"{topic}.a"])
    with pytest.raises(InvalidTopicError):  # the same in the names of metrics
        admin.create_topics([f"{topic}_a"])


def test_validation_creates_nothing(admin: KafkaAdminClient, topic: str) -> None:
    answer = admin.create_topics({topic: {"num_partitions": 7}}, validate_only=True)
    assert answer["topics"][0]["num_partitions"] == 7
    # A second topic that is really made comes later in the metadata log.
    admin.create_topics([f"{topic}-real"], wait_for_metadata=True)
    assert topic not in admin.list_topics()


def test_describe_topic_partitions_page_by_page(admin: KafkaAdminClient, topic: str) -> None:
    admin.create_topics({topic: {"num_partitions": 5}}, wait_for_metadata=True)
    found: list[int] = []
    cursor: Any = None
    while True:
        page = admin.describe_topic_partitions([topic], response_partition_limit=2, cursor=cursor)
        found += [partition["partition_index"] for partition in page["topics"][0]["partitions"]]
        assert len(page["topics"][0]["partitions"]) <= 2
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert found == [0, 1, 2, 3, 4]
    unknown = admin.describe_topic_partitions([f"{topic}-no"])["topics"][0]
    assert unknown["error_code"] == UnknownTopicOrPartitionError.errno


def test_more_partitions(admin: KafkaAdminClient, topic: str) -> None:
    admin.create_topics([topic], wait_for_metadata=True)
    admin.create_partitions({topic: 4})
    eventually(lambda: len(admin.describe_topics([topic])[0]["partitions"]) == 4)
    for count in (4, 2):
        with pytest.raises(InvalidPartitionsError):
            admin.create_partitions({topic: count})
    with pytest.raises(InvalidReplicationAssignmentError):
        admin.create_partitions({topic: {"count": 5, "assignments": [[99]]}})
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.create_partitions({f"{topic}-no": 2})


# ------------------------------------------------------------------------------------------------ settings


def test_topic_settings(admin: KafkaAdminClient, topic: str) -> None:
    def change(**changes: Any) -> str:
        settings = {name.replace("_", "."): value for name, value in changes.items()}
        return str(admin.alter_configs([ConfigResource("topic", topic, settings)])["topic"][topic])

    def modified() -> dict[str, str]:
        found = admin.describe_configs([ConfigResource("topic", topic)])["topic"][topic]
        return {name: entry["value"] for name, entry in found.items()}

    admin.create_topics({topic: {"configs": {"cleanup.policy": "compact"}}}, wait_for_metadata=True)
    assert change(retention_ms="99", segment_bytes="2000000") == "OK"
    assert change(cleanup_policy=("APPEND", "delete")) == "OK"
    eventually(
        lambda: modified() == {"cleanup.policy": "compact,delete", "retention.ms": "99", "segment.bytes": "2000000"}
    )
    assert change(cleanup_policy=("SUBTRACT", "compact"), retention_ms=("DELETE", None)) == "OK"
    eventually(lambda: modified() == {"cleanup.policy": "delete", "segment.bytes": "2000000"})
    assert "InvalidConfigurationError" in change(retention_ms="soon")
    assert "InvalidConfigurationError" in change(retention_ms=("APPEND", "1"))
    # The old way: what is not named is gone.
    old = admin.alter_configs(
        [ConfigResource("topic", topic, {"retention.bytes": "5"})], incremental=False, raise_on_unknown=False
    )
    assert old == {"topic": {topic: "OK"}}
    eventually(lambda: modified().get("retention.bytes") == "5")
    admin.reset_configs([ConfigResource("topic", topic, list(modified()))])
    eventually(lambda: modified() == {})


def test_synonyms_say_where_a_value_comes_from(admin: KafkaAdminClient, topic: str) -> None:
    admin.create_topics({topic: {"configs": {"cleanup.policy": "compact"}}}, wait_for_metadata=True)
    found = admin.describe_configs([ConfigResource("topic", topic)], include_synonyms=True, config_filter="all")
    entry = found["topic"][topic]["cleanup.policy"]
    assert [(synonym["name"], synonym["value"], synonym["source"]) for synonym in entry["synonyms"]] == [
        ("cleanup.policy", "compact", "DYNAMIC_TOPIC_CONFIG"),
        ("log.cleanup.policy", "delete", "DEFAULT_CONFIG"),
    ]
    assert entry["config_type"] == "LIST"
    named = admin.describe_configs([ConfigResource("topic", topic, ["flush.ms"])], config_filter="all")
    assert list(named["topic"][topic]) == ["flush.ms"]


def test_broker_settings(admin: KafkaAdminClient, broker: BrokerProcess) -> None:
    node = str(node_of(admin))

    def entry(name: str) -> dict[str, Any]:
        found = admin.describe_configs([ConfigResource("broker", node)], config_filter="all")["broker"][node]
        return dict(found[name])

    assert entry("log.cleaner.backoff.ms")["config_source"] == "DEFAULT_CONFIG"
    assert entry("node.id")["read_only"]
    assert entry("ssl.keystore.password")["is_sensitive"]
    assert admin.alter_configs([ConfigResource("broker", node, {"log.cleaner.backoff.ms": "14000"})]) == {
        "broker": {node: "OK"}
    }
    eventually(lambda: entry("log.cleaner.backoff.ms")["value"] == "14000")
    assert entry("log.cleaner.backoff.ms")["config_source"] == "DYNAMIC_BROKER_CONFIG"
    assert node in admin.list_config_resources(["broker"])["broker"]
    refused = admin.alter_configs([ConfigResource("broker", node, {"log.dirs": "x"})], raise_on_unknown=False)
    assert "InvalidRequestError" in refused["broker"][node]
    admin.reset_configs([ConfigResource("broker", node, ["log.cleaner.backoff.ms"])])
    eventually(lambda: entry("log.cleaner.backoff.ms")["config_source"] == "DEFAULT_CONFIG")


# ------------------------------------------------------------------------------------------------ records


def test_offsets_and_deleted_records(admin: KafkaAdminClient, bootstrap: str, topic: str) -> None:
    def offset(spec: Any, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED) -> tuple[int, int]:
        found = admin.list_partition_offsets({place: spec}, isolation_level=isolation)[place]
        return found.offset, found.timestamp

    admin.create_topics([topic], wait_for_metadata=True)
    place = TopicPartition(topic, 0)
    # The one with the highest timestamp is not the last.
    times = [RECENTLY + delta for delta in (0, 10, 40, 20, 30)]
    DRIVERS[0].produce(bootstrap, topic, [Record(b"x", timestamp=time) for time in times], codec="none")
    for isolation in IsolationLevel:
        assert offset(OffsetSpec.EARLIEST, isolation) == (0, -1)
        assert offset(OffsetSpec.LATEST, isolation) == (5, -1)
    assert offset(OffsetSpec.MAX_TIMESTAMP) == (2, times[2])
    assert offset(OffsetSpec.EARLIEST_LOCAL) == (0, -1)
    assert offset(OffsetSpec.LATEST_TIERED) == (-1, -1)
    assert offset(times[1] + 1) == (2, times[2])
    assert offset(times[2] + 1) == (-1, -1)

    assert admin.delete_records({place: 2})[place]["low_watermark"] == 2
    assert offset(OffsetSpec.EARLIEST) == (2, -1)
    assert admin.delete_records({place: 1})[place]["low_watermark"] == 2  # they are gone already
    with pytest.raises(OffsetOutOfRangeError):
        admin.delete_records({place: 6})
    assert admin.delete_records({place: -1})[place]["low_watermark"] == 5
    assert offset(OffsetSpec.EARLIEST) == offset(OffsetSpec.LATEST) == (5, -1)
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_records({TopicPartition(topic, 1): 0})


def test_describe_producers(admin: KafkaAdminClient, bootstrap: str, topic: str) -> None:
    admin.create_topics([topic], wait_for_metadata=True)
    place = TopicPartition(topic, 0)
    assert admin.describe_producers([place])[place].active_producers == []
    records = [Record(b"x", timestamp=RECENTLY + number) for number in range(3)]
    DRIVERS[0].produce(bootstrap, topic, records, codec="none", enable_idempotence=True)
    (producer,) = admin.describe_producers([place])[place].active_producers
    assert producer.producer_id >= 0
    assert (producer.producer_epoch, producer.last_sequence, producer.last_timestamp) == (0, 2, records[2].timestamp)
    assert producer.current_transaction_start_offset == -1


# ------------------------------------------------------------------------------------------------ the cluster


def test_the_cluster(admin: KafkaAdminClient, broker: BrokerProcess) -> None:
    cluster = admin.describe_cluster()
    (node,) = cluster["brokers"]
    assert (node["host"], node["port"], node["is_fenced"]) == (broker.host, broker.port, False)
    assert cluster["controller_id"] == node["broker_id"]
    assert "CREATE" in cluster["authorized_operations"]
    features = admin.describe_features()
    assert features["metadata.version"]["finalized"][0] >= 30
    quorum = admin.describe_metadata_quorum()["topics"][0]["partitions"][0]
    assert quorum["leader_id"] == node["broker_id"]
    assert [voter["replica_id"] for voter in quorum["current_voters"]] == [node["broker_id"]]
    assert quorum["high_watermark"] > 0
    assert admin.update_features({"group.version": 1}, validate_only=True) == {"group.version": "OK"}


def test_log_dirs(admin: KafkaAdminClient, bootstrap: str, topic: str) -> None:
    admin.create_topics([topic], wait_for_metadata=True)
    DRIVERS[0].produce(bootstrap, topic, [Record(b"x" * 1_000)], codec="none")
    (answer,) = admin.describe_log_dirs([topic])
    (directory,) = answer["log_dirs"]
    (partition,) = directory["topics"][0]["partitions"]
    assert 1_000 < partition["partition_size"] < 1_200
    assert (partition["offset_lag"], partition["is_future_key"]) == (0, False)
    assert directory["total_bytes"] > directory["usable_bytes"] > 0
    replica = kafka.TopicPartitionReplica(topic, 0, answer["broker"])
    assert admin.alter_replica_log_dirs({replica: directory["log_dir"]})[replica].errno == 0
    assert admin.alter_replica_log_dirs({replica: "/no/such/dir"})[replica].__name__ == "LogDirNotFoundError"


def test_leaders_and_reassignments(admin: KafkaAdminClient, topic: str) -> None:
    admin.create_topics([topic], wait_for_metadata=True)
    for kind in ElectionType:
        answer = admin.elect_leaders(kind, {topic: [0], f"{topic}-no": [0]}, raise_errors=False)
        codes = {result.topic: result.partition_result[0].error_code for result in answer.replica_election_results}
        assert codes == {topic: 84, f"{topic}-no": 3}  # ELECTION_NOT_NEEDED, UNKNOWN_TOPIC_OR_PARTITION
    place = TopicPartition(topic, 0)
    assert admin.list_partition_reassignments({topic: [0]}) == {}
    assert admin.alter_partition_reassignments({place: [node_of(admin)]}) == {place: None}
    assert admin.alter_partition_reassignments({place: [99]})[place] is InvalidReplicationAssignmentError
    assert admin.alter_partition_reassignments({place: None})[place].__name__ == "NoReassignmentInProgressError"


def node_of(admin: KafkaAdminClient) -> int:
    return int(admin.describe_cluster()["brokers"][0]["broker_id"])
