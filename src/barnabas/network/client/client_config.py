"""Configuration of a network client, under Kafka's names with underscores for dots."""

from __future__ import annotations

import re

import barnabas
from barnabas.common.dataclass import dataclass
from barnabas.network.transport.local.offer import SEND_BUFFER_BYTES

SOFTWARE_NAME = "barnabas"
"""The default software name of our clients (KIP-511)."""

_NOT_ALLOWED = re.compile(r"[^A-Za-z0-9.-]+")


def _software_text(text: str) -> str:
    """Replaces characters that brokers reject: only letters, digits, dots and hyphens, no dot or hyphen at the ends."""
    return _NOT_ALLOWED.sub("-", text).strip("-.") or "unknown"


@dataclass(frozen=True, slots=True)
class NetworkClientConfig:
    """The configuration of a network client; the defaults are those of Kafka's producer."""

    client_id: str | None = None
    max_in_flight_requests_per_connection: int = 5
    request_timeout_ms: int = 30_000
    """For a request without a time-out of its own."""
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    socket_connection_setup_timeout_ms: int = 10_000
    socket_connection_setup_timeout_max_ms: int = 30_000
    send_buffer_bytes: int = 128 * 1024
    """Send buffer of the socket; -1 keeps the operating system's default."""
    receive_buffer_bytes: int = 32 * 1024
    discover_broker_versions: bool = True
    """Whether to request a node's API versions. Nodes of one cluster may know them beforehand."""
    client_software_name: str = SOFTWARE_NAME
    client_software_version: str = _software_text(barnabas.__version__)
    local_socket_enable: bool = False
    """Whether to use the local socket of a broker on the same machine: see `transport.local.offer`."""
    local_send_buffer_bytes: int = SEND_BUFFER_BYTES
    """Send buffer of the local socket; -1 keeps the operating system's default."""

    def __post_init__(self) -> None:
        if self.max_in_flight_requests_per_connection < 1:
            raise ValueError(
                f"max.in.flight.requests.per.connection must be at least 1, not "
                f"{self.max_in_flight_requests_per_connection}"
            )
        for name in (
            "request_timeout_ms",
            "reconnect_backoff_ms",
            "reconnect_backoff_max_ms",
            "socket_connection_setup_timeout_ms",
            "socket_connection_setup_timeout_max_ms",
        ):
            if getattr(self, name) < 0:
                raise ValueError(f"{name.replace('_', '.')} must not be negative, but is {getattr(self, name)}")
        for name in ("send_buffer_bytes", "receive_buffer_bytes", "local_send_buffer_bytes"):
            if getattr(self, name) < -1:
                raise ValueError(f"{name.replace('_', '.')} must be at least -1, not {getattr(self, name)}")
        for name in ("client_software_name", "client_software_version"):
            text = getattr(self, name)
            if not text or _software_text(text) != text:
                raise ValueError(
                    f"{name.replace('_', '.')} may not be {text!r}: letters, digits, dots and hyphens only"
                )
