"""Random, well-formed requests to the coordinators: each gets a response, and nothing is logged with a traceback."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Iterator
from typing import Final

import pytest
from benchmarks.wire_client import WireClient

from barnabas import EmbeddedBroker
from barnabas.clients.producer import KafkaProducer
from barnabas.common.errors import Errors
from barnabas.common.identifiers import Uuid
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from system.coordinator_fuzz import RequestMaker, fuzz

SEED: Final = int(os.environ.get("FUZZ_SEED") or random.randrange(1 << 32))
"""Chosen once, so that a second try of the test after a failure (``conftest.py``) sends the same requests."""

SHORT = {
    # Members and rebalances time out while the requests come, so that their timers are part of it.
    "group.initial.rebalance.delay.ms": 20,
    "group.min.session.timeout.ms": 1,
    "group.max.session.timeout.ms": 2000,
    "group.consumer.min.session.timeout.ms": 50,
    "group.consumer.session.timeout.ms": 300,
    "group.consumer.min.heartbeat.interval.ms": 10,
    "group.consumer.heartbeat.interval.ms": 20,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 50,
}


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(overrides=SHORT) as made:
        yield made


def topic_ids(client: WireClient) -> dict[str, Uuid]:
    client.create_topic("t", 3)
    client.create_topic("t2")
    return {topic.name or "": topic.topic_id for topic in client.metadata(["t", "t2"]).topics}


@pytest.mark.parametrize(
    "count", [pytest.param(2_000, id="2000"), pytest.param(100_000, id="100000", marks=pytest.mark.nightly)]
)
def test_odd_requests(broker: EmbeddedBroker, count: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    print(f"FUZZ_SEED={SEED}")
    host, _, port = broker.bootstrap_servers.rpartition(":")
    with WireClient(broker.bootstrap_servers) as client:
        ids = topic_ids(client)
        outcome = fuzz((host, int(port)), RequestMaker(random.Random(SEED), ids), count)
        assert not outcome.unknown_errors
        assert [record.getMessage() for record in caplog.records if record.exc_info] == []
        assert len(outcome.responses) > 15, "the requests get past the first checks"
        join = JoinGroupRequest(
            group_id="a good group",
            session_timeout_ms=2000,
            rebalance_timeout_ms=2000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range"), JoinGroupRequestProtocol(name="sticky")],
        )
        assert client.ask(join, 3, JoinGroupResponse).error_code == Errors.NONE
    # Not one of those that the markers were for: a marker with a higher coordinator epoch fences the coordinator.
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id="a good id") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send("t", b"a good client")


@pytest.mark.parametrize(
    ("producer_id", "epoch", "version", "error"),
    [
        (7, 0, 1, Errors.NONE),
        (-1, 0, 1, Errors.INVALID_REQUEST),
        (-(2**63), 0, 1, Errors.INVALID_REQUEST),
        (7, -1, 1, Errors.INVALID_PRODUCER_EPOCH),
        (7, -(2**15), 1, Errors.INVALID_PRODUCER_EPOCH),
        (7, 0, -1, Errors.INVALID_REQUEST),
    ],
)
def test_markers_without_a_producer(
    broker: EmbeddedBroker,
    producer_id: int,
    epoch: int,
    version: int,
    error: Errors,
    caplog: pytest.LogCaptureFixture,
) -> None:
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0, 1, 0])],
        transaction_version=version,
    )
    with WireClient(broker.bootstrap_servers) as client:
        topic_ids(client)
        response = client.ask(WriteTxnMarkersRequest(markers=[marker]), 2, WriteTxnMarkersResponse)
    ((topic,),) = (row.topics for row in response.markers)
    assert {row.partition_index: Errors.for_code(row.error_code) for row in topic.partitions} == {0: error, 1: error}
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
