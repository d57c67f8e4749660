"""Connections that are muted, throttled and read on, in any order: nothing that has arrived is ever forgotten.

What was received is in three places: whole requests that were read ahead, the part of one that has a buffer of its own,
and the socket. The first two are known to nobody but the channel, and a poller says nothing of them. So a channel that
is muted in whatever state must find all of it again when it is unmuted, without another byte from its peer.
"""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import pytest

from barnabas._kernels.channel_mute import (
    NOT_MUTED,
    RESPONSE_PENDING,
    THROTTLED,
    THROTTLED_AND_RESPONSE_PENDING,
    ChannelMuteEvent,
)
from barnabas._kernels.channel_state import LARGE, READ_AHEAD
from barnabas.common.clock import MockClock
from barnabas.network.reactor.channel import KafkaChannel
from barnabas.network.reactor.memory_pool import UNBOUNDED, MemoryPool, SimpleMemoryPool
from barnabas.network.reactor.selector import Selector
from barnabas.network.reactor.send import NetworkSend
from network_fixtures import tcp_pair
from unit.network.reactor.selector_bench import framed

SIZES: Final = (0, 1, 3, 100, 1_000, 16_384, READ_AHEAD - 4, READ_AHEAD, READ_AHEAD + 1, LARGE, LARGE + 5, 700_000)
SMALL_SIZES: Final = (0, 1, 50, 1_000, 16_384)
ROUNDS: Final = 10
STEPS: Final = 30
SEEDS: Final = range(5)
QUIET_MS: Final = 4
"""After a few turns of that length without anything, nothing more will come."""


class Peer:
    """A client that sends requests in pieces, without waiting for answers."""

    def __init__(self, name: str, sock: socket.socket, channel: KafkaChannel, sizes: tuple[int, ...]) -> None:
        self.name = name
        self.channel = channel
        self._socket = sock
        self._sizes = sizes
        self._left = b""
        self._written = 0
        self.unseen: deque[bytes] = deque()
        """Requests that were sent at least in part, and not handed out yet."""
        self.answers_due = 0

    def send_some(self, random: random.Random) -> None:
        while not self._left or random.random() < 0.4:
            self._written += 1
            size = random.choice(self._sizes)
            request = (b"%d of %s;" % (self._written, self.name.encode()) * (size // 8 + 1))[:size]
            self.unseen.append(request)
            self._left += framed(request)
        # At any place: in the middle of a length, at the end of a request, a few bytes behind it.
        odd = random.choice((1, 2, 3, 4, 5, 4_096, random.randrange(1, READ_AHEAD + 10), len(self._left)))
        self._push(odd)

    def send_rest(self) -> bool:
        """Sends what will fit; returns whether that is all."""
        self._push(len(self._left))
        return not self._left

    def _push(self, count: int) -> None:
        try:
            count = self._socket.send(self._left[:count])
        except BlockingIOError:
            return
        self._left = self._left[count:]

    def read_answers(self) -> None:
        try:
            while data := self._socket.recv(1 << 20):
                self.answers_due -= len(data) // 4
        except BlockingIOError:
            pass


class Server:
    """A selector, and what a processor does with it: requests are answered after a while, in any order, and throttled
    before the response, or not at all; what is throttled is let go before or after the response."""

    def __init__(self, random: random.Random, pool: MemoryPool) -> None:
        self.random = random
        self._pool = pool
        self.selector = Selector(clock=MockClock(), memory_pool=pool)
        self.peers: dict[str, Peer] = {}
        self._connections = ExitStack()

    def connect(self, name: str, sizes: tuple[int, ...]) -> None:
        # TCP, because a large request is waited for in a way that other sockets do not know.
        ours, theirs = self._connections.enter_context(tcp_pair())
        theirs.setblocking(False)
        for one in (ours, theirs):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.peers[name] = Peer(name, theirs, self.selector.register(name, ours), sizes)

    def poll(self, timeout_ms: float = 0) -> bool:
        """One turn; whether anything was received."""
        self.selector.poll(timeout_ms)
        received = list(self.selector.completed_receives)
        self.selector.completed_receives.clear()
        for channel, payload in received:
            assert channel.mute_state is NOT_MUTED, "a request from a muted channel"
            peer = self.peers[channel.id]
            assert bytes(payload) == peer.unseen.popleft(), "another request than the next"
            self._pool.release(len(payload))
            self.selector.request_received(channel)
        return bool(received)

    def answer(self, channel: KafkaChannel) -> None:
        self.peers[channel.id].answers_due += 1
        assert self.selector.send(channel, NetworkSend([framed(b"")]))
        self.selector.response_sent(channel)

    def go_on(self, channel: KafkaChannel) -> None:
        """Does one of the things that can happen to a channel in its state."""
        state = channel.mute_state
        throttle = self.random.random()
        if state is RESPONSE_PENDING and throttle < 0.6:
            channel.handle_mute_event(ChannelMuteEvent.THROTTLE_STARTED)
        elif state is RESPONSE_PENDING or (state is THROTTLED_AND_RESPONSE_PENDING and throttle < 0.7):
            self.answer(channel)
        elif state in {THROTTLED, THROTTLED_AND_RESPONSE_PENDING}:
            channel.handle_mute_event(ChannelMuteEvent.THROTTLE_ENDED)
            self.selector.unmute(channel)

    def step(self) -> None:
        peer = self.random.choice(list(self.peers.values()))
        what = self.random.random()
        if what < 0.3:
            peer.send_some(self.random)
        elif what < 0.6:
            self.poll()
        elif what < 0.9:
            self.go_on(peer.channel)
        else:
            peer.read_answers()

    def settle(self) -> None:
        """Everybody sends the rest of what was begun, and nobody anything after that."""
        everything_sent = False
        idle = 0
        while idle < 3:
            for peer in self.peers.values():
                self.go_on(peer.channel)
                peer.read_answers()
            progress = self.poll(QUIET_MS if idle else 0)
            if not everything_sent:
                sent = [peer.send_rest() for peer in self.peers.values()]
                everything_sent = all(sent)
                progress = True
            idle = 0 if progress or any(peer.channel.is_muted for peer in self.peers.values()) else idle + 1

    def close(self) -> None:
        self.selector.close_all()
        self._connections.close()


@contextmanager
def serving(seed: int, *, bounded: bool) -> Iterator[Server]:
    pool: MemoryPool = SimpleMemoryPool(60_000, 60_000) if bounded else UNBOUNDED
    server = Server(random.Random(seed), pool)
    try:
        for number in range(3):
            server.connect(f"c{number}", SMALL_SIZES if bounded or number == 0 else SIZES)
        yield server
    finally:
        server.close()


@pytest.mark.mechanism("N08")
@pytest.mark.parametrize("bounded", [False, True], ids=["unbounded", "bounded"])
@pytest.mark.parametrize("seed", SEEDS)
def test_all_that_has_arrived_is_handed_out_once_nothing_mutes_it(seed: int, bounded: bool) -> None:
    with serving(seed, bounded=bounded) as server:
        for _ in range(ROUNDS):  # each begins with connections that are quiet, and watched
            for _ in range(STEPS):
                server.step()
            server.settle()
            assert {name: len(peer.unseen) for name, peer in server.peers.items()} == dict.fromkeys(server.peers, 0)
            assert {peer.answers_due for peer in server.peers.values()} == {0}


@pytest.mark.mechanism("N08")
def test_the_twin_forgets_nothing_either() -> None:
    if os.environ.get("BARNABAS_PURE") == "1":
        pytest.skip("this is the twin")
    chosen = [f"{__file__}::test_all_that_has_arrived_is_handed_out_once_nothing_mutes_it"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *chosen],
        env={**os.environ, "BARNABAS_PURE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert run.returncode == 0, run.stdout[-3_000:]
    assert f"{2 * len(SEEDS)} passed" in run.stdout
