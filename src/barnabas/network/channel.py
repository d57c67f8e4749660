"""A channel: one connection, what has been read of its next request, what is being sent, and whether it may be read at
all.

A channel belongs to the thread of its selector, which is the only one to touch it.
"""

from __future__ import annotations

import struct
from typing import Any, Protocol

from barnabas._kernels import reactor, sockets
from barnabas.common.errors import AuthenticationError
from barnabas.common.memory_reuse import is_free
from barnabas.network.channel_state import (
    FIRST_ALLOCATION,
    LARGE,
    MOST_SPARES,
    PIECE,
    READ_AHEAD,
    ROOMY,
    UNSEEN_ALLOCATION,
    WHOLE_ALLOCATION,
    ChannelState,
    InvalidReceiveError,
    with_room_to_grow,
)
from barnabas.network.frame_references import HEAD as REFERENCE_HEAD
from barnabas.network.frame_references import MARK
from barnabas.network.frame_references import MOST_BYTES as MOST_REFERENCE_BYTES
from barnabas.network.memory_pool import UNBOUNDED, MemoryPool
from barnabas.network.mute import MUTED, NOT_MUTED, ChannelMuteEvent, next_state
from barnabas.network.send import NetworkSend
from barnabas.network.transport import TransportLayer

ChannelCore = reactor.ChannelCore

_SIZE = struct.Struct(">i")
_unpack_size = _SIZE.unpack_from


class Authenticator(Protocol):
    """Runs on a fresh connection until it knows who is at the other end."""

    @property
    def complete(self) -> bool: ...

    def authenticate(self, channel: KafkaChannel) -> None:
        """Goes on as far as possible without waiting; :class:`AuthenticationError` ends the connection."""
        ...

    @property
    def principal(self) -> Any: ...


class AnonymousAuthenticator:
    """For listeners that ask for nothing."""

    __slots__ = ()

    complete = True
    principal: Any = None

    def authenticate(self, channel: KafkaChannel) -> None: ...


ANONYMOUS = AnonymousAuthenticator()


class KafkaChannel(ChannelCore):
    """One connection.

    **Receiving** is size-delimited, in two phases: four bytes of length, then that many bytes. The first phase reads
    ahead: one ``recv`` takes whatever has arrived, and a request that is complete in it is handed out as a view, with
    no further read and no copy. What follows it waits in ``ahead`` for the next call. A request that is *not*
    complete gets a buffer of its own, and the rest is read straight into that. When the memory pool is bounded there
    is no reading ahead: exactly the length is read, then exactly the payload, and only after the pool has granted it.

    A large request is not looked at before a good part of it has arrived. Its buffer, new memory that the system has to
    find and to clear page by page, costs as much as the copy into it; so a client, who gets one large answer after the
    other, keeps the last few (``spares``) and receives into one that nobody has a view of any more, the last one first:
    the fewer of them take turns, the more of them is in the processor's cache. A server keeps none. But behind a large
    request it expects another one, and reads ahead into a buffer that has room for all of it: what has arrived by then
    is where it is to stay.

    **Sending** is one :class:`NetworkSend` at a time.
    """

    __slots__ = ()

    authenticator: Authenticator
    send: NetworkSend | None
    transport: TransportLayer

    def __init__(
        self,
        channel_id: str,
        transport: TransportLayer,
        max_receive_size: int,
        pool: MemoryPool = UNBOUNDED,
        authenticator: Authenticator = ANONYMOUS,
    ) -> None:
        super().__init__(channel_id, transport, max_receive_size, pool, authenticator)

    # -- readiness

    @property
    def is_ready(self) -> bool:
        return self.transport.is_ready and self.authenticator.complete

    @property
    def principal(self) -> Any:
        """Who is at the other end; None before the authentication is complete, and where there is none."""
        return self.authenticator.principal if self.authenticator.complete else None

    def prepare(self) -> int:
        """Continues the handshake and the authentication; returns the readiness that the handshake waits for."""
        wanted = 0
        try:
            if not self.transport.is_ready:
                wanted = self.transport.handshake()
            if self.transport.is_ready and not self.authenticator.complete:
                self.state = ChannelState.AUTHENTICATE
                self.authenticator.authenticate(self)
        except AuthenticationError:
            self.state = ChannelState.AUTHENTICATION_FAILED
            raise
        if self.is_ready:
            self.state = ChannelState.READY
        return wanted

    # -- muting

    @property
    def is_muted(self) -> bool:
        return self.mute_state is not NOT_MUTED

    def mute(self) -> None:
        if self.mute_state is NOT_MUTED:
            self.mute_state = MUTED

    def maybe_unmute(self) -> bool:
        """Back to being read, unless an answer or a throttle is still to come; returns whether it is read now."""
        if self.mute_state is MUTED:
            self.mute_state = NOT_MUTED
        return self.mute_state is NOT_MUTED

    def handle_mute_event(self, event: ChannelMuteEvent) -> None:
        self.mute_state = next_state(self.mute_state, event)

    # -- receiving

    def _refuse(self, size: int) -> None:
        raise InvalidReceiveError(
            f"a request of {size} bytes from {self.id}; allowed are 0 to {self.max_receive_size}", size
        )

    def _follow(self, view: memoryview, start: int) -> memoryview | None:
        """A length that is none: a reference stands for the request, if this connection may have such.

        See `barnabas.network.frame_references`.
        """
        references = self.transport.references
        (mark,) = _unpack_size(view, start)
        if references is None or mark != MARK:
            self._refuse(mark)
        assert references is not None
        stop = arrived = len(view)
        if arrived - start >= REFERENCE_HEAD.size:
            _, length = REFERENCE_HEAD.unpack_from(view, start)
            if not 0 < length <= MOST_REFERENCE_BYTES:
                self._refuse(length)
            stop = start + REFERENCE_HEAD.size + length
        if arrived - start < REFERENCE_HEAD.size or arrived < stop:
            self.ahead = None
            self._head = bytes(view[start:])
            return None
        self.ahead = view if arrived > stop else None
        self._ahead_at = stop
        reference = view[start + REFERENCE_HEAD.size : stop]
        payload = references.follow(reference, self._whole_buffer, self.max_receive_size)
        size = len(payload)
        if size > self.max_receive_size:
            self._refuse(size)
        self.bytes_received += size
        self._likely = 0
        return payload

    def _whole_buffer(self, size: int) -> bytearray:
        """Where a request of that size is read into at once."""
        if not 0 <= size <= self.max_receive_size:
            self._refuse(size)
        spares = self.spares
        if spares is None or not LARGE <= size <= WHOLE_ALLOCATION:
            return sockets.new_buffer(size)
        payload = self._spare(size)
        if payload is None:
            payload = sockets.large_buffer(with_room_to_grow(size))
        self._small = 0
        spares.append(payload)
        del spares[:-MOST_SPARES]
        return payload

    def _collect(self, view: memoryview) -> memoryview | None:
        """Only the beginning of a request has arrived: sets it aside and reads on, straight into its buffer."""
        if len(view) < 4:
            self._head = bytes(view)
            return None
        (self._size,) = _unpack_size(view)
        size, arrived = self._size, len(view) - 4
        payload: bytearray | None = None
        if self.spares is not None and LARGE <= size <= WHOLE_ALLOCATION:
            payload = self._spare(size)
            if payload is None:
                payload = sockets.large_buffer(with_room_to_grow(size))
        if payload is None:
            likely = min(FIRST_ALLOCATION, max(UNSEEN_ALLOCATION, 16 * len(view)))
            payload = sockets.new_buffer(max(min(size, likely), arrived))
        self._payload = payload
        self._start = 0
        self._filled = arrived
        payload[:arrived] = view[4:]
        return self._read_payload()

    def _spare(self, size: int) -> bytearray | None:
        """A buffer of an earlier large request, if there is one that fits and is not in use."""
        spares = self.spares
        if not spares:
            return None
        for index in range(len(spares) - 1, -1, -1):
            spare = spares[index]
            if size <= len(spare) <= ROOMY * size and is_free(spare):
                del spares[index]
                return spare
        return None

    def _read_exactly(self) -> memoryview | None:
        """The length alone: with a bounded pool nothing is read that has not been granted."""
        try:
            data = self.transport.recv(4 - len(self._head))
        except BlockingIOError:
            return None
        if not data:
            raise EOFError("the peer closed the connection")
        self.bytes_received += len(data)
        self._head += data
        if len(self._head) < 4:
            return None
        (size,) = _unpack_size(self._head)
        self._head = b""
        if size < 0 or size > self.max_receive_size:
            self._refuse(size)
        self._size = size
        return self._read_payload()

    def abandon_receive(self) -> None:
        """Gives back what the pool granted for a request that will never be complete."""
        if self._pool.bounded and self._payload is not None:
            self._pool.release(self._size)
        self._payload = None
        self._size = -1
        self.ahead = None
        self._head = b""

    # -- sending

    def write(self) -> NetworkSend | None:
        """Sends what the socket takes; the send itself once it has gone out whole."""
        send = self.send
        if send is None:
            return None
        send.write_to(self.transport)
        if send.remaining:
            return None
        self.send = None
        return send

    def __repr__(self) -> str:
        return f"KafkaChannel({self.id}, {self.state.name}, {self.mute_state.name})"


__all__ = [
    "ANONYMOUS",
    "FIRST_ALLOCATION",
    "LARGE",
    "MOST_SPARES",
    "PIECE",
    "READ_AHEAD",
    "ROOMY",
    "UNSEEN_ALLOCATION",
    "WHOLE_ALLOCATION",
    "AnonymousAuthenticator",
    "Authenticator",
    "ChannelState",
    "InvalidReceiveError",
    "KafkaChannel",
]
