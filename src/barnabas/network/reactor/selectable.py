"""The selector as a network client sees it."""

from __future__ import annotations

import socket
from typing import Protocol

from barnabas._kernels import reactor
from barnabas.network.reactor.channel import ChannelState, KafkaChannel
from barnabas.network.reactor.selector import CloseMode
from barnabas.network.reactor.send import NetworkSend
from barnabas.network.transport import TransportLayer

SelectorStats = reactor.SelectorStats


class Selectable(Protocol):
    """The part of `barnabas.network.reactor.selector.Selector` that a network client uses; a test may provide less."""

    completed_receives: list[tuple[KafkaChannel, memoryview]]
    completed_sends: list[tuple[KafkaChannel, NetworkSend]]
    connected: list[KafkaChannel]
    disconnected: list[tuple[KafkaChannel, ChannelState]]
    stats: SelectorStats

    def connect(
        self,
        channel_id: str,
        address: tuple[str, int],
        *,
        host: str,
        family: int,
        send_buffer: int,
        receive_buffer: int,
    ) -> None: ...

    def replace_socket(self, channel: KafkaChannel, sock: socket.socket) -> TransportLayer: ...

    def channel(self, channel_id: str) -> KafkaChannel | None: ...

    def open_or_closing(self, channel_id: str) -> KafkaChannel | None: ...

    def is_channel_ready(self, channel_id: str) -> bool: ...

    def send(self, channel: KafkaChannel, send: NetworkSend) -> bool: ...

    def poll(self, timeout_ms: float) -> None: ...

    def close(self, channel: KafkaChannel, mode: CloseMode = ...) -> None: ...

    def wakeup(self) -> None: ...

    def close_all(self) -> None: ...
