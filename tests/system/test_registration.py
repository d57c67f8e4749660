"""A broker that its controller does not know, or does not let in: as processes, because how they end is the point."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from benchmarks.broker_process import BrokerProcess
from benchmarks.waiting import until
from benchmarks.wire_client import WireClient

from barnabas.common.errors import Errors
from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

WAIT_S = 120
STOP_S = 120
"""On a busy machine. Before, a stop took five minutes."""


def unregister(client: WireClient) -> None:
    response = client.ask(UnregisterBrokerRequest(broker_id=1), 0, UnregisterBrokerResponse)
    assert Errors.for_code(response.error_code) is Errors.NONE


def test_a_broker_that_was_unregistered_registers_again_and_serves(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker, WireClient(broker.bootstrap_servers) as client:
        client.create_topic("orders")
        assert client.produce("orders", 0, b"before") == (Errors.NONE, 0)
        unregister(client)
        until(lambda: "Registering again" in broker.text(), broker.text, WAIT_S, process=broker.process)
        until(
            lambda: client.produce("orders", 0, b"after")[0] is Errors.NONE,
            broker.text,
            WAIT_S,
            process=broker.process,
        )
        assert client.fetch_all("orders", 0) == [b"before", b"after"]
        assert [one.node_id for one in client.metadata().brokers] == [1]
        assert broker.text().count("Registering again") == 1
        assert broker.stop() == 0


def test_a_broker_that_was_unregistered_stops_at_once(tmp_path: Path) -> None:
    # With this interval it does not find out by itself before it is stopped.
    overrides = {"broker.heartbeat.interval.ms": 600_000, "broker.session.timeout.ms": 1_200_000}
    with (
        BrokerProcess(tmp_path / "data", overrides=overrides) as broker,
        WireClient(broker.bootstrap_servers) as client,
    ):
        unregister(client)
        started = time.monotonic()
        assert broker.stop() == 0
        assert time.monotonic() - started < STOP_S
        assert "does not know broker 1 any more" in broker.text()


@pytest.mark.parametrize("super_users", ["", "User:admin"])
def test_a_broker_without_permission_says_so_and_ends(tmp_path: Path, super_users: str) -> None:
    broker = BrokerProcess(
        tmp_path / "data",
        overrides={
            "authorizer.class.name": "barnabas.security.standard_authorizer.StandardAuthorizer",
            "super.users": super_users,
        },
    )
    broker.spawn()
    assert broker.process.wait(WAIT_S) == 1
    assert (
        "the broker cannot start: the controller refused to register broker 1 with CLUSTER_AUTHORIZATION_FAILED: its "
        "principal User:ANONYMOUS needs CLUSTER_ACTION on the cluster; set super.users=User:ANONYMOUS, or add an ACL "
        "that allows it"
    ) in " ".join(broker.text().split())
