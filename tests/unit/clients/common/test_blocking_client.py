"""A client that waits for its responses, and says what went wrong."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from benchmarks.broker_process import free_port

from barnabas import EmbeddedBroker
from barnabas.clients.common.blocking_client import (
    BlockingClient,
    ClientError,
    ConnectionFailedError,
    RequestTimedOutError,
)
from barnabas.common.config_def import ConfigError
from barnabas.network.client.host_resolver import ResolvedAddress, UnknownHostError
from barnabas.network.client.node import Node
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.protocol.messages.vote import VoteRequest


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as started:
        yield started


@contextmanager
def peer(answer: bytes | None) -> Iterator[str]:
    """Something that listens, and answers whoever talks to it with these bytes; with None it says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        stop = threading.Event()

        def run() -> None:
            listening.settimeout(0.05)
            taken = []
            while not stop.is_set():
                try:
                    connection, _ = listening.accept()
                except TimeoutError:
                    continue
                taken.append(connection)
                connection.recv(1_000)
                if answer is not None:
                    connection.sendall(answer)
            for connection in taken:
                connection.close()

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            stop.set()
            thread.join(60)


def test_a_request_that_fails_leaves_no_responses_of_others_behind(broker: EmbeddedBroker) -> None:
    with BlockingClient(broker.bootstrap_servers) as client:
        (node,) = client.nodes().values()
        nowhere = Node(99, "127.0.0.1", free_port())
        with pytest.raises(ConnectionFailedError):
            client.send_all([(node, DescribeClusterRequest()), (nowhere, DescribeClusterRequest())])
        with pytest.raises(ClientError, match="Vote"):
            client.send_all([(node, VoteRequest()), (node, DescribeClusterRequest())])
        assert len(client.send_all([(node, DescribeClusterRequest())] * 2)) == 2
        assert client.is_idle
        assert not client._forgotten


def test_requests_get_a_response_from_any_broker_or_from_one(broker: EmbeddedBroker) -> None:
    with BlockingClient(broker.bootstrap_servers) as client:
        response: DescribeClusterResponse = client.send(DescribeClusterRequest())
        assert response.cluster_id == broker.cluster_id
        nodes = client.nodes()
        assert list(nodes) == [1]
        again: DescribeClusterResponse = client.send(DescribeClusterRequest(), nodes[1])
        assert again.cluster_id == broker.cluster_id


def test_one_of_several_addresses_will_do(broker: EmbeddedBroker) -> None:
    with BlockingClient(f"127.0.0.1:{free_port()}, {broker.bootstrap_servers}") as client:
        assert list(client.nodes()) == [1]


def test_a_lost_connection_is_made_again(broker: EmbeddedBroker) -> None:
    with BlockingClient(broker.bootstrap_servers) as client:
        (node,) = client.nodes().values()
        client.send(DescribeClusterRequest(), node)
        client._client.disconnect(node.id_string)
        assert client.send(DescribeClusterRequest(), node).cluster_id == broker.cluster_id


def test_what_a_broker_does_not_serve_is_named(broker: EmbeddedBroker) -> None:
    with (
        BlockingClient(broker.bootstrap_servers) as client,
        pytest.raises(ClientError, match=r"Vote cannot be sent to .*: the node does not serve Vote"),
    ):
        client.send(VoteRequest())


def test_nobody_listens() -> None:
    port = free_port()
    with BlockingClient(f"127.0.0.1:{port}") as client:
        for _ in range(2):
            with pytest.raises(ConnectionFailedError, match=f"127.0.0.1:{port}: connection refused"):
                client.nodes()


def test_an_unknown_host() -> None:
    def resolver(host: str) -> list[ResolvedAddress]:
        raise UnknownHostError(f"the host name {host!r} cannot be resolved: no such name")

    with (
        BlockingClient("nowhere.example:9092", resolver=resolver) as client,
        pytest.raises(ConnectionFailedError, match=r"'nowhere\.example' cannot be resolved"),
    ):
        client.nodes()


def test_a_web_server() -> None:
    with (
        peer(b"HTTP/1.1 400 Bad Request\r\n\r\n") as address,
        BlockingClient(address) as client,
        pytest.raises(ConnectionFailedError, match="responded in HTTP"),
    ):
        client.nodes()


def test_something_that_says_nothing() -> None:
    with (
        peer(None) as address,
        BlockingClient(address, connect_timeout_ms=1_000) as client,
        pytest.raises(ConnectionFailedError, match="did not send its API versions in time"),
    ):
        client.nodes()


def test_a_response_that_does_not_come() -> None:
    """A peer that tells which versions it has, and nothing after that."""
    serves = ApiVersion(api_key=int(ApiKey.DESCRIBE_CLUSTER), min_version=0, max_version=1)
    body = ApiVersionsResponse(api_keys=[serves]).encode(ApiKey.API_VERSIONS.stable_versions.highest)
    frame = (0).to_bytes(4, "big") + body  # the first correlation id is 0
    with (
        peer(len(frame).to_bytes(4, "big") + frame) as address,
        BlockingClient(address, request_timeout_ms=100) as client,
        pytest.raises(RequestTimedOutError, match="did not respond to DescribeCluster within 100 ms"),
    ):
        client.nodes()


@pytest.mark.parametrize("servers", ["", "nonsense", "host:0", "::1"])
def test_addresses_that_are_none(servers: str) -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        BlockingClient(servers)


def test_a_node_can_be_told_apart_in_the_error() -> None:
    port = free_port()
    with (
        BlockingClient(f"127.0.0.1:{free_port()}") as client,
        pytest.raises(ConnectionFailedError, match=f"127.0.0.1:{port}"),
    ):
        client.send(DescribeClusterRequest(), Node(5, "127.0.0.1", port))
