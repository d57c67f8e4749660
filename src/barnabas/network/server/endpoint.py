"""Endpoints: the listeners of a node."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from barnabas.common.dataclass import dataclass


class SecurityProtocol(IntEnum):
    """The security protocols of listeners, with Kafka's numbers."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3


TLS_PROTOCOLS: Final = frozenset({SecurityProtocol.SSL, SecurityProtocol.SASL_SSL})
SASL_PROTOCOLS: Final = frozenset({SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL})


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A listener: its name, its security protocol, and the address it binds to. Port 0 means any free one."""

    listener_name: str
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    host: str = "127.0.0.1"
    port: int = 9092

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener_name}://{host}:{self.port}"
