"""Requests in flight: order, limit, time-outs, and what makes bytes the response to a request."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.common.errors import Errors, ProtocolError
from barnabas.network.client.client_request import ClientRequest, ClientResponse
from barnabas.network.client.inflight import FOREVER, CorrelationIdMismatchError, InFlightRequest, InFlightRequests
from barnabas.network.reactor.send import NetworkSend
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.message import Request, Response
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def in_flight(
    correlation_id: int,
    node_id: str = "1",
    *,
    sent_ms: int = 0,
    timeout_ms: int = 100,
    body: Request | None = None,
    version: int = 4,
) -> InFlightRequest:
    request = ClientRequest(
        node_id, HeartbeatRequest() if body is None else body, correlation_id, "test", 0, request_timeout_ms=timeout_ms
    )
    send = NetworkSend([b"bytes"])
    send.remaining = 0
    return InFlightRequest(request, version, send, sent_ms)


def payload(body: Response, version: int, correlation_id: int) -> memoryview:
    return memoryview(b"".join(body.frame_parts(version, correlation_id))[4:])


# -- order and limit


def test_responses_are_for_the_oldest_and_sends_for_the_newest() -> None:
    requests = InFlightRequests(5)
    first, second, third = (in_flight(number) for number in range(3))
    for request in (first, second, third):
        requests.add(request)
    assert requests.next_expected("1") is first
    assert requests.complete_next("1") is first
    assert requests.complete_last_sent("1") is third
    assert requests.complete_next("1") is second
    assert requests.next_expected("1") is None
    assert requests.count() == 0


def test_completing_what_is_not_there_is_a_mistake_of_the_caller() -> None:
    requests = InFlightRequests(5)
    for complete in (requests.complete_next, requests.complete_last_sent):
        with pytest.raises(RuntimeError, match="no request in flight to node 7"):
            complete("7")


def test_no_more_than_the_limit_for_each_node() -> None:
    requests = InFlightRequests(2)
    assert requests.can_send_more("1")
    requests.add(in_flight(1))
    assert requests.can_send_more("1")
    requests.add(in_flight(2))
    assert not requests.can_send_more("1")
    assert requests.can_send_more("2"), "another node has its own"
    requests.complete_next("1")
    assert requests.can_send_more("1")


def test_nothing_more_while_the_newest_is_still_being_sent() -> None:
    requests = InFlightRequests(5)
    requests.add(in_flight(1))
    sending = in_flight(2)
    sending.send.remaining = 3
    requests.add(sending)
    assert not requests.can_send_more("1")
    sending.send.remaining = 0
    assert requests.can_send_more("1")


def test_a_limit_below_one_would_never_send() -> None:
    with pytest.raises(ValueError, match="at least one"):
        InFlightRequests(0)


def test_clearing_a_node_gives_its_requests_in_the_order_they_were_sent() -> None:
    requests = InFlightRequests(5)
    mine = [in_flight(number) for number in range(4)]
    for request in mine:
        requests.add(request)
    requests.add(in_flight(9, "2"))
    assert requests.clear_all("1") == mine
    assert requests.clear_all("1") == []
    assert (requests.count(), requests.count("1"), requests.count("2")) == (1, 0, 1)


# -- time-outs


def test_a_request_is_late_after_its_time_out_not_at_it() -> None:
    requests = InFlightRequests(5)
    requests.add(in_flight(1, sent_ms=1000, timeout_ms=100))
    assert requests.nodes_with_timed_out_requests(1100) == []
    assert requests.time_to_next_timeout_ms(1040) == 61
    assert requests.nodes_with_timed_out_requests(1101) == ["1"]
    assert requests.time_to_next_timeout_ms(1101) == 0


def test_a_newer_request_with_less_patience_counts_as_well() -> None:
    requests = InFlightRequests(5)
    requests.add(in_flight(1, sent_ms=0, timeout_ms=30_000))
    requests.add(in_flight(2, sent_ms=10, timeout_ms=50))
    assert requests.nodes_with_timed_out_requests(61) == ["1"]


def test_time_that_a_node_throttles_is_not_held_against_it() -> None:
    requests = InFlightRequests(5)
    requests.add(in_flight(1, timeout_ms=100))
    requests.increment_throttle_time("1", 40)
    requests.increment_throttle_time("1", 5)
    requests.increment_throttle_time("2", 1000)
    assert requests.nodes_with_timed_out_requests(145) == []
    assert requests.nodes_with_timed_out_requests(146) == ["1"]


def test_nothing_in_flight_never_times_out() -> None:
    requests = InFlightRequests(5)
    requests.add(in_flight(1, timeout_ms=10))
    requests.complete_next("1")
    assert requests.time_to_next_timeout_ms(0) == FOREVER
    requests.add(in_flight(2, timeout_ms=10))
    requests.clear_all("1")
    assert requests.time_to_next_timeout_ms(0) == FOREVER


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("send"), st.sampled_from("123"), st.integers(0, 60)),
            st.tuples(st.just("answer"), st.sampled_from("123"), st.just(0)),
            st.tuples(st.just("throttle"), st.sampled_from("123"), st.integers(1, 30)),
            st.tuples(st.just("clear"), st.sampled_from("123"), st.just(0)),
            st.tuples(st.just("wait"), st.just(""), st.integers(1, 40)),
        ),
        max_size=40,
    )
)
def test_the_short_cut_for_time_outs_never_misses_one(steps: list[tuple[str, str, int]]) -> None:
    """The remembered earliest deadline may be too early but not too late: compared with looking at every request."""
    requests = InFlightRequests(100)
    model: dict[str, list[InFlightRequest]] = {"1": [], "2": [], "3": []}
    now = 0
    for step, node_id, number in steps:
        if step == "send":
            added = in_flight(0, node_id, sent_ms=now, timeout_ms=number)
            requests.add(added)
            model[node_id].append(added)
        elif step == "answer" and model[node_id]:
            assert requests.complete_next(node_id) is model[node_id].pop(0)
        elif step == "throttle":
            requests.increment_throttle_time(node_id, number)
        elif step == "clear":
            assert requests.clear_all(node_id) == model[node_id]
            model[node_id] = []
        elif step == "wait":
            now += number
        late = [node for node, sent in model.items() if any(now > request.deadline_ms for request in sent)]
        soonest = min((r.deadline_ms + 1 - now for sent in model.values() for r in sent), default=FOREVER)
        assert requests.time_to_next_timeout_ms(now) <= max(soonest, 0) or soonest == FOREVER
        assert sorted(requests.nodes_with_timed_out_requests(now)) == late
        assert requests.count() == sum(map(len, model.values()))


# -- answers


@pytest.mark.parametrize("version", [0, 3, 4])
def test_a_response_is_read_in_the_version_of_its_request(version: int) -> None:
    body = HeartbeatResponse(error_code=27, throttle_time_ms=5 if version else 0)
    assert in_flight(8, version=version).decode(payload(body, version, 8)) == body


def test_another_correlation_id_is_a_precise_error() -> None:
    with pytest.raises(CorrelationIdMismatchError) as caught:
        in_flight(8).decode(payload(HeartbeatResponse(), 4, 7))
    assert "correlation id 7" in str(caught.value)
    assert "has to be 8 for Heartbeat v4" in str(caught.value)


def test_tagged_fields_of_a_later_header_are_stepped_over() -> None:
    plain = bytes(payload(HeartbeatResponse(error_code=27), 4, 8))
    tagged = plain[:4] + b"\x01\x05\x02hi" + plain[5:]
    assert in_flight(8).decode(memoryview(tagged)) == HeartbeatResponse(error_code=27)


@given(st.binary(max_size=80), st.integers(0, 4))
def test_any_bytes_are_a_response_or_a_protocol_error(data: bytes, version: int) -> None:
    request = in_flight(0, version=version)
    for bytes_after_id in (data, bytes(4) + data):
        with contextlib.suppress(ProtocolError):
            assert isinstance(request.decode(memoryview(bytes_after_id)), HeartbeatResponse)


@pytest.mark.parametrize("rows", [[], [ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=3)]])
def test_a_refused_api_versions_request_gets_a_response_in_version_0(rows: list[ApiVersion]) -> None:
    refusal = ApiVersionsResponse(error_code=Errors.UNSUPPORTED_VERSION, api_keys=rows)
    request = in_flight(3, body=ApiVersionsRequest(), version=5)
    assert request.decode(payload(refusal, 0, 3)) == refusal


def test_a_refusal_in_the_refused_version_is_understood_as_well() -> None:
    refusal = ApiVersionsResponse(
        error_code=Errors.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=ApiKey.API_VERSIONS, max_version=2)],
    )
    request = in_flight(3, body=ApiVersionsRequest(), version=5)
    assert request.decode(payload(refusal, 5, 3)) == refusal


def test_a_response_that_timed_out_is_disconnected_too() -> None:
    request = in_flight(1).request
    with pytest.raises(ValueError, match="lost its connection"):
        ClientResponse(request, 4, 0, timed_out=True)
    assert "timed out" in repr(ClientResponse(request, 4, 0, timed_out=True, disconnected=True))
