"""The controller of a node: where its metadata begin, that they are kept, and that it is found."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from benchmarks.wire_client import WireClient

from barnabas.broker.node.authorizers import AclPublisher
from barnabas.broker.to_controller.broker_lifecycle_manager import BrokerLifecycleManager
from barnabas.common.errors import Errors
from barnabas.embedded import EmbeddedBroker
from barnabas.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
)
from barnabas.raft.bootstrap_file import BOOTSTRAP_FILE
from barnabas.security.standard_authorizer import StandardAuthorizer


def test_a_start_without_the_bootstrap_file_begins_with_the_defaults(tmp_path: Path) -> None:
    """Brokers before KIP-778 had none."""
    with EmbeddedBroker(tmp_path):
        pass
    levels = {}
    for name in ("with", "without"):
        place = tmp_path / name
        broker = EmbeddedBroker(place)
        if name == "without":
            with EmbeddedBroker(place):
                pass
            (place / BOOTSTRAP_FILE).unlink()
            for file in (place / "__cluster_metadata-0").iterdir():
                file.unlink()
        with broker:
            assert broker.server.broker is not None
            levels[name] = broker.server.broker.cache.features().metadata_version
    assert levels["with"] == levels["without"]


def test_the_quorum_is_one_voter_that_leads() -> None:
    with EmbeddedBroker() as broker, WireClient(broker.bootstrap_servers) as client:
        topic = RequestTopicData(topic_name="__cluster_metadata", partitions=[RequestPartitionData(partition_index=0)])
        answer = client.ask(DescribeQuorumRequest(topics=[topic]), 2, DescribeQuorumResponse)
        assert answer.error_code == 0
        (partition,) = answer.topics[0].partitions
        assert partition.leader_id == 1
        assert [voter.replica_id for voter in partition.current_voters] == [1]
        assert partition.high_watermark > 0
        assert answer.nodes[0].listeners[0].port != int(broker.bootstrap_servers.rpartition(":")[2])


def test_the_broker_registers_when_the_controller_has_the_acls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, only super users get in, and the broker need not be one."""
    order: list[str] = []
    registering = threading.Event()
    update, start = AclPublisher.on_metadata_update, BrokerLifecycleManager.start

    def late_update(self: AclPublisher, *arguments: Any) -> None:
        if "controller" in self.name and not order:
            registering.wait(0.3)  # the time that it took a broker that did not wait to be refused
        update(self, *arguments)
        order.append(self.name)

    def seen_start(self: BrokerLifecycleManager, *arguments: Any, **options: Any) -> None:
        order.append("registration")
        registering.set()
        start(self, *arguments, **options)

    monkeypatch.setattr(AclPublisher, "on_metadata_update", late_update)
    monkeypatch.setattr(BrokerLifecycleManager, "start", seen_start)
    overrides = {
        "authorizer.class.name": f"{StandardAuthorizer.__module__}.{StandardAuthorizer.__name__}",
        "allow.everyone.if.no.acl.found": True,
    }
    with EmbeddedBroker(overrides=overrides):
        pass
    assert order[0] == "AclPublisher controller id=1"
    assert "registration" in order


def test_metadata_outlive_many_starts_on_other_ports(tmp_path: Path) -> None:
    """Each time the controller is on another port, of which the metadata know only the one before."""
    ports = set()
    for number in range(4):
        with EmbeddedBroker(tmp_path) as broker, WireClient(broker.bootstrap_servers) as client:
            client.create_topic(f"topic-{number}")
            assert len(client.metadata().topics) == number + 1
            assert client.produce("topic-0", 0, b"value") == (Errors.NONE, number)
            ports.add(broker.server.shared.controller_nodes())
    assert len(ports) > 1
