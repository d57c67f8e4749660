"""What a selector does for every request, in the shape that nearly all requests have: the twin of the compiled
`_reactor`, with the same names and the same behaviour.

Each class here is the base of one that has the rest: `SendCore` of `NetworkSend`, `ChannelCore` of `KafkaChannel`,
`SelectorCore` of `Selector`. The ideas are told there. What is *not* of the common shape (a handshake, a full socket, a
request that comes in pieces, a connection that ends) is left to methods of theirs.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from barnabas._kernels.pure.sockets import new_buffer, resize
from barnabas.network.channel_state import (
    FIRST_ALLOCATION,
    LARGE,
    MOST_SPARES,
    PIECE,
    READ_AHEAD,
    SPARES_FOR,
    UNSEEN_ALLOCATION,
    WHOLE_ALLOCATION,
    ChannelState,
)
from barnabas.network.mute import NOT_MUTED, RESPONSE_PENDING, ChannelMuteEvent
from barnabas.network.poller import READ, WRITE

if TYPE_CHECKING:
    from barnabas.network.channel import KafkaChannel
    from barnabas.network.send import NetworkSend

_READY = ChannelState.READY
_READABLE = READ | 0x18
"""Ready to read, or in an error state that reading will tell about."""
JOIN_UP_TO = 1 << 16
"""A message up to this size goes out in one call. That costs a copy, and reading what is still in a file, which is less
than the calls and packets that it saves."""
SMALL = 1 << 10
"""Pieces up to this size are joined in a long message without files: what the encoders make of fields, and not records,
which are long and may be kept where they are."""
MAX_PIECES = 512
"""How many buffers one ``sendmsg`` takes; POSIX guarantees 16, Linux and macOS have 1024."""
_unpack_size = struct.Struct(">i").unpack_from


class FileRegion:
    """A part of a file that goes out as it is."""

    __slots__ = ("count", "fd", "position")

    def __init__(self, fd: int, position: int, count: int) -> None:
        self.fd = fd
        """A descriptor, or an object that is one and keeps it open."""
        self.position = position
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        return f"FileRegion(fd={self.fd}, position={self.position}, count={self.count})"


class SendCore:
    """A message on its way out: see `NetworkSend`."""

    __slots__ = ("_at", "_pieces", "remaining", "request", "size")

    def __init__(self, pieces: Sequence[Any], request: Any = None) -> None:
        self.request = request
        """What this answers, on the broker; what it carries, in a client."""
        self._at = 0
        """The first piece that has not gone out whole."""
        if len(pieces) == 1:
            self._pieces: list[Any] = [pieces[0]]
            self.size = self.remaining = len(pieces[0])
        else:
            self.size = self.remaining = self._gather(pieces)

    def _gather(self, pieces: Sequence[Any]) -> int:
        """Takes several pieces, and returns how many bytes they are."""
        size = sum(map(len, pieces))
        has_regions = any(type(piece) is FileRegion for piece in pieces)
        if size <= JOIN_UP_TO:
            parts = _read_regions(pieces) if has_regions else pieces
            if parts is not None:
                self._pieces = [b"".join(parts)]
                return size
        self._pieces = _joined_runs(pieces, JOIN_UP_TO if has_regions else SMALL)
        return size

    @property
    def completed(self) -> bool:
        return self.remaining == 0

    def write_to(self, transport: Any) -> int:
        """Sends what the socket will take now and returns the number of bytes."""
        pieces = self._pieces
        if self.remaining == self.size and len(pieces) == 1 and type(pieces[0]) is bytes:
            # By far the most common: one buffer, which the socket takes whole.
            try:
                sent: int = transport.send(pieces[0])
            except BlockingIOError:
                return 0
            self.remaining -= sent
            if self.remaining:
                self._pieces = [memoryview(pieces[0])[sent:]]
            return sent
        return self._write_pieces(transport)

    def _write_pieces(self, transport: Any) -> int:
        written = 0
        pieces = self._pieces
        count = len(pieces)
        try:
            references = transport.references
            if references is not None and self.remaining == self.size and references.send(pieces, self.size):
                self._at = count
                self.remaining = 0
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
                        sent = transport.send(piece) if stop == count else transport.send_more(piece)
                    if sent == asked:
                        self._at = stop
                    else:
                        self._sent(sent)
                written += sent
                self.remaining -= sent
                if sent < asked:
                    break  # the socket is full: to be told so would take another call
        except BlockingIOError:
            pass
        return written

    def _sent(self, sent: int) -> None:
        """Steps over the buffers that went out whole, and keeps the rest of the one that did not."""
        pieces = self._pieces
        while sent >= len(pieces[self._at]):
            sent -= len(pieces[self._at])
            self._at += 1
        if sent:
            pieces[self._at] = memoryview(pieces[self._at])[sent:]


def _read_regions(pieces: Sequence[Any]) -> list[Any] | None:
    """The pieces with the contents of regions in their place; None if that is not all there: then it is found out,
    and told, by whoever sends it."""
    parts: list[Any] = []
    for piece in pieces:
        if type(piece) is FileRegion:
            try:
                data = os.pread(piece.fd, piece.count, piece.position)
            except OSError:
                return None
            if len(data) != piece.count:
                return None
            parts.append(data)
        else:
            parts.append(piece)
    return parts


def _joined_runs(pieces: Sequence[Any], limit: int) -> list[Any]:
    """The pieces with small buffers that follow each other made one."""
    parts: list[Any] = []
    run: list[Any] = []
    for piece in pieces:
        if type(piece) is FileRegion or len(piece) > limit:
            if run:
                parts.append(b"".join(run))
                run = []
            parts.append(piece)
        else:
            run.append(piece)
    if run:
        parts.append(b"".join(run))
    return parts


class ChannelCore:
    """One connection: its fields, and the reading of requests that have arrived whole."""

    __slots__ = (
        "_ahead_at",
        "_filled",
        "_head",
        "_likely",
        "_payload",
        "_pool",
        "_reads_all",
        "_size",
        "_small",
        "_start",
        "ahead",
        "authenticator",
        "bytes_received",
        "client_information",
        "closing",
        "context",
        "error",
        "events",
        "fd",
        "id",
        "last_active_ns",
        "max_receive_size",
        "mute_state",
        "network_thread_time_ns",
        "out_of_memory",
        "send",
        "spares",
        "state",
        "transport",
    )

    def __init__(self, channel_id: str, transport: Any, max_receive_size: int, pool: Any, authenticator: Any) -> None:
        self.id = channel_id
        self.transport = transport
        self.authenticator = authenticator
        self.fd: int = transport.fileno()
        self.events = 0
        """What the poller watches for; zero when it does not watch this channel."""
        self.state = ChannelState.NOT_CONNECTED
        self.mute_state = NOT_MUTED
        self.out_of_memory = False
        """Not read because the pool had nothing left; lifted by the selector, not by an answer."""
        self.send: NetworkSend | None = None
        self.closing = False
        """The peer is gone, and requests that it sent before are still being handled."""
        self.last_active_ns = 0
        self.network_thread_time_ns = 0
        self.bytes_received = 0
        self.context: Any = None
        """What the owner of the selector keeps about this connection."""
        self.client_information: tuple[str, str] | None = None
        self.error: Exception | None = None
        """What ended the connection, unless its owner did."""
        self.max_receive_size = max_receive_size
        self._pool = pool
        self._reads_all: bool = getattr(transport, "reads_all", False)
        """Whether a short read is the last one that makes sense (see `PlaintextTransportLayer`)."""
        self.ahead: memoryview | None = None
        """What was read at once and not all handed out yet: whole requests, and at the end perhaps part of one."""
        self._ahead_at = 0
        """How much of that was handed out."""
        self._head = b""
        """Up to three bytes of a length prefix."""
        self.spares: list[bytearray] | None = None
        """Buffers of large requests, to be used again when nobody looks at them any more; None if they are not kept."""
        self._likely = 0
        """How large a buffer the next request gets before anything is known of it; zero if the last one was small."""
        self._small = 0
        """How many small requests have come since the last large one."""
        self._payload: bytearray | None = None
        self._start = 0
        """Where in its buffer the request being read begins: behind its length, if that was read into it, too."""
        self._filled = 0
        self._size = -1
        """The size of the request being read; negative between requests."""

    @property
    def has_bytes_buffered(self) -> bool:
        """Whether reading may yield something without the socket becoming readable."""
        return self.ahead is not None or bool(self.transport.has_bytes_buffered)

    def read(self) -> memoryview | None:
        """The next request, or none if it has not arrived yet.

        Raises ``EOFError`` at the end of the stream, ``OSError`` for a broken connection, and
        :class:`InvalidReceiveError` for a length that is negative or too large.
        """
        if self._size >= 0:
            return self._read_payload()
        view = self.ahead
        if view is None:
            if self._pool.bounded:
                return self._read_exactly()
            try:
                data = self._read_likely() if self._likely else self.transport.recv(READ_AHEAD)
            except BlockingIOError:
                return None
            if data is None:
                return self._read_payload()
            if not data:
                raise EOFError("the peer closed the connection")
            self.bytes_received += len(data)
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
                return self._follow(view, start)
            if size > self.max_receive_size:
                self._refuse(size)
            stop = start + size + 4
            if arrived >= stop:
                self.ahead = view if arrived > stop else None
                self._ahead_at = stop
                if size < LARGE:  # large ones have become rare
                    self._likely = 0
                    if self.spares:
                        self._small += 1
                        if self._small >= SPARES_FOR:
                            self.spares.clear()
                return view[start + 4 : stop]
        self.ahead = None
        return self._collect(view[start:])

    def _read_likely(self) -> bytes | bytearray | None:
        """What has arrived of a request that is taken for a large one; None if it is one, and is being read now."""
        data = new_buffer(self._likely)
        with memoryview(data) as view:
            count = self.transport.recv_into(view)
        if count >= UNSEEN_ALLOCATION and not self._head:
            (size,) = _unpack_size(data)
            if size > self.max_receive_size:
                self._refuse(size)
            if size >= 0 and count < size + 4:
                self.bytes_received += count
                self._size = size
                self._payload = data
                self._start = 4
                self._filled = count
                return None
        del data[count:]
        return data

    def _read_payload(self) -> memoryview | None:
        """What is still to come of a request, straight into its buffer; the request, if that is all there is to it."""
        size = self._size
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
        while self._filled < stop:
            if self._filled == len(payload):
                resize(payload, min(2 * len(payload), stop))
            room = min(len(payload), stop) - self._filled
            try:
                with memoryview(payload) as view:
                    count = recv_into(view[self._filled : stop])
            except BlockingIOError:
                if size >= LARGE:
                    self.transport.expect(min(stop - self._filled, PIECE))
                return None
            if not count:
                raise EOFError(f"the peer closed the connection {self._filled - start} bytes into a request of {size}")
            self._filled += count
            self.bytes_received += count
            if count < room and size >= LARGE and self._reads_all:
                self.transport.expect(min(stop - self._filled, PIECE))
                return None
        self._payload = None
        self._size = -1
        if size >= LARGE:
            self.transport.expect(1)
            if self.spares is None:
                self._likely = min((stop + READ_AHEAD) & -UNSEEN_ALLOCATION, FIRST_ALLOCATION)
            elif size <= WHOLE_ALLOCATION:
                self._small = 0
                self.spares.append(payload)
                del self.spares[:-MOST_SPARES]
        return memoryview(payload)[start:stop]

    def _refuse(self, size: int) -> None:
        raise NotImplementedError

    def _follow(self, view: memoryview, start: int) -> memoryview | None:
        """What is no length is a reference, or wrong."""
        raise NotImplementedError

    def _collect(self, view: memoryview) -> memoryview | None:
        """Only the beginning of a request has arrived."""
        raise NotImplementedError

    def _read_exactly(self) -> memoryview | None:
        raise NotImplementedError


class SelectorStats:
    """Counters of one selector, written by its thread alone."""

    __slots__ = (
        "bytes_received",
        "bytes_sent",
        "connections_closed",
        "connections_created",
        "failed_authentications",
        "idle_closed",
        "invalid_receives",
        "io_ns",
        "select_ns",
    )

    def __init__(self) -> None:
        self.connections_created = 0
        self.connections_closed = 0
        self.failed_authentications = 0
        self.idle_closed = 0
        self.invalid_receives = 0
        self.bytes_received = 0
        self.bytes_sent = 0
        self.select_ns = 0
        self.io_ns = 0


class SelectorCore:
    """Moves the bytes of channels that are ready."""

    def __init__(self, poll: Callable[[float], list[tuple[int, int]]], clock: Callable[[], int]) -> None:
        self._wait = poll
        self._now = clock
        self.record_time_per_connection = False
        """Whether channels add up the time spent on them, which a request quota wants to know and which costs two looks
        at the clock."""
        self.channels: dict[str, KafkaChannel] = {}
        self.closing_channels: dict[str, KafkaChannel] = {}
        self._by_fd: dict[int, KafkaChannel] = {}
        self._connecting: set[KafkaChannel] = set()
        self._buffered: dict[KafkaChannel, None] = {}
        self.completed_receives: list[tuple[KafkaChannel, memoryview]] = []
        self.stats = SelectorStats()
        self._polled_ns = clock()
        """When the last poll had its events."""

    # -- muting

    def request_received(self, channel: KafkaChannel) -> None:
        """Mutes a channel because its request is being handled."""
        if channel.mute_state is not NOT_MUTED:
            raise RuntimeError(f"a request from a channel that is {channel.mute_state.name}")
        channel.mute_state = RESPONSE_PENDING

    def response_sent(self, channel: KafkaChannel) -> None:
        """Unmutes it after the answer, unless it is throttled."""
        if channel.mute_state is RESPONSE_PENDING:
            channel.mute_state = NOT_MUTED
            if channel.ahead is not None:
                self._buffered[channel] = None
            elif not channel.events & READ or channel.transport.has_bytes_buffered:
                self.resume(channel)
        else:
            channel.handle_mute_event(ChannelMuteEvent.RESPONSE_SENT)
            self.unmute(channel)

    # -- sending

    def send(self, channel: KafkaChannel, send: NetworkSend) -> bool:
        """Starts sending; returns whether all of it has gone out already.

        A send that cannot be started counts as lost with its connection: the owner hears of it through
        ``disconnected``.
        """
        if channel.send is not None or channel.closing or (self._connecting and channel in self._connecting):
            self._cannot_send_now(channel, send)
            return False
        channel.last_active_ns = self._polled_ns  # exact enough, and costs no look at the clock
        try:
            send.write_to(channel.transport)
        except (OSError, EOFError) as error:
            self._send_failed(channel, send, error)
            return False
        if not send.remaining:
            self.stats.bytes_sent += send.size
            return True
        channel.send = send
        self._watch(channel, channel.events | WRITE)
        return False

    def answer(self, response: NetworkSend) -> bool:
        """Sends the answer to a request and goes on reading its channel; false if that is not open."""
        request = response.request
        channel = self.channels.get(request.connection_id)
        if channel is None:
            return False
        sent = self.send(channel, response)
        if self.record_time_per_connection:
            channel.network_thread_time_ns += self._now() - request.response_dequeue_time_ns
        if sent:
            spent = channel.network_thread_time_ns
            channel.network_thread_time_ns = 0
            request.complete(spent, response)
            self.response_sent(channel)
        # else it is on its way: the channel holds it until it has gone out, or the connection is lost
        return True

    # -- receiving

    def _move(self, timeout_ms: float) -> int:
        """Waits for channels to become ready and does what they can; returns the time when they were."""
        buffered = self._buffered
        started = self._now()
        events = self._wait(0 if buffered else timeout_ms)
        now = self._polled_ns = self._now()
        stats = self.stats
        stats.select_ns += now - started
        if events or buffered:
            if len(events) > 1:
                self._arrange(events)
            if buffered:
                self._buffered = {}
                for channel in buffered:
                    self._ready(channel, READ, now)
            by_fd = self._by_fd
            for fd, ready in events:
                found = by_fd.get(fd)
                if found is None:
                    self._woken(fd)
                elif found not in buffered:
                    self._ready(found, ready, now)
                elif ready & WRITE:  # it has had its one read
                    self._ready(found, WRITE, now)
            stats.io_ns += self._now() - now
        return now

    def _ready(self, channel: KafkaChannel, ready: int, now: int) -> None:
        """Whatever a ready channel can do. One channel's trouble ends that channel only."""
        channel.last_active_ns = now
        started = self._now() if self.record_time_per_connection else 0
        try:
            if channel.state is not _READY and not self._prepared(channel):
                return
            if ready & _READABLE:
                if channel.mute_state is not NOT_MUTED or channel.out_of_memory:
                    self._watch(channel, channel.events & ~READ)
                elif (payload := channel.read()) is not None:
                    self.completed_receives.append((channel, payload))
                else:
                    self._nothing_received(channel)
            if ready & WRITE and channel.send is not None:
                self._write(channel)
        except Exception as error:  # noqa: BLE001 - this connection's end, not the thread's
            self._failed(channel, error, now)
        finally:
            if self.record_time_per_connection:
                channel.network_thread_time_ns += self._now() - started

    # -- what is not common

    def resume(self, channel: KafkaChannel) -> None:
        raise NotImplementedError

    def unmute(self, channel: KafkaChannel) -> None:
        raise NotImplementedError

    def _cannot_send_now(self, channel: KafkaChannel, send: NetworkSend) -> None:
        raise NotImplementedError

    def _send_failed(self, channel: KafkaChannel, send: NetworkSend, error: Exception) -> None:
        raise NotImplementedError

    def _watch(self, channel: KafkaChannel, events: int) -> None:
        raise NotImplementedError

    def _arrange(self, events: list[tuple[int, int]]) -> None:
        raise NotImplementedError

    def _woken(self, fd: int) -> None:
        raise NotImplementedError

    def _prepared(self, channel: KafkaChannel) -> bool:
        raise NotImplementedError

    def _nothing_received(self, channel: KafkaChannel) -> None:
        raise NotImplementedError

    def _write(self, channel: KafkaChannel) -> None:
        raise NotImplementedError

    def _failed(self, channel: KafkaChannel, error: Exception, now: int) -> None:
        raise NotImplementedError
