"""A request inside the broker: its body, its buffer, its end."""

from __future__ import annotations

import pytest

from barnabas.common.clock import MockClock
from barnabas.common.errors import ProtocolError
from barnabas.metrics.yammer.registry import MetricsRegistry
from barnabas.network.reactor.memory_pool import SimpleMemoryPool
from barnabas.network.server.response import NO_OP, NetworkResponse
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.server.request_metrics import RequestTimes
from network_fixtures import heartbeat, request_from


@pytest.fixture
def times() -> RequestTimes:
    clock = MockClock()
    return RequestTimes(MetricsRegistry(clock), clock)


@pytest.mark.mechanism("N12")
def test_the_body_is_decoded_when_it_is_asked_for_and_once(times: RequestTimes) -> None:
    request = request_from(heartbeat(5), times)
    assert request._body is None
    assert isinstance(request.body, HeartbeatRequest)
    assert request.body.generation_id == 5
    assert request.body is request.body
    request.release_buffer()
    assert request.body.generation_id == 5, "what was decoded stays"


@pytest.mark.mechanism("N12")
def test_a_body_that_cannot_be_decoded_is_a_protocol_error(times: RequestTimes) -> None:
    frame = heartbeat(5)
    request = request_from(frame[:-3], times)
    with pytest.raises(ProtocolError):
        _ = request.body


@pytest.mark.mechanism("N12")
def test_a_body_cannot_be_read_from_a_buffer_that_was_given_back(times: RequestTimes) -> None:
    request = request_from(heartbeat(5), times)
    request.release_buffer()
    with pytest.raises(ProtocolError, match="released before the body was decoded"):
        _ = request.body


@pytest.mark.mechanism("N07")
def test_a_buffer_is_given_back_once(times: RequestTimes) -> None:
    pool = SimpleMemoryPool(1000, 1000)
    frame = heartbeat(5)
    pool.try_reserve(len(frame) - 4)
    request = request_from(frame, times, pool=pool)
    view = request.buffer
    assert view is not None
    for _ in range(3):
        request.release_buffer()
        assert pool.available == 1000
    assert request.size == len(frame) - 4
    assert bytes(view) == frame[4:], "who still has a view can still use it"


@pytest.mark.mechanism("N07")
def test_a_buffer_that_is_held_stays_counted_until_it_is_released(times: RequestTimes) -> None:
    """A request that waits for a slow log directory has its handler return before its records are written."""
    pool = SimpleMemoryPool(1000, 1000)
    frame = heartbeat(5)
    pool.try_reserve(len(frame) - 4)
    request = request_from(frame, times, pool=pool)
    release = request.hold_buffer()
    request.handler_done(lambda: 1)
    assert pool.available == 1000 - (len(frame) - 4)
    assert isinstance(request.body, HeartbeatRequest), "errors are answered in its shape"
    release()
    assert pool.available == 1000
    request.handler_done(lambda: 1)
    assert pool.available == 1000


@pytest.mark.mechanism("N20")
def test_the_time_of_the_network_thread_goes_to_whoever_asked_for_it(times: RequestTimes) -> None:
    told: list[int] = []
    request = request_from(heartbeat(1), times)
    response = NetworkResponse(NO_OP, request)
    request.complete(500, response)
    request.record_network_thread_time = told.append
    request.complete(0, response)
    request.complete(700, response)
    assert told == [700]


@pytest.mark.mechanism("N20")
def test_a_request_says_what_it_is(times: RequestTimes) -> None:
    request = request_from(heartbeat(5, client_id=None), times)
    assert repr(request) == "Request(Heartbeat v4, correlation id 5, client None, connection c)"
    assert repr(NetworkResponse(NO_OP, request)) == f"NetworkResponse(NO_OP, {request!r})"
    assert not request.is_forwarded
