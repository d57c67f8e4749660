"""The Java client against a broker of ours: all that it can ask, and what it makes of the answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from benchmarks.waiting import until

from barnabas.records.batch import iter_batches
from clients.broker_process import BrokerProcess
from oracles.java import OracleError
from oracles.java_client import JavaClient

pytestmark = pytest.mark.java

Ask = Callable[..., Any]


@pytest.fixture
def ask(client: JavaClient, bootstrap: str) -> Ask:
    def ask_broker(op: str, **arguments: Any) -> Any:
        return client.ask(op, bootstrap, **arguments)

    return ask_broker


@pytest.fixture
def ask_controller(client: JavaClient, bootstrap_controller: str) -> Ask:
    def ask_it(op: str, **arguments: Any) -> Any:
        return client.ask(op, bootstrap_controller, controller=True, **arguments)

    return ask_it


def create(ask: Ask, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
    """The id of a new topic."""
    wanted = {"name": topic, "partitions": partitions, "factor": 1, "configs": configs or {}}
    made = ask("create_topics", topics=[wanted])
    until(lambda: topic in ask("list_topics"))  # the controller knows it, the broker is about to
    topic_id: str = made[topic]["id"]
    return topic_id


# -- records

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def test_every_codec_and_every_acks(
    client: JavaClient, ask: Ask, bootstrap: str, topic: str, log_dirs: tuple[str, str]
) -> None:
    create(ask, topic)

    def ends_at(offset: int) -> bool:
        return bool(ask("consumer_offsets", partitions=[f"{topic}-0"])[f"{topic}-0"][1] == offset)

    sent: list[dict[str, Any]] = []
    now = int(time.time() * 1000)
    for number, (codec, acks, idempotent) in enumerate(
        (codec, acks, idempotent)
        for codec in CODECS
        for acks, idempotent in (("all", "true"), ("all", "false"), ("1", "false"), ("0", "false"))
    ):
        records = [
            {
                "key": None if index == 0 else f"key {index}",
                "value": None if index == 1 else f"{codec} {acks} {idempotent} {index} " + "x" * 100,
                "timestamp": now + number * 10 + index,
                "headers": [["a", "1"], ["b", None]] if index == 2 else [],
            }
            for index in range(3)
        ]
        config = {"compression.type": codec, "acks": acks, "enable.idempotence": idempotent, "linger.ms": "20"}
        for index, (partition, offset, _) in enumerate(client.produce(bootstrap, topic, records, config)):
            assert partition == 0
            assert offset == (-1 if acks == "0" else len(sent) + index)
        sent += records
        if acks == "0":
            until(partial(ends_at, len(sent)))
    got = client.consume(bootstrap, {f"{topic}-0": "beginning"}, len(sent))
    fields = ("key", "value", "timestamp", "headers")
    assert [{field: record[field] for field in fields} for record in got] == sent
    assert [record["offset"] for record in got] == list(range(len(sent)))
    assert {(record["timestampType"], record["leaderEpoch"]) for record in got} == {("CreateTime", 0)}

    (log,) = (file for place in log_dirs for file in (Path(place) / f"{topic}-0").glob("*.log"))
    stored = {batch.compression_type.name.lower() for batch in iter_batches(log.read_bytes())}
    assert stored == set(CODECS), "the broker keeps what it is given"


@pytest.mark.parametrize("codec", CODECS[1:])
def test_the_topic_may_insist_on_a_codec(client: JavaClient, ask: Ask, bootstrap: str, topic: str, codec: str) -> None:
    create(ask, topic, configs={"compression.type": codec, "message.timestamp.type": "LogAppendTime"})
    for given in ("none", "lz4"):
        client.produce(bootstrap, topic, [{"value": f"{given} {n}"} for n in range(5)], {"compression.type": given})
    got = client.consume(bootstrap, {f"{topic}-0": 0}, 10)
    assert [record["value"] for record in got] == [f"{given} {n}" for given in ("none", "lz4") for n in range(5)]
    assert {record["timestampType"] for record in got} == {"LogAppendTime"}


def test_an_idempotent_producer(client: JavaClient, ask: Ask, bootstrap: str, topic: str) -> None:
    create(ask, topic, 2)
    config = {"enable.idempotence": "true", "acks": "all", "batch.size": "200", "linger.ms": "0"}
    for round_number in range(3):
        records = [{"value": f"{round_number} {index}", "partition": index % 2} for index in range(40)]
        sent = client.produce(bootstrap, topic, records, config, name=topic)
        assert [offset for partition, offset, _ in sent if partition == 0] == [
            round_number * 20 + index for index in range(20)
        ]
    states = ask("describe_producers", partitions=[f"{topic}-0", f"{topic}-1"])
    ((producer_id, epoch, last_sequence),) = states[f"{topic}-0"]
    assert (epoch, last_sequence) == (0, 59)
    assert states[f"{topic}-1"] == [[producer_id, 0, 59]]
    client.ask("close_producer", bootstrap, name=topic)
    got = client.consume(bootstrap, {f"{topic}-1": 0}, 60)
    assert [record["value"] for record in got] == [f"{r} {index}" for r in range(3) for index in range(1, 40, 2)]


def test_what_the_broker_refuses(client: JavaClient, ask: Ask, bootstrap: str, topic: str) -> None:
    create(ask, topic, configs={"max.message.bytes": "1000", "message.timestamp.after.max.ms": "1000"})
    too_large, too_late = {"value": "x" * 5000}, {"value": "late", "timestamp": 1 << 50}
    assert client.produce(bootstrap, topic, [too_large]) == [{"error": "RecordTooLargeException"}]
    assert client.produce(bootstrap, topic, [too_late]) == [{"error": "InvalidTimestampException"}]
    compacted = f"{topic}-compacted"
    create(ask, compacted, configs={"cleanup.policy": "compact"})
    assert client.produce(bootstrap, compacted, [{"value": "no key"}]) == [{"error": "InvalidRecordException"}]


def test_a_topic_that_is_not_there_is_made(client: JavaClient, ask: Ask, bootstrap: str, topic: str) -> None:
    assert client.produce(bootstrap, topic, [{"value": "first"}])[0][:2] == [0, 0]
    with pytest.raises(OracleError, match="InvalidTopicException"):
        ask("partitions_for", topic="no such name!")
    assert ask("partitions_for", topic=topic) == 1


def test_seeking(client: JavaClient, ask: Ask, bootstrap: str, topic: str) -> None:
    create(ask, topic, 2)
    client.produce(bootstrap, topic, [{"value": str(n), "partition": n % 2} for n in range(20)])
    first, second = f"{topic}-0", f"{topic}-1"
    got = client.consume(bootstrap, {first: 7, second: 9}, 4, {"isolation.level": "read_committed"})
    assert sorted((record["partition"], record["offset"], record["value"]) for record in got) == [
        (0, 7, "14"),
        (0, 8, "16"),
        (0, 9, "18"),
        (1, 9, "19"),
    ]
    assert len(client.consume(bootstrap, {first: 0, second: 0}, 20, {"max.partition.fetch.bytes": "100"})) == 20
    assert client.consume(bootstrap, {first: "end"}, 1, timeout_ms=300) == []
    with pytest.raises(OracleError, match="OffsetOutOfRangeException"):
        client.consume(bootstrap, {first: 11}, 1)
    assert client.consume(bootstrap, {first: 11}, 1, {"auto.offset.reset": "earliest"})[0]["offset"] == 0


def test_offsets_by_time(client: JavaClient, ask: Ask, bootstrap: str, topic: str) -> None:
    create(ask, topic, 2, {"retention.ms": "-1"})
    at = [1_000, 3_000, 2_000, 5_000, 4_000]
    client.produce(bootstrap, topic, [{"value": "v", "partition": 0, "timestamp": when} for when in at])
    full, empty = f"{topic}-0", f"{topic}-1"

    def offset(spec: object) -> Any:
        return ask("list_offsets", specs={full: spec})[full]

    assert offset("earliest") == [0, -1, 0]
    assert offset("latest") == [5, -1, 0]
    assert offset("max_timestamp") == [3, 5_000, 0]
    assert offset("earliest_local") == [0, -1, 0]
    assert offset("latest_tiered") == [-1, -1, None]
    assert offset("earliest_pending_upload") == [-1, -1, None]
    assert offset(0) == [0, 1_000, 0]
    assert offset(1_001) == [1, 3_000, 0]
    assert offset(5_000) == [3, 5_000, 0]
    assert offset(5_001) == [-1, -1, None]
    assert ask("list_offsets", specs={full: "latest"}, committed=True)[full] == [5, -1, 0]
    for spec, expected in (("earliest", [0, -1]), ("latest", [0, -1]), ("max_timestamp", [-1, -1]), (0, [-1, -1])):
        assert ask("list_offsets", specs={empty: spec})[empty][:2] == expected, spec
    assert ask("offsets_for_times", times={full: 3_000, empty: 0}) == {full: [1, 3_000], empty: None}
    assert ask("consumer_offsets", partitions=[full, empty]) == {full: [0, 5], empty: [0, 0]}


def test_deleting_records(client: JavaClient, ask: Ask, bootstrap: str, topic: str) -> None:
    create(ask, topic, configs={"retention.ms": "-1"})
    part = f"{topic}-0"
    client.produce(bootstrap, topic, [{"value": str(n), "timestamp": 1_000 + n} for n in range(10)])
    assert ask("delete_records", before={part: 4}) == {part: 4}
    assert ask("delete_records", before={part: 2}) == {part: 4}, "what is gone is gone"
    assert ask("delete_records", before={part: 11}) == {part: {"error": "OffsetOutOfRangeException"}}
    assert ask("consumer_offsets", partitions=[part]) == {part: [4, 10]}
    assert ask("offsets_for_times", times={part: 0}) == {part: [4, 1_004]}
    with pytest.raises(OracleError, match="OffsetOutOfRangeException"):
        client.consume(bootstrap, {part: 3}, 1)
    assert [record["value"] for record in client.consume(bootstrap, {part: "beginning"}, 6)] == list("456789")
    assert ask("delete_records", before={part: -1}) == {part: 10}
    assert ask("list_offsets", specs={part: "earliest"})[part][0] == 10
    compacted = f"{topic}-compacted"
    create(ask, compacted, configs={"cleanup.policy": "compact"})
    refused = ask("delete_records", before={f"{compacted}-0": 0})
    assert refused == {f"{compacted}-0": {"error": "PolicyViolationException"}}


# -- topics


def test_creating_and_describing_topics(ask: Ask, topic: str) -> None:
    wanted = [
        {"name": topic, "partitions": 3, "factor": 1, "configs": {"retention.ms": "5000"}},
        {"name": f"{topic}-assigned", "assignments": [[1], [1]]},
        {"name": f"{topic}-defaults"},
        {"name": f"{topic}-replicas", "partitions": 1, "factor": 3},
        {"name": f"{topic}-none", "partitions": 0, "factor": 1},
        {"name": f"{topic}-config", "configs": {"retention.ms": "soon"}},
        {"name": f"{topic}-unknown", "configs": {"no.such.setting": "1"}},
        {"name": f"{topic}-broker", "assignments": [[7]]},
        {"name": f"{topic} bad"},
    ]
    expected_errors = {
        f"{topic}-replicas": "InvalidReplicationFactorException",
        f"{topic}-none": "InvalidPartitionsException",
        f"{topic}-config": "InvalidConfigurationException",
        f"{topic}-unknown": "InvalidConfigurationException",
        f"{topic}-broker": "InvalidReplicaAssignmentException",
        f"{topic} bad": "InvalidTopicException",
    }
    tried = ask("create_topics", topics=wanted, validate_only=True)
    assert not set(tried) & set(ask("list_topics"))
    made = ask("create_topics", topics=wanted)
    for results in (tried, made):
        assert {name: result["error"] for name, result in results.items() if "error" in result} == expected_errors
        assert {name: (r["partitions"], r["factor"]) for name, r in results.items() if "error" not in r} == {
            topic: (3, 1),
            f"{topic}-assigned": (2, 1),
            f"{topic}-defaults": (1, 1),
        }
    assert made[topic]["configs"]["retention.ms"] == "5000"
    assert ask("create_topics", topics=wanted[:1]) == {topic: {"error": "TopicExistsException"}}
    until(lambda: bool(ask("list_topics").get(topic) == made[topic]["id"]))

    described = ask("describe_topics", topics=[topic, "nope"], operations=True, limit=2)
    assert described["nope"] == {"error": "UnknownTopicOrPartitionException"}
    found = described[topic]
    assert (found["name"], found["id"], found["internal"]) == (topic, made[topic]["id"], False)
    partition = {"leader": 1, "replicas": [1], "isr": [1], "elr": [], "lastKnownElr": []}
    assert found["partitions"] == [{"partition": index, **partition} for index in range(3)]
    assert set(found["operations"]) == {
        "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS",
    }  # fmt: skip
    by_id = ask("describe_topics", ids=[made[topic]["id"], "AAAAAAAAAAAAAAAAAAAAbw"])
    assert by_id[made[topic]["id"]]["name"] == topic
    assert by_id["AAAAAAAAAAAAAAAAAAAAbw"] == {"error": "UnknownTopicIdException"}


def test_more_partitions(client: JavaClient, ask: Ask, bootstrap: str, topic: str) -> None:
    create(ask, topic, 1)
    assert ask("create_partitions", topics={topic: 4}, validate_only=True) == {topic: "created"}
    assert len(ask("describe_topics", topics=[topic])[topic]["partitions"]) == 1
    assert ask("create_partitions", topics={topic: 4, "nope": 2}) == {
        topic: "created",
        "nope": {"error": "UnknownTopicOrPartitionException"},
    }
    assert ask("create_partitions", topics={topic: 4}) == {topic: {"error": "InvalidPartitionsException"}}
    until(lambda: bool(ask("partitions_for", topic=topic) == 4))
    assert client.produce(bootstrap, topic, [{"value": "v", "partition": 3}])[0][:2] == [3, 0]


def test_deleting_topics(client: JavaClient, ask: Ask, bootstrap: str, topic: str, log_dirs: tuple[str, str]) -> None:
    first_id = create(ask, topic)
    client.produce(bootstrap, topic, [{"value": "of the first"}])
    assert ask("delete_topics", topics=[topic, "nope"]) == {
        topic: "deleted",
        "nope": {"error": "UnknownTopicOrPartitionException"},
    }
    until(lambda: topic not in ask("list_topics"))
    until(lambda: not any((Path(place) / f"{topic}-0").exists() for place in log_dirs))
    second_id = create(ask, topic)
    assert second_id != first_id
    assert ask("consumer_offsets", partitions=[f"{topic}-0"]) == {f"{topic}-0": [0, 0]}
    assert ask("delete_topics", ids=[second_id, first_id]) == {
        second_id: "deleted",
        first_id: {"error": "UnknownTopicIdException"},
    }


def test_leaders_and_reassignments_of_a_single_node(ask: Ask, topic: str) -> None:
    create(ask, topic, 2)
    one, two, nope = f"{topic}-0", f"{topic}-1", "nope-0"
    assert ask("elect_leaders", type="PREFERRED", partitions=[one, nope]) == {
        one: "ElectionNotNeededException",
        nope: "UnknownTopicOrPartitionException",
    }
    assert ask("elect_leaders", type="UNCLEAN", partitions=[one]) == {one: "ElectionNotNeededException"}
    assert one not in ask("elect_leaders", type="PREFERRED", partitions=None)
    assert ask("alter_reassignments", replicas={one: [1], two: [1, 2], nope: [1]}) == {
        one: "reassigned",
        two: {"error": "InvalidReplicaAssignmentException"},
        nope: {"error": "UnknownTopicOrPartitionException"},
    }
    assert ask("alter_reassignments", replicas={one: None}) == {one: {"error": "NoReassignmentInProgressException"}}
    assert ask("list_reassignments") == {}


# -- settings


def test_settings_of_a_topic(ask: Ask, topic: str) -> None:
    create(ask, topic, configs={"retention.ms": "5000"})
    resource = {"type": "TOPIC", "name": topic}

    def settings(**arguments: Any) -> Any:
        return ask("describe_configs", resources=[resource], **arguments)[f"TOPIC:{topic}"]

    assert settings()["retention.ms"] == {
        "value": "5000",
        "source": "DYNAMIC_TOPIC_CONFIG",
        "type": "LONG",
        "sensitive": False,
        "readOnly": False,
        "synonyms": [],
        "documented": False,
    }
    ops = [
        ["SET", "max.message.bytes", "2000"],
        ["DELETE", "retention.ms", ""],
        ["APPEND", "cleanup.policy", "compact"],
    ]
    assert ask("alter_configs", changes=[resource | {"ops": ops}]) == {f"TOPIC:{topic}": "altered"}
    after = settings(synonyms=True, documentation=True)
    assert all(entry["documented"] for entry in after.values())
    assert (after["retention.ms"]["value"], after["retention.ms"]["source"]) == ("604800000", "DEFAULT_CONFIG")
    assert after["cleanup.policy"]["value"] == "delete,compact"
    assert after["max.message.bytes"]["synonyms"] == [
        "DYNAMIC_TOPIC_CONFIG:max.message.bytes=2000",
        "DEFAULT_CONFIG:message.max.bytes=1048588",
    ]
    ask("alter_configs", changes=[resource | {"ops": [["SUBTRACT", "cleanup.policy", "delete"]]}])
    assert settings()["cleanup.policy"]["value"] == "compact"
    for op in (["SET", "retention.ms", "x"], ["SET", "nope", "1"], ["APPEND", "retention.ms", "1"]):
        refused = ask("alter_configs", changes=[resource | {"ops": [op]}])[f"TOPIC:{topic}"]["error"]
        assert refused in {"InvalidConfigurationException", "InvalidRequestException"}
    nope = {"type": "TOPIC", "name": "nope"}
    assert ask("describe_configs", resources=[nope]) == {"TOPIC:nope": {"error": "UnknownTopicOrPartitionException"}}
    assert ask("alter_configs", changes=[nope | {"ops": ops}]) == {
        "TOPIC:nope": {"error": "UnknownTopicOrPartitionException"}
    }


def test_settings_of_brokers(ask: Ask) -> None:
    me, everybody = {"type": "BROKER", "name": "1"}, {"type": "BROKER", "name": ""}
    assert ask(
        "alter_configs",
        changes=[
            me | {"ops": [["SET", "log.cleaner.backoff.ms", "14000"]]},
            everybody | {"ops": [["SET", "log.cleaner.backoff.ms", "13000"]]},
        ],
    ) == {"BROKER:1": "altered", "BROKER:": "altered"}

    def backoff() -> Any:
        found = ask("describe_configs", resources=[me], synonyms=True)["BROKER:1"]["log.cleaner.backoff.ms"]
        return found["value"], found["source"], found["synonyms"]

    until(lambda: bool(len(backoff()[2]) == 3))
    assert backoff() == (
        "14000",
        "DYNAMIC_BROKER_CONFIG",
        [
            "DYNAMIC_BROKER_CONFIG:log.cleaner.backoff.ms=14000",
            "DYNAMIC_DEFAULT_BROKER_CONFIG:log.cleaner.backoff.ms=13000",
            "DEFAULT_CONFIG:log.cleaner.backoff.ms=15000",
        ],
    )
    for resource in (me, everybody):
        ask("alter_configs", changes=[resource | {"ops": [["DELETE", "log.cleaner.backoff.ms", ""]]}])
    until(lambda: bool(backoff()[0] == "15000"))
    entries = ask("describe_configs", resources=[me])["BROKER:1"]
    assert entries["node.id"] | {"documented": None} == {
        "value": "1",
        "source": "STATIC_BROKER_CONFIG",
        "type": "INT",
        "sensitive": False,
        "readOnly": True,
        "synonyms": [],
        "documented": None,
    }
    assert ask("alter_configs", changes=[me | {"ops": [["SET", "node.id", "2"]]}]) == {
        "BROKER:1": {"error": "InvalidRequestException"}
    }


def test_settings_of_groups_loggers_and_telemetry(ask: Ask, topic: str) -> None:
    group, metrics = {"type": "GROUP", "name": topic}, {"type": "CLIENT_METRICS", "name": topic}
    logger = {"type": "BROKER_LOGGER", "name": "1"}
    name = next(name for name in ask("describe_configs", resources=[logger])["BROKER_LOGGER:1"] if name != "root")
    assert ask(
        "alter_configs",
        changes=[
            group | {"ops": [["SET", "consumer.session.timeout.ms", "50000"]]},
            metrics | {"ops": [["SET", "interval.ms", "5000"], ["SET", "metrics", "org.apache."]]},
            logger | {"ops": [["SET", name, "DEBUG"]]},
        ],
    ) == {f"GROUP:{topic}": "altered", f"CLIENT_METRICS:{topic}": "altered", "BROKER_LOGGER:1": "altered"}
    until(lambda: f"GROUP:{topic}" in ask("list_config_resources", types=["GROUP"]))
    found = ask("describe_configs", resources=[group, metrics, logger])
    assert found[f"GROUP:{topic}"]["consumer.session.timeout.ms"]["source"] == "DYNAMIC_GROUP_CONFIG"
    assert found[f"CLIENT_METRICS:{topic}"]["interval.ms"]["value"] == "5000"
    assert found["BROKER_LOGGER:1"][name]["value"] == "DEBUG"
    ask("alter_configs", changes=[logger | {"ops": [["DELETE", name, ""]]}])
    assert {f"GROUP:{topic}", f"CLIENT_METRICS:{topic}"} <= set(
        ask("list_config_resources", types=["GROUP", "CLIENT_METRICS"])
    )
    everything = ask("list_config_resources", types=[])
    assert {"BROKER:1", "BROKER_LOGGER:1", f"GROUP:{topic}"} <= set(everything)
    with pytest.raises(OracleError, match="UnsupportedVersionException"):
        ask("list_config_resources", types=["UNKNOWN"])


def test_quotas(ask: Ask, topic: str) -> None:
    user, default = {"user": topic}, {"user": topic, "client-id": None}
    assert ask(
        "alter_quotas",
        changes=[
            {"entity": user, "ops": {"producer_byte_rate": 1024, "request_percentage": 50.5}},
            {"entity": default, "ops": {"consumer_byte_rate": 7}},
            {"entity": {"user": f"{topic}-2"}, "ops": {"no_such_quota": 1}},
            {"entity": {"user": f"{topic}-3"}, "ops": {"producer_byte_rate": 1024.5}},
            {"entity": {"ip": "127.0.0.5"}, "ops": {"connection_creation_rate": 2}},
        ],
    ) == ["altered", "altered", *[{"error": "InvalidRequestException"}] * 2, "altered"]
    until(lambda: [user, {"producer_byte_rate": 1024.0, "request_percentage": 50.5}] in ask("describe_quotas"))
    found = ask("describe_quotas")
    assert [default, {"consumer_byte_rate": 7.0}] in found
    assert [{"ip": "127.0.0.5"}, {"connection_creation_rate": 2.0}] in found
    ask(
        "alter_quotas",
        changes=[
            {"entity": user, "ops": {"producer_byte_rate": None}},
            {"entity": default, "ops": {"consumer_byte_rate": None}},
        ],
    )
    until(lambda: [user, {"request_percentage": 50.5}] in ask("describe_quotas"))
    assert all(entity != default for entity, _ in ask("describe_quotas"))


# -- the cluster


def test_the_cluster(ask: Ask, ask_controller: Ask, bootstrap: str, bootstrap_controller: str) -> None:
    seen = ask("describe_cluster", operations=True)
    assert (seen["controller"], seen["nodes"]) == (1, [[1, bootstrap]])
    assert {"CREATE", "CLUSTER_ACTION", "IDEMPOTENT_WRITE"} <= set(seen["operations"])
    of_controllers = ask_controller("describe_cluster", operations=True)
    assert of_controllers["clusterId"] == seen["clusterId"]
    assert (of_controllers["controller"], of_controllers["nodes"]) == (1, [[1, bootstrap_controller]])


def test_features_and_quorum(ask: Ask, ask_controller: Ask) -> None:
    features = ask("describe_features")
    assert features["supported"]["metadata.version"] == [7, 30]
    assert features["finalized"]["metadata.version"] == 30
    assert features["finalized"].items() <= ask_controller("describe_features")["finalized"].items()
    assert ask("update_features", levels={"group.version": 0}, type="SAFE_DOWNGRADE", validate_only=True) == {
        "group.version": "updated"
    }
    assert ask("update_features", levels={"metadata.version": 99}, type="UPGRADE") == {
        "metadata.version": {"error": "InvalidUpdateVersionException"}
    }
    assert ask("describe_features")["finalized"] == features["finalized"]
    for asking in (ask, ask_controller):
        quorum = asking("describe_quorum")
        assert (quorum["leader"], quorum["observers"], [voter[0] for voter in quorum["voters"]]) == (1, 0, [1])
        assert quorum["epoch"] >= 1
        assert quorum["voters"][0][2] >= quorum["highWatermark"] > 0


def test_controllers_take_requests_themselves(ask: Ask, ask_controller: Ask) -> None:
    me = {"type": "BROKER", "name": "1"}
    change = me | {"ops": [["SET", "log.cleaner.dedupe.buffer.size", "134217729"]]}
    assert ask_controller("alter_configs", changes=[change]) == {"BROKER:1": "altered"}
    name = "log.cleaner.dedupe.buffer.size"
    until(lambda: bool(ask_controller("describe_configs", resources=[me])["BROKER:1"][name]["value"] == "134217729"))
    ask_controller("alter_configs", changes=[me | {"ops": [["DELETE", name, ""]]}])
    until(lambda: bool(ask("describe_configs", resources=[me])["BROKER:1"][name]["value"] == "134217728"))


def test_log_dirs(client: JavaClient, ask: Ask, bootstrap: str, topic: str, log_dirs: tuple[str, str]) -> None:
    create(ask, topic)
    part = f"{topic}-0"
    client.produce(bootstrap, topic, [{"value": "x" * 1000, "key": str(n)} for n in range(200)], {"batch.size": "2000"})

    def replicas(place: str) -> Any:
        return ask("describe_log_dirs", broker=1)[place]["replicas"]

    (here,) = (place for place in log_dirs if part in replicas(place))
    (there,) = set(log_dirs) - {here}
    size, lag, is_future = replicas(here)[part]
    assert (lag, is_future) == (0, False)
    assert size > 200_000
    first = ask("describe_log_dirs", broker=1)[here]
    assert first["error"] is None
    assert first["total"] > first["usable"] > 0
    assert ask("alter_replica_log_dirs", broker=1, dirs={part: there, "nope-0": there}) == {
        f"{part}-1": "moving",
        "nope-0-1": {"error": "UnknownTopicOrPartitionException"},
    }
    until(lambda: bool(replicas(there).get(part) == [size, 0, False] and part not in replicas(here)))
    assert ask("alter_replica_log_dirs", broker=1, dirs={part: "/nowhere"}) == {
        f"{part}-1": {"error": "LogDirNotFoundException"}
    }
    client.produce(bootstrap, topic, [{"value": "after the move"}])
    got = client.consume(bootstrap, {part: 199}, 2)
    assert [record["key"] for record in got] == ["199", None]


# -- ACLs


def test_without_an_authorizer_there_are_no_acls(ask: Ask, ask_controller: Ask) -> None:
    acl = {"type": "TOPIC", "name": "t", "principal": "User:alice", "operation": "READ"}
    for asking in (ask, ask_controller):
        with pytest.raises(OracleError, match="SecurityDisabledException"):
            asking("describe_acls")
        assert asking("create_acls", acls=[acl]) == [{"error": "SecurityDisabledException"}]
        with pytest.raises(OracleError, match="SecurityDisabledException"):
            asking("delete_acls")


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[BrokerProcess]:
    """With an authorizer, under the name that Kafka's has."""
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with BrokerProcess(tmp_path, settings) as broker:
        yield broker


def test_acls(client: JavaClient, guarded: BrokerProcess) -> None:
    bootstrap = guarded.bootstrap_servers

    def ask(op: str, **arguments: Any) -> Any:
        return client.ask(op, bootstrap, **arguments)

    create(ask, "mine")
    create(ask, "open")
    ours = {"type": "TOPIC", "name": "mine", "principal": "User:alice", "operation": "READ"}
    assert ask("describe_acls") == []
    assert ask("create_acls", acls=[ours, ours | {"name": ""}]) == [{"error": "InvalidRequestException"}, "created"]
    until(lambda: bool(ask("describe_acls") == ["TOPIC mine User:alice ALLOW READ"]))
    assert client.produce(bootstrap, "mine", [{"value": "v"}]) == [{"error": "TopicAuthorizationException"}]
    assert client.produce(bootstrap, "open", [{"value": "v"}])[0][:2] == [0, 0]
    assert "mine" not in ask("list_topics")
    ask("create_acls", acls=[ours | {"principal": "User:ANONYMOUS", "operation": "DESCRIBE"}])
    until(lambda: "mine" in ask("list_topics"))
    assert ask("describe_topics", topics=["mine"], operations=True)["mine"]["operations"] == ["DESCRIBE"]
    assert client.produce(bootstrap, "mine", [{"value": "v"}]) == [{"error": "TopicAuthorizationException"}]
    assert ask("delete_acls") == ["TOPIC mine User:ANONYMOUS ALLOW DESCRIBE", "TOPIC mine User:alice ALLOW READ"]
    until(lambda: bool(ask("describe_acls") == []))
    assert client.produce(bootstrap, "mine", [{"value": "v"}])[0][:2] == [0, 0]
