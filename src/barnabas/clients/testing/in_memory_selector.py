"""The simulated network of a scripted cluster, in place of a selector of sockets."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas._kernels import reactor
from barnabas.network.reactor.channel import ANONYMOUS, ChannelState, KafkaChannel
from barnabas.network.reactor.memory_pool import UNBOUNDED
from barnabas.network.reactor.selector import CloseMode
from barnabas.network.reactor.send import NetworkSend
from barnabas.network.transport import TransportLayer

if TYPE_CHECKING:
    from barnabas.clients.testing.scripted_cluster import ScriptedCluster

SelectorStats = reactor.SelectorStats

_LIMIT: Final = 100 * 1024 * 1024


class _Transport:
    """Accepts all writes. The selector delivers responses directly."""

    is_ready = True
    has_bytes_buffered = False
    send_whole: Any = None
    push: Any = None
    special_frame: Any = None

    def __init__(self) -> None:
        self.written = bytearray()

    def send(self, data: Any) -> int:
        self.written += data
        return len(data)

    def send_more(self, data: Any) -> int:
        return self.send(data)

    def sendmsg(self, buffers: Any) -> int:
        return self.send(b"".join(buffers))

    def recv(self, size: int) -> bytes:  # noqa: ARG002 - never
        raise AssertionError("responses are not read from a transport")

    def recv_into(self, buffer: Any) -> int:  # noqa: ARG002 - never
        raise AssertionError("responses are not read from a transport")

    def handshake(self) -> int:
        return 0

    def expect(self, count: int) -> None:  # noqa: ARG002 - never
        raise AssertionError("responses are not read from a transport")

    def send_file(self, fd: int, position: int, count: int) -> int:  # noqa: ARG002 - never
        raise AssertionError("a client sends no files")

    def finish_connect(self) -> bool:
        return True

    def fileno(self) -> int:
        return -1

    @property
    def socket(self) -> socket.socket:
        raise AssertionError("there is no socket")

    def close(self) -> None: ...


class _Event(NamedTuple):
    due_ms: int
    channel: KafkaChannel
    payload: bytes | None
    """A response; None: the end of the connection."""
    is_connect: bool = False


class InMemorySelector:
    """Passes requests to the cluster and responses back, in order for each connection.

    A poll without events advances the clock, to the next response or to the end of the wait.
    """

    def __init__(self, cluster: ScriptedCluster) -> None:
        self._cluster = cluster
        self._clock = cluster.clock
        self.completed_receives: list[tuple[KafkaChannel, memoryview]] = []
        self.completed_sends: list[tuple[KafkaChannel, NetworkSend]] = []
        self.connected: list[KafkaChannel] = []
        self.disconnected: list[tuple[KafkaChannel, ChannelState]] = []
        self.stats = SelectorStats()
        self._channels: dict[str, KafkaChannel] = {}
        self._hosts: dict[str, int] = {}
        self._events: list[_Event] = []
        self._woken = False
        self.wakeups = 0
        self.polls = 0

    def connect(
        self,
        channel_id: str,
        address: tuple[str, int],
        *,
        host: str,  # noqa: ARG002 - there are no sockets
        family: int,  # noqa: ARG002
        send_buffer: int,  # noqa: ARG002
        receive_buffer: int,  # noqa: ARG002
    ) -> None:
        node_id = next((node.id for node in self._cluster.nodes.values() if node.host == address[0]), None)
        if node_id is None or node_id in self._cluster.down:
            raise ConnectionRefusedError(f"{address[0]} is not running")
        channel = KafkaChannel(channel_id, _Transport(), _LIMIT, UNBOUNDED, ANONYMOUS)
        self._channels[channel_id] = channel
        self._hosts[channel_id] = node_id
        self._events.append(_Event(self._now(), channel, None, is_connect=True))

    def replace_socket(self, channel: KafkaChannel, sock: socket.socket) -> TransportLayer:  # noqa: ARG002
        raise AssertionError("there are no sockets")

    def _now(self) -> int:
        return self._clock.hi_res_milliseconds()

    def channel(self, channel_id: str) -> KafkaChannel | None:
        return self._channels.get(channel_id)

    def open_or_closing(self, channel_id: str) -> KafkaChannel | None:
        return self._channels.get(channel_id)

    def is_channel_ready(self, channel_id: str) -> bool:
        channel = self._channels.get(channel_id)
        return channel is not None and channel.state is ChannelState.READY

    def send(self, channel: KafkaChannel, send: NetworkSend) -> bool:
        send.write_to(channel.transport)
        written: bytearray = channel.transport.written
        while len(written) >= 4 and len(written) >= (size := 4 + int.from_bytes(written[:4])):
            payload = bytes(written[4:size])
            del written[:size]
            self._deliver(channel, payload)
        return True

    def _deliver(self, channel: KafkaChannel, payload: bytes) -> None:
        if any(event.channel is channel and event.payload is None and not event.is_connect for event in self._events):
            return  # the connection is breaking: nothing more is delivered
        response, fate = self._cluster.handle(self._hosts[channel.id], payload)
        # Responses of one connection keep their order.
        due = max([self._now() + fate.delay_ms, *(event.due_ms for event in self._events if event.channel is channel)])
        if fate.lose_request or fate.lose_response:
            self._events.append(_Event(due, channel, None))
        elif response is not None:
            self._events.append(_Event(due, channel, response))

    def poll(self, timeout_ms: float) -> None:
        self.polls += 1
        self.completed_receives.clear()
        self.completed_sends.clear()
        self.connected.clear()
        self.disconnected.clear()
        now = self._now()
        next_due = min((event.due_ms for event in self._events), default=None)
        if not self._woken and (next_due is None or next_due > now):
            wait_ms = min(timeout_ms, self._cluster.idle_limit_ms)
            if next_due is not None:
                wait_ms = min(wait_ms, next_due - now)
            if wait_ms > 0:
                self._clock.advance(wait_ms)
                self.stats.select_ns += round(wait_ms * 1_000_000)
        self._woken = False
        now = self._now()
        due = [event for event in self._events if event.due_ms <= now]
        self._events = [event for event in self._events if event.due_ms > now]
        for event in due:
            self._report(event)

    def _report(self, event: _Event) -> None:
        channel = event.channel
        if self._channels.get(channel.id) is not channel:
            return  # closed meanwhile
        if event.is_connect:
            channel.state = ChannelState.READY
            self.stats.connections_created += 1
            self.connected.append(channel)
        elif event.payload is None:
            del self._channels[channel.id]
            self.stats.connections_closed += 1
            self.disconnected.append((channel, channel.state))
        else:
            self.completed_receives.append((channel, memoryview(event.payload)))

    def break_connections(self, node_id: int) -> None:
        now = self._now()
        for channel in list(self._channels.values()):
            if self._hosts[channel.id] == node_id:
                self._events = [event for event in self._events if event.channel is not channel]
                self._events.append(_Event(now, channel, None))

    def close(self, channel: KafkaChannel, mode: CloseMode = CloseMode.DISCARD_NO_NOTIFY) -> None:  # noqa: ARG002
        if self._channels.pop(channel.id, None) is not None:
            self.stats.connections_closed += 1
        self._events = [event for event in self._events if event.channel is not channel]

    def wakeup(self) -> None:
        self._woken = True
        self.wakeups += 1

    def close_all(self) -> None:
        self.stats.connections_closed += len(self._channels)
        self._channels.clear()
        self._events.clear()
