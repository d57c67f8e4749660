"""Reuses memory, and returns memory to the system."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final


def is_free(buffer: bytearray) -> bool:
    """Returns whether a buffer, which must not be empty, has no views: a buffer with views cannot change its size.

    Removing the last byte and adding it again does not move the buffer.
    """
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return False
    return True


_PIECE: Final = 1000


def empty(items: list[Any]) -> None:
    """Removes all elements, from the end, a thousand at a time.

    Freeing a list of a hundred thousand objects is one step of the interpreter, of some ten milliseconds in which no
    other thread runs. Between these pieces other threads can run.
    """
    while items:
        del items[-_PIECE:]


def give_back_free_memory() -> None:
    """Returns unused memory to the system, as far as the allocator can.

    glibc has a pool per thread and keeps freed memory there, so large requests that are handled by one thread after the
    other would each leave their memory behind. Other allocators return memory by themselves.
    """
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@lru_cache(maxsize=1)
def _malloc_trim() -> Callable[[int], int] | None:
    import ctypes  # most processes never need it

    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
