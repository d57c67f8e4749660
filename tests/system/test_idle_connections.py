"""A thousand connections that do nothing: what they cost, and what they leave behind.

The same with ten thousand, with bounds as tight as promised, is ``python -m benchmarks connections``; here they are
generous, because a test machine has other things to do.
"""

from __future__ import annotations

import tracemalloc

import pytest
from benchmarks.connections import ALONE, CROWDED, Child, added_bytes, cpu_beside_idle

from barnabas.common.clock import MockClock
from barnabas.server.data_plane import HandOff
from network_fixtures import Policy, Server, every_policy
from system.system_fixtures import Answers, answering, descriptors

IDLE = 1000
MOST_BYTES = 6 * 1024

either_hand_off = pytest.mark.parametrize("hand_off", list(HandOff))


def hold(server: Server, count: int = IDLE) -> Child:
    """A process with that many connections to the server, once it has them all."""
    child = Child("hold", server.sockets.bound_port("PLAINTEXT"), count)
    try:
        assert child.hear() == count
    except BaseException:
        child.kill()
        raise
    return child


@every_policy
def test_an_idle_connection_is_less_than_six_kilobytes_of_objects(policy: Policy) -> None:
    answers = Answers()
    with descriptors(IDLE), answering(policy, answers, socket_listen_backlog_size=1024) as server:
        assert server.connect().ask(1) == 1
        memory = []
        tracemalloc.start()
        try:
            memory.append(tracemalloc.get_traced_memory()[0])
            for _ in range(2):
                with hold(server):
                    assert server.sockets.quotas.total == IDLE + 1
                    memory.append(tracemalloc.get_traced_memory()[0])
                server.await_disconnects(IDLE)
                answers.handled.clear()
                memory.append(tracemalloc.get_traced_memory()[0])
        finally:
            tracemalloc.stop()
        before, held, left, held_again, left_again = memory
        assert held - before < IDLE * MOST_BYTES
        assert held_again - left < IDLE * MOST_BYTES
        # Tables that have grown stay as large, so something is left. But only once.
        assert left_again - left < IDLE * 100, "what is gone is still held"
        assert server.clients[0].ask(2) == 2


@either_hand_off
def test_an_idle_connection_adds_less_than_six_kilobytes_to_the_process(hand_off: HandOff) -> None:
    with descriptors(IDLE):
        assert added_bytes(hand_off, IDLE, "memory") < MOST_BYTES


@either_hand_off
def test_an_active_connection_does_not_notice_idle_ones(hand_off: HandOff) -> None:
    """Three times would mean that something is done for each connection at each request, and so in each block of
    requests. It is the CPU time of the server that counts, as others use the machine, too."""
    with descriptors(IDLE):
        taken = cpu_beside_idle(hand_off, IDLE, 5, 500)
    assert min(taken[CROWDED]) < 3 * min(taken[ALONE]), taken


@every_policy
def test_a_process_that_dies_takes_a_thousand_connections_along(policy: Policy) -> None:
    """``serving`` looks for descriptors and counts that are left."""
    with descriptors(IDLE), answering(policy, socket_listen_backlog_size=1024) as server:
        client = server.connect()
        with hold(server) as child:
            child.kill()
            server.await_disconnects(IDLE)
        assert server.sockets.quotas.total == 1
        assert client.ask(1) == 1


@every_policy
def test_idle_connections_are_closed_one_by_one_and_active_ones_are_not(policy: Policy) -> None:
    clock = MockClock()
    with answering(policy, clock=clock) as server:
        active = server.connect()
        with hold(server, 50):
            clock.advance(599_000)
            assert active.ask(1) == 1
            clock.advance(2_000)
            # One at each turn of the processor, and each request is a turn. So a burst of expiries holds up nobody.
            for number in range(200):
                assert active.ask(number) == number
            server.await_disconnects(50)
        assert server.sockets.quotas.total == 1
        assert server.sockets.processors[0].selector.stats.idle_closed == 50
