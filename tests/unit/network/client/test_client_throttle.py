"""KIP-219: a client that is throttled holds back for as long as the broker says."""

from __future__ import annotations

import pytest

from barnabas.metrics.registry import Metrics
from barnabas.metrics.stats import Avg, Max
from barnabas.network.client.client_throttle import should_client_throttle
from barnabas.network.client.inflight import FOREVER
from barnabas.network.client.metadata_updater import ManualMetadataUpdater
from barnabas.network.client.network_client import NetworkClient
from barnabas.network.client.node_connection import ConnectionState
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.message import Request, Response
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.produce import ProduceRequest, ProduceResponse
from unit.network.client.client_doubles import NODE, OTHER, Harness, all_versions, one_address

pytestmark = pytest.mark.mechanism("P15")

SINCE = {
    "Produce": 6,
    "Fetch": 8,
    "ListOffsets": 3,
    "Metadata": 6,
    "OffsetCommit": 4,
    "OffsetFetch": 4,
    "FindCoordinator": 2,
    "JoinGroup": 3,
    "Heartbeat": 2,
    "LeaveGroup": 2,
    "SyncGroup": 2,
    "ApiVersions": 2,
    "CreateTopics": 3,
    "DeleteTopics": 2,
    "InitProducerId": 1,
    "AddPartitionsToTxn": 1,
    "EndTxn": 1,
    "DescribeConfigs": 2,
    "ElectLeaders": 0,
    "DescribeCluster": 0,
}


@pytest.mark.parametrize("api_key", list(ApiKey), ids=lambda key: key.title)
def test_the_version_says_whether_the_throttle_time_lies_ahead(api_key: ApiKey) -> None:
    if api_key.title in SINCE:
        for version in range(api_key.versions.highest + 1):
            assert should_client_throttle(api_key, version) == (version >= SINCE[api_key.title])
    assert should_client_throttle(api_key, api_key.versions.highest), "the newest version always means it so"


CASES: list[tuple[Request, Response, int]] = [
    (ProduceRequest(acks=1), ProduceResponse(throttle_time_ms=300), 6),
    (FetchRequest(), FetchResponse(throttle_time_ms=300), 8),
    (MetadataRequest(topics=[]), MetadataResponse(throttle_time_ms=300), 6),
]


@pytest.mark.parametrize(("request_body", "response_body", "since"), CASES)
@pytest.mark.parametrize("offset", [-1, 0])
def test_a_throttled_client_holds_back(request_body: Request, response_body: Response, since: int, offset: int) -> None:
    harness = Harness()
    version = since + offset
    harness.make_ready(versions=all_versions(**{request_body.api_key.name: (version, version)}))
    harness.send(request_body)
    harness.answer(harness.selector.sent.popleft(), response_body)
    (response,) = harness.poll()
    assert response.api_version == version
    if offset < 0:
        assert harness.ready(), "an old broker has throttled already, and tells afterwards"
        return
    assert not harness.ready()
    assert not harness.client.has_ready_nodes(harness.now)
    assert harness.client.throttle_delay_ms(NODE, harness.now) == 300
    assert harness.client.poll_delay_ms(NODE, harness.now) == 300
    with pytest.raises(RuntimeError, match="not ready"):
        harness.send(request_body)
    harness.clock.advance(299)
    assert not harness.ready()
    assert harness.client.poll_delay_ms(NODE, harness.now) == 1
    harness.clock.advance(1)
    assert harness.ready()
    assert harness.client.poll_delay_ms(NODE, harness.now) == FOREVER
    assert len(harness.selector.attempts) == 1, "the connection stays as it is"


def test_only_the_node_that_throttles_is_spared() -> None:
    harness = Harness()
    harness.make_ready()
    harness.make_ready(OTHER)
    harness.send(HeartbeatRequest())
    harness.answer(harness.selector.sent.popleft(), HeartbeatResponse(throttle_time_ms=300))
    harness.poll()
    assert not harness.ready()
    assert harness.ready(OTHER)
    chosen = harness.client.least_loaded_node(harness.now)
    assert chosen.node == OTHER


def test_requests_in_flight_have_so_much_longer() -> None:
    """The node does not read them meanwhile: that it does not answer them either is no reason to disconnect."""
    harness = Harness(request_timeout_ms=1000)
    harness.make_ready()
    harness.send(HeartbeatRequest())
    harness.send(HeartbeatRequest())
    harness.answer(harness.selector.sent.popleft(), HeartbeatResponse(throttle_time_ms=5000))
    assert len(harness.poll()) == 1
    harness.clock.advance(6000)
    assert harness.poll() == []
    harness.clock.advance(1)
    (late,) = harness.poll()
    assert late.timed_out


def test_the_longest_of_several_throttle_times_counts() -> None:
    harness = Harness()
    harness.make_ready()
    for _ in range(2):
        harness.send(HeartbeatRequest())
    for throttle_ms in (300, 100):
        harness.answer(harness.selector.sent.popleft(), HeartbeatResponse(throttle_time_ms=throttle_ms))
        harness.poll()
    assert harness.client.throttle_delay_ms(NODE, harness.now) == 300


@pytest.mark.parametrize("throttle_ms", [0, -5])
def test_no_throttle_time_no_waiting(throttle_ms: int) -> None:
    harness = Harness()
    harness.make_ready()
    harness.send(HeartbeatRequest())
    harness.answer(harness.selector.sent.popleft(), HeartbeatResponse(throttle_time_ms=throttle_ms))
    harness.poll()
    assert harness.ready()


def test_the_first_response_can_throttle_as_well() -> None:
    harness = Harness()
    versions = all_versions()
    versions.throttle_time_ms = 40
    harness.answer(harness.connect(), versions)
    harness.poll()
    assert harness.client.connection_state("1") is ConnectionState.READY
    assert not harness.ready()
    harness.clock.advance(40)
    assert harness.ready()


def test_throttle_times_are_measured() -> None:
    harness = Harness()
    metrics = Metrics(clock=harness.clock)
    sensor = metrics.sensor("throttle-time")
    average, most = (metrics.metric_name(f"throttle-time-{kind}", "test") for kind in ("avg", "max"))
    sensor.add(average, Avg())
    sensor.add(most, Max())
    harness.client = NetworkClient(
        harness.selector,
        ManualMetadataUpdater([NODE]),
        clock=harness.clock,
        resolver=one_address,
        throttle_time_sensor=sensor,
    )
    harness.make_ready()
    harness.send(HeartbeatRequest())
    harness.answer(harness.selector.sent.popleft(), HeartbeatResponse(throttle_time_ms=300))
    harness.poll()
    assert metrics.metrics[average].value() == 150, "those of all answers, the first included"
    assert metrics.metrics[most].value() == 300
