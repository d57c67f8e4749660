"""Consumer groups of the Java client, of both protocols, and Kafka's tools for them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest
from benchmarks.waiting import until
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from clients.broker_process import BrokerProcess
from clients.java.conftest import java_or_skip
from oracles.kafka_tools import KafkaTools, ToolFailedError

pytestmark = pytest.mark.java

PARTITIONS = 4
COUNT = 200
WAIT_S = 180
PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """With heartbeats so often that members soon hear of each other."""
    overrides = {
        "group.consumer.heartbeat.interval.ms": "500",
        "group.consumer.min.heartbeat.interval.ms": "500",
    }
    with BrokerProcess(tmp_path_factory.mktemp("broker"), overrides) as broker:
        yield broker


@pytest.fixture
def group(topic: str) -> str:
    return f"group-of-{topic}"


def create_topic(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)


def produce(bootstrap: str, topic: str, start: int = 0, count: int = COUNT) -> set[str]:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(start, start + count):
        producer.produce(topic, str(number), partition=number % PARTITIONS)
    producer.flush(30)
    return {str(number) for number in range(start, start + count)}


def consume(tools: KafkaTools, bootstrap: str, topic: str, group: str, protocol: str, *more: str) -> list[str]:
    out = tools.run(
        "kafka-console-consumer",
        "--bootstrap-server",
        bootstrap,
        "--topic",
        topic,
        "--group",
        group,
        "--from-beginning",
        "--command-property",
        f"group.protocol={protocol}",
        *more,
    )
    # What a consumer logs when nothing more comes is there as well.
    return [line for line in out.splitlines() if line.isdigit()]


def groups(tools: KafkaTools, bootstrap: str, *arguments: str) -> str:
    return tools.run("kafka-consumer-groups", "--bootstrap-server", bootstrap, *arguments)


@PROTOCOLS
def test_a_group_of_one_goes_on_where_it_stopped(
    protocol: str, tools: KafkaTools, bootstrap: str, topic: str, group: str
) -> None:
    create_topic(bootstrap, topic)
    first = produce(bootstrap, topic)
    assert set(consume(tools, bootstrap, topic, group, protocol, "--max-messages", str(COUNT))) == first
    second = produce(bootstrap, topic, COUNT)
    assert set(consume(tools, bootstrap, topic, group, protocol, "--max-messages", str(COUNT))) == second
    described = groups(tools, bootstrap, "--describe", "--group", group)
    rows = [line.split() for line in described.splitlines() if line.startswith(group)]
    assert len(rows) == PARTITIONS
    assert all(row[3] == row[4] and row[5] == "0" for row in rows), "everything is read"


@PROTOCOLS
def test_two_members_share_the_work(protocol: str, tools: KafkaTools, bootstrap: str, topic: str, group: str) -> None:
    create_topic(bootstrap, topic)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    expected = produce(bootstrap, topic)

    def shared() -> bool:
        """Whether both members have their part. Until then, records come, so that no member ends for lack of them."""
        nonlocal expected
        assert not any(one.done() for one in running), "a member has ended before the other has joined"
        expected |= produce(bootstrap, topic, len(expected), 40)
        described = admin.describe_consumer_groups([group])[group].result(WAIT_S)
        parts = sorted(len(member.assignment.topic_partitions) for member in described.members)
        return described.state.name == "STABLE" and parts == [PARTITIONS // 2] * 2

    with java_or_skip():
        others = KafkaTools()
    with others, ThreadPoolExecutor(2) as pool:
        # A member ends when nothing has come for this long. The first assignment has to be there within it.
        running = [
            pool.submit(consume, one, bootstrap, topic, group, protocol, "--timeout-ms", "20000")
            for one in (tools, others)
        ]
        until(shared, "two members with two partitions each", WAIT_S, pause_s=0.5)
        expected |= produce(bootstrap, topic, len(expected), 40)
        outputs = [one.result(WAIT_S) for one in running]
    assert set().union(*map(set, outputs)) == expected
    assert all(outputs), "each has got some"


@PROTOCOLS
def test_the_tools_show_and_change_groups(
    protocol: str, tools: KafkaTools, bootstrap: str, topic: str, group: str
) -> None:
    create_topic(bootstrap, topic)
    produce(bootstrap, topic)
    consume(tools, bootstrap, topic, group, protocol, "--max-messages", str(COUNT))
    assert group in groups(tools, bootstrap, "--list").split()
    state = groups(tools, bootstrap, "--describe", "--group", group, "--state")
    assert "Empty" in state
    listed = tools.run("kafka-groups", "--bootstrap-server", bootstrap, "--list")
    row = next(line.split() for line in listed.splitlines() if line.startswith(group))
    assert row[1].lower() == protocol
    reset = groups(
        tools, bootstrap, "--group", group, "--topic", topic, "--reset-offsets", "--to-earliest", "--execute"
    )
    assert [line.split()[3] for line in reset.splitlines() if line.startswith(group)] == ["0"] * PARTITIONS
    again = consume(tools, bootstrap, topic, group, protocol, "--max-messages", str(COUNT))
    assert len(again) == COUNT
    groups(tools, bootstrap, "--group", group, "--topic", f"{topic}:0", "--delete-offsets")
    left = groups(tools, bootstrap, "--describe", "--group", group)
    committed = {line.split()[2]: line.split()[3] for line in left.splitlines() if line.startswith(group)}
    assert committed.get("0", "-") == "-"
    assert set(committed) >= {"1", "2", "3"}
    groups(tools, bootstrap, "--delete", "--group", group)
    assert group not in groups(tools, bootstrap, "--list").split()


def rows_of(text: str, group: str) -> list[dict[str, str]]:
    """The rows of a table that a tool has printed, by the names of the columns."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    header = next(line for line in lines if line[0] == "GROUP")
    return [dict(zip(header, line, strict=False)) for line in lines if line[0] == group]


@PROTOCOLS
def test_the_tools_show_members_at_work(
    protocol: str, tools: KafkaTools, bootstrap: str, topic: str, group: str
) -> None:
    create_topic(bootstrap, topic)
    produce(bootstrap, topic)
    with java_or_skip():
        other = KafkaTools()
    with other, ThreadPoolExecutor(1) as pool:
        reading = pool.submit(consume, other, bootstrap, topic, group, protocol, "--max-messages", str(COUNT + 1))
        deadline = time.monotonic() + WAIT_S
        while True:
            members = groups(tools, bootstrap, "--describe", "--group", group, "--members", "--verbose")
            found = [line for line in members.splitlines() if line.startswith(group)]
            if found and "0,1,2,3" in found[0]:
                break
            assert time.monotonic() < deadline, members
        (state,) = rows_of(groups(tools, bootstrap, "--describe", "--group", group, "--state"), group)
        assert state["STATE"] == "Stable"
        assert state["#MEMBERS"] == "1"
        listed = groups(tools, bootstrap, "--list", "--state", "stable")
        assert group in listed
        assert group not in groups(tools, bootstrap, "--list", "--state", "empty")
        described = rows_of(groups(tools, bootstrap, "--describe", "--group", group), group)
        assert {row["PARTITION"] for row in described} == {"0", "1", "2", "3"}
        assert all(row["CONSUMER-ID"].strip("-") for row in described)
        out, err, _ = tools.result(
            "kafka-consumer-groups", "--bootstrap-server", bootstrap, "--delete", "--group", group
        )
        assert "not empty" in (out + err).lower() or "NonEmpty" in out + err or "GroupNotEmpty" in out + err
        reset = tools.result(
            "kafka-consumer-groups",
            *("--bootstrap-server", bootstrap, "--group", group, "--topic", topic),
            *("--reset-offsets", "--to-earliest", "--execute"),
        )
        assert "inactive" in reset[0] + reset[1], "only of a group that nobody is in"
        produce(bootstrap, topic, COUNT, 1)  # the one that it waits for
        assert len(reading.result(WAIT_S)) == COUNT + 1


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (["--to-earliest"], [0, 0, 0, 0]),
        (["--to-latest"], [50, 50, 50, 50]),
        (["--to-offset", "7"], [7, 7, 7, 7]),
        (["--shift-by", "-10"], [40, 40, 40, 40]),
        (["--shift-by", "10"], [50, 50, 50, 50]),
        (["--by-duration", "P1D"], [0, 0, 0, 0]),
        (["--to-datetime", "2100-01-01T00:00:00.000"], [50, 50, 50, 50]),
        (["--to-current"], [50, 50, 50, 50]),
    ],
)
def test_offsets_are_reset(
    how: list[str], expected: list[int], tools: KafkaTools, bootstrap: str, read_group: tuple[str, str]
) -> None:
    """All the ways there are, without doing it but for the last."""
    topic, group = read_group
    answer = groups(tools, bootstrap, "--group", group, "--topic", topic, "--reset-offsets", *how, "--dry-run")
    planned = {int(row["PARTITION"]): int(row["NEW-OFFSET"]) for row in rows_of(answer, group)}
    assert [planned[number] for number in range(PARTITIONS)] == expected


@pytest.fixture(scope="module")
def read_group(tools: KafkaTools, shared_broker: BrokerProcess) -> tuple[str, str]:
    """A topic, and a group that has read all of it.

    Their names are new each time: the broker outlives this module, whose tests may come in two parts.
    """
    bootstrap, name = shared_broker.bootstrap_servers, uuid4().hex[:8]
    topic, group = f"reset-{name}", f"group-of-reset-{name}"
    create_topic(bootstrap, topic)
    produce(bootstrap, topic)
    consume(tools, bootstrap, topic, group, "classic", "--max-messages", str(COUNT))
    return topic, group


def test_offsets_go_out_to_a_file_and_come_back(
    tools: KafkaTools, bootstrap: str, read_group: tuple[str, str], tmp_path: Path
) -> None:
    topic, group = read_group
    exported = groups(
        tools,
        bootstrap,
        "--group",
        group,
        "--topic",
        topic,
        "--reset-offsets",
        "--to-offset",
        "3",
        "--dry-run",
        "--export",
    )
    lines = [line for line in exported.splitlines() if topic in line]
    assert len(lines) == PARTITIONS
    plan = tmp_path / "offsets.csv"
    plan.write_text("\n".join(lines))
    groups(tools, bootstrap, "--group", group, "--reset-offsets", "--from-file", str(plan), "--execute")
    rows = rows_of(groups(tools, bootstrap, "--describe", "--group", group), group)
    assert {row["CURRENT-OFFSET"] for row in rows} == {"3"}
    groups(tools, bootstrap, "--group", group, "--topic", topic, "--reset-offsets", "--to-latest", "--execute")


def test_all_groups_are_described_and_validated(tools: KafkaTools, bootstrap: str, read_group: tuple[str, str]) -> None:
    _, group = read_group
    every = groups(tools, bootstrap, "--describe", "--all-groups", "--state")
    assert any(row["STATE"] == "Empty" for row in _rows_of_any(every) if row["GROUP"] == group)
    by_type = tools.run("kafka-groups", "--bootstrap-server", bootstrap, "--list", "--consumer")
    assert group in by_type
    assert group not in tools.run("kafka-groups", "--bootstrap-server", bootstrap, "--list", "--share")


def _rows_of_any(text: str) -> list[dict[str, str]]:
    """Of tables one after the other, each with its header."""
    found: list[dict[str, str]] = []
    header: list[str] = []
    for line in text.splitlines():
        words = line.split()
        if words and words[0] == "GROUP":
            header = words
        elif words and header:
            found.append(dict(zip(header, words, strict=False)))
    return found


def test_a_group_that_is_not_there(tools: KafkaTools, bootstrap: str, group: str) -> None:
    try:
        out, err, _ = tools.result(
            "kafka-consumer-groups", "--bootstrap-server", bootstrap, "--describe", "--group", group
        )
    except ToolFailedError as failure:
        out, err = failure.out, failure.err
    assert "does not exist" in out + err or "not found" in out + err


@PROTOCOLS
def test_kafka_reads_our_offsets_topic(
    protocol: str, tools: KafkaTools, broker: BrokerProcess, bootstrap: str, topic: str, group: str
) -> None:
    create_topic(bootstrap, topic)
    produce(bootstrap, topic)
    consume(tools, bootstrap, topic, group, protocol, "--max-messages", str(COUNT))
    files = [str(file) for file in sorted(broker.data_dir.glob("__consumer_offsets-*/*.log")) if file.stat().st_size]
    out = tools.run("kafka-dump-log", "--offsets-decoder", "--files", ",".join(files))
    assert group in out
    assert '"offset":50' in out.replace(" ", "")
    if protocol == "consumer":
        assert "memberEpoch" in out
    assert "Could not" not in out
