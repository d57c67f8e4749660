"""The states of a connection, the limits of sending and receiving, and the errors of receiving."""

from __future__ import annotations

from enum import IntEnum, auto

from barnabas.common.errors import ProtocolError

READ_AHEAD = 1 << 17
"""How much is read at once. A client that pipelines small requests then costs one system call for many of them."""

READ_PER_TURN = 1 << 20
"""After so many bytes, the rest of a turn reads only small requests. Hundreds of clients that each send a large request
at once would otherwise keep a client waiting that sends a small one: 300 requests of 200 KB took 55 ms."""

FIRST_READ = 1 << 12
"""What such a turn reads of a request whose size is not known yet. The rest of a large one waits."""

FIRST_ALLOCATION = (1 << 20) + (1 << 16)
"""A request larger than this gets its buffer as its bytes arrive, not because its length prefix says so. Batches of
the largest size that producers send by default fit, including the rest of the request: moving them for the last few
bytes would cost as much as receiving them."""
UNSEEN_ALLOCATION = 1 << 15
"""The same limit while almost nothing has arrived: four bytes on each of ten thousand connections must not cost ten
gigabytes."""

LARGE = 1 << 18
"""A request of at least this size is received in pieces, and its buffer is reused where that is enabled."""
PIECE = 1 << 21
"""How much of a large request to wait for, and to read, at once. A fetch of megabytes would otherwise wake its thread
for every packet, and a request of 60 MiB would keep the thread of others busy for 13 ms."""
MOST_SPARES = 4
"""A consumer holds two responses and receives a third; its application may still use the one before."""
SPARES_FOR = 32
"""How many consecutive small requests release the buffers of large ones. There is a small one at every end of a log,
and allocating new memory after it would cost as much as receiving into it."""
ROOMY = 8
"""A buffer more than this many times larger than a request is not used for it: keeping one record keeps the whole
buffer."""
WHOLE_ALLOCATION = 1 << 26
"""A client trusts its broker and allocates the whole buffer of a response up to this size. Bytes that have not
arrived cost nothing, as the system allocates pages on write. Larger buffers are not kept."""

MAX_UNPOLLED = 4
"""How many requests that were read ahead are taken before the sockets are polled again. A client with the usual five
requests in flight then costs one poll instead of five, and all others wait for at most this many requests."""

JOIN_UP_TO = 1 << 16
"""A message up to this size is sent in one call. That costs a copy, and reading its file regions, which is less than
the calls and packets saved."""
SMALL_PIECE = 1 << 10
"""Pieces up to this size are joined in a long message without files: encoded fields, but not records, which are long
and are sent from where they are."""
MAX_PIECES = 512
"""How many buffers one ``sendmsg`` takes; POSIX guarantees 16, Linux and macOS allow 1024."""

GROWN = 14 << 20
GROWING = 2 << 20


def with_room_to_grow(size: int) -> int:
    """Returns the size of a reusable buffer for this many bytes.

    Later messages may be a little larger. And a consumer's responses, once they are large, grow further, up to twelve
    megabytes. Untouched pages cost nothing, and touched pages need not be allocated again.
    """
    return max(size + size // 8, GROWN if size >= GROWING else 0)


class InvalidReceiveError(ProtocolError):
    """A length prefix is invalid; ``size`` is its value."""

    def __init__(self, message: str, size: int) -> None:
        super().__init__(message)
        self.size = size


class ChannelState(IntEnum):
    """The progress of a connection, used by a client to explain its loss."""

    NOT_CONNECTED = auto()
    AUTHENTICATE = auto()
    READY = auto()
    EXPIRED = auto()
    FAILED_SEND = auto()
    AUTHENTICATION_FAILED = auto()
    LOCAL_CLOSE = auto()
