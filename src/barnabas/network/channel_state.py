"""How far a connection has come, and what can be wrong with what it sends."""

from __future__ import annotations

from enum import IntEnum, auto

from barnabas.common.errors import ProtocolError

READ_AHEAD = 1 << 17
"""How much is read at once. A client that pipelines small requests then costs one system call for many of them."""

FIRST_ALLOCATION = (1 << 20) + (1 << 16)
"""A request larger than this gets its buffer as its bytes arrive, not on the word of its length prefix. Batches of the
largest size that producers send by default fit in, with all that is around them: to move them for the last few bytes
would cost as much as to receive them."""
UNSEEN_ALLOCATION = 1 << 15
"""The same, while next to nothing of it has arrived: four bytes on each of ten thousand connections must not cost ten
gigabytes."""

LARGE = 1 << 18
"""A request of at least this size is received in pieces, and its buffer used again where that is wanted."""
PIECE = 1 << 20
"""So much of a large request is waited for at once. A fetch of megabytes would wake its thread for every packet."""
MOST_SPARES = 4
"""A consumer has two answers in hand and a third one on its way; its application may still look at the one before."""


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
