"""Topics and lag in the report, from a running cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas import EmbeddedBroker, KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from barnabas.cli.main import run
from barnabas.clients.admin import NewTopic
from barnabas.report.cluster_state import ClusterState, GroupLag, TopicState, read_cluster
from barnabas.report.conclusions import Level, lagging
from barnabas.report.data import ReportData
from barnabas.report.page import make_report
from barnabas.report.table_reader import TableReader
from spark.report_tables import tenant, write_table

SIZE = 1_000


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """Orders in two partitions, a group that is behind without members, one that only has offsets."""
    with EmbeddedBroker() as running:
        where = running.bootstrap_servers
        with KafkaAdminClient(bootstrap_servers=where) as admin, KafkaProducer(bootstrap_servers=where) as producer:
            admin.create_topics([NewTopic("orders", num_partitions=2), NewTopic("empty")])
            for number in range(10):
                producer.send("orders", b"x" * SIZE, partition=number % 2)
            producer.flush()
            group = KafkaConsumer("orders", bootstrap_servers=where, group_id="gone", enable_auto_commit=False)
            with group as consumer:
                while len(consumer.assignment()) < 2:
                    consumer.poll(100)
                consumer.commit({TopicPartition("orders", 0): 4, TopicPartition("orders", 1): 2})
            admin.alter_group_offsets("bookmark", {TopicPartition("orders", 0): 3})
            yield running


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    write_table(tmp_path, "quotas", "tenants_1m", [tenant("shop")])
    return tmp_path


def test_what_topics_hold_and_who_lags(broker: EmbeddedBroker) -> None:
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        state = read_cluster(admin)
    topics = {one.name: one for one in state.topics}
    assert (topics["orders"].partitions, topics["orders"].records) == (2, 10)
    assert topics["orders"].bytes > 10 * SIZE
    assert (topics["empty"].records, topics["empty"].bytes) == (0, 0)
    assert state.topics[0].bytes == max(one.bytes for one in state.topics), "the largest is the first"
    assert state.groups == [
        GroupLag("gone", "orders", "Empty", 0, 2, 4, 3, is_abandoned=True),
        GroupLag("bookmark", "orders", "Empty", 0, 1, 2, 2, is_abandoned=False),
    ]


def test_the_command_asks_the_cluster_that_is_named(
    broker: EmbeddedBroker, tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    html = tables / "report.html"
    command = ["report", "--out", str(tables), "--html", str(html), "--json"]
    assert run([*command, "-b", broker.bootstrap_servers]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert {one["group"]: one["lag"] for one in summary["groups"]} == {"gone": 4, "bookmark": 2}
    assert {one["name"]: one["records"] for one in summary["topics"]}["orders"] == 10
    page = html.read_text()
    section = page.split('<section id="topics">')[1].split("</section>")[0]
    assert '<td class="n alarm" data-v="4">4</td>' in section
    assert "bookmark" in section
    # Nobody is asked without that option: a report of tables works where there is no cluster.
    assert run(command) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["topics"], summary["groups"]) == (None, None)
    assert f"barnabas report --out {tables} --bootstrap-server HOST:PORT" in html.read_text()


def test_an_unreachable_cluster_fails_the_command(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", "--out", str(tables), "-b", "127.0.0.1:1"]) == 1
    assert "127.0.0.1:1" in capsys.readouterr().err


def lag(group: str, records: int, *, is_abandoned: bool = False) -> GroupLag:
    return GroupLag(group, "orders", "Empty", 0, 1, records, records, is_abandoned)


def test_conclusions_on_lag(tables: Path) -> None:
    def conclusions(*groups: GroupLag) -> list[tuple[Level, str]]:
        data = ReportData(TableReader(tables), cluster=ClusterState([TopicState("orders", 1, 10, 100)], groups))
        return [(one.level, one.text) for one in lagging(data)]

    assert conclusions(lag("a", 0), lag("b", 0, is_abandoned=True)) == []
    assert conclusions(lag("mail", 7, is_abandoned=True)) == [
        (Level.WARNING, "7 records wait for the group mail, which has no members.")
    ]
    assert conclusions(lag("a", 9), lag("b", 1)) == [
        (Level.NOTE, "Groups that are behind: a by 9 records of orders and b by 1 record of orders.")
    ]
    assert lagging(ReportData(TableReader(tables))) == []


def test_the_conclusions_are_in_the_report(tables: Path) -> None:
    state = ClusterState([], [lag("mail", 7, is_abandoned=True)])
    report = make_report(tables, cluster=state)
    assert [one.commands[0].line for one in report.conclusions if one.rule == "lagging"] == [
        "barnabas groups describe mail --lag"
    ]
