"""Sends, channels and the reactor that moves their bytes: the twin of `compiled.reactor`.

`NetworkSend` is one outgoing message, `KafkaChannel` one connection with its buffers, `Reactor` polls and moves the
bytes of all ready channels. They hold no policy. The reactor leaves everything outside the fast path (a handshake, a
full socket, a partial request, the end of a connection) in its list `attention`, and
`barnabas.network.reactor.selector` decides. Nothing here calls back.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, NoReturn

from barnabas._kernels.channel_mute import NOT_MUTED, RESPONSE_PENDING, ChannelMuteEvent, next_state
from barnabas._kernels.channel_state import (
    FIRST_ALLOCATION,
    FIRST_READ,
    JOIN_UP_TO,
    LARGE,
    MAX_PIECES,
    MAX_UNPOLLED,
    PIECE,
    READ_AHEAD,
    READ_PER_TURN,
    SMALL_PIECE,
    UNSEEN_ALLOCATION,
    WHOLE_ALLOCATION,
    ChannelState,
    InvalidReceiveError,
)
from barnabas._kernels.pure.sockets import new_buffer, resize

READ = 1
WRITE = 4
PREPARE = 0x100
"""In `Reactor.attention`: the channel is not ready yet and was not touched."""
HELD = 0x200
"""The channel is readable, but muted or out of memory."""
NOTHING = 0x400
"""A read completed no request."""
UNKNOWN = 0x800
"""The file descriptor belongs to no channel."""

SENT, PARTLY_SENT, RESUME, BUSY, GONE = range(5)
"""The outcome of a response: sent; partly sent; sent, and the channel must be resumed; the channel cannot send now;
the channel is not open."""

_READY = ChannelState.READY
READABLE = READ | 0x18
"""Ready to read, or in an error state that a read will reveal."""
_unpack_size = struct.Struct(">i").unpack_from


class FileRegion:
    """A part of a file that is sent unchanged."""

    def __init__(self, fd: int, position: int, count: int) -> None:
        self.fd = fd
        """A descriptor, or an object that has one and keeps it open."""
        self.position, self.count = position, count

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        return f"FileRegion(fd={self.fd}, position={self.position}, count={self.count})"


class NetworkSend:
    """An outgoing message.

    ``write_to`` sends as much as the socket takes and may be called until nothing is ``remaining``. A socket that has
    taken less than offered is full, and is not tried again until it is writable.
    """

    __slots__ = ("_at", "_pieces", "remaining", "request", "size")  # responses extend it, some with a weak reference

    def __init__(self, pieces: Sequence[Any], request: Any = None) -> None:
        self.request = request
        """The request that this responds to, on the broker; the request that it carries, in a client."""
        self._at = 0
        """The first piece that is not completely sent."""
        self.size = self.remaining = size = sum(map(len, pieces))
        has_regions = any(type(piece) is FileRegion for piece in pieces)
        parts = _read_regions(pieces) if len(pieces) > 1 and size <= JOIN_UP_TO else None
        self._pieces: list[Any]
        if parts is not None:
            self._pieces = [b"".join(parts)]
        elif len(pieces) == 1:
            self._pieces = [pieces[0]]
        else:
            self._pieces = _joined_runs(pieces, JOIN_UP_TO if has_regions else SMALL_PIECE)

    def write_to(self, transport: Any, *, more: bool = False) -> int:
        """Sends what the socket takes now and returns the number of bytes; `more` for a message of one piece."""
        written = 0
        pieces = self._pieces
        count = len(pieces)
        try:
            send_whole = transport.send_whole
            if send_whole is not None and self.remaining == self.size and send_whole(pieces, self.size):
                self._at, self.remaining = count, 0
                return self.size
            while self._at < count:
                at = self._at
                piece = pieces[at]
                if type(piece) is FileRegion:
                    asked = piece.count
                    sent = transport.send_file(piece.fd, piece.position, asked)
                    if sent == asked:
                        self._at = at + 1
                    elif sent == 0:
                        raise EOFError(f"{piece!r} is beyond the end of its file: it shrank while it was being sent")
                    else:
                        pieces[at] = FileRegion(piece.fd, piece.position + sent, asked - sent)
                else:
                    stop = at + 1
                    while stop < count and stop - at < MAX_PIECES and type(pieces[stop]) is not FileRegion:
                        stop += 1
                    if stop > at + 1:
                        asked = sum(map(len, pieces[at:stop]))
                        sent = transport.sendmsg(pieces[at:stop])
                    else:
                        asked = len(piece)
                        sent = transport.send_more(piece) if stop < count or more else transport.send(piece)
                    if sent == asked:
                        self._at = stop
                    else:
                        self._sent(sent)
                written += sent
                self.remaining -= sent
                if sent < asked:
                    break  # the socket is full: EAGAIN would cost another call
        except BlockingIOError:
            pass
        return written

    def _sent(self, sent: int) -> None:
        """Skips the buffers that are completely sent, and keeps the rest of the partly sent one."""
        pieces = self._pieces
        while sent >= len(pieces[self._at]):
            sent -= len(pieces[self._at])
            self._at += 1
        if sent:
            pieces[self._at] = memoryview(pieces[self._at])[sent:]

    def __repr__(self) -> str:
        return f"NetworkSend({self.size - self.remaining} of {self.size} bytes sent)"


def _read_regions(pieces: Sequence[Any]) -> list[Any] | None:
    """Returns the pieces with regions replaced by their contents.

    None if a file is too short, which the sender then detects and reports.
    """
    parts: list[Any] = []
    for piece in pieces:
        try:
            part = os.pread(piece.fd, piece.count, piece.position) if type(piece) is FileRegion else piece
        except OSError:
            return None
        if len(part) != len(piece):
            return None
        parts.append(part)
    return parts


def _joined_runs(pieces: Sequence[Any], limit: int) -> list[Any]:
    """Returns the pieces with consecutive small buffers joined."""
    parts: list[Any] = []
    for is_small, run in groupby(pieces, lambda piece: type(piece) is not FileRegion and len(piece) <= limit):
        if is_small:
            parts.append(b"".join(run))
        else:
            parts.extend(run)
    return parts


class KafkaChannel:
    """One connection: see `barnabas.network.reactor.channel`."""

    def __init__(self, channel_id: str, transport: Any, max_receive_size: int, pool: Any, authenticator: Any) -> None:
        self.id = channel_id
        self.transport = transport
        self.authenticator = authenticator
        self.fd: int = transport.fileno()
        self.events = 0
        """The events that the poller watches; zero when it does not watch this channel."""
        self.state = ChannelState.NOT_CONNECTED
        self.mute_state = NOT_MUTED
        self.out_of_memory = False
        """Not read because the pool is exhausted; reset by the selector, not by a response."""
        self.send: NetworkSend | None = None
        self.closing = False
        """The peer is gone, but its earlier requests are still being handled."""
        self.last_active_ns = self.network_thread_time_ns = self.bytes_received = 0
        self.context: Any = None
        """The data that the owner of the selector keeps about this connection."""
        self.client_information: tuple[str, str] | None = None
        self.error: Exception | None = None
        """The error that ended the connection, unless its owner closed it."""
        self.max_receive_size = max_receive_size
        self._pool = pool
        self._reads_all: bool = getattr(transport, "reads_all", False)
        """Whether another read after a short one is useless (see `PlaintextTransportLayer`)."""
        self.ahead: memoryview | None = None
        """Bytes read ahead and not all delivered yet: whole requests, and at the end perhaps part of one."""
        self._ahead_at = 0
        """How many of these bytes were delivered."""
        self._head = b""
        """Up to three bytes of a length prefix."""
        self.spares: Any = None
        """The `SpareBuffers` of large requests; None if their buffers are not kept."""
        self._payload: bytearray | None = None
        self._start = 0
        """Where in its buffer the request being read begins: after its length, if the length was read into it, too."""
        self._filled = 0
        self.receiving = -1
        """The size of the request being read; negative between requests."""

    @property
    def has_bytes_buffered(self) -> bool:
        """Whether reading may yield data without the socket becoming readable."""
        return self.ahead is not None or bool(self.transport.has_bytes_buffered)

    @property
    def has_next(self) -> bool:
        """Whether the next request was read ahead as a whole."""
        view, start = self.ahead, self._ahead_at
        return view is not None and len(view) - start >= 4 and _unpack_size(view, start)[0] <= len(view) - start - 4

    def read(self, *, all_at_once: bool = True) -> memoryview | None:
        """Returns the next request, or None if it has not arrived yet, or if it is large and not to be read at once.

        Raises ``EOFError`` at the end of the stream, ``OSError`` for a broken connection, and
        :class:`InvalidReceiveError` for a length that is negative or too large.
        """
        if self.receiving >= 0:
            return self._read_payload()
        view = self.ahead
        if view is None:
            if self._pool.bounded:
                return self._read_exactly()
            data = self._receive(READ_AHEAD if all_at_once else FIRST_READ)
            if data is None:
                return None
            if self._head:
                data = self._head + data
                self._head = b""
            view = memoryview(data)
            start = 0
        else:
            start = self._ahead_at
        arrived = len(view)
        if arrived - start >= 4:
            (size,) = _unpack_size(view, start)
            if size < 0:
                return self._read_special(view, start, size)
            if size > self.max_receive_size:
                self._refuse(size)
            stop = start + size + 4
            if arrived >= stop:
                self.ahead = view if arrived > stop else None
                self._ahead_at = stop
                if size < LARGE and self.spares:
                    self.spares.count_small()
                return view[start + 4 : stop]
        self.ahead = None
        return self._collect(view[start:], all_at_once)

    def _receive(self, size: int) -> bytes | None:
        """Returns bytes from the socket, or None if there are none yet."""
        try:
            data: bytes = self.transport.recv(size)
        except BlockingIOError:
            return None
        if not data:
            raise EOFError("the peer closed the connection")
        self.bytes_received += len(data)
        return data

    def _read_payload(self) -> memoryview | None:
        """Reads the rest of a request straight into its buffer; returns the request if it is complete."""
        size = self.receiving
        payload = self._payload
        if payload is None:
            if not self._pool.try_reserve(size):
                self.out_of_memory = True
                return None
            payload = self._payload = new_buffer(min(size, FIRST_ALLOCATION))
            self._start = self._filled = 0
        recv_into = self.transport.recv_into
        start = self._start
        stop = start + size
        taken = 0
        while self._filled < stop:
            if self._filled == len(payload):
                resize(payload, min(2 * len(payload), stop))
            room = min(min(len(payload), stop) - self._filled, PIECE)
            try:
                with memoryview(payload) as view:
                    count = recv_into(view[self._filled : self._filled + room])
            except BlockingIOError:
                if size >= LARGE:
                    self.transport.expect(min(stop - self._filled, PIECE))
                return None
            if not count:
                raise EOFError(f"the peer closed the connection {self._filled - start} bytes into a request of {size}")
            self._filled += count
            self.bytes_received += count
            taken += count
            if size >= LARGE and self._filled < stop and (taken >= PIECE or (count < room and self._reads_all)):
                self.transport.expect(min(stop - self._filled, PIECE))
                return None
        self._payload = None
        self.receiving = -1
        if size >= LARGE:
            self.transport.expect(1)
            if self.spares is not None and size <= WHOLE_ALLOCATION:
                self.spares.keep(payload)
        return memoryview(payload)[start:stop]

    def _refuse(self, size: int) -> NoReturn:
        raise InvalidReceiveError(
            f"a request of {size} bytes from {self.id}; allowed are 0 to {self.max_receive_size}", size
        )

    def _read_special(self, view: memoryview, start: int, mark: int) -> memoryview | None:
        """Handles a negative length, which some transports use (see `TransportLayer.special_frame`)."""
        special_frame = self.transport.special_frame
        found = None if special_frame is None else special_frame(view, start, self)
        if found is None:
            self._refuse(mark)
        payload, stop = found
        if payload is None:
            self.ahead, self._head = None, bytes(view[start:])
            return None
        self.ahead = view if len(view) > stop else None
        self._ahead_at = stop
        self.bytes_received += len(payload)
        return payload  # type: ignore[no-any-return]

    def allocate(self, size: int) -> bytearray:
        """Returns a buffer for a request of this size; raises if the size is not allowed."""
        if not 0 <= size <= self.max_receive_size:
            self._refuse(size)
        payload = None if self.spares is None else self.spares.take(size)
        if payload is None:
            return new_buffer(size)
        self.spares.keep(payload)
        return payload  # type: ignore[no-any-return]

    def _collect(self, view: memoryview, all_at_once: bool) -> memoryview | None:
        """Sets aside the beginning of a request and reads on, if it may, straight into its buffer."""
        if len(view) < 4:
            self._head = bytes(view)
            return None
        (self.receiving,) = _unpack_size(view)
        size, arrived = self.receiving, len(view) - 4
        payload = None if self.spares is None else self.spares.take(size)
        if payload is None:
            likely = min(FIRST_ALLOCATION, max(UNSEEN_ALLOCATION, 16 * len(view)))
            payload = new_buffer(max(min(size, likely), arrived))
        self._payload, self._start, self._filled = payload, 0, arrived
        payload[:arrived] = view[4:]
        return self._read_payload() if all_at_once else None

    def _read_exactly(self) -> memoryview | None:
        """Reads only the length: with a bounded pool nothing is read that has not been granted."""
        self._head += self._receive(4 - len(self._head)) or b""
        if len(self._head) < 4:
            return None
        (size,) = _unpack_size(self._head)
        self._head = b""
        if size < 0 or size > self.max_receive_size:
            self._refuse(size)
        self.receiving = size
        return self._read_payload()

    def abandon_receive(self) -> None:
        """Returns the pool's grant for a request that will never be complete."""
        if self._pool.bounded and self._payload is not None:
            self._pool.release(self.receiving)
        self._payload = self.ahead = None
        self.receiving = -1
        self._head = b""

    def release(self, payload: memoryview) -> None:
        """Returns the pool's grant for a request that an authenticator has handled."""
        if self._pool.bounded:
            self._pool.release(len(payload))

    @property
    def is_muted(self) -> bool:
        return self.mute_state is not NOT_MUTED

    def handle_mute_event(self, event: ChannelMuteEvent) -> None:
        self.mute_state = next_state(self.mute_state, event)

    def __repr__(self) -> str:
        return f"KafkaChannel({self.id}, {self.state.name}, {self.mute_state.name})"


class SelectorStats:
    """Counters of one selector, written by its thread alone."""

    def __init__(self) -> None:
        self.connections_created = self.connections_closed = self.idle_closed = 0
        self.failed_authentications = self.failed_reauthentications = self.invalid_receives = 0
        self.successful_authentications = self.successful_reauthentications = 0
        self.successful_authentications_no_reauth = 0
        """Those whose peer does not authenticate again when its session ends."""
        self.reauthentication_ns = self.longest_reauthentication_ns = 0
        """How long the successful ones took, in total and at most."""
        self.bytes_received = self.bytes_sent = self.select_ns = self.io_ns = 0


class Reactor:
    """Polls, and moves the bytes of channels that are ready.

    `completed_receives` holds the received requests. `attention` holds what needs a decision: the channel, flags (its
    readiness, and `PREPARE`, `HELD`, `NOTHING`, `UNKNOWN`), and the error of a failed read.
    """

    def __init__(self, wait: Callable[[float], list[tuple[int, int]]], clock: Callable[[], int]) -> None:
        self.wait, self.clock = wait, clock
        self.record_time_per_connection = False
        """Whether channels add up the time spent on them: a request quota needs it, and it costs two clock reads."""
        self.channels: dict[str, KafkaChannel] = {}
        self.by_fd: dict[int, KafkaChannel] = {}
        self.connecting: set[KafkaChannel] = set()
        self.buffered: dict[KafkaChannel, None] = {}
        """Channels to read without waiting for the poller."""
        self.held: set[Any] = set()
        """Transports whose last response waits for the next one, or for the next poll."""
        self.completed_receives: list[tuple[KafkaChannel, memoryview]] = []
        self.attention: list[tuple[Any, int, Exception | None]] = []
        self.stats = SelectorStats()
        self.polled_ns = clock()
        """When the last poll returned its events."""
        self._unpolled = 0
        """The requests taken from buffers since the sockets were polled."""
        self._may_read = 0
        """How many bytes this turn may still read of requests that are not small."""

    def request_received(self, channel: KafkaChannel) -> None:
        """Mutes a channel because its request is being handled."""
        if channel.mute_state is not NOT_MUTED:
            raise RuntimeError(f"a request from a channel that is {channel.mute_state.name}")
        channel.mute_state = RESPONSE_PENDING

    def response_sent(self, channel: KafkaChannel) -> bool:
        """Unmutes a channel after the response, unless it is throttled; returns whether it must be resumed."""
        if channel.mute_state is not RESPONSE_PENDING:
            channel.handle_mute_event(ChannelMuteEvent.RESPONSE_SENT)
            return False  # it is still throttled
        channel.mute_state = NOT_MUTED
        if channel.ahead is not None:
            self.buffered[channel] = None
            return False
        return not channel.events & READ or bool(channel.transport.has_bytes_buffered)

    def send(self, channel: KafkaChannel, send: NetworkSend, *, more: bool = False) -> int:
        """Starts sending; returns `SENT`, `PARTLY_SENT` or `BUSY`. Raises the transport's errors."""
        if channel.send is not None or channel.closing or (self.connecting and channel in self.connecting):
            return BUSY
        channel.last_active_ns = self.polled_ns
        send.write_to(channel.transport, more=more)
        if send.remaining:
            channel.send = send
            return PARTLY_SENT
        self.stats.bytes_sent += send.size
        return SENT

    def respond(self, response: NetworkSend) -> int:
        """Sends the response to a request and unmutes its channel; returns the outcome."""
        request = response.request
        channel = self.channels.get(request.connection_id)
        if channel is None:
            return GONE
        outcome = self.send(channel, response, more=self._may_hold(channel))
        if self.record_time_per_connection:
            channel.network_thread_time_ns += self.clock() - request.response_dequeue_time_ns
        if outcome == SENT:
            spent = channel.network_thread_time_ns
            channel.network_thread_time_ns = 0
            request.complete(spent, response)
            if self.response_sent(channel):
                return RESUME
        return outcome

    def _may_hold(self, channel: KafkaChannel) -> bool:
        """Whether a response may wait for the next one, whose request was read ahead: one packet wakes the client."""
        if channel.has_next and channel.transport.push is not None:
            self.held.add(channel.transport)
            return True
        self.held.discard(channel.transport)
        return False

    def move(self, timeout_ms: float, arrange: Callable[[list[tuple[int, int]]], None] | None = None) -> int:
        """Waits for channels to become ready and reads them; returns the time when they were ready.

        ``arrange`` reorders the events first. Requests that have been read ahead are taken without polling the
        sockets, at most `MAX_UNPOLLED` of them in succession.
        """
        buffered = self.buffered
        now = self.clock()
        events: list[tuple[int, int]] = []
        if not self._may_skip_poll():
            while self.held:
                self.held.pop().push()
            started = now
            events = self.wait(0 if buffered else timeout_ms)
            now = self.clock()
            self.stats.select_ns += now - started
        self.polled_ns = now
        self._may_read = READ_PER_TURN
        if arrange is not None:
            arrange(events)
        if buffered:
            self.buffered = {}
            for channel in buffered:
                self._handle(channel, READ, now)
        by_fd = self.by_fd
        for fd, ready in events:
            found = by_fd.get(fd)
            if found is None:
                self.attention.append((fd, UNKNOWN, None))
            elif found not in buffered:
                self._handle(found, ready, now)
            elif ready & WRITE:  # it has had its one read
                self._handle(found, WRITE, now)
        if events or buffered:
            self.stats.io_ns += self.clock() - now
        return now

    def _may_skip_poll(self) -> bool:
        """Whether requests that were read ahead may be taken before the sockets are polled.

        Not while one of their channels is sending: it may be writable, or the peer may be gone.
        """
        self._unpolled += len(self.buffered)
        if self.buffered and self._unpolled <= MAX_UNPOLLED and all(channel.send is None for channel in self.buffered):
            return True
        self._unpolled = 0
        return False

    def _handle(self, channel: KafkaChannel, ready: int, now: int) -> None:
        """Reads a ready channel. Leaves an error in `attention`, so that it affects only this channel."""
        channel.last_active_ns = now
        if channel.state is not _READY:
            self.attention.append((channel, ready | PREPARE, None))
            return
        left = ready & WRITE if channel.send is not None else 0
        if ready & READABLE:
            if channel.mute_state is not NOT_MUTED or channel.out_of_memory:
                left |= HELD
            elif self._may_read <= 0 and channel.receiving >= 0:
                self.buffered[channel] = None
            else:
                before = channel.bytes_received
                started = self.clock() if self.record_time_per_connection else 0
                try:
                    payload = channel.read(all_at_once=self._may_read > 0)
                except Exception as error:  # noqa: BLE001 - this connection's end, not the thread's
                    self.attention.append((channel, 0, error))
                    payload, left = None, 0
                else:
                    if payload is not None:
                        self.completed_receives.append((channel, payload))
                    elif self._may_read <= 0 and channel.receiving >= 0:
                        self.buffered[channel] = None
                    else:
                        left |= NOTHING
                self._may_read -= channel.bytes_received - before
                if self.record_time_per_connection:
                    channel.network_thread_time_ns += self.clock() - started
        if left:
            self.attention.append((channel, left, None))
