"""Configuration of the socket server, under Kafka's names with underscores for dots."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.common.dataclass import dataclass, field
from barnabas.network.server.connection_quotas import ConnectionLimits
from barnabas.network.transport.local.offer import SEND_BUFFER_BYTES


@dataclass(frozen=True, slots=True)
class SocketServerConfig:
    """The configuration of a broker's network layer; the defaults are Kafka's."""

    num_network_threads: int = 3
    """Processors per listener."""
    listener_num_network_threads: Mapping[str, int] = field(default_factory=dict)
    """``listener.name.<name>.num.network.threads``"""
    queued_max_request_bytes: int = -1
    socket_request_max_bytes: int = 100 * 1024 * 1024
    socket_send_buffer_bytes: int = 100 * 1024
    socket_receive_buffer_bytes: int = 100 * 1024
    socket_listen_backlog_size: int = 50
    connections_max_idle_ms: int = 600_000
    connection_failed_authentication_delay_ms: int = 100
    local_socket_enable: bool = False
    """Whether clients on this machine may leave TCP: see `barnabas.network.transport.local.offer`."""
    local_socket_send_buffer_bytes: int = SEND_BUFFER_BYTES
    """Send buffer of the local socket; -1 keeps the operating system's default."""
    for_clients: bool = True
    """False for controller listeners, which may use descriptors that are reserved from clients."""
    limits: ConnectionLimits = field(default_factory=ConnectionLimits)

    def __post_init__(self) -> None:
        if self.num_network_threads < 1:
            raise ValueError(f"num.network.threads must be at least 1, not {self.num_network_threads}")
        if self.socket_request_max_bytes < 1:
            raise ValueError(f"socket.request.max.bytes must be at least 1, not {self.socket_request_max_bytes}")
        if self.socket_listen_backlog_size < 1:
            raise ValueError(f"socket.listen.backlog.size must be at least 1, not {self.socket_listen_backlog_size}")
        if 0 <= self.queued_max_request_bytes < self.socket_request_max_bytes and self.queued_max_request_bytes:
            raise ValueError(
                f"queued.max.request.bytes ({self.queued_max_request_bytes}) must be at least "
                f"socket.request.max.bytes ({self.socket_request_max_bytes}), or negative to be off"
            )
        if 0 <= self.connections_max_idle_ms <= self.connection_failed_authentication_delay_ms:
            raise ValueError(
                "connection.failed.authentication.delay.ms "
                f"({self.connection_failed_authentication_delay_ms}) must be less than connections.max.idle.ms "
                f"({self.connections_max_idle_ms})"
            )

    def processors_of(self, listener: str) -> int:
        return self.listener_num_network_threads.get(listener, self.num_network_threads)
