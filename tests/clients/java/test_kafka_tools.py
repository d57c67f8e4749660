"""Kafka's command line tools against a broker of ours, as they come, and what they print."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.waiting import until

from oracles.kafka_server import run_tool
from oracles.kafka_tools import KafkaTools, ToolFailedError

pytestmark = pytest.mark.java

Run = Callable[..., str]


@pytest.fixture
def run(tools: KafkaTools, bootstrap: str) -> Run:
    def run_it(tool: str, *arguments: str, stdin: str = "") -> str:
        """With the address where the tool wants it; what it prints to its standard output."""
        subcommand = arguments[:1] if tool == "kafka-cluster" else ()
        rest = arguments[len(subcommand) :]
        return tools.run(tool, *subcommand, "--bootstrap-server", bootstrap, *rest, stdin=stdin)

    return run_it


@pytest.fixture
def run_on_controller(tools: KafkaTools, bootstrap_controller: str) -> Run:
    def run_it(tool: str, *arguments: str) -> str:
        subcommand = arguments[:1] if tool == "kafka-cluster" else ()
        return tools.run(
            tool, *subcommand, "--bootstrap-controller", bootstrap_controller, *arguments[len(subcommand) :]
        )

    return run_it


def create(run: Run, topic: str, *options: str) -> None:
    run("kafka-topics", "--create", "--topic", topic, *options)
    until(lambda: topic in run("kafka-topics", "--list").splitlines())  # the broker is a moment behind its controller


def consume(run: Run, topic: str, *options: str, partition: int = 0, offset: str = "earliest") -> list[str]:
    place = ("--topic", topic, "--partition", str(partition), "--offset", offset)
    return run("kafka-console-consumer", *place, "--timeout-ms", "10000", *options).splitlines()


# -- kafka-topics


def test_topics(run: Run, topic: str) -> None:
    made = run("kafka-topics", "--create", "--topic", topic, "--partitions", "3", "--config", "retention.ms=7000")
    assert made.strip() == f"Created topic {topic}."
    run("kafka-topics", "--create", "--topic", topic, "--if-not-exists")
    until(lambda: topic in run("kafka-topics", "--list").splitlines())

    def described(*options: str) -> list[str]:
        return run("kafka-topics", "--describe", "--topic", topic, *options).splitlines()

    head, *partitions = described()
    assert re.search(r"PartitionCount: 3\s+ReplicationFactor: 1\s+Configs: \S*\bretention.ms=7000", head)
    assert [re.split(r"\s*\t", line.strip()) for line in partitions] == [
        [f"Topic: {topic}", f"Partition: {n}", "Leader: 1", "Replicas: 1", "Isr: 1", "Elr:", "LastKnownElr:"]
        for n in range(3)
    ]
    for empty in ("--under-replicated-partitions", "--unavailable-partitions", "--at-min-isr-partitions"):
        assert len(described(empty)) == (3 if empty == "--at-min-isr-partitions" else 0)
    run("kafka-topics", "--alter", "--topic", topic, "--partitions", "5")
    until(lambda: len(described()) == 6)
    for wrong, message in (
        (("--create", "--topic", topic), "TopicExistsException|exists"),
        (("--alter", "--topic", topic, "--partitions", "2"), "partition"),
        (("--create", "--topic", f"{topic}-2", "--replication-factor", "2"), "replica"),
        (("--create", "--topic", f"{topic}-2", "--config", "no.such=1"), "no.such"),
        (("--describe", "--topic", "nope"), "does not exist"),
    ):
        with pytest.raises(ToolFailedError, match=message):
            run("kafka-topics", *wrong)
    run("kafka-topics", "--delete", "--topic", topic)
    until(lambda: topic not in run("kafka-topics", "--list").splitlines())


# -- kafka-configs


def entries(output: str) -> dict[str, str]:
    return dict(re.findall(r"^  ([\w.]+)=(.*?) sensitive=", output, re.MULTILINE))


def test_settings_of_topics(run: Run, topic: str) -> None:
    create(run, topic)
    place = ("--entity-type", "topics", "--entity-name", topic)

    def described(*options: str) -> dict[str, str]:
        return entries(run("kafka-configs", "--describe", *place, *options))

    assert described() == {}
    changes = "cleanup.policy=[compact,delete],max.message.bytes=2000"
    assert "Completed updating" in run("kafka-configs", "--alter", *place, "--add-config", changes)
    until(lambda: described() == {"cleanup.policy": "compact,delete", "max.message.bytes": "2000"})
    everything = described("--all")
    assert everything["max.message.bytes"] == "2000"
    assert everything["retention.ms"] == "604800000"
    run("kafka-configs", "--alter", *place, "--delete-config", "cleanup.policy")
    until(lambda: described() == {"max.message.bytes": "2000"})
    with pytest.raises(ToolFailedError, match="InvalidConfigurationException"):
        run("kafka-configs", "--alter", *place, "--add-config", "retention.ms=soon")


@pytest.mark.parametrize("where", ["run", "run_on_controller"])
def test_settings_of_brokers(request: pytest.FixtureRequest, where: str) -> None:
    run: Run = request.getfixturevalue(where)
    name = "log.cleaner.io.buffer.load.factor" if where == "run" else "log.cleaner.min.cleanable.ratio"
    me, everybody = ("--entity-type", "brokers", "--entity-name", "1"), ("--entity-type", "brokers", "--entity-default")

    def described(*options: str) -> dict[str, str]:
        return entries(run("kafka-configs", "--describe", *options))

    run("kafka-configs", "--alter", *me, "--add-config", f"{name}=0.7")
    run("kafka-configs", "--alter", *everybody, "--add-config", f"{name}=0.8")
    until(lambda: described(*me).get(name) == "0.7" and described(*everybody).get(name) == "0.8")
    everything = described(*me, "--all")
    assert (everything[name], everything["node.id"]) == ("0.7", "1")
    for place in (me, everybody):
        run("kafka-configs", "--alter", *place, "--delete-config", name)
        until(lambda place=place: name not in described(*place))  # type: ignore[misc]
    if where == "run":  # a controller cannot tell what a broker can change while it runs
        with pytest.raises(ToolFailedError, match="InvalidRequestException"):
            run("kafka-configs", "--alter", *me, "--add-config", "node.id=3")


def test_settings_of_loggers(run: Run, run_on_controller: Run) -> None:
    place = ("--entity-type", "broker-loggers", "--entity-name", "1")
    loggers = entries(run("kafka-configs", "--describe", *place))
    assert loggers.keys() == entries(run_on_controller("kafka-configs", "--describe", *place)).keys()
    name = next(name for name in loggers if name != "root")
    run("kafka-configs", "--alter", *place, "--add-config", f"{name}=DEBUG")
    assert entries(run("kafka-configs", "--describe", *place))[name] == "DEBUG"
    run("kafka-configs", "--alter", *place, "--delete-config", name)
    assert entries(run("kafka-configs", "--describe", *place))[name] == loggers[name]
    with pytest.raises(ToolFailedError, match=r"no\.such\.logger"):
        run("kafka-configs", "--alter", *place, "--add-config", "no.such.logger=DEBUG")


def test_settings_of_client_metrics(run: Run, topic: str) -> None:
    place = ("--entity-type", "client-metrics", "--entity-name", topic)
    changes = "interval.ms=5000,metrics=[org.apache.,org.other.],match=[client_id=.*]"
    run("kafka-configs", "--alter", *place, "--add-config", changes)

    def described() -> dict[str, str]:
        return entries(run("kafka-configs", "--describe", *place))

    wanted = {"interval.ms": "5000", "metrics": "org.apache.,org.other.", "match": "client_id=.*"}
    until(lambda: described() == wanted)
    assert f"{topic} are:" in run("kafka-client-metrics", "--describe", "--name", topic)
    assert topic in run("kafka-client-metrics", "--list").splitlines()
    run("kafka-client-metrics", "--delete", "--name", topic)
    until(lambda: topic not in run("kafka-client-metrics", "--list").splitlines())


def test_settings_of_groups(run: Run, topic: str) -> None:
    place = ("--entity-type", "groups", "--entity-name", topic)
    run("kafka-configs", "--alter", *place, "--add-config", "consumer.session.timeout.ms=50000")

    def described() -> dict[str, str]:
        return entries(run("kafka-configs", "--describe", *place, "--all"))

    until(lambda: described()["consumer.session.timeout.ms"] == "50000")
    assert described()["consumer.heartbeat.interval.ms"] == "5000"


def test_quotas(run: Run, topic: str) -> None:
    for place, change in (
        (("--entity-type", "clients", "--entity-name", topic), "producer_byte_rate=1024"),
        (("--entity-type", "ips", "--entity-name", "127.0.0.7"), "connection_creation_rate=10"),
        (("--entity-type", "users", "--entity-name", topic, "--entity-type", "clients"), "consumer_byte_rate=2048"),
    ):
        target = (*place, "--entity-default") if place[-1] == "clients" else place
        run("kafka-configs", "--alter", *target, "--add-config", change)
        key, _, value = change.partition("=")
        shown = ("--entity-type", "ips") if "ips" in place else target
        until(lambda: f"{key}={value}.0" in run("kafka-configs", "--describe", *shown))  # noqa: B023 - asked at once
        run("kafka-configs", "--alter", *target, "--delete-config", key)


# -- records


def test_console_producer_and_consumer(run: Run, topic: str) -> None:
    create(run, topic, "--partitions", "1")
    place = ("--topic", topic)
    parse = ("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true")
    run(
        "kafka-console-producer",
        *place,
        *parse,
        "--compression-codec",
        "zstd",
        stdin="a:1,b:2\tkey\tvalue\nc:3\tk\tv\n",
    )
    for number, (codec, acks) in enumerate((("gzip", "0"), ("lz4", "1"), ("snappy", "-1"), ("none", "all"))):
        run(
            "kafka-console-producer",
            *place,
            "--compression-codec",
            codec,
            "--request-required-acks",
            acks,
            stdin=f"{codec} {acks}\n",
        )
        end = f"{topic}:0:{3 + number}"
        until(lambda end=end: run("kafka-get-offsets", *place).strip() == end)  # type: ignore[misc]
    show = [f"print.{what}=true" for what in ("key", "offset", "headers", "partition", "timestamp")]
    options = [part for property_ in show for part in ("--formatter-property", property_)]
    lines = consume(run, topic, *options, "--max-messages", "6")
    assert [re.sub(r"^CreateTime:\d+\t", "", line) for line in lines] == [
        "Partition:0\tOffset:0\ta:1,b:2\tkey\tvalue",
        "Partition:0\tOffset:1\tc:3\tk\tv",
        "Partition:0\tOffset:2\tNO_HEADERS\tnull\tgzip 0",
        "Partition:0\tOffset:3\tNO_HEADERS\tnull\tlz4 1",
        "Partition:0\tOffset:4\tNO_HEADERS\tnull\tsnappy -1",
        "Partition:0\tOffset:5\tNO_HEADERS\tnull\tnone all",
    ]
    read_committed = ("--isolation-level", "read_committed")
    assert consume(run, topic, "--max-messages", "2", *read_committed, offset="3") == ["lz4 1", "snappy -1"]


def test_get_offsets(run: Run, topic: str) -> None:
    create(run, topic, "--partitions", "2")
    run("kafka-console-producer", "--topic", topic, "--reader-property", "parse.key=true", stdin="a\t1\na\t2\n")
    (full,) = (
        line.split(":")[1] for line in run("kafka-get-offsets", "--topic", topic).splitlines() if line[-1] == "2"
    )
    empty = str(1 - int(full))

    def offsets(when: str) -> dict[str, str]:
        lines = run("kafka-get-offsets", "--topic-partitions", f"{topic}:0-2", "--time", when).splitlines()
        return dict(line.split(":")[1:] for line in lines)

    for names, expected in (
        (("-1", "latest"), {full: "2", empty: "0"}),
        (("-2", "earliest"), {full: "0", empty: "0"}),
        (("-4", "earliest-local"), {full: "0", empty: "0"}),
        (("-5", "latest-tiered"), {}),
        (("-6", "earliest-pending-upload"), {}),
        (("0",), {full: "0"}),
        (("99999999999999",), {}),
    ):
        for name in names:
            assert offsets(name) == expected, name
    assert offsets("-3") == offsets("max-timestamp")
    assert offsets("-3").keys() == {full}
    with pytest.raises(ToolFailedError, match="Could not match"):
        run("kafka-get-offsets", "--topic", "nope")


def test_deleting_records(run: Run, topic: str, tmp_path: Path) -> None:
    create(run, topic)
    run("kafka-console-producer", "--topic", topic, stdin="1\n2\n3\n4\n")
    file = tmp_path / "offsets.json"

    def delete(offset: int) -> str:
        file.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": offset}]}))
        return run("kafka-delete-records", "--offset-json-file", str(file))

    assert f"partition: {topic}-0\tlow_watermark: 2" in delete(2)
    assert "OffsetOutOfRangeException" in delete(5)
    assert consume(run, topic, "--max-messages", "2") == ["3", "4"]
    assert f"partition: {topic}-0\tlow_watermark: 4" in delete(-1)
    assert run("kafka-get-offsets", "--topic", topic, "--time", "earliest").strip() == f"{topic}:0:4"


def test_producers_under_load(run: Run, bootstrap: str, topic: str) -> None:
    create(run, topic, "--partitions", "2")
    load = ("--num-records", "20000", "--record-size", "100", "--throughput", "-1")
    output = run("kafka-producer-perf-test", "--topic", topic, *load, "--command-property", "acks=all")
    assert output.splitlines()[-1].startswith("20000 records sent")
    # In a process of its own, whose end is when this one sends what is left.
    options = ("--topic", topic, "--max-messages", "200", "--throughput", "-1")
    output = run_tool("org.apache.kafka.tools.VerifiableProducer", "--bootstrap-server", bootstrap, *options)
    events = [json.loads(line) for line in output.splitlines()]
    assert sum(event["name"] == "producer_send_success" for event in events) == 200
    assert (events[-1]["sent"], events[-1]["acked"]) == (200, 200)
    ends = [int(line.split(":")[2]) for line in run("kafka-get-offsets", "--topic", topic).splitlines()]
    assert sum(ends) == 20_200
    producers = {
        line.split()[0]
        for partition in ("0", "1")
        for line in run(
            "kafka-transactions", "describe-producers", "--topic", topic, "--partition", partition
        ).splitlines()[1:]
    }
    assert len(producers) == 1, "the first is idempotent, the second never tries again and so is not"


def test_consumers_under_load(run: Run, bootstrap: str, topic: str) -> None:
    create(run, topic, "--partitions", "2")
    run("kafka-console-producer", "--topic", topic, stdin="".join(f"{number}\n" for number in range(100)))
    wanted = ("--topic", topic, "--num-records", "100", "--timeout", "30000", "--hide-header")
    (measured,) = run("kafka-consumer-perf-test", *wanted, "--group", f"{topic}-perf").splitlines()
    assert int(measured.split(", ")[4]) == 100

    options = ("--topic", topic, "--group-id", f"{topic}-verifiable", "--group-protocol", "consumer", "--verbose")
    output = run_tool(
        "org.apache.kafka.tools.VerifiableConsumer",
        *("--bootstrap-server", bootstrap, *options, "--max-messages", "100", "--reset-policy", "earliest"),
    )
    events = [json.loads(line) for line in output.splitlines()]
    assert {event["value"] for event in events if event["name"] == "record_data"} == set(map(str, range(100)))
    committed = [event for event in events if event["name"] == "offsets_committed"]
    assert committed
    assert all(event["success"] for event in committed)
    assert sum(one["offset"] for one in committed[-1]["offsets"]) <= 100


def test_the_time_from_end_to_end(run: Run, topic: str) -> None:
    create(run, topic)
    load = ("--num-records", "10", "--record-size", "20", "--record-key-size", "5", "--num-headers", "1")
    headers = ("--record-header-size", "5", "--record-header-key-size", "5")
    output = run("kafka-e2e-latency", "--topic", topic, "--producer-acks", "all", *load, *headers)
    assert "Avg latency" in output


# -- the cluster


def test_the_cluster(run: Run, run_on_controller: Run, bootstrap: str, bootstrap_controller: str) -> None:
    assert run("kafka-cluster", "cluster-id") == run_on_controller("kafka-cluster", "cluster-id")
    for runs, address, kind in ((run, bootstrap, "broker"), (run_on_controller, bootstrap_controller, "controller")):
        host, port = address.split(":")
        line = runs("kafka-cluster", "list-endpoints").splitlines()[-1].split()
        assert (line[0], line[1], line[2], line[-1]) == ("1", host, port, kind)
        with pytest.raises(ToolFailedError, match="BrokerIdNotRegisteredException"):
            runs("kafka-cluster", "unregister", "--id", "77")


def test_api_versions(run: Run) -> None:
    versions = run("kafka-broker-api-versions")
    assert "Produce(0): 0 to 13 [usable: 13]" in versions
    assert re.search(r"ApiVersions\(18\): 0 to \d", versions)
    assert "DescribeTopicPartitions(75): 0 [usable: 0]" in versions


def test_features(run: Run, run_on_controller: Run) -> None:
    for runs in (run, run_on_controller):
        levels = dict(re.findall(r"Feature: (\S+).*FinalizedVersionLevel: (\S+)", runs("kafka-features", "describe")))
        assert (
            levels.items() >= {"metadata.version": "4.3-IV0", "group.version": "1", "transaction.version": "2"}.items()
        )
        dry = runs("kafka-features", "downgrade", "--feature", "group.version=0", "--dry-run")
        assert dry.strip() == "group.version can be downgraded to 0."
        with pytest.raises(ToolFailedError, match=r"Could not upgrade no\.such\.feature"):
            runs("kafka-features", "upgrade", "--feature", "no.such.feature=1")


def test_the_quorum(run: Run, run_on_controller: Run, bootstrap_controller: str) -> None:
    for runs in (run, run_on_controller):
        status = dict(
            line.split(":", 1) for line in runs("kafka-metadata-quorum", "describe", "--status").splitlines() if line
        )
        assert (status["LeaderId"].strip(), status["MaxFollowerLag"].strip()) == ("1", "0")
        (voter,) = json.loads(status["CurrentVoters"])
        assert (voter["id"], voter["endpoints"]) == (1, [f"CONTROLLER://{bootstrap_controller}"])
        head, line = runs("kafka-metadata-quorum", "describe", "--replication").splitlines()
        replica = dict(zip(head.split(), line.split(), strict=True))
        assert (replica["NodeId"], replica["Lag"], replica["Status"]) == ("1", "0", "Leader")
        place = ("--controller-id", "7", "--controller-directory-id", "AAAAAAAAAAAAAAAAAAAAZQ")
        with pytest.raises(ToolFailedError, match=r"UnsupportedVersionException: .* kraft\.version is 0"):
            runs("kafka-metadata-quorum", "remove-controller", *place)


def test_leader_elections(run: Run, topic: str) -> None:
    create(run, topic)
    for kind in ("preferred", "unclean"):
        said = run("kafka-leader-election", "--election-type", kind, "--topic", topic, "--partition", "0")
        assert said.strip() == f"Valid replica already elected for partitions {topic}-0"
    run("kafka-leader-election", "--election-type", "preferred", "--all-topic-partitions")
    with pytest.raises(ToolFailedError, match="UnknownTopicOrPartitionException"):
        run("kafka-leader-election", "--election-type", "preferred", "--topic", "nope", "--partition", "0")


def test_moving_between_directories(
    run: Run, run_on_controller: Run, topic: str, log_dirs: tuple[str, str], tmp_path: Path
) -> None:
    create(run, topic)
    run("kafka-console-producer", "--topic", topic, stdin="1\n2\n")

    def places() -> dict[str, list[dict[str, object]]]:
        output = run("kafka-log-dirs", "--describe", "--topic-list", topic)
        (broker,) = json.loads(output.splitlines()[-1])["brokers"]
        return {entry["logDir"]: entry["partitions"] for entry in broker["logDirs"]}

    assert places().keys() == set(log_dirs)
    (here,) = (place for place, partitions in places().items() if partitions)
    (there,) = set(log_dirs) - {here}
    assert [part["partition"] for part in places()[here]] == [f"{topic}-0"]
    plan = tmp_path / "plan.json"
    partition = {"topic": topic, "partition": 0, "replicas": [1], "log_dirs": [there]}
    plan.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    given = ("--reassignment-json-file", str(plan))
    said = run("kafka-reassign-partitions", "--execute", *given)
    assert f"Successfully started moving log directory to {there}" in said
    until(lambda: "completed successfully" in run("kafka-reassign-partitions", "--verify", *given))
    assert [part["partition"] for part in places()[there]] == [f"{topic}-0"]
    assert places()[here] == []
    for runs in (run, run_on_controller):
        assert runs("kafka-reassign-partitions", "--list").strip() == "No partition reassignments found."
    assert consume(run, topic, "--max-messages", "2") == ["1", "2"]
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    proposal = ("--generate", "--topics-to-move-json-file", str(topics), "--broker-list", "1")
    assert f'"topic":"{topic}","partition":0,"replicas":[1]' in run("kafka-reassign-partitions", *proposal)
    plan.write_text(
        json.dumps({"version": 1, "partitions": [partition | {"replicas": [1, 2], "log_dirs": ["any"] * 2}]})
    )
    with pytest.raises(ToolFailedError, match="Unknown broker id 2"):
        run("kafka-reassign-partitions", "--execute", *given)


def test_acls_without_an_authorizer(run: Run, run_on_controller: Run) -> None:
    for runs in (run, run_on_controller):
        with pytest.raises(ToolFailedError, match="SecurityDisabledException"):
            runs("kafka-acls", "--list")
        with pytest.raises(ToolFailedError, match="SecurityDisabledException"):
            runs("kafka-acls", "--add", "--allow-principal", "User:alice", "--operation", "Read", "--topic", "t")
