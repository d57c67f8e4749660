"""What each kind of response makes a network thread do."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable

import pytest

from barnabas._kernels.channel_mute import NOT_MUTED, RESPONSE_PENDING, THROTTLED
from barnabas.network.server.config import SocketServerConfig
from barnabas.network.server.response import DROP_CONNECTION, NetworkResponse
from barnabas.protocol.api_keys import ApiKey
from barnabas.server.request import Request
from barnabas.server.request_channel import AlreadyRespondedError
from network_fixtures import (
    WAIT_S,
    Policy,
    every_policy,
    heartbeat,
    stepping,
)

WAIT_MS = WAIT_S * 1000


# ---------------------------------------------------------------------------------------------------- N10


@pytest.mark.mechanism("N10")
@every_policy
def test_a_response_is_sent_and_the_connection_is_read_on(policy: Policy) -> None:
    with stepping(policy) as s:
        client = s.connect()
        for number in range(3):
            request = s.receive_one(client, heartbeat(number))
            assert s.only_channel.mute_state is RESPONSE_PENDING
            s.answer(request, b"answer %d" % number)
            s.turn()
            assert client.receive() == (number, b"answer %d" % number)
            assert s.only_channel.mute_state is NOT_MUTED


@pytest.mark.mechanism("N10")
@every_policy
def test_a_no_op_sends_nothing_and_the_connection_is_read_on(policy: Policy) -> None:
    with stepping(policy) as s:
        client = s.connect()
        client.send(heartbeat(1), heartbeat(2))
        s.turn_until(lambda: s.received)
        s.channel.send_no_op_response(s.handled())
        s.turn()
        assert s.handled().correlation_id == 2
        assert client.is_silent


@pytest.mark.mechanism("N10")
@every_policy
def test_a_close_response_ends_the_connection(policy: Policy) -> None:
    with stepping(policy) as s:
        client, other = s.connect(), s.connect()
        client.send(heartbeat(1), heartbeat(2))
        s.turn_until(lambda: s.received)
        request = s.handled()
        s.channel.close_connection(request)
        s.turn()
        client.await_close()
        assert s.disconnected == [request.connection_id]
        assert s.quotas.total == 1
        assert s.received == 0, "what it sent after that is not handled"
        assert s.receive_one(other, heartbeat(3)).correlation_id == 3


@every_policy
def test_a_dropped_connection_counts_its_half_sent_request_once(policy: Policy) -> None:
    with stepping(policy) as s:
        client = s.connect()
        request = s.receive_one(client, heartbeat(1))
        s.answer(request, bytes(64 << 20))  # more than socket buffers hold: the client leaves it unread
        s.turn()
        assert s.only_channel.send is not None
        s.processor.enqueue_response(NetworkResponse(DROP_CONNECTION, request))
        s.turn()
        assert s.disconnected == [request.connection_id]
        assert s.count_of("Heartbeat", "TotalTimeMs") == 1


@pytest.mark.mechanism("N10")
@every_policy
@pytest.mark.parametrize("ends_first", [False, True], ids=["answer-first", "throttle-ends-first"])
def test_a_throttled_client_has_its_response_at_once_and_is_read_on_later(policy: Policy, ends_first: bool) -> None:
    with stepping(policy) as s:
        client = s.connect()
        client.send(heartbeat(1), heartbeat(2))
        s.turn_until(lambda: s.received)
        request = s.handled()
        s.channel.start_throttling(request)
        if ends_first:
            s.channel.end_throttling(request)
            s.turn()
            assert s.only_channel.mute_state is RESPONSE_PENDING
        s.answer(request)
        s.turn()
        assert client.receive()[0] == 1
        if not ends_first:
            for _ in range(3):
                s.turn()
            assert s.only_channel.mute_state is THROTTLED
            assert s.received == 0
            s.channel.end_throttling(request)
        s.turn()
        assert s.handled().correlation_id == 2


@pytest.mark.mechanism("N10")
@every_policy
def test_a_throttle_that_cannot_be_ends_its_connection_only(policy: Policy, caplog: pytest.LogCaptureFixture) -> None:
    with stepping(policy) as s, caplog.at_level(logging.WARNING):
        client, other = s.connect(), s.connect()
        request = s.receive_one(client, heartbeat(1))
        s.answer(request)
        s.turn()
        s.channel.start_throttling(request)
        s.turn()
        assert client.receive()[0] == 1
        client.await_close()
        assert s.receive_one(other, heartbeat(2)).correlation_id == 2
    assert "cannot take THROTTLE_STARTED" in caplog.text


@pytest.mark.mechanism("N10")
@pytest.mark.parametrize("kind", ["answer", "send_no_op_response", "close_connection"])
def test_a_request_has_exactly_one_end(kind: str) -> None:
    with stepping() as s:
        request = s.receive_one(s.connect(), heartbeat(1))
        ends: list[Callable[[Request], None]] = [
            s.answer,
            s.channel.send_no_op_response,
            s.channel.close_connection,
        ]
        assert request.awaits_response
        (s.answer if kind == "answer" else getattr(s.channel, kind))(request)
        assert request.terminal
        for end in ends:
            with pytest.raises(AlreadyRespondedError, match="got a second response"):
                end(request)
        s.channel.close_without_response(request)
        assert s.channel.response_queue_size == 1
        s.channel.start_throttling(request)
        s.channel.end_throttling(request)
        assert s.channel.response_queue_size == 3, "these two go along with the one that ends it"


@pytest.mark.mechanism("N10")
def test_of_many_threads_that_respond_one_wins() -> None:
    with stepping() as s:
        client = s.connect()
        for number in range(30):
            request = s.receive_one(client, heartbeat(number))
            start = threading.Barrier(6)
            refused: list[int] = []

            def answer(
                request: Request = request, start: threading.Barrier = start, refused: list[int] = refused
            ) -> None:
                start.wait(WAIT_S)
                try:
                    s.answer(request)
                except AlreadyRespondedError:
                    refused.append(1)

            threads = [threading.Thread(target=answer) for _ in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(WAIT_S)
            assert len(refused) == 5
            assert s.channel.response_queue_size == 1
            s.turn()
            assert client.receive()[0] == number


@pytest.mark.mechanism("N10")
@every_policy
def test_responses_for_a_connection_that_is_gone_are_dropped(policy: Policy, caplog: pytest.LogCaptureFixture) -> None:
    with stepping(policy) as s, caplog.at_level(logging.WARNING):
        client = s.connect()
        request = s.receive_one(client, heartbeat(1))
        s.processor._close(s.only_channel)
        for respond in (s.channel.start_throttling, s.answer, s.channel.end_throttling):
            respond(request)
            s.turn()
        assert s.channel.response_queue_size == 0
        assert s.times_of("Heartbeat")["TotalTimeMs"] == 0
        assert s.times.of(ApiKey.HEARTBEAT).histograms[0].count == 1
    assert [record.getMessage() for record in caplog.records] == [
        f"Dropping a response: connection {request.connection_id} is gone"
    ]


@pytest.mark.mechanism("N10")
@every_policy
@pytest.mark.parametrize("kind", ["send_no_op_response", "close_connection"])
def test_an_end_without_bytes_for_a_connection_that_is_gone_is_only_counted(policy: Policy, kind: str) -> None:
    with stepping(policy) as s:
        request = s.receive_one(s.connect(), heartbeat(1))
        s.processor._close(s.only_channel)
        getattr(s.channel, kind)(request)
        s.turn()
        assert s.times.of(ApiKey.HEARTBEAT).histograms[0].count == 1


@pytest.mark.mechanism("N10")
@every_policy
def test_a_peer_that_vanishes_while_its_response_goes_out_leaves_nothing_behind(policy: Policy) -> None:
    with stepping(policy) as s:
        client = s.connect(receive_buffer=8192)
        channel = s.only_channel
        channel.transport.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        request = s.receive_one(client, heartbeat(1))
        s.answer(request, bytes(1_000_000))
        s.turn()
        assert channel.send is not None
        client.reset()
        s.turn_until(lambda: s.disconnected)
        assert (s.quotas.total, s.selector.channels, s.selector.closing_channels) == (0, {}, {})
        assert s.times.of(ApiKey.HEARTBEAT).histograms[0].count == 1, "its end is counted, once"


@pytest.mark.mechanism("N10")
@every_policy
def test_a_large_response_is_sent_over_many_turns(policy: Policy) -> None:
    with stepping(policy) as s:
        client, other = s.connect(receive_buffer=8192), s.connect()
        body = bytes(range(256)) * 2000
        s.answer(s.receive_one(client, heartbeat(1)), body)
        s.turn()
        s.answer(s.receive_one(other, heartbeat(2)))
        s.turn()
        assert other.receive()[0] == 2, "others do not wait for it"
        answers: list[tuple[int, bytes]] = []
        reader = threading.Thread(target=lambda: answers.append(client.receive()))
        reader.start()
        s.turn_until(
            lambda: not reader.is_alive() and not any(channel.is_muted for channel in s.selector.channels.values())
        )
        assert answers == [(1, body)]
        assert s.receive_one(client, heartbeat(3)).correlation_id == 3


@pytest.mark.mechanism("N10")
def test_an_error_while_completing_a_response_ends_its_connection_only(caplog: pytest.LogCaptureFixture) -> None:
    with stepping() as s, caplog.at_level(logging.ERROR):
        client = s.connect(receive_buffer=8192)
        s.only_channel.transport.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        other = s.connect()
        bad = s.receive_one(client, heartbeat(1))
        good = s.receive_one(other, heartbeat(2))

        def fail_for_one(request: Request, response: object, now: int) -> None:
            if request is bad:
                raise RuntimeError("a listener with a bug")

        s.times.listener = fail_for_one
        s.answer(bad, bytes(1_000_000))
        s.answer(good)
        s.turn()
        assert s.selector.channels[bad.connection_id].send is not None, "it goes out over several turns"
        reader = threading.Thread(target=client.receive)
        reader.start()
        s.turn_until(lambda: s.disconnected)
        reader.join(WAIT_S)
        assert s.disconnected == [bad.connection_id]
        assert other.receive()[0] == 2
        assert s.receive_one(other, heartbeat(3)).correlation_id == 3


@pytest.mark.mechanism("N21")
@every_policy
@pytest.mark.parametrize("answered", [False, True], ids=["no-op", "answer"])
def test_a_connection_that_expires_while_its_requests_are_handled_is_kept_for_them(
    policy: Policy, answered: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Requests without responses are all handled; the first response has nowhere to go, and ends it."""
    config = SocketServerConfig(connections_max_idle_ms=60_000)
    with stepping(policy, config=config) as s, caplog.at_level(logging.WARNING):
        client = s.connect()
        client.send(*(heartbeat(number) for number in range(3)))
        request = s.handled()
        s.clock.advance(60_001)
        s.turn()
        assert list(s.selector.closing_channels) == [request.connection_id]
        assert (s.disconnected, s.quotas.total) == ([], 1)
        for number in range(3):
            assert request.correlation_id == number
            if answered:
                s.answer(request)
                break
            s.channel.send_no_op_response(request)
            if number < 2:
                request = s.handled()
        s.turn()
        assert s.disconnected == [request.connection_id]
        assert (s.quotas.total, s.received, s.processor.selector.stats.idle_closed) == (0, 0, 1)
        client.await_close()
        assert s.times.of(ApiKey.HEARTBEAT).histograms[0].count == (1 if answered else 3)
