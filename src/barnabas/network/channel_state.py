"""How far a connection has come, and what can be wrong with what it sends."""

from __future__ import annotations

from enum import IntEnum, auto

from barnabas.common.errors import ProtocolError

READ_AHEAD = 1 << 17
"""How much is read at once. A client that pipelines small requests then costs one system call for many of them."""


class InvalidReceiveError(ProtocolError):
    """A length prefix that cannot be; ``size`` is what it says."""

    def __init__(self, message: str, size: int) -> None:
        super().__init__(message)
        self.size = size


class ChannelState(IntEnum):
    """How far a connection has come; what a client says about a lost one."""

    NOT_CONNECTED = auto()
    AUTHENTICATE = auto()
    READY = auto()
    EXPIRED = auto()
    FAILED_SEND = auto()
    AUTHENTICATION_FAILED = auto()
    LOCAL_CLOSE = auto()
