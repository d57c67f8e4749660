"""Answers and throttles: who is told how long to wait, and whose connection is muted."""

from __future__ import annotations

import logging
import weakref
from dataclasses import dataclass, field

import pytest

from barnabas.common.errors import (
    ApiError,
    ClusterAuthorizationError,
    Errors,
    InvalidRequestError,
    ProtocolError,
    TopicAuthorizationError,
)
from barnabas.metrics.names import MBeanName
from barnabas.network.server.response import CLOSE_CONNECTION, END_THROTTLING, SEND, START_THROTTLING
from barnabas.protocol.framing import encode_request
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.envelope import EnvelopeRequest
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.protocol.messages.write_txn_markers import WritableTxnMarker, WriteTxnMarkersRequest
from barnabas.security.authorizer import AuthorizerNotReadyError
from barnabas.security.principal import ANONYMOUS, serialize_principal
from barnabas.server.envelope import open_envelope
from barnabas.server.request import Request
from barnabas.server.throttling import UNLIMITED_BANDWIDTH, ClientQuota, ThrottleCallback
from handler_fixtures import FakeQuota, HandlerBench
from network_fixtures import request_from

pytestmark = pytest.mark.mechanism("R11")


@dataclass
class Quotas:
    request: FakeQuota = field(default_factory=FakeQuota)
    controller_mutation: FakeQuota = field(default_factory=FakeQuota)
    produce: ClientQuota = UNLIMITED_BANDWIDTH
    fetch: ClientQuota = UNLIMITED_BANDWIDTH


@pytest.fixture
def quotas() -> Quotas:
    return Quotas()


@pytest.fixture
def bench(quotas: Quotas) -> HandlerBench:
    return HandlerBench(quotas)


def heartbeat_response(throttle_ms: int) -> HeartbeatResponse:
    return HeartbeatResponse(throttle_time_ms=throttle_ms)


def kinds(bench: HandlerBench, request: Request) -> list[object]:
    return [response.kind for response in bench.responses(request)]


def test_without_a_violation_nobody_waits(bench: HandlerBench, quotas: Quotas) -> None:
    request = bench.request(HeartbeatRequest(), 4)
    bench.helper.send_response_maybe_throttle(request, heartbeat_response)
    assert bench.answer(request).throttle_time_ms == 0
    assert kinds(bench, request) == [SEND]
    assert not quotas.request.throttled


def test_a_violation_is_told_and_enforced(bench: HandlerBench, quotas: Quotas) -> None:
    quotas.request.throttle_time_ms = 250
    request = bench.request(HeartbeatRequest(), 4)
    bench.helper.send_response_maybe_throttle(request, heartbeat_response)
    assert bench.answer(request).throttle_time_ms == 250
    assert quotas.request.throttled == [(request, 250)]
    assert request.api_throttle_time_ms == 250
    assert kinds(bench, request) == [START_THROTTLING, SEND], "the answer is not held back"
    quotas.request.callbacks[0].end_throttling()
    assert kinds(bench, request)[-1] == END_THROTTLING


class Frame(bytearray):
    """A received request that can be referred to weakly."""


class PatientQuota:
    """Throttles for a long time."""

    def __init__(self) -> None:
        self.callbacks: list[ThrottleCallback] = []

    def throttle(self, _request: Request, callback: ThrottleCallback, _throttle_time_ms: int) -> None:
        callback.start_throttling()
        self.callbacks.append(callback)


def test_a_throttled_client_does_not_keep_its_request_in_memory(bench: HandlerBench) -> None:
    """The throttle time can be days, and the client may be gone: its records must not stay that long."""
    topics = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=bytes(1_000))])]
    frame = Frame(encode_request(ProduceRequest(acks=1, timeout_ms=0, topic_data=topics), 9, 7, "test"))
    request = request_from(frame, bench.times)
    assert isinstance(request.body, ProduceRequest)
    quota = PatientQuota()
    bench.helper.throttle(quota, request, 86_400_000)
    bench.helper.send(request, ProduceResponse())
    received = weakref.ref(frame)
    request.release_buffer()
    del request, frame
    assert [bench.processor.next_response().kind for _ in range(2)] == [START_THROTTLING, SEND]
    assert received() is None
    quota.callbacks[0].end_throttling()
    response = bench.processor.next_response()
    assert (response.kind, response.request.connection_id) == (END_THROTTLING, "c")


def test_cluster_traffic_is_counted_and_never_throttled(bench: HandlerBench, quotas: Quotas) -> None:
    quotas.request.throttle_time_ms = 250
    request = bench.request(HeartbeatRequest(), 4)
    bench.helper.send_response_exempt_throttle(request, HeartbeatResponse())
    assert quotas.request.exempt == [request]
    assert kinds(bench, request) == [SEND]


def test_no_response_is_counted_as_exempt(bench: HandlerBench, quotas: Quotas) -> None:
    request = bench.request(HeartbeatRequest(), 4)
    bench.helper.send_no_op_response_exempt_throttle(request)
    assert quotas.request.exempt == [request]
    assert bench.had_no_answer(request)


def forwarded(bench: HandlerBench) -> Request:
    """A request that came in an Envelope."""
    envelope = EnvelopeRequest(
        request_data=encode_request(CreateTopicsRequest(), 7, 1, "client")[4:],
        request_principal=serialize_principal(ANONYMOUS),
        client_host_address=bytes([127, 0, 0, 1]),
    )
    return open_envelope(bench.request(envelope, 0))


@pytest.mark.mechanism("R10")
def test_a_forwarded_request_is_told_but_not_muted(bench: HandlerBench, quotas: Quotas) -> None:
    quotas.request.throttle_time_ms = 250
    request = forwarded(bench)
    told: list[int] = []

    def create(throttle_ms: int) -> CreateTopicsResponse:
        told.append(throttle_ms)
        return CreateTopicsResponse(throttle_time_ms=throttle_ms)

    bench.helper.send_response_maybe_throttle(request, create)
    assert told == [250]
    assert not quotas.request.throttled


@pytest.mark.parametrize(("controller_ms", "local_ms", "total"), [(0, 0, 0), (300, 100, 300), (100, 300, 300)])
def test_a_response_of_the_controller_has_the_larger_throttle(
    bench: HandlerBench, quotas: Quotas, controller_ms: int, local_ms: int, total: int
) -> None:
    quotas.request.throttle_time_ms = local_ms
    request = bench.request(CreateTopicsRequest(), 7)
    bench.helper.send_forwarded_response(request, CreateTopicsResponse(throttle_time_ms=controller_ms))
    assert bench.answer(request).throttle_time_ms == total
    assert quotas.request.throttled == ([(request, total)] if total else [])


@pytest.mark.parametrize(("mutation_ms", "request_ms"), [(0, 0), (500, 100), (100, 500)])
def test_of_two_quotas_the_larger_one_throttles(
    bench: HandlerBench, quotas: Quotas, mutation_ms: int, request_ms: int
) -> None:
    class Mutation:
        throttle_time_ms = mutation_ms
        is_exceeded = mutation_ms > 0

        def record(self, permits: float) -> None: ...

    quotas.request.throttle_time_ms = request_ms
    request = bench.request(CreateTopicsRequest(), 7)
    bench.helper.send_response_maybe_throttle_with_controller_quota(
        Mutation(), request, lambda throttle_ms: CreateTopicsResponse(throttle_time_ms=throttle_ms)
    )
    assert bench.answer(request).throttle_time_ms == max(mutation_ms, request_ms)
    assert [ms for _, ms in quotas.controller_mutation.throttled] == ([mutation_ms] if mutation_ms > request_ms else [])
    assert [ms for _, ms in quotas.request.throttled] == ([request_ms] if request_ms > mutation_ms else [])


@pytest.mark.mechanism("R12")
def test_an_error_is_a_response_with_its_code(bench: HandlerBench) -> None:
    request = bench.request(HeartbeatRequest(), 4)
    bench.helper.handle_error(request, InvalidRequestError("no"))
    assert bench.answer(request).error_code == Errors.INVALID_REQUEST
    meter = bench.registry.get(
        MBeanName(
            "kafka.network", "RequestMetrics", "ErrorsPerSec", {"request": "Heartbeat", "error": "INVALID_REQUEST"}
        )
    )
    assert meter is not None


@pytest.mark.parametrize(
    ("error", "is_bug"),
    [
        (InvalidRequestError("no"), False),
        (AuthorizerNotReadyError("not yet"), False),
        (ApiError("of no code"), True),
        (KeyError("no"), True),
    ],
)
def test_only_a_bug_of_ours_is_an_error_in_the_log(
    bench: HandlerBench, caplog: pytest.LogCaptureFixture, error: Exception, is_bug: bool
) -> None:
    caplog.set_level(logging.INFO)
    request = bench.request(HeartbeatRequest(), 4)
    bench.helper.handle_error(request, error)
    (record,) = caplog.records
    assert (record.levelno == logging.ERROR, record.exc_info is not None) == (is_bug, is_bug)
    expected = Errors.INVALID_REQUEST if isinstance(error, InvalidRequestError) else Errors.UNKNOWN_SERVER_ERROR
    assert bench.answer(request).error_code == expected


@pytest.mark.mechanism("R12")
def test_an_error_where_no_response_is_expected_closes_the_connection(bench: HandlerBench) -> None:
    data = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=b"x")])]
    request = bench.request(ProduceRequest(acks=0, topic_data=data), 9)
    bench.helper.handle_error(request, TopicAuthorizationError("no"))
    assert kinds(bench, request) == [CLOSE_CONNECTION]


@pytest.mark.mechanism("R13")
def test_a_body_that_cannot_be_read_closes_the_connection_with_one_line(
    bench: HandlerBench, caplog: pytest.LogCaptureFixture
) -> None:
    request = bench.request(HeartbeatRequest(), 4)
    bench.helper.handle_error(request, ProtocolError("a string of 2 GB at byte 7"))
    assert kinds(bench, request) == [CLOSE_CONNECTION]
    (record,) = caplog.records
    assert "a string of 2 GB at byte 7" in record.getMessage()
    assert record.exc_info is None


def test_errors_between_nodes_are_exempt_unless_it_was_no_node(bench: HandlerBench, quotas: Quotas) -> None:
    quotas.request.throttle_time_ms = 100
    body = WriteTxnMarkersRequest(markers=[WritableTxnMarker(producer_id=1)])
    request = bench.request(body, 1)
    bench.helper.handle_error(request, InvalidRequestError("no"))
    assert quotas.request.exempt == [request]
    assert not quotas.request.throttled
    stranger = bench.request(body, 1)
    bench.helper.handle_error(stranger, ClusterAuthorizationError("who are you"))
    assert quotas.request.throttled == [(stranger, 100)]
