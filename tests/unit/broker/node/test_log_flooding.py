"""What a client can do to the log of a broker, which here is that of the process it is embedded in."""

from __future__ import annotations

import io
import logging
import socket
import threading
from collections.abc import Iterator

import pytest
from benchmarks.wire_client import WireClient

from barnabas import EmbeddedBroker
from barnabas.broker.node import broker_server
from barnabas.common.log_safety import LINES
from barnabas.protocol.framing import encode_request
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.protocol.messages.metadata import MetadataRequest

LIMIT_S = 60
MARK = "Closing connection"
FORGED = "x\nERROR the disk is gone\x1b[2J\u2028\u202e"


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s [%(name)s] %(message)s"))
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield stream
    finally:
        root.setLevel(level)
        root.removeHandler(handler)


@pytest.fixture
def broker(log: io.StringIO) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as started:
        yield started


def test_names_of_clients_cannot_forge_a_line_nor_fill_the_log(broker: EmbeddedBroker, log: io.StringIO) -> None:
    with WireClient(broker.bootstrap_servers) as client:
        for name in (FORGED, "y" * 30_000 + FORGED):
            topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1)]
            client.ask(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 4, CreateTopicsResponse)
            client.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=60_000), 3, DeleteTopicsResponse)
            resource = AlterConfigsResource(
                resource_type=2,
                resource_name=name,
                configs=[AlterableConfig(name=name, config_operation=0, value=name)],
            )
            client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 0, IncrementalAlterConfigsResponse)
    written = log.getvalue()
    assert "the disk is gone" in written
    assert not {"\x1b", "\u2028", "\u202e"} & set(written)
    for line in written.splitlines():
        assert line.startswith(("INFO [barnabas.", "WARNING [barnabas.", "ERROR [barnabas.", "  "))
        assert len(line) < 4_000


def test_bad_requests_are_counted_and_not_logged_one_by_one(broker: EmbeddedBroker, log: io.StringIO) -> None:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    frame = bytearray(encode_request(MetadataRequest(topics=None), 8, 1, "z"))
    # An array of topics with a length that the request does not have.
    frame[-7:-3] = b"\x7f\xff\xff\xff"
    for _ in range(10 * LINES):
        with socket.create_connection((host, int(port)), timeout=LIMIT_S) as connection:
            connection.sendall(frame)
            assert connection.recv(1) == b""
    written = [line for line in log.getvalue().splitlines() if MARK in line]
    assert 1 <= len(written) <= LINES + 1, written[:3]


def test_a_broker_reports_the_counts_from_time_to_time(monkeypatch: pytest.MonkeyPatch) -> None:
    reported = threading.Event()
    monkeypatch.setattr(broker_server, "report_suppressed", reported.set)
    monkeypatch.setattr(broker_server, "LOG_WINDOW_MS", 10)
    with EmbeddedBroker():
        assert reported.wait(LIMIT_S)
