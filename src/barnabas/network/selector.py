"""The selector: a reactor over many channels, the same for broker and client.

``poll`` waits for readiness, moves bytes, and leaves what happened in a few lists: requests that are complete, sends
that are complete, connections made and lost. It belongs to one thread; only :meth:`Selector.wakeup` may be called from
another.

Three things differ from a textbook reactor, each of them because a system call costs as much as a dozen lines of
Python:

* A send is tried at once. Most answers fit into the socket's buffer, and then no write readiness is ever asked for.
* Reading ahead (see :mod:`barnabas.network.channel`) can leave whole requests in memory. Such channels are kept in
``_buffered`` and
  visited without waiting.
* Muting a channel does not touch the poller. Only when a muted channel turns out to be readable is it taken out, and
put back when it is
  unmuted. A client that waits for its answer before it sends again is never taken out at all.

What does not differ is the guarantee: at most one request per channel and poll, and none from a muted channel.
"""

from __future__ import annotations

import contextlib
import logging
import random
import socket
from collections import deque
from collections.abc import Callable
from enum import IntEnum, auto

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.errors import AuthenticationError, ProtocolError
from barnabas.network.channel import ANONYMOUS, Authenticator, ChannelState, KafkaChannel
from barnabas.network.idle import IdleExpiryManager
from barnabas.network.memory_pool import UNBOUNDED, MemoryPool
from barnabas.network.mute import NOT_MUTED, RESPONSE_PENDING, ChannelMuteEvent
from barnabas.network.poller import READ, WRITE, Poller, make_poller
from barnabas.network.send import NetworkSend
from barnabas.network.transport import PlaintextTransportLayer, TransportLayer

log = logging.getLogger(__name__)

UNLIMITED = 2**31 - 1
_READY = ChannelState.READY
_READABLE = READ | 0x18
"""Ready to read, or in an error state that reading will tell about."""

ChannelFactory = Callable[[str, socket.socket], tuple[TransportLayer, Authenticator]]


class CloseMode(IntEnum):
    """What becomes of the requests of a connection that is being closed."""

    GRACEFUL = auto()
    """They are still handed out; the connection counts as lost after the last one."""
    NOTIFY_ONLY = auto()
    """They are dropped; the owner is told that the connection is lost."""
    DISCARD_NO_NOTIFY = auto()
    """They are dropped, and the owner, who asked for this, is not told."""


class _SendFailedError(Exception):
    """Tells a write that failed from a read that did: they end a connection in different ways."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


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


def plaintext(channel_id: str, sock: socket.socket) -> tuple[TransportLayer, Authenticator]:  # noqa: ARG001
    """The channel factory of a plaintext listener."""
    return PlaintextTransportLayer(sock), ANONYMOUS


class Selector:
    """Moves bytes for many channels.

    After each :meth:`poll`: ``completed_receives`` (channel and payload), ``completed_sends`` (channel and send),
    ``connected``, ``disconnected`` (channel and the state it was lost in).
    """

    def __init__(
        self,
        *,
        max_receive_size: int = UNLIMITED,
        connections_max_idle_ms: int = -1,
        failed_authentication_delay_ms: int = 0,
        memory_pool: MemoryPool = UNBOUNDED,
        channel_factory: ChannelFactory = plaintext,
        clock: Clock = SYSTEM_CLOCK,
        record_time_per_connection: bool = False,
        poller: Poller | None = None,
        seed: int | None = None,
    ) -> None:
        self._poller = make_poller() if poller is None else poller
        self._clock = clock
        self._now = clock.nanoseconds
        self._max_receive_size = max_receive_size
        self._pool = memory_pool
        self._low_memory = int(0.1 * memory_pool.size)
        self._channel_factory = channel_factory
        self._idle: IdleExpiryManager[KafkaChannel] | None = (
            IdleExpiryManager(connections_max_idle_ms, self._now()) if connections_max_idle_ms >= 0 else None
        )
        self._failed_authentication_delay_ns = failed_authentication_delay_ms * 1_000_000
        self._delayed_closes: deque[tuple[int, KafkaChannel]] = deque()
        self.record_time_per_connection = record_time_per_connection
        """Whether channels add up the time spent on them, which a request quota wants to know and which costs two looks
        at the clock."""
        self._random = random.Random(seed)  # noqa: S311 - fairness, not secrecy
        self.channels: dict[str, KafkaChannel] = {}
        self.closing_channels: dict[str, KafkaChannel] = {}
        self._by_fd: dict[int, KafkaChannel] = {}
        self._connecting: set[KafkaChannel] = set()
        self._buffered: dict[KafkaChannel, None] = {}
        self._out_of_memory = False
        self.completed_receives: list[tuple[KafkaChannel, memoryview]] = []
        self.completed_sends: list[tuple[KafkaChannel, NetworkSend]] = []
        self.connected: list[KafkaChannel] = []
        self.disconnected: list[tuple[KafkaChannel, ChannelState]] = []
        self._lost: list[tuple[KafkaChannel, ChannelState]] = []
        """Connections lost between two polls, reported by the next one."""
        self.stats = SelectorStats()
        self._polled_ns = self._now()
        """When the last poll had its events."""
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        self._wake_fd = self._wake_reader.fileno()
        self._poller.register(self._wake_fd, READ)

    # -- connections

    def register(self, channel_id: str, sock: socket.socket) -> KafkaChannel:
        """Takes over a connection that was accepted."""
        if channel_id in self.channels or channel_id in self.closing_channels:
            raise ValueError(f"there is a connection {channel_id} already")
        channel = self._build(channel_id, sock)
        channel.state = ChannelState.READY if channel.is_ready else ChannelState.AUTHENTICATE
        self._watch(channel, READ)
        self.channels[channel_id] = channel
        self.stats.connections_created += 1
        if self._idle is not None:
            self._idle.add(channel, self._now())
        return channel

    def connect(
        self, channel_id: str, address: tuple[str, int], *, family: int, send_buffer: int, receive_buffer: int
    ) -> None:
        """Starts an outgoing connection; ``connected`` or ``disconnected`` tells how it went."""
        if channel_id in self.channels or channel_id in self.closing_channels:
            raise ValueError(f"there is a connection {channel_id} already")
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if send_buffer >= 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
            if receive_buffer >= 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            with contextlib.suppress(BlockingIOError):
                sock.connect(address)
            channel = self._build(channel_id, sock)
            self._watch(channel, WRITE)
        except BaseException:
            sock.close()
            raise
        self.channels[channel_id] = channel
        self._connecting.add(channel)
        if self._idle is not None:
            self._idle.add(channel, self._now())

    def _build(self, channel_id: str, sock: socket.socket) -> KafkaChannel:
        transport, authenticator = self._channel_factory(channel_id, sock)
        return KafkaChannel(channel_id, transport, self._max_receive_size, self._pool, authenticator)

    def channel(self, channel_id: str) -> KafkaChannel | None:
        """An open connection, not one that is closing."""
        return self.channels.get(channel_id)

    def open_or_closing(self, channel_id: str) -> KafkaChannel | None:
        return self.channels.get(channel_id) or self.closing_channels.get(channel_id)

    def is_channel_ready(self, channel_id: str) -> bool:
        channel = self.channels.get(channel_id)
        return channel is not None and channel.state is ChannelState.READY

    def lowest_priority_channel(self) -> KafkaChannel | None:
        """The one to close when there are too many: one that is closing anyway, else the one idle longest."""
        for channel in self.closing_channels.values():
            return channel
        if self._idle is not None:
            return self._idle.oldest()
        return next(iter(self.channels.values()), None)

    # -- interest

    def _watch(self, channel: KafkaChannel, events: int) -> None:
        """Makes the poller watch a channel for just these events."""
        if channel.events == events:
            return
        if not events:
            with contextlib.suppress(OSError):  # the socket may be closed, and the kernel has forgotten it then
                self._poller.unregister(channel.fd)
            del self._by_fd[channel.fd]
        elif channel.events:
            self._poller.modify(channel.fd, events)
        else:
            self._poller.register(channel.fd, events)
            self._by_fd[channel.fd] = channel
        channel.events = events

    def mute(self, channel: KafkaChannel) -> None:
        channel.mute()
        self._buffered.pop(channel, None)

    def request_received(self, channel: KafkaChannel) -> None:
        """Mutes a channel because its request is being handled."""
        if channel.mute_state is not NOT_MUTED:
            raise RuntimeError(f"a request from a channel that is {channel.mute_state.name}")
        channel.mute_state = RESPONSE_PENDING

    def response_sent(self, channel: KafkaChannel) -> None:
        """Unmutes it after the answer, unless it is throttled."""
        if channel.mute_state is RESPONSE_PENDING:
            channel.mute_state = NOT_MUTED
            if channel.ahead is not None or not channel.events & READ or channel.transport.has_bytes_buffered:
                self.resume(channel)
        else:
            channel.handle_mute_event(ChannelMuteEvent.RESPONSE_SENT)
            self.unmute(channel)

    def unmute(self, channel: KafkaChannel) -> None:
        """Lets a channel be read again, if nothing else keeps it muted."""
        if channel.maybe_unmute():
            self.resume(channel)

    def resume(self, channel: KafkaChannel) -> None:
        """Goes on reading a channel that is no longer muted.

        If requests of it were read ahead these come first, and the poller need not watch it until they are used up.
        """
        if channel.has_bytes_buffered:
            self._buffered[channel] = None
            return
        if channel.events & READ:
            return
        if channel.closing:
            self._read_from_closing(channel)
        elif not channel.out_of_memory:
            self._watch(channel, channel.events | READ)

    # -- sending

    def send(self, channel: KafkaChannel, send: NetworkSend) -> bool:
        """Starts sending; returns whether all of it has gone out already.

        A send that cannot be started counts as lost with its connection: the owner hears of it through
        ``disconnected``.
        """
        if channel.send is not None:
            raise RuntimeError(f"{channel.id} is still sending: {channel.send!r}")
        if channel.closing:
            self._do_close(channel, notify=True)
            return False
        if self._connecting and channel in self._connecting:
            channel.send = send
            return False
        channel.last_active_ns = self._polled_ns  # exact enough, and costs no look at the clock
        try:
            send.write_to(channel.transport)
        except (OSError, EOFError) as error:
            log.debug("Connection %s lost while sending: %s", channel.id, error)
            channel.error = error
            channel.send = send
            channel.state = ChannelState.FAILED_SEND
            self.close(channel, CloseMode.NOTIFY_ONLY)
            return False
        if not send.remaining:
            self.stats.bytes_sent += send.size
            return True
        channel.send = send
        self._watch(channel, channel.events | WRITE)
        return False

    # -- the loop

    def poll(self, timeout_ms: float) -> None:
        """Waits for something to happen, at most so long, and does it."""
        for channel, _ in self.completed_receives:
            # Not muted since, as a server would have done: what was read ahead is due now.
            if channel.mute_state is NOT_MUTED:
                if channel.has_bytes_buffered:
                    self._buffered[channel] = None
                elif self.closing_channels.get(channel.id) is channel:
                    # Kept only for what it had received. No answer will be sent that would end it for good.
                    self._do_close(channel, notify=True)
        self.completed_receives.clear()
        self.completed_sends.clear()
        self.connected.clear()
        self.disconnected.clear()
        if self._out_of_memory and not self._pool.is_out_of_memory:
            self._memory_recovered()
        buffered = self._buffered
        started = self._now()
        events = self._poller.poll(0 if buffered or self._lost else timeout_ms)
        now = self._polled_ns = self._now()
        self.stats.select_ns += now - started
        if events or buffered:
            self._handle_ready(events, buffered, now)
            self.stats.io_ns += self._now() - now
        if self._delayed_closes:
            self._complete_delayed_closes(now)
        if self._idle is not None:
            self._close_oldest_idle(now)
        if self._lost:
            self.disconnected.extend(self._lost)
            self._lost.clear()

    def _handle_ready(self, events: list[tuple[int, int]], buffered: dict[KafkaChannel, None], now: int) -> None:
        if self._pool.bounded and self._pool.available < self._low_memory:
            self._random.shuffle(events)  # or the channels that come first would take all there is, again and again
        handle = self._handle_timed if self.record_time_per_connection else self._handle
        if buffered:
            self._buffered = {}
            for channel in buffered:
                handle(channel, READ, now)
        by_fd = self._by_fd
        for fd, ready in events:
            found = by_fd.get(fd)
            if found is not None:
                if found in buffered:  # has had its one read
                    ready &= WRITE  # noqa: PLW2901
                if ready:
                    handle(found, ready, now)
            elif fd == self._wake_fd:
                self._drain_wakeups()

    def _handle_timed(self, channel: KafkaChannel, ready: int, now: int) -> None:
        started = self._now()
        self._handle(channel, ready, now)
        channel.network_thread_time_ns += self._now() - started

    def _handle(self, channel: KafkaChannel, ready: int, now: int) -> None:
        """Whatever a ready channel can do. One channel's trouble ends that channel only."""
        channel.last_active_ns = now
        try:
            if channel.state is not _READY and not self._prepared(channel):
                return
            if ready & _READABLE:
                if channel.mute_state is not NOT_MUTED or channel.out_of_memory:
                    self._watch(channel, channel.events & ~READ)
                elif (payload := channel.read()) is not None:
                    self.completed_receives.append((channel, payload))
                    if not channel.events & READ and not channel.closing and channel.ahead is None:
                        self._watch(channel, channel.events | READ)
                else:
                    self._nothing_received(channel)
            if ready & WRITE and channel.send is not None:
                self._write(channel)
        except _SendFailedError as error:
            # Not gracefully: what it would be kept for is this very answer, and that can no longer go out.
            log.debug("Connection %s lost while sending: %s", channel.id, error.cause)
            channel.error = error.cause
            channel.state = ChannelState.FAILED_SEND
            self.close(channel, CloseMode.NOTIFY_ONLY)
        except AuthenticationError as error:
            channel.error = error
            self._authentication_failed(channel, error, now)
        except (EOFError, ConnectionError, TimeoutError) as error:
            log.debug("Connection %s disconnected: %s", channel.id, error)
            channel.error = error
            self.close(channel, CloseMode.GRACEFUL)
        except ProtocolError as error:
            self.stats.invalid_receives += 1
            log.warning("Closing connection %s: %s", channel.id, error)
            channel.error = error
            self.close(channel, CloseMode.NOTIFY_ONLY)
        except Exception as error:  # noqa: BLE001 - anything else is this connection's end, not the thread's
            log.warning("Unexpected error from %s; closing connection: %r", channel.id, error)
            channel.error = error
            self.close(channel, CloseMode.NOTIFY_ONLY)

    def _finish_connect(self, channel: KafkaChannel) -> bool:
        if not channel.transport.finish_connect():
            return False
        self._connecting.discard(channel)
        self._watch(channel, READ | (WRITE if channel.send is not None else 0))
        self.stats.connections_created += 1
        self.connected.append(channel)
        return True

    def _prepared(self, channel: KafkaChannel) -> bool:
        """Goes on with connecting, handshake and authentication.

        Also true for a channel that is lost already and only read to its end.
        """
        if channel.closing:
            return True
        if channel in self._connecting and not self._finish_connect(channel):
            return False
        channel.prepare()
        return channel.is_ready

    def _nothing_received(self, channel: KafkaChannel) -> None:
        """A read that did not complete a request."""
        if channel.out_of_memory:
            self._out_of_memory = True
            self._watch(channel, channel.events & ~READ)
        elif channel.closing:
            self._do_close(channel, notify=True)
        elif channel.has_bytes_buffered:
            self._buffered[channel] = None
        elif not channel.events & READ:  # what was read ahead is used up, and the rest is still to come
            self._watch(channel, channel.events | READ)

    def _write(self, channel: KafkaChannel) -> None:
        try:
            done = channel.write()
        except (OSError, EOFError) as error:
            raise _SendFailedError(error) from error
        if done is not None:
            self.stats.bytes_sent += done.size
            self._watch(channel, channel.events & ~WRITE)
            self.completed_sends.append((channel, done))

    def _memory_recovered(self) -> None:
        """Lets the channels that had to stop for want of memory go on."""
        self._out_of_memory = False
        for channel in [*self.channels.values(), *self.closing_channels.values()]:
            if channel.out_of_memory:
                channel.out_of_memory = False
                if not channel.is_muted:
                    self.resume(channel)

    # -- waking up

    def wakeup(self) -> None:
        """Ends the wait of a poll that is under way, or of the next one. May be called from any thread."""
        with contextlib.suppress(BlockingIOError, OSError):  # full: it will wake up anyway; closed: nobody is waiting
            self._wake_writer.send(b"\0")

    def _drain_wakeups(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while len(self._wake_reader.recv(4096)) == 4096:
                pass

    # -- closing

    def close(self, channel: KafkaChannel, mode: CloseMode = CloseMode.DISCARD_NO_NOTIFY) -> None:
        """Ends a connection.

        A graceful close keeps the channel for as long as it has requests that were sent before its end: what a
        producer sent with acks=0 and then closed must not be lost.
        """
        self._connecting.discard(channel)
        self.channels.pop(channel.id, None)
        if self._idle is not None:
            self._idle.remove(channel)
        if mode is not CloseMode.GRACEFUL or not self._has_pending_receives(channel):
            self._do_close(channel, notify=mode is not CloseMode.DISCARD_NO_NOTIFY)
        elif not channel.closing:
            log.debug("Keeping %s until the requests that it has sent are handled", channel.id)
            channel.closing = True
            self.closing_channels[channel.id] = channel
            self._watch(channel, 0)

    def _has_pending_receives(self, channel: KafkaChannel) -> bool:
        """Whether a request of this channel is being handled, or has arrived whole and waits for its turn."""
        if channel.is_muted and channel.send is not None:
            # Handled, and the answer was on its way to a peer that does not read. With the poller no longer watching
            # it would never get there, and the connection would be kept for ever.
            return False
        if channel.is_muted or any(received is channel for received, _ in self.completed_receives):
            return True
        if channel.has_bytes_buffered:
            self._buffered[channel] = None
            return True
        return False

    def _read_from_closing(self, channel: KafkaChannel) -> None:
        """The last answer is out: on to the next request of a connection that is gone, or close it for good."""
        if not channel.has_bytes_buffered:
            self._do_close(channel, notify=True)

    def _do_close(self, channel: KafkaChannel, *, notify: bool) -> None:
        self._buffered.pop(channel, None)
        self._watch(channel, 0)
        self.channels.pop(channel.id, None)
        self.closing_channels.pop(channel.id, None)
        channel.abandon_receive()
        if channel.error is not None:
            # Its frames hold the channel and all that was read last: a circle that only the garbage collector undoes.
            channel.error.__traceback__ = None
        try:
            channel.transport.close()
        except OSError as error:
            log.debug("Closing %s failed: %s", channel.id, error)
        self.stats.bytes_received += channel.bytes_received
        self.stats.connections_closed += 1
        if notify:
            self._lost.append((channel, channel.state))

    def _close_oldest_idle(self, now: int) -> None:
        assert self._idle is not None
        oldest = self._idle.poll_expired(now)
        if oldest is not None:
            log.debug("Closing %s, which has been idle for too long", oldest.id)
            oldest.state = ChannelState.EXPIRED
            self.stats.idle_closed += 1
            self.close(oldest, CloseMode.GRACEFUL)

    def _authentication_failed(self, channel: KafkaChannel, error: AuthenticationError, now: int) -> None:
        """Closes it later: an attacker learns slowly, and a client reads the reason before the end."""
        self.stats.failed_authentications += 1
        log.info("Failed authentication with %s (%s)", channel.id, error)
        if self._failed_authentication_delay_ns <= 0:
            self.close(channel, CloseMode.NOTIFY_ONLY)
            return
        self._watch(channel, 0)
        self._delayed_closes.append((now + self._failed_authentication_delay_ns, channel))

    def _complete_delayed_closes(self, now: int) -> None:
        delayed = self._delayed_closes
        while delayed and delayed[0][0] <= now:
            _, channel = delayed.popleft()
            if self.channels.get(channel.id) is channel:
                self.close(channel, CloseMode.NOTIFY_ONLY)

    def close_all(self) -> None:
        """Closes every connection and the selector itself."""
        for channel in [*self.channels.values(), *self.closing_channels.values()]:
            self.close(channel, CloseMode.DISCARD_NO_NOTIFY)
        self._poller.close()
        self._wake_reader.close()
        self._wake_writer.close()

    def __repr__(self) -> str:
        return f"Selector({len(self.channels)} open, {len(self.closing_channels)} closing)"


__all__ = ["CloseMode", "Selector", "SelectorStats", "plaintext"]
