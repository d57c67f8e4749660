"""``barnabas topics``, ``groups``, ``configs``, ``transactions``, ``cluster`` and ``consume`` against a broker."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from barnabas import EmbeddedBroker
from barnabas.cli.main import run
from barnabas.clients.common.blocking_client import BlockingClient
from barnabas.clients.consumer import KafkaConsumer
from barnabas.clients.producer import KafkaProducer
from barnabas.protocol.framing import encode_request
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.records.builder import RecordBatchBuilder

SECONDS: Final = 60
BEFORE_IMPLICIT_TRANSACTIONS: Final = 11
"""The last version of Produce that does not add a partition to its transaction by itself."""


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(
        overrides={
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
        }
    ) as started:
        yield started


class Shell:
    """Runs command lines in this process."""

    def __init__(self, broker: EmbeddedBroker, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
        self.bootstrap = broker.bootstrap_servers
        self._capture = capfdbinary

    def __call__(self, *arguments: str, expect: int = 0) -> str:
        """What it printed: its output, or its errors if it is to fail."""
        out, err = self.streams(*arguments, expect=expect)
        return out if expect == 0 else err

    def streams(self, *arguments: str, expect: int = 0) -> tuple[str, str]:
        """What it printed on standard output, and on standard error."""
        code = run([*arguments, "-b", self.bootstrap])
        out, err = (stream.decode() for stream in self._capture.readouterr())
        assert code == expect, out + err
        return out, err

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))

    def fails(self, *arguments: str, code: int = 1) -> str:
        """The one line that says why."""
        text = self(*arguments, expect=code)
        assert text.startswith("error: ")
        assert text.count("\n") == 1, "one line"
        return text.removeprefix("error: ").rstrip("\n")

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < deadline
            threading.Event().wait(0.02)


@pytest.fixture
def shell(broker: EmbeddedBroker, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("COLUMNS", "120")
    return Shell(broker, capfdbinary)


@pytest.fixture
def name() -> str:
    return f"cli-{uuid.uuid4().hex[:8]}"


def fill(shell: Shell, topic: str, count: int, partition: int = 0) -> None:
    with KafkaProducer(bootstrap_servers=shell.bootstrap) as producer:
        for number in range(count):
            producer.send(
                topic,
                b"value %d" % number,
                key=b"key %d" % number,
                partition=partition,
                timestamp_ms=1_700_000_000_000 + number * 1_000,
            )


# -- topics


def test_topics(shell: Shell, name: str) -> None:
    assert shell("topics", "create", name, "-p", "3", "-c", "retention.ms=5000") == (
        f"{name}: created, 3 partitions, 1 replica\n"
    )
    (row,) = [row for row in shell.json("topics", "list") if row["name"] == name]
    assert (row["partitions"], row["replicas"]) == (3, 1)
    assert name in shell("topics", "list")
    fill(shell, name, 5, partition=1)
    (document,) = shell.json("topics", "describe", name)
    assert document["configs"] == {"retention.ms": "5000"}
    assert [row["records"] for row in document["partitions"]] == [0, 5, 0]
    text = shell("topics", "describe", name)
    assert f"{name}  {document['id']}  retention.ms=5000" in text
    assert "partition   leader   epoch" in text
    assert shell("topics", "alter", name, "-p", "4", "-c", "retention.ms=6000", "--delete-config", "segment.ms") == (
        f"{name}: retention.ms set to 6000\n{name}: segment.ms reset to its default\n{name}: 4 partitions\n"
    )
    assert shell("topics", "delete-records", name, "-p", "1", "--before", "3") == f"{name}-1: log start offset is 3\n"
    assert shell("topics", "delete-records", name, "-p", "1", "--before", "end") == f"{name}-1: log start offset is 5\n"
    assert shell("topics", "describe", name, "--unavailable") == "No partition matches.\n"
    assert shell("topics", "delete", name) == f"{name}: deleted\n"


def test_what_cannot_be_done_with_topics(shell: Shell, name: str) -> None:
    shell("topics", "create", name)
    assert shell.fails("topics", "create", name) == f"{name}: Topic '{name}' already exists (TOPIC_ALREADY_EXISTS)"
    assert shell("topics", "create", name, "--if-not-exists") == f"{name}: already exists\n"
    assert shell("topics", "create", f"{name}-x", "--dry-run").startswith(f"{name}-x: could be created")
    assert shell.fails("topics", "describe", f"{name}-x") == f"topic {name}-x does not exist"
    assert "INVALID_PARTITIONS" in shell.fails("topics", "alter", name, "-p", "1")
    assert "num_partitions: 99999999999 is not a value of type int32" in shell.fails(
        "topics", "create", f"{name}-2", "-p", "99999999999", code=2
    )
    assert "UNKNOWN_TOPIC_OR_PARTITION" in shell.fails("topics", "delete", f"{name}-x")
    assert shell("topics", "delete", f"{name}-x", "--if-exists") == f"{name}-x: does not exist\n"
    assert "key=value" in shell.fails("topics", "create", "x", "-c", "retention.ms", code=2)
    assert "name what to change" in shell.fails("topics", "alter", name, code=2)
    assert "must be an offset or end" in shell.fails(
        "topics", "delete-records", name, "-p", "0", "--before", "x", code=2
    )
    assert "required: TOPIC" in shell.fails("topics", "create", code=2)


# -- settings


def test_settings(shell: Shell, name: str) -> None:
    shell("topics", "create", name)
    assert shell("configs", "set", "--topic", name, "retention.ms=5000", "cleanup.policy+=compact") == (
        f"topic {name}: retention.ms set to 5000\ntopic {name}: cleanup.policy extended by compact\n"
    )
    shell.until(lambda: "retention.ms" in shell.json("configs", "get", "--topic", name))
    found = shell.json("configs", "get", "--topic", name)
    assert found["retention.ms"] == {
        "value": "5000",
        "source": "DYNAMIC_TOPIC_CONFIG",
        "read_only": False,
        "sensitive": False,
    }
    assert found["cleanup.policy"]["value"] == "delete,compact"
    assert "segment.ms" not in found
    assert "segment.ms" in shell.json("configs", "get", "--topic", name, "--all")
    assert "5000" in shell("configs", "get", "--topic", name, "retention.ms")
    assert shell("configs", "set", "--topic", name, "cleanup.policy-=compact", "--dry-run") == (
        f"topic {name}: cleanup.policy could be reduced by compact\n"
    )
    assert (
        shell("configs", "unset", "--topic", name, "retention.ms")
        == f"topic {name}: retention.ms reset to its default\n"
    )
    assert "INVALID_CONFIG" in shell.fails("configs", "set", "--topic", name, "retention.ms=soon")
    misspelt = shell("configs", "set", "--topic", name, "retention.m=5000", expect=1)
    assert misspelt.startswith("warning: there is no setting retention.m; did you mean retention.ms?\nerror: ")
    assert shell.fails("configs", "get", "--topic", name, "no.such") == f"topic {name} has no setting no.such"
    assert "one of the arguments" in shell.fails("configs", "get", code=2)


def test_settings_of_brokers_groups_and_subscriptions(shell: Shell, name: str) -> None:
    assert shell.json("configs", "get", "--broker", "1", "node.id")["node.id"]["value"] == "1"
    shell("configs", "set", "--all-brokers", "log.cleaner.threads=2")
    shell.until(lambda: "log.cleaner.threads" in shell.json("configs", "get", "--all-brokers"))
    shell("configs", "unset", "--all-brokers", "log.cleaner.threads")
    misspelt = shell.streams("configs", "set", "--all-brokers", "log.cleaner.thread=2", "--dry-run")
    assert misspelt[1] == "warning: there is no setting log.cleaner.thread; did you mean log.cleaner.threads?\n"
    assert shell.streams("configs", "set", "--all-brokers", "my.plugin.setting=2", "--dry-run")[1] == ""
    shell("configs", "set", "--group", name, "consumer.session.timeout.ms=50000")
    shell.until(lambda: shell.json("configs", "get", "--group", name))
    shell("configs", "set", "--client-metrics", name, "interval.ms=1000")
    shell.until(lambda: shell.json("configs", "get", "--client-metrics", name))
    shell("configs", "unset", "--client-metrics", name, "interval.ms")


# -- groups


def test_groups_and_their_lag(shell: Shell, name: str) -> None:
    shell("topics", "create", name, "-p", "2")
    fill(shell, name, 10)
    dry = shell.json("groups", "reset-offsets", name, "--topic", f"{name}:0", "--to-offset", "4")
    assert dry == [{"topic": name, "partition": 0, "before": None, "after": 4, "executed": False}]
    assert shell.fails("groups", "describe", name).endswith("(GROUP_ID_NOT_FOUND)"), "nothing was done"
    text = shell("groups", "reset-offsets", name, "--topic", f"{name}:0", "--to-offset", "4")
    assert "nothing was changed; use --execute to commit" in text
    assert "offsets committed" in shell(
        "groups", "reset-offsets", name, "--topic", name, "--to-offset", "4", "--execute"
    )
    (document,) = shell.json("groups", "describe", name)
    assert document["state"] == "Empty"
    assert document["total_lag"] == 6
    assert [(one["committed"], one["end_offset"], one["lag"]) for one in document["partitions"]] == [
        (4, 10, 6),
        (0, 0, 0),
    ]
    text = shell("groups", "describe", name)
    assert f"{name}  classic, Empty, coordinator 1, lag 6" in text
    assert "the group has no members" in shell("groups", "describe", name, "--members")
    assert name in shell("groups", "list", "--state", "Empty", "--type", "classic")
    assert name not in {one["group_id"] for one in shell.json("groups", "list", "--state", "Stable")}
    assert shell("groups", "delete-offsets", name, "--topic", name) == (
        f"{name}: offset of {name}-0 deleted\n{name}: offset of {name}-1 deleted\n"
    )
    shell("groups", "reset-offsets", name, "--topic", name, "--to-latest", "--execute")
    assert shell("groups", "delete", name) == f"{name}: deleted\n"
    assert "GROUP_ID_NOT_FOUND" in shell.fails("groups", "delete", name)


def test_names_are_not_sent_to_the_terminal_as_they_are(shell: Shell, name: str) -> None:
    shell("topics", "create", name)
    evil = f"{name}\x1b[2J\x1b]0;gone\x07\nforged\u202e [red]"
    escaped = f"{name}\\x1b[2J\\x1b]0;gone\\x07\\nforged\\u202e [red]"
    outputs = [
        shell("groups", "reset-offsets", evil, "--topic", name, "--to-offset", "0", "--execute"),
        shell("groups", "describe", evil),
        shell("groups", "list"),
        shell("groups", "delete", evil),
        shell("groups", "describe", evil, expect=1),
    ]
    for text in outputs:
        assert not {"\x1b", "\x07", "\u202e"} & set(text)
    assert escaped in outputs[1]
    assert f"{name}\\x1b[2J" in outputs[2]


def test_where_offsets_are_reset_to(shell: Shell, name: str) -> None:
    shell("topics", "create", name)
    fill(shell, name, 10)

    def after(*where: str) -> int:
        (row,) = shell.json("groups", "reset-offsets", name, "--topic", name, *where, "--execute")
        return int(row["after"])

    assert after("--to-offset", "99") == 10, "the nearest that is there"
    assert after("--shift-by", "-4") == 6
    assert after("--shift-by", "1") == 7
    assert after("--to-current") == 7
    assert after("--to-earliest") == 0
    assert after("--to-latest") == 10
    assert after("--to-datetime", "2023-11-14T22:13:25Z") == 5
    assert after("--to-datetime", "2033-01-01") == 10, "no record is that new"
    assert after("--by-duration", "PT1H") == 10
    assert after("--by-duration", "36500d") == 0
    assert [row["before"] for row in shell.json("groups", "reset-offsets", name, "--all-topics", "--to-current")] == [0]
    assert shell.fails("groups", "reset-offsets", name, "--topic", f"{name}:7", "--to-earliest") == (
        f"{name} has no partition 7; it has 1"
    )
    assert "duration" in shell.fails("groups", "reset-offsets", name, "--topic", name, "--by-duration", "x", code=2)
    assert "a time must be like" in shell.fails(
        "groups", "reset-offsets", name, "--topic", name, "--to-datetime", "x", code=2
    )
    assert "has no offsets" in shell.fails("groups", "reset-offsets", "nobody", "--all-topics", "--to-earliest")
    assert "no committed offset" in shell.fails("groups", "reset-offsets", "nobody", "--topic", name, "--shift-by", "1")
    assert "not allowed with" in shell.fails(
        "groups", "reset-offsets", name, "--topic", name, "--to-earliest", "--to-latest", code=2
    )


def test_a_group_with_a_member(shell: Shell, name: str) -> None:
    shell("topics", "create", name)
    fill(shell, name, 3)
    with KafkaConsumer(
        bootstrap_servers=shell.bootstrap,
        group_id=name,
        client_id="reader",
        group_protocol="classic",
        auto_offset_reset="earliest",
    ) as consumer:
        consumer.subscribe([name])
        count = 0
        deadline = time.monotonic() + SECONDS
        while count < 3 and time.monotonic() < deadline:
            count += len(consumer.poll(100))
        consumer.commit()
        (document,) = shell.json("groups", "describe", name)
        assert document["state"] == "Stable"
        assert document["total_lag"] == 0
        (member,) = document["members"]
        assert member["client_id"] == "reader"
        assert member["assignment"] == [{"topic": name, "partition": 0}]
        assert document["partitions"][0]["client_id"] == "reader"
        assert f"{name}: 0" in shell("groups", "describe", name, "--members")
        assert "stop it first" in shell.fails("groups", "reset-offsets", name, "--topic", name, "--to-earliest")
        assert "NON_EMPTY_GROUP" in shell.fails("groups", "delete", name)
        assert "name the members to remove" in shell.fails("groups", "remove-members", name, code=2)
        assert "UNKNOWN_MEMBER_ID" in shell.fails("groups", "remove-members", name, "--member", "nobody")
        assert shell("groups", "remove-members", name, "--all").endswith("removed\n")


# -- transactions


def test_transactions(shell: Shell, name: str) -> None:
    shell("topics", "create", name)
    with KafkaProducer(bootstrap_servers=shell.bootstrap, transactional_id=name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(name, b"open").result(SECONDS)
        (listing,) = shell.json("transactions", "list", "--pattern", f"{name}.*")
        assert listing["state"] == "Ongoing"
        assert name in shell("transactions", "list", "--state", "Ongoing", "--min-duration", "0s")
        assert shell.json("transactions", "list", "--min-duration", "10h") == []
        (document,) = shell.json("transactions", "describe", name)
        assert document["partitions"] == [{"topic": name, "partition": 0}]
        assert f"{name}-0" in shell("transactions", "describe", name)
        assert (
            shell("transactions", "find-hanging", "--max-age", "0s", "--topic", name)
            == "There are no hanging transactions.\n"
        )
        assert shell.fails("transactions", "abort", "-t", name, "-p", "0", "--start-offset", "7") == (
            f"{name}-0 has no open transaction at offset 7"
        )
        assert "fenced" in shell("transactions", "fence", name)
    assert "TRANSACTIONAL_ID_NOT_FOUND" in shell.fails("transactions", "describe", f"{name}-x")
    assert "--partition requires --topic" in shell.fails("transactions", "find-hanging", "-p", "0", code=2)


def leave_hanging(shell: Shell, topic: str) -> None:
    """A transaction that its coordinator has never heard of, as clients before KIP-890 could leave behind: written
    without having been announced, where the broker does not ask the coordinator about it."""
    shell("transactions", "fence", topic)  # waits for the coordinator, which nobody may have asked for yet
    with BlockingClient(shell.bootstrap) as client:
        request = InitProducerIdRequest(transactional_id=topic, transaction_timeout_ms=60_000)
        answer: InitProducerIdResponse = client.send(request)
    builder = RecordBatchBuilder(
        producer_id=answer.producer_id,
        producer_epoch=answer.producer_epoch,
        base_sequence=0,
        is_transactional=True,
    )
    builder.append(1_700_000_000_000, None, b"hanging")
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=builder.close())])
    produce = ProduceRequest(transactional_id=topic, acks=-1, timeout_ms=60_000, topic_data=[data])
    host, _, port = shell.bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), SECONDS) as connection:
        connection.sendall(encode_request(produce, BEFORE_IMPLICIT_TRANSACTIONS, 1, "old"))
        size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL))
        payload = connection.recv(size, socket.MSG_WAITALL)
    response, _ = ProduceResponse.decode_from(payload, BEFORE_IMPLICIT_TRANSACTIONS, 5)
    assert response.responses[0].partition_responses[0].error_code == 0


def test_a_hanging_transaction_is_found_and_aborted(shell: Shell, name: str) -> None:
    shell("topics", "create", name)
    shell("configs", "set", "--all-brokers", "transaction.partition.verification.enable=false")
    setting = ("configs", "get", "--broker", "1", "transaction.partition.verification.enable")
    shell.until(lambda: "false" in shell(*setting))
    try:
        leave_hanging(shell, name)
    finally:
        shell("configs", "unset", "--all-brokers", "transaction.partition.verification.enable")
    (found,) = shell.json("transactions", "find-hanging", "--topic", name)
    assert found["start_offset"] == 0
    assert "begins at" in shell("transactions", "find-hanging")
    assert shell("consume", name, "-B", "--timeout", "0.1") == "", "readers of committed data stop there"
    assert "name the transaction" in shell.fails("transactions", "abort", "-t", name, "-p", "0", code=2)
    assert shell("transactions", "abort", "-t", name, "-p", "0", "--start-offset", "0") == (
        f"{name}-0: aborted the transaction of producer {found['producer_id']}\n"
    )
    assert shell("transactions", "find-hanging", "--topic", name) == "There are no hanging transactions.\n"


# -- the cluster


def test_the_cluster(shell: Shell) -> None:
    document = shell.json("cluster", "describe")
    assert [broker["id"] for broker in document["brokers"]] == [1]
    assert document["controller"] == 1
    assert shell.bootstrap in shell("cluster", "describe")
    quorum = shell.json("cluster", "quorum")
    assert [replica["role"] for replica in quorum["replicas"]] == ["leader"]
    assert "CONTROLLER://" in shell("cluster", "quorum")
    features = shell.json("cluster", "features")
    assert features["metadata.version"]["level"] in range(
        features["metadata.version"]["supported"][0], features["metadata.version"]["supported"][1] + 1
    )
    assert "metadata.version" in shell("cluster", "features")


def test_log_directories(shell: Shell, name: str) -> None:
    shell("topics", "create", name)
    fill(shell, name, 100)
    (document,) = shell.json("cluster", "log-dirs", "--topic", name)
    assert document["partitions"] == 1
    assert document["largest"][0]["partition"] == f"{name}-0"
    assert document["size"] > 0
    assert f"{name}-0" in shell("cluster", "log-dirs", "--topic", name)
    assert shell.fails("cluster", "log-dirs", "--broker", "4711") == "unknown broker 4711; the cluster has 1"


# -- reading


def test_records_are_shown(shell: Shell, name: str) -> None:
    shell("topics", "create", name, "-p", "2")
    fill(shell, name, 5)
    everything = [f"value {number}\n" for number in range(5)]
    assert shell("consume", name, "--from-beginning", "--exit") == "".join(everything)
    assert shell("consume", name, "-B", "-n", "2") == "".join(everything[:2])
    assert shell("consume", name, "-o", "-2", "-e") == "".join(everything[3:])
    assert shell("consume", name, "-p", "0", "-o", "4", "-e") == everything[4]
    assert shell("consume", name, "-o", "99", "--timeout", "0.1") == ""
    assert shell("consume", name, "--time", "2023-11-14T22:13:23", "-e") == "".join(everything[3:])
    assert shell("consume", name, "--exit") == "", "it is at the end already"
    assert shell("consume", name, "-p", "0", "-o", "4", "-e", "--format", "key-value") == "key 4\tvalue 4\n"
    assert shell("consume", name, "-B", "-n", "1", "-f", r"%t %p %o %T %k=%s %K %S [%h]\x21\n") == (
        f"{name} 0 0 1700000000000 key 0=value 0 5 7 []!\n"
    )
    assert shell.json("consume", name, "-B", "-n", "1") == {
        "topic": name,
        "partition": 0,
        "offset": 0,
        "timestamp": 1_700_000_000_000,
        "key": "key 0",
        "value": "value 0",
        "headers": [],
    }


def test_records_are_read_by_a_group(shell: Shell, name: str) -> None:
    shell("topics", "create", name)
    fill(shell, name, 5)
    assert shell("consume", name, "-B", "--group", name, "-n", "2") == "value 0\nvalue 1\n"
    assert shell("consume", name, "-B", "--group", name, "--exit") == "value 2\nvalue 3\nvalue 4\n", "it goes on"
    (document,) = shell.json("groups", "describe", name)
    assert document["total_lag"] == 0


def test_what_cannot_be_read(shell: Shell, name: str) -> None:
    assert shell.fails("consume", name) == f"topic {name} does not exist"
    shell("topics", "create", name)
    assert shell.fails("consume", name, "-p", "7") == f"{name} has no partition 7; it has 1"
    assert "--group cannot be used with" in shell.fails("consume", name, "-g", "x", "-o", "1", code=2)
    assert "unknown token %q" in shell.fails("consume", name, "-f", "%q", code=2)
    assert "auto.offset.reset" in shell.fails("consume", name, "--consumer-property", "auto.offset.reset=never", code=2)


def test_reading_is_measured(shell: Shell, name: str) -> None:
    shell("topics", "create", name)
    fill(shell, name, 50)
    patient = ("--num-records", "50", "--timeout", str(SECONDS))
    header, row = shell("perf", "consume", "--topic", name, *patient).splitlines()
    figures = dict(zip(header.split(", "), row.split(", "), strict=True))
    assert figures["data.consumed.in.nMsg"] == "50"
    assert shell.json("perf", "consume", "--topic", name, *patient, "--table")["data.consumed.in.nMsg"] == 50
    text = shell("perf", "consume", "--topic", name, "--num-records", "51", "--timeout", "0.2", expect=1)
    # On a loaded machine the time can pass before all 50 are there.
    found = re.search(r"received only (\d+) of 51 records, then none for 0.2 s", text)
    assert found is not None, text
    assert int(found[1]) <= 50
