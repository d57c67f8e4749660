"""The local socket of secured listeners: the connection keeps its principal, and TLS stays TLS."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas import EmbeddedBroker, KafkaAdminClient, KafkaConsumer, KafkaProducer
from barnabas.network.transport.local.layer import LocalTransportLayer
from secured_node import ALICE, PROTOCOLS, WAIT_S, secured, secured_node, with_certificate

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has abstract names for Unix sockets")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    session = {"listener.name.passwords.plain.connections.max.reauth.ms": "1500"}
    with secured_node(tmp_path_factory.mktemp("local"), session) as running:
        yield running


def connections(node: EmbeddedBroker, listener: str) -> set[tuple[str, bool]]:
    """Returns principal and whether the connection is local, of each connection of a listener."""
    server = node.server.broker
    assert server is not None
    return {
        (str(channel.context.principal), isinstance(channel.transport, LocalTransportLayer))
        for processor in server.processors
        if processor.endpoint.listener_name == listener
        for channel in list(processor.selector.channels.values())
        if channel.context is not None
    }


@pytest.mark.mechanism("A03", "A04")
@pytest.mark.parametrize("listener", PROTOCOLS)
def test_only_authenticated_connections_without_tls_move(node: EmbeddedBroker, tmp_path: Path, listener: str) -> None:
    if listener == "TLS":
        found = secured(node, tmp_path, listener) | with_certificate(tmp_path)
    else:
        found = secured(node, tmp_path, listener, ALICE)
    with KafkaAdminClient(**found) as alice:
        assert "letters" in alice.list_topics()
        assert connections(node, listener) == {("User:alice", listener == "PASSWORDS")}


@pytest.mark.mechanism("A04")
@pytest.mark.parametrize("end", ["broker", "client"])
def test_processes_of_different_users_stay_with_tcp(
    node: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """The name of a local socket is no secret: the system lists those in use."""
    monkeypatch.setattr("barnabas.network.client.client_connections.is_same_user", lambda _sock: end != "client")
    monkeypatch.setattr("barnabas.network.transport.local.server.is_same_user", lambda _sock: end != "broker")
    with KafkaAdminClient(**secured(node, tmp_path, "PASSWORDS", ALICE)) as alice:
        assert "letters" in alice.list_topics()
        assert connections(node, "PASSWORDS") == {("User:alice", False)}


@pytest.mark.mechanism("A09")
def test_a_connection_that_has_moved_authenticates_again(node: EmbeddedBroker, tmp_path: Path) -> None:
    """Records of 512 KiB, which are passed as descriptors, arrive before, during and after."""
    server = node.server.broker
    assert server is not None

    def repeated() -> int:
        return sum(processor.selector.stats.successful_reauthentications for processor in server.processors)

    found = secured(node, tmp_path, "PASSWORDS", ALICE)
    before, sent, received = repeated(), 0, 0
    with KafkaProducer(**found) as producer, KafkaConsumer("letters", auto_offset_reset="earliest", **found) as reader:
        while repeated() < before + 2 or received < sent:
            if repeated() < before + 2:
                producer.send("letters", bytes(1 << 19)).result(WAIT_S)
                sent += 1
            received += sum(len(batch) for batch in reader.poll(timeout_ms=WAIT_S * 1000).values())
        assert connections(node, "PASSWORDS") == {("User:alice", True)}
    assert all(processor.selector.stats.failed_reauthentications == 0 for processor in server.processors)
    assert all(processor.expired_connections_killed == 0 for processor in server.processors)
