"""Envelopes: what goes into them, and what comes out (R10)."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.handlers.forwarded import BARE_FORWARDED, ForwardedHandler
from barnabas.broker.to_controller.forwarding_manager import ForwardingManager
from barnabas.common.errors import Errors, ProtocolError
from barnabas.protocol.api_keys import ApiKey, Scope, Trait
from barnabas.protocol.framing import encode_response
from barnabas.protocol.message import Response
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from barnabas.security.principal import KafkaPrincipal
from barnabas.server.dispatch import handlers_of
from barnabas.server.envelope import open_envelope
from barnabas.server.request import Request
from barnabas.server.throttling import NO_QUOTAS, QuotaManagers
from controller_channel_fixtures import FakeControllerChannel, SentRequest
from handler_fixtures import FakeQuota, HandlerBench

ALICE = KafkaPrincipal("User", "alice", token_authenticated=True)
CREATE = CreateTopicsRequest(topics=[CreatableTopic(name="orders", num_partitions=3, replication_factor=1)])


class Quotas:
    """A request quota to play with."""

    def __init__(self, throttle_time_ms: int) -> None:
        self.request = FakeQuota(throttle_time_ms)
        self.controller_mutation = NO_QUOTAS.controller_mutation
        self.produce = NO_QUOTAS.produce
        self.fetch = NO_QUOTAS.fetch


class Bench(HandlerBench):
    def __init__(self, quotas: QuotaManagers = NO_QUOTAS) -> None:
        super().__init__(quotas)
        self.controller = FakeControllerChannel(self.clock)
        self.forwarding = ForwardingManager(self.controller, self.registry, self.clock)
        self.family = ForwardedHandler(self.helper, self.forwarding)

    def forward(self, body: Any = CREATE, version: int = 7) -> tuple[Request, SentRequest]:
        request = self.request(body, version, principal=ALICE, client_id="me", correlation_id=77)
        self.handle(self.family, request)
        return request, self.controller.take()


def envelope_of(request: Request, response: Response) -> EnvelopeResponse:
    """As the controller wraps a response."""
    frame = encode_response(response, request.api_version, request.correlation_id)
    return EnvelopeResponse(response_data=frame[4:])


@pytest.mark.mechanism("R10")
def test_the_controller_gets_the_very_bytes_with_the_principal_and_the_address_of_the_client() -> None:
    b = Bench()
    request = b.request(CREATE, 7, principal=ALICE, client_id="me", correlation_id=77)
    original = bytes(request.buffer or b"")
    b.handle(b.family, request)
    sent: EnvelopeRequest = b.controller.take().body
    assert sent.request_data == original
    assert sent.client_host_address == bytes([127, 0, 0, 1])
    # As the controller opens it:
    inner = open_envelope(b.request(sent, 0))
    assert inner.request_context.principal == ALICE
    assert inner.request_context.principal.token_authenticated
    assert inner.request_context.client_address == "127.0.0.1"
    assert (inner.client_id, inner.correlation_id, inner.api_version) == ("me", 77, 7)
    assert inner.body == CREATE


@pytest.mark.parametrize("version", [4, 7], ids=["fixed header", "flexible header"])
def test_the_response_inside_comes_back_in_the_version_of_the_client(version: int) -> None:
    b = Bench()
    request, sent = b.forward(version=version)
    answer = CreateTopicsResponse(topics=[CreatableTopicResult(name="orders", error_code=36)])
    sent.answer(envelope_of(request, answer))
    assert [(topic.name, topic.error_code) for topic in b.answer(request).topics] == [("orders", 36)]


def test_another_body_goes_out_under_the_original_header() -> None:
    b = Bench()
    request = b.request(CREATE, 6, principal=ALICE, client_id="me", correlation_id=78)
    answers: list[Response | None] = []
    changed = CreateTopicsRequest(topics=[CreatableTopic(name="other", num_partitions=1, replication_factor=1)])
    b.forwarding.forward_request(request, answers.append, changed)
    inner = open_envelope(b.request(b.controller.take().body, 0))
    assert inner.body == changed
    assert (inner.client_id, inner.correlation_id, inner.api_version) == ("me", 78, 6)


def test_a_request_waits_for_the_controller_as_bytes() -> None:
    """49,000 topics take 10 MB when decoded, and each connection can have a request with the controller."""
    b = Bench()
    request = b.request(CREATE, 7)
    decoded = request.body
    b.handle(b.family, request)
    assert request.buffer is None
    assert request.body == CREATE, "an error response needs it"
    assert request.body is not decoded


def test_a_request_that_cannot_be_decoded_does_not_reach_the_controller() -> None:
    b = Bench()
    request = b.request(CREATE, 7)
    assert request.buffer is not None
    request.buffer = request.buffer[:-5]
    with pytest.raises(ProtocolError):
        b.handle(b.family, request)
    assert not b.controller.sent


@pytest.mark.mechanism("R10")
def test_a_version_that_the_controller_does_not_speak_closes_the_connection() -> None:
    b = Bench()
    request, sent = b.forward()
    sent.answer(EnvelopeResponse(error_code=Errors.UNSUPPORTED_VERSION))
    assert b.was_closed(request)
    assert not b.is_answered(request)


@pytest.mark.parametrize("error", [Errors.CLUSTER_AUTHORIZATION_FAILED, Errors.PRINCIPAL_DESERIALIZATION_FAILURE])
def test_what_is_wrong_with_the_envelope_is_no_business_of_the_client(error: Errors) -> None:
    b = Bench()
    request, sent = b.forward()
    sent.answer(EnvelopeResponse(error_code=error))
    assert [topic.error_code for topic in b.answer(request).topics] == [Errors.UNKNOWN_SERVER_ERROR]


@pytest.mark.parametrize("how", ["refuse", "mismatch"])
def test_a_controller_that_cannot_be_asked_is_an_unknown_server_error(how: str) -> None:
    b = Bench()
    request, sent = b.forward()
    getattr(sent, how)()
    assert [topic.error_code for topic in b.answer(request).topics] == [Errors.UNKNOWN_SERVER_ERROR]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data[:2],
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: b"\0\0\0\1" + data[4:],
        lambda _data: None,
    ],
    ids=["no header", "cut off", "too long", "for another request", "empty"],
)
def test_a_response_that_cannot_be_read_is_an_unknown_server_error(spoil: Any) -> None:
    b = Bench()
    request, sent = b.forward()
    envelope = envelope_of(request, CreateTopicsResponse(topics=[CreatableTopicResult(name="orders")]))
    envelope.response_data = spoil(envelope.response_data)
    sent.answer(envelope)
    assert [topic.error_code for topic in b.answer(request).topics] == [Errors.UNKNOWN_SERVER_ERROR]


def test_a_request_that_takes_too_long_gets_a_response_with_a_timeout() -> None:
    b = Bench()
    request, sent = b.forward(ListPartitionReassignmentsRequest(topics=None), 0)
    sent.time_out()
    assert b.answer(request).error_code == Errors.REQUEST_TIMED_OUT


@pytest.mark.mechanism("R10")
@pytest.mark.parametrize(("said", "own", "expected"), [(300, 100, 300), (100, 300, 300), (0, 0, 0), (200, 0, 200)])
def test_a_forwarded_request_is_throttled_once_for_the_longer_of_both(said: int, own: int, expected: int) -> None:
    quotas = Quotas(own)
    b = Bench(quotas)
    request, sent = b.forward(ListPartitionReassignmentsRequest(topics=None), 0)
    sent.answer(envelope_of(request, ListPartitionReassignmentsResponse(throttle_time_ms=said)))
    assert b.answer(request).throttle_time_ms == expected
    assert [time for _, time in quotas.request.throttled] == ([expected] if expected else [])


def test_the_metrics_tell_where_the_time_goes() -> None:
    b = Bench()
    metrics = b.forwarding.metrics
    b.clock.advance(20)
    request, sent = b.forward()
    assert metrics.queue_length == 1
    b.clock.advance(30)
    sent.answer(envelope_of(request, CreateTopicsResponse()))
    assert metrics.queue_length == 0
    assert metrics.remote_time_ms.snapshot().max == 30
    assert metrics.queue_time_ms.snapshot().max == 20
    _, sent = b.forward()
    sent.time_out()
    assert metrics.queue_length == 0
    assert metrics.queue_time_ms.snapshot().max == b.controller.retry_timeout_ms
    names = {str(name) for name in b.registry.metrics if name.type == "ForwardingManager"}
    assert names == {
        f"kafka.server:type=ForwardingManager,name={name}" for name in ("QueueTimeMs", "RemoteTimeMs", "QueueLength")
    }
    b.forwarding.close()
    assert not any(name.type == "ForwardingManager" for name in b.registry.metrics)


def test_everything_that_is_forwarded_may_be() -> None:
    assert set(handlers_of(Bench().family)) == set(BARE_FORWARDED)
    for key in BARE_FORWARDED:
        assert Trait.FORWARDABLE in key.traits
        assert key.scope is Scope.BOTH
    assert ApiKey.INCREMENTAL_ALTER_CONFIGS not in BARE_FORWARDED
