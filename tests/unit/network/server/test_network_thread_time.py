"""The time of network threads, as far as somebody has a quota on it."""

from __future__ import annotations

import queue

import pytest

from network_fixtures import WAIT_S, Policy, every_policy, heartbeat, serving


@pytest.mark.mechanism("Q07")
@every_policy
def test_the_time_for_reading_and_sending_is_told_with_the_response_if_wanted(policy: Policy) -> None:
    with serving(policy) as server:
        client = server.connect()

        def times_told(number: int) -> list[int]:
            told: queue.Queue[int] = queue.Queue()
            client.send(heartbeat(number))
            request = server.next_request()
            request.record_network_thread_time = told.put
            server.answer(request)
            client.receive()
            client.send(heartbeat(number + 1))  # when this is read, the first one is done with
            server.answer(server.next_request())
            client.receive()
            return [told.get_nowait() for _ in range(told.qsize())]

        assert times_told(1) == [], "nobody wants to know"
        server.sockets.record_time_per_connection(True)
        (nanoseconds,) = times_told(3)
        assert 0 < nanoseconds < WAIT_S * 1e9
        server.sockets.record_time_per_connection(False)
        times_told(5)  # what the connection has collected is told with the first
        assert times_told(7) == []


@pytest.mark.mechanism("Q07")
@every_policy
def test_threads_that_are_added_later_measure_too(policy: Policy) -> None:
    with serving(policy) as server:
        server.sockets.record_time_per_connection(True)
        (listener,) = server.sockets.acceptors
        server.sockets.resize_thread_pool(listener, 2)
        assert [processor.selector.reactor.record_time_per_connection for processor in server.sockets.processors] == [
            True
        ] * 2
