"""What a network thread finds out about a request, and the moments of its life that it notes."""

from __future__ import annotations

import logging
import socket
import threading

import pytest

from barnabas.network.reactor.memory_pool import SimpleMemoryPool
from barnabas.network.server.endpoint import SecurityProtocol
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.framing import encode_request
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.server.request import Request
from barnabas.server.request_local import RequestLocal
from network_fixtures import (
    LISTENER,
    WAIT_S,
    Policy,
    every_policy,
    heartbeat,
    leave_group,
    stepping,
)

WAIT_MS = WAIT_S * 1000


# ---------------------------------------------------------------------------------------------------- N09


@pytest.mark.mechanism("N09")
def test_a_request_knows_its_header_and_where_it_came_from() -> None:
    with stepping() as s:
        client = s.connect()
        request = s.receive_one(client, heartbeat(7, client_id="billing"))
        assert (request.api_key, request.api_version) == (ApiKey.HEARTBEAT, 4)
        assert (request.correlation_id, request.client_id) == (7, "billing")
        assert request.connection_id == s.only_channel.id
        context = request.context
        assert (context.client_address, context.listener_name) == ("127.0.0.1", LISTENER)
        assert (context.security_protocol, context.from_privileged_listener) == (SecurityProtocol.PLAINTEXT, False)
        assert (context.client_software_name, context.client_software_version) == ("unknown", "unknown")


BAD_REQUESTS = {
    "not-enabled": encode_request(FetchRequest(), 12, 1, "c"),
    "version-too-low": b"\0\0\0\x0c" + b"\0\0" + b"\0\2" + b"\0\0\0\1" + b"\0\2ab",
    "version-too-high": b"\0\0\0\x0d" + b"\0\0" + b"\0\x63" + b"\0\0\0\1" + b"\0\2ab\0",
    "negative-version": b"\0\0\0\x0c" + b"\0\0" + b"\xff\xff" + b"\0\0\0\1" + b"\0\2ab",
    "no-such-api": b"\0\0\0\x0a" + b"\x7f\xff" + b"\0\1" + b"\0\0\0\1" + b"\xff\xff",
    "controller-api": b"\0\0\0\x0b" + b"\0\x34" + b"\0\1" + b"\0\0\0\1" + b"\xff\xff\0",
    "empty": b"\0\0\0\0",
    "cut-off": b"\0\0\0\5" + b"\0\0\0\x09\0",
    "client-id-too-long": b"\0\0\0\x0c" + b"\0\x0c" + b"\0\4" + b"\0\0\0\1" + b"\0\x63ab",
    "client-id-not-utf8": b"\0\0\0\x0c" + b"\0\x0c" + b"\0\3" + b"\0\0\0\1" + b"\0\2\xff\xfe",
}


@pytest.mark.mechanism("N09")
@every_policy
@pytest.mark.parametrize("bad", BAD_REQUESTS.values(), ids=BAD_REQUESTS)
def test_a_request_that_cannot_be_served_ends_its_connection_only(
    policy: Policy, bad: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    pool = SimpleMemoryPool(1 << 20, 1 << 20)
    apis = set(ApiKey) - {ApiKey.FETCH}
    with stepping(policy, pool=pool, apis=apis) as s, caplog.at_level(logging.WARNING):
        good, hostile = s.connect(), s.connect()
        hostile.send(bad)
        s.turn_until(lambda: s.processor.bad_requests)
        hostile.await_close()
        assert s.quotas.total == len(s.selector.channels) == 1
        assert s.received == 0
        request = s.receive_one(good, heartbeat(1))
        s.answer(request)
        s.turn()
        assert good.receive()[0] == 1
        assert pool.available == pool.size
        assert s.processor.bad_requests == 1
    assert len(caplog.records) == 1
    assert caplog.records[0].getMessage().startswith("Closing connection after a bad request 127.0.0.1:")


@pytest.mark.mechanism("N09")
@every_policy
@pytest.mark.parametrize("version", [0, 3, 5, 6, 99, 32767, -1])
def test_api_versions_passes_in_any_version(policy: Policy, version: int) -> None:
    frame = b"\0\x12" + version.to_bytes(2, "big", signed=True) + b"\0\0\0\5" + b"\xff\xff" + b"\0" + b"\1\1\0"
    with stepping(policy) as s:
        request = s.receive_one(s.connect(), len(frame).to_bytes(4, "big") + frame)
        assert (request.api_key, request.api_version, request.correlation_id) == (ApiKey.API_VERSIONS, version, 5)


@pytest.mark.mechanism("N09")
@every_policy
@pytest.mark.parametrize("version", [3, 4, 5])
def test_the_software_of_a_client_is_noted_from_its_api_versions_request(policy: Policy, version: int) -> None:
    body = ApiVersionsRequest(client_software_name="kafka-python", client_software_version="3.0.12")
    with stepping(policy) as s:
        client, other = s.connect(), s.connect()
        request = s.receive_one(client, encode_request(body, version, 1, "c"))
        assert request.context.client_software_name == "kafka-python"
        assert request.context.client_software_version == "3.0.12"
        s.answer(request)
        s.turn()
        assert s.receive_one(client, heartbeat(2)).context is request.context
        assert s.receive_one(other, heartbeat(3)).context.client_software_name == "unknown"


@pytest.mark.mechanism("N09")
@pytest.mark.parametrize(("name", "version"), [("a name", "1"), ("name", "1\n2"), ("", "1"), ("name", "")])
def test_software_that_the_handler_will_refuse_is_not_noted(name: str, version: str) -> None:
    """It would be shown in metrics, in the request log and to telemetry exporters."""
    body = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    with stepping() as s:
        request = s.receive_one(s.connect(), encode_request(body, 3, 1, "c"))
        context = request.context
        assert (context.client_software_name, context.client_software_version) == ("unknown", "unknown")


@pytest.mark.mechanism("N09")
def test_a_large_api_versions_request_is_left_to_its_handler() -> None:
    """It may have millions of tagged fields, and the network thread belongs to all clients."""
    body = ApiVersionsRequest(client_software_name="kafka-python", client_software_version="3.0.12")
    body.unknown_tagged_fields = dict.fromkeys(range(10, 3_000), b"")
    with stepping() as s:
        client = s.connect()
        request = s.receive_one(client, encode_request(body, 3, 1, "c"))
        assert request.context.client_software_name == "unknown", "the handler notes it"
        assert s.processor.bad_requests == 0


@pytest.mark.mechanism("N09")
@pytest.mark.parametrize("body", [b"", b"\x0dkafka", b"\xff\xff\xff\xff\xff\xff"], ids=["empty", "cut", "varint"])
def test_an_api_versions_request_that_cannot_be_read_is_left_to_its_handler(body: bytes) -> None:
    frame = b"\0\x12" + b"\0\3" + b"\0\0\0\5" + b"\xff\xff" + b"\0" + body
    with stepping() as s:
        request = s.receive_one(s.connect(), len(frame).to_bytes(4, "big") + frame)
        assert request.context.client_software_name == "unknown"
        assert s.processor.bad_requests == 0


# ---------------------------------------------------------------------------------------------------- N20


@pytest.mark.mechanism("N20")
@pytest.mark.parametrize("policy", [Policy.QUEUE, Policy.DIRECT], ids=["queue", "direct"])
@pytest.mark.parametrize("large", [False, True], ids=["small-answer", "large-answer"])
def test_every_moment_of_a_request_is_noted_where_it_happens(policy: Policy, large: bool) -> None:
    def handle(request: Request, local: RequestLocal) -> None:
        s.clock.advance(3)  # local work
        request.api_throttle_time_ms = 11
        s.arrived.put(request)

    with stepping(policy, handle) as s:
        client = s.connect(receive_buffer=8192)
        s.only_channel.transport.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        frame = heartbeat(1, size=100)
        s.clock.advance(1000)
        s.receive((client, frame))
        if policy is Policy.QUEUE:
            s.clock.advance(5)  # waiting for a handler
            s.handle_next()
        request = s.next_request()
        s.clock.advance(7)  # waiting for others
        s.answer(request, bytes(1_000_000) if large else b"")
        s.clock.advance(13)  # waiting for the processor
        s.turn()
        if large:
            s.clock.advance(17)  # on its way out
            reader = threading.Thread(target=client.receive)
            reader.start()
            s.turn_until(lambda: s.times.of(ApiKey.HEARTBEAT).histograms[0].count)
            reader.join(WAIT_S)
        assert s.times_of("Heartbeat") == {
            "RequestQueueTimeMs": 5 if policy is Policy.QUEUE else 0,
            "LocalTimeMs": 3,
            "RemoteTimeMs": 7,
            "ThrottleTimeMs": 11,
            "ResponseQueueTimeMs": 13,
            "ResponseSendTimeMs": 17 if large else 0,
            "TotalTimeMs": 3 + 7 + 13 + (5 if policy is Policy.QUEUE else 0) + (17 if large else 0),
            "RequestBytes": len(frame) - 4,
        }


@pytest.mark.mechanism("N20")
def test_throttling_does_not_move_the_moments_of_a_request() -> None:
    """The throttle of a request may start or end while its response is on its way out."""
    with stepping() as s:
        client = s.connect(receive_buffer=8192)
        s.only_channel.transport.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        request = s.receive_one(client, heartbeat(1))
        s.channel.start_throttling(request)
        s.clock.advance(2)
        s.answer(request, bytes(1_000_000))
        s.clock.advance(3)
        s.turn()
        s.clock.advance(5)
        s.channel.end_throttling(request)
        s.turn()
        reader = threading.Thread(target=client.receive)
        reader.start()
        s.turn_until(lambda: s.times.of(ApiKey.HEARTBEAT).histograms[0].count)
        reader.join(WAIT_S)
        times = s.times_of("Heartbeat")
        assert (times["ResponseQueueTimeMs"], times["ResponseSendTimeMs"]) == (3, 5)


@pytest.mark.mechanism("N20")
@every_policy
@pytest.mark.parametrize("kind", ["send_no_op_response", "close_connection"])
def test_a_request_without_a_response_has_a_timeline_too(policy: Policy, kind: str) -> None:
    with stepping(policy) as s:
        request = s.receive_one(s.connect(), leave_group(1))
        s.clock.advance(7)
        getattr(s.channel, kind)(request)
        s.clock.advance(2)
        s.turn()
        times = s.times_of("LeaveGroup")
        assert (times["RemoteTimeMs"], times["ResponseQueueTimeMs"], times["TotalTimeMs"]) == (7, 2, 9)
