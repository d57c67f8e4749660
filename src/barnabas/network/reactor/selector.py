"""The selector: a reactor over many channels, used by broker and client alike.

``poll`` waits for readiness, moves bytes, and lists the outcome: completed receives, completed sends, connections made
and connections lost. A selector belongs to one thread; only :meth:`Selector.wakeup` may be called from another.

It differs from a textbook reactor in four ways, because a system call costs as much as a dozen lines of Python:

* A send is tried at once. Most responses fit into the socket's buffer and never need write readiness.
* Reading ahead (see :mod:`barnabas.network.reactor.channel`) can leave whole requests in memory. ``buffered`` holds
  such channels, and ``poll`` visits them without waiting.
* Muting a channel does not touch the poller. A muted channel is unregistered only when it turns out to be readable.
  When it is unmuted it is read first, because data is waiting, and registered again when a read finds nothing. A client
  that waits for each response is therefore never unregistered, and one that never waits is never registered again.
* A poll that has moved only part of a message continues. A large request takes many reads and writes, because the
  socket buffers are small, and returning to the owner's loop after each one would find nothing to do.

The guarantee is the usual one: at most one request per channel and poll, and none from a muted channel.
"""

from __future__ import annotations

import contextlib
import logging
import random
import socket
from collections import deque
from collections.abc import Callable
from enum import IntEnum, auto
from functools import partial

from barnabas._kernels import reactor
from barnabas._kernels.channel_mute import NOT_MUTED
from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.errors import AuthenticationError, ProtocolError, SslAuthenticationError
from barnabas.common.log_safety import LimitedLogger
from barnabas.network.reactor.channel import (
    ChannelState,
    InvalidReceiveError,
    KafkaChannel,
    ResponseBeforeCloseError,
    is_ready,
    maybe_unmute,
    mute,
    prepare,
    write,
)
from barnabas.network.reactor.channel_factory import ChannelFactory, plaintext
from barnabas.network.reactor.idle import IdleExpiryManager
from barnabas.network.reactor.memory_pool import UNBOUNDED, MemoryPool
from barnabas.network.reactor.poller import READ, READABLE, WRITE, Poller, make_poller, make_waker
from barnabas.network.reactor.send import NetworkSend
from barnabas.network.reactor.spare_buffers import SpareBuffers
from barnabas.network.transport import ELSEWHERE, TransportLayer
from barnabas.network.transport.foreign import foreign_protocol

Reactor = reactor.Reactor
SelectorStats = reactor.SelectorStats
SENT, PARTLY_SENT, RESUME, GONE = reactor.SENT, reactor.PARTLY_SENT, reactor.RESUME, reactor.GONE
PREPARE, HELD, NOTHING, UNKNOWN = reactor.PREPARE, reactor.HELD, reactor.NOTHING, reactor.UNKNOWN

log = LimitedLogger(logging.getLogger(__name__))
rejections = LimitedLogger(logging.getLogger(__name__), lines=10, window_ms=10_000)
"""Logs failed handshakes and authentications, which anybody can cause in any number: on average one line a second."""

UNLIMITED = 2**31 - 1
PREPARED_PER_POLL = 16
"""How many handshakes and authentications one poll continues. The rest stays ready for the next poll, so that requests
of open connections do not wait for hundreds of new ones."""
PREPARED_NS = 500_000
"""How long one poll continues them: after this time it leaves the rest to the next poll."""
ENDED_PER_POLL = 8
"""How many lost connections one poll closes, so that requests do not wait while hundreds of clients leave at once."""

_READY = ChannelState.READY
"""Bound here because it is used before every request: a member lookup in an enum class costs as much as a call."""


class CloseMode(IntEnum):
    """How to treat the requests of a connection that is being closed."""

    GRACEFUL = auto()
    """They are still delivered; the connection counts as lost after the last one."""
    NOTIFY_ONLY = auto()
    """They are dropped, and the owner is notified that the connection is lost."""
    DISCARD_NO_NOTIFY = auto()
    """They are dropped without notifying the owner, who asked for this."""


class _SendFailedError(Exception):
    """Marks a failed write. A failed write ends a connection differently from a failed read."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Selector:
    """Moves bytes for many channels.

    After each :meth:`poll`: ``completed_receives`` (channel and payload), ``completed_sends`` (channel and send),
    ``connected``, ``authenticated`` (handshake and authentication are done), ``disconnected`` (channel and the state it
    was lost in).
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
        self.reactor = Reactor(self._poller.poll, clock.nanoseconds)
        """Moves the bytes. The selector decides about the channels it leaves in `attention`."""
        self.reactor.record_time_per_connection = record_time_per_connection
        self._now = clock.nanoseconds
        self.stats = self.reactor.stats
        self.channels = self.reactor.channels
        self.closing_channels: dict[str, KafkaChannel] = {}
        self.completed_receives = self.reactor.completed_receives
        self._max_receive_size = max_receive_size
        self._pool = memory_pool
        self._low_memory = int(0.1 * memory_pool.size)
        self._channel_factory = channel_factory
        self._idle: IdleExpiryManager[KafkaChannel] | None = (
            IdleExpiryManager(connections_max_idle_ms, self._now()) if connections_max_idle_ms >= 0 else None
        )
        self._failed_authentication_delay_ns = failed_authentication_delay_ms * 1_000_000
        self._delayed_closes: deque[tuple[int, KafkaChannel]] = deque()
        self._session_ends: dict[KafkaChannel, int] = {}
        """When to authenticate again, by channel of a client."""
        self._reauthenticating: dict[KafkaChannel, int] = {}
        """When each channel began to authenticate again."""
        self._random = random.Random(seed)  # noqa: S311 - fairness, not secrecy
        self._out_of_memory = False
        self._may_run_out = self._arrange if memory_pool.bounded else None
        self._parts_moved = False
        """Whether part of a message has moved since this was reset."""
        self._news = False
        """Whether something happened that the caller of poll may want to see and that is not in the lists."""
        self.completed_sends: list[tuple[KafkaChannel, NetworkSend]] = []
        self.connected: list[KafkaChannel] = []
        self.authenticated: list[KafkaChannel] = []
        self.disconnected: list[tuple[KafkaChannel, ChannelState]] = []
        self._lost: list[tuple[KafkaChannel, ChannelState]] = []
        """Connections lost between two polls, reported by the next one."""
        self._listeners: dict[int, Callable[[], None]] = {}
        """Callbacks for listening sockets that have a connection to accept, by descriptor."""
        self._waker = make_waker(self._poller)
        self._stepped: deque[KafkaChannel] = deque()
        """Channels whose handshake step another thread has completed. That thread appends, this one takes."""
        self._ended: deque[tuple[KafkaChannel, Exception]] = deque()
        """Channels whose last read failed and that wait to be closed. The poller does not watch them."""

    # -- connections

    def register(self, channel_id: str, sock: socket.socket) -> KafkaChannel:
        """Takes over a connection that was accepted."""
        if channel_id in self.channels or channel_id in self.closing_channels:
            raise ValueError(f"there is a connection {channel_id} already")
        channel = self._build(channel_id, sock)
        channel.state = ChannelState.READY if is_ready(channel) else ChannelState.AUTHENTICATE
        self._watch(channel, READ)
        self.channels[channel_id] = channel
        self.stats.connections_created += 1
        if self._idle is not None:
            self._idle.add(channel, self._now())
        return channel

    def connect(
        self,
        channel_id: str,
        address: tuple[str, int],
        *,
        host: str = "",
        family: int,
        send_buffer: int,
        receive_buffer: int,
    ) -> None:
        """Starts an outgoing connection. The result appears in ``connected`` or ``disconnected``.

        ``host`` is the name that ``address`` was resolved from. The channel factory gets it.
        """
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
            channel = self._build(channel_id, sock, host)
            channel.spares = SpareBuffers()
            self._watch(channel, WRITE)
        except BaseException:
            sock.close()
            raise
        self.channels[channel_id] = channel
        self.reactor.connecting.add(channel)
        if self._idle is not None:
            self._idle.add(channel, self._now())

    def replace_socket(self, channel: KafkaChannel, sock: socket.socket) -> TransportLayer:
        """Moves a connection to a local socket, while nothing is in flight on it.

        The channel keeps its authenticator, and with it the principal and the session. Returns the former transport,
        which is no longer watched and which the caller must close.
        """
        transport, _ = plaintext(channel.id, sock)
        former: TransportLayer = channel.transport
        events = channel.events
        self._watch(channel, 0)
        channel.transport = transport
        channel.fd = transport.fileno()
        self._watch(channel, events)
        return former

    def watch_listener(self, fd: int, ready: Callable[[], None]) -> None:
        """Watches a listening socket. ``ready`` is called during event handling and may only set a flag."""
        self._listeners[fd] = ready
        self._poller.register(fd, READ)

    def forget_listener(self, fd: int) -> None:
        """Stops watching a listening socket. Call this before closing the socket."""
        if self._listeners.pop(fd, None) is not None:
            self._poller.unregister(fd)

    def _build(self, channel_id: str, sock: socket.socket, host: str = "") -> KafkaChannel:
        make = self._channel_factory
        transport, authenticator = make(channel_id, sock, host) if host else make(channel_id, sock)
        return KafkaChannel(channel_id, transport, self._max_receive_size, self._pool, authenticator)

    def channel(self, channel_id: str) -> KafkaChannel | None:
        """Returns an open connection, never a closing one."""
        return self.channels.get(channel_id)

    def open_or_closing(self, channel_id: str) -> KafkaChannel | None:
        return self.channels.get(channel_id) or self.closing_channels.get(channel_id)

    def is_channel_ready(self, channel_id: str) -> bool:
        channel = self.channels.get(channel_id)
        return channel is not None and channel.state is _READY

    def lowest_priority_channel(self) -> KafkaChannel | None:
        """Returns the channel to close when there are too many: a closing one, else the one idle longest."""
        for channel in self.closing_channels.values():
            return channel
        if self._idle is not None:
            return self._idle.oldest()
        return next(iter(self.channels.values()), None)

    # -- interest

    def _watch(self, channel: KafkaChannel, events: int) -> None:
        """Makes the poller watch a channel for exactly these events."""
        if channel.events == events:
            return
        if not events:
            with contextlib.suppress(OSError):  # the socket may be closed: the kernel has then forgotten it
                self._poller.unregister(channel.fd)
            del self.reactor.by_fd[channel.fd]
        elif channel.events:
            self._poller.modify(channel.fd, events)
        else:
            self._poller.register(channel.fd, events)
            self.reactor.by_fd[channel.fd] = channel
        channel.events = events

    def mute(self, channel: KafkaChannel) -> None:
        mute(channel)
        self.reactor.buffered.pop(channel, None)

    def unmute(self, channel: KafkaChannel) -> None:
        """Allows reading from a channel again, unless something else keeps it muted."""
        if maybe_unmute(channel):
            self.resume(channel)

    def resume(self, channel: KafkaChannel) -> None:
        """Continues reading a channel that is no longer muted.

        Requests that were read ahead come first. A channel that was unregistered because it became readable while muted
        is read before it is registered again: its data is still there, or its client sends the next request before it
        has the response. Only if the read yields nothing is the poller asked again.
        """
        if channel.has_bytes_buffered:
            self.reactor.buffered[channel] = None
        elif channel.events & READ:
            return
        elif channel.closing:
            self._do_close(channel, notify=True)  # the last response is out and no request follows
        elif not channel.out_of_memory:
            self.reactor.buffered[channel] = None

    def request_received(self, channel: KafkaChannel) -> None:
        """Mutes a channel because its request is being handled."""
        self.reactor.request_received(channel)

    def response_sent(self, channel: KafkaChannel) -> None:
        """Unmutes a channel after the response, unless it is throttled."""
        if self.reactor.response_sent(channel):
            self.resume(channel)

    # -- authenticating again (KIP-368)

    def reauthenticate(self, channel: KafkaChannel, handshake: memoryview) -> bool:
        """Lets a broker's client authenticate again; false if its SaslHandshake is a request like any other."""
        if not channel.authenticator.begin_reauthentication(handshake):
            return False
        self._reauthenticating[channel] = self._now()
        channel.state = ChannelState.AUTHENTICATE
        self._watch(channel, READ | WRITE)  # it is writable, so the next poll continues
        return True

    def _reauthenticate_first(self, channel: KafkaChannel, send: NetworkSend) -> bool:
        """Whether a client must authenticate again before a request, which then waits for that."""
        due_ns = self._session_ends.get(channel)
        if due_ns is None or channel.send is not None or self._now() < due_ns:
            return False
        del self._session_ends[channel]
        channel.authenticator.begin_reauthentication(self.completed_receives.append)
        self._reauthenticating[channel] = self._now()
        channel.state = ChannelState.AUTHENTICATE
        channel.send = send
        self._watch(channel, READ | WRITE)
        return True

    # -- sending

    def send(self, channel: KafkaChannel, send: NetworkSend) -> bool:
        """Starts sending; returns whether everything has been sent already."""
        if self._session_ends and self._reauthenticate_first(channel, send):
            return False
        try:
            outcome = self.reactor.send(channel, send)
        except (OSError, EOFError) as error:
            self._send_failed(channel, send, error)
            return False
        if outcome != SENT:
            self._not_sent(channel, send, outcome)
        return outcome == SENT

    def respond(self, response: NetworkSend) -> bool:
        """Sends the response to a request and resumes reading its channel; false if the channel is not open."""
        try:
            outcome = self.reactor.respond(response)
        except (OSError, EOFError) as error:
            self._send_failed(self.channels[response.request.connection_id], response, error)
            return True
        if outcome == SENT:
            return True
        if outcome == GONE:
            return False
        channel = self.channels[response.request.connection_id]
        if outcome == RESUME:
            self.resume(channel)
        else:
            self._not_sent(channel, response, outcome)
        return True

    def _not_sent(self, channel: KafkaChannel, send: NetworkSend, outcome: int) -> None:
        if outcome == PARTLY_SENT:
            self._watch(channel, channel.events | WRITE)
        elif channel.send is not None:
            raise RuntimeError(f"{channel.id} is still sending: {channel.send!r}")
        elif channel.closing:
            self._do_close(channel, notify=True)
        else:  # not connected yet
            channel.send = send

    def _send_failed(self, channel: KafkaChannel, send: NetworkSend, error: Exception) -> None:
        log.debug("Connection %s lost while sending: %s", channel.id, error)
        channel.error = error
        channel.send = send
        channel.state = ChannelState.FAILED_SEND
        self.close(channel, CloseMode.NOTIFY_ONLY)

    # -- the loop

    def poll(self, timeout_ms: float) -> None:
        """Waits at most ``timeout_ms`` for events and handles them."""
        if self.completed_receives:
            self._read_on()
            self.completed_receives.clear()
        if self.completed_sends:
            self.completed_sends.clear()
        if self.connected:
            self.connected.clear()
        if self.authenticated:
            self.authenticated.clear()
        if self.disconnected:
            self.disconnected.clear()
        if self._out_of_memory and not self._pool.is_out_of_memory:
            self._memory_recovered()
        self._parts_moved = self._news = False
        started = self._now()
        if self._delayed_closes:
            timeout_ms = min(timeout_ms, max(self._delayed_closes[0][0] - started, 0) / 1_000_000)
        now = self._move(0 if self._lost else timeout_ms)
        if self._parts_moved:
            now = self._move_on(started + timeout_ms * 1_000_000, now)
        if self._delayed_closes:
            self._complete_delayed_closes(now)
        if self._idle is not None and now > self._idle.next_check_ns:
            self._close_oldest_idle(now)
        if self._lost:
            self.disconnected.extend(self._lost)
            self._lost.clear()

    def _move_on(self, deadline: float, now: int) -> int:
        """Continues after parts of messages have moved: waits for the rest until anything else happens."""
        while self._parts_moved:
            self._parts_moved = False
            if (
                now >= deadline
                or self._news
                or self.completed_receives
                or self.completed_sends
                or self.connected
                or self._lost
            ):
                break
            now = self._move((deadline - now) / 1_000_000)
        return now

    def _read_on(self) -> None:
        """Reads the buffered requests of channels that were not muted meanwhile, as a server would have done."""
        for channel, _ in self.completed_receives:
            if channel.mute_state is NOT_MUTED:
                if channel.has_bytes_buffered:
                    self.reactor.buffered[channel] = None
                elif self.closing_channels.get(channel.id) is channel:
                    # The channel was kept only for its received requests. No response will follow that would close it.
                    self._do_close(channel, notify=True)
                elif not channel.events & READ and self.channels.get(channel.id) is channel:
                    self.reactor.buffered[channel] = None

    def _move(self, timeout_ms: float) -> int:
        """Lets the reactor wait and read, and handles the channels it leaves. Returns the time when the wait ended."""
        reactor = self.reactor
        buffered = reactor.buffered
        now = reactor.move(0 if self._ended else timeout_ms, self._may_run_out)
        if reactor.attention or self._ended or self._stepped:
            self._attend_all(buffered, now)
        return now

    def _attend_all(self, buffered: dict[KafkaChannel, None], now: int) -> None:
        """Handles everything outside the fast path: what the reactor has left, and what other threads have done.

        ``buffered`` has the channels with bytes that no poller reports, as they were before the reactor's turn.
        """
        preparing = []
        left, self.reactor.attention = self.reactor.attention, []
        for channel, flags, error in left:
            if flags & UNKNOWN:
                self._woken(channel)
            elif flags & PREPARE:
                preparing.append((channel, flags))
            elif error is not None:
                self._end(channel, error)
            else:
                self._attend(channel, flags, None, now)
        if self._ended:
            self._close_ended(now)
        if preparing or self._stepped:
            deadline = self._now() + PREPARED_NS
            if preparing:
                self._prepare(preparing, buffered, now, deadline)
            if self._stepped:
                self._continue_stepped(now, deadline)

    def _end(self, channel: KafkaChannel, error: Exception) -> None:
        """Queues a channel whose last read or write failed to be closed, in this poll or a later one."""
        if len(self._ended) >= ENDED_PER_POLL:
            self._watch(channel, 0)  # otherwise each poll would meet its end again
        self._ended.append((channel, error))

    def _close_ended(self, now: int) -> None:
        """Closes the failed channels that have waited longest, as many as one poll may."""
        for _ in range(min(len(self._ended), ENDED_PER_POLL)):
            channel, error = self._ended.popleft()
            if self.open_or_closing(channel.id) is channel:  # not closed meanwhile, for another reason
                self._attend(channel, 0, error, now)

    def _prepare(
        self, channels: list[tuple[KafkaChannel, int]], buffered: dict[KafkaChannel, None], now: int, deadline: int
    ) -> None:
        """Continues connecting, handshake and authentication of some ready channels. The rest stays for the next poll.

        With which one it begins is left to chance: otherwise a few busy peers could keep all others from being ready.
        """
        if len(channels) > 1:
            start = self._random.randrange(len(channels))
            channels = channels[start:] + channels[:start]
        done = 0
        for channel, flags in channels[:PREPARED_PER_POLL]:
            self._attend(channel, flags, None, now)
            done += 1
            if self._now() > deadline:
                break
        if buffered:  # the poller does not report those again
            rest = (channel for channel, _ in channels[done:])
            self.reactor.buffered.update((channel, None) for channel in rest if channel in buffered)

    def _continue_stepped(self, now: int, deadline: int) -> None:
        """Continues the handshakes whose step another thread has completed, as many as one poll may."""
        for _ in range(min(len(self._stepped), PREPARED_PER_POLL)):
            channel = self._stepped.popleft()
            if self.channels.get(channel.id) is channel:
                self._attend(channel, READ | PREPARE, None, now)
            if self._now() > deadline:
                break
        if self._stepped:
            self.wakeup()

    def _step_completed(self, channel: KafkaChannel) -> None:
        """Called by the thread that ran a step of a channel's handshake."""
        self._stepped.append(channel)
        self.wakeup()

    def _attend(self, channel: KafkaChannel, flags: int, error: Exception | None, now: int) -> None:
        """Handles a ready channel outside the fast path. An error ends only this channel."""
        started = self._now() if self.reactor.record_time_per_connection else 0
        try:
            if error is not None:
                raise error
            if not flags & PREPARE:
                if flags & HELD:
                    # The reactor does not report the read that found no memory if the turn had read much before.
                    self._out_of_memory |= channel.out_of_memory
                    self._watch(channel, channel.events & ~READ)
                elif flags & NOTHING:
                    self._nothing_received(channel)
            elif not self._prepared(channel):
                return
            elif flags & READABLE or channel.has_bytes_buffered:
                self._read(channel)
            if flags & WRITE and channel.events & WRITE and channel.send is not None:
                self._write(channel)
        except Exception as problem:  # noqa: BLE001 - this connection's end, not the thread's
            if error is None and isinstance(problem, _SendFailedError):
                self._end(channel, problem)
            else:
                self._failed(channel, problem, now)
        finally:
            if self.reactor.record_time_per_connection:
                channel.network_thread_time_ns += self._now() - started

    def _read(self, channel: KafkaChannel) -> None:
        """Reads a channel that has just become ready."""
        if channel.mute_state is not NOT_MUTED or channel.out_of_memory:
            self._watch(channel, channel.events & ~READ)
        elif (payload := channel.read()) is not None:
            self.completed_receives.append((channel, payload))
        else:
            self._nothing_received(channel)

    def _arrange(self, events: list[tuple[int, int]]) -> None:
        if self._pool.available < self._low_memory:
            self._random.shuffle(events)  # otherwise the first channels would take all the memory every time

    def _woken(self, fd: int) -> None:
        """Handles a descriptor that is not, or no longer, a channel."""
        self._news = True
        if fd == self._waker.fd:
            self._waker.drain()
        elif fd in self._listeners:
            self._listeners[fd]()

    def _failed(self, channel: KafkaChannel, error: Exception, now: int) -> None:
        """Closes a channel according to the error that ended it."""
        self._news = True
        log_level, message, mode = logging.DEBUG, "Connection %s disconnected: %s", CloseMode.NOTIFY_ONLY
        channel.error = error
        if isinstance(error, _SendFailedError):
            # Not gracefully: the channel would be kept only to send this response, and sending has failed.
            message = "Connection %s lost while sending: %s"
            channel.error = error.cause
            channel.state = ChannelState.FAILED_SEND
        elif isinstance(error, AuthenticationError):
            self._authentication_failed(channel, error, now)
            return
        elif isinstance(error, EOFError | ConnectionError | TimeoutError):
            mode = CloseMode.GRACEFUL
        elif isinstance(error, ProtocolError):
            self.stats.invalid_receives += 1
            advice = foreign_protocol(error.size) if isinstance(error, InvalidReceiveError) else ""
            rejections.warning("Closing connection %s: %s%s", channel.id, error, advice)
            self.close(channel, mode)
            return
        else:  # any other error ends this connection, not the thread
            log_level, message = logging.WARNING, "Unexpected error from %s; closing connection: %r"
        log.log(log_level, message, channel.id, channel.error)
        self.close(channel, mode)

    def _finish_connect(self, channel: KafkaChannel) -> bool:
        if not channel.transport.finish_connect():
            return False
        self.reactor.connecting.discard(channel)
        self._watch(channel, READ | (WRITE if channel.send is not None else 0))
        self.stats.connections_created += 1
        self.connected.append(channel)
        return True

    def _prepared(self, channel: KafkaChannel) -> bool:
        """Continues connecting, handshake and authentication; returns whether the channel can be read.

        Also true for a channel that is already lost and is only read to its end.
        """
        self._news = True
        if channel.closing:
            return True
        if channel in self.reactor.connecting and not self._finish_connect(channel):
            return False
        anonymous = is_ready(channel)
        wanted = prepare(channel)
        if is_ready(channel):
            self._watch(channel, READ | (WRITE if channel.send is not None else 0))
            self.authenticated.append(channel)
            if not anonymous:
                self._authentication_succeeded(channel)
            return True
        if wanted == ELSEWHERE:
            self._watch(channel, 0)
            channel.transport.continue_elsewhere(partial(self._step_completed, channel))
        elif wanted:
            self._watch(channel, wanted)
        self._await_more(channel)
        return False

    def _authentication_succeeded(self, channel: KafkaChannel) -> None:
        stats = self.stats
        began_ns = self._reauthenticating.pop(channel, None)
        if began_ns is not None:
            taken_ns = self._now() - began_ns
            stats.successful_reauthentications += 1
            stats.reauthentication_ns += taken_ns
            stats.longest_reauthentication_ns = max(stats.longest_reauthentication_ns, taken_ns)
        else:
            stats.successful_authentications += 1
            if not getattr(channel.authenticator, "peer_reauthenticates", False):
                stats.successful_authentications_no_reauth += 1
        due_ns = getattr(channel.authenticator, "reauthenticate_at_ns", None)
        if due_ns is not None:
            self._session_ends[channel] = due_ns

    def _await_more(self, channel: KafkaChannel) -> None:
        """Makes sure that an authentication continues when more bytes can be read."""
        if channel.out_of_memory:
            self._out_of_memory = True
            self._watch(channel, channel.events & ~READ)
        elif channel.events & READ and channel.has_bytes_buffered:
            self.reactor.buffered[channel] = None  # no poller reports those

    def _nothing_received(self, channel: KafkaChannel) -> None:
        """Handles a read that did not complete a request."""
        if channel.out_of_memory:
            self._out_of_memory = True
            self._watch(channel, channel.events & ~READ)
        elif channel.closing:
            self._do_close(channel, notify=True)
        elif channel.has_bytes_buffered:
            self.reactor.buffered[channel] = None
        else:
            self._parts_moved = True
            if not channel.events & READ:  # the data read ahead is used up; the rest has yet to arrive
                self._watch(channel, channel.events | READ)

    def _write(self, channel: KafkaChannel) -> None:
        try:
            done = write(channel)
        except (OSError, EOFError) as error:
            raise _SendFailedError(error) from error
        if done is None:
            self._parts_moved = True
        else:
            self.stats.bytes_sent += done.size
            self._watch(channel, channel.events & ~WRITE)
            self.completed_sends.append((channel, done))

    def _memory_recovered(self) -> None:
        """Resumes the channels that stopped because the memory pool was exhausted."""
        self._out_of_memory = False
        for channel in [*self.channels.values(), *self.closing_channels.values()]:
            if channel.out_of_memory:
                channel.out_of_memory = False
                if not channel.is_muted:
                    if not channel.closing and not channel.has_bytes_buffered:
                        self._watch(channel, channel.events | READ)
                    self.resume(channel)

    # -- waking up

    def wakeup(self) -> None:
        """Ends the wait of the current poll, or of the next one. May be called from any thread."""
        self._waker.wake()

    # -- closing

    def close(self, channel: KafkaChannel, mode: CloseMode = CloseMode.DISCARD_NO_NOTIFY) -> None:
        """Closes a connection.

        A graceful close keeps the channel while it has requests that were received before its end: a batch that a
        producer sent with acks=0 before closing must not be lost.
        """
        self.reactor.connecting.discard(channel)
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
        """Whether a request of this channel is being handled, or has been received and waits to be handled."""
        if not is_ready(channel):
            # The bytes behind an unfinished authentication are those of a stranger: they must never become a request.
            return False
        if channel.is_muted and channel.send is not None:
            # The request was handled and its response was being sent to a peer that does not read. The poller no longer
            # watches the channel, so the response would never get out and the connection would be kept forever.
            return False
        if channel.is_muted or any(received is channel for received, _ in self.completed_receives):
            return True
        if channel.has_bytes_buffered:
            self.reactor.buffered[channel] = None
            return True
        return False

    def _do_close(self, channel: KafkaChannel, *, notify: bool) -> None:
        self.reactor.buffered.pop(channel, None)
        self._watch(channel, 0)
        self.channels.pop(channel.id, None)
        self.closing_channels.pop(channel.id, None)
        self._session_ends.pop(channel, None)
        self._reauthenticating.pop(channel, None)
        channel.abandon_receive()
        if channel.error is not None:
            # The traceback's frames hold the channel and its last read: a cycle that only the garbage collector breaks.
            channel.error.__traceback__ = None
        if channel.transport in self.reactor.held:
            # If the peer has sent more than was read, closing would drop the response that the system has kept back.
            self.reactor.held.remove(channel.transport)
            channel.transport.push()
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
        """Closes the channel later: this slows attackers down and lets the client read the reason first.

        A failed TLS handshake is closed at once: its alert is the reason, and no password was guessed.
        """
        if channel in self._reauthenticating:
            self.stats.failed_reauthentications += 1
        else:
            self.stats.failed_authentications += 1
        channel.state = ChannelState.AUTHENTICATION_FAILED
        rejections.info("Failed authentication with %s (%s)", channel.id, error)
        if self._failed_authentication_delay_ns <= 0 or isinstance(error, SslAuthenticationError):
            self._respond_and_close(channel)
            return
        self.reactor.buffered.pop(channel, None)
        self._watch(channel, 0)
        self._delayed_closes.append((now + self._failed_authentication_delay_ns, channel))

    def _complete_delayed_closes(self, now: int) -> None:
        delayed = self._delayed_closes
        while delayed and delayed[0][0] <= now:
            _, channel = delayed.popleft()
            if self.channels.get(channel.id) is channel:
                self._respond_and_close(channel)

    def _respond_and_close(self, channel: KafkaChannel) -> None:
        """Closes a channel whose peer was refused, after its response, if it has one and the socket takes it."""
        if isinstance(channel.error, ResponseBeforeCloseError) and channel.error.response:
            with contextlib.suppress(OSError):
                NetworkSend([channel.error.response]).write_to(channel.transport)
        self.close(channel, CloseMode.NOTIFY_ONLY)

    def close_all(self) -> None:
        """Closes every connection and the selector itself."""
        for channel in [*self.channels.values(), *self.closing_channels.values()]:
            self.close(channel, CloseMode.DISCARD_NO_NOTIFY)
        self.completed_receives.clear()  # a request that was not handled may hold open files
        self._poller.close()
        self._waker.close()
        close_factory = getattr(self._channel_factory, "close", None)
        if close_factory is not None:
            close_factory()

    def __repr__(self) -> str:
        return f"Selector({len(self.channels)} open, {len(self.closing_channels)} closing)"


__all__ = ["CloseMode", "Selector", "SelectorStats"]
