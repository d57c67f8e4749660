"""The network client, step by step over a scripted selector: connections, requests, answers, time-outs, the end."""

from __future__ import annotations

import logging
import socket
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.common.errors import ProtocolError, SaslAuthenticationError, UnsupportedVersionError
from barnabas.network.client.client_config import NetworkClientConfig
from barnabas.network.client.client_request import ClientResponse
from barnabas.network.client.host_resolver import ResolvedAddress, UnknownHostError
from barnabas.network.client.network_client import DisconnectError
from barnabas.network.client.node import NO_NODE, Node
from barnabas.network.client.node_connection import ConnectionState
from barnabas.network.reactor.channel import ChannelState
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.message import Request
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.produce import ProduceRequest, ProduceResponse
from barnabas.protocol.versions import VersionRange
from unit.network.client.client_doubles import NODE, OTHER, Harness, Sent, all_versions, answer_to


def beat(member: str = "m") -> HeartbeatRequest:
    return HeartbeatRequest(group_id="g", member_id=member)


# -- connecting


def test_a_node_is_ready_after_it_has_told_its_versions() -> None:
    harness = Harness()
    assert not harness.ready()
    assert not harness.ready(), "asking again does not connect again"
    assert harness.selector.attempts == [("1", ("192.0.2.1", 9092), socket.AF_INET)]
    assert harness.poll() == []
    assert not harness.ready()
    harness.selector.accept("1")
    assert harness.poll() == []
    assert harness.client.connection_state("1") is ConnectionState.CHECKING_API_VERSIONS
    assert not harness.ready()
    harness.answer(harness.selector.sent.popleft(), all_versions())
    assert harness.poll() == [], "an exchange of the client's own is nobody else's business"
    assert harness.ready()
    assert harness.client.is_ready(NODE, harness.now)
    assert harness.client.has_ready_nodes(harness.now)
    assert not harness.ready(OTHER)


def test_there_is_no_connecting_to_no_node() -> None:
    with pytest.raises(ValueError, match="cannot connect"):
        Harness().ready(NO_NODE)


def test_nothing_is_sent_to_a_node_that_is_not_ready() -> None:
    harness = Harness()
    with pytest.raises(RuntimeError, match=r"Heartbeat 0 to node 1.*not ready"):
        harness.send(beat())
    harness.connect()
    with pytest.raises(RuntimeError, match="not ready"):
        harness.send(beat())
    assert harness.client.in_flight_request_count() == 1, "the question for the versions, and nothing else"


def test_that_a_node_was_ready_counts_until_something_happens() -> None:
    harness = Harness(max_in_flight_requests_per_connection=1)
    harness.make_ready()
    harness.make_ready(OTHER)

    def refuse() -> None:
        with pytest.raises(RuntimeError, match="not ready"):
            harness.send(beat())

    assert harness.ready()
    harness.send(beat())
    refuse()
    harness.answer(harness.selector.sent.popleft(), HeartbeatResponse())
    harness.poll()
    assert harness.ready()
    assert harness.ready(OTHER), "one found ready after the other"
    harness.send(beat())
    refuse()
    harness.answer(harness.selector.sent.popleft(), HeartbeatResponse(throttle_time_ms=100))
    harness.poll()
    refuse()
    harness.clock.advance(100)
    assert harness.ready()
    harness.client.disconnect("1")
    refuse()
    harness.poll()
    harness.clock.advance(1_000)
    harness.make_ready()
    assert harness.ready()
    harness.client.close_connection("1")
    refuse()
    harness.make_ready()
    assert harness.ready()
    harness.selector.lose("1")
    harness.poll()
    refuse()


def test_a_refused_connection_is_tried_again_after_its_back_off() -> None:
    harness = Harness()
    assert not harness.ready()
    harness.selector.lose("1", error=ConnectionRefusedError(111, "Connection refused"))
    assert harness.poll() == []
    assert harness.client.connection_failed(NODE)
    assert harness.last_error() == (
        "Cannot connect to one.example:9092: connection refused; nothing listens on that port"
    )
    assert harness.updater.disconnects == [("1", None)]
    assert harness.client.connection_delay(NODE, harness.now) == 50
    assert not harness.ready()
    assert len(harness.selector.attempts) == 1
    harness.clock.advance(49)
    assert not harness.ready()
    assert len(harness.selector.attempts) == 1
    harness.clock.advance(1)
    assert not harness.ready()
    assert len(harness.selector.attempts) == 2
    assert not harness.client.connection_failed(NODE)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "connection refused"),
        (OSError(113, "No route to host"), "cannot be reached"),
        (OverflowError("connect(): port must be 0-65535."), "no such port"),
        (PermissionError(1, "Operation not permitted"), "Operation not permitted"),
    ],
)
def test_a_connection_that_fails_at_once_counts_as_lost(error: Exception, text: str) -> None:
    harness = Harness()
    harness.selector.connect_error = error
    assert not harness.ready()
    assert text in harness.last_error()
    assert harness.client.connection_failed(NODE)
    assert harness.updater.disconnects == [("1", None)]
    assert harness.client.connection_delay(NODE, harness.now) == 50


def test_an_unknown_host_says_so() -> None:
    def nobody(host: str) -> list[ResolvedAddress]:
        raise UnknownHostError(f"the host name {host!r} cannot be resolved: not known")

    harness = Harness(resolver=nobody)
    assert not harness.ready()
    assert harness.last_error() == (
        "Cannot connect to one.example:9092: the host name 'one.example' cannot be resolved: not known"
    )
    assert harness.selector.attempts == []
    harness.clock.advance(50)
    assert not harness.ready()
    assert harness.client.connection_delay(NODE, harness.now) == 100


def test_each_attempt_goes_to_the_next_address_of_either_family() -> None:
    found = [ResolvedAddress(socket.AF_INET6, "2001:db8::1"), ResolvedAddress(socket.AF_INET, "192.0.2.7")]
    harness = Harness(resolver=lambda _: found)
    for _ in range(2):
        assert not harness.ready()
        harness.selector.lose("1", error=ConnectionRefusedError())
        harness.poll()
        harness.clock.advance(1000)
    assert harness.selector.attempts == [
        ("1", ("2001:db8::1", 9092), socket.AF_INET6),
        ("1", ("192.0.2.7", 9092), socket.AF_INET),
    ]


def test_the_back_off_grows_until_a_connection_gets_ready() -> None:
    harness = Harness()
    delays = []
    for _ in range(6):
        assert not harness.ready()
        harness.selector.lose("1", error=ConnectionRefusedError())
        harness.poll()
        delays.append(harness.client.connection_delay(NODE, harness.now))
        harness.clock.advance(delays[-1])
    assert delays == [50, 100, 200, 400, 800, 1000]
    harness.connect()
    harness.selector.lose("1", error=EOFError())
    harness.poll()
    assert harness.client.connection_delay(NODE, harness.now) == 1000, "a connection without versions is a failure"
    harness.clock.advance(1000)
    harness.make_ready()
    assert harness.client.last_error("1") is None
    harness.selector.lose("1", error=EOFError())
    harness.poll()
    assert harness.client.connection_delay(NODE, harness.now) == 50


def test_a_connection_that_takes_too_long_is_given_up() -> None:
    harness = Harness()
    assert not harness.ready()
    assert harness.poll(60_000) == []
    assert harness.selector.waits == [10_001], "it wakes up for it"
    assert harness.selector.closed_by_client == ["1"]
    assert harness.last_error() == (
        "Cannot connect to one.example:9092: no connection within 10000 ms; the host may be unreachable"
    )
    assert harness.updater.disconnects == [("1", None)]
    harness.clock.advance(1000)
    assert not harness.ready()
    harness.poll(60_000)
    assert harness.selector.waits[1:] == [20_001]


@pytest.mark.parametrize("asks", [True, False])
def test_lost_in_the_poll_that_connected_it(asks: bool) -> None:
    harness = Harness(discover_broker_versions=asks)
    assert not harness.ready()
    channel = harness.selector.channels["1"]
    harness.selector.accept("1")
    harness.selector.lose("1", error=EOFError())
    assert harness.poll() == []
    assert channel in harness.selector.connected
    assert harness.client.connection_failed(NODE)
    assert not harness.selector.sent
    harness.clock.advance(50)
    assert not harness.ready()
    assert len(harness.selector.attempts) == 2


def test_what_is_reported_about_an_earlier_connection_does_not_end_the_present_one() -> None:
    harness = Harness()
    harness.make_ready()
    harness.send(beat())
    harness.selector.lose("1", error=EOFError())  # the selector knows, and tells with the next poll
    harness.client.disconnect("1")
    harness.clock.advance(1000)
    assert not harness.ready()
    assert harness.client.connection_state("1") is ConnectionState.CONNECTING
    assert [response.disconnected for response in harness.poll()] == [True]
    assert harness.client.connection_state("1") is ConnectionState.CONNECTING
    assert "1" in harness.selector.channels


def test_failed_authentication_is_told_to_everybody() -> None:
    harness = Harness()
    assert not harness.ready()
    error = SaslAuthenticationError("unknown user")
    harness.selector.lose("1", ChannelState.AUTHENTICATION_FAILED, error)
    harness.poll()
    assert harness.client.authentication_error(NODE) is error
    assert harness.client.connection_state("1") is ConnectionState.AUTHENTICATION_FAILED
    assert harness.client.connection_failed(NODE)
    assert harness.updater.disconnects == [("1", error)]
    assert harness.last_error() == "Authentication with one.example:9092 failed: unknown user"


def test_requests_in_flight_learn_that_authentication_failed() -> None:
    harness = Harness()
    harness.make_ready()
    harness.send(beat())
    error = SaslAuthenticationError("the session is over")
    harness.selector.lose("1", ChannelState.AUTHENTICATION_FAILED, error)
    (response,) = harness.poll()
    assert response.disconnected
    assert response.authentication_error is error


@pytest.mark.parametrize(
    ("state", "error", "text"),
    [
        (ChannelState.EXPIRED, None, "nothing has used it for a while"),
        (ChannelState.READY, EOFError(), "one.example:9092 closed the connection"),
        (ChannelState.READY, ConnectionResetError(104, "reset by peer"), "closed the connection ([Errno 104] reset"),
    ],
)
def test_a_ready_connection_that_ends(state: ChannelState, error: Exception | None, text: str) -> None:
    harness = Harness()
    harness.make_ready()
    harness.selector.lose("1", state, error)
    harness.poll()
    assert text in harness.last_error()
    assert harness.client.node_api_versions("1") is None, "the next connection may be to another version of it"


# -- requests


def test_a_request_goes_out_and_its_response_comes_back() -> None:
    harness = Harness()
    harness.make_ready()
    seen: list[ClientResponse] = []
    request = harness.send(beat(), callback=seen.append)
    sent = harness.selector.sent.popleft()
    assert sent.header.api_key is ApiKey.HEARTBEAT
    assert sent.header.api_version == 4
    assert sent.header.client_id == "test"
    assert sent.header.correlation_id == request.correlation_id
    assert sent.body == beat()
    harness.clock.advance(7)
    harness.answer(sent, HeartbeatResponse(error_code=27))
    (response,) = harness.poll()
    assert seen == [response]
    assert response.body == HeartbeatResponse(error_code=27)
    assert response.request is request
    assert (response.api_key, response.api_version) == (ApiKey.HEARTBEAT, 4)
    assert (response.destination, response.correlation_id) == ("1", request.correlation_id)
    assert response.latency_ms == 7
    assert response.has_response
    assert not response.disconnected
    assert not harness.client.has_in_flight_requests()


def test_no_more_requests_than_allowed_are_in_flight() -> None:
    harness = Harness(max_in_flight_requests_per_connection=3)
    harness.make_ready()
    for _ in range(3):
        assert harness.ready()
        harness.send(beat())
    assert not harness.ready()
    assert not harness.client.can_send_more("1")
    assert harness.client.in_flight_request_count("1") == 3
    with pytest.raises(RuntimeError, match="not ready"):
        harness.send(beat())
    harness.answer(harness.selector.sent.popleft(), HeartbeatResponse())
    assert len(harness.poll()) == 1
    assert harness.ready()


def test_nothing_more_is_sent_before_the_last_request_has_gone_out() -> None:
    harness = Harness()
    harness.make_ready()
    harness.selector.let_through("1", 5)
    harness.send(beat())
    assert not harness.ready()
    assert not harness.client.can_send_more("1")
    harness.selector.let_through("1", None)
    assert harness.poll() == []
    assert harness.ready()
    assert harness.client.can_send_more("1")
    harness.answer(harness.selector.sent.popleft(), HeartbeatResponse())
    assert len(harness.poll()) == 1


def test_nothing_more_is_sent_where_a_write_has_failed() -> None:
    """The connection counts as lost when the next poll says so; until then it only looks as if it were there."""
    harness = Harness()
    harness.make_ready()
    assert harness.ready()
    harness.selector.lose("1", ChannelState.FAILED_SEND)
    assert harness.client.connection_state("1") is ConnectionState.READY
    assert not harness.ready()
    with pytest.raises(RuntimeError, match="not ready"):
        harness.send(beat())
    harness.poll()
    assert harness.client.connection_failed(NODE)


def test_responses_belong_to_requests_in_order() -> None:
    harness = Harness()
    harness.make_ready()
    requests = [harness.send(beat(str(number))) for number in range(4)]
    done: list[int] = []
    for number, sent in enumerate(list(harness.selector.sent)):
        harness.answer(sent, HeartbeatResponse(error_code=number))
        for response in harness.poll():
            assert isinstance(response.body, HeartbeatResponse)
            assert response.body.error_code == number
            done.append(response.correlation_id)
    assert done == [request.correlation_id for request in requests]


def test_a_callback_that_fails_keeps_nobody_else_from_being_called(caplog: pytest.LogCaptureFixture) -> None:
    harness = Harness()
    harness.make_ready()

    def fail(response: ClientResponse) -> None:
        raise KeyError("a mistake of the caller")

    seen: list[ClientResponse] = []
    harness.send(beat(), callback=fail)
    harness.send(beat(), callback=seen.append)
    harness.selector.lose("1", error=EOFError())
    assert len(harness.poll()) == 2
    assert len(seen) == 1
    assert "a mistake of the caller" in caplog.text


def test_a_callback_may_send_and_disconnect() -> None:
    harness = Harness()
    harness.make_ready()

    def again(response: ClientResponse) -> None:
        harness.send(beat())
        harness.client.disconnect("1")

    harness.send(beat(), callback=again)
    harness.answer(harness.selector.sent.popleft(), HeartbeatResponse())
    assert len(harness.poll()) == 1
    (second,) = harness.poll(1000)
    assert second.disconnected
    assert harness.selector.waits[-1] == 0, "there was something to return at once"


def test_correlation_ids_leave_out_those_of_sasl_and_start_again_below_zero() -> None:
    harness = Harness()
    pipeline: Any = harness.client._pipeline
    pipeline._correlation_id = 2**31 - 10
    made = [harness.client.new_client_request("1", beat(), 0).correlation_id for _ in range(4)]
    assert made == [2**31 - 10, 2**31 - 9, -(2**31), -(2**31) + 1]


def test_a_request_without_a_response_is_done_when_it_has_gone_out() -> None:
    harness = Harness()
    harness.make_ready()
    seen: list[ClientResponse] = []
    request = harness.send(ProduceRequest(acks=0), expect_response=False, callback=seen.append)
    assert seen == [], "callbacks are for poll"
    (response,) = harness.poll(1000)
    assert harness.selector.waits[-1] == 0
    assert seen == [response]
    assert response.request is request
    assert not response.has_response
    assert not response.disconnected
    assert not harness.client.has_in_flight_requests()


def test_a_long_request_without_a_response_is_done_with_its_last_byte() -> None:
    harness = Harness()
    harness.make_ready()
    harness.send(beat())
    harness.selector.let_through("1", 5)
    produce = harness.send(ProduceRequest(acks=0), expect_response=False)
    assert harness.poll() == []
    harness.selector.let_through("1", None)
    assert [response.request for response in harness.poll()] == [produce]
    assert harness.client.in_flight_request_count() == 1
    harness.answer(harness.selector.sent.popleft(), HeartbeatResponse())
    assert len(harness.poll()) == 1


def test_a_request_without_a_response_that_did_not_go_out_is_disconnected() -> None:
    harness = Harness()
    harness.make_ready()
    harness.selector.let_through("1", 5)
    harness.send(ProduceRequest(acks=0), expect_response=False)
    harness.selector.lose("1", ChannelState.FAILED_SEND, BrokenPipeError(32, "Broken pipe"))
    (response,) = harness.poll()
    assert response.disconnected


# -- versions


def test_the_newest_version_that_both_have() -> None:
    harness = Harness()
    harness.make_ready(versions=all_versions(HEARTBEAT=(0, 2), METADATA=(4, 99)))
    harness.send(beat())
    harness.send(MetadataRequest())
    harness.send(ListOffsetsRequest(), allowed_versions=VersionRange(1, 5))
    harness.send(ListOffsetsRequest(), allowed_versions=VersionRange(7, 7))
    versions = [sent.header.api_version for sent in harness.selector.sent]
    assert versions == [2, ApiKey.METADATA.stable_versions.highest, 5, 7]


@pytest.mark.parametrize(
    ("offered", "text"),
    [
        (None, "does not serve Heartbeat"),
        ((7, 9), "the node has 7-9, the request can go out as 0-4"),
        ((3, 1), "no version of Heartbeat"),
    ],
)
def test_without_a_common_version_the_request_ends_and_nothing_is_sent(
    offered: tuple[int, int] | None, text: str
) -> None:
    harness = Harness()
    harness.make_ready(versions=all_versions(HEARTBEAT=offered))
    seen: list[ClientResponse] = []
    harness.send(beat(), callback=seen.append)
    assert not harness.selector.sent
    (response,) = harness.poll(1000)
    assert harness.selector.waits[-1] == 0
    assert seen == [response]
    assert isinstance(response.version_mismatch, UnsupportedVersionError)
    assert text in str(response.version_mismatch)
    assert not response.disconnected
    assert harness.ready(), "the connection is as good as before"


def test_a_field_that_the_version_lacks_is_a_mismatch_too() -> None:
    harness = Harness()
    harness.make_ready(versions=all_versions(HEARTBEAT=(0, 2)))
    harness.send(HeartbeatRequest(group_id="g", group_instance_id="static"))  # version 3 and later
    (response,) = harness.poll()
    assert response.version_mismatch is not None
    assert "group_instance_id" in str(response.version_mismatch)
    assert not harness.client.has_in_flight_requests()


class Coordinator:
    """A request whose body depends on the version."""

    api_key = ApiKey.FIND_COORDINATOR
    allowed_versions = VersionRange(1, 6)

    def build(self, version: int) -> Request:
        if version < 2:
            raise UnsupportedVersionError("too old for this")
        if version < 4:
            return FindCoordinatorRequest(key="g")
        return FindCoordinatorRequest(coordinator_keys=["g"])


@pytest.mark.parametrize(("newest", "key", "keys"), [(3, "g", []), (5, "", ["g"])])
def test_a_body_can_be_built_for_its_version(newest: int, key: str, keys: list[str]) -> None:
    harness = Harness()
    harness.make_ready(versions=all_versions(FIND_COORDINATOR=(0, newest)))
    request = harness.client.new_client_request("1", Coordinator(), harness.now)
    harness.client.send(request, harness.now)
    body = harness.selector.sent.popleft().body
    assert isinstance(body, FindCoordinatorRequest)
    assert (body.key, body.coordinator_keys) == (key, keys)


def test_a_body_that_cannot_be_built_is_a_mismatch() -> None:
    harness = Harness()
    harness.make_ready(versions=all_versions(FIND_COORDINATOR=(0, 1)))
    harness.client.send(harness.client.new_client_request("1", Coordinator(), harness.now), harness.now)
    (response,) = harness.poll()
    assert str(response.version_mismatch) == "too old for this"


def test_a_value_that_does_not_fit_is_the_callers_mistake_and_leaves_nothing_behind() -> None:
    harness = Harness()
    harness.make_ready()
    with pytest.raises(ProtocolError, match="generation_id"):
        harness.send(HeartbeatRequest(generation_id=2**40))
    assert not harness.client.has_in_flight_requests()
    assert harness.ready()


# -- time-outs


def test_a_late_response_costs_the_connection_and_all_requests_on_it() -> None:
    harness = Harness(request_timeout_ms=1000)
    harness.make_ready()
    harness.make_ready(OTHER)
    first = harness.send(beat())
    harness.clock.advance(10)
    second = harness.send(beat())
    elsewhere = harness.send(beat(), OTHER, request_timeout_ms=60_000)
    responses = harness.poll(60_000)
    assert harness.selector.waits[-1] == 991, "when the first is late, and no later"
    assert [response.request for response in responses] == [first, second]
    for response in responses:
        assert response.timed_out
        assert response.disconnected
        assert response.reason == "one.example:9092 did not respond to a request in time"
    assert harness.selector.closed_by_client == ["1"]
    assert harness.updater.disconnects == [("1", None)]
    assert harness.client.connection_failed(NODE)
    assert harness.ready(OTHER)
    assert elsewhere.destination == "2"
    assert harness.client.in_flight_request_count() == 1


def test_a_response_in_the_last_millisecond_is_in_time() -> None:
    harness = Harness(request_timeout_ms=1000)
    harness.make_ready()
    harness.send(beat())
    harness.clock.advance(1000)
    assert harness.poll() == []
    harness.clock.advance(1)
    harness.answer(harness.selector.sent.popleft(), HeartbeatResponse())
    (response,) = harness.poll()
    assert response.has_response, "it was there when the clock was looked at"


def test_a_request_may_have_a_time_out_of_its_own() -> None:
    harness = Harness()
    harness.make_ready()
    harness.send(beat())
    harness.send(beat(), request_timeout_ms=20)
    assert len(harness.poll(60_000)) == 2
    assert harness.selector.waits[-1] == 21


def test_a_node_that_does_not_tell_its_versions_in_time() -> None:
    harness = Harness(request_timeout_ms=1000)
    harness.connect()
    assert harness.poll(500) == []
    assert harness.poll(60_000) == []
    assert harness.client.connection_failed(NODE)
    assert "accepts connections but did not send its API versions in time" in harness.last_error()
    assert "TLS" in harness.last_error()


# -- answers that are none


def lost_because_of(harness: Harness, payload: bytes) -> list[ClientResponse]:
    """Delivers bytes and checks that the connection is closed for them, and that everything in flight ends once."""
    harness.selector.deliver("1", payload)
    responses = harness.poll()
    assert harness.selector.closed_by_client == ["1"]
    assert harness.client.connection_failed(NODE)
    assert not harness.client.has_in_flight_requests()
    assert harness.poll() == []
    return responses


def test_the_response_to_another_request_costs_the_connection() -> None:
    harness = Harness()
    harness.make_ready()
    requests = [harness.send(beat()) for _ in range(3)]
    second = harness.selector.sent[1]
    responses = lost_because_of(harness, answer_to(second, HeartbeatResponse()))
    assert [response.request for response in responses] == requests
    assert all(response.disconnected and not response.timed_out for response in responses)
    assert harness.last_error() == (
        f"one.example:9092 sent an invalid response: a response with the correlation id "
        f"{requests[1].correlation_id}, while the next one has to be {requests[0].correlation_id} for Heartbeat v4"
    )


@pytest.mark.parametrize("broken", ["", "ab", "cut", "grown"])
def test_a_broken_response_costs_the_connection(broken: str) -> None:
    harness = Harness()
    harness.make_ready()
    harness.send(MetadataRequest())
    whole = answer_to(harness.selector.sent.popleft(), MetadataResponse(cluster_id="c"))
    payload = {"cut": whole[:-3], "grown": whole[:9] + b"\xff\xff\xff\xff\x0f"}.get(broken, b"\0" * len(broken))
    (response,) = lost_because_of(harness, payload)
    assert response.disconnected
    assert "sent an invalid response" in harness.last_error()


def test_a_response_that_nobody_waits_for_costs_the_connection() -> None:
    harness = Harness()
    harness.make_ready()
    assert lost_because_of(harness, b"0123456789") == []
    assert "10 bytes without a request in flight" in harness.last_error()


def test_a_response_to_a_request_that_wants_none_costs_the_connection() -> None:
    harness = Harness()
    harness.make_ready()
    harness.selector.let_through("1", 5)
    request = harness.send(ProduceRequest(acks=0), expect_response=False)
    answer = b"".join([request.correlation_id.to_bytes(4), b"\0", ProduceResponse().encode(13)])
    (response,) = lost_because_of(harness, answer)
    assert response.disconnected


def test_a_response_before_the_request_has_gone_out_costs_the_connection() -> None:
    """Or the connection would look free for the next request while it is still busy with this one."""
    harness = Harness()
    harness.make_ready()
    harness.selector.let_through("1", 5)
    request = harness.send(beat())
    answer = b"".join([request.correlation_id.to_bytes(4), b"\0", HeartbeatResponse().encode(4)])
    (response,) = lost_because_of(harness, answer)
    assert response.disconnected


# -- disconnecting on purpose, and the end


def test_disconnecting_ends_the_requests_with_the_next_poll() -> None:
    harness = Harness()
    harness.make_ready()
    requests = [harness.send(beat()) for _ in range(2)]
    harness.client.disconnect("1")
    assert harness.selector.closed_by_client == ["1"]
    assert harness.client.connection_failed(NODE)
    responses = harness.poll(1000)
    assert harness.selector.waits[-1] == 0
    assert [response.request for response in responses] == requests
    assert all(response.disconnected for response in responses)
    harness.client.disconnect("1")
    harness.client.disconnect("99")
    assert harness.poll() == []


def test_closing_a_connection_forgets_its_requests() -> None:
    harness = Harness()
    harness.make_ready()
    seen: list[ClientResponse] = []
    harness.send(beat(), callback=seen.append)
    harness.client.close_connection("1")
    assert harness.poll() == []
    assert seen == []
    assert harness.client.connection_state("1") is None
    assert harness.client.connection_delay(NODE, harness.now) == 0
    harness.make_ready()


def test_after_close_there_is_nothing_more_to_be_done() -> None:
    harness = Harness()
    harness.make_ready()
    request = harness.client.new_client_request("1", beat(), harness.now)
    harness.client.initiate_close()
    assert not harness.client.active
    assert harness.selector.wakeups == 1
    harness.client.initiate_close()
    assert harness.selector.wakeups == 1
    with pytest.raises(DisconnectError, match="closing"):
        harness.poll()
    with pytest.raises(DisconnectError, match="closing"):
        harness.client.send(request, harness.now)
    still_open = not harness.selector.closed
    harness.client.close()
    assert still_open
    assert harness.selector.closed
    assert harness.updater.closed
    harness.client.close()
    harness.client.initiate_close()
    with pytest.raises(DisconnectError, match="closed"):
        harness.poll()


def test_waking_up_is_left_to_the_selector() -> None:
    harness = Harness()
    harness.client.wakeup()
    assert harness.selector.wakeups == 1


def test_poll_never_waits_for_less_than_nothing() -> None:
    harness = Harness(request_timeout_ms=10)
    harness.make_ready()
    harness.send(beat())
    harness.clock.advance(50)
    assert len(harness.poll(100)) == 1
    assert harness.selector.waits[-1] == 0


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("max_in_flight_requests_per_connection", 0),
        ("request_timeout_ms", -1),
        ("reconnect_backoff_ms", -1),
        ("send_buffer_bytes", -2),
        ("client_software_version", "1.0+local"),
        ("client_software_name", ""),
    ],
)
def test_settings_that_make_no_sense_are_refused(setting: str, value: Any) -> None:
    changed: dict[str, Any] = {setting: value}
    with pytest.raises(ValueError, match=setting.split("_", maxsplit=1)[0]):
        NetworkClientConfig(**changed)


# -- the promise


@settings(max_examples=150, deadline=None)
@given(
    steps=st.lists(
        st.sampled_from(
            ["send", "send", "send 0", "answer", "answer", "lose", "garble", "disconnect", "wait", "block", "other"]
        ),
        max_size=60,
    )
)
def test_every_request_ends_exactly_once_and_in_order(steps: list[str]) -> None:
    logging.disable(logging.CRITICAL)
    try:
        _run_schedule(steps)
    finally:
        logging.disable(logging.NOTSET)


def _run_schedule(steps: list[str]) -> None:
    harness = Harness(request_timeout_ms=1000)
    selector = harness.selector
    ended: list[ClientResponse] = []
    returned: list[ClientResponse] = []
    made: list[int] = []
    waiting: list[Sent] = []
    here: Node = NODE

    def poll(timeout_ms: float = 0) -> None:
        returned.extend(harness.poll(timeout_ms))
        while selector.sent:
            sent = selector.sent.popleft()
            if sent.header.api_key is ApiKey.API_VERSIONS:
                harness.answer(sent, all_versions())
            elif sent.header.api_key is ApiKey.HEARTBEAT:
                waiting.append(sent)

    for step in steps:
        open_here = here.id_string in selector.channels
        if not harness.ready(here) and here.id_string in selector.channels and not open_here:
            selector.accept(here.id_string)
            poll()
            poll()
        mine = [sent for sent in waiting if sent.node_id == here.id_string]
        if step in {"send", "send 0"} and harness.ready(here):
            wants = step == "send"
            body: Request = beat() if wants else ProduceRequest(acks=0)
            made.append(harness.send(body, here, expect_response=wants, callback=ended.append).correlation_id)
        elif step == "answer" and mine and here.id_string in selector.channels:
            waiting.remove(mine[0])
            harness.answer(mine[0], HeartbeatResponse())
        elif step == "lose" and here.id_string in selector.channels:
            selector.lose(here.id_string, error=EOFError())
        elif step == "garble" and here.id_string in selector.channels:
            selector.deliver(here.id_string, b"\xff\xff\xff\xff")
        elif step == "disconnect":
            harness.client.disconnect(here.id_string)
        elif step == "block" and here.id_string in selector.channels:
            blocked = selector.transports[here.id_string].room is not None
            selector.let_through(here.id_string, None if blocked else 3)
        elif step == "other":
            here = OTHER if here is NODE else NODE
        poll(400 if step == "wait" else 0)
        for gone in {"1", "2"} - set(selector.channels):
            waiting = [sent for sent in waiting if sent.node_id != gone]
    for _ in range(8):
        poll(1001)
    assert returned == ended
    assert sorted(response.correlation_id for response in ended) == made, "each exactly once"
    for node in ("1", "2"):
        for expects in (True, False):
            order = [
                response.correlation_id
                for response in ended
                if response.destination == node and response.request.expect_response is expects
            ]
            assert order == sorted(order)
    assert not harness.client.has_in_flight_requests()
