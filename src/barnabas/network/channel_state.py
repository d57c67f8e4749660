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
PIECE = 1 << 21
"""So much of a large request is waited for at once. A fetch of megabytes would wake its thread for every packet."""
MOST_SPARES = 4
"""A consumer has two answers in hand and a third one on its way; its application may still look at the one before."""
SPARES_FOR = 32
"""So many small requests, one after the other, have to come before buffers of large ones are let go of. There is a
small one at every end of a log, and to find new memory behind it would cost as much as to receive into it."""
ROOMY = 8
"""A buffer that is more than so many times as large as a request is not used for it: who keeps one of its records keeps
all of it."""
WHOLE_ALLOCATION = 1 << 26
"""A client believes its broker and gets a buffer for the whole of an answer that is not larger than this. What has not
arrived costs nothing, as the system finds memory when something is written to it. Buffers of larger ones are not
kept."""

GROWN = 14 << 20
GROWING = 2 << 20


def with_room_to_grow(size: int) -> int:
    """How large a buffer for so many bytes is to be, that will be used again for others.

    They may be a little more. And a consumer's answers, once they are large, become larger still until they are of
    twelve megabytes. What is not touched of a buffer costs nothing, and what the first ones have touched need not be
    found again.
    """
    return max(size + size // 8, GROWN if size >= GROWING else 0)


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
