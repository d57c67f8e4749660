"""The buffers of a client's large responses, kept to receive into again."""

from __future__ import annotations

from barnabas._kernels import sockets
from barnabas._kernels.channel_state import (
    LARGE,
    MOST_SPARES,
    ROOMY,
    SPARES_FOR,
    WHOLE_ALLOCATION,
    with_room_to_grow,
)
from barnabas.common.memory_reuse import is_free


class SpareBuffers(list[bytearray]):
    """The last few buffers of large messages on one connection, the most recent one last.

    A buffer is in use while a view refers to it. The most recent free one is taken first: the fewer buffers alternate,
    the more of them stay in the processor's cache.
    """

    __slots__ = ("_small",)

    def __init__(self) -> None:
        super().__init__()
        self._small = 0
        """Number of small messages since the last large one."""

    def take(self, size: int) -> bytearray | None:
        """Returns a buffer for a large message, to be kept afterwards; None if the message is not of that kind."""
        if not LARGE <= size <= WHOLE_ALLOCATION:
            return None
        for index in range(len(self) - 1, -1, -1):
            if size <= len(self[index]) <= ROOMY * size and is_free(self[index]):
                return self.pop(index)
        return sockets.large_buffer(with_room_to_grow(size))

    def keep(self, buffer: bytearray) -> None:
        """Keeps a buffer, and releases the oldest one if there are too many."""
        self._small = 0
        self.append(buffer)
        del self[:-MOST_SPARES]

    def count_small(self) -> None:
        """Counts a small message; after many in succession no buffer is kept."""
        self._small += 1
        if self._small >= SPARES_FOR:
            self.clear()


__all__ = ["SpareBuffers"]
