"""``barnabas telemetry`` against a broker of its own."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from barnabas import EmbeddedBroker
from barnabas.cli.console import UsageError
from barnabas.cli.main import run
from barnabas.cli.telemetry import duration_text, parse_duration
from barnabas.clients.common.blocking_client import BlockingClient
from barnabas.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from barnabas.protocol.messages.push_telemetry import PushTelemetryRequest


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(overrides={"barnabas.telemetry.advertise": "always"}) as started:
        yield started


class Shell:
    """Runs command lines against the broker."""

    def __init__(self, broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
        self.broker = broker
        self._capsys = capsys

    def __call__(self, *arguments: str, expect: int = 0) -> str:
        code = run(["telemetry", arguments[0], "-b", self.broker.bootstrap_servers, *arguments[1:]])
        out, err = self._capsys.readouterr()
        self._await_metadata()
        assert code == expect, out + err
        return out if expect == 0 else err

    def _await_metadata(self) -> None:
        """The controller answers when a change is committed; the broker hears of it a moment later."""
        node, raft = self.broker.server.broker, self.broker.server.shared.raft
        assert node is not None
        assert raft is not None
        committed = raft.client.high_watermark
        assert committed is not None
        while node.cache.image.offset < committed - 1:
            threading.Event().wait(0.001)

    def subscriptions(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self("list", "--json"))
        return found


@pytest.fixture
def shell(
    broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shell]:
    monkeypatch.setenv("COLUMNS", "200")
    made = Shell(broker, capsys)
    yield made
    for one in made.subscriptions():
        made("unsubscribe", one["name"])


def push(broker: EmbeddedBroker, client_id: str, metrics: bytes | None = None) -> None:
    """Pushes one value of one metric, or something else."""
    if metrics is None:
        message = MetricsData()
        metric = message.resource_metrics.add().scope_metrics.add().metrics.add()
        metric.name = "org.apache.kafka.producer.record.send.total"
        point = metric.sum.data_points.add()
        point.as_double = 12_345.0
        attribute = point.attributes.add()
        attribute.key, attribute.value.string_value = "node_id", "1"
        histogram = message.resource_metrics[0].scope_metrics[0].metrics.add()
        histogram.name = "latency"
        bucket = histogram.histogram.data_points.add()
        bucket.count, bucket.sum = 4, 10.5
        metrics = message.SerializeToString()
    with BlockingClient(broker.bootstrap_servers, client_id=client_id) as client:
        answer = client.send(GetTelemetrySubscriptionsRequest())
        assert not client.send(
            PushTelemetryRequest(
                client_instance_id=answer.client_instance_id,
                subscription_id=answer.subscription_id,
                metrics=metrics,
                terminating=True,
            )
        ).error_code


@pytest.mark.mechanism("Q12")
def test_subscriptions_come_change_and_go(shell: Shell) -> None:
    assert "no subscriptions" in shell("list")
    assert shell("subscribe", "all") == "all: subscribed, metrics=*\n"
    shell("subscribe", "java", "-m", "a.", "--metrics", "b.", "-i", "30s", "--match", "client_id=x", "--match",
          "client_source_port=1.*")  # fmt: skip
    assert {one["name"]: one for one in shell.subscriptions()} == {
        "all": {"name": "all", "metrics": ["*"], "interval.ms": 300_000, "match": []},
        "java": {
            "name": "java",
            "metrics": ["a.", "b."],
            "interval.ms": 30_000,
            "match": ["client_id=x", "client_source_port=1.*"],
        },
    }
    shown = shell("list")
    for text in ("all clients", "5m", "30s", "client_id=x"):
        assert text in shown
    assert shell("subscribe", "java", "-i", "500ms") == "java: changed, interval.ms=500\n"
    assert {one["name"]: one["metrics"] for one in shell.subscriptions()}["java"] == ["a.", "b."]
    assert shell("unsubscribe", "java") == "java: unsubscribed\n"
    assert [one["name"] for one in shell.subscriptions()] == ["all"]
    node = shell.broker.server.broker
    assert node is not None
    assert node.telemetry is not None
    assert list(node.telemetry.client_metrics.subscriptions) == ["all"]


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (["subscribe", "s", "-i", "soon"], 2, "500ms"),
        (["subscribe", "s", "-i", "1ms"], 1, "between 100 and 3600000"),
        (["subscribe", "s", "--match", "color=red"], 1, "client_id"),
        (["subscribe", "s", "--match", "client_id=("], 1, "regular expression"),
        (["unsubscribe", "s"], 1, "subscription s does not exist"),
        (["tail", "-c", "("], 2, "regular expression"),
    ],
)
def test_mistakes(shell: Shell, arguments: list[str], code: int, problem: str) -> None:
    assert problem in shell(*arguments, expect=code)


def test_a_change_that_is_none(shell: Shell) -> None:
    shell("subscribe", "s")
    assert "subscription s exists" in shell("subscribe", "s", expect=2)


@pytest.mark.mechanism("Q15")
def test_tail_shows_pushes_for_people_and_programs(shell: Shell) -> None:
    push(shell.broker, "billing-7")
    push(shell.broker, "other")
    push(shell.broker, "broken", b"\xff\xff\xff")
    shown = shell("tail", "--from-beginning", "-n", "1", "-c", "billing-.*")
    for text in (
        "billing-7",
        "barnabas 0.",
        "127.0.0.1:",
        "User:ANONYMOUS",
        "record.send.total",
        "12,345",
        "node_id=1",
    ):
        assert text in shown
    assert "10.5 in 4" in shown
    assert "its last push" in shown
    documents = [json.loads(line) for line in shell("tail", "--from-beginning", "-n", "3", "--json").splitlines()]
    assert [one["client_id"] for one in documents] == ["billing-7", "other", "broken"]
    assert [len(one["metrics"]) for one in documents] == [2, 2, 0]
    assert documents[0]["metrics"][0]["attributes"] == {"node_id": "1"}
    assert documents[0]["offset"] == 0
    assert "Invalid OTLP" in documents[2]["problem"]
    assert "Invalid OTLP" in shell("tail", "--from-beginning", "-n", "1", "-c", "broken")
    (filtered,) = shell("tail", "--from-beginning", "-n", "1", "--json", "-m", "lat").splitlines()
    assert [one["name"] for one in json.loads(filtered)["metrics"]] == ["latency"]


@pytest.mark.parametrize("text", ["", "s", "-1s", "1d", "1.5s"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(UsageError):
        parse_duration(text)


def test_times() -> None:
    for text in ("1ms", "999ms", "1s", "90s", "2m", "1h"):
        assert duration_text(parse_duration(text)) == text
