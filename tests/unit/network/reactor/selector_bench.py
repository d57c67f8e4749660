"""For tests of the selector: one with real connections, a clock that stands still and a poller that counts."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from barnabas.common.clock import MockClock
from barnabas.network.reactor.channel import ChannelState, KafkaChannel
from barnabas.network.reactor.poller import Poller, make_poller
from barnabas.network.reactor.selector import Selector
from barnabas.network.reactor.send import NetworkSend
from network_fixtures import WAIT_S, Client, nothing_left_behind

WAIT_MS = WAIT_S * 1000
PART_MS = 20
"""For a poll that finds a part of a message: it waits for the rest as long as it may."""


def framed(*payloads: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(payload)) + payload for payload in payloads)


class CountingPoller:
    """Remembers how long it was told to wait and what it found."""

    def __init__(self) -> None:
        self._poller: Poller = make_poller()
        self.timeouts: list[float] = []
        self.found: list[list[tuple[int, int]]] = []
        self.register = self._poller.register
        self.modify = self._poller.modify
        self.unregister = self._poller.unregister
        self.close = self._poller.close

    def poll(self, timeout_ms: float) -> list[tuple[int, int]]:
        self.timeouts.append(timeout_ms)
        self.found.append(self._poller.poll(timeout_ms))
        return self.found[-1]


class Bench:
    """A selector and its connections."""

    def __init__(self, **arguments: Any) -> None:
        self.clock = MockClock()
        self.poller = CountingPoller()
        self.selector = Selector(clock=self.clock, poller=self.poller, **arguments)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.clients: list[Client] = []

    def connect(self, name: str = "c", *, buffers: int | None = None) -> tuple[KafkaChannel, Client]:
        client = Client.connect(self._listening.getsockname()[1], receive_buffer=buffers)
        self.clients.append(client)
        accepted, _ = self._listening.accept()
        accepted.setblocking(False)
        if buffers is not None:
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffers)
        return self.selector.register(name, accepted), client

    def poll(self, timeout_ms: float = WAIT_MS) -> list[tuple[str, bytes]]:
        self.selector.poll(timeout_ms)
        return [(channel.id, bytes(payload)) for channel, payload in self.selector.completed_receives]

    def poll_until_lost(self) -> list[tuple[str, ChannelState]]:
        for _ in range(600):
            self.poll(100)
            if self.selector.disconnected:
                return [(channel.id, state) for channel, state in self.selector.disconnected]
        raise AssertionError("no connection was lost")

    def answer(self, channel: KafkaChannel, payload: bytes = b"") -> None:
        if self.selector.send(channel, NetworkSend([framed(payload)])):
            self.selector.response_sent(channel)

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self._listening.close()
        self.selector.close_all()


@contextmanager
def bench(**arguments: Any) -> Iterator[Bench]:
    with nothing_left_behind():
        made = Bench(**arguments)
        try:
            yield made
        finally:
            made.close()
