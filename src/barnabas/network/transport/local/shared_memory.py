"""Memory that a client shares with the brokers on its machine, so that they find its large batches where they are.

A socket copies what is sent through it twice: into the kernel, and out of it. For batches of a megabyte that is a third
of all the work of client and broker. Here a batch is written where both can see it, and what goes through the socket is
where (`frame_references`). The broker copies it once, since the client could still change it.

The memory is a file without a name (``memfd_create``), which a broker gets the descriptor of and maps. It is sealed
against being cut short: a broker that looked at what is no longer there would be killed.

*Slots* are the pieces of it, all of the same size. Before and behind each batch is room for what a request has around
its records, so that the whole request is in one piece. The slot that came back last goes out first, as it is the most
likely one to be in the processor's cache still; one that was never used takes no memory.

When may a slot be used again? When the broker has answered. But a connection may end before it has, and then the broker
may still have the request in a queue and look at the slot at any time. So the end of a connection that knew of the
memory *retires* it: no slot of it goes out any more, what is in some is sent through sockets, and when no batch is left
in it the system takes it back. The next batch comes to be in new memory.
"""

from __future__ import annotations

import itertools
import logging
import mmap
import os
import sys
import threading
import weakref
from collections.abc import Sequence
from typing import Any, Final

if sys.platform != "win32":
    import fcntl

from barnabas._kernels import sockets

address_of = sockets.address_of
log = logging.getLogger(__name__)

SUPPORTED: Final = sys.platform == "linux" and hasattr(os, "memfd_create")
LEAST_BYTES: Final = 128 * 1024
"""What is smaller is copied by the socket as quickly as a reference to it is followed."""
HEAD_ROOM: Final = 1024
"""For all of a produce request that comes before its first record: 64 bytes, and the names in it."""
TAIL_ROOM: Final = 64
PAGE: Final = 4096
SEALS: Final = 0x0002 | 0x0004
"""``F_SEAL_SHRINK`` and ``F_SEAL_GROW``: its size is what it is."""
_ADD_SEALS: Final = 1033
_GET_SEALS: Final = 1034

_memories: tuple[weakref.ref[SharedMemory], ...] = ()
"""All that are not retired."""
_memories_lock: Final = threading.Lock()
_ids: Final = itertools.count(1)


class SharedMemory:
    """Slots for large buffers. Any thread may call any method: a list appends, and pops, in one step."""

    __slots__ = ("__weakref__", "_address", "_fd", "_free", "_mapping", "_slot_bytes", "_view", "id", "retired", "size")

    def __init__(self, largest: int, count: int) -> None:
        """``count`` slots for buffers of up to ``largest`` bytes. ``OSError`` if the system will not have it."""
        global _memories  # noqa: PLW0603 - who sends a buffer has to find the memory that it is in
        if sys.platform != "linux":
            raise OSError("memory is shared on Linux only")
        self.id = next(_ids)
        self._slot_bytes = -(-(HEAD_ROOM + largest + TAIL_ROOM) // PAGE) * PAGE
        self.size = self._slot_bytes * count
        self._fd = os.memfd_create("barnabas", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self._fd, self.size)
            fcntl.fcntl(self._fd, _ADD_SEALS, SEALS)
            self._mapping = mmap.mmap(self._fd, self.size)
        except BaseException:
            os.close(self._fd)
            raise
        self._view = memoryview(self._mapping)
        self._address = address_of(self._view)
        self._free = list(range(count - 1, -1, -1))
        self.retired = False
        with _memories_lock:
            _memories = (*_alive(), weakref.ref(self))

    def __del__(self) -> None:
        self.retire()

    def fileno(self) -> int:
        return self._fd

    def take(self, size: int) -> memoryview | None:
        """A buffer of that many bytes, which are whatever was there before; None if there is no room for it."""
        if self.retired or not LEAST_BYTES <= size <= self._slot_bytes - HEAD_ROOM - TAIL_ROOM:
            return None
        try:
            start = self._free.pop() * self._slot_bytes + HEAD_ROOM
        except IndexError:
            return None
        return self._view[start : start + size]

    def give(self, buffer: memoryview) -> None:
        """Nobody reads, or writes, this buffer any more, neither here nor at the other end of a connection. One that is
        not of this memory is let go of."""
        address = address_of(buffer)
        if self.has(address):
            self._free.append((address - self._address) // self._slot_bytes)

    def has(self, address: int) -> bool:
        return self._address <= address < self._address + self.size

    def place(self, pieces: Sequence[Any], index: int) -> tuple[int, int] | None:
        """Puts the pieces of a message around the one that is here, in front of it without the length that it begins
        with. Returns where it begins, and its size; None if there is not room enough."""
        buffer = pieces[index]
        before, behind = b"".join(pieces[:index])[4:], b"".join(pieces[index + 1 :])
        if len(before) > HEAD_ROOM or len(behind) > TAIL_ROOM:
            return None
        at = address_of(buffer) - self._address
        end = at + len(buffer)
        start = at - len(before)
        self._view[start:at] = before
        self._view[end : end + len(behind)] = behind
        return start, end + len(behind) - start

    def retire(self) -> None:
        """No buffer of it is given out any more, and no broker hears of it that has not."""
        global _memories  # noqa: PLW0603
        if getattr(self, "retired", True):
            return
        self.retired = True
        with _memories_lock:
            _memories = tuple(memory for memory in _alive() if memory() is not self)
            os.close(self._fd)

    def __repr__(self) -> str:
        state = ", retired" if self.retired else ""
        return f"SharedMemory({self.id}, {len(self._free)} slots free{state})"


def _alive() -> tuple[weakref.ref[SharedMemory], ...]:
    return tuple(memory for memory in _memories if memory() is not None)


def memory_of(buffer: Any) -> SharedMemory | None:
    """The memory that a buffer is in; None if it is not in any, or in one that is retired."""
    memories = _memories
    if memories and type(buffer) is memoryview:
        address = address_of(buffer)
        for reference in memories:
            memory = reference()
            if memory is not None and memory.has(address) and not memory.retired:
                return memory
    return None


def map_memory(fd: int) -> memoryview:
    """The other end of it. ``OSError`` or ``ValueError`` for a descriptor of something else."""
    if sys.platform != "linux":
        raise OSError("memory is shared on Linux only")
    seals = fcntl.fcntl(fd, _GET_SEALS)
    if seals & SEALS != SEALS:
        raise ValueError("memory that may be taken away again")
    return memoryview(mmap.mmap(fd, os.fstat(fd).st_size, mmap.MAP_SHARED, mmap.PROT_READ))


__all__ = [
    "HEAD_ROOM",
    "LEAST_BYTES",
    "SUPPORTED",
    "TAIL_ROOM",
    "SharedMemory",
    "address_of",
    "map_memory",
    "memory_of",
]
