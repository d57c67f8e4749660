"""``barnabas quotas`` against a broker of its own."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from benchmarks.broker_process import free_port

from barnabas import EmbeddedBroker
from barnabas.cli.main import run
from barnabas.cli.quota_output import parse_amount
from barnabas.clients.common.blocking_client import BlockingClient
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.security.principal import ANONYMOUS


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(overrides={"barnabas.http.listener": f"127.0.0.1:{free_port()}"}) as started:
        yield started


class Shell:
    """Runs command lines against the broker."""

    def __init__(self, broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
        self.broker = broker
        self._capsys = capsys

    def __call__(self, *arguments: str, expect: int = 0) -> str:
        code = run(["quotas", arguments[0], "-b", self.broker.bootstrap_servers, *arguments[1:]])
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

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))


@pytest.fixture
def shell(
    broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shell]:
    monkeypatch.setenv("COLUMNS", "120")
    shell = Shell(broker, capsys)
    yield shell
    for entry in shell.json("list"):
        options = []
        for kind, name in entry["entity"].items():
            options += [f"--default-{kind}"] if name is None else [f"--{kind}", name]
        shell("remove", *options)


def limits(shell: Shell) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    return {tuple(sorted(entry["entity"].items())): entry["quotas"] for entry in shell.json("list")}


def test_limits_are_set_listed_and_removed(shell: Shell) -> None:
    assert shell("list") == "There are no quotas.\n"
    assert shell("set", "--user", "alice", "producer_byte_rate=10MB", "request_percentage=12.5") == (
        "user alice: producer_byte_rate is 10,000,000 bytes/s\nuser alice: request_percentage is 12.50 % of a thread\n"
    )
    shell("set", "--default-user", "--client-id", "billing", "consumer_byte_rate=1MiB")
    shell("set", "--default-ip", "connection_creation_rate=100")
    assert limits(shell) == {
        (("user", "alice"),): {"producer_byte_rate": 10_000_000.0, "request_percentage": 12.5},
        (("client-id", "billing"), ("user", None)): {"consumer_byte_rate": 1_048_576.0},
        (("ip", None),): {"connection_creation_rate": 100.0},
    }
    table = shell("list")
    assert "default user, client-id billing" in table
    assert "10,000,000 bytes/s" in table
    assert len(shell.json("list", "--user", "alice")) == 1
    assert shell("list", "--user", "bob") == "The entity has no quotas.\n"
    shell("remove", "--user", "alice", "request_percentage")
    assert limits(shell)[("user", "alice"),] == {"producer_byte_rate": 10_000_000.0}
    assert shell("remove", "--user", "alice") == "user alice: producer_byte_rate removed\n"
    assert "user alice has no quota" in shell("remove", "--user", "alice", expect=1)


def test_explain_shows_the_eight_steps_the_match_and_the_usage(shell: Shell) -> None:
    shell("set", "--user", ANONYMOUS.name, "controller_mutation_rate=2")
    shell("set", "--default-client-id", "controller_mutation_rate=50", "producer_byte_rate=1MB")
    with BlockingClient(shell.broker.bootstrap_servers, client_id="billing") as client:
        topic = CreatableTopic(name="topic-of-the-explained", num_partitions=27, replication_factor=1)
        client.send(CreateTopicsRequest(topics=[topic], timeout_ms=60_000))
    report = shell.json("explain", "--client-id", "billing", "--partitions", "10", "--bytes", "11MB")
    assert (report["user"], report["client_id"]) == ("ANONYMOUS", "billing")
    quotas = {quota["key"]: quota for quota in report["quotas"]}
    mutation = quotas["controller_mutation_rate"]
    assert [step["place"] for step in mutation["steps"]] == [
        "/config/users/ANONYMOUS/clients/billing",
        "/config/users/ANONYMOUS/clients/<default>",
        "/config/users/ANONYMOUS",
        "/config/users/<default>/clients/billing",
        "/config/users/<default>/clients/<default>",
        "/config/users/<default>",
        "/config/clients/billing",
        "/config/clients/<default>",
    ]
    assert [step["limit"] for step in mutation["steps"]] == [None, None, 2.0, None, None, None, None, 50.0]
    assert [step["step"] for step in mutation["steps"] if step["matched"]] == [3]
    assert mutation["limit"] == 2.0
    assert mutation["why"] == "steps 1 and 2 have no limit; step 3, user ANONYMOUS, is the first that has one"
    (usage,) = mutation["usage"]
    assert usage["broker"] == 1
    assert -5 <= usage["usage"] <= 0, "22 in the bucket, 27 taken"
    assert usage["next_throttle_ms"] == pytest.approx((10 - usage["usage"]) / 2 * 1_000, abs=1)
    (unused,) = quotas["producer_byte_rate"]["usage"]
    assert (unused["usage"], unused["next_throttle_ms"]) == (0.0, 1_000), "11 MB at 1 MB/s, of which 10 s are given"
    assert quotas["consumer_byte_rate"]["limit"] is None
    text = shell("explain", "--client-id", "billing", "--bytes", "11MB")
    assert "averaged over the last 11 s (11 windows of 1 s)" in text
    assert "a token bucket, which holds 11 s of the limit" in text
    assert "<- this one" in text
    assert "the next 11,000,000 bytes would be throttled for 1,000 ms" in text


def test_explain_of_an_address(shell: Shell) -> None:
    shell("set", "--default-ip", "connection_creation_rate=50")
    shell("set", "--ip", "127.0.0.1", "connection_creation_rate=20")
    (quota,) = shell.json("explain", "--ip", "127.0.0.1")["quotas"]
    assert quota["limit"] == 20
    assert [step["matched"] for step in quota["steps"]] == [True, False]
    (usage,) = quota["usage"]
    assert usage["usage"] > 0
    (other,) = shell.json("explain", "--ip", "192.0.2.7")["quotas"]
    assert (other["limit"], other["why"]) == (50, "the address has no limit, so the default applies")


def test_without_an_http_endpoint_the_limits_are_explained_and_why_there_is_no_usage(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with EmbeddedBroker() as broker:
        shell = Shell(broker, capsys)
        shell("set", "--user", "alice", "producer_byte_rate=1MB")
        report = shell.json("explain", "--user", "alice")
        assert report["quotas"][0]["limit"] == 1_000_000
        assert "barnabas.http.listener" in report["notes"][0]
        assert "cannot read" in shell("explain", "--user", "alice", "--http", "127.0.0.1:1", expect=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("set", "producer_byte_rate=1"), "name the entity"),
        (("set", "--user", "a", "bytes=1"), "unknown quota 'bytes'"),
        (("set", "--user", "a", "producer_byte_rate"), "must have the form key=value"),
        (("set", "--user", "a", "producer_byte_rate=fast"), "must be a number"),
        (("set", "--user", "a", "--default-user", "producer_byte_rate=1"), "exclude each other"),
        (("set", "--user", "a", "--ip", "1.2.3.4", "producer_byte_rate=1"), "cannot be combined"),
        (("explain",), "name the client"),
        (("explain", "--ip", "1.2.3.4", "--user", "a"), "quotas of addresses are separate"),
        (("explain", "--ip", "nowhere"), "must be an IP address"),
    ],
)
def test_mistakes_are_told_in_one_line(shell: Shell, arguments: tuple[str, ...], message: str) -> None:
    told = shell(*arguments, expect=2)
    assert message in told
    assert told.count("\n") == 1


def test_what_the_controller_refuses_is_told(shell: Shell) -> None:
    assert "must be greater than 0" in shell("set", "--user", "a", "producer_byte_rate=0", expect=1)


def test_a_broker_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["quotas", "list", "-b", "127.0.0.1:1"]) == 1
    assert "nothing listens on that port" in capsys.readouterr().err


def test_the_broker_can_be_named_by_the_environment(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", broker.bootstrap_servers)
    assert run(["quotas", "list"]) == 0
    assert capsys.readouterr().out == "There are no quotas.\n"


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1.0), ("12.5", 12.5), ("1k", 1e3), ("1KB", 1e3), ("1KiB", 1024.0), ("1.5MB", 1.5e6), ("2g", 2e9)],
)
def test_amounts_have_units(text: str, value: float) -> None:
    assert parse_amount(text) == value
