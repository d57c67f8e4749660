"""Memory that can be used again, and memory that is given back to the system."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final


def is_free(buffer: bytearray) -> bool:
    """Whether nobody has a view of a buffer, which must not be empty: while there is one, its size cannot change.

    To take the last byte off and to put it on again moves nothing.
    """
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return False
    return True


_PIECE: Final = 1000


def empty(items: list[Any]) -> None:
    """Takes out all elements, from the end, a thousand at a time.

    To free a list of a hundred thousand objects is one step for the interpreter, of some ten milliseconds in which no
    other thread runs. Between these pieces they get their turn.
    """
    while items:
        del items[-_PIECE:]


def give_back_free_memory() -> None:
    """Returns memory that nobody uses to the system, as far as its allocator can.

    glibc gives each thread a pool of its own and keeps what was freed there, so large requests that are handled by one
    thread after the other would each leave their memory behind. Other allocators return memory by themselves.
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
