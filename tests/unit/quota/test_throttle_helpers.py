"""The throttle helpers with real managers behind them (R11): what the client is told, and for how long it is muted."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.common.errors import InvalidRequestError
from barnabas.network.server.response import END_THROTTLING, SEND, START_THROTTLING, ResponseKind
from barnabas.protocol.framing import encode_request
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.envelope import EnvelopeRequest
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.quota.client_quota_manager import ClientQuotaManager
from barnabas.quota.quota_entity import DEFAULT, QuotaEntity
from barnabas.security.principal import KafkaPrincipal, serialize_principal
from barnabas.server.envelope import open_envelope
from barnabas.server.request import Request
from quota_fixtures import QuotaBench

EVERYBODY = QuotaEntity(None, DEFAULT)


def kinds(bench: QuotaBench, request: Request) -> list[ResponseKind]:
    return [response.kind for response in bench.handlers.responses(request)]


def heartbeat(throttle_ms: int) -> HeartbeatResponse:
    return HeartbeatResponse(throttle_time_ms=throttle_ms)


def waiting(*managers: ClientQuotaManager) -> list[int]:
    return [manager.throttled_channels for manager in managers]


def busy_request(bench: QuotaBench, body: Any = None, version: int = 4) -> Request:
    """One that took a handler 200 ms."""
    request = bench.handlers.request(HeartbeatRequest() if body is None else body, version, client_id="client")
    request.request_dequeue_time_ns = bench.clock.nanoseconds()
    bench.clock.advance(200)
    return request


@pytest.mark.mechanism("R11")
@pytest.mark.mechanism("Q05")
def test_the_response_goes_out_at_once_with_the_delay_and_the_client_is_muted_for_it(bench: QuotaBench) -> None:
    bench.managers.request.update_quota(EVERYBODY, 1.0)
    request = busy_request(bench)
    bench.handlers.helper.send_response_maybe_throttle(request, heartbeat)
    # 20 % of a second in 10.2 s make 1.96 %; (1.96 - 1) x 10.2 s would be 9.8 s, but one window is the most.
    assert bench.handlers.answer(request).throttle_time_ms == 1_000
    assert kinds(bench, request) == [START_THROTTLING, SEND]
    assert bench.clock.await_waiters(1)
    bench.clock.advance(1_000)
    while waiting(bench.managers.request) != [0]:
        bench.clock.await_waiters(1)
    while len(kinds(bench, request)) < 3:
        bench.clock.await_waiters(1)
    assert kinds(bench, request) == [START_THROTTLING, SEND, END_THROTTLING]


@pytest.mark.mechanism("R11")
def test_an_error_costs_as_much_as_a_response(bench: QuotaBench) -> None:
    bench.managers.request.update_quota(EVERYBODY, 1.0)
    request = busy_request(bench)
    bench.handlers.helper.handle_error(request, InvalidRequestError("no"))
    assert bench.handlers.answer(request).throttle_time_ms == 1_000
    assert waiting(bench.managers.request) == [1]


@pytest.mark.mechanism("R11")
@pytest.mark.mechanism("Q07")
def test_cluster_traffic_is_never_muted(bench: QuotaBench) -> None:
    bench.managers.request.update_quota(EVERYBODY, 1.0)
    request = busy_request(bench)
    bench.handlers.helper.send_response_exempt_throttle(request, HeartbeatResponse())
    assert kinds(bench, request) == [SEND]
    assert "Request-:client" not in bench.metrics.sensors


@pytest.mark.mechanism("R11")
@pytest.mark.parametrize(("controller_ms", "told_ms"), [(5_000, 5_000), (10, 1_000)])
def test_a_response_of_the_controller_has_the_larger_of_both(
    bench: QuotaBench, controller_ms: int, told_ms: int
) -> None:
    bench.managers.request.update_quota(EVERYBODY, 1.0)
    request = busy_request(bench, CreateTopicsRequest(), 7)
    bench.handlers.helper.send_forwarded_response(request, CreateTopicsResponse(throttle_time_ms=controller_ms))
    assert bench.handlers.answer(request).throttle_time_ms == told_ms
    assert waiting(bench.managers.request) == [1]


def forwarded(bench: QuotaBench, version: int = 7) -> Request:
    """A CreateTopics of alice that came in an Envelope of a broker."""
    envelope = EnvelopeRequest(
        request_data=encode_request(CreateTopicsRequest(), version, 1, "client")[4:],
        request_principal=serialize_principal(KafkaPrincipal("User", "alice")),
        client_host_address=bytes([127, 0, 0, 1]),
    )
    request = open_envelope(busy_request(bench, envelope, 0))
    request.request_dequeue_time_ns = bench.clock.nanoseconds() - 200_000_000
    return request


@pytest.mark.mechanism("R11")
@pytest.mark.mechanism("Q08")
def test_a_forwarded_request_is_charged_to_its_client_told_and_not_muted(bench: QuotaBench) -> None:
    """The broker mutes the client; to mute the broker would hold up everybody."""
    managers = bench.managers
    managers.controller_mutation.update_quota(QuotaEntity("alice"), 1.0)
    managers.request.update_quota(QuotaEntity("alice"), 1.0)
    request = forwarded(bench, 5)
    quota = managers.controller_mutation.new_quota_for(request, 6)
    quota.record(21)
    bench.handlers.helper.send_response_maybe_throttle_with_controller_quota(
        quota, request, lambda throttle_ms: CreateTopicsResponse(throttle_time_ms=throttle_ms)
    )
    assert request.api_throttle_time_ms == 10_000
    assert kinds(bench, request) == [SEND]
    assert waiting(*managers.clients) == [0, 0, 0, 0]
    assert {"ControllerMutation-alice:", "Request-alice:"} <= bench.metrics.sensors.keys()


@pytest.mark.mechanism("R11")
@pytest.mark.parametrize(("permits", "muted"), [(0, "request"), (21, "controller_mutation")])
def test_of_mutations_and_time_the_larger_one_mutes(bench: QuotaBench, permits: int, muted: str) -> None:
    managers = bench.managers
    managers.controller_mutation.update_quota(EVERYBODY, 1.0)
    managers.request.update_quota(EVERYBODY, 1.0)
    request = busy_request(bench, CreateTopicsRequest(), 5)
    quota = managers.controller_mutation.new_quota_for(request, 6)
    quota.record(permits)
    bench.handlers.helper.send_response_maybe_throttle_with_controller_quota(
        quota, request, lambda throttle_ms: CreateTopicsResponse(throttle_time_ms=throttle_ms)
    )
    assert bench.handlers.answer(request).throttle_time_ms == (10_000 if permits else 1_000)
    assert getattr(managers, muted).throttled_channels == 1
    assert sum(waiting(*managers.clients)) == 1
