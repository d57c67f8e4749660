"""Transactions of the Java client, which speaks transaction version 2, and Kafka's tool for them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from benchmarks.waiting import until
from benchmarks.wire_client import WireClient

from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.records.builder import RecordBatchBuilder
from clients.broker_process import BrokerProcess
from clients.java.conftest import java_or_skip
from oracles.java import OracleError
from oracles.java_client import JavaClient
from oracles.java_transactions import JavaTransactions
from oracles.kafka_tools import KafkaTools

pytestmark = pytest.mark.java


@pytest.fixture(scope="module")
def java() -> Iterator[JavaTransactions]:
    with java_or_skip():
        made = JavaTransactions()
    with made:
        yield made


@pytest.fixture
def begin(java: JavaTransactions, bootstrap: str, topic: str) -> Iterator[Callable[..., str]]:
    """Makes a producer that has begun; the names are of this test."""
    made: list[str] = []

    def make(name: str = "one", transactional_id: str | None = None, **config: str) -> str:
        full = f"{topic}-{name}"
        made.append(full)
        settings = {key.replace("_", "."): value for key, value in config.items()}
        java.open(full, bootstrap, {"transactional.id": transactional_id or topic, **settings})
        java.init(full)
        return full

    yield make
    for name in made:
        java.close_producer(name, 0)


@pytest.fixture
def two_partitions(client: JavaClient, bootstrap: str, topic: str) -> str:
    client.ask("create_topics", bootstrap, topics=[{"name": topic, "partitions": 2, "factor": 1, "configs": {}}])
    return topic


def read(client: JavaClient, bootstrap: str, topic: str, count: int, isolation: str = "read_committed") -> list[str]:
    """So many records of partition 0, and one that comes within a second after them, if there is one."""
    config = {"isolation.level": isolation}
    found = client.consume(bootstrap, {f"{topic}-0": 0}, count, config) if count else []
    after = found[-1]["offset"] + 1 if found else 0
    found += client.consume(bootstrap, {f"{topic}-0": after}, 1, config, timeout_ms=1_000)
    return [record["value"] for record in found]


@pytest.mark.mechanism("P14")
def test_committed_records_are_read_and_aborted_ones_are_not(
    java: JavaTransactions, client: JavaClient, bootstrap: str, two_partitions: str, begin: Callable[..., str]
) -> None:
    producer = begin()
    expected: list[str] = []
    for number in range(6):
        java.begin(producer)
        java.send(producer, two_partitions, [f"{number}-0", f"{number}-1"])
        java.send(producer, two_partitions, [f"{number}"], 1)
        if number % 3 == 1:
            java.abort(producer)
        else:
            java.commit(producer)
            expected += [f"{number}-0", f"{number}-1"]
    assert read(client, bootstrap, two_partitions, len(expected)) == expected
    until(lambda: java.describe(bootstrap, two_partitions)["state"] == "CompleteCommit", "the markers are written")
    assert java.describe(bootstrap, two_partitions)["producer_epoch"] == 6, "an epoch for each transaction"


@pytest.mark.mechanism("P14")
def test_a_new_producer_fences_the_old_and_aborts_what_it_left(
    java: JavaTransactions, client: JavaClient, bootstrap: str, two_partitions: str, begin: Callable[..., str]
) -> None:
    old = begin("old")
    java.begin(old)
    java.send(old, two_partitions, ["lost"])
    new = begin("new")
    with pytest.raises(OracleError, match="ProducerFenced"):
        java.commit(old)
    java.begin(new)
    java.send(new, two_partitions, ["kept"])
    java.commit(new)
    assert read(client, bootstrap, two_partitions, 1) == ["kept"]


def test_an_empty_transaction_can_end_either_way(
    java: JavaTransactions, begin: Callable[..., str], bootstrap: str, two_partitions: str, client: JavaClient
) -> None:
    producer = begin()
    for end in (java.abort, java.commit, java.abort):
        java.begin(producer)
        end(producer)
    java.begin(producer)
    java.send(producer, two_partitions, ["one"])
    java.commit(producer)
    assert read(client, bootstrap, two_partitions, 1) == ["one"]


@pytest.mark.mechanism("P14")
def test_offsets_are_committed_with_the_transaction(
    java: JavaTransactions, client: JavaClient, bootstrap: str, two_partitions: str, begin: Callable[..., str]
) -> None:
    producer, group = begin(), f"{two_partitions}-group"
    for offset, end in ((41, java.commit), (42, java.abort)):
        java.begin(producer)
        java.send(producer, two_partitions, [str(offset)])
        java.send_offsets(producer, group, two_partitions, offset)
        end(producer)
    found: Any = java.ask("committed_offsets", bootstrap=bootstrap, group=group)
    assert found == {f"{two_partitions}-0": 41}
    assert read(client, bootstrap, two_partitions, 1) == ["41"]


@pytest.mark.mechanism("P14")
def test_a_producer_that_is_too_slow_is_fenced(
    java: JavaTransactions, bootstrap: str, two_partitions: str, begin: Callable[..., str], client: JavaClient
) -> None:
    producer = begin(transaction_timeout_ms="5000")
    java.begin(producer)
    java.send(producer, two_partitions, ["late"])
    until(lambda: bool(java.describe(bootstrap, two_partitions)["state"] == "CompleteAbort"))
    with pytest.raises(OracleError):
        java.commit(producer)
    assert read(client, bootstrap, two_partitions, 0) == []


def test_an_operator_fences_a_producer(
    java: JavaTransactions, bootstrap: str, two_partitions: str, begin: Callable[..., str]
) -> None:
    producer = begin()
    java.begin(producer)
    java.send(producer, two_partitions, ["one"])
    java.ask("fence", bootstrap=bootstrap, id=two_partitions)
    with pytest.raises(OracleError, match="ProducerFenced"):
        java.commit(producer)


# -- kafka-transactions


def test_the_tool_lists_and_describes(
    java: JavaTransactions, tools: KafkaTools, bootstrap: str, two_partitions: str, begin: Callable[..., str]
) -> None:
    producer = begin()
    java.begin(producer)
    java.send(producer, two_partitions, ["one"])
    listed = tools.run("kafka-transactions", "--bootstrap-server", bootstrap, "list")
    (line,) = (line for line in listed.splitlines() if line.startswith(two_partitions))
    assert re.match(rf"{re.escape(two_partitions)}\s+\d+\s+\d+\s+Ongoing", line), line
    by_pattern = tools.run(
        "kafka-transactions", "--bootstrap-server", bootstrap, "list", "--transactional-id-pattern", two_partitions
    )
    assert len(by_pattern.strip().splitlines()) == 2
    described = tools.run(
        "kafka-transactions", "--bootstrap-server", bootstrap, "describe", "--transactional-id", two_partitions
    )
    assert "Ongoing" in described
    assert f"{two_partitions}-0" in described
    producers = tools.run(
        "kafka-transactions",
        "--bootstrap-server",
        bootstrap,
        "describe-producers",
        "--topic",
        two_partitions,
        "--partition",
        "0",
    )
    assert len(producers.strip().splitlines()) == 2
    java.commit(producer)
    # A commit is over when it is decided; the markers are written after that.
    describe = ("kafka-transactions", "--bootstrap-server", bootstrap, "describe", "--transactional-id", two_partitions)
    until(lambda: "CompleteCommit" in tools.run(*describe), "the markers are written")


def test_the_tool_filters_what_it_lists(
    java: JavaTransactions, tools: KafkaTools, bootstrap: str, two_partitions: str, begin: Callable[..., str]
) -> None:
    old, young = f"{two_partitions}.old", f"{two_partitions}.young"
    first = begin("old", old)
    java.begin(first)
    java.send(first, two_partitions, ["one"])
    started = time.monotonic()
    begin("young", young)
    until(lambda: time.monotonic() > started + 0.5)

    def listed(*arguments: str) -> set[str]:
        found = tools.run("kafka-transactions", "--bootstrap-server", bootstrap, "list", *arguments)
        return {line.split()[0] for line in found.splitlines() if line.startswith(two_partitions)}

    assert listed() == {old, young}
    assert old in listed("--duration-filter", "400")
    assert old not in listed("--duration-filter", "600000"), "it has not gone on for so long"
    assert listed("--transactional-id-pattern", f"{two_partitions}\\.(old|new)") == {old}
    assert listed("--transactional-id-pattern", f"{two_partitions[:-1]}") == set(), "it is to match all of an id"
    refused = tools.result(
        "kafka-transactions", "--bootstrap-server", bootstrap, "list", "--transactional-id-pattern", "(?=a)"
    )
    assert "regular expression" in (refused[0] + refused[1]).lower() or refused[2] != 0
    java.commit(first)


def test_the_tool_finds_nothing_of_what_is_not_there(tools: KafkaTools, bootstrap: str, two_partitions: str) -> None:
    for arguments in (
        ["describe", "--transactional-id", f"no-{two_partitions}"],
        ["abort", "--topic", two_partitions, "--partition", "0", "--start-offset", "5"],
    ):
        out, err, status = tools.result("kafka-transactions", "--bootstrap-server", bootstrap, *arguments)
        assert status != 0
        assert re.search("could not (be )?f(ind|ound)", (out + err).lower()), out + err


def test_the_tool_aborts_a_transaction(
    java: JavaTransactions,
    tools: KafkaTools,
    client: JavaClient,
    bootstrap: str,
    two_partitions: str,
    begin: Callable[..., str],
) -> None:
    producer = begin()
    java.begin(producer)
    (offset,) = java.send(producer, two_partitions, ["hanging"])
    plain = begin("plain", f"{two_partitions}-other")
    java.begin(plain)
    java.send(plain, two_partitions, ["behind"])
    java.commit(plain)
    assert read(client, bootstrap, two_partitions, 0) == []
    tools.run(
        "kafka-transactions",
        "--bootstrap-server",
        bootstrap,
        "abort",
        "--topic",
        two_partitions,
        "--partition",
        "0",
        "--start-offset",
        str(offset),
    )
    assert read(client, bootstrap, two_partitions, 1) == ["behind"]


def test_the_tool_finds_transactions_that_hang(
    java: JavaTransactions, tools: KafkaTools, bootstrap: str, two_partitions: str, begin: Callable[..., str]
) -> None:
    producer = begin()
    java.begin(producer)
    java.send(producer, two_partitions, ["one"])
    found = tools.run("kafka-transactions", "--bootstrap-server", bootstrap, "find-hanging", "--topic", two_partitions)
    assert len(found.strip().splitlines()) == 1, "it is open, and its coordinator knows it"
    java.commit(producer)


def test_the_tool_finds_and_aborts_what_nobody_coordinates(
    tools: KafkaTools, client: JavaClient, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Records of a transaction of which no coordinator knows hold up readers until somebody aborts it. They cannot get
    there unless a broker is told not to ask."""
    overrides = {"transaction.partition.verification.enable": "false"}
    with (
        BrokerProcess(tmp_path_factory.mktemp("broker"), overrides) as careless,
        WireClient(careless.bootstrap_servers) as wire,
    ):
        bootstrap = careless.bootstrap_servers
        wire.create_topic("t")
        builder = RecordBatchBuilder(producer_id=987_654, producer_epoch=0, base_sequence=0, is_transactional=True)
        builder.append(int(time.time() * 1000) - 3_600_000, None, b"hanging")
        produced = ProduceRequest(
            transactional_id="nobody",
            acks=-1,
            timeout_ms=10_000,
            topic_data=[
                TopicProduceData(name="t", partition_data=[PartitionProduceData(records=bytes(builder.close()))])
            ],
        )
        (answer,) = wire.ask(produced, 11, ProduceResponse).responses[0].partition_responses
        assert answer.error_code == 0
        wire.produce("t", 0, b"behind")
        assert read(client, bootstrap, "t", 0) == []
        run = partial(tools.run, "kafka-transactions", "--bootstrap-server", bootstrap)
        found = run("find-hanging", "--topic", "t")
        assert "987654" in found
        assert "987654" in run("find-hanging", "--broker-id", "1")
        run("abort", "--topic", "t", "--partition", "0", "--start-offset", "0")
        assert "987654" not in run("find-hanging", "--topic", "t")
        assert read(client, bootstrap, "t", 1) == ["behind"]
