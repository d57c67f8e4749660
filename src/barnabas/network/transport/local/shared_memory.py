"""Memory that a client shares with the brokers on its machine, so that large batches need not be sent.

A socket copies data twice: into the kernel, and out of it. For batches of a megabyte that is a third of all the work of
client and broker. Here the client writes a batch to shared memory and sends only its location through the socket
(`frame_references`). The broker copies it once, since the client could still change it.

The memory is an anonymous file (``memfd_create``) whose descriptor a broker receives and maps. It is sealed against
shrinking: a broker that accessed truncated memory would be killed.

The memory consists of *slots* of equal size. Each has room before and after the batch for the rest of the request, so
that the whole request is contiguous. The slot released last is used first, because it is the most likely to be in the
processor's cache; a slot that was never used takes no memory.

A slot can be reused once the broker has responded. If the connection ends before that, the broker may still have the
request in a queue and read the slot at any time. So the end of a connection that knew the memory *retires* it: none of
its slots is used again, batches already in it are sent through sockets, and the system reclaims it when the last batch
is gone. The next batch uses new memory.
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
"""Below this size the socket copies data as fast as a reference is resolved."""
HEAD_ROOM: Final = 1024
"""Room for the part of a produce request before its first record: 64 bytes, and the names in it."""
TAIL_ROOM: Final = 64
PAGE: Final = 4096
SEALS: Final = 0x0002 | 0x0004
"""``F_SEAL_SHRINK`` and ``F_SEAL_GROW``: the size is fixed."""
_ADD_SEALS: Final = 1033
_GET_SEALS: Final = 1034

_memories: tuple[weakref.ref[SharedMemory], ...] = ()
"""All memories that are not retired."""
_memories_lock: Final = threading.Lock()
_ids: Final = itertools.count(1)


class SharedMemory:
    """Slots for large buffers. Any thread may call any method: a list's append and pop are atomic."""

    __slots__ = ("__weakref__", "_address", "_fd", "_free", "_mapping", "_slot_bytes", "_view", "id", "retired", "size")

    def __init__(self, largest: int, count: int) -> None:
        """Creates ``count`` slots for buffers of up to ``largest`` bytes. ``OSError`` if the system refuses."""
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
        """Returns an uninitialized buffer of this size; None if there is no room for it."""
        if self.retired or not LEAST_BYTES <= size <= self._slot_bytes - HEAD_ROOM - TAIL_ROOM:
            return None
        try:
            start = self._free.pop() * self._slot_bytes + HEAD_ROOM
        except IndexError:
            return None
        return self._view[start : start + size]

    def give(self, buffer: memoryview) -> None:
        """Releases a buffer that neither end of a connection uses any more. Ignores one of another memory."""
        address = address_of(buffer)
        if self.has(address):
            self._free.append((address - self._address) // self._slot_bytes)

    def has(self, address: int) -> bool:
        return self._address <= address < self._address + self.size

    def place(self, pieces: Sequence[Any], index: int) -> tuple[int, int] | None:
        """Puts the pieces of a message around the one in this memory, without the length at its beginning.

        Returns the position and size of the message; None if there is not enough room.
        """
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
        """Stops handing out buffers, and stops announcing this memory to further brokers."""
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
    """Returns the memory that contains a buffer; None if there is none, or it is retired."""
    memories = _memories
    if memories and type(buffer) is memoryview:
        address = address_of(buffer)
        for reference in memories:
            memory = reference()
            if memory is not None and memory.has(address) and not memory.retired:
                return memory
    return None


def map_memory(fd: int) -> memoryview:
    """Maps the memory of the other end. ``OSError`` or ``ValueError`` if the descriptor is of something else."""
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
