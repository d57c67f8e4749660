"""Sends mutated requests to both listeners of a broker, as fast as it takes them.

    python hostile_sender.py CLIENT_PORT CONTROLLER_PORT SEED FRAMES

Frames go out in batches, over several connections to each listener, from addresses of their own, so that the broker can
tell this client from others. A batch ends with an ApiVersions request. Responses come in the order of requests,
so once that one has its response the whole batch has been dealt with. Until then a connection may be closed by the
broker, or a request may rightly wait (a fetch, a join): after `PATIENCE_S` the connection is given up. A new one is
opened in either case.

It prints how many frames were sent, how many connections the broker closed, and how many were given up.
"""

from __future__ import annotations

import random
import selectors
import socket
import struct
import sys
import time
from contextlib import suppress
from typing import Final

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.framing import encode_request
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from oracles.messages import random_message
from oracles.mutations import NASTY, mutate, overwrite
from oracles.random_requests import Ids, random_request
from oracles.side_by_side import Connection, advertised

CLIENT_ADDRESS: Final = "127.0.0.2"
CONTROLLER_ADDRESS: Final = "127.0.0.3"
"""Where the connections to the clients' and to the controller's listener come from."""
CONNECTIONS: Final = 6
"""To each of the two listeners."""
BATCH: Final = 20
PATIENCE_S: Final = 2.0
HEADER_SIZE: Final = 12
"""Size, API, version and correlation id: with these changed, hardly a frame would get past the dispatcher."""
LAST: Final = 0x7AB1E
"""The correlation id of the request at the end of a batch."""
TAG: Final = b"0"
"""In place of ``~`` in names, which is not allowed in names of topics."""
MAX_FRAME: Final = 1 << 16

_LAST_REQUEST: Final = encode_request(ApiVersionsRequest(), 0, LAST, None)


class Frames:
    """Random frames for a listener: mostly of what it serves, but of everything that there is."""

    def __init__(self, port: int, chance: random.Random) -> None:
        self._chance = chance
        connection = Connection(port)
        self._served = list(advertised(connection))
        connection.close()

    def frame(self) -> bytes:
        chance = self._chance
        api = chance.choice(self._served if chance.random() < 0.95 else list(ApiKey))
        version = chance.randint(api.versions.lowest, api.versions.highest)
        if chance.random() < 0.5:
            request = random_request(api, version, chance, Ids())
        else:
            request = random_message(api.request, version, chance)
        frame = encode_request(request, version, chance.randrange(LAST), "hostile").replace(b"~", TAG)
        how = chance.random()
        if how < 0.2:
            return frame[:MAX_FRAME]
        if how < 0.99:
            keep = 4 if how > 0.96 else HEADER_SIZE
            change = overwrite if how < 0.6 else mutate
            content = (frame[4:keep] + change(frame[keep:], chance))[:MAX_FRAME]
            return struct.pack(">i", len(content)) + content
        return chance.choice(NASTY) + frame[4:]  # not even the size is right


class Sender:
    """One connection at a time; the frames of the current batch, and how many responses there have been."""

    def __init__(self, port: int, address: str, frames: Frames) -> None:
        self._port = port
        self._address = address
        self._frames = frames
        self.sent = self.closed = self.given_up = 0
        self.deadline = 0.0
        self._batch: list[bytes] = []
        self._responses = 0
        self._unsent = b""
        self._received = bytearray()
        self.socket = self._connect()

    def _connect(self) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self._port), timeout=60, source_address=(self._address, 0))
        made.setblocking(False)
        return made

    def reconnect(self) -> None:
        """Goes on behind the request that ended the connection: the one after those that have responses."""
        self.socket.close()
        self.socket = self._connect()
        self.sent += min(self._responses + 1, len(self._batch))
        self._batch = self._batch[self._responses + 1 :]

    def begin(self) -> None:
        """Sends what is left of the batch, or the next one."""
        self._batch = self._batch or [self._frames.frame() for _ in range(BATCH)]
        self._unsent = b"".join((*self._batch, _LAST_REQUEST))
        self._received.clear()
        self._responses = 0
        self.deadline = time.monotonic() + PATIENCE_S

    def write(self) -> bool:
        """Whether all is out."""
        with suppress(BlockingIOError):
            self._unsent = self._unsent[self.socket.send(self._unsent) :]
        return not self._unsent

    def read(self) -> bool:
        """Whether the last response of the batch is there."""
        with suppress(BlockingIOError):
            data = self.socket.recv(1 << 18)
            if not data:
                raise ConnectionResetError
            self._received += data
        while len(self._received) >= 8:
            size, correlation_id = struct.unpack_from(">ii", self._received)
            if len(self._received) < size + 4:
                return False
            if correlation_id == LAST:
                self.sent += len(self._batch)
                self._batch = []
                return True
            self._responses += 1
            del self._received[: size + 4]
        return False


def send(senders: list[Sender], frames: int) -> None:
    """Sends so many frames over all connections."""
    selector = selectors.DefaultSelector()

    def begin(sender: Sender) -> None:
        if sum(one.sent for one in senders) < frames:
            sender.begin()
            selector.register(sender.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, sender)

    for sender in senders:
        begin(sender)
    while selector.get_map():
        for key, events in selector.select(0.1):
            sender = key.data
            try:
                if events & selectors.EVENT_WRITE and sender.write():
                    selector.modify(sender.socket, selectors.EVENT_READ, sender)
                if events & selectors.EVENT_READ and sender.read():
                    selector.unregister(sender.socket)
                    begin(sender)
            except ConnectionError:
                selector.unregister(sender.socket)
                sender.closed += 1
                sender.reconnect()
                begin(sender)
        now = time.monotonic()
        for sender in [key.data for key in selector.get_map().values()]:
            if now > sender.deadline:
                selector.unregister(sender.socket)
                sender.given_up += 1
                sender.reconnect()
                begin(sender)
    for sender in senders:
        sender.socket.close()


def main() -> None:
    client_port, controller_port, seed, count = map(int, sys.argv[1:])
    chance = random.Random(seed)
    senders = []
    for port, address in ((client_port, CLIENT_ADDRESS), (controller_port, CONTROLLER_ADDRESS)):
        frames = Frames(port, chance)
        senders += [Sender(port, address, frames) for _ in range(CONNECTIONS)]
    send(senders, count)
    print(*(sum(getattr(sender, name) for sender in senders) for name in ("sent", "closed", "given_up")), flush=True)


if __name__ == "__main__":
    main()
