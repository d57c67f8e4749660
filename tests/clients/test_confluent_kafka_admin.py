"""The admin client of confluent-kafka: topics, partitions, settings, records, the cluster."""

from __future__ import annotations

from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition

from clients.broker_process import BrokerProcess
from clients.confluent_admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from clients.drivers import DRIVERS, SECONDS, eventually
from clients.records import Record


@pytest.fixture
def admin(bootstrap: str) -> Any:
    return AdminClient({"bootstrap.servers": bootstrap})


def outcome(futures: dict[Any, Any]) -> Any:
    """The result of the only thing that was asked for, or the name of its error."""
    (future,) = futures.values()
    try:
        return future.result(SECONDS)
    except KafkaException as error:
        return error.args[0].name()


def create(admin: Any, *topics: Any, **options: Any) -> dict[str, str | None]:
    """What became of each: nothing, or the name of an error. Those that were made are there when it returns."""
    answers = {name: outcome({name: future}) for name, future in admin.create_topics(list(topics), **options).items()}
    made = {name for name, answer in answers.items() if answer is None}
    eventually(lambda: made <= admin.list_topics(timeout=SECONDS).topics.keys())
    return answers


# ------------------------------------------------------------------------------------------------ topics


def test_create_describe_and_delete(admin: Any, topic: str) -> None:
    assert create(
        admin,
        NewTopic(topic, 3, 1, config={"retention.ms": "1234567"}),
        NewTopic(f"{topic}-default"),
        NewTopic(f"{topic}-placed", 2, replica_assignment=[[node_of(admin)], [node_of(admin)]]),
        NewTopic(f"{topic}-replicated", 1, 3),
        NewTopic(f"{topic} with spaces", 1, 1),
        NewTopic(f"{topic}-settings", 1, 1, config={"no.such.setting": "1"}),
    ) == {
        topic: None,
        f"{topic}-default": None,
        f"{topic}-placed": None,
        f"{topic}-replicated": "INVALID_REPLICATION_FACTOR",
        f"{topic} with spaces": "TOPIC_EXCEPTION",
        f"{topic}-settings": "INVALID_CONFIG",
    }
    assert create(admin, NewTopic(topic, 3, 1)) == {topic: "TOPIC_ALREADY_EXISTS"}
    made = {topic: 3, f"{topic}-default": 1, f"{topic}-placed": 2}
    listed = admin.list_topics(timeout=SECONDS).topics
    assert {name: len(listed[name].partitions) for name in made} == made

    described = outcome(admin.describe_topics(TopicCollection([topic]), include_authorized_operations=True))
    assert (described.name, len(described.partitions), described.is_internal) == (topic, 3, False)
    assert all(partition.leader.id == node_of(admin) for partition in described.partitions)
    assert len(described.authorized_operations) == 8
    assert outcome(admin.describe_topics(TopicCollection([f"{topic}-no"]))) == "UNKNOWN_TOPIC_OR_PART"

    deleted = admin.delete_topics([*made, f"{topic}-no"])
    assert {name: outcome({name: future}) for name, future in deleted.items()} == {
        **dict.fromkeys(made),
        f"{topic}-no": "UNKNOWN_TOPIC_OR_PART",
    }
    eventually(lambda: not made.keys() & admin.list_topics(timeout=SECONDS).topics.keys())


def test_the_same_topic_twice_in_one_request(admin: Any, topic: str) -> None:
    assert create(admin, NewTopic(topic, 3, 1), NewTopic(topic, 3, 1)) == {topic: "INVALID_REQUEST"}


def test_more_partitions(admin: Any, topic: str) -> None:
    node = node_of(admin)
    create(admin, NewTopic(topic, 1, 1))
    assert outcome(admin.create_partitions([NewPartitions(topic, 3)], validate_only=True)) is None
    assert outcome(admin.create_partitions([NewPartitions(topic, 3)])) is None
    assert outcome(admin.create_partitions([NewPartitions(topic, 4, [[node]])])) is None
    eventually(lambda: len(admin.list_topics(topic, SECONDS).topics[topic].partitions) == 4)
    assert outcome(admin.create_partitions([NewPartitions(topic, 3)])) == "INVALID_PARTITIONS"
    assert outcome(admin.create_partitions([NewPartitions(topic, 5, [[77]])])) == "INVALID_REPLICA_ASSIGNMENT"
    assert outcome(admin.create_partitions([NewPartitions(f"{topic}-no", 3)])) == "UNKNOWN_TOPIC_OR_PART"


# ------------------------------------------------------------------------------------------------ settings


def settings(admin: Any, kind: Any, name: str) -> Any:
    return outcome(admin.describe_configs([ConfigResource(kind, name)]))


def change(admin: Any, kind: Any, resource: str, *changes: tuple[str, Any, str | None]) -> Any:
    entries = [ConfigEntry(name, value, incremental_operation=how) for name, how, value in changes]
    return outcome(admin.incremental_alter_configs([ConfigResource(kind, resource, incremental_configs=entries)]))


SET, DELETE, APPEND, SUBTRACT = (
    AlterConfigOpType.SET,
    AlterConfigOpType.DELETE,
    AlterConfigOpType.APPEND,
    AlterConfigOpType.SUBTRACT,
)


def test_topic_settings(admin: Any, topic: str) -> None:
    def value(name: str) -> tuple[str, Any]:
        entry = settings(admin, "topic", topic)[name]
        return entry.value, ConfigSource(entry.source)

    create(admin, NewTopic(topic, 1, 1, config={"cleanup.policy": "compact"}))
    assert change(admin, "topic", topic, ("cleanup.policy", APPEND, "delete"), ("flush.ms", SET, "5000")) is None
    eventually(lambda: value("flush.ms") == ("5000", ConfigSource.DYNAMIC_TOPIC_CONFIG))
    assert value("cleanup.policy") == ("compact,delete", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert change(admin, "topic", topic, ("cleanup.policy", SUBTRACT, "compact"), ("flush.ms", DELETE, None)) is None
    eventually(lambda: value("flush.ms")[1] == ConfigSource.DEFAULT_CONFIG)
    assert value("cleanup.policy")[0] == "delete"
    synonyms = settings(admin, "topic", topic)["cleanup.policy"].synonyms
    assert [(name, entry.value) for name, entry in synonyms.items()] == [
        ("cleanup.policy", "delete"),
        ("log.cleanup.policy", "delete"),
    ]
    assert change(admin, "topic", topic, ("flush.ms", SET, "soon")) == "INVALID_CONFIG"
    assert change(admin, "topic", topic, ("flush.ms", APPEND, "1")) == "INVALID_CONFIG"
    assert change(admin, "topic", topic, ("no.such", SET, "1")) == "INVALID_CONFIG"
    assert change(admin, "topic", f"{topic}-no", ("flush.ms", SET, "1")) == "UNKNOWN_TOPIC_OR_PART"
    assert settings(admin, "topic", f"{topic}-no") == "UNKNOWN_TOPIC_OR_PART"
    # The old way: what is not named is gone.
    with pytest.warns(DeprecationWarning, match="incremental_alter_configs"):
        replaced = admin.alter_configs([ConfigResource("topic", topic, set_config={"flush.ms": "7"})])
    assert outcome(replaced) is None
    eventually(lambda: value("flush.ms")[0] == "7")
    assert value("cleanup.policy")[1] == ConfigSource.DEFAULT_CONFIG


def test_settings_of_a_broker(admin: Any, topic: str) -> None:
    def source(name: str) -> tuple[str, Any]:
        entry = settings(admin, "broker", node)[name]
        return entry.value, ConfigSource(entry.source)

    node, name = str(node_of(admin)), "log.message.timestamp.before.max.ms"
    create(admin, NewTopic(topic, 1, 1))
    try:
        assert change(admin, "broker", node, (name, SET, "9999999999999")) is None
        eventually(lambda: source(name) == ("9999999999999", ConfigSource.DYNAMIC_BROKER_CONFIG))
        # Topics that say nothing else have it from there.
        entry = settings(admin, "topic", topic)["message.timestamp.before.max.ms"]
        assert (entry.value, ConfigSource(entry.source)) == ("9999999999999", ConfigSource.DYNAMIC_BROKER_CONFIG)
    finally:
        assert change(admin, "broker", node, (name, DELETE, None)) is None
    eventually(lambda: source(name)[1] == ConfigSource.DEFAULT_CONFIG)
    assert change(admin, "broker", node, ("node.id", SET, "5")) == "INVALID_REQUEST"


def test_settings_of_a_group(admin: Any, topic: str) -> None:
    """They are kept for a group that does not exist yet."""
    name = "consumer.session.timeout.ms"
    assert change(admin, ResourceType.GROUP, topic, (name, SET, "46000")) is None
    eventually(lambda: settings(admin, ResourceType.GROUP, topic)[name].value == "46000")
    assert change(admin, ResourceType.GROUP, topic, (name, SET, "1")) == "INVALID_CONFIG"


# ------------------------------------------------------------------------------------------------ records, cluster


def test_delete_records(admin: Any, bootstrap: str, topic: str) -> None:
    def delete(before: int, partition: int = 0) -> Any:
        return outcome(admin.delete_records([TopicPartition(topic, partition, before)]))

    create(admin, NewTopic(topic, 1, 1))
    DRIVERS[2].produce(bootstrap, topic, [Record(b"%d" % number) for number in range(10)], codec="none")
    assert delete(4).low_watermark == 4
    assert DRIVERS[2].read(bootstrap, topic, 1, start=4)[0].value == b"4"
    assert DRIVERS[2].read(bootstrap, topic, 1, start=1, auto_offset_reset="earliest")[0].offset == 4
    assert delete(11) == "OFFSET_OUT_OF_RANGE"
    assert delete(confluent_kafka.OFFSET_END).low_watermark == 10


def test_a_compacted_topic_keeps_its_records(admin: Any, bootstrap: str, topic: str) -> None:
    create(admin, NewTopic(topic, 1, 1, config={"cleanup.policy": "compact"}))
    DRIVERS[2].produce(bootstrap, topic, [Record(b"v", key=b"k")], codec="none")
    assert outcome(admin.delete_records([TopicPartition(topic, 0, 1)])) == "POLICY_VIOLATION"


def test_the_cluster(admin: Any, broker: BrokerProcess) -> None:
    cluster = admin.describe_cluster(include_authorized_operations=True).result(SECONDS)
    (node,) = cluster.nodes
    assert (node.host, node.port) == (broker.host, broker.port)
    assert cluster.controller.id == node.id
    assert len(cluster.authorized_operations) == 7
    listed = admin.list_topics(timeout=SECONDS)
    assert listed.cluster_id == cluster.cluster_id
    assert listed.controller_id == node.id


def test_elect_leaders(admin: Any, topic: str) -> None:
    create(admin, NewTopic(topic, 1, 1))
    for kind in (confluent_kafka.ElectionType.PREFERRED, confluent_kafka.ElectionType.UNCLEAN):
        places = [TopicPartition(topic, 0), TopicPartition(f"{topic}-no", 0)]
        found = admin.elect_leaders(kind, places).result(SECONDS)
        assert {place.topic: error.code() for place, error in found.items()} == {
            topic: KafkaError.ELECTION_NOT_NEEDED,
            f"{topic}-no": KafkaError.UNKNOWN_TOPIC_OR_PART,
        }


def node_of(admin: Any) -> int:
    return int(next(iter(admin.list_topics(timeout=SECONDS).brokers)))


def test_a_client_that_wants_to_authenticate_is_told_why_it_cannot(bootstrap: str) -> None:
    """Not just cut off, which it would take for a fault of the network."""
    said: list[str] = []
    client = AdminClient(
        {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "somebody",
            "sasl.password": "secret",
            "error_cb": lambda error: said.append(error.str()),
            "log_level": 0,
        }
    )

    def told() -> bool:
        client.poll(0.05)
        return any("not valid in current SASL state" in text for text in said)

    eventually(told)
